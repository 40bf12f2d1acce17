//! The principal square root of a quasi-triangular matrix.
//!
//! ```text
//! | r x |²   | t c |
//! | 0 s |  = | 0 u |       r² = t,  s² = u,  r·x + x·s = c
//! ```
//!
//! Both the root and the equation for what is beside two of them are halved until a part is small.
//!
//! Source: Higham, *Functions of Matrices*, 2008, §6.2; Deadman, Higham and Ralha, *Blocked Schur
//! algorithms for computing the matrix square root*, 2013; Jonsson and Kågström, *ACM Trans. Math.
//! Software* 28 (2002), 392–415.

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatMut, MatRef};

use super::super::super::gemm::{Grain, multiply};
use super::super::super::{Real, Stop};
use super::super::columns::{add_columns, column_mut};
use super::super::schur::solve_sylvester;
use super::quasi::{SMALL, middle, set_diagonal, value};

/// The root of `t`, whose blocks begin at `starts`, none with an eigenvalue that is 0 or negative.
pub(super) fn root<T: Real>(t: MatRef<'_, T>, starts: &[usize], stop: Stop<'_>) -> Mat<T> {
    let mut root = t.to_owned();
    set_diagonal(root.as_mut(), t, starts, |block| {
        value(t, starts[block], starts[block + 1]).root()
    });
    fill(root.as_mut(), starts, stop);
    root
}

/// Replaces what is beside the blocks, which are roots, by the root's cells.
fn fill<T: Real>(r: MatMut<'_, T>, starts: &[usize], stop: Stop<'_>) {
    if starts.len() <= 2 {
        return;
    }
    let at = middle(starts);
    let cut = starts[at] - starts[0];
    let (mut first, beside, _, mut last) = r.split_at_mut(cut, cut);
    let (before, behind) = (&starts[..=at], &starts[at..]);
    rayon::join(|| fill(first.rb_mut(), before, stop), || fill(last.rb_mut(), behind, stop));
    sylvester(first.rb(), last.rb(), beside, [before, behind], stop);
}

/// `x` of `a·x + x·b = c`, in place of `c`; the blocks of `a` and those of `b` begin at `starts`.
fn sylvester<T: Real>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: MatMut<'_, T>,
    starts: [&[usize]; 2],
    stop: Stop<'_>,
) {
    let [rows, columns] = starts;
    if stop.is_asked() {
        return;
    }
    if a.nrows() <= SMALL && b.nrows() <= SMALL {
        return sylvester_small(a, b, c, starts);
    }
    if a.nrows() >= b.nrows() {
        let at = middle(rows);
        let cut = rows[at] - rows[0];
        let (a_first, a_beside, _, a_last) = a.split_at(cut, cut);
        let (mut top, mut bottom) = c.split_at_row_mut(cut);
        sylvester(a_last, b, bottom.rb_mut(), [&rows[at..], columns], stop);
        multiply(top.rb_mut(), Accum::Add, a_beside, bottom.rb(), -T::ONE, Grain::factor(stop));
        sylvester(a_first, b, top, [&rows[..=at], columns], stop);
    } else {
        let at = middle(columns);
        let cut = columns[at] - columns[0];
        let (b_first, b_beside, _, b_last) = b.split_at(cut, cut);
        let (mut left, mut right) = c.split_at_col_mut(cut);
        sylvester(a, b_first, left.rb_mut(), [rows, &columns[..=at]], stop);
        multiply(right.rb_mut(), Accum::Add, left.rb(), b_beside, -T::ONE, Grain::factor(stop));
        sylvester(a, b_last, right, [rows, &columns[at..]], stop);
    }
}

/// Block by block: columns from the first, rows from the last.
fn sylvester_small<T: Real>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    mut c: MatMut<'_, T>,
    [rows, columns]: [&[usize]; 2],
) {
    for block in columns.windows(2) {
        let (left, width) = (block[0] - columns[0], block[1] - block[0]);
        let (known, mut found) = c.rb_mut().split_at_col_mut(left);
        let known = known.rb();
        for k in 0..width {
            let mut weights = [T::ZERO; SMALL];
            (0..left).for_each(|l| weights[l] = b[(l, left + k)]);
            add_columns(column_mut(found.rb_mut(), k), known, &weights[..left], -T::ONE);
        }
        for block in rows.windows(2).rev() {
            let (top, height) = (block[0] - rows[0], block[1] - block[0]);
            if height == 1 && width == 1 {
                found[(top, 0)] /= a[(top, top)] + b[(left, left)];
            } else {
                let (a, b) =
                    (a.submatrix(top, top, height, height), b.submatrix(left, left, width, width));
                solve_sylvester(a, b, found.rb_mut().submatrix_mut(top, 0, height, width));
            }
            for k in 0..width {
                let (above, here) = column_mut(found.rb_mut(), k).split_at_mut(top);
                let a = a.submatrix(0, top, top, height);
                add_columns(above, a, &here[..height], -T::ONE);
            }
        }
    }
}
