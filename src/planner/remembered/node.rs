//! A plan whose rows somebody watches as they come, beside those that are known of it where both are to be compared.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchemaRef, Result, internal_datafusion_err};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

/// Makes of an operator, and of one with what is known of its rows, one with the same rows, which somebody watches.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Watched>);

type Watched = dyn Fn(Arc<dyn ExecutionPlan>, Option<&Arc<dyn ExecutionPlan>>) -> Arc<dyn ExecutionPlan>
    + Send
    + Sync;

impl Watch {
    pub(crate) fn new(
        watched: impl Fn(
            Arc<dyn ExecutionPlan>,
            Option<&Arc<dyn ExecutionPlan>>,
        ) -> Arc<dyn ExecutionPlan>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(watched))
    }

    fn place(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// No two watch for the same.
impl PartialEq for Watch {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Watch {}

impl Hash for Watch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place().hash(state);
    }
}

/// All columns of the input are wanted, whatever is read of them above.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct WatchedNode {
    input: LogicalPlan,
    known: Option<LogicalPlan>,
    watch: Watch,
}

/// `known` is where the rows of the input would come from otherwise.
pub(super) fn watched(input: LogicalPlan, known: Option<LogicalPlan>, watch: Watch) -> LogicalPlan {
    LogicalPlan::Extension(Extension { node: Arc::new(WatchedNode { input, known, watch }) })
}

impl PartialOrd for WatchedNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for WatchedNode {
    fn name(&self) -> &str {
        "Watched"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        [&self.input].into_iter().chain(&self.known).collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let known = self.known.as_ref().and_then(|_| inputs.pop());
        let input = inputs.pop();
        let input = input.ok_or_else(|| internal_datafusion_err!("a plan is watched"))?;
        Ok(Self { input, known, watch: self.watch.clone() })
    }
}

/// Plans those nodes.
#[derive(Debug)]
pub(crate) struct WatchedPlanner;

#[async_trait]
impl ExtensionPlanner for WatchedPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<WatchedNode>() else { return Ok(None) };
        let Some((input, known)) = inputs.split_first() else { return Ok(None) };
        Ok(Some((node.watch.0)(Arc::clone(input), known.first())))
    }
}
