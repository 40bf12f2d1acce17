//! Rows added up by groups on a device: what it needs of columns, keys and look-ups, and which kernel. A sort needs the same of columns and look-ups.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{concat, take};
use arrow::datatypes::{Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::execution::memory_pool::MemoryReservation;

use super::batches::{Batch, Batches, Lies};
use super::coded::Coded;
use super::found::{Found, numbers};
use super::pace::Log;
use super::places::Places;
use super::term::Values;
use super::text::{Facts, Kernel, Parameter};
use super::totals::{Adding, sources};
use super::{Asked, Key, LOOKED_UP_MAX, LookUp};
use crate::exec::offload::kept::{self, Here};
use crate::exec::offload::operator::{Around, Missing};
use crate::exec::offload::{Failed, Queue};
use crate::gpu::{Argument, Buffer, Device, Source};

/// Rows that may be added up: of as many lower halves the sum is within a word.
const ROWS_MAX: usize = 1 << 31;

/// What a device found.
pub(super) struct Groups {
    pub(super) keys: Vec<ArrayRef>,
    /// Those of all aggregates, one after the other.
    pub(super) states: Vec<ArrayRef>,
    pub(super) count: usize,
    /// Bytes of the columns that were brought for it, and how they came.
    pub(super) brought_bytes: usize,
    pub(super) log: Log,
}

/// The groups of the rows.
pub(super) fn run(
    asked: &Asked,
    device: &Arc<Device>,
    around: Around<'_>,
) -> Result<Groups, Missing> {
    let queue = Queue::new(device, around.cancel)?;
    let (columns, mut brought_bytes) = brought(&queue, asked, around)?;
    let places = asked.joins.iter().map(|join| queue.places(asked, join, &columns, around.keeps));
    let places: Vec<Places> = places.collect::<Result<_, _>>()?;
    let rows = Batches::new(asked.rows, (columns, &asked.tables), around.keeps);
    brought_bytes += rows.coming_bytes();
    let groups = Run { asked, queue, rows, places, waits: around.waits }.groups(around.bytes)?;
    Ok(Groups { brought_bytes, ..groups })
}

/// The columns that are read, and how many bytes were brought for that; these stay where they may. Those of the first table come with
/// its rows.
pub(in crate::exec::offload) fn brought<'a>(
    queue: &Queue<'_>,
    asked: &'a Asked,
    around: Around<'a>,
) -> Result<(Vec<Lies<'a>>, usize), Failed> {
    if asked.rows > ROWS_MAX {
        return Err(Failed::Unfit("more rows than a device counts".into()));
    }
    let mut brought_bytes = 0;
    let columns = asked.columns.iter().zip(&asked.values).zip(&asked.tables);
    let columns = columns.map(|((of, values), table)| {
        match kept::find(queue.device, of) {
            Some(Here::Column(column)) => return Ok(Lies::There(column)),
            Some(Here::Unfit(why)) => return Err(Failed::Unfit(why.into())),
            _ => {}
        }
        let coming = Lies::Coming(Coded::new(of, *values, (queue.device, around))?);
        if *table == 0 {
            return Ok(coming);
        }
        // Rows of others are looked up, wherever they are.
        let own = Batches::new(of.rows(), (vec![coming], &[0]), around.keeps);
        brought_bytes += own.coming_bytes();
        own.whole(queue, around.bytes).map(Lies::There)
    });
    let columns = columns.collect::<Result<_, Failed>>()?;
    Ok((columns, brought_bytes))
}

/// An aggregation, or a sort, of which the columns of other tables are there.
pub(in crate::exec::offload) struct Run<'a> {
    pub(in crate::exec::offload) asked: &'a Asked,
    pub(in crate::exec::offload) queue: Queue<'a>,
    pub(in crate::exec::offload) rows: Batches<'a>,
    /// Of the key of each join.
    pub(in crate::exec::offload) places: Vec<Places>,
    /// Whether a kernel that there is none of yet is waited for.
    pub(in crate::exec::offload) waits: bool,
}

/// What is looked up, on the device and here.
pub(in crate::exec::offload) struct Looked {
    pub(in crate::exec::offload) there: Buffer,
    /// The place of what there is for NULL.
    pub(in crate::exec::offload) last: usize,
    /// The different values, of a key of groups.
    pub(in crate::exec::offload) different: Option<ArrayRef>,
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
        let (kernel, all) = self.kernel(&codes)?;
        let sources = sources(&kernel);
        if !self.waits && !self.queue.device.has_kernel(&sources[0]) {
            return Err(self.compile_beside(sources));
        }
        let (looked, codes) = (looked.as_slice(), codes.as_slice());
        let (run, kernel) = (&self, &kernel);
        let adding = Adding { run, kernel, sources: &sources, looked, codes, bytes };
        let totals = adding.totals(all)?;
        let found = Found {
            asked: self.asked,
            rows: &self.rows,
            looked,
            codes,
            kernel,
            totals: &totals,
            bytes,
        };
        Ok(found.groups()?)
    }

    /// The kernel, and how many codes a group may have: as many as keys of so many codes make.
    fn kernel(&self, codes: &[usize]) -> Result<(Kernel, usize), Failed> {
        let all = codes.iter().try_fold(1_usize, |all, codes| all.checked_mul(*codes));
        let all = all.filter(|all| i64::try_from(*all).is_ok());
        let all = all.ok_or_else(|| Failed::Unfit("more codes than a number has".into()))?;
        let kernel = Kernel::new(self.asked, &self.facts(), all as u64);
        // How many texts there are may not have been known before.
        Ok((kernel.map_err(|why| Failed::Refused(why.into()))?, all))
    }

    /// How the columns lie there.
    pub(in crate::exec::offload) fn facts(&self) -> Vec<Facts> {
        let facts = |column| {
            let form = self.rows.form(column);
            Facts { width: form.width, is_nullable: form.is_nullable }
        };
        (0..self.asked.values.len()).map(facts).collect()
    }

    /// Has a kernel compiled for who asks next, who is told what went wrong.
    pub(in crate::exec::offload) fn compile_beside(&self, sources: Vec<Source>) -> Missing {
        let device = Arc::clone(self.queue.device);
        let compile = move || {
            let _ = sources.iter().try_for_each(|source| device.kernel(source).map(drop));
        };
        match thread::Builder::new().name("relatrix-kernel".into()).spawn(compile) {
            Ok(_) => Missing::Compiling,
            Err(_) => Failed::Unfit("no thread for a compiler".into()).into(),
        }
    }

    /// What a kernel is given of some rows.
    pub(in crate::exec::offload) fn argument<'b>(
        &'b self,
        of: Parameter,
        batch: &Batch<'b>,
        (looked, codes): (&'b [Looked], &[usize]),
    ) -> Argument<'b> {
        match of {
            Parameter::Cells(at) => {
                let (column, first) = batch.columns[at];
                Argument::From(&column.cells, first * column.form.width.bytes())
            }
            Parameter::Valid(at) => {
                let (column, first) = batch.columns[at];
                Argument::From(column.valid.as_ref().unwrap_or(&column.cells), first / 8)
            }
            Parameter::Base(at) => match self.asked.values[at] {
                Values::Whole([least, _]) => Argument::U64(least as u64),
                _ => Argument::U64(0),
            },
            Parameter::Places(join) => Argument::Buffer(&self.places[join].rows),
            Parameter::Numbers(join) => Argument::U64(self.places[join].numbers as u64),
            Parameter::Slots(join) => {
                let places = &self.places[join];
                Argument::Buffer(places.codes.as_ref().unwrap_or(&places.rows))
            }
            Parameter::Span(at) => Argument::U64(self.asked.values[at].numbers()),
            Parameter::Looked(at) => Argument::Buffer(&looked[at].there),
            Parameter::Last(at) => Argument::U64(looked[at].last as u64),
            Parameter::Codes(at) => Argument::U64(codes[at] as u64),
            Parameter::Whole(value) => Argument::U64(value as u64),
            Parameter::Double(bits) => Argument::U64(bits),
        }
    }

    /// What is computed of each value of a column, and of NULL at the last place.
    pub(in crate::exec::offload) fn computed(&self, of: &LookUp) -> Result<ArrayRef, Failed> {
        let form = self.rows.form(of.column);
        let data_type = self.asked.columns[of.column].data_type();
        let values = match (&form.texts, self.asked.values[of.column]) {
            (Some(texts), _) => Arc::clone(texts),
            (None, Values::Whole([least, greatest]))
                if greatest.abs_diff(least) < LOOKED_UP_MAX =>
            {
                numbers((least..=greatest).map(|value| Some(i128::from(value))), data_type)?
            }
            _ => return Err(Failed::Unfit("a number of too many different values".into())),
        };
        let values = concat(&[values.as_ref(), new_null_array(data_type, 1).as_ref()])?;
        let schema = Schema::new(vec![Field::new("value", data_type.clone(), true)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![values])?;
        Ok(of.of.evaluate(&batch)?.into_array(batch.num_rows())?)
    }

    /// The same on the device: of a key the codes of the different values, else truths.
    pub(in crate::exec::offload) fn looked(
        &self,
        of: &LookUp,
        is_key: bool,
    ) -> Result<Looked, Failed> {
        let made = self.computed(of)?;
        let (last, what) = (made.len() - 1, "what is looked up");
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

    pub(in crate::exec::offload) fn upload(
        &self,
        bytes: &[u8],
        what: &str,
    ) -> Result<Buffer, Failed> {
        self.queue.with_room(bytes.len(), || self.queue.stream.upload(bytes, what))
    }

    /// How many codes a key has, the last of which is that of NULL where there is any.
    fn codes(&self, key: &Key, looked: &[Looked]) -> usize {
        match key {
            Key::LookedUp(at) => looked[*at].different.as_ref().map_or(1, |all| all.len()),
            Key::Row(table) => self.asked.rows_of(*table).max(1),
            Key::Column(at) => {
                let form = self.rows.form(*at);
                let values = match (&form.texts, self.asked.values[*at]) {
                    (Some(texts), _) => texts.len(),
                    (None, Values::Whole([least, greatest])) => {
                        usize::try_from(greatest.abs_diff(least))
                            .map_or(usize::MAX, |n| n.saturating_add(1))
                    }
                    (None, _) => usize::MAX,
                };
                values.saturating_add(usize::from(form.is_nullable)).max(1)
            }
        }
    }
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
