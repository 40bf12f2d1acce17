//! What is remembered of a group: parts of its answers that can be merged with those of other rows, in any order and to the
//! same bits.
//!
//! ```text
//! count(x), sum(x), min(x), …    themselves, merged by sum, sum, min, …
//! avg(x)                         sum(x), count(x)
//! ```
//!
//! Sums of floating-point numbers are not among them, for their last digits tell in which order they were added.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, ExprSchemable, LogicalPlan, cast, lit,
};

use super::column;
use crate::functions;

/// What is remembered of each group, and what its answers are made of.
#[derive(Debug)]
pub(super) struct Parts {
    /// Aggregates that make the parts.
    expressions: Vec<Expr>,
    merges: Vec<Merge>,
    answers: Vec<Answer>,
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
    pub(super) fn of(aggregate: &Aggregate) -> Result<Option<Self>> {
        let keys = super::keys(aggregate);
        let fields = aggregate.schema.fields();
        // Zeros of either sign are one key, whose sign would tell which came first.
        let is_key = |of: &DataType| !of.is_floating() && !of.is_nested();
        let has_keys = fields[..keys].iter().all(|field| is_key(field.data_type()));
        let has_sets = aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_)));
        if !has_keys || has_sets {
            return Ok(None);
        }
        let (expressions, merges, answers) = Default::default();
        let mut parts = Self { expressions, merges, answers };
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
            ("sum", _) if data_type.is_floating() => None,
            (
                "sum" | "min" | "max" | "bool_and" | "bool_or" | "bit_and" | "bit_or" | "bit_xor",
                _,
            ) => {
                let merge = Merge::Itself(Arc::clone(&func));
                Some(Answer::Part(self.part(func, params, merge)))
            }
            ("avg", [value]) if value.get_type(input.schema())?.is_integer() => {
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

    /// The aggregates that merge the parts, which follow so many keys.
    pub(super) fn merges(&self, keys: usize) -> Vec<Expr> {
        let merges = self.merges.iter().enumerate();
        let merges = merges.map(|(at, merge)| {
            let function = match merge {
                Merge::Itself(function) => Arc::clone(function),
                Merge::Count => functions::sum(),
            };
            function.call(vec![column(keys + at)])
        });
        merges.collect()
    }

    /// The parts, of columns that follow so many keys and were merged.
    pub(super) fn merged(&self, keys: usize) -> impl Iterator<Item = Expr> {
        self.merges.iter().enumerate().map(move |(at, merge)| match merge {
            Merge::Itself(_) => column(keys + at),
            // There is always one.
            Merge::Count => coalesce(vec![column(keys + at), lit(0_i64)]),
        })
    }

    /// The keys, which are so many, and the answers.
    pub(super) fn answers(&self, keys: usize) -> impl Iterator<Item = Expr> {
        let answers = self.answers.iter().map(move |answer| match *answer {
            Answer::Part(at) => column(keys + at),
            Answer::Average { sum, count } => {
                column(keys + sum) / cast(column(keys + count), DataType::Float64)
            }
        });
        (0..keys).map(column).chain(answers)
    }
}
