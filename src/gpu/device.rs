//! A device, and what this process has on it.
//!
//! Enters: what the probe found. Leaves: streams and kernels; how much memory is in use, of how much. Not here: the
//! work that is queued ([`Stream`]).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use cudarc::driver::sys::{CUcontext, CUmemPool_attribute_enum, CUmemoryPool};
use cudarc::driver::{DriverError, result};

use super::assigned::Load;
use super::compiler::Source;
use super::fault::Fault;
use super::kernel::{Kernel, Slot};
use super::library::Libraries;
use super::rates::Rates;
use super::staging::Staging;
use super::stream::{Lane, Stream};
use crate::anew::Folder;
use crate::config::LaunchShapes;

/// Of the device's memory, what buffers may take: the rest is for the driver, cuBLAS, local memory of kernels, and
/// for other processes.
const MEMORY_SHARE: f64 = 0.9;

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) name: String,
    /// By which this one is known among all, in hexadecimal digits.
    pub(crate) uuid: String,
    pub(crate) capability: (u32, u32),
    pub(crate) memory_bytes: usize,
    pub(crate) multiprocessors: u32,
    /// 1000 times the major version and 10 times the minor, of the newest CUDA it knows.
    pub(crate) driver_version: u32,
    pub(crate) libraries: Libraries,
}

/// What this process has on a device, and has done with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) live_buffers: usize,
    pub(crate) live_bytes: usize,
    pub(crate) peak_bytes: usize,
    pub(crate) launches: u64,
    /// Graphs that were started, each as many launches and products as were recorded in it.
    pub(crate) replays: u64,
    /// Rounds that were to be recorded, and could not be.
    pub(crate) unrecorded: u64,
    pub(crate) products: u64,
    pub(crate) factorizations: u64,
    /// Texts that were compiled.
    pub(crate) compiled: u64,
    /// Texts whose image was found in the user's folder.
    pub(crate) cache_hits: u64,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    /// Times that there was memory only after what had been freed was given back.
    pub(crate) trims: u64,
}

impl Usage {
    /// Texts that somebody had to wait for.
    pub(crate) fn loaded(&self) -> u64 {
        self.compiled + self.cache_hits
    }
}

/// A buffer that is alive, what it is for, and the place that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) what: String,
    pub(crate) bytes: usize,
    pub(crate) place: &'static Location<'static>,
}

/// Counters of what was done; see [`Usage`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) launches: AtomicU64,
    pub(super) replays: AtomicU64,
    pub(super) unrecorded: AtomicU64,
    pub(super) products: AtomicU64,
    pub(super) factorizations: AtomicU64,
    pub(super) compiled: AtomicU64,
    pub(super) cache_hits: AtomicU64,
    pub(super) bytes_up: AtomicU64,
    pub(super) bytes_down: AtomicU64,
    pub(super) trims: AtomicU64,
}

/// A pointer of CUDA to what is its own.
#[derive(Debug)]
pub(super) struct Handle<T>(pub(super) *mut T);

// SAFETY: CUDA's functions may be called with a handle from every thread in which its context is current.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above, also at once.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

/// Buffers that are alive.
#[derive(Debug, Default)]
struct Ledger {
    live: BTreeMap<u64, Live>,
    /// The number of the next.
    next: u64,
    live_bytes: usize,
    peak_bytes: usize,
}

/// What others find out about a device, each once.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    /// Why it is not to be trusted, if it is not.
    pub(crate) distrust: OnceLock<Option<String>>,
    /// Whether it multiplies in each arithmetic.
    pub(crate) multiplies: [OnceLock<bool>; 4],
    pub(crate) decomposes: OnceLock<bool>,
    pub(crate) finds_eigenvalues: OnceLock<bool>,
    pub(crate) adds_up: Tried,
    pub(crate) sorts: Tried,
}

/// What is found out by whoever waits, or by a thread for who does not.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    pub(crate) found: OnceLock<bool>,
    /// Whether there is such a thread.
    pub(crate) looking: OnceLock<()>,
}

/// A device that this process has a context of.
pub(crate) struct Device {
    ordinal: usize,
    context: Handle<cudarc::driver::sys::CUctx_st>,
    pool: Handle<cudarc::driver::sys::CUmemPoolHandle_st>,
    facts: Facts,
    memory_limit: AtomicUsize,
    ledger: Mutex<Ledger>,
    pub(super) counts: Counts,
    /// The code by which it was lost; 0 while it is not.
    lost: AtomicU32,
    /// Lanes without a stream.
    idle: Mutex<Vec<Arc<Lane>>>,
    pub(super) staging: Staging,
    pub(super) slots: Mutex<HashMap<u128, Arc<Slot>>>,
    /// The kernels that were asked for.
    pub(super) kernels: Mutex<HashMap<Source, Kernel>>,
    /// Images of kernels that were compiled before.
    pub(super) cache: Folder,
    rates: OnceLock<Rates>,
    trials: Trials,
    pub(super) load: Load,
    /// What was chosen of the blocks of kernels.
    shapes: Mutex<Arc<LaunchShapes>>,
    /// Read by those who record graphs, written by those who wait for the whole device.
    pub(super) recordings: RwLock<()>,
}

/// What buffers may take where nobody says.
fn share(facts: &Facts) -> usize {
    (facts.memory_bytes as f64 * MEMORY_SHARE) as usize
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (usage, lost) = (self.usage(), self.lost());
        let mut shown = f.debug_struct("Device");
        shown.field("facts", &self.facts).field("usage", &usage).field("lost", &lost);
        shown.finish_non_exhaustive()
    }
}

impl Device {
    /// One whose context was retained, and whose user has a folder for what can be made anew, if any.
    pub(super) fn new(
        context: CUcontext,
        pool: CUmemoryPool,
        ordinal: usize,
        facts: Facts,
        folder: Option<PathBuf>,
    ) -> Self {
        Self {
            ordinal,
            context: Handle(context),
            pool: Handle(pool),
            memory_limit: AtomicUsize::new(share(&facts)),
            facts,
            ledger: Mutex::default(),
            counts: Counts::default(),
            lost: AtomicU32::new(0),
            idle: Mutex::default(),
            staging: Staging::default(),
            slots: Mutex::default(),
            kernels: Mutex::default(),
            cache: Folder::new(folder.map(|folder| folder.join("kernels"))),
            rates: OnceLock::new(),
            trials: Trials::default(),
            load: Load::default(),
            shapes: Mutex::default(),
            recordings: RwLock::default(),
        }
    }

    /// Lets the driver keep memory that is freed, for the next that asks: else it goes back to the system at each
    /// wait.
    pub(super) fn keep_freed(&self) -> Result<(), Fault> {
        let mut bytes = u64::MAX;
        let which = CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        self.call("cuMemPoolSetAttribute", || {
            // SAFETY: the pool is the device's, and the attribute is a number of 64 bits.
            unsafe { result::mem_pool::set_attribute(self.pool.0, which, (&raw mut bytes).cast()) }
        })
    }

    /// Its number among those of this machine, from 0.
    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(crate) fn trials(&self) -> &Trials {
        &self.trials
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// How fast it is; measured when first asked for, unless an earlier run of this user did.
    pub(crate) fn rates(self: &Arc<Self>) -> &Rates {
        self.rates.get_or_init(|| Rates::of(self))
    }

    pub(crate) fn usage(&self) -> Usage {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ledger = self.ledger();
        Usage {
            live_buffers: ledger.live.len(),
            live_bytes: ledger.live_bytes,
            peak_bytes: ledger.peak_bytes,
            launches: count(&self.counts.launches),
            replays: count(&self.counts.replays),
            unrecorded: count(&self.counts.unrecorded),
            products: count(&self.counts.products),
            factorizations: count(&self.counts.factorizations),
            compiled: count(&self.counts.compiled),
            cache_hits: count(&self.counts.cache_hits),
            bytes_up: count(&self.counts.bytes_up),
            bytes_down: count(&self.counts.bytes_down),
            trims: count(&self.counts.trims),
        }
    }

    /// What buffers may take beside those that are alive.
    pub(crate) fn free_bytes(&self) -> usize {
        self.memory_limit().saturating_sub(self.ledger().live_bytes)
    }

    /// The buffers that are alive, the oldest first.
    pub(crate) fn live(&self) -> Vec<Live> {
        self.ledger().live.values().cloned().collect()
    }

    /// What buffers may take together.
    pub(crate) fn memory_limit(&self) -> usize {
        self.memory_limit.load(Ordering::Relaxed)
    }

    /// What is there already stays, whatever the limit. None is what it has when nobody sets one.
    pub(crate) fn set_memory_limit(&self, bytes: Option<usize>) {
        let bytes = bytes.unwrap_or_else(|| share(&self.facts));
        self.memory_limit.store(bytes, Ordering::Relaxed);
    }

    /// Threads that fill and read what is copied, that of the caller among them.
    pub(crate) fn set_copiers(&self, threads: usize) {
        self.staging.set_copiers(threads);
    }

    /// From the next launch on.
    pub(crate) fn set_shapes(&self, shapes: &Arc<LaunchShapes>) {
        *self.shapes.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(shapes);
    }

    /// The threads of a block of a kernel, where somebody chose them.
    pub(crate) fn threads(&self, kernel: &str) -> Option<u32> {
        self.shapes.lock().unwrap_or_else(PoisonError::into_inner).threads(kernel)
    }

    /// The code by which it was lost, if it was.
    pub(crate) fn lost(&self) -> Option<u32> {
        match self.lost.load(Ordering::Acquire) {
            0 => None,
            code => Some(code),
        }
    }

    /// A queue of work that is nobody else's.
    pub(crate) fn stream(self: &Arc<Self>) -> Result<Stream, Fault> {
        self.enter()?;
        let idle = self.idle().pop();
        let lane = idle.map_or_else(|| Lane::new(self).map(Arc::new), Ok)?;
        Ok(Stream::new(Arc::clone(self), lane))
    }

    /// Gives memory that was freed, and staging blocks, back to the system.
    pub(crate) fn trim(&self) -> Result<(), Fault> {
        self.staging.clear(self);
        self.give_back()
    }

    /// Waits for all that is queued, and gives memory that was freed back.
    pub(super) fn give_back(&self) -> Result<(), Fault> {
        self.settle()?;
        // SAFETY: the pool is the device's.
        self.call("cuMemPoolTrimTo", || unsafe { result::mem_pool::trim_to(self.pool.0, 0) })
    }

    /// Does what takes memory of the device; once more, after what was freed is given back, where there is none.
    pub(super) fn with_room<T>(&self, work: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
        let first = work();
        let Err(Fault::Memory { .. }) = first else { return first };
        self.give_back()?;
        let second = work()?;
        self.counts.trims.fetch_add(1, Ordering::Relaxed);
        Ok(second)
    }

    /// Counts what was to be recorded, and is done one by one.
    pub(crate) fn note_unrecorded(&self) {
        self.counts.unrecorded.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps a lane for the next stream.
    pub(super) fn put_aside(&self, lane: Arc<Lane>) {
        self.idle().push(lane);
    }

    /// Counts a buffer, before it is allocated.
    #[track_caller]
    pub(super) fn reserve(&self, bytes: usize, what: &str) -> Result<u64, Fault> {
        let place = Location::caller();
        let mut ledger = self.ledger();
        if ledger.live_bytes.saturating_add(bytes) > self.memory_limit() {
            return Err(Fault::Memory { bytes });
        }
        ledger.live_bytes += bytes;
        ledger.peak_bytes = ledger.peak_bytes.max(ledger.live_bytes);
        let number = ledger.next;
        ledger.next += 1;
        ledger.live.insert(number, Live { what: what.to_owned(), bytes, place });
        Ok(number)
    }

    /// Counts it no more.
    pub(super) fn release(&self, number: u64) {
        let mut ledger = self.ledger();
        if let Some(live) = ledger.live.remove(&number) {
            ledger.live_bytes -= live.bytes;
        }
    }

    /// Calls the driver in this device's context, unless the device is lost.
    pub(super) fn call<T>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, Fault> {
        self.enter()?;
        work().map_err(|error| self.judge(name, error))
    }

    /// Makes this device's context that of the thread, unless the device is lost.
    pub(super) fn enter(&self) -> Result<(), Fault> {
        if let Some(code) = self.lost() {
            return Err(Fault::Lost { code });
        }
        // SAFETY: the context is retained for as long as the process lives.
        let entered = unsafe { result::ctx::set_current(self.context.0) };
        entered.map_err(|error| self.judge("cuCtxSetCurrent", error))
    }

    /// What an error means; remembers it where the device is lost by it.
    pub(super) fn judge(&self, name: &'static str, error: DriverError) -> Fault {
        let fault = Fault::of(name, error.0);
        if let Fault::Lost { code } = fault {
            // The first says why; the later ones follow from it.
            let _ = self.lost.compare_exchange(0, code, Ordering::AcqRel, Ordering::Relaxed);
        }
        fault
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Lane>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
