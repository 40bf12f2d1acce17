//! The allocator of the command, and how it gives back what it keeps.

use std::ffi::c_long;

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};

/// Many small batches of different sizes from several threads are what the system's allocator does worst.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of mimalloc's option `purge_delay`, which its binding does not name: for how many milliseconds freed
/// memory is kept for reuse.
const PURGE_DELAY: mi_option_t = 15;

/// A tenth of what is usual, for what is kept counts against the memory limit. A scan of Parquet files, whose pages are read
/// into memory that was freed before, takes 0.92 of the processor time that it does with the delay below (q14 of TPC-H).
const PURGE_DELAY_MS: c_long = 100;

/// The same once memory has been short. Without any delay such a scan takes 1.6 times as much.
const SHORT_PURGE_DELAY_MS: c_long = 10;

/// Makes freed memory go back to the system soon. To be called before memory is worked with.
pub(crate) fn return_early() {
    // SAFETY: the option is a number that the allocator reads whenever it frees.
    unsafe { mi_option_set(PURGE_DELAY, PURGE_DELAY_MS) }
}

/// Gives freed memory back to the system now, and sooner from now on: memory is short.
pub(crate) fn collect() {
    // SAFETY: the option is a number that the allocator reads whenever it frees, and the function may be called at
    // any time by any thread.
    unsafe {
        mi_option_set(PURGE_DELAY, SHORT_PURGE_DELAY_MS);
        mi_collect(true);
    }
}
