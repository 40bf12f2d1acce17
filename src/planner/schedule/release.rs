//! Lets values go after their last reader.

use rustc_hash::FxHashMap;

use crate::exec::program::{Slot, Step};

/// Lets every value go after its last reader, but for those that are kept.
pub(super) fn release(steps: &mut Vec<Step>, keep: &[Slot]) {
    let last = last_readers(steps);
    let mut released = Vec::with_capacity(steps.len());
    for (at, step) in std::mem::take(steps).into_iter().enumerate() {
        let mut over: Vec<Slot> = step
            .touched()
            .into_iter()
            .filter(|slot| last[slot] == at && !keep.contains(slot))
            .collect();
        over.sort_unstable();
        over.dedup();
        released.push(step);
        if !over.is_empty() {
            released.push(Step::Release(over));
        }
    }
    *steps = released;
}

/// The last step that reads, or writes, each slot.
pub(super) fn last_readers(steps: &[Step]) -> FxHashMap<Slot, usize> {
    let all = steps.iter().enumerate();
    all.flat_map(|(at, step)| step.touched().into_iter().map(move |slot| (slot, at))).collect()
}
