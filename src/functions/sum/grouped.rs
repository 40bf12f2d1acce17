//! The sums of many groups.
//!
//! An addition waits for the one before it where both are of one group. Rows of few groups are therefore added in turn to
//! four sums of each, which are put together after each batch.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, PrimitiveArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Int64Type, UInt64Type,
};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::{SumType, nulled};

/// Groups that have several sums.
const FEW_GROUPS: usize = 64;

/// Sums of one group.
const LANES: usize = 4;

/// See the header of this file.
#[derive(Debug)]
pub(super) struct GroupedSums {
    sums: Vec<i128>,
    seen: Seen,
    /// The sums of few groups while a batch is added.
    lanes: Vec<i128>,
    sum_type: SumType,
}

impl GroupedSums {
    pub(super) fn new(sum_type: SumType) -> Self {
        Self { sums: Vec::new(), seen: Seen::default(), lanes: Vec::new(), sum_type }
    }

    /// Adds numbers; false where a sum has left 128 bits.
    fn add<T: ArrowPrimitiveType<Native: Into<i128>>>(
        &mut self,
        numbers: &ArrayRef,
        groups: &[usize],
    ) -> bool {
        let numbers = numbers.as_primitive::<T>();
        let mut is_beyond = false;
        let mut put = |sums: &mut [i128], at: usize, number: i128| {
            let (sum, beyond) = sums[at].overflowing_add(number);
            sums[at] = sum;
            is_beyond |= beyond;
        };
        let values = numbers.values();
        if numbers.null_count() > 0 {
            for (&group, number) in groups.iter().zip(numbers) {
                number.into_iter().for_each(|number| put(&mut self.sums, group, number.into()));
            }
        } else if self.sums.len() <= FEW_GROUPS {
            self.lanes.clear();
            self.lanes.resize(LANES * self.sums.len(), 0);
            let (groups, last_groups) = groups.as_chunks::<LANES>();
            let (values, last_values) = values.as_chunks::<LANES>();
            for (groups, values) in groups.iter().zip(values) {
                for lane in 0..LANES {
                    put(&mut self.lanes, LANES * groups[lane] + lane, values[lane].into());
                }
            }
            for (&group, &value) in last_groups.iter().zip(last_values) {
                put(&mut self.lanes, LANES * group, value.into());
            }
            for (group, lanes) in self.lanes.as_chunks::<LANES>().0.iter().enumerate() {
                lanes.iter().for_each(|&sum| put(&mut self.sums, group, sum));
            }
        } else {
            let pairs = groups.iter().zip(values);
            pairs.for_each(|(&group, &value)| put(&mut self.sums, group, value.into()));
        }
        !is_beyond
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Option<i128>> {
        let sums = emit_to.take_needed(&mut self.sums);
        match self.seen.take(emit_to) {
            Some(seen) => {
                sums.into_iter().zip(seen).map(|(sum, seen)| seen.then_some(sum)).collect()
            }
            None => sums.into_iter().map(Some).collect(),
        }
    }
}

impl GroupsAccumulator for GroupedSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        chosen: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        let chosen_values = chosen.map(|chosen| nulled(&values[0], chosen)).transpose()?;
        let values = chosen_values.as_ref().unwrap_or(&values[0]);
        self.seen.add(group_indices, values, self.sums.len()..group_count);
        self.sums.resize(group_count, 0);
        let fits = match values.data_type() {
            DataType::UInt64 => self.add::<UInt64Type>(values, group_indices),
            DataType::Int64 => self.add::<Int64Type>(values, group_indices),
            DataType::Decimal32(..) => self.add::<Decimal32Type>(values, group_indices),
            DataType::Decimal64(..) => self.add::<Decimal64Type>(values, group_indices),
            _ => self.add::<Decimal128Type>(values, group_indices),
        };
        if fits { Ok(()) } else { Err(self.sum_type.beyond()) }
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.update_batch(states, group_indices, None, group_count)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = Decimal128Array::from_iter(self.take(emit_to));
        Ok(vec![Arc::new(sums.with_data_type(self.sum_type.state()))])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        fn made<T: ArrowPrimitiveType>(
            sums: &[Option<i128>],
            sum_type: &SumType,
            native: impl Fn(i128) -> T::Native,
        ) -> Result<ArrayRef> {
            let sum = |sum: &Option<i128>| {
                Ok(sum.map(|sum| sum_type.fitting(sum)).transpose()?.map(&native))
            };
            let sums = sums.iter().map(sum).collect::<Result<PrimitiveArray<T>>>()?;
            Ok(Arc::new(sums.with_data_type(sum_type.0.clone())))
        }
        let sums = self.take(emit_to);
        match self.sum_type.0 {
            DataType::UInt64 => made::<UInt64Type>(&sums, &self.sum_type, |sum| sum as u64),
            DataType::Decimal32(..) => {
                made::<Decimal32Type>(&sums, &self.sum_type, |sum| sum as i32)
            }
            DataType::Decimal64(..) => {
                made::<Decimal64Type>(&sums, &self.sum_type, |sum| sum as i64)
            }
            DataType::Decimal128(..) => made::<Decimal128Type>(&sums, &self.sum_type, |sum| sum),
            _ => made::<Int64Type>(&sums, &self.sum_type, |sum| sum as i64),
        }
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        chosen: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let chosen = chosen.map(|chosen| nulled(&values[0], chosen)).transpose()?;
        let values = chosen.as_ref().unwrap_or(&values[0]);
        Ok(vec![cast(values, &self.sum_type.state())?])
    }

    fn size(&self) -> usize {
        let sums = self.sums.capacity() + self.lanes.capacity();
        sums * size_of::<i128>() + self.seen.0.as_ref().map_or(0, Vec::capacity)
    }
}

/// Which groups had a value; nothing where all had one.
#[derive(Debug, Default)]
struct Seen(Option<Vec<bool>>);

impl Seen {
    /// Notes the groups of some values; some of them are new.
    fn add(&mut self, groups: &[usize], values: &ArrayRef, new: Range<usize>) {
        let note = |seen: &mut [bool], first: usize| {
            let mut note = |group: usize| {
                if let Some(seen) = group.checked_sub(first).and_then(|at| seen.get_mut(at)) {
                    *seen = true;
                }
            };
            match values.nulls().filter(|nulls| nulls.null_count() > 0) {
                None => groups.iter().for_each(|&group| note(group)),
                Some(nulls) => {
                    let valid = groups.iter().zip(nulls).filter(|(_, is_valid)| *is_valid);
                    valid.for_each(|(&group, _)| note(group));
                }
            }
        };
        match &mut self.0 {
            Some(seen) => {
                seen.resize(new.end, false);
                note(seen, 0);
            }
            None if new.is_empty() => {}
            None => {
                let mut of_new = vec![false; new.len()];
                note(&mut of_new, new.start);
                if !of_new.iter().all(|seen| *seen) {
                    self.0 = Some([vec![true; new.start], of_new].concat());
                }
            }
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> Option<Vec<bool>> {
        self.0.as_mut().map(|seen| emit_to.take_needed(seen))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn decimals(of: Vec<Option<i128>>) -> ArrayRef {
        Arc::new(Decimal128Array::from(of).with_precision_and_scale(38, 2).unwrap())
    }

    fn sums() -> GroupedSums {
        GroupedSums::new(SumType::of(&DataType::Decimal128(38, 2)).unwrap())
    }

    /// Batches of few groups and of many, with NULLs and conditions and without, the states of one half taken into the other,
    /// and the first groups taken before the last.
    #[test]
    fn sums_are_those_of_their_rows() {
        let mut random = SmallRng::seed_from_u64(1);
        for round in 0..200 {
            let groups = [1, 5, FEW_GROUPS, FEW_GROUPS + 1, 500][round % 5];
            let (mut one, mut other) = (sums(), sums());
            let mut expected: BTreeMap<usize, Option<i128>> = BTreeMap::new();
            let (mut known, mut known_to_other) = (0, 0);
            for batch in 0..8 {
                let rows = random.random_range(1..300);
                let (has_nulls, has_condition) = (random.random_bool(0.3), random.random_bool(0.3));
                let is_other = batch % 3 == 2;
                let known = if is_other { &mut known_to_other } else { &mut known };
                // Each group that is new has a row.
                let mut of_rows = Vec::new();
                for _ in 0..rows {
                    let group = random.random_range(0..groups.min(*known + 1));
                    *known = (*known).max(group + 1);
                    of_rows.push(group);
                }
                let value = |random: &mut SmallRng| {
                    (!has_nulls || random.random_bool(0.5))
                        .then(|| i128::from(random.random::<i64>()) * random.random_range(1..1000))
                };
                let values: Vec<_> = (0..rows).map(|_| value(&mut random)).collect();
                let chosen: Vec<_> = (0..rows)
                    .map(|_| [None, Some(false), Some(true)][random.random_range(0..3)])
                    .collect();
                for (at, &group) in of_rows.iter().enumerate() {
                    let sum = expected.entry(group).or_default();
                    let counts = !has_condition || chosen[at] == Some(true);
                    if let Some(value) = values[at].filter(|_| counts) {
                        *sum = Some(sum.unwrap_or(0) + value);
                    }
                }
                let chosen = has_condition.then(|| BooleanArray::from(chosen));
                let of = if is_other { &mut other } else { &mut one };
                of.update_batch(&[decimals(values)], &of_rows, chosen.as_ref(), *known).unwrap();
            }
            let states = other.state(EmitTo::All).unwrap();
            let all: Vec<usize> = (0..known_to_other).collect();
            let known = known.max(known_to_other);
            one.merge_batch(&states, &all, known).unwrap();
            let first = random.random_range(0..=known);
            let found: Vec<ArrayRef> = [EmitTo::First(first), EmitTo::All]
                .into_iter()
                .map(|emit_to| one.evaluate(emit_to).unwrap())
                .collect();
            let found = found.iter().flat_map(|sums| sums.as_primitive::<Decimal128Type>().iter());
            assert_eq!(found.collect::<Vec<_>>(), expected.into_values().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_sum_that_leaves_its_digits_or_128_bits_is_an_error() {
        let most = 10_i128.pow(38) - 1;
        for (values, fits) in [
            (vec![most], true),
            (vec![most, -most, most], true),
            (vec![most, 1], false),
            (vec![most; 2], false),
            (vec![most; 4], false),
            (vec![-most; 9], false),
        ] {
            for others in [0, FEW_GROUPS] {
                let mut sums = sums();
                let (rows, groups) = (values.len(), 1 + others);
                let values: Vec<_> =
                    values.iter().map(|&x| Some(x)).chain(vec![Some(0); others]).collect();
                let of_rows: Vec<usize> = std::iter::repeat_n(0, rows).chain(1..groups).collect();
                let added = sums.update_batch(&[decimals(values)], &of_rows, None, groups);
                let answer = added.and_then(|()| sums.evaluate(EmitTo::All));
                assert_eq!(answer.is_ok(), fits);
                if let Err(error) = answer {
                    assert!(error.to_string().contains("DECIMAL(38, 2)"), "{error}");
                }
            }
        }
    }
}
