//! SQL functions that DataFusion lacks, under the names and with the meaning of DuckDB, then PostgreSQL.
//!
//! Three ways to add one, the shortest first:
//!
//! - `aliases`: another name for a function that is there
//! - `macros`: a body in SQL over functions that are there
//! - a file of its own, listed in [`register`]

mod aliases;
mod average;
mod covariance;
mod extremes;
mod length;
mod list_distinct;
mod lists;
mod macros;
mod median;
mod mode;
mod models;
pub(crate) mod pair_sums;
mod single_value;
mod slice;
mod sum;
mod text_to_integer;
mod type_name;
mod vectors;

use std::any::Any;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

pub(crate) use macros::expand;
pub(crate) use single_value::single_value;
pub(crate) use slice::StringSubscript;
pub(crate) use text_to_integer::text_to_integer;
pub(crate) use vectors::is_measure;

/// `sum(x)` as it is registered.
pub(crate) fn sum() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(sum::Sum::default()))
}

/// Whether what adds up the groups of an aggregate takes whole numbers of any bits: as many as its argument has, or
/// fewer that hold the same numbers, or the integers that its argument makes wider ones or floating-point numbers of.
pub(crate) fn adds_any_width(call: &AggregateFunctionExpr) -> bool {
    let function: &dyn Any = call.fun().inner().as_ref();
    let is_ours = function.is::<sum::Sum>() && sum::is_exact(call.field().data_type())
        || function.is::<average::Average>() && average::is_ours(call);
    is_ours && !call.is_distinct()
}

/// What an aggregate that replaces one of DataFusion's leaves to it, which is its field `any`: everything
/// but how values are accumulated.
macro_rules! as_datafusion_does {
    () => {
        fn name(&self) -> &str {
            self.any.name()
        }

        fn signature(&self) -> &datafusion::logical_expr::Signature {
            self.any.signature()
        }

        fn return_type(
            &self,
            arguments: &[arrow::datatypes::DataType],
        ) -> Result<arrow::datatypes::DataType> {
            self.any.return_type(arguments)
        }

        fn coerce_types(
            &self,
            arguments: &[arrow::datatypes::DataType],
        ) -> Result<Vec<arrow::datatypes::DataType>> {
            self.any.coerce_types(arguments)
        }

        fn is_descending(&self) -> Option<bool> {
            self.any.is_descending()
        }

        fn reverse_expr(&self) -> datafusion::logical_expr::ReversedUDAF {
            self.any.inner().reverse_expr()
        }

        fn order_sensitivity(&self) -> datafusion::logical_expr::utils::AggregateOrderSensitivity {
            self.any.order_sensitivity()
        }

        /// A running one is NULL until there is a value, wherever NULLs are: DataFusion would take it for sorted, and they may be
        /// asked for last.
        fn set_monotonicity(
            &self,
            _: &arrow::datatypes::DataType,
        ) -> datafusion::logical_expr::SetMonotonicity {
            datafusion::logical_expr::SetMonotonicity::NotMonotonic
        }

        fn simplify_expr_op_literal(
            &self,
            function: &datafusion::logical_expr::expr::AggregateFunction,
            argument: &datafusion::logical_expr::Expr,
            operator: datafusion::logical_expr::Operator,
            literal: &datafusion::logical_expr::Expr,
            is_left: bool,
        ) -> Result<Option<datafusion::logical_expr::Expr>> {
            let inner = self.any.inner();
            inner.simplify_expr_op_literal(function, argument, operator, literal, is_left)
        }

        fn value_from_stats(
            &self,
            statistics: &datafusion::logical_expr::StatisticsArgs,
        ) -> Option<datafusion::common::ScalarValue> {
            self.any.value_from_stats(statistics)
        }

        fn documentation(&self) -> Option<&datafusion::logical_expr::Documentation> {
            self.any.documentation()
        }
    };
}

/// The same of what is accumulated otherwise than by group, of whether groups are accumulated at all, and of how states look.
macro_rules! as_datafusion_does_without_groups {
    () => {
        fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
            self.any.groups_accumulator_supported(args)
        }

        fn state_fields(
            &self,
            args: datafusion::logical_expr::function::StateFieldsArgs,
        ) -> Result<Vec<arrow::datatypes::FieldRef>> {
            self.any.state_fields(args)
        }

        fn accumulator(
            &self,
            args: AccumulatorArgs,
        ) -> Result<Box<dyn datafusion::logical_expr::Accumulator>> {
            self.any.accumulator(args)
        }

        fn create_sliding_accumulator(
            &self,
            args: AccumulatorArgs,
        ) -> Result<Box<dyn datafusion::logical_expr::Accumulator>> {
            self.any.create_sliding_accumulator(args)
        }
    };
}

use as_datafusion_does;
use as_datafusion_does_without_groups;

/// Makes every function of this folder known.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    aliases::register(registry)?;
    models::register(registry)?;
    vectors::register(registry)?;
    registry.register_udf(Arc::new(ScalarUDF::from(length::Length::default())))?;
    registry.register_udf(Arc::new(ScalarUDF::from(list_distinct::ListDistinct::default())))?;
    registry.register_udf(Arc::new(ScalarUDF::from(type_name::TypeName::default())))?;
    registry.register_udf(Arc::new(ScalarUDF::from(slice::Slice::default())))?;
    registry.register_udaf(Arc::new(AggregateUDF::from(mode::Mode::default())))?;
    registry.register_udaf(sum())?;
    registry.register_udaf(Arc::new(AggregateUDF::from(average::Average::default())))?;
    registry.register_udaf(Arc::new(AggregateUDF::from(median::Median::default())))?;
    for of_pairs in covariance::OfPairs::all() {
        registry.register_udaf(Arc::new(AggregateUDF::from(of_pairs)))?;
    }
    for extreme in [extremes::Extreme::least(), extremes::Extreme::greatest()] {
        registry.register_udaf(Arc::new(AggregateUDF::from(extreme)))?;
    }
    Ok(())
}
