//! What a mask multiplies is computed where the mask stores a cell: `m * f(a, b)` becomes `sampled(m * f(m * a, m * b))`.
//!
//! Products are sampled by a rule that is written (`rules`).

use egg::Id;

use super::Classes;
use super::facts::Facts;
use super::shifts::{Form, facts};
use super::term::Term;
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::operation::{CellFunction, Operation as Op};

/// Other forms of a mask times a class that is not sparse: functions of cells, for the cells that the mask stores.
pub(super) fn sampled(classes: &Classes<'_>, mask: Id, of: Id) -> Vec<Form> {
    let (Some(mask_facts), Some(facts_of)) = (facts(classes, mask), facts(classes, of)) else {
        return Vec::new();
    };
    let sizes = |facts: &Facts| (facts.rows, facts.columns);
    let fits = sizes(mask_facts) == sizes(facts_of) && facts_of.element == mask_facts.element;
    if !mask_facts.is_sparse_mask() || facts_of.is_sparse || !fits {
        return Vec::new();
    }
    let multiply = |input: Id| {
        Form::of(Op::Binary(BinaryFunction::Multiply), [Form::Class(mask), Form::Class(input)])
    };
    let operand = |&input: &Id| {
        let is_whole = facts(classes, input).is_some_and(|input| sizes(input) == sizes(facts_of));
        // What is at hand is looked up; what is stretched is small.
        let is_given = || classes[input].nodes.iter().any(|term| term.inputs.is_empty());
        if is_whole && !is_given() { multiply(input) } else { Form::Class(input) }
    };
    let of_function = |term: &Term| {
        let function = match term.operation {
            Op::Unary(function) => CellFunction::Unary(function),
            Op::Binary(function) => CellFunction::Binary(function),
            Op::Select => CellFunction::Select,
            _ => return None,
        };
        let operands = term.inputs.iter().map(operand);
        let inputs: Vec<Form> = [Form::Class(mask)].into_iter().chain(operands).collect();
        Some(Form::of(Op::SampledCells(function), inputs))
    };
    classes[of].nodes.iter().filter_map(of_function).collect()
}
