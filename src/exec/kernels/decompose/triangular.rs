//! Triangular systems with any number of right-hand sides.
//!
//! The side is halved: solve for one half, take its part out of the other by a product, solve that. So
//! most of the work is in products, which run in parallel; what is left goes by columns of the right side.

use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_unit_lower_triangular_in_place,
    solve_unit_upper_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, MatMut, MatRef, Par};

use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop};

/// Which triangle of a matrix is meant, its diagonal with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Triangle {
    /// On and below the diagonal.
    Lower,
    /// On and above it.
    Upper,
}

impl Triangle {
    /// That of the transpose.
    pub(super) fn transposed(self) -> Self {
        match self {
            Triangle::Lower => Triangle::Upper,
            Triangle::Upper => Triangle::Lower,
        }
    }
}

/// What stands on the diagonal of a triangle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Diagonal {
    /// What is stored there.
    Stored,
    /// Ones, whatever is stored there.
    Ones,
}

/// Side below which nothing is gained by a product.
const BLOCK: usize = 256;

/// `b = a⁻¹·b`, where only this triangle of `a` is read.
pub(super) fn solve_triangular<T: Real>(
    a: MatRef<'_, T>,
    triangle: Triangle,
    diagonal: Diagonal,
    mut b: MatMut<'_, T>,
    stop: Stop<'_>,
) {
    let n = a.nrows();
    if n == 0 || b.ncols() == 0 || stop.is_asked() {
        return;
    }
    if n <= BLOCK {
        return by_right_sides(b, (triangle, diagonal), a);
    }
    let half = (n / 2).next_multiple_of(BLOCK / 2).min(n - 1);
    let (upper_left, upper_right, lower_left, lower_right) = a.split_at(half, half);
    let (mut top, mut bottom) = b.rb_mut().split_at_row_mut(half);
    let grain = Grain::factor(stop);
    if triangle == Triangle::Upper {
        solve_triangular(lower_right, triangle, diagonal, bottom.rb_mut(), stop);
        multiply(top.rb_mut(), Accum::Add, upper_right, bottom.rb(), -T::ONE, grain);
        solve_triangular(upper_left, triangle, diagonal, top, stop);
    } else {
        solve_triangular(upper_left, triangle, diagonal, top.rb_mut(), stop);
        multiply(bottom.rb_mut(), Accum::Add, lower_left, top.rb(), -T::ONE, grain);
        solve_triangular(lower_right, triangle, diagonal, bottom, stop);
    }
}

/// Halves the right-hand sides until some are worth a task.
fn by_right_sides<T: Real>(b: MatMut<'_, T>, of: (Triangle, Diagonal), a: MatRef<'_, T>) {
    if b.ncols() >= 128 {
        let half = (b.ncols() / 2).next_multiple_of(16);
        let (left, right) = b.split_at_col_mut(half);
        rayon::join(|| by_right_sides(left, of, a), || by_right_sides(right, of, a));
        return;
    }
    match of {
        (Triangle::Lower, Diagonal::Stored) => solve_lower_triangular_in_place(a, b, Par::Seq),
        (Triangle::Lower, Diagonal::Ones) => solve_unit_lower_triangular_in_place(a, b, Par::Seq),
        (Triangle::Upper, Diagonal::Stored) => solve_upper_triangular_in_place(a, b, Par::Seq),
        (Triangle::Upper, Diagonal::Ones) => solve_unit_upper_triangular_in_place(a, b, Par::Seq),
    }
}
