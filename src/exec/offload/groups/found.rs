//! What a device says of groups, as the keys and the states of aggregates that the host goes on with.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, Float64Array, Int64Array, UInt32Array, UInt64Array, make_array,
};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::take;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::execution::memory_pool::MemoryReservation;

use super::batches::Batches;
use super::run::{Groups, Looked};
use super::term::Values;
use super::text::{Kernel, Value, Words};
use super::totals::Totals;
use super::{Asked, Key, Shown, State};
use crate::exec::offload::Failed;

/// Totals that have come back.
pub(super) struct Found<'a> {
    pub(super) asked: &'a Asked,
    pub(super) rows: &'a Batches<'a>,
    pub(super) looked: &'a [Looked],
    /// How many codes each key has.
    pub(super) codes: &'a [usize],
    pub(super) kernel: &'a Kernel,
    pub(super) totals: &'a Totals,
    /// What values that are read of tables are counted in.
    pub(super) bytes: &'a MemoryReservation,
}

impl Found<'_> {
    pub(super) fn groups(&self) -> Result<Groups, Failed> {
        let states = self.asked.states.iter().zip(&self.kernel.states);
        let states = states.map(|(state, words)| self.state(state, *words));
        Ok(Groups {
            keys: self.asked.shown.iter().map(|of| self.shown(of)).collect::<Result<_, _>>()?,
            states: states.collect::<Result<_, Failed>>()?,
            count: self.totals.codes.len(),
            brought_bytes: 0,
            log: self.rows.log(),
        })
    }

    /// The codes of a key.
    fn codes(&self, key: usize) -> impl Iterator<Item = usize> {
        let each: usize = self.codes[..key].iter().product();
        self.totals.codes.iter().map(move |code| *code as usize / each % self.codes[key])
    }

    fn shown(&self, of: &Shown) -> Result<ArrayRef, Failed> {
        match of {
            Shown::Key(key) => self.key(*key),
            Shown::OfRow(key, column) => {
                let all_bytes = column.bytes();
                self.bytes.try_grow(all_bytes)?;
                let values = column.at(self.codes(*key));
                self.bytes.shrink(all_bytes);
                let values = values?;
                self.bytes.try_grow(values.get_array_memory_size())?;
                Ok(values)
            }
        }
    }

    fn key(&self, key: usize) -> Result<ArrayRef, Failed> {
        let own = self.codes(key);
        match &self.asked.keys[key] {
            Key::LookedUp(at) => {
                let places = UInt32Array::from_iter_values(own.map(|code| code as u32));
                let all = self.looked[*at].different.as_ref();
                let all = all.ok_or_else(|| Failed::Unfit("a key of no values".into()))?;
                Ok(take(all, &places, None)?)
            }
            Key::Column(at) => {
                let (form, codes) = (self.rows.form(*at), self.codes[key]);
                let is_null = |code: usize| form.is_nullable && code + 1 == codes;
                let own = own.map(|code| (!is_null(code)).then_some(code));
                match (&form.texts, self.asked.values[*at]) {
                    (Some(texts), _) => {
                        let places = own.map(|code| code.map(|code| code as u32));
                        Ok(take(texts, &UInt32Array::from_iter(places), None)?)
                    }
                    (None, Values::Whole([least, _])) => {
                        let values =
                            own.map(|code| code.map(|code| i128::from(least) + code as i128));
                        Ok(numbers(values, self.asked.columns[*at].data_type())?)
                    }
                    (None, _) => Err(Failed::Unfit("a key of no whole numbers".into())),
                }
            }
            Key::Row(_) => Err(Failed::Unfit("a row is no value".into())),
        }
    }

    fn state(&self, state: &State, words: Words) -> Result<ArrayRef, Failed> {
        let word = |group: usize, word: usize| self.totals.words[group * self.kernel.words + word];
        let count = |group: usize| word(group, words.count);
        let is_any = |group: &usize| count(*group) > 0;
        let whole = |group: usize| match words.value {
            Value::Halves(at) => {
                (i128::from(word(group, at + 1) as i64) << 32) + i128::from(word(group, at))
            }
            Value::Units(at, _) => {
                let lower = i128::from(word(group, at)) + (i128::from(word(group, at + 1)) << 32);
                lower + (i128::from(word(group, at + 2) as i64) << 64)
            }
            Value::Whole(at) | Value::Real(at) => i128::from(word(group, at) as i64),
            Value::Count => i128::from(count(group)),
        };
        let groups = 0..self.totals.codes.len();
        Ok(match (words.value, &state.data_type) {
            (Value::Count, DataType::Int64) => {
                Arc::new(Int64Array::from_iter_values(groups.map(|group| count(group) as i64)))
            }
            (Value::Count, _) => Arc::new(UInt64Array::from_iter_values(groups.map(count))),
            (Value::Real(at), _) => {
                let sum = |group| {
                    let sum = f64::from_bits(word(group, at));
                    // Beyond the finite numbers nothing was lost that could be added back.
                    let lost = f64::from_bits(word(group, at + 1));
                    if sum.is_finite() { sum + lost } else { sum }
                };
                let sums = groups.map(|group| is_any(&group).then(|| sum(group)));
                Arc::new(Float64Array::from_iter(sums))
            }
            (Value::Units(_, unit), _) => {
                // Rounded once, as long as there is a power for the unit.
                let powers = [unit / 2, unit - unit / 2].map(|power| 2_f64.powi(power));
                let sum = |group| powers.iter().fold(whole(group) as f64, |sum, power| sum * power);
                let sums = groups.map(|group| is_any(&group).then(|| sum(group)));
                Arc::new(Float64Array::from_iter(sums))
            }
            (_, DataType::Float64) => {
                let sums = groups.map(|group| is_any(&group).then(|| whole(group) as f64));
                Arc::new(Float64Array::from_iter(sums))
            }
            (_, data_type) => {
                numbers(groups.map(|group| is_any(&group).then(|| whole(group))), data_type)?
            }
        })
    }
}

/// An array of whole numbers, decimals, days or times, by the numbers that they are kept as.
pub(super) fn numbers(
    values: impl Iterator<Item = Option<i128>>,
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let values: Vec<Option<i128>> = values.collect();
    let width = data_type.primitive_width();
    let width = width.ok_or_else(|| ArrowError::CastError(format!("no numbers of {data_type}")))?;
    let mut cells = Vec::with_capacity(values.len() * width);
    for value in &values {
        let bytes = value.unwrap_or_default().to_le_bytes();
        let bytes = bytes.get(..width);
        cells.extend_from_slice(bytes.ok_or_else(|| {
            ArrowError::CastError(format!("numbers of {data_type} are longer than 128 bits"))
        })?);
    }
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    let data = ArrayData::builder(data_type.clone())
        .len(values.len())
        .add_buffer(Buffer::from_vec(cells))
        .nulls(Some(nulls).filter(|nulls| nulls.null_count() > 0))
        .align_buffers(true);
    Ok(make_array(data.build()?))
}
