//! The pool whose database a thread works for.
//!
//! Kernels make matrices in many places and on threads of the database, or of those who wait for it, so its pool comes with the
//! thread rather than through each of them; so does what they ask of it.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use bytemuck::Pod;

use super::block::MAPPED_BYTES_MIN;
use super::mapping::Residency;
use super::pool::Pool;

thread_local! {
    static SERVED_BY: RefCell<Weak<Pool>> = const { RefCell::new(Weak::new()) };
}

impl Pool {
    /// From now on the matrices that this thread makes are in blocks of this pool.
    pub(crate) fn serve_this_thread(self: &Arc<Self>) {
        SERVED_BY.set(Arc::downgrade(self));
    }

    /// The same while `work` is done, of a thread that is not the database's.
    pub(crate) fn serve<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        struct Before(Weak<Pool>);
        impl Drop for Before {
            fn drop(&mut self) {
                SERVED_BY.set(std::mem::take(&mut self.0));
            }
        }
        let _before = Before(SERVED_BY.replace(Arc::downgrade(self)));
        work()
    }
}

/// The pool of this thread, if it has one that is still there.
pub(super) fn pool() -> Option<Arc<Pool>> {
    SERVED_BY.with_borrow(Weak::upgrade)
}

/// Whether these bytes are in a file.
pub(crate) fn is_on_disk(bytes: &[u8]) -> bool {
    with_residency(|residency| residency.has(bytes)).unwrap_or(false)
}

/// Says that nobody will want these bytes soon, for them that are in a file and are read or written in order.
pub(crate) fn done_with(bytes: &[u8]) {
    with_residency(|residency| residency.done_with(bytes));
}

/// The same of bytes that lie scattered among others.
pub(crate) fn let_go(bytes: &[u8]) {
    with_residency(|residency| residency.let_go(bytes));
}

/// Says that so many bytes were written here and there, which may be in a file and will be wanted again.
pub(crate) fn touched(bytes: usize) {
    with_residency(|residency| residency.passed_by(bytes));
}

/// Copies values, either of which may be in a file, a part at a time.
///
/// # Panics
/// Unless they are equally many.
pub(crate) fn copy<T: Pod>(to: &mut [T], from: &[T]) {
    const BYTES_AT_ONCE: usize = 1 << 20;
    assert_eq!(to.len(), from.len(), "a place for each value");
    let at_once = (BYTES_AT_ONCE / size_of::<T>().max(1)).max(1);
    for (to, from) in to.chunks_mut(at_once).zip(from.chunks(at_once)) {
        to.copy_from_slice(from);
        done_with(bytemuck::cast_slice(to));
        done_with(bytemuck::cast_slice(from));
    }
}

/// Says that somebody will want these bytes soon, for them that are in a file.
pub(crate) fn will_need(bytes: &[u8]) {
    with_residency(|residency| residency.will_need(bytes));
}

/// Whether this thread finds memory for so many bytes; for less than there may be files of always.
pub(crate) fn has_room(bytes: usize) -> bool {
    bytes < MAPPED_BYTES_MIN || bytes <= room_bytes()
}

/// Bytes of blocks that this thread may ask for and find in memory.
pub(crate) fn room_bytes() -> usize {
    pool().map_or(usize::MAX, |pool| pool.room_bytes())
}

fn with_residency<T>(of: impl FnOnce(&Residency) -> T) -> Option<T> {
    pool()?.residency().map(of)
}

/// Whether the matrices that this thread makes must show who reads before writing.
pub(crate) fn poisons() -> bool {
    pool().is_some_and(|pool| pool.poisons())
}
