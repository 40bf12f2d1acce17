//! Scans of which a sort wants the first few rows read those parts first that may have them.
//!
//! ```text
//! SortExec: TopK(fetch=10), expr=[a DESC]      no row beyond the ten that are first so far
//!   …                                            │
//!     DataSourceExec: a, text            ──►     ▼
//!                                              the same, first_by=a DESC: batches and row groups with the greatest a first
//! ```
//!
//! The sort tells what it has seen as a condition on its keys, which DataFusion's rules have brought to each scan that it can be
//! asked of: below joins, projections and filters. There the keys are columns of the scan.

use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;

use super::operators::with_others;
use crate::first_by::FirstBy;
use crate::pages;
use crate::storage::TableScan;

/// The rule; see the header of this file. After scans and sorts are those that run.
#[derive(Debug)]
pub(crate) struct FirstParts;

impl PhysicalOptimizerRule for FirstParts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let asked = asked(&plan)?;
        if asked.is_empty() {
            return Ok(plan);
        }
        with_others(plan, &mut |plan| {
            let scan = plan.downcast_ref::<DataSourceExec>();
            Ok(scan.and_then(|scan| with_parts(scan, &|condition| first_by(&asked, condition))))
        })
    }

    fn name(&self) -> &str {
        "first_parts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The conditions by which sorts tell what they have seen, and how the first key of each orders.
fn asked(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<(u64, SortOptions)>> {
    let mut asked = Vec::new();
    plan.apply(|plan| {
        if let Some(sort) = plan.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_some()) {
            let told = sort.dynamic_expressions_produced();
            let told = told.first().and_then(|told| told.expression_id());
            asked.extend(told.map(|told| (told, sort.expr().first().options)));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(asked)
}

/// What a condition of a scan says of the order that is asked for, where a sort tells it and its first key is a column.
fn first_by(asked: &[(u64, SortOptions)], condition: &Arc<dyn PhysicalExpr>) -> Option<FirstBy> {
    let told = condition.expression_id()?;
    let &(_, options) = asked.iter().find(|(of, _)| *of == told)?;
    let column = condition.children().first()?.downcast_ref::<Column>()?.clone();
    Some(FirstBy { column, options })
}

fn with_parts(
    scan: &DataSourceExec,
    of: &dyn Fn(&Arc<dyn PhysicalExpr>) -> Option<FirstBy>,
) -> Option<Arc<dyn ExecutionPlan>> {
    match scan.data_source().downcast_ref::<TableScan>() {
        Some(table) => Some(Arc::new(scan.clone().with_data_source(Arc::new(table.first_by(of)?)))),
        None => pages::first_by(scan, of),
    }
}
