//! Projections that only put columns in another order, dropped where who reads them names what it reads.
//!
//! ```text
//! Aggregate: groupBy=[a.x], sum(b.y)          Aggregate: groupBy=[a.x], sum(b.y)
//!   Projection: a.x, a.z, b.y, b.z     ──►      Inner Join: b.z = a.z
//!     Inner Join: b.z = a.z                       …
//!       …
//! ```
//!
//! Theirs is the order of FROM, which nobody asks for there: above joins that were reordered, by this rule, and by DataFusion's for
//! relations that stand side by side in FROM and that no condition joins. All their columns would count as asked for (`values`).

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{LogicalPlan, Projection};

use super::graph::only_drops;

/// Whether the order of a plan's columns matters to what is above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Kept,
    Free,
}

/// A plan without such projections, whose own columns stay in their order.
pub(super) fn dropped(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    dropped_from(plan, Order::Kept)
}

fn dropped_from(plan: LogicalPlan, order: Order) -> Result<Transformed<LogicalPlan>> {
    let order = match plan {
        LogicalPlan::Projection(projection) if order == Order::Free && permutes(&projection) => {
            let input = Arc::unwrap_or_clone(projection.input);
            return dropped_from(input, order).map(|input| Transformed::yes(input.data));
        }
        LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => Order::Free,
        LogicalPlan::Join(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_) => order,
        _ => Order::Kept,
    };
    let dropped = plan
        .map_uncorrelated_subqueries(dropped)?
        .transform_sibling(|plan| plan.map_children(|plan| dropped_from(plan, order)))?;
    match dropped.transformed {
        true => dropped.map_data(LogicalPlan::recompute_schema),
        false => Ok(dropped),
    }
}

/// Whether a projection has all columns that it reads, and nothing else.
fn permutes(projection: &Projection) -> bool {
    let sorted = |schema: &DFSchema| {
        let mut columns = schema.columns();
        columns.sort_unstable();
        columns
    };
    only_drops(projection)
        && projection.expr.len() == projection.input.schema().fields().len()
        && sorted(&projection.schema) == sorted(projection.input.schema())
}
