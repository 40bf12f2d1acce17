//! Relations that must be read whole: entries and graphs, whose labels are the distinct keys, and rows
//! whose labels and order are given from elsewhere.
//!
//! ```text
//! (user, item, stars) …  ─ keys ─  distinct, in order  ─ labels
//!                          └─────  place of each key   ─ (row, column, value) ─ CSR
//! ```
//!
//! Rows that memory has no room for go to a file, and what is made of them is made piece by piece ([`beyond`]).

mod beyond;
mod columns;
mod names;
mod places;
mod regions;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::DataType;

use super::evaluate;
use super::intake::{Block, Form, Intake, node_type, refuse_null_keys};
use super::kernels::{Real, sparse};
use super::keys::{Index, Places, distinct, distinct_integers, distinct_shared, keys_of, length};
use super::labels::RelationLabels;
use super::reader::InSequence;
use super::run::{Cancel, Inputs, Rows, Surroundings};
use crate::encoding::{decoded, decoded_batch, own_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{CellBuffer, Cells, Csr, Duplicates, Element, Labels, Nulls, Scalar, Shape};
use crate::memory::{Shelf, shelved};

/// Bytes for each entry beside its batch: places of row and column, and those that sorting moves.
const PLACES_BYTES: usize = 32;

/// What is held of a relation that is read whole, as an error names it.
const WHAT: &str = "the rows of a relation that is read whole";

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
    let schema = rows.schema();
    let mut batches = vec![RecordBatch::new_empty(Arc::clone(&schema))];
    let (mut held_bytes, mut shelf, mut is_beyond) = (0, Shelf::default(), false);
    while let Some(batch) = rows.next()? {
        cancel.check()?;
        let kept = if intake.nulls == Nulls::Drop { intake.without_nulls(&batch)? } else { batch };
        intake.refuse_null_keys(&kept)?;
        let bytes: usize = kept.columns().iter().map(own_bytes).sum();
        let bytes = bytes + PLACES_BYTES * kept.num_rows();
        if around.budget.grow_rows(bytes) {
            held_bytes += bytes;
            batches.push(kept);
        } else {
            is_beyond = true;
            let shelved = shelved(&decoded_batch(&kept, &schema)?, &mut shelf);
            batches.push(shelved.ok_or_else(|| around.budget.disk_spent(WHAT, bytes))?);
        }
    }
    let is_sorted = matches!(intake.form, Form::Entries { .. } | Form::Graph);
    if is_beyond && is_sorted {
        for batch in &mut batches {
            cancel.check()?;
            let shelved = shelved(&decoded_batch(batch, &schema)?, &mut shelf);
            *batch = shelved.ok_or_else(|| around.budget.disk_spent(WHAT, held_bytes))?;
        }
        around.budget.shrink(held_bytes);
        return beyond::gathered(intake, batches, [given_rows, given_columns], around, shelf);
    }
    let gathered = match intake.form {
        Form::Wide | Form::Vectors { .. } => ordered(intake, &batches, given_rows),
        Form::Entries { column_keys, .. } => {
            let rows = pieces_of(&batches, 0..intake.row_keys);
            let columns = pieces_of(&batches, intake.row_keys..intake.row_keys + column_keys);
            let values = values_of(intake, batches);
            let (mut row_places, mut row_keys) =
                pool.install(|| places_of(intake, 0, rows, given_rows, "row"))?;
            if intake.rows_as_they_come {
                let appearance = Appearance::of([&row_places[..]], length(&row_keys));
                row_places = row_places.iter().map(|&place| appearance.place(place)).collect();
                let order = UInt32Array::from(appearance.keys.to_vec());
                row_keys = row_keys
                    .iter()
                    .map(|keys| Ok(take(keys, &order, None)?))
                    .collect::<Result<_>>()?;
            }
            let (column_places, column_keys) = pool
                .install(|| places_of(intake, intake.row_keys, columns, given_columns, "column"))?;
            let shape = Shape::new(length(&row_keys), length(&column_keys));
            let labels = RelationLabels {
                rows: intake.labels(0, row_keys),
                columns: intake.labels(intake.row_keys, column_keys),
            };
            let count = row_places.len();
            let place = move |at: usize| (row_places[at], column_places[at]);
            let cells = pool
                .install(|| compressed(intake, values, shape, (count, place), &labels, cancel))?;
            Ok(Gathered { cells, labels })
        }
        Form::Graph => {
            let schema = batches[0].schema();
            let of = node_type(schema.field(0).data_type(), schema.field(1).data_type());
            // All first ends before all second ones.
            let ends = (0..2).flat_map(|end| batches.iter().map(move |batch| batch.column(end)));
            let ends = ends.map(|keys| cast(keys, &of)).collect::<Result<Vec<_>, _>>()?;
            let values = values_of(intake, batches);
            let (places, nodes) =
                pool.install(|| places_of(intake, 0, vec![ends], given_rows, "node"))?;
            let count = places.len() / 2;
            let shape = Shape::new(length(&nodes), length(&nodes));
            let labels = RelationLabels {
                rows: intake.labels(0, nodes.clone()),
                columns: intake.labels(1, nodes),
            };
            let place = move |at: usize| (places[at], places[count + at]);
            let cells = pool
                .install(|| compressed(intake, values, shape, (count, place), &labels, cancel))?;
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

/// Some columns of all batches, in as many pieces as those.
fn pieces_of(batches: &[RecordBatch], columns: Range<usize>) -> Vec<Vec<ArrayRef>> {
    let pieces = |at: usize| batches.iter().map(|batch| Arc::clone(batch.column(at))).collect();
    columns.map(pieces).collect()
}

/// The place of every key among the given labels, else among the distinct keys in their order. Of each key column there are
/// all pieces.
fn places_of(
    intake: &Intake,
    first: usize,
    pieces: Vec<Vec<ArrayRef>>,
    given: Option<Vec<ArrayRef>>,
    dimension: &'static str,
) -> Result<(Places, Vec<ArrayRef>)> {
    if let ([pieces], None) = (pieces.as_slice(), &given) {
        if let Some(by_value) = distinct_integers(pieces)? {
            return Ok(by_value);
        }
        if let Some(by_code) = distinct_shared(pieces)? {
            return Ok(by_code);
        }
    }
    let whole = |pieces: Vec<ArrayRef>| {
        let of = pieces.first().map_or(DataType::Null, |piece| piece.data_type().clone());
        let pieces = pieces.iter().map(|piece| decoded(piece, &of));
        let pieces: Vec<ArrayRef> = pieces.collect::<Result<_, _>>()?;
        concat(&pieces.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>())
    };
    let keys = pieces.into_iter().map(whole).collect::<Result<Vec<_>, _>>()?;
    let Some(given) = given else { return distinct(&keys) };
    let index = Index::new(&given)?;
    refuse_repeated(intake, first, &index, &given)?;
    let found = index.find(&keys)?;
    let mut places = Vec::with_capacity(found.len());
    for (at, place) in found.into_iter().enumerate() {
        let Some(place) = place else { return Err(not_given(intake, first, keys, at, dimension)) };
        places.push(place as u32);
    }
    Ok((places.into(), given))
}

/// The distinct keys in the order in which they come first.
struct Appearance {
    /// For each key by its own order, its place among those that have come.
    places: CellBuffer<u32>,
    /// The keys as they have come, by their own order.
    keys: CellBuffer<u32>,
}

impl Appearance {
    /// Of so many keys, all of which come, whose places come in these pieces.
    fn of<'a>(pieces: impl IntoIterator<Item = &'a [u32]>, count: usize) -> Self {
        let mut places = CellBuffer::arbitrary(count);
        places.fill(u32::MAX);
        let mut keys = CellBuffer::zeroed(count);
        let mut come = 0;
        for &key in pieces.into_iter().flatten() {
            let place = &mut places[key as usize];
            if *place == u32::MAX {
                *place = come as u32;
                keys[come] = key;
                come += 1;
            }
        }
        Self { places, keys }
    }

    fn place(&self, key: u32) -> u32 {
        self.places[key as usize]
    }
}

/// A key that is not among the labels that OVER gives.
fn not_given(
    intake: &Intake,
    first: usize,
    keys: Vec<ArrayRef>,
    at: usize,
    dimension: &'static str,
) -> Error {
    let label = intake.labels(first, keys).map_or_else(String::new, |labels| labels.text(at));
    let label = format!("'{label}' among those that OVER gives");
    ErrorKind::NoLabel { dimension, label }.into()
}

/// Labels that OVER gives are unique.
fn refuse_repeated(intake: &Intake, first: usize, index: &Index, given: &[ArrayRef]) -> Result<()> {
    let Some(at) = index.repeated else { return Ok(()) };
    let label = intake.labels(first, given.to_vec());
    let key = format!("'{}'", label.map_or_else(String::new, |labels| labels.text(at)));
    let hint = "; the labels that OVER gives are unique";
    Err(ErrorKind::Duplicate { what: "label", key, hint }.into())
}

/// The values of entries, where they have any; their keys are not needed any more.
fn values_of(intake: &Intake, batches: Vec<RecordBatch>) -> Vec<ArrayRef> {
    let value = |batch: RecordBatch| batch.columns().get(intake.key_count()).map(Arc::clone);
    batches.into_iter().filter_map(value).collect()
}

/// Entries as compressed rows; those without values are ones.
fn compressed(
    intake: &Intake,
    values: Vec<ArrayRef>,
    shape: Shape,
    entries: Entries<impl Fn(usize) -> (u32, u32) + Send + Sync>,
    labels: &RelationLabels,
    cancel: &Cancel,
) -> Result<Cells> {
    match intake.element {
        Element::Float64 => typed::<f64>(intake, values, shape, entries, labels, cancel),
        Element::Float32 => typed::<f32>(intake, values, shape, entries, labels, cancel),
    }
}

/// How many entries there are, and the row and the column of each.
type Entries<P> = (usize, P);

fn typed<T: Real>(
    intake: &Intake,
    arrays: Vec<ArrayRef>,
    shape: Shape,
    (count, place): Entries<impl Fn(usize) -> (u32, u32) + Send + Sync>,
    labels: &RelationLabels,
    cancel: &Cancel,
) -> Result<Cells> {
    let duplicates = duplicates(intake);
    let bare = move |at: usize| {
        let (row, column) = place(at);
        (row, column, ())
    };
    let made = if arrays.is_empty() {
        sparse::from_entries::<T, ()>(shape, count, bare, duplicates, cancel.stop())
    } else {
        let mut values = CellBuffer::<T>::arbitrary(count);
        let mut filled = 0;
        for array in &arrays {
            let name = &intake.names[intake.key_count()];
            let column = intake.column::<T>(array, name, filled)?;
            values[filled..filled + column.len()].copy_from_slice(column.values());
            filled += column.len();
        }
        drop(arrays);
        let entry = move |at: usize| {
            let (row, column, ()) = bare(at);
            (row, column, values[at])
        };
        sparse::from_entries::<T, T>(shape, count, entry, duplicates, cancel.stop())
    };
    cancel.check()?;
    let csr = made.map_err(|entry| repeated(entry, labels))?;
    Ok(settled(csr))
}

/// What is done where an entry comes twice.
fn duplicates(intake: &Intake) -> sparse::Duplicates {
    match intake.duplicates {
        Duplicates::Error => sparse::Duplicates::Refuse,
        Duplicates::Sum => sparse::Duplicates::Sum,
        Duplicates::Last => sparse::Duplicates::Last,
    }
}

/// An entry that comes twice, by its labels.
fn repeated(entry: sparse::RepeatedEntry, labels: &RelationLabels) -> Error {
    let text = |labels: &Option<Labels>, at: usize| {
        labels
            .as_ref()
            .map_or_else(|| (at + 1).to_string(), |labels| format!("'{}'", labels.text(at)))
    };
    let key =
        format!("({}, {})", text(&labels.rows, entry.row), text(&labels.columns, entry.column));
    let hint = "; WITH (duplicates = 'sum' | 'last') chooses what to do";
    ErrorKind::Duplicate { what: "entry", key, hint }.into()
}

/// Compressed rows, dense where they have filled up.
fn settled<T: Scalar>(csr: Csr<T>) -> Cells {
    match csr.stored() as f64 > evaluate::DENSE_FROM * csr.shape().cells() as f64 {
        true => sparse::to_dense(&csr).into(),
        false => csr.into(),
    }
}

#[cfg(test)]
mod testing {
    //! Files for tests of what memory has no room for.

    use super::places::Files;
    use crate::error::{ErrorKind, Result};
    use crate::exec::run::{Budget, Cancel};
    use crate::matrix::tier::testing::on_disk;
    use crate::memory::Shelf;

    /// A budget that has no limit, and no room for rows.
    struct Unlimited;

    impl Budget for Unlimited {
        fn grow(&mut self, _bytes: usize, _what: &str) -> Result<()> {
            Ok(())
        }

        fn grow_cells(&mut self, bytes: usize, _what: &str) -> Result<usize> {
            Ok(bytes)
        }

        fn grow_rows(&mut self, _bytes: usize) -> bool {
            false
        }

        fn disk_spent(&self, what: &str, _needed_bytes: usize) -> crate::error::Error {
            ErrorKind::Internal(what.to_owned()).into()
        }

        fn grow_spare(&mut self) -> usize {
            0
        }

        fn shrink(&mut self, _bytes: usize) {}
    }

    /// Runs on a thread whose pool has files, and memory for small blocks alone.
    pub(super) fn with_files<R: Send>(
        work: impl FnOnce(&mut Files<'_>, &rayon::ThreadPool) -> R + Send,
    ) -> R {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        on_disk::<f64, _>(0, |_| {
            let mut files = Files {
                shelf: Shelf::default(),
                budget: &mut Unlimited,
                cancel: &Cancel::default(),
            };
            work(&mut files, &pool)
        })
    }
}
