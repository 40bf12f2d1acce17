//! What an operation yields: a matrix, or the parts of a decomposition.

use crate::error::{Error, Result};
use crate::matrix::{Cells, Shape};

/// What an operation yields.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Matrix(Cells),
    /// The parts of a decomposition, in the order of [`super::operation::Part::all`].
    Parts(Vec<Cells>),
}

impl Value {
    pub(crate) fn as_cells(&self) -> Result<&Cells> {
        match self {
            Value::Matrix(cells) => Ok(cells),
            Value::Parts(_) => Err(several()),
        }
    }

    pub(crate) fn cells(self) -> Result<Cells> {
        match self {
            Value::Matrix(cells) => Ok(cells),
            Value::Parts(_) => Err(several()),
        }
    }

    pub(crate) fn part(&self, at: usize) -> &Cells {
        match self {
            Value::Matrix(cells) => cells,
            Value::Parts(parts) => &parts[at],
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.all().iter().map(Cells::size_bytes).sum()
    }

    /// Bytes of those cells that are in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.all().iter().map(Cells::memory_bytes).sum()
    }

    /// The same with its cells in files; none where the disk has no room.
    pub(crate) fn on_disk(&self) -> Option<Self> {
        Some(match self {
            Value::Matrix(cells) => Value::Matrix(cells.on_disk()?),
            Value::Parts(parts) => {
                Value::Parts(parts.iter().map(Cells::on_disk).collect::<Option<_>>()?)
            }
        })
    }

    /// The shape of a single matrix, and the number of stored cells.
    pub(crate) fn extent(&self) -> (Option<Shape>, usize) {
        let shape = match self {
            Value::Matrix(cells) => Some(cells.shape()),
            Value::Parts(_) => None,
        };
        (shape, self.all().iter().map(Cells::stored).sum())
    }

    /// The matrix, or all parts.
    pub(crate) fn into_all(self) -> Vec<Cells> {
        match self {
            Value::Matrix(cells) => vec![cells],
            Value::Parts(parts) => parts,
        }
    }

    fn all(&self) -> &[Cells] {
        match self {
            Value::Matrix(cells) => std::slice::from_ref(cells),
            Value::Parts(parts) => parts,
        }
    }
}

fn several() -> Error {
    Error::argument("a decomposition", "has several results; a field picks one, as svd(a).s")
}

impl From<Cells> for Value {
    fn from(cells: Cells) -> Self {
        Value::Matrix(cells)
    }
}
