//! Three elementwise expressions compiled to one loop each by Cranelift, beside Relatrix's strips.
//!
//! ```sh
//! cargo build --release                                    # Relatrix, from the root of the repository
//! cd benches/compiled && cargo run --release -- ../../target/release/relatrix
//! ```
//!
//! Both run on two threads over 50 million cells of 64 bits, into memory that an earlier run has touched. The
//! compiled loops have the widest vectors that Cranelift has, two cells, eight of them side by side; Relatrix
//! interprets a program over strips of 1,024 cells, each step a loop that the Rust compiler vectorized. Times are
//! medians of nine runs after two, those of Relatrix with parsing and planning.

mod expressions;

use std::error::Error;
use std::process::Command;
use std::time::Instant;

use memmap2::{Advice, MmapMut};
use rayon::prelude::*;

use crate::expressions::{BLOCK_LANES, Expression, Kernel, compile};

const CELLS: usize = 50_000_000;
/// Cells of a task: those of Relatrix for a column.
const TASK_CELLS: usize = 1 << 16;
const THREADS: usize = 2;
const WARM_UP: usize = 2;
const RUNS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let relatrix = std::env::args().nth(1).ok_or("the path of the binary relatrix is missing")?;
    rayon::ThreadPoolBuilder::new().num_threads(THREADS).build_global()?;
    let inputs = [random(1)?, random(2)?, random(3)?];
    let mut out = huge(CELLS)?;
    println!("| expression | compiled s | Relatrix s | ratio |\n|---|---|---|---|");
    for expression in Expression::ALL {
        let began = Instant::now();
        let kernel = compile(expression)?;
        let compiling = began.elapsed();
        check(expression, kernel, &inputs);
        let compiled = median((0..WARM_UP + RUNS).map(|_| {
            let began = Instant::now();
            run(expression, kernel, &inputs, &mut out);
            began.elapsed().as_secs_f64()
        }));
        let strips = median(relatrix_seconds(&relatrix, expression)?.into_iter());
        println!("| `{expression}` | {compiled:.4} | {strips:.4} | {:.2} |", strips / compiled);
        eprintln!("{expression}: compiled in {:.1} ms", compiling.as_secs_f64() * 1e3);
    }
    Ok(())
}

/// Numbers between 0 and 1, by a multiplicative generator.
fn random(seed: u64) -> Result<MmapMut, std::io::Error> {
    let mut memory = huge(CELLS)?;
    let mut state = seed;
    for cell in cells_mut(&mut memory) {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *cell = (state >> 11) as f64 / (1_u64 << 53) as f64;
    }
    Ok(memory)
}

/// Memory for so many cells, in huge pages where the system has them.
fn huge(cells: usize) -> Result<MmapMut, std::io::Error> {
    let map = MmapMut::map_anon(cells * size_of::<f64>())?;
    let _ = map.advise(Advice::HugePage);
    Ok(map)
}

fn cells(memory: &MmapMut) -> &[f64] {
    // SAFETY: a mapping begins at a page, and every eight bytes are a number.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), memory.len() / size_of::<f64>()) }
}

fn cells_mut(memory: &mut MmapMut) -> &mut [f64] {
    // SAFETY: as above, and borrowed by one.
    unsafe {
        std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), memory.len() / size_of::<f64>())
    }
}

/// Runs a kernel over all cells; a sum's blocks are added up.
fn run(expression: Expression, kernel: Kernel, inputs: &[MmapMut; 3], out: &mut MmapMut) -> f64 {
    let [a, b, c] = inputs.each_ref().map(|input| cells(input));
    let starts = (0..CELLS).into_par_iter().step_by(TASK_CELLS);
    if expression.is_sum() {
        let sum = |start: usize| {
            let end = CELLS.min(start + TASK_CELLS);
            let mut lanes = [0.0; BLOCK_LANES];
            kernel.call([&a[start..end], &b[start..end], &c[start..end]], &mut lanes);
            lanes.iter().sum::<f64>()
        };
        return starts.map(sum).sum();
    }
    let out = cells_mut(out).par_chunks_mut(TASK_CELLS);
    starts.zip(out).for_each(|(start, out)| {
        let end = start + out.len();
        kernel.call([&a[start..end], &b[start..end], &c[start..end]], out);
    });
    0.0
}

/// A kernel must compute what the expression says.
fn check(expression: Expression, kernel: Kernel, inputs: &[MmapMut; 3]) {
    let [a, b, c] = inputs.each_ref().map(|input| &cells(input)[..1024]);
    let expected = |i: usize| expression.of(a[i], b[i], c[i]);
    if expression.is_sum() {
        let mut lanes = [0.0; BLOCK_LANES];
        kernel.call([a, b, c], &mut lanes);
        let (found, expected): (f64, f64) = (lanes.iter().sum(), (0..1024).map(expected).sum());
        assert!((found - expected).abs() < 1e-10, "{expression}: {found} is not {expected}");
    } else {
        let mut out = [0.0; 1024];
        kernel.call([a, b, c], &mut out);
        for (i, found) in out.into_iter().enumerate() {
            let expected = expected(i);
            assert!((found - expected).abs() <= 2e-16 * expected.abs(), "{expression} at {i}");
        }
    }
}

fn relatrix_seconds(relatrix: &str, expression: Expression) -> Result<Vec<f64>, Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("compiled-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (setup, queries) = (folder.join("setup.sql"), folder.join("queries.sql"));
    let make =
        |name: &str, seed: usize| format!("CREATE MATRIX {name} = rand({CELLS}, 1, {seed});\n");
    std::fs::write(&setup, make("a", 1) + &make("b", 2) + &make("c", 3))?;
    let query = format!("-- name: q\nCREATE OR REPLACE MATRIX r = {expression};\n");
    std::fs::write(&queries, query)?;
    let done = Command::new(relatrix)
        .args(["bench", "--threads", &THREADS.to_string(), "--runs", &(WARM_UP + RUNS).to_string()])
        .arg("--setup")
        .arg(&setup)
        .arg("--queries")
        .arg(&queries)
        .output()?;
    std::fs::remove_dir_all(&folder)?;
    let text = String::from_utf8(done.stdout)?;
    let line = text.lines().find(|line| line.contains("\"seconds\":[")).ok_or("no seconds")?;
    let list = line.split(['[', ']']).nth(1).ok_or("no list of seconds")?;
    Ok(list.split(',').map(str::parse).collect::<Result<_, _>>()?)
}

/// The median of what follows the warm-up.
fn median(seconds: impl Iterator<Item = f64>) -> f64 {
    let mut seconds: Vec<f64> = seconds.skip(WARM_UP).collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
