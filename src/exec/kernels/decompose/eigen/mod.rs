//! Eigenvalues of any square matrix, and their vectors.
//!
//! ```text
//! balance      rows and columns are permuted and scaled                       balance
//! reduce       the real Schur form holds the values on its diagonal           ../schur
//! substitute   vectors of the quasi-triangular factor, times the orthogonal   vectors
//! ```
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §7.5 and §7.6.

mod balance;
mod vectors;

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{ColMut, ColRef, Mat};
use rayon::prelude::*;

use super::super::{Real, Stop, dense, view};
use super::schur::{Pair, Schur, Value, blocks};
use super::spectral::{Eigh, eigh};
use super::{Unfinished, by_columns, by_rows, check_finite, negate, scale_to_one, side};
use crate::error::Result;
use crate::matrix::{CellBuffer, Dense};
use balance::Balance;
use vectors::vectors;

/// The eigenvalues and vectors of a square matrix: `a·vectors = vectors·diag(values)`, in complex numbers.
#[derive(Debug, Clone)]
pub struct Eig<T: Real> {
    /// Real parts of the eigenvalues, ascending, as a column.
    pub values_re: Dense<T>,
    /// Imaginary parts. Of a conjugate pair, whose values are neighbours, the positive one comes first; pairs
    /// with one real part ascend by it.
    pub values_im: Dense<T>,
    /// Real parts of the vectors, as columns in the order of the values.
    pub vectors_re: Dense<T>,
    /// Imaginary parts. Each vector has a 2-norm of one, and its first entry of largest magnitude is real and
    /// positive.
    pub vectors_im: Dense<T>,
}

/// The eigenvalues of a square matrix with their vectors.
///
/// - Shapes: `a` n×n; values n×1, vectors n×n.
/// - Work: some 25n³ flop.
/// - Symmetric matrices go the way of [`eigh`], which keeps their vectors orthonormal.
/// - Order: by ascending real part, as those of [`eigh`] are; pairs of equal ones by the magnitude of
///   the imaginary part.
/// - Accuracy: backward stable. Vectors of values that are nearly equal, as those of a defective matrix, may be
///   nearly parallel.
/// - Errors: a cell that is not finite; no convergence, which has not been seen of finite cells.
///
/// # Panics
/// Unless `a` is square.
pub fn eig<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Eig<T>> {
    side(a);
    check_finite("eig", a)?;
    if a.is_symmetric() {
        let Eigh { values, vectors } = eigh(a, None, stop)?;
        let zeros = |of: &Dense<T>| dense(of.shape(), CellBuffer::zeroed(of.shape().cells()));
        let (values_im, vectors_im) = (zeros(&values), zeros(&vectors));
        return Ok(Eig { values_re: values, values_im, vectors_re: vectors, vectors_im });
    }
    let mut cells = by_columns(view(a));
    let scale = scale_to_one(cells.as_mut());
    let spectrum = Spectrum::of(cells, stop).map_err(|why| why.error("eig", a.shape()))?;
    stop.check()?;
    Ok(spectrum.sorted(scale))
}

/// What another has found of a matrix that is not symmetric, in this order and with vectors of this kind: real parts of values and the imaginary
/// ones, of a pair the positive one first, and `vectors` as rows, of a pair the two parts of its first. None where that is not what they are.
pub(crate) fn arranged<T: Real>(re: &[f64], im: &[f64], vectors: &Dense<T>) -> Option<Eig<T>> {
    let n = re.len();
    let (mut starts, mut values, mut at) = (Vec::with_capacity(n + 1), Vec::with_capacity(n), 0);
    while at < n {
        starts.push(at);
        values.push(Value { re: re[at], im: im[at] });
        let is_pair = im[at] != 0.0;
        if is_pair && !(im[at] > 0.0 && im.get(at + 1) == Some(&-im[at])) {
            return None;
        }
        at += 1 + usize::from(is_pair);
    }
    starts.push(n);
    let vectors = Mat::from_fn(n, n, |i, j| vectors.row(j)[i]);
    Some(Spectrum { blocks: starts, values, vectors }.sorted(T::ONE))
}

/// Values and vectors as the Schur form has them.
struct Spectrum<T> {
    /// Where each value, or pair, begins.
    blocks: Vec<usize>,
    values: Vec<Value>,
    /// Of a pair, the real and the imaginary part of the first vector.
    vectors: Mat<T>,
}

impl<T: Real> Spectrum<T> {
    fn of(mut a: Mat<T>, stop: Stop<'_>) -> Result<Self, Unfinished> {
        let balance = Balance::of(a.as_mut(), stop)?;
        let schur = Schur::of(a, stop)?;
        let t = schur.t.as_ref();
        let blocks = blocks(t);
        let value = |block: &[usize]| {
            let i = block[0];
            if block[1] - i == 1 {
                return Value { re: t[(i, i)].to_f64(), im: 0.0 };
            }
            Pair::new(t[(i, i)], t[(i, i + 1)], t[(i + 1, i)], t[(i + 1, i + 1)]).values()[0]
        };
        let values = blocks.windows(2).map(value).collect();
        let mut vectors = vectors(&schur, stop);
        Unfinished::check(stop)?;
        balance.undo(vectors.as_mut());
        Ok(Self { blocks, values, vectors })
    }

    /// In order, each vector normalized; the values times `scale`.
    fn sorted(self, scale: T) -> Eig<T> {
        let n = self.vectors.nrows();
        let mut order: Vec<usize> = (0..self.values.len()).collect();
        let key = |at: &usize| (self.values[*at].re, self.values[*at].im);
        order.sort_by(|x, y| {
            let ((x_re, x_im), (y_re, y_im)) = (key(x), key(y));
            x_re.total_cmp(&y_re).then(x_im.total_cmp(&y_im))
        });
        let (mut values_re, mut values_im) = (Mat::zeros(n, 1), Mat::zeros(n, 1));
        let (mut vectors_re, mut vectors_im) = (Mat::zeros(n, n), Mat::zeros(n, n));
        let mut jobs = Vec::new();
        let (mut rest_re, mut rest_im) = (vectors_re.as_mut(), vectors_im.as_mut());
        let mut to = 0;
        for at in order {
            let (from, width) = (self.blocks[at], self.blocks[at + 1] - self.blocks[at]);
            let Value { re, im } = self.values[at];
            for (k, im) in [im, -im].into_iter().take(width).enumerate() {
                values_re[(to + k, 0)] = T::from_f64(re) * scale;
                values_im[(to + k, 0)] = T::from_f64(im) * scale;
            }
            to += width;
            let (re, beyond_re) = rest_re.split_at_col_mut(width);
            let (im, beyond_im) = rest_im.split_at_col_mut(width);
            (rest_re, rest_im) = (beyond_re, beyond_im);
            jobs.push((from, re, im));
        }
        let vectors = self.vectors.as_ref();
        jobs.into_par_iter().for_each(|(from, mut re, mut im)| {
            re.rb_mut().col_mut(0).copy_from(vectors.col(from));
            if re.ncols() == 1 {
                return normalize(re.col_mut(0));
            }
            im.rb_mut().col_mut(0).copy_from(vectors.col(from + 1));
            normalize_pair(re.rb_mut().col_mut(0), im.rb_mut().col_mut(0));
            let (first, mut second) = re.split_at_col_mut(1);
            second.copy_from(first);
            let (first, mut second) = im.split_at_col_mut(1);
            second.copy_from(first);
            negate(second.col_mut(0));
        });
        Eig {
            values_re: by_rows(values_re.as_ref()),
            values_im: by_rows(values_im.as_ref()),
            vectors_re: by_rows(vectors_re.as_ref()),
            vectors_im: by_rows(vectors_im.as_ref()),
        }
    }
}

/// Scales to a norm of one, the first entry of largest magnitude positive.
fn normalize<T: Real>(mut x: ColMut<'_, T>) {
    let larger = |most: T, &x: &T| if x.abs() > most.abs() { x } else { most };
    let most = x.rb_mut().iter().fold(T::ZERO, larger);
    x.rb_mut().iter_mut().for_each(|x| *x /= most);
    let norm = T::from_f64(squares(x.as_ref()).sqrt());
    x.iter_mut().for_each(|x| *x /= norm);
}

/// The same of a complex vector, whose entry of largest magnitude becomes real.
fn normalize_pair<T: Real>(mut re: ColMut<'_, T>, mut im: ColMut<'_, T>) {
    let most = largest(re.rb()).max(largest(im.rb()));
    let square = |re: T, im: T| (re.to_f64() / most).powi(2) + (im.to_f64() / most).powi(2);
    let sizes = re.rb().iter().zip(im.rb().iter()).map(|(&re, &im)| square(re, im));
    let (at, square) = sizes
        .enumerate()
        .fold((0, 0.0), |best, (at, size)| if size > best.1 { (at, size) } else { best });
    let size = most * square.sqrt();
    let (cos, sin) = (re[at].to_f64() / size, im[at].to_f64() / size);
    for (re, im) in re.rb_mut().iter_mut().zip(im.rb_mut().iter_mut()) {
        let (x, y) = (re.to_f64() / most, im.to_f64() / most);
        (*re, *im) = (T::from_f64(x * cos + y * sin), T::from_f64(y * cos - x * sin));
    }
    im[at] = T::ZERO;
    let norm = T::from_f64((squares(re.as_ref()) + squares(im.as_ref())).sqrt());
    re.iter_mut().for_each(|x| *x /= norm);
    im.iter_mut().for_each(|x| *x /= norm);
}

fn largest<T: Real>(x: ColRef<'_, T>) -> f64 {
    x.iter().fold(0.0, |most: f64, x| most.max(x.to_f64().abs()))
}

fn squares<T: Real>(x: ColRef<'_, T>) -> f64 {
    x.iter().map(|x| x.to_f64() * x.to_f64()).sum()
}

#[cfg(test)]
mod tests;
