//! Loops over strips, compiled for each instruction set that is found at run time.
//!
//! A loop is written once, over the scalar definition of its function with the function a constant;
//! `pulp` compiles it for the baseline, for AVX2 and for NEON, and picks one by the processor.

use pulp::Arch;

use super::{Arithmetic, Chain};
use crate::exec::kernels::elementwise::{self, BinaryFunction, UnaryFunction};
use crate::matrix::Scalar;

/// The widest instruction set of this processor.
pub(super) fn arch() -> Arch {
    Arch::new()
}

/// Runs `$body` with `$constant` a constant: the variant that `$value` turns out to be.
macro_rules! specialize {
    ($value:expr, $constant:ident: $enum:ident { $($variant:ident)* } => $body:expr) => {
        match $value {
            $($enum::$variant => {
                const $constant: $enum = $enum::$variant;
                $body
            })*
        }
    };
}

/// `out = function(x)`, cell by cell.
pub(super) fn unary<T: Scalar>(arch: Arch, function: UnaryFunction, x: &[T], out: &mut [T]) {
    specialize!(function, F: UnaryFunction {
        Negate Abs Sign Sqrt Exp Log Log1p Expm1 Sin Cos Tan Tanh Floor Ceil Round IsNan Not Relu
        Sigmoid Gelu Softplus
    } => arch.dispatch(#[inline(always)] || {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = T::from_f64(F.apply(x.to_f64()));
        }
    }))
}

/// `out = function(a, b)`, cell by cell.
pub(super) fn binary<T: Scalar>(
    arch: Arch,
    function: BinaryFunction,
    a: &[T],
    b: &[T],
    out: &mut [T],
) {
    specialize!(function, F: BinaryFunction {
        Add Subtract Multiply Divide Power Less LessEqual Greater GreaterEqual Equal NotEqual And Or
        Least Greatest
    } => arch.dispatch(#[inline(always)] || {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = T::from_f64(F.apply(a.to_f64(), b.to_f64()));
        }
    }))
}

/// `out = second(first(a, b), c)`, cell by cell.
pub(super) fn chain<T: Scalar>(arch: Arch, chain: Chain, [a, b, c]: [&[T]; 3], out: &mut [T]) {
    specialize!(chain.first, FIRST: Arithmetic { Add Subtract SubtractFrom Multiply } => {
        specialize!(chain.second, SECOND: Arithmetic { Add Subtract SubtractFrom Multiply } => {
            if chain.relu {
                arch.dispatch(#[inline(always)] || {
                    for (((out, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
                        let x = SECOND.apply(FIRST.apply(a, b), c);
                        *out = T::from_f64(UnaryFunction::Relu.apply(x.to_f64()));
                    }
                })
            } else {
                arch.dispatch(#[inline(always)] || {
                    for (((out, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
                        *out = SECOND.apply(FIRST.apply(a, b), c);
                    }
                })
            }
        })
    })
}

/// `out = a` where the condition is true, else `b`, cell by cell.
pub(super) fn select<T: Scalar>(arch: Arch, [condition, a, b]: [&[T]; 3], out: &mut [T]) {
    arch.dispatch(
        #[inline(always)]
        || {
            for (((out, &condition), &a), &b) in out.iter_mut().zip(condition).zip(a).zip(b) {
                let chosen = elementwise::select(condition.to_f64(), a.to_f64(), b.to_f64());
                *out = T::from_f64(chosen);
            }
        },
    )
}

impl Arithmetic {
    #[inline(always)]
    fn apply<T: Scalar>(self, a: T, b: T) -> T {
        match self {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::SubtractFrom => b - a,
            Arithmetic::Multiply => a * b,
        }
    }
}

/// Lanes of a reduction: cell i goes to lane i mod 16.
const LANES: usize = 16;

/// Reduces cells lane by lane, and the lanes by halves.
#[inline(always)]
fn lanes<T: Scalar>(
    cells: &[T],
    identity: f64,
    push: impl Fn(f64, f64) -> f64,
    merge: impl Fn(f64, f64) -> f64,
) -> f64 {
    let mut lanes = [identity; LANES];
    let rows = cells.chunks_exact(LANES);
    let rest = rows.remainder();
    for row in rows {
        for (lane, &cell) in lanes.iter_mut().zip(row) {
            *lane = push(*lane, cell.to_f64());
        }
    }
    for (lane, &cell) in lanes.iter_mut().zip(rest) {
        *lane = push(*lane, cell.to_f64());
    }
    let mut count = LANES;
    while count > 1 {
        count /= 2;
        for lane in 0..count {
            lanes[lane] = merge(lanes[lane], lanes[lane + count]);
        }
    }
    lanes[0]
}

/// `Σ x`.
pub(super) fn sum<T: Scalar>(arch: Arch, cells: &[T]) -> f64 {
    let add = |a, b| a + b;
    arch.dispatch(
        #[inline(always)]
        || lanes(cells, 0.0, add, add),
    )
}

/// `Σ (x - center)²`.
pub(super) fn sum_of_squares<T: Scalar>(arch: Arch, cells: &[T], center: f64) -> f64 {
    let push = |sum, x| sum + (x - center) * (x - center);
    arch.dispatch(
        #[inline(always)]
        || {
            lanes(
                cells,
                0.0,
                push,
                #[inline(always)]
                |a, b| a + b,
            )
        },
    )
}

/// The least cell; infinite where there is none.
pub(super) fn least<T: Scalar>(arch: Arch, cells: &[T]) -> f64 {
    let least = |a, b| BinaryFunction::Least.apply(a, b);
    arch.dispatch(
        #[inline(always)]
        || lanes(cells, f64::INFINITY, least, least),
    )
}

/// The greatest cell; minus infinite where there is none.
pub(super) fn greatest<T: Scalar>(arch: Arch, cells: &[T]) -> f64 {
    let greatest = |a, b| BinaryFunction::Greatest.apply(a, b);
    arch.dispatch(
        #[inline(always)]
        || lanes(cells, f64::NEG_INFINITY, greatest, greatest),
    )
}

/// Updates the chain of each column with its cell of each row.
fn columns<T: Scalar>(arch: Arch, rows: &[T], chains: &mut [f64], push: impl Fn(f64, f64) -> f64) {
    arch.dispatch(
        #[inline(always)]
        || {
            for row in rows.chunks_exact(chains.len()) {
                for (chain, &cell) in chains.iter_mut().zip(row) {
                    *chain = push(*chain, cell.to_f64());
                }
            }
        },
    )
}

/// Adds rows to `sums`.
pub(super) fn add<T: Scalar>(arch: Arch, rows: &[T], sums: &mut [f64]) {
    columns(arch, rows, sums, |sum, x| sum + x);
}

/// Adds the squares of rows to `sums`.
pub(super) fn add_squares<T: Scalar>(arch: Arch, rows: &[T], sums: &mut [f64]) {
    columns(arch, rows, sums, |sum, x| sum + x * x);
}

/// Keeps the least of each column.
pub(super) fn keep_least<T: Scalar>(arch: Arch, rows: &[T], kept: &mut [f64]) {
    columns(arch, rows, kept, |kept, x| BinaryFunction::Least.apply(kept, x));
}

/// Keeps the greatest of each column.
pub(super) fn keep_greatest<T: Scalar>(arch: Arch, rows: &[T], kept: &mut [f64]) {
    columns(arch, rows, kept, |kept, x| BinaryFunction::Greatest.apply(kept, x));
}

/// Welford's update of means and sums of squared distances by rows, before which there were `count`.
pub(super) fn add_moments<T: Scalar>(
    arch: Arch,
    rows: &[T],
    count: u64,
    means: &mut [f64],
    squares: &mut [f64],
) {
    arch.dispatch(
        #[inline(always)]
        || {
            for (row, count) in rows.chunks_exact(means.len()).zip(count + 1..) {
                let share = 1.0 / count as f64;
                for ((mean, square), &cell) in means.iter_mut().zip(&mut *squares).zip(row) {
                    let x = cell.to_f64();
                    let distance = x - *mean;
                    *mean += distance * share;
                    *square += distance * (x - *mean);
                }
            }
        },
    )
}
