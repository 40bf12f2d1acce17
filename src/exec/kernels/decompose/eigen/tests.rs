//! What must hold of eigenvalues and vectors whatever the matrix: `a·v = v·λ`, vectors of one form, an order;
//! and the values of matrices that have a formula for them, or were given them by NumPy.

use std::f64::consts::TAU;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::super::testing::*;
use super::super::super::{Real, Stop};
use super::super::tests::{assert_near, norm};
use super::*;
use crate::error::ErrorKind;
use crate::exec::kernels::dense::{product, transpose};
use crate::matrix::Shape;

/// Asserts what holds of any decomposition but that it is one of `a`.
fn assert_form<T: Real>(found: &Eig<T>) {
    let Eig { values_re, values_im, vectors_re, vectors_im } = found;
    let n = values_re.shape().rows;
    assert_eq!((values_re.shape(), values_im.shape()), (Shape::new(n, 1), Shape::new(n, 1)));
    assert_eq!((vectors_re.shape(), vectors_im.shape()), (Shape::new(n, n), Shape::new(n, n)));
    let value = |j: usize| (values_re.cells()[j], values_im.cells()[j]);
    let mut j = 0;
    while j < n {
        let (re, im) = value(j);
        assert!(j == 0 || value(j - 1).0 <= re, "ascending");
        let entry = |i: usize| (vectors_re.row(i)[j].to_f64(), vectors_im.row(i)[j].to_f64());
        let size = |i: usize| entry(i).0.hypot(entry(i).1);
        let length = (0..n).map(|i| size(i).powi(2)).sum::<f64>().sqrt();
        let units = T::EPSILON.to_f64() * (n as f64 + 8.0);
        assert!((length - 1.0).abs() <= units, "a length of {length}");
        let most = (0..n).map(size).fold(0.0, f64::max);
        let is_fixed = |i: usize| {
            let (re, im) = entry(i);
            re > 0.0 && im == 0.0 && re >= most - units
        };
        assert!((0..n).any(is_fixed), "a vector is not turned");
        if im == T::ZERO {
            assert!((0..n).all(|i| entry(i).1 == 0.0), "a real value has a real vector");
            j += 1;
            continue;
        }
        assert!(im > T::ZERO && value(j + 1) == (re, -im), "the positive one first");
        for i in 0..n {
            assert_eq!(vectors_re.row(i)[j], vectors_re.row(i)[j + 1]);
            assert_eq!(vectors_im.row(i)[j], -vectors_im.row(i)[j + 1]);
        }
        j += 2;
    }
}

fn assert_eig<T: Real>(a: &Dense<T>) -> Eig<T> {
    let n = a.shape().rows;
    let found = eig(a, Stop::NEVER).unwrap();
    assert_form(&found);
    let (re, im) = (&found.vectors_re, &found.vectors_im);
    let value = |j: usize| (found.values_re.cells()[j], found.values_im.cells()[j]);
    let expected_re = build(n, n, |i, j| re.row(i)[j] * value(j).0 - im.row(i)[j] * value(j).1);
    let expected_im = build(n, n, |i, j| re.row(i)[j] * value(j).1 + im.row(i)[j] * value(j).0);
    assert_near(&product(a, re, Stop::NEVER), &expected_re, norm(a));
    assert_near(&product(a, im, Stop::NEVER), &expected_im, norm(a));
    let sum = found.values_re.cells().iter().map(|x| x.to_f64()).sum::<f64>();
    let trace = (0..n).map(|i| a.row(i)[i].to_f64()).sum::<f64>();
    let bound = 20.0 * n as f64 * T::EPSILON.to_f64() * norm(a);
    assert!((sum - trace).abs() <= bound, "the values add up to {sum}, not to {trace}");
    found
}

/// Each with its name: by row and column, n of them, the random ones of `x`.
fn matrices<T: Real>(x: &Dense<T>) -> Vec<(&'static str, Box<dyn Fn(usize, usize) -> f64 + '_>)> {
    let n = x.shape().rows;
    let x = |i: usize, j: usize| x.row(i)[j].to_f64();
    let large: f64 = if T::EPSILON.to_f64() == f64::EPSILON { 1e300 } else { 1e30 };
    let if_equal = |i: usize, j: usize, value: f64| if i == j { value } else { 0.0 };
    vec![
        ("random", Box::new(x)),
        ("zero", Box::new(|_, _| 0.0)),
        ("identity", Box::new(move |i, j| if_equal(i, j, 1.0))),
        ("near identity", Box::new(move |i, j| if_equal(i, j, 1.0) + 1e-13 * x(i, j))),
        ("ones", Box::new(|_, _| 1.0)),
        ("rank one", Box::new(move |i, j| x(i, 0) * x(0, j))),
        ("shift", Box::new(move |i, j| if_equal(i + 1, j, 1.0))),
        ("cycle", Box::new(move |i, j| if_equal((i + 1) % n, j, 1.0))),
        ("jordan", Box::new(move |i, j| if_equal(i, j, 2.0) + if_equal(i, j + 1, 1.0))),
        ("upper triangular", Box::new(move |i, j| if i <= j { x(i, j) } else { 0.0 })),
        ("lower triangular", Box::new(move |i, j| if i >= j { x(i, j) } else { 0.0 })),
        ("alternating", Box::new(move |i, j| x(i, j) - x(j, i))),
        ("symmetric", Box::new(move |i, j| x(i, j) + x(j, i))),
        (
            "hessenberg with zeros",
            Box::new(
                move |i, j| if i > j + 1 || (i == j + 1 && i % 5 == 0) { 0.0 } else { x(i, j) },
            ),
        ),
        ("pairs", Box::new(move |i, j| if i / 2 == j / 2 { x(i % 2, j % 2 + 2) } else { 0.0 })),
        (
            "grcar",
            Box::new(move |i, j| match j as isize - i as isize {
                -1 => -1.0,
                0..=3 => 1.0,
                _ => 0.0,
            }),
        ),
        (
            "stochastic",
            Box::new(move |i, j| x(i, j).abs() / (0..n).map(|k| x(i, k).abs()).sum::<f64>()),
        ),
        ("huge", Box::new(move |i, j| x(i, j) * large)),
        ("tiny", Box::new(move |i, j| x(i, j) / large)),
    ]
}

fn matrices_of_all_kinds_are_decomposed<T: Real>() {
    for n in [4, 30, 85, 201] {
        let x = random::<T>(&mut rng(n as u64), n, n);
        for (name, cell) in matrices(&x) {
            // Shown where one fails.
            println!("{name}, {n}");
            assert_eig::<T>(&build(n, n, |i, j| T::from_f64(cell(i, j))));
        }
    }
}

#[test]
fn matrices_of_all_kinds_are_decomposed_in_64_bits() {
    matrices_of_all_kinds_are_decomposed::<f64>();
}

#[test]
fn matrices_of_all_kinds_are_decomposed_in_32_bits() {
    matrices_of_all_kinds_are_decomposed::<f32>();
}

/// Asserts that each expected value, real and imaginary part, is one of those found.
fn assert_values(found: &Eig<f64>, expected: &[(f64, f64)], bound: f64) {
    let mut left: Vec<(f64, f64)> = found
        .values_re
        .cells()
        .iter()
        .copied()
        .zip(found.values_im.cells().iter().copied())
        .collect();
    assert_eq!(left.len(), expected.len());
    for &(re, im) in expected {
        let distance = |x: &(f64, f64)| (x.0 - re).hypot(x.1 - im);
        let nearest =
            (0..left.len()).min_by(|&i, &j| distance(&left[i]).total_cmp(&distance(&left[j])));
        let nearest = left.swap_remove(nearest.unwrap());
        assert!(distance(&nearest) <= bound, "{nearest:?} is not {:?}", (re, im));
    }
}

#[test]
fn values_are_those_of_their_formulas() {
    let n = 211;
    // Roots of unity.
    let cycle = build(n, n, |i, j| if (i * 2 + 3) % n == (j * 2) % n { 1.0 } else { 0.0 });
    let angles: Vec<_> = (0..n).map(|k| (TAU * k as f64 / n as f64).sin_cos()).collect();
    let roots: Vec<_> = angles.iter().map(|&(sin, cos)| (cos, sin)).collect();
    assert_values(&assert_eig(&cycle), &roots, 1e-13);
    // A ring whose steps one way are not those the other way.
    let ring = build(n, n, |i, j| match (j + n - i) % n {
        1 => 3.0,
        k if k == n - 1 => 1.0,
        _ => 0.0,
    });
    let expected: Vec<_> = roots.iter().map(|&(cos, sin)| (4.0 * cos, 2.0 * sin)).collect();
    assert_values(&assert_eig(&ring), &expected, 1e-12);
    // Three diagonals, alike to symmetric ones by a diagonal matrix.
    let walk = build(60, 60, |i, j| match (i, j) {
        (i, j) if i == j + 1 => (60 - i) as f64,
        (i, j) if i + 1 == j => j as f64,
        _ => 0.0,
    });
    let expected: Vec<_> = (0..60).map(|k| (2.0 * k as f64 - 59.0, 0.0)).collect();
    assert_values(&assert_eig(&walk), &expected, 1e-7);
    // Exact where a permutation tells them.
    let x = random::<f64>(&mut rng(1), 90, 90);
    let order = |i: usize| (i * 37) % 90;
    let shuffled = build(90, 90, |i, j| if order(i) <= order(j) { x.row(i)[j] } else { 0.0 });
    let mut expected: Vec<f64> = (0..90).map(|i| x.row(i)[i]).collect();
    expected.sort_by(f64::total_cmp);
    assert_eq!(eig(&shuffled, Stop::NEVER).unwrap().values_re.cells(), expected);
}

/// Companions of polynomials, whose roots are the values.
#[test]
fn values_of_companions_are_roots() {
    let companion = |roots: &[f64]| {
        let mut c = vec![1.0];
        for root in roots {
            c.push(0.0);
            (1..c.len()).rev().for_each(|k| c[k] -= root * c[k - 1]);
        }
        let n = roots.len();
        build(n, n, |i, j| match i {
            0 => -c[j + 1],
            i if i == j + 1 => 1.0,
            _ => 0.0,
        })
    };
    let expected = |roots: &[f64]| roots.iter().map(|&x| (x, 0.0)).collect::<Vec<_>>();
    let far = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    assert_values(&assert_eig(&companion(&far)), &expected(&far), 1e-11);
    // A root of order k is known to the k-th root of the unit of rounding.
    let thrice = [1.0, 1.0, 1.0, -2.0];
    assert_values(&eig(&companion(&thrice), Stop::NEVER).unwrap(), &expected(&thrice), 1e-4);
}

/// By NumPy 2.4 with all digits, its vectors turned as ours are.
#[test]
fn two_pairs_keep_their_digits() {
    let cells =
        vec![0.0, 1.0, 2.0, 0.0, -3.0, 1.0, 0.0, 2.0, 1.0, 0.0, -2.0, 4.0, 0.0, 5.0, -1.0, 1.0];
    let found = assert_eig::<f64>(&dense(Shape::new(4, 4), cells));
    let expected = [
        (-2.8420832101358107, 2.3231211023002163),
        (-2.8420832101358107, -2.3231211023002163),
        (2.8420832101358107, 1.660717402425578),
        (2.8420832101358107, -1.660717402425578),
    ];
    for (j, (re, im)) in expected.into_iter().enumerate() {
        let (found_re, found_im) = (found.values_re.cells()[j], found.values_im.cells()[j]);
        assert!((found_re - re).abs() <= 4e-15 && (found_im - im).abs() <= 4e-15, "value {j}");
    }
    let first = [
        (-0.3577887552846793, -0.16092935223295726),
        (-0.02247291256369544, -0.3738119975682478),
        (0.70659835044278, 0.0),
        (-0.05930646298321095, 0.45061072274927594),
    ];
    let third = [
        (0.303279411723078, -0.28203268438770107),
        (0.33022754855325115, 0.1616015036033224),
        (0.5000471812501149, -0.2297502318826161),
        (0.6248852142956538, 0.0),
    ];
    for (j, vector) in [(0, first), (2, third)] {
        for (i, (re, im)) in vector.into_iter().enumerate() {
            let (found_re, found_im) = (found.vectors_re.row(i)[j], found.vectors_im.row(i)[j]);
            let distance = (found_re - re).hypot(found_im - im);
            assert!(distance <= 4e-15, "entry {i} of vector {j}");
        }
    }
}

/// By rows of a graded matrix, of which balancing makes one that is not.
#[test]
fn small_values_beside_large_cells_keep_their_digits() {
    let x = random::<f64>(&mut rng(6), 30, 30);
    let scale = |i: usize| 2f64.powi(((i * 11) % 30) as i32 * 8 - 120);
    let bad = build(30, 30, |i, j| x.row(i)[j] * scale(i) / scale(j));
    let (found, expected) = (eig(&bad, Stop::NEVER).unwrap(), eig(&x, Stop::NEVER).unwrap());
    assert_form(&found);
    let expected: Vec<_> = expected
        .values_re
        .cells()
        .iter()
        .copied()
        .zip(expected.values_im.cells().iter().copied())
        .collect();
    assert_values(&found, &expected, 1e-12);
}

#[test]
fn a_symmetric_matrix_has_the_values_of_its_own_decomposition() {
    let x = random::<f64>(&mut rng(7), 150, 150);
    let a = build(150, 150, |i, j| x.row(i)[j] + x.row(j)[i]);
    let general = Spectrum::of(by_columns(view(&a)), Stop::NEVER).unwrap().sorted(1.0);
    assert_form(&general);
    let Eigh { values, vectors } = eigh(&a, None, Stop::NEVER).unwrap();
    assert_near(&general.values_re, &values, norm(&a));
    // The vectors are as near as their values are far from each other.
    let turned = product(&transpose(&vectors), &general.vectors_re, Stop::NEVER);
    let identity = build(150, 150, |i, j| if i == j { 1.0 } else { 0.0 });
    assert_near(&turned, &identity, 1e4);
    assert_eq!(eig(&a, Stop::NEVER).unwrap().vectors_re.cells(), vectors.cells());
}

#[test]
fn the_edges_have_values() {
    let empty = assert_eig(&build::<f64>(0, 0, |_, _| 0.0));
    assert_eq!(empty.vectors_im.shape(), Shape::new(0, 0));
    let one = assert_eig(&build::<f32>(1, 1, |_, _| -3.0));
    assert_eq!((one.values_re.cells(), one.vectors_re.cells()), (&[-3.0][..], &[1.0][..]));
    let turn = assert_eig(&build(2, 2, |i, j| j as f64 - i as f64));
    assert_eq!((turn.values_re.cells(), turn.values_im.cells()), (&[0.0; 2][..], &[1.0, -1.0][..]));
    for bad in [f64::NAN, f64::INFINITY] {
        let error =
            eig(&build(2, 2, |i, j| if i < j { bad } else { 1.0 }), Stop::NEVER).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
        assert!(error.to_string().starts_with("eig: "), "{error}");
    }
}

fn vector_instructions_change_no_bit_of<T: Real>() {
    let a = random::<T>(&mut rng(10), 90, 90);
    let schur = Schur::of(by_columns(view(&a)), Stop::NEVER).unwrap();
    let bits = |arch| {
        let found = by_rows(vectors::vectors_by(arch, &schur, Stop::NEVER).as_ref());
        found.cells().iter().map(|x| x.to_f64().to_bits()).collect::<Vec<_>>()
    };
    assert!(wider().into_iter().all(|arch| bits(arch) == bits(PLAIN)));
}

#[test]
fn vector_instructions_change_no_bit() {
    vector_instructions_change_no_bit_of::<f64>();
    vector_instructions_change_no_bit_of::<f32>();
}

#[test]
fn the_bits_do_not_depend_on_threads() {
    let a = random::<f64>(&mut rng(8), 400, 400);
    same_bits(|| {
        let found = eig(&a, Stop::NEVER).unwrap();
        [found.values_re.cells(), found.values_im.cells(), found.vectors_re.cells()].concat()
    });
}

#[test]
fn one_that_is_asked_to_stop_at_any_time_is_cancelled() {
    let a = random::<f64>(&mut rng(9), 500, 500);
    for delay_ms in [0, 1, 5, 10, 20, 40, 80] {
        let asked = AtomicBool::new(delay_ms == 0);
        let error = std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(Duration::from_millis(delay_ms));
                asked.store(true, Ordering::Relaxed);
            });
            eig(&a, Stop::once(&asked)).err()
        });
        // It may have come to its end before, but not if it was asked before it began.
        assert!(error.is_some() || delay_ms > 0);
        assert!(error.is_none_or(|error| matches!(error.kind(), ErrorKind::Cancelled)));
    }
}
