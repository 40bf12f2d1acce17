//! Slices move towards what they touch.
//!
//! ```text
//! (a @ b)[r, :]      a[r, :] @ b                 (a @ b)[:, c]    a @ b[:, c]
//! f(a, b)[r, :]      f(a[r, :], b[r, :])         t(a)[r, :]       t(a[:, r])
//! a[p, :][q, :]      a[p + q, :]                 gram(a)[r, :]    cross(a[:, r], a)
//! hstack(a, b)[:, c] a[:, c], or b[:, c - n]     row_sums(a)[r]   row_sums(a[r, :])
//! inv(a)[:, c]       solve(a, eye(n)[:, c])      diag(a)[r]       diag(a[r, r])
//! kron(a, b)[r, :]   kron(a[p, :], b)[q, :]      cumsum(a)[:r, :] cumsum(a[:r, :])
//! ```

use egg::Id;

use super::super::graph::Dim;
use super::Classes;
use super::shifts::{Form, facts, other};
use super::term::Term;
use crate::exec::operation::{Axis, Number, Operation as Op, Span};
use crate::matrix::{Element, Shape};

/// Other forms of a slice of a class.
pub(super) fn slices(classes: &Classes<'_>, axis: Axis, range: Span, of: Id) -> Vec<Form> {
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
            // A square on the diagonal.
            Op::Slice { axis: inner, range: within } if *inner != axis && *within == range => {
                forms.extend(diagonal_squares(classes, range, term.inputs[0]));
                sliced(term.inputs[0]).slice(*inner, *within)
            }
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
            Op::Cross | Op::HalfCross if axis == Axis::Rows => {
                Form::of(Op::Cross, [input(0).slice(Axis::Columns, range), input(1)])
            }
            Op::HalfCross => Form::of(Op::Cross, [input(0), sliced(term.inputs[1])]),
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
            Op::Convolve(_) | Op::Pool(..) if axis == Axis::Rows => {
                let others = (1..term.inputs.len()).map(input);
                let inputs: Vec<Form> =
                    [sliced(term.inputs[0])].into_iter().chain(others).collect();
                Form::of(operation(), inputs)
            }
            Op::Align(_) if axis == Axis::Columns => {
                Form::of(operation(), [sliced(term.inputs[0]), input(1)])
            }
            _ => match inner(classes, axis, range, term) {
                Some(form) => form,
                None => continue,
            },
        };
        forms.push(form);
    }
    forms
}

/// The slice of a term that has no slice of all its inputs, but one of some cells of them; none of one that does not
/// get smaller.
fn inner(classes: &Classes<'_>, axis: Axis, range: Span, term: &Term) -> Option<Form> {
    let input = |at: usize| Form::Class(term.inputs[at]);
    let size = |at: usize, axis: Axis| facts(classes, term.inputs[at])?.size(axis).known();
    let end = range.start + range.count;
    match (&term.operation, axis) {
        // In whole numbers, for which adding up rounds nothing.
        (Op::Range { start, step, .. }, Axis::Rows) => {
            let (start, step) = (start.get(), step.get());
            let first = start + step * range.start as f64;
            let is_whole = |number: f64| number.fract() == 0.0 && number.abs() < 1e15;
            let last = first + step * range.count as f64;
            [start, step, last].into_iter().all(is_whole).then(|| {
                let start = Number::from(first);
                Form::of(Op::Range { start, step: step.into(), count: range.count }, [])
            })
        }
        (Op::Diagonal, Axis::Rows) => {
            let is_vector = [Axis::Rows, Axis::Columns].map(|axis| size(0, axis));
            let is_matrix = is_vector.into_iter().all(|size| size.is_some_and(|size| size > 1));
            let square = || input(0).slice(Axis::Rows, range).slice(Axis::Columns, range);
            is_matrix.then(|| Form::of(Op::Diagonal, [square()]))
        }
        (Op::Kronecker, axis) => {
            let (outer, inner) = (size(0, axis)?, size(1, axis)?);
            if inner == 0 || range.count == 0 {
                return None;
            }
            let blocks = Span {
                start: range.start / inner,
                count: end.div_ceil(inner) - range.start / inner,
            };
            let within = Span { start: range.start - blocks.start * inner, ..range };
            let of = input(0).slice(axis, blocks);
            match blocks.count {
                1 => Some(Form::of(Op::Kronecker, [of, input(1).slice(axis, within)])),
                count if count < outer => {
                    Some(Form::of(Op::Kronecker, [of, input(1)]).slice(axis, within))
                }
                _ => None,
            }
        }
        (Op::Inverse(triangle), axis) => {
            let facts = facts(classes, term.inputs[0])?;
            let n = facts.rows.known().filter(|&n| range.count < n)?;
            let wide = Form::of(Op::Eye(n), []);
            let identity = match facts.element {
                Element::Float64 => wide,
                element => Form::of(Op::Cast(element), [wide]),
            };
            let units = identity.slice(Axis::Columns, range);
            match (axis, triangle) {
                (Axis::Columns, _) => Some(Form::of(Op::Solve(*triangle), [input(0), units])),
                (Axis::Rows, None) => {
                    let of = Form::of(Op::Transpose, [input(0)]);
                    let turned = Form::of(Op::Solve(None), [of, units]);
                    Some(Form::of(Op::Transpose, [turned]))
                }
                _ => None,
            }
        }
        (Op::CumulativeSum, Axis::Rows) => {
            let above = Span { start: 0, count: end };
            (size(0, axis)? > end).then(|| {
                Form::of(Op::CumulativeSum, [input(0).slice(axis, above)]).slice(axis, range)
            })
        }
        (Op::Reshape(shape), Axis::Rows) => {
            let (rows, columns) = (size(0, Axis::Rows)?, size(0, Axis::Columns)?);
            let (first, cells) = (range.start * shape.columns, range.count * shape.columns);
            let are_rows = columns > 0 && first % columns == 0 && cells % columns == 0;
            (are_rows && cells / columns < rows).then(|| {
                let of = Span { start: first / columns, count: cells / columns };
                let shape = Shape::new(range.count, shape.columns);
                Form::of(Op::Reshape(shape), [input(0).slice(Axis::Rows, of)])
            })
        }
        _ => None,
    }
}

/// Other forms of as many rows as columns, from the same place on, of a class that is a diagonal matrix.
fn diagonal_squares(classes: &Classes<'_>, range: Span, of: Id) -> Vec<Form> {
    let square = |term: &Term| match term.operation {
        Op::Eye(_) => Some(Form::of(Op::Eye(range.count), [])),
        Op::Diagonal => {
            let vector = facts(classes, term.inputs[0])?;
            let along = match (vector.rows, vector.columns) {
                (_, Dim::ONE) => Axis::Rows,
                (Dim::ONE, _) => Axis::Columns,
                _ => return None,
            };
            let part = Form::Class(term.inputs[0]).slice(along, range);
            Some(Form::of(Op::Diagonal, [part]))
        }
        _ => None,
    };
    classes[of].nodes.iter().filter_map(square).collect()
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
