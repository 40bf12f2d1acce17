//! Rules whose right side is computed, rather than written: of slices, of what a mask multiplies, of sparse factors, and of
//! stacks and reshapes, which come apart.
//!
//! ```text
//! sum(hstack(a, b))  sum(a) + sum(b)             t(hstack(a, b))  vstack(t(a), t(b))
//! ```

use egg::Id;

use super::super::graph::Dim;
use super::Classes;
use super::facts::Facts;
use super::filled::filled;
use super::sampling::sampled;
use super::slices::slices;
use super::term::Term;
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::operation::{Aggregate, Axis, Operation as Op, Span};
use crate::matrix::Shape;

/// An expression over classes.
#[derive(Debug, Clone)]
pub(super) enum Form {
    Class(Id),
    Of(Op, Vec<Form>),
}

impl Form {
    pub(super) fn of(operation: Op, inputs: impl Into<Vec<Form>>) -> Self {
        Form::Of(operation, inputs.into())
    }

    pub(super) fn slice(self, axis: Axis, range: Span) -> Self {
        Form::Of(Op::Slice { axis, range }, vec![self])
    }

    /// Adds its terms.
    pub(super) fn add(self, classes: &mut Classes<'_>) -> Id {
        match self {
            Form::Class(id) => id,
            Form::Of(operation, inputs) => {
                let inputs: Vec<Id> = inputs.into_iter().map(|form| form.add(classes)).collect();
                classes.add(Term::new(operation, inputs))
            }
        }
    }
}

/// Every class that has another form, with it.
pub(super) fn all(classes: &Classes<'_>) -> Vec<(Id, Form)> {
    let mut found = Vec::new();
    for class in classes.classes() {
        for term in &class.nodes {
            let forms = match &term.operation {
                Op::Slice { axis, range } => slices(classes, *axis, *range, term.inputs[0]),
                Op::Reduce { aggregate, axis } => {
                    reductions(classes, *aggregate, *axis, term.inputs[0])
                }
                Op::Transpose => transposes(classes, term.inputs[0]),
                Op::Reshape(shape) => reshapes(classes, *shape, term.inputs[0]),
                Op::Binary(BinaryFunction::Multiply) if classes.analysis.samples() => {
                    sampled(classes, term.inputs[0], term.inputs[1])
                }
                product if product.is_product() => {
                    filled(classes, product, &term.inputs).into_iter().collect()
                }
                _ => continue,
            };
            found.extend(forms.into_iter().map(|form| (class.id, form)));
        }
    }
    found
}

pub(super) fn facts<'a>(classes: &'a Classes<'_>, class: Id) -> Option<&'a Facts> {
    classes[class].data.as_ref()
}

pub(super) fn other(axis: Axis) -> Axis {
    if axis == Axis::Rows { Axis::Columns } else { Axis::Rows }
}

/// Other forms of a reduction of a class: that of a stack is one of its parts' reductions.
fn reductions(
    classes: &Classes<'_>,
    aggregate: Aggregate,
    axis: Option<Axis>,
    of: Id,
) -> Vec<Form> {
    let reduced = |&part: &Id| Form::of(Op::Reduce { aggregate, axis }, [Form::Class(part)]);
    let together = match aggregate {
        Aggregate::Sum => Some(BinaryFunction::Add),
        Aggregate::Min => Some(BinaryFunction::Least),
        Aggregate::Max => Some(BinaryFunction::Greatest),
        _ => None,
    };
    let of_stack = |term: &Term| {
        let Op::Stack(along) = term.operation else { return None };
        let parts: Vec<Form> = term.inputs.iter().map(reduced).collect();
        if axis == Some(along) {
            return Some(Form::of(Op::Stack(along), parts));
        }
        // The least of no cells is no number, and nothing is less.
        let has_cells = |&part: &Id| facts(classes, part).is_some_and(Facts::has_cells);
        if aggregate != Aggregate::Sum && !term.inputs.iter().all(has_cells) {
            return None;
        }
        let function = together?;
        parts.into_iter().reduce(|left, right| Form::of(Op::Binary(function), [left, right]))
    };
    classes[of].nodes.iter().filter_map(of_stack).collect()
}

/// Other forms of the transpose of a class.
fn transposes(classes: &Classes<'_>, of: Id) -> Vec<Form> {
    let of_stack = |term: &Term| {
        let Op::Stack(along) = term.operation else { return None };
        let part = |&part: &Id| Form::of(Op::Transpose, [Form::Class(part)]);
        let parts: Vec<Form> = term.inputs.iter().map(part).collect();
        Some(Form::of(Op::Stack(other(along)), parts))
    };
    classes[of].nodes.iter().filter_map(of_stack).collect()
}

/// Other forms of a class in another shape.
fn reshapes(classes: &Classes<'_>, shape: Shape, of: Id) -> Vec<Form> {
    let inner = classes[of].nodes.iter().filter_map(|term| match term.operation {
        Op::Reshape(_) => Some(Form::of(Op::Reshape(shape), [Form::Class(term.inputs[0])])),
        _ => None,
    });
    let is_same = facts(classes, of).is_some_and(|facts| {
        (facts.rows, facts.columns) == (Dim::Known(shape.rows), Dim::Known(shape.columns))
    });
    inner.chain(is_same.then_some(Form::Class(of))).collect()
}
