//! Every loop over matrices of which a few rows hold most cells, so that rows are cut: it gives the cells of its
//! definition, bit for bit, on any number of threads.

use std::collections::BTreeMap;

use super::super::dot::dot;
use super::super::elementwise::UnaryFunction;
use super::super::testing::*;
use super::super::{Stop, dense};
use super::*;
use crate::matrix::{Csr, Dense, Shape};

/// The stored cells by their places.
type Entries = BTreeMap<(usize, usize), f64>;

fn entries(x: &Csr<f64>) -> Entries {
    let of_row = |i: usize| {
        let (columns, values) = x.row(i);
        columns.iter().zip(values).map(move |(&j, &value)| ((i, j as usize), value))
    };
    (0..x.shape().rows).flat_map(of_row).collect()
}

/// Two matrices of each kind, of one shape; the first two begin beyond their buffers' first cells, as blocks do.
fn skewed() -> [[Csr<f64>; 2]; 2] {
    let pair = |x: Csr<f64>, y: Csr<f64>| [x.rows(1..30), y.rows(0..29)];
    [
        pair(power_law(30, 90_000, 1), power_law(30, 90_000, 2)),
        pair(one_long_row(30, 200_000, 3), one_long_row(30, 200_000, 4)),
    ]
}

/// Asserts that a loop makes these cells where they are not zeros, whoever runs it.
fn check(name: &str, expected: Entries, run: impl Fn() -> Csr<f64> + Sync) {
    let expected: Entries = expected.into_iter().filter(|(_, cell)| *cell != 0.0).collect();
    let bits = |cell: f64| if cell.is_nan() { f64::NAN.to_bits() } else { cell.to_bits() };
    let bits = |cells: Entries| cells.into_iter().map(move |(place, cell)| (place, bits(cell)));
    assert!(bits(entries(&run())).eq(bits(expected)), "{name}");
    same_bits(|| stored_values(&run()).to_vec());
}

fn of_cells(x: &Csr<f64>, cell: impl Fn((usize, usize), f64) -> f64) -> Entries {
    entries(x).into_iter().map(|(place, x)| (place, cell(place, x))).collect()
}

/// Each cell at a place of its own, or at none.
fn moved(x: &Csr<f64>, to: impl Fn(usize, usize) -> Option<(usize, usize)>) -> Entries {
    entries(x).into_iter().filter_map(|((i, j), x)| Some((to(i, j)?, x))).collect()
}

#[test]
fn cells_of_long_rows_combine_one_by_one() {
    for [x, y] in &skewed() {
        let (shape, right) = (x.shape(), entries(y));
        let rounded = of_cells(x, |_, x| UnaryFunction::Round.apply(x));
        check("round", rounded, || map(x, UnaryFunction::Round, Stop::NEVER));
        for f in [|x: f64, y: f64| x + y, |x, y| x * y] {
            let mut both = of_cells(y, |_, y| f(0.0, y));
            both.extend(of_cells(x, |place, x| f(x, right.get(&place).copied().unwrap_or(0.0))));
            check("zip", both, || zip(x, y, f, Stop::NEVER));
        }
        for (rows, columns) in
            [(1, shape.columns), (shape.rows, 1), (1, 1), (shape.rows, shape.columns)]
        {
            let d = build(rows, columns, |i, j| ((i * 7 + j * 3 + 1) % 5) as f64);
            let cell = |i: usize, j: usize| d.row(i.min(rows - 1))[j.min(columns - 1)];
            let products = of_cells(x, |(i, j), x| x * cell(i, j));
            check("zip_dense", products, || zip_dense(x, &d, |x, y| x * y, Stop::NEVER));
        }
        // Where a row meets what is not finite, all its cells are computed.
        let d =
            build(
                shape.rows,
                shape.columns,
                |i, j| if (i, j % 997) == (14, 5) { f64::NAN } else { 2.0 },
            );
        let mut products = of_cells(x, |_, x| x * 2.0);
        products.extend((5..shape.columns).step_by(997).map(|j| ((14, j), f64::NAN)));
        check("zip_dense", products, || zip_dense(x, &d, |x, y| x * y, Stop::NEVER));
    }
}

#[test]
fn long_rows_are_sampled_cell_by_cell() {
    let mut rng = rng(5);
    for [x, _] in &skewed() {
        let (a, b) = (random(&mut rng, x.shape().rows, 5), random(&mut rng, x.shape().columns, 5));
        let expected = of_cells(x, |(i, j), x| x * dot(b.row(j), a.row(i)));
        check("sampled", expected, || sampled(x, &a, &b, Stop::NEVER));
    }
}

#[test]
fn long_rows_are_turned_and_spread() {
    for [x, _] in &skewed() {
        let turned = moved(x, |i, j| Some((j, i)));
        check("transpose", turned, || transpose(x, Stop::NEVER));
        let full = to_dense(x);
        assert_eq!(full.cells().iter().filter(|x| **x != 0.0).count(), x.stored());
        assert!(entries(x).iter().all(|(&(i, j), cell)| full.row(i)[j] == *cell));
        check("from_dense", entries(x), || from_dense(&full));
    }
}

#[test]
fn long_rows_are_sliced_gathered_and_stacked() {
    for [x, y] in &skewed() {
        let Shape { rows, columns } = x.shape();
        let range = columns / 5..columns - 17;
        let sliced = moved(x, |i, j| range.contains(&j).then(|| (i, j - range.start)));
        check("slice", sliced, || slice_columns(x, range.clone()));
        let odd: Vec<usize> = (1..columns).step_by(2).collect();
        let picked = moved(x, |i, j| (j % 2 == 1).then_some((i, j / 2)));
        check("gather", picked, || gather_columns(x, &odd));
        let backwards: Vec<usize> = (0..columns).rev().collect();
        let turned = moved(x, |i, j| Some((i, columns - 1 - j)));
        check("gather", turned, || gather_columns(x, &backwards));
        let twice: Vec<usize> = (0..2 * columns).map(|j| j / 2).collect();
        let mut doubled = moved(x, |i, j| Some((i, 2 * j)));
        doubled.extend(moved(x, |i, j| Some((i, 2 * j + 1))));
        check("gather", doubled, || gather_columns(x, &twice));
        let backwards: Vec<usize> = (0..rows).rev().collect();
        let turned = moved(x, |i, j| Some((rows - 1 - i, j)));
        check("gather_rows", turned, || gather_rows(x, &backwards));
        let parts = [x.clone(), y.clone()];
        let mut beside = entries(x);
        beside.extend(moved(y, |i, j| Some((i, columns + j))));
        check("hstack", beside, || hstack(&parts));
        let mut below = entries(x);
        below.extend(moved(y, |i, j| Some((rows + i, j))));
        check("vstack", below, || vstack(&parts));
    }
}

#[test]
fn a_kron_with_long_rows_is_that_of_the_definition() {
    let (short, long) = (power_law(6, 5, 6), one_long_row(4, 40_000, 7));
    for (x, y) in [(&short, &long), (&long, &short)] {
        let Shape { rows, columns } = y.shape();
        let right = entries(y);
        let of_cell = |((i, j), x): ((usize, usize), f64)| {
            let cell = move |(&(k, l), y): (&(usize, usize), &f64)| {
                ((i * rows + k, j * columns + l), x * y)
            };
            right.iter().map(cell).collect::<Vec<_>>()
        };
        let expected = entries(x).into_iter().flat_map(of_cell).collect();
        check("kron", expected, || kron(x, y, Stop::NEVER));
    }
    // Of what is not finite, with the cells that are not stored.
    let mut rng = rng(8);
    let x = spoiled(&random_sparse::<f64>(&mut rng, 3, 40, 0.5), 0.9, f64::NAN);
    let y = random_sparse::<f64>(&mut rng, 2, 900, 0.5);
    for (x, y) in [(&x, &y), (&y, &x)] {
        let expected: Dense<f64> = dense::kron(&to_dense(x), &to_dense(y));
        assert_close(&to_dense(&kron(x, y, Stop::NEVER)), &expected, 0.0);
    }
}

#[test]
fn a_product_with_long_rows_that_are_not_finite_is_that_of_the_definition() {
    let mut rng = rng(9);
    let a = random_sparse::<f64>(&mut rng, 4, 60, 0.5);
    let b = random_sparse::<f64>(&mut rng, 60, 20_000, 0.02);
    let spoil = |x: &Csr<f64>| spoiled(x, 0.98, f64::INFINITY);
    for (a, b) in [(spoil(&a), b.clone()), (a.clone(), spoil(&b))] {
        let expected = naive_product(&to_dense(&a), &to_dense(&b));
        assert_close(&to_dense(&product(&a, &b, Stop::NEVER)), &expected, 1e3);
        same_bits(|| stored_values(&product(&a, &b, Stop::NEVER)).to_vec());
    }
}

#[test]
fn sums_into_columns_do_not_depend_on_where_rows_are_cut() {
    let mut rng = rng(10);
    // So few columns that parts have results of their own, which begin and end within rows.
    let s = power_law(2000, 1500, 11);
    let s = vstack(&vec![s; 12]);
    let (tall, thin) = (random(&mut rng, 24_000, 2), random(&mut rng, 2, 24_000));
    let turned = transpose(&s, Stop::NEVER);
    let expected = times_dense(&turned, &tall, Stop::NEVER);
    assert_close(&cross_dense(&s, &tall, Stop::NEVER), &expected, 1e4);
    let expected = dense::transpose(&times_dense(&turned, &dense::transpose(&thin), Stop::NEVER));
    assert_close(&dense_times(&thin, &s, Stop::NEVER), &expected, 1e4);
    same_bits(|| cross_dense(&s, &tall, Stop::NEVER).cells().to_vec());
    same_bits(|| dense_times(&thin, &s, Stop::NEVER).cells().to_vec());
}

#[test]
fn a_loop_over_long_rows_that_is_asked_to_stop_still_has_its_rows() {
    let asked = std::sync::atomic::AtomicBool::new(true);
    let stop = Stop::once(&asked);
    for [x, y] in &skewed() {
        let half = Dense::scalar(0.5);
        for found in [zip(x, y, |x, y| x + y, stop), zip_dense(x, &half, |x, y| x * y, stop)] {
            assert_eq!(found.shape(), x.shape());
        }
        assert_eq!(transpose(x, stop).shape(), x.shape().transposed());
    }
}
