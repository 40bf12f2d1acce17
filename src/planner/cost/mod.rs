//! What a machine takes: seconds of an operation of matrices, which are those of its arithmetic over the rate of that or of its
//! bytes over the bandwidth, whichever takes longer; nanoseconds of what is done to rows of tables (`rows`).

pub(super) mod rows;

use crate::config::{Pattern, Settings};
use crate::exec::costs::Constant;
use crate::exec::multiply::Rates;
use crate::exec::operation::Operation as Op;
use crate::matrix::Element;

/// Rates of the machine, and which algorithms may be chosen by them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CostModel {
    constants: [f64; Constant::COUNT],
    /// Working memory that products may take for Strassen's method; zero where it is not allowed.
    spare_bytes_max: f64,
    /// Bytes from which on a result is better not held where its readers take it row by row.
    held_bytes_max: f64,
    /// Whether what a sparse matrix multiplies may be computed for its stored cells alone.
    pub(crate) samples: bool,
}

/// What one operation is expected to take, and which constant says so.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// None for what takes nothing.
    pub(crate) bound: Option<Constant>,
}

/// The constants of a Zen 4 server. Plans are chosen by their ratios, which vary less between machines than they themselves do.
/// What is done to rows is of one thread, and all else of two.
fn built_in(constant: Constant) -> f64 {
    match constant {
        Constant::Products64 => 1.0e11,
        Constant::Products32 => 2.0e11,
        Constant::Decompositions | Constant::Memory => 3.0e10,
        Constant::SparseProducts => 2.0e9,
        Constant::SparsePairs => 1.6e9,
        Constant::Elementwise => 8.0e9,
        Constant::Steps => 2.0e-6,
        Constant::Read | Constant::Kept => 2.0e8,
        Constant::Built => 2.5e7,
        Constant::Probed => 1e9 / 12.0,
        Constant::ProbedFar => 1e9 / 32.0,
        Constant::Gathered => 1.0e8,
        Constant::Compared => 5.0e8,
        Constant::Dealt => 5.0e7,
        Constant::Grouped => 1.25e8,
        Constant::GroupedFar => 1e9 / 48.0,
        Constant::Sorted => 1.0e7,
    }
}

/// The side of a result that takes twice the time of its arithmetic: 100 a side run at six tenths of the rate of large ones, and
/// 512 at nine.
const PACKED_SIDE: f64 = 64.0;

/// Flops that take as long as a cell of a sparse product takes to be put in its place among those of its row: 7 ns on a
/// thread of a Zen 3, where a pair that meets takes 2.5.
pub(crate) const PLACED: f64 = 6.0;

/// Share of the memory limit that products may take as working memory, beside their factors and result. By the limit and
/// not by what is free, for a plan must not depend on what else runs.
const SPARE_SHARE: f64 = 0.25;

/// What is sampled is one operation and the multiplication by what drives it.
pub(super) const SAMPLED_OPERATIONS: usize = 2;

/// The same for results that need not be held.
const HELD_SHARE: f64 = 0.25;

impl Default for CostModel {
    fn default() -> Self {
        Self {
            constants: Constant::ALL.map(built_in),
            spare_bytes_max: f64::MAX,
            held_bytes_max: f64::MAX,
            samples: true,
        }
    }
}

impl CostModel {
    pub(crate) fn of(constants: [f64; Constant::COUNT]) -> Self {
        Self { constants, ..Self::default() }
    }

    /// The same with what the settings allow.
    pub(crate) fn under(self, settings: &Settings) -> Self {
        let memory_bytes = settings.memory_limits().reservable_bytes() as f64;
        let share = if settings.strassen { SPARE_SHARE } else { 0.0 };
        let (spare_bytes_max, held_bytes_max) = (share * memory_bytes, HELD_SHARE * memory_bytes);
        let samples = settings.fusion().has(Pattern::SparseDriven, SAMPLED_OPERATIONS);
        Self { spare_bytes_max, held_bytes_max, samples, ..self }
    }

    pub(crate) fn constant(&self, constant: Constant) -> f64 {
        self.constants[constant.index()]
    }

    /// Whether a result is so large that it is better not held, where its readers take it row by row.
    pub(crate) fn is_large(&self, bytes: f64) -> bool {
        bytes > self.held_bytes_max
    }

    /// What products of cells of this type are chosen by.
    pub(crate) fn rates(&self, element: Element) -> Rates {
        Rates {
            flops_per_second: self.constant(products(element)),
            bytes_per_second: self.constant(Constant::Memory),
            cell_bytes: element.size_bytes() as f64,
            spare_bytes_max: self.spare_bytes_max,
        }
    }

    /// What an operation of so many flops over so many bytes, read and written, takes.
    pub(crate) fn cost(&self, operation: &Op, element: Element, flops: f64, bytes: f64) -> Cost {
        let is_single = element == Element::Float32;
        let constant = match operation {
            // A value at hand, or a name for a part of one.
            Op::Stored(_) | Op::Variable(_) | Op::Prior(_) | Op::Constant(_) | Op::Part(_) => {
                return Cost { seconds: 0.0, bound: None };
            }
            Op::Convolve(_) => products(element),
            product if product.is_product() => products(element),
            Op::Solve(_)
            | Op::LeastSquares
            | Op::Inverse(_)
            | Op::PseudoInverse
            | Op::Exponential
            | Op::Logarithm
            | Op::Rank
            | Op::Determinant(_)
            | Op::Cholesky
            | Op::Lu
            | Op::Qr
            | Op::Svd { .. }
            | Op::Eigen { .. }
            | Op::ComplexEigen => Constant::Decompositions,
            _ => Constant::Elementwise,
        };
        // Twice as many single-precision numbers fit a vector register.
        let lanes = if is_single && constant != Constant::Products32 { 2.0 } else { 1.0 };
        self.slower(constant, flops / lanes, bytes)
    }

    /// Flops that a dense product of so many rows and columns takes the time of: it copies both factors into panels,
    /// which costs a share of 1 / side. One with a single row or column copies nothing.
    pub(crate) fn packed(flops: f64, rows: f64, columns: f64) -> f64 {
        let side = rows.min(columns);
        if side > 1.0 { flops * (1.0 + PACKED_SIDE / side) } else { flops }
    }

    /// The same for a product of a sparse and a dense operand.
    pub(crate) fn sparse_cost(&self, flops: f64, bytes: f64) -> Cost {
        self.slower(Constant::SparseProducts, flops, bytes)
    }

    /// The same for one of two sparse operands, which makes so many cells.
    pub(crate) fn pairs_cost(&self, flops: f64, cells: f64, bytes: f64) -> Cost {
        self.slower(Constant::SparsePairs, flops + PLACED * cells, bytes)
    }

    fn slower(&self, constant: Constant, flops: f64, bytes: f64) -> Cost {
        let arithmetic = flops / self.constant(constant);
        let memory = bytes / self.constant(Constant::Memory);
        let bound = if arithmetic >= memory { constant } else { Constant::Memory };
        Cost {
            seconds: arithmetic.max(memory) + self.constant(Constant::Steps),
            bound: Some(bound),
        }
    }
}

/// The rate of dense products of cells of this type.
fn products(element: Element) -> Constant {
    match element {
        Element::Float64 => Constant::Products64,
        Element::Float32 => Constant::Products32,
    }
}
