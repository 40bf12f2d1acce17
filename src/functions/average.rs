//! `avg(x)` by group of numbers: a sum and a count, beside each other where the sum is a floating-point number.
//!
//! DataFusion's, which serves every other type, and all that is not by group, adds numbers of the argument's own width.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Float64Array,
    PrimitiveArray, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Float64Type, UInt64Type};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use super::sum::{FEW_GROUPS, GroupedSums, LANES, SumType, counted};
use crate::encoding::for_whole_numbers;

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Average {
    /// DataFusion's.
    any: Arc<AggregateUDF>,
}

impl Default for Average {
    fn default() -> Self {
        Self { any: avg_udaf() }
    }
}

/// Digits of decimals whose sums DataFusion keeps in 128 bits.
const DIGITS_MAX: u8 = 25;

/// Whether averages of such numbers are computed here.
fn is_here(argument: &DataType) -> bool {
    match argument {
        DataType::Float64 => true,
        DataType::Decimal128(digits, _) => *digits <= DIGITS_MAX,
        _ => false,
    }
}

/// Whether the groups of a call of [`Average`] are added up here: those of which [`is_here`] holds, told by what DataFusion
/// adds them up as.
pub(super) fn is_ours(call: &AggregateFunctionExpr) -> bool {
    let sum = call.state_fields().ok().and_then(|states| states.get(1).cloned());
    match sum.as_ref().map(|sum| sum.data_type()) {
        Some(DataType::Float64) => true,
        Some(DataType::Decimal128(..)) => {
            matches!(call.field().data_type(), DataType::Decimal128(..))
        }
        _ => false,
    }
}

impl AggregateUDFImpl for Average {
    super::as_datafusion_does!();
    super::as_datafusion_does_without_groups!();

    fn aliases(&self) -> &[String] {
        self.any.aliases()
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let argument = args.expr_fields[0].data_type();
        match (argument, args.return_type()) {
            (of, DataType::Float64) if is_here(of) => Ok(Box::new(Reals::default())),
            (&DataType::Decimal128(_, scale), answer @ &DataType::Decimal128(_, to))
                if is_here(argument) && to >= scale =>
            {
                let sum = SumType::of(&DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale));
                let sum =
                    sum.ok_or_else(|| internal_datafusion_err!("sums of decimals are exact"))?;
                Ok(Box::new(Decimals {
                    sums: GroupedSums::new(sum),
                    counts: Vec::new(),
                    finer: 10_i128.pow((to - scale).unsigned_abs().into()),
                    answer: answer.clone(),
                }))
            }
            _ => self.any.create_groups_accumulator(args),
        }
    }
}

/// The sum and the count of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    sum: f64,
    count: u64,
}

impl Sum {
    /// Adds so many numbers, of which some may be none. An addition waits for the one before it: they are added in turn to four sums.
    fn add(&mut self, numbers: impl Iterator<Item = f64>, nulls: Option<&NullBuffer>, rows: usize) {
        let mut lanes = [0.0; LANES];
        let mut put = |at: usize, number: f64| lanes[at % LANES] += number;
        match nulls {
            None => numbers.enumerate().for_each(|(at, number)| put(at, number)),
            Some(nulls) => {
                let valid = numbers.zip(nulls).filter(|(_, is_valid)| *is_valid);
                valid.enumerate().for_each(|(at, (number, _))| put(at, number));
            }
        }
        self.sum += lanes.iter().sum::<f64>();
        self.count += (rows - nulls.map_or(0, NullBuffer::null_count)) as u64;
    }
}

/// Averages of floating-point numbers, or of integers as such.
#[derive(Debug, Default)]
struct Reals(Vec<Sum>);

impl Reals {
    fn add(
        &mut self,
        numbers: impl Iterator<Item = f64>,
        nulls: Option<&NullBuffer>,
        groups: &[usize],
    ) {
        let sums = self.0.as_mut_slice();
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        if let [only] = &mut *sums {
            return only.add(numbers, nulls, groups.len());
        }
        let mut put = |group: usize, number: f64| {
            let sum = &mut sums[group];
            sum.sum += number;
            sum.count += 1;
        };
        let rows = groups.iter().zip(numbers);
        match nulls {
            None => rows.for_each(|(&group, number)| put(group, number)),
            Some(nulls) => {
                let valid = rows.zip(nulls).filter(|(_, is_valid)| *is_valid);
                valid.for_each(|((&group, number), _)| put(group, number));
            }
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> (Vec<Sum>, Option<NullBuffer>) {
        let sums = emit_to.take_needed(&mut self.0);
        let nulls = nulls(sums.iter().map(|sum| sum.count));
        (sums, nulls)
    }
}

/// Where a group had no number; nothing where all had some.
fn nulls(counts: impl Iterator<Item = u64>) -> Option<NullBuffer> {
    let nulls: NullBuffer = counts.map(|count| count > 0).collect();
    (nulls.null_count() > 0).then_some(nulls)
}

impl GroupsAccumulator for Reals {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        chosen: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        let values = &counted(&values[0], chosen)?;
        self.0.resize(group_count, Sum::default());
        for_whole_numbers!(values.data_type(), add_whole(self, values.as_ref(), group_indices), _other => {
            let numbers = values.as_primitive::<Float64Type>();
            self.add(numbers.values().iter().copied(), numbers.nulls(), group_indices);
        });
        Ok(())
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.0.resize(group_count, Sum::default());
        let counts = states[0].as_primitive::<UInt64Type>().iter();
        let sums = states[1].as_primitive::<Float64Type>().iter();
        for ((&group, count), sum) in group_indices.iter().zip(counts).zip(sums) {
            if let Some((count, sum)) = count.zip(sum) {
                self.0[group].count += count;
                self.0[group].sum += sum;
            }
        }
        Ok(())
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, nulls) = self.take(emit_to);
        let counts: Vec<u64> = sums.iter().map(|sum| sum.count).collect();
        let sums: Vec<f64> = sums.iter().map(|sum| sum.sum).collect();
        Ok(vec![
            Arc::new(UInt64Array::try_new(counts.into(), nulls.clone())?),
            Arc::new(Float64Array::try_new(sums.into(), nulls)?),
        ])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, nulls) = self.take(emit_to);
        let averages: Vec<f64> = sums.iter().map(|sum| sum.sum / sum.count as f64).collect();
        Ok(Arc::new(Float64Array::try_new(averages.into(), nulls)?))
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        chosen: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = &counted(&values[0], chosen)?;
        Ok(vec![ones(values)?, Arc::clone(values)])
    }

    fn size(&self) -> usize {
        self.0.capacity() * size_of::<Sum>()
    }
}

/// Integers as floating-point numbers.
fn add_whole<T: ArrowPrimitiveType<Native: Into<i128>>>(
    to: &mut Reals,
    numbers: &dyn Array,
    groups: &[usize],
) {
    let numbers: &PrimitiveArray<T> = numbers.as_primitive();
    let real = |&number: &T::Native| {
        let number: i128 = number.into();
        number as f64
    };
    to.add(numbers.values().iter().map(real), numbers.nulls(), groups);
}

/// Counts the values of groups. A count waits for the one before it where both are of one group: rows of few groups are counted
/// in turn in some counts of each.
fn count(counts: &mut [u64], nulls: Option<&NullBuffer>, groups: &[usize]) {
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    if let [only] = counts {
        *only += (groups.len() - nulls.map_or(0, NullBuffer::null_count)) as u64;
    } else if let Some(nulls) = nulls {
        let valid = groups.iter().zip(nulls).filter(|(_, is_valid)| *is_valid);
        valid.for_each(|(&group, _)| counts[group] += 1);
    } else if counts.len() <= FEW_GROUPS {
        let mut lanes = [0_u64; FEW_GROUPS * LANES];
        let (fours, rest) = groups.as_chunks::<LANES>();
        for four in fours {
            for lane in 0..LANES {
                lanes[LANES * four[lane] + lane] += 1;
            }
        }
        rest.iter().for_each(|&group| counts[group] += 1);
        for (count, lanes) in counts.iter_mut().zip(lanes.as_chunks::<LANES>().0) {
            *count += lanes.iter().sum::<u64>();
        }
    } else {
        groups.iter().for_each(|&group| counts[group] += 1);
    }
}

/// A count for each value.
fn ones(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(Arc::new(UInt64Array::try_new(vec![1; values.len()].into(), values.nulls().cloned())?))
}

/// Averages of decimals, whose sums are exact.
#[derive(Debug)]
struct Decimals {
    sums: GroupedSums,
    counts: Vec<u64>,
    /// Units of the answer's last digit in one of the argument's.
    finer: i128,
    answer: DataType,
}

impl GroupsAccumulator for Decimals {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        chosen: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        let values = &counted(&values[0], chosen)?;
        self.counts.resize(group_count, 0);
        count(&mut self.counts, values.nulls(), group_indices);
        self.sums.update_batch(std::slice::from_ref(values), group_indices, None, group_count)
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.counts.resize(group_count, 0);
        let counts = states[0].as_primitive::<UInt64Type>().iter();
        for (&group, count) in group_indices.iter().zip(counts) {
            self.counts[group] += count.unwrap_or_default();
        }
        self.sums.merge_batch(&states[1..], group_indices, group_count)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let counts = emit_to.take_needed(&mut self.counts);
        let nulls = nulls(counts.iter().copied());
        let counts: ArrayRef = Arc::new(UInt64Array::try_new(counts.into(), nulls)?);
        Ok([vec![counts], self.sums.state(emit_to)?].concat())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let counts = emit_to.take_needed(&mut self.counts);
        let nulls = nulls(counts.iter().copied());
        let average = |(&sum, &count): (&i128, &u64)| match i128::from(count) {
            0 => 0,
            // As if the sum were made finer first, which might leave 128 bits.
            count => sum / count * self.finer + sum % count * self.finer / count,
        };
        let sums = self.sums.take_wide(emit_to);
        let averages: Vec<i128> = sums.iter().zip(&counts).map(average).collect();
        let averages = Decimal128Array::try_new(averages.into(), nulls)?;
        Ok(Arc::new(averages.with_data_type(self.answer.clone())))
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        chosen: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = &counted(&values[0], chosen)?;
        Ok([vec![ones(values)?], self.sums.convert_to_state(std::slice::from_ref(values), None)?]
            .concat())
    }

    fn size(&self) -> usize {
        self.counts.capacity() * size_of::<u64>() + self.sums.size()
    }
}

#[cfg(test)]
mod tests {
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Schema};
    use datafusion::physical_expr::PhysicalExpr;
    use datafusion::physical_expr::aggregate::AggregateExprBuilder;
    use datafusion::physical_expr::expressions::Column;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::encoding::encoded;

    /// What adds up the averages of a column of this type.
    fn averages(of: &Arc<AggregateUDF>, data_type: &DataType) -> AggregateFunctionExpr {
        let schema = Arc::new(Schema::new(vec![Field::new("x", data_type.clone(), true)]));
        let x: Arc<dyn PhysicalExpr> = Arc::new(Column::new("x", 0));
        let call = AggregateExprBuilder::new(Arc::clone(of), vec![x]).schema(schema).alias("a");
        call.build().unwrap()
    }

    /// Random numbers with NULLs and conditions and without, encoded and not, states of one half taken into the other.
    #[test]
    fn averages_are_datafusions() {
        let random = &mut SmallRng::seed_from_u64(7);
        let ours = Arc::new(AggregateUDF::from(Average::default()));
        for round in 0..300 {
            let digits = [3, 6, 15, 25, 26][round % 5];
            let data_type = match round % 3 {
                0 => DataType::Float64,
                _ => DataType::Decimal128(digits, 2),
            };
            let (own, other) = (averages(&ours, &data_type), averages(&avg_udaf(), &data_type));
            let new = |of: &AggregateFunctionExpr| of.create_groups_accumulator().unwrap();
            let mut own_halves = [new(&own), new(&own)];
            let mut other_halves = [new(&other), new(&other)];
            let groups = if round % 7 == 0 { 1 } else { random.random_range(1..100) };
            for batch in 0..6 {
                let rows = groups + random.random_range(0..200);
                let least = 10_i128.pow(random.random_range(1..u32::from(digits)));
                let nulls = [0.0, 0.3][random.random_range(0..2)];
                let mut number = || {
                    let number = random.random_range(-least..least);
                    (!random.random_bool(nulls)).then_some(number)
                };
                let numbers: Vec<_> = (0..rows).map(|_| number()).collect();
                let values: ArrayRef = match data_type {
                    DataType::Float64 => {
                        let reals = numbers.iter().map(|of| of.map(|of| of as f64 / 8.0));
                        Arc::new(reals.collect::<Float64Array>())
                    }
                    _ => {
                        let decimals: Decimal128Array = numbers.into_iter().collect();
                        Arc::new(decimals.with_data_type(data_type.clone()))
                    }
                };
                // DataFusion's take a group without a row for one with a value.
                let of_rows: Vec<usize> = (0..groups)
                    .chain((groups..rows).map(|_| random.random_range(0..groups)))
                    .collect();
                let chosen = random.random_bool(0.3).then(|| {
                    let chosen = (0..rows)
                        .map(|_| [None, Some(false), Some(true)][random.random_range(0..3)]);
                    chosen.collect::<BooleanArray>()
                });
                let half = batch % 2;
                let as_it_is = [Arc::clone(&values)];
                let as_kept = [if is_ours(&own) { encoded(&values) } else { values }];
                own_halves[half].update_batch(&as_kept, &of_rows, chosen.as_ref(), groups).unwrap();
                let other = &mut other_halves[half];
                other.update_batch(&as_it_is, &of_rows, chosen.as_ref(), groups).unwrap();
            }
            let all: Vec<usize> = (0..groups).collect();
            let whole = |[mut one, mut half]: [Box<dyn GroupsAccumulator>; 2]| {
                let states = half.state(EmitTo::All).unwrap();
                one.merge_batch(&states, &all, groups).unwrap();
                let first = one.evaluate(EmitTo::First(groups / 2)).unwrap();
                (states, first, one.evaluate(EmitTo::All).unwrap())
            };
            let (found, expected) = (whole(own_halves), whole(other_halves));
            assert_eq!(found.0[1].data_type(), expected.0[1].data_type());
            // Floating-point numbers of one group are added in another order.
            let digits = |of: &ArrayRef| match (of.data_type(), groups) {
                (DataType::Float64, 1) => {
                    let shown = |x: f64| format!("{x:.9e}");
                    let averages = of.as_primitive::<Float64Type>().iter();
                    averages.map(|average| average.map_or_else(String::new, shown)).collect()
                }
                _ => format!("{of:?}"),
            };
            assert_eq!(digits(&found.1), digits(&expected.1), "{data_type}");
            assert_eq!(digits(&found.2), digits(&expected.2), "{data_type}");
        }
    }

    /// The sum of integers is that of the floating-point numbers that they are.
    #[test]
    fn integers_of_any_width_have_the_average_of_reals() {
        let random = &mut SmallRng::seed_from_u64(8);
        for bits in [7, 15, 31, 62] {
            let integers: Vec<i64> =
                (0..500).map(|_| random.random::<i64>() >> (63 - bits)).collect();
            let groups: Vec<usize> = (0..500).map(|_| random.random_range(0..9)).collect();
            let whole: ArrayRef = Arc::new(arrow::array::Int64Array::from(integers));
            let reals = cast(&whole, &DataType::Float64).unwrap();
            let answers = [encoded(&whole), reals].map(|values| {
                let mut averages = Reals::default();
                averages.update_batch(&[values], &groups, None, 9).unwrap();
                averages.evaluate(EmitTo::All).unwrap()
            });
            assert_eq!(&answers[0], &answers[1]);
        }
    }
}
