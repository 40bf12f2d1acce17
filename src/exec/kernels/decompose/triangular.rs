//! Triangular systems with any number of right-hand sides.
//!
//! The side is halved: solve for one half, take its part out of the other by a product, solve that. So
//! most of the work is in products, which run in parallel; what is left goes by columns of the right side.

use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_unit_lower_triangular_in_place,
    solve_upper_triangular_in_place,
};
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, MatMut, MatRef, Par};

use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop};

/// Which triangle of a matrix is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Triangle {
    Lower,
    /// With ones on the diagonal, whatever is stored there.
    UnitLower,
    Upper,
}

/// Side below which nothing is gained by a product.
const BLOCK: usize = 256;

/// `b = a⁻¹·b`, where only this triangle of `a` is read.
pub(super) fn solve_triangular<T: Real>(
    a: MatRef<'_, T>,
    triangle: Triangle,
    mut b: MatMut<'_, T>,
    stop: Stop<'_>,
) {
    let n = a.nrows();
    if n == 0 || b.ncols() == 0 || stop.is_asked() {
        return;
    }
    if n <= BLOCK || b.ncols() == 1 {
        return by_right_sides(b, triangle, a);
    }
    let half = (n / 2).next_multiple_of(BLOCK / 2).min(n - 1);
    let (upper_left, upper_right, lower_left, lower_right) = a.split_at(half, half);
    let (mut top, mut bottom) = b.rb_mut().split_at_row_mut(half);
    let grain = Grain::factor(stop);
    if triangle == Triangle::Upper {
        solve_triangular(lower_right, triangle, bottom.rb_mut(), stop);
        multiply(top.rb_mut(), Accum::Add, upper_right, bottom.rb(), -T::ONE, grain);
        solve_triangular(upper_left, triangle, top, stop);
    } else {
        solve_triangular(upper_left, triangle, top.rb_mut(), stop);
        multiply(bottom.rb_mut(), Accum::Add, lower_left, top.rb(), -T::ONE, grain);
        solve_triangular(lower_right, triangle, bottom, stop);
    }
}

/// Halves the right-hand sides until some are worth a task.
fn by_right_sides<T: Real>(b: MatMut<'_, T>, triangle: Triangle, a: MatRef<'_, T>) {
    if b.ncols() >= 128 {
        let half = (b.ncols() / 2).next_multiple_of(16);
        let (left, right) = b.split_at_col_mut(half);
        rayon::join(|| by_right_sides(left, triangle, a), || by_right_sides(right, triangle, a));
        return;
    }
    match triangle {
        Triangle::Lower => solve_lower_triangular_in_place(a, b, Par::Seq),
        Triangle::UnitLower => solve_unit_lower_triangular_in_place(a, b, Par::Seq),
        Triangle::Upper => solve_upper_triangular_in_place(a, b, Par::Seq),
    }
}
