//! Aggregates of all rows that keep every value they have seen are computed apart, so that they finish whatever the memory.
//!
//! ```text
//! Aggregate: count(DISTINCT a), count(DISTINCT b), sum(c)        Cross join
//!   t                                                     ──►      Aggregate: sum(c)
//!                                                                    t
//!                                                                  Aggregate: count(DISTINCT a)
//!                                                                    t
//!                                                                  …
//! ```
//!
//! An aggregation that has only one argument with DISTINCT becomes a GROUP BY of it (DataFusion's rule), whose groups are
//! dealt out to threads and to files. A median whose values memory has no room for, as far as is known, is that of the middle ones:
//!
//! ```text
//! median(v)    ──►    median(v) of those in the places (n + 1) / 2 to n / 2 + 1
//!   t                   t ORDER BY v, numbered; n = count(v)
//! ```
//!
//! What they aggregate is read once for each; a join or an aggregation below them runs once where that is cheaper
//! (`shared`).

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::datasource::source_as_provider;
use datafusion::functions_aggregate::count::count;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
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

/// How often a median may hold its values: twice while it collects them, and once more while threads put theirs together.
const MEDIAN_COPIES: f64 = 3.0;

/// Share of the memory limit that a median may take.
const MEDIAN_SHARE: f64 = 0.25;

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
        let Some(rules) = rules.filter(|_| aggregate.group_expr.is_empty()) else {
            return Ok(Transformed::no(plan));
        };
        let median_bytes_max = MEDIAN_SHARE * rules.reservable_bytes as f64;
        let is_large = |value: &Expr| {
            let bytes = value.get_type(aggregate.input.schema())?.primitive_width().unwrap_or(0);
            let estimates = Estimates::new(&self.statistics);
            let rows = estimates.rows_unfiltered(&aggregate.input);
            Ok(!estimates.is_known(&aggregate.input)
                || MEDIAN_COPIES * rows * bytes as f64 > median_bytes_max)
        };
        let parts = Parts::of(aggregate, is_large)?;
        if !parts.are_apart() || !can_be_read_again(&aggregate.input)? {
            return Ok(Transformed::no(plan));
        }
        parts.joined(aggregate).map(Transformed::yes)
    }
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
    /// Those of `is_large`, which says whether a median of such values is to be apart.
    fn of(aggregate: &Aggregate, is_large: impl Fn(&Expr) -> Result<bool>) -> Result<Self> {
        let mut parts: Vec<(Of, Vec<(usize, AggregateFunction)>)> = Vec::new();
        for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
            let Expr::AggregateFunction(function) = expr else { return Ok(Self(Vec::new())) };
            let of = of(function, &is_large)?;
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
            BESIDE_DISTINCT.contains(&function.func.name()) && function.params.filter.is_none()
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

    /// One row of the answers of all parts, under the names that the aggregation has for them.
    fn joined(self, aggregate: &Aggregate) -> Result<LogicalPlan> {
        let name = |at: usize| format!("__apart_{at}");
        let mut joined: Option<LogicalPlanBuilder> = None;
        for (of, functions) in self.0 {
            let (places, functions): (Vec<usize>, Vec<AggregateFunction>) =
                functions.into_iter().unzip();
            let part = of.aggregated(&aggregate.input, functions)?;
            let columns = part.schema().columns().into_iter().map(Expr::Column);
            let named: Vec<Expr> =
                columns.zip(places).map(|(column, at)| column.alias(name(at))).collect();
            let part = LogicalPlanBuilder::from(part).project(named)?;
            joined = Some(match joined {
                Some(before) => before.cross_join(part.build()?)?,
                None => part,
            });
        }
        let answers = aggregate.schema.iter().enumerate().map(|(at, (qualifier, field))| {
            let answer = Expr::Column(Column::from_name(name(at)));
            answer.alias_qualified(qualifier.cloned(), field.name())
        });
        match joined {
            Some(joined) => joined.project(answers)?.build(),
            None => Ok(LogicalPlan::Aggregate(aggregate.clone())),
        }
    }
}

/// What an aggregate is computed of.
fn of(function: &AggregateFunction, is_large: impl Fn(&Expr) -> Result<bool>) -> Result<Of> {
    let params = &function.params;
    let ([value], true, None) =
        (params.args.as_slice(), params.order_by.is_empty(), params.null_treatment)
    else {
        return Ok(Of::Rows);
    };
    let filter = params.filter.as_deref().cloned();
    let name = function.func.name();
    if params.distinct && OF_DISTINCT.contains(&name) {
        return Ok(Of::Distinct(value.clone(), filter));
    }
    let is_done = matches!(value, Expr::Column(column) if column.name == MIDDLE);
    if name == "median" && !params.distinct && !is_done && is_large(value)? {
        return Ok(Of::Middle(value.clone(), filter));
    }
    Ok(Of::Rows)
}

impl Of {
    /// The aggregates of what they are computed of.
    fn aggregated(
        self,
        input: &Arc<LogicalPlan>,
        mut functions: Vec<AggregateFunction>,
    ) -> Result<LogicalPlan> {
        let rows = LogicalPlanBuilder::from(Arc::clone(input));
        let filtered = |filter: Option<Expr>| match filter {
            Some(condition) => rows.clone().filter(condition),
            None => Ok(rows.clone()),
        };
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
                    function.params.args = vec![Expr::Column(Column::from_name(MIDDLE))];
                }
                middle(values.project([value.alias(MIDDLE)])?)?
            }
        };
        rows.aggregate(Vec::<Expr>::new(), functions.into_iter().map(Expr::AggregateFunction))?
            .build()
    }
}

/// The value in the middle of all, or both of them where their number is even.
fn middle(values: LogicalPlanBuilder) -> Result<LogicalPlanBuilder> {
    const COUNT: &str = "__count";
    const PLACE: &str = "__place";
    let column = |name: &str| Expr::Column(Column::from_name(name));
    let value = column(MIDDLE);
    let counted = values.clone().aggregate(Vec::<Expr>::new(), [count(value.clone())])?;
    let number =
        counted.schema().columns().into_iter().map(|number| Expr::Column(number).alias(COUNT));
    let number: Vec<Expr> = number.collect();
    let counted = counted.project(number)?;

    let mut place =
        WindowFunction::new(WindowFunctionDefinition::WindowUDF(row_number_udwf()), Vec::new());
    place.params.order_by = vec![value.clone().sort(true, false)];
    let place = Expr::from(place);
    let place_column = column(&place.schema_name().to_string());
    let placed = LogicalPlanBuilder::window_plan(values.build()?, vec![place])?;
    let placed = LogicalPlanBuilder::from(placed)
        .project([value.clone(), cast(place_column, DataType::Int64).alias(PLACE)])?;

    let first = (column(COUNT) + lit(1_i64)) / lit(2_i64);
    let last = column(COUNT) / lit(2_i64) + lit(1_i64);
    counted
        .cross_join(placed.build()?)?
        .filter(column(PLACE).gt_eq(first).and(column(PLACE).lt_eq(last)))?
        .project([value])
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
