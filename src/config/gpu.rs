//! When a GPU is used, and what happens where it fails.

use std::fmt;

/// When matrix work goes to a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gpu {
    /// Where that is expected to be clearly faster.
    Auto,
    /// Never; nobody looks whether there is one.
    Off,
    /// Wherever a GPU can do it, however long that takes.
    Force,
}

impl Gpu {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let all = [Self::Auto, Self::Off, Self::Force];
        let found = all.into_iter().find(|one| one.to_string().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("'{text}' is none of auto, off, force"))
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Force => "force",
        })
    }
}
