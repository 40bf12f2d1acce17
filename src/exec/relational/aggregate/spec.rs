//! What is computed of each group, and how its rows look on their way.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::cast::as_boolean_array;
use datafusion::error::Result;
use datafusion::logical_expr::GroupsAccumulator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};

/// The keys and the aggregates of an aggregation.
pub(super) struct Spec {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) calls: Vec<Call>,
    /// The keys alone.
    pub(super) groups: SchemaRef,
    /// The keys, and what is known of each aggregate of some rows of a group.
    pub(super) states: SchemaRef,
    /// The keys and the answers.
    pub(super) output: SchemaRef,
    /// By what groups are dealt out, of their states or their answers.
    pub(super) dealt_by: Vec<Arc<dyn PhysicalExpr>>,
}

/// One aggregate.
pub(super) struct Call {
    aggregate: Arc<AggregateFunctionExpr>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    /// The rows that it looks at.
    filter: Option<Arc<dyn PhysicalExpr>>,
    /// Columns of its state.
    pub(super) states: usize,
}

impl Spec {
    /// That of an operator over its rows, with the columns of the operator that it stands for.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn new(
        whole: &AggregateExec,
        output: SchemaRef,
        dealt_by: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        let keys = whole.group_expr().expr().iter().map(|(key, _name)| Arc::clone(key));
        let calls = whole.aggr_expr().iter().zip(whole.filter_expr()).map(|(aggregate, filter)| {
            Ok(Call {
                aggregate: Arc::clone(aggregate),
                arguments: aggregate.expressions(),
                filter: filter.clone(),
                states: aggregate.state_fields()?.len(),
            })
        });
        let calls = calls.collect::<Result<_>>()?;
        let partial = AggregateExec::try_new(
            AggregateMode::Partial,
            whole.group_expr().clone(),
            whole.aggr_expr().to_vec(),
            whole.filter_expr().to_vec(),
            Arc::clone(whole.input()),
            whole.input_schema(),
        )?;
        let groups = whole.group_expr().group_schema(&whole.input_schema())?;
        let states = datafusion::physical_plan::ExecutionPlan::schema(&partial);
        Ok(Self { keys: keys.collect(), calls, groups, states, output, dealt_by })
    }

    /// The keys of some rows.
    ///
    /// # Errors
    /// Those of the expressions.
    pub(super) fn keys(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let key = |key: &Arc<dyn PhysicalExpr>| key.evaluate(rows)?.into_array(rows.num_rows());
        self.keys.iter().map(key).collect()
    }
}

impl Call {
    /// What adds up the groups.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn accumulator(&self) -> Result<Box<dyn GroupsAccumulator>> {
        self.aggregate.create_groups_accumulator()
    }

    /// What the aggregate reads of some rows.
    ///
    /// # Errors
    /// Those of the expressions.
    pub(super) fn arguments(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let argument = |of: &Arc<dyn PhysicalExpr>| of.evaluate(rows)?.into_array(rows.num_rows());
        self.arguments.iter().map(argument).collect()
    }

    /// Which rows it looks at; all where it does not say.
    ///
    /// # Errors
    /// Those of the expression.
    pub(super) fn chosen(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>> {
        let Some(filter) = &self.filter else { return Ok(None) };
        let chosen = filter.evaluate(rows)?.into_array(rows.num_rows())?;
        Ok(Some(as_boolean_array(&chosen)?.clone()))
    }
}
