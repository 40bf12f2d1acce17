//! Which results of loops are written over what the loops read, rather than beside it.
//!
//! A value that one loop reads, and nobody after it, has memory of just the size that the result needs. The run
//! looks whether any other matrix shares that memory; the bits are the same either way.

use super::super::estimate::Estimate;
use super::super::graph::Node;
use super::Scheduler;
use super::release::last_readers;
use crate::exec::operation::Operation as Op;
use crate::exec::program::{BlockStep, Pass, Sink, Slot, Source, Step};
use crate::matrix::Layout;

/// Bytes from which it is worth to look: smaller ones are not kept for reuse.
const OVERWRITTEN_BYTES_MIN: f64 = 65_536.0;

impl Scheduler<'_> {
    /// Names, for each loop whose result is kept, what it may be written over. What must `stay` is read by somebody
    /// after these steps.
    pub(super) fn overwrite(&self, steps: &mut [Step], stay: &[Slot]) {
        let last = last_readers(steps);
        for (at, step) in steps.iter_mut().enumerate() {
            let Step::Pass(pass) = step else { continue };
            if pass.source != Source::Cut {
                continue;
            }
            let is_over = |slot: &Slot| last.get(slot) == Some(&at) && !stay.contains(slot);
            let mut taken: Vec<Slot> = Vec::new();
            for sink in 0..pass.sinks.len() {
                let found = self.overwritten(pass, sink);
                let found = found.into_iter().find(|slot| is_over(slot) && !taken.contains(slot));
                taken.extend(found);
                if let Sink::Collect { over, .. } = &mut pass.sinks[sink] {
                    *over = found;
                }
            }
        }
    }

    /// The values of the size of a collected result that its loop reads, and nothing else in the pass.
    fn overwritten(&self, pass: &Pass, sink: usize) -> Vec<Slot> {
        let Sink::Collect { from, columns: Some(_), .. } = pass.sinks[sink] else {
            return Vec::new();
        };
        let readers_of = |slot: Slot| {
            let steps = pass.steps.iter().filter(move |step| step.inputs().contains(&slot));
            steps.count() + pass.sinks.iter().filter(|sink| sink.inputs().contains(&slot)).count()
        };
        let step = pass.steps.iter().find(|step| step.output() == from);
        let Some(BlockStep::Fused { inputs, .. }) = step else { return Vec::new() };
        // Nothing else in the pass reads the result, which is then written where it stays.
        if readers_of(from) > 1 {
            return Vec::new();
        }
        let fits = |slot: &Slot| pass.cut.contains(slot) && readers_of(*slot) == 1;
        inputs.iter().copied().filter(fits).filter(|&slot| self.is_alike(slot, from)).collect()
    }

    /// Whether one value has memory of the size of the other.
    fn is_alike(&self, read: Slot, written: Slot) -> bool {
        let of = |slot: Slot| -> (&Node, &Estimate) {
            let (id, node) = self.graph.nodes().nth(slot).expect("a slot is a node's");
            (node, &self.expected.estimates[id.index()])
        };
        let extent = |node: &Node| (node.rows, node.columns, node.element);
        let ((read, of_read), (written, of_written)) = (of(read), of(written));
        !matches!(read.operation, Op::Stored(_) | Op::Constant(_))
            && extent(read) == extent(written)
            && of_read.layout == Layout::Dense
            && of_written.bytes >= OVERWRITTEN_BYTES_MIN
    }
}
