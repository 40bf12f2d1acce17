//! `min(x)` and `max(x)` by group of floating-point numbers, of which NaN is the greatest, as in DuckDB and
//! PostgreSQL.
//!
//! DataFusion's, which serves every other type, begins with the largest finite number, which an infinity does
//! not change, and keeps or forgets NaN by the order of the rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::Result;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Extreme {
    /// DataFusion's.
    any: Arc<AggregateUDF>,
    is_least: bool,
}

impl Extreme {
    pub(super) fn least() -> Self {
        Self { any: min_udaf(), is_least: true }
    }

    pub(super) fn greatest() -> Self {
        Self { any: max_udaf(), is_least: false }
    }
}

impl AggregateUDFImpl for Extreme {
    super::as_datafusion_does!();
    super::as_datafusion_does_without_groups!();

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let is_least = self.is_least;
        match args.return_type() {
            DataType::Float64 => Ok(Box::new(Groups::<Float64Type>::new(is_least))),
            DataType::Float32 => Ok(Box::new(Groups::<Float32Type>::new(is_least))),
            _ => self.any.create_groups_accumulator(args),
        }
    }
}

/// The extremes of many groups; none where a group had no number.
#[derive(Debug)]
struct Groups<T: ArrowPrimitiveType> {
    is_least: bool,
    extremes: Vec<Option<T::Native>>,
}

impl<T: ArrowPrimitiveType<Native: PartialOrd>> Groups<T> {
    fn new(is_least: bool) -> Self {
        Self { is_least, extremes: Vec::new() }
    }

    fn add(&mut self, group: usize, value: T::Native) {
        // What does not compare with itself is NaN.
        let is_nan = |x: T::Native| x.partial_cmp(&x).is_none();
        let is_less = |x: T::Native, y: T::Native| x < y || (is_nan(y) && !is_nan(x));
        let extreme = &mut self.extremes[group];
        let replaces = extreme.is_none_or(|extreme| match self.is_least {
            true => is_less(value, extreme),
            false => is_less(extreme, value),
        });
        if replaces {
            *extreme = Some(value);
        }
    }
}

impl<T: ArrowPrimitiveType<Native: PartialOrd>> GroupsAccumulator for Groups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        chosen: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.extremes.resize(group_count, None);
        let values = values[0].as_primitive::<T>();
        let is_chosen =
            |row: usize| chosen.is_none_or(|chosen| chosen.is_valid(row) && chosen.value(row));
        if values.null_count() == 0 && chosen.is_none() {
            groups.iter().zip(values.values()).for_each(|(&group, &value)| self.add(group, value));
            return Ok(());
        }
        for (row, (&group, value)) in groups.iter().zip(values).enumerate() {
            if let Some(value) = value.filter(|_| is_chosen(row)) {
                self.add(group, value);
            }
        }
        Ok(())
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.update_batch(states, groups, None, group_count)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let extremes = emit_to.take_needed(&mut self.extremes);
        Ok(Arc::new(extremes.into_iter().collect::<PrimitiveArray<T>>()))
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        chosen: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        Ok(vec![super::sum::counted(&values[0], chosen)?])
    }

    fn size(&self) -> usize {
        self.extremes.capacity() * size_of::<Option<T::Native>>()
    }
}
