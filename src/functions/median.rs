//! `median(x)` by group of decimals and floating-point numbers: all values as they come, and those of a group beside each other
//! once they are asked for.
//!
//! DataFusion's, which serves every other type, and all that is not by group, has a list for each group, which it grows, counts
//! the bytes of and puts together by itself.

use std::mem::{replace, take};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowNumericType, AsArray, BooleanArray, ListArray,
    PrimitiveArray,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, Decimal128Type, Field, Float64Type};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::functions_aggregate::median::median_udaf;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator};

use super::sum::counted;

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Median {
    /// DataFusion's.
    any: Arc<AggregateUDF>,
}

impl Default for Median {
    fn default() -> Self {
        Self { any: median_udaf() }
    }
}

impl AggregateUDFImpl for Median {
    super::as_datafusion_does!();
    super::as_datafusion_does_without_groups!();

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let data_type = args.return_type().clone();
        let any = self.any.create_groups_accumulator(args)?;
        Ok(match data_type {
            DataType::Decimal128(..) => Box::new(Groups::<Decimal128Type>::new(data_type, any)),
            DataType::Float64 => Box::new(Groups::<Float64Type>::new(data_type, any)),
            _ => any,
        })
    }
}

/// Values that lie beside each other, so that no more of them are moved as they become many.
const CHUNK_VALUES: usize = 64 << 10;

/// The values of many groups.
struct Groups<T: ArrowNumericType> {
    data_type: DataType,
    count: usize,
    full: Vec<Chunk<T::Native>>,
    last: Chunk<T::Native>,
    /// DataFusion's, for what each row would be by itself.
    any: Box<dyn GroupsAccumulator>,
}

/// Values as they came, and the group of each.
struct Chunk<N> {
    groups: Vec<u32>,
    values: Vec<N>,
}

impl<N> Default for Chunk<N> {
    fn default() -> Self {
        Self { groups: Vec::new(), values: Vec::new() }
    }
}

impl<T: ArrowNumericType> Groups<T> {
    fn new(data_type: DataType, any: Box<dyn GroupsAccumulator>) -> Self {
        Self { data_type, count: 0, full: Vec::new(), last: Chunk::default(), any }
    }

    /// Adds values of one group.
    fn extend(&mut self, group: usize, mut values: &[T::Native]) {
        while !values.is_empty() {
            let (some, rest) = values.split_at(values.len().min(self.room()));
            self.last.values.extend_from_slice(some);
            self.last.groups.resize(self.last.values.len(), group as u32);
            values = rest;
        }
    }

    /// For how many more values there is room in the last chunk, of which there is some.
    fn room(&mut self) -> usize {
        if self.last.values.len() == CHUNK_VALUES {
            // There are many: the next is not to move while it grows.
            let whole = Chunk {
                groups: Vec::with_capacity(CHUNK_VALUES),
                values: Vec::with_capacity(CHUNK_VALUES),
            };
            self.full.push(replace(&mut self.last, whole));
        }
        CHUNK_VALUES - self.last.values.len()
    }

    /// The values of groups that are emitted, those of each beside each other, and where they begin and end.
    fn take(&mut self, emit_to: EmitTo) -> (Vec<usize>, Vec<T::Native>) {
        let emitted = match emit_to {
            EmitTo::All => self.count,
            EmitTo::First(count) => count,
        };
        self.count -= emitted;
        let mut chunks = take(&mut self.full);
        chunks.push(take(&mut self.last));
        let mut ends = vec![0; emitted + 1];
        for &group in chunks.iter().flat_map(|chunk| &chunk.groups) {
            if let Some(values) = ends.get_mut(group as usize + 1) {
                *values += 1;
            }
        }
        for group in 0..emitted {
            ends[group + 1] += ends[group];
        }
        let mut next = ends[..emitted].to_vec();
        let mut values = vec![T::Native::default(); ends[emitted]];
        for chunk in chunks {
            for (group, value) in chunk.groups.into_iter().zip(chunk.values) {
                match next.get_mut(group as usize) {
                    Some(place) => {
                        values[*place] = value;
                        *place += 1;
                    }
                    None => self.extend(group as usize - emitted, &[value]),
                }
            }
        }
        (ends, values)
    }
}

impl<T: ArrowNumericType> GroupsAccumulator for Groups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        chosen: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.count = count;
        let values = counted(&values[0], chosen)?;
        let values = values.as_primitive::<T>();
        if values.null_count() > 0 {
            for (&group, value) in groups.iter().zip(values) {
                value.into_iter().for_each(|value| self.extend(group, &[value]));
            }
            return Ok(());
        }
        let (mut groups, mut values) = (groups, &values.values()[..]);
        while !values.is_empty() {
            let room = values.len().min(self.room());
            self.last.values.extend_from_slice(&values[..room]);
            self.last.groups.extend(groups[..room].iter().map(|&group| group as u32));
            (groups, values) = (&groups[room..], &values[room..]);
        }
        Ok(())
    }

    fn merge_batch(&mut self, lists: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.count = count;
        let lists = lists[0].as_list::<i32>();
        let values = lists.values().as_primitive::<T>().values();
        for (row, &group) in groups.iter().enumerate().filter(|(row, _)| lists.is_valid(*row)) {
            let (start, end) = (lists.value_offsets()[row], lists.value_offsets()[row + 1]);
            self.extend(group, &values[start as usize..end as usize]);
        }
        Ok(())
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (ends, values) = self.take(emit_to);
        let end = |&end: &usize| {
            i32::try_from(end).map_err(|_| exec_datafusion_err!("more values than a list can have"))
        };
        let ends = ends.iter().map(end).collect::<Result<Vec<_>>>()?;
        let values = PrimitiveArray::<T>::new(ScalarBuffer::from(values), None);
        let values = Arc::new(values.with_data_type(self.data_type.clone()));
        let item = Arc::new(Field::new_list_field(self.data_type.clone(), true));
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        Ok(vec![Arc::new(ListArray::try_new(item, ends, values, None)?)])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (ends, mut values) = self.take(emit_to);
        let of_group = |ends: &[usize]| median(&mut values[ends[0]..ends[1]]);
        let medians: PrimitiveArray<T> = ends.windows(2).map(of_group).collect();
        Ok(Arc::new(medians.with_data_type(self.data_type.clone())))
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        chosen: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.any.convert_to_state(values, chosen)
    }

    fn size(&self) -> usize {
        // Once where they came, and once where they are put together.
        let value = size_of::<u32>() + 2 * size_of::<T::Native>();
        (self.full.len() * CHUNK_VALUES + self.last.values.capacity()) * value
    }
}

/// The value in the middle of some, or half of the sum of the two there; none of none. As DataFusion has it of values in order.
fn median<N: ArrowNativeTypeOp + ArrowNativeType>(values: &mut [N]) -> Option<N> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let is_odd = values.len() % 2 == 1;
    let (below, high, _) = values.select_nth_unstable_by(middle, |one, other| one.compare(*other));
    let low = below.iter().copied().reduce(|most, value| match value.compare(most).is_gt() {
        true => value,
        false => most,
    });
    let Some(low) = low.filter(|_| !is_odd) else { return Some(*high) };
    let two = N::usize_as(2);
    Some(match low.add_checked(*high) {
        Ok(sum) => sum.div_wrapping(two),
        // Half of each, and of what that leaves.
        Err(_) => {
            let rests = low.mod_wrapping(two).add_wrapping(high.mod_wrapping(two));
            let halves = low.div_wrapping(two).add_wrapping(high.div_wrapping(two));
            halves.add_wrapping(rests.div_wrapping(two))
        }
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, UInt32Array};
    use arrow::compute::take as rows;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// The accumulators of medians of floating-point numbers, ours and DataFusion's.
    fn both() -> [Box<dyn GroupsAccumulator>; 2] {
        use datafusion::physical_expr::aggregate::AggregateExprBuilder;
        use datafusion::physical_expr::expressions::col;
        let schema =
            Arc::new(arrow::datatypes::Schema::new(vec![Field::new("x", DataType::Float64, true)]));
        let of = |function: Arc<AggregateUDF>| {
            let call = AggregateExprBuilder::new(function, vec![col("x", &schema).unwrap()]);
            let call = call.schema(Arc::clone(&schema)).alias("m").build().unwrap();
            call.create_groups_accumulator().unwrap()
        };
        [of(Arc::new(AggregateUDF::from(Median::default()))), of(median_udaf())]
    }

    #[test]
    fn medians_are_those_of_datafusion_in_parts_and_as_a_whole() {
        let random = &mut SmallRng::seed_from_u64(2);
        for (groups, batches) in [(3, 30), (5000, 12), (1, 9)] {
            let [mut ours, mut other] = both();
            let [mut later, _] = both();
            for batch in 0..batches {
                let number = |at| (at % 11 != 3).then(|| f64::from(random.random_range(-900..900)));
                let values: ArrayRef = Arc::new((0..8192).map(number).collect::<Float64Array>());
                let of: Vec<usize> = (0..8192).map(|at| (at * 7919 + batch) % groups).collect();
                let chosen: BooleanArray = (0..8192).map(|at| Some(at % 5 != batch % 5)).collect();
                let chosen = (batch % 3 == 0).then_some(&chosen);
                let values = [values];
                let part = if batch % 2 == 0 { &mut ours } else { &mut later };
                part.update_batch(&values, &of, chosen, groups).unwrap();
                other.update_batch(&values, &of, chosen, groups).unwrap();
            }
            // The groups of the other part in another order.
            let order: UInt32Array = (0..groups as u32).rev().collect();
            let states = later.state(EmitTo::All).unwrap();
            let states = [rows(&states[0], &order, None).unwrap()];
            let of: Vec<usize> = (0..groups).rev().collect();
            ours.merge_batch(&states, &of, groups).unwrap();
            assert!(ours.size() > 0);
            for emitted in [EmitTo::First(groups / 3), EmitTo::All] {
                let expected = other.evaluate(emitted).unwrap();
                assert_eq!(&ours.evaluate(emitted).unwrap(), &expected);
            }
        }
    }

    #[test]
    fn half_of_a_sum_that_is_no_number_of_its_bits_is_one() {
        assert_eq!(median(&mut [i128::MAX, i128::MAX - 2]), Some(i128::MAX - 1));
        assert_eq!(median(&mut [i128::MIN, i128::MIN + 3, 0]), Some(i128::MIN + 3));
        assert_eq!(median(&mut [3.0, 1.0]), Some(2.0));
        assert_eq!(median::<f64>(&mut []), None);
    }
}
