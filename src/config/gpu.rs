//! When a GPU is used, and in what it multiplies.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::{LaunchShapes, Settings};

/// When work goes to a GPU.
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

/// What plans ask before they ask for a GPU, and what they let it have.
#[derive(Debug, Clone)]
pub(crate) struct GpuUse {
    pub(crate) when: Gpu,
    /// Where its libraries are looked for first; empty is nowhere.
    libraries: Arc<str>,
    pub(crate) memory_limit: Option<usize>,
    /// Whether what is brought there stays.
    pub(crate) keeps: bool,
    pub(crate) threads: usize,
    pub(crate) shapes: Arc<LaunchShapes>,
}

impl GpuUse {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            when: settings.gpu,
            libraries: settings.gpu_libraries.as_str().into(),
            memory_limit: settings.gpu_memory_limit(),
            keeps: settings.gpu_keeps,
            threads: settings.threads,
            shapes: Arc::clone(&settings.gpu_launch_shapes),
        }
    }

    pub(crate) fn libraries(&self) -> Option<&Path> {
        Some(Path::new(self.libraries.as_ref())).filter(|folder| !folder.as_os_str().is_empty())
    }
}

/// In what a GPU computes products, where that is less than what their cells are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuPrecision {
    /// In the type of their cells.
    Off,
    Float32,
    /// The factors' cells are rounded to 11 significant bits, and added up in float32.
    Tf32,
    /// To 8 bits.
    Bf16,
}

impl GpuPrecision {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let all = [Self::Off, Self::Float32, Self::Tf32, Self::Bf16];
        let found = all.into_iter().find(|one| one.to_string().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("'{text}' is none of off, float32, tf32, bf16"))
    }
}

impl fmt::Display for GpuPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Float32 => "float32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        })
    }
}
