//! A queue of work on the device.
//!
//! Enters: copies, launches. Leaves: buffers that later work of this queue may use at once, and, when somebody waits,
//! what went wrong. Not here: products of matrices ([`Product`](super::Product)) and their factors, and how bytes get to the device
//! ([`Staging`](super::staging)).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::sys::{CUevent_flags, CUresult, CUstream};
use cudarc::driver::{DriverError, result, sys};

use super::buffer::Buffer;
use super::device::{Device, Handle};
use super::fault::Fault;
use super::graph::Recorder;
use super::product::Products;
use super::solver::Solver;

/// Between two looks at whether work is done, at first and at most: a short one is not waited for much longer than
/// it takes.
const LOOK_EVERY_MIN: Duration = Duration::from_micros(20);
const LOOK_EVERY_MAX: Duration = Duration::from_millis(1);

/// A stream of CUDA, which outlives its [`Stream`] and serves the next.
#[derive(Debug)]
pub(super) struct Lane {
    stream: Handle<sys::CUstream_st>,
    /// At which others wait for it.
    event: Mutex<Handle<sys::CUevent_st>>,
    /// How many pieces of work were queued, and how many of them are done for certain.
    queued: AtomicU64,
    done: AtomicU64,
    /// Others that it has waited for, and the place in each that it comes after.
    waited: Mutex<Vec<(Weak<Lane>, u64)>>,
    /// For products in this lane, once there is one.
    products: Mutex<Option<Products>>,
    /// For factorizations.
    solver: Mutex<Option<Solver>>,
    /// For graphs.
    pub(super) recorder: Mutex<Recorder>,
    /// Kernels and products that were started here, one by one.
    pub(super) launches: AtomicU64,
}

impl Lane {
    pub(super) fn new(device: &Device) -> Result<Self, Fault> {
        let stream =
            device.call("cuStreamCreate", || result::stream::create(StreamKind::NonBlocking))?;
        let event = device.call("cuEventCreate", new_event)?;
        Ok(Self {
            stream: Handle(stream),
            event: Mutex::new(Handle(event)),
            queued: AtomicU64::new(0),
            done: AtomicU64::new(0),
            waited: Mutex::default(),
            products: Mutex::default(),
            solver: Mutex::default(),
            recorder: Mutex::default(),
            launches: AtomicU64::new(0),
        })
    }

    pub(super) fn stream(&self) -> CUstream {
        self.stream.0
    }

    /// Counts a piece of work that was queued; its place.
    pub(super) fn mark(&self) -> u64 {
        self.queued.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The place of the last.
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Acquire)
    }

    /// Whether somebody has waited for the work at a place.
    pub(super) fn is_done(&self, place: u64) -> bool {
        place <= self.done.load(Ordering::Acquire)
    }

    /// Lets what is queued here next wait for what is queued in another lane now.
    pub(super) fn wait_for(&self, device: &Device, other: &Arc<Lane>) -> Result<(), Fault> {
        // The wait is for what was recorded last, so nobody may record between.
        let event = other.event.lock().unwrap_or_else(PoisonError::into_inner);
        let place = other.queued();
        device.call("cuEventRecord", || {
            // SAFETY: the event and the stream live as long as their lane.
            unsafe { result::event::record(event.0, other.stream()) }
        })?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        device.call("cuStreamWaitEvent", || {
            // SAFETY: as above.
            unsafe { result::stream::wait_event(self.stream(), event.0, flags) }
        })?;
        self.comes_after(other, place);
        Ok(())
    }

    /// Whether all that is queued here next comes after a place in another lane.
    pub(super) fn has_waited_for(&self, other: &Arc<Lane>, place: u64) -> bool {
        let waited = self.waited();
        waited.iter().any(|(known, last)| known.as_ptr() == Arc::as_ptr(other) && place <= *last)
    }

    /// Remembers a wait that was queued.
    fn comes_after(&self, other: &Arc<Lane>, place: u64) {
        let mut waited = self.waited();
        match waited.iter_mut().find(|(known, _)| known.as_ptr() == Arc::as_ptr(other)) {
            Some((_, last)) => *last = place.max(*last),
            None => waited.push((Arc::downgrade(other), place)),
        }
    }

    fn waited(&self) -> MutexGuard<'_, Vec<(Weak<Lane>, u64)>> {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all that is queued, where nothing else tells when it is done.
    pub(super) fn settle(&self, device: &Device) -> Result<(), Fault> {
        device.call("cuStreamSynchronize", || {
            // SAFETY: the stream lives as long as the lane.
            unsafe { result::stream::synchronize(self.stream()) }
        })
    }

    pub(super) fn products(&self) -> MutexGuard<'_, Option<Products>> {
        self.products.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn solver(&self) -> MutexGuard<'_, Option<Solver>> {
        self.solver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event that tells that, not when, something happened.
pub(super) fn new_event() -> Result<sys::CUevent, DriverError> {
    result::event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING)
}

/// A queue of work on a device: its calls return before the work is done, unless they say so.
#[derive(Debug)]
pub(crate) struct Stream {
    device: Arc<Device>,
    lane: Arc<Lane>,
}

impl Stream {
    pub(super) fn new(device: Arc<Device>, lane: Arc<Lane>) -> Self {
        Self { device, lane }
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Kernels and products that were started in its lane, one by one.
    pub(crate) fn launches(&self) -> u64 {
        self.lane.launches.load(Ordering::Relaxed)
    }

    /// Memory of any content.
    ///
    /// # Errors
    /// [`Fault::Memory`] where the device's limit, or the driver, has no room.
    #[track_caller]
    pub(crate) fn alloc(&self, bytes: usize, what: &str) -> Result<Buffer, Fault> {
        Buffer::new(&self.device, &self.lane, bytes, what)
    }

    /// What the caller has, on the device. It is copied out of `bytes` before this returns.
    #[track_caller]
    pub(crate) fn upload(&self, bytes: &[u8], what: &str) -> Result<Buffer, Fault> {
        let buffer = self.alloc(bytes.len(), what)?;
        self.write(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    /// The same into a buffer, from some place on. Who has another stream read what was there before lets this one wait for that, and who
    /// reads it by another lets that wait for this ([`Stream::wait`]).
    pub(crate) fn write(&self, buffer: &Buffer, first: usize, bytes: &[u8]) -> Result<(), Fault> {
        self.device.enter()?;
        self.is_direct("cuMemcpyHtoDAsync")?;
        if first.checked_add(bytes.len()).is_none_or(|end| end > buffer.bytes()) {
            return Err(Fault::Misuse { call: "write", code: 1 });
        }
        buffer.before(&self.lane)?;
        let to = buffer.address() + first as u64;
        let copied = self.device.staging.upload(&self.device, &self.lane, to, bytes);
        buffer.written(&self.lane);
        copied?;
        self.device.counts.bytes_up.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The first bytes of a buffer, which are there when this returns.
    pub(crate) fn download(&self, buffer: &Buffer, out: &mut [u8]) -> Result<(), Fault> {
        self.device.enter()?;
        self.is_direct("cuMemcpyDtoHAsync")?;
        if out.len() > buffer.bytes() {
            return Err(Fault::Misuse { call: "download", code: 1 });
        }
        buffer.before(&self.lane)?;
        let (staging, before) = (&self.device.staging, self.lane.queued());
        let copied = staging.download(&self.device, &self.lane, buffer.address(), out);
        if copied.is_err() {
            buffer.after(&self.lane);
        } else if !out.is_empty() {
            // It has come, and what was queued before it is done.
            self.lane.done.fetch_max(before, Ordering::AcqRel);
        }
        self.device.counts.bytes_down.fetch_add(out.len() as u64, Ordering::Relaxed);
        copied
    }

    /// A buffer of the same bytes.
    #[track_caller]
    pub(crate) fn copy(&self, buffer: &Buffer) -> Result<Buffer, Fault> {
        let copy = self.alloc(buffer.bytes(), "copy")?;
        self.overwrite(&copy, buffer)?;
        Ok(copy)
    }

    /// Copies a buffer over another one of as many bytes.
    pub(crate) fn overwrite(&self, to: &Buffer, from: &Buffer) -> Result<(), Fault> {
        let bytes = from.bytes();
        if to.bytes() != bytes {
            return Err(Fault::Misuse { call: "cuMemcpyDtoDAsync", code: 1 });
        }
        if bytes > 0 {
            from.before(&self.lane)?;
            to.before(&self.lane)?;
            let (target, source, lane) = (to.address(), from.address(), self.lane.target());
            self.device.call("cuMemcpyDtoDAsync", || {
                // SAFETY: both are so long, and are freed after what is queued here.
                unsafe { result::memcpy_dtod_async(target, source, bytes, lane) }
            })?;
            self.queued(&[from, to]);
        }
        Ok(())
    }

    /// Sets all bytes to zero.
    pub(crate) fn clear(&self, buffer: &Buffer) -> Result<(), Fault> {
        self.device.enter()?;
        if buffer.bytes() > 0 {
            buffer.before(&self.lane)?;
            let (address, lane) = (buffer.address(), self.lane.target());
            self.device.call("cuMemsetD8Async", || {
                // SAFETY: it is so long, and is freed after what is queued here.
                unsafe { result::memset_d8_async(address, 0, buffer.bytes(), lane) }
            })?;
            self.queued(&[buffer]);
        }
        Ok(())
    }

    /// A mark that is nowhere yet.
    pub(crate) fn new_mark(&self) -> Result<Mark, Fault> {
        let event = Handle(self.device.call("cuEventCreate", new_event)?);
        Ok(Mark { device: Arc::clone(&self.device), event, at: None })
    }

    /// Puts a mark behind all that is queued.
    pub(crate) fn mark(&self, mark: &mut Mark) -> Result<(), Fault> {
        let place = self.lane.queued();
        self.device.call("cuEventRecord", || {
            // SAFETY: the event lives as long as the mark, the stream as the lane.
            unsafe { result::event::record(mark.event.0, self.lane.stream()) }
        })?;
        mark.at = Some((Arc::clone(&self.lane), place));
        Ok(())
    }

    /// Lets what is queued next wait for what is before a mark, as far as that is anywhere.
    pub(crate) fn wait(&self, mark: &Mark) -> Result<(), Fault> {
        let Some((other, place)) = &mark.at else { return Ok(()) };
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        self.device.call("cuStreamWaitEvent", || {
            // SAFETY: as above.
            unsafe { result::stream::wait_event(self.lane.stream(), mark.event.0, flags) }
        })?;
        self.lane.comes_after(other, *place);
        Ok(())
    }

    /// Waits for all that is queued, and tells what went wrong in any of it. With a flag, no longer than until that is
    /// set; the work goes on, and its buffers are freed after it.
    pub(crate) fn finish(&self, stop: Option<&AtomicBool>) -> Result<(), Fault> {
        self.is_direct("cuStreamSynchronize")?;
        let (last, waited) = (self.lane.queued(), self.lane.waited().clone());
        match stop {
            None => self.lane.settle(&self.device)?,
            Some(stop) => self.poll(stop)?,
        }
        self.lane.done.fetch_max(last, Ordering::AcqRel);
        // And so is what it has waited for.
        for (other, place) in waited {
            if let Some(other) = other.upgrade() {
                other.done.fetch_max(place, Ordering::AcqRel);
            }
        }
        Ok(())
    }

    fn poll(&self, stop: &AtomicBool) -> Result<(), Fault> {
        let mut pause = LOOK_EVERY_MIN;
        loop {
            let is_done = self.device.call("cuStreamQuery", || {
                // SAFETY: as in `finish`.
                match unsafe { sys::cuStreamQuery(self.lane.stream()) } {
                    CUresult::CUDA_ERROR_NOT_READY => Ok(false),
                    other => other.result().map(|()| true),
                }
            })?;
            if is_done {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Fault::Stopped);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LOOK_EVERY_MAX);
        }
    }

    /// Counts a piece of work that was queued, with the buffers it has to do with.
    pub(super) fn queued(&self, buffers: &[&Buffer]) {
        if self.lane.touch(buffers) {
            return;
        }
        self.lane.mark();
        for buffer in buffers {
            buffer.after(&self.lane);
        }
    }
}

/// A place in a stream that others can wait for.
#[derive(Debug)]
pub(crate) struct Mark {
    device: Arc<Device>,
    event: Handle<sys::CUevent_st>,
    /// Its lane, and the place there that it comes after, once it is set.
    at: Option<(Arc<Lane>, u64)>,
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once; the driver keeps one that somebody waits for until then. On a lost device there is
        // nothing to destroy.
        let destroy = || unsafe { result::event::destroy(self.event.0) };
        let _ = self.device.call("cuEventDestroy", destroy);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.device.put_aside(Arc::clone(&self.lane));
    }
}
