//! The first few singular values of a large matrix, by products with it alone.
//!
//! A block of random columns, multiplied by the matrix to and fro, soon spans a space that holds the leading singular
//! vectors. Each block is made orthogonal to all before it; in terms of them the matrix has two diagonals of blocks, and
//! the singular values of those are the ones that are wanted.
//!
//! ```text
//! a·v₁    = u₁·r₁                      r₁  t(s₁)
//! t(a)·u₁ = v₁·t(r₁) + v₂·s₁               r₂   t(s₂)        = p·σ·t(q)
//! a·v₂    = u₁·t(s₁) + u₂·r₂                    r₃           u = (u₁ u₂ u₃)·p,  v = (v₁ v₂ v₃)·q
//! ```
//!
//! By construction `a·v = u·σ`, and `t(a)·u` is off `v·σ` by the last `s` times the last rows of `p`: when that is within
//! rounding, the values are found, and two more products check both equations by their definition. That no larger value is
//! passed over holds with probability one, equal ones included, for a block is wider than what is wanted. A space that has
//! become so wide that orthogonality takes more than products shrinks to the vectors of its largest values, which are a
//! block like any other. A matrix that is in a file is read twice a step, and a sparse one stays sparse.
//!
//! Sources: Golub, Luk and Overton, *A block Lanczos method for computing the singular values and corresponding
//! singular vectors of a matrix*, ACM Trans. Math. Softw. 7 (1981); Halko, Martinsson and Tropp, *Finding structure
//! with randomness*, SIAM Review 53 (2011), for the start; Baglama and Reichel, *Augmented implicitly restarted Lanczos
//! bidiagonalization methods*, SIAM J. Sci. Comput. 27 (2005), for shrinking; Yamamoto et al., *Roundoff error analysis of
//! the CholeskyQR2 algorithm*, ETNA 44 (2015).

use faer::Accum;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::StandardNormal;
use rayon::prelude::*;

use super::super::dense::{
    Factor, cross, diagonal_matrix, gram, outer, product, product_of, slice_columns, transpose,
};
use super::super::gemm::{Grain, multiply};
use super::super::sparse::{self, stored_values};
use super::super::{Real, Stop, dense, view, view_mut};
use super::cholesky::cholesky;
use super::orthogonal::{Qr, qr};
use super::refuse_infinite;
use super::spectral::{Svd, svd_at_once, svd_cells, svd_flops};
use super::substitution::inverse_of_triangle;
use super::tall::{self, negate_columns, negative_columns};
use super::triangular::Triangle;
use crate::error::{ErrorKind, Result};
use crate::matrix::{CellBuffer, Csr, Dense, Shape, Storage};
use crate::memory;

/// Columns of a block beside those that are wanted: they make the last of these converge.
const SPARE: usize = 8;

/// How often a block must fit into the short side for this to be less work than all values, which it falls back to.
const BLOCKS_MIN: usize = 32;

/// Steps that matrices take whose values fall off, and those after which nobody waits for a matrix whose do not.
const STEPS: usize = 12;
const STEPS_MAX: usize = 2000;

/// How much faster flops of products are than those of decompositions.
const PRODUCTS_FASTER: f64 = 3.0;

/// Share of the work of all values after which these are computed.
const WORK_MAX: f64 = 0.25;

/// The space may be as wide as so many blocks in any case, and shrinks to this share of its width.
const SPACE_BLOCKS: usize = 8;
const KEPT_SHARE: usize = 3;

/// Residuals that count as rounding, in units of it and of the largest value; found ones may reach four times as much.
const RESIDUAL_UNITS: f64 = 64.0;

/// Pivots of a Gram matrix by which its columns are far from depending on one another, in units of the root of rounding.
const PIVOT_UNITS: f64 = 100.0;

/// Powers of ten between which the largest cell lies, for no sum of products of it to leave the range.
const EXPONENT_MAX: [i32; 2] = [100, 12];

/// Columns of a block for so many singular values of a matrix of this shape, if that is how they are found.
pub fn block_columns(shape: Shape, count: usize) -> Option<usize> {
    let columns = count.saturating_add(SPARE);
    let is_worth_it = columns.saturating_mul(BLOCKS_MIN) <= shape.rows.min(shape.columns);
    (is_worth_it && count > 0).then_some(columns)
}

/// Cells that blocks of so many columns are expected to take.
pub fn space_cells(shape: Shape, columns: usize) -> usize {
    shape.rows.saturating_add(shape.columns).saturating_mul(columns * STEPS)
}

/// What a matrix of so many stored cells is expected to take, in flops of a decomposition.
pub fn leading_flops(stored: f64, columns: usize) -> f64 {
    4.0 * stored * (columns * STEPS) as f64 / PRODUCTS_FASTER
}

/// The `count` largest singular values with their vectors; None where it is less work to compute all, and where the
/// cells are so large or so small that squares would leave their range.
///
/// - Accuracy: `‖a·v - σ·u‖` and `‖t(a)·u - σ·v‖` are at most 256·ε times the largest value, for each.
/// - Work: 4·stored·(count + 8) flop a step, about as much for orthogonality, and some ten steps where values fall off.
///   Memory: (m + n)·(count + 8) cells a step, up to half of the stored cells or eight steps, in files where there is no room.
/// - Errors: a cell that is not finite; no convergence, which only large matrices reach that memory has no room for
///   computing all of.
pub fn leading<T: Real>(a: &Storage<T>, count: usize, stop: Stop<'_>) -> Result<Option<Svd<T>>> {
    within(a, count, STEPS_MAX, stop)
}

fn within<T: Real>(
    a: &Storage<T>,
    count: usize,
    steps_max: usize,
    stop: Stop<'_>,
) -> Result<Option<Svd<T>>> {
    let shape = a.shape();
    let Some(columns) = block_columns(shape, count) else { return Ok(None) };
    if matches!(a, Storage::Dense(a) if tall::goes_by_blocks(a)) || !has_moderate_cells(a)? {
        return Ok(None);
    }
    let has_room = memory::has_room(svd_cells(shape).saturating_mul(size_of::<T>()));
    let (sides, short) = (shape.rows + shape.columns, shape.rows.min(shape.columns));
    let stored = match a {
        Storage::Dense(_) => shape.cells(),
        Storage::Csr(a) => a.stored(),
    };
    // From here on a step takes as long for its orthogonality as for its products, or half of the room is taken.
    let room = memory::room_bytes() / size_of::<T>() / sides / 2;
    let columns_max = (stored / sides / 2).min(room).clamp(SPACE_BLOCKS * columns, short / 2);
    let flops_max = match has_room {
        true => WORK_MAX * PRODUCTS_FASTER * svd_flops(shape.cells() as f64, short as f64),
        false => f64::INFINITY,
    };
    let a = Map::of(a, stop);
    let mut space = Space::new(&normal(shape.columns, columns), stop)?;
    let (mut next_look, mut flops) = (2, 0.0);
    for step in 1..=steps_max {
        space.extend(&a, stop)?;
        flops += 4.0 * columns as f64 * (stored as f64 + (sides * space.columns()) as f64);
        let is_full = space.columns() + columns > columns_max;
        if step < next_look && !is_full {
            continue;
        }
        // A look costs a decomposition of what there is.
        next_look = step + step.div_ceil(4);
        let kept = if is_full { columns_max / KEPT_SHARE } else { count };
        let inner = svd_at_once(&space.diagonals(), Some(kept), stop)?;
        let found = space.found(&inner, count, stop).filter(|found| a.has(found, stop));
        stop.check()?;
        if found.is_some() {
            return Ok(found);
        }
        if flops > flops_max {
            return Ok(None);
        }
        if is_full {
            space.shrink(&inner, stop);
        }
    }
    if has_room {
        return Ok(None);
    }
    let hint = "; more values, or a memory_limit with room for all, may";
    Err(ErrorKind::NotConverged { function: "svd", shape, hint }.into())
}

/// Whether no sum of products of cells leaves their range.
fn has_moderate_cells<T: Real>(a: &Storage<T>) -> Result<bool> {
    let cells = match a {
        Storage::Dense(a) => a.cells(),
        Storage::Csr(a) => stored_values(a),
    };
    let largest = |cells: &[T]| cells.iter().map(|x| x.to_f64().abs()).fold(0.0, f64::max);
    let chunks = cells.par_chunks(1 << 15);
    let most = chunks.map(|cells| match cells.iter().all(|x| x.is_finite()) {
        true => largest(cells),
        false => f64::INFINITY,
    });
    let most = most.reduce(|| 0.0, f64::max);
    if most.is_infinite() {
        return Err(refuse_infinite("svd", a.shape()));
    }
    let is_double = T::EPSILON.to_f64() == f64::EPSILON;
    let limit = 10f64.powi(EXPONENT_MAX[usize::from(!is_double)]);
    Ok(most == 0.0 || (limit.recip()..limit).contains(&most))
}

/// Columns of independent normal numbers, the same each time.
fn normal<T: Real>(rows: usize, columns: usize) -> Dense<T> {
    let mut rng = SmallRng::seed_from_u64(0x5EED);
    let cells = (0..rows * columns).map(|_| T::from_f64(rng.sample::<f64, _>(StandardNormal)));
    dense(Shape::new(rows, columns), cells.collect::<Vec<T>>())
}

/// A matrix that is multiplied by, from either side.
enum Map<'a, T: Real> {
    Dense(&'a Dense<T>),
    Csr { a: &'a Csr<T>, turned: Csr<T> },
}

impl<'a, T: Real> Map<'a, T> {
    fn of(a: &'a Storage<T>, stop: Stop<'_>) -> Self {
        match a {
            Storage::Dense(a) => Self::Dense(a),
            Storage::Csr(a) => Self::Csr { a, turned: sparse::transpose(a, stop) },
        }
    }

    /// `a·v`.
    fn times(&self, v: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
        match self {
            Self::Dense(a) => product_of([Factor::plain(a), Factor::plain(v)], stop),
            Self::Csr { a, .. } => sparse::times_dense(a, v, stop),
        }
    }

    /// `t(a)·u`.
    fn turned_times(&self, u: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
        match self {
            Self::Dense(a) => product_of([Factor::transposed(a), Factor::plain(u)], stop),
            Self::Csr { turned, .. } => sparse::times_dense(turned, u, stop),
        }
    }

    /// Whether these are singular values and vectors, by the definition.
    fn has(&self, Svd { u, s, vt }: &Svd<T>, stop: Stop<'_>) -> bool {
        let v = transpose(vt);
        let bound = 4.0 * RESIDUAL_UNITS * T::EPSILON.to_f64();
        let is_orthonormal = |x: &Dense<T>| {
            let one = |i: usize, j: usize| if i == j { T::ONE } else { T::ZERO };
            largest_column(&cross(x, x, stop), one) <= bound
        };
        let is_mapped = |mapped: &Dense<T>, to: &Dense<T>| {
            let scaled = |i: usize, j: usize| s.cells()[j] * to.row(i)[j];
            largest_column(mapped, scaled) <= bound * s.cells()[0].to_f64()
        };
        is_orthonormal(u)
            && is_orthonormal(&v)
            && is_mapped(&self.times(&v, stop), u)
            && is_mapped(&self.turned_times(u, stop), &v)
    }
}

/// The largest norm of a column of a matrix less another, whose cells are given by their places.
fn largest_column<T: Real>(x: &Dense<T>, less: impl Fn(usize, usize) -> T) -> f64 {
    let mut squares = vec![0.0; x.shape().columns];
    for i in 0..x.shape().rows {
        for (j, (square, &cell)) in squares.iter_mut().zip(x.row(i)).enumerate() {
            *square += (cell - less(i, j)).to_f64().powi(2);
        }
    }
    squares.into_iter().fold(0.0, f64::max).sqrt()
}

/// What blocks of columns span, and the matrix in terms of them.
struct Space<T: Real> {
    left: Vec<Dense<T>>,
    /// One more than of `left`.
    right: Vec<Dense<T>>,
    /// The blocks on the diagonal, `r` above.
    diagonal: Vec<Dense<T>>,
    /// Those beside them, `s` above; the last is what the matrix is off.
    beside: Vec<Dense<T>>,
}

impl<T: Real> Space<T> {
    fn new(start: &Dense<T>, stop: Stop<'_>) -> Result<Self> {
        let mut right = vec![];
        append(&mut right, start, stop)?;
        Ok(Self { left: vec![], right, diagonal: vec![], beside: vec![] })
    }

    /// Multiplies the last block by the matrix, and what is new in that by the transpose.
    fn extend(&mut self, a: &Map<'_, T>, stop: Stop<'_>) -> Result<()> {
        let step = self.left.len();
        self.diagonal.push(append(&mut self.left, &a.times(&self.right[step], stop), stop)?);
        self.beside.push(append(&mut self.right, &a.turned_times(&self.left[step], stop), stop)?);
        Ok(())
    }

    /// Those on the left, and as many on the right.
    fn columns(&self) -> usize {
        self.left.iter().map(|block| block.shape().columns).sum()
    }

    /// The first singular values of [`diagonals`](Self::diagonals), and their vectors in terms of the matrix, if they are those of
    /// the matrix itself.
    fn found(&self, inner: &Svd<T>, count: usize, stop: Stop<'_>) -> Option<Svd<T>> {
        let first = |x: &Dense<T>| slice_columns(x, 0..count);
        let (p, s, q) =
            (first(&inner.u), inner.s.rows(0..count), transpose(&inner.vt.rows(0..count)));
        let off = largest_column(&self.off(&p, stop), |_, _| T::ZERO);
        if off > RESIDUAL_UNITS * T::EPSILON.to_f64() * s.cells()[0].to_f64() {
            return None;
        }
        let (mut u, mut v) = (combined(&self.left, &p, stop), combined(&self.right, &q, stop));
        let are_negative = negative_columns(&[tall::largest(&u, count)]);
        negate_columns(&mut u, &are_negative);
        negate_columns(&mut v, &are_negative);
        let [u, v] =
            [(u, &self.left), (v, &self.right)].map(|(cells, of)| by_columns_of(of, cells));
        Some(Svd { u, s, vt: transpose(&v) })
    }

    /// What the transpose of the matrix makes of vectors `p` in this space beyond it, in terms of the last block on the right.
    fn off(&self, p: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
        let beside = &self.beside[self.beside.len() - 1];
        let rows = p.shape().rows;
        product(beside, &p.rows(rows - beside.shape().columns..rows), stop)
    }

    /// Keeps the vectors of the largest values alone, and the last block.
    fn shrink(&mut self, inner: &Svd<T>, stop: Stop<'_>) {
        let beside = self.off(&inner.u, stop);
        let left = combined(&self.left, &inner.u, stop);
        let right = combined(&self.right, &transpose(&inner.vt), stop);
        let last = self.right.split_off(self.right.len() - 1);
        self.right = [vec![by_columns_of(&self.right, right)], last].concat();
        self.left = vec![by_columns_of(&self.left, left)];
        self.diagonal = vec![diagonal_matrix(inner.s.cells())];
        self.beside = vec![beside];
    }

    /// The matrix in terms of the blocks.
    fn diagonals(&self) -> Dense<T> {
        let side = self.columns();
        let mut cells = CellBuffer::zeroed(side * side);
        let mut first = 0;
        for (r, s) in self.diagonal.iter().zip(&self.beside) {
            let width = r.shape().rows;
            for i in 0..width {
                let row = &mut cells[(first + i) * side..][..side];
                row[first..][..width].copy_from_slice(r.row(i));
                let beside = row[first + width..].iter_mut().take(s.shape().rows);
                beside.enumerate().for_each(|(j, cell)| *cell = s.row(j)[i]);
            }
            first += width;
        }
        dense(Shape::new(side, side), cells)
    }
}

/// A matrix as tall as these blocks.
fn by_columns_of<T: Real>(blocks: &[Dense<T>], cells: CellBuffer<T>) -> Dense<T> {
    let rows = blocks[0].shape().rows;
    dense(Shape::new(rows, cells.len() / rows), cells)
}

/// Puts the part of `x` that is orthogonal to the blocks behind them, as orthonormal columns; what makes that part of them
/// again. Beside rounding, only the last block holds any of the rest.
fn append<T: Real>(blocks: &mut Vec<Dense<T>>, x: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    let last = &blocks[blocks.len().saturating_sub(1)..];
    let first = orthonormal(&outside(last, x, stop), stop)?;
    // Where little was left, rounding was large beside it.
    let again = orthonormal(&outside(blocks, &first.q, stop), stop)?;
    blocks.push(again.q);
    Ok(product(&again.r, &first.r, stop))
}

/// Thin factors by Cholesky's of the Gram matrix, where columns are not near to depending on one another: what that
/// loses of their being orthogonal is made up for when it is done again. Else by reflections.
fn orthonormal<T: Real>(x: &Dense<T>, stop: Stop<'_>) -> Result<Qr<T>> {
    let by_gram = || {
        let l = cholesky(&gram(x, stop), stop).ok()?;
        let pivots = (0..l.shape().rows).map(|i| l.row(i)[i].to_f64());
        let (least, most) = pivots.fold((f64::INFINITY, 0.0f64), |(least, most), pivot| {
            (least.min(pivot), most.max(pivot))
        });
        let is_safe = least >= PIVOT_UNITS * T::EPSILON.to_f64().sqrt() * most;
        let inverse = is_safe.then(|| inverse_of_triangle(&l, Triangle::Lower, stop).ok())??;
        Some(Qr { q: outer(x, &inverse, stop), r: transpose(&l) })
    };
    by_gram().map_or_else(|| qr(x, stop), Ok)
}

/// The part of `x` that is orthogonal to the blocks.
fn outside<T: Real>(blocks: &[Dense<T>], x: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    let shape = x.shape();
    let mut cells = CellBuffer::arbitrary(shape.cells());
    cells.copy_from_slice(x.cells());
    for block in blocks {
        let within = cross(block, x, stop);
        let (out, grain) = (view_mut(&mut cells, shape), Grain::product(stop));
        multiply(out, Accum::Add, view(block), view(&within), -T::ONE, grain);
    }
    dense(shape, cells)
}

/// The cells of the blocks beside one another, as many as `p` has rows for, times `p`.
fn combined<T: Real>(blocks: &[Dense<T>], p: &Dense<T>, stop: Stop<'_>) -> CellBuffer<T> {
    let shape = Shape::new(blocks[0].shape().rows, p.shape().columns);
    let mut cells = CellBuffer::zeroed(shape.cells());
    let mut first = 0;
    for block in blocks.iter().take_while(|_| !stop.is_asked()) {
        let end = first + block.shape().columns;
        if end > p.shape().rows {
            break;
        }
        let (out, grain) = (view_mut(&mut cells, shape), Grain::product(stop));
        multiply(out, Accum::Add, view(block), view(&p.rows(first..end)), T::ONE, grain);
        first = end;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::svd;
    use super::*;
    use crate::matrix::tier::testing::on_disk;

    /// m×n, of random directions, with these singular values and no others.
    fn of_values<T: Real>(m: usize, n: usize, values: &[f64]) -> Dense<T> {
        let mut rng = rng(5);
        let mut directions =
            |rows| qr(&random(&mut rng, rows, values.len()), Stop::NEVER).unwrap().q;
        let (u, v): (Dense<f64>, Dense<f64>) = (directions(m), directions(n));
        let scaled = build(m, values.len(), |i, j| u.row(i)[j] * values[j]);
        let cells = product(&scaled, &transpose(&v), Stop::NEVER);
        dense(cells.shape(), cells.cells().iter().map(|&x| T::from_f64(x)).collect::<Vec<T>>())
    }

    fn check<T: Real>(a: &Storage<T>, values: &[f64], tolerance: f64) {
        let found = leading(a, values.len(), Stop::NEVER).unwrap().expect("falls off");
        for (s, &value) in found.s.cells().iter().zip(values) {
            assert!((s.to_f64() - value).abs() <= tolerance * values[0], "{s:?} {value}");
        }
        assert!(Map::of(a, Stop::NEVER).has(&found, Stop::NEVER));
        for j in 0..values.len() {
            let column = (0..found.u.shape().rows).map(|i| found.u.row(i)[j].to_f64());
            let most = column.fold(0.0, |most: f64, x| if x.abs() > most.abs() { x } else { most });
            assert!(most > 0.0, "its sign is fixed");
        }
    }

    #[test]
    fn the_first_values_of_dense_matrices_are_found() {
        let fall_off: Vec<f64> = (0..60).map(|i| 3.0 * 0.8f64.powi(i)).collect();
        for (m, n) in [(700, 500), (500, 700), (2000, 400)] {
            check(&Storage::Dense(of_values::<f64>(m, n, &fall_off)), &fall_off[..4], 1e-13);
            check(&Storage::Dense(of_values::<f32>(m, n, &fall_off)), &fall_off[..4], 1e-5);
        }
        // Equal ones are as many as they are, and a rank below what is asked for leaves zeros.
        let equal = [2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0];
        check(&Storage::Dense(of_values::<f64>(600, 600, &equal)), &equal[..7], 1e-13);
        check(&Storage::Dense(of_values::<f64>(600, 600, &[5.0, 1.0])), &[5.0, 1.0, 0.0], 1e-13);
        check(&Storage::Dense(build(400, 400, |_, _| 0.0)), &[0.0, 0.0], 0.0);
    }

    #[test]
    fn sparse_ones_stay_sparse() {
        // Far too large to be filled up.
        let side = 60_000;
        let value = |i: usize| if i < 20 { 0.7f64.powi(i as i32) } else { 1e-4 };
        let values: Vec<f64> = (0..side).map(|i| value((i * 7919 + 13) % side)).collect();
        let expected: Vec<f64> = (0..5).map(value).collect();
        check(&Storage::Csr(sparse::diagonal_matrix(&values)), &expected, 1e-13);
    }

    #[test]
    fn what_is_small_or_extreme_is_left_to_others() {
        let of = |cell: fn(usize, usize) -> f64, count| {
            leading(&Storage::Dense(build(400, 400, cell)), count, Stop::NEVER)
        };
        let one = |i: usize, j: usize| f64::from(u8::from(i == j));
        assert!(of(one, 4).unwrap().is_some());
        assert!(of(one, 5).unwrap().is_none() && of(one, 0).unwrap().is_none());
        assert!(of(one, usize::MAX).unwrap().is_none());
        assert!(of(|_, _| 1e200, 1).unwrap().is_none() && of(|_, _| 1e-200, 1).unwrap().is_none());
        let spoiled = of(|i, j| if (i, j) == (399, 3) { f64::NAN } else { 1.0 }, 1);
        assert!(spoiled.unwrap_err().to_string().contains("finite"));
    }

    #[test]
    fn a_matrix_in_a_file_has_the_same_ones() {
        let values: Vec<f64> = (0..40).map(|i| 0.6f64.powi(i)).collect();
        let a = of_values::<f64>(1300, 1200, &values);
        let expected = svd(&a, Some(3), Stop::NEVER).unwrap();
        on_disk(8 << 20, |put| {
            let x = put(&a);
            assert!(!memory::has_room(3 * size_of_val(x.cells())));
            let found = leading(&Storage::Dense(x), 3, Stop::NEVER).unwrap().unwrap();
            assert_close(&found.s, &expected.s, 100.0);
            assert_close(&found.u, &expected.u, 1000.0);
            assert_close(&found.vt, &expected.vt, 1000.0);
        });
    }

    #[test]
    fn without_room_for_all_values_nobody_falls_back_to_them() {
        let value = |i: usize| 2.0 - i as f64 / 460.0;
        let a = build(460, 460, |i, j| if i == j { value(i) } else { 0.0 });
        let expected: Vec<f64> = (0..6).map(value).collect();
        on_disk(8 << 20, |put| {
            let x = Storage::Dense(put(&a));
            check(&x, &expected, 1e-13);
            let error = within(&x, 6, 3, Stop::NEVER).unwrap_err();
            assert!(error.to_string().contains("memory_limit"), "{error}");
        });
        assert!(within(&Storage::Dense(a), 6, 3, Stop::NEVER).unwrap().is_none());
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        let values: Vec<f64> = (0..40).map(|i| 0.6f64.powi(i)).collect();
        let a = Storage::Dense(of_values::<f64>(600, 500, &values));
        same_bits(|| {
            let Svd { u, s, vt } = leading(&a, 3, Stop::NEVER).unwrap().unwrap();
            [u.cells(), s.cells(), vt.cells()].concat()
        });
    }
}
