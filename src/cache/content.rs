//! What is remembered: the rows of an answer, or what a part of a matrix expression comes to.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::physical_plan::spill::get_record_batch_memory_size;

use crate::matrix::{Cells, Labels};
use crate::memory::{Shelf, is_away, shelved};

/// Smaller matrices stay in memory: a file would not hold them for less.
const SHELVED_BYTES_MIN: usize = 4 << 10;

/// What is remembered of a question.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Rows(Rows),
    /// One matrix, or the parts of a decomposition.
    Matrices(Vec<Cells>),
    /// Of rows and columns.
    Labels([Option<Labels>; 2]),
}

/// Rows, and what their columns are.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    pub(crate) schema: SchemaRef,
    pub(crate) batches: Vec<RecordBatch>,
}

impl Content {
    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.batches.iter().map(RecordBatch::num_rows).sum(),
            Self::Matrices(matrices) => matrices.iter().map(|cells| cells.shape().rows).sum(),
            Self::Labels(labels) => labels.iter().flatten().map(Labels::len).sum(),
        }
    }

    /// Bytes of all of it that is in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => {
                let left = rows.batches.iter().filter(|batch| !is_away(batch));
                left.map(get_record_batch_memory_size).sum()
            }
            Self::Matrices(matrices) => matrices.iter().map(Cells::memory_bytes).sum(),
            Self::Labels(labels) => labels.iter().flatten().map(Labels::size_bytes).sum(),
        }
    }

    /// Whether some of it is in files.
    pub(super) fn is_away(&self) -> bool {
        match self {
            Self::Rows(rows) => rows.batches.iter().any(is_away),
            Self::Matrices(matrices) => {
                matrices.iter().any(|cells| cells.memory_bytes() < cells.size_bytes())
            }
            Self::Labels(_) => false,
        }
    }

    /// Whether somebody else has some of it: to put it away would free nothing.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Self::Rows(rows) => {
                let mut columns = rows.batches.iter().flat_map(RecordBatch::columns);
                columns.any(|column| Arc::strong_count(column) > 1)
            }
            Self::Matrices(matrices) => matrices.iter().any(Cells::is_shared),
            Self::Labels(_) => false,
        }
    }

    /// The same in files; none where the disk has no room. Labels stay.
    pub(super) fn away(&self, shelf: &mut Shelf) -> Option<Self> {
        Some(match self {
            Self::Rows(Rows { schema, batches }) => {
                let away = batches.iter().map(|batch| match is_away(batch) {
                    true => Some(batch.clone()),
                    false => shelved(batch, shelf),
                });
                let (schema, batches) = (Arc::clone(schema), away.collect::<Option<_>>()?);
                Self::Rows(Rows { schema, batches })
            }
            Self::Matrices(matrices) => {
                let away = matrices.iter().map(|cells| match cells.memory_bytes() {
                    0..SHELVED_BYTES_MIN => Some(cells.clone()),
                    _ => cells.shelved(shelf),
                });
                Self::Matrices(away.collect::<Option<_>>()?)
            }
            Self::Labels(labels) => Self::Labels(labels.clone()),
        })
    }
}
