//! What a process needs in which kernels are checked.

use std::path::Path;
use std::process::Command;

/// Its variables; none where g++ comes without AddressSanitizer, which must be loaded before all else.
pub(crate) fn variables() -> Option<[(&'static str, String); 3]> {
    let output = Command::new("g++").arg("-print-file-name=libasan.so").output().ok()?;
    let library = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    // What g++ has not got, it gives back as it was asked for.
    if !Path::new(&library).is_absolute() {
        println!("g++ comes without AddressSanitizer: no kernel is checked");
        return None;
    }
    // Leaks are counted by the stand-in itself.
    let options = "detect_leaks=0".to_owned();
    Some([("STANDIN_sanitize", "1".to_owned()), ("LD_PRELOAD", library), ("ASAN_OPTIONS", options)])
}
