//! Steps of a pass that are one kernel: what a step makes for the next ones need not be in memory.
//!
//! ```text
//! m = row_maxs(a)    ┐
//! e = exp(a - m)     │ one program of `a`, where only `d` is read by others
//! s = row_sums(e)    │
//! d = e / s          ┘
//! ```
//!
//! A step waits for its readers where all of them end in one and the same step. Whether a reader can take it in shows once shapes are
//! known: their kernel goes along rows of one length, of whose cells a block keeps what it computes in registers. What is not taken in
//! is computed by a kernel of its own.

use std::collections::HashMap;
use std::rc::Rc;

use super::loops::{Over, root, same, together};
use super::matrix::Matrix;
use super::{Failed, Run};
use crate::exec::kernels::fused::{self, Builder, Goal, Program};
use crate::exec::kernels::reduce::Reduction;
use crate::exec::operation::{Aggregate, Axis, Operation};
use crate::exec::program::{BlockStep, Pass, Slot};
use crate::gpu::ARGUMENTS_MAX;
use crate::matrix::{Element, Shape};

/// What a kernel can compute, and has not yet.
struct Expression {
    program: Program,
    /// What each row of that is reduced by in the end: what is asked for, and what is accumulated for it.
    reduction: Option<(Reduction, fused::Reduction)>,
    inputs: Vec<Matrix>,
    /// Of the outcome.
    shape: Shape,
    element: Element,
}

impl Run<'_> {
    /// The steps of a pass.
    pub(super) fn block_steps(&mut self, pass: &Pass) -> Result<(), Failed> {
        let last = last_readers(pass);
        let mut waiting: HashMap<Slot, Rc<Expression>> = HashMap::new();
        for (at, step) in pass.steps.iter().enumerate() {
            let (slots, output) = (step.inputs(), step.output());
            let mut joined = Expression::joined(step, &self.operands(slots, &waiting)?);
            if joined.is_none() {
                for slot in slots {
                    if let Some(expression) = waiting.remove(slot) {
                        let made = self.computed(&expression)?;
                        self.held.insert(*slot, made);
                    }
                }
                joined = Expression::joined(step, &self.operands(slots, &waiting)?);
            }
            let made = match (joined, step) {
                (Some(expression), _) if last[at] != at => {
                    waiting.insert(output, Rc::new(expression));
                    continue;
                }
                (Some(expression), _) => self.computed(&expression)?,
                (None, BlockStep::Evaluate { operation, .. }) => {
                    let inputs = self.matrices(slots)?;
                    self.queue.evaluate(operation, &inputs, self.arithmetic(output))?
                }
                (None, BlockStep::Fused { .. }) => {
                    return Err(Failed::Unfit("sizes that do not fit".into()));
                }
            };
            self.held.insert(output, made);
        }
        Ok(())
    }

    fn operands(
        &mut self,
        slots: &[Slot],
        waiting: &HashMap<Slot, Rc<Expression>>,
    ) -> Result<Vec<Rc<Expression>>, Failed> {
        let operand = |slot: &Slot| match waiting.get(slot) {
            Some(expression) => Ok(Rc::clone(expression)),
            None => Ok(Rc::new(Expression::stored(self.matrix(*slot)?))),
        };
        slots.iter().map(operand).collect()
    }

    fn computed(&self, expression: &Expression) -> Result<Matrix, Failed> {
        let Expression { program, inputs, element, .. } = expression;
        let inputs = Vec::from_iter(inputs);
        let root = expression.reduction.map_or(0.0, |(reduction, _)| root(reduction));
        self.queue.compute(program, &inputs, *element, expression.goal(), root)
    }
}

/// For each step of a pass the one that all of its readers end in: itself where there is no such step.
fn last_readers(pass: &Pass) -> Vec<usize> {
    let mut last = Vec::from_iter(0..pass.steps.len());
    for at in (0..last.len()).rev() {
        let output = pass.steps[at].output();
        let is_left = pass.sinks.iter().any(|sink| sink.inputs().contains(&output));
        let later = at + 1..last.len();
        let mut ends =
            later.filter(|&of| pass.steps[of].inputs().contains(&output)).map(|of| last[of]);
        if let Some(end) = ends.next().filter(|&end| !is_left && ends.all(|other| other == end)) {
            last[at] = end;
        }
    }
    last
}

impl Expression {
    /// A matrix that is there.
    fn stored(matrix: Matrix) -> Self {
        let (shape, element) = (matrix.shape, matrix.element);
        Self { program: same(), reduction: None, inputs: vec![matrix], shape, element }
    }

    fn is_stored(&self) -> bool {
        self.reduction.is_none()
            && self.program.operations() == 0
            && self.inputs.iter().all(|input| input.element == self.element)
    }

    fn reduces_rows(&self) -> bool {
        self.reduction.is_some() || self.program.reduces_rows()
    }

    /// The shape that its kernel goes through.
    fn over(&self) -> Shape {
        together(self.inputs.iter().map(|input| input.shape))
    }

    fn goal(&self) -> Goal {
        match self.reduction {
            Some((_, looped)) => Goal::Rows(looped),
            None if self.shape == self.over() => Goal::Map,
            None => Goal::Column,
        }
    }

    /// A step that takes in its operands; none where they are not for one kernel, or the step is not for such kernels.
    fn joined(step: &BlockStep, operands: &[Rc<Expression>]) -> Option<Self> {
        let mut builder = Builder::new();
        let (mut inputs, mut values) = (Vec::<Matrix>::new(), Vec::with_capacity(operands.len()));
        for operand in operands {
            let own = operand.inputs.iter().map(|matrix| {
                let known = inputs.iter().position(|known| known.is(matrix));
                builder.input(known.unwrap_or_else(|| {
                    inputs.push(matrix.clone());
                    inputs.len() - 1
                }))
            });
            let own: Vec<_> = own.collect();
            let value = builder.include(&operand.program, &own);
            values.push(match operand.reduction {
                None => value,
                // A root is taken of what is not rounded yet.
                Some((reduction, _)) if root(reduction) != 0.0 => return None,
                Some((_, looped)) => builder.rows(looped, value),
            });
        }
        let shape = together(operands.iter().map(|operand| operand.shape));
        let (value, reduction, element, columns) = match step {
            BlockStep::Fused { program, element, .. } => {
                (builder.include(program, &values), None, *element, shape.columns)
            }
            BlockStep::Evaluate {
                operation: Operation::Reduce { aggregate, axis: Some(Axis::Rows) },
                ..
            } if !matches!(aggregate, Aggregate::ArgMax) => {
                let reduction = aggregate.reduction();
                let (value, looped) = reduction.looped(&mut builder, values[0]);
                (value, Some((reduction, looped)), operands[0].element, 1)
            }
            BlockStep::Evaluate { .. } => return None,
        };
        let program = builder.finish(value);
        let joined =
            Self { program, reduction, inputs, shape: Shape::new(shape.rows, columns), element };
        let over = Over::of(&Vec::from_iter(&joined.inputs)).ok()?;
        let goes_along = |operand: &Rc<Self>| {
            let is_as_long = operand.over().columns == over.shape.columns;
            operand.is_stored()
                || operand.element == element && (is_as_long || !operand.reduces_rows())
        };
        let Self { program, inputs, .. } = &joined;
        let is_one_kernel = operands.iter().all(goes_along)
            && (reduction.is_none() || shape.columns == over.shape.columns)
            && inputs.len() + program.constants().len() + Over::ARGUMENTS <= ARGUMENTS_MAX
            && program.keeps(element, &over.inputs, joined.goal(), over.shape.columns);
        (operands.iter().all(|operand| operand.is_stored()) || is_one_kernel).then_some(joined)
    }
}
