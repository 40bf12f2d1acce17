//! Early deflation: eigenvalues that a window at the end of a block knows already.
//!
//! ```text
//!  x x x x x x      the window is turned into Schur form; what couples it to the rows before it
//!  x x x x x x      becomes a column, the spike
//!    s t t t t
//!    s   t t t      where the last cells of the spike are nothing, the blocks beside them are split
//!    s     t t      off; the others go to the front, one by one, and are the next shifts
//!    0       t
//! ```
//!
//! Source: Braman, Byers and Mathias, *SIAM J. Matrix Anal. Appl.* 23 (2002), 948–973.

use std::ops::Range;

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{MatMut, MatRef};

use super::super::super::{Real, Stop};
use super::super::Unfinished;
use super::super::columns::{add_columns, column_mut, dots};
use super::super::reflections::reflect;
use super::window::{Shifts, Window};
use super::{least, sweep};

/// What a window has found.
pub(super) struct Deflation {
    /// Rows at the end of the block that are in Schur form now.
    pub(super) deflated: usize,
    /// The other eigenvalues of the window, in pairs, those of least magnitude last.
    pub(super) shifts: Vec<Shifts>,
}

/// Looks at a window of this width at the end of a block, and splits off what has converged.
pub(super) fn deflate<T: Real>(
    mut h: MatMut<'_, T>,
    z: MatMut<'_, T>,
    block: Range<usize>,
    width: usize,
    rounds_max: usize,
    stop: Stop<'_>,
) -> Result<Deflation, Unfinished> {
    let at = block.end - width;
    let spike = h[(at, at - 1)];
    let mut window = Window::of(h.rb().submatrix(at, at, width, width));
    let (t, u) = window.both_mut();
    sweep::iterate(t, u, rounds_max, stop)?;
    let kept = window.kept(spike, stop);
    let shifts = window.values(kept);
    if kept < width {
        window.reduce(kept, stop);
        h[(at, at - 1)] = if kept > 0 { spike * window.u[0] } else { T::ZERO };
        window.turn(h, z, at, stop);
    }
    Ok(Deflation { deflated: width - kept, shifts })
}

impl<T: Real> Window<T> {
    /// How many rows have not converged; their blocks come first then.
    fn kept(&mut self, spike: T, stop: Stop<'_>) -> usize {
        let least = least::<T>(self.side);
        let (mut first, mut kept) = (0, self.side);
        while first < kept && !stop.is_asked() {
            let last = kept - 1;
            let is_pair = last > 0 && self.cell(last, last - 1) != T::ZERO;
            let rows = if is_pair { 2 } else { 1 };
            let mut size = self.cell(last, last).abs();
            let mut tip = (spike * self.u[last * self.side]).abs();
            if is_pair {
                size += (self.cell(last, last - 1).abs()).sqrt()
                    * (self.cell(last - 1, last).abs()).sqrt();
                let other = (spike * self.u[(last - 1) * self.side]).abs();
                tip = if other > tip { other } else { tip };
            }
            if size == T::ZERO {
                size = spike.abs();
            }
            if tip <= least || tip <= T::EPSILON * size {
                kept -= rows;
            } else if self.move_up(kept - rows, first) {
                first += rows;
            } else {
                break;
            }
        }
        kept
    }

    /// The eigenvalues of the first rows in pairs, by descending magnitude.
    fn values(&self, rows: usize) -> Vec<Shifts> {
        let (mut real, mut pairs) = (Vec::new(), Vec::new());
        let mut i = 0;
        while i < rows {
            if i + 1 < rows && self.cell(i + 1, i) != T::ZERO {
                pairs.push(self.pair(i).values());
                i += 2;
            } else {
                real.push(super::Value { re: self.cell(i, i).to_f64(), im: 0.0 });
                i += 1;
            }
        }
        let size = |x: &super::Value| x.re.abs() + x.im.abs();
        real.sort_by(|x, y| size(y).total_cmp(&size(x)));
        // Without a partner the largest goes.
        let (twos, _) = real[real.len() % 2..].as_chunks::<2>();
        pairs.extend(twos);
        pairs.sort_by(|x, y| size(&y[0]).total_cmp(&size(&x[0])));
        if pairs.is_empty() { real.iter().map(|&x| [x, x]).collect() } else { pairs }
    }

    /// Brings the first rows back to Hessenberg form, with the spike as the cell before them.
    fn reduce(&mut self, rows: usize, stop: Stop<'_>) {
        if rows < 2 {
            return;
        }
        let mut v: Vec<T> = (0..rows).map(|j| self.u[j * self.side]).collect();
        let (_, scale) = reflect(&mut v);
        self.reflect(0..rows, 0, &v, scale);
        for j in 0..rows - 2 {
            if stop.is_asked() {
                return;
            }
            let column = &mut self.h[j * self.side..(j + 1) * self.side];
            let mut v = column[j + 1..rows].to_vec();
            let (rest, scale) = reflect(&mut v);
            column[j + 1..rows].fill(T::ZERO);
            column[j + 1] = rest;
            self.reflect(j + 1..rows, j + 1, &v, scale);
        }
    }

    /// A reflection of these rows, from one column on, and of these columns.
    fn reflect(&mut self, at: Range<usize>, from: usize, v: &[T], scale: T) {
        let (side, count) = (self.side, at.len());
        let (mut h, u) = self.both_mut();
        let vector = MatRef::from_column_major_slice(v, count, 1);
        let mut rows = h.rb_mut().submatrix_mut(at.start, from, count, side - from);
        let mut sums = vec![T::ZERO; side - from];
        dots(rows.rb(), v, &mut sums);
        for (j, sum) in sums.iter().enumerate() {
            add_columns(column_mut(rows.rb_mut(), j), vector, &[*sum], -scale);
        }
        let h = h.subrows_mut(0, at.end);
        for mut cells in [h.subcols_mut(at.start, count), u.subcols_mut(at.start, count)] {
            let mut product = vec![T::ZERO; cells.nrows()];
            add_columns(&mut product, cells.rb(), v, T::ONE);
            let product = MatRef::from_column_major_slice(&product, product.len(), 1);
            for (j, &weight) in v.iter().enumerate() {
                add_columns(column_mut(cells.rb_mut(), j), product, &[weight], -scale);
            }
        }
    }
}
