//! Texts that are put together in several orders, as `string_agg(a, ',' ORDER BY a), string_agg(b, ',' ORDER BY b)`.
//!
//! DataFusion sorts the rows of an aggregation once, for all aggregates that depend on their order, and refuses those that differ. A
//! list is put in order by itself, so where orders differ texts are put together from lists:
//!
//! ```text
//! string_agg(a, ',' ORDER BY a)   ──►   array_to_string(array_agg(a ORDER BY a) FILTER (WHERE a IS NOT NULL), ',')
//! ```

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::config::ConfigOptions;
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_nested::string::array_to_string;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast,
};
use datafusion::optimizer::AnalyzerRule;

/// The rule. After the types of all arguments are known.
#[derive(Debug)]
pub(super) struct TextsInOrders;

impl AnalyzerRule for TextsInOrders {
    fn name(&self) -> &str {
        "texts_in_orders"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(aggregate) if has_several_orders(&aggregate) => {
                of_lists(aggregate).map(Transformed::yes)
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

/// The aggregate, if it puts texts together in an order.
fn in_order(expression: &Expr) -> Option<&AggregateFunction> {
    match expression {
        Expr::Alias(alias) => in_order(&alias.expr),
        Expr::AggregateFunction(function) => {
            let is_ordered = !function.params.order_by.is_empty();
            (is_ordered && function.func.name() == "string_agg").then_some(function)
        }
        _ => None,
    }
}

fn has_several_orders(aggregate: &Aggregate) -> bool {
    let mut orders = aggregate.aggr_expr.iter().filter_map(in_order);
    let first = orders.next().map(|function| &function.params.order_by);
    orders.any(|function| Some(&function.params.order_by) != first)
}

/// The aggregation with lists in the places of texts, and above it the texts.
fn of_lists(aggregate: Aggregate) -> Result<LogicalPlan> {
    let keys_count = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let mut separators = vec![None; aggregate.schema.fields().len()];
    let mut lists = Vec::with_capacity(aggregate.aggr_expr.len());
    for (at, expression) in aggregate.aggr_expr.iter().enumerate() {
        lists.push(match in_order(expression).map(|function| function.params.clone()) {
            Some(mut params) if params.args.len() == 2 => {
                separators[keys_count + at] = params.args.pop();
                let is_value = params.args[0].clone().is_not_null();
                params.filter = Some(Box::new(match params.filter.take() {
                    Some(filter) => filter.and(is_value),
                    None => is_value,
                }));
                let list = AggregateFunction { func: array_agg_udaf(), params };
                Expr::AggregateFunction(list).alias(format!("__list_{at}"))
            }
            _ => expression.clone(),
        });
    }
    let of_lists = Aggregate::try_new(aggregate.input, aggregate.group_expr, lists)?;
    let columns = of_lists.schema.columns().into_iter().map(Expr::Column).zip(separators);
    let columns =
        columns.zip(aggregate.schema.iter()).map(|((column, separator), (relation, field))| {
            let Some(separator) = separator else { return Ok(column) };
            let text = array_to_string(column, separator);
            let text = if text.get_type(&of_lists.schema)? == *field.data_type() {
                text
            } else {
                cast(text, field.data_type().clone())
            };
            Ok(text.alias_qualified(relation.cloned(), field.name()))
        });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    LogicalPlanBuilder::from(LogicalPlan::Aggregate(of_lists)).project(columns)?.build()
}
