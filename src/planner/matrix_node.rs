//! A graph as a node of a relational plan: its inputs are relations, its output is rows.

use std::cell::LazyCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::{Column, DFSchema, DFSchemaRef, TableReference};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

use super::algebra;
use super::bind::Binder;
use super::cost::CostModel;
use super::graph::{Dim, Graph, NodeId};
use super::relation::{Relation, RowOrder};
use super::relations::sorted_by_keys;
use super::sparsity::is_sparse;
use super::written::Written;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::emit::{self, Form};
use crate::exec::kernels::best::Best;
use crate::exec::labels::AxisLabels;
use crate::exec::operation::{Aggregate, Axis, Counted, Operation as Op};

/// More columns than this are read as entries.
const COLUMNS_MAX: usize = 1600;

/// The result of a graph as rows.
#[derive(Debug, Clone)]
pub(crate) struct MatrixNode {
    pub(crate) graph: Arc<Graph>,
    pub(crate) root: NodeId,
    pub(crate) form: Form,
    /// Whether a zero of the result is no entry.
    pub(crate) is_sparse: bool,
    /// Which entries of each row are read, where not all are.
    pub(crate) best: Option<Best>,
    /// For each relation its rows, then the labels given for its rows and columns, where they are.
    pub(crate) inputs: Vec<LogicalPlan>,
    schema: DFSchemaRef,
}

/// What the reader of a result calls it and its columns.
#[derive(Debug, Default)]
pub(crate) struct ReaderNames {
    pub(crate) relation: Option<TableReference>,
    pub(crate) columns: Vec<String>,
}

impl Binder<'_> {
    /// Makes sure that what the columns of a result are is known before it runs.
    ///
    /// # Errors
    /// Where a relation must run first, or the result does not fit the form.
    pub(crate) fn ready_for(&mut self, root: NodeId, form: Form) -> Result<()> {
        self.graph.single(root)?;
        match form {
            Form::Rows => {
                self.known_size(root, Axis::Columns)?;
                if let AxisLabels::Deferred(_) = self.graph.node(root).labels[1] {
                    self.want_relations(root)?;
                }
            }
            Form::Vectors => {
                self.known_size(root, Axis::Columns)?;
            }
            Form::Scalar => {
                let rows = self.known_size(root, Axis::Rows)?;
                let columns = self.known_size(root, Axis::Columns)?;
                if (rows, columns) != (1, 1) {
                    let shape = self.graph.node(root).shape();
                    let needs = "a 1x1 result where SQL expects a scalar";
                    return Err(
                        ErrorKind::ShapeOf { function: "MATRIX".into(), needs, shape }.into()
                    );
                }
            }
            Form::Entries | Form::Whole => {}
        }
        Ok(())
    }
}

impl MatrixNode {
    /// A node for the value of `root` under the names that its reader gives: columns have theirs if those
    /// are as many.
    ///
    /// # Errors
    /// Where columns are too many or share a name.
    pub(crate) fn new(graph: Graph, root: NodeId, form: Form, names: &ReaderNames) -> Result<Self> {
        // Asked of the graph as algebra leaves it: `t(x) @ y` is a sum over rows once it is a cross product.
        let unknown = vec![None; graph.relations.len()];
        let simple =
            LazyCell::new(|| algebra::rewrite(&graph, root, &unknown, &CostModel::default()));
        let mut inputs = Vec::new();
        for (index, relation) in graph.relations.iter().enumerate() {
            // The sort that puts rows in the order of their keys costs more than most of what follows. Without it sums are
            // added up in the order in which rows come, and where that is another each time, last digits show it.
            let sorts = relation.order == RowOrder::Keys
                && relation.intake.streams()
                && relation.intake.row_keys > 0
                && (!relation.is_ordered || order_shows(&simple.graph, simple.root, index));
            inputs.push(if sorts { sorted_by_keys(relation)? } else { relation.plan.clone() });
            inputs.extend(relation.given.iter().flatten().cloned());
        }
        let node = graph.node(root);
        let columns = node.columns.known().unwrap_or(0);
        if form == Form::Rows && columns > COLUMNS_MAX {
            let message =
                format!("{columns} columns are too many for MATRIX; ENTRIES reads cells as rows");
            return Err(Error::unsupported(message));
        }
        let labelled = match &node.labels[1] {
            // Columns that are values have no names, and may be more than memory has room for names.
            _ if !matches!(form, Form::Rows | Form::Vectors) => Vec::new(),
            AxisLabels::Known(labels) => (0..labels.len()).map(|at| labels.text(at)).collect(),
            _ => (1..=columns).map(|at| format!("c{at}")).collect::<Vec<_>>(),
        };
        let (rows, labels) = (node.labels[0].fields(), node.labels[1].fields());
        let mut fields = emit::fields(form, &rows, &labels, &labelled, node.element);
        if fields.len() == names.columns.len() {
            let named = fields.into_iter().zip(&names.columns);
            fields = named.map(|(field, name)| field.with_name(name)).collect();
        }
        unique(&fields)?;
        let qualified = fields.into_iter().map(|field| (names.relation.clone(), Arc::new(field)));
        let schema = DFSchema::new_with_metadata(qualified.collect(), Default::default())?;
        let is_sparse = is_sparse(&graph, root);
        let (graph, schema) = (Arc::new(graph), Arc::new(schema));
        Ok(Self { graph, root, form, is_sparse, best: None, inputs, schema })
    }

    /// The place of a column among those of its rows.
    pub(super) fn schema_place(&self, column: &Column) -> Option<usize> {
        self.schema.maybe_index_of_column(column)
    }

    /// The same with the best entries of each row alone, by the value in the column `by`, if that serves a
    /// reader who wants no others of those that share the columns `each`.
    pub(super) fn best_entries(
        &self,
        best: Best,
        by: usize,
        each: Option<&[usize]>,
    ) -> Option<Self> {
        let row_labels = self.graph.node(self.root).labels[0].fields().len().max(1);
        let of_rows = |each: &[usize]| (0..row_labels).all(|label| each.contains(&label));
        // The best of all are among the best of each row; of fewer than a row, they need not be.
        let serves = match each {
            None => true,
            Some(each) => of_rows(each) && each.len() == row_labels,
        };
        let is_value = by + 1 == self.schema.fields().len();
        let is_new = self.best.is_none();
        (self.form == Form::Entries && serves && is_value && is_new)
            .then(|| Self { best: Some(best), ..self.clone() })
    }

    pub(crate) fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }
}

fn unique(fields: &[Field]) -> Result<()> {
    let mut seen = BTreeSet::new();
    match fields.iter().find(|field| !seen.insert(field.name())) {
        None => Ok(()),
        Some(twice) => Err(ErrorKind::Duplicate {
            what: "column label",
            key: format!("'{}'", twice.name()),
            hint: "; AS s(a, b, …) gives all columns names, and ENTRIES reads cells as rows",
        }
        .into()),
    }
}

/// Whether a result can show in which order the rows of a relation came: everything but sums over its
/// rows can.
fn order_shows(graph: &Graph, root: NodeId, relation: usize) -> bool {
    let leaf = graph.nodes().find(|(_, node)| node.operation == Op::Relation(relation));
    let Some((leaf, _)) = leaf else { return false };
    // The nodes whose rows are the relation's.
    let mut by_rows = BTreeMap::from([(leaf, ())]);
    for (id, node) in graph.nodes() {
        let reads: Vec<bool> =
            node.inputs.iter().map(|input| by_rows.contains_key(input)).collect();
        if !reads.contains(&true) {
            continue;
        }
        // Beside rows of another origin it shows which of them meet.
        let is_alone =
            (0..reads.len()).all(|at| reads[at] || graph.node(node.inputs[at]).rows == Dim::ONE);
        let keeps = match &node.operation {
            Op::Unary(_) | Op::Cast(_) | Op::Slice { axis: Axis::Columns, .. } => true,
            Op::Binary(_) | Op::Select | Op::Stack(Axis::Columns) => is_alone,
            Op::Product | Op::Outer | Op::Convolve(_) => !reads[1],
            Op::Pool(..) => true,
            Op::Normalize { axis: Axis::Rows, .. } | Op::Reduce { axis: Some(Axis::Rows), .. } => {
                true
            }
            _ => false,
        };
        let sums = match &node.operation {
            Op::Reduce { aggregate: Aggregate::ArgMax, .. } => false,
            Op::Reduce { axis: None | Some(Axis::Columns), .. } => true,
            Op::Count(Counted::Rows | Counted::Columns) | Op::Gram => true,
            Op::Cross | Op::HalfCross => reads.iter().all(|&reads| reads),
            _ => false,
        };
        if keeps {
            by_rows.insert(id, ());
        } else if !sums {
            return true;
        }
    }
    by_rows.contains_key(&root)
}

impl UserDefinedLogicalNodeCore for MatrixNode {
    fn name(&self) -> &str {
        "Matrix"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = Written(&self.graph, self.root);
        match &self.best {
            Some(best) => write!(f, "Matrix: {best} {written}"),
            None => write!(f, "Matrix: {written}"),
        }
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> datafusion::error::Result<Self> {
        Ok(Self { inputs, ..self.clone() })
    }
}

/// By structure, for a statement may be planned several times: what it reads must be found again.
impl PartialEq for MatrixNode {
    fn eq(&self, other: &Self) -> bool {
        (self.root, self.form, self.best) == (other.root, other.form, other.best)
            && (Arc::ptr_eq(&self.graph, &other.graph) || is_same(&self.graph, &other.graph))
            && self.inputs == other.inputs
    }
}

impl Eq for MatrixNode {}

impl Hash for MatrixNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.root, self.form, self.best, self.graph.len()).hash(state);
        self.inputs.hash(state);
    }
}

impl PartialOrd for MatrixNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

/// Whether two graphs are equal operations on equal inputs, wherever they stand in the text. The plans of
/// their relations are the inputs of their nodes, and are compared there.
fn is_same(left: &Graph, right: &Graph) -> bool {
    let same_nodes = || {
        let mut pairs = left.nodes().zip(right.nodes());
        pairs.all(|((_, a), (_, b))| a.operation == b.operation && a.inputs == b.inputs)
    };
    let same_relations = || {
        left.relations.iter().zip(&right.relations).all(|(a, b)| {
            let given = |relation: &Relation| relation.given.each_ref().map(Option::is_some);
            a.intake == b.intake && a.order == b.order && given(a) == given(b)
        })
    };
    left.len() == right.len()
        && left.relations.len() == right.relations.len()
        && same_nodes()
        && same_relations()
}
