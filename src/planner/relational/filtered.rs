//! A window aggregate with FILTER becomes one of values that are NULL where the condition does not hold.
//!
//! ```text
//! sum(v) FILTER (WHERE c) OVER w    ──►    sum(CASE WHEN c THEN v END) OVER w
//! ```
//!
//! DataFusion's physical windows keep their conditions to themselves, so ours could not make them.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Window, WindowFunctionDefinition, when};
use datafusion::optimizer::OptimizerConfig;

/// Aggregates for which a NULL is as good as no row.
const WITHOUT_NULLS: [&str; 5] = ["count", "sum", "avg", "min", "max"];

/// The rule; see the header of this file.
pub(super) fn rewrite(
    plan: LogicalPlan,
    _config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Window(Window { input, window_expr, schema }) = plan else {
        return Ok(Transformed::no(plan));
    };
    let mut any = false;
    let expressions = window_expr.into_iter().map(|expression| {
        let name = NamePreserver::new_for_projection().save(&expression);
        let unfiltered = expression.clone().unalias();
        Ok(match without_filter(unfiltered)? {
            Some(rewritten) => {
                any = true;
                name.restore(rewritten)
            }
            None => expression,
        })
    });
    let window_expr = expressions.collect::<Result<Vec<_>>>()?;
    let plan = LogicalPlan::Window(Window { input, window_expr, schema });
    Ok(if any { Transformed::yes(plan) } else { Transformed::no(plan) })
}

/// The same without FILTER; nothing where there is none, or NULLs are values.
fn without_filter(expression: Expr) -> Result<Option<Expr>> {
    let Expr::WindowFunction(window) = expression else { return Ok(None) };
    let WindowFunction { fun, params } = *window;
    let is_known = match &fun {
        WindowFunctionDefinition::AggregateUDF(function) => {
            WITHOUT_NULLS.contains(&function.name())
        }
        WindowFunctionDefinition::WindowUDF(_) => false,
    };
    let WindowFunctionParams { mut args, filter: Some(condition), .. } = params.clone() else {
        return Ok(None);
    };
    let Some(first) = args.first_mut().filter(|_| is_known) else { return Ok(None) };
    *first = when(*condition, first.clone()).end()?;
    let params = WindowFunctionParams { args, filter: None, ..params };
    Ok(Some(Expr::from(WindowFunction { fun, params })))
}
