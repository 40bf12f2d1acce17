//! What a connection knows: its settings, and everything the planner may use.
//!
//! [`new_state`] is the list of all that Relatrix adds to DataFusion. Whoever adds a planner, a rule or a
//! set of functions adds a line there.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionConfig;

use crate::error::Result;
use crate::functions;
use crate::planner::relational;

/// DataFusion's defaults and our additions to them.
pub(crate) fn new_state(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> Result<SessionState> {
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_expr_planners(relational::expr_planners())
        .with_default_features()
        .with_type_planner(Arc::new(relational::TypeNames))
        .with_analyzer_rules(relational::analyzer_rules())
        .with_optimizer_rules(relational::optimizer_rules())
        .with_physical_optimizer_rules(relational::physical_optimizer_rules())
        .with_query_planner(Arc::new(Planner))
        .build();
    functions::register(&mut state)?;
    Ok(state)
}

/// DataFusion's planner with our nodes.
#[derive(Debug)]
struct Planner;

#[async_trait::async_trait]
impl datafusion::execution::context::QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &datafusion::logical_expr::LogicalPlan,
        state: &dyn datafusion::catalog::Session,
    ) -> datafusion::error::Result<Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
        use datafusion::physical_planner::PhysicalPlanner;
        datafusion::physical_planner::DefaultPhysicalPlanner::with_extension_planners(vec![
            Arc::new(crate::planner::MatrixPlanner),
        ])
        .create_physical_plan(plan, state)
        .await
    }
}
