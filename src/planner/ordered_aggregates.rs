//! Texts and lists that are put together in an order, of rows that come in it: groups one after another, each in order.
//!
//! ```text
//! AggregateExec: mode=FinalPartitioned, gby=[k]             AggregateExec: mode=SinglePartitioned, gby=[k], array_agg(v)
//!   RepartitionExec: Hash([k], n)                     ──►     SortExec: [k, o]
//!     AggregateExec: mode=Partial, array_agg(v ORDER BY o)      RepartitionExec: Hash([k], n)
//!       SortExec: [o]                                             …
//!         …
//! ```
//!
//! DataFusion keeps the values of each group with their keys, one by one, and merges those of its parts. Of rows in order a
//! group is its values as they come, and leaves with its last row, so that what is held is a batch of groups: the sort writes
//! files where there are too many rows. Without keys the rows of all partitions are sorted once.
//!
//! What of an aggregation has the order that most have it takes from the rows; all else is as before, and left to itself are
//! aggregations of which an operator needs another order, grouping sets, and keys whose order tells apart what is one group, as
//! both zeros. Enters: a plan in which DataFusion has put all sorts. Leaves: one with the same columns, partitions and orders.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};

use super::operators::with_others;
use crate::config::ForRules;
use crate::exec::relational::aggregate::{Knows, knows};

/// Aggregates that append each value to those before, and sort them by themselves where they are given an order.
const APPENDING: [&str; 2] = ["array_agg", "string_agg"];

/// The rule; see the header of this file. Before sorts, aggregations and what these compute are replaced.
#[derive(Debug)]
pub(crate) struct OrderedAggregates;

type Operator = Arc<dyn ExecutionPlan>;
type Call = Arc<AggregateFunctionExpr>;

/// How the rows of a group come together.
enum Together {
    /// They are in one partition of the input.
    Already,
    /// All rows do.
    All,
    /// By a hash of keys, of the input's rows.
    ByHash(Partitioning),
}

impl PhysicalOptimizerRule for OrderedAggregates {
    fn optimize(&self, plan: Operator, config: &ConfigOptions) -> Result<Operator> {
        let is_on = config.extensions.get::<ForRules>().is_some_and(|rules| rules.spills_groups);
        if !is_on {
            return Ok(plan);
        }
        with_others(plan, &mut of_ordered_rows)
    }

    fn name(&self) -> &str {
        "ordered_aggregates"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The aggregation of rows in order that stands for a plan, if there is one.
fn of_ordered_rows(plan: &Operator) -> Result<Option<Operator>> {
    let Some((first, together)) = plan.downcast_ref::<AggregateExec>().and_then(phases) else {
        return Ok(None);
    };
    let Some(order) = order_of_most(first.aggr_expr()) else { return Ok(None) };
    let columns = plan.schema();
    let names = columns.fields().iter().skip(first.group_expr().expr().len());
    let names: Vec<&str> = names.map(|field| field.name().as_str()).collect();
    let Some(calls) = in_order(first, &names, &order)? else { return Ok(None) };
    let keys = first.group_expr().input_exprs();
    if !are_told_apart_by_order(&keys, &first.input_schema())? {
        return Ok(None);
    }
    let rows = ordered(first, &keys, &order, together)?;
    let mode = match rows.output_partitioning().partition_count() {
        1 => AggregateMode::Single,
        _ => AggregateMode::SinglePartitioned,
    };
    let (keys, filters) = (first.group_expr().clone(), first.filter_expr().to_vec());
    let schema = first.input_schema();
    let whole = Arc::new(AggregateExec::try_new(mode, keys, calls, filters, rows, schema)?);
    Ok(stands_for(&whole, plan)?.then_some(whole as _))
}

/// The aggregation that reads the rows, and how those of a group come together, of the last phase of one.
fn phases(last: &AggregateExec) -> Option<(&AggregateExec, Together)> {
    let (first, together) = match last.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => (last, Together::Already),
        AggregateMode::Final | AggregateMode::FinalPartitioned => {
            let below = last.input();
            let exchange = below.downcast_ref::<RepartitionExec>();
            let is_gathered =
                below.is::<CoalescePartitionsExec>() || below.is::<SortPreservingMergeExec>();
            let gathered = below.children().into_iter().next().filter(|_| is_gathered);
            let input = exchange.map(RepartitionExec::input).or(gathered).unwrap_or(below);
            let first = input.downcast_ref::<AggregateExec>();
            let first = first.filter(|first| *first.mode() == AggregateMode::Partial)?;
            let together = match exchange {
                Some(exchange) => Together::ByHash(of_rows(exchange.partitioning(), first)?),
                None if is_gathered => Together::All,
                None => Together::Already,
            };
            (first, together)
        }
        AggregateMode::Partial | AggregateMode::PartialReduce => return None,
    };
    let is_plain = [last, first].iter().all(|one| one.limit_options().is_none());
    let is_bounded = !first.input().boundedness().is_unbounded();
    (is_plain && is_bounded && first.group_expr().is_single()).then_some((first, together))
}

/// Where an exchange of groups puts the rows of each.
fn of_rows(partitioning: &Partitioning, first: &AggregateExec) -> Option<Partitioning> {
    let Partitioning::Hash(by, partitions) = partitioning else { return None };
    let keys = first.group_expr().input_exprs();
    let of_rows =
        |key: &Arc<dyn PhysicalExpr>| keys.get(key.downcast_ref::<Column>()?.index()).cloned();
    Some(Partitioning::Hash(by.iter().map(of_rows).collect::<Option<_>>()?, *partitions))
}

/// The order in which most aggregates want their values, if any do.
fn order_of_most(calls: &[Call]) -> Option<LexOrdering> {
    let orders = calls.iter().filter(|call| appends(call) && !call.is_distinct());
    let orders: Vec<_> = orders.map(asked).filter(|order| !order.is_empty()).collect();
    let in_it = |order: &[_]| orders.iter().filter(|other| order.starts_with(other)).count();
    LexOrdering::new(orders.iter().max_by_key(|order| in_it(order))?.clone())
}

fn appends(call: &Call) -> bool {
    APPENDING.contains(&call.fun().name())
}

/// The order that a statement asks for: DataFusion may have turned it round, and what is made of it too.
fn asked(call: &Call) -> Vec<PhysicalSortExpr> {
    let turned = |by: &PhysicalSortExpr| if call.is_reversed() { by.reverse() } else { by.clone() };
    call.order_bys().iter().map(turned).collect()
}

/// The aggregates over rows in this order; none where there is one of them that needs another.
fn in_order(
    first: &AggregateExec,
    names: &[&str],
    order: &LexOrdering,
) -> Result<Option<Vec<Call>>> {
    let mut calls = Vec::with_capacity(names.len());
    for (call, name) in first.aggr_expr().iter().zip(names) {
        let order_by = asked(call);
        let comes = order.starts_with(&order_by);
        if order_by.is_empty() {
            // Without keys it would be an operator of ours that aggregates, which may put what it has written in another order.
            let has_keys = !first.group_expr().is_true_no_grouping();
            if !has_keys && matches!(knows(call), Some(Knows::Values { .. })) {
                return Ok(None);
            }
            calls.push(Arc::clone(call));
        } else if appends(call) && !call.is_distinct() && comes {
            calls.push(Arc::new(without_order(call, name, first.input_schema())?));
        } else {
            let is_beneficial = call.order_sensitivity() == AggregateOrderSensitivity::Beneficial;
            if !appends(call) && !is_beneficial && !comes {
                return Ok(None);
            }
            let turned = if call.is_reversed() { call.reverse_expr().map(Arc::new) } else { None };
            let call = turned.unwrap_or_else(|| Arc::clone(call));
            let told = Arc::clone(&call).with_beneficial_ordering(comes)?;
            calls.push(told.map_or(call, Arc::new));
        }
    }
    Ok(Some(calls))
}

/// An aggregate that takes values as they come, with the name and the description of the one that sorts them.
fn without_order(call: &Call, name: &str, schema: SchemaRef) -> Result<AggregateFunctionExpr> {
    let mut plain = AggregateExprBuilder::new(Arc::new(call.fun().clone()), call.expressions())
        .schema(schema)
        .alias(name)
        .with_ignore_nulls(call.ignore_nulls());
    if let Some(display) = call.human_display() {
        plain = plain.human_display(display);
    }
    if let Some(alias) = call.human_display_alias() {
        plain = plain.human_display_alias(alias);
    }
    plain.build()
}

/// Whether rows are of one group where, and only where, no order of their keys tells them apart.
fn are_told_apart_by_order(keys: &[Arc<dyn PhysicalExpr>], schema: &SchemaRef) -> Result<bool> {
    for key in keys {
        let data_type = match key.data_type(schema)? {
            DataType::Dictionary(_, values) => *values,
            data_type => data_type,
        };
        if data_type.is_floating() || data_type.is_nested() || is_volatile(key) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The rows of an aggregation, those of a group together, by their keys and then in this order.
fn ordered(
    first: &AggregateExec,
    keys: &[Arc<dyn PhysicalExpr>],
    order: &LexOrdering,
    together: Together,
) -> Result<Operator> {
    let rows = unsorted(first.input())?;
    let gathers_all = matches!(together, Together::All);
    let rows = match together {
        Together::ByHash(partitioning) => Arc::new(RepartitionExec::try_new(rows, partitioning)?),
        Together::Already | Together::All => rows,
    };
    // Keys in whose order the rows come stay the first ones.
    let (mut by, _) = rows.equivalence_properties().find_longest_permutation(keys)?;
    let options = SortOptions { descending: false, nulls_first: false };
    by.extend(keys.iter().map(|key| PhysicalSortExpr::new(Arc::clone(key), options)));
    by.extend(order.iter().cloned());
    let Some(by) = LexOrdering::new(by) else { return Ok(rows) };
    let partitions = rows.output_partitioning().partition_count();
    let rows = match rows.equivalence_properties().ordering_satisfy(by.clone())? {
        true => rows,
        false => {
            let sort = SortExec::new(by.clone(), rows);
            Arc::new(sort.with_preserve_partitioning(partitions > 1))
        }
    };
    Ok(match gathers_all && partitions > 1 {
        true => Arc::new(SortPreservingMergeExec::new(by, rows)),
        false => rows,
    })
}

/// The same rows without the sorts that DataFusion has put below an aggregation for its orders.
fn unsorted(rows: &Operator) -> Result<Operator> {
    if let Some(sort) = rows.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_none()) {
        return Ok(Arc::clone(sort.input()));
    }
    if !rows.is::<ProjectionExec>() && !rows.is::<UnionExec>() {
        return Ok(Arc::clone(rows));
    }
    let inputs = rows.children().into_iter().map(unsorted).collect::<Result<Vec<_>>>()?;
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(rows).replace_children(inputs, options)
}

/// Whether an aggregation of ordered rows sees each group as a whole, and those above a plan may have it in its place.
fn stands_for(whole: &AggregateExec, plan: &Operator) -> Result<bool> {
    let is_whole = whole.group_expr().is_true_no_grouping()
        || *whole.input_order_mode() == InputOrderMode::Sorted;
    let order = plan.output_ordering().cloned();
    let has_order = match order {
        Some(order) => whole.properties().equivalence_properties().ordering_satisfy(order)?,
        None => true,
    };
    let partitions = |of: &Partitioning| of.partition_count();
    let has_partitions = partitions(whole.properties().output_partitioning())
        == partitions(plan.output_partitioning());
    // Different values are sorted as if they had not been turned round.
    let is_turned = whole.aggr_expr().iter().any(|call| call.is_distinct() && call.is_reversed());
    let has_columns = whole.schema() == plan.schema();
    Ok(is_whole && has_order && has_partitions && has_columns && !is_turned)
}
