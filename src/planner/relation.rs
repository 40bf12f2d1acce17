//! A relation as a matrix leaf: its plan, and how its rows are read.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::logical_expr::LogicalPlan;

use crate::exec::intake::{Form, Intake, node_type};
use crate::exec::labels::{AxisLabels, Deferred, Recipe};
use crate::exec::operation::Axis;
use crate::matrix::Labels;

/// Whether the order of a relation's rows means anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd)]
pub(crate) enum RowOrder {
    /// By the row keys; the planner adds the sort where a result can show it.
    Keys,
    /// The query's own: an ORDER BY, or the stored order of one table or file.
    Query,
    /// None, as of a join without ORDER BY.
    Undefined,
}

/// A query whose rows are read as a matrix.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd)]
pub(crate) struct Relation {
    /// What EXPLAIN calls it.
    pub(crate) name: String,
    /// Row keys, column keys, values.
    pub(crate) plan: LogicalPlan,
    /// The labels given by `OVER`, of the rows and of the columns.
    pub(crate) given: [Option<LogicalPlan>; 2],
    pub(crate) intake: Intake,
    pub(crate) order: RowOrder,
    /// Whether the query's rows come in an order of their own: by ORDER BY, or as they are stored.
    pub(crate) is_ordered: bool,
}

impl Relation {
    /// Columns of the matrix, where the query's columns tell.
    pub(crate) fn width(&self) -> Option<usize> {
        self.intake.width()
    }

    /// Whether rows and columns are the nodes of one graph.
    pub(crate) fn is_square(&self) -> bool {
        self.intake.form == Form::Graph
    }

    /// The labels of the rows and of the columns; `index` is this relation's number in its graph.
    pub(crate) fn labels(&self, index: usize) -> [AxisLabels; 2] {
        let of_keys = |columns: Range<usize>, axis: Axis| {
            if columns.is_empty() {
                return AxisLabels::None;
            }
            let fields = self.label_fields(columns, axis);
            let recipe = Recipe::Relation { relation: index, axis };
            AxisLabels::Deferred(Arc::new(Deferred { fields, recipe }))
        };
        let rows = self.intake.row_keys;
        match self.intake.form {
            Form::Wide => {
                let names = Labels::names(&self.intake.names[rows..]);
                [of_keys(0..rows, Axis::Rows), AxisLabels::Known(Arc::new(names))]
            }
            Form::Vectors { .. } => [of_keys(0..rows, Axis::Rows), AxisLabels::None],
            Form::Entries { column_keys, .. } => {
                [of_keys(0..rows, Axis::Rows), of_keys(rows..rows + column_keys, Axis::Columns)]
            }
            // One list of nodes labels both sides, so it is known to be equal to itself.
            Form::Graph => {
                let of = match &self.given[0] {
                    Some(given) => given.schema().field(0).data_type().clone(),
                    None => node_type(self.key_type(0), self.key_type(1)),
                };
                let nodes = |at: usize| {
                    let recipe = Recipe::Relation { relation: index, axis: Axis::Rows };
                    let fields = vec![(self.intake.names[at].clone(), of.clone())];
                    AxisLabels::Deferred(Arc::new(Deferred { fields, recipe }))
                };
                [nodes(0), nodes(1)]
            }
        }
    }

    /// The names of these key columns, and the types of the labels over them.
    fn label_fields(&self, columns: Range<usize>, axis: Axis) -> Vec<(String, DataType)> {
        let given = match axis {
            Axis::Rows => &self.given[0],
            Axis::Columns => &self.given[1],
        };
        let field = |(position, at): (usize, usize)| {
            let of = match given {
                Some(given) => given.schema().field(position).data_type(),
                None => self.key_type(at),
            };
            (self.intake.names[at].clone(), of.clone())
        };
        columns.enumerate().map(field).collect()
    }

    fn key_type(&self, at: usize) -> &DataType {
        self.plan.schema().field(at).data_type()
    }
}
