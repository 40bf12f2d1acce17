//! Work that is recorded once and queued again and again, by a single call each time: CUDA's graphs.
//!
//! Enters: what queues launches, products and copies, called once. Leaves: a [`Graph`], which does the same work in the same memory
//! whenever it is replayed. Not here: which work is worth it.
//!
//! ```text
//! record   work ─► recorder's stream ─► Graph     nothing of it is done
//! replay   Graph ─► lane's stream                 all of it is, in its order
//! ```
//!
//! A lane's own stream is never captured: other threads free in it and wait for it meanwhile, and what they queue would become part of
//! the graph. So a second stream of the lane is. What is allocated meanwhile is allocated in the lane, before the first replay; what is
//! dropped is taken by the next allocation of as many bytes, and belongs to the graph with all else that it works with until it is gone.
//!
//! While anything is recorded nobody may wait for the whole device: [`Device::settle`] waits for the end of recordings, and is refused to
//! the thread that records. Copies from and to the host, waits and factorizations are refused, too.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, RwLockReadGuard};

use cudarc::driver::result;
use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::sys::{
    CUgraph, CUgraph_st, CUgraphExec_st, CUgraphInstantiate_flags_enum, CUstream, CUstream_st,
    CUstreamCaptureMode,
};

use super::buffer::{Buffer, Memory};
use super::device::{Device, Handle};
use super::fault::Fault;
use super::stream::{Lane, Stream};

/// The driver's code for what a stream that is captured does not allow.
const UNSUPPORTED: u32 = 900;

thread_local! {
    /// Whether this thread records.
    static RECORDS: Cell<bool> = const { Cell::new(false) };
}

/// What a lane needs to record graphs.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    /// The stream that is captured, once a graph was recorded.
    stream: Option<Handle<CUstream_st>>,
    recording: Option<Recording>,
}

/// A graph in the making.
#[derive(Debug)]
struct Recording {
    stream: Handle<CUstream_st>,
    /// All that the graph works with.
    touched: Vec<Arc<Memory>>,
    /// What was dropped meanwhile.
    spare: Vec<Arc<Memory>>,
}

/// Recorded work, with the memory that it works with.
#[derive(Debug)]
pub(crate) struct Graph {
    device: Arc<Device>,
    lane: Arc<Lane>,
    graph: Handle<CUgraphExec_st>,
    touched: Vec<Arc<Memory>>,
}

impl Stream {
    /// What is queued by `work`, as a graph: nothing of it is done before that is replayed. What it makes holds any content until then.
    ///
    /// # Errors
    /// Those of `work`; [`Fault::Misuse`] where the driver does not record it. This stream is as it was before.
    pub(crate) fn record<T, E: From<Fault>>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Graph), E> {
        let scratch = self.scratch()?;
        let capture = Capture::begin(self, scratch.as_ref())?;
        let made = work()?;
        let (template, Recording { mut touched, .. }) = capture.end()?;
        touched.extend(scratch.iter().map(|scratch| Arc::clone(scratch.memory())));
        let (device, lane) = (Arc::clone(self.device()), Arc::clone(self.lane()));
        let graph = template.instantiated()?;
        Ok((made, Graph { device, lane, graph, touched }))
    }

    /// Queues all of a graph that was recorded by this stream.
    pub(crate) fn replay(&self, graph: &Graph) -> Result<(), Fault> {
        let (device, lane) = (self.device(), self.lane());
        self.is_direct("cuGraphLaunch")?;
        if !Arc::ptr_eq(lane, &graph.lane) {
            return Err(Fault::Misuse { call: "cuGraphLaunch", code: 1 });
        }
        device.call("cuGraphLaunch", || {
            // SAFETY: the graph and the stream live, and so does the memory that the graph works with.
            unsafe { result::graph::launch(graph.graph.0, lane.stream()) }
        })?;
        lane.mark();
        graph.touched.iter().for_each(|memory| memory.after(lane));
        device.counts.replays.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses what cannot be part of a graph, while one is recorded.
    pub(crate) fn is_direct(&self, call: &'static str) -> Result<(), Fault> {
        match self.lane().is_recording() {
            true => Err(Fault::Misuse { call, code: UNSUPPORTED }),
            false => Ok(()),
        }
    }

    /// Counts a launch or a product; not one that is recorded.
    pub(super) fn count(&self, counter: &AtomicU64) {
        if !self.lane().is_recording() {
            counter.fetch_add(1, Ordering::Relaxed);
            self.lane().launches.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The stream that is captured.
    fn recorder(&self) -> Result<CUstream, Fault> {
        let mut recorder = self.lane().recorder();
        if let Some(Handle(stream)) = recorder.stream {
            return Ok(stream);
        }
        let create = || result::stream::create(StreamKind::NonBlocking);
        let stream = self.device().call("cuStreamCreate", create)?;
        recorder.stream = Some(Handle(stream));
        Ok(stream)
    }
}

impl Lane {
    /// Where work is queued now.
    pub(super) fn target(&self) -> CUstream {
        let recorder = self.recorder();
        recorder.recording.as_ref().map_or(self.stream(), |recording| recording.stream.0)
    }

    pub(super) fn is_recording(&self) -> bool {
        self.recorder().recording.is_some()
    }

    /// Makes buffers part of what is recorded; false where nothing is.
    pub(super) fn touch(&self, buffers: &[&Buffer]) -> bool {
        let mut recorder = self.recorder();
        let Some(recording) = &mut recorder.recording else { return false };
        for memory in buffers.iter().map(|buffer| buffer.memory()) {
            if !recording.touched.iter().any(|known| Arc::ptr_eq(known, memory)) {
                recording.touched.push(Arc::clone(memory));
            }
        }
        true
    }

    /// Memory of so many bytes that was dropped since a graph is recorded.
    pub(super) fn take_spare(&self, bytes: usize) -> Option<Arc<Memory>> {
        let mut recorder = self.recorder();
        let spare = &mut recorder.recording.as_mut()?.spare;
        let at = spare.iter().position(|memory| memory.bytes() == bytes)?;
        Some(spare.swap_remove(at))
    }

    /// Keeps memory that is dropped for who records. What another lane has read is nobody's to write.
    pub(super) fn keep_spare(&self, memory: &Arc<Memory>) {
        if let Some(recording) = &mut self.recorder().recording
            && !memory.is_shared()
        {
            recording.spare.push(Arc::clone(memory));
        }
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device {
    /// Keeps those who wait for all of the device away from what is recorded, as long as the guard lives.
    fn recording(&self) -> Result<RwLockReadGuard<'_, ()>, Fault> {
        // Who waits for the device may do so for long: then nothing is recorded.
        let free = self.recordings.try_read();
        free.map_err(|_| Fault::Misuse { call: "cuStreamBeginCapture", code: UNSUPPORTED })
    }

    /// Waits for all that is queued.
    pub(super) fn settle(&self) -> Result<(), Fault> {
        if RECORDS.get() {
            return Err(Fault::Misuse { call: "cuCtxSynchronize", code: UNSUPPORTED });
        }
        let _none = self.recordings.write().unwrap_or_else(PoisonError::into_inner);
        self.call("cuCtxSynchronize", result::ctx::synchronize)
    }
}

/// A stream that is captured, until this ends.
struct Capture<'a> {
    stream: &'a Stream,
    is_open: bool,
    _alone: RwLockReadGuard<'a, ()>,
}

impl<'a> Capture<'a> {
    fn begin(stream: &'a Stream, scratch: Option<&Buffer>) -> Result<Self, Fault> {
        if RECORDS.get() {
            return Err(Fault::Misuse { call: "cuStreamBeginCapture", code: UNSUPPORTED });
        }
        let recorder = stream.recorder()?;
        let device = stream.device();
        let alone = device.recording()?;
        // Other threads do what they do in other streams, and this one allocates in its own.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        device.call("cuStreamBeginCapture", || {
            // SAFETY: the stream lives as long as the process.
            unsafe { result::stream::begin_capture(recorder, mode) }
        })?;
        RECORDS.set(true);
        let recording =
            Recording { stream: Handle(recorder), touched: Vec::new(), spare: Vec::new() };
        stream.lane().recorder().recording = Some(recording);
        let capture = Self { stream, is_open: true, _alone: alone };
        stream.direct_products(recorder, scratch)?;
        Ok(capture)
    }

    fn end(mut self) -> Result<(Template<'a>, Recording), Fault> {
        self.close()
    }

    fn close(&mut self) -> Result<(Template<'a>, Recording), Fault> {
        self.is_open = false;
        let (device, lane) = (self.stream.device(), self.stream.lane());
        let recording = lane.recorder().recording.take();
        let back = self.stream.direct_products(lane.stream(), None);
        if back.is_err() {
            // The next product makes what it needs anew.
            *lane.products() = None;
        }
        let recording = recording.expect("a stream is captured from its beginning to its end");
        let captured = device.call("cuStreamEndCapture", || {
            // SAFETY: the stream lives as long as the process.
            unsafe { result::stream::end_capture(recording.stream.0) }
        });
        RECORDS.set(false);
        let template = Template { device, graph: Handle(captured?) };
        back.map(|()| (template, recording))
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // Whoever gave up has an error of his own.
            let _ = self.close();
        }
    }
}

/// What was captured.
struct Template<'a> {
    device: &'a Device,
    graph: Handle<CUgraph_st>,
}

impl Template<'_> {
    fn instantiated(&self) -> Result<Handle<CUgraphExec_st>, Fault> {
        let graph: CUgraph = self.graph.0;
        let graph = self.device.call("cuGraphInstantiate", || {
            // SAFETY: it was captured, and lives as long as this.
            unsafe { result::graph::instantiate(graph, CUgraphInstantiate_flags_enum(0)) }
        })?;
        Ok(Handle(graph))
    }
}

impl Drop for Template<'_> {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once; what was made of it does not need it.
        let _ =
            self.device.call("cuGraphDestroy", || unsafe { result::graph::destroy(self.graph.0) });
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // On a lost device there is nothing to destroy.
        // SAFETY: it is destroyed once; the driver does so after its last replay.
        let _ = self
            .device
            .call("cuGraphExecDestroy", || unsafe { result::graph::exec_destroy(self.graph.0) });
    }
}
