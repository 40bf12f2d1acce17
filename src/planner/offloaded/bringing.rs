//! What it takes to bring the columns that a device reads, and who is to run what reads them.
//!
//! Columns at hand stay there once they were brought; what plans would have saved, had they been there, is owed to them, and one that is
//! owed as much as bringing it takes is brought as if that took nothing.

use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, displayable};

use crate::config::{Gpu, GpuUse};
use crate::exec::offload::groups::{Asked, expected_bytes};
use crate::exec::offload::observed::{self, By};
use crate::exec::offload::operator::Choice;
use crate::exec::offload::{falls, kept};
use crate::planner::cost::rows::RowCosts;
use crate::planner::place::{self, Sought};

/// The host's side.
pub(super) struct Host {
    /// By which the same plan is known.
    text: String,
    /// Seconds that are expected, by rates alone and by what it took before.
    by_rates: f64,
    seconds: f64,
    /// How many times of what is expected of it a device took before.
    of_device: f64,
}

impl Host {
    pub(super) fn of(plan: &Arc<dyn ExecutionPlan>, by_rates: f64) -> Self {
        let text = format!("{}", displayable(plan.as_ref()).indent(false));
        let [of_device, of_host] = [By::Device, By::Host].map(|by| observed::factor(by, &text));
        Self { text, by_rates, seconds: of_host * by_rates, of_device }
    }
}

/// Bytes that each column takes there.
pub(super) fn bytes(asked: &Asked) -> impl Iterator<Item = usize> {
    let columns = asked.columns.iter().zip(&asked.values);
    columns.map(|(of, &values)| expected_bytes(of.rows(), values, of.nulls() > 0))
}

/// The columns that are not there.
#[derive(Default)]
pub(super) struct Bringing {
    bytes: usize,
    /// Each with the seconds that bringing it takes.
    absent: Vec<(usize, f64)>,
    seconds: f64,
    /// Of these, what nobody owes them.
    unpaid_seconds: f64,
}

/// What a device takes that has all columns.
pub(super) struct Working {
    pub(super) seconds: f64,
    /// Seconds of these during which columns may still be coming.
    pub(super) while_coming: f64,
    pub(super) read_bytes: usize,
    /// Bytes of its memory at once, and whether there is room for all columns to stay beside these.
    pub(super) held_bytes: usize,
    pub(super) has_room: bool,
}

impl Working {
    /// Seconds where columns come that take so many.
    fn and(&self, bringing: f64) -> f64 {
        self.seconds + (bringing - self.while_coming).max(0.0)
    }
}

impl Bringing {
    pub(super) fn of(asked: &Asked, wanted: &GpuUse, costs: &RowCosts, sought: &Sought) -> Self {
        let mut bringing = Self::default();
        for (at, (column, bytes)) in asked.columns.iter().zip(bytes(asked)).enumerate() {
            let (is_there, owed) = match wanted.keeps {
                true => kept::state(&sought.all, column),
                false => (false, 0.0),
            };
            if is_there {
                continue;
            }
            // It is decoded by the host while what was decoded before is on its way.
            let decoding = costs.kept(column.rows() as f64) * 1e-9 / wanted.threads.max(1) as f64;
            let seconds = (bytes as f64 / sought.next.rates().upload).max(decoding);
            bringing.bytes += bytes;
            bringing.seconds += seconds;
            if owed < seconds {
                bringing.unpaid_seconds += seconds;
            }
            bringing.absent.push((at, seconds));
        }
        bringing
    }

    /// Whether a column is to come.
    pub(super) fn has(&self, column: usize) -> bool {
        self.absent.iter().any(|(absent, _)| *absent == column)
    }

    /// Who is to run it.
    pub(super) fn choice(self, working: &Working, host: Host, wanted: &GpuUse) -> Choice {
        let force = wanted.when == Gpu::Force;
        let fallen = wanted.fallen(|| falls::why(&host.text));
        // What has no room to stay is brought each time.
        let unpaid = if working.has_room { self.unpaid_seconds } else { self.seconds };
        let is_clearly_faster =
            |by_rates: f64| place::is_clearly_faster(host.of_device * by_rates, host.seconds);
        let is_faster = force || is_clearly_faster(working.and(unpaid));
        let gain = host.seconds - host.of_device * working.seconds;
        let may_stay = wanted.keeps && working.has_room && fallen.is_none();
        let is_missed = !is_faster && may_stay && is_clearly_faster(working.seconds);
        let missed = self.absent.iter().filter(|_| is_missed);
        let missed = missed.map(|&(at, seconds)| (at, gain * seconds / self.seconds)).collect();
        Choice {
            by_device: is_faster && fallen.is_none(),
            waits: force,
            keeps: wanted.keeps,
            device_seconds: host.of_device * working.and(self.seconds),
            host_seconds: host.seconds,
            read_bytes: working.read_bytes,
            brought_bytes: self.bytes,
            held_bytes: working.held_bytes,
            fallen,
            text: host.text,
            by_rates: [working.and(self.seconds), host.by_rates],
            missed,
        }
    }
}
