//! `ols(y, [x1, …][, weight])` and `ridge(y, [x1, …], lambda[, weight])`: a linear model as a `STRUCT`.
//!
//! ```text
//! intercept                  DOUBLE
//! coefficients               DOUBLE[]   one for each x, in their order
//! intercept_standard_error   DOUBLE     NULL where the model is not determined, or is shrunk
//! standard_errors            DOUBLE[]   of the coefficients; NULL where that of the intercept is
//! r2                         DOUBLE     as regr_r2
//! n                          BIGINT     rows with a weight above zero and no NULL
//! ```
//!
//! - `ols` makes `Σ w·(y - ŷ)²` least. Where several models do (columns that are combinations of others,
//!   too few rows), the coefficients are those of least norm.
//! - `ridge` makes that and `lambda·Σ bⱼ²` least, the intercept being free, as scikit-learn's `Ridge` does;
//!   lambda is a constant from 0 on.
//! - `weight` is a number from 0 on, 1 unless given.
//!
//! The x may also be a column of lists, or of numbers where there is one alone. Those that are written as
//! `[x1, x2]` are never made lists: the optimizer puts them in the place of their list.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Float64Builder, Int64Array, ListBuilder, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, GroupsAccumulator, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;

use super::super::lists::refused;
use super::rows::{check_types, is_number};
use super::solve::{Fit, fit};
use super::sums::{self, Call, Summary};
use crate::exec::kernels::moments::Moments;

/// `ols` or `ridge`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Regression {
    name: &'static str,
    has_lambda: bool,
    /// Where each x is an argument: whether there is a weight after them, which their number cannot tell.
    flat: Option<Flat>,
    signature: Signature,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Flat {
    has_weight: bool,
}

impl Regression {
    pub(super) fn ols() -> Self {
        let signature = Signature::variadic_any(Volatility::Immutable);
        Self { name: "ols", has_lambda: false, flat: None, signature }
    }

    pub(super) fn ridge() -> Self {
        Self { name: "ridge", has_lambda: true, ..Self::ols() }
    }

    /// Arguments before the weight, where the x are one.
    fn fixed_count(&self) -> usize {
        if self.has_lambda { 3 } else { 2 }
    }

    fn call(&self, args: &AccumulatorArgs<'_>) -> Result<Call> {
        if args.is_distinct {
            return Err(refused(self.name, "cannot be of DISTINCT rows; select those first"));
        }
        let count = args.exprs.len();
        let has_weight = match self.flat {
            Some(Flat { has_weight }) => has_weight,
            None => count > self.fixed_count(),
        };
        let weight = has_weight.then(|| count - 1);
        let lambda = self.has_lambda.then(|| count - 1 - usize::from(has_weight));
        let data_count = lambda.or(weight).unwrap_or(count);
        let ridge = match lambda {
            None => 0.0,
            Some(at) => {
                let constant = args.exprs[at].downcast_ref::<Literal>();
                self.lambda(constant.map(Literal::value))?
            }
        };
        Ok(Call { function: self.name, data_count, weight, summary: Summary::Model { ridge } })
    }

    fn lambda(&self, constant: Option<&ScalarValue>) -> Result<f64> {
        let needs =
            |given: &str| refused(self.name, format!("lambda is a constant from 0 on{given}"));
        let value = constant.ok_or_else(|| needs(""))?;
        let number = value.cast_to(&DataType::Float64)?;
        match number {
            ScalarValue::Float64(Some(lambda)) if lambda >= 0.0 && lambda.is_finite() => Ok(lambda),
            _ => Err(needs(&format!(", not {value}"))),
        }
    }

    /// The call with each x an argument of its own, where they are written as a list.
    fn flattened(&self, mut call: AggregateFunction) -> AggregateFunction {
        let arguments = &mut call.params.args;
        if self.flat.is_some() || arguments.len() < 2 {
            return call;
        }
        let Expr::ScalarFunction(ScalarFunction { func, args }) = &mut arguments[1] else {
            return call;
        };
        if func.name() != "make_array" {
            return call;
        }
        let columns = std::mem::take(args);
        let flat = Some(Flat { has_weight: arguments.len() > self.fixed_count() });
        arguments.splice(1..2, columns);
        call.func = Arc::new(AggregateUDF::from(Self { flat, ..self.clone() }));
        call
    }
}

impl AggregateUDFImpl for Regression {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let fixed = self.fixed_count();
        if self.flat.is_none() && !(fixed..=fixed + 1).contains(&arguments.len()) {
            let lambda = if self.has_lambda { ", lambda" } else { "" };
            return Err(refused(self.name, format!("takes (y, [x1, …]{lambda}[, weight])")));
        }
        check_types(self.name, arguments)?;
        // All but the x are one number for each row.
        let mut others = arguments.iter().enumerate().filter(|(at, _)| *at != 1);
        match others.find(|(_, given)| !is_number(given)) {
            Some((_, given)) => Err(refused(self.name, format!("needs a number, not {given}"))),
            None => Ok(DataType::Struct(fields())),
        }
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

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        let regression = self.clone();
        Some(Box::new(move |call, _| Ok(Expr::AggregateFunction(regression.flattened(call)))))
    }
}

/// Of the result.
fn fields() -> Fields {
    let list = || DataType::new_list(DataType::Float64, true);
    Fields::from(vec![
        Field::new("intercept", DataType::Float64, true),
        Field::new("coefficients", list(), true),
        Field::new("intercept_standard_error", DataType::Float64, true),
        Field::new("standard_errors", list(), true),
        Field::new("r2", DataType::Float64, true),
        Field::new("n", DataType::Int64, true),
    ])
}

/// A model for each sum.
pub(super) fn models(sums: &[Option<Moments<'_>>], ridge: f64) -> Result<ArrayRef> {
    let fits: Vec<Option<Fit>> = sums.iter().map(|sum| sum.map(|sum| fit(sum, ridge))).collect();
    let errors = || fits.iter().map(|fit| fit.as_ref().and_then(|fit| fit.errors.as_ref()));
    let number = |of: fn(&Fit) -> Option<f64>| -> ArrayRef {
        Arc::new(Float64Array::from_iter(fits.iter().map(|fit| fit.as_ref().and_then(of))))
    };
    let counts = sums.iter().map(|sum| sum.map(|sum| sum.rows() as i64));
    let columns: Vec<ArrayRef> = vec![
        number(|fit| Some(fit.intercept)),
        lists(fits.iter().map(|fit| fit.as_ref().map(|fit| &fit.coefficients[..]))),
        Arc::new(Float64Array::from_iter(errors().map(|errors| errors.map(|e| e.intercept)))),
        lists(errors().map(|errors| errors.map(|errors| &errors.coefficients[..]))),
        number(|fit| fit.r2),
        Arc::new(Int64Array::from_iter(counts)),
    ];
    let nulls = fits.iter().map(Option::is_some).collect();
    Ok(Arc::new(StructArray::try_new(fields(), columns, Some(nulls))?))
}

fn lists<'a>(lists: impl Iterator<Item = Option<&'a [f64]>>) -> ArrayRef {
    let mut builder = ListBuilder::new(Float64Builder::new());
    for list in lists {
        if let Some(list) = list {
            builder.values().append_slice(list);
        }
        builder.append(list.is_some());
    }
    Arc::new(builder.finish())
}
