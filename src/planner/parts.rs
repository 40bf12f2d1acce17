//! Parts of what an aggregation answers, of some rows of each group, which can be merged with those of other rows in any order.
//!
//! ```text
//! count(x), sum(x), min(x), …    themselves, merged by sum, sum, min, …
//! avg(x)                         sum(x), count(x)
//! ```
//!
//! Last digits of sums of floating-point numbers tell in which order they were added: whoever asks says whether they may.
//!
//! Enters: an [`Aggregate`] as it is asked. Leaves: the expressions that make its parts, and plans that merge them and answer. Not
//! here: whose rows parts are of (`remembered`: those of another time; `joins::eager`: those of one side of a join).

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection,
    cast, ident, lit,
};

use crate::functions;

/// What is made of each group, and what its answers are made of.
#[derive(Debug)]
pub(super) struct Parts {
    rounding: Rounding,
    /// Aggregates that make the parts.
    expressions: Vec<Expr>,
    merges: Vec<Merge>,
    answers: Vec<Answer>,
}

/// Whether sums may be rounded otherwise than if all rows were added up at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Same,
    Any,
}

/// How a part is merged with those of other rows.
#[derive(Debug)]
enum Merge {
    /// As values are taken in.
    Itself(Arc<AggregateUDF>),
    /// Counts are added.
    Count,
}

/// An answer, by the numbers of its parts.
#[derive(Debug)]
enum Answer {
    Part(usize),
    Average { sum: usize, count: usize },
}

impl Parts {
    /// Those of an aggregation; nothing where one of its answers has none.
    pub(super) fn of(aggregate: &Aggregate, rounding: Rounding) -> Result<Option<Self>> {
        let keys = keys(aggregate);
        let fields = aggregate.schema.fields();
        // Zeros of either sign are one key, whose sign would tell which came first.
        let is_key = |of: &DataType| !of.is_floating() && !of.is_nested();
        let has_keys = fields[..keys].iter().all(|field| is_key(field.data_type()));
        let has_sets = aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_)));
        if !has_keys || has_sets {
            return Ok(None);
        }
        let (expressions, merges, answers) = Default::default();
        let mut parts = Self { rounding, expressions, merges, answers };
        for (expr, field) in aggregate.aggr_expr.iter().zip(&fields[keys..]) {
            let Some(answer) = parts.answer(expr, field.data_type(), &aggregate.input)? else {
                return Ok(None);
            };
            parts.answers.push(answer);
        }
        Ok(Some(parts))
    }

    fn answer(
        &mut self,
        expr: &Expr,
        data_type: &DataType,
        input: &LogicalPlan,
    ) -> Result<Option<Answer>> {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = expr.clone().unalias()
        else {
            return Ok(None);
        };
        let is_plain =
            !params.distinct && params.order_by.is_empty() && params.null_treatment.is_none();
        if !is_plain || data_type.is_nested() {
            return Ok(None);
        }
        Ok(match (func.name(), &params.args[..]) {
            ("count", _) => Some(Answer::Part(self.part(func, params, Merge::Count))),
            ("sum", _) if data_type.is_floating() && self.rounding == Rounding::Same => None,
            (
                "sum" | "min" | "max" | "bool_and" | "bool_or" | "bit_and" | "bit_or" | "bit_xor",
                _,
            ) => {
                let merge = Merge::Itself(Arc::clone(&func));
                Some(Answer::Part(self.part(func, params, merge)))
            }
            ("avg", [value]) if self.can_average(&value.get_type(input.schema())?) => {
                // Integers are added as the numbers that they are divided as: up to 2⁵³ exactly.
                let summed = AggregateFunctionParams {
                    args: vec![cast(value.clone(), DataType::Float64)],
                    ..params.clone()
                };
                let sum = functions::sum();
                let merge = Merge::Itself(Arc::clone(&sum));
                let sum = self.part(sum, summed, merge);
                Some(Answer::Average { sum, count: self.part(count_udaf(), params, Merge::Count) })
            }
            _ => None,
        })
    }

    fn can_average(&self, of: &DataType) -> bool {
        of.is_integer() || *of == DataType::Float64 && self.rounding == Rounding::Any
    }

    /// The number of a part, which may be one that there is.
    fn part(
        &mut self,
        func: Arc<AggregateUDF>,
        params: AggregateFunctionParams,
        merge: Merge,
    ) -> usize {
        let expr = Expr::AggregateFunction(AggregateFunction { func, params });
        if let Some(known) = self.expressions.iter().position(|known| *known == expr) {
            return known;
        }
        self.expressions.push(expr);
        self.merges.push(merge);
        self.merges.len() - 1
    }

    /// The aggregates that make the parts, under names of their own: a sum of numbers and that of the same ones as others have
    /// one name.
    pub(super) fn expressions(&self) -> impl Iterator<Item = Expr> {
        let numbered = self.expressions.iter().enumerate();
        numbered.map(|(at, expr)| expr.clone().alias(format!("part {at}")))
    }

    /// The same as they are.
    pub(super) fn made(&self) -> impl Iterator<Item = &Expr> {
        self.expressions.iter()
    }

    /// The groups of rows that have keys and parts, which are columns of these rows: their keys and merged parts, of these types
    /// and named by their numbers.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn merged<'t>(
        &self,
        rows: LogicalPlan,
        keys: Vec<Expr>,
        part: impl Fn(usize) -> Expr,
        types: impl Iterator<Item = &'t DataType>,
    ) -> Result<LogicalPlan> {
        let count = keys.len();
        let merges = self.merges.iter().enumerate().map(|(at, merge)| {
            let function = match merge {
                Merge::Itself(function) => Arc::clone(function),
                Merge::Count => functions::sum(),
            };
            function.call(vec![part(at)])
        });
        let groups = Aggregate::try_new(Arc::new(rows), keys, merges.collect())?;
        let groups = numbered(LogicalPlan::Aggregate(groups))?;
        let merged = self.merges.iter().enumerate().map(|(at, merge)| match merge {
            Merge::Itself(_) => column(count + at),
            // There is always one.
            Merge::Count => coalesce(vec![column(count + at), lit(0_i64)]),
        });
        let typed = (0..count).map(column).chain(merged).zip(types).enumerate();
        let typed = typed.map(|(at, (part, of))| {
            // Sums of decimals get longer with each sum.
            Ok(part.cast_to(of, groups.schema())?.alias(name(at)))
        });
        let typed = typed.collect::<Result<Vec<_>>>()?;
        LogicalPlanBuilder::from(groups).project(typed)?.build()
    }

    /// What was asked, of keys and parts that are named by their numbers.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn answered(&self, asked: &DFSchema, groups: LogicalPlan) -> Result<LogicalPlan> {
        let keys = asked.fields().len() - self.answers.len();
        let answers = self.answers.iter().map(|answer| match *answer {
            Answer::Part(at) => column(keys + at),
            Answer::Average { sum, count } => {
                column(keys + sum) / cast(column(keys + count), DataType::Float64)
            }
        });
        let answers = asked.iter().zip((0..keys).map(column).chain(answers));
        let answers = answers.map(|((table, field), answer)| {
            let answer = answer.cast_to(field.data_type(), groups.schema())?;
            Ok(answer.alias_qualified(table.cloned(), field.name()))
        });
        let answers = answers.collect::<Result<Vec<_>>>()?;
        // A key and the same one as another type have names that a builder would not tell apart.
        Projection::try_new(answers, Arc::new(groups)).map(LogicalPlan::Projection)
    }
}

/// How many columns of groups are keys: one for each that differs.
pub(super) fn keys(aggregate: &Aggregate) -> usize {
    aggregate.schema.fields().len() - aggregate.aggr_expr.len()
}

/// The same with columns that are named by their numbers.
///
/// # Errors
/// None but DataFusion's.
pub(super) fn numbered(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().enumerate();
    let columns: Vec<Expr> =
        columns.map(|(at, column)| Expr::Column(column).alias(name(at))).collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

pub(super) fn name(at: usize) -> String {
    format!("c{at}")
}

/// The column of this number, of keys and parts.
pub(super) fn column(at: usize) -> Expr {
    ident(name(at))
}
