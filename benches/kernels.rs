//! Kernels on their own: `cargo bench --bench kernels [FILTER]`.
//!
//! Products and factorizations count multiplications (half the flops), the rest bytes read.

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use relatrix::exec::kernels::reduce::{Axis, Reduction, reduce};
use relatrix::exec::kernels::{Real, Stop, decompose, dense, sparse};
use relatrix::matrix::{Csr, Dense, Shape, Storage};

fn main() {
    divan::main();
}

fn random(rows: usize, columns: usize) -> Dense<f64> {
    let mut rng = SmallRng::seed_from_u64(1);
    let cells: Vec<f64> = (0..rows * columns).map(|_| rng.random_range(-1.0..1.0)).collect();
    Dense::new(Shape::new(rows, columns), cells.into())
}

/// Rows, columns and values of `per_row` entries to a row, at random.
fn entries(side: usize, per_row: usize) -> (Vec<u32>, Vec<u32>, Vec<f64>) {
    let mut rng = SmallRng::seed_from_u64(2);
    let count = side * per_row;
    let mut places = || (0..count).map(|_| rng.random_range(0..side as u32)).collect::<Vec<_>>();
    let (rows, columns) = (places(), places());
    (rows, columns, vec![0.5; count])
}

fn random_sparse(side: usize, per_row: usize) -> Csr<f64> {
    let (rows, columns, values) = entries(side, per_row);
    let shape = Shape::new(side, side);
    let entry = |at: usize| (rows[at], columns[at], values[at]);
    sparse::from_entries(shape, rows.len(), entry, sparse::Duplicates::Sum, Stop::NEVER)
        .expect("duplicates are summed")
}

mod sorting {
    use relatrix::exec::kernels::radix;

    use super::*;

    /// A number and a place, as rows that are sorted have them; so many bits of the numbers differ.
    fn items(count: usize, bits: u32) -> Vec<(u64, u64)> {
        let mut rng = SmallRng::seed_from_u64(3);
        (0..count).map(|at| (rng.random::<u64>() >> (64 - bits), at as u64)).collect()
    }

    const CASES: [(usize, u32); 6] = [
        (10_000, 64),
        (100_000, 64),
        (1_000_000, 64),
        (1_000_000, 32),
        (1_000_000, 16),
        (4096, 64),
    ];

    #[divan::bench(args = CASES)]
    fn by_bytes(bencher: Bencher, (count, bits): (usize, u32)) {
        let items = items(count, bits);
        let counted = bencher.counter(ItemsCount::new(count));
        counted.with_inputs(|| items.clone()).bench_values(|mut items| {
            radix::sort(&mut items, |item| item.0);
            items
        });
    }

    #[divan::bench(args = CASES)]
    fn by_comparing(bencher: Bencher, (count, bits): (usize, u32)) {
        let items = items(count, bits);
        let counted = bencher.counter(ItemsCount::new(count));
        counted.with_inputs(|| items.clone()).bench_values(|mut items| {
            items.sort_unstable();
            items
        });
    }
}

mod products {
    use super::*;

    fn cells<T: Real>(n: usize) -> Dense<T> {
        let cells: Vec<T> = random(n, n).cells().iter().map(|&cell| T::from_f64(cell)).collect();
        Dense::new(Shape::new(n, n), cells.into())
    }

    #[divan::bench(args = [100, 500, 1000, 2000])]
    fn product(bencher: Bencher, n: usize) {
        let (a, b) = (random(n, n), random(n, n));
        bencher.counter(ItemsCount::new(n * n * n)).bench(|| dense::product(&a, &b, Stop::NEVER));
    }

    #[divan::bench(args = [512, 1000, 2048, 4096], types = [f64, f32])]
    fn classical<T: Real>(bencher: Bencher, n: usize) {
        let (a, b) = (cells::<T>(n), cells::<T>(n));
        bencher.counter(ItemsCount::new(n * n * n)).bench(|| dense::product(&a, &b, Stop::NEVER));
    }

    #[divan::bench(args = [(1000, 1), (1400, 1), (2048, 1), (4096, 1), (4096, 2)], types = [f64, f32])]
    fn strassen<T: Real>(bencher: Bencher, (n, levels): (usize, usize)) {
        let (a, b) = (cells::<T>(n), cells::<T>(n));
        bencher
            .counter(ItemsCount::new(n * n * n))
            .bench(|| dense::product_by_levels(&a, &b, levels, Stop::NEVER));
    }

    #[divan::bench(args = [(1_000_000, 20), (100_000, 200), (1000, 1000)])]
    fn gram(bencher: Bencher, (m, n): (usize, usize)) {
        let x = random(m, n);
        bencher.counter(ItemsCount::new(m * n * n / 2)).bench(|| dense::gram(&x, Stop::NEVER));
    }

    #[divan::bench(args = [(1_000_000, 20), (100_000, 200)])]
    fn matrix_vector(bencher: Bencher, (m, n): (usize, usize)) {
        let (x, w) = (random(m, n), random(n, 1));
        bencher.counter(BytesCount::new(m * n * 8)).bench(|| dense::product(&x, &w, Stop::NEVER));
    }

    #[divan::bench(args = [1000, 4000])]
    fn transpose(bencher: Bencher, n: usize) {
        let x = random(n, n);
        bencher.counter(BytesCount::new(n * n * 8)).bench(|| dense::transpose(&x));
    }
}

mod reductions {
    use super::*;

    const AXES: [Axis; 3] = [Axis::All, Axis::Rows, Axis::Columns];

    fn run(bencher: Bencher, reduction: Reduction, axis: Axis) {
        let x = Storage::Dense(random(500_000, 20));
        bencher.counter(BytesCount::new(x.size_bytes())).bench(|| reduce(&x, reduction, axis));
    }

    #[divan::bench(args = AXES)]
    fn sum(bencher: Bencher, axis: &Axis) {
        run(bencher, Reduction::Sum, *axis);
    }

    #[divan::bench(args = AXES)]
    fn max(bencher: Bencher, axis: &Axis) {
        run(bencher, Reduction::Max, *axis);
    }

    #[divan::bench(args = AXES)]
    fn variance(bencher: Bencher, axis: &Axis) {
        run(bencher, Reduction::Variance, *axis);
    }
}

mod compressed_rows {
    use super::*;

    const SIDE: usize = 200_000;

    #[divan::bench]
    fn from_entries(bencher: Bencher) {
        let (rows, columns, values) = entries(SIDE, 20);
        let (shape, sum) = (Shape::new(SIDE, SIDE), sparse::Duplicates::Sum);
        let entry = |at: usize| (rows[at], columns[at], values[at]);
        bencher
            .counter(BytesCount::new(rows.len() * 16))
            .bench(|| sparse::from_entries(shape, rows.len(), entry, sum, Stop::NEVER));
    }

    #[divan::bench]
    fn transpose(bencher: Bencher) {
        let x = random_sparse(SIDE, 20);
        bencher
            .counter(BytesCount::new(x.stored() * 12))
            .bench(|| sparse::transpose(&x, Stop::NEVER));
    }

    #[divan::bench(args = [1, 8, 64])]
    fn times_dense(bencher: Bencher, columns: usize) {
        let (x, y) = (random_sparse(SIDE, 20), random(SIDE, columns));
        bencher
            .counter(ItemsCount::new(x.stored() * columns))
            .bench(|| sparse::times_dense(&x, &y, Stop::NEVER));
    }

    #[divan::bench]
    fn cross_dense(bencher: Bencher) {
        let (x, y) = (random_sparse(SIDE, 20), random(SIDE, 1));
        bencher
            .counter(ItemsCount::new(x.stored()))
            .bench(|| sparse::cross_dense(&x, &y, Stop::NEVER));
    }

    #[divan::bench]
    fn product(bencher: Bencher) {
        let x = random_sparse(SIDE / 4, 8);
        bencher
            .counter(ItemsCount::new(x.stored() * 8))
            .bench(|| sparse::product(&x, &x, Stop::NEVER));
    }

    #[divan::bench]
    fn add(bencher: Bencher) {
        let x = random_sparse(SIDE, 20);
        bencher
            .counter(BytesCount::new(x.stored() * 24))
            .bench(|| sparse::zip(&x, &x, |a, b| a + b, Stop::NEVER));
    }
}

mod factorizations {
    use super::*;

    #[divan::bench(args = [200, 1000, 2000])]
    fn solve(bencher: Bencher, n: usize) {
        let (a, b) = (random(n, n), random(n, 1));
        bencher
            .counter(ItemsCount::new(n * n * n / 3))
            .bench(|| decompose::solve(&a, &b, Stop::NEVER));
    }

    #[divan::bench(args = [200, 1000, 2000])]
    fn solve_positive_definite(bencher: Bencher, n: usize) {
        let (a, b) = (dense::gram(&random(2 * n, n), Stop::NEVER), random(n, 1));
        bencher
            .counter(ItemsCount::new(n * n * n / 6))
            .bench(|| decompose::solve(&a, &b, Stop::NEVER));
    }

    #[divan::bench(args = [1000])]
    fn inverse(bencher: Bencher, n: usize) {
        let a = random(n, n);
        bencher
            .counter(ItemsCount::new(4 * n * n * n / 3))
            .bench(|| decompose::inverse(&a, Stop::NEVER));
    }

    #[divan::bench(args = [(100_000, 20), (2000, 1000)])]
    fn qr(bencher: Bencher, (m, n): (usize, usize)) {
        let a = random(m, n);
        bencher.counter(ItemsCount::new(2 * m * n * n)).bench(|| decompose::qr(&a, Stop::NEVER));
    }

    #[divan::bench(args = [(100_000, 20), (2000, 1000)])]
    fn least_squares(bencher: Bencher, (m, n): (usize, usize)) {
        let (a, b) = (random(m, n), random(m, 1));
        bencher
            .counter(ItemsCount::new(m * n * n))
            .bench(|| decompose::least_squares(&a, &b, Stop::NEVER));
    }

    #[divan::bench(args = [(100_000, 20), (2000, 500), (1000, 1000)])]
    fn svd(bencher: Bencher, (m, n): (usize, usize)) {
        let a = random(m, n);
        bencher.counter(ItemsCount::new(m * n * n)).bench(|| decompose::svd(&a, None, Stop::NEVER));
    }

    #[divan::bench(args = [200, 500, 1000])]
    fn eig(bencher: Bencher, n: usize) {
        let a = random(n, n);
        bencher.counter(ItemsCount::new(n * n * n)).bench(|| decompose::eig(&a, Stop::NEVER));
    }

    #[divan::bench(args = [200, 500])]
    fn logm(bencher: Bencher, n: usize) {
        let a = dense::gram(&random(n, n), Stop::NEVER);
        bencher.counter(ItemsCount::new(n * n * n)).bench(|| decompose::logarithm(&a, Stop::NEVER));
    }

    #[divan::bench(args = [200, 1000])]
    fn rank(bencher: Bencher, n: usize) {
        let a = random(n, n);
        bencher.counter(ItemsCount::new(n * n * n)).bench(|| decompose::rank(&a, Stop::NEVER));
    }

    #[divan::bench(args = [200, 1000])]
    fn eigh(bencher: Bencher, n: usize) {
        let a = dense::gram(&random(n, n), Stop::NEVER);
        bencher
            .counter(ItemsCount::new(n * n * n))
            .bench(|| decompose::eigh(&a, None, Stop::NEVER));
    }
}
