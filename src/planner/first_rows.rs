//! Where the first few rows of each group are asked for, those that cannot be among them do not reach the window.
//!
//! ```text
//! Filter place <= 2                                       Filter place <= 2
//!   Window row_number() OVER (PARTITION BY k       ──►      Window …
//!                             ORDER BY v DESC) place          FirstRows: 2 of each k by v DESC
//!     …                                                         …
//! ```
//!
//! The node is planned below the exchange and the sort that the window asks for (`exec::relational::first_rows`), which have
//! few rows left. The condition stays.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchemaRef, Result, internal_datafusion_err};
use datafusion::logical_expr::expr::Sort as SortKey;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::expr_to_columns;
use datafusion::logical_expr::{
    Expr, ExprSchemable, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::OptimizerConfig;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::matrix_node::MatrixNode;
use super::ranking::{Ranking, ranking};
use crate::config::ForRules;
use crate::exec::relational::first_rows::{First, FirstRowsExec, is_grouped};
use crate::exec::relational::places::is_placed;

/// Rows of each group at most: each has a place that is kept.
pub(super) const COUNT_MAX: usize = 1024;

/// The rule; see the header of this file.
pub(super) fn rewrite(
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let is_on = config.options().extensions.get::<ForRules>().is_some_and(|of| of.drops_rows);
    let Some(ranking) = ranking(&plan).filter(|_| is_on) else { return Ok(Transformed::no(plan)) };
    let Some(node) = FirstRowsNode::of(&ranking) else { return Ok(Transformed::no(plan)) };
    let rows = LogicalPlan::Extension(Extension { node: Arc::new(node) });
    Ok(Transformed::yes(ranking.over(rows)?))
}

/// Whether a plan's node is one of this rule's.
pub(super) fn is_node(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Extension(extension) = plan else { return false };
    extension.node.as_any().is::<FirstRowsNode>()
}

/// Rows without those that are not among the first of their group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Hash)]
struct FirstRowsNode {
    count: usize,
    keys: Vec<Expr>,
    by: SortKey,
    input: LogicalPlan,
}

impl FirstRowsNode {
    /// Nothing where the rows that are asked for cannot be told before they are sorted, or it is done.
    fn of(ranking: &Ranking) -> Option<Self> {
        let Ranking { count, partition_by: keys, .. } = *ranking;
        let by = ranking.order_by.first()?;
        let input = &ranking.window.input;
        let has = |expression: &Expr, fits: fn(&_) -> bool| {
            let data_type = expression.get_type(input.schema());
            !expression.is_volatile() && data_type.is_ok_and(|data_type| fits(&data_type))
        };
        let fits = (1..=COUNT_MAX).contains(&count)
            && keys.iter().all(|key| has(key, is_grouped))
            && has(&by.expr, is_placed);
        let node =
            Self { count, keys: keys.to_vec(), by: by.clone(), input: input.as_ref().clone() };
        (fits && !is_done(input)).then_some(node)
    }
}

/// Whether a plan has dropped rows already, as a node of this rule or as the best entries of a matrix.
fn is_done(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Extension(Extension { node }) => {
            let matrix = node.as_any().downcast_ref::<MatrixNode>();
            node.as_any().is::<FirstRowsNode>() || matrix.is_some_and(|node| node.best.is_some())
        }
        LogicalPlan::Projection(projection) => is_done(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_done(&alias.input),
        _ => false,
    }
}

impl UserDefinedLogicalNodeCore for FirstRowsNode {
    fn name(&self) -> &str {
        "FirstRows"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        self.keys.iter().chain([&self.by.expr]).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        write!(f, "FirstRows: first={}, of=[{}], by={}", self.count, keys.join(", "), self.by)
    }

    fn with_exprs_and_inputs(
        &self,
        mut keys: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Self> {
        let (Some(by), Some(input)) = (keys.pop(), inputs.pop()) else {
            return Err(internal_datafusion_err!("first rows are those of a plan, by an order"));
        };
        Ok(Self { count: self.count, keys, by: SortKey { expr: by, ..self.by }, input })
    }

    fn necessary_children_exprs(&self, columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let mut read = HashSet::new();
        for expression in self.keys.iter().chain([&self.by.expr]) {
            expr_to_columns(expression, &mut read).ok()?;
        }
        let places = read.iter().map(|column| self.input.schema().maybe_index_of_column(column));
        let mut places = places.collect::<Option<Vec<usize>>>()?;
        places.extend(columns);
        places.sort_unstable();
        places.dedup();
        Some(vec![places])
    }
}

/// Plans [`FirstRowsNode`]s.
#[derive(Debug)]
pub(crate) struct FirstRowsPlanner;

#[async_trait]
impl ExtensionPlanner for FirstRowsPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<FirstRowsNode>() else { return Ok(None) };
        let [input] = inputs else { return Ok(None) };
        let physical = |expression: &Expr| {
            planner.create_physical_expr(expression, node.input.schema(), session, context)
        };
        let keys = node.keys.iter().map(physical).collect::<Result<_>>()?;
        let options = SortOptions { descending: !node.by.asc, nulls_first: node.by.nulls_first };
        let by = PhysicalSortExpr { expr: physical(&node.by.expr)?, options };
        let first = First { count: node.count, keys, by, condition: None };
        Ok(Some(Arc::new(FirstRowsExec::new(first, Arc::clone(input)))))
    }
}
