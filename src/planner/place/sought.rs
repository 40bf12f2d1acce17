//! When a GPU is looked for: once plans might gain from one, for that takes a driver's start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::{Gpu, GpuUse};
use crate::exec::offload;
use crate::gpu::{self, Device};

/// Seconds from which a plan is worth asking a GPU: what takes less would hardly gain.
const OFFLOADED_SECONDS_MIN: f64 = 2e-4;

/// Seconds of such plans together, in all of a process, from which a GPU is worth looking for: that takes a driver's start.
const LOOKED_FOR_SECONDS_MIN: f64 = 0.02;

/// The GPUs that may run a plan. Which of them will is known when it starts, and until then plans count by one: that which they would get
/// now. Where all are alike this is no matter; where they are not, it is the likeliest.
pub(in crate::planner) struct Sought {
    pub(in crate::planner) all: Vec<Arc<Device>>,
    pub(in crate::planner) next: Arc<Device>,
}

impl Sought {
    /// What a plan may take of a GPU's memory: of that which has most, for where it has no room it does not go.
    pub(in crate::planner) fn memory_bytes(&self) -> usize {
        self.all.iter().map(|device| device.memory_limit()).max().unwrap_or(0)
    }
}

/// The GPUs that may run a plan of so many seconds, if there is one.
pub(in crate::planner) fn devices(wanted: &GpuUse, seconds: f64) -> Option<Sought> {
    let is_wanted = match wanted.when {
        Gpu::Off => false,
        Gpu::Auto => {
            seconds >= OFFLOADED_SECONDS_MIN
                && (!gpu::found().is_empty() || PLANNED.are_worth_looking(seconds))
        }
        Gpu::Force => true,
    };
    // What may go either way does not wait until a device has been looked for.
    let waits = wanted.when == Gpu::Force;
    if !is_wanted {
        return None;
    }
    let all = offload::trusted(wanted.libraries(), &wanted.devices, waits);
    for device in &all {
        device.set_copiers(wanted.threads);
        device.set_shapes(&wanted.shapes);
        if let Some(bytes) = wanted.memory_limit {
            device.set_memory_limit(Some(bytes));
        }
    }
    let next = Arc::clone(gpu::next(&all)?);
    Some(Sought { all, next })
}

/// What plans of this process that might gain have been expected to take.
static PLANNED: Planned = Planned(AtomicU64::new(0));

/// Microseconds.
struct Planned(AtomicU64);

impl Planned {
    /// Counts one more, and tells whether all together are worth looking for a GPU.
    fn are_worth_looking(&self, seconds: f64) -> bool {
        let micros = (seconds.min(LOOKED_FOR_SECONDS_MIN) * 1e6) as u64;
        let planned = self.0.fetch_add(micros, Ordering::Relaxed) + micros;
        planned as f64 >= LOOKED_FOR_SECONDS_MIN * 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_looked_for_once_plans_together_are_worth_it() {
        let planned = Planned(AtomicU64::new(0));
        let found =
            [0.004, 0.015, 0.0, 0.001, 0.0].map(|seconds| planned.are_worth_looking(seconds));
        assert_eq!(found, [false, false, false, true, true]);
        assert!(Planned(AtomicU64::new(0)).are_worth_looking(f64::INFINITY));
    }
}
