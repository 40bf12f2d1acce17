//! Reductions of a program's result, of which no more than a strip exists at a time.
//!
//! The order of addition follows from the shape of the block alone, and no chain of plain additions is
//! long; chains are then added to an [`Accumulator`] that keeps what rounding loses.
//!
//! ```text
//! all cells, a row   strip by strip; within one, cell i goes to lane i mod 16, the lanes by halves:
//!                    chains of 64 + 4 additions
//! a column           64 rows at a time (of a narrow block 64 groups of rows)
//! sums               |error| ≤ 70 u Σ|x| to first order, u = 2⁻⁵³, however many cells there are
//! variance           mean and squares of each chain, merged by Chan, Golub and LeVeque:
//!                    δ = mean₂ - mean₁,  mean = mean₁ + δ·n₂/n,  squares = squares₁ + squares₂ + δ²·n₁·n₂/n
//! ```
//!
//! Everything is accumulated in `f64`, for `FLOAT32` cells too.

use super::strips::{Cut, Machine, STRIP, Scratch, Strip, each};
use super::{Input, Program, vector};
use crate::exec::kernels::arch::Arch;
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::kernels::math::two_sum;
use crate::matrix::Scalar;

/// What a reduction computes. Of no cells a sum is 0, all else `NaN`; of a `NaN` all are `NaN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduction {
    /// Sum
    Sum,
    /// Sum of the squares
    SumOfSquares,
    /// Arithmetic mean
    Mean,
    /// Smallest cell
    Min,
    /// Largest cell
    Max,
    /// Sample variance, over n - 1 as SQL's `VAR_SAMP`; `NaN` of one cell
    Variance,
    /// Variance over n, as SQL's `VAR_POP`
    PopulationVariance,
    /// Square root of the sample variance, as SQL's `STDDEV_SAMP`
    Deviation,
}

/// A reduction under way: of the cells so far, enough to go on and to finish.
///
/// Accumulators of blocks merge; merged in the order of their blocks they give the same bits always.
#[derive(Debug, Clone, Copy)]
pub struct Accumulator {
    reduction: Reduction,
    count: u64,
    /// The sum, the extreme or the mean.
    value: f64,
    /// What the sum lost to rounding, or the sum of squared distances from the mean.
    rest: f64,
}

impl Accumulator {
    /// Of no cells.
    pub fn new(reduction: Reduction) -> Self {
        Self { reduction, count: 0, value: reduction.identity(), rest: 0.0 }
    }

    /// Number of cells so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes in one cell.
    pub(in crate::exec::kernels) fn push(&mut self, x: f64) {
        let (value, rest) = match self.reduction {
            Reduction::SumOfSquares => (x * x, 0.0),
            _ => (x, 0.0),
        };
        self.merge(&Self { reduction: self.reduction, count: 1, value, rest });
    }

    /// Takes in cells that are zero.
    pub(in crate::exec::kernels) fn push_zeros(&mut self, count: u64) {
        if count > 0 {
            self.merge(&Self { reduction: self.reduction, count, value: 0.0, rest: 0.0 });
        }
    }

    /// Takes in the cells of another accumulator of the same reduction.
    pub fn merge(&mut self, other: &Self) {
        debug_assert_eq!(self.reduction, other.reduction, "parts of one reduction");
        match self.reduction {
            Reduction::Sum | Reduction::SumOfSquares | Reduction::Mean => {
                let (sum, lost) = two_sum(self.value, other.value);
                (self.value, self.rest) = (sum, self.rest + (lost + other.rest));
            }
            Reduction::Min => self.value = BinaryFunction::Least.apply(self.value, other.value),
            Reduction::Max => self.value = BinaryFunction::Greatest.apply(self.value, other.value),
            _ if self.count == 0 => (self.value, self.rest) = (other.value, other.rest),
            _ if other.count == 0 => {}
            Reduction::Variance | Reduction::PopulationVariance | Reduction::Deviation => {
                let (mine, others) = (self.count as f64, other.count as f64);
                let share = others / (mine + others);
                let distance = other.value - self.value;
                self.value += distance * share;
                self.rest += other.rest + distance * distance * mine * share;
            }
        }
        self.count += other.count;
    }

    /// The result for the cells so far.
    pub fn value(&self) -> f64 {
        // Beyond the finite numbers nothing was lost that could be added back.
        let sum = if self.value.is_finite() { self.value + self.rest } else { self.value };
        let variance = if self.count > 1 { self.rest / (self.count - 1) as f64 } else { f64::NAN };
        match self.reduction {
            Reduction::Sum | Reduction::SumOfSquares => sum,
            Reduction::Mean => sum / self.count as f64,
            Reduction::Min | Reduction::Max if self.count == 0 => f64::NAN,
            Reduction::Min | Reduction::Max => self.value,
            Reduction::Variance => variance,
            Reduction::PopulationVariance => self.rest / self.count as f64,
            Reduction::Deviation => variance.sqrt(),
        }
    }
}

impl Reduction {
    fn identity(self) -> f64 {
        match self {
            Reduction::Min => f64::INFINITY,
            Reduction::Max => f64::NEG_INFINITY,
            Reduction::Sum
            | Reduction::SumOfSquares
            | Reduction::Mean
            | Reduction::Variance
            | Reduction::PopulationVariance
            | Reduction::Deviation => 0.0,
        }
    }
}

impl Program {
    /// Reduces all cells of the result of one block, on the calling thread.
    ///
    /// # Panics
    /// Where an input is missing or does not fit `rows` times `columns`.
    pub fn reduce<T: Scalar>(
        &self,
        inputs: &[Input<'_, T>],
        rows: usize,
        columns: usize,
        reduction: Reduction,
        scratch: &mut Scratch<T>,
    ) -> Accumulator {
        let mut total = Accumulator::new(reduction);
        each(self, inputs, rows, columns, scratch, |machine, strip| {
            let arch = machine.arch();
            total.merge(&match reduction {
                Reduction::Sum | Reduction::Mean => {
                    let count = strip.len() as u64;
                    Accumulator { reduction, count, value: machine.sum(strip), rest: 0.0 }
                }
                _ => chain(arch, reduction, machine.read(strip)),
            });
        });
        total
    }

    /// Reduces each row of the result of one block into a cell of `out`, on the calling thread.
    ///
    /// # Panics
    /// Where an input is missing or does not fit `rows` times `columns`, or `out` is not `rows` long.
    pub fn reduce_rows<T: Scalar>(
        &self,
        inputs: &[Input<'_, T>],
        rows: usize,
        columns: usize,
        reduction: Reduction,
        scratch: &mut Scratch<T>,
        out: &mut [T],
    ) {
        assert_eq!(out.len(), rows, "a cell of the result for each row");
        let empty = Accumulator::new(reduction);
        out.fill(T::from_f64(empty.value()));
        let mut total = empty;
        each(self, inputs, rows, columns, scratch, |machine, strip| {
            let arch = machine.arch();
            let width = strip.columns.len();
            let values = machine.read(strip);
            if width == columns {
                for (out, row) in out[strip.rows.clone()].iter_mut().zip(values.chunks_exact(width))
                {
                    *out = T::from_f64(chain(arch, reduction, row).value());
                }
                return;
            }
            total.merge(&chain(arch, reduction, values));
            if strip.columns.end == columns {
                out[strip.rows.start] = T::from_f64(total.value());
                total = empty;
            }
        });
    }

    /// Takes each column of the result of one block into its accumulator, on the calling thread.
    ///
    /// # Panics
    /// Where an input is missing or does not fit `rows` times `columns`, or there is not one accumulator
    /// for each column, all of this reduction.
    pub fn reduce_columns<T: Scalar>(
        &self,
        inputs: &[Input<'_, T>],
        rows: usize,
        columns: usize,
        reduction: Reduction,
        scratch: &mut Scratch<T>,
        totals: &mut [Accumulator],
    ) {
        assert_eq!(totals.len(), columns, "an accumulator for each column");
        let mut machine = Machine::new(self, inputs, rows, columns, scratch);
        let arch = machine.arch();
        let cut = Cut::new(columns);
        // Narrow rows side by side count as one long row, which is added in vectors.
        let group = (64 / columns.max(1)).clamp(1, cut.rows_per_strip);
        let rows_per_strip = cut.rows_per_strip / group * group;
        let parts: Vec<_> = (0..columns)
            .step_by(cut.columns_per_strip.max(1))
            .map(|left| left..columns.min(left + cut.columns_per_strip))
            .collect();
        for panel in parts.chunks(PARTS_PER_PANEL) {
            let mut chains: Vec<_> = panel.iter().map(|_| Chains::new(reduction)).collect();
            for top in (0..rows).step_by(rows_per_strip) {
                let strip_rows = top..rows.min(top + rows_per_strip);
                for (part, chains) in panel.iter().zip(&mut chains) {
                    let totals = &mut totals[part.clone()];
                    let values =
                        machine.read(&Strip::new(strip_rows.clone(), part.clone(), columns));
                    let long = group * part.len();
                    let (whole, short) = values.split_at(values.len() / long * long);
                    chains.push(arch, whole, long);
                    if chains.length >= 64 || !short.is_empty() {
                        chains.flush(totals);
                    }
                    if !short.is_empty() {
                        chains.push(arch, short, short.len());
                        chains.flush(totals);
                    }
                }
            }
            for (part, chains) in panel.iter().zip(&mut chains) {
                chains.flush(&mut totals[part.clone()]);
            }
        }
    }
}

/// Strips side by side whose chains, 16 KiB each, are kept in the second cache while rows pass.
const PARTS_PER_PANEL: usize = 16;

/// Reduces at most a strip of cells, or a row of them.
pub(super) fn chain<T: Scalar>(arch: Arch, reduction: Reduction, cells: &[T]) -> Accumulator {
    let (value, rest) = match reduction {
        Reduction::Sum | Reduction::Mean => (vector::sum(arch, cells), 0.0),
        Reduction::SumOfSquares => (vector::sum_of_squares(arch, cells, 0.0), 0.0),
        Reduction::Min => (vector::least(arch, cells), 0.0),
        Reduction::Max => (vector::greatest(arch, cells), 0.0),
        Reduction::Variance | Reduction::PopulationVariance | Reduction::Deviation => {
            let mean = vector::sum(arch, cells) / cells.len() as f64;
            (mean, vector::sum_of_squares(arch, cells, mean))
        }
    };
    Accumulator { reduction, count: cells.len() as u64, value, rest }
}

/// The chains of additions of some columns side by side.
struct Chains {
    reduction: Reduction,
    /// Rows so far.
    length: u64,
    values: Vec<f64>,
    rests: Vec<f64>,
}

impl Chains {
    fn new(reduction: Reduction) -> Self {
        let (values, rests) = (Vec::with_capacity(STRIP), Vec::with_capacity(STRIP));
        Self { reduction, length: 0, values, rests }
    }

    /// Adds rows of this width.
    fn push<T: Scalar>(&mut self, arch: Arch, cells: &[T], width: usize) {
        if self.length == 0 {
            self.values.clear();
            self.rests.clear();
            self.values.resize(width, self.reduction.identity());
            self.rests.resize(width, 0.0);
        }
        let (values, rests) = (&mut self.values, &mut self.rests);
        match self.reduction {
            Reduction::Sum | Reduction::Mean => vector::add(arch, cells, values),
            Reduction::SumOfSquares => vector::add_squares(arch, cells, values),
            Reduction::Min => vector::keep_least(arch, cells, values),
            Reduction::Max => vector::keep_greatest(arch, cells, values),
            Reduction::Variance | Reduction::PopulationVariance | Reduction::Deviation => {
                let count = self.length;
                arch.dispatch(vector::Moments {
                    rows: cells,
                    count,
                    means: values,
                    squares: rests,
                });
            }
        }
        self.length += (cells.len() / width) as u64;
    }

    /// Ends the chains: each goes to the accumulator of its column.
    fn flush(&mut self, totals: &mut [Accumulator]) {
        let (reduction, count) = (self.reduction, self.length);
        if count > 0 {
            for (values, rests) in
                self.values.chunks(totals.len()).zip(self.rests.chunks(totals.len()))
            {
                for ((total, &value), &rest) in totals.iter_mut().zip(values).zip(rests) {
                    total.merge(&Accumulator { reduction, count, value, rest });
                }
            }
        }
        self.length = 0;
    }
}
