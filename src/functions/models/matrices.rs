//! `gram(x1, …)`, `covariance_matrix(x1, …)` and `correlation_matrix(x1, …)`: a `DOUBLE[][]` of all pairs.
//!
//! ```text
//! gram          Σ xᵢ·xⱼ                     exact where all sums are integers within 2⁵³
//! covariance    Σ (xᵢ-mᵢ)·(xⱼ-mⱼ) / (n-1)   NULL of fewer than two rows
//! correlation   cᵢⱼ / √(cᵢᵢ·cⱼⱼ)            between -1 and 1; NaN where a column is constant, as in DuckDB
//! ```
//!
//! Each argument is a column of numbers, or a column of lists that hold as many numbers each: of
//! `[x1, x2], x3` the matrix is 3x3.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Builder, ListBuilder};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility,
};

use super::super::lists::refused;
use super::rows::check_types;
use super::sums::{self, Call, Summary};
use crate::exec::kernels::moments::Moments;

/// Which matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Gram,
    Covariance,
    Correlation,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Gram => "gram",
            Kind::Covariance => "covariance_matrix",
            Kind::Correlation => "correlation_matrix",
        }
    }

    /// A matrix for each sum, as a list of its rows.
    pub(super) fn matrices(self, sums: &[Option<Moments<'_>>]) -> ArrayRef {
        let rows_needed = if self == Kind::Covariance { 2 } else { 1 };
        let mut matrices = ListBuilder::new(ListBuilder::new(Float64Builder::new()));
        for sum in sums {
            let Some(sum) = sum.filter(|sum| sum.rows() >= rows_needed) else {
                matrices.append_null();
                continue;
            };
            for i in 0..sum.columns() {
                let row = matrices.values();
                for j in 0..sum.columns() {
                    row.values().append_value(self.cell(sum, i, j));
                }
                row.append(true);
            }
            matrices.append(true);
        }
        Arc::new(matrices.finish())
    }

    fn cell(self, sum: Moments<'_>, i: usize, j: usize) -> f64 {
        let product = sum.product(i, j);
        match self {
            Kind::Gram => product,
            Kind::Covariance => product / (sum.rows() - 1) as f64,
            Kind::Correlation => {
                let deviations = sum.product(i, i).sqrt() * sum.product(j, j).sqrt();
                let correlation = (product / deviations).clamp(-1.0, 1.0);
                if i == j && !correlation.is_nan() { 1.0 } else { correlation }
            }
        }
    }
}

/// The aggregate of a kind.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct MatrixAggregate {
    kind: Kind,
    signature: Signature,
}

impl MatrixAggregate {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, signature: Signature::variadic_any(Volatility::Immutable) }
    }

    fn call(&self, args: &AccumulatorArgs<'_>) -> Result<Call> {
        if args.is_distinct {
            return Err(refused(
                self.kind.name(),
                "cannot be of DISTINCT rows; select those first",
            ));
        }
        Ok(Call {
            function: self.kind.name(),
            data_count: args.exprs.len(),
            weight: None,
            summary: Summary::Matrix(self.kind),
        })
    }
}

impl AggregateUDFImpl for MatrixAggregate {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        check_types(self.kind.name(), arguments)?;
        Ok(DataType::new_list(DataType::new_list(DataType::Float64, true), true))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(sums::state_fields(&args))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.call(&args)?.accumulator())
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.call(&args)?.sliding_accumulator())
    }

    /// That of one group says what is wrong with others.
    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.call(&args).is_ok()
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(self.call(&args)?.groups_accumulator())
    }
}
