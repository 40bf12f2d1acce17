//! Looks for a device that works.
//!
//! Enters: where libraries may be. Leaves: the [`Device`] of this process, or why there is none. Not here: whether the
//! user wants one.

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

static FOUND: OnceLock<Result<Arc<Device>, Absent>> = OnceLock::new();

/// The device of this process, looked for once. `libraries` is a folder that is looked into before those of a toolkit
/// (`CUDA_HOME`, `CUDA_PATH`) and the loader's path; only the first caller's counts.
pub(crate) fn device(libraries: Option<&Path>) -> Result<Arc<Device>, Absent> {
    let device = FOUND.get_or_init(|| find(libraries)).clone()?;
    match device.lost() {
        Some(code) => Err(Absent::Lost(code)),
        None => Ok(device),
    }
}

/// The device that was found, if somebody has looked and it is not lost.
pub(crate) fn found() -> Option<Arc<Device>> {
    let device = FOUND.get()?.as_ref().ok()?;
    device.lost().is_none().then(|| Arc::clone(device))
}

/// Whether somebody has looked, and there is none.
pub(crate) fn is_absent() -> bool {
    FOUND.get().is_some_and(|found| found.as_ref().map_or(true, |device| device.lost().is_some()))
}

fn find(libraries: Option<&Path>) -> Result<Arc<Device>, Absent> {
    library::driver(libraries).map_err(|missing| match missing {
        Missing::Library(_) => Absent::NoDriver,
        Missing::Symbol { symbol, .. } => Absent::Symbol(symbol),
    })?;
    result::init().map_err(absent)?;
    if result::device::get_count().map_err(absent)? == 0 {
        return Err(Absent::NoDevice);
    }
    let ordinal = result::device::get(0).map_err(absent)?;
    let facts = facts(ordinal, libraries)?;
    let name = facts.name.clone();
    if facts.driver_version < DRIVER_VERSION_MIN {
        return Err(Absent::OldDriver(facts.driver_version));
    }
    if facts.capability < CAPABILITY_MIN {
        return Err(Absent::OldDevice { name, capability: facts.capability });
    }
    if attribute(ordinal, Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
        return Err(Absent::NoPools { name });
    }
    // SAFETY: the device was found above. Its context is never given back: it lives as long as the process.
    let context = unsafe { result::primary_ctx::retain(ordinal) }.map_err(absent)?;
    // SAFETY: as above.
    let pool = unsafe { result::device::get_default_mem_pool(ordinal) }.map_err(absent)?;
    let device = Arc::new(Device::new(context, pool, facts, anew::user_folder()));
    let tried = device.keep_freed().and_then(|()| trial(&device));
    tried.map_err(|fault| Absent::Trial { name, fault })?;
    Ok(device)
}

fn facts(ordinal: CUdevice, libraries: Option<&Path>) -> Result<Facts, Absent> {
    let mut driver_version = 0;
    // SAFETY: writes a number.
    unsafe { sys::cuDriverGetVersion(&mut driver_version) }.result().map_err(absent)?;
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
        driver_version: driver_version.unsigned_abs(),
        libraries: Libraries {
            nvrtc: library::nvrtc(libraries),
            cublas: library::cublas(libraries),
            cusolver: library::cusolver(libraries),
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
