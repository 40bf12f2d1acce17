//! Keys of sets of groups that are computed, as `ROLLUP (day + 5)`, have names of their own before types are made alike: DataFusion
//! keeps the name of a whole set, which is that of its keys, by giving it another, and then no key has any.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// The rule of DataFusion's before which this one runs; after that which looks for keys as they are written.
pub(super) const BEFORE: &str = "type_coercion";

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct NamedKeys;

impl AnalyzerRule for NamedKeys {
    fn name(&self) -> &str {
        "named_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Aggregate(aggregate) = node else { return Ok(Transformed::no(node)) };
            let [Expr::GroupingSet(_)] = &aggregate.group_expr[..] else {
                return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
            };
            let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
            let set = group_expr.into_iter().map(|set| set.map_children(named).data());
            let set = set.collect::<Result<_>>()?;
            let aggregate = Aggregate::try_new(Arc::clone(&input), set, aggr_expr)?;
            Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
        })
        .data()
    }
}

fn named(key: Expr) -> Result<Transformed<Expr>> {
    if matches!(key, Expr::Column(_) | Expr::Alias(_)) {
        return Ok(Transformed::no(key));
    }
    let name = key.schema_name().to_string();
    Ok(Transformed::yes(key.alias(name)))
}
