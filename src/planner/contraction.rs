//! SQL that is a matrix product: an aggregation over a join whose groups have keys of both sides.
//!
//! ```text
//! Aggregate: groupBy=[[a.i, b.j]], aggr=[[sum(a.v * b.v)]]       Contraction
//!   Join: a.k = b.k                                        ──►     Projection: a.k, a.i, a.v
//!     a                                                            Projection: b.k, b.j, b.v
//!     b
//! ```
//!
//! Enters: a plan after DataFusion's rules. Leaves: the same plan with a node of ours, which keeps the plan
//! as it was: where the join makes few pairs, numbers might not fit or memory is short, that one runs.

use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, JoinType, NullEquality, Result, ScalarValue, Statistics};
use datafusion::logical_expr::expr::{AggregateFunction, Cast};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, Extension, Join, LogicalPlan, LogicalPlanBuilder,
    Operator, UserDefinedLogicalNode, UserDefinedLogicalNodeCore, cast,
};
use datafusion::optimizer::OptimizerConfig;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::statistics::StatisticsContext;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use crate::config::Settings;
use crate::exec::contraction::{Call, Contraction, ContractionExec, Function};
use crate::exec::kernels::contract::Combine;

/// The rule; see the header of this file.
pub(super) fn rewrite(
    plan: LogicalPlan,
    _: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
    if is_volatile(&plan)? {
        return Ok(Transformed::no(plan));
    }
    match recognized(aggregate)? {
        Some(node) => {
            let node = LogicalPlan::Extension(Extension { node: Arc::new(node) });
            Ok(Transformed::yes(node))
        }
        None => Ok(Transformed::no(plan)),
    }
}

/// A contraction in a logical plan: its inputs are the sides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ContractionNode {
    contraction: Contraction,
    sides: [LogicalPlan; 2],
    /// The join and the aggregation over it.
    ordinary: Arc<Aggregate>,
}

/// What is read of one side of a join, as expressions over its columns.
struct Side<'a> {
    plan: &'a LogicalPlan,
    join_keys: Vec<Expr>,
    group_keys: Vec<Expr>,
    values: Vec<Expr>,
}

impl<'a> Side<'a> {
    fn new(plan: &'a LogicalPlan) -> Self {
        Self { plan, join_keys: Vec::new(), group_keys: Vec::new(), values: Vec::new() }
    }

    /// Whether an expression reads columns of this side and no others.
    fn has(&self, expr: &Expr) -> bool {
        let columns = expr.column_refs();
        !columns.is_empty()
            && columns.into_iter().all(|column| self.plan.schema().has_column(column))
    }

    /// The place of a value, which is read once however many ask for it.
    fn value(&mut self, expr: Expr) -> usize {
        self.values.iter().position(|other| *other == expr).unwrap_or_else(|| {
            self.values.push(expr);
            self.values.len() - 1
        })
    }

    /// Join keys, group keys, values, in this order and under names that are theirs alone.
    fn projected(self) -> Result<LogicalPlan> {
        let all = self.join_keys.into_iter().chain(self.group_keys).chain(self.values);
        let named = all.enumerate().map(|(at, expr)| expr.alias(format!("__side_{at}")));
        LogicalPlanBuilder::from(self.plan.clone()).project(named.collect::<Vec<_>>())?.build()
    }
}

/// The aggregation as a contraction, where it is one.
fn recognized(aggregate: &Aggregate) -> Result<Option<ContractionNode>> {
    let Some((join, replaced)) = joined(&aggregate.input)? else { return Ok(None) };
    let inner = join.join_type == JoinType::Inner
        && join.filter.is_none()
        && join.null_equality == NullEquality::NullEqualsNothing
        && !join.on.is_empty();
    if !inner {
        return Ok(None);
    }
    let mut sides = [Side::new(&join.left), Side::new(&join.right)];
    let Some(()) = join_keys(join, &mut sides) else { return Ok(None) };
    let mut keys = Vec::new();
    for key in &aggregate.group_expr {
        let key = replaced(key.clone())?.unalias_nested().data;
        let Some(side) = (0..2).find(|&side| sides[side].has(&key)) else { return Ok(None) };
        if !is_key(&key, sides[side].plan.schema()) {
            return Ok(None);
        }
        keys.push((side, sides[side].group_keys.len()));
        sides[side].group_keys.push(key);
    }
    let mut calls = Vec::new();
    for call in &aggregate.aggr_expr {
        let call = replaced(call.clone())?.unalias_nested().data;
        let Some(call) = recognized_call(&call, &join.schema, &mut sides)? else { return Ok(None) };
        calls.push(call);
    }
    if !is_contracted(&sides) || aggregate.schema.fields().len() != keys.len() + calls.len() {
        return Ok(None);
    }
    let contraction = Contraction {
        join_keys: join.on.len(),
        group_keys: [sides[0].group_keys.len(), sides[1].group_keys.len()],
        keys,
        calls,
    };
    let [left, right] = sides;
    let sides = [left.projected()?, right.projected()?];
    Ok(Some(ContractionNode { contraction, sides, ordinary: Arc::new(aggregate.clone()) }))
}

/// The join under projections, and how an expression over them reads over it.
fn joined(plan: &LogicalPlan) -> Result<Option<(&Join, impl Fn(Expr) -> Result<Expr>)>> {
    let mut plan = plan;
    let mut projections = Vec::new();
    loop {
        match plan {
            LogicalPlan::Projection(projection) => {
                projections.push(projection);
                plan = &projection.input;
            }
            LogicalPlan::Join(join) => {
                let replaced = move |mut expr: Expr| -> Result<Expr> {
                    for projection in &projections {
                        let replace = |expr: Expr| {
                            let Expr::Column(column) = &expr else {
                                return Ok(Transformed::no(expr));
                            };
                            let at = projection.schema.index_of_column(column)?;
                            Ok(Transformed::yes(projection.expr[at].clone().unalias()))
                        };
                        // From the leaves up, so that what replaces a column is not looked at again.
                        expr = expr.transform_up(replace)?.data;
                    }
                    Ok(expr)
                };
                return Ok(Some((join, replaced)));
            }
            _ => return Ok(None),
        }
    }
}

/// Takes the join keys apart; nothing where one is of a type whose equality is not that of its bits.
fn join_keys(join: &Join, sides: &mut [Side<'_>; 2]) -> Option<()> {
    for (left, right) in &join.on {
        let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
        let same = left.get_type(left_schema).ok()? == right.get_type(right_schema).ok()?;
        if !same || !is_key(left, left_schema) {
            return None;
        }
        sides[0].join_keys.push(left.clone());
        sides[1].join_keys.push(right.clone());
    }
    Some(())
}

/// Whether an expression can be told from others by its bits.
fn is_key(expr: &Expr, schema: &DFSchemaRef) -> bool {
    use DataType as Of;
    expr.get_type(schema).is_ok_and(|of| {
        of.is_integer()
            || of.is_temporal()
            || matches!(
                of,
                Of::Boolean | Of::Decimal128(..) | Of::Utf8 | Of::LargeUtf8 | Of::Utf8View
            )
    })
}

/// Whether groups have keys of both sides, and a join key that is none of theirs: what is summed over.
fn is_contracted(sides: &[Side<'_>; 2]) -> bool {
    let [left, right] = sides;
    let kept = |(on_left, on_right): (&Expr, &Expr)| {
        left.group_keys.contains(on_left) || right.group_keys.contains(on_right)
    };
    !left.group_keys.is_empty()
        && !right.group_keys.is_empty()
        && !left.join_keys.iter().zip(&right.join_keys).all(kept)
}

/// An aggregate of terms that each side has a part in.
fn recognized_call(
    expr: &Expr,
    joined: &DFSchemaRef,
    sides: &mut [Side<'_>; 2],
) -> Result<Option<Call>> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr else { return Ok(None) };
    let plain = !params.distinct && params.filter.is_none() && params.order_by.is_empty();
    let [argument] = &params.args[..] else { return Ok(None) };
    let function = match func.name() {
        "count" => Function::Count,
        "sum" => Function::Sum,
        "avg" => Function::Average,
        "min" => Function::Least,
        "max" => Function::Greatest,
        _ => return Ok(None),
    };
    if !plain || params.null_treatment.is_some() {
        return Ok(None);
    }
    if let (Function::Count, Expr::Literal(literal, _)) = (function, argument) {
        let term_type = DataType::Int64;
        let call = Call { function, values: [None; 2], combine: Combine::Left, term_type };
        return Ok((*literal != ScalarValue::Null && !literal.is_null()).then_some(call));
    }
    // Widening alone is left out: what is summed up are the terms as they are.
    let term = match argument {
        Expr::Cast(Cast { expr, field }) if widens(&expr.get_type(joined)?, field.data_type()) => {
            expr.as_ref()
        }
        term => term,
    };
    let Some((values, combine)) = operands(term, sides) else { return Ok(None) };
    let mut term_type = None;
    let mut places = [None; 2];
    for (at, value) in values.into_iter().enumerate() {
        let Some(value) = value else { continue };
        let of = value.get_type(sides[at].plan.schema())?;
        if term_type.replace(of.clone()).is_some_and(|other| other != of) {
            return Ok(None);
        }
        let widened = match &of {
            DataType::Float32 | DataType::Float64 => DataType::Float64,
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => DataType::Int64,
            _ => return Ok(None),
        };
        let value = if of == widened { value } else { cast(value, widened) };
        places[at] = Some(sides[at].value(value));
    }
    let Some(term_type) = term_type else { return Ok(None) };
    Ok(Some(Call { function, values: places, combine, term_type }))
}

/// Whether numbers of one type are cast to another only to be summed up: none is another number then, but for
/// rounding of integers that are summed up exactly or not at all.
fn widens(from: &DataType, to: &DataType) -> bool {
    match to {
        DataType::Int64 => from.is_signed_integer(),
        DataType::Float64 => from.is_signed_integer() || from.is_floating(),
        _ => false,
    }
}

/// The parts that the sides have in a term, and what is made of them.
fn operands(term: &Expr, sides: &[Side<'_>; 2]) -> Option<([Option<Expr>; 2], Combine)> {
    let [left, right] = sides;
    if left.has(term) {
        return Some(([Some(term.clone()), None], Combine::Left));
    }
    if right.has(term) {
        return Some(([None, Some(term.clone())], Combine::Right));
    }
    let Expr::BinaryExpr(BinaryExpr { left: x, op, right: y }) = term else { return None };
    let combine = match op {
        Operator::Multiply => Combine::Times,
        Operator::Plus => Combine::Plus,
        Operator::Minus => Combine::Minus,
        _ => return None,
    };
    if left.has(x) && right.has(y) {
        return Some(([Some(x.as_ref().clone()), Some(y.as_ref().clone())], combine));
    }
    // Only a difference cares which comes first.
    let turned = left.has(y) && right.has(x) && combine != Combine::Minus;
    turned.then(|| ([Some(y.as_ref().clone()), Some(x.as_ref().clone())], combine))
}

/// Whether a plan may answer otherwise when it runs once more.
fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            found |= expr.is_volatile();
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

impl PartialOrd for ContractionNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for ContractionNode {
    fn name(&self) -> &str {
        "Contraction"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.sides.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.ordinary.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contraction: {}", self.text())
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let sides = <[LogicalPlan; 2]>::try_from(inputs).map_err(|_| {
            datafusion::error::DataFusionError::Internal("a contraction has two inputs".into())
        })?;
        Ok(Self { sides, ..self.clone() })
    }
}

/// Whether a plan is a join that is summed up as a product.
pub(super) fn is_node(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Extension(extension) = plan else { return false };
    extension.node.as_any().is::<ContractionNode>()
}

impl ContractionNode {
    /// The aggregation as it was written.
    fn text(&self) -> String {
        let listed = |exprs: &[Expr]| {
            exprs.iter().map(|expr| expr.schema_name().to_string()).collect::<Vec<_>>().join(", ")
        };
        let (keys, calls) = (&self.ordinary.group_expr, &self.ordinary.aggr_expr);
        format!("groupBy=[[{}]], aggr=[[{}]]", listed(keys), listed(calls))
    }
}

/// Plans [`ContractionNode`]s.
#[derive(Debug)]
pub(crate) struct ContractionPlanner;

/// Pairs for each row read from which on a join is run as a product.
const PAIRS_MIN: f64 = 4.0;

#[async_trait]
impl ExtensionPlanner for ContractionPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        sides: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<ContractionNode>() else { return Ok(None) };
        let ordinary = LogicalPlan::Aggregate(Aggregate::clone(&node.ordinary));
        let ordinary = planner.create_physical_plan(&ordinary, session).await?;
        let settings = session.config().get_extension::<Settings>().unwrap_or_default();
        let [left, right] = sides else { return Ok(None) };
        let expected = Expected::new(&node.contraction, [left, right])?;
        if !settings.contractions
            || expected.pairs.is_some_and(|pairs| pairs < PAIRS_MIN * expected.total())
        {
            return Ok(Some(ordinary));
        }
        let ordinary: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(ordinary));
        let sides = [Arc::clone(left), Arc::clone(right)];
        let text = match expected.pairs {
            Some(pairs) => format!("{}, {pairs:.0} pairs expected", node.text()),
            None => node.text(),
        };
        let contraction = node.contraction.clone();
        let exec = ContractionExec::new(contraction, text, sides, expected.first(), ordinary);
        Ok(Some(Arc::new(exec)))
    }
}

/// What statistics tell of a join.
struct Expected {
    rows: [Option<f64>; 2],
    pairs: Option<f64>,
}

impl Expected {
    fn new(contraction: &Contraction, sides: [&Arc<dyn ExecutionPlan>; 2]) -> Result<Self> {
        let mut rows = [None; 2];
        let mut distinct = [None; 2];
        for (at, side) in sides.into_iter().enumerate() {
            let statistics =
                StatisticsContext::new().compute(side.as_ref(), &Default::default())?;
            rows[at] = statistics.num_rows.get_value().map(|&rows| rows as f64);
            distinct[at] = keys_expected(&statistics, contraction.join_keys);
        }
        let pairs = match (rows, distinct) {
            ([Some(left), Some(right)], [Some(of_left), Some(of_right)]) => {
                // As many keys as the side of more has, each met by its share of the other's rows.
                Some(left * right / f64::max(of_left.min(left), of_right.min(right)).max(1.0))
            }
            _ => None,
        };
        Ok(Self { rows, pairs })
    }

    fn total(&self) -> f64 {
        self.rows.iter().flatten().sum()
    }

    /// The side of fewer rows.
    fn first(&self) -> usize {
        match self.rows {
            [Some(left), Some(right)] => usize::from(right < left),
            [None, Some(_)] => 1,
            _ => 0,
        }
    }
}

/// How many distinct join keys a side has, at most.
fn keys_expected(statistics: &Statistics, join_keys: usize) -> Option<f64> {
    let mut keys = 1.0;
    for column in statistics.column_statistics.iter().take(join_keys) {
        let range = || {
            let number =
                |bound: &Precision<ScalarValue>| match bound.get_value()?.cast_to(&DataType::Int64)
                {
                    Ok(ScalarValue::Int64(Some(number))) => Some(number as f64),
                    _ => None,
                };
            Some(number(&column.max_value)? - number(&column.min_value)? + 1.0)
        };
        let distinct = column.distinct_count.get_value().map(|&count| count as f64);
        keys *= distinct.or_else(range)?;
    }
    Some(keys)
}
