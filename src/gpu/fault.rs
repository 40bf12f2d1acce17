//! Why there is no device, and what goes wrong with one.
//!
//! Enters: codes of the driver. Leaves: what a caller can act on. Not here: what he does then.

use std::fmt;

use cudarc::driver::sys::CUresult;

use super::library::Missing;

/// Why this process has no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Absent {
    #[error("no NVIDIA driver is installed")]
    NoDriver,
    #[error("the NVIDIA driver is too old: it has no {0}")]
    Symbol(&'static str),
    #[error("the NVIDIA driver is too old: it is of CUDA {}.{}, 12.0 is needed", .0 / 1000, .0 % 1000 / 10)]
    OldDriver(u32),
    #[error("the NVIDIA driver does not start: {}", Code(*.0))]
    Driver(u32),
    #[error("there is no NVIDIA device")]
    NoDevice,
    #[error("{name} is too old: its compute capability is {}.{}, 7.5 is needed", .capability.0, .capability.1)]
    OldDevice { name: String, capability: (u32, u32) },
    #[error("{name} has no memory pools")]
    NoPools { name: String },
    #[error("{name} failed its trial: {fault}")]
    Trial { name: String, fault: Fault },
    #[error("the device was lost: {}", Code(*.0))]
    Lost(u32),
}

/// What went wrong on a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// Of the device, or of what it may hold. Fewer bytes may work.
    #[error("the device has no room for {bytes} bytes")]
    Memory { bytes: usize },
    /// The text has an error, or needs what this device has not.
    #[error("kernel {entry} does not compile:\n{log}")]
    Compile { entry: String, log: String },
    /// What was compiled is not for this device or driver, also when it is compiled anew.
    #[error("the driver does not load kernel {entry}: {}", Code(*.code))]
    Image { entry: String, code: u32 },
    /// Every later call is this too.
    #[error("the device is lost: {}", Code(*.code))]
    Lost { code: u32 },
    /// An error of the caller, or more than a block of threads can have.
    #[error("the device refuses {call}: {}", Code(*.code))]
    Misuse { call: &'static str, code: u32 },
    /// A status of a library.
    #[error("{library} fails: status {code}")]
    Library { library: &'static str, code: u32 },
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Who waits was asked to stop. What is queued goes on.
    #[error("stopped")]
    Stopped,
}

/// A code with its name, where it is one that somebody meets.
struct Code(u32);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "invalid value",
            2 => "out of memory",
            3 => "not initialized",
            4 => "shutting down",
            34 => "a stub of the driver was found in its place",
            46 => "the device is in use or not available",
            100 => "no device is found",
            101 => "invalid device",
            200 => "invalid image",
            201 => "invalid context",
            209 => "no binary for this device",
            214 => "uncorrectable memory error",
            218 => "invalid PTX",
            221 => "the driver has no compiler for PTX",
            222 => "the PTX is newer than the driver",
            400 => "invalid handle",
            500 => "not found",
            700 => "a kernel used an illegal address",
            701 => "a launch needs too many resources",
            702 => "a kernel ran too long",
            710 => "an assertion of a kernel failed",
            714..=718 => "a kernel failed",
            719 => "a launch failed",
            801 => "not supported",
            802 => "the system is not ready",
            803 => "the driver and its library are of different versions",
            804 => "the driver does not support this device",
            900..=908 => "not while work is recorded",
            999 => "unknown error",
            _ => return write!(f, "error {} of the driver", self.0),
        };
        write!(f, "{name} (error {} of the driver)", self.0)
    }
}

impl Fault {
    /// What a code of the driver means for the one who called.
    pub(super) fn of(call: &'static str, code: CUresult) -> Self {
        match code as u32 {
            2 => Self::Memory { bytes: 0 },
            code @ (200 | 209 | 218 | 221 | 222) => Self::Image { entry: call.to_owned(), code },
            code @ (1 | 400 | 401 | 500 | 701 | 720 | 801 | 900..=908) => {
                Self::Misuse { call, code }
            }
            code => Self::Lost { code },
        }
    }

    /// The same of so many bytes, where it is for want of memory.
    pub(super) fn for_bytes(self, bytes: usize) -> Self {
        match self {
            Self::Memory { .. } => Self::Memory { bytes },
            other => other,
        }
    }
}
