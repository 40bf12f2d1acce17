//! Looks for devices that work.
//!
//! Enters: where libraries may be. Leaves: the devices of this machine, each [`Seen`], and a [`Device`] or why it is none once somebody
//! asks for it. Not here: which the user wants, and which of them does what ([`assign`](super::assign)).
//!
//! ```text
//! devices()  driver starts ─► Seen 0, Seen 1, …    once in a process
//! Seen       context, trial ─► Device              once each, for it takes memory there and time
//! ```

use std::path::Path;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUdevice_attribute_enum as Attribute};
use cudarc::driver::{DriverError, result, sys};

use super::device::{Device, Facts};
use super::fault::{Absent, Fault};
use super::kernel::{Argument, Launch, Work};
use super::library::{self, Libraries, Missing};
use super::{Headers, Source};
use crate::anew;

/// Of CUDA 12.0: what kernels are compiled for by the oldest NVRTC that is looked for.
const DRIVER_VERSION_MIN: u32 = 12000;

/// Turing, the oldest that NVRTC 13 knows.
const CAPABILITY_MIN: (u32, u32) = (7, 5);

static SEEN: OnceLock<Result<Vec<Seen>, Absent>> = OnceLock::new();

/// A device of this machine.
pub(crate) struct Seen {
    ordinal: usize,
    handle: CUdevice,
    facts: Result<Facts, Absent>,
    opened: OnceLock<Result<Arc<Device>, Absent>>,
}

/// The devices of this machine in the driver's order, at least one, looked for once. `libraries` is a folder that is looked into before
/// those of a toolkit (`CUDA_HOME`, `CUDA_PATH`) and the loader's path; only the first caller's counts.
pub(crate) fn devices(libraries: Option<&Path>) -> Result<&'static [Seen], Absent> {
    SEEN.get_or_init(|| list(libraries)).as_deref().map_err(Clone::clone)
}

/// Those that somebody has asked for, that do and that are not lost.
pub(crate) fn found() -> Vec<Arc<Device>> {
    let opened = seen().iter().filter_map(|seen| seen.opened.get()?.as_ref().ok());
    opened.filter(|device| device.lost().is_none()).map(Arc::clone).collect()
}

/// Whether somebody has looked, and there is none.
pub(crate) fn is_absent() -> bool {
    let is_none = |seen: &Seen| match seen.opened.get() {
        None => seen.facts.is_err(),
        Some(opened) => opened.as_ref().map_or(true, |device| device.lost().is_some()),
    };
    SEEN.get().is_some() && seen().iter().all(is_none)
}

/// Whether somebody has looked, and this machine has more than one, whatever they are.
pub(crate) fn are_several() -> bool {
    seen().len() > 1
}

fn seen() -> &'static [Seen] {
    SEEN.get().and_then(|seen| seen.as_deref().ok()).unwrap_or_default()
}

impl Seen {
    /// Its number among all, from 0.
    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(crate) fn facts(&self) -> Result<&Facts, Absent> {
        self.facts.as_ref().map_err(Clone::clone)
    }

    /// The device, which is tried when it is first asked for.
    pub(crate) fn device(&self) -> Result<Arc<Device>, Absent> {
        let device = self.opened.get_or_init(|| self.open()).clone()?;
        match device.lost() {
            Some(code) => Err(Absent::Lost(code)),
            None => Ok(device),
        }
    }

    fn open(&self) -> Result<Arc<Device>, Absent> {
        let facts = self.facts()?.clone();
        let name = facts.name.clone();
        if facts.capability < CAPABILITY_MIN {
            return Err(Absent::OldDevice { name, capability: facts.capability });
        }
        if attribute(self.handle, Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
            return Err(Absent::NoPools { name });
        }
        // SAFETY: the device was found. Its context is never given back: it lives as long as the process.
        let context = unsafe { result::primary_ctx::retain(self.handle) }.map_err(absent)?;
        // SAFETY: as above.
        let pool = unsafe { result::device::get_default_mem_pool(self.handle) }.map_err(absent)?;
        let folder = anew::user_folder();
        let device = Arc::new(Device::new(context, pool, self.ordinal, facts, folder));
        let tried = device.keep_freed().and_then(|()| trial(&device));
        tried.map_err(|fault| Absent::Trial { name, fault })?;
        Ok(device)
    }
}

fn list(libraries: Option<&Path>) -> Result<Vec<Seen>, Absent> {
    library::driver(libraries).map_err(|missing| match missing {
        Missing::Library(_) => Absent::NoDriver,
        Missing::Symbol { symbol, .. } => Absent::Symbol(symbol),
    })?;
    result::init().map_err(absent)?;
    let count = result::device::get_count().map_err(absent)?;
    if count == 0 {
        return Err(Absent::NoDevice);
    }
    let mut driver_version = 0;
    // SAFETY: writes a number.
    unsafe { sys::cuDriverGetVersion(&mut driver_version) }.result().map_err(absent)?;
    let driver_version = driver_version.unsigned_abs();
    if driver_version < DRIVER_VERSION_MIN {
        return Err(Absent::OldDriver(driver_version));
    }
    let seen = (0..count).map(|ordinal| {
        let handle = result::device::get(ordinal).map_err(absent)?;
        let facts = facts(handle, driver_version, libraries);
        let ordinal = ordinal.unsigned_abs() as usize;
        Ok(Seen { ordinal, handle, facts, opened: OnceLock::new() })
    });
    seen.collect()
}

fn facts(
    ordinal: CUdevice,
    driver_version: u32,
    libraries: Option<&Path>,
) -> Result<Facts, Absent> {
    // SAFETY: the device was found.
    let memory_bytes = unsafe { result::device::total_mem(ordinal) }.map_err(absent)?;
    let uuid = result::device::get_uuid(ordinal).map_err(absent)?;
    Ok(Facts {
        name: result::device::get_name(ordinal).map_err(absent)?,
        uuid: uuid.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        capability: (
            attribute(ordinal, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(ordinal, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        memory_bytes,
        multiprocessors: attribute(ordinal, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        driver_version,
        libraries: Libraries {
            nvrtc: library::nvrtc(libraries),
            cublas: library::cublas(libraries),
            cusolver: library::cusolver(libraries),
            eigenvalues: library::eigenvalues(libraries),
        },
    })
}

fn attribute(ordinal: CUdevice, which: CUdevice_attribute) -> Result<u32, Absent> {
    // SAFETY: the device was found.
    let value = unsafe { result::device::get_attribute(ordinal, which) }.map_err(absent)?;
    Ok(value.unsigned_abs())
}

/// What a code of the driver means before there is a device.
fn absent(error: DriverError) -> Absent {
    match error.0 as u32 {
        100 | 101 => Absent::NoDevice,
        code => Absent::Driver(code),
    }
}

/// Adds one to each of a few numbers there and back; without a compiler, only brings them there and back.
fn trial(device: &Arc<Device>) -> Result<(), Fault> {
    let text = "extern \"C\" __global__ void trial(unsigned *x, unsigned n) {\n\
                unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n\
                if (i < n) x[i] += 1;\n}\n";
    let source = Source {
        text: text.into(),
        headers: Headers(&[]),
        entry: "trial".into(),
        contracts: false,
    };
    let stream = device.stream()?;
    let mut numbers = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
    let buffer = stream.upload(&numbers, "trial")?;
    let mut expected = numbers;
    if device.facts().libraries.nvrtc.is_ok() {
        let launch = Launch { work: Work::Threads(3), block: Some(32), shared_bytes: 0 };
        let arguments = [Argument::Buffer(&buffer), Argument::U32(3)];
        stream.launch(&device.kernel(&source)?, launch, &arguments)?;
        expected = [2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
    }
    stream.download(&buffer, &mut numbers)?;
    match numbers == expected {
        true => Ok(()),
        false => Err(Fault::Misuse { call: "arithmetic", code: 999 }),
    }
}
