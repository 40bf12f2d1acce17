//! The layer as its callers use it, with stand-ins for the driver and its libraries.
//!
//! A process finds its devices once and opens a library once, so each test runs in a process of its own: this binary, which is
//! asked for that test alone. `RELATRIX_STANDIN` names the folder of the stand-ins, `RELATRIX_NVRTC` that of NVRTC
//! itself; without them such tests are skipped.

mod checked;
mod faults;
mod graphs;
mod kernels;
#[path = "../../../tests/standin/sanitizer.rs"]
mod sanitizer;
mod several;
mod work;

use std::ffi::{CString, c_char, c_long};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::device::Live;
use super::fault::Absent;
use super::kernel::Kernel;
use super::staging::BLOCK_BYTES;
use super::*;

/// Says, in a process of a test, which.
const INSIDE: &str = "RELATRIX_TEST_INSIDE";

/// Runs the rest of a test in a process of its own, with these variables and an empty cache: true there.
fn is_inside(test: &str, variables: &[(&str, &str)]) -> bool {
    is_inside_of(&path(test), variables)
}

/// The same of a test by its whole path.
fn is_inside_of(test: &str, variables: &[(&str, &str)]) -> bool {
    let Some(output) = outcome_of(test, variables) else { return true };
    let text = text(&output);
    assert!(output.status.success() && text.contains("1 passed"), "{test}, inside:\n{text}");
    false
}

/// That of a test of ours.
fn path(test: &str) -> String {
    format!("{}::{test}", module_path!().split_once("::").unwrap().1)
}

/// The same, however that process ends; none there.
fn outcome(test: &str, variables: &[(&str, &str)]) -> Option<Output> {
    outcome_of(&path(test), variables)
}

fn outcome_of(test: &str, variables: &[(&str, &str)]) -> Option<Output> {
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return None;
    }
    let cache = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .args(["--nocapture", "--test-threads", "1"])
        .env(INSIDE, test)
        .env("XDG_CACHE_HOME", cache.path())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    Some(output)
}

/// What a process has said.
fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// A folder that a variable names.
fn folder(variable: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_dir());
    if folder.is_none() {
        eprintln!("skipped: {variable} names no folder");
    }
    folder
}

/// The first device.
fn device(libraries: Option<&Path>) -> Result<Arc<Device>, Absent> {
    devices(libraries)?[0].device()
}

/// The stand-in driver of this process, and its faults.
struct StandIn(libloading::Library);

impl StandIn {
    /// Sets what goes wrong: the n-th from now of a kind, or a state.
    fn set(&self, name: &str, value: i64) {
        let name = CString::new(name).unwrap();
        // SAFETY: the stand-in has this function, of these types.
        unsafe {
            let set = self.0.get::<unsafe extern "C" fn(*const c_char, c_long)>("standin_set");
            set.unwrap()(name.as_ptr(), value);
        }
    }

    fn get(&self, name: &str) -> i64 {
        let name = CString::new(name).unwrap();
        // SAFETY: as above.
        unsafe {
            let get = self.0.get::<unsafe extern "C" fn(*const c_char) -> c_long>("standin_get");
            get.unwrap()(name.as_ptr())
        }
    }

    /// Allocations that were not freed.
    fn live(&self) -> i64 {
        self.get("buffers")
    }
}

/// In a process of its own, with these variables: the device by the stand-ins, and its faults. True there.
fn with_stand_in(test: &str, variables: &[(&str, &str)], work: fn(Arc<Device>, StandIn)) -> bool {
    with_folder(test, variables, |folder| {
        let device = device(Some(&folder)).unwrap();
        assert_eq!(device.live(), []);
        // SAFETY: it is open already.
        let library = unsafe { libloading::Library::new(folder.join("libcuda.so.1")) };
        work(device, StandIn(library.unwrap()));
    })
}

/// The same of a test elsewhere, by its whole path, which may choose in which order threads have their turns.
pub(crate) fn with_device(test: &str, work: fn(&Arc<Device>, &dyn Fn(i64))) {
    let Some(folder) = folder("RELATRIX_STANDIN").filter(|_| is_inside_of(test, &[])) else {
        return;
    };
    let device = device(Some(&folder)).unwrap();
    // SAFETY: it is open already.
    let library = unsafe { libloading::Library::new(folder.join("libcuda.so.1")) };
    let stand_in = StandIn(library.unwrap());
    work(&device, &|order| stand_in.set("order", order));
    device.trim().unwrap();
    assert_eq!((device.live(), stand_in.live()), (vec![], 0));
}

fn with_folder(test: &str, variables: &[(&str, &str)], work: impl FnOnce(PathBuf)) -> bool {
    let inside = folder("RELATRIX_STANDIN").filter(|_| is_inside(test, variables));
    inside.map(work).is_some()
}

const SCALE: &str = r#"
extern "C" __global__ void scale(double *x, double by, double more, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        x[i] = x[i] * by + more;
}
extern "C" __global__ void first(double *x, unsigned long long n) {
    if (n && blockIdx.x == 0 && threadIdx.x == 0) x[0] = blockDim.x;
}
"#;

fn scale() -> Source {
    Source { text: SCALE.into(), headers: Headers(&[]), entry: "scale".into(), contracts: false }
}

const BY_OCCUPANCY: Launch = Launch { work: Work::Threads(10_000), block: None, shared_bytes: 0 };

fn bytes_of(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn numbers_of(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|number| f64::from_ne_bytes(*number)).collect()
}

/// Copies, launches and multiplies; what it allocates, uploads and launches is the same each time.
fn each_kind(device: &Arc<Device>) -> Result<Vec<f64>, Fault> {
    let stream = device.stream()?;
    let numbers: Vec<f64> = (0..16).map(f64::from).collect();
    let a = stream.upload(&bytes_of(&numbers), "a")?;
    let b = stream.copy(&a)?;
    let kernel = device.kernel(&scale())?;
    let arguments = |buffer| {
        [Argument::Buffer(buffer), Argument::F64(0.5), Argument::F64(1.0), Argument::U32(16)]
    };
    stream.launch(&kernel, BY_OCCUPANCY, &arguments(&b))?;
    let out = stream.alloc(a.bytes(), "out")?;
    let product = Product { arithmetic: Arithmetic::F64, transposed: [false; 2], m: 4, k: 4, n: 4 };
    stream.product(product, &a, &b, &out)?;
    stream.launch(&kernel, BY_OCCUPANCY, &arguments(&out))?;
    stream.finish(Some(&AtomicBool::new(false)))?;
    let mut got = vec![0; out.bytes()];
    stream.download(&out, &mut got)?;
    Ok(numbers_of(&got))
}

#[test]
fn handles_go_from_thread_to_thread() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Device>();
    is_shared::<Stream>();
    is_shared::<Buffer>();
    is_shared::<Kernel>();
}
