//! Parts of matrix expressions that are remembered: those that are known stand in a graph as matrices at hand, and of the
//! others a run tells what they came to.
//!
//! ```text
//! inv(t(x) @ x) @ t(x) @ y            inverse(remembered(gram(x))) @ cross(x, y)
//! ```
//!
//! A part is told by all operations below it and by what they read in the end: matrices by their numbers, and the scans of
//! relations by the versions of their tables and files. So nothing that is remembered is ever out of date. It is looked for in the
//! graph that algebra has chosen: who finds it computes the same operations as who does not, and comes to the same bits.
//! The labels of a relation are a part of their own, for a relation of which all is known is not read.
//!
//! Not here: where parts are kept, and which are worth their bytes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::graph::{Dim, Graph, Node, NodeId};
use super::super::relation::Relation;
use super::super::written::Written;
use super::is_named;
use crate::catalog::{Reads, Source, TableName};
use crate::exec::labels::{AxisLabels, RelationLabels};
use crate::exec::operation::{Operation as Op, Part, Stored};
use crate::exec::program::{Slot, Step};
use crate::exec::recall::{Fingerprint, Made, Recall, Remembered, Watch, Watched};
use crate::exec::value::Value;
use crate::matrix::Matrix;

/// Who remembers what the matrix expressions of a statement come to, and which versions of its tables and files that reads.
#[derive(Debug, Clone)]
pub(crate) struct Remembering {
    recall: Arc<dyn Recall>,
    reads: Reads,
    /// Whether the whole result is somebody's to keep, so that it need not be remembered too.
    result_is_kept: bool,
}

/// A graph with what is known of it.
pub(crate) struct Recalled {
    pub(crate) graph: Graph,
    pub(crate) root: NodeId,
    /// The labels of each relation, where they are known and not read.
    pub(crate) labels: Vec<Option<RelationLabels>>,
    /// The relations that nobody reads any more.
    pub(crate) unread: FxHashSet<usize>,
    /// Whether anything is known of it.
    pub(crate) is_known: bool,
    /// What tells each node from all others, where that can be told.
    parts: Vec<Option<Fingerprint>>,
    /// Likewise the labels of each relation.
    of_labels: Vec<Option<Fingerprint>>,
}

impl Remembering {
    pub(crate) fn new(recall: Arc<dyn Recall>, reads: Reads, result_is_kept: bool) -> Self {
        Self { recall, reads, result_is_kept }
    }

    /// Whether expressions that are expected to take so long, beside their relations, may be worth remembering.
    pub(crate) fn is_worth_it(&self, graph: &Graph, seconds: f64) -> bool {
        !graph.relations.is_empty() || seconds >= self.recall.seconds_min()
    }

    /// What tells the rows of a relation from all others: its plans, which give its rows and then labels, how they are read, and
    /// the versions of what they read. Nothing where something else may come of it the next time.
    fn relation(&self, relation: &Relation, plans: &[&LogicalPlan]) -> Option<Fingerprint> {
        let sources = plans.iter().map(|plan| self.sources(plan));
        let sources = sources.collect::<Option<Vec<_>>>()?;
        let what = |mut state: &mut dyn Hasher| {
            (plans, &sources, &relation.intake, relation.order).hash(&mut state);
        };
        Some(self.recall.fingerprint(&what))
    }

    /// What a plan reads; nothing where it is not tables and files alone.
    fn sources(&self, plan: &LogicalPlan) -> Option<Vec<&Source>> {
        let mut sources = Some(Vec::new());
        let walked = plan.apply_with_subqueries(|plan| {
            let source = match plan {
                LogicalPlan::TableScan(scan) if is_named(scan)? => self.source(&scan.table_name),
                // Of others of ours two may hash alike and not be equal.
                LogicalPlan::TableScan(_) | LogicalPlan::Extension(_) => None,
                _ => return Ok(TreeNodeRecursion::Continue),
            };
            match (source, &mut sources) {
                (Some(source), Some(sources)) => sources.push(source),
                _ => sources = None,
            }
            Ok(TreeNodeRecursion::Continue)
        });
        sources.filter(|_| walked.is_ok())
    }

    fn source(&self, name: &TableReference) -> Option<&Source> {
        self.reads.source(&TableName::from(name))
    }

    /// A graph in which what is known of it stands in the place of what would compute it. Of each relation these are the
    /// plans; `wanted` are the labels that are asked for.
    pub(crate) fn recalled<'l>(
        &self,
        graph: Graph,
        root: NodeId,
        plans: &[Vec<&LogicalPlan>],
        wanted: impl Iterator<Item = &'l AxisLabels>,
    ) -> Recalled {
        let relations = graph.relations.iter().zip(plans);
        let relations: Vec<Option<Fingerprint>> =
            relations.map(|(relation, plans)| self.relation(relation, plans)).collect();
        let parts = self.parts(&graph, &relations);
        let of_labels = relations.iter().map(|relation| {
            let hash = |relation: &Fingerprint| {
                let what = |mut state: &mut dyn Hasher| ("labels", relation).hash(&mut state);
                self.recall.fingerprint(&what)
            };
            relation.as_ref().map(hash)
        });
        let of_labels: Vec<Option<Fingerprint>> = of_labels.collect();
        let mut labels = vec![None; relations.len()];
        let mut is_needed = vec![false; relations.len()];
        wanted.for_each(|wanted| {
            wanted.each_relation(&mut |relation| {
                let known = of_labels[relation].and_then(|part| self.recall.known(part));
                match known {
                    Some(Remembered::Labels(known)) => labels[relation] = Some(known),
                    _ => is_needed[relation] = true,
                }
            });
        });
        let known = self.known(&graph, root, &parts, &is_needed);
        if known.is_empty() {
            return Recalled { parts, of_labels, ..Recalled::nothing(graph, root) };
        }
        let (graph, root, parts) = replaced(&graph, root, &parts, &known);
        let read: FxHashSet<usize> =
            graph.nodes().filter_map(|(_, node)| relation_of(node)).collect();
        let unread: FxHashSet<usize> =
            (0..relations.len()).filter(|at| !read.contains(at)).collect();
        for (at, labels) in labels.iter_mut().enumerate() {
            match (labels.is_some() && unread.contains(&at), of_labels[at]) {
                (true, Some(part)) => self.recall.used(part),
                _ => *labels = None,
            }
        }
        Recalled { graph, root, labels, unread, is_known: true, parts, of_labels }
    }

    /// What tells each node from all others.
    fn parts(&self, graph: &Graph, relations: &[Option<Fingerprint>]) -> Vec<Option<Fingerprint>> {
        let mut parts: Vec<Option<Fingerprint>> = Vec::with_capacity(graph.len());
        for (_, node) in graph.nodes() {
            let part = match &node.operation {
                Op::Stored(stored) => stored.part,
                Op::Relation(number) => relations[*number],
                // By labels, which are not of the graph.
                Op::Align(_) => None,
                operation => {
                    let inputs = node.inputs.iter().map(|input| parts[input.index()]);
                    inputs.collect::<Option<Vec<_>>>().map(|inputs| {
                        let what =
                            |mut state: &mut dyn Hasher| (operation, &inputs).hash(&mut state);
                        self.recall.fingerprint(&what)
                    })
                }
            };
            parts.push(part);
        }
        parts
    }

    /// The nodes whose values are known, of those below one another the last. What needs the labels of a relation
    /// leaves it to be read.
    fn known(
        &self,
        graph: &Graph,
        root: NodeId,
        parts: &[Option<Fingerprint>],
        is_needed: &[bool],
    ) -> FxHashMap<NodeId, Stored> {
        let varies = graph.varying();
        // The nodes that need a relation whose labels are.
        let mut reads_needed = vec![false; graph.len()];
        for (id, node) in graph.nodes() {
            reads_needed[id.index()] = relation_of(node).is_some_and(|number| is_needed[number])
                || node.inputs.iter().any(|input| reads_needed[input.index()]);
        }
        let mut known = FxHashMap::default();
        let mut seen = FxHashSet::default();
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let node = graph.node(id);
            let may_be =
                !varies[id.index()] && !reads_needed[id.index()] && !node.operation.is_given();
            match may_be.then(|| self.value(graph, id, parts)).flatten() {
                Some(stored) => {
                    known.insert(id, stored);
                }
                None => open.extend(&node.inputs),
            }
        }
        known
    }

    /// What is known of the value of a node: of one result of a decomposition by the whole.
    fn value(&self, graph: &Graph, id: NodeId, parts: &[Option<Fingerprint>]) -> Option<Stored> {
        let node = graph.node(id);
        let (of, at) = match &node.operation {
            Op::Part(part) => {
                let [whole] = node.inputs[..] else { return None };
                let all = Part::all(&graph.node(whole).operation);
                (whole, all.iter().position(|one| one == part)?)
            }
            _ => (id, 0),
        };
        let part = parts[of.index()]?;
        let Remembered::Value(value) = self.recall.known(part)? else { return None };
        let cells = match (&value, of == id) {
            (Value::Matrix(cells), true) => cells,
            (Value::Parts(parts), false) => parts.get(at)?,
            _ => return None,
        };
        self.recall.used(part);
        let name = format!("remembered({})", Written(graph, id));
        let matrix = Arc::new(Matrix::new(cells.clone()));
        Some(Stored { name, matrix, part: parts[id.index()] })
    }
}

impl Recalled {
    /// A graph of which nothing is known.
    pub(crate) fn nothing(graph: Graph, root: NodeId) -> Self {
        let (unread, parts) = Default::default();
        let relations = graph.relations.len();
        let (labels, of_labels) = (vec![None; relations], vec![None; relations]);
        Self { graph, root, labels, unread, is_known: false, parts, of_labels }
    }

    /// What tells the value of the root from all others.
    pub(crate) fn root_part(&self) -> Option<Fingerprint> {
        self.parts.get(self.root.index()).copied().flatten()
    }

    /// What a run of these steps is to tell: the values that they make and that took more than to look at, and the labels of
    /// relations. What a device makes is left out, for its sums have other last digits.
    pub(crate) fn watch(&self, remembering: &Remembering, steps: &[Step]) -> Option<Watch> {
        let mut maker: FxHashMap<Slot, usize> = FxHashMap::default();
        for (at, step) in steps.iter().enumerate() {
            if !matches!(step, Step::Offload(_)) {
                maker.extend(step.made().into_iter().map(|slot| (slot, at)));
            }
        }
        let made = self.graph.nodes().filter(|(_, node)| is_work(&node.operation)).filter_map(
            |(id, _)| {
                let slot = id.index();
                let (part, &last) = (self.parts[slot]?, maker.get(&slot)?);
                let is_kept = id == self.root && remembering.result_is_kept;
                (!is_kept).then(|| {
                    let needed = self.graph.needed(id);
                    let steps = needed.iter().filter_map(|id| maker.get(&id.index()).copied());
                    let mut steps: Vec<usize> = steps.filter(|&step| step < last).collect();
                    steps.sort_unstable();
                    steps.dedup();
                    steps.push(last);
                    Watched { part, what: Made::Value(slot), steps }
                })
            },
        );
        let labels = steps.iter().enumerate().filter_map(|(at, step)| {
            let relation = step.relation()?;
            let part = self.of_labels[relation]?;
            Some(Watched { part, what: Made::Labels(relation), steps: vec![at] })
        });
        let parts: Vec<Watched> = made.chain(labels).collect();
        let recall = Arc::clone(&remembering.recall);
        (!parts.is_empty()).then_some(Watch { recall, parts })
    }
}

/// The relation that a node reads.
fn relation_of(node: &Node) -> Option<usize> {
    match node.operation {
        Op::Relation(number) => Some(number),
        _ => None,
    }
}

/// Whether an operation is more than another look at a matrix, or the same number everywhere.
fn is_work(operation: &Op) -> bool {
    let is_look = matches!(operation, Op::Part(_) | Op::Slice { .. } | Op::Reshape(_));
    let is_plain = matches!(operation, Op::Eye(_) | Op::Full(_) | Op::Range { .. });
    !operation.is_given() && !is_look && !is_plain
}

/// A graph with matrices at hand in the place of nodes.
fn replaced(
    graph: &Graph,
    root: NodeId,
    parts: &[Option<Fingerprint>],
    known: &FxHashMap<NodeId, Stored>,
) -> (Graph, NodeId, Vec<Option<Fingerprint>>) {
    let mut needed = FxHashSet::default();
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        if needed.insert(id) && !known.contains_key(&id) {
            open.extend(&graph.node(id).inputs);
        }
    }
    // Sizes that rows would have told are those of what they came to.
    let mut sizes: FxHashMap<Dim, Dim> = FxHashMap::default();
    for (id, stored) in known {
        let (node, shape) = (graph.node(*id), stored.matrix.shape());
        sizes.insert(node.rows, Dim::Known(shape.rows));
        sizes.insert(node.columns, Dim::Known(shape.columns));
    }
    let size = |dim: Dim| match dim {
        Dim::Open(_) => sizes.get(&dim).copied().unwrap_or(dim),
        Dim::Known(_) => dim,
    };
    let mut made = graph.unlabelled();
    let mut places: FxHashMap<NodeId, NodeId> = FxHashMap::default();
    let mut parts_made = Vec::new();
    for (id, node) in graph.nodes().filter(|(id, _)| needed.contains(id)) {
        let sized = Node { rows: size(node.rows), columns: size(node.columns), ..node.clone() };
        let (node, inputs) = match known.get(&id) {
            Some(stored) => (Node { operation: Op::Stored(stored.clone()), ..sized }, Vec::new()),
            None => {
                let inputs = sized.inputs.iter().map(|input| places[input]).collect();
                (sized, inputs)
            }
        };
        let place = made.adopt(&node, inputs);
        if place.index() == parts_made.len() {
            parts_made.push(parts[id.index()]);
        }
        places.insert(id, place);
    }
    let root = places[&root];
    (made, root, parts_made)
}
