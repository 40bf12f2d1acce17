//! Whether answers are remembered, and how much of them.

use std::fmt;

/// What becomes of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultCache {
    /// Every question is answered anew, and no answer is kept.
    Off,
    /// A question that was answered has the same answer, while what it reads is as it was.
    On,
    /// As `On`, but every question is answered anew and compared with what is remembered.
    Verify,
}

impl ResultCache {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let all = [Self::Off, Self::On, Self::Verify];
        let found = all.into_iter().find(|one| one.to_string().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("'{text}' is none of off, on, verify"))
    }
}

impl fmt::Display for ResultCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Verify => "verify",
        })
    }
}

/// How much is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheLimits {
    /// Of all answers.
    pub(crate) bytes: usize,
    /// Of one.
    pub(crate) answer_bytes: usize,
}
