//! The ways of matrices to a device and back, beside the work on them.
//!
//! Enters: bytes of the host, and which values are read after the steps. Leaves: buffers, and cells. Not here: how a stream waits for another
//! (`gpu`), and how many bytes a copy takes at a time (`gpu::staging`).
//!
//! ```text
//! link      bring x │ bring y │ bring z
//! stream            │ step 1  │ step 2  │ step 3
//! back                        │ take 1  │ take 2
//! ```
//!
//! The host brings what a step reads and then queues the step, whose work it does not wait for. So what a later step reads comes while an
//! earlier one is at work, and a step waits for what was brought before it was queued, no more. What has come is never written over: the
//! stream that brought it does not know of who works with it.
//!
//! A result goes back as soon as the step that made it is done: it is marked before the next step is queued, and the stream `back` waits for
//! the mark. What no step comes after is taken by the stream that made it.

use std::cell::OnceCell;
use std::sync::Arc;

use super::matrix::Matrix;
use super::{Failed, Found, Queue, Run};
use crate::exec::program::{Offload, Slot, Step};
use crate::gpu::{Buffer, Device, Mark, Stream};
use crate::matrix::Cells;

/// The streams of a queue that copy, each from when it is first wanted.
#[derive(Default)]
pub(super) struct Ways {
    link: OnceCell<Stream>,
    back: OnceCell<Stream>,
}

/// Results that one place in the stream comes after.
pub(super) struct Marked {
    mark: Mark,
    slots: Vec<Slot>,
}

fn opened<'a>(way: &'a OnceCell<Stream>, device: &Arc<Device>) -> Result<&'a Stream, Failed> {
    match way.get() {
        Some(stream) => Ok(stream),
        None => {
            let stream = device.stream()?;
            Ok(way.get_or_init(|| stream))
        }
    }
}

impl Queue<'_> {
    /// What steps read and nobody writes.
    pub(super) fn bring(&self, bytes: &[u8], what: &str) -> Result<Buffer, Failed> {
        // A graph would not bring it again.
        self.stream.is_direct("cuMemcpyHtoDAsync")?;
        let link = opened(&self.ways.link, self.device)?;
        self.with_room(bytes.len(), || link.upload(bytes, what))
    }

    /// Waits for a mark, no longer than until somebody stops, and brings back what was made before it.
    fn take_back(&self, matrix: &Matrix, mark: &Mark) -> Result<Cells, Failed> {
        let back = opened(&self.ways.back, self.device)?;
        back.wait(mark)?;
        self.download_by(back, matrix)
    }
}

impl Run<'_> {
    /// All steps of an offload.
    pub(in crate::exec) fn all(&mut self, offload: &Offload) -> Result<(), Failed> {
        for step in &offload.steps {
            self.queue.cancel.check().map_err(Failed::Stopped)?;
            if computes(step) {
                self.mark(&offload.leaves)?;
            }
            self.step(step)?;
        }
        Ok(())
    }

    /// Marks the results that are there and were not before.
    fn mark(&mut self, leaves: &[Slot]) -> Result<(), Failed> {
        let is_new = |slot: &&Slot| !self.marked.iter().any(|marked| marked.slots.contains(slot));
        let (mut slots, mut buffers) = (Vec::new(), Vec::new());
        for &slot in leaves.iter().filter(is_new) {
            let parts = self.parts.get(&slot).into_iter().flatten();
            let here = parts.filter_map(|part| match part {
                Found::Here(matrix) => Some(matrix),
                Found::Host(_) => None,
            });
            let before = buffers.len();
            buffers.extend(here.chain(self.held.get(&slot)).map(|matrix| &matrix.buffer));
            if buffers.len() > before {
                slots.push(slot);
            }
        }
        if slots.is_empty() {
            return Ok(());
        }
        buffers.into_iter().for_each(|buffer| buffer.share());
        let mut mark = self.queue.stream.new_mark()?;
        self.queue.stream.mark(&mut mark)?;
        self.marked.push(Marked { mark, slots });
        Ok(())
    }

    /// Results in the order in which they are there.
    pub(in crate::exec) fn in_order(&self, leaves: &[Slot]) -> Vec<Slot> {
        let place = |slot: &Slot| self.marked.iter().position(|marked| marked.slots.contains(slot));
        let mut leaves = leaves.to_vec();
        leaves.sort_by_key(|slot| place(slot).unwrap_or(self.marked.len()));
        leaves
    }

    /// Waits for a part of a result and brings it back, where the host has not got it.
    pub(in crate::exec) fn fetch(&self, slot: Slot, found: Found) -> Result<Cells, Failed> {
        let marked = self.marked.iter().find(|marked| marked.slots.contains(&slot));
        match (found, marked) {
            (Found::Here(matrix), Some(marked)) => self.queue.take_back(&matrix, &marked.mark),
            (found, _) => self.queue.fetch(found),
        }
    }
}

/// Whether a step has work queued, and does not only name or drop what is there.
fn computes(step: &Step) -> bool {
    match step {
        Step::Part { .. } | Step::Release(_) => false,
        Step::Evaluate { .. } | Step::Multiply { .. } | Step::Pass(_) | Step::Iterate(_) => true,
        Step::Gather { .. } | Step::Align { .. } | Step::Offload(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::run::Cancel;
    use crate::gpu::Fault;
    use crate::gpu::tests::with_device;

    #[test]
    fn nothing_is_brought_while_a_graph_is_recorded() {
        let path = "exec::offload::ways::tests::nothing_is_brought_while_a_graph_is_recorded";
        with_device(path, |device, _| {
            let cancel = Cancel::default();
            let queue = Queue::new(device, &cancel).unwrap();
            let recorded = queue.stream.record(|| queue.bring(&[1; 8], "numbers"));
            let failed = recorded.map(drop).unwrap_err();
            let is_it = |fault: &Fault| {
                matches!(fault, Fault::Misuse { call: "cuMemcpyHtoDAsync", code: 900 })
            };
            assert!(matches!(&failed, Failed::Device(fault) if is_it(fault)), "{failed}");
            assert!(queue.ways.link.get().is_none());
            let brought = queue.bring(&[1; 8], "numbers").unwrap();
            let mut got = [0; 8];
            queue.stream.download(&brought, &mut got).unwrap();
            assert_eq!(got, [1; 8]);
        });
    }
}
