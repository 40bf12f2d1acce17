//! Every kernel is compiled for every architecture, by the real compiler, and takes no more of a device than a table says.
//!
//! NVRTC needs no device. `RELATRIX_NVRTC` names the folder that it is in (that of the package `nvidia-cuda-nvrtc`); without it the
//! test says so and passes. `RELATRIX_NVRTC_TABLE=write` writes the table anew.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::path::PathBuf;

use super::{groups, images, loops, pairs, reshape, sorts, sparse};
use crate::config::FREE;
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::kernels::fused::tests::{BINARY, REDUCTIONS, UNARY};
use crate::exec::kernels::fused::{Builder, Goal, Program, Reduction, Stretch};
use crate::gpu::{Source, compile};
use crate::matrix::{Element, Shape};

/// What is read in packs, and rows of it by a block.
const SHAPE: Shape = Shape { rows: 4096, columns: 4096 };

const ARCHITECTURES: [&str; 5] = ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100"];

/// Registers of a thread and bytes of shared memory of a block, at most over all architectures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Taken {
    registers: u32,
    shared_bytes: u32,
}

/// `x * w + 0.5`
fn plain() -> Program {
    let mut builder = Builder::new();
    let (x, w, half) = (builder.input(0), builder.input(1), builder.constant(0.5));
    let product = builder.binary(BinaryFunction::Multiply, x, w);
    let sum = builder.binary(BinaryFunction::Add, product, half);
    builder.finish(sum)
}

fn softmax() -> Program {
    let mut builder = Builder::new();
    let x = builder.input(0);
    let largest = builder.rows(Reduction::Max, x);
    let shifted = builder.binary(BinaryFunction::Subtract, x, largest);
    let power = builder.unary(UnaryFunction::Exp, shifted);
    let sum = builder.rows(Reduction::Sum, power);
    let share = builder.binary(BinaryFunction::Divide, power, sum);
    builder.finish(share)
}

/// The texts of kernels, each under a name.
fn texts() -> Vec<(String, String)> {
    let mut texts = vec![
        ("reshape".to_owned(), reshape::TEXT.to_owned()),
        ("sparse".to_owned(), sparse::TEXT.to_owned()),
        ("images".to_owned(), images::TEXT.to_owned()),
        ("pairs".to_owned(), pairs::TEXT.to_owned()),
    ];
    texts.extend(groups::tests::texts());
    texts.extend(sorts::tests::texts());
    for element in [Element::Float64, Element::Float32] {
        let input = |stretch| (stretch, element);
        let flat = [input(Stretch::Cells), input(Stretch::Scalar)];
        let wide = [input(Stretch::Cells), input(Stretch::Row)];
        let name = |what: &str| format!("{what} {element}").to_lowercase();
        for function in UNARY {
            let mut builder = Builder::as_written();
            let x = builder.input(0);
            let result = builder.unary(function, x);
            let text = builder.finish(result).cuda(element, &flat[..1], Goal::Map, SHAPE);
            texts.push((name(&format!("map {function:?}")), text));
        }
        for function in BINARY {
            let mut builder = Builder::as_written();
            let (x, y) = (builder.input(0), builder.input(1));
            let result = builder.binary(function, x, y);
            let text = builder.finish(result).cuda(element, &flat, Goal::Map, SHAPE);
            texts.push((name(&format!("map {function:?}")), text));
        }
        let other = match element {
            Element::Float64 => Element::Float32,
            Element::Float32 => Element::Float64,
        };
        let mut builder = Builder::new();
        let cell = builder.input(0);
        let text = builder.finish(cell).cuda(element, &[(Stretch::Cells, other)], Goal::Map, SHAPE);
        texts.push((name("cast to"), text));
        texts.push((name("map over rows"), plain().cuda(element, &wide, Goal::Map, SHAPE)));
        // By a part of a warp, a warp, a block, and a block that keeps as much as any.
        for columns in [5, 500, 4096, 8192] {
            let text = softmax().cuda(element, &flat[..1], Goal::Map, Shape { columns, ..SHAPE });
            texts.push((name(&format!("softmax of {columns} columns")), text));
        }
        // Packs of nothing but one cell.
        let odd = Shape { rows: 4095, columns: 4095 };
        texts.push((name("map over odd rows"), plain().cuda(element, &wide, Goal::Map, odd)));
        let text = plain().cuda(element, &wide, Goal::Columns(Reduction::Sum), odd);
        texts.push((name("sum of odd columns"), text));
        for reduction in REDUCTIONS {
            for (shape, inputs) in [("flat", &flat), ("wide", &wide)] {
                let text = plain().cuda(element, inputs, Goal::Cells(reduction), SHAPE);
                texts.push((name(&format!("{reduction:?} of cells {shape}")), text));
            }
            let text = plain().cuda(element, &wide, Goal::Rows(reduction), SHAPE);
            texts.push((name(&format!("{reduction:?} of rows")), text));
            let text = plain().cuda(element, &wide, Goal::Columns(reduction), SHAPE);
            texts.push((name(&format!("{reduction:?} of columns")), text));
        }
    }
    texts
}

#[test]
fn kernels_whose_threads_may_be_chosen_are_there() {
    let inputs = [Stretch::Cells, Stretch::Row].map(|stretch| (stretch, Element::Float64));
    let cells = plain().cuda(Element::Float64, &inputs, Goal::Map, SHAPE);
    let texts = [reshape::TEXT, sparse::TEXT, &cells].concat();
    for kernel in FREE {
        assert!(texts.contains(&format!("__launch_bounds__(THREADS) {kernel}(")), "{kernel}");
    }
}

/// What the compiler says of each kernel of a text; panics where one spills.
fn taken(name: &str, log: &str) -> Vec<(String, Taken)> {
    let mut all = Vec::new();
    let mut entry = String::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entry = rest.split('\'').next().unwrap_or_default().to_owned();
        }
        let spills = line.contains("spill stores") && !line.contains(" 0 bytes spill stores");
        assert!(!spills, "{name}, {entry}: {line}");
        if let Some((_, rest)) = line.split_once(": Used ") {
            let number = |unit: &str| {
                let of = |part: &str| part.trim().strip_suffix(unit)?.trim().parse().ok();
                rest.split(',').find_map(of).unwrap_or(0)
            };
            let taken =
                Taken { registers: number("registers"), shared_bytes: number("bytes smem") };
            all.push((format!("{name}, {entry}"), taken));
        }
    }
    all
}

#[test]
fn kernels_compile_and_keep_to_their_budget() {
    let Some(folder) = env::var_os("RELATRIX_NVRTC").map(PathBuf::from) else {
        println!("RELATRIX_NVRTC is not set: no kernel is compiled");
        return;
    };
    let mut most: BTreeMap<String, Taken> = BTreeMap::new();
    for (name, text) in texts() {
        let source = Source {
            text: text.into(),
            headers: loops::HEADERS,
            entry: "run".into(),
            contracts: false,
        };
        for architecture in ARCHITECTURES {
            let compiled = compile(Some(&folder), &source, architecture);
            let (image, log) = compiled.unwrap_or_else(|fault| panic!("{name}: {fault}"));
            assert!(!image.is_empty());
            let kernels = taken(&name, &log);
            assert!(!kernels.is_empty(), "{name}: {log}");
            for (kernel, Taken { registers, shared_bytes }) in kernels {
                let most = most.entry(kernel).or_default();
                most.registers = most.registers.max(registers);
                most.shared_bytes = most.shared_bytes.max(shared_bytes);
            }
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/budget.txt");
    if env::var_os("RELATRIX_NVRTC_TABLE").is_some_and(|mode| mode == "write") {
        let mut table = String::from(HEADER);
        for (kernel, Taken { registers, shared_bytes }) in &most {
            let _ = writeln!(table, "{registers:>9} {shared_bytes:>12}  {kernel}");
        }
        std::fs::write(path, table).unwrap();
    }
    let table = std::fs::read_to_string(path).unwrap();
    let allowed: BTreeMap<&str, Taken> = table.lines().skip(1).map(allowed).collect();
    for (kernel, taken) in &most {
        let allowed = allowed.get(kernel.as_str()).copied();
        let allowed =
            allowed.unwrap_or_else(|| panic!("{kernel} has no line in the table: {taken:?}"));
        let fits =
            taken.registers <= allowed.registers && taken.shared_bytes <= allowed.shared_bytes;
        assert!(fits, "{kernel} takes {taken:?}, {allowed:?} is allowed");
    }
    assert_eq!(allowed.len(), most.len(), "the table has lines of kernels that are gone");
}

const HEADER: &str =
    "registers shared_bytes  kernel: at most, over sm_75, sm_80, sm_90, sm_90a and sm_100\n";

fn allowed(line: &str) -> (&str, Taken) {
    let mut parts = line.trim().splitn(2, ' ');
    let registers = parts.next().and_then(|number| number.parse().ok());
    let (shared, kernel) = parts.next().and_then(|rest| rest.trim().split_once(' ')).unwrap();
    let taken = Taken { registers: registers.unwrap(), shared_bytes: shared.parse().unwrap() };
    (kernel.trim(), taken)
}
