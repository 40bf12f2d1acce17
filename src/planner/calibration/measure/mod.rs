//! Measures the constants, each by the kernels that it stands for: those of matrices here, those of rows in `rows`.
//!
//! The best of some repetitions counts, for whoever else uses the machine can only make them slower. Sizes grow
//! until a repetition takes long enough to tell, so a slow machine is done in time too.

mod rows;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::ThreadPool;
use rayon::prelude::*;

use super::Constants;
use crate::exec::costs::{Constant, machine_threads};
use crate::exec::evaluate::{evaluate, one_loop};
use crate::exec::kernels::elementwise::UnaryFunction;
use crate::exec::kernels::{Real, Stop, decompose, dense, fused, sparse};
use crate::exec::operation::{CellFunction, Operation as Op};
use crate::matrix::{CellBuffer, Cells, Csr, Dense, Shape};
use crate::memory::{Pool, PoolLimits};
use crate::planner::cost::{CostModel, PLACED};

/// What all measurements of matrices together take, about.
const SECONDS: f64 = 0.28;

/// Repetitions of one size.
const REPETITIONS: usize = 8;

/// Factor by which the next size may take longer.
const GROWTH: u32 = 8;

/// Of the memory of the measurements, whose largest result has 32 MiB.
const REUSED: PoolLimits = PoolLimits {
    idle_bytes: 64 << 20,
    total_bytes: usize::MAX,
    resident_bytes: usize::MAX,
    poison: false,
};

/// A repetition of known work.
struct Task {
    /// In what the constant counts.
    work: f64,
    run: Box<dyn FnMut() + Send>,
}

impl Task {
    fn new(work: f64, run: impl FnMut() + Send + 'static) -> Self {
        Self { work, run: Box::new(run) }
    }
}

/// All constants; the built-in ones of matrices where the system refuses threads.
pub(super) fn constants() -> Constants {
    let mut constants = Constant::ALL.map(|constant| CostModel::default().constant(constant));
    for (constant, rate) in of_matrices().into_iter().chain(rows::constants()) {
        constants[constant.index()] = rate;
    }
    constants
}

fn of_matrices() -> Vec<(Constant, f64)> {
    // Results lie where earlier ones did, as on the threads of a database: fresh pages are what the system takes time for.
    let blocks = Pool::new(REUSED);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(machine_threads());
    let pool = pool.start_handler(move |_thread| blocks.serve_this_thread()).build();
    let Ok(pool) = pool.map(Arc::new) else { return Vec::new() };
    let rate = |share: f64, sizes: &[usize], task: fn(usize) -> Task| {
        pool.install(|| rate(share * SECONDS, sizes, task))
    };
    vec![
        (Constant::Products64, rate(0.15, &[64, 256, 768], product::<f64>)),
        (Constant::Products32, rate(0.15, &[64, 256, 768], product::<f32>)),
        (Constant::Decompositions, rate(0.15, &[32, 128, 384], solution)),
        (Constant::SparseProducts, rate(0.10, &[500, 4000, 32_000], sparse_product)),
        (Constant::SparsePairs, rate(0.10, &[500, 4000], pairs)),
        (Constant::Elementwise, rate(0.10, &[1, 8, 64], exponentials)),
        (Constant::Memory, rate(0.20, &[1 << 22], copies)),
        (Constant::Steps, step_seconds(0.05 * SECONDS, &pool)),
    ]
}

/// The best work by seconds of tasks of these sizes, within so many.
fn rate(seconds: f64, sizes: &[usize], task: impl Fn(usize) -> Task) -> f64 {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut best: f64 = 0.0;
    for &size in sizes {
        let mut task = task(size);
        let mut shortest = Duration::MAX;
        for repetition in 0..REPETITIONS {
            let start = Instant::now();
            (task.run)();
            let taken = start.elapsed().max(Duration::from_nanos(1));
            shortest = shortest.min(taken);
            best = best.max(task.work / taken.as_secs_f64());
            // The first may have met memory that nobody had touched, which takes a virtual machine tens of milliseconds.
            if repetition > 0 && Instant::now() + taken > end {
                return best;
            }
        }
        if Instant::now() + shortest * GROWTH * REPETITIONS as u32 / 2 > end {
            return best;
        }
    }
    best
}

/// Cells of some sizes and signs.
fn cells<T: Real>(shape: Shape) -> Dense<T> {
    let cell = |at: usize| T::from_f64(((at * 7919) % 1013) as f64 / 1013.0 - 0.5);
    Dense::new(shape, (0..shape.cells()).map(cell).collect::<Vec<_>>().into())
}

fn product<T: Real>(side: usize) -> Task {
    let x = cells::<T>(Shape::new(side, side));
    let work = 2.0 * (side as f64).powi(3);
    Task::new(work, move || drop(dense::product(&x, &x, Stop::NEVER)))
}

fn solution(side: usize) -> Task {
    let (a, b) = (cells::<f64>(Shape::new(side, side)), cells::<f64>(Shape::new(side, 1)));
    let work = 2.0 / 3.0 * (side as f64).powi(3);
    // Singular or not, it takes the same.
    Task::new(work, move || drop(decompose::solve(&a, &b, Stop::NEVER)))
}

fn sparse_product(side: usize) -> Task {
    const COLUMNS: usize = 8;
    let x = sparse_cells(side);
    let y = cells::<f64>(Shape::new(side, COLUMNS));
    let work = 2.0 * (side * PER_ROW * COLUMNS) as f64;
    Task::new(work, move || drop(sparse::times_dense(&x, &y, Stop::NEVER)))
}

fn pairs(side: usize) -> Task {
    let x = sparse_cells(side);
    let cells = sparse::product(&x, &x, Stop::NEVER).stored() as f64;
    let work = 2.0 * (side * PER_ROW * PER_ROW) as f64 + PLACED * cells;
    Task::new(work, move || drop(sparse::product(&x, &x, Stop::NEVER)))
}

/// Cells of every row of a sparse matrix that is measured with.
const PER_ROW: usize = 16;

/// A sparse matrix of so many rows and columns.
fn sparse_cells(side: usize) -> Csr<f64> {
    let offsets: Vec<i64> = (0..=side).map(|row| (row * PER_ROW) as i64).collect();
    let places = (0..side).flat_map(|row| {
        let mut places: Vec<u32> = (0..PER_ROW)
            .map(|at| ((row * 31 + at * (side / PER_ROW) + at) % side) as u32)
            .collect();
        places.sort_unstable();
        places
    });
    let places: Vec<u32> = places.collect();
    let values = cells::<f64>(Shape::new(side, PER_ROW)).cells().to_vec();
    Csr::new(Shape::new(side, side), offsets.into(), places.into(), values.into())
}

/// Cells of a row of what loops are measured with.
const ROW_CELLS: usize = 64;

/// Cells that a thread computes at a time: twice as many, those read and those written, stay in its cache.
const BLOCK_CELLS: usize = 1 << 14;

/// Runs a loop over a block of rows.
fn run_block(program: &fused::Program, read: &[f64], written: &mut [f64]) {
    let rows = read.len() / ROW_CELLS;
    program.run(&[fused::Input::Cells(read)], rows, ROW_CELLS, &mut fused::Scratch::new(), written);
}

/// So many blocks for each thread, which never leave its cache.
fn exponentials(blocks: usize) -> Task {
    let x = cells::<f64>(Shape::new(BLOCK_CELLS / ROW_CELLS, ROW_CELLS));
    let blocks = blocks * machine_threads();
    let work = (blocks * BLOCK_CELLS) as f64 * f64::from(UnaryFunction::Exp.flops());
    let program = one_loop(CellFunction::Unary(UnaryFunction::Exp), [None].into_iter());
    Task::new(work, move || {
        (0..blocks).into_par_iter().for_each(|_| {
            run_block(&program, x.cells(), &mut CellBuffer::arbitrary(BLOCK_CELLS));
        });
    })
}

/// So many cells from memory to memory, a block after the other on each thread.
fn copies(count: usize) -> Task {
    let mut x = CellBuffer::arbitrary(count);
    // In parallel, unlike the other inputs: it is by far the largest.
    x.par_chunks_mut(BLOCK_CELLS).for_each(|cells| cells.fill(0.5));
    let program = one_loop(CellFunction::Unary(UnaryFunction::Negate), [None].into_iter());
    Task::new(2.0 * size_of_val::<[f64]>(&x) as f64, move || {
        let mut y = CellBuffer::arbitrary(count);
        let blocks = x.par_chunks(BLOCK_CELLS).zip(y.par_chunks_mut(BLOCK_CELLS));
        blocks.for_each(|(read, written)| run_block(&program, read, written));
    })
}

/// Seconds of a step that does next to nothing: most of it is the way to the pool and back.
fn step_seconds(seconds: f64, pool: &Arc<ThreadPool>) -> f64 {
    const COUNT: usize = 32;
    let steps = |_size| {
        let (x, pool): (Cells, _) = (cells::<f64>(Shape::new(4, 4)).into(), Arc::clone(pool));
        let step = move || pool.install(|| drop(evaluate(&Op::Product, &[&x, &x], Stop::NEVER)));
        Task::new(COUNT as f64, move || (0..COUNT).for_each(|_| step()))
    };
    1.0 / rate(seconds, &[COUNT], steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_constants_are_believable() {
        for (constant, found) in Constant::ALL.into_iter().zip(constants()) {
            let factor = found / CostModel::default().constant(constant);
            assert!((1e-3..1e3).contains(&factor), "{}: {found:e}", constant.name());
        }
    }
}
