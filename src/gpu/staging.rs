//! The blocks of pinned memory through which bytes come and go.
//!
//! Enters: bytes of the caller, an address of the device. Leaves: the bytes there, or here. Not here: buffers.
//!
//! ```text
//! block 0   fill ─► copy ──────────┐ event
//! block 1           fill ─► copy ──┼──────┐
//! block 2                   fill ─►┼ copy │
//! block 0                          └ fill ─► …
//! ```
//!
//! The device copies from and to pinned memory by itself; of other memory the driver makes a copy first and waits.
//! Pinning takes long, so there are few blocks, made when they are needed first and kept. One thread reads memory at a quarter
//! of the rate at which a device takes it (12.7 of 55 GB/s, H200), so several fill the blocks of a long copy, while who asked waits.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{DriverError, result};

use super::device::{Device, Handle};
use super::fault::Fault;
use super::stream::{Lane, new_event};

/// A block is long enough for a copy at full speed, and short enough that the first is soon on its way.
pub(super) const BLOCK_BYTES: usize = 4 << 20;
const BLOCKS_MAX: usize = DOWNLOADING_MAX * COPIERS_MAX;

/// Blocks of a copier's download: one is read while another is written.
const DOWNLOADING_MAX: usize = 2;

/// Threads of one copy at most.
const COPIERS_MAX: usize = 6;

/// The blocks of a device.
#[derive(Debug)]
pub(super) struct Staging {
    state: Mutex<State>,
    given_back: Condvar,
    /// Threads of one copy.
    copiers: AtomicUsize,
}

impl Default for Staging {
    fn default() -> Self {
        let copiers = thread::available_parallelism().map_or(1, usize::from).min(COPIERS_MAX);
        Self { state: Mutex::default(), given_back: Condvar::new(), copiers: copiers.into() }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Those that nobody fills or reads, the one whose copy was queued first at the front.
    idle: VecDeque<Block>,
    /// How many there are.
    made: usize,
}

#[derive(Debug)]
struct Block {
    memory: Memory,
    event: Handle<sys::CUevent_st>,
    /// Whether a copy from or to it was queued, after which the event comes.
    is_queued: bool,
}

#[derive(Debug)]
enum Memory {
    Pinned(Handle<c_void>),
    /// Where the system does not pin any more.
    Pageable(Box<[u8]>),
}

impl Block {
    fn new(device: &Device) -> Result<Self, Fault> {
        let event = Handle(device.call("cuEventCreate", new_event)?);
        let pinned = device.call("cuMemHostAlloc", || {
            // SAFETY: it is written before it is read.
            unsafe { result::malloc_host(BLOCK_BYTES, 0) }
        });
        let memory = match pinned {
            Ok(pointer) => Memory::Pinned(Handle(pointer)),
            Err(fault @ Fault::Lost { .. }) => return Err(fault),
            Err(_) => Memory::Pageable(vec![0; BLOCK_BYTES].into_boxed_slice()),
        };
        Ok(Self { memory, event, is_queued: false })
    }

    fn bytes(&mut self) -> &mut [u8] {
        match &mut self.memory {
            // SAFETY: the block is so long and borrowed alone, no copy is under way (`wait`), and the bytes are
            // those that a copy or a caller has written, or any.
            Memory::Pinned(pointer) => unsafe {
                std::slice::from_raw_parts_mut(pointer.0.cast(), BLOCK_BYTES)
            },
            Memory::Pageable(bytes) => bytes,
        }
    }

    /// Whether there is nothing to wait for.
    fn is_ready(&self, device: &Device) -> bool {
        !self.is_queued
            || device.enter().is_ok()
                // SAFETY: the event lives as long as the block.
                && unsafe { result::event::query(self.event.0) }.is_ok()
    }

    /// Waits for the copy that was queued with it.
    fn wait(&mut self, device: &Device) -> Result<(), Fault> {
        if self.is_queued {
            device.call("cuEventSynchronize", || {
                // SAFETY: the event lives as long as the block.
                unsafe { result::event::synchronize(self.event.0) }
            })?;
            self.is_queued = false;
        }
        Ok(())
    }

    /// Queues a copy with it.
    fn queue(
        &mut self,
        device: &Device,
        lane: &Lane,
        name: &'static str,
        copy: impl FnOnce(&mut [u8]) -> Result<(), DriverError>,
    ) -> Result<(), Fault> {
        let bytes = self.bytes();
        device.call(name, || copy(bytes))?;
        lane.mark();
        self.is_queued = true;
        let recorded = device.call("cuEventRecord", || {
            // SAFETY: the event lives as long as the block, the stream as the lane.
            unsafe { result::event::record(self.event.0, lane.stream()) }
        });
        recorded.inspect_err(|_| {
            // The event would tell of an earlier copy. On a lost device nothing is under way.
            self.is_queued = lane.settle(device).is_err();
        })
    }

    fn free(mut self, device: &Device) -> Result<(), Fault> {
        self.wait(device)?;
        // SAFETY: it is destroyed once, for the block ends here.
        device.call("cuEventDestroy", || unsafe { result::event::destroy(self.event.0) })?;
        match self.memory {
            Memory::Pinned(pointer) => device.call("cuMemFreeHost", || {
                // SAFETY: it was allocated by the driver, and nothing is queued with it.
                unsafe { result::free_host(pointer.0) }
            }),
            Memory::Pageable(_) => Ok(()),
        }
    }
}

/// A block that somebody fills or reads, until he drops it.
struct Taken<'a> {
    staging: &'a Staging,
    /// Some until it is dropped.
    block: Option<Block>,
}

impl Taken<'_> {
    fn block(&mut self) -> &mut Block {
        self.block.as_mut().expect("a block is given back when it is dropped, not before")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.staging.state().idle.extend(self.block.take());
        self.staging.given_back.notify_one();
    }
}

/// The next part of a copy that nobody has.
fn next<T>(parts: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    parts.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// Waits for a block that is under way from the device, and hands on what is in it.
fn arrive(device: &Device, (mut taken, part): (Taken<'_>, &mut [u8])) -> Result<(), Fault> {
    let block = taken.block();
    block.wait(device)?;
    part.copy_from_slice(&block.bytes()[..part.len()]);
    Ok(())
}

impl Staging {
    /// Lets a copy have so many threads, that of the caller among them, or as many as are of use.
    pub(super) fn set_copiers(&self, threads: usize) {
        self.copiers.store(threads.clamp(1, COPIERS_MAX), Ordering::Relaxed);
    }

    /// Copies to the device. The caller may change his bytes when this returns, whatever it returns.
    pub(super) fn upload(
        &self,
        device: &Device,
        lane: &Lane,
        to: CUdeviceptr,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let parts = Mutex::new(bytes.chunks(BLOCK_BYTES).enumerate());
        self.by_copiers(bytes.len(), || {
            while let Some((index, part)) = next(&parts) {
                let mut taken = self.take(device)?;
                let block = taken.block();
                block.wait(device)?;
                block.bytes()[..part.len()].copy_from_slice(part);
                let to = to + (index * BLOCK_BYTES) as CUdeviceptr;
                block.queue(device, lane, "cuMemcpyHtoDAsync", |bytes| {
                    // SAFETY: the part lies in the buffer, which is freed after what is queued here, and the block is
                    // not written before its event has come.
                    unsafe { result::memcpy_htod_async(to, &bytes[..part.len()], lane.stream()) }
                })?;
            }
            Ok(())
        })
    }

    /// Copies from the device; all is there when this returns.
    pub(super) fn download(
        &self,
        device: &Device,
        lane: &Lane,
        from: CUdeviceptr,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let bytes = out.len();
        let parts = Mutex::new(out.chunks_mut(BLOCK_BYTES).enumerate());
        self.by_copiers(bytes, || {
            let mut under_way = VecDeque::with_capacity(DOWNLOADING_MAX);
            while let Some((index, part)) = next(&parts) {
                if under_way.len() == DOWNLOADING_MAX {
                    under_way.pop_front().map_or(Ok(()), |first| arrive(device, first))?;
                }
                // Who holds a block does not wait for another: all might.
                if under_way.is_empty() {
                    under_way.push_back((self.take(device)?, part));
                } else if let Some(taken) = self.try_take(device)? {
                    under_way.push_back((taken, part));
                } else {
                    under_way.drain(..).try_for_each(|one| arrive(device, one))?;
                    under_way.push_back((self.take(device)?, part));
                }
                let (taken, part) = under_way.back_mut().expect("one was just put there");
                let block = taken.block();
                block.wait(device)?;
                let from = from + (index * BLOCK_BYTES) as CUdeviceptr;
                block.queue(device, lane, "cuMemcpyDtoHAsync", |bytes| {
                    let bytes = &mut bytes[..part.len()];
                    // SAFETY: the part lies in the buffer, and the block is not used before its event has come.
                    unsafe { result::memcpy_dtoh_async(bytes, from, lane.stream()) }
                })?;
            }
            under_way.into_iter().try_for_each(|one| arrive(device, one))
        })
    }

    /// Does work on this thread and on as many others as a copy of so many bytes keeps busy. All have ended when this returns,
    /// and what went wrong in any of them is what went wrong.
    fn by_copiers(
        &self,
        bytes: usize,
        work: impl Fn() -> Result<(), Fault> + Sync,
    ) -> Result<(), Fault> {
        let copiers = self.copiers.load(Ordering::Relaxed).min(bytes.div_ceil(BLOCK_BYTES));
        thread::scope(|scope| {
            // Where the system has no thread, the others do its part.
            let more = (1..copiers).filter_map(|_| {
                let named = thread::Builder::new().name("relatrix-copier".to_owned());
                named.spawn_scoped(scope, &work).ok()
            });
            let more: Vec<_> = more.collect();
            let own = work();
            more.into_iter().fold(own, |done, thread| match thread.join() {
                Ok(copied) => done.and(copied),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    /// Frees the blocks that nobody uses.
    pub(super) fn clear(&self, device: &Device) {
        let blocks = {
            let mut state = self.state();
            state.made -= state.idle.len();
            std::mem::take(&mut state.idle)
        };
        self.given_back.notify_all();
        for block in blocks {
            // On a lost device there is nothing to free.
            let _ = block.free(device);
        }
    }

    /// A block, which may have to be waited for.
    fn take(&self, device: &Device) -> Result<Taken<'_>, Fault> {
        loop {
            if let Some(taken) = self.try_take(device)? {
                return Ok(taken);
            }
            let are_taken = |state: &mut State| state.idle.is_empty() && state.made == BLOCKS_MAX;
            drop(self.given_back.wait_while(self.state(), are_taken));
        }
    }

    /// The same, none where others have all; a new one where there may be more and none is done with.
    fn try_take(&self, device: &Device) -> Result<Option<Taken<'_>>, Fault> {
        let mut state = self.state();
        let taken = |block| Taken { staging: self, block: Some(block) };
        let is_ready = state.idle.front().is_some_and(|block| block.is_ready(device));
        if is_ready || state.made == BLOCKS_MAX {
            return Ok(state.idle.pop_front().map(taken));
        }
        state.made += 1;
        drop(state);
        let block = Block::new(device).inspect_err(|_| {
            self.state().made -= 1;
            self.given_back.notify_all();
        });
        block.map(taken).map(Some)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
