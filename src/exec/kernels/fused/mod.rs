//! One elementwise expression as a small program, run over strips of cells in cache.
//!
//! Enters: an expression, through [`Builder`], and blocks of rows, as [`Input`]s. Leaves: the cells of
//! the result, or a reduction of them ([`Program::reduce`] and its siblings) for which the result is never stored.
//! Not here: threads (a caller runs blocks of rows side by side), shapes that do not fit (asserted), sparse cells.
//!
//! ```text
//! relu(x * w + 1)      x: Cells, w: Row             one strip of x, then the next
//!   r0 = x * w                                      ┌──────────────┐
//!   r1 = r0 + 1                                     │ 1,024 cells  │ each step loops over the strip,
//!   out = relu(r1)                                  └──────────────┘ which stays in the first cache
//! ```
//!
//! What holds:
//! - **Bits.** The result of a cell is that of [`UnaryFunction::apply`] and its siblings, rounded after
//!   each step; nothing is contracted to fused multiply-adds. So it depends neither on the processor
//!   nor on how rows are cut into blocks. Which `NaN` a `NaN` is, is left open.
//! - **Order.** A reduction adds in an order that follows from the shape of the block alone, whatever
//!   the expression; see `reduce`.
//! - **Memory.** Nothing is allocated once a [`Scratch`] has served a program of the same size.

mod cuda;
mod reduce;
mod strips;
#[cfg(test)]
pub(in crate::exec) mod tests;
mod vector;

use std::collections::HashMap;
use std::ops::Range;

use crate::matrix::Scalar;

use super::elementwise::{BinaryFunction, UnaryFunction};
pub(crate) use cuda::{ENTRY, FINISH, Goal, LOOP, Lanes, Stretch, THREADS, WARP, pack};
pub use reduce::{Accumulator, Reduction};
pub use strips::{ROW_MAX, Results, Scratch};

/// What a program reads, beside a block of m rows and n columns.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a, T> {
    /// A cell for each, m×n, row-major.
    Cells(&'a [T]),
    /// A cell for each row, m×1.
    Column(&'a [T]),
    /// A cell for each column, 1×n.
    Row(&'a [T]),
    /// One cell for all.
    Scalar(T),
    /// A cell for each, which the result is written over.
    Place,
}

impl<T> Input<'_, T> {
    fn assert_fits(&self, rows: usize, columns: usize) {
        let (kind, found, expected) = match self {
            Input::Cells(cells) => ("cells", cells.len(), rows * columns),
            Input::Column(cells) => ("a column", cells.len(), rows),
            Input::Row(cells) => ("a row", cells.len(), columns),
            Input::Scalar(_) | Input::Place => return,
        };
        assert_eq!(found, expected, "{kind} beside a block of {rows}x{columns}");
    }
}

/// Where a step reads: a value of a [`Builder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(Operand);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Operand {
    /// The input of this number.
    Input(usize),
    /// The constant of this number.
    Constant(usize),
    /// In a builder the step of this number, in a program the register.
    Register(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Instruction {
    Unary(UnaryFunction, Operand),
    Binary(BinaryFunction, Operand, Operand),
    /// `second(first(a, b), c)` without a strip between them.
    Chain(Chain, Operand, Operand, Operand),
    /// The second operand where the first is true, else the third.
    Select(Operand, Operand, Operand),
    /// The reduction of each row, in each of its cells.
    Rows(Reduction, Operand),
}

/// Two steps of arithmetic in one: a step costs about as much for its loads and stores as for its sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Chain {
    first: First,
    second: Second,
    /// Applied to the outcome, for the many expressions that end so.
    relu: bool,
}

/// The functions that begin a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum First {
    Add,
    Subtract,
    Multiply,
}

/// The functions that go on with what the first one gave, a, and an operand b.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Second {
    Add,
    Subtract,
    /// b - a
    SubtractFrom,
    Multiply,
    Divide,
    /// a · a, whatever b
    Square,
    /// a, whatever b
    Keep,
}

impl Instruction {
    fn operands(self) -> impl Iterator<Item = Operand> {
        let operands = match self {
            Instruction::Unary(_, a) | Instruction::Rows(_, a) => [Some(a), None, None],
            Instruction::Binary(_, a, b) => [Some(a), Some(b), None],
            Instruction::Chain(_, a, b, c) | Instruction::Select(a, b, c) => {
                [Some(a), Some(b), Some(c)]
            }
        };
        operands.into_iter().flatten()
    }

    fn map(self, mut f: impl FnMut(Operand) -> Operand) -> Self {
        match self {
            Instruction::Unary(function, a) => Instruction::Unary(function, f(a)),
            Instruction::Binary(function, a, b) => Instruction::Binary(function, f(a), f(b)),
            Instruction::Chain(chain, a, b, c) => Instruction::Chain(chain, f(a), f(b), f(c)),
            Instruction::Select(a, b, c) => Instruction::Select(f(a), f(b), f(c)),
            Instruction::Rows(reduction, a) => Instruction::Rows(reduction, f(a)),
        }
    }
}

/// Makes a [`Program`], sharing common parts.
#[derive(Debug, Default)]
pub struct Builder {
    constants: Vec<f64>,
    instructions: Vec<Instruction>,
    known: HashMap<Instruction, usize>,
    /// Whether operands keep their places and functions their form.
    is_as_written: bool,
}

impl Builder {
    /// A builder without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder whose programs compute what is written and nothing of equal value, so that even the sign of a
    /// `NaN` is that of the operations one by one.
    pub fn as_written() -> Self {
        Self { is_as_written: true, ..Self::default() }
    }

    /// The cells of the input of this number, counted from 0.
    pub fn input(&mut self, number: usize) -> Value {
        Value(Operand::Input(number))
    }

    /// The same number for every cell.
    pub fn constant(&mut self, value: f64) -> Value {
        let same = |known: &f64| known.to_bits() == value.to_bits();
        let number = self.constants.iter().position(same).unwrap_or_else(|| {
            self.constants.push(value);
            self.constants.len() - 1
        });
        Value(Operand::Constant(number))
    }

    /// A function of one value. A change of sign is a product, which chains.
    pub fn unary(&mut self, function: UnaryFunction, x: Value) -> Value {
        if function == UnaryFunction::Negate && !self.is_as_written {
            let minus = self.constant(-1.0);
            return self.binary(BinaryFunction::Multiply, minus, x);
        }
        self.push(Instruction::Unary(function, x.0))
    }

    /// A function of two values.
    pub fn binary(&mut self, function: BinaryFunction, a: Value, b: Value) -> Value {
        if self.is_as_written {
            return self.push(Instruction::Binary(function, a.0, b.0));
        }
        let (a, b) = if function.commutative() && b < a { (b, a) } else { (a, b) };
        match function {
            BinaryFunction::Power => self.power(a, b),
            BinaryFunction::Divide => self.quotient(a, b),
            // The same number, a zero's sign included, and it chains.
            BinaryFunction::Greatest if self.is_zero(b) => self.unary(UnaryFunction::Relu, a),
            _ => self.push(Instruction::Binary(function, a.0, b.0)),
        }
    }

    /// `a` where `condition` is true, else `b`.
    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        self.push(Instruction::Select(condition.0, a.0, b.0))
    }

    /// The reduction of each row, for all of its cells. The program then is for blocks of at most [`ROW_MAX`]
    /// columns, for a strip holds whole rows of those alone.
    pub fn rows(&mut self, reduction: Reduction, x: Value) -> Value {
        self.push(Instruction::Rows(reduction, x.0))
    }

    /// What a program computes of these values, step by step as it does.
    pub(crate) fn include(&mut self, program: &Program, inputs: &[Value]) -> Value {
        let mut registers = vec![Operand::Register(usize::MAX); program.registers];
        let place = |builder: &mut Self, registers: &[Operand], operand| match operand {
            Operand::Input(number) => inputs[number].0,
            Operand::Constant(number) => builder.constant(program.constants[number]).0,
            Operand::Register(register) => registers[register],
        };
        for step in &program.steps {
            let placed = step.instruction.map(|operand| place(self, &registers, operand));
            registers[step.register] = self.push(placed).0;
        }
        Value(place(self, &registers, program.results[0]))
    }

    /// Whether it is the constant 0, which is not -0.
    fn is_zero(&self, value: Value) -> bool {
        matches!(value.0, Operand::Constant(number) if self.constants[number].to_bits() == 0)
    }

    /// The small constant exponents by the steps that define them, which run on vectors.
    fn power(&mut self, a: Value, b: Value) -> Value {
        let exponent = match b.0 {
            Operand::Constant(number) => self.constants[number],
            Operand::Input(_) | Operand::Register(_) => f64::NAN,
        };
        if exponent == 2.0 {
            self.binary(BinaryFunction::Multiply, a, a)
        } else if exponent == 3.0 {
            let square = self.binary(BinaryFunction::Multiply, a, a);
            self.binary(BinaryFunction::Multiply, a, square)
        } else if exponent == -1.0 {
            let one = self.constant(1.0);
            self.binary(BinaryFunction::Divide, one, a)
        } else {
            self.push(Instruction::Binary(BinaryFunction::Power, a.0, b.0))
        }
    }

    /// By a power of two as a product, which is the same number rounded the same way, and quicker.
    fn quotient(&mut self, a: Value, b: Value) -> Value {
        if let Operand::Constant(number) = b.0 {
            let divisor = self.constants[number];
            let is_power = divisor.to_bits().trailing_zeros() >= f64::MANTISSA_DIGITS - 1;
            // Neither is subnormal, of 32 bits either.
            if is_power && (1e-30..1e30).contains(&divisor.abs()) {
                let factor = self.constant(1.0 / divisor);
                return self.binary(BinaryFunction::Multiply, a, factor);
            }
        }
        self.push(Instruction::Binary(BinaryFunction::Divide, a.0, b.0))
    }

    fn push(&mut self, instruction: Instruction) -> Value {
        let next = self.instructions.len();
        let number = *self.known.entry(instruction).or_insert(next);
        if number == next {
            self.instructions.push(instruction);
        }
        Value(Operand::Register(number))
    }

    /// The program that computes this value.
    pub fn finish(self, result: Value) -> Program {
        self.finish_all(&[result])
    }

    /// The program that computes all of these values; for [`Program::each_strip`].
    pub fn finish_all(mut self, results: &[Value]) -> Program {
        let results: Vec<Operand> = results.iter().map(|result| result.0).collect();
        let mut readers = self.readers(&results);
        self.chain(&mut readers);
        self.allocate(results, &readers)
    }

    /// How many operands of steps that count, and results, read each step; those without readers do not count.
    fn readers(&self, results: &[Operand]) -> Vec<usize> {
        let mut readers = vec![0; self.instructions.len()];
        for result in results {
            if let Operand::Register(number) = result {
                readers[*number] += 1;
            }
        }
        for (number, instruction) in self.instructions.iter().enumerate().rev() {
            if readers[number] > 0 {
                for operand in instruction.operands() {
                    if let Operand::Register(read) = operand {
                        readers[read] += 1;
                    }
                }
            }
        }
        readers
    }

    /// Merges a step of arithmetic into its only reader, where that is another one or `relu`.
    fn chain(&mut self, readers: &mut [usize]) {
        for number in 0..self.instructions.len() {
            let only_reader = |operand: Operand| match operand {
                Operand::Register(read) if readers[read] == 1 => {
                    Some((read, self.instructions[read]))
                }
                _ => None,
            };
            let merge = |(read, part): (usize, Instruction), second, c| {
                let Instruction::Binary(function, a, b) = part else { return None };
                let first = first(function)?;
                // Some read no third operand; the chain may not read the step that it replaces.
                let c = if matches!(second, Second::Square | Second::Keep) { a } else { c };
                Some((read, Instruction::Chain(Chain { first, second, relu: false }, a, b, c)))
            };
            let merged = match self.instructions[number] {
                Instruction::Unary(UnaryFunction::Relu, a) => match only_reader(a) {
                    Some(part @ (_, Instruction::Chain(..))) => Some(with_relu(part)),
                    Some(part) => merge(part, Second::Keep, a).map(with_relu),
                    None => None,
                },
                Instruction::Binary(BinaryFunction::Multiply, Operand::Register(read), b)
                    if b == Operand::Register(read) && readers[read] == 2 =>
                {
                    merge((read, self.instructions[read]), Second::Square, b)
                }
                Instruction::Binary(function, a, b) => {
                    let left = second(function, false).zip(only_reader(a).map(|part| (part, b)));
                    // A sum or product of the part on the right would change places with the other.
                    let swaps = !(self.is_as_written && function.commutative());
                    let part = only_reader(b).filter(|_| swaps).map(|part| (part, a));
                    let right = second(function, true).zip(part);
                    let mut parts = left.into_iter().chain(right);
                    parts.find_map(|(second, (part, c))| merge(part, second, c))
                }
                Instruction::Unary(..)
                | Instruction::Chain(..)
                | Instruction::Select(..)
                | Instruction::Rows(..) => None,
            };
            if let Some((read, instruction)) = merged.filter(|_| readers[number] > 0) {
                self.instructions[number] = instruction;
                readers[read] = 0;
            }
        }
    }

    /// Steps to registers: each is free again after its last reader, and never one of its own operands.
    fn allocate(self, results: Vec<Operand>, readers: &[usize]) -> Program {
        let mut last_read = vec![0; self.instructions.len()];
        let counting =
            || self.instructions.iter().enumerate().filter(|&(number, _)| readers[number] > 0);
        for (number, instruction) in counting() {
            for operand in instruction.operands() {
                if let Operand::Register(read) = operand {
                    last_read[read] = number;
                }
            }
        }
        for result in &results {
            if let Operand::Register(number) = result {
                last_read[*number] = usize::MAX;
            }
        }
        let mut register_of = vec![0; self.instructions.len()];
        let (mut free, mut registers) = (Vec::new(), 0);
        let mut steps = Vec::new();
        for (number, &instruction) in counting() {
            register_of[number] = free.pop().unwrap_or_else(|| {
                registers += 1;
                registers - 1
            });
            let placed = instruction.map(|operand| match operand {
                Operand::Register(read) => Operand::Register(register_of[read]),
                other => other,
            });
            steps.push(Step { instruction: placed, register: register_of[number] });
            for operand in instruction.operands() {
                if let Operand::Register(read) = operand
                    && last_read[read] == number
                    && !free.contains(&register_of[read])
                {
                    free.push(register_of[read]);
                }
            }
        }
        let results = results.into_iter().map(|result| match result {
            Operand::Register(number) => Operand::Register(register_of[number]),
            other => other,
        });
        Program { constants: self.constants, steps, registers, results: results.collect() }
    }
}

fn first(function: BinaryFunction) -> Option<First> {
    match function {
        BinaryFunction::Add => Some(First::Add),
        BinaryFunction::Subtract => Some(First::Subtract),
        BinaryFunction::Multiply => Some(First::Multiply),
        _ => None,
    }
}

/// `swapped` where the first function's outcome is the right operand.
fn second(function: BinaryFunction, swapped: bool) -> Option<Second> {
    match function {
        BinaryFunction::Add => Some(Second::Add),
        BinaryFunction::Subtract if swapped => Some(Second::SubtractFrom),
        BinaryFunction::Subtract => Some(Second::Subtract),
        BinaryFunction::Multiply => Some(Second::Multiply),
        BinaryFunction::Divide if !swapped => Some(Second::Divide),
        _ => None,
    }
}

fn with_relu((read, instruction): (usize, Instruction)) -> (usize, Instruction) {
    match instruction {
        Instruction::Chain(chain, a, b, c) => {
            (read, Instruction::Chain(Chain { relu: true, ..chain }, a, b, c))
        }
        other => (read, other),
    }
}

#[derive(Debug, Clone, Copy)]
struct Step {
    instruction: Instruction,
    /// Where the outcome goes.
    register: usize,
}

/// An elementwise expression, ready to run over any number of blocks.
#[derive(Debug, Clone)]
pub struct Program {
    constants: Vec<f64>,
    steps: Vec<Step>,
    registers: usize,
    /// One, but for what [`Program::each_strip`] runs. The last step computes one that stands alone.
    results: Vec<Operand>,
}

impl Program {
    /// How many operations the loop makes of each cell, a multiply-add counting as the two it is.
    pub fn operations(&self) -> usize {
        let of = |step: &Step| match step.instruction {
            Instruction::Unary(..)
            | Instruction::Binary(..)
            | Instruction::Select(..)
            | Instruction::Rows(..) => 1,
            Instruction::Chain(Chain { relu, .. }, ..) => 2 + usize::from(relu),
        };
        self.steps.iter().map(of).sum()
    }

    /// Work for one cell in units of an addition, as [`UnaryFunction::flops`] has it.
    pub(crate) fn flops(&self) -> f64 {
        let of = |step: &Step| match step.instruction {
            Instruction::Unary(function, _) => function.flops(),
            Instruction::Binary(function, ..) => function.flops(),
            Instruction::Select(..) | Instruction::Rows(..) => 1,
            Instruction::Chain(Chain { second: Second::Divide, .. }, ..) => 3,
            Instruction::Chain(..) => 2,
        };
        self.steps.iter().map(|step| f64::from(of(step))).sum()
    }

    /// Whether it is for blocks of at most [`ROW_MAX`] columns.
    pub(crate) fn reduces_rows(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.instruction, Instruction::Rows(..)))
    }

    /// Computes the cells of one block, on the calling thread.
    ///
    /// # Panics
    /// Where an input is missing or does not fit `rows` times `columns`, or `out` has another length.
    pub fn run<T: Scalar>(
        &self,
        inputs: &[Input<'_, T>],
        rows: usize,
        columns: usize,
        scratch: &mut Scratch<T>,
        out: &mut [T],
    ) {
        assert_eq!(out.len(), rows * columns, "a cell of the result for each of {rows}x{columns}");
        let is_flat = |input: &Input<'_, T>| {
            matches!(input, Input::Cells(_) | Input::Scalar(_) | Input::Place)
        };
        let flat = inputs.iter().all(is_flat) && !self.reduces_rows();
        let (rows, columns) = if flat { (1, rows * columns) } else { (rows, columns) };
        strips::each(self, inputs, rows, columns, scratch, |machine, strip| {
            let cells = strip.cells();
            machine.write(strip, &mut out[cells]);
        });
    }

    /// Computes all results of so many cells, strip by strip, on the calling thread: `consume` is given which cells a
    /// strip holds, from a multiple of 64 on, and its results.
    ///
    /// # Panics
    /// Where an input is missing or does not fit.
    pub fn each_strip<T: Scalar>(
        &self,
        inputs: &[Input<'_, T>],
        cells: usize,
        scratch: &mut Scratch<T>,
        mut consume: impl FnMut(Range<usize>, &Results<'_, T>),
    ) {
        let mut machine = strips::Machine::new(self, inputs, 1, cells, scratch);
        for start in (0..cells).step_by(strips::STRIP) {
            let strip = strips::Strip::new(0..1, start..cells.min(start + strips::STRIP), cells);
            consume(strip.cells(), &machine.results(&strip));
        }
    }
}
