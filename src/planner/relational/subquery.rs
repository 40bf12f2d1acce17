//! Subqueries as values, wherever an expression may stand.
//!
//! DataFusion turns a correlated subquery into a join where the correlation is an equality that it can
//! pull up; the rest it refuses. This rule runs after DataFusion's and takes that rest, by pushing the
//! outer values into the subquery (Neumann and Kemper, *Unnesting Arbitrary Queries*, BTW 2015):
//!
//! ```text
//! SELECT (SELECT count(*) FROM t x WHERE x.b < t.b) FROM t
//!
//! domain   d = SELECT DISTINCT b FROM t
//! values   v = SELECT d.b, count(x.row) FROM d LEFT JOIN t x ON x.b < d.b GROUP BY d.b
//! result       SELECT v.count FROM t LEFT JOIN v ON t.b IS NOT DISTINCT FROM v.b
//! ```
//!
//! `EXISTS` and `IN` are counted first, so that one case is left: `x IN (q)` is
//! `SELECT CASE WHEN bool_or(x = y) THEN true WHEN count(*) > count(x = y) THEN NULL ELSE false END FROM q(y)`.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, NullEquality, Result, ScalarValue, Spans, TableReference,
};
use datafusion::config::ConfigOptions;
use datafusion::functions_aggregate::bool_and_or::bool_or;
use datafusion::functions_aggregate::count::count;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{
    AggregateFunction, Exists, InSubquery, Sort as SortExpr, WindowFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, FetchType, Filter, Join, JoinType, Limit, LogicalPlan,
    LogicalPlanBuilder, Operator, Projection, SkipType, Sort, Subquery, SubqueryAlias, Union,
    Unnest, Window, WindowFunctionDefinition, binary_expr, lit, not, when,
};
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig};

use super::names;
use crate::functions::single_value;

/// Makes an error of a second row of a subquery that stands for a value, where its plan could have one.
/// DataFusion refuses such subqueries when they are correlated, whatever their rows; so this runs first.
#[derive(Debug)]
pub(super) struct SingleRow;

impl AnalyzerRule for SingleRow {
    fn name(&self) -> &str {
        "single_row"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            names::rewritten(node, |expression| {
                expression.transform_up(|node| match node {
                    Expr::ScalarSubquery(subquery)
                        if !subquery.outer_ref_columns.is_empty()
                            && !at_most_one_row(&subquery.subquery) =>
                    {
                        let single = single_row(&subquery.subquery)?;
                        let subquery = subquery.with_plan(Arc::new(single));
                        Ok(Transformed::yes(Expr::ScalarSubquery(subquery)))
                    }
                    _ => Ok(Transformed::no(node)),
                })
            })
        })
        .map(|transformed| transformed.data)
    }
}

fn single_row(plan: &LogicalPlan) -> Result<LogicalPlan> {
    let [column] = &plan.schema().columns()[..] else { return Ok(plan.clone()) };
    let value = single_value().call(vec![Expr::Column(column.clone())]);
    LogicalPlanBuilder::from(plan.clone())
        .aggregate(Vec::<Expr>::new(), vec![value.alias("value")])?
        .build()
}

/// Turns what DataFusion leaves of subqueries into joins; see the header of this file.
pub(super) fn rewrite(
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Join(join) = &plan {
        return Ok(match lateral(join, config)? {
            Some(joined) => Transformed::yes(joined),
            None => Transformed::no(plan),
        });
    }
    let Some(input) = input_of(&plan) else { return Ok(Transformed::no(plan)) };
    if !plan.expressions().iter().any(is_open) {
        return Ok(Transformed::no(plan));
    }
    let mut joins = Joins { input: input.clone(), config };
    let names = NamePreserver::new(&plan);
    let mut failed = false;
    let expressions = plan
        .expressions()
        .into_iter()
        .map(|expression| {
            let mut change =
                |whole: Expr| whole.transform_up(|node| joins.replace(node, &mut failed));
            names::named(&names, expression, &mut change).data()
        })
        .collect::<Result<Vec<Expr>>>()?;
    if failed {
        return Ok(Transformed::no(plan));
    }
    let columns = plan.schema().columns().into_iter().map(Expr::Column).collect::<Vec<_>>();
    let rewritten = plan.with_new_exprs(expressions, vec![joins.input])?;
    if rewritten.schema().fields().len() == columns.len() {
        return Ok(Transformed::yes(rewritten));
    }
    let projected = LogicalPlanBuilder::from(rewritten).project(columns)?.build()?;
    Ok(Transformed::yes(projected))
}

/// A lateral join that DataFusion left: the right side is computed for each value of the left columns
/// that it names. `None` if the join is not lateral, or has a part that is not known here.
fn lateral(join: &Join, config: &dyn OptimizerConfig) -> Result<Option<LogicalPlan>> {
    let mut outer = Vec::new();
    outer_columns(&join.right, &mut outer)?;
    if outer.is_empty() {
        return independent(join);
    }
    outer.retain(|column| join.left.schema().has_column(column));
    if outer.is_empty() || !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Ok(None);
    }
    let domain = Domain::new(&join.left, outer, config)?;
    let Some(right) = domain.push_into(&join.right)? else { return Ok(None) };
    let mut conditions = domain.conditions(join)?;
    for (outer, column) in domain.outer.iter().zip(domain.expressions()) {
        let outer = Expr::Column(outer.clone());
        conditions.push(binary_expr(outer, Operator::IsNotDistinctFrom, column));
    }
    LogicalPlanBuilder::from(join.left.as_ref().clone())
        .join_on(right, join.join_type, conditions)?
        .project(join.schema.columns().into_iter().map(Expr::Column))?
        .build()
        .map(Some)
}

/// A lateral join whose right side names no column of the left one any more, as where its condition is never true, is a plain one.
fn independent(join: &Join) -> Result<Option<LogicalPlan>> {
    let right = join.right.as_ref().clone().transform_down(|node| match node {
        LogicalPlan::Subquery(inner) => Ok(Transformed::yes(Arc::unwrap_or_clone(inner.subquery))),
        _ => Ok(Transformed::no(node)),
    })?;
    let plain = Join { right: Arc::new(right.data), ..join.clone() };
    Ok(right.transformed.then_some(LogicalPlan::Join(plain)))
}

/// The one input whose rows an expression of this node sees, for the nodes that may hold subqueries.
pub(super) fn input_of(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::Filter(Filter { input, .. })
        | LogicalPlan::Aggregate(Aggregate { input, .. })
        | LogicalPlan::Window(Window { input, .. })
        | LogicalPlan::Sort(Sort { input, .. }) => Some(input),
        _ => None,
    }
}

/// All that a join compares.
pub(super) fn conditions(join: &Join) -> Vec<Expr> {
    let operator = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let keys = join.on.iter().cloned();
    let keys = keys.map(|(left, right)| binary_expr(left, operator, right));
    keys.chain(join.filter.iter().flat_map(split_conjunction).cloned()).collect()
}

/// The subquery that an expression is, or asks of.
pub(super) fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Whether an expression holds a subquery that no DataFusion operator evaluates.
pub(super) fn is_open(expression: &Expr) -> bool {
    expression
        .exists(|node| {
            Ok(match node {
                Expr::ScalarSubquery(subquery) => !subquery.outer_ref_columns.is_empty(),
                Expr::Exists(_) | Expr::InSubquery(_) => true,
                _ => false,
            })
        })
        .expect("the closure does not fail")
}

/// The input of a node, to which the values of one subquery after the other are joined.
struct Joins<'a> {
    input: LogicalPlan,
    config: &'a dyn OptimizerConfig,
}

impl Joins<'_> {
    /// The column that holds a subquery's value, once that is joined.
    fn replace(&mut self, node: Expr, failed: &mut bool) -> Result<Transformed<Expr>> {
        let (subquery, negated) = match &node {
            Expr::ScalarSubquery(subquery) => (subquery.clone(), false),
            Expr::Exists(Exists { subquery, negated }) => (existence(subquery)?, *negated),
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                (membership(expr, subquery, self.input.schema())?, *negated)
            }
            _ => return Ok(Transformed::no(node)),
        };
        let value = if subquery.outer_ref_columns.is_empty() {
            Some(Expr::ScalarSubquery(subquery))
        } else {
            self.join(&subquery)?
        };
        let Some(value) = value else {
            *failed = true;
            return Ok(Transformed::no(node));
        };
        Ok(Transformed::yes(if negated { not(value) } else { value }))
    }

    /// Joins the subquery's values to the input; `None` if the subquery has a part that is not known here.
    fn join(&mut self, subquery: &Subquery) -> Result<Option<Expr>> {
        let schema = self.input.schema();
        let mut outer = Vec::new();
        outer_columns(&subquery.subquery, &mut outer)?;
        outer.retain(|column| schema.has_column(column));
        if outer.is_empty() {
            return Ok(None);
        }
        let domain = Domain::new(&self.input, outer, self.config)?;
        let Some(values) = domain.push_into(&subquery.subquery)? else { return Ok(None) };

        let [value] = &subquery.subquery.schema().columns()[..] else { return Ok(None) };
        let alias = self.config.alias_generator().next("__value");
        let named = |column: &Column, name: String| {
            Expr::Column(column.clone()).alias_qualified(Some(alias.as_str()), name)
        };
        let mut expressions: Vec<Expr> = (domain.columns.iter().enumerate())
            .map(|(index, column)| named(column, format!("d{index}")))
            .collect();
        expressions.push(named(value, "value".to_owned()));
        let values = LogicalPlanBuilder::from(values).project(expressions)?.build()?;

        let keys: Vec<Column> = (0..domain.columns.len())
            .map(|index| Column::new(Some(alias.as_str()), format!("d{index}")))
            .collect();
        self.input = LogicalPlanBuilder::from(self.input.clone())
            .join_detailed(
                values,
                JoinType::Left,
                (domain.outer.clone(), keys),
                None,
                NullEquality::NullEqualsNull,
            )?
            .build()?;
        Ok(Some(Expr::Column(Column::new(Some(alias), "value"))))
    }
}

/// `EXISTS (q)` as a value: whether the count of its rows is above zero.
fn existence(subquery: &Subquery) -> Result<Subquery> {
    let rows = count(lit(1_i64)).alias("rows");
    let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
        .aggregate(Vec::<Expr>::new(), vec![rows])?
        .project(vec![Expr::Column(Column::from_name("rows")).gt(lit(0_i64)).alias("exists")])?
        .build()?;
    Ok(subquery.with_plan(Arc::new(plan)))
}

/// `x IN (q)` as a value, which is NULL where an unknown element could have been `x`.
fn membership(x: &Expr, subquery: &Subquery, outer: &DFSchema) -> Result<Subquery> {
    let (x, mut references) = seen_from_inside(x, outer)?;
    references.extend(subquery.outer_ref_columns.iter().cloned());
    let element = Expr::Column(subquery.subquery.schema().columns().swap_remove(0));
    let column = |name: &str| Expr::Column(Column::from_name(name));
    let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
        .project(vec![x.eq(element).alias("equal")])?
        .aggregate(
            Vec::<Expr>::new(),
            vec![
                bool_or(column("equal")).alias("found"),
                count(lit(1_i64)).alias("rows"),
                count(column("equal")).alias("known"),
            ],
        )?
        .project(vec![
            when(column("found"), lit(true))
                .when(column("rows").gt(column("known")), lit(ScalarValue::Boolean(None)))
                .otherwise(lit(false))?
                .alias("member"),
        ])?
        .build()?;
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns: references, spans: Spans::new() })
}

/// An expression over outer rows as a subquery has it, and the columns that it refers to.
pub(super) fn seen_from_inside(expression: &Expr, outer: &DFSchema) -> Result<(Expr, Vec<Expr>)> {
    let mut references = Vec::new();
    let inside = expression.clone().transform_up(|node| match node {
        Expr::Column(column) => {
            let (_, field) = outer.qualified_field_from_column(&column)?;
            let reference = Expr::OuterReferenceColumn(Arc::clone(field), column);
            references.push(reference.clone());
            Ok(Transformed::yes(reference))
        }
        Expr::OuterReferenceColumn(..) => {
            references.push(node.clone());
            Ok(Transformed::no(node))
        }
        _ => Ok(Transformed::no(node)),
    })?;
    Ok((inside.data, references))
}

/// Whether a plan yields one row or none for each value of its outer columns.
fn at_most_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::Filter(Filter { input, .. })
        | LogicalPlan::Sort(Sort { input, .. })
        | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => at_most_one_row(input),
        other => other.max_rows().is_some_and(|rows| rows <= 1),
    }
}

/// The outer columns that a plan refers to, those of subqueries within it left out.
fn outer_columns(plan: &LogicalPlan, columns: &mut Vec<Column>) -> Result<()> {
    plan.apply(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|node| {
                if let Expr::OuterReferenceColumn(_, column) = node
                    && !columns.contains(column)
                {
                    columns.push(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// The distinct values of the outer columns, as a relation that is joined into a subquery.
struct Domain {
    plan: LogicalPlan,
    /// The columns in the outer input.
    outer: Vec<Column>,
    /// The same columns here, under a name of their own.
    columns: Vec<Column>,
}

impl Domain {
    fn new(input: &LogicalPlan, outer: Vec<Column>, config: &dyn OptimizerConfig) -> Result<Self> {
        let alias = config.alias_generator().next("__domain");
        let columns: Vec<Column> = (0..outer.len())
            .map(|index| Column::new(Some(alias.as_str()), format!("c{index}")))
            .collect();
        let named = outer.iter().zip(&columns).map(|(outer, column)| {
            Expr::Column(outer.clone()).alias_qualified(column.relation.clone(), &column.name)
        });
        let plan = LogicalPlanBuilder::from(input.clone())
            .project(named.collect::<Vec<_>>())?
            .distinct()?
            .build()?;
        Ok(Self { plan, outer, columns })
    }

    fn expressions(&self) -> Vec<Expr> {
        self.columns.iter().cloned().map(Expr::Column).collect()
    }

    /// The same values under other names, for a plan in which they appear twice.
    fn renamed(&self, suffix: &str) -> Result<Self> {
        let relation = self.columns.first().and_then(|column| column.relation.clone());
        let alias = TableReference::bare(format!(
            "{}_{suffix}",
            relation.as_ref().map_or("", TableReference::table)
        ));
        let columns: Vec<Column> = self
            .columns
            .iter()
            .map(|column| Column::new(Some(alias.clone()), &column.name))
            .collect();
        let named = self.columns.iter().map(|column| {
            Expr::Column(column.clone()).alias_qualified(Some(alias.clone()), &column.name)
        });
        let plan = LogicalPlanBuilder::from(self.plan.clone())
            .project(named.collect::<Vec<_>>())?
            .build()?;
        Ok(Self { plan, outer: self.outer.clone(), columns })
    }

    /// Whether a plan refers to one of the outer columns.
    fn touches(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut columns = Vec::new();
        outer_columns(plan, &mut columns)?;
        Ok(columns.iter().any(|column| self.outer.contains(column)))
    }

    /// An expression of the subquery with the domain's columns in place of the outer ones.
    fn bind(&self, expression: Expr) -> Result<Expr> {
        let bound = expression.transform_up(|node| match &node {
            Expr::OuterReferenceColumn(_, column) => {
                match self.outer.iter().position(|outer| outer == column) {
                    Some(index) => Ok(Transformed::yes(Expr::Column(self.columns[index].clone()))),
                    None => Ok(Transformed::no(node)),
                }
            }
            _ => Ok(Transformed::no(node)),
        })?;
        Ok(bound.data)
    }

    fn bind_all(&self, expressions: &[Expr]) -> Result<Vec<Expr>> {
        // A name may hold the outer column's, and whoever reads the node's output knows it by that name.
        expressions
            .iter()
            .map(|expression| {
                let name = NamePreserver::new_for_projection().save(expression);
                Ok(name.restore(self.bind(expression.clone())?))
            })
            .collect()
    }

    /// The subquery's rows for each value of the domain: its own columns, then the domain's.
    fn push_into(&self, plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        if !self.touches(plan)? {
            let crossed = LogicalPlanBuilder::from(plan.clone()).cross_join(self.plan.clone())?;
            return crossed.build().map(Some);
        }
        let pushed = match plan {
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let Some(input) = self.push_into(input)? else { return Ok(None) };
                let expressions = [self.bind_all(expr)?, self.expressions()].concat();
                LogicalPlanBuilder::from(input).project(expressions)?
            }
            LogicalPlan::Filter(Filter { predicate, input, .. }) => {
                let Some(input) = self.push_into(input)? else { return Ok(None) };
                LogicalPlanBuilder::from(input).filter(self.bind(predicate.clone())?)?
            }
            LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, schema, .. }) => {
                let Some(pushed) = self.push_into(input)? else { return Ok(None) };
                let own = input.schema().columns().into_iter().zip(schema.columns()).map(
                    |(inner, outer)| {
                        Expr::Column(inner).alias_qualified(Some(alias.clone()), outer.name)
                    },
                );
                LogicalPlanBuilder::from(pushed)
                    .project(own.chain(self.expressions()).collect::<Vec<_>>())?
            }
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) => {
                let Some(input) = self.push_into(input)? else { return Ok(None) };
                LogicalPlanBuilder::from(input).sort(self.bind_sorts(expr)?)?
            }
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Some(input) = self.push_into(input)? else { return Ok(None) };
                LogicalPlanBuilder::from(input).distinct()?
            }
            LogicalPlan::Aggregate(aggregate) => return self.push_into_aggregate(aggregate),
            LogicalPlan::Limit(limit) => return self.push_into_limit(limit),
            LogicalPlan::Window(Window { input, window_expr, .. }) => {
                let Some(input) = self.push_into(input)? else { return Ok(None) };
                let mut expressions = self.bind_all(window_expr)?;
                for expression in &mut expressions {
                    *expression = self.partition(expression.clone())?;
                }
                LogicalPlanBuilder::from(LogicalPlanBuilder::window_plan(input, expressions)?)
            }
            LogicalPlan::Union(Union { inputs, .. }) => {
                let mut branches = Vec::new();
                for input in inputs {
                    let Some(pushed) = self.push_into(input)? else { return Ok(None) };
                    let own = input.schema().columns().into_iter().map(Expr::Column);
                    let all = own.chain(self.expressions()).collect::<Vec<_>>();
                    branches.push(LogicalPlanBuilder::from(pushed).project(all)?.build()?);
                }
                let mut branches = branches.into_iter();
                let Some(first) = branches.next() else { return Ok(None) };
                branches.try_fold(LogicalPlanBuilder::from(first), LogicalPlanBuilder::union)?
            }
            LogicalPlan::Unnest(Unnest { input, exec_columns, options, .. }) => {
                let Some(input) = self.push_into(input)? else { return Ok(None) };
                LogicalPlanBuilder::from(input)
                    .unnest_columns_with_options(exec_columns.clone(), options.clone())?
            }
            LogicalPlan::Join(join) => return self.push_into_join(join),
            LogicalPlan::Subquery(Subquery { subquery, .. }) => return self.push_into(subquery),
            _ => return Ok(None),
        };
        // Whatever order the node keeps, its own columns come first.
        let own = plan.schema().columns().into_iter().map(Expr::Column);
        pushed.project(own.chain(self.expressions()).collect::<Vec<_>>())?.build().map(Some)
    }

    fn bind_sorts(&self, sorts: &[SortExpr]) -> Result<Vec<SortExpr>> {
        sorts
            .iter()
            .map(|sort| Ok(SortExpr { expr: self.bind(sort.expr.clone())?, ..sort.clone() }))
            .collect()
    }

    /// Groups by the domain too. Without groups of its own an aggregate yields a row even where there
    /// is nothing to aggregate, so there the domain is joined from the left and its lone rows are not
    /// counted.
    fn push_into_aggregate(&self, aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
        let columns = aggregate.schema.columns().into_iter().map(Expr::Column);
        let output = columns.chain(self.expressions()).collect::<Vec<_>>();
        if !aggregate.group_expr.is_empty() {
            if matches!(aggregate.group_expr[..], [Expr::GroupingSet(_)]) {
                return Ok(None);
            }
            let Some(input) = self.push_into(&aggregate.input)? else { return Ok(None) };
            let groups = [self.bind_all(&aggregate.group_expr)?, self.expressions()].concat();
            return LogicalPlanBuilder::from(input)
                .aggregate(groups, self.bind_all(&aggregate.aggr_expr)?)?
                .project(output)?
                .build()
                .map(Some);
        }
        let inner = self.renamed("inner")?;
        let Some(input) = inner.push_into(&aggregate.input)? else { return Ok(None) };
        let marker = Column::new(inner.columns[0].relation.clone(), "row");
        let mut marked: Vec<Expr> =
            input.schema().columns().into_iter().map(Expr::Column).collect();
        marked.push(lit(true).alias_qualified(marker.relation.clone(), "row"));
        let input = LogicalPlanBuilder::from(input).project(marked)?.build()?;
        let mut aggregates = Vec::new();
        for expression in &aggregate.aggr_expr {
            let name = NamePreserver::new_for_projection().save(expression);
            let counted = inner.bind(expression.clone())?.transform_up(|node| match node {
                Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
                    let is_row = Expr::Column(marker.clone()).is_not_null();
                    params.filter = Some(Box::new(match params.filter {
                        Some(filter) => filter.and(is_row),
                        None => is_row,
                    }));
                    Ok(Transformed::yes(Expr::AggregateFunction(AggregateFunction {
                        func,
                        params,
                    })))
                }
                _ => Ok(Transformed::no(node)),
            })?;
            aggregates.push(name.restore(counted.data));
        }
        LogicalPlanBuilder::from(self.plan.clone())
            .join_detailed(
                input,
                JoinType::Left,
                (self.columns.clone(), inner.columns.clone()),
                None,
                NullEquality::NullEqualsNull,
            )?
            .aggregate(self.expressions(), aggregates)?
            .project(output)?
            .build()
            .map(Some)
    }

    /// The first rows for each value: those whose number within it is low enough.
    fn push_into_limit(&self, limit: &Limit) -> Result<Option<LogicalPlan>> {
        // The sort may be below a projection, where its keys are not selected: the first rows of a
        // projection are that of the first rows.
        if let LogicalPlan::Projection(projection) = limit.input.as_ref() {
            let input = Arc::clone(&projection.input);
            let first = Arc::new(LogicalPlan::Limit(Limit { input, ..limit.clone() }));
            let projection = Projection::try_new(projection.expr.clone(), first)?;
            return self.push_into(&LogicalPlan::Projection(projection));
        }
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Ok(None);
        };
        let Some(input) = self.push_into(&limit.input)? else { return Ok(None) };
        let order = match limit.input.as_ref() {
            LogicalPlan::Sort(sort) => self.bind_sorts(&sort.expr)?,
            _ => Vec::new(),
        };
        let mut number =
            WindowFunction::new(WindowFunctionDefinition::WindowUDF(row_number_udwf()), Vec::new());
        number.params.partition_by = self.expressions();
        number.params.order_by = order;
        let number = Expr::from(number);
        let position = Expr::Column(Column::from_name(number.schema_name().to_string()));
        let mut kept = position.clone().gt(lit(skip as u64));
        if let Some(fetch) = fetch {
            kept = kept.and(position.lt_eq(lit((skip + fetch) as u64)));
        }
        let own = limit.input.schema().columns().into_iter().map(Expr::Column);
        LogicalPlanBuilder::from(LogicalPlanBuilder::window_plan(input, vec![number])?)
            .filter(kept)?
            .project(own.chain(self.expressions()).collect::<Vec<_>>())?
            .build()
            .map(Some)
    }

    /// A window that does not reach from one value of the domain to the next.
    fn partition(&self, expression: Expr) -> Result<Expr> {
        let partitioned = expression.transform_up(|node| match node {
            Expr::WindowFunction(mut window) => {
                window.params.partition_by.extend(self.expressions());
                Ok(Transformed::yes(Expr::WindowFunction(window)))
            }
            _ => Ok(Transformed::no(node)),
        })?;
        Ok(partitioned.data)
    }

    /// What a join compares, with the domain's columns in place of the outer ones.
    fn conditions(&self, join: &Join) -> Result<Vec<Expr>> {
        conditions(join).into_iter().map(|condition| self.bind(condition)).collect()
    }

    /// The domain goes to the side that refers to it; to both, if both do or an outer join needs it there.
    fn push_into_join(&self, join: &Join) -> Result<Option<LogicalPlan>> {
        let right_refers = self.touches(&join.right)?;
        let keeps_left = matches!(
            join.join_type,
            JoinType::Inner
                | JoinType::Left
                | JoinType::LeftSemi
                | JoinType::LeftAnti
                | JoinType::LeftMark
        );
        if !keeps_left || join.null_aware {
            return Ok(None);
        }
        let Some(left) = self.push_into(&join.left)? else { return Ok(None) };
        let mut conditions = self.conditions(join)?;
        let right = if !right_refers {
            join.right.as_ref().clone()
        } else {
            let inner = self.renamed("right")?;
            let Some(right) = inner.push_into(&join.right)? else { return Ok(None) };
            conditions.extend(
                self.expressions()
                    .into_iter()
                    .zip(inner.expressions())
                    .map(|(left, right)| binary_expr(left, Operator::IsNotDistinctFrom, right)),
            );
            right
        };
        let joined =
            LogicalPlanBuilder::from(left).join_on(right, join.join_type, conditions)?.build()?;
        let mut own: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
        if join.join_type == JoinType::LeftMark
            && let (Some(Expr::Column(known)), Some(mark)) =
                (own.pop(), joined.schema().columns().pop())
        {
            // What a mark is called follows from what the right side's columns are.
            own.push(Expr::Column(mark).alias_qualified(known.relation, known.name));
        }
        let all = own.into_iter().chain(self.expressions()).collect::<Vec<_>>();
        LogicalPlanBuilder::from(joined).project(all)?.build().map(Some)
    }
}
