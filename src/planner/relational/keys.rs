//! Join keys of one meaning: NULL equals NULL for all of them, or for none.
//!
//! A join over `a IS NOT DISTINCT FROM b` holds NULL equal to NULL. Two of DataFusion's rules would make keys
//! of the `=` in its filter and in filters above it too, which would then hold for NULLs.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// A rule of DataFusion's, kept from joins in which NULL equals NULL if it would add keys to them.
pub(super) fn of_one_meaning(rule: Rule) -> Rule {
    match rule.name() {
        "extract_equijoin_predicate" | "eliminate_cross_join" => Arc::new(OfOneMeaning(rule)),
        _ => rule,
    }
}

#[derive(Debug)]
struct OfOneMeaning(Rule);

impl OptimizerRule for OfOneMeaning {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if self.meets_equal_nulls(&plan)? {
            return Ok(Transformed::no(plan));
        }
        self.0.rewrite(plan, config)
    }
}

impl OfOneMeaning {
    /// Whether the rule would meet a join that holds NULL equal to NULL: at this node, or below it where the
    /// rule goes there by itself. Outer joins keep their keys.
    fn meets_equal_nulls(&self, plan: &LogicalPlan) -> Result<bool> {
        let holds = |plan: &LogicalPlan| match plan {
            LogicalPlan::Join(join) => {
                join.null_equality == NullEquality::NullEqualsNull
                    && (join.join_type == JoinType::Inner || self.apply_order().is_some())
            }
            _ => false,
        };
        match self.apply_order() {
            Some(_) => Ok(holds(plan)),
            None => plan.exists(|node| Ok(holds(node))),
        }
    }
}
