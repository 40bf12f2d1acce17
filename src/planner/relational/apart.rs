//! Aggregates that keep every value they have seen are computed apart, so that they finish whatever the memory.
//!
//! ```text
//! Aggregate: k; count(DISTINCT a), count(DISTINCT b), sum(c)        Join: k is not distinct from k
//!   t                                                        ──►      Aggregate: k; sum(c)
//!                                                                       t
//!                                                                     Aggregate: k; count(DISTINCT a)
//!                                                                       t
//!                                                                     …
//! ```
//!
//! An aggregation that has only one argument with DISTINCT becomes a GROUP BY of it (DataFusion's rule), whose groups are
//! dealt out to threads and to files. Without keys that is faster, too; with keys it is done where memory has no room for the
//! values, as far as is known. A median for which there is no room is that of the middle ones:
//!
//! ```text
//! k; median(v)    ──►    k; median(v) of those in the places (n + 1) / 2 to n / 2 + 1
//!   t                      t ORDER BY k, v, numbered for each k; n = k; count(v)
//! ```
//!
//! Without keys there is one row of each part, and the join is a cross join. Where a condition has left no row of a group, there
//! is none to join. What is aggregated is read once for each part; a join or an aggregation below them runs once where that is
//! cheaper (`shared`).

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::datasource::source_as_provider;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions_aggregate::count::count;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::utils::can_hash;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, WindowFunctionDefinition,
    cast, lit,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::config::ForRules;
use crate::planner::is_repeatable;
use crate::planner::statistics::{Estimates, Statistics};

/// Aggregates whose answer over different values does not depend on the order of these.
const OF_DISTINCT: [&str; 5] = ["count", "sum", "avg", "min", "max"];

/// Those that DataFusion's rule takes without DISTINCT beside the argument that has it.
const BESIDE_DISTINCT: [&str; 3] = ["sum", "min", "max"];

/// How often an aggregate may hold its values: twice while it collects them, and once more while threads put theirs together.
const COPIES: f64 = 3.0;

/// Share of the memory limit that the values of an aggregate may take.
const SHARE: f64 = 0.25;

/// Rows that are expected where nobody knows how many there are.
const UNKNOWN_ROWS: f64 = 2e7;

/// Bytes of a value whose type does not tell.
const TEXT_BYTES: usize = 32;

/// Name of the values of which only those in the middle are left.
const MIDDLE: &str = "__middle";

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct ApartAggregates {
    statistics: Arc<Statistics>,
}

impl ApartAggregates {
    pub(super) fn new(statistics: Arc<Statistics>) -> Self {
        Self { statistics }
    }
}

impl OptimizerRule for ApartAggregates {
    fn name(&self) -> &str {
        "apart_aggregates"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        let options = config.options();
        let rules = options.extensions.get::<ForRules>().filter(|rules| rules.spills_groups);
        let Some(rules) = rules.filter(|_| has_plain_keys(aggregate)) else {
            return Ok(Transformed::no(plan));
        };
        let bytes_max = SHARE * rules.reservable_bytes as f64;
        let estimates = Estimates::new(&self.statistics);
        let input = &aggregate.input;
        let is_large = |value: &Expr, is_distinct: bool| {
            let bytes = value.get_type(input.schema())?.primitive_width().unwrap_or(TEXT_BYTES);
            let mut values = UNKNOWN_ROWS;
            if estimates.is_known(input) {
                values = estimates.rows_unfiltered(input);
                if is_distinct {
                    let distinct = aggregate.group_expr.iter().chain([value]);
                    let distinct = distinct.map(|of| estimates.distinct(input, of));
                    values = values.min(distinct.product());
                }
            }
            Ok(COPIES * values * bytes as f64 > bytes_max)
        };
        let parts = Parts::of(aggregate, is_large)?;
        if !parts.are_apart() || !can_be_read_again(&plan)? {
            return Ok(Transformed::no(plan));
        }
        Ok(match parts.joined(aggregate)? {
            Some(joined) => Transformed::yes(joined),
            None => Transformed::no(plan),
        })
    }
}

/// Whether groups are those of all keys, and keys can be joined by.
fn has_plain_keys(aggregate: &Aggregate) -> bool {
    let keys = aggregate.group_expr.iter().zip(aggregate.schema.fields());
    keys.into_iter()
        .all(|(key, field)| !matches!(key, Expr::GroupingSet(_)) && can_hash(field.data_type()))
}

/// What aggregates are computed of.
#[derive(PartialEq)]
enum Of {
    /// All rows.
    Rows,
    /// The different values of an expression, where a condition holds.
    Distinct(Expr, Option<Expr>),
    /// The values in the middle, where a condition holds.
    Middle(Expr, Option<Expr>),
}

/// Aggregates by what they are computed of, each with its place in the aggregation.
struct Parts(Vec<(Of, Vec<(usize, AggregateFunction)>)>);

impl Parts {
    /// Those of an aggregation; none where one of its expressions is not an aggregate alone.
    ///
    /// # Errors
    /// Those of `is_large`, which says whether memory has no room for such values, or for those of them that differ.
    fn of(aggregate: &Aggregate, is_large: impl Fn(&Expr, bool) -> Result<bool>) -> Result<Self> {
        let has_keys = !aggregate.group_expr.is_empty();
        let mut parts: Vec<(Of, Vec<(usize, AggregateFunction)>)> = Vec::new();
        for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
            let Expr::AggregateFunction(function) = expr else { return Ok(Self(Vec::new())) };
            let of = of(function, has_keys, &is_large)?;
            let function = (at, function.clone());
            match parts.iter_mut().find(|(other, _)| *other == of) {
                Some((_, functions)) => functions.push(function),
                None => parts.push((of, vec![function])),
            }
        }
        Ok(Self(parts))
    }

    /// Whether they cannot stay in one aggregation.
    fn are_apart(&self) -> bool {
        let plain = |(_, function): &(usize, AggregateFunction)| {
            let params = &function.params;
            let is_beside = BESIDE_DISTINCT.contains(&function.func.name());
            is_beside && !params.distinct && params.filter.is_none()
        };
        let (mut distinct, mut others_fit) = (0, true);
        for (of, functions) in &self.0 {
            match of {
                Of::Rows => others_fit &= functions.iter().all(plain),
                Of::Distinct(_, None) => distinct += 1,
                Of::Distinct(_, Some(_)) | Of::Middle(..) => return true,
            }
        }
        distinct > 1 || distinct == 1 && !others_fit
    }

    /// The answers of all parts, under the names that the aggregation has for them; nothing where there is no part.
    fn joined(mut self, aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
        let keys = &aggregate.group_expr;
        let answer = |at: usize| format!("__apart_{at}");
        let mut answers: Vec<Expr> = Vec::new();
        answers.resize(aggregate.aggr_expr.len(), lit(false));
        // The first part has all groups.
        match self.0.iter().position(|(of, _)| of.has_all_groups()) {
            Some(at) => self.0.swap(0, at),
            None if keys.is_empty() => {}
            None => self.0.insert(0, (Of::Rows, Vec::new())),
        }
        let mut joined: Option<LogicalPlanBuilder> = None;
        for (number, (of, functions)) in self.0.into_iter().enumerate() {
            let has_all_groups = of.has_all_groups();
            for (at, function) in &functions {
                let value = Expr::Column(Column::from_name(answer(*at)));
                let is_count = function.func.name() == "count";
                answers[*at] = match is_count && !has_all_groups && !keys.is_empty() {
                    true => coalesce(vec![value, lit(0_i64)]),
                    false => value,
                };
            }
            let (places, functions): (Vec<usize>, Vec<AggregateFunction>) =
                functions.into_iter().unzip();
            let part = of.aggregated(&aggregate.input, keys, functions)?;
            let names = (0..keys.len()).map(|key| key_name(number, key));
            let names = names.chain(places.into_iter().map(answer));
            let columns = part.schema().columns().into_iter().map(Expr::Column);
            let named: Vec<Expr> =
                columns.zip(names).map(|(column, name)| column.alias(name)).collect();
            let part = LogicalPlanBuilder::from(part).project(named)?;
            joined = Some(match joined {
                Some(before) => {
                    let join = if has_all_groups { JoinType::Inner } else { JoinType::Left };
                    let names = [0, number]
                        .map(|part| (0..keys.len()).map(|key| key_name(part, key)).collect());
                    beside(before, part, join, names)?
                }
                None => part,
            });
        }
        let keys = (0..keys.len()).map(|key| Expr::Column(Column::from_name(key_name(0, key))));
        let columns = aggregate.schema.iter().zip(keys.chain(answers));
        let columns = columns.map(|((qualifier, field), value)| {
            value.alias_qualified(qualifier.cloned(), field.name())
        });
        joined.map(|joined| joined.project(columns)?.build()).transpose()
    }
}

/// The name of a key in a part.
fn key_name(part: usize, key: usize) -> String {
    format!("__key_{part}_{key}")
}

/// The rows of two plans that have the same keys, by these names.
fn beside(
    left: LogicalPlanBuilder,
    right: LogicalPlanBuilder,
    join: JoinType,
    [of_left, of_right]: [Vec<String>; 2],
) -> Result<LogicalPlanBuilder> {
    let right = right.build()?;
    if of_left.is_empty() {
        return left.cross_join(right);
    }
    let columns = |names: Vec<String>| names.into_iter().map(Column::from_name).collect::<Vec<_>>();
    let on = (columns(of_left), columns(of_right));
    left.join_detailed(right, join, on, None, NullEquality::NullEqualsNull)
}

/// What an aggregate is computed of.
fn of(
    function: &AggregateFunction,
    has_keys: bool,
    is_large: impl Fn(&Expr, bool) -> Result<bool>,
) -> Result<Of> {
    let params = &function.params;
    let ([value], true, None) =
        (params.args.as_slice(), params.order_by.is_empty(), params.null_treatment)
    else {
        return Ok(Of::Rows);
    };
    let filter = params.filter.as_deref().cloned();
    let name = function.func.name();
    if params.distinct && OF_DISTINCT.contains(&name) && (!has_keys || is_large(value, true)?) {
        return Ok(Of::Distinct(value.clone(), filter));
    }
    let is_done = matches!(value, Expr::Column(column) if column.name == MIDDLE);
    if name == "median" && !params.distinct && !is_done && is_large(value, false)? {
        return Ok(Of::Middle(value.clone(), filter));
    }
    Ok(Of::Rows)
}

impl Of {
    /// Whether no group is missing.
    fn has_all_groups(&self) -> bool {
        matches!(self, Self::Rows | Self::Distinct(_, None))
    }

    /// The aggregates of what they are computed of, after the keys.
    fn aggregated(
        self,
        input: &Arc<LogicalPlan>,
        keys: &[Expr],
        mut functions: Vec<AggregateFunction>,
    ) -> Result<LogicalPlan> {
        let rows = LogicalPlanBuilder::from(Arc::clone(input));
        let filtered = |filter: Option<Expr>| match filter {
            Some(condition) => rows.clone().filter(condition),
            None => Ok(rows.clone()),
        };
        let mut keys = keys.to_vec();
        let rows = match self {
            Of::Rows => rows,
            Of::Distinct(_, filter) => {
                functions.iter_mut().for_each(|function| function.params.filter = None);
                filtered(filter)?
            }
            Of::Middle(value, filter) => {
                let values = filtered(filter)?.filter(value.clone().is_not_null())?;
                for function in &mut functions {
                    function.params.filter = None;
                    function.params.args = vec![column(MIDDLE)];
                }
                let names: Vec<String> = (0..keys.len()).map(|key| key_name(0, key)).collect();
                let named = std::mem::take(&mut keys).into_iter().zip(&names);
                let named = named.map(|(key, name)| key.alias(name));
                let values = values.project(named.chain([value.alias(MIDDLE)]))?;
                keys = names.iter().map(|name| column(name)).collect();
                middle(values, names)?
            }
        };
        rows.aggregate(keys, functions.into_iter().map(Expr::AggregateFunction))?.build()
    }
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

/// Of each group the value in the middle, or both of them where the number of values is even; with the keys, which have these names.
fn middle(values: LogicalPlanBuilder, keys: Vec<String>) -> Result<LogicalPlanBuilder> {
    const COUNT: &str = "__count";
    const PLACE: &str = "__place";
    let value = column(MIDDLE);
    let of_keys = || keys.iter().map(|key| column(key));
    let counted_keys: Vec<String> = (0..keys.len()).map(|key| key_name(1, key)).collect();
    let counted = values.clone().aggregate(of_keys(), [count(value.clone())])?;
    let names = counted_keys.iter().map(String::as_str).chain([COUNT]);
    let numbers = counted.schema().columns().into_iter().zip(names);
    let numbers: Vec<Expr> =
        numbers.map(|(number, name)| Expr::Column(number).alias(name)).collect();
    let counted = counted.project(numbers)?;

    let mut place =
        WindowFunction::new(WindowFunctionDefinition::WindowUDF(row_number_udwf()), Vec::new());
    place.params.partition_by = of_keys().collect();
    place.params.order_by = vec![value.clone().sort(true, false)];
    let place = Expr::from(place);
    let place_column = column(&place.schema_name().to_string());
    let placed = LogicalPlanBuilder::window_plan(values.build()?, vec![place])?;
    let place = cast(place_column, DataType::Int64).alias(PLACE);
    let placed =
        LogicalPlanBuilder::from(placed).project(of_keys().chain([value.clone(), place]))?;

    let first = (column(COUNT) + lit(1_i64)) / lit(2_i64);
    let last = column(COUNT) / lit(2_i64) + lit(1_i64);
    beside(counted, placed, JoinType::Inner, [counted_keys, keys.clone()])?
        .filter(column(PLACE).gt_eq(first).and(column(PLACE).lt_eq(last)))?
        .project(of_keys().chain([value]))
}

/// Whether a plan comes to the same rows when it is read again, by itself.
fn can_be_read_again(plan: &LogicalPlan) -> Result<bool> {
    let mut can = is_repeatable(plan)?;
    plan.apply_with_subqueries(|plan| {
        use LogicalPlan as Of;
        can &= match plan {
            Of::TableScan(scan) => {
                scan.fetch.is_none() && !source_as_provider(&scan.source)?.is::<CteWorkTable>()
            }
            // Without an order, which rows are the first is another matter each time.
            Of::Sort(sort) => sort.fetch.is_none(),
            Of::Filter(_)
            | Of::Projection(_)
            | Of::SubqueryAlias(_)
            | Of::Join(_)
            | Of::Aggregate(_)
            | Of::Window(_) => true,
            _ => false,
        };
        plan.apply_expressions(|expr| {
            can &= !expr.contains_outer();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(can)
}
