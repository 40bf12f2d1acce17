//! What must hold of values and vectors whatever the spectrum: they multiply back, the vectors are
//! orthonormal, the values are in order; and the values of matrices that have a formula for them.

use std::f64::consts::PI;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::super::arch::Arch;
use super::super::super::testing::*;
use super::super::super::{Real, Stop};
use super::super::tests::{assert_near, assert_orthonormal_columns, norm};
use super::*;
use crate::error::ErrorKind;
use crate::exec::kernels::dense::{product, transpose};
use crate::matrix::Shape;

fn assert_svd<T: Real>(a: &Dense<T>) {
    let (m, n) = (a.shape().rows, a.shape().columns);
    let Svd { u, s, vt } = svd(a, None, Stop::NEVER).unwrap();
    assert_eq!(s.shape(), Shape::new(m.min(n), 1));
    let scaled = build(m, m.min(n), |i, j| u.row(i)[j] * s.cells()[j]);
    assert_near(&product(&scaled, &vt, Stop::NEVER), a, norm(a));
    assert_orthonormal_columns(&u);
    assert_orthonormal_columns(&transpose(&vt));
    assert!(s.cells().windows(2).all(|pair| pair[0] >= pair[1]), "descending");
    assert!(s.cells().iter().all(|&s| s >= T::ZERO));
    assert_signs(&u);
}

fn assert_eigh<T: Real>(a: &Dense<T>) {
    let n = a.shape().rows;
    let Eigh { values, vectors } = eigh(a, None, Stop::NEVER).unwrap();
    let scaled = build(n, n, |i, j| vectors.row(i)[j] * values.cells()[j]);
    assert_near(&product(&scaled, &transpose(&vectors), Stop::NEVER), a, norm(a));
    assert_orthonormal_columns(&vectors);
    assert!(values.cells().windows(2).all(|pair| pair[0] <= pair[1]), "ascending");
    assert_signs(&vectors);
}

fn assert_signs<T: Real>(vectors: &Dense<T>) {
    for j in 0..vectors.shape().columns {
        let column = (0..vectors.shape().rows).map(|i| vectors.row(i)[j]);
        let largest = column.reduce(|most, x| if x.abs() > most.abs() { x } else { most });
        assert!(largest.unwrap() > T::ZERO, "column {j}");
    }
}

/// Each with its name: by row and column, n of them, the random ones of `x`.
fn spectra<T: Real>(x: &Dense<T>) -> Vec<(&'static str, Box<dyn Fn(usize, usize) -> f64 + '_>)> {
    let n = x.shape().rows;
    let x = |i: usize, j: usize| x.row(i)[j].to_f64();
    let if_equal = |i: usize, j: usize, value: f64| if i == j { value } else { 0.0 };
    let large: f64 = if T::EPSILON.to_f64() == f64::EPSILON { 1e300 } else { 1e30 };
    let glued = move |glue: f64| {
        move |i: usize, j: usize| match i.abs_diff(j) {
            0 => (i % 21) as f64 - 10.0,
            1 if i.max(j).is_multiple_of(21) => glue,
            1 => 1.0,
            _ => 0.0,
        }
    };
    vec![
        ("random", Box::new(x)),
        ("zero", Box::new(|_, _| 0.0)),
        ("one", Box::new(move |i, j| if_equal(i.max(j), 7, 1.0))),
        ("identity", Box::new(move |i, j| if_equal(i, j, 1.0))),
        ("near identity", Box::new(move |i, j| if_equal(i, j, 1.0) + 1e-13 * x(i, j))),
        ("ones", Box::new(|_, _| 1.0)),
        ("rank three", Box::new(move |i, j| (0..3).map(|k| x(i, k) * x(j, k)).sum())),
        ("half zero", Box::new(move |i, j| if i.max(j) < n / 2 { x(i, j) } else { 0.0 })),
        ("clusters", Box::new(move |i, j| if_equal(i, j, 1.0 + (i / 50) as f64 * 1e-14))),
        ("every third", Box::new(move |i, j| if_equal(i, j, (i % 3 / 2) as f64))),
        ("shift", Box::new(move |i, j| if_equal(i + 1, j, 1.0))),
        ("hilbert", Box::new(|i, j| 1.0 / (i + j + 1) as f64)),
        ("arrow", Box::new(move |i, j| if i.min(j) == 0 { 1.0 } else { if_equal(i, j, i as f64) })),
        ("läuchli", Box::new(move |i, j| if i == 0 { 1.0 } else { if_equal(i, j + 1, 1e-9) })),
        (
            "kahan",
            Box::new(|i, j| {
                if i > j { 0.0 } else { 0.9f64.powi(i as i32) * if i == j { 1.0 } else { -0.4 } }
            }),
        ),
        (
            "wilkinson",
            Box::new(move |i, j| {
                if i.abs_diff(j) == 1 { 1.0 } else { if_equal(i, j, (i as f64 - 100.0).abs()) }
            }),
        ),
        ("glued wilkinson", Box::new(move |i, j| glued(1e-8)(i, j).abs())),
        ("barely glued wilkinson", Box::new(move |i, j| glued(1e-15)(i, j).abs())),
        ("graded", Box::new(move |i, j| x(i, j) * 10f64.powf(-(i.max(j) as f64) / 8.0))),
        (
            "graded to the end",
            Box::new(move |i, j| x(i, j) * large.powf(1.0 - 2.0 * i.max(j) as f64 / n as f64)),
        ),
        (
            "graded diagonal",
            Box::new(move |i, j| if_equal(i, j, large.powf(1.0 - 2.0 * i as f64 / n as f64))),
        ),
        ("huge", Box::new(move |i, j| x(i, j) * large)),
        ("tiny", Box::new(move |i, j| x(i, j) / large)),
    ]
}

fn spectra_of_all_kinds_multiply_back<T: Real>() {
    let x = random::<T>(&mut rng(1), 201, 201);
    for (name, cell) in spectra(&x) {
        // Shown where one fails.
        println!("{name}");
        assert_svd::<T>(&build(201, 201, |i, j| T::from_f64(cell(i, j))));
        assert_eigh::<T>(&build(201, 201, |i, j| T::from_f64(cell(i.max(j), i.min(j)))));
    }
}

#[test]
fn spectra_of_all_kinds_multiply_back_in_64_bits() {
    spectra_of_all_kinds_multiply_back::<f64>();
}

#[test]
fn spectra_of_all_kinds_multiply_back_in_32_bits() {
    spectra_of_all_kinds_multiply_back::<f32>();
}

#[test]
fn singular_vectors_of_any_shape_multiply_back() {
    let mut rng = rng(2);
    let shapes = [
        (127, 127),
        (128, 128),
        (129, 129),
        (130, 200),
        (400, 130),
        (130, 400),
        (1100, 9),
        (9, 1100),
    ];
    for (m, n) in shapes {
        assert_svd(&random::<f64>(&mut rng, m, n));
        assert_svd(&random::<f32>(&mut rng, m, n));
    }
}

/// Asserts values within `20·n·ε` times the largest.
fn assert_values(found: &Dense<f64>, mut expected: Vec<f64>) {
    let n = expected.len();
    expected.sort_by(f64::total_cmp);
    let mut found = found.cells().to_vec();
    found.sort_by(f64::total_cmp);
    let largest = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    for (found, expected) in found.iter().zip(&expected) {
        let bound = 20.0 * n as f64 * f64::EPSILON * largest;
        assert!((found - expected).abs() <= bound, "{found} is not {expected}");
    }
}

#[test]
fn values_are_those_of_their_formulas() {
    let n = 333;
    let angles = |step: f64, from: f64| (0..n).map(move |k| (k as f64 + from) * step);
    let values = |cell: &dyn Fn(usize, usize) -> f64| {
        eigh(&build(n, n, cell), None, Stop::NEVER).unwrap().values
    };
    let singular =
        |cell: &dyn Fn(usize, usize) -> f64| svd(&build(n, n, cell), None, Stop::NEVER).unwrap().s;

    let difference = |i: usize, j: usize| [2.0, -1.0, 0.0][i.abs_diff(j).min(2)];
    let step = PI / (2 * n + 2) as f64;
    assert_values(&values(&difference), angles(step, 1.0).map(|x| 4.0 * x.sin().powi(2)).collect());

    let least = |i: usize, j: usize| (i.min(j) + 1) as f64;
    let step = PI / (2 * n + 1) as f64;
    assert_values(&values(&least), angles(step, 0.5).map(|x| 0.25 / x.sin().powi(2)).collect());

    // Of the steps of a walk among n places: whole numbers.
    let walk = |i: usize, j: usize| {
        if i.abs_diff(j) == 1 { ((i.max(j) * (n - i.max(j))) as f64).sqrt() } else { 0.0 }
    };
    assert_values(&values(&walk), (0..n).map(|k| 2.0 * k as f64 - (n - 1) as f64).collect());

    let lower = |i: usize, j: usize| if i >= j { 1.0 } else { 0.0 };
    assert_values(&singular(&lower), angles(step, 0.5).map(|x| 0.5 / x.sin()).collect());
    let two = |i: usize, j: usize| if i == j || i + 1 == j { 1.0 } else { 0.0 };
    assert_values(&singular(&two), angles(step, 1.0).map(|x| 2.0 * x.cos()).collect());
}

#[test]
fn the_first_are_those_of_all() {
    let mut rng = rng(3);
    let a = random::<f64>(&mut rng, 260, 240);
    let (all, some) = (svd(&a, None, Stop::NEVER).unwrap(), svd(&a, Some(7), Stop::NEVER).unwrap());
    assert_eq!(some.s.cells(), &all.s.cells()[..7]);
    assert_near(&some.u, &build(260, 7, |i, j| all.u.row(i)[j]), 100.0);
    assert_near(&some.vt, &all.vt.rows(0..7), 100.0);
    assert_eq!(svd(&a, Some(0), Stop::NEVER).unwrap().vt.shape(), Shape::new(0, 240));

    let a = build(240, 240, |i, j| a.row(i.max(j))[i.min(j)]);
    let (all, some) =
        (eigh(&a, None, Stop::NEVER).unwrap(), eigh(&a, Some(7), Stop::NEVER).unwrap());
    assert_eq!(some.values.cells(), &all.values.cells()[233..]);
    assert_near(&some.vectors, &build(240, 7, |i, j| all.vectors.row(i)[233 + j]), 100.0);
    // Among equal values, those that have been decoupled are as good as others.
    let identity = build(240, 240, |i, j| if i == j { 1.0 } else { 0.0 });
    let some = eigh(&identity, Some(3), Stop::NEVER).unwrap();
    assert_eq!(some.values.cells(), [1.0; 3]);
    assert_orthonormal_columns(&some.vectors);
}

#[test]
fn the_bits_of_large_ones_do_not_depend_on_threads() {
    let a = random::<f32>(&mut rng(4), 700, 700);
    same_bits(|| svd(&a, None, Stop::NEVER).unwrap().vt.cells().to_vec());
    same_bits(|| eigh(&a, None, Stop::NEVER).unwrap().vectors.cells().to_vec());
}

#[test]
fn one_that_is_asked_to_stop_at_any_time_is_cancelled() {
    let a = random::<f64>(&mut rng(5), 500, 500);
    for delay_ms in [0, 1, 5, 10, 20, 40] {
        for run in [
            |a: &Dense<f64>, stop: Stop<'_>| svd(a, None, stop).err(),
            |a: &Dense<f64>, stop: Stop<'_>| eigh(a, None, stop).err(),
        ] {
            let asked = AtomicBool::new(delay_ms == 0);
            let error = std::thread::scope(|threads| {
                threads.spawn(|| {
                    std::thread::sleep(Duration::from_millis(delay_ms));
                    asked.store(true, Ordering::Relaxed);
                });
                run(&a, Stop::once(&asked))
            });
            // It may have come to its end before, but not if it was asked before it began.
            assert!(error.is_some() || delay_ms > 0);
            assert!(error.is_none_or(|error| matches!(error.kind(), ErrorKind::Cancelled)));
        }
    }
}

#[test]
fn roots_lie_between_poles_and_solve_the_equation() {
    for (seed, spread) in [(1, 1.0), (2, 1e-6), (3, 1e-13)] {
        let mut rng = rng(seed);
        let cells = random::<f64>(&mut rng, 2, 90);
        let mut poles: Vec<f64> = (0..90).map(|i| (i / 30) as f64 + spread * i as f64).collect();
        poles[0] = 0.0;
        let z: Vec<f64> = cells.row(1).iter().map(|z| z * z * z).collect();
        let equation = secular::Secular::<false> { arch: Arch::new(), poles: &poles, z: &z };
        let roots = equation.roots(Stop::NEVER);
        for (j, root) in roots.iter().enumerate() {
            let value = root.value();
            assert!(value >= poles[j] && poles.get(j + 1).is_none_or(|&next| value <= next));
        }
        for (found, z) in equation.exact_z(&roots, Stop::NEVER).iter().zip(&z) {
            assert!((found - z).abs() <= 1e-12 * z.abs(), "seed {seed}: {found} is not {z}");
        }
    }
}

fn vector_instructions_change_no_bit_of<const SQUARED: bool>() {
    let cells = random::<f64>(&mut rng(11), 1, 45);
    let poles: Vec<f64> = (0..45).map(f64::from).collect();
    let bits = |arch| {
        let equation = secular::Secular::<SQUARED> { arch, poles: &poles, z: cells.cells() };
        let roots = equation.roots(Stop::NEVER);
        let mut found = equation.exact_z(&roots, Stop::NEVER);
        let mut vector = vec![0.0; 45];
        equation.vector(&found, roots[7], &mut vector);
        found.extend(vector);
        found.extend(roots.iter().map(|root| root.shift));
        found.into_iter().map(f64::to_bits).collect::<Vec<_>>()
    };
    assert!(wider().into_iter().all(|arch| bits(arch) == bits(PLAIN)));
}

#[test]
fn vector_instructions_change_no_bit() {
    vector_instructions_change_no_bit_of::<false>();
    vector_instructions_change_no_bit_of::<true>();
}

/// Nothing is known that does not converge but cells that are not finite, which are refused before they get here.
fn what_does_not_converge_is_an_error_of<T: Real>() {
    let n = 5;
    let nan = || Mat::from_fn(n, n, |_, _| T::NAN);
    let mut q = Mat::zeros(n, n);
    assert!(matches!(
        leaves::svd(nan().as_ref(), q.as_mut(), Mat::zeros(n, n).as_mut()),
        Err(Unfinished::NotConverged)
    ));
    // As one piece, and then the way of larger ones.
    assert!(matches!(tall_svd(nan(), n, Stop::NEVER), Err(Unfinished::NotConverged)));
    // In one cell, and where none of the three diagonals has a number.
    let corner = Mat::from_fn(n, n, |i, j| if i + j == 2 * n - 2 { T::NAN } else { T::ONE });
    for a in [corner, nan()] {
        assert!(matches!(leaves::eigh(a.as_ref(), q.as_mut()), Err(Unfinished::NotConverged)));
    }
}

#[test]
fn what_does_not_converge_is_an_error() {
    what_does_not_converge_is_an_error_of::<f64>();
    what_does_not_converge_is_an_error_of::<f32>();
    let (diagonal, below) = ([1.0; 5], [f64::NAN; 5]);
    let eigh = leaves::eigh_of_tridiagonal(&diagonal, &below, Mat::zeros(5, 5).as_mut());
    assert!(matches!(eigh, Err(Unfinished::NotConverged)));
}
