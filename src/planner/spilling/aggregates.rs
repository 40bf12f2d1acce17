//! Aggregations become ours.
//!
//! ```text
//! AggregateExec: mode=FinalPartitioned, gby=[k]        SpillingAggregateExec: gby=[k]
//!   RepartitionExec: partitioning=Hash([k], n)   ──►     …
//!     AggregateExec: mode=Partial, gby=[k]
//!       …
//! ```
//!
//! Left to DataFusion: rows that come in the order of their keys, the best few groups, and aggregates whose
//! answer is all values of a group, or depends on the order of its rows. Without keys, extremes alone: these tell the scan which
//! rows they still need.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};

use crate::config::ForRules;
use crate::exec::relational::aggregate::{SpillingAggregateExec, knows};
use crate::functions::adds_any_width;

/// The rule; see the header of this file. After all rules that look for aggregations by type.
#[derive(Debug)]
pub(crate) struct SpillingAggregates;

/// The first phase of the aggregation whose last one a plan is, or the only one, and by what its groups are dealt out to outputs; none
/// where each input has groups of its own.
pub(in crate::planner) fn phases(
    plan: &Arc<dyn ExecutionPlan>,
) -> Option<(&AggregateExec, Option<Vec<Arc<dyn PhysicalExpr>>>)> {
    let last = plan.downcast_ref::<AggregateExec>().filter(|last| is_plain(last))?;
    match last.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => Some((last, None)),
        AggregateMode::Final => {
            // Grouping sets are in two phases over one input, too.
            let all = last.input().downcast_ref::<CoalescePartitionsExec>();
            let first = first_phase(all.map_or(last.input(), |all| all.input()))?;
            Some((first, Some(last.output_group_expr())))
        }
        AggregateMode::FinalPartitioned => match last.input().downcast_ref::<RepartitionExec>() {
            Some(exchange) => {
                let Partitioning::Hash(keys, _) = exchange.partitioning() else { return None };
                Some((first_phase(exchange.input())?, Some(keys.clone())))
            }
            // Each input has groups of its own, as the only one has.
            None => Some((first_phase(last.input())?, None)),
        },
        _ => None,
    }
}

/// The operator that stands for an aggregation, if there is one.
fn spilling(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some((first, dealt_by)) = phases(plan) else { return Ok(None) };
    let schema = first.input_schema();
    let calls = first.aggr_expr();
    let are_known = calls.iter().all(|call| knows(call).is_some());
    if !are_known || !first.dynamic_expressions_produced().is_empty() {
        return Ok(None);
    }
    let whole = AggregateExec::try_new(
        AggregateMode::Single,
        first.group_expr().clone(),
        calls.to_vec(),
        first.filter_expr().to_vec(),
        Arc::clone(first.input()),
        schema,
    )?;
    let adds_any_width = calls.iter().map(|call| adds_any_width(call)).collect();
    let (schema, properties) = (plan.schema(), Arc::clone(plan.properties()));
    let whole = SpillingAggregateExec::new(whole, adds_any_width, schema, dealt_by, properties);
    Ok(Some(Arc::new(whole)))
}

/// The aggregation of parts of the rows of each group, where a plan is one.
fn first_phase(plan: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    let first = plan.downcast_ref::<AggregateExec>()?;
    (*first.mode() == AggregateMode::Partial && is_plain(first)).then_some(first)
}

/// Whether all that an aggregation does is to put rows into groups by their keys.
fn is_plain(aggregation: &AggregateExec) -> bool {
    aggregation.limit_options().is_none()
        && *aggregation.input_order_mode() == InputOrderMode::Linear
        && !aggregation.input().boundedness().is_unbounded()
}

impl PhysicalOptimizerRule for SpillingAggregates {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_on = config.extensions.get::<ForRules>().is_some_and(|rules| rules.spills_groups);
        if !is_on {
            return Ok(plan);
        }
        plan.transform_down(|plan| {
            Ok(spilling(&plan)?.map_or_else(|| Transformed::no(plan), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &str {
        "spilling_aggregates"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
