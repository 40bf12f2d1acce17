//! What steps are to do, counted once for both sides: host and device are guessed by the same work.
//!
//! Enters: steps, and what is expected of their values. Leaves: [`Work`], and its seconds on either. Not here: what is moved to a device
//! and back.

use super::{Placing, Target, arithmetic};
use crate::exec::costs::Constant;
use crate::exec::offload;
use crate::exec::operation::Operation as Op;
use crate::exec::program::{BlockStep, Pass, Sink, Slot, Source, Step};
use crate::matrix::{Element, Layout};
use crate::planner::cost::{CostModel, PLACED};
use crate::planner::estimate::{Estimate, rounds};

/// Share of a device's bandwidth that loops reach.
pub(super) const MEMORY_SHARE: f64 = 0.75;

/// Share of a device's rate of products that decompositions reach, beside what each of their columns takes (H200, 4096 a side).
const DECOMPOSED_SHARE: f64 = 0.15;

/// Share of a device's rate of products that convolutions reach, by the type of their cells: what shared memory hands a kernel that reads half
/// a number for each multiplication and addition, or a quarter (derived from the H200's 128 bytes a cycle, and not measured).
const CONVOLVED_SHARES: [f64; 2] = [0.25, 0.5];

/// What a pair of cells of two sparse matrices takes of a device, in bytes of its memory: it reads and writes some 40 of them and is sorted,
/// log₂ pairs times, in shared memory (derived, and not measured).
const PAIR_BYTES: f64 = 128.0;

/// Kernels of their product: one for each room that rows are given, and one that closes them up.
const PAIR_LAUNCHES: f64 = 8.0;

/// What is to be done, whoever does it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    /// Floating-point operations of products, of cells of 64 and of 32 bits.
    products: [f64; 2],
    /// The same of convolutions, which no library computes.
    convolved: [f64; 2],
    /// The same of decompositions.
    decomposed: [f64; 2],
    /// Launches that their columns take as long as, on a device.
    columns: f64,
    /// Those of products with a sparse matrix, and bytes of the dense one that a device reads again and again for it.
    sparse: f64,
    gathered: f64,
    /// Those of products of two sparse matrices, with what it takes the host to put cells in order.
    pairs: f64,
    /// Those of single cells, in units of an addition.
    cells: f64,
    /// Bytes read and written.
    bytes: f64,
    /// Kernels, or steps.
    launches: f64,
    /// Numbers that decide what comes next.
    decisions: f64,
}

impl Work {
    pub(super) fn add(&mut self, other: Self, times: f64) {
        let sums = self.products.iter_mut().chain(&mut self.convolved).chain(&mut self.decomposed);
        for (sum, next) in sums.zip([other.products, other.convolved, other.decomposed].concat()) {
            *sum += times * next;
        }
        self.columns += times * other.columns;
        self.sparse += times * other.sparse;
        self.gathered += times * other.gathered;
        self.pairs += times * other.pairs;
        self.cells += times * other.cells;
        self.bytes += times * other.bytes;
        self.launches += times * other.launches;
        self.decisions += times * other.decisions;
    }

    pub(super) fn host_seconds(&self, cost: &CostModel) -> f64 {
        let [products, singles] = [0, 1].map(|of| self.products[of] + self.convolved[of]);
        let loops = (self.cells / cost.constant(Constant::Elementwise))
            .max(self.bytes / cost.constant(Constant::Memory));
        let [decomposed, decomposed_singles] = self.decomposed;
        products / cost.constant(Constant::Products64)
            + singles / cost.constant(Constant::Products32)
            + (decomposed + decomposed_singles / 2.0) / cost.constant(Constant::Decompositions)
            + self.sparse / cost.constant(Constant::SparseProducts)
            + self.pairs / cost.constant(Constant::SparsePairs)
            + loops
            + self.launches * cost.constant(Constant::Steps)
    }

    pub(super) fn device_seconds(&self, Target { rates, precision, .. }: &Target) -> f64 {
        let [products, singles] = self.products;
        let moved = self.bytes + self.gathered;
        let loops = (self.cells / rates.products64).max(moved / (MEMORY_SHARE * rates.memory));
        let rate = |own| rates.products(arithmetic(*precision, own));
        let [convolved, convolved_singles] =
            [0, 1].map(|of| self.convolved[of] / CONVOLVED_SHARES[of]);
        products / rate(Element::Float64)
            + singles / rate(Element::Float32)
            + convolved / rates.products64
            + convolved_singles / rates.products32
            // About as long in single precision, for their columns wait for each other.
            + self.decomposed.iter().sum::<f64>() / (DECOMPOSED_SHARE * rates.products64)
            + loops
            + (self.launches + self.columns) * rates.launch_seconds
            + self.decisions * rates.synchronize_seconds
    }
}

impl Placing<'_> {
    /// The work of a step; none where a device has no kernel for it.
    pub(super) fn work(&self, step: &Step) -> Option<Work> {
        match step {
            Step::Evaluate { operation, inputs, output } if offload::runs(operation) => {
                self.operation(operation, inputs, *output)
            }
            Step::Evaluate { operation, inputs, output } => {
                self.decomposition(operation, inputs, *output)
            }
            Step::Part { of, output, .. } => {
                self.is_dense(&[*of, *output]).then_some(Work::default())
            }
            Step::Multiply { inputs, output, .. } => self.operation(&Op::Product, inputs, *output),
            Step::Pass(pass) => self.pass(pass),
            Step::Iterate(iterated) => {
                let mut round = Work::default();
                for steps in [Some(&iterated.step), iterated.until.as_ref()].into_iter().flatten() {
                    for step in &steps.steps {
                        round.add(self.work(step)?, 1.0);
                    }
                }
                round.decisions += f64::from(u8::from(iterated.until.is_some()));
                let mut work = Work::default();
                work.add(round, rounds(&iterated.iteration));
                self.is_dense(&[iterated.start, iterated.output]).then_some(work)
            }
            Step::Release(_) => Some(Work::default()),
            _ => None,
        }
    }

    fn operation(&self, operation: &Op, inputs: &[Slot], output: Slot) -> Option<Work> {
        let estimate = self.estimate(output);
        let all: Vec<Slot> = inputs.iter().copied().chain([output]).collect();
        let bytes = all.iter().map(|&slot| self.estimate(slot).bytes).sum();
        let mut work = Work { bytes, launches: 1.0, ..Work::default() };
        match operation {
            Op::Product if self.is_sparse(&all) => {
                work.pairs = estimate.flops + PLACED * estimate.stored();
                work.gathered = PAIR_BYTES * estimate.flops / 2.0;
                (work.launches, work.decisions) = (PAIR_LAUNCHES, 1.0);
                let is_of_one_type = self.element(inputs[0]) == self.element(inputs[1]);
                return is_of_one_type.then_some(work);
            }
            Op::Product | Op::Cross if self.estimate(inputs[0]).layout == Layout::Csr => {
                let [sparse, dense] = [inputs[0], inputs[1]];
                let Estimate { columns, .. } = *self.estimate(dense);
                let row_bytes = columns * self.element(dense).size_bytes() as f64;
                work.sparse = estimate.flops;
                work.gathered = self.estimate(sparse).stored() * row_bytes;
                let is_of_one_type = self.element(sparse) == self.element(dense);
                return (is_of_one_type && self.is_dense(&[dense, output])).then_some(work);
            }
            product if product.is_product() => {
                let is_single = self.element(output) == Element::Float32;
                work.products[usize::from(is_single)] = estimate.flops;
            }
            Op::Convolve(_) => {
                let is_single = self.element(output) == Element::Float32;
                work.convolved[usize::from(is_single)] = estimate.flops;
            }
            Op::Reshape(_) => return Some(Work::default()),
            _ => work.cells = estimate.flops,
        }
        self.is_dense(&all).then_some(work)
    }

    fn decomposition(&self, operation: &Op, inputs: &[Slot], output: Slot) -> Option<Work> {
        let is_there = match operation {
            Op::ComplexEigen => self.device.finds_eigenvalues,
            _ => self.device.decomposes,
        };
        let taken = offload::taken(operation).filter(|_| is_there)?;
        let Estimate { rows, columns, .. } = *self.estimate(inputs[0]);
        if matches!(operation, Op::LeastSquares) && rows < columns {
            return None;
        }
        let flops = self.estimate(output).flops;
        let is_single = self.element(inputs[0]) == Element::Float32;
        let mut work = Work {
            columns: taken.launches_a_column * rows.min(columns),
            launches: 1.0,
            ..Work::default()
        };
        work.decomposed[usize::from(is_single)] = flops;
        let sparse: Vec<f64> = self.expanded(inputs).collect();
        work.launches += 2.0 * sparse.len() as f64;
        // Written twice: as zeros, and what is stored.
        work.bytes += 2.0 * sparse.iter().sum::<f64>();
        // The first few singular values of a sparse matrix are found by products with it.
        let is_for_all = sparse.is_empty() || !matches!(operation, Op::Svd { rank: Some(_) });
        (is_for_all && self.is_dense(&[output])).then_some(work)
    }

    fn pass(&self, pass: &Pass) -> Option<Work> {
        if pass.source != Source::Cut {
            return None;
        }
        let mut sum = Work::default();
        for step in &pass.steps {
            let work = match step {
                BlockStep::Fused { program, inputs, output, .. } => {
                    self.looped(program.flops(), inputs, *output)
                }
                // Sparse factors are read by steps of their own.
                BlockStep::Evaluate { operation, inputs, output }
                    if offload::runs(operation) && self.is_dense(inputs) =>
                {
                    self.operation(operation, inputs, *output)
                }
                BlockStep::Evaluate { .. } => None,
            };
            sum.add(work?, 1.0);
        }
        for sink in &pass.sinks {
            let work = match sink {
                Sink::Collect { .. } => Some(Work::default()),
                Sink::Reduce { program, inputs, to, .. } => {
                    self.looped(program.flops() + 1.0, inputs, *to)
                }
                Sink::Cross { left, right, to } | Sink::HalfCross { left, right, to }
                    if self.is_dense(&[*left, *right]) =>
                {
                    self.operation(&Op::Cross, &[*left, *right], *to)
                }
                Sink::Cross { .. } | Sink::HalfCross { .. } => None,
                Sink::CountRows { .. } | Sink::Emit { .. } => None,
            };
            sum.add(work?, 1.0);
        }
        Some(sum)
    }

    /// A loop of so many operations over the largest of what it reads and makes.
    fn looped(&self, flops: f64, inputs: &[Slot], output: Slot) -> Option<Work> {
        let all: Vec<Slot> = inputs.iter().copied().chain([output]).collect();
        let of = |slot: &Slot| self.estimate(*slot);
        let cells = all.iter().map(|slot| of(slot).rows * of(slot).columns).fold(0.0, f64::max);
        let bytes = all.iter().map(|slot| of(slot).bytes).sum();
        let work = Work { cells: flops * cells, bytes, launches: 1.0, ..Work::default() };
        self.is_dense(&all).then_some(work)
    }
}
