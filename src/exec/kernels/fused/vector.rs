//! Loops over strips, compiled for each instruction set and picked at run time.
//!
//! A loop is written once, over the scalar definition of its function with the function a constant;
//! [`Arch`] compiles it for each instruction set. What is to run on vectors must be inlined
//! into [`WithSimd::with_simd`], else it runs as the baseline without a word: hence types instead of
//! closures there (a closure is called through a shim, which the compiler may leave outside), and
//! `inline(always)` on all that they call.

use pulp::{Simd, WithSimd};

use super::{Chain, First, Second};
use crate::exec::kernels::arch::Arch;
use crate::exec::kernels::elementwise::{self, BinaryFunction, UnaryFunction};
use crate::matrix::Scalar;

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

/// `out = f(operands)`, cell by cell.
struct Map<'a, T, F, const N: usize> {
    operands: [&'a [T]; N],
    out: &'a mut [T],
    f: F,
}

impl<T: Scalar, F: Fn([T; N]) -> T, const N: usize> WithSimd for Map<'_, T, F, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { operands, out, f } = self;
        for operand in operands {
            assert_eq!(operand.len(), out.len(), "operands fill the strip");
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = f(gather(operands, i));
        }
    }
}

/// Cell `i` of each operand. A loop, for `array::map` is a call that the compiler may leave outside.
#[inline(always)]
fn gather<T: Scalar, O: AsRef<[T]>, const N: usize>(operands: [O; N], i: usize) -> [T; N] {
    let mut cells = [T::ZERO; N];
    for (cell, operand) in cells.iter_mut().zip(&operands) {
        *cell = operand.as_ref()[i];
    }
    cells
}

/// Dispatches a [`Map`]; the closure is one that only calls, and so needs `inline(always)` itself.
fn map<T: Scalar, const N: usize>(
    arch: Arch,
    operands: [&[T]; N],
    out: &mut [T],
    f: impl Fn([T; N]) -> T,
) {
    arch.dispatch(Map { operands, out, f });
}

/// `out = x`, one cell for all.
pub(super) fn fill<T: Scalar>(arch: Arch, x: T, out: &mut [T]) {
    map(
        arch,
        [],
        out,
        #[inline(always)]
        |[]| x,
    );
}

/// `out = function(x)`, cell by cell.
pub(super) fn unary<T: Scalar>(arch: Arch, function: UnaryFunction, x: &[T], out: &mut [T]) {
    specialize!(function, F: UnaryFunction {
        Negate Abs Sign Sqrt Exp Log Log1p Expm1 Sin Cos Tan Tanh Floor Ceil Round IsNan Not Relu
        Sigmoid Gelu Softplus
    } => {
        map(arch, [x], out, #[inline(always)] |[x]| T::from_f64(F.apply(x.to_f64())));
    })
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
    } => {
        map(arch, [a, b], out, #[inline(always)] |[a, b]| T::from_f64(F.apply(a.to_f64(), b.to_f64())));
    })
}

/// `out = second(first(a, b), c)`, cell by cell.
pub(super) fn chain<T: Scalar>(arch: Arch, chain: Chain, operands: [&[T]; 3], out: &mut [T]) {
    specialize!(chain.first, FIRST: First { Add Subtract Multiply } => {
        specialize!(chain.second, SECOND: Second {
            Add Subtract SubtractFrom Multiply Divide Square Keep
        } => {
            if chain.relu {
                map(arch, operands, out, #[inline(always)] |[a, b, c]| {
                    let x = SECOND.apply(FIRST.apply(a, b), c);
                    T::from_f64(UnaryFunction::Relu.apply(x.to_f64()))
                });
            } else {
                map(arch, operands, out, #[inline(always)] |[a, b, c]| {
                    SECOND.apply(FIRST.apply(a, b), c)
                });
            }
        })
    })
}

/// `out = a` where the condition is true, else `b`, cell by cell.
pub(super) fn select<T: Scalar>(arch: Arch, operands: [&[T]; 3], out: &mut [T]) {
    map(
        arch,
        operands,
        out,
        #[inline(always)]
        |[condition, a, b]| {
            T::from_f64(elementwise::select(condition.to_f64(), a.to_f64(), b.to_f64()))
        },
    );
}

impl First {
    #[inline(always)]
    fn apply<T: Scalar>(self, a: T, b: T) -> T {
        match self {
            First::Add => a + b,
            First::Subtract => a - b,
            First::Multiply => a * b,
        }
    }
}

impl Second {
    #[inline(always)]
    fn apply<T: Scalar>(self, a: T, b: T) -> T {
        match self {
            Second::Add => a + b,
            Second::Subtract => a - b,
            Second::SubtractFrom => b - a,
            Second::Multiply => a * b,
            Second::Divide => a / b,
            Second::Square => a * a,
            Second::Keep => a,
        }
    }
}

/// Lanes of a reduction: cell i goes to lane i mod 16.
const LANES: usize = 16;

/// A cell for each lane of each operand, from cell `start` on.
#[inline(always)]
fn rows_of_lanes<T: Scalar, const N: usize>(operands: [&[T]; N], start: usize) -> [[T; LANES]; N] {
    let mut rows = [[T::ZERO; LANES]; N];
    for (row, operand) in rows.iter_mut().zip(operands) {
        row.copy_from_slice(&operand[start..start + LANES]);
    }
    rows
}

/// Reduces `cell(operands)` lane by lane, and the lanes by halves; a few cells one by one.
struct Lanes<'a, T, C, P, M, const N: usize> {
    operands: [&'a [T]; N],
    cell: C,
    identity: f64,
    push: P,
    merge: M,
}

impl<T, C, P, M, const N: usize> WithSimd for Lanes<'_, T, C, P, M, N>
where
    T: Scalar,
    C: Fn([T; N]) -> f64,
    P: Fn(f64, f64) -> f64,
    M: Fn(f64, f64) -> f64,
{
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let Self { operands, cell, identity, push, merge } = self;
        let mut lanes = [identity; LANES];
        let count = operands[0].len();
        let whole = count - count % LANES;
        for start in (0..whole).step_by(LANES) {
            let rows = rows_of_lanes(operands, start);
            for (i, lane) in lanes.iter_mut().enumerate() {
                *lane = push(*lane, cell(gather(rows, i)));
            }
        }
        for (lane, i) in lanes.iter_mut().zip(whole..count) {
            *lane = push(*lane, cell(gather(operands, i)));
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
}

impl<T, C, P, M, const N: usize> Lanes<'_, T, C, P, M, N>
where
    T: Scalar,
    C: Fn([T; N]) -> f64,
    P: Fn(f64, f64) -> f64,
    M: Fn(f64, f64) -> f64,
{
    #[inline(always)]
    fn reduce(self, arch: Arch) -> f64 {
        let count = self.operands[0].len();
        assert!(
            self.operands.iter().all(|operand| operand.len() == count),
            "equally long operands"
        );
        if count < 2 * LANES {
            let cell = |i: usize| (self.cell)(gather(self.operands, i));
            return (0..count).fold(self.identity, |total, i| (self.push)(total, cell(i)));
        }
        arch.dispatch(self)
    }
}

/// `Σ x`.
pub(super) fn sum<T: Scalar>(arch: Arch, cells: &[T]) -> f64 {
    let add = |a, b| a + b;
    let cell = |[x]: [T; 1]| x.to_f64();
    Lanes { operands: [cells], cell, identity: 0.0, push: add, merge: add }.reduce(arch)
}

/// `Σ (x - center)²`.
pub(super) fn sum_of_squares<T: Scalar>(arch: Arch, cells: &[T], center: f64) -> f64 {
    let push = |sum, x| sum + (x - center) * (x - center);
    let cell = |[x]: [T; 1]| x.to_f64();
    Lanes { operands: [cells], cell, identity: 0.0, push, merge: |a, b| a + b }.reduce(arch)
}

/// `Σ function(a, b)`.
pub(super) fn sum_of_binary<T: Scalar>(arch: Arch, function: First, operands: [&[T]; 2]) -> f64 {
    let add = |a, b| a + b;
    specialize!(function, F: First { Add Subtract Multiply } => {
        let cell = |[a, b]: [T; 2]| F.apply(a, b).to_f64();
        Lanes { operands, cell, identity: 0.0, push: add, merge: add }.reduce(arch)
    })
}

/// `Σ second(first(a, b), c)`.
pub(super) fn sum_of_chain<T: Scalar>(
    arch: Arch,
    first: First,
    second: Second,
    operands: [&[T]; 3],
) -> f64 {
    let add = |a, b| a + b;
    specialize!(first, FIRST: First { Add Subtract Multiply } => {
        specialize!(second, SECOND: Second {
            Add Subtract SubtractFrom Multiply Divide Square Keep
        } => {
            let cell = |[a, b, c]: [T; 3]| SECOND.apply(FIRST.apply(a, b), c).to_f64();
            Lanes { operands, cell, identity: 0.0, push: add, merge: add }.reduce(arch)
        })
    })
}

/// The least cell; infinite where there is none.
pub(super) fn least<T: Scalar>(arch: Arch, cells: &[T]) -> f64 {
    let least = |a, b| BinaryFunction::Least.apply(a, b);
    let cell = |[x]: [T; 1]| x.to_f64();
    Lanes { operands: [cells], cell, identity: f64::INFINITY, push: least, merge: least }
        .reduce(arch)
}

/// The greatest cell; minus infinite where there is none.
pub(super) fn greatest<T: Scalar>(arch: Arch, cells: &[T]) -> f64 {
    let greatest = |a, b| BinaryFunction::Greatest.apply(a, b);
    let cell = |[x]: [T; 1]| x.to_f64();
    let identity = f64::NEG_INFINITY;
    Lanes { operands: [cells], cell, identity, push: greatest, merge: greatest }.reduce(arch)
}

/// Updates the chain of each column with its cell of each row.
struct Columns<'a, T, P> {
    rows: &'a [T],
    chains: &'a mut [f64],
    push: P,
}

impl<T: Scalar, P: Fn(f64, f64) -> f64> WithSimd for Columns<'_, T, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.rows.chunks_exact(self.chains.len()) {
            for (chain, &cell) in self.chains.iter_mut().zip(row) {
                *chain = (self.push)(*chain, cell.to_f64());
            }
        }
    }
}

/// Adds rows to `chains`.
pub(super) fn add<T: Scalar>(arch: Arch, rows: &[T], chains: &mut [f64]) {
    arch.dispatch(Columns { rows, chains, push: |sum, x| sum + x });
}

/// Adds the squares of rows to `chains`.
pub(super) fn add_squares<T: Scalar>(arch: Arch, rows: &[T], chains: &mut [f64]) {
    arch.dispatch(Columns { rows, chains, push: |sum, x| sum + x * x });
}

/// Keeps the least of each column.
pub(super) fn keep_least<T: Scalar>(arch: Arch, rows: &[T], chains: &mut [f64]) {
    arch.dispatch(Columns { rows, chains, push: |kept, x| BinaryFunction::Least.apply(kept, x) });
}

/// Keeps the greatest of each column.
pub(super) fn keep_greatest<T: Scalar>(arch: Arch, rows: &[T], chains: &mut [f64]) {
    arch.dispatch(Columns {
        rows,
        chains,
        push: |kept, x| BinaryFunction::Greatest.apply(kept, x),
    });
}

/// Welford's update of means and sums of squared distances by rows, before which there were `count`.
pub(super) struct Moments<'a, T> {
    pub(super) rows: &'a [T],
    pub(super) count: u64,
    pub(super) means: &'a mut [f64],
    pub(super) squares: &'a mut [f64],
}

impl<T: Scalar> WithSimd for Moments<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (row, count) in self.rows.chunks_exact(self.means.len()).zip(self.count + 1..) {
            let share = 1.0 / count as f64;
            for ((mean, square), &cell) in self.means.iter_mut().zip(&mut *self.squares).zip(row) {
                let x = cell.to_f64();
                let distance = x - *mean;
                *mean += distance * share;
                *square += distance * (x - *mean);
            }
        }
    }
}
