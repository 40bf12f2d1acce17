//! Texts of kernels become images that a driver loads.
//!
//! Enters: a [`Source`], and the architecture that it is for. Leaves: a cubin, or PTX where NVRTC does not know the
//! architecture, and what the compiler says. Not here: the device; all of this works without one.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int};
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::ptr;
use std::thread;

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};

use super::fault::Fault;
use super::library::{self, Missing};
use crate::anew;

/// The stack of the thread in which NVRTC works. It ends the process where it has too little: 500 parentheses in each other
/// take more than 1 MiB (measured).
const STACK_BYTES: usize = 64 << 20;

/// Names and texts of what kernels include: two are the same where they lie in one place, for nobody is to read them at each launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Headers(pub(crate) &'static [(&'static str, &'static str)]);

impl PartialEq for Headers {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Headers {}

impl Hash for Headers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

/// The text of a kernel. What it includes is among its headers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) text: Cow<'static, str>,
    pub(crate) headers: Headers,
    /// The name of an `extern "C" __global__` function, whose parameters are pointers and numbers.
    pub(crate) entry: Cow<'static, str>,
    /// Whether a product and a sum may be rounded once: faster, but not what the processor computes.
    pub(crate) contracts: bool,
}

impl Source {
    /// By which its image is known: its text and all that decides what becomes of it.
    pub(super) fn key(&self, architecture: &str, version: (u32, u32)) -> u128 {
        let version = format!("{} {version:?}", env!("CARGO_PKG_VERSION"));
        let options = self.options(architecture);
        let texts =
            self.headers.0.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
        let options = options.iter().map(String::as_bytes);
        let first = [version.as_bytes(), self.text.as_bytes()].into_iter();
        anew::sum(first.chain(texts).chain(options))
    }

    fn options(&self, architecture: &str) -> Vec<String> {
        let mut options = vec![
            format!("--gpu-architecture={architecture}"),
            "--std=c++17".to_owned(),
            format!("--fmad={}", self.contracts),
        ];
        if is_real(architecture) {
            // The log then has registers and spills.
            options.push("--ptxas-options=-v".to_owned());
        }
        options
    }
}

/// Whether it is one of a device, not of PTX.
fn is_real(architecture: &str) -> bool {
    architecture.starts_with("sm_")
}

/// The architecture for a device: its own, or that of PTX where NVRTC is older than the device.
pub(super) fn architecture((major, minor): (u32, u32)) -> String {
    let own = major * 10 + minor;
    let mut count = 0;
    // SAFETY: NVRTC is present, for the device's libraries say so; writes a number.
    let _ = unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) };
    let mut known: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: writes as many numbers as it said.
    let _ = unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) };
    let known = known.into_iter().map(c_int::unsigned_abs).filter(|&known| known <= own);
    match known.max() {
        Some(newest) if newest < own => format!("compute_{newest}"),
        _ => format!("sm_{own}"),
    }
}

/// Compiles for an architecture: `sm_90` makes a cubin, `compute_90` PTX. `libraries` is where to look for NVRTC
/// first, if nobody has yet. The log names registers and spills of a cubin.
///
/// # Errors
/// [`Fault::Compile`] with the compiler's text; [`Fault::Missing`] without NVRTC.
pub(crate) fn compile(
    libraries: Option<&Path>,
    source: &Source,
    architecture: &str,
) -> Result<(Vec<u8>, String), Fault> {
    library::nvrtc(libraries)?;
    let thread = thread::Builder::new().name("relatrix-nvrtc".to_owned()).stack_size(STACK_BYTES);
    thread::scope(|scope| {
        let compiled = thread.spawn_scoped(scope, || compiled(source, architecture));
        compiled.ok().and_then(|compiled| compiled.join().ok())
    })
    .unwrap_or_else(|| {
        let log = "the compiler has no thread to run in".to_owned();
        Err(Fault::Compile { entry: source.entry.clone().into_owned(), log })
    })
}

fn compiled(source: &Source, architecture: &str) -> Result<(Vec<u8>, String), Fault> {
    let program = Program::new(source)?;
    let options: Vec<CString> = source.options(architecture).iter().map(|o| text(o)).collect();
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: the program lives, and so do the options, which end with zeros.
    let done =
        unsafe { sys::nvrtcCompileProgram(program.0, options.len() as c_int, options.as_ptr()) };
    let log = program.log();
    match done {
        nvrtcResult::NVRTC_SUCCESS => {}
        nvrtcResult::NVRTC_ERROR_BUILTIN_OPERATION_FAILURE => {
            return Err(Missing::Library("libnvrtc-builtins").into());
        }
        other => return Err(failed(source, other, log)),
    }
    let (size, get): (Size, Get) = match is_real(architecture) {
        true => (sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN),
        false => (sys::nvrtcGetPTXSize, sys::nvrtcGetPTX),
    };
    let image = program.bytes(size, get).map_err(|code| failed(source, code, log.clone()))?;
    Ok((image, log))
}

type Size = unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult;
type Get = unsafe fn(nvrtcProgram, *mut c_char) -> nvrtcResult;

fn failed(source: &Source, code: nvrtcResult, log: String) -> Fault {
    let log = if log.is_empty() { format!("NVRTC fails: error {}", code as u32) } else { log };
    Fault::Compile { entry: source.entry.clone().into_owned(), log }
}

/// Of C: up to the first zero, of which no text of ours has one.
fn text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// A program of NVRTC.
struct Program(nvrtcProgram);

impl Program {
    fn new(source: &Source) -> Result<Self, Fault> {
        let (code, name) = (text(&source.text), text(&format!("{}.cu", source.entry)));
        let headers: Vec<[CString; 2]> =
            source.headers.0.iter().map(|(name, content)| [text(name), text(content)]).collect();
        let names: Vec<*const c_char> = headers.iter().map(|[name, _]| name.as_ptr()).collect();
        let texts: Vec<*const c_char> = headers.iter().map(|[_, text]| text.as_ptr()).collect();
        let mut program = ptr::null_mut();
        // SAFETY: all texts end with zeros and live; there are as many names as headers.
        let made = unsafe {
            sys::nvrtcCreateProgram(
                &mut program,
                code.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        match made {
            nvrtcResult::NVRTC_SUCCESS => Ok(Self(program)),
            other => Err(failed(source, other, String::new())),
        }
    }

    /// What the compiler said; nothing where it does not tell.
    fn log(&self) -> String {
        let bytes = self.bytes(sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog);
        let bytes = bytes.unwrap_or_default();
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        text.to_string_lossy().trim().to_owned()
    }

    fn bytes(&self, size: Size, get: Get) -> Result<Vec<u8>, nvrtcResult> {
        let done = |code| match code {
            nvrtcResult::NVRTC_SUCCESS => Ok(()),
            other => Err(other),
        };
        let mut length = 0;
        // SAFETY: the program lives; writes a number.
        done(unsafe { size(self.0, &mut length) })?;
        let mut bytes = vec![0; length];
        // SAFETY: writes as many bytes as it said.
        done(unsafe { get(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was made by NVRTC and is destroyed once.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}
