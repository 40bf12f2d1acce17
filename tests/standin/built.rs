//! The stand-in for a GPU, built once in a process.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of its libraries: that of `RELATRIX_STANDIN`, or one that is built here; none where there is no compiler.
pub(crate) fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(built).as_deref()
}

fn built() -> Option<PathBuf> {
    let named = env::var_os("RELATRIX_STANDIN").map(PathBuf::from);
    if let Some(folder) = named {
        assert!(folder.join("libcuda.so.1").exists(), "no stand-in in {}", folder.display());
        return Some(folder);
    }
    if Command::new("g++").arg("--version").output().is_err() {
        println!("there is no g++: nothing is tried on a device");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("standin");
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/build.sh");
    let output = Command::new("bash").arg(build).arg(&folder).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the stand-in is not built: {errors}");
    Some(folder)
}
