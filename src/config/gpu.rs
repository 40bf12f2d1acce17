//! When a GPU is used, which, and in what it multiplies.

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

/// Which of several GPUs are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GpuDevices {
    text: String,
    /// All where there are none.
    named: Vec<Named>,
}

/// By what a GPU is known.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    /// Among those that the driver shows, from 0.
    Number(usize),
    /// The first of its hexadecimal digits, or all.
    Uuid(String),
}

impl GpuDevices {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let words = text.split(',').map(str::trim);
        let named = match text.trim() {
            "" => Vec::new(),
            _ => words.map(Named::read).collect::<Result<_, _>>()?,
        };
        Ok(Self { text: text.to_owned(), named })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the one of this number and these hexadecimal digits is used.
    pub(crate) fn has(&self, ordinal: usize, uuid: &str) -> bool {
        let is_named = |named: &Named| match named {
            Named::Number(number) => *number == ordinal,
            Named::Uuid(digits) => uuid.starts_with(digits),
        };
        self.named.is_empty() || self.named.iter().any(is_named)
    }
}

impl Named {
    /// As tools of the driver write it: 0, or GPU-1b9c….
    fn read(word: &str) -> Result<Self, String> {
        let uuid = word.get(..4).filter(|start| start.eq_ignore_ascii_case("GPU-"));
        let found = match uuid {
            None => word.parse().ok().map(Self::Number),
            Some(start) => {
                let digits = word[start.len()..].replace('-', "").to_ascii_lowercase();
                let is_one =
                    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                is_one.then_some(Self::Uuid(digits))
            }
        };
        found.ok_or_else(|| {
            format!("'{word}' is neither the number of a GPU, from 0, nor a UUID like GPU-1b9c")
        })
    }
}

/// What plans ask before they ask for a GPU, and what they let it have.
#[derive(Debug, Clone)]
pub(crate) struct GpuUse {
    pub(crate) when: Gpu,
    /// Whether its failures are errors.
    must_not_fail: bool,
    /// Where its libraries are looked for first; empty is nowhere.
    libraries: Arc<str>,
    pub(crate) devices: Arc<GpuDevices>,
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
            must_not_fail: settings.gpu_must_not_fail,
            libraries: settings.gpu_libraries.as_str().into(),
            devices: Arc::clone(&settings.gpu_devices),
            memory_limit: settings.gpu_memory_limit(),
            keeps: settings.gpu_keeps,
            threads: settings.threads,
            shapes: Arc::clone(&settings.gpu_launch_shapes),
        }
    }

    /// Why something is not for a GPU any more; whoever insists on one has it tried again.
    pub(crate) fn fallen(&self, why: impl FnOnce() -> Option<String>) -> Option<String> {
        match self.when {
            Gpu::Off => None,
            Gpu::Force if self.must_not_fail => None,
            Gpu::Auto | Gpu::Force => why(),
        }
    }

    pub(crate) fn libraries(&self) -> Option<&Path> {
        Some(Path::new(self.libraries.as_ref())).filter(|folder| !folder.as_os_str().is_empty())
    }
}

/// Whether rounds of an iteration on a GPU are recorded, and started by one call each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuGraphs {
    /// Where that is expected to be faster.
    Auto,
    Off,
    /// Wherever they can be.
    Force,
}

impl GpuGraphs {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let all = [Self::Auto, Self::Off, Self::Force];
        let found = all.into_iter().find(|one| one.to_string().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("'{text}' is none of auto, off, force"))
    }
}

impl fmt::Display for GpuGraphs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Force => "force",
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_by_number_or_by_uuid() {
        let uuid = "1b9c00ff1b9c00ff1b9c00ff1b9c00ff";
        let has = |text: &str| {
            let devices = GpuDevices::read(text).unwrap();
            [0, 1, 12].map(|ordinal| devices.has(ordinal, uuid))
        };
        assert_eq!(has(""), [true; 3]);
        assert_eq!(has("0, 12"), [true, false, true]);
        assert_eq!(has("1"), [false, true, false]);
        assert_eq!(has("3,GPU-1B9C00ff-1b9c-00ff-1b9c-00ff1b9c00ff"), [true; 3]);
        assert_eq!(has("gpu-1b9c"), [true; 3]);
        assert_eq!(has("GPU-00ff"), [false; 3]);
        for text in [",", "0,", "-1", "GPU-", "GPU-xyz", "1b9c", "0 1", "GPÜ-1b"] {
            assert!(GpuDevices::read(text).is_err(), "{text}");
        }
    }
}
