//! Integer arithmetic in aggregates and windows is computed in a projection below them, where it is checked.
//!
//! ```text
//! Aggregate: sum(v * v)      Aggregate: sum(__integer_1)
//!   t                  ──►     Projection: …, v * v AS __integer_1
//!                                t
//! ```
//!
//! DataFusion computes what stands in these nodes itself, with operators that wrap around. What is asked of some rows only, by
//! `CASE` or FILTER, is computed of these: it goes below with its condition.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder, Projection, Window, col, when,
};
use datafusion::optimizer::OptimizerConfig;

use super::overflow::may_overflow;

/// The rule; see the header of this file.
pub(super) fn rewrite(
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let (LogicalPlan::Aggregate(Aggregate { input, .. })
    | LogicalPlan::Window(Window { input, .. })) = &plan
    else {
        return Ok(Transformed::no(plan));
    };
    let mut lifted = Lifted { schema: input.schema(), config, computed: Vec::new() };
    let rewritten = match &plan {
        LogicalPlan::Aggregate(aggregate) => {
            let group_expr = lifted.all(&aggregate.group_expr)?;
            let aggr_expr = lifted.all(&aggregate.aggr_expr)?;
            let Some(input) = lifted.below(input)? else { return Ok(Transformed::no(plan)) };
            let schema = Arc::clone(&aggregate.schema);
            let aggregate =
                Aggregate::try_new_with_schema(Arc::new(input), group_expr, aggr_expr, schema)?;
            LogicalPlan::Aggregate(aggregate)
        }
        LogicalPlan::Window(window) => {
            let expressions = lifted.all(&window.window_expr)?;
            let Some(input) = lifted.below(input)? else { return Ok(Transformed::no(plan)) };
            let above = Window::try_new(expressions, Arc::new(input))?;
            // Without what was computed for it.
            let schema = Arc::clone(&window.schema);
            let above = Arc::new(LogicalPlan::Window(above));
            LogicalPlan::Projection(Projection::new_from_schema(above, schema))
        }
        _ => return Ok(Transformed::no(plan)),
    };
    Ok(Transformed::yes(rewritten))
}

/// What is computed below a node.
struct Lifted<'a> {
    schema: &'a DFSchemaRef,
    config: &'a dyn OptimizerConfig,
    computed: Vec<(Expr, String)>,
}

impl Lifted<'_> {
    fn all(&mut self, expressions: &[Expr]) -> Result<Vec<Expr>> {
        expressions.iter().map(|expression| self.named(expression)).collect()
    }

    /// An expression that reads what is computed below, under the name that it has.
    fn named(&mut self, expression: &Expr) -> Result<Expr> {
        let mut each = |expressions: &[Expr]| self.all(expressions);
        let set = match expression {
            Expr::GroupingSet(GroupingSet::Rollup(keys)) => GroupingSet::Rollup(each(keys)?),
            Expr::GroupingSet(GroupingSet::Cube(keys)) => GroupingSet::Cube(each(keys)?),
            Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
                let sets = sets.iter().map(|keys| each(keys)).collect::<Result<_>>()?;
                GroupingSet::GroupingSets(sets)
            }
            plain => {
                let name = NamePreserver::new_for_projection().save(plain);
                let replaced = plain.clone().transform_down(|inner| {
                    self.guarded(inner)?.transform_data(|inner| self.replaced(inner))
                })?;
                return Ok(if replaced.transformed {
                    name.restore(replaced.data)
                } else {
                    replaced.data
                });
            }
        };
        Ok(Expr::GroupingSet(set))
    }

    /// An aggregate that reads nothing of rows that it leaves out, where that could fail.
    fn guarded(&self, expression: Expr) -> Result<Transformed<Expr>> {
        let (args, filter) = match &expression {
            Expr::AggregateFunction(call) => (&call.params.args, &call.params.filter),
            Expr::WindowFunction(call) => (&call.params.args, &call.params.filter),
            _ => return Ok(Transformed::no(expression)),
        };
        let Some(filter) = filter.clone().filter(|_| args.iter().any(|arg| self.may_fail(arg)))
        else {
            return Ok(Transformed::no(expression));
        };
        let guarded = |arg: Expr| match self.may_fail(&arg) {
            true => when(filter.as_ref().clone(), arg).end(),
            false => Ok(arg),
        };
        let guard = |args: &mut Vec<Expr>| -> Result<()> {
            *args = std::mem::take(args).into_iter().map(guarded).collect::<Result<_>>()?;
            Ok(())
        };
        let mut expression = expression;
        match &mut expression {
            Expr::AggregateFunction(call) => guard(&mut call.params.args)?,
            Expr::WindowFunction(call) => guard(&mut call.params.args)?,
            _ => {}
        }
        Ok(Transformed::yes(expression))
    }

    fn may_fail(&self, expression: &Expr) -> bool {
        // Expressions are walked without failing.
        expression.exists(|inner| Ok(may_overflow(inner, self.schema))).unwrap_or(true)
    }

    fn replaced(&mut self, expression: Expr) -> Result<Transformed<Expr>> {
        let is_conditional = match &expression {
            Expr::Case(_) => true,
            Expr::ScalarFunction(call) => call.func.short_circuits(),
            _ => false,
        };
        let is_lifted = match is_conditional {
            true => self.may_fail(&expression),
            false => may_overflow(&expression, self.schema),
        };
        if !is_lifted {
            return Ok(Transformed::no(expression));
        }
        let known = self.computed.iter().find(|(computed, _)| *computed == expression);
        let name = known.map(|(_, name)| name.clone()).unwrap_or_else(|| {
            let name = self.config.alias_generator().next("__integer");
            self.computed.push((expression, name.clone()));
            name
        });
        Ok(Transformed::new(col(name), true, TreeNodeRecursion::Jump))
    }

    /// The input with what is computed of it; nothing where nothing is.
    fn below(self, input: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        if self.computed.is_empty() {
            return Ok(None);
        }
        let computed = self.computed.into_iter().map(|(computed, name)| computed.alias(name));
        let columns = self.schema.columns().into_iter().map(Expr::Column);
        let all: Vec<Expr> = columns.chain(computed).collect();
        LogicalPlanBuilder::from(input.clone()).project(all)?.build().map(Some)
    }
}
