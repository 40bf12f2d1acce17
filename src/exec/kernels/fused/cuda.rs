//! A program as the text of a CUDA kernel, for `kernels/fused.cuh` to run.
//!
//! ```text
//! relu(x * w + 1)   x: Cells, w: Row      map(Wide<2>{rows, columns}, out, [=](u64 at, u64 row, u64 column) -> T {
//!                                             const T v0 = cell::multiply<T>(in0[at], in1[column]);
//!                                             const T v1 = cell::add<T>(v0, c0);
//!                                             return cell::relu<T>(v1);
//!                                         });
//! ```
//!
//! Where rows are reduced on the way there is a phase for each reduction and one for the end; what is read or computed in one of
//! them and wanted in a later one stays in registers, `v0_kept[k]` for cell k of a lane.
//!
//! ```text
//! exp(x) / row_sums(exp(x))               T v0_kept[16];
//!                                         const T s1 = (T)rows_at.reduce<SUM, T>([&](...) -> T {
//!                                             return v0_kept[k] = cell::exp<T>(in0[at]);
//!                                         });
//!                                         rows_at.map(out, [&](...) -> T { return cell::divide<T>(v0_kept[k], s1); });
//! ```
//!
//! The same steps in the same order, each rounded, so that a cell has the bits that it has on the host, but for the functions
//! that a device computes by its own library: `sin`, `cos`, `tan`, `gelu` and powers, which differ by a few units in the last
//! place. Sums are added in another order. Constants are parameters, and what is equal but for them is one kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;

use super::{Chain, First, Instruction, Operand, Program, Reduction, Second};
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::matrix::{Element, Shape};

/// How an input lies beside the cells of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stretch {
    /// A cell for each.
    Cells,
    /// A cell for each row.
    Column,
    /// A cell for each column.
    Row,
    /// One cell for all.
    Scalar,
}

/// What becomes of the cells that a program computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Goal {
    /// They are the result.
    Map,
    /// They are the same all along a row, and the result has one for each.
    Column,
    /// They are reduced to one.
    Cells(Reduction),
    /// Each row is.
    Rows(Reduction),
    /// Each column is.
    Columns(Reduction),
}

/// The entry of a text of cells, that of any other, and the one that puts together the parts of a reduction.
pub(crate) const LOOP: &str = "loop";
pub(crate) const ENTRY: &str = "run";
pub(crate) const FINISH: &str = "finish";

/// Threads of a block, and lanes of a warp: what `fused.cuh` says.
pub(crate) const THREADS: usize = 256;
pub(crate) const WARP: usize = 32;

/// Bytes that a thread reads at once.
const PACK_BYTES: usize = 16;

/// Bytes of its registers, of which it has a thousand, that a thread keeps cells of a row in, so that several blocks run side by side.
const KEPT_BYTES: usize = 256;

/// Cells of a row in one lane, at most.
const LANE_CELLS_MAX: usize = 32;

/// Adjacent cells that a thread reads at once, where packs of them fill so many side by side.
pub(crate) fn pack(element: Element, side: usize) -> usize {
    let pack = PACK_BYTES / element.size_bytes();
    if side.is_multiple_of(pack) { pack } else { 1 }
}

/// How a block reads rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// Lanes of a row, a power of two.
    pub(crate) width: usize,
    /// Its cells that each of them has at a time.
    pub(crate) cells: usize,
}

impl Lanes {
    /// Of rows of so many columns: four cells of each lane keep memory at work, up to sixteen keep a row within a warp, and then it
    /// is for as many lanes as a block has.
    pub(crate) fn of(columns: usize) -> Self {
        let columns = columns.next_power_of_two();
        let least = columns.min(4).max((columns / WARP).min(16));
        let cells = least.max((columns / THREADS).min(LANE_CELLS_MAX));
        Self { width: (columns / cells).min(THREADS), cells }
    }
}

impl Program {
    /// The numbers that a kernel is given behind its inputs.
    pub(crate) fn constants(&self) -> &[f64] {
        &self.constants
    }

    /// Whether no cell needs to know its row and its column.
    pub(crate) fn is_flat(&self, inputs: &[(Stretch, Element)]) -> bool {
        let flat = |stretch| matches!(stretch, Stretch::Cells | Stretch::Scalar);
        inputs.iter().all(|&(stretch, _)| flat(stretch)) && !self.reduces_rows()
    }

    /// Whether the lanes of a row have room for what is kept of so many columns between reductions of it.
    pub(crate) fn keeps(
        &self,
        element: Element,
        inputs: &[(Stretch, Element)],
        goal: Goal,
        columns: usize,
    ) -> bool {
        let kept = Text::new(self, inputs, goal).kept_at_once();
        let Lanes { width, cells } = Lanes::of(columns);
        kept * cells * element.size_bytes() <= KEPT_BYTES && (kept == 0 || columns <= width * cells)
    }

    /// The text of the kernel that computes cells of this type, in a block of this shape, from such inputs.
    ///
    /// Its parameters are the result or its parts, rows, columns, the inputs and the constants; behind them of a reduction of rows
    /// the root that is taken of it, of one of columns the rows of a part.
    pub(crate) fn cuda(
        &self,
        element: Element,
        inputs: &[(Stretch, Element)],
        goal: Goal,
        shape: Shape,
    ) -> String {
        let text = Text::new(self, inputs, goal);
        let mut out = String::from("#include \"fused.cuh\"\n\n");
        let _ = writeln!(out, "typedef {} T;\n", cuda_type(element));
        let parameters = text.parameters();
        let over = match self.is_flat(inputs) {
            true => format!("Flat<{}>{{rows * columns}}", pack(element, shape.cells())),
            false => format!("Wide<{}>{{rows, columns}}", pack(element, shape.columns)),
        };
        let parts = |name| format!("Accumulator<{name}>* __restrict__ parts");
        let given = |name| format!("T* out, const Accumulator<{name}>* parts");
        match goal {
            Goal::Map if !self.reduces_rows() => {
                let body = format!(
                    "    ALIGNED(out);\n{}    map({over}, out, {});\n",
                    text.aligned(),
                    text.cell()
                );
                entry(&mut out, LOOP, &format!("T* __restrict__ out, {parameters}"), &body);
            }
            Goal::Map | Goal::Column | Goal::Rows(_) => {
                let root = if matches!(goal, Goal::Rows(_)) { ", Root root" } else { "" };
                let parameters = format!("T* __restrict__ out, {parameters}{root}");
                entry(&mut out, ENTRY, &parameters, &text.rows(Lanes::of(shape.columns)));
            }
            Goal::Cells(reduction) => {
                let name = constant(reduction);
                let (aligned, cell) = (text.aligned(), text.cell());
                let body =
                    format!("{aligned}    reduce_cells<{name}, T>({over}, parts, {cell});\n");
                entry(&mut out, ENTRY, &format!("{}, {parameters}", parts(name)), &body);
                let given = format!("{}, u64 count, u64 cells, Root root", given(name));
                let body = format!("    finish_cells<{name}>(out, parts, count, cells, root);\n");
                entry(&mut out, FINISH, &given, &body);
            }
            Goal::Columns(reduction) => {
                let name = constant(reduction);
                let packed = pack(element, shape.columns);
                let (aligned, cell) = (text.aligned(), text.cell());
                let body = format!(
                    "{aligned}    reduce_columns<{name}, T, {packed}>(parts, rows, columns, height, {cell});\n"
                );
                let given_parts = format!("{}, {parameters}, u64 height", parts(name));
                entry(&mut out, ENTRY, &given_parts, &body);
                let given = format!("{}, u64 runs, u64 rows, u64 columns, Root root", given(name));
                let body =
                    format!("    finish_columns<{name}>(out, parts, runs, rows, columns, root);\n");
                entry(&mut out, FINISH, &given, &body);
            }
        }
        out
    }
}

/// One kernel.
fn entry(out: &mut String, name: &str, parameters: &str, body: &str) {
    let _ = writeln!(
        out,
        "extern \"C\" __global__ void __launch_bounds__(THREADS) {name}({parameters}) {{\n{body}}}\n"
    );
}

/// One going through the cells of a row.
struct Phase {
    /// What is computed of each.
    target: Operand,
    /// The steps for that, in their order.
    steps: BTreeSet<usize>,
    /// What it is reduced by; the last phase may leave it as it is.
    reduction: Option<Reduction>,
}

/// A cell of an input, or the outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Made {
    Input(usize),
    Step(usize),
}

/// A program beside the inputs that it is written for.
struct Text<'a> {
    program: &'a Program,
    inputs: &'a [(Stretch, Element)],
    goal: Goal,
    /// Its steps, whose operands are steps and not registers; whether the outcome of each is the same all along a row.
    steps: Vec<Instruction>,
    is_of_row: Vec<bool>,
    phases: Vec<Phase>,
    /// In which phases each value of a cell is wanted, from the one on that makes it.
    wanted: BTreeMap<Made, Range<usize>>,
}

impl<'a> Text<'a> {
    fn new(program: &'a Program, inputs: &'a [(Stretch, Element)], goal: Goal) -> Self {
        let mut holders = vec![usize::MAX; program.registers];
        let step = |operand, holders: &[usize]| match operand {
            Operand::Register(register) => Operand::Register(holders[register]),
            other => other,
        };
        let mut steps = Vec::with_capacity(program.steps.len());
        for (number, of) in program.steps.iter().enumerate() {
            steps.push(of.instruction.map(|operand| step(operand, &holders)));
            holders[of.register] = number;
        }
        let rows = steps.iter().filter_map(|&step| match step {
            Instruction::Rows(reduction, operand) => Some((operand, Some(reduction))),
            _ => None,
        });
        let last = match goal {
            Goal::Rows(reduction) => Some(reduction),
            _ => None,
        };
        let targets: Vec<_> = rows.chain([(step(program.results[0], &holders), last)]).collect();
        let mut is_of_row = Vec::with_capacity(steps.len());
        for step in &steps {
            let is_reduced = matches!(step, Instruction::Rows(..));
            let mut operands = step.operands();
            is_of_row.push(is_reduced || operands.all(|of| is_along_row(of, inputs, &is_of_row)));
        }
        let (phases, wanted) = (Vec::new(), BTreeMap::new());
        let mut text = Self { program, inputs, goal, steps, is_of_row, phases, wanted };
        for (phase, (target, reduction)) in targets.into_iter().enumerate() {
            let mut steps = BTreeSet::new();
            text.want(target, phase, &mut steps);
            text.phases.push(Phase { target, steps, reduction });
        }
        text
    }

    /// What is wanted in a phase for an operand, with the steps that are taken in it.
    fn want(&mut self, operand: Operand, phase: usize, steps: &mut BTreeSet<usize>) {
        let made = match operand {
            Operand::Input(number) if self.inputs[number].0 == Stretch::Cells => {
                Made::Input(number)
            }
            Operand::Register(step) => Made::Step(step),
            Operand::Input(_) | Operand::Constant(_) => return,
        };
        let first = match is_along_row(operand, self.inputs, &self.is_of_row) {
            true => phase,
            false => {
                let wanted = self.wanted.entry(made).or_insert(phase..phase);
                wanted.end = phase;
                wanted.start
            }
        };
        if let Made::Step(step) = made
            && first == phase
            && !matches!(self.steps[step], Instruction::Rows(..))
            && steps.insert(step)
        {
            let operands: Vec<_> = self.steps[step].operands().collect();
            for operand in operands {
                self.want(operand, phase, steps);
            }
        }
    }

    /// Whether it stays in registers for a later phase.
    fn is_kept(&self, made: Made) -> bool {
        self.wanted.get(&made).is_some_and(|phases| !phases.is_empty())
    }

    /// How many values of each cell stay from one phase to the next, at most.
    fn kept_at_once(&self) -> usize {
        let after = |phase| self.wanted.values().filter(|phases| phases.contains(&phase)).count();
        (0..self.phases.len()).map(after).max().unwrap_or(0)
    }

    fn parameters(&self) -> String {
        let mut text = String::from("u64 rows, u64 columns");
        for (number, (_, element)) in self.inputs.iter().enumerate() {
            let _ = write!(text, ", const {}* __restrict__ in{number}", cuda_type(*element));
        }
        for number in 0..self.program.constants.len() {
            let _ = write!(text, ", f64 c{number}");
        }
        text
    }

    /// What lets packs of cells be read at once.
    fn aligned(&self) -> String {
        (0..self.inputs.len()).map(|number| format!("    ALIGNED(in{number});\n")).collect()
    }

    /// A function of one cell, for programs that reduce no rows.
    fn cell(&self) -> String {
        format!("[=](u64 at, u64 row, u64 column) -> T {{\n{}    }}", self.body(0, "        "))
    }

    /// The phases of rows.
    fn rows(&self, Lanes { width, cells }: Lanes) -> String {
        let mut out = format!(
            "    for (Rows<{width}, {cells}> rows_at(rows, columns); rows_at.any(); rows_at.next()) {{\n"
        );
        for &made in self.wanted.keys().filter(|&&made| self.is_kept(made)) {
            let _ = writeln!(out, "        T {}[{cells}];", kept(made));
        }
        let sums = self.steps.iter().enumerate();
        let mut sums = sums.filter(|(_, step)| matches!(step, Instruction::Rows(..)));
        for (number, phase) in self.phases.iter().enumerate() {
            let cell = "[&](u32 k, u64 at, u64 row, u64 column) -> T";
            let body = self.body(number, "            ");
            let reduced = phase.reduction.map(|reduction| {
                let name = constant(reduction);
                format!("rows_at.reduce<{name}, T>({cell} {{\n{body}        }})")
            });
            let _ = match (reduced, sums.next()) {
                (Some(reduced), Some((step, _))) => {
                    writeln!(out, "        const T s{step} = (T){reduced};")
                }
                (Some(reduced), None) => writeln!(
                    out,
                    "        const f64 total = {reduced};\n        \
                     rows_at.write(out, [&](u64 row) -> T {{ return (T)root.of(total, columns); }});"
                ),
                (None, _) if self.goal == Goal::Column => {
                    writeln!(
                        out,
                        "        rows_at.write(out, [&](u64 row) -> T {{\n{body}        }});"
                    )
                }
                (None, _) => {
                    writeln!(out, "        rows_at.map(out, {cell} {{\n{body}        }});")
                }
            };
        }
        out.push_str("    }\n");
        out
    }

    /// What computes a cell in a phase.
    fn body(&self, number: usize, indent: &str) -> String {
        let phase = &self.phases[number];
        let mut out = String::new();
        // Read once, and for all phases from this one on.
        for (&made, phases) in &self.wanted {
            if let Made::Input(input) = made
                && phases.start == number
                && self.is_kept(made)
            {
                let _ = writeln!(out, "{indent}{}[k] = (T)in{input}[at];", kept(made));
            }
        }
        for &step in &phase.steps {
            let value = self.value(self.steps[step]);
            let _ = match self.is_kept(Made::Step(step)) {
                true => writeln!(out, "{indent}{}[k] = {value};", kept(Made::Step(step))),
                false => writeln!(out, "{indent}const T v{step} = {value};"),
            };
        }
        let _ = writeln!(out, "{indent}return {};", self.operand(phase.target));
        out
    }

    fn value(&self, instruction: Instruction) -> String {
        let operand = |operand| self.operand(operand);
        match instruction {
            Instruction::Unary(function, a) => format!("{}({})", unary(function), operand(a)),
            Instruction::Binary(function, a, b) => {
                format!("{}({}, {})", binary(function), operand(a), operand(b))
            }
            Instruction::Select(condition, a, b) => {
                format!("cell::select<T>({}, {}, {})", operand(condition), operand(a), operand(b))
            }
            Instruction::Chain(Chain { first, second, relu }, a, b, c) => {
                let first = match first {
                    First::Add => BinaryFunction::Add,
                    First::Subtract => BinaryFunction::Subtract,
                    First::Multiply => BinaryFunction::Multiply,
                };
                let inner = format!("{}({}, {})", binary(first), operand(a), operand(b));
                let c = operand(c);
                let of = |function, a: &str, b: &str| format!("{}({a}, {b})", binary(function));
                let outer = match second {
                    Second::Add => of(BinaryFunction::Add, &inner, &c),
                    Second::Subtract => of(BinaryFunction::Subtract, &inner, &c),
                    Second::SubtractFrom => of(BinaryFunction::Subtract, &c, &inner),
                    Second::Multiply => of(BinaryFunction::Multiply, &inner, &c),
                    Second::Divide => of(BinaryFunction::Divide, &inner, &c),
                    Second::Square => of(BinaryFunction::Multiply, &inner, &inner),
                    Second::Keep => inner,
                };
                if relu { format!("{}({outer})", unary(UnaryFunction::Relu)) } else { outer }
            }
            Instruction::Rows(..) => unreachable!("a reduction of rows is a number of the row"),
        }
    }

    fn operand(&self, operand: Operand) -> String {
        let made = match operand {
            Operand::Constant(number) => return format!("(T)c{number}"),
            Operand::Register(step) => Made::Step(step),
            Operand::Input(number) => Made::Input(number),
        };
        match made {
            made if self.is_kept(made) => format!("{}[k]", kept(made)),
            Made::Step(step) if matches!(self.steps[step], Instruction::Rows(..)) => {
                format!("s{step}")
            }
            Made::Step(step) => format!("v{step}"),
            Made::Input(number) => {
                let place = match self.inputs[number].0 {
                    Stretch::Cells => "at",
                    Stretch::Column => "row",
                    Stretch::Row => "column",
                    Stretch::Scalar => "0",
                };
                format!("(T)in{number}[{place}]")
            }
        }
    }
}

/// Whether it is the same for all cells of a row, where that is known of steps.
fn is_along_row(operand: Operand, inputs: &[(Stretch, Element)], steps: &[bool]) -> bool {
    match operand {
        Operand::Constant(_) => true,
        Operand::Input(number) => matches!(inputs[number].0, Stretch::Column | Stretch::Scalar),
        Operand::Register(step) => steps[step],
    }
}

/// The name of what stays in registers.
fn kept(made: Made) -> String {
    match made {
        Made::Input(number) => format!("in{number}_kept"),
        Made::Step(number) => format!("v{number}_kept"),
    }
}

fn cuda_type(element: Element) -> &'static str {
    match element {
        Element::Float64 => "f64",
        Element::Float32 => "f32",
    }
}

fn constant(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "SUM",
        Reduction::SumOfSquares => "SUM_OF_SQUARES",
        Reduction::Mean => "MEAN",
        Reduction::Min => "MIN",
        Reduction::Max => "MAX",
        Reduction::Variance => "VARIANCE",
        Reduction::PopulationVariance => "POPULATION_VARIANCE",
        Reduction::Deviation => "DEVIATION",
    }
}

fn unary(function: UnaryFunction) -> &'static str {
    match function {
        UnaryFunction::Negate => "cell::negate<T>",
        UnaryFunction::Abs => "cell::abs<T>",
        UnaryFunction::Sign => "cell::sign<T>",
        UnaryFunction::Sqrt => "cell::sqrt",
        UnaryFunction::Exp => "cell::exp<T>",
        UnaryFunction::Log => "cell::log<T>",
        UnaryFunction::Log1p => "cell::log1p<T>",
        UnaryFunction::Expm1 => "cell::expm1<T>",
        UnaryFunction::Sin => "cell::sin<T>",
        UnaryFunction::Cos => "cell::cos<T>",
        UnaryFunction::Tan => "cell::tan<T>",
        UnaryFunction::Tanh => "cell::tanh<T>",
        UnaryFunction::Floor => "cell::floor<T>",
        UnaryFunction::Ceil => "cell::ceil<T>",
        UnaryFunction::Round => "cell::round<T>",
        UnaryFunction::IsNan => "cell::is_nan<T>",
        UnaryFunction::Not => "cell::logical_not<T>",
        UnaryFunction::Relu => "cell::relu<T>",
        UnaryFunction::Sigmoid => "cell::sigmoid<T>",
        UnaryFunction::Gelu => "cell::gelu<T>",
        UnaryFunction::Softplus => "cell::softplus<T>",
    }
}

fn binary(function: BinaryFunction) -> &'static str {
    match function {
        BinaryFunction::Add => "cell::add<T>",
        BinaryFunction::Subtract => "cell::subtract<T>",
        BinaryFunction::Multiply => "cell::multiply<T>",
        BinaryFunction::Divide => "cell::divide<T>",
        BinaryFunction::Power => "cell::power<T>",
        BinaryFunction::Less => "cell::less<T>",
        BinaryFunction::LessEqual => "cell::less_equal<T>",
        BinaryFunction::Greater => "cell::greater<T>",
        BinaryFunction::GreaterEqual => "cell::greater_equal<T>",
        BinaryFunction::Equal => "cell::equal<T>",
        BinaryFunction::NotEqual => "cell::not_equal<T>",
        BinaryFunction::And => "cell::logical_and<T>",
        BinaryFunction::Or => "cell::logical_or<T>",
        BinaryFunction::Least => "cell::least<T>",
        BinaryFunction::Greatest => "cell::greatest<T>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::kernels::fused::Builder;

    const F64: Element = Element::Float64;

    /// `relu(x * w + 0.5)`
    fn layer() -> Program {
        let mut builder = Builder::new();
        let (x, w, half) = (builder.input(0), builder.input(1), builder.constant(0.5));
        let product = builder.binary(BinaryFunction::Multiply, x, w);
        let sum = builder.binary(BinaryFunction::Add, product, half);
        let result = builder.unary(UnaryFunction::Relu, sum);
        builder.finish(result)
    }

    #[test]
    fn a_loop_is_a_function_of_a_cell() {
        let inputs = [(Stretch::Cells, F64), (Stretch::Row, Element::Float32)];
        let text = layer().cuda(F64, &inputs, Goal::Map, Shape::new(7, 6));
        assert_eq!(
            text,
            "#include \"fused.cuh\"\n\ntypedef f64 T;\n\n\
             extern \"C\" __global__ void __launch_bounds__(THREADS) loop(T* __restrict__ out, u64 rows, u64 columns, \
             const f64* __restrict__ in0, const f32* __restrict__ in1, f64 c0) {\n    \
             ALIGNED(out);\n    ALIGNED(in0);\n    ALIGNED(in1);\n    map(Wide<2>{rows, columns}, out, [=](u64 at, u64 row, u64 column) -> T {\n        \
             const T v0 = cell::relu<T>(cell::add<T>(cell::multiply<T>((T)in0[at], (T)in1[column]), (T)c0));\n        \
             return v0;\n    });\n}\n\n"
        );
        let inputs = [(Stretch::Cells, F64), (Stretch::Scalar, F64)];
        let flat = layer().cuda(F64, &inputs, Goal::Map, Shape::new(7, 5));
        assert!(
            flat.contains("map(Flat<1>{rows * columns}, out,") && flat.contains("in1[0]"),
            "{flat}"
        );
    }

    #[test]
    fn a_pack_is_for_what_it_divides() {
        let packs = [0, 1, 2, 3, 4, 4096].map(|side| pack(F64, side));
        assert_eq!(packs, [2, 1, 2, 1, 2, 2]);
        let packs = [2, 4, 5, 4096].map(|side| pack(Element::Float32, side));
        assert_eq!(packs, [1, 4, 1, 4]);
    }

    #[test]
    fn lanes_have_a_row_between_them() {
        for columns in 0..20_000 {
            let Lanes { width, cells } = Lanes::of(columns);
            let is_fine = width.is_power_of_two() && width <= THREADS && cells <= LANE_CELLS_MAX;
            assert!(is_fine, "{columns}: {width} x {cells}");
            assert!(width * cells >= columns.min(THREADS * LANE_CELLS_MAX), "{columns}");
            assert!(width * cells < 2 * columns.max(1), "{columns}: {width} x {cells}");
        }
        let lanes = [1, 3, 31, 128, 500, 1000, 4096, 5000, 1 << 20].map(|columns| {
            let Lanes { width, cells } = Lanes::of(columns);
            (width, cells)
        });
        let expected = [(1, 1), (1, 4), (8, 4), (32, 4), (32, 16), (64, 16), (256, 16)];
        assert_eq!((&lanes[..7], lanes[7], lanes[8]), (&expected[..], (256, 32), (256, 32)));
    }

    /// `exp(x - max) / sum`, which has an exponential to keep from the sum to the quotient, and the cells before it.
    #[test]
    fn what_a_later_phase_wants_is_kept() {
        let mut builder = Builder::new();
        let x = builder.input(0);
        let largest = builder.rows(Reduction::Max, x);
        let shifted = builder.binary(BinaryFunction::Subtract, x, largest);
        let power = builder.unary(UnaryFunction::Exp, shifted);
        let sum = builder.rows(Reduction::Sum, power);
        let share = builder.binary(BinaryFunction::Divide, power, sum);
        let program = builder.finish(share);
        let inputs = [(Stretch::Cells, F64)];
        let text = program.cuda(F64, &inputs, Goal::Map, Shape::new(9, 31));
        let phases = &text[text.find("    for").unwrap()..];
        assert_eq!(
            phases,
            "    for (Rows<8, 4> rows_at(rows, columns); rows_at.any(); rows_at.next()) {
        T in0_kept[4];
        T v2_kept[4];
        const T s0 = (T)rows_at.reduce<MAX, T>([&](u32 k, u64 at, u64 row, u64 column) -> T {
            in0_kept[k] = (T)in0[at];
            return in0_kept[k];
        });
        const T s3 = (T)rows_at.reduce<SUM, T>([&](u32 k, u64 at, u64 row, u64 column) -> T {
            const T v1 = cell::subtract<T>(in0_kept[k], s0);
            v2_kept[k] = cell::exp<T>(v1);
            return v2_kept[k];
        });
        rows_at.map(out, [&](u32 k, u64 at, u64 row, u64 column) -> T {
            const T v4 = cell::divide<T>(v2_kept[k], s3);
            return v4;
        });
    }
}

"
        );
        // One of them at a time, of thirty-two cells each.
        assert!(program.keeps(F64, &inputs, Goal::Map, 8192));
        assert!(!program.keeps(F64, &inputs, Goal::Map, 8193));
        assert!(program.keeps(Element::Float32, &inputs, Goal::Map, 8192));
    }

    #[test]
    fn what_is_kept_is_no_longer_than_its_registers() {
        let mut builder = Builder::new();
        let (x, y) = (builder.input(0), builder.input(1));
        let product = builder.binary(BinaryFunction::Multiply, x, y);
        let sum = builder.rows(Reduction::Sum, product);
        let largest = builder.rows(Reduction::Max, x);
        let difference = builder.binary(BinaryFunction::Subtract, y, sum);
        let quotient = builder.binary(BinaryFunction::Divide, difference, largest);
        let program = builder.finish(quotient);
        let inputs = [(Stretch::Cells, F64), (Stretch::Cells, F64)];
        assert!(program.keeps(F64, &inputs, Goal::Map, 4096));
        assert!(!program.keeps(F64, &inputs, Goal::Map, 4097));
        assert!(program.keeps(Element::Float32, &inputs, Goal::Map, 8192));
        // A row beside all others is read anew, and so is a column.
        let inputs = [(Stretch::Row, F64), (Stretch::Column, F64)];
        assert!(program.keeps(F64, &inputs, Goal::Map, 1 << 20));
        // What is read once is not kept.
        assert!(layer().keeps(
            F64,
            &[(Stretch::Cells, F64); 2],
            Goal::Rows(Reduction::Sum),
            1 << 20
        ));
    }

    #[test]
    fn what_is_the_same_along_a_row_is_one_number_of_it() {
        let mut builder = Builder::new();
        let (x, v) = (builder.input(0), builder.input(1));
        let sum = builder.rows(Reduction::Sum, x);
        let product = builder.binary(BinaryFunction::Multiply, sum, v);
        let program = builder.finish(product);
        let inputs = [(Stretch::Cells, F64), (Stretch::Column, F64)];
        let text = program.cuda(F64, &inputs, Goal::Column, Shape::new(9, 31));
        let end = "        rows_at.write(out, [&](u64 row) -> T {\n            \
                   const T v1 = cell::multiply<T>((T)in1[row], s0);\n            return v1;\n        });\n";
        assert!(text.contains(end), "{text}");
        let text = program.cuda(F64, &inputs, Goal::Rows(Reduction::Max), Shape::new(9, 31));
        assert!(text.contains("const f64 total = rows_at.reduce<MAX, T>("), "{text}");
        assert!(text.contains("in1, Root root)"), "{text}");
    }

    #[test]
    fn parts_of_a_reduction_are_put_together_by_another_kernel() {
        let inputs = [(Stretch::Cells, F64), (Stretch::Cells, F64)];
        let shape = Shape::new(6, 3);
        let all = layer().cuda(F64, &inputs, Goal::Cells(Reduction::Variance), shape);
        assert!(all.contains("reduce_cells<VARIANCE, T>(Flat<2>{rows * columns}, parts,"), "{all}");
        assert!(all.contains(" finish(T* out, const Accumulator<VARIANCE>* parts"), "{all}");
        let columns = layer().cuda(F64, &inputs, Goal::Columns(Reduction::Sum), shape);
        assert!(columns.contains("reduce_columns<SUM, T, 1>(parts,"), "{columns}");
        assert!(columns.contains("f64 c0, u64 height)"), "{columns}");
    }
}
