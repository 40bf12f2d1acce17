//! Entries and graphs that memory has no room for: read piece by piece where they lie in a file.
//!
//! Enters: batches in files. Leaves: the cells, labels and errors that batches at hand would have led to: what is
//! refused first there is refused first here. Memory holds what finds a key among labels, and the entries of one
//! region of the matrix; labels that OVER gives are at hand.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::ScalarBuffer;
use arrow::compute::cast;

use super::super::intake::{Form, Intake, node_type};
use super::super::kernels::Real;
use super::super::keys::{Index, length};
use super::super::labels::RelationLabels;
use super::super::run::Surroundings;
use super::columns::taken;
use super::places::{Files, Pieces, Places, among, distinct, done_with};
use super::regions::{Piece, Sorting};
use super::{Appearance, Gathered, duplicates, not_given, refuse_repeated, repeated, settled};
use crate::error::Result;
use crate::matrix::{Cells, Element, Shape};
use crate::memory::Shelf;

/// Entries as cells with labels.
pub(super) fn gathered(
    intake: &Intake,
    batches: Vec<RecordBatch>,
    [given_rows, given_columns]: [Option<Vec<ArrayRef>>; 2],
    around: &mut Surroundings<'_>,
    shelf: Shelf,
) -> Result<Gathered> {
    let mut files = Files { shelf, budget: &mut *around.budget, cancel: around.cancel };
    let row_keys = intake.row_keys;
    let (places, shape, labels) = match intake.form {
        Form::Graph => {
            let schema = batches[0].schema();
            let of = node_type(schema.field(0).data_type(), schema.field(1).data_type());
            // All first ends before all second ones.
            let ends = |piece: usize| {
                let batch = &batches[piece % batches.len()];
                Ok(vec![cast(batch.column(piece / batches.len()), &of)?])
            };
            let pieces = Pieces { count: 2 * batches.len(), keys: &ends };
            let (mut rows, nodes) = places_of(intake, 0, &pieces, given_rows, "node", &mut files)?;
            let columns = rows.split_off(batches.len());
            let shape = Shape::new(length(&nodes), length(&nodes));
            let labels = RelationLabels {
                rows: intake.labels(0, nodes.clone()),
                columns: intake.labels(1, nodes),
            };
            ([rows, columns], shape, labels)
        }
        _ => {
            let keys_of = |from: usize, to: usize| {
                let batches = &batches;
                move |piece: usize| Ok(batches[piece].columns()[from..to].to_vec())
            };
            let (of_rows, of_columns) =
                (keys_of(0, row_keys), keys_of(row_keys, intake.key_count()));
            let pieces = Pieces { count: batches.len(), keys: &of_rows };
            let (mut rows, mut row_labels) =
                places_of(intake, 0, &pieces, given_rows, "row", &mut files)?;
            if intake.rows_as_they_come {
                let appearance =
                    Appearance::of(rows.iter().map(|piece| &piece[..]), length(&row_labels));
                let moved = |piece: &ScalarBuffer<u32>| {
                    let moved: Vec<u32> =
                        piece.iter().map(|&place| appearance.place(place)).collect();
                    files.put(&moved)
                };
                rows = rows.iter().map(moved).collect::<Result<_>>()?;
                row_labels = taken(&row_labels, &appearance.keys, &mut files)?;
            }
            let pieces = Pieces { count: batches.len(), keys: &of_columns };
            let (columns, column_labels) =
                places_of(intake, row_keys, &pieces, given_columns, "column", &mut files)?;
            let shape = Shape::new(length(&row_labels), length(&column_labels));
            let labels = RelationLabels {
                rows: intake.labels(0, row_labels),
                columns: intake.labels(row_keys, column_labels),
            };
            ([rows, columns], shape, labels)
        }
    };
    let entries = Entries { intake, batches, places, shape };
    let cells = match intake.element {
        Element::Float64 => entries.cells::<f64>(&labels, around.pool, &mut files),
        Element::Float32 => entries.cells::<f32>(&labels, around.pool, &mut files),
    };
    Ok(Gathered { cells: cells?, labels })
}

/// The places of the keys of a dimension among the given labels, else among the distinct keys in their order.
fn places_of(
    intake: &Intake,
    first: usize,
    pieces: &Pieces<'_>,
    given: Option<Vec<ArrayRef>>,
    dimension: &'static str,
    files: &mut Files<'_>,
) -> Result<(Places, Vec<ArrayRef>)> {
    let Some(given) = given else { return distinct(pieces, files) };
    let index = Index::new(&given)?;
    refuse_repeated(intake, first, &index, &given)?;
    match among(&index, pieces, files)? {
        Ok(places) => Ok((places, given)),
        Err((keys, at)) => Err(not_given(intake, first, keys, at, dimension)),
    }
}

/// Entries whose places are known.
struct Entries<'a> {
    intake: &'a Intake,
    batches: Vec<RecordBatch>,
    /// Of rows and of columns.
    places: [Places; 2],
    shape: Shape,
}

impl Entries<'_> {
    fn cells<T: Real>(
        self,
        labels: &RelationLabels,
        pool: &rayon::ThreadPool,
        files: &mut Files<'_>,
    ) -> Result<Cells> {
        let Self { intake, batches, places: [rows, columns], shape } = self;
        let count = batches.iter().map(RecordBatch::num_rows).sum();
        let at = intake.key_count();
        let has_values = at < intake.names.len();
        // Whatever is wrong with a value is said before an entry that comes twice.
        let mut first_row = 0;
        let mut values: Vec<Option<ScalarBuffer<T>>> = Vec::with_capacity(batches.len());
        for batch in batches {
            files.cancel.check()?;
            let column = batch.columns().get(at).map(|array| -> Result<_> {
                let column = intake.column::<T>(array, &intake.names[at], first_row)?;
                // What is as it was lies in the file of its batch.
                let is_as_it_was = array.data_type() == column.data_type();
                let values = column.values();
                let values = if is_as_it_was { values.clone() } else { files.put(values)? };
                done_with(array);
                Ok(values)
            });
            values.push(column.transpose()?);
            first_row += batch.num_rows();
        }
        let spare_bytes = files.budget.grow_spare();
        let pieces = rows.into_iter().zip(columns).zip(values);
        let pieces = pieces.map(|((rows, columns), values)| Ok(Piece { rows, columns, values }));
        let what = (shape, duplicates(intake), has_values);
        let made = Sorting::new(what, spare_bytes, pool, files).csr(count, pieces);
        files.budget.shrink(spare_bytes);
        let csr = made?.map_err(|entry| repeated(entry, labels))?;
        Ok(settled(csr))
    }
}
