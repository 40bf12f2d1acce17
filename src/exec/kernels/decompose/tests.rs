//! What must hold of every factorization: it multiplies back, its residual is small beside norm, size
//! and the unit of rounding, its orthogonal factors are orthogonal; and the edges, each with its rule.

use super::super::testing::*;
use super::super::{Real, Stop, dense, sparse};
use super::*;
use crate::error::{Error, ErrorKind};
use crate::exec::kernels::dense::{gram, product, transpose};

const SHAPES: [(usize, usize); 13] = [
    (0, 0),
    (0, 3),
    (3, 0),
    (1, 1),
    (1, 9),
    (9, 1),
    (5, 5),
    (40, 17),
    (17, 40),
    (200, 200),
    (300, 90),
    (500, 330),
    (330, 500),
];

fn identity<T: Real>(n: usize) -> Dense<T> {
    build(n, n, |i, j| if i == j { T::ONE } else { T::ZERO })
}

/// `‖x - y‖` in the 1-norm.
fn distance<T: Real>(x: &Dense<T>, y: &Dense<T>) -> f64 {
    assert_eq!(x.shape(), y.shape());
    let (m, n) = (x.shape().rows, x.shape().columns);
    norm_1(view(&build(m, n, |i, j| x.row(i)[j] - y.row(i)[j]))).to_f64()
}

/// Asserts `‖x - y‖ ≤ 20·size·ε·scale`.
pub(super) fn assert_near<T: Real>(x: &Dense<T>, y: &Dense<T>, scale: f64) {
    let size = x.shape().rows.max(x.shape().columns).max(1) as f64;
    let bound = 20.0 * size * T::EPSILON.to_f64() * scale.max(f64::MIN_POSITIVE);
    let found = distance(x, y);
    assert!(found <= bound, "residual {found:e} above {bound:e} for {}", x.shape());
}

pub(super) fn norm<T: Real>(x: &Dense<T>) -> f64 {
    norm_1(view(x)).to_f64()
}

pub(super) fn assert_orthonormal_columns<T: Real>(q: &Dense<T>) {
    assert_near(&gram(q, Stop::NEVER), &identity(q.shape().columns), 1.0);
}

fn assert_triangular<T: Real>(x: &Dense<T>, lower: bool) {
    for i in 0..x.shape().rows {
        for j in 0..x.shape().columns {
            let outside = if lower { j > i } else { j < i };
            assert!(!outside || x.row(i)[j] == T::ZERO);
        }
    }
}

/// Random, well conditioned, symmetric positive definite.
fn positive_definite<T: Real>(rng: &mut rand::rngs::SmallRng, n: usize) -> Dense<T> {
    let squares = gram(&random::<T>(rng, n + 3, n), Stop::NEVER);
    build(n, n, |i, j| squares.row(i)[j] + if i == j { T::ONE } else { T::ZERO })
}

fn factorizations_multiply_back<T: Real>(seed: u64) {
    let mut rng = rng(seed);
    for (m, n) in SHAPES {
        let (a, k) = (random::<T>(&mut rng, m, n), m.min(n));
        let scale = norm(&a);

        let Lu { l, u, p } = lu(&a, Stop::NEVER).unwrap();
        assert_eq!((l.shape(), u.shape()), (Shape::new(m, k), Shape::new(k, n)));
        assert_near(
            &product(&l, &u, Stop::NEVER),
            &sparse::times_dense(&p, &a, Stop::NEVER),
            scale,
        );
        assert_triangular(&l, true);
        assert_triangular(&u, false);
        assert!(l.cells().iter().all(|x| x.abs() <= T::ONE), "pivots are the largest");

        let Qr { q, r } = qr(&a, Stop::NEVER).unwrap();
        assert_eq!((q.shape(), r.shape()), (Shape::new(m, k), Shape::new(k, n)));
        assert_near(&product(&q, &r, Stop::NEVER), &a, scale);
        assert_orthonormal_columns(&q);
        assert_triangular(&r, false);
        assert!((0..k).all(|i| r.row(i)[i] >= T::ZERO), "no diagonal cell is negative");

        let Svd { u, s, vt } = svd(&a, None, Stop::NEVER).unwrap();
        assert_eq!(s.shape(), Shape::new(k, 1));
        let scaled = build(m, k, |i, j| u.row(i)[j] * s.cells()[j]);
        assert_near(&product(&scaled, &vt, Stop::NEVER), &a, scale);
        assert_orthonormal_columns(&u);
        assert_orthonormal_columns(&transpose(&vt));
        assert!(s.cells().windows(2).all(|pair| pair[0] >= pair[1]), "descending");
        assert!(s.cells().iter().all(|&s| s >= T::ZERO));
    }
}

#[test]
fn factors_of_any_shape_multiply_back() {
    for seed in 0..3 {
        factorizations_multiply_back::<f64>(seed);
        factorizations_multiply_back::<f32>(seed);
    }
}

fn symmetric_factorizations<T: Real>(seed: u64) {
    let mut rng = rng(seed);
    for n in [0, 1, 2, 5, 33, 150, 300] {
        let a = positive_definite::<T>(&mut rng, n);
        let scale = norm(&a);
        // What lies above the diagonal is not read.
        let half = build(n, n, |i, j| if i >= j { a.row(i)[j] } else { T::from_f64(7e7) });
        let l = cholesky(&half, Stop::NEVER).unwrap();
        assert_near(&product(&l, &transpose(&l), Stop::NEVER), &a, scale);
        assert_triangular(&l, true);
        assert!((0..n).all(|i| l.row(i)[i] > T::ZERO));

        let Eigh { values, vectors } = eigh(&half, None, Stop::NEVER).unwrap();
        assert_eq!(values.shape(), Shape::new(n, 1));
        let scaled = build(n, n, |i, j| vectors.row(i)[j] * values.cells()[j]);
        assert_near(&product(&scaled, &transpose(&vectors), Stop::NEVER), &a, scale);
        assert_orthonormal_columns(&vectors);
        assert!(values.cells().windows(2).all(|pair| pair[0] <= pair[1]), "ascending");
        let two = eigh(&half, Some(2), Stop::NEVER).unwrap();
        let from = n - n.min(2);
        assert_eq!(two.values.cells(), &values.cells()[from..]);
        assert_eq!(two.vectors.shape(), Shape::new(n, n.min(2)));
    }
}

#[test]
fn symmetric_factors_multiply_back() {
    for seed in 0..3 {
        symmetric_factorizations::<f64>(seed);
        symmetric_factorizations::<f32>(seed);
    }
}

#[test]
fn the_free_signs_are_fixed() {
    let mut rng = rng(1);
    let a = random::<f64>(&mut rng, 30, 12);
    let negated = build(30, 12, |i, j| -a.row(i)[j]);
    let (x, y) =
        (svd(&a, Some(4), Stop::NEVER).unwrap(), svd(&negated, Some(4), Stop::NEVER).unwrap());
    assert_eq!((x.u.shape(), x.vt.shape()), (Shape::new(30, 4), Shape::new(4, 12)));
    assert_near(&x.u, &y.u, 10.0);
    for j in 0..4 {
        let column = (0..30).map(|i| x.u.row(i)[j]);
        let largest = column.reduce(|a, b| if b.abs() > a.abs() { b } else { a }).unwrap();
        assert!(largest > 0.0);
    }
}

fn solutions_have_small_residuals<T: Real>(seed: u64) {
    let mut rng = rng(seed);
    for n in [0, 1, 2, 17, 64, 65, 300] {
        for (a, kind) in [
            (random::<T>(&mut rng, n, n), "general"),
            (positive_definite(&mut rng, n), "positive definite"),
            (
                build(n, n, |i, j| T::from_f64(if i + j + 1 == n { -2.0 } else { 0.0 })),
                "indefinite",
            ),
        ] {
            for k in [0, 1, 5] {
                let b = random::<T>(&mut rng, n, k);
                let x = solve(&a, &b, Stop::NEVER)
                    .unwrap_or_else(|error| panic!("{kind} {n}, seed {seed}: {error}"));
                assert_near(&product(&a, &x, Stop::NEVER), &b, norm(&a) * norm(&x));
            }
            let inverse = inverse(&a, Stop::NEVER).unwrap();
            assert_near(
                &product(&a, &inverse, Stop::NEVER),
                &identity(n),
                norm(&a) * norm(&inverse),
            );
        }
    }
}

#[test]
fn a_solution_solves() {
    for seed in 0..3 {
        solutions_have_small_residuals::<f64>(seed);
        solutions_have_small_residuals::<f32>(seed);
    }
}

#[test]
fn a_singular_matrix_is_an_error_with_its_condition() {
    let mut rng = rng(1);
    let ones = build(4, 4, |_, _| 1.0);
    let hilbert = build(14, 14, |i, j| 1.0 / (i + j + 1) as f64);
    let thin = random::<f64>(&mut rng, 50, 49);
    let dependent = product(&thin, &random(&mut rng, 49, 50), Stop::NEVER);
    for a in [ones, hilbert, dependent, build(3, 3, |_, _| 0.0), build(1, 1, |_, _| 0.0)] {
        let b = build(a.shape().rows, 1, |_, _| 1.0);
        for error in
            [solve(&a, &b, Stop::NEVER).unwrap_err(), inverse(&a, Stop::NEVER).unwrap_err()]
        {
            let ErrorKind::Singular { shape, condition, .. } = error.kind() else {
                panic!("{error}")
            };
            assert_eq!(*shape, a.shape());
            assert!(*condition < f64::EPSILON);
        }
    }
    // Badly conditioned is not singular: cond(hilbert 8) is 3e10.
    let hilbert = build(8, 8, |i, j| 1.0 / (i + j + 1) as f64);
    assert!(solve(&hilbert, &build(8, 1, |_, _| 1.0), Stop::NEVER).is_ok());
    assert!(
        solve(
            &build(2, 2, |i, j| if i == j { 1e-300 } else { 0.0 }),
            &build(2, 1, |_, _| 1.0),
            Stop::NEVER
        )
        .is_ok()
    );
}

#[test]
fn the_estimated_condition_is_near_the_exact_one() {
    for seed in 0..30 {
        let mut rng = rng(seed);
        let n = 5 + seed as usize;
        let a = random::<f64>(&mut rng, n, n);
        // Scaled rows spread the condition over many powers of ten.
        let a = build(n, n, |i, j| a.row(i)[j] * 10f64.powi(-(i as i32) % 7));
        let exact = norm(&a) * norm(&inverse(&a, Stop::NEVER).unwrap());
        let estimated = 1.0 / super::solve::reciprocal_condition(&a).unwrap();
        assert!(
            estimated <= exact * 1.001 && estimated >= exact / 10.0,
            "seed {seed}: {estimated:e} {exact:e}"
        );
    }
}

#[test]
fn a_matrix_that_is_not_positive_definite_names_its_pivot() {
    for (n, bad) in [(1, 0), (5, 3), (100, 70)] {
        let a = build(n, n, |i, j| {
            if i != j {
                0.0
            } else if i == bad {
                -4.0
            } else {
                1.0
            }
        });
        let error = cholesky(&a, Stop::NEVER).unwrap_err();
        let ErrorKind::NotPositiveDefinite { pivot, value, .. } = error.kind() else {
            panic!("{error}")
        };
        assert_eq!((*pivot, *value), (bad + 1, -4.0));
    }
}

#[test]
fn a_determinant_follows_the_swaps() {
    let det = |a: &Dense<f64>| determinant(a, Stop::NEVER).unwrap().cells()[0];
    assert_eq!(det(&dense(Shape::new(0, 0), vec![])), 1.0);
    assert_eq!(det(&dense(Shape::new(2, 2), vec![0.0, 1.0, 1.0, 0.0])), -1.0);
    assert_eq!(det(&dense(Shape::new(2, 2), vec![1.0, 2.0, 2.0, 4.0])), 0.0);
    let mut rng = rng(1);
    let (a, b) = (random::<f64>(&mut rng, 40, 40), random::<f64>(&mut rng, 40, 40));
    let (left, right) = (det(&a) * det(&b), det(&product(&a, &b, Stop::NEVER)));
    assert!((left - right).abs() <= 1e-11 * left.abs(), "{left} {right}");
}

#[test]
fn lu_of_a_singular_matrix_still_multiplies_back() {
    let mut rng = rng(1);
    let a = product(&random::<f64>(&mut rng, 60, 5), &random(&mut rng, 5, 70), Stop::NEVER);
    let a = build(60, 70, |i, j| if j < 20 { 0.0 } else { a.row(i)[j] });
    let Lu { l, u, p } = lu(&a, Stop::NEVER).unwrap();
    assert_near(&product(&l, &u, Stop::NEVER), &sparse::times_dense(&p, &a, Stop::NEVER), norm(&a));
}

fn least_squares_is_orthogonal<T: Real>(seed: u64) {
    let mut rng = rng(seed);
    for (m, n) in SHAPES {
        for rank in [m.min(n), m.min(n) / 2] {
            let left = random::<T>(&mut rng, m, rank);
            let a = product(&left, &random(&mut rng, rank, n), Stop::NEVER);
            let b = random::<T>(&mut rng, m, 3);
            let x = least_squares(&a, &b, Stop::NEVER).unwrap();
            assert_eq!(x.shape(), Shape::new(n, 3));
            let fitted = product(&a, &x, Stop::NEVER);
            let residual = build(m, 3, |i, j| b.row(i)[j] - fitted.row(i)[j]);
            // The residual is orthogonal to the columns of a, and x to its null space.
            let (size, eps) = (m.max(n).max(1) as f64, T::EPSILON.to_f64());
            let at = transpose(&a);
            let zero = build(n, 3, |_, _| T::ZERO);
            let scale = norm(&a) * (norm(&b) + norm(&a) * norm(&x));
            let found = distance(&product(&at, &residual, Stop::NEVER), &zero);
            assert!(
                found <= 100.0 * size * eps * scale,
                "seed {seed}, {m}x{n}, rank {rank}: {found}"
            );
            if rank > 0 {
                let Svd { vt, .. } = svd(&a, Some(rank), Stop::NEVER).unwrap();
                let v = transpose(&vt);
                let projected = product(&v, &product(&vt, &x, Stop::NEVER), Stop::NEVER);
                let off = distance(&projected, &x);
                assert!(
                    off <= 1e5 * size * eps * norm(&x),
                    "seed {seed}, {m}x{n}, rank {rank}: {off}"
                );
            } else {
                assert!(x.cells().iter().all(|&x| x == T::ZERO));
            }
        }
    }
}

#[test]
fn least_squares_has_an_orthogonal_residual_and_the_least_norm() {
    for seed in 0..3 {
        least_squares_is_orthogonal::<f64>(seed);
        least_squares_is_orthogonal::<f32>(seed);
    }
}

#[test]
fn a_cell_that_is_not_finite_is_an_error() {
    for poison in [f64::NAN, f64::INFINITY] {
        let a = build(3, 3, |i, j| if (i, j) == (1, 2) { poison } else { (i * 3 + j) as f64 });
        let b = build(3, 1, |_, _| 1.0);
        let errors: [Error; 9] = [
            solve(&a, &b, Stop::NEVER).unwrap_err(),
            inverse(&a, Stop::NEVER).unwrap_err(),
            determinant(&a, Stop::NEVER).unwrap_err(),
            cholesky(&a, Stop::NEVER).unwrap_err(),
            lu(&a, Stop::NEVER).unwrap_err(),
            qr(&a, Stop::NEVER).unwrap_err(),
            svd(&a, None, Stop::NEVER).unwrap_err(),
            eigh(&a, None, Stop::NEVER).unwrap_err(),
            least_squares(&a, &b, Stop::NEVER).unwrap_err(),
        ];
        for error in errors {
            let ErrorKind::Argument { message, .. } = error.kind() else { panic!("{error}") };
            assert_eq!(message, "every cell of its 3x3 argument must be finite");
        }
    }
}

#[test]
fn the_bits_of_a_factorization_do_not_depend_on_threads() {
    let mut rng = rng(1);
    let (a, b) = (random::<f64>(&mut rng, 400, 400), random::<f64>(&mut rng, 400, 40));
    let (tall, spd) = (random::<f64>(&mut rng, 900, 150), positive_definite::<f64>(&mut rng, 400));
    same_bits(|| solve(&a, &b, Stop::NEVER).unwrap().cells().to_vec());
    same_bits(|| solve(&spd, &b, Stop::NEVER).unwrap().cells().to_vec());
    same_bits(|| lu(&a, Stop::NEVER).unwrap().u.cells().to_vec());
    same_bits(|| cholesky(&spd, Stop::NEVER).unwrap().cells().to_vec());
    same_bits(|| qr(&tall, Stop::NEVER).unwrap().q.cells().to_vec());
    same_bits(|| {
        least_squares(&tall, &random(&mut self::rng(2), 900, 2), Stop::NEVER)
            .unwrap()
            .cells()
            .to_vec()
    });
    same_bits(|| svd(&a, None, Stop::NEVER).unwrap().u.cells().to_vec());
    same_bits(|| svd(&tall, None, Stop::NEVER).unwrap().vt.cells().to_vec());
    same_bits(|| eigh(&spd, None, Stop::NEVER).unwrap().vectors.cells().to_vec());
}

#[test]
fn a_factorization_that_is_asked_to_stop_ends_without_panic() {
    let asked = std::sync::atomic::AtomicBool::new(true);
    let stop = Stop::once(&asked);
    let a = random::<f64>(&mut rng(40), 300, 300);
    let cancelled = |error: Error| assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    cancelled(lu(&a, stop).unwrap_err());
    cancelled(solve(&a, &a, stop).unwrap_err());
    cancelled(inverse(&a, stop).unwrap_err());
    cancelled(qr(&a, stop).unwrap_err());
    cancelled(least_squares(&a, &a, stop).unwrap_err());
    cancelled(cholesky(&a, stop).unwrap_err());
    cancelled(svd(&a, None, stop).unwrap_err());
    cancelled(eigh(&a, None, stop).unwrap_err());
}

fn exponentials<T: Real>(seed: u64) {
    let mut rng = rng(seed);
    for n in [0, 1, 2, 9, 40] {
        // Of every degree of the approximant, and of some squarings.
        for scale in [0.0, 1e-3, 0.02, 0.1, 0.4, 1.0, 8.0] {
            let any = random::<T>(&mut rng, n, n);
            let half = T::from_f64(scale / 2.0);
            let a = build(n, n, |i, j| half * (any.row(i)[j] + any.row(j)[i]));
            let found = exponential(&a, Stop::NEVER).unwrap();
            // Of a symmetric matrix it is that of its eigenvalues.
            let Eigh { values, vectors } = eigh(&a, None, Stop::NEVER).unwrap();
            let scaled = build(n, n, |i, j| {
                vectors.row(i)[j] * T::from_f64(values.cells()[j].to_f64().exp())
            });
            let expected = product(&scaled, &transpose(&vectors), Stop::NEVER);
            assert_near(&found, &expected, norm(&expected) * (1.0 + norm(&a)));
            // Of any matrix, that of its negative is the inverse.
            let a = build(n, n, |i, j| T::from_f64(scale.min(1.0)) * any.row(i)[j]);
            let minus = build(n, n, |i, j| -a.row(i)[j]);
            let (x, y) =
                (exponential(&a, Stop::NEVER).unwrap(), exponential(&minus, Stop::NEVER).unwrap());
            assert_near(&product(&x, &y, Stop::NEVER), &identity(n), norm(&x) * norm(&y));
        }
    }
}

#[test]
fn exponentials_are_those_of_the_eigenvalues() {
    for seed in 0..3 {
        exponentials::<f64>(seed);
        exponentials::<f32>(seed);
    }
}

#[test]
fn the_exponential_of_a_turn_is_a_turn() {
    for angle in [1e-9, 0.5, 3.0, 40.0, 1e4] {
        let a = build(2, 2, |i, j| angle * (j as f64 - i as f64));
        let turn = build(2, 2, |i, j| match (i, j) {
            (0, 1) => f64::sin(angle),
            (1, 0) => -f64::sin(angle),
            _ => f64::cos(angle),
        });
        assert_near(&exponential(&a, Stop::NEVER).unwrap(), &turn, 1.0 + angle);
    }
    // Exact where the series ends.
    let shift = build(2, 2, |i, j| if i < j { 3.0 } else { 0.0 });
    let expected = build(2, 2, |i, j| if i == j { 1.0 } else { shift.row(i)[j] });
    assert_close(&exponential(&shift, Stop::NEVER).unwrap(), &expected, 2.0);
    let large = dense(Shape::new(1, 1), vec![1000.0]);
    assert_eq!(exponential(&large, Stop::NEVER).unwrap().cells(), [f64::INFINITY]);
    let beyond = build(2, 2, |_, _| 1.5e308);
    let error = exponential(&beyond, Stop::NEVER).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
}

fn pseudo_inverses<T: Real>(seed: u64) {
    let mut rng = rng(seed);
    for (m, n) in SHAPES {
        for deficient in [false, true] {
            let full = random::<T>(&mut rng, m, n);
            let k = m.min(n) / 2;
            let a = match deficient {
                true => {
                    product(&random::<T>(&mut rng, m, k), &random::<T>(&mut rng, k, n), Stop::NEVER)
                }
                false => full,
            };
            let expected = if deficient { k } else { m.min(n) };
            assert_eq!(rank(&a, Stop::NEVER).unwrap().cells(), [T::from_f64(expected as f64)]);
            let x = pseudo_inverse(&a, Stop::NEVER).unwrap();
            assert_eq!(x.shape(), Shape::new(n, m));
            // The four conditions of Penrose.
            let (ax, xa) = (product(&a, &x, Stop::NEVER), product(&x, &a, Stop::NEVER));
            let condition = norm(&a) * norm(&x);
            assert_near(&product(&ax, &a, Stop::NEVER), &a, condition * norm(&a));
            assert_near(&product(&xa, &x, Stop::NEVER), &x, condition * norm(&x));
            assert_near(&transpose(&ax), &ax, condition);
            assert_near(&transpose(&xa), &xa, condition);
        }
    }
}

#[test]
fn pseudo_inverses_meet_their_conditions() {
    for seed in 0..3 {
        pseudo_inverses::<f64>(seed);
        pseudo_inverses::<f32>(seed);
    }
}

fn logarithms<T: Real>(seed: u64) {
    let mut rng = rng(seed);
    for n in [0, 1, 2, 9, 40, 150] {
        for scale in [1e-3, 0.3, 1.0, 100.0] {
            let positive = positive_definite::<T>(&mut rng, n);
            let positive = build(n, n, |i, j| T::from_f64(scale) * positive.row(i)[j]);
            // Of a symmetric matrix it is that of its eigenvalues.
            let Eigh { values, vectors } = eigh(&positive, None, Stop::NEVER).unwrap();
            let logs: Vec<f64> = values.cells().iter().map(|x| x.to_f64().ln()).collect();
            let scaled = build(n, n, |i, j| vectors.row(i)[j] * T::from_f64(logs[j]));
            let expected = product(&scaled, &transpose(&vectors), Stop::NEVER);
            let found = logarithm(&positive, Stop::NEVER).unwrap();
            let condition = norm(&positive) * norm(&inverse(&positive, Stop::NEVER).unwrap());
            assert_near(&found, &expected, condition * (1.0 + norm(&expected)));
            // Of any other it is what exponentiation undoes.
            let any = random::<T>(&mut rng, n, n);
            let small = scale.min(1.0) / n.max(1) as f64;
            let a = build(n, n, |i, j| {
                T::from_f64(small) * any.row(i)[j] + if i == j { T::ONE } else { T::ZERO }
            });
            let back = exponential(&logarithm(&a, Stop::NEVER).unwrap(), Stop::NEVER).unwrap();
            let condition = norm(&a) * norm(&inverse(&a, Stop::NEVER).unwrap());
            assert_near(&back, &a, 10.0 * condition * norm(&a));
        }
    }
}

#[test]
fn logarithms_are_undone_by_exponentials() {
    for seed in 0..3 {
        logarithms::<f64>(seed);
        logarithms::<f32>(seed);
    }
}

#[test]
fn the_logarithm_of_a_turn_is_its_angle() {
    for angle in [1e-9, 0.5, 3.0, -2.0] {
        let turn = build(2, 2, |i, j| match (i, j) {
            (0, 1) => f64::sin(angle),
            (1, 0) => -f64::sin(angle),
            _ => f64::cos(angle),
        });
        let expected = build(2, 2, |i, j| angle * (j as f64 - i as f64));
        assert_near(&logarithm(&turn, Stop::NEVER).unwrap(), &expected, 10.0);
    }
    for cells in [vec![1.0, 0.0, 0.0, -1.0], vec![-4.0, 1.0, 0.0, 3.0], vec![1.0, 1.0, 1.0, 1.0]] {
        let a: Dense<f64> = dense(Shape::new(2, 2), cells);
        let error = logarithm(&a, Stop::NEVER).unwrap_err().to_string();
        assert!(error.contains("no principal logarithm"), "{error}");
    }
}

/// By SciPy with all digits, of a matrix with one real value and a pair.
#[test]
fn the_logarithm_of_a_pair_keeps_its_digits() {
    let a = dense(Shape::new(3, 3), vec![1.0, 2.0, 0.0, -1.0, 3.0, 1.0, 0.5, 0.0, 2.0]);
    let expected = vec![
        0.38237433486834593,
        0.9053872490514276,
        -0.2146172107676213,
        -0.5063479272176197,
        1.2877615839197745,
        0.3453850191419034,
        0.28000111495476254,
        -0.10730860538381057,
        0.7277593540102498,
    ];
    let expected: Dense<f64> = dense(Shape::new(3, 3), expected);
    assert_close(&logarithm(&a, Stop::NEVER).unwrap(), &expected, 16.0);
}

/// Far from normal, or with values that are nearly one: what roots and differences would lose.
#[test]
fn logarithms_of_triangles_keep_their_digits() {
    let shear = build(2, 2, |i, j| if i < j { 1e6 } else { f64::from(i == j) });
    let expected = build(2, 2, |i, j| if i < j { 1e6 } else { 0.0 });
    assert_close(&logarithm(&shear, Stop::NEVER).unwrap(), &expected, 64.0);
    let near = build(2, 2, |i, j| match (i, j) {
        (0, 0) => 1.0 + 1e-10,
        (1, 0) => 0.0,
        _ => 1.0,
    });
    let found = logarithm(&near, Stop::NEVER).unwrap();
    assert_eq!(found.row(0)[0], f64::ln_1p(near.row(0)[0] - 1.0));
    assert!((found.row(0)[1] - (1.0 - 5e-11)).abs() <= 8.0 * f64::EPSILON);
    // Of Pascal's triangle, which is the exponential of the whole numbers beside the diagonal.
    let n = 14;
    let mut pascal = vec![0.0; n * n];
    for j in 0..n {
        pascal[j] = 1.0;
        for i in 1..=j {
            pascal[i * n + j] = pascal[i * n + j - 1] + pascal[(i - 1) * n + j - 1];
        }
    }
    let pascal: Dense<f64> = dense(Shape::new(n, n), pascal);
    let expected = build(n, n, |i, j| if i + 1 == j { j as f64 } else { 0.0 });
    assert_near(&logarithm(&pascal, Stop::NEVER).unwrap(), &expected, norm(&pascal));
}

/// Each eigenvalue of a large one is the logarithm of one: pairs and what is beside them, in parts.
#[test]
fn logarithms_of_many_pairs_are_undone() {
    let x = random::<f64>(&mut rng(9), 200, 200);
    // The values lie in a circle around three.
    let a = build(200, 200, |i, j| x.row(i)[j] / 6.0 + if i == j { 3.0 } else { 0.0 });
    let found = logarithm(&a, Stop::NEVER).unwrap();
    let back = exponential(&found, Stop::NEVER).unwrap();
    assert_near(&back, &a, norm(&a));
    // What is a function of another matrix commutes with it.
    let (left, right) = (product(&a, &found, Stop::NEVER), product(&found, &a, Stop::NEVER));
    assert_near(&left, &right, norm(&a) * norm(&found));
    same_bits(|| logarithm(&a, Stop::NEVER).unwrap().cells().to_vec());
}

/// Counted as the singular values are, on either side of what is lost.
#[test]
fn ranks_are_those_of_the_singular_values() {
    let mut rng = rng(10);
    for (m, n) in [(1, 1), (1, 7), (9, 1), (60, 40), (150, 150), (200, 130), (130, 200)] {
        let k = m.min(n);
        let (left, right) = (random::<f64>(&mut rng, m, k), random::<f64>(&mut rng, k, n));
        let (u, v) =
            (qr(&left, Stop::NEVER).unwrap().q, qr(&transpose(&right), Stop::NEVER).unwrap().q);
        for step in [0.5, 1.0, 4.0] {
            let s = |i: usize| f64::powf(2.0, -step * i as f64);
            let scaled = build(m, k, |i, j| u.row(i)[j] * s(j));
            let a = product(&scaled, &transpose(&v), Stop::NEVER);
            // No value is as near to the bound as rounding moves it, which is at most a tenth of it.
            let least = m.max(n) as f64 * f64::EPSILON;
            let count = |bound: f64| (0..k).filter(|&i| s(i) > bound * least).count();
            let found = rank(&a, Stop::NEVER).unwrap().cells()[0] as usize;
            assert!((count(1.1)..=count(0.9)).contains(&found), "{found} of {m}x{n}");
        }
        let tiny = build(m, n, |i, j| left.row(i)[j.min(k - 1)] * 1e-290);
        let Svd { s, .. } = svd(&tiny, None, Stop::NEVER).unwrap();
        let bound = m.max(n) as f64 * f64::EPSILON * s.cells()[0];
        let expected = s.cells().iter().filter(|&&s| s > bound).count();
        assert_eq!(rank(&tiny, Stop::NEVER).unwrap().cells(), [expected as f64]);
    }
}

#[test]
fn what_does_not_converge_says_what_it_is_and_what_may_help() {
    let error = Unfinished::NotConverged.error("eig", Shape::new(3, 3));
    assert_eq!(
        error.to_string(),
        "eig of a 3x3 matrix did not converge; with its rows and columns in another order it may"
    );
}
