//! Products and distances of vectors: a number for each pair of equally long lists of cells.
//!
//! Every sum is in `f64`, whatever the cells are, and runs in sixteen lanes that are added by halves:
//! its bits follow from the two vectors alone. A sum of squares that leaves the range of `f64`, or its
//! small end, is taken again with the cells divided by the largest of them.

use pulp::{Simd, WithSimd};

use super::arch::Arch;
use crate::matrix::Scalar;

/// Lanes of a sum: cell i goes to lane i mod 16.
const LANES: usize = 16;

/// Sums of squares within this range have lost nothing to either end of it.
const SAFE: std::ops::Range<f64> = 1e-280..1e300;

/// Vectors that lie one behind the other, or one vector for every row.
#[derive(Debug, Clone, Copy)]
pub struct Vectors<'a, T> {
    /// What [`Bounds`] cut.
    pub cells: &'a [T],
    /// Where each vector is.
    pub bounds: Bounds<'a>,
}

/// Where the vector of a row begins and ends.
#[derive(Debug, Clone, Copy)]
pub enum Bounds<'a> {
    /// From offset i to offset i + 1.
    Offsets(&'a [i32]),
    /// The same, with 64 bits.
    LargeOffsets(&'a [i64]),
    /// From i times this length on.
    Length(usize),
    /// All cells, whatever the row.
    Constant,
}

impl<'a, T> Vectors<'a, T> {
    /// One vector for every row.
    pub fn constant(cells: &'a [T]) -> Self {
        Self { cells, bounds: Bounds::Constant }
    }

    /// The vector of row `i`.
    #[inline(always)]
    pub fn row(&self, i: usize) -> &'a [T] {
        match self.bounds {
            Bounds::Offsets(offsets) => &self.cells[offsets[i] as usize..offsets[i + 1] as usize],
            Bounds::LargeOffsets(offsets) => {
                &self.cells[offsets[i] as usize..offsets[i + 1] as usize]
            }
            Bounds::Length(length) => &self.cells[i * length..(i + 1) * length],
            Bounds::Constant => self.cells,
        }
    }
}

/// What is computed of two vectors. All are symmetric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Measure {
    /// `Σ aᵢ·bᵢ`
    Dot,
    /// `Σ aᵢ·bᵢ / √(Σ aᵢ² · Σ bᵢ²)`, between -1 and 1; `NaN` where a vector is zero.
    CosineSimilarity,
    /// 1 less the cosine similarity.
    CosineDistance,
    /// `√Σ (aᵢ - bᵢ)²`
    Euclidean,
    /// `Σ |aᵢ - bᵢ|`
    Manhattan,
    /// `√Σ aᵢ²`, of the first vector alone.
    Norm,
}

/// The measure of each row of `left` with that of `right`, into `out`; of some rows alone, where those are named.
///
/// Of all others, and where the two are not equally long, what is written means nothing. A `NaN` has no sign.
pub fn measure<A: Scalar, B: Scalar>(
    measure: Measure,
    left: Vectors<'_, A>,
    right: Vectors<'_, B>,
    rows: Option<&[usize]>,
    out: &mut [f64],
) {
    measure_by(Arch::up_to_256_bits(), measure, left, right, rows, out);
}

fn measure_by<A: Scalar, B: Scalar>(
    arch: Arch,
    measure: Measure,
    left: Vectors<'_, A>,
    right: Vectors<'_, B>,
    rows: Option<&[usize]>,
    out: &mut [f64],
) {
    match measure {
        Measure::Dot => arch.dispatch(Rows { terms: Dot, left, right, rows, out }),
        Measure::CosineSimilarity | Measure::CosineDistance => {
            if let Bounds::Constant = right.bounds {
                let squares = arch.dispatch(Squares(right.cells));
                arch.dispatch(Rows { terms: CosineTo { squares }, left, right, rows, out });
            } else {
                arch.dispatch(Rows { terms: Cosine, left, right, rows, out });
            }
            if measure == Measure::CosineDistance {
                out.iter_mut().for_each(|similarity| *similarity = 1.0 - *similarity);
            }
        }
        Measure::Euclidean => arch.dispatch(Rows { terms: Euclidean, left, right, rows, out }),
        Measure::Manhattan => arch.dispatch(Rows { terms: Manhattan, left, right, rows, out }),
        Measure::Norm => arch.dispatch(Rows { terms: Norm, left, right, rows, out }),
    }
    // Arithmetic may give it a sign, and SQL would have it below all numbers.
    out.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = f64::NAN);
}

/// A measure as `N` sums over the cells, and what becomes of them.
trait Terms<const N: usize>: Copy {
    /// What one pair of cells adds to each sum.
    fn of(self, a: f64, b: f64) -> [f64; N];

    /// The measure; the vectors are for what the sums cannot tell.
    fn measure<A: Scalar, B: Scalar>(self, sums: [f64; N], a: &[A], b: &[B]) -> f64;
}

#[derive(Clone, Copy)]
struct Dot;

impl Terms<1> for Dot {
    #[inline(always)]
    fn of(self, a: f64, b: f64) -> [f64; 1] {
        [a * b]
    }

    #[inline(always)]
    fn measure<A: Scalar, B: Scalar>(self, [dot]: [f64; 1], _: &[A], _: &[B]) -> f64 {
        dot
    }
}

#[derive(Clone, Copy)]
struct Cosine;

impl Terms<3> for Cosine {
    #[inline(always)]
    fn of(self, a: f64, b: f64) -> [f64; 3] {
        [a * b, a * a, b * b]
    }

    #[inline(always)]
    fn measure<A: Scalar, B: Scalar>(self, sums: [f64; 3], a: &[A], b: &[B]) -> f64 {
        let [dot, left, right] = sums;
        cosine(dot, left, right).unwrap_or_else(|| scaled_cosine(a, b))
    }
}

/// The cosine to a vector whose squares have been added.
#[derive(Clone, Copy)]
struct CosineTo {
    squares: f64,
}

impl Terms<2> for CosineTo {
    #[inline(always)]
    fn of(self, a: f64, b: f64) -> [f64; 2] {
        [a * b, a * a]
    }

    #[inline(always)]
    fn measure<A: Scalar, B: Scalar>(self, [dot, left]: [f64; 2], a: &[A], b: &[B]) -> f64 {
        cosine(dot, left, self.squares).unwrap_or_else(|| scaled_cosine(a, b))
    }
}

/// The cosine from its sums, or `None` where one of them is outside the safe range.
#[inline(always)]
fn cosine(dot: f64, left: f64, right: f64) -> Option<f64> {
    let safe = SAFE.contains(&left) && SAFE.contains(&right);
    safe.then(|| (dot / (left.sqrt() * right.sqrt())).clamp(-1.0, 1.0))
}

#[cold]
fn scaled_cosine<A: Scalar, B: Scalar>(a: &[A], b: &[B]) -> f64 {
    let (left, right) = (largest(cells(a)), largest(cells(b)));
    let scaled = cells(a).zip(cells(b)).map(|(a, b)| (a / left, b / right));
    let [dot, left, right] = scaled
        .fold([0.0; 3], |[dot, left, right], (a, b)| [dot + a * b, left + a * a, right + b * b]);
    (dot / (left.sqrt() * right.sqrt())).clamp(-1.0, 1.0)
}

#[derive(Clone, Copy)]
struct Euclidean;

impl Terms<1> for Euclidean {
    #[inline(always)]
    fn of(self, a: f64, b: f64) -> [f64; 1] {
        [(a - b) * (a - b)]
    }

    #[inline(always)]
    fn measure<A: Scalar, B: Scalar>(self, [squares]: [f64; 1], a: &[A], b: &[B]) -> f64 {
        let differences = || cells(a).zip(cells(b)).map(|(a, b)| a - b);
        if SAFE.contains(&squares) { squares.sqrt() } else { scaled_length(differences) }
    }
}

#[derive(Clone, Copy)]
struct Norm;

impl Terms<1> for Norm {
    #[inline(always)]
    fn of(self, a: f64, _: f64) -> [f64; 1] {
        [a * a]
    }

    #[inline(always)]
    fn measure<A: Scalar, B: Scalar>(self, [squares]: [f64; 1], a: &[A], _: &[B]) -> f64 {
        if SAFE.contains(&squares) { squares.sqrt() } else { scaled_length(|| cells(a)) }
    }
}

#[derive(Clone, Copy)]
struct Manhattan;

impl Terms<1> for Manhattan {
    #[inline(always)]
    fn of(self, a: f64, b: f64) -> [f64; 1] {
        [(a - b).abs()]
    }

    #[inline(always)]
    fn measure<A: Scalar, B: Scalar>(self, [sum]: [f64; 1], _: &[A], _: &[B]) -> f64 {
        sum
    }
}

fn cells<T: Scalar>(cells: &[T]) -> impl Iterator<Item = f64> + '_ {
    cells.iter().map(|cell| cell.to_f64())
}

/// The largest magnitude, `NaN` where there is one.
fn largest(cells: impl Iterator<Item = f64>) -> f64 {
    cells.fold(0.0, |most: f64, cell| {
        let cell = cell.abs();
        if cell > most || cell.is_nan() { cell } else { most }
    })
}

/// The square root of the sum of squares of cells that are very large or very small.
#[cold]
fn scaled_length<I: Iterator<Item = f64>>(cells: impl Fn() -> I) -> f64 {
    let scale = largest(cells());
    if scale == 0.0 || !scale.is_finite() {
        return scale;
    }
    scale * cells().map(|cell| (cell / scale) * (cell / scale)).sum::<f64>().sqrt()
}

/// All the rows in one call, so that the instruction set is picked once.
struct Rows<'a, A, B, K, const N: usize>
where
    K: Terms<N>,
{
    terms: K,
    left: Vectors<'a, A>,
    right: Vectors<'a, B>,
    rows: Option<&'a [usize]>,
    out: &'a mut [f64],
}

impl<A: Scalar, B: Scalar, K: Terms<N>, const N: usize> WithSimd for Rows<'_, A, B, K, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { terms, left, right, rows, out } = self;
        for at in 0..rows.map_or(out.len(), <[usize]>::len) {
            let i = rows.map_or(at, |rows| rows[at]);
            let (a, b) = (left.row(i), right.row(i));
            out[i] = terms.measure(sums(terms, a, b), a, b);
        }
    }
}

/// `Σ x²`.
struct Squares<'a, T>(&'a [T]);

impl<T: Scalar> WithSimd for Squares<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let [squares] = sums(Norm, self.0, self.0);
        squares
    }
}

/// The sums of a pair of vectors, over as many cells as both have.
#[inline(always)]
fn sums<A: Scalar, B: Scalar, K: Terms<N>, const N: usize>(terms: K, a: &[A], b: &[B]) -> [f64; N] {
    let mut lanes = [[0.0; LANES]; N];
    let (a_rows, a_rest) = a.as_chunks::<LANES>();
    let (b_rows, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_rows.iter().zip(b_rows) {
        for lane in 0..LANES {
            let terms = terms.of(a[lane].to_f64(), b[lane].to_f64());
            for (lanes, term) in lanes.iter_mut().zip(terms) {
                lanes[lane] += term;
            }
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        let terms = terms.of(a.to_f64(), b.to_f64());
        for (lanes, term) in lanes.iter_mut().zip(terms) {
            lanes[lane] += term;
        }
    }
    let mut count = LANES;
    while count > 1 {
        count /= 2;
        for lanes in &mut lanes {
            for lane in 0..count {
                lanes[lane] += lanes[lane + count];
            }
        }
    }
    let mut sums = [0.0; N];
    for (sum, lanes) in sums.iter_mut().zip(lanes) {
        *sum = lanes[0];
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::kernels::testing::{PLAIN, random, rng, wider};

    const ALL: [Measure; 6] = [
        Measure::Dot,
        Measure::CosineSimilarity,
        Measure::CosineDistance,
        Measure::Euclidean,
        Measure::Manhattan,
        Measure::Norm,
    ];

    /// The definitions, term after term.
    fn naive(measure: Measure, a: &[f64], b: &[f64]) -> f64 {
        let sum = |term: fn(f64, f64) -> f64| a.iter().zip(b).map(|(a, b)| term(*a, *b)).sum();
        let (dot, left): (f64, f64) = (sum(|a, b| a * b), sum(|a, _| a * a));
        let right: f64 = sum(|_, b| b * b);
        match measure {
            Measure::Dot => dot,
            Measure::CosineSimilarity => dot / (left.sqrt() * right.sqrt()),
            Measure::CosineDistance => 1.0 - dot / (left.sqrt() * right.sqrt()),
            Measure::Euclidean => sum(|a, b| (a - b) * (a - b)).sqrt(),
            Measure::Manhattan => sum(|a, b| (a - b).abs()),
            Measure::Norm => left.sqrt(),
        }
    }

    fn single(kind: Measure, a: &[f64], b: &[f64]) -> f64 {
        let mut out = [0.0];
        measure(kind, Vectors::constant(a), Vectors::constant(b), None, &mut out);
        out[0]
    }

    #[test]
    fn measures_follow_their_definitions_at_every_length() {
        let mut rng = rng(1);
        for length in [1, 2, 7, 15, 16, 17, 31, 32, 33, 128, 384] {
            let a = random::<f64>(&mut rng, 9, length);
            let b = random::<f64>(&mut rng, 9, length);
            let rows = |cells| Vectors { cells, bounds: Bounds::Length(length) };
            for kind in ALL {
                let (mut pairs, mut to_first) = ([0.0; 9], [0.0; 9]);
                measure(kind, rows(a.cells()), rows(b.cells()), None, &mut pairs);
                measure(kind, rows(a.cells()), Vectors::constant(b.row(0)), None, &mut to_first);
                for i in 0..9 {
                    let close = |x: f64, y: f64| (x - y).abs() <= 1e-13 * y.abs().max(1.0);
                    assert!(close(pairs[i], naive(kind, a.row(i), b.row(i))), "{kind:?} {length}");
                    assert!(close(to_first[i], naive(kind, a.row(i), b.row(0))), "{kind:?}");
                }
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_wherever_it_stands_and_however_it_is_bounded() {
        let mut rng = rng(2);
        let a = random::<f64>(&mut rng, 20, 37);
        let b = random::<f64>(&mut rng, 1, 37);
        let offsets: Vec<i32> = (0..=20).map(|i| i * 37).collect();
        for kind in ALL {
            let mut out = [0.0; 20];
            let rows = Vectors { cells: a.cells(), bounds: Bounds::Offsets(&offsets) };
            measure(kind, rows, Vectors::constant(b.cells()), None, &mut out);
            for (i, out) in out.iter().enumerate() {
                assert_eq!(out.to_bits(), single(kind, a.row(i), b.cells()).to_bits(), "{kind:?}");
            }
        }
    }

    #[test]
    fn rows_that_are_named_have_the_bits_of_all() {
        let mut rng = rng(4);
        let a = random::<f64>(&mut rng, 20, 37);
        let rows = Vectors { cells: a.cells(), bounds: Bounds::Length(37) };
        for kind in ALL {
            let (mut all, mut some) = ([0.0; 20], [0.0; 20]);
            let named = [2, 3, 19];
            measure(kind, rows, Vectors::constant(a.row(3)), None, &mut all);
            measure(kind, rows, Vectors::constant(a.row(3)), Some(&named), &mut some);
            for i in named {
                assert_eq!(some[i].to_bits(), all[i].to_bits(), "{kind:?} {i}");
            }
        }
    }

    #[test]
    fn cells_of_32_bits_are_added_in_64() {
        let (a, b) = ([1e30_f32, 1.0, -1e30], [1e10_f32, 1.0, 1e10]);
        let mut out = [0.0];
        measure(Measure::Dot, Vectors::constant(&a), Vectors::constant(&b[..2]), None, &mut out);
        assert_eq!(out[0], f64::from(1e30_f32) * f64::from(1e10_f32) + 1.0);
        measure(Measure::Norm, Vectors::constant(&a), Vectors::constant(&a), None, &mut out);
        assert!((out[0] - 2f64.sqrt() * 1e30).abs() < 1e23);
    }

    #[test]
    fn what_squares_cannot_hold_is_measured_all_the_same() {
        for scale in [1e200, 1e-200, 5e-324 * 64.0] {
            assert_eq!(single(Measure::Norm, &[3.0 * scale, 4.0 * scale], &[0.0; 2]), 5.0 * scale);
            let distance = single(Measure::Euclidean, &[3.0 * scale, 0.0], &[0.0, 4.0 * scale]);
            assert_eq!(distance, 5.0 * scale);
            let cosine = single(Measure::CosineSimilarity, &[scale, scale], &[1.0, 1.0]);
            assert!((cosine - 1.0).abs() < 1e-15);
        }
    }

    #[test]
    fn zeros_infinities_and_nan_follow_the_formula() {
        let zero = [0.0; 2];
        assert!(single(Measure::CosineSimilarity, &zero, &[1.0, 2.0]).is_nan());
        assert!(single(Measure::CosineDistance, &[1.0, 2.0], &zero).is_nan());
        assert_eq!(single(Measure::Euclidean, &zero, &zero), 0.0);
        assert_eq!(single(Measure::Norm, &[f64::INFINITY, 1.0], &zero), f64::INFINITY);
        assert!(single(Measure::Norm, &[f64::NAN, 1.0], &zero).is_nan());
        assert!(single(Measure::Dot, &[f64::INFINITY, 1.0], &zero).is_nan());
        assert_eq!(single(Measure::Dot, &[], &[]), 0.0);
        assert!(single(Measure::CosineSimilarity, &[], &[]).is_nan());
    }

    #[test]
    fn a_vector_is_no_further_than_one_from_itself() {
        let mut rng = rng(3);
        for _ in 0..200 {
            let a = random::<f64>(&mut rng, 1, 19);
            assert!(single(Measure::CosineSimilarity, a.cells(), a.cells()) <= 1.0);
        }
    }

    #[test]
    fn vector_instructions_change_no_bit() {
        let mut rng = rng(4);
        for length in [1, 15, 16, 17, 100] {
            let (a, b) = (random::<f64>(&mut rng, 5, length), random::<f32>(&mut rng, 5, length));
            for kind in ALL {
                let run = |arch| {
                    let mut out = [0.0; 10];
                    let left = Vectors { cells: a.cells(), bounds: Bounds::Length(length) };
                    let right = Vectors { cells: b.cells(), bounds: Bounds::Length(length) };
                    let (pairs, to_first) = out.split_at_mut(5);
                    measure_by(arch, kind, left, right, None, pairs);
                    measure_by(arch, kind, right, Vectors::constant(a.row(0)), None, to_first);
                    out.map(f64::to_bits)
                };
                assert!(wider().into_iter().all(|arch| run(arch) == run(PLAIN)), "{kind:?}");
            }
        }
    }
}
