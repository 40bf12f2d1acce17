//! Aggregates that fit models: `ols`, `ridge`, and the matrices that they are made of, `gram`,
//! `covariance_matrix` and `correlation_matrix`.
//!
//! ```text
//! arguments of a batch   columns and lists of numbers, NULLs, weights        rows
//!   ─► blocks of rows    whose products are added                            kernels::moments
//!   ─► sums              of one group or of many; they merge, and travel     sums, sliding
//!   ─► summary           a matrix, or a model                                matrices, regression
//! ```
//!
//! A row with a NULL in any argument counts for nothing, as in `regr_slope` and its like; of no rows the
//! result is NULL. All are computed in one pass, in 64 bits, about the means: a column of large numbers
//! that differ little keeps its digits. Rows are added in blocks, blocks in their order; where several
//! threads each add some of the rows, the last digits may depend on who added what, as those of DataFusion's
//! `avg` do.

mod matrices;
mod regression;
mod rows;
mod sliding;
mod solve;
mod sums;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::AggregateUDF;

use matrices::{Kind, MatrixAggregate};
use regression::Regression;

pub(super) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for kind in [Kind::Gram, Kind::Covariance, Kind::Correlation] {
        registry.register_udaf(Arc::new(AggregateUDF::from(MatrixAggregate::new(kind))))?;
    }
    for regression in [Regression::ols(), Regression::ridge()] {
        registry.register_udaf(Arc::new(AggregateUDF::from(regression)))?;
    }
    Ok(())
}

/// Columns from which on products over all pairs belong into a matrix expression, whose kernels can be
/// stopped and ask for the memory they take: a batch of 512 columns takes half a second.
const COLUMNS_MAX: usize = 512;
