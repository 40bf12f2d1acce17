//! Memory of the device, which is freed after the work that was queued with it.
//!
//! Enters: a number of bytes, and what they are for. Leaves: a [`Buffer`]. Not here: who gives way where memory is
//! short.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;

use super::device::Device;
use super::fault::Fault;
use super::stream::Lane;

/// Memory of the device. Who drops it need not wait: it is freed after the work that was queued with it, and after the
/// graphs that work with it are gone.
pub(crate) struct Buffer(Arc<Memory>);

/// What a buffer is, and what a graph that works with it holds on to.
pub(super) struct Memory {
    device: Arc<Device>,
    /// Where it is allocated, where those write to it who say nothing else, and where it is freed unless another comes after all that was
    /// done with it.
    home: Arc<Lane>,
    address: CUdeviceptr,
    bytes: usize,
    /// In the device's ledger.
    number: u64,
    /// The place in its lane of the last work with it.
    last: AtomicU64,
    /// The same until it is shared, and then of the last that wrote to it.
    used: AtomicU64,
    is_shared: AtomicBool,
    /// Other lanes that work with it, and the place of the last work there.
    others: Mutex<Vec<(Arc<Lane>, u64)>>,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Buffer");
        shown.field("number", &self.number).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Buffer {
    /// So many bytes, of any content. Where the driver has no memory left, waits until what was freed is, gives it
    /// back, and asks once more; while a graph is recorded nobody waits, and what was dropped meanwhile is taken first.
    #[track_caller]
    pub(super) fn new(
        device: &Arc<Device>,
        home: &Arc<Lane>,
        bytes: usize,
        what: &str,
    ) -> Result<Self, Fault> {
        device.enter()?;
        if let Some(spare) = home.take_spare(bytes) {
            return Ok(Self(spare));
        }
        let number = device.reserve(bytes, what)?;
        let address =
            Self::allocate(device, home, bytes).inspect_err(|_| device.release(number))?;
        let (place, others) = (home.mark(), Mutex::default());
        Ok(Self(Arc::new(Memory {
            device: Arc::clone(device),
            home: Arc::clone(home),
            address,
            bytes,
            number,
            last: AtomicU64::new(place),
            used: AtomicU64::new(place),
            is_shared: AtomicBool::new(false),
            others,
        })))
    }

    fn allocate(device: &Device, home: &Lane, bytes: usize) -> Result<CUdeviceptr, Fault> {
        // The driver knows no allocation of no bytes; nobody follows its address.
        if bytes == 0 {
            return Ok(0);
        }
        let allocate = || {
            device.call("cuMemAllocAsync", || {
                // SAFETY: the lane's stream lives; who reads before he writes finds any bytes, as said.
                unsafe { result::malloc_async(home.stream(), bytes) }
            })
        };
        let allocated = match home.is_recording() {
            true => allocate(),
            false => device.with_room(allocate),
        };
        allocated.map_err(|fault| fault.for_bytes(bytes))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.0.address
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.0
    }

    /// Lets work that is queued in a lane next find what was written here.
    pub(super) fn before(&self, lane: &Arc<Lane>) -> Result<(), Fault> {
        self.0.before(lane)
    }

    /// Remembers that work with it was queued in a lane last.
    pub(super) fn after(&self, lane: &Arc<Lane>) {
        self.0.after(lane);
    }

    /// Remembers that a lane has written to it: where that is its own, who reads it next waits for that, too.
    pub(super) fn written(&self, lane: &Arc<Lane>) {
        if !Arc::ptr_eq(lane, &self.0.home) {
            return self.after(lane);
        }
        let place = lane.queued();
        self.0.last.fetch_max(place, Ordering::Release);
        self.0.used.fetch_max(place, Ordering::Release);
    }

    /// Says that nobody writes it any more. Who reads it elsewhere then waits for what was queued with it until now, and not
    /// for those that read it in its own stream later.
    pub(crate) fn share(&self) {
        self.0.is_shared.store(true, Ordering::Release);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Who records a graph takes it again, for nothing frees memory within one.
        self.0.home.keep_spare(&self.0);
    }
}

impl Memory {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether another lane reads it, so that nobody may write it any more.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    fn before(&self, lane: &Arc<Lane>) -> Result<(), Fault> {
        if Arc::ptr_eq(lane, &self.home) {
            return Ok(());
        }
        self.is_shared.store(true, Ordering::Release);
        match self.comes_before(lane, self.used.load(Ordering::Acquire)) {
            true => Ok(()),
            false => lane.wait_for(&self.device, &self.home),
        }
    }

    /// Whether what is queued in another lane next comes after a place in its own, without another wait.
    fn comes_before(&self, lane: &Lane, place: u64) -> bool {
        self.home.is_done(place) || lane.has_waited_for(&self.home, place)
    }

    /// Remembers that work with it was queued in a lane last.
    pub(super) fn after(&self, lane: &Arc<Lane>) {
        let at = lane.queued();
        if Arc::ptr_eq(lane, &self.home) {
            self.last.fetch_max(at, Ordering::Release);
            if !self.is_shared() {
                self.used.fetch_max(at, Ordering::Release);
            }
            return;
        }
        let mut others = self.others();
        match others.iter_mut().find(|(other, _)| Arc::ptr_eq(other, lane)) {
            Some((_, last)) => *last = at.max(*last),
            None => others.push((Arc::clone(lane), at)),
        }
    }

    fn others(&self) -> MutexGuard<'_, Vec<(Arc<Lane>, u64)>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees it in its own lane; or in that of the only other that works with it, where this comes after all else: then its own, which may bring
    /// what is read next, need not wait for work with what it brought before.
    fn free(&self) -> Result<(), Fault> {
        let mut others = std::mem::take(&mut *self.others());
        others.retain(|(other, at)| !other.is_done(*at));
        let last = self.last.load(Ordering::Acquire);
        let lane = match others.as_slice() {
            [(other, _)] if self.comes_before(other, last) => other,
            others => {
                for (other, _) in others {
                    let waited = self.home.wait_for(&self.device, other);
                    waited.or_else(|_| other.settle(&self.device))?;
                }
                &self.home
            }
        };
        self.device.call("cuMemFreeAsync", || {
            // SAFETY: it is freed once, in a lane in which all work with it comes before.
            unsafe { result::free_async(self.address, lane.stream()) }
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // On a lost device there is nothing to free, and who asks next is told what went wrong.
            let _ = self.free();
        }
        self.device.release(self.number);
    }
}
