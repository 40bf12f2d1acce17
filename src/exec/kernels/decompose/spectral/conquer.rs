//! The merge of divide and conquer: what two solved halves make with the row or the link between
//! them.
//!
//! ```text
//! eigenvalues       diag(p) + z·t(z)                 of the halves' values p
//! singular values   diag(p), its first row z         p of the first row 0
//! ```
//!
//! What is already decoupled, or becomes so by one rotation, to working precision, is taken out (it
//! deflates); the rest is a secular equation. Its vectors are in terms of the vectors of the
//! halves, and the two products that bring these together are nearly all of the work. Columns are
//! grouped by the half they have cells in, so that zeros are not multiplied.
//!
//! Source: Cuppen, *A divide and conquer method for the symmetric tridiagonal eigenproblem*, 1981;
//! Gu and Eisenstat, *A divide-and-conquer algorithm for the bidiagonal SVD*, 1995; Golub and Van
//! Loan, *Matrix Computations*, 4th ed., §8.3.3 and §8.6.3.

use std::ops::Range;

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatMut, MatRef};

use super::super::super::arch::Arch;
use super::super::super::gemm::{Grain, multiply};
use super::super::super::{Real, Stop};
use super::secular::{Root, Secular, in_parallel};
use super::{gather, sorted};

/// Where a column of a basis has cells that are not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Half {
    Top,
    Both,
    Bottom,
}

/// The problem between two halves.
pub(super) struct Merge<'a> {
    /// The halves' values, each that of one column; the new ones afterwards, in any order.
    pub(super) values: &'a mut [f64],
    pub(super) z: Vec<f64>,
    pub(super) halves: Vec<Half>,
    /// Beside singular values: the column of the row z, whose value is zero.
    pub(super) row: Option<usize>,
    /// Below which a coupling is nothing.
    pub(super) tolerance: f64,
    /// How many of the largest values need their vectors.
    pub(super) wanted: usize,
}

/// An orthogonal matrix whose columns belong to the values, its upper half this tall.
pub(super) struct Basis<'a, T> {
    pub(super) cells: MatMut<'a, T>,
    pub(super) top: usize,
}

impl Merge<'_> {
    /// Solves it: the values are replaced, and the columns of the bases with them. Of singular
    /// values, the bases are those on the left and on the right.
    pub(super) fn run<T: Real, const SQUARED: bool>(
        mut self,
        bases: &mut [Basis<'_, T>],
        stop: Stop<'_>,
    ) {
        let (mut kept, deflated) = self.deflate(bases);
        let poles: Vec<f64> = kept.iter().map(|&c| self.values[c]).collect();
        let z: Vec<f64> = kept.iter().map(|&c| self.z[c]).collect();
        let arch = Arch::up_to_256_bits();
        let secular = Secular::<SQUARED> { arch, poles: &poles, z: &z };
        let roots = secular.roots(stop);
        let z = secular.exact_z(&roots, stop);
        let mut values: Vec<f64> = roots.iter().map(|root| root.value()).collect();
        values.extend(deflated.iter().map(|&c| self.values[c]));
        let first = first_wanted(&values, roots.len(), self.wanted);

        let mut places: Vec<usize> = (0..kept.len()).collect();
        places.sort_by_key(|&i| self.halves[kept[i]]);
        kept = places.iter().map(|&i| kept[i]).collect();
        let count = |half| kept.iter().filter(|&&c| self.halves[c] == half).count();
        let columns = Columns {
            above: 0..count(Half::Top) + count(Half::Both),
            below: count(Half::Top)..kept.len(),
            kept,
            deflated,
            first,
        };
        for (side, basis) in bases.iter_mut().enumerate() {
            let vectors = vectors::<T, SQUARED>(&secular, &z, &roots[first..], &places, side, stop);
            if stop.is_asked() {
                return;
            }
            basis.replace(&columns, &vectors, stop);
        }
        self.values.copy_from_slice(&values);
    }

    /// The columns that stay coupled, by ascending values, and the others.
    fn deflate<T: Real>(&mut self, bases: &mut [Basis<'_, T>]) -> (Vec<usize>, Vec<usize>) {
        let (mut kept, mut deflated) = (Vec::new(), Vec::new());
        let mut pending = None;
        let weight = match self.row {
            Some(_) => 1.0,
            None => self.z.iter().map(|z| z * z).sum::<f64>().sqrt(),
        };
        if let Some(row) = self.row {
            kept.push(row);
        }
        for column in sorted(self.values) {
            if self.row == Some(column) {
                continue;
            }
            if self.z[column].abs() * weight <= self.tolerance {
                deflated.push(column);
                continue;
            }
            if let Some(before) = pending.replace(column) {
                if self.rotate(before, column, bases) {
                    deflated.push(before);
                } else {
                    kept.push(before);
                }
            }
        }
        kept.extend(pending);
        if let (Some(row), Some(&second)) = (self.row, kept.get(1)) {
            if self.z[row].abs() <= self.tolerance {
                self.z[row] = self.tolerance;
            }
            self.values[second] = self.values[second].max(self.tolerance / 2.0);
        }
        (kept, deflated)
    }

    /// Turns two columns so that the first decouples, if what this leaves off the diagonal is
    /// nothing.
    fn rotate<T: Real>(&mut self, i: usize, j: usize, bases: &mut [Basis<'_, T>]) -> bool {
        let length = self.z[i].hypot(self.z[j]);
        let (cos, sin) = (self.z[j] / length, self.z[i] / length);
        let (p, q) = (self.values[i], self.values[j]);
        if ((q - p) * cos * sin).abs() > self.tolerance {
            return false;
        }
        (self.z[i], self.z[j]) = (0.0, length);
        self.values[i] = p * cos * cos + q * sin * sin;
        self.values[j] = p * sin * sin + q * cos * cos;
        if self.halves[i] != self.halves[j] {
            (self.halves[i], self.halves[j]) = (Half::Both, Half::Both);
        }
        for basis in bases {
            rotate_columns(basis.cells.rb_mut(), i, j, cos, -sin);
        }
        true
    }
}

/// The first of the ascending values of `roots` that is among the largest `wanted` of all.
fn first_wanted(values: &[f64], roots: usize, wanted: usize) -> usize {
    let order = sorted(values);
    let least = values[order[order.len() - wanted.clamp(1, order.len())]];
    values[..roots].partition_point(|&value| value < least)
}

/// What happens to the columns of a basis.
struct Columns {
    /// Those that combine, by the half they have cells in; and which of them have cells above, and
    /// below.
    kept: Vec<usize>,
    above: Range<usize>,
    below: Range<usize>,
    /// Those that stay, behind the others.
    deflated: Vec<usize>,
    /// The first new one that is wanted.
    first: usize,
}

impl<T: Real> Basis<'_, T> {
    /// Combines columns by `vectors`, which has one row for each of them.
    fn replace(&mut self, columns: &Columns, vectors: &[T], stop: Stop<'_>) {
        let (k, first) = (columns.kept.len(), columns.first);
        let vectors = MatRef::from_column_major_slice(vectors, k, k - first);
        let (upper, lower) = self.cells.rb_mut().split_at_row_mut(self.top);
        for (mut half, rows) in [(upper, &columns.above), (lower, &columns.below)] {
            let packed = gathered(half.rb(), &columns.kept[rows.clone()]);
            let deflated = gathered(half.rb(), &columns.deflated);
            let vectors = vectors.subrows(rows.start, rows.len());
            let to = half.rb_mut().subcols_mut(first, k - first);
            multiply(to, Accum::Replace, packed.as_ref(), vectors, T::ONE, Grain::factor(stop));
            half.subcols_mut(k, columns.deflated.len()).copy_from(deflated);
        }
    }
}

/// `(xᵢ, xⱼ) = (cos·xᵢ + sin·xⱼ, cos·xⱼ - sin·xᵢ)`, by columns.
pub(super) fn rotate_columns<T: Real>(
    mut x: MatMut<'_, T>,
    i: usize,
    j: usize,
    cos: f64,
    sin: f64,
) {
    let (cos, sin) = (T::from_f64(cos), T::from_f64(sin));
    for row in 0..x.nrows() {
        let (p, q) = (x[(row, i)], x[(row, j)]);
        x[(row, i)] = cos * p + sin * q;
        x[(row, j)] = cos * q - sin * p;
    }
}

/// The unit vectors of some roots as columns, their rows in the order of `places`.
fn vectors<T: Real, const SQUARED: bool>(
    secular: &Secular<'_, SQUARED>,
    z: &[f64],
    roots: &[Root],
    places: &[usize],
    side: usize,
    stop: Stop<'_>,
) -> Vec<T> {
    let k = z.len();
    let mut cells = vec![T::ZERO; k * roots.len()];
    in_parallel(&mut cells, k.max(1), stop, |j, cells| {
        let mut terms = vec![0.0; k];
        secular.vector(z, roots[j], &mut terms);
        if SQUARED && side == 0 {
            terms.iter_mut().zip(secular.poles).for_each(|(term, pole)| *term *= pole);
            terms[0] = -1.0;
        }
        let norm = terms.iter().map(|x| x * x).sum::<f64>().sqrt();
        for (cell, &place) in cells.iter_mut().zip(places) {
            *cell = T::from_f64(terms[place] / norm);
        }
    });
    cells
}

/// These columns beside each other.
fn gathered<T: Real>(x: MatRef<'_, T>, columns: &[usize]) -> Mat<T> {
    let mut packed = Mat::zeros(x.nrows(), columns.len());
    gather(packed.as_mut(), x, columns);
    packed
}
