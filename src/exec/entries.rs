//! Relations that must be read whole: entries and graphs, whose labels are the distinct keys, and rows
//! whose labels and order are given from elsewhere.
//!
//! ```text
//! (user, item, stars) …  ─ keys ─  distinct, in order  ─ labels
//!                          └─────  place of each key   ─ (row, column, value) ─ CSR
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{DataType, Int64Type};
use arrow::row::{RowConverter, SortField};
use rayon::prelude::*;

use super::evaluate;
use super::intake::{Block, Form, Intake, node_type, refuse_null_keys};
use super::kernels::{Real, sparse};
use super::labels::RelationLabels;
use super::reader::InSequence;
use super::run::{Cancel, Inputs, Rows, Surroundings};
use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{Cells, Duplicates, Element, Labels, Nulls, Shape};

/// Bytes for each entry beside its batch: places of row and column, and those that sorting moves.
const PLACES_BYTES: usize = 40;

/// A relation read whole.
pub(super) struct Gathered {
    pub(super) cells: Cells,
    pub(super) labels: RelationLabels,
}

/// Reads a relation whole.
///
/// # Errors
/// NULLs, repeated entries and keys outside given labels, as the relation's rules have it.
pub(super) fn gather(
    intake: &Intake,
    inputs: &mut Inputs,
    around: &mut Surroundings<'_>,
) -> Result<Gathered> {
    let (cancel, pool) = (around.cancel, around.pool);
    let [given_rows, given_columns] = std::mem::take(&mut inputs.given);
    let given_rows = given_rows.map(|rows| given(rows, cancel)).transpose()?;
    let given_columns = given_columns.map(|rows| given(rows, cancel)).transpose()?;
    let mut rows = InSequence::new(std::mem::take(&mut inputs.rows));
    // Keys of no rows at all have types too.
    let mut batches = vec![RecordBatch::new_empty(rows.schema())];
    let mut held_bytes = 0;
    while let Some(batch) = rows.next()? {
        cancel.check()?;
        let kept = if intake.nulls == Nulls::Drop { intake.without_nulls(&batch)? } else { batch };
        intake.refuse_null_keys(&kept)?;
        let bytes = kept.get_array_memory_size() + PLACES_BYTES * kept.num_rows();
        around.budget.grow(bytes, "the rows of a relation that is read whole")?;
        held_bytes += bytes;
        batches.push(kept);
    }
    let gathered = match intake.form {
        Form::Wide | Form::Vectors { .. } => ordered(intake, &batches, given_rows),
        Form::Entries { column_keys, .. } => {
            let rows = keys_of(&batches, 0..intake.row_keys)?;
            let columns = keys_of(&batches, intake.row_keys..intake.row_keys + column_keys)?;
            let (row_places, row_keys) =
                pool.install(|| places_of(intake, 0, rows, given_rows, "row"))?;
            let (column_places, column_keys) = pool
                .install(|| places_of(intake, intake.row_keys, columns, given_columns, "column"))?;
            let shape = Shape::new(length(&row_keys), length(&column_keys));
            let labels = RelationLabels {
                rows: intake.labels(0, row_keys),
                columns: intake.labels(intake.row_keys, column_keys),
            };
            let cells = pool.install(|| {
                let places = (&row_places[..], &column_places[..]);
                compressed(intake, &batches, shape, places, &labels, cancel)
            })?;
            Ok(Gathered { cells, labels })
        }
        Form::Graph => {
            let from = keys_of(&batches, 0..1)?;
            let to = keys_of(&batches, 1..2)?;
            let (Some(from), Some(to)) = (from.first(), to.first()) else {
                return Err(ErrorKind::Internal("a graph has two key columns".into()).into());
            };
            let of = node_type(from.data_type(), to.data_type());
            let both = concat(&[cast(from, &of)?.as_ref(), cast(to, &of)?.as_ref()])?;
            let (places, nodes) =
                pool.install(|| places_of(intake, 0, vec![both], given_rows, "node"))?;
            let shape = Shape::new(length(&nodes), length(&nodes));
            let labels = RelationLabels {
                rows: intake.labels(0, nodes.clone()),
                columns: intake.labels(1, nodes),
            };
            let cells = pool.install(|| {
                compressed(intake, &batches, shape, places.split_at(from.len()), &labels, cancel)
            })?;
            Ok(Gathered { cells, labels })
        }
    };
    around.budget.shrink(held_bytes);
    gathered
}

/// Where each of `to` is among `from`, for labels of the same types.
///
/// # Errors
/// Where the types differ, or labels of `from` repeat.
pub(super) fn places(from: &Labels, to: &Labels) -> Result<Vec<Option<usize>>> {
    let arrays = |labels: &Labels| {
        labels.fields().iter().map(|(_, keys)| Arc::clone(keys)).collect::<Vec<_>>()
    };
    let index = Index::new(&arrays(from))?;
    if let Some(at) = index.repeated {
        let key = format!("'{}'", from.text(at));
        let hint = "; align needs unique row labels";
        return Err(ErrorKind::Duplicate { what: "row label", key, hint }.into());
    }
    let found = index.find(&arrays(to))?;
    if let Some(at) = found.iter().position(Option::is_none) {
        return Err(
            ErrorKind::NoLabel { dimension: "row", label: format!("'{}'", to.text(at)) }.into()
        );
    }
    Ok(found)
}

/// The rows of a wide relation in the order of given labels; rows that are absent are zero.
fn ordered(
    intake: &Intake,
    batches: &[RecordBatch],
    given: Option<Vec<ArrayRef>>,
) -> Result<Gathered> {
    let Block { keys, cells } = intake.block(batches, 0)?;
    let given = given.ok_or_else(|| ErrorKind::Internal("rows are given by OVER".into()))?;
    let own = Index::new(&keys)?;
    let label = |keys: &[ArrayRef], at: usize| {
        intake.labels(0, keys.to_vec()).map_or_else(String::new, |labels| labels.text(at))
    };
    if let Some(at) = own.repeated {
        let key = format!("'{}'", label(&keys, at));
        return Err(ErrorKind::Duplicate {
            what: "row",
            key,
            hint: "; ROWS BY needs a unique key",
        }
        .into());
    }
    let wanted = Index::new(&given)?;
    refuse_repeated(intake, 0, &wanted, &given)?;
    if let Some(at) = wanted.find(&keys)?.iter().position(Option::is_none) {
        return Err(ErrorKind::NoLabel {
            dimension: "row",
            label: format!("'{}'", label(&keys, at)),
        }
        .into());
    }
    let cells = evaluate::gather_rows(&cells, &own.find(&given)?)?;
    let labels = RelationLabels { rows: intake.labels(0, given), columns: None };
    Ok(Gathered { cells, labels })
}

/// All rows of a query that gives labels.
fn given(rows: Vec<Box<dyn Rows>>, cancel: &Cancel) -> Result<Vec<ArrayRef>> {
    let mut rows = InSequence::new(rows);
    let schema = rows.schema();
    let mut batches = vec![RecordBatch::new_empty(Arc::clone(&schema))];
    while let Some(batch) = rows.next()? {
        cancel.check()?;
        batches.push(batch);
    }
    let keys = keys_of(&batches, 0..schema.fields().len())?;
    for (keys, field) in keys.iter().zip(schema.fields()) {
        refuse_null_keys(keys, field.name())?;
    }
    Ok(keys)
}

fn length(keys: &[ArrayRef]) -> usize {
    keys.first().map_or(0, |keys| keys.len())
}

fn keys_of(batches: &[RecordBatch], columns: std::ops::Range<usize>) -> Result<Vec<ArrayRef>> {
    columns
        .map(|at| {
            let parts: Vec<&dyn Array> =
                batches.iter().map(|batch| batch.column(at).as_ref()).collect();
            Ok(concat(&parts)?)
        })
        .collect()
}

/// The place of every key among the given labels, else among the distinct keys in their order.
fn places_of(
    intake: &Intake,
    first: usize,
    keys: Vec<ArrayRef>,
    given: Option<Vec<ArrayRef>>,
    dimension: &'static str,
) -> Result<(Vec<u32>, Vec<ArrayRef>)> {
    let Some(given) = given else { return distinct(&keys) };
    let index = Index::new(&given)?;
    refuse_repeated(intake, first, &index, &given)?;
    let found = index.find(&keys)?;
    let mut places = Vec::with_capacity(found.len());
    for (at, place) in found.into_iter().enumerate() {
        let Some(place) = place else {
            let label =
                intake.labels(first, keys).map_or_else(String::new, |labels| labels.text(at));
            let label = format!("'{label}' among those that OVER gives");
            return Err(ErrorKind::NoLabel { dimension, label }.into());
        };
        places.push(place as u32);
    }
    Ok((places, given))
}

/// Labels that OVER gives are unique.
fn refuse_repeated(intake: &Intake, first: usize, index: &Index, given: &[ArrayRef]) -> Result<()> {
    let Some(at) = index.repeated else { return Ok(()) };
    let label = intake.labels(first, given.to_vec());
    let key = format!("'{}'", label.map_or_else(String::new, |labels| labels.text(at)));
    let hint = "; the labels that OVER gives are unique";
    Err(ErrorKind::Duplicate { what: "label", key, hint }.into())
}

/// The distinct keys in ascending order, and the place of every key among them.
fn distinct(keys: &[ArrayRef]) -> Result<(Vec<u32>, Vec<ArrayRef>)> {
    if let [column] = keys
        && let Some(by_value) = distinct_integers(column)?
    {
        return Ok(by_value);
    }
    let Some(converter) = converter(keys)? else { return Ok((Vec::new(), keys.to_vec())) };
    let rows = converter.convert_columns(keys)?;
    let mut seen: HashMap<&[u8], u32> = HashMap::new();
    let mut firsts: Vec<usize> = Vec::new();
    let mut places: Vec<u32> = Vec::with_capacity(rows.num_rows());
    for at in 0..rows.num_rows() {
        let next = firsts.len() as u32;
        let place = *seen.entry(rows.row(at).data()).or_insert(next);
        if place == next {
            firsts.push(at);
        }
        places.push(place);
    }
    let mut order: Vec<u32> = (0..firsts.len() as u32).collect();
    order
        .sort_unstable_by(|&a, &b| rows.row(firsts[a as usize]).cmp(&rows.row(firsts[b as usize])));
    let mut rank = vec![0u32; order.len()];
    for (at, &old) in order.iter().enumerate() {
        rank[old as usize] = at as u32;
    }
    places.iter_mut().for_each(|place| *place = rank[*place as usize]);
    let picked: Vec<u32> = order.iter().map(|&old| firsts[old as usize] as u32).collect();
    Ok((places, taken(keys, picked)?))
}

/// The same for integers in a range not much wider than they are many: a table addressed by value.
fn distinct_integers(column: &ArrayRef) -> Result<Option<(Vec<u32>, Vec<ArrayRef>)>> {
    if !column.data_type().is_integer() || *column.data_type() == DataType::UInt64 {
        return Ok(None);
    }
    let values = cast(column, &DataType::Int64)?;
    let values = &values.as_primitive::<Int64Type>().values()[..];
    let chunks = || values.par_chunks(values.len().div_ceil(16).max(1 << 16));
    let ends = |chunk: &[i64]| Some((*chunk.iter().min()?, *chunk.iter().max()?));
    let outer = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
    let Some((least, most)) = chunks().filter_map(ends).reduce_with(outer) else {
        return Ok(None);
    };
    let range = most.wrapping_sub(least) as u64;
    if range > 4 * values.len() as u64 + (1 << 16) {
        return Ok(None);
    }
    let slot = |value: i64| value.wrapping_sub(least) as usize;
    // Which values there are, as bits.
    let there = |chunk: &[i64]| {
        let mut bits = vec![0u64; range as usize / 64 + 1];
        chunk.iter().for_each(|&value| bits[slot(value) / 64] |= 1 << (slot(value) % 64));
        bits
    };
    let either = |mut a: Vec<u64>, b: Vec<u64>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a |= b);
        a
    };
    let bits = chunks().map(there).reduce_with(either).unwrap_or_default();
    let mut ranks = vec![0u32; range as usize + 1];
    let mut distinct = Vec::new();
    for (at, rank) in ranks.iter_mut().enumerate() {
        if bits[at / 64] >> (at % 64) & 1 == 1 {
            *rank = distinct.len() as u32;
            distinct.push(least + at as i64);
        }
    }
    let places = if distinct.len() == ranks.len() {
        values.par_iter().map(|&value| slot(value) as u32).collect()
    } else {
        values.par_iter().map(|&value| ranks[slot(value)]).collect()
    };
    let distinct: ArrayRef = Arc::new(Int64Array::from(distinct));
    Ok(Some((places, vec![cast(&distinct, column.data_type())?])))
}

fn taken(keys: &[ArrayRef], places: Vec<u32>) -> Result<Vec<ArrayRef>> {
    let places = UInt32Array::from(places);
    keys.iter().map(|keys| Ok(take(keys, &places, None)?)).collect()
}

fn converter(keys: &[ArrayRef]) -> Result<Option<RowConverter>> {
    let fields: Vec<SortField> =
        keys.iter().map(|key| SortField::new(key.data_type().clone())).collect();
    if fields.is_empty() { Ok(None) } else { Ok(Some(RowConverter::new(fields)?)) }
}

/// Finds keys among others.
struct Index {
    types: Vec<DataType>,
    converter: Option<RowConverter>,
    places: HashMap<Box<[u8]>, usize>,
    /// The first key that has been there before.
    repeated: Option<usize>,
}

impl Index {
    fn new(keys: &[ArrayRef]) -> Result<Self> {
        let types = keys.iter().map(|key| key.data_type().clone()).collect();
        let converter = converter(keys)?;
        let (mut places, mut repeated) = (HashMap::new(), None);
        if let Some(converter) = &converter {
            for (at, row) in converter.convert_columns(keys)?.iter().enumerate() {
                if places.insert(row.data().into(), at).is_some() && repeated.is_none() {
                    repeated = Some(at);
                }
            }
        }
        Ok(Self { types, converter, places, repeated })
    }

    /// The place of each key, cast to the types of the index.
    fn find(&self, keys: &[ArrayRef]) -> Result<Vec<Option<usize>>> {
        let Some(converter) = &self.converter else { return Ok(vec![None; length(keys)]) };
        if keys.len() != self.types.len() {
            let (left, right) = (keys.len(), self.types.len());
            let message = format!("labels of {left} and of {right} key columns do not match");
            return Err(Error::argument("labels", message));
        }
        let keys = keys.iter().zip(&self.types).map(|(key, of)| cast(key, of));
        let keys = keys.collect::<std::result::Result<Vec<_>, _>>()?;
        let rows = converter.convert_columns(&keys)?;
        Ok(rows.iter().map(|row| self.places.get(row.data()).copied()).collect())
    }
}

/// Entries as compressed rows.
fn compressed(
    intake: &Intake,
    batches: &[RecordBatch],
    shape: Shape,
    places: (&[u32], &[u32]),
    labels: &RelationLabels,
    cancel: &Cancel,
) -> Result<Cells> {
    match intake.element {
        Element::Float64 => typed::<f64>(intake, batches, shape, places, labels, cancel),
        Element::Float32 => typed::<f32>(intake, batches, shape, places, labels, cancel),
    }
}

fn typed<T: Real>(
    intake: &Intake,
    batches: &[RecordBatch],
    shape: Shape,
    places: (&[u32], &[u32]),
    labels: &RelationLabels,
    cancel: &Cancel,
) -> Result<Cells> {
    let keys = intake.key_count();
    let mut values: Vec<T> = Vec::with_capacity(places.0.len());
    for batch in batches {
        match batch.columns().get(keys) {
            Some(column) => {
                let column = intake.column::<T>(column, &intake.names[keys], values.len())?;
                values.extend_from_slice(column.values());
            }
            None => values.extend(std::iter::repeat_n(T::ONE, batch.num_rows())),
        }
    }
    let duplicates = match intake.duplicates {
        Duplicates::Error => sparse::Duplicates::Refuse,
        Duplicates::Sum => sparse::Duplicates::Sum,
        Duplicates::Last => sparse::Duplicates::Last,
    };
    let (rows, columns) = places;
    let made = sparse::from_entries(shape, rows, columns, &values, duplicates, cancel.stop());
    cancel.check()?;
    let csr = made.map_err(|entry| {
        let text = |labels: &Option<Labels>, at: usize| {
            labels
                .as_ref()
                .map_or_else(|| (at + 1).to_string(), |labels| format!("'{}'", labels.text(at)))
        };
        let key =
            format!("({}, {})", text(&labels.rows, entry.row), text(&labels.columns, entry.column));
        let hint = "; WITH (duplicates = 'sum' | 'last') chooses what to do";
        Error::from(ErrorKind::Duplicate { what: "entry", key, hint })
    })?;
    let full = shape.cells();
    if csr.stored() as f64 > evaluate::DENSE_FROM * full as f64 {
        return Ok(sparse::to_dense(&csr).into());
    }
    Ok(csr.into())
}
