//! What a triangular matrix gives without being factored: solutions, its inverse, its determinant.
//!
//! Of the cells outside the triangle only that they are finite is asked. Errors are those of the same functions
//! of any matrix, for a triangle is its own factor.
//!
//! Source: Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., §8.1 and §14.2.

use faer::MatMut;
use faer::reborrow::{Reborrow, ReborrowMut};

use super::super::{Real, Stop};
use super::solve::{reciprocal_condition_of, require_regular};
use super::triangular::{Diagonal, Triangle, solve_triangular};
use super::{by_rows, check_finite, copied, dense, norm_1, side};
use crate::error::Result;
use crate::matrix::{Dense, Shape};

/// Side below which an inverse is made column by column.
const BLOCK: usize = 32;

/// Solves `a·x = b` for a triangular `a` and any number of right-hand sides.
///
/// - Work: n²k/2 multiplications for k right-hand sides, and about 5n² for the condition.
/// - Accuracy: backward stable.
/// - Errors: as [`solve`](fn@super::solve).
///
/// # Panics
/// Unless `a` is square and `b` as tall.
pub fn solve_by_substitution<T: Real>(
    a: &Dense<T>,
    triangle: Triangle,
    b: &Dense<T>,
    stop: Stop<'_>,
) -> Result<Dense<T>> {
    let n = side(a);
    assert_eq!(b.shape().rows, n, "a right-hand side is as tall as the matrix");
    let mut x = copied("solve", b)?;
    let cells = copied("solve", a)?;
    let (cells, turned) = (cells.as_ref(), triangle.transposed());
    let solve = |b: MatMut<'_, T>| solve_triangular(cells, triangle, Diagonal::Stored, b, stop);
    let solve_transposed =
        |b: MatMut<'_, T>| solve_triangular(cells.transpose(), turned, Diagonal::Stored, b, stop);
    let condition = if (0..n).all(|i| cells[(i, i)] != T::ZERO) {
        reciprocal_condition_of(n, norm_1(cells), &solve, &solve_transposed)
    } else {
        T::ZERO
    };
    stop.check()?;
    require_regular("solve", a.shape(), condition)?;
    solve(x.as_mut());
    Ok(by_rows(x.as_ref()))
}

/// The inverse of a triangular matrix, which is triangular like it.
///
/// - Work: n³/6 multiplications.
/// - Errors: as [`inverse`](super::inverse).
///
/// # Panics
/// Unless `a` is square.
pub fn inverse_of_triangle<T: Real>(
    a: &Dense<T>,
    triangle: Triangle,
    stop: Stop<'_>,
) -> Result<Dense<T>> {
    let n = side(a);
    let mut cells = copied("inv", a)?;
    for j in 0..n {
        let outside = match triangle {
            Triangle::Lower => 0..j,
            Triangle::Upper => j + 1..n,
        };
        cells.col_mut(j).subrows_mut(outside.start, outside.len()).fill(T::ZERO);
    }
    if (0..n).any(|i| cells[(i, i)] == T::ZERO) {
        require_regular("inv", a.shape(), T::ZERO)?;
    }
    let norm = norm_1(cells.as_ref());
    match triangle {
        Triangle::Lower => invert(cells.as_mut(), stop),
        Triangle::Upper => invert(cells.as_mut().transpose_mut(), stop),
    }
    stop.check()?;
    let condition = if n == 0 { T::ONE } else { T::ONE / norm / norm_1(cells.as_ref()) };
    require_regular("inv", a.shape(), condition)?;
    Ok(by_rows(cells.as_ref()))
}

/// The determinant of a triangular matrix: the product of its diagonal, 1 of an empty one.
///
/// - Errors: a cell that is not finite.
///
/// # Panics
/// Unless `a` is square.
pub fn determinant_of_triangle<T: Real>(a: &Dense<T>) -> Result<Dense<T>> {
    let n = side(a);
    check_finite("det", a)?;
    let value = (0..n).fold(T::ONE, |product, i| product * a.row(i)[i]);
    Ok(dense(Shape::new(1, 1), vec![value]))
}

/// Replaces a lower triangle by its inverse. Of halves of the side, the lower left of the inverse is
/// `-l₂₂⁻¹·l₂₁·l₁₁⁻¹`: nearly all the work is in solutions for many right-hand sides, and so in products.
fn invert<T: Real>(l: MatMut<'_, T>, stop: Stop<'_>) {
    let n = l.nrows();
    if stop.is_asked() {
        return;
    }
    if n <= BLOCK {
        return invert_block(l);
    }
    let half = (n / 2).next_multiple_of(BLOCK).min(n - 1);
    let (upper_left, _, mut lower_left, lower_right) = l.split_at_mut(half, half);
    let (turned, beside) = (upper_left.rb().transpose(), lower_left.rb_mut().transpose_mut());
    solve_triangular(turned, Triangle::Upper, Diagonal::Stored, beside, stop);
    let beside = lower_left.rb_mut();
    solve_triangular(lower_right.rb(), Triangle::Lower, Diagonal::Stored, beside, stop);
    lower_left.col_iter_mut().for_each(super::negate);
    rayon::join(|| invert(upper_left, stop), || invert(lower_right, stop));
}

/// Inverts a small block column by column: those to the right are still those of the matrix.
fn invert_block<T: Real>(mut l: MatMut<'_, T>) {
    let n = l.nrows();
    for j in 0..n {
        l[(j, j)] = T::ONE / l[(j, j)];
        for i in j + 1..n {
            let sum = (j..i).fold(T::ZERO, |sum, k| sum + l[(i, k)] * l[(k, j)]);
            l[(i, j)] = -sum / l[(i, i)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_near, norm};
    use super::super::{determinant, inverse, solve};
    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::exec::kernels::dense::product;
    use crate::exec::kernels::testing::*;

    const TRIANGLES: [Triangle; 2] = [Triangle::Lower, Triangle::Upper];

    fn is_inside(triangle: Triangle, i: usize, j: usize) -> bool {
        match triangle {
            Triangle::Lower => j <= i,
            Triangle::Upper => j >= i,
        }
    }

    /// A well conditioned triangle, with these cells outside.
    fn triangle_of<T: Real>(triangle: Triangle, n: usize, outside: f64, seed: u64) -> Dense<T> {
        let random = random::<T>(&mut rng(seed), n, n);
        build(n, n, |i, j| match (i == j, is_inside(triangle, i, j)) {
            (true, _) => T::from_f64(1.0) + random.row(i)[j].abs(),
            (_, true) => random.row(i)[j] / T::from_f64(n as f64),
            _ => T::from_f64(outside),
        })
    }

    fn a_triangle_is_solved_and_inverted<T: Real>(triangle: Triangle, n: usize, seed: u64) {
        let a = triangle_of::<T>(triangle, n, 0.0, seed);
        for k in [0, 1, 5, 200] {
            let b = random::<T>(&mut rng(seed), n, k);
            let x = solve_by_substitution(&a, triangle, &b, Stop::NEVER).unwrap();
            assert_near(&product(&a, &x, Stop::NEVER), &b, norm(&a) * norm(&x));
        }
        let inverse = inverse_of_triangle(&a, triangle, Stop::NEVER).unwrap();
        let identity = build(n, n, |i, j| if i == j { T::ONE } else { T::ZERO });
        assert_near(&product(&a, &inverse, Stop::NEVER), &identity, norm(&a) * norm(&inverse));
        let outside = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
        let mut outside = outside.filter(|&(i, j)| !is_inside(triangle, i, j));
        assert!(outside.all(|(i, j)| inverse.row(i)[j] == T::ZERO));
    }

    #[test]
    fn triangles_of_any_side_are_solved_and_inverted() {
        for triangle in TRIANGLES {
            for n in [0, 1, 2, 31, 33, 64, 257, 300] {
                a_triangle_is_solved_and_inverted::<f64>(triangle, n, n as u64);
                a_triangle_is_solved_and_inverted::<f32>(triangle, n, n as u64);
            }
        }
    }

    #[test]
    fn what_is_outside_a_triangle_is_not_read() {
        for triangle in TRIANGLES {
            let [plain, noisy] = [0.0, 1e-17].map(|x| triangle_of::<f64>(triangle, 70, x, 3));
            let b = random::<f64>(&mut rng(4), 70, 3);
            let solved = |a| solve_by_substitution(a, triangle, &b, Stop::NEVER).unwrap();
            assert_eq!(solved(&plain).cells(), solved(&noisy).cells());
            let inverted = |a| inverse_of_triangle(a, triangle, Stop::NEVER).unwrap();
            assert_eq!(inverted(&plain).cells(), inverted(&noisy).cells());
        }
    }

    #[test]
    fn a_determinant_is_the_product_of_the_diagonal() {
        for triangle in TRIANGLES {
            for n in [0, 1, 5, 40] {
                let a = triangle_of::<f64>(triangle, n, 0.0, 5);
                let [found, expected] =
                    [determinant_of_triangle(&a), determinant(&a, Stop::NEVER)].map(Result::unwrap);
                let (found, expected) = (found.cells()[0], expected.cells()[0]);
                assert!((found - expected).abs() <= 1e-13 * expected.abs(), "{found} {expected}");
            }
            let singular =
                build(3, 3, |i, j| f64::from(u8::from(i > 0 && is_inside(triangle, i, j))));
            assert_eq!(determinant_of_triangle(&singular).unwrap().cells(), [0.0]);
        }
    }

    /// Errors as the same functions of any matrix have them.
    #[test]
    fn errors_are_those_of_any_matrix() {
        for triangle in TRIANGLES {
            let a = triangle_of::<f64>(triangle, 5, 0.0, 6);
            let without =
                |at: usize| build(5, 5, |i, j| if i == at && j == at { 0.0 } else { a.row(i)[j] });
            let spoiled =
                |x: f64| build(5, 5, |i, j| if (i, j) == (2, 2) { x } else { a.row(i)[j] });
            let tiny = spoiled(1e-18);
            let cases = [without(0), without(4), spoiled(f64::NAN), spoiled(f64::INFINITY), tiny];
            let b = build(5, 1, |_, _| 1.0);
            for a in cases {
                let by_triangle = solve_by_substitution(&a, triangle, &b, Stop::NEVER).unwrap_err();
                let plain = solve(&a, &b, Stop::NEVER).unwrap_err();
                assert_same(&by_triangle, &plain);
                let by_triangle = inverse_of_triangle(&a, triangle, Stop::NEVER).unwrap_err();
                assert_same(&by_triangle, &inverse(&a, Stop::NEVER).unwrap_err());
            }
            let (nan, ones) = (spoiled(f64::NAN), build(5, 1, |_, _| f64::NAN));
            assert!(determinant_of_triangle(&nan).is_err());
            assert!(solve_by_substitution(&a, triangle, &ones, Stop::NEVER).is_err());
        }
    }

    fn assert_same(found: &Error, expected: &Error) {
        match (found.kind(), expected.kind()) {
            (
                ErrorKind::Singular { function, shape, condition },
                ErrorKind::Singular { function: name, shape: of, condition: other },
            ) => {
                assert_eq!((function, shape), (name, of));
                assert!((condition - other).abs() <= 1e-6 * other, "{condition} {other}");
            }
            _ => assert_eq!(found.to_string(), expected.to_string()),
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_threads_and_a_stop_is_heard() {
        let a = triangle_of::<f64>(Triangle::Lower, 600, 0.0, 7);
        let b = random::<f64>(&mut rng(8), 600, 300);
        let solved = || solve_by_substitution(&a, Triangle::Lower, &b, Stop::NEVER).unwrap();
        same_bits(|| solved().cells().to_vec());
        let inverted = || inverse_of_triangle(&a, Triangle::Lower, Stop::NEVER).unwrap();
        same_bits(|| inverted().cells().to_vec());
        let asked = std::sync::atomic::AtomicBool::new(true);
        let stop = Stop::once(&asked);
        let errors = [
            solve_by_substitution(&a, Triangle::Lower, &b, stop).unwrap_err(),
            inverse_of_triangle(&a, Triangle::Lower, stop).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| matches!(error.kind(), ErrorKind::Cancelled)));
    }
}
