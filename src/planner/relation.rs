//! A relation as a matrix leaf: its plan, and how its rows are read.

use arrow::datatypes::DataType;
use datafusion::logical_expr::LogicalPlan;
use std::sync::Arc;

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
        let keys = |columns: std::ops::Range<usize>, axis: Axis| {
            if columns.is_empty() {
                return AxisLabels::None;
            }
            let recipe = Recipe::Relation { relation: index, axis };
            AxisLabels::Deferred(Arc::new(Deferred { fields: self.fields(columns), recipe }))
        };
        let rows = self.intake.row_keys;
        match self.intake.form {
            Form::Wide => {
                let names = Labels::names(&self.intake.names[rows..]);
                [keys(0..rows, Axis::Rows), AxisLabels::Known(Arc::new(names))]
            }
            Form::Vectors { .. } => [keys(0..rows, Axis::Rows), AxisLabels::None],
            Form::Entries { column_keys, .. } => {
                [keys(0..rows, Axis::Rows), keys(rows..rows + column_keys, Axis::Columns)]
            }
            Form::Graph => {
                // One list of nodes labels both sides, so it is known to be equal to itself.
                let ends = self.fields(0..2);
                let of = node_type(&ends[0].1, &ends[1].1);
                let nodes = |column: usize| {
                    let recipe = Recipe::Relation { relation: index, axis: Axis::Rows };
                    let fields = vec![(ends[column].0.clone(), of.clone())];
                    AxisLabels::Deferred(Arc::new(Deferred { fields, recipe }))
                };
                [nodes(0), nodes(1)]
            }
        }
    }

    fn fields(&self, columns: std::ops::Range<usize>) -> Vec<(String, DataType)> {
        let schema = self.plan.schema();
        columns
            .map(|at| (self.intake.names[at].clone(), schema.field(at).data_type().clone()))
            .collect()
    }
}
