//! Fused programs beside hand-written loops: `cargo bench --bench fused [FILTER]`.
//!
//! Bytes are those that must move between memory and cache: inputs read, the result read and written.
//! `memory` is what the machine gives to a loop that does nothing else. Results go to memory in use
//! already; `fresh` shows what a new allocation costs instead.

use divan::Bencher;
use divan::counter::BytesCount;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;
use relatrix::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use relatrix::exec::kernels::fused::{
    Accumulator, Builder, Input, Program, Reduction, Scratch, Value,
};

/// Cells of a column vector: 400 MB, far beyond any cache.
const CELLS: usize = 50_000_000;

/// Cells that a thread takes at a time.
const BLOCK: usize = 1 << 18;

fn main() {
    divan::main();
}

fn random(cells: usize, seed: u64) -> Vec<f64> {
    let block = |(at, block): (usize, &mut [f64])| {
        let mut rng = SmallRng::seed_from_u64(seed << 32 | at as u64);
        block.fill_with(|| rng.random_range(-0.5..0.5));
    };
    let mut cells = vec![0.0; cells];
    cells.par_chunks_mut(BLOCK).enumerate().for_each(block);
    cells
}

fn program(build: impl FnOnce(&mut Builder, [Value; 3]) -> Value) -> Program {
    let mut builder = Builder::new();
    let inputs = [0, 1, 2].map(|number| builder.input(number));
    let result = build(&mut builder, inputs);
    builder.finish(result)
}

fn relu_of_product_and_sum() -> Program {
    program(|builder, [a, b, c]| {
        let product = builder.binary(BinaryFunction::Multiply, a, b);
        let sum = builder.binary(BinaryFunction::Add, product, c);
        builder.unary(UnaryFunction::Relu, sum)
    })
}

fn squared_difference() -> Program {
    program(|builder, [a, b, _]| {
        let difference = builder.binary(BinaryFunction::Subtract, a, b);
        let two = builder.constant(2.0);
        builder.binary(BinaryFunction::Power, difference, two)
    })
}

fn gauss() -> Program {
    program(|builder, [a, _, _]| {
        let square = builder.binary(BinaryFunction::Multiply, a, a);
        let factor = builder.constant(-0.5);
        let exponent = builder.binary(BinaryFunction::Multiply, square, factor);
        builder.unary(UnaryFunction::Exp, exponent)
    })
}

fn inputs<'a>(columns: &'a [Vec<f64>], block: usize, count: usize) -> Vec<Input<'a, f64>> {
    columns.iter().map(|cells| Input::Cells(&cells[block * BLOCK..][..count])).collect()
}

fn run(program: &Program, columns: &[Vec<f64>], out: &mut [f64]) {
    out.par_chunks_mut(BLOCK).enumerate().for_each_init(Scratch::new, |scratch, (block, out)| {
        program.run(&inputs(columns, block, out.len()), out.len(), 1, scratch, out);
    });
}

fn sum(program: &Program, columns: &[Vec<f64>]) -> f64 {
    let blocks = columns[0].par_chunks(BLOCK).enumerate();
    let parts: Vec<Accumulator> = blocks
        .map_init(Scratch::new, |scratch, (block, cells)| {
            let inputs = inputs(columns, block, cells.len());
            program.reduce(&inputs, cells.len(), 1, Reduction::Sum, scratch)
        })
        .collect();
    let mut total = Accumulator::new(Reduction::Sum);
    parts.iter().for_each(|part| total.merge(part));
    total.value()
}

/// Three inputs and a result, which is read before it is written: 32 bytes a cell.
mod relu_of_product_and_sum {
    use super::*;

    #[divan::bench(sample_count = 7)]
    fn fused(bencher: Bencher) {
        let columns = [random(CELLS, 1), random(CELLS, 2), random(CELLS, 3)];
        let (program, mut out) = (super::relu_of_product_and_sum(), random(CELLS, 4));
        bencher
            .counter(BytesCount::new(32 * CELLS))
            .bench_local(|| run(&program, &columns, &mut out));
    }

    #[divan::bench(sample_count = 7)]
    fn fresh(bencher: Bencher) {
        let columns = [random(CELLS, 1), random(CELLS, 2), random(CELLS, 3)];
        let program = super::relu_of_product_and_sum();
        bencher.counter(BytesCount::new(32 * CELLS)).bench_local(|| {
            let mut out = vec![0.0; CELLS];
            run(&program, &columns, &mut out);
            out
        });
    }

    #[divan::bench(sample_count = 7)]
    fn by_hand(bencher: Bencher) {
        let [a, b, c] = [1, 2, 3].map(|seed| random(CELLS, seed));
        let mut out = random(CELLS, 4);
        bencher.counter(BytesCount::new(32 * CELLS)).bench_local(|| {
            let cells = a.par_chunks(BLOCK).zip(b.par_chunks(BLOCK)).zip(c.par_chunks(BLOCK));
            out.par_chunks_mut(BLOCK).zip(cells).for_each(|(out, ((a, b), c))| {
                for (((out, a), b), c) in out.iter_mut().zip(a).zip(b).zip(c) {
                    *out = (a * b + c).max(0.0);
                }
            });
        });
    }
}

mod sum_of_squared_differences {
    use super::*;

    #[divan::bench(sample_count = 7)]
    fn fused(bencher: Bencher) {
        let (program, columns) = (squared_difference(), [random(CELLS, 1), random(CELLS, 2)]);
        bencher.counter(BytesCount::new(16 * CELLS)).bench_local(|| sum(&program, &columns));
    }

    /// Read alone: sixteen sums of cells.
    #[divan::bench(sample_count = 7)]
    fn memory(bencher: Bencher) {
        let columns = [random(CELLS, 1), random(CELLS, 2)];
        let add = |mut sums: [f64; 16], row: &[f64; 16]| {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            sums
        };
        let read =
            |block: &[f64]| block.as_chunks().0.iter().fold([0.0; 16], add).iter().sum::<f64>();
        bencher.counter(BytesCount::new(16 * CELLS)).bench_local(|| {
            columns
                .iter()
                .map(|column| column.par_chunks(BLOCK).map(read).sum::<f64>())
                .sum::<f64>()
        });
    }
}

#[divan::bench(sample_count = 7)]
fn exp_of_minus_half_the_square(bencher: Bencher) {
    let (program, columns, mut out) = (gauss(), [random(CELLS, 1)], random(CELLS, 4));
    bencher.counter(BytesCount::new(24 * CELLS)).bench_local(|| run(&program, &columns, &mut out));
}

/// `softmax` of rows of 1,000: a maximum, an exponential, a sum and a quotient while 64 rows are in cache.
#[divan::bench(sample_count = 7)]
fn softmax(bencher: Bencher) {
    const COLUMNS: usize = 1000;
    const ROWS: usize = 64;
    let (x, mut out) = (random(10_000 * COLUMNS, 1), random(10_000 * COLUMNS, 4));
    let cells = program(|_, [x, _, _]| x);
    let shifted = program(|builder, [x, greatest, _]| {
        let distance = builder.binary(BinaryFunction::Subtract, x, greatest);
        builder.unary(UnaryFunction::Exp, distance)
    });
    let quotient = program(|builder, [x, sum, _]| builder.binary(BinaryFunction::Divide, x, sum));
    bencher.counter(BytesCount::new(24 * x.len())).bench_local(|| {
        let blocks = x.par_chunks(ROWS * COLUMNS).zip(out.par_chunks_mut(ROWS * COLUMNS));
        let scratch = || (Scratch::new(), vec![0.0; ROWS * COLUMNS], vec![0.0; ROWS]);
        blocks.for_each_init(scratch, |(scratch, powers, column), (x, out)| {
            let rows = x.len() / COLUMNS;
            let (powers, column) = (&mut powers[..x.len()], &mut column[..rows]);
            let block = [Input::Cells(x)];
            cells.reduce_rows(&block, rows, COLUMNS, Reduction::Max, scratch, column);
            shifted.run(&[block[0], Input::Column(column)], rows, COLUMNS, scratch, powers);
            let block = [Input::Cells(powers)];
            cells.reduce_rows(&block, rows, COLUMNS, Reduction::Sum, scratch, column);
            quotient.run(&[block[0], Input::Column(column)], rows, COLUMNS, scratch, out);
        });
    });
}
