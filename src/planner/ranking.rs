//! Conditions that let through the first few rows of each group.
//!
//! ```text
//! Filter place <= 10
//!   Window row_number() OVER (PARTITION BY … ORDER BY …) place
//! ```

use std::sync::Arc;

use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::expr::{Sort as SortKey, WindowFunction};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, LogicalPlan, Operator, Window, WindowFunctionDefinition,
};

/// What such a condition asks for.
pub(super) struct Ranking<'a> {
    /// The condition, and what is between it and the window.
    above: Vec<&'a LogicalPlan>,
    pub(super) window: &'a Window,
    pub(super) count: usize,
    pub(super) partition_by: &'a [Expr],
    pub(super) order_by: &'a [SortKey],
    /// Whether rows that none of the keys puts in an order have one number.
    pub(super) has_ties: bool,
}

impl Ranking<'_> {
    /// The condition over the same window of other rows.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn over(&self, rows: LogicalPlan) -> Result<LogicalPlan> {
        let window = LogicalPlan::Window(Window { input: Arc::new(rows), ..self.window.clone() });
        self.above
            .iter()
            .rev()
            .try_fold(window, |input, plan| plan.with_new_exprs(plan.expressions(), vec![input]))
    }
}

/// What a condition asks for of a window that has nothing else to do than to number its rows.
pub(super) fn ranking(plan: &LogicalPlan) -> Option<Ranking<'_>> {
    let LogicalPlan::Filter(filter) = plan else { return None };
    let mut above = vec![plan];
    let (window, projection) = match filter.input.as_ref() {
        LogicalPlan::Window(window) => (window, None),
        // Columns that only the window reads end here.
        between @ LogicalPlan::Projection(projection) => {
            let LogicalPlan::Window(window) = projection.input.as_ref() else { return None };
            above.push(between);
            (window, Some(projection))
        }
        _ => return None,
    };
    let [expression] = &window.window_expr[..] else { return None };
    let Expr::WindowFunction(function) = unaliased(expression) else { return None };
    let WindowFunction { fun: WindowFunctionDefinition::WindowUDF(udf), params } =
        function.as_ref()
    else {
        return None;
    };
    let has_ties = match udf.name() {
        "row_number" => false,
        "rank" => true,
        _ => return None,
    };
    if params.filter.is_some() {
        return None;
    }
    let number = window.schema.columns().pop()?;
    let number = match projection {
        Some(projection) => {
            let at = projection
                .expr
                .iter()
                .position(|expr| *unaliased(expr) == number.clone().into())?;
            projection.schema.columns().swap_remove(at)
        }
        None => number,
    };
    let conditions = split_conjunction(&filter.predicate).into_iter();
    let count = conditions.filter_map(|condition| bound(condition, &number)).min()?;
    let (partition_by, order_by) = (&params.partition_by[..], &params.order_by[..]);
    Some(Ranking { above, window, count, partition_by, order_by, has_ties })
}

fn unaliased(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// The largest number that a condition on a column lets through.
fn bound(condition: &Expr, number: &Column) -> Option<usize> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
    let (Expr::Column(column), Expr::Literal(limit, _)) = (left.as_ref(), right.as_ref()) else {
        return None;
    };
    let limit = match limit {
        ScalarValue::UInt64(Some(limit)) => usize::try_from(*limit).ok()?,
        ScalarValue::Int64(Some(limit)) => usize::try_from(*limit).ok()?,
        _ => return None,
    };
    match op {
        _ if column != number => None,
        Operator::LtEq | Operator::Eq => Some(limit),
        Operator::Lt => limit.checked_sub(1),
        _ => None,
    }
}
