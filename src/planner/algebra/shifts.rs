//! Rules whose right side is computed: slices move towards what they touch, stacks come apart.
//!
//! ```text
//! (a @ b)[r, :]      a[r, :] @ b                 (a @ b)[:, c]    a @ b[:, c]
//! f(a, b)[r, :]      f(a[r, :], b[r, :])         t(a)[r, :]       t(a[:, r])
//! a[p, :][q, :]      a[p + q, :]                 gram(a)[r, :]    cross(a[:, r], a)
//! hstack(a, b)[:, c] a[:, c], or b[:, c - n]     row_sums(a)[r]   row_sums(a[r, :])
//! sum(hstack(a, b))  sum(a) + sum(b)             t(hstack(a, b))  vstack(t(a), t(b))
//! ```

use egg::Id;

use super::super::graph::Dim;
use super::Classes;
use super::facts::Facts;
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
    fn of(operation: Op, inputs: impl Into<Vec<Form>>) -> Self {
        Form::Of(operation, inputs.into())
    }

    fn slice(self, axis: Axis, range: Span) -> Self {
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
                _ => continue,
            };
            found.extend(forms.into_iter().map(|form| (class.id, form)));
        }
    }
    found
}

fn facts<'a>(classes: &'a Classes<'_>, class: Id) -> Option<&'a Facts> {
    classes[class].data.as_ref()
}

fn other(axis: Axis) -> Axis {
    if axis == Axis::Rows { Axis::Columns } else { Axis::Rows }
}

/// Other forms of a slice of a class.
fn slices(classes: &Classes<'_>, axis: Axis, range: Span, of: Id) -> Vec<Form> {
    let size = |class: Id| facts(classes, class).map(|facts| facts.size(axis));
    let sliced = |class: Id| Form::Class(class).slice(axis, range);
    let mut forms = Vec::new();
    if range.start == 0 && size(of) == Some(Dim::Known(range.count)) {
        forms.push(Form::Class(of));
    }
    for term in &classes[of].nodes {
        let operation = || term.operation.clone();
        let input = |at: usize| Form::Class(term.inputs[at]);
        let form = match &term.operation {
            Op::Slice { axis: inner, range: within } if *inner == axis => {
                let range = Span { start: within.start + range.start, count: range.count };
                input(0).slice(axis, range)
            }
            Op::Slice { axis: inner, range: within } => {
                sliced(term.inputs[0]).slice(*inner, *within)
            }
            Op::Transpose => Form::of(Op::Transpose, [input(0).slice(other(axis), range)]),
            Op::Product if axis == Axis::Rows => {
                Form::of(Op::Product, [sliced(term.inputs[0]), input(1)])
            }
            Op::Product | Op::Solve(_) | Op::LeastSquares | Op::Cross if axis == Axis::Columns => {
                Form::of(operation(), [input(0), sliced(term.inputs[1])])
            }
            Op::Cross => Form::of(Op::Cross, [input(0).slice(Axis::Columns, range), input(1)]),
            Op::Gram if axis == Axis::Rows => {
                Form::of(Op::Cross, [input(0).slice(Axis::Columns, range), input(0)])
            }
            Op::Gram => Form::of(Op::Cross, [input(0), sliced(term.inputs[0])]),
            Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) => {
                // What is stretched along the axis stays as it is.
                let is_one = size(of) == Some(Dim::ONE);
                let inputs = term.inputs.iter().map(|&input| {
                    let stretched = size(input) == Some(Dim::ONE) && !is_one;
                    if stretched { Form::Class(input) } else { sliced(input) }
                });
                Form::of(operation(), inputs.collect::<Vec<_>>())
            }
            Op::Reduce { axis: Some(along), .. } | Op::Normalize { axis: along, .. }
                if *along == axis =>
            {
                Form::of(operation(), [sliced(term.inputs[0])])
            }
            Op::CumulativeSum if axis == Axis::Columns => {
                Form::of(Op::CumulativeSum, [sliced(term.inputs[0])])
            }
            Op::Stack(along) if *along != axis => {
                let parts: Vec<Form> = term.inputs.iter().map(|&input| sliced(input)).collect();
                Form::of(operation(), parts)
            }
            Op::Stack(_) => match touched(classes, axis, range, &term.inputs) {
                Some(form) => form,
                None => continue,
            },
            Op::Full(shape) => {
                let mut shape = *shape;
                match axis {
                    Axis::Rows => shape.rows = range.count,
                    Axis::Columns => shape.columns = range.count,
                }
                Form::of(Op::Full(shape), [input(0)])
            }
            _ => continue,
        };
        forms.push(form);
    }
    forms
}

/// The parts of a stack that a range of it touches; none where their sizes are not known.
fn touched(classes: &Classes<'_>, axis: Axis, range: Span, parts: &[Id]) -> Option<Form> {
    let mut touched = Vec::new();
    let mut before = 0;
    for &part in parts {
        let size = facts(classes, part)?.size(axis).known()?;
        let start = range.start.max(before);
        let end = (range.start + range.count).min(before + size);
        if start < end {
            let within = Span { start: start - before, count: end - start };
            touched.push(Form::Class(part).slice(axis, within));
        }
        before += size;
    }
    match touched.len() {
        0 => None,
        1 => touched.pop(),
        _ => Some(Form::of(Op::Stack(axis), touched)),
    }
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
