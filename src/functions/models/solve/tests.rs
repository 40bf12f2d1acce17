//! Fits against NIST's certified values, against fractions, and by what must hold.

use super::*;
use crate::exec::kernels::moments::{Block, Center, length};

/// The sums over columns, y first, with weights if there are any.
fn sums(columns: &[Vec<f64>], weights: Option<&[f64]>) -> Vec<f64> {
    let mut sum = vec![0.0; length(columns.len())];
    let mut block = Block::new(columns.len(), weights.is_some());
    for row in 0..columns[0].len() {
        for (j, column) in columns.iter().enumerate() {
            block.next_cells(j, 1)[0] = column[row];
        }
        if let Some(weights) = weights {
            block.next_weights(1)[0] = weights[row];
        }
        block.grow(1);
        if block.room() == 0 {
            block.add_to(&mut sum, Center::Mean);
        }
    }
    block.add_to(&mut sum, Center::Mean);
    sum
}

fn fitted(columns: &[Vec<f64>], weights: Option<&[f64]>, ridge: f64) -> Fit {
    fit(Moments::new(columns.len(), &sums(columns, weights)), ridge)
}

/// Asserts that the estimates, the intercept first, have so many digits in common with these.
fn assert_digits(found: (f64, &[f64]), expected: &[f64], digits: i32) {
    assert_eq!(found.1.len() + 1, expected.len());
    for (found, expected) in std::iter::once(&found.0).chain(found.1).zip(expected) {
        let error = (found - expected).abs() / expected.abs().max(1e-300);
        assert!(error < 10f64.powi(-digits), "{found} is not {expected}");
    }
}

fn assert_fit(fit: &Fit, coefficients: &[f64], errors: &[f64], r2: f64, digits: i32) {
    assert_digits((fit.intercept, &fit.coefficients), coefficients, digits);
    let found = fit.errors.as_ref().unwrap();
    assert_digits((found.intercept, &found.coefficients), errors, digits);
    assert!((fit.r2.unwrap() - r2).abs() < 1e-12);
}

/// Longley (1967), as NIST's Statistical Reference Datasets have it: employment, and what explains it.
fn longley() -> Vec<Vec<f64>> {
    let years: Vec<f64> = (1947..1963).map(f64::from).collect();
    let columns: [[f64; 16]; 6] = [
        [
            60323.0, 61122.0, 60171.0, 61187.0, 63221.0, 63639.0, 64989.0, 63761.0, 66019.0,
            67857.0, 68169.0, 66513.0, 68655.0, 69564.0, 69331.0, 70551.0,
        ],
        [
            83.0, 88.5, 88.2, 89.5, 96.2, 98.1, 99.0, 100.0, 101.2, 104.6, 108.4, 110.8, 112.6,
            114.2, 115.7, 116.9,
        ],
        [
            234289.0, 259426.0, 258054.0, 284599.0, 328975.0, 346999.0, 365385.0, 363112.0,
            397469.0, 419180.0, 442769.0, 444546.0, 482704.0, 502601.0, 518173.0, 554894.0,
        ],
        [
            2356.0, 2325.0, 3682.0, 3351.0, 2099.0, 1932.0, 1870.0, 3578.0, 2904.0, 2822.0, 2936.0,
            4681.0, 3813.0, 3931.0, 4806.0, 4007.0,
        ],
        [
            1590.0, 1456.0, 1616.0, 1650.0, 3099.0, 3594.0, 3547.0, 3350.0, 3048.0, 2857.0, 2798.0,
            2637.0, 2552.0, 2514.0, 2572.0, 2827.0,
        ],
        [
            107608.0, 108632.0, 109773.0, 110929.0, 112075.0, 113270.0, 115094.0, 116219.0,
            117388.0, 118734.0, 120445.0, 121950.0, 123366.0, 125368.0, 127852.0, 130081.0,
        ],
    ];
    columns.into_iter().map(|column| column.to_vec()).chain([years]).collect()
}

/// Certified values: https://www.itl.nist.gov/div898/strd/lls/data/Longley.shtml
#[test]
fn longley_has_its_certified_values() {
    let coefficients = [
        -3482258.63459582,
        15.0618722713733,
        -0.358191792925910E-01,
        -2.02022980381683,
        -1.03322686717359,
        -0.511041056535807E-01,
        1829.15146461355,
    ];
    let errors = [
        890420.383607373,
        84.9149257747669,
        0.334910077722432E-01,
        0.488399681651699,
        0.214274163161675,
        0.226073200069370,
        455.478499142212,
    ];
    assert_fit(&fitted(&longley(), None, 0.0), &coefficients, &errors, 0.995479004577296, 11);
}

/// Computed in fractions.
#[test]
fn weights_count_as_they_should() {
    let weights: Vec<f64> = (1..=16).map(f64::from).collect();
    let coefficients = [
        -3844799.5648786062,
        18.147935448510445,
        -0.04480016029755596,
        -2.0927333239896537,
        -1.0352603467823283,
        -0.04569888060497762,
        2016.052244344657,
    ];
    let errors = [
        910691.591409666,
        88.39080592473901,
        0.03406114530502493,
        0.5004482386003555,
        0.23787153937876845,
        0.22744867523348772,
        465.6837162577086,
    ];
    let fit = fitted(&longley(), Some(&weights), 0.0);
    assert_fit(&fit, &coefficients, &errors, 0.9940217727239873, 10);
}

fn small() -> Vec<Vec<f64>> {
    vec![
        vec![1.0, 3.0, 2.0, 5.0, 4.0],
        vec![1.0, 2.0, 3.0, 4.0, 5.0],
        vec![2.0, 1.0, 4.0, 3.0, 6.0],
    ]
}

/// Computed in fractions.
#[test]
fn a_ridge_shrinks_coefficients_and_not_the_intercept() {
    let fit = fitted(&small(), None, 0.5);
    let expected = [0.9291014014839242, 1.3586150041220115, -0.6265457543281121];
    assert_digits((fit.intercept, &fit.coefficients), &expected, 13);
    assert!((fit.r2.unwrap() - 0.9481934171509662).abs() < 1e-13);
    assert_eq!(fit.errors, None);
    let weighted = fitted(&small(), Some(&[1.0, 2.0, 3.0, 4.0, 5.0]), 0.5);
    let expected = [0.6953069948795039, 1.6274721661107718, -0.8093202424014657];
    assert_digits((weighted.intercept, &weighted.coefficients), &expected, 13);
}

/// A shift of all columns moves the intercept alone.
#[test]
fn large_means_cost_no_digits() {
    let shifted: Vec<Vec<f64>> = small()
        .into_iter()
        .zip([0.0, 1e9, -4e9])
        .map(|(column, shift)| column.into_iter().map(|x| x + shift).collect())
        .collect();
    let (near, far) = (fitted(&small(), None, 0.0), fitted(&shifted, None, 0.0));
    for (near, far) in near.coefficients.iter().zip(&far.coefficients) {
        assert!((near - far).abs() < 1e-13, "{near} {far}");
    }
    assert!((near.r2.unwrap() - far.r2.unwrap()).abs() < 1e-13);
}

/// Expected: the pseudo-inverse of the centred columns, by NumPy.
#[test]
fn of_many_solutions_the_least_is_taken() {
    let twice = [vec![1.0, 2.0, 4.0], vec![1.0, 2.0, 3.0], vec![2.0, 4.0, 6.0]];
    let fit = fitted(&twice, None, 0.0);
    assert_digits((fit.intercept, &fit.coefficients), &[-2.0 / 3.0, 0.3, 0.6], 13);
    assert_eq!(fit.errors, None);
    assert!((fit.r2.unwrap() - 27.0 / 28.0).abs() < 1e-13);

    let too_few = [vec![1.0, 4.0], vec![1.0, 2.0], vec![2.0, 1.0], vec![0.0, 5.0]];
    let fit = fitted(&too_few, None, 0.0);
    assert_digits(
        (fit.intercept, &fit.coefficients),
        &[10.0 / 9.0, 1.0 / 9.0, -1.0 / 9.0, 5.0 / 9.0],
        13,
    );
    assert_eq!(fit.errors, None);
}

/// Columns of very different size: x3 = 10⁶·x1 - x2 in units of its own.
#[test]
fn dependence_is_found_whatever_the_units() {
    let x1: Vec<f64> = (0..300).map(|i| f64::from(i * 7 % 101)).collect();
    let x2: Vec<f64> = (0..300).map(|i| 1e-6 * f64::from(i * 13 % 89)).collect();
    let x3: Vec<f64> = x1.iter().zip(&x2).map(|(a, b)| 1e6 * (a - 1e6 * b)).collect();
    let y: Vec<f64> = x1.iter().zip(&x2).map(|(a, b)| 3.0 + 2.0 * a + 5e5 * b).collect();
    let columns = [y.clone(), x1.clone(), x2.clone(), x3.clone()];
    let fit = fitted(&columns, None, 0.0);
    assert_eq!(fit.errors, None);
    assert!(fit.r2.unwrap() > 1.0 - 1e-12);
    for i in 0..300 {
        let b = &fit.coefficients;
        let fitted = fit.intercept + b[0] * x1[i] + b[1] * x2[i] + b[2] * x3[i];
        assert!((fitted - y[i]).abs() < 1e-6, "{fitted} {}", y[i]);
    }
}

#[test]
fn a_constant_column_has_no_coefficient() {
    let columns = [vec![1.0, 3.0, 2.0, 5.0], vec![1.0, 2.0, 3.0, 4.0], vec![0.1; 4]];
    let with = fitted(&columns, None, 0.0);
    let without = fitted(&columns[..2], None, 0.0);
    assert_eq!(with.coefficients, [without.coefficients[0], 0.0]);
    assert_eq!(with.errors, None);
    let none = fitted(&[vec![1.0, 3.0], vec![7.0, 7.0]], None, 0.0);
    assert_eq!((none.intercept, none.r2), (2.0, None));
}

#[test]
fn what_is_not_finite_has_no_model() {
    let fit = fitted(&[vec![1.0, 2.0, f64::NAN], vec![1.0, 2.0, 3.0]], None, 0.0);
    assert!(fit.intercept.is_nan() && fit.coefficients[0].is_nan() && fit.r2.unwrap().is_nan());
}

#[test]
fn a_model_of_nothing_is_the_mean() {
    let fit = fitted(&[vec![1.0, 2.0, 6.0]], None, 0.0);
    assert_eq!((fit.intercept, &fit.coefficients[..], fit.r2), (3.0, &[][..], None));
    assert!((fit.errors.unwrap().intercept - (7f64 / 3.0).sqrt()).abs() < 1e-15);
}

/// The residuals are orthogonal to every column.
#[test]
fn normal_equations_hold() {
    use rand::Rng;
    let mut rng = crate::exec::kernels::testing::rng(11);
    for count in [1, 2, 5, 20] {
        let mut column = || (0..500).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f64>>();
        let columns: Vec<Vec<f64>> = (0..=count).map(|_| column()).collect();
        let fit = fitted(&columns, None, 0.0);
        let residual = |i: usize| {
            let fitted: f64 = (0..count).map(|j| fit.coefficients[j] * columns[j + 1][i]).sum();
            columns[0][i] - fit.intercept - fitted
        };
        for column in &columns[1..] {
            let along: f64 = (0..500).map(|i| residual(i) * column[i]).sum();
            assert!(along.abs() < 1e-11, "{count} columns: {along}");
        }
    }
}
