//! Which steps a device runs: runs of them whose work it does so much faster that moving their values pays.
//!
//! ```text
//! stored x ─ x @ x ─ relu ─ sum ─ cumsum ─ …      each run of steps that a device has kernels for
//!            └── offload ───┘                     is cut where that saves most, by both costs
//! ```
//!
//! A run is worth it where the device is clearly faster or not at all: a quarter and 50 µs. What moves is what the run reads and
//! what is read after it, each once; between its steps nothing does. The host's seconds are counted by the same work, so that both
//! sides are guessed alike. With `gpu = force` everything that a device can run is one.
//!
//! Matrices at hand stay on the device once they were brought, and are not brought again. What plans would have saved, had their
//! matrices been there, is owed to those; one that is owed as much as bringing it takes is brought as if that took nothing.
//!
//! Also decides in what a device multiplies: in the type of the cells, unless `gpu_precision` allows it less.

mod sought;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub(super) use self::sought::{Sought, devices};
use self::work::{MEMORY_SHARE, Work};
use super::estimate::Estimate;
use super::graph::Graph;
use super::patterns::Expected;
use crate::config::{Gpu, GpuGraphs, GpuPrecision};
use crate::exec::offload::{self, kept};
use crate::exec::operation::{Operation as Op, Stored};
use crate::exec::program::{Offload, Slot, Step};
use crate::gpu::{Arithmetic, Device, Rates};
use crate::matrix::{Element, Layout};

/// How much faster a device must be, and by how many seconds.
const FACTOR_MIN: f64 = 1.25;
const GAIN_SECONDS_MIN: f64 = 50e-6;

/// Whether a device that takes so long is worth it beside a host that takes so long.
pub(super) fn is_clearly_faster(device_seconds: f64, host_seconds: f64) -> bool {
    FACTOR_MIN * device_seconds + GAIN_SECONDS_MIN < host_seconds
}

/// Steps beyond which not all runs of them are compared, but the longest taken.
const STEPS_MAX: usize = 200;

/// A device as far as plans go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// All that it may be.
    pub(super) devices: &'a [Arc<Device>],
    pub(super) rates: Rates,
    /// What matrices may take of its memory.
    pub(super) memory_bytes: usize,
    pub(super) precision: GpuPrecision,
    /// Whether matrices at hand stay there.
    pub(super) keeps: bool,
    /// Whether it decomposes matrices.
    pub(super) decomposes: bool,
    /// Whether rounds are recorded.
    pub(super) graphs: GpuGraphs,
    /// Whether it finds eigenvalues of those that are not symmetric.
    pub(super) finds_eigenvalues: bool,
    /// How many times of what is expected a device and the host took for the same program before.
    pub(super) factors: [f64; 2],
}

/// Steps with those that a device runs put together, and the matrices whose absence kept it from running more.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) steps: Vec<Step>,
    pub(super) missed: Vec<(Stored, f64)>,
    /// Seconds expected of the host, by rates alone, where it runs all and a device could.
    pub(super) host_seconds: Option<f64>,
}

/// Whether a device computes products in this precision as it should: that is tried once, with cells of `FLOAT64`.
pub(super) fn has(device: &Arc<Device>, precision: GpuPrecision) -> bool {
    let less = arithmetic(precision, Element::Float64);
    precision == GpuPrecision::Off || offload::multiplies(device, less)
}

/// Whether there are decompositions among steps, and a device computes them as it should: that is tried once.
pub(super) fn decomposes(steps: &[Step], device: &Arc<Device>) -> bool {
    offload::evaluates(steps, |of| offload::taken(of).is_some()) && offload::decomposes(device)
}

/// The same of eigenvalues of matrices that are not symmetric.
pub(super) fn finds_eigenvalues(steps: &[Step], device: &Arc<Device>) -> bool {
    offload::evaluates(steps, |of| matches!(of, Op::ComplexEigen))
        && offload::decomposes(device)
        && offload::finds_eigenvalues(device)
}

/// In what a device multiplies cells of a type.
fn arithmetic(precision: GpuPrecision, element: Element) -> Arithmetic {
    match (precision, element) {
        (GpuPrecision::Off, Element::Float64) => Arithmetic::F64,
        (GpuPrecision::Off, Element::Float32) | (GpuPrecision::Float32, _) => Arithmetic::F32,
        (GpuPrecision::Tf32, _) => Arithmetic::Tf32,
        (GpuPrecision::Bf16, _) => Arithmetic::Bf16,
    }
}

fn element(graph: &Graph, slot: Slot) -> Element {
    graph.nodes_from(slot)[0].element
}

/// The products that a device computes in less than the type of their cells, and in what.
pub(super) fn less_precise(
    steps: &[Step],
    expected: Expected<'_>,
    precision: GpuPrecision,
) -> HashMap<Slot, Arithmetic> {
    let offloads = steps.iter().filter(|step| matches!(step, Step::Offload(_)));
    let less = |(_, slot): (Vec<Slot>, Slot)| {
        let element = element(expected.graph, slot);
        let used = arithmetic(precision, element);
        (used != arithmetic(GpuPrecision::Off, element)).then_some((slot, used))
    };
    offloads.flat_map(|step| dense_products(step, expected)).filter_map(less).collect()
}

/// The products of dense matrices in a step: what each reads, and what it makes.
fn dense_products(step: &Step, expected: Expected<'_>) -> Vec<(Vec<Slot>, Slot)> {
    let is_dense = |slot: &Slot| expected.estimates[*slot].layout == Layout::Dense;
    let products = step.products().into_iter();
    products.filter(|(read, _)| read.iter().all(is_dense)).collect()
}

/// Puts steps that a device runs together, where that is worth it.
pub(super) fn place(
    mut steps: Vec<Step>,
    root: Slot,
    expected: Expected<'_>,
    device: Target<'_>,
    gpu: Gpu,
) -> Placed {
    // What is at hand comes first, so that it parts nothing.
    steps.sort_by_key(|step| !is_given(step));
    let all = steps.iter().enumerate();
    let touched = all.flat_map(|(at, step)| step.touched().into_iter().map(move |slot| (slot, at)));
    let last: HashMap<Slot, usize> = touched.chain([(root, usize::MAX)]).collect();
    let at_hand = at_hand(&steps, expected, device);
    let placing = Placing { steps: &steps, last, expected, device, gpu, at_hand };
    let (runs, missed) = placing.placed();
    let host_seconds = placing.host_seconds().filter(|_| runs.is_empty());
    let mut placed = Vec::with_capacity(steps.len());
    let mut steps = steps.into_iter();
    let mut at = 0;
    for (range, offload) in runs {
        placed.extend(steps.by_ref().take(range.start - at));
        let inside = steps.by_ref().take(range.len()).collect();
        placed.push(Step::Offload(Box::new(Offload { steps: inside, ..offload })));
        at = range.end;
    }
    placed.extend(steps);
    Placed { steps: placed, missed, host_seconds }
}

/// The matrices at hand that may stay on a device, by their slots.
fn at_hand(steps: &[Step], expected: Expected<'_>, device: Target<'_>) -> HashMap<Slot, AtHand> {
    let found = steps.iter().filter_map(|step| match step {
        Step::Evaluate { operation: Op::Stored(stored), output, .. } if device.keeps => {
            let (is_there, owed) = kept::state(device.devices, &stored.matrix);
            let seconds = expected.estimates[*output].bytes / device.rates.upload;
            let is_paid = is_there || owed >= seconds;
            Some((*output, AtHand { stored: stored.clone(), is_there, is_paid }))
        }
        _ => None,
    });
    found.collect()
}

/// A matrix at hand.
struct AtHand {
    stored: Stored,
    is_there: bool,
    /// Whether it may be brought as if that took nothing.
    is_paid: bool,
}

/// What it takes to bring what is not there, in a choice between device and host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bringing {
    /// Its time, where that is not owed to it.
    Counts,
    /// Nothing: what if all matrices at hand were there?
    IsFree,
}

/// Whether a step only names what is there.
fn is_given(step: &Step) -> bool {
    matches!(step, Step::Evaluate { operation: Op::Stored(_) | Op::Constant(_), .. })
}

type Range = std::ops::Range<usize>;

struct Placing<'a> {
    steps: &'a [Step],
    /// The last step that reads or writes each slot.
    last: HashMap<Slot, usize>,
    expected: Expected<'a>,
    device: Target<'a>,
    gpu: Gpu,
    at_hand: HashMap<Slot, AtHand>,
}

impl Placing<'_> {
    /// The runs of steps that a device takes, in their order, and what it misses to take more.
    fn placed(&self) -> (Vec<(Range, Offload)>, Vec<(Stored, f64)>) {
        let works: Vec<Option<Work>> = self.steps.iter().map(|step| self.work(step)).collect();
        let (runs, saved) = self.runs(&works, Bringing::Counts);
        let might_come = self.at_hand.values().any(|matrix| !matrix.is_paid);
        if self.gpu == Gpu::Force || !might_come {
            return (runs, Vec::new());
        }
        let (wished, more) = self.runs(&works, Bringing::IsFree);
        let all = wished.iter().flat_map(|(_, offload)| &offload.keeps);
        let missing: BTreeSet<Slot> =
            all.map(|(slot, _)| *slot).filter(|slot| !self.at_hand[slot].is_there).collect();
        let bytes: f64 = missing.iter().map(|&slot| self.estimate(slot).bytes).sum();
        let owed = |slot: Slot| {
            let share = self.estimate(slot).bytes / bytes;
            (self.at_hand[&slot].stored.clone(), share * (more - saved))
        };
        let missed = match more > saved {
            true => missing.into_iter().map(owed).collect(),
            false => Vec::new(),
        };
        (runs, missed)
    }

    /// Seconds expected of the host, by rates alone; none where a device cannot run all.
    fn host_seconds(&self) -> Option<f64> {
        let mut sum = Work::default();
        for step in self.steps.iter().filter(|step| !is_given(step)) {
            sum.add(self.work(step)?, 1.0);
        }
        Some(sum.host_seconds(self.expected.cost))
    }

    /// The runs of steps that save most, in their order, and how many seconds that is.
    fn runs(&self, works: &[Option<Work>], bringing: Bringing) -> (Vec<(Range, Offload)>, f64) {
        let (mut runs, mut saved) = (Vec::new(), 0.0);
        let mut start = 0;
        while start < works.len() {
            let length = works[start..].iter().take_while(|work| work.is_some()).count();
            if length > 0 {
                let (best, gain) = self.best(start..start + length, works, bringing);
                runs.extend(best);
                saved += gain;
            }
            start += length + 1;
        }
        (runs, saved)
    }

    /// The parts of a run of steps, none of which the host must run, that save most together.
    fn best(
        &self,
        run: Range,
        works: &[Option<Work>],
        bringing: Bringing,
    ) -> (Vec<(Range, Offload)>, f64) {
        if run.len() > STEPS_MAX {
            let whole = self.offload(run.clone(), works, bringing).filter(|(_, gain)| *gain > 0.0);
            let gain = whole.as_ref().map_or(0.0, |(_, gain)| *gain);
            return (whole.map(|(offload, _)| (run, offload)).into_iter().collect(), gain);
        }
        // For each beginning of the run the most that can be saved within it, and by which last part.
        let mut saved: Vec<(f64, Option<(Range, Offload)>)> = vec![(0.0, None)];
        for end in run.start + 1..=run.end {
            let mut best = (saved[end - 1 - run.start].0, None);
            for start in run.start..end {
                let offload = self.offload(start..end, works, bringing);
                let Some((offload, gain)) = offload else { continue };
                let total = saved[start - run.start].0 + gain;
                if gain > 0.0 && total > best.0 {
                    best = (total, Some((start..end, offload)));
                }
            }
            saved.push(best);
        }
        let gain = saved[run.len()].0;
        let mut chosen = Vec::new();
        let mut at = run.len();
        while at > 0 {
            match saved[at].1.take() {
                Some((range, offload)) => {
                    at = range.start - run.start;
                    chosen.push((range, offload));
                }
                None => at -= 1,
            }
        }
        chosen.reverse();
        (chosen, gain)
    }

    /// Steps as one run of a device, and the seconds that it saves; none where they have no room in its memory or leave nothing.
    fn offload(
        &self,
        range: Range,
        works: &[Option<Work>],
        bringing: Bringing,
    ) -> Option<(Offload, f64)> {
        let steps = &self.steps[range.clone()];
        let made: BTreeSet<Slot> = steps.iter().flat_map(Step::made).collect();
        let touched: BTreeSet<Slot> = steps.iter().flat_map(Step::touched).collect();
        let inside: BTreeSet<Slot> = steps.iter().flat_map(within).collect();
        let is_read_later = |slot: &Slot| self.last.get(slot).is_some_and(|&at| at >= range.end);
        let leaves: Vec<Slot> = made.iter().copied().filter(is_read_later).collect();
        let reads = touched.difference(&made).filter(|slot| !inside.contains(slot));
        let reads: Vec<Slot> = reads.copied().collect();
        let bytes = |slots: &[Slot]| slots.iter().map(|&slot| self.estimate(slot).bytes).sum();
        let (given, down): (f64, f64) = (bytes(&reads), bytes(&leaves));
        let peak_bytes = self.peak_bytes(steps, given);
        if leaves.is_empty() || peak_bytes > self.device.memory_bytes as f64 {
            return None;
        }
        let at_hand = |slot: &Slot| self.at_hand.get(slot);
        let is_there = |slot: &Slot| at_hand(slot).is_some_and(|matrix| matrix.is_there);
        let is_free = |slot: &Slot| {
            at_hand(slot).is_some_and(|matrix| match bringing {
                Bringing::Counts => matrix.is_paid,
                Bringing::IsFree => true,
            })
        };
        let brought: Vec<Slot> = reads.iter().copied().filter(|slot| !is_there(slot)).collect();
        let free: Vec<Slot> = brought.iter().copied().filter(is_free).collect();
        let (up, paid) = (bytes(&brought), bytes(&free));
        let mut work = Work::default();
        for part in &works[range] {
            work.add((*part)?, 1.0);
        }
        let Rates { upload, download, synchronize_seconds, .. } = self.device.rates;
        let moving =
            up / upload + down / download + synchronize_seconds * (1 + leaves.len()) as f64;
        let [of_device, of_host] = self.device.factors;
        let host = of_host * work.host_seconds(self.expected.cost);
        let device = work.device_seconds(&self.device) + self.converting_seconds(steps);
        let device_by_rates = device + moving;
        let seconds = [of_device * device_by_rates, host];
        let gain = match self.gpu {
            // The longest runs.
            Gpu::Force => (leaves.len() + steps.len()) as f64 * steps.len() as f64,
            _ => {
                let device = of_device * (device_by_rates - paid / upload);
                seconds[1] - FACTOR_MIN * device - GAIN_SECONDS_MIN
            }
        };
        let keeps = reads.iter().filter_map(|slot| Some((*slot, at_hand(slot)?.stored.clone())));
        let keeps = keeps.collect();
        let (moved_bytes, graphs) = (up + down, self.device.graphs);
        let steps = Vec::new();
        let offload = Offload {
            steps,
            leaves,
            keeps,
            seconds,
            device_by_rates,
            moved_bytes,
            peak_bytes,
            graphs,
        };
        Some((offload, gain))
    }

    /// Bytes that a device holds at once, with those that it is given.
    fn peak_bytes(&self, steps: &[Step], given: f64) -> f64 {
        // For as long as the run at most.
        let given = given + self.converted(steps).values().sum::<f64>();
        let mut held: HashMap<Slot, f64> = HashMap::new();
        let mut peak = given;
        for step in steps {
            for slot in step.made().into_iter().chain(within(step)) {
                held.insert(slot, self.estimate(slot).bytes);
            }
            let worked_in = self.worked_in(step);
            peak = peak.max(given + worked_in + held.values().sum::<f64>());
            if let Step::Release(slots) = step {
                held.retain(|slot, _| !slots.contains(slot));
            }
        }
        peak
    }

    /// Bytes that a decomposition works in, or that pairs of two sparse matrices take, of which none may become one cell.
    fn worked_in(&self, step: &Step) -> f64 {
        match step {
            Step::Evaluate { operation: Op::Product, inputs, output }
            | Step::Multiply { inputs, output, .. }
                if self.is_sparse(inputs) =>
            {
                let pair_bytes = size_of::<u32>() + self.element(*output).size_bytes();
                self.estimate(*output).flops / 2.0 * pair_bytes as f64
            }
            Step::Evaluate { operation, inputs, .. } => {
                let Some(taken) = offload::taken(operation) else { return 0.0 };
                taken.copies * self.full_bytes(inputs[0]) + self.expanded(inputs).sum::<f64>()
            }
            _ => 0.0,
        }
    }

    /// Bytes of all cells of those that are sparse.
    fn expanded(&self, slots: &[Slot]) -> impl Iterator<Item = f64> {
        slots.iter().filter(|&&slot| self.is_sparse(&[slot])).map(|&slot| self.full_bytes(slot))
    }

    /// Bytes of all cells of a value, whichever of them are stored.
    fn full_bytes(&self, slot: Slot) -> f64 {
        let Estimate { rows, columns, .. } = *self.estimate(slot);
        rows * columns * self.element(slot).size_bytes() as f64
    }

    /// The factors and products that a device has in two types, because it multiplies in another one, and bytes of the second.
    fn converted(&self, steps: &[Step]) -> BTreeMap<Slot, f64> {
        let mut converted = BTreeMap::new();
        let products = steps.iter().flat_map(|step| dense_products(step, self.expected));
        for (read, made) in products {
            let of = |slot: Slot| arithmetic(self.device.precision, self.element(slot));
            let factors = read.into_iter().map(|slot| (slot, of(slot).bytes()));
            for (slot, bytes) in factors.chain([(made, of(made).sum_bytes())]) {
                let own = self.element(slot).size_bytes();
                if bytes != own {
                    let share = bytes as f64 / own as f64;
                    converted.insert(slot, share * self.estimate(slot).bytes);
                }
            }
        }
        converted
    }

    /// What their conversion takes, each once: of what changes in rounds the products take much longer.
    fn converting_seconds(&self, steps: &[Step]) -> f64 {
        let rates = self.device.rates;
        let converted = self.converted(steps);
        // One of the types is read, the other written.
        let bytes: f64 =
            converted.iter().map(|(&slot, copied)| self.estimate(slot).bytes + copied).sum();
        bytes / (MEMORY_SHARE * rates.memory) + converted.len() as f64 * rates.launch_seconds
    }

    fn is_sparse(&self, slots: &[Slot]) -> bool {
        slots.iter().all(|&slot| self.estimate(slot).layout == Layout::Csr)
    }

    fn is_dense(&self, slots: &[Slot]) -> bool {
        slots.iter().all(|&slot| self.estimate(slot).layout == Layout::Dense)
    }

    fn element(&self, slot: Slot) -> Element {
        element(self.expected.graph, slot)
    }

    fn estimate(&self, slot: Slot) -> &Estimate {
        &self.expected.estimates[slot]
    }
}

/// The slots that exist within a step alone.
fn within(step: &Step) -> Vec<Slot> {
    match step {
        Step::Pass(pass) => pass.block_slots(),
        Step::Iterate(rounds) => {
            let repeated = [Some(&rounds.step), rounds.until.as_ref()].into_iter().flatten();
            let steps = repeated.flat_map(|round| &round.steps);
            let inside = steps.flat_map(|step| [step.made(), within(step)].concat());
            inside.chain(rounds.variable).chain(rounds.prior).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Settings;
    use crate::exec::operation::{Aggregate, Stored};
    use crate::matrix::{Dense, Matrix, Shape};
    use crate::planner::cost::CostModel;
    use crate::planner::estimate::estimate;
    use crate::planner::graph::NodeId;
    use crate::planner::schedule;

    const MEMORY: usize = 1 << 30;

    fn target(precision: GpuPrecision) -> Target<'static> {
        let (rates, memory_bytes) = (Rates::default(), MEMORY);
        let (keeps, decomposes, finds_eigenvalues) = (false, true, true);
        let (devices, graphs, factors) = (&[], GpuGraphs::Off, [1.0; 2]);
        Target {
            devices,
            rates,
            memory_bytes,
            precision,
            keeps,
            decomposes,
            finds_eigenvalues,
            graphs,
            factors,
        }
    }

    /// The steps of an expression of a matrix of this side, once they are placed on a device like those of data centres.
    fn placed(
        side: usize,
        gpu: Gpu,
        memory_bytes: usize,
        expression: fn(&mut Graph, NodeId) -> NodeId,
    ) -> Vec<Step> {
        let device = Target { memory_bytes, ..target(GpuPrecision::Off) };
        placed_on(device, side, gpu, expression).0
    }

    /// The same on this device, and which products it computes in less than the type of their cells.
    fn placed_on(
        device: Target<'_>,
        side: usize,
        gpu: Gpu,
        expression: fn(&mut Graph, NodeId) -> NodeId,
    ) -> (Vec<Step>, HashMap<Slot, Arithmetic>) {
        let (placed, less) = placed_of(&stored(side), device, gpu, expression);
        (placed.steps, less)
    }

    fn stored(side: usize) -> Arc<Matrix> {
        let shape = Shape::new(side, side);
        Arc::new(Matrix::new(Dense::new(shape, vec![0.5; shape.cells()].into())))
    }

    /// The same of this matrix.
    fn placed_of(
        matrix: &Arc<Matrix>,
        device: Target<'_>,
        gpu: Gpu,
        expression: fn(&mut Graph, NodeId) -> NodeId,
    ) -> (Placed, HashMap<Slot, Arithmetic>) {
        let mut graph = Graph::default();
        let x = Op::Stored(Stored::new("x", Arc::clone(matrix)));
        let x = graph.add(x, [], None).unwrap();
        let root = expression(&mut graph, x);
        let cost = CostModel::default();
        let estimates = estimate(&graph, &[], &cost);
        let expected = Expected { graph: &graph, estimates: &estimates, cost: &cost };
        let options = schedule::Options { fusion: Settings::default().fusion(), emit: false };
        let steps = schedule::steps(expected, root, options).steps;
        let placed = place(steps, root.index(), expected, device, gpu);
        let less = less_precise(&placed.steps, expected, device.precision);
        (placed, less)
    }

    fn offloads(steps: &[Step]) -> Vec<&Offload> {
        let all = steps.iter().filter_map(|step| match step {
            Step::Offload(offload) => Some(offload.as_ref()),
            _ => None,
        });
        all.collect()
    }

    fn square(graph: &mut Graph, x: NodeId) -> NodeId {
        graph.add(Op::Product, [x, x], None).unwrap()
    }

    fn cube(graph: &mut Graph, x: NodeId) -> NodeId {
        let square = square(graph, x);
        graph.add(Op::Product, [square, x], None).unwrap()
    }

    fn sum(graph: &mut Graph, x: NodeId) -> NodeId {
        graph.add(Op::Reduce { aggregate: Aggregate::Sum, axis: None }, [x], None).unwrap()
    }

    #[test]
    fn work_goes_to_a_device_where_that_pays() {
        let steps = placed(1500, Gpu::Auto, MEMORY, cube);
        let [offload] = offloads(&steps)[..] else { panic!("{steps:?}") };
        // Both products, and between them nothing comes back.
        assert_eq!(offload.leaves.len(), 1);
        let [device, host] = offload.seconds;
        assert!(2.0 * device < host && device > 0.0, "{device} {host}");
        assert_eq!(offload.moved_bytes, 2.0 * 8.0 * 1500.0 * 1500.0);
        // What is read once costs more on its way than it would take here, and what is small hardly takes anything.
        assert!(offloads(&placed(1500, Gpu::Auto, MEMORY, sum)).is_empty());
        assert!(offloads(&placed(40, Gpu::Auto, MEMORY, cube)).is_empty());
    }

    /// What the host took before counts, in proportion.
    #[test]
    fn a_host_that_was_slower_than_expected_leaves_more() {
        let device = target(GpuPrecision::Off);
        let (steps, _) = placed_on(device, 40, Gpu::Auto, cube);
        assert!(offloads(&steps).is_empty());
        let slow = Target { factors: [1.0, 50.0], ..device };
        let (placed, _) = placed_of(&stored(40), slow, Gpu::Auto, cube);
        let [offload] = offloads(&placed.steps)[..] else { panic!("{:?}", placed.steps) };
        let [on_device, host] = offload.seconds;
        assert!(host > on_device && placed.host_seconds.is_none());
        // By rates alone, or what is noted would be taken for what is expected.
        let (by_host, _) = placed_of(&stored(40), device, Gpu::Auto, cube);
        assert!((50.0 * by_host.host_seconds.unwrap() / host - 1.0).abs() < 1e-9);
    }

    /// So does what the device took.
    #[test]
    fn a_device_that_was_slower_than_expected_gets_less() {
        let device = target(GpuPrecision::Off);
        let (placed, _) = placed_on(device, 1500, Gpu::Auto, cube);
        let [offload] = offloads(&placed)[..] else { panic!("{placed:?}") };
        let [on_device, host] = offload.seconds;
        assert_eq!(offload.device_by_rates, on_device);
        let slow = |factor| Target { factors: [factor, 1.0], ..device };
        let (placed, _) = placed_on(slow(1.5), 1500, Gpu::Auto, cube);
        let [offload] = offloads(&placed)[..] else { panic!("{placed:?}") };
        assert_eq!(offload.seconds, [1.5 * on_device, host]);
        assert_eq!(offload.device_by_rates, on_device);
        let (placed, _) = placed_on(slow(host / on_device), 1500, Gpu::Auto, cube);
        assert!(offloads(&placed).is_empty(), "{placed:?}");
    }

    /// What is read once is not worth its way, what is read again and again is.
    #[test]
    fn a_matrix_is_brought_once_it_is_owed_as_much_as_that_takes() {
        let device = Target { keeps: true, ..target(GpuPrecision::Off) };
        let matrix = stored(1500);
        let read = || placed_of(&matrix, device, Gpu::Auto, sum).0;
        let bringing = 8.0 * 1500.0 * 1500.0 / device.rates.upload;
        let mut owed = 0.0;
        let placed = loop {
            let placed = read();
            let [(of, seconds)] = &placed.missed[..] else { break placed };
            assert!(offloads(&placed.steps).is_empty() && Arc::ptr_eq(&of.matrix, &matrix));
            assert!(owed < bringing && *seconds > 0.0);
            kept::owe(&matrix, *seconds);
            owed += seconds;
        };
        let [offload] = offloads(&placed.steps)[..] else { panic!("{:?}", placed.steps) };
        // Nobody pretends that its way takes nothing.
        assert!(owed >= bringing && offload.seconds[0] > bringing);
        assert_eq!(offload.keeps.len(), 1);
        // Of others, and where nothing stays, nothing is known.
        assert!(!placed_of(&stored(1500), device, Gpu::Auto, sum).0.missed.is_empty());
        let nothing_stays = placed_of(&matrix, target(GpuPrecision::Off), Gpu::Auto, sum).0;
        assert!(offloads(&nothing_stays.steps).is_empty() && nothing_stays.missed.is_empty());
        // What goes there anyway misses nothing.
        assert!(placed_of(&stored(1500), device, Gpu::Force, sum).0.missed.is_empty());
    }

    #[test]
    fn what_has_no_room_or_no_kernel_stays() {
        assert!(offloads(&placed(1500, Gpu::Auto, 1 << 20, cube)).is_empty());
        assert!(offloads(&placed(1500, Gpu::Force, 1 << 20, cube)).is_empty());
        assert_eq!(offloads(&placed(40, Gpu::Force, MEMORY, sum)).len(), 1);
        let around_an_inverse = |graph: &mut Graph, x| {
            let square = square(graph, x);
            let inverse = graph.add(Op::Inverse(None), [square], None).unwrap();
            cube(graph, inverse)
        };
        let device = target(GpuPrecision::Off);
        let [whole, parted] = [true, false].map(|decomposes| {
            placed_on(Target { decomposes, ..device }, 1200, Gpu::Auto, around_an_inverse).0
        });
        let is_inverse =
            |step: &Step| matches!(step, Step::Evaluate { operation: Op::Inverse(_), .. });
        assert_eq!(offloads(&parted).len(), 2, "{parted:?}");
        assert!(parted.iter().any(is_inverse));
        let [offload] = offloads(&whole)[..] else { panic!("{whole:?}") };
        assert!(offload.steps.iter().any(is_inverse));
    }

    #[test]
    fn products_are_less_precise_where_that_is_allowed() {
        let device = target(GpuPrecision::Tf32);
        let rates = Rates { products_tf32: 10.0 * device.rates.products64, ..device.rates };
        let [exact, less] = [target(GpuPrecision::Off), Target { rates, ..device }]
            .map(|device| placed_on(device, 1500, Gpu::Auto, cube));
        let seconds = |steps: &[Step]| offloads(steps)[0].seconds;
        let ([whole, host], [rounded, same]) = (seconds(&exact.0), seconds(&less.0));
        assert!(rounded < whole && host == same, "{rounded} {whole} {host} {same}");
        assert!(exact.1.is_empty());
        assert_eq!(less.1.into_values().collect::<Vec<_>>(), [Arithmetic::Tf32; 2]);
        // Nor are there any where nothing is multiplied, or the host multiplies.
        let sums = placed_on(device, 1500, Gpu::Force, sum);
        assert!(sums.1.is_empty() && !offloads(&sums.0).is_empty());
        assert!(placed_on(device, 40, Gpu::Auto, cube).1.is_empty());
        // Factors and products are there in both types: two matrices take the room of three.
        let few = Target { memory_bytes: 5 * 8 * 1500 * 1500 / 2, ..device };
        assert!(offloads(&placed_on(few, 1500, Gpu::Force, square).0).is_empty());
        let exactly = Target { precision: GpuPrecision::Off, ..few };
        assert_eq!(offloads(&placed_on(exactly, 1500, Gpu::Force, square).0).len(), 1);
    }

    #[test]
    fn no_arithmetic_is_more_precise_than_the_type() {
        let all =
            [GpuPrecision::Off, GpuPrecision::Float32, GpuPrecision::Tf32, GpuPrecision::Bf16];
        let of = |element| all.map(|precision| arithmetic(precision, element));
        use Arithmetic::{Bf16, F32, F64, Tf32};
        assert_eq!(of(Element::Float64), [F64, F32, Tf32, Bf16]);
        assert_eq!(of(Element::Float32), [F32, F32, Tf32, Bf16]);
    }
}
