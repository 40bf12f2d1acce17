//! What the stand-in is told to fail at.

use std::ffi::{CString, c_char, c_longlong};
use std::sync::OnceLock;

use crate::built::folder;

/// What can be refused, each the n-th from now on.
pub(crate) const FAULTS: [&str; 5] =
    ["fail_alloc", "refuse_copy", "refuse_launch", "refuse_product", "refuse_factorization"];

/// The same of graphs: to begin one, to end it, to make it ready, to start it.
pub(crate) const GRAPH_FAULTS: [&str; 4] =
    ["refuse_capture", "refuse_captured", "refuse_graph", "refuse_replay"];

fn library() -> &'static libloading::Library {
    static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = folder().expect("who asks has a stand-in").join("libcuda.so.1");
        // SAFETY: opening it runs nothing.
        unsafe { libloading::Library::new(path) }.unwrap()
    })
}

/// Changes what happens.
pub(crate) fn set(name: &str, value: i64) {
    let name = CString::new(name).unwrap();
    // SAFETY: the stand-in has this function, of these types.
    unsafe {
        let set = library().get::<unsafe extern "C" fn(*const c_char, c_longlong)>("standin_set");
        set.unwrap()(name.as_ptr(), value);
    }
}

/// What is set, or was counted.
pub(crate) fn get(name: &str) -> i64 {
    let name = CString::new(name).unwrap();
    // SAFETY: as above.
    unsafe {
        let get = library().get::<unsafe extern "C" fn(*const c_char) -> c_longlong>("standin_get");
        get.unwrap()(name.as_ptr())
    }
}

/// Nothing fails any more.
pub(crate) fn reset() {
    FAULTS.iter().chain(&GRAPH_FAULTS).for_each(|fault| set(fault, 0));
    ["fail_allocs", "fail_compile", "refuse_wait", "refuse_record", "never_done", "order"]
        .iter()
        .for_each(|name| set(name, 0));
}
