//! Finds CUDA's libraries, so that cudarc does.
//!
//! Enters: a folder that the user has named. Leaves: libraries that stay open, or why one is [`Missing`]. Not here:
//! what they do.
//!
//! cudarc asks the loader for a library by its name. A library that is open already, by whatever path, answers to its
//! name; so what lies off the loader's path is opened first, by full path, and never closed.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::{cublas, cusolver, driver, nvrtc};

/// What this layer calls. cudarc looks a function up when it is called first, and panics where there is none.
const DRIVER_SYMBOLS: [&str; 44] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid_v2",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetDefaultMemPool",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuOccupancyMaxPotentialBlockSize",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
];

const NVRTC_SYMBOLS: [&str; 12] = [
    "nvrtcVersion",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetSupportedArchs",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcCompileProgram",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
    "nvrtcGetCUBIN",
    "nvrtcGetCUBINSize",
    "nvrtcGetPTX",
    "nvrtcGetPTXSize",
];

const CUBLAS_SYMBOLS: [&str; 6] = [
    "cublasCreate_v2",
    "cublasSetStream_v2",
    "cublasSetWorkspace_v2",
    "cublasDgemm_v2_64",
    "cublasSgemm_v2_64",
    "cublasGemmEx_64",
];

const CUSOLVER_SYMBOLS: [&str; 18] = [
    "cusolverDnCreate",
    "cusolverDnCreateParams",
    "cusolverDnSetStream",
    "cusolverDnXgetrf_bufferSize",
    "cusolverDnXgetrf",
    "cusolverDnXgetrs",
    "cusolverDnXpotrf_bufferSize",
    "cusolverDnXpotrf",
    "cusolverDnXgeqrf_bufferSize",
    "cusolverDnXgeqrf",
    "cusolverDnXsyevd_bufferSize",
    "cusolverDnXsyevd",
    "cusolverDnXgesvdp_bufferSize",
    "cusolverDnXgesvdp",
    "cusolverDnDorgqr_bufferSize",
    "cusolverDnDorgqr",
    "cusolverDnSorgqr_bufferSize",
    "cusolverDnSorgqr",
];

/// What cuSOLVER has since CUDA 12.6 alone.
const CUSOLVER_EIGEN_SYMBOLS: [&str; 2] = ["cusolverDnXgeev_bufferSize", "cusolverDnXgeev"];

/// Which libraries beside the driver there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Libraries {
    /// The compiler of kernels, and its version.
    pub(crate) nvrtc: Result<(u32, u32), Missing>,
    /// Products of matrices.
    pub(crate) cublas: Result<(), Missing>,
    /// Their factors.
    pub(crate) cusolver: Result<(), Missing>,
    /// The eigenvalues of any of them.
    pub(crate) eigenvalues: Result<(), Missing>,
}

/// A library that is not there, or not as it is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Missing {
    #[error("{0} is not installed")]
    Library(&'static str),
    #[error("{library} has no {symbol}")]
    Symbol { library: &'static str, symbol: &'static str },
}

/// Whether there is a driver: one in a folder that was named, else the loader's.
pub(super) fn driver(named: Option<&Path>) -> Result<(), Missing> {
    // A toolkit has a stub in the driver's place, so only a folder that was named for it is looked into.
    if let Some(folder) = named {
        open(folder, &["libcuda.so.1", "nvcuda.dll"]);
    }
    // SAFETY: asks the loader whether it can open a library whose initialization has no conditions.
    if !unsafe { driver::sys::is_culib_present() } {
        return Err(Missing::Library("the NVIDIA driver"));
    }
    // SAFETY: it is present.
    has_all("the NVIDIA driver", unsafe { driver::sys::culib() }, &DRIVER_SYMBOLS)
}

/// Whether there is a compiler, and its version; looked for once in a process.
pub(super) fn nvrtc(named: Option<&Path>) -> Result<(u32, u32), Missing> {
    static FOUND: OnceLock<Result<(u32, u32), Missing>> = OnceLock::new();
    let find = || {
        NVRTC.find(named)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: it is present, and writes two numbers.
        let _ = unsafe { nvrtc::sys::nvrtcVersion(&mut major, &mut minor) };
        Ok((major.unsigned_abs(), minor.unsigned_abs()))
    };
    FOUND.get_or_init(find).clone()
}

/// Whether there are products; looked for once in a process.
pub(super) fn cublas(named: Option<&Path>) -> Result<(), Missing> {
    static FOUND: OnceLock<Result<(), Missing>> = OnceLock::new();
    FOUND.get_or_init(|| CUBLAS.find(named)).clone()
}

/// Whether there are factorizations; looked for once in a process.
pub(super) fn cusolver(named: Option<&Path>) -> Result<(), Missing> {
    static FOUND: OnceLock<Result<(), Missing>> = OnceLock::new();
    FOUND.get_or_init(|| CUSOLVER.find(named)).clone()
}

/// Whether cuSOLVER finds eigenvalues of matrices that are not symmetric, as those of CUDA 12.6 and later do.
pub(super) fn eigenvalues(named: Option<&Path>) -> Result<(), Missing> {
    cusolver(named)?;
    // SAFETY: it is present.
    has_all(CUSOLVER.name, unsafe { (CUSOLVER.opened)() }, &CUSOLVER_EIGEN_SYMBOLS)
}

/// A library that lies in a folder of a toolkit, or where the loader looks.
struct Library {
    name: &'static str,
    /// Names of its files, after those of what it calls by name; a newer version first.
    files: &'static [&'static [&'static str]],
    is_present: unsafe fn() -> bool,
    opened: unsafe fn() -> &'static libloading::Library,
    symbols: &'static [&'static str],
}

const NVRTC: Library = Library {
    name: "NVRTC",
    files: &[&["libnvrtc-builtins.so."], &["libnvrtc.so.13", "libnvrtc.so.12"]],
    is_present: nvrtc::sys::is_culib_present,
    opened: nvrtc::sys::culib,
    symbols: &NVRTC_SYMBOLS,
};

const CUBLAS: Library = Library {
    name: "cuBLAS",
    files: &[&["libcublasLt.so.13", "libcublasLt.so.12"], &["libcublas.so.13", "libcublas.so.12"]],
    is_present: cublas::sys::is_culib_present,
    opened: cublas::sys::culib,
    symbols: &CUBLAS_SYMBOLS,
};

const CUSOLVER: Library = Library {
    name: "cuSOLVER",
    files: &[
        &["libnvJitLink.so.13", "libnvJitLink.so.12"],
        &["libcublasLt.so.13", "libcublasLt.so.12"],
        &["libcublas.so.13", "libcublas.so.12"],
        &["libcusparse.so.12"],
        &["libcusolver.so.12", "libcusolver.so.11"],
    ],
    is_present: cusolver::sys::is_culib_present,
    opened: cusolver::sys::culib,
    symbols: &CUSOLVER_SYMBOLS,
};

impl Library {
    fn find(&self, named: Option<&Path>) -> Result<(), Missing> {
        for folder in folders(named) {
            self.files.iter().for_each(|names| open(&folder, names));
        }
        // SAFETY: asks the loader whether it can open a library whose initialization has no conditions.
        if !unsafe { (self.is_present)() } {
            return Err(Missing::Library(self.name));
        }
        // SAFETY: it is present.
        has_all(self.name, unsafe { (self.opened)() }, self.symbols)
    }
}

/// The folder that was named, then those of a toolkit.
fn folders(named: Option<&Path>) -> Vec<PathBuf> {
    let toolkit = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(toolkit);
    let below = |root: OsString| ["lib64", "lib", "bin"].map(|below| Path::new(&root).join(below));
    named.map(Path::to_path_buf).into_iter().chain(toolkits.flat_map(below)).collect()
}

/// Opens the first file of a folder that has one of these names, for as long as the process lives. A name that ends
/// with a dot stands for any version.
fn open(folder: &Path, names: &[&str]) {
    let any = |start: &str| {
        let files = fs::read_dir(folder).ok()?.flatten();
        files.map(|file| file.path()).find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(start))
        })
    };
    let path = |name: &&str| match name.ends_with('.') {
        true => any(name),
        false => Some(folder.join(name)).filter(|path| path.exists()),
    };
    if let Some(path) = names.iter().find_map(path) {
        // SAFETY: the initialization of CUDA's libraries has no conditions.
        if let Ok(library) = unsafe { libloading::Library::new(path) } {
            std::mem::forget(library);
        }
    }
}

fn has_all(
    library: &'static str,
    opened: &libloading::Library,
    symbols: &[&'static str],
) -> Result<(), Missing> {
    // SAFETY: the symbol is looked up, not called.
    let has = |symbol: &str| unsafe { opened.get::<unsafe extern "C" fn()>(symbol) }.is_ok();
    match symbols.iter().find(|symbol| !has(symbol)) {
        Some(symbol) => Err(Missing::Symbol { library, symbol }),
        None => Ok(()),
    }
}
