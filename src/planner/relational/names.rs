//! The names of expressions that are rewritten within a node, by which nodes above know them.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// The node with other expressions of the same names.
///
/// # Errors
/// Those of the change.
pub(super) fn rewritten(
    node: LogicalPlan,
    mut change: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&node);
    node.map_expressions(|expression| named(&names, expression, &mut change))
}

/// Another expression of the same name. Of sets of groups each key has a name, and the whole has none.
///
/// # Errors
/// Those of the change.
pub(super) fn named(
    names: &NamePreserver,
    expression: Expr,
    change: &mut impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<Expr>> {
    if matches!(expression, Expr::GroupingSet(_)) {
        return expression.map_children(|key| named(names, key, change));
    }
    let name = names.save(&expression);
    Ok(change(expression)?.update_data(|changed| name.restore(changed)))
}
