//! Labels through operations: which dimension of a result inherits which labels, and which must agree.
//!
//! Where two operands share a dimension and both are labelled there, the labels must be equal: at once
//! where their values are known, else by a [`LabelCheck`] that runs when the relations have. Along a
//! dimension of size 1 there is nothing to line up: `x[:, 'a'] * x[:, 'b']` is a product of two columns,
//! whatever they are called.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::graph::{Dim, Graph, Node, NodeId};
use crate::error::Result;
use crate::exec::labels::{AxisLabels, Deferred, LabelCheck, Recipe, compare};
use crate::exec::operation::{Axis, Iteration, Operation as Op, Part, Span};
use crate::matrix::Labels;

/// Labels of a result, and what must hold of the operands' labels once they are known.
pub(crate) struct Labelled {
    pub(crate) labels: [AxisLabels; 2],
    pub(crate) checks: Vec<LabelCheck>,
    /// What has been compared for it, and is equal.
    pub(crate) equal: Vec<[Arc<Labels>; 2]>,
}

/// The label rule of every operation, for a node whose sizes are known.
///
/// # Errors
/// Where labels that are known now should be equal and are not.
pub(crate) fn of(graph: &Graph, node: &Node) -> Result<Labelled> {
    let mut rule = Rule { graph, node, checks: Vec::new(), equal: Vec::new() };
    let none = || AxisLabels::None;
    let labels = match &node.operation {
        Op::Stored(stored) => {
            let known = |labels: Option<&Labels>| {
                labels
                    .map_or(AxisLabels::None, |labels| AxisLabels::Known(Arc::new(labels.clone())))
            };
            [known(stored.matrix.row_labels()), known(stored.matrix.column_labels())]
        }
        Op::Relation(index) => graph.relations[*index].labels(*index),
        Op::Variable(variable) | Op::Prior(variable) => graph.labels_of(*variable).clone(),
        Op::Constant(_)
        | Op::Eye(_)
        | Op::Full(_)
        | Op::Range { .. }
        | Op::Random { .. }
        | Op::Reshape(_)
        | Op::Kronecker
        | Op::Determinant(_)
        | Op::Rank
        | Op::Trace
        | Op::Count(_) => [none(), none()],
        Op::Unary(_)
        | Op::Cast(_)
        | Op::Store(_)
        | Op::Normalize { .. }
        | Op::CumulativeSum
        | Op::Sampled
        | Op::SampledCells(_) => [rule.rows(0), rule.columns(0)],
        Op::Binary(_) | Op::Select => [rule.broadcast(Axis::Rows)?, rule.broadcast(Axis::Columns)?],
        Op::Transpose => [rule.columns(0), rule.rows(0)],
        Op::Diagonal => {
            let input = graph.node(node.inputs[0]);
            match (input.rows, input.columns) {
                (Dim::Known(1), columns) if columns != Dim::ONE => {
                    [rule.columns(0), rule.columns(0)]
                }
                (_, Dim::Known(1)) => [rule.rows(0), rule.rows(0)],
                (Dim::Known(m), Dim::Known(n)) if m <= n => [rule.rows(0), none()],
                _ => [none(), none()],
            }
        }
        Op::Stack(along) => {
            let across = if *along == Axis::Rows { Axis::Columns } else { Axis::Rows };
            let mut labels = [none(), none()];
            labels[*along as usize] = rule.concatenated(*along);
            labels[across as usize] = rule.agreed(across, 0..node.inputs.len())?;
            labels
        }
        Op::Slice { axis, range } => {
            let mut labels = [rule.rows(0), rule.columns(0)];
            labels[*axis as usize] = sliced(&labels[*axis as usize], *range);
            labels
        }
        Op::Align(_) => [rule.rows(1), rule.columns(0)],
        Op::Reduce { axis, .. } => match axis {
            None => [none(), none()],
            Some(Axis::Rows) => [rule.rows(0), none()],
            Some(Axis::Columns) => [none(), rule.columns(0)],
        },
        Op::Convolve(_) | Op::Pool(..) => [rule.rows(0), none()],
        Op::Product => {
            if rule.input(0).columns != Dim::ONE {
                rule.must_match(rule.columns(0), rule.rows(1), Axis::Columns)?;
            }
            [rule.rows(0), rule.columns(1)]
        }
        Op::Gram => [rule.columns(0), rule.columns(0)],
        Op::Cross | Op::HalfCross => {
            rule.must_match(rule.rows(0), rule.rows(1), Axis::Rows)?;
            [rule.columns(0), rule.columns(1)]
        }
        Op::Outer => {
            rule.must_match(rule.columns(0), rule.columns(1), Axis::Columns)?;
            [rule.rows(0), rule.rows(1)]
        }
        Op::Solve(_) | Op::LeastSquares => {
            rule.must_match(rule.rows(0), rule.rows(1), Axis::Rows)?;
            [rule.columns(0), rule.columns(1)]
        }
        Op::Inverse(_) | Op::PseudoInverse => [rule.columns(0), rule.rows(0)],
        Op::Exponential | Op::Logarithm => [rule.rows(0), rule.columns(0)],
        Op::Cholesky => [rule.rows(0), none()],
        // A decomposition itself has the labels of its input; its parts pick from them.
        Op::Lu | Op::Qr | Op::Svd { .. } | Op::Eigen { .. } | Op::ComplexEigen => {
            [rule.rows(0), rule.columns(0)]
        }
        Op::Part(part) => match part {
            Part::QrQ
            | Part::SvdU
            | Part::EigenVectors
            | Part::ComplexVectorsRe
            | Part::ComplexVectorsIm => [rule.rows(0), none()],
            Part::QrR | Part::SvdVt | Part::LuU => [none(), rule.columns(0)],
            Part::LuP => [none(), rule.rows(0)],
            Part::LuL
            | Part::SvdS
            | Part::EigenValues
            | Part::ComplexValuesRe
            | Part::ComplexValuesIm => [none(), none()],
        },
        // The step's labels, else those of what it begins with: which every round has, or the next would mean other rows.
        Op::Iterate(Iteration { variable, .. }) => {
            let mut labels = [rule.rows(1), rule.columns(1)];
            let sizes = [(Axis::Rows, node.rows), (Axis::Columns, node.columns)];
            for ((step, last), (axis, size)) in
                labels.iter_mut().zip(graph.labels_of(*variable)).zip(sizes)
            {
                if size != Dim::ONE {
                    rule.must_match(last.clone(), step.clone(), axis)?;
                }
                if *step == AxisLabels::None {
                    step.clone_from(last);
                }
            }
            labels
        }
    };
    Ok(Labelled { labels, checks: rule.checks, equal: rule.equal })
}

struct Rule<'a> {
    graph: &'a Graph,
    node: &'a Node,
    checks: Vec<LabelCheck>,
    equal: Vec<[Arc<Labels>; 2]>,
}

impl Rule<'_> {
    fn input(&self, at: usize) -> &Node {
        self.graph.node(self.node.inputs[at])
    }

    fn rows(&self, at: usize) -> AxisLabels {
        self.input(at).labels[0].clone()
    }

    fn columns(&self, at: usize) -> AxisLabels {
        self.input(at).labels[1].clone()
    }

    /// Notes that two labellings must be equal; compares them now where both are known.
    fn must_match(&mut self, left: AxisLabels, right: AxisLabels, axis: Axis) -> Result<()> {
        if left == AxisLabels::None || right == AxisLabels::None || left.is_same(&right) {
            return Ok(());
        }
        if let (AxisLabels::Known(left), AxisLabels::Known(right)) = (&left, &right) {
            let is_known =
                |[a, b]: &[Arc<Labels>; 2]| Arc::ptr_eq(a, left) && Arc::ptr_eq(b, right);
            if !self.graph.equal_labels.iter().chain(&self.equal).any(is_known) {
                compare(axis, left, right, self.node.place)?;
                self.equal.push([Arc::clone(left), Arc::clone(right)]);
            }
            return Ok(());
        }
        self.checks.push(LabelCheck { axis, left, right, place: self.node.place });
        Ok(())
    }

    /// The labels that several inputs share along an axis: those of the first that has any.
    fn agreed(
        &mut self,
        axis: Axis,
        inputs: impl IntoIterator<Item = usize>,
    ) -> Result<AxisLabels> {
        let size = if axis == Axis::Rows { self.node.rows } else { self.node.columns };
        if size == Dim::ONE {
            return Ok(self.unanimous(axis, inputs));
        }
        let mut agreed = AxisLabels::None;
        for at in inputs {
            let labels = self.input(at).labels[axis as usize].clone();
            self.must_match(agreed.clone(), labels.clone(), axis)?;
            if agreed == AxisLabels::None {
                agreed = labels;
            }
        }
        Ok(agreed)
    }

    /// The labels of a broadcast: a stretched operand has no say, nor have labels of a scalar.
    fn broadcast(&mut self, axis: Axis) -> Result<AxisLabels> {
        let size = |node: &Node| if axis == Axis::Rows { node.rows } else { node.columns };
        let whole = size(self.node);
        let full: Vec<usize> = (0..self.node.inputs.len())
            .filter(|&at| size(self.input(at)) != Dim::ONE || whole == Dim::ONE)
            .filter(|&at| self.node.is_scalar() || !self.input(at).is_scalar())
            .collect();
        self.agreed(axis, full)
    }

    /// The label of a dimension of size 1, where the inputs that have one have the same.
    fn unanimous(&self, axis: Axis, inputs: impl IntoIterator<Item = usize>) -> AxisLabels {
        let labels = inputs.into_iter().map(|at| self.input(at).labels[axis as usize].clone());
        let mut named = labels.filter(|labels| *labels != AxisLabels::None);
        let first = named.next().unwrap_or_default();
        if named.all(|other| other == first) { first } else { AxisLabels::None }
    }

    /// Labels one after another. Columns without names are called by their number, `c3`, where others
    /// have names; rows without keys leave all of them without.
    fn concatenated(&self, axis: Axis) -> AxisLabels {
        let inputs: Vec<&Node> = self.graph.inputs_of(self.node).collect();
        let labelled = |node: &&Node| node.labels[axis as usize] != AxisLabels::None;
        if !inputs.iter().any(labelled) {
            return AxisLabels::None;
        }
        let mut parts = Vec::new();
        let mut before = Some(0);
        for node in inputs {
            let size = if axis == Axis::Rows { node.rows } else { node.columns }.known();
            match (&node.labels[axis as usize], axis, before, size) {
                (AxisLabels::None, Axis::Columns, Some(start), Some(count)) => {
                    let names = (start + 1..=start + count).map(|at| format!("c{at}"));
                    parts.push(AxisLabels::Known(Arc::new(Labels::names(names))));
                }
                (AxisLabels::None, ..) => return AxisLabels::None,
                (labels, ..) => parts.push(labels.clone()),
            }
            before = before.zip(size).map(|(before, size)| before + size);
        }
        concat(parts)
    }
}

/// One labelling after another; without types in common there are none.
fn concat(parts: Vec<AxisLabels>) -> AxisLabels {
    let fields = parts[0].fields();
    let types = |fields: &[(String, DataType)]| {
        fields.iter().map(|(_, data_type)| data_type.clone()).collect::<Vec<_>>()
    };
    if parts.iter().any(|part| types(&part.fields()) != types(&fields)) {
        return AxisLabels::None;
    }
    let known: Option<Vec<Labels>> = parts
        .iter()
        .map(|part| match part {
            AxisLabels::Known(labels) => Some(Labels::clone(labels)),
            _ => None,
        })
        .collect();
    match known.map(|known| Labels::concat(&known)) {
        Some(Ok(labels)) => AxisLabels::Known(Arc::new(labels)),
        Some(Err(_)) => AxisLabels::None,
        None => AxisLabels::Deferred(Arc::new(Deferred { fields, recipe: Recipe::Concat(parts) })),
    }
}

fn sliced(labels: &AxisLabels, range: Span) -> AxisLabels {
    match labels {
        AxisLabels::None => AxisLabels::None,
        AxisLabels::Known(labels) => {
            AxisLabels::Known(Arc::new(labels.slice(range.start..range.start + range.count)))
        }
        AxisLabels::Deferred(deferred) => {
            let recipe = Recipe::Slice { of: labels.clone(), range };
            AxisLabels::Deferred(Arc::new(Deferred { fields: deferred.fields.clone(), recipe }))
        }
    }
}

/// The node whose labels a name in a subscript is looked up in.
pub(crate) fn known(graph: &Graph, id: NodeId, axis: Axis) -> Option<&Labels> {
    match &graph.node(id).labels[axis as usize] {
        AxisLabels::Known(labels) => Some(labels),
        AxisLabels::None | AxisLabels::Deferred(_) => None,
    }
}
