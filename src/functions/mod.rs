//! SQL functions that DataFusion lacks, under the names and with the meaning of DuckDB, then PostgreSQL.
//!
//! Three ways to add one, the shortest first:
//!
//! - `aliases`: another name for a function that is there
//! - `macros`: a body in SQL over functions that are there
//! - a file of its own, listed in [`register`]

mod aliases;
mod length;
mod list_distinct;
mod lists;
mod macros;
mod mode;
mod models;
pub(crate) mod pair_sums;
mod single_value;
mod slice;
mod sum;
mod text_to_integer;
mod type_name;
mod vectors;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

pub(crate) use macros::expand;
pub(crate) use single_value::single_value;
pub(crate) use slice::StringSubscript;
pub(crate) use text_to_integer::text_to_integer;

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
    registry.register_udaf(Arc::new(AggregateUDF::from(sum::Sum::default())))?;
    Ok(())
}
