//! Cuts a block into strips and runs the steps of a program over each.

use std::mem::take;
use std::ops::Range;

use super::{Chain, Input, Instruction, Operand, Program, Step, first, reduce, vector};
use crate::exec::kernels::arch::Arch;
use crate::matrix::Scalar;

/// Cells of a strip: 4 KiB of `f64`, so that all strips of a step share the first cache with what it reads
/// ahead. An exponential over 50 million cells takes 0.87 of the time that it takes in strips of 1,024, two
/// constants and two registers beside it; what waits for memory takes the same.
pub(super) const STRIP: usize = 512;

/// Columns of a row that is one strip, though a long one: its reduction is of one piece, and what reads it
/// finds it in cache.
pub const ROW_MAX: usize = 1024;

/// The strips that a program works in; kept from block to block, one for each thread.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    registers: Vec<Vec<T>>,
    constants: Vec<Vec<T>>,
    /// What each input that is not a cell for each looks like over a strip.
    broadcasts: Vec<Vec<T>>,
}

impl<T: Scalar> Scratch<T> {
    /// Without strips; the first block makes them.
    pub fn new() -> Self {
        Self::default()
    }

    fn prepare(&mut self, program: &Program, inputs: usize) {
        let grow = |strips: &mut Vec<Vec<T>>, count: usize| {
            if strips.len() < count {
                strips.resize_with(count, || vec![T::ZERO; ROW_MAX]);
            }
        };
        grow(&mut self.registers, program.registers);
        grow(&mut self.constants, program.constants.len());
        grow(&mut self.broadcasts, inputs);
        for (strip, &constant) in self.constants.iter_mut().zip(&program.constants) {
            strip.fill(T::from_f64(constant));
        }
    }
}

/// How a block of some shape is cut: narrow ones into whole rows, wide ones into parts of one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) rows_per_strip: usize,
    pub(super) columns_per_strip: usize,
}

impl Cut {
    /// Depends on the number of columns alone.
    pub(super) fn new(columns: usize) -> Self {
        if columns > ROW_MAX {
            // Even parts, in whole cache lines.
            let parts = columns.div_ceil(STRIP);
            let even = columns.div_ceil(parts).next_multiple_of(16);
            Self { rows_per_strip: 1, columns_per_strip: even }
        } else {
            let rows_per_strip = (STRIP / columns.max(1)).max(1);
            Self { rows_per_strip, columns_per_strip: columns }
        }
    }
}

/// A rectangle of cells that lie side by side: whole rows, or a part of one.
#[derive(Debug, Clone)]
pub(super) struct Strip {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    /// Columns of the block.
    width: usize,
}

impl Strip {
    pub(super) fn new(rows: Range<usize>, columns: Range<usize>, width: usize) -> Self {
        Self { rows, columns, width }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// Where the cells lie within the block.
    pub(super) fn cells(&self) -> Range<usize> {
        let start = self.rows.start * self.width + self.columns.start;
        start..start + self.len()
    }
}

/// A program over one block.
pub(super) struct Machine<'a, T> {
    program: &'a Program,
    inputs: &'a [Input<'a, T>],
    scratch: &'a mut Scratch<T>,
    arch: Arch,
}

/// What a program has computed of one strip.
pub struct Results<'a, T> {
    machine: &'a Machine<'a, T>,
    strip: &'a Strip,
}

impl<T: Scalar> Results<'_, T> {
    /// The cells of the result of this number, counted from 0.
    pub fn cells(&self, number: usize) -> &[T] {
        self.machine.operand(self.machine.program.results[number], self.strip, &[])
    }
}

/// Runs `consume` with each strip of a block in row-major order.
pub(super) fn each<T: Scalar>(
    program: &Program,
    inputs: &[Input<'_, T>],
    rows: usize,
    columns: usize,
    scratch: &mut Scratch<T>,
    mut consume: impl FnMut(&mut Machine<'_, T>, &Strip),
) {
    let mut machine = Machine::new(program, inputs, rows, columns, scratch);
    let cut = Cut::new(columns);
    for top in (0..rows).step_by(cut.rows_per_strip) {
        let strip_rows = top..rows.min(top + cut.rows_per_strip);
        for left in (0..columns).step_by(cut.columns_per_strip.max(1)) {
            let strip_columns = left..columns.min(left + cut.columns_per_strip);
            let strip = Strip::new(strip_rows.clone(), strip_columns, columns);
            consume(&mut machine, &strip);
        }
    }
}

impl<'a, T: Scalar> Machine<'a, T> {
    pub(super) fn new(
        program: &'a Program,
        inputs: &'a [Input<'a, T>],
        rows: usize,
        columns: usize,
        scratch: &'a mut Scratch<T>,
    ) -> Self {
        inputs.iter().for_each(|input| input.assert_fits(rows, columns));
        assert!(columns <= ROW_MAX || !program.reduces_rows(), "a strip holds whole rows");
        scratch.prepare(program, inputs.len());
        for (input, strip) in inputs.iter().zip(&mut scratch.broadcasts) {
            match input {
                Input::Scalar(value) => strip.fill(*value),
                Input::Row(cells) if columns > 0 && columns <= STRIP => {
                    strip.chunks_exact_mut(columns).for_each(|row| row.copy_from_slice(cells));
                }
                Input::Row(_) | Input::Column(_) | Input::Cells(_) | Input::Place => {}
            }
        }
        Self { program, inputs, scratch, arch: Arch::new() }
    }

    pub(super) fn arch(&self) -> Arch {
        self.arch
    }

    /// Computes the result over a strip into `out`, or over what it reads there.
    pub(super) fn write(&mut self, strip: &Strip, out: &mut [T]) {
        let Some(last) = self.program.steps.last() else {
            self.enter(strip);
            let result = self.program.results[0];
            if self.place(result).is_none() {
                out.copy_from_slice(self.operand(result, strip, &[]));
            }
            return;
        };
        self.prepare_last(strip, out);
        match last.instruction.operands().find_map(|operand| self.place(operand)) {
            // What the last step reads it may not write: a strip, which is in the first cache by now, is between.
            Some(number) => {
                let mut between = take(&mut self.scratch.broadcasts[number]);
                self.evaluate(last.instruction, strip, out, &mut between[..strip.len()]);
                out.copy_from_slice(&between[..strip.len()]);
                self.scratch.broadcasts[number] = between;
            }
            None => self.evaluate(last.instruction, strip, &[], out),
        }
    }

    /// The number of the input that an operand is, where the result is written over it.
    fn place(&self, operand: Operand) -> Option<usize> {
        match operand {
            Operand::Input(number) if matches!(self.inputs[number], Input::Place) => Some(number),
            _ => None,
        }
    }

    /// Computes the result over a strip, to be read here.
    pub(super) fn read(&mut self, strip: &Strip) -> &[T] {
        self.run(strip);
        self.operand(self.program.results[0], strip, &[])
    }

    /// Computes all results over a strip, to be read here.
    pub(super) fn results<'b>(&'b mut self, strip: &'b Strip) -> Results<'b, T> {
        self.run(strip);
        Results { machine: self, strip }
    }

    fn run(&mut self, strip: &Strip) {
        self.enter(strip);
        self.program.steps.iter().for_each(|step| self.step(step, strip, &[]));
    }

    /// Adds the result over a strip; not even a strip of it is stored where the last step is arithmetic.
    pub(super) fn sum(&mut self, strip: &Strip) -> f64 {
        let arch = self.arch;
        let last = self.program.steps.last().map(|step| step.instruction);
        match last {
            Some(Instruction::Chain(Chain { first, second, relu: false }, a, b, c)) => {
                self.prepare_last(strip, &[]);
                let operands = [a, b, c].map(|operand| self.operand(operand, strip, &[]));
                vector::sum_of_chain(arch, first, second, operands)
            }
            Some(Instruction::Binary(function, a, b)) => match first(function) {
                Some(function) => {
                    self.prepare_last(strip, &[]);
                    let operands = [a, b].map(|operand| self.operand(operand, strip, &[]));
                    vector::sum_of_binary(arch, function, operands)
                }
                None => vector::sum(arch, self.read(strip)),
            },
            _ => vector::sum(arch, self.read(strip)),
        }
    }

    /// Runs all steps but the last over a strip, in whose place these cells are.
    fn prepare_last(&mut self, strip: &Strip, place: &[T]) {
        self.enter(strip);
        let (_, steps) = self.program.steps.split_last().expect("a program with a last step");
        steps.iter().for_each(|step| self.step(step, strip, place));
    }

    /// Spreads the columns over the strip.
    fn enter(&mut self, strip: &Strip) {
        for (input, spread) in self.inputs.iter().zip(&mut self.scratch.broadcasts) {
            if let Input::Column(cells) = input {
                let cells = &cells[strip.rows.clone()];
                let width = strip.columns.len();
                if width == 1 {
                    spread[..cells.len()].copy_from_slice(cells);
                } else {
                    for (row, &cell) in spread.chunks_mut(width).zip(cells) {
                        vector::fill(self.arch, cell, row);
                    }
                }
            }
        }
    }

    fn step(&mut self, step: &Step, strip: &Strip, place: &[T]) {
        // The strip leaves its place, so that the others can be read meanwhile.
        let mut out = take(&mut self.scratch.registers[step.register]);
        self.evaluate(step.instruction, strip, place, &mut out[..strip.len()]);
        self.scratch.registers[step.register] = out;
    }

    fn operand<'s>(&'s self, operand: Operand, strip: &Strip, place: &'s [T]) -> &'s [T] {
        match operand {
            Operand::Register(number) => &self.scratch.registers[number][..strip.len()],
            Operand::Constant(number) => &self.scratch.constants[number][..strip.len()],
            Operand::Input(number) => match self.inputs[number] {
                Input::Cells(cells) => &cells[strip.cells()],
                Input::Row(cells) if strip.width > STRIP => &cells[strip.columns.clone()],
                Input::Place => place,
                Input::Row(_) | Input::Column(_) | Input::Scalar(_) => {
                    &self.scratch.broadcasts[number][..strip.len()]
                }
            },
        }
    }

    fn evaluate(&self, instruction: Instruction, strip: &Strip, place: &[T], out: &mut [T]) {
        let cells = |operand| self.operand(operand, strip, place);
        match instruction {
            Instruction::Unary(function, x) => vector::unary(self.arch, function, cells(x), out),
            Instruction::Binary(function, a, b) => {
                vector::binary(self.arch, function, cells(a), cells(b), out);
            }
            Instruction::Chain(chain, a, b, c) => {
                vector::chain(self.arch, chain, [cells(a), cells(b), cells(c)], out);
            }
            Instruction::Select(condition, a, b) => {
                vector::select(self.arch, [cells(condition), cells(a), cells(b)], out);
            }
            Instruction::Rows(reduction, x) => {
                let width = strip.columns.len();
                for (x, out) in cells(x).chunks_exact(width).zip(out.chunks_exact_mut(width)) {
                    let reduced = reduce::chain(self.arch, reduction, x).value();
                    vector::fill(self.arch, T::from_f64(reduced), out);
                }
            }
        }
    }
}
