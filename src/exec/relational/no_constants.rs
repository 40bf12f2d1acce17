//! An operator whose rows promise no constants.
//!
//! A column that is constant on the inner side of an outer join is NULL in rows without a partner. DataFusion takes it for constant
//! above the join, too, and puts no rows in order by it: `a LEFT JOIN (SELECT k, 1 AS known FROM b) … ORDER BY known`. And a
//! column that is another constant in each part of a union it leaves out of the keys by which parts are sorted, whose first rows
//! then keep out those of another part.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};

/// The operator; see the header of this file.
#[derive(Debug)]
pub(crate) struct NoConstantsExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl NoConstantsExec {
    /// Over rows some of whose columns are constant; nothing where none is.
    pub(crate) fn of(input: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let has_constants = !input.equivalence_properties().constants().is_empty();
        has_constants.then(|| Self::over(Arc::clone(input)))
    }

    fn over(input: Arc<dyn ExecutionPlan>) -> Self {
        let promised = EquivalenceProperties::new(input.schema());
        let properties = PlanProperties::clone(input.properties()).with_eq_properties(promised);
        Self { input, properties: Arc::new(properties) }
    }
}

impl ExecutionPlan for NoConstantsExec {
    fn name(&self) -> &str {
        "NoConstantsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop() else { return Ok(self) };
        Ok(Arc::new(match options.children_properties {
            ChildrenPropertiesMode::Keep => {
                Self { input, properties: Arc::clone(&self.properties) }
            }
            ChildrenPropertiesMode::Recompute => Self::over(input),
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let unknown = || Arc::new(Statistics::new_unknown(&self.schema()));
        Ok(inputs.first().map_or_else(unknown, Arc::clone))
    }
}

impl DisplayAs for NoConstantsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            _ => f.write_str("NoConstantsExec"),
        }
    }
}
