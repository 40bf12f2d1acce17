//! The sums of many groups.
//!
//! An addition waits for the one before it where both are of one group: rows of few groups are added in turn to four sums
//! of each, of 64 bits where these are enough, which are put together after each batch; those of one group are added as if there
//! were none. Many sums wait for memory: they have 64 bits each and not 128 while no
//! one can have left them, by the largest of the numbers and how many there were.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Int64Array,
    PrimitiveArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Int64Type, UInt64Type,
};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::one::total;
use super::{SumType, counted};
use crate::encoding::for_whole_numbers;

/// Groups that have several sums.
pub(in crate::functions) const FEW_GROUPS: usize = 64;

/// Sums of one group.
pub(in crate::functions) const LANES: usize = 4;

/// See the header of this file.
#[derive(Debug)]
pub(in crate::functions) struct GroupedSums {
    sums: Sums,
    /// Whether some sum may have left 64 bits.
    has_wide: bool,
    seen: Seen,
    sum_type: SumType,
}

#[derive(Debug)]
enum Sums {
    Wide(Vec<i128>),
    Narrow {
        sums: Vec<i64>,
        /// What none of them is beyond, nor its negative.
        most: u128,
    },
}

/// A sum on its way.
trait Running: Copy + Default {
    /// With another number; and whether it has left its bits.
    fn plus(self, number: i128) -> (Self, bool);

    fn wide(self) -> i128;
}

impl Running for i64 {
    fn plus(self, number: i128) -> (Self, bool) {
        (self.wrapping_add(number as i64), false)
    }

    fn wide(self) -> i128 {
        self.into()
    }
}

impl Running for i128 {
    fn plus(self, number: i128) -> (Self, bool) {
        self.overflowing_add(number)
    }

    fn wide(self) -> i128 {
        self
    }
}

/// Adds a number to the sum of a group; and whether that has left its bits.
fn put<S: Running>(sums: &mut [S], group: usize, number: i128) -> bool {
    let (sum, is_beyond) = sums[group].plus(number);
    sums[group] = sum;
    is_beyond
}

/// Adds numbers to the sums of their groups; false where one has left its bits.
fn add<S: Running, T: ArrowPrimitiveType<Native: Into<i128>>>(
    sums: &mut [S],
    numbers: &PrimitiveArray<T>,
    groups: &[usize],
) -> bool {
    let mut is_beyond = false;
    let values = numbers.values();
    if let [only] = &mut *sums {
        let Some(total) = total(numbers) else { return false };
        is_beyond = put(std::slice::from_mut(only), 0, total);
    } else if numbers.null_count() > 0 {
        for (&group, number) in groups.iter().zip(numbers) {
            number.into_iter().for_each(|number| is_beyond |= put(sums, group, number.into()));
        }
    } else if sums.len() <= FEW_GROUPS {
        is_beyond = match most_of(values).saturating_mul(values.len() as u128) {
            ..=NARROW_MAX => add_in_turn::<i64, S, _>(sums, values, groups),
            _ => add_in_turn::<i128, S, _>(sums, values, groups),
        };
    } else {
        let pairs = groups.iter().zip(values);
        pairs.for_each(|(&group, &value)| is_beyond |= put(sums, group, value.into()));
    }
    !is_beyond
}

/// Adds numbers in turn to some sums of each group, which are added to its own in the end; whether one has left its bits.
fn add_in_turn<L: Running, S: Running, N: Copy + Into<i128>>(
    sums: &mut [S],
    values: &[N],
    groups: &[usize],
) -> bool {
    let mut is_beyond = false;
    let mut lanes = [L::default(); FEW_GROUPS * LANES];
    let (groups, last_groups) = groups.as_chunks::<LANES>();
    let (values, last_values) = values.as_chunks::<LANES>();
    for (groups, values) in groups.iter().zip(values) {
        for lane in 0..LANES {
            is_beyond |= put(&mut lanes, LANES * groups[lane] + lane, values[lane].into());
        }
    }
    for (&group, &value) in last_groups.iter().zip(last_values) {
        is_beyond |= put(&mut lanes, LANES * group, value.into());
    }
    for group in 0..sums.len() {
        let lanes = &lanes[LANES * group..][..LANES];
        lanes.iter().for_each(|sum| is_beyond |= put(sums, group, sum.wide()));
    }
    is_beyond
}

/// What sums of 64 bits are not beyond.
const NARROW_MAX: u128 = i64::MAX as u128;

/// What no number is beyond, nor its negative: of few bits, these say enough.
fn most_of<N: Copy + Into<i128>>(numbers: &[N]) -> u128 {
    match 8 * size_of::<N>() {
        bits @ ..=32 => 1 << bits,
        _ => most(numbers),
    }
}

/// What no number is beyond, nor its negative.
fn most<N: Copy + Into<i128>>(numbers: &[N]) -> u128 {
    let bits = |bits: u128, &number: &N| {
        let number: i128 = number.into();
        bits | (number ^ (number >> 127)) as u128
    };
    numbers.iter().fold(0, bits) + 1
}

impl Sums {
    fn len(&self) -> usize {
        match self {
            Self::Wide(sums) => sums.len(),
            Self::Narrow { sums, .. } => sums.len(),
        }
    }

    fn resize(&mut self, groups: usize) {
        match self {
            Self::Wide(sums) => sums.resize(groups, 0),
            Self::Narrow { sums, .. } => sums.resize(groups, 0),
        }
    }

    /// With 64 bits each where they fit.
    fn narrow(self) -> Self {
        match self {
            Self::Wide(sums) if most(&sums) <= NARROW_MAX => Self::Narrow {
                most: most(&sums),
                sums: sums.into_iter().map(|sum| sum as i64).collect(),
            },
            sums => sums,
        }
    }

    fn wide(self) -> Vec<i128> {
        match self {
            Self::Wide(sums) => sums,
            Self::Narrow { sums, .. } => sums.into_iter().map(i128::from).collect(),
        }
    }
}

impl GroupedSums {
    pub(in crate::functions) fn new(sum_type: SumType) -> Self {
        Self { sums: Sums::Wide(Vec::new()), has_wide: false, seen: Seen::default(), sum_type }
    }

    /// Adds numbers; false where a sum has left 128 bits.
    fn add<T: ArrowPrimitiveType<Native: Into<i128>>>(
        &mut self,
        numbers: &ArrayRef,
        groups: &[usize],
    ) -> bool {
        let numbers = numbers.as_primitive::<T>();
        let mut sums = std::mem::replace(&mut self.sums, Sums::Wide(Vec::new()));
        if sums.len() > FEW_GROUPS && !self.has_wide {
            sums = sums.narrow();
            self.has_wide = matches!(sums, Sums::Wide(_));
        }
        if let Sums::Narrow { most: so_far, .. } = &mut sums {
            let more = most_of(numbers.values()).saturating_mul(numbers.len() as u128);
            *so_far = so_far.saturating_add(more);
            self.has_wide = *so_far > NARROW_MAX;
        }
        if self.has_wide {
            sums = Sums::Wide(sums.wide());
        }
        let fits = match &mut sums {
            Sums::Wide(sums) => add(sums, numbers, groups),
            Sums::Narrow { sums, .. } => add(sums, numbers, groups),
        };
        self.sums = sums;
        fits
    }

    /// The sums of some groups, which are zero where there is none.
    pub(in crate::functions) fn take_wide(&mut self, emit_to: EmitTo) -> Vec<i128> {
        self.take(emit_to).0.wide()
    }

    /// The same, and where there is none.
    fn take(&mut self, emit_to: EmitTo) -> (Sums, Option<NullBuffer>) {
        let nulls = self.seen.take(emit_to).map(NullBuffer::from);
        let sums = match &mut self.sums {
            Sums::Wide(sums) => Sums::Wide(emit_to.take_needed(sums)),
            Sums::Narrow { sums, most } => {
                Sums::Narrow { sums: emit_to.take_needed(sums), most: *most }
            }
        };
        if self.sums.len() == 0 {
            (self.sums, self.has_wide) = (Sums::Wide(Vec::new()), false);
        }
        (sums, nulls)
    }
}

fn add_to<T: ArrowPrimitiveType<Native: Into<i128>>>(
    sums: &mut GroupedSums,
    numbers: &ArrayRef,
    groups: &[usize],
) -> bool {
    sums.add::<T>(numbers, groups)
}

impl GroupsAccumulator for GroupedSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        chosen: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        let values = &counted(&values[0], chosen)?;
        self.seen.add(group_indices, values, self.sums.len()..group_count);
        self.sums.resize(group_count);
        // Numbers of fewer bits than the argument has are the same ones.
        let fits = match values.data_type() {
            DataType::Decimal32(..) => add_to::<Decimal32Type>(self, values, group_indices),
            DataType::Decimal64(..) => add_to::<Decimal64Type>(self, values, group_indices),
            whole => for_whole_numbers!(whole, add_to(self, values, group_indices), other => {
                return internal_err!("{other} is none of whole numbers");
            }),
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
        let (sums, nulls) = self.take(emit_to);
        let sums = Decimal128Array::try_new(sums.wide().into(), nulls)?;
        Ok(vec![Arc::new(sums.with_data_type(self.sum_type.state()))])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, nulls) = self.take(emit_to);
        let sums = match (&self.sum_type.0, sums) {
            (DataType::Int64, Sums::Narrow { sums, .. }) => {
                return Ok(Arc::new(Int64Array::try_new(sums.into(), nulls)?));
            }
            (_, sums) => sums.wide(),
        };
        for &sum in &sums {
            self.sum_type.fitting(sum)?;
        }
        self.sum_type.column(sums, nulls)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        chosen: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = &counted(&values[0], chosen)?;
        Ok(vec![cast(values, &self.sum_type.state())?])
    }

    fn size(&self) -> usize {
        let sums = match &self.sums {
            Sums::Wide(sums) => sums.capacity() * size_of::<i128>(),
            Sums::Narrow { sums, .. } => sums.capacity() * size_of::<i64>(),
        };
        sums + self.seen.0.as_ref().map_or(0, Vec::capacity)
    }
}

impl SumType {
    /// Sums, all of which fit, as a column of the type.
    fn column(&self, sums: Vec<i128>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        fn of<T: ArrowPrimitiveType>(
            sums: Vec<T::Native>,
            nulls: Option<NullBuffer>,
            data_type: &DataType,
        ) -> Result<ArrayRef> {
            let column = PrimitiveArray::<T>::try_new(sums.into(), nulls)?;
            Ok(Arc::new(column.with_data_type(data_type.clone())))
        }
        let each = sums.iter();
        match &self.0 {
            decimal @ DataType::Decimal128(..) => of::<Decimal128Type>(sums, nulls, decimal),
            decimal @ DataType::Decimal64(..) => {
                of::<Decimal64Type>(each.map(|&sum| sum as i64).collect(), nulls, decimal)
            }
            decimal @ DataType::Decimal32(..) => {
                of::<Decimal32Type>(each.map(|&sum| sum as i32).collect(), nulls, decimal)
            }
            unsigned @ DataType::UInt64 => {
                of::<UInt64Type>(each.map(|&sum| sum as u64).collect(), nulls, unsigned)
            }
            integer => of::<Int64Type>(each.map(|&sum| sum as i64).collect(), nulls, integer),
        }
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
            // Some sums stay within 64 bits, some leave them on the way, and some never are.
            let shift = [0, 16, 17, 40][round % 4];
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
                    (!has_nulls || random.random_bool(0.5)).then(|| {
                        i128::from(random.random::<i64>() >> shift) * random.random_range(1..1000)
                    })
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
    fn numbers_of_few_groups_add_up_beyond_64_bits() {
        let of_rows = [0, 1, 1, 1, 1, 1, 0, 1, 1];
        for number in [i64::MAX, i64::MIN, i64::MAX / 9 + 1, i64::MAX / 9] {
            let numbers: ArrayRef = Arc::new(Int64Array::from(vec![number; of_rows.len()]));
            let mut sums = GroupedSums::new(SumType::of(&DataType::Int64).unwrap());
            sums.update_batch(&[numbers], &of_rows, None, 2).unwrap();
            let expected = [2, 7].map(|rows| rows * i128::from(number));
            assert_eq!(sums.take_wide(EmitTo::All), expected);
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
