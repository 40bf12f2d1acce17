//! Whole-matrix arithmetic: plain functions over [`Dense`](crate::matrix::Dense) and [`Csr`](crate::matrix::Csr), `f64` and `f32` alike.
//!
//! Enters: cells whose shapes fit; the planner has checked them, a kernel asserts them. Leaves: new
//! cells, or an error only where numbers can fail (a singular matrix, a cell given twice).
//! Not here: labels, expressions, memory limits.
//!
//! ```text
//! dense      product, gram and cross by faer's gemm; slices, stacks, transposes
//! strassen   products with fewer multiplications, for large ones
//! sparse     the same over compressed rows; entries to rows
//! reduce     sums, means, extremes, variances, norms: of all cells, rows, columns
//! decompose  lu, cholesky, solve, qr, least squares, svd, eigenvalues, exponentials and logarithms
//! elementwise, fused   functions of single cells; an expression of them as one loop over a block
//! dot        the sum of products of two rows
//! selection  rows that are kept, and columns of those alone
//! best       the largest or smallest few of many cells
//! contract   what pairs of entries make, folded by their outer places
//! images     convolution and pooling of images that lie in rows
//! vectors    products and distances of pairs of lists
//! pairs      sums of products of pairs of columns
//! parts      texts that consist of parts
//! moments    sums of products of columns, by blocks of rows
//! distinct   how many values differ, by a sketch of their hashes
//! decimals   sums and products of decimals
//! numbering  numbers for keys, the same for equal ones
//! lookup     the rows of a table that have a key
//! threads    parts of some work, each by a thread of its own
//! word       keys of a fixed width
//! radix      items in the order of a number
//! zeros      numbers that are read and written in no order
//! ```
//!
//! What every kernel promises:
//! - **Order.** Where numbers are added, the order follows from the shape (of a sparse matrix: from
//!   its pattern) alone, so the bits are the same for any number of threads. Work is cut by halving
//!   at places that depend on the shape; whoever runs the halves, they combine in the same order.
//! - **Threads.** A whole-matrix kernel runs on the rayon pool it is called in. Those that end in
//!   `_into` work on one block of rows, on the calling thread, into memory of the caller.
//! - **End.** What can take longer than some milliseconds takes a [`Stop`] and looks at it that often.
//! - **Layout.** A cell that is not stored is a zero like any other: a sparse kernel gives `NaN`
//!   where `0 * NaN` or `0 * inf` stands in the formula. A sparse result stores no zeros.
//! - **Numbers.** `NaN` and infinities as IEEE 754 and NumPy have them.

mod arch;
pub mod best;
pub(crate) mod choose;
pub mod contract;
pub(crate) mod decimals;
pub mod decompose;
pub mod dense;
pub(crate) mod distinct;
mod dot;
pub mod elementwise;
pub mod fused;
mod gemm;
pub mod images;
pub mod lookup;
mod math;
pub mod moments;
pub mod normalize;
pub mod numbering;
pub mod pairs;
pub(crate) mod parts;
pub mod radix;
pub mod reduce;
pub mod selection;
pub mod sparse;
pub mod strassen;
pub mod threads;
pub mod vectors;
pub mod word;
mod zeros;

use std::sync::atomic::{AtomicBool, Ordering};

use arrow::buffer::ScalarBuffer;
use faer::{MatMut, MatRef};
use rayon::prelude::*;

use crate::error::{ErrorKind, Result};
use crate::matrix::{Dense, Scalar, Shape};
use crate::memory;

/// Asks a kernel to end early. What it returns then means nothing: its caller throws it away.
#[derive(Debug, Clone, Copy)]
pub struct Stop<'a>(Option<&'a AtomicBool>);

impl<'a> Stop<'a> {
    /// Lets a kernel come to its end.
    pub const NEVER: Stop<'static> = Stop(None);

    /// Ends it some milliseconds after this has become true.
    pub fn once(flag: &'a AtomicBool) -> Self {
        Stop(Some(flag))
    }

    /// # Errors
    /// [`ErrorKind::Cancelled`] once it has been asked for.
    fn check(self) -> Result<()> {
        if self.is_asked() { Err(ErrorKind::Cancelled.into()) } else { Ok(()) }
    }

    fn is_asked(self) -> bool {
        self.0.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// A [`Scalar`] with the functions that kernels need beside arithmetic.
pub trait Real: Scalar + sparse::Load<Self> + faer::traits::RealField {
    /// Distance from one to the next number.
    const EPSILON: Self;
    /// Positive infinity.
    const INFINITY: Self;
    /// Not a number.
    const NAN: Self;

    /// Absolute value.
    fn abs(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Real power.
    fn powf(self, exponent: Self) -> Self;
    /// Whether this is neither infinite nor `NaN`.
    fn is_finite(self) -> bool;
    /// Whether this is `NaN`.
    fn is_nan(self) -> bool;
}

macro_rules! real {
    ($type:ident) => {
        impl Real for $type {
            const EPSILON: Self = $type::EPSILON;
            const INFINITY: Self = $type::INFINITY;
            const NAN: Self = $type::NAN;

            // Loops that are compiled for wider vectors call it.
            #[inline(always)]
            fn abs(self) -> Self {
                self.abs()
            }

            #[inline]
            fn sqrt(self) -> Self {
                self.sqrt()
            }

            #[inline]
            fn powf(self, exponent: Self) -> Self {
                self.powf(exponent)
            }

            #[inline]
            fn is_finite(self) -> bool {
                self.is_finite()
            }

            #[inline]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
    };
}

real!(f64);
real!(f32);

/// The cells as faer sees them, without a copy.
fn view<T: Real>(x: &Dense<T>) -> MatRef<'_, T> {
    MatRef::from_row_major_slice(x.cells(), x.shape().rows, x.shape().columns)
}

/// Row-major cells as faer writes them.
fn view_mut<T: Real>(cells: &mut [T], shape: Shape) -> MatMut<'_, T> {
    MatMut::from_row_major_slice_mut(cells, shape.rows, shape.columns)
}

/// A dense matrix over fresh cells.
fn dense<T: Scalar>(shape: Shape, cells: impl Into<ScalarBuffer<T>>) -> Dense<T> {
    Dense::new(shape, cells.into())
}

/// Adds one block of numbers to another of the same length, as partial results combine.
fn add_into<T: Scalar>(sum: &mut [T], part: &[T]) {
    assert_eq!(sum.len(), part.len(), "parts of one result are equally long");
    for (sum, &part) in sum.iter_mut().zip(part) {
        *sum += part;
    }
}

/// Number of cells that are not zero.
pub(crate) fn non_zeros<T: Scalar>(cells: &[T]) -> usize {
    let of_chunk = |cells: &[T]| {
        let count = cells.iter().filter(|&&cell| cell != T::ZERO).count();
        memory::done_with(bytemuck::cast_slice(cells));
        count
    };
    cells.par_chunks(1 << 16).map(of_chunk).sum()
}

/// Folds `0..count` in blocks of `grain`, in parallel, combining by halves: the tree depends on
/// `count` and `grain` alone. `None` where there is nothing to fold.
fn fold_blocks<A: Send>(
    count: usize,
    grain: usize,
    leaf: &(impl Fn(std::ops::Range<usize>) -> A + Sync),
    merge: &(impl Fn(A, A) -> A + Sync),
) -> Option<A> {
    fn fold<A: Send>(
        blocks: std::ops::Range<usize>,
        run: &(impl Fn(usize) -> A + Sync),
        merge: &(impl Fn(A, A) -> A + Sync),
    ) -> A {
        if blocks.len() == 1 {
            return run(blocks.start);
        }
        let middle = blocks.start + blocks.len() / 2;
        let (left, right) = rayon::join(
            || fold(blocks.start..middle, run, merge),
            || fold(middle..blocks.end, run, merge),
        );
        merge(left, right)
    }
    let run = |block: usize| leaf(block * grain..count.min((block + 1) * grain));
    (count > 0).then(|| fold(0..count.div_ceil(grain), &run, merge))
}

#[cfg(test)]
pub(crate) mod testing {
    //! Random matrices and naive twins for the tests of the kernels.

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::arch::Arch;
    use super::{Real, dense};
    use crate::matrix::{Csr, Dense, Scalar, Shape};

    /// No instruction set beside the baseline.
    pub(in crate::exec::kernels) const PLAIN: Arch = Arch::Pulp(pulp::Arch::Scalar);

    /// All others that this processor has.
    pub(in crate::exec::kernels) fn wider() -> Vec<Arch> {
        let all = vec![Arch::Pulp(pulp::Arch::new()), Arch::new()];
        #[cfg(target_arch = "x86_64")]
        let all = [all, Arch::sse41().into_iter().collect()].concat();
        all
    }

    /// A generator for this seed.
    pub(crate) fn rng(seed: u64) -> SmallRng {
        SmallRng::seed_from_u64(seed)
    }

    /// Uniform cells in -1 … 1.
    pub(crate) fn random<T: Scalar>(rng: &mut SmallRng, rows: usize, columns: usize) -> Dense<T> {
        let cells = (0..rows * columns).map(|_| T::from_f64(rng.random_range(-1.0..1.0)));
        dense(Shape::new(rows, columns), cells.collect::<Vec<_>>())
    }

    /// About `density` of the cells stored; the offsets begin beyond 0, as a block's do.
    pub(crate) fn random_sparse<T: Scalar>(
        rng: &mut SmallRng,
        rows: usize,
        columns: usize,
        density: f64,
    ) -> Csr<T> {
        let shape = Shape::new(rows + 1, columns);
        let mut offsets = vec![0i64];
        let (mut places, mut values) = (Vec::new(), Vec::new());
        for _ in 0..rows + 1 {
            for column in 0..columns as u32 {
                if rng.random_bool(density) {
                    places.push(column);
                    values.push(T::from_f64(rng.random_range(0.1..1.0)));
                }
            }
            offsets.push(places.len() as i64);
        }
        Csr::new(shape, offsets.into(), places.into(), values.into()).rows(1..rows + 1)
    }

    /// The same with `poison` for each stored cell above a bound.
    pub(crate) fn spoiled(x: &Csr<f64>, bound: f64, poison: f64) -> Csr<f64> {
        let values = x.values().iter().map(|&x| if x > bound { poison } else { x });
        let values = values.collect::<Vec<_>>().into();
        Csr::new(x.shape(), x.offsets().clone(), x.columns().clone(), values)
    }

    /// Rows of so many cells each, spread over the columns.
    pub(crate) fn sparse_rows(columns: usize, counts: &[usize], seed: u64) -> Csr<f64> {
        let mut rng = rng(seed);
        let mut offsets = vec![0];
        let (mut places, mut values) = (Vec::new(), Vec::new());
        for &count in counts {
            let step = columns / count.max(1);
            let first = rng.random_range(0..=columns - step * count);
            places.extend((0..count).map(|k| (first + k * step) as u32));
            values.extend((0..count).map(|_| rng.random_range(-1.0..1.0)));
            offsets.push(places.len() as i64);
        }
        let shape = Shape::new(counts.len(), columns);
        Csr::new(shape, offsets.into(), places.into(), values.into())
    }

    /// Row i of a random order stores some n/(i + 1) cells: the first rows hold a large part of all.
    pub(crate) fn power_law(rows: usize, columns: usize, seed: u64) -> Csr<f64> {
        let mut counts: Vec<usize> =
            (1..=rows).map(|at| (columns / at).max(usize::from(at % 10 > 0))).collect();
        rand::seq::SliceRandom::shuffle(&mut counts[..], &mut rng(seed));
        sparse_rows(columns, &counts, seed)
    }

    /// One row in the middle stores 91 % of all cells.
    pub(crate) fn one_long_row(rows: usize, columns: usize, seed: u64) -> Csr<f64> {
        let long = columns / 11 * 10;
        let mut counts = vec![long / 10 / (rows - 1); rows];
        counts[rows / 2] = long;
        sparse_rows(columns, &counts, seed)
    }

    /// Cell by cell, through the definition.
    pub(crate) fn build<T: Scalar>(
        rows: usize,
        columns: usize,
        cell: impl Fn(usize, usize) -> T,
    ) -> Dense<T> {
        let cells = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
        dense(Shape::new(rows, columns), cells.map(|(i, j)| cell(i, j)).collect::<Vec<_>>())
    }

    /// The textbook product, in `f64`.
    pub(crate) fn naive_product<T: Scalar>(a: &Dense<T>, b: &Dense<T>) -> Dense<T> {
        build(a.shape().rows, b.shape().columns, |i, j| {
            T::from_f64(
                (0..a.shape().columns)
                    .map(|k| a.row(i)[k].to_f64() * b.row(k)[j].to_f64())
                    .sum::<f64>(),
            )
        })
    }

    /// Asserts equal shapes and cells within `tolerance` units of rounding, `NaN` equal to `NaN`.
    pub(crate) fn assert_close<T: Real>(found: &Dense<T>, expected: &Dense<T>, tolerance: f64) {
        assert_eq!(found.shape(), expected.shape());
        let bound = tolerance * T::EPSILON.to_f64();
        for (at, (x, y)) in found.cells().iter().zip(expected.cells()).enumerate() {
            let (x, y) = (x.to_f64(), y.to_f64());
            let same = x == y || (x.is_nan() && y.is_nan());
            let place = (at / found.shape().columns, at % found.shape().columns);
            assert!(
                same || (x - y).abs() <= bound * y.abs().max(1.0),
                "{x} is not {y} at {place:?}"
            );
        }
    }

    /// Runs under pools of 1, 2 and 8 threads and asserts that the bits agree.
    pub(crate) fn same_bits<T: Scalar>(run: impl Fn() -> Vec<T> + Sync) {
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(&run).iter().map(|x| x.to_f64().to_bits()).collect::<Vec<_>>()
        };
        let one = on(1);
        assert!(one == on(2) && one == on(8), "the bits depend on the number of threads");
    }
}
