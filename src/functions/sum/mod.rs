//! `sum(x)` of integers and decimals: added in 128 bits, and an error where the sum is none of its type.
//!
//! DataFusion's, which serves every other type, wraps around.
//!
//! - `one`: a sum of all rows, or of those of a window
//! - `grouped`: the sums of many groups

mod grouped;
mod one;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::{not, nullif, prep_null_mask_filter};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator};

pub(super) use self::grouped::{FEW_GROUPS, GroupedSums, LANES};
use self::one::{DistinctSum, OneSum};
use crate::error::Error;

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Sum {
    /// DataFusion's.
    any: Arc<AggregateUDF>,
}

impl Default for Sum {
    fn default() -> Self {
        Self { any: sum_udaf() }
    }
}

impl AggregateUDFImpl for Sum {
    super::as_datafusion_does!();

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.any.groups_accumulator_supported(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match SumType::of(args.return_type()).filter(|_| !args.is_distinct) {
            Some(sum_type) => {
                let name = format_state_name(args.name, "sum");
                Ok(vec![Arc::new(Field::new(name, sum_type.state(), true))])
            }
            None => self.any.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match SumType::of(args.return_type()) {
            Some(sum_type) if args.is_distinct => {
                Ok(Box::new(DistinctSum::new(self.any.accumulator(args)?, sum_type)))
            }
            Some(sum_type) => Ok(Box::new(OneSum::new(sum_type))),
            None => self.any.accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match SumType::of(args.return_type()).filter(|_| !args.is_distinct) {
            Some(_) => self.accumulator(args),
            None => self.any.create_sliding_accumulator(args),
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match SumType::of(args.return_type()) {
            Some(sum_type) => Ok(Box::new(GroupedSums::new(sum_type))),
            None => self.any.create_groups_accumulator(args),
        }
    }
}

/// The type of a sum that is exact.
#[derive(Debug, Clone)]
pub(super) struct SumType(DataType);

/// Whether a sum of this type is added up exactly.
pub(super) fn is_exact(sum: &DataType) -> bool {
    SumType::of(sum).is_some()
}

impl SumType {
    pub(super) fn of(sum: &DataType) -> Option<Self> {
        let is_exact = matches!(
            sum,
            DataType::Int64
                | DataType::UInt64
                | DataType::Decimal32(..)
                | DataType::Decimal64(..)
                | DataType::Decimal128(..)
        );
        is_exact.then(|| Self(sum.clone()))
    }

    /// What holds the sum of some of the rows: any of 64-bit integers, and of decimals those of 38 digits.
    fn state(&self) -> DataType {
        DataType::Decimal128(DECIMAL128_MAX_PRECISION, self.scale())
    }

    fn scale(&self) -> i8 {
        match self.0 {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale) => scale,
            _ => 0,
        }
    }

    /// A sum where it is one of the type, as so many units of the last digit.
    fn fitting(&self, sum: i128) -> Result<i128> {
        let fits = match self.0 {
            DataType::UInt64 => u64::try_from(sum).is_ok(),
            DataType::Decimal32(precision, _)
            | DataType::Decimal64(precision, _)
            | DataType::Decimal128(precision, _) => {
                sum.unsigned_abs() < 10_u128.pow(u32::from(precision))
            }
            _ => i64::try_from(sum).is_ok(),
        };
        if fits { Ok(sum) } else { Err(self.overflow(sum)) }
    }

    fn overflow(&self, sum: i128) -> DataFusionError {
        let error = match self.0 {
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale) => Error::decimal_sum(precision, scale),
            _ => Error::integer_sum(sum, self.0 == DataType::UInt64),
        };
        error.into()
    }

    /// The error of a sum that has left 128 bits, as integers never do.
    fn beyond(&self) -> DataFusionError {
        self.overflow(i128::MAX)
    }
}

/// The values, with NULL in the place of those that are not chosen.
pub(super) fn counted(values: &ArrayRef, chosen: Option<&BooleanArray>) -> Result<ArrayRef> {
    let Some(chosen) = chosen else { return Ok(Arc::clone(values)) };
    let dropped = match chosen.null_count() {
        0 => not(chosen)?,
        _ => not(&prep_null_mask_filter(chosen))?,
    };
    Ok(nullif(values, &dropped)?)
}
