//! What is known of a class of equal values: its sizes, its structure, and what it would cost.
//!
//! Behind the e-graph stands a [`Graph`] in which every term that was ever made is a node, over one
//! representative of each input. So shapes are checked, and costs are estimated, by the very code that
//! does so for what users write.

use egg::{Analysis, DidMerge, EGraph, Id, Var};

use super::super::cost::CostModel;
use super::super::estimate::{Estimate, Estimator};
use super::super::graph::{Dim, Graph, Node, NodeId};
use super::notation::{Condition, Must, Size};
use super::term::Term;
use super::triangles::{self, Triangular};
use crate::error::Place;
use crate::exec::kernels::decompose::Triangle;
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::operation::{Axis, Operation as Op};
use crate::matrix::{Element, Layout};

/// The nodes behind the terms, and their estimates.
pub(super) struct Workbench<'a> {
    pub(super) graph: Graph,
    /// Whether matrices at hand are looked at for triangles.
    pub(super) looks_at_cells: bool,
    /// Whether they are for mirrored cells.
    pub(super) looks_at_mirrors: bool,
    /// Classes that are new, or have more terms or other facts, since rules were last tried.
    pub(super) changed: Vec<Id>,
    estimator: Estimator<'a>,
}

/// What all terms of a class have in common.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// One of them.
    pub(super) node: NodeId,
    pub(super) rows: Dim,
    pub(super) columns: Dim,
    pub(super) element: Element,
    is_constant: bool,
    is_identity: bool,
    is_zero: bool,
    is_symmetric: bool,
    pub(super) triangular: Triangular,
    pub(super) is_sparse: bool,
    /// Of zeros and ones.
    is_mask: bool,
    /// The iterations whose rounds it changes in: a bit for each, by the number of the variable. Beyond 64
    /// iterations some share a bit, and what they cost is guessed worse.
    rounds: u64,
    /// Where one of them stands in the text.
    pub(super) place: Option<Place>,
}

impl<'a> Workbench<'a> {
    pub(super) fn new(graph: Graph, relation_rows: &'a [Option<f64>], cost: &'a CostModel) -> Self {
        let estimator = Estimator::new(relation_rows, cost);
        let (looks_at_cells, looks_at_mirrors, changed) = (false, false, Vec::new());
        Self { graph, looks_at_cells, looks_at_mirrors, changed, estimator }
    }

    /// Whether what a sparse matrix multiplies may be computed for its stored cells alone.
    pub(super) fn samples(&self) -> bool {
        self.estimator.cost().samples
    }

    /// Whether a result is so large that it is better not held.
    pub(super) fn is_large(&self, bytes: f64) -> bool {
        self.estimator.cost().is_large(bytes)
    }

    /// Brings a node of the graph that is rewritten here, over these inputs.
    pub(super) fn adopt(&mut self, source: &Graph, id: NodeId, inputs: Vec<NodeId>) {
        self.graph.adopt(source.node(id), inputs);
        self.estimator.extend(&self.graph);
    }

    /// The node of a term over these inputs; none where their shapes do not fit.
    pub(super) fn node(&mut self, operation: &Op, inputs: Vec<NodeId>) -> Option<NodeId> {
        let id = self.graph.add(operation.clone(), inputs, None).ok()?;
        self.estimator.extend(&self.graph);
        Some(id)
    }

    /// The node of a term over these inputs, which was made before.
    pub(super) fn known(&self, operation: &Op, inputs: Vec<NodeId>) -> &Node {
        let id = self.graph.find(operation, inputs).expect("what was priced was made");
        self.graph.node(id)
    }

    pub(super) fn estimate(&self, id: NodeId) -> &Estimate {
        &self.estimator.estimates[id.index()]
    }
}

/// A class without facts has a term whose shapes do not fit, and is never computed.
impl Analysis<Term> for Workbench<'_> {
    type Data = Option<Facts>;

    fn make(egraph: &mut EGraph<Term, Self>, term: &Term, _: Id) -> Option<Facts> {
        let inputs: Option<Vec<Facts>> =
            term.inputs.iter().map(|&input| egraph[input].data.clone()).collect();
        let inputs = inputs?;
        let nodes = inputs.iter().map(|input| input.node).collect();
        let id = egraph.analysis.node(&term.operation, nodes)?;
        let node = egraph.analysis.graph.node(id);
        let (rows, columns, element, place) = (node.rows, node.columns, node.element, node.place);
        let is_transposed_pair = |a: Id, b: Id| {
            egraph.lookup(Term::new(Op::Transpose, [a])) == Some(egraph.find(b))
                || egraph.lookup(Term::new(Op::Transpose, [b])) == Some(egraph.find(a))
        };
        let all_symmetric = || inputs.iter().all(|input| input.is_symmetric);
        let is_symmetric = rows == columns
            && match &term.operation {
                Op::Gram | Op::HalfCross | Op::Eye(_) | Op::Diagonal => true,
                Op::Product => is_transposed_pair(term.inputs[0], term.inputs[1]),
                Op::Stored(stored) if egraph.analysis.looks_at_mirrors => {
                    stored.matrix.is_symmetric()
                }
                Op::Transpose
                | Op::Inverse(_)
                | Op::Exponential
                | Op::Unary(_)
                | Op::Binary(_)
                | Op::Select
                | Op::Cast(_)
                | Op::Store(_) => all_symmetric(),
                _ => rows == Dim::ONE,
            };
        let triangular = triangles::of(&egraph.analysis, &term.operation, &inputs, [rows, columns]);
        let own = match &term.operation {
            Op::Variable(variable) | Op::Prior(variable) => 1 << (variable.number % 64),
            _ => 0,
        };
        let mut rounds = inputs.iter().fold(own, |rounds, input| rounds | input.rounds);
        if let Op::Iterate(iteration) = term.operation {
            rounds &= !(1 << (iteration.variable.number % 64));
        }
        Some(Facts {
            node: id,
            rows,
            columns,
            element,
            is_constant: matches!(term.operation, Op::Constant(_)),
            is_identity: matches!(term.operation, Op::Eye(_)),
            is_zero: is_zero(&egraph.analysis.graph, &term.operation, &inputs),
            is_symmetric,
            triangular,
            is_sparse: egraph.analysis.estimate(id).layout == Layout::Csr,
            is_mask: is_mask(&term.operation, &inputs),
            rounds,
            place,
        })
    }

    fn modify(egraph: &mut EGraph<Term, Self>, class: Id) {
        egraph.analysis.changed.push(class);
    }

    fn merge(&mut self, to: &mut Option<Facts>, from: Option<Facts>) -> DidMerge {
        let Some(other) = from else { return DidMerge(false, to.is_some()) };
        let Some(facts) = to else {
            *to = Some(other);
            return DidMerge(true, false);
        };
        let merged = Facts {
            is_constant: facts.is_constant | other.is_constant,
            is_identity: facts.is_identity | other.is_identity,
            is_zero: facts.is_zero | other.is_zero,
            is_symmetric: facts.is_symmetric | other.is_symmetric,
            triangular: facts.triangular.or(other.triangular),
            is_sparse: facts.is_sparse | other.is_sparse,
            is_mask: facts.is_mask | other.is_mask,
            rounds: facts.rounds & other.rounds,
            place: facts.place.or(other.place),
            ..*facts
        };
        let known = |facts: &Facts| {
            let cells = (facts.is_constant, facts.is_identity, facts.is_zero, facts.is_mask);
            (cells, facts.is_symmetric, facts.is_sparse, facts.triangular, facts.rounds)
        };
        let changed = DidMerge(known(&merged) != known(facts), known(&merged) != known(&other));
        *facts = merged;
        changed
    }
}

/// Whether a result is of zeros alone.
fn is_zero(graph: &Graph, operation: &Op, inputs: &[Facts]) -> bool {
    matches!(operation, Op::Full(_)) && graph.as_constant(inputs[0].node) == Some(0.0)
}

/// Whether a result is of zeros and ones.
fn is_mask(operation: &Op, inputs: &[Facts]) -> bool {
    use BinaryFunction as F;
    match operation {
        Op::Unary(UnaryFunction::Not | UnaryFunction::IsNan) | Op::Eye(_) => true,
        Op::Binary(
            F::Less
            | F::LessEqual
            | F::Greater
            | F::GreaterEqual
            | F::Equal
            | F::NotEqual
            | F::And
            | F::Or,
        ) => true,
        Op::Binary(F::Multiply) | Op::Transpose | Op::Slice { .. } => {
            inputs.iter().all(|input| input.is_mask)
        }
        _ => false,
    }
}

impl Facts {
    /// Whether two classes may be one: equal values have equal sizes and cells of one type.
    pub(super) fn is_like(&self, other: &Facts) -> bool {
        (self.rows, self.columns, self.element) == (other.rows, other.columns, other.element)
    }

    /// Whether it is kept sparse, and of zeros and ones.
    pub(super) fn is_sparse_mask(&self) -> bool {
        self.is_sparse && self.is_mask
    }

    pub(super) fn size(&self, axis: Axis) -> Dim {
        if axis == Axis::Rows { self.rows } else { self.columns }
    }

    /// Whether it has a cell for certain.
    pub(super) fn has_cells(&self) -> bool {
        [self.rows, self.columns].iter().all(|size| size.known().is_some_and(|size| size > 0))
    }

    /// The iterations in whose every round it is computed.
    pub(super) fn changes_in(&self) -> impl Iterator<Item = u32> + '_ {
        (0..64).filter(|bit| self.rounds >> bit & 1 == 1)
    }
}

/// Whether all conditions hold of what the names stand for, and all cells are of one type: what is rounded
/// to single precision would be rounded elsewhere.
pub(super) fn hold(conditions: &[Condition], named: &[(Var, &Facts)]) -> bool {
    let mut elements = named.iter().filter(|(_, facts)| !facts.is_constant);
    let first = elements.next().map(|(_, facts)| facts.element);
    if elements.any(|(_, facts)| Some(facts.element) != first) {
        return false;
    }
    let mut letters: Vec<(char, Dim)> = Vec::new();
    let mut fits = |size: &Size, dim: Dim| match size {
        Size::One => dim == Dim::ONE,
        Size::Letter(letter) => match letters.iter().find(|(known, _)| known == letter) {
            Some((_, known)) => *known == dim,
            None => {
                letters.push((*letter, dim));
                true
            }
        },
    };
    conditions.iter().all(|condition| {
        let facts = named.iter().find(|(name, _)| *name == condition.of);
        let (_, facts) = facts.expect("a condition is about a name of the left side");
        match &condition.must {
            Must::HaveSizes([rows, columns]) => {
                fits(rows, facts.rows) && fits(columns, facts.columns)
            }
            Must::BeIdentity => facts.is_identity,
            Must::BeZero => facts.is_zero,
            Must::BeFilled => facts.has_cells(),
            Must::BeSymmetric => facts.is_symmetric,
            Must::BeTriangular(Triangle::Lower) => facts.triangular.is_lower,
            Must::BeTriangular(Triangle::Upper) => facts.triangular.is_upper,
            Must::BeSparse => facts.is_sparse,
            Must::BeMask => facts.is_sparse_mask(),
            Must::BeWeights => facts.is_sparse && !facts.is_mask,
        }
    })
}
