//! Rows added up by groups on a device, and what it says of them as the states of aggregates.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, UInt32Array,
    UInt64Array, make_array, new_null_array,
};
use arrow::buffer::{Buffer as HostBuffer, NullBuffer};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;

use super::column::{Column, PACK};
use super::places::Places;
use super::term::Values;
use super::text::{CLEAR, ENTRY, FINISH, Facts, Kernel, Parameter, Space, Value, Words};
use super::{Asked, Key, LOOKED_UP_MAX, LookUp, State};
use crate::exec::offload::kept::{self, Here};
use crate::exec::offload::loops::{HEADERS, THREADS};
use crate::exec::offload::{Failed, Queue};
use crate::exec::run::Cancel;
use crate::gpu::{Argument, Buffer, Device, Launch, Source, Work};

/// Rows that a block reads at a time.
const BLOCK_ROWS: usize = THREADS * PACK;

/// Blocks that go through the rows at most: by the rows alone, for they decide the order of additions.
const BLOCKS_MAX: usize = 1024;

/// Words of all groups at most.
const WORDS_MAX: usize = 1 << 24;

/// Rows that may be added up: of as many lower halves the sum is within a word.
const ROWS_MAX: usize = 1 << 31;

/// What an aggregation has of its statement.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    /// Threads that decode columns.
    pub(super) pool: &'a rayon::ThreadPool,
    pub(super) cancel: &'a Cancel,
    /// What its memory on this side is counted in.
    pub(super) bytes: &'a MemoryReservation,
}

/// What a device found.
pub(super) struct Groups {
    pub(super) keys: Vec<ArrayRef>,
    /// Those of all aggregates, one after the other.
    pub(super) states: Vec<ArrayRef>,
    pub(super) count: usize,
    /// Bytes of the columns that were brought for it.
    pub(super) brought_bytes: usize,
}

/// Why it found nothing.
pub(super) enum Missing {
    Failed(Failed),
    /// Its kernel is being compiled, for who asks next.
    Compiling,
}

impl<E: Into<Failed>> From<E> for Missing {
    fn from(failed: E) -> Self {
        Self::Failed(failed.into())
    }
}

impl From<ArrowError> for Failed {
    fn from(error: ArrowError) -> Self {
        Self::Unfit(error.to_string())
    }
}

impl From<DataFusionError> for Failed {
    fn from(error: DataFusionError) -> Self {
        Self::Unfit(error.to_string())
    }
}

/// The groups of the rows. Columns that are brought stay where they may; who does not wait has no kernel before it is compiled.
pub(super) fn run(
    asked: &Asked,
    device: &Arc<Device>,
    around: Around<'_>,
    (keeps, waits): (bool, bool),
) -> Result<Groups, Missing> {
    let queue = Queue::new(device, around.cancel)?;
    if asked.rows > ROWS_MAX {
        return Err(Failed::Unfit("more rows than a device counts".into()).into());
    }
    let mut brought_bytes = 0;
    let columns = asked.columns.iter().zip(&asked.values).map(|(of, values)| {
        match kept::find(of) {
            Some(Here::Column(column)) => return Ok(column),
            Some(Here::Unfit(why)) => return Err(Failed::Unfit(why.into())),
            _ => {}
        }
        let column = queue.column(of, *values, around)?;
        brought_bytes += column.buffers().map(|buffer| buffer.bytes()).sum::<usize>();
        if keeps {
            kept::keep(of, Here::Column(column.clone()));
        }
        Ok(column)
    });
    let columns: Vec<Column> = columns.collect::<Result<_, Failed>>()?;
    let places = asked.joins.iter().map(|join| {
        let (of, values) = (&asked.columns[join.key], asked.values[join.key]);
        queue.places(of, values, &columns[join.key], keeps)
    });
    let places: Vec<Places> = places.collect::<Result<_, _>>()?;
    let groups = Run { asked, queue, columns, places, waits }.groups(around.bytes)?;
    Ok(Groups { brought_bytes, ..groups })
}

/// An aggregation whose columns are there.
pub(super) struct Run<'a> {
    pub(super) asked: &'a Asked,
    pub(super) queue: Queue<'a>,
    pub(super) columns: Vec<Column>,
    /// Of the key of each join.
    pub(super) places: Vec<Places>,
    /// Whether a kernel that there is none of yet is waited for.
    pub(super) waits: bool,
}

/// What is looked up, on the device and here.
struct Looked {
    there: Buffer,
    /// The place of what there is for NULL.
    last: usize,
    /// The different values, of a key.
    different: Option<ArrayRef>,
}

/// What adds rows up, and what clears the totals before or puts those of blocks together after it.
fn sources(kernel: &Kernel) -> [Source; 2] {
    let other = if let Space::Global = kernel.space { CLEAR } else { FINISH };
    [ENTRY, other].map(|entry| Source {
        text: Cow::Owned(kernel.text.clone()),
        headers: HEADERS,
        entry: entry.into(),
        contracts: false,
    })
}

impl Run<'_> {
    /// The groups, whose memory is counted.
    pub(super) fn groups(self, bytes: &MemoryReservation) -> Result<Groups, Missing> {
        let looked = self.asked.look_ups.iter().enumerate().map(|(at, of)| {
            let is_key = |key: &Key| matches!(key, Key::LookedUp(of) if *of == at);
            self.looked(of, self.asked.keys.iter().any(is_key))
        });
        let looked: Vec<Looked> = looked.collect::<Result<_, Failed>>()?;
        let codes: Vec<usize> =
            self.asked.keys.iter().map(|key| self.codes(key, &looked)).collect();
        let (kernel, groups) = self.kernel(&codes)?;
        let sources = sources(&kernel);
        if !self.waits && !self.queue.device.has_kernel(&sources[0]) {
            return Err(self.compile_beside(sources));
        }
        // Totals as they come, and as the arrays that are made of them.
        bytes.try_grow(2 * groups * kernel.words * size_of::<u64>()).map_err(Failed::from)?;
        let given = kernel.parameters.iter().map(|of| self.argument(*of, &looked, &codes));
        let totals = self.totals(&kernel, &sources, groups, given)?;
        let found = Found { asked: self.asked, kernel: &kernel, totals: &totals };
        Ok(found.groups(|rows| self.keys(rows, &codes, &looked))?)
    }

    /// The kernel, and how many groups it has room for: as many as keys of so many codes make.
    fn kernel(&self, codes: &[usize]) -> Result<(Kernel, usize), Failed> {
        let too_many = || Failed::Unfit("more groups than a device has room for".into());
        let groups = codes.iter().try_fold(1_usize, |all, codes| all.checked_mul(*codes));
        let groups = groups.filter(|groups| *groups <= WORDS_MAX).ok_or_else(too_many)?;
        let facts =
            |column: &Column| Facts { width: column.width, is_nullable: column.valid.is_some() };
        let facts: Vec<Facts> = self.columns.iter().map(facts).collect();
        let kernel = Kernel::new(self.asked, &facts, groups);
        let kernel = kernel.map_err(|why| Failed::Unfit(why.into()))?;
        match groups * kernel.words <= WORDS_MAX {
            true => Ok((kernel, groups)),
            false => Err(too_many()),
        }
    }

    /// Has a kernel compiled for who asks next, who is told what went wrong.
    fn compile_beside(&self, sources: [Source; 2]) -> Missing {
        let device = Arc::clone(self.queue.device);
        let compile = move || {
            let _ = sources.iter().try_for_each(|source| device.kernel(source).map(drop));
        };
        match thread::Builder::new().name("relatrix-kernel".into()).spawn(compile) {
            Ok(_) => Missing::Compiling,
            Err(_) => Failed::Unfit("no thread for a compiler".into()).into(),
        }
    }

    /// The words of all groups, once the rows have been added up.
    fn totals<'b>(
        &'b self,
        kernel: &Kernel,
        [adds, other]: &[Source; 2],
        groups: usize,
        given: impl Iterator<Item = Argument<'b>>,
    ) -> Result<Vec<u64>, Failed> {
        let words = groups * kernel.words;
        let blocks = self.asked.rows.div_ceil(BLOCK_ROWS).clamp(1, BLOCKS_MAX);
        let out = self.words(words)?;
        let parts = match kernel.space {
            Space::Global => None,
            _ => Some(self.words(words * blocks)?),
        };
        let to = Argument::Buffer(parts.as_ref().unwrap_or(&out));
        let mut arguments = vec![to, Argument::U64(self.asked.rows as u64)];
        given.for_each(|argument| arguments.push(argument));
        let number = |of: usize| Argument::U64(of as u64);
        match &parts {
            None => {
                let work = Work::Threads(words as u64);
                self.launch(other, work, &[Argument::Buffer(&out), number(groups)])?;
                self.launch(adds, Work::Blocks(blocks as u32), &arguments)?;
            }
            Some(parts) => {
                self.launch(adds, Work::Blocks(blocks as u32), &arguments)?;
                let given = [Argument::Buffer(&out), Argument::Buffer(parts), number(blocks)];
                self.launch(other, Work::Blocks(groups as u32), &given)?;
            }
        }
        let mut totals = vec![0_u64; words];
        self.queue.stream.finish(Some(self.queue.cancel.flag()))?;
        self.queue.stream.download(&out, bytemuck::cast_slice_mut(&mut totals))?;
        Ok(totals)
    }

    fn words(&self, count: usize) -> Result<Buffer, Failed> {
        let bytes = count * size_of::<u64>();
        self.queue.with_room(bytes, || self.queue.stream.alloc(bytes, "totals of groups"))
    }

    fn launch(
        &self,
        source: &Source,
        work: Work,
        arguments: &[Argument<'_>],
    ) -> Result<(), Failed> {
        let kernel = self.queue.device.kernel(source)?;
        let launch = Launch { work, block: Some(THREADS as u32), shared_bytes: 0 };
        self.queue.stream.launch(&kernel, launch, arguments)?;
        Ok(())
    }

    fn argument<'b>(
        &'b self,
        of: Parameter,
        looked: &'b [Looked],
        codes: &[usize],
    ) -> Argument<'b> {
        match of {
            Parameter::Cells(at) => Argument::Buffer(&self.columns[at].cells),
            Parameter::Valid(at) => {
                let column = &self.columns[at];
                Argument::Buffer(column.valid.as_ref().unwrap_or(&column.cells))
            }
            Parameter::Base(at) => match self.asked.values[at] {
                Values::Whole([least, _]) => Argument::U64(least as u64),
                _ => Argument::U64(0),
            },
            Parameter::Places(join) => Argument::Buffer(&self.places[join].rows),
            Parameter::Numbers(join) => Argument::U64(self.places[join].numbers as u64),
            Parameter::Looked(at) => Argument::Buffer(&looked[at].there),
            Parameter::Last(at) => Argument::U64(looked[at].last as u64),
            Parameter::Codes(at) => Argument::U64(codes[at] as u64),
            Parameter::Whole(value) => Argument::U64(value as u64),
            Parameter::Double(bits) => Argument::U64(bits),
        }
    }

    /// What is computed of each value of a column, and of NULL.
    fn looked(&self, of: &LookUp, is_key: bool) -> Result<Looked, Failed> {
        let column = &self.columns[of.column];
        let data_type = self.asked.columns[of.column].data_type();
        let values = match (&column.texts, self.asked.values[of.column]) {
            (Some(texts), _) => Arc::clone(texts),
            (None, Values::Whole([least, greatest]))
                if greatest.abs_diff(least) < LOOKED_UP_MAX =>
            {
                numbers((least..=greatest).map(|value| Some(i128::from(value))), data_type)?
            }
            _ => return Err(Failed::Unfit("a number of too many different values".into())),
        };
        let last = values.len();
        let values = concat(&[values.as_ref(), new_null_array(data_type, 1).as_ref()])?;
        let schema = Schema::new(vec![Field::new("value", data_type.clone(), true)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![values])?;
        let made = of.of.evaluate(&batch)?.into_array(batch.num_rows())?;
        let what = "what is looked up";
        if is_key {
            let (codes, different) = different(&made)?;
            let there = self.upload(bytemuck::cast_slice(&codes), what)?;
            return Ok(Looked { there, last, different: Some(different) });
        }
        let truths = made.as_boolean_opt();
        let truths = truths.ok_or_else(|| Failed::Unfit("what is looked up is no truth".into()))?;
        let codes = truths.iter().map(|truth| truth.map_or(2, u8::from));
        let there = self.upload(&Vec::from_iter(codes), what)?;
        Ok(Looked { there, last, different: None })
    }

    fn upload(&self, bytes: &[u8], what: &str) -> Result<Buffer, Failed> {
        self.queue.with_room(bytes.len(), || self.queue.stream.upload(bytes, what))
    }

    /// How many codes a key has, the last of which is that of NULL where there is any.
    fn codes(&self, key: &Key, looked: &[Looked]) -> usize {
        match key {
            Key::LookedUp(at) => looked[*at].different.as_ref().map_or(1, |all| all.len()),
            Key::Column(at) => {
                let column = &self.columns[*at];
                let values = match (&column.texts, self.asked.values[*at]) {
                    (Some(texts), _) => texts.len(),
                    (None, Values::Whole([least, greatest])) => {
                        usize::try_from(greatest.abs_diff(least))
                            .map_or(usize::MAX, |n| n.saturating_add(1))
                    }
                    (None, _) => usize::MAX,
                };
                values.saturating_add(usize::from(column.valid.is_some())).max(1)
            }
        }
    }

    /// The keys of groups of these numbers.
    fn keys(
        &self,
        groups: &[usize],
        codes: &[usize],
        looked: &[Looked],
    ) -> Result<Vec<ArrayRef>, Failed> {
        let mut each = 1;
        let keys = self.asked.keys.iter().zip(codes).map(|(key, codes)| {
            let own = groups.iter().map(move |group| group / each % codes);
            each *= codes;
            match key {
                Key::LookedUp(at) => {
                    let places = UInt32Array::from_iter_values(own.map(|code| code as u32));
                    let all = looked[*at].different.as_ref();
                    let all = all.ok_or_else(|| Failed::Unfit("a key of no values".into()))?;
                    Ok(take(all, &places, None)?)
                }
                Key::Column(at) => {
                    let column = &self.columns[*at];
                    let is_null = |code: usize| column.valid.is_some() && code + 1 == *codes;
                    let own = own.map(|code| (!is_null(code)).then_some(code));
                    match (&column.texts, self.asked.values[*at]) {
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
            }
        });
        keys.collect()
    }
}

/// Totals that have come back.
struct Found<'a> {
    asked: &'a Asked,
    kernel: &'a Kernel,
    totals: &'a [u64],
}

impl Found<'_> {
    /// The groups that have rows, and the only one where there are no keys.
    fn groups(
        &self,
        keys: impl FnOnce(&[usize]) -> Result<Vec<ArrayRef>, Failed>,
    ) -> Result<Groups, Failed> {
        let words = self.kernel.words;
        let groups = self.totals.len() / words;
        let has_rows = |group: &usize| self.totals[group * words] > 0;
        let is_one = self.asked.keys.is_empty();
        let groups: Vec<usize> = (0..groups).filter(|group| is_one || has_rows(group)).collect();
        let states = self.asked.states.iter().zip(&self.kernel.states);
        let states = states.map(|(state, words)| self.state(&groups, state, *words));
        Ok(Groups {
            keys: keys(&groups)?,
            states: states.collect::<Result<_, Failed>>()?,
            count: groups.len(),
            brought_bytes: 0,
        })
    }

    fn state(&self, groups: &[usize], state: &State, words: Words) -> Result<ArrayRef, Failed> {
        let word = |group: usize, word: usize| self.totals[group * self.kernel.words + word];
        let count = |group: usize| word(group, words.count);
        let is_any = |group: &usize| count(*group) > 0;
        let whole = |group: usize| match words.value {
            Value::Halves(at) => {
                (i128::from(word(group, at + 1) as i64) << 32) + i128::from(word(group, at))
            }
            Value::Whole(at) | Value::Real(at) => i128::from(word(group, at) as i64),
            Value::Count => i128::from(count(group)),
        };
        let groups = groups.iter().copied();
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
fn numbers(
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
        .add_buffer(HostBuffer::from_vec(cells))
        .nulls(Some(nulls).filter(|nulls| nulls.null_count() > 0))
        .align_buffers(true);
    Ok(make_array(data.build()?))
}

/// The different values of an array in the order in which they come, NULL one of them, and for each value its place among them.
fn different(values: &ArrayRef) -> Result<(Vec<u32>, ArrayRef), Failed> {
    let mut known = HashMap::new();
    let (mut codes, mut firsts) = (Vec::with_capacity(values.len()), Vec::new());
    for at in 0..values.len() {
        let value = ScalarValue::try_from_array(values, at)?;
        let code = *known.entry(value).or_insert_with(|| {
            firsts.push(at as u32);
            firsts.len() as u32 - 1
        });
        codes.push(code);
    }
    Ok((codes, take(values, &UInt32Array::from(firsts), None)?))
}
