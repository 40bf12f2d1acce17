//! Sums of products of many pairs of columns are cells of a Gram matrix, and are computed as one.
//!
//! ```text
//! Aggregate: sum(x * x), sum(x * y), …, count(*)     Projection: pair_sums['pair_0'], …, count(*)
//!   …                                                  Aggregate: pair_sums(x, y, …), count(*)
//!                                             ──►        Projection: x, y, …
//!                                                          …
//! ```
//!
//! In 64-bit floats alone, for the products of other types may be too large for theirs, each by itself.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator,
    Projection, col,
};
use datafusion::optimizer::OptimizerConfig;

use crate::functions::pair_sums;

/// Sums of products from which on they are worth an aggregate of their own.
const PAIRS_MIN: usize = 4;

/// The rule; see the header of this file.
pub(super) fn rewrite(
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
    let found: Vec<_> = aggregate.aggr_expr.iter().map(|call| product(call, aggregate)).collect();
    if !aggregate.group_expr.is_empty() || found.iter().flatten().count() < PAIRS_MIN {
        return Ok(Transformed::no(plan));
    }
    let mut columns = Columns::default();
    let name = config.alias_generator().next("__pair_sums");
    let mut pairs = Vec::new();
    let mut calls = Vec::new();
    let mut results = Vec::new();
    for (call, found) in aggregate.aggr_expr.iter().zip(found) {
        results.push(match found {
            Some((x, y)) => {
                pairs.push((columns.place(x), columns.place(y)));
                get_field(col(&name), pair_sums::field(pairs.len() - 1))
            }
            None => {
                calls.push(call.clone());
                Expr::Column(Column::from_name(call.schema_name().to_string()))
            }
        });
    }
    let (arguments, input) = columns.over(&aggregate.input, &name)?;
    calls.push(pair_sums::pair_sums(pairs).call(arguments).alias(&name));
    let summed = Aggregate::try_new(Arc::new(input), Vec::new(), calls)?;
    let results = results
        .into_iter()
        .zip(aggregate.schema.columns())
        .map(|(result, column)| result.alias_qualified(column.relation, column.name));
    let summed = Arc::new(LogicalPlan::Aggregate(summed));
    let schema = Arc::clone(&aggregate.schema);
    let projection = Projection::try_new_with_schema(results.collect(), summed, schema)?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

/// The factors of a sum of products of two numbers in 64 bits.
fn product<'a>(call: &'a Expr, aggregate: &Aggregate) -> Option<(&'a Expr, &'a Expr)> {
    let call = match call {
        Expr::Alias(alias) => alias.expr.as_ref(),
        call => call,
    };
    let Expr::AggregateFunction(AggregateFunction { func, params }) = call else { return None };
    let plain = !params.distinct
        && params.filter.is_none()
        && params.order_by.is_empty()
        && params.null_treatment.is_none();
    let [Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply, right })] = &params.args[..]
    else {
        return None;
    };
    let fits = |factor: &Expr| {
        !factor.is_volatile()
            && factor.get_type(aggregate.input.schema()).is_ok_and(|of| of == DataType::Float64)
    };
    (func.name() == "sum" && plain && fits(left) && fits(right)).then_some((left, right))
}

/// The factors, each once.
#[derive(Default)]
struct Columns(Vec<Expr>);

impl Columns {
    fn place(&mut self, factor: &Expr) -> usize {
        self.0.iter().position(|other| other == factor).unwrap_or_else(|| {
            self.0.push(factor.clone());
            self.0.len() - 1
        })
    }
    /// The factors as columns, and the rows that have them.
    fn over(self, input: &LogicalPlan, name: &str) -> Result<(Vec<Expr>, LogicalPlan)> {
        let mut projected: Vec<Expr> =
            input.schema().columns().into_iter().map(Expr::Column).collect();
        let given = projected.len();
        let mut argument = |factor: Expr| {
            if matches!(factor, Expr::Column(_)) {
                return factor;
            }
            let name = format!("{name}_{}", projected.len() - given);
            projected.push(factor.alias(&name));
            col(name)
        };
        let arguments: Vec<Expr> = self.0.into_iter().map(&mut argument).collect();
        if projected.len() == given {
            return Ok((arguments, input.clone()));
        }
        Ok((arguments, LogicalPlanBuilder::from(input.clone()).project(projected)?.build()?))
    }
}
