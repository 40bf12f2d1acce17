//! A matrix whose cells are compressed, in memory.

use arrow::buffer::ScalarBuffer;
use arrow::datatypes::ArrowNativeType;
use bytemuck::Pod;

use super::{CellBuffer, Cells, Csr, Dense, Element, Layout, Matrix, Scalar, Shape, Storage};
use crate::config::Compression;
use crate::memory::Packed;
use crate::with_storage;

/// A matrix that is whole again once somebody wants it.
#[derive(Debug)]
pub(crate) struct PackedMatrix {
    /// All of it but its cells.
    rest: Matrix,
    pub(crate) shape: Shape,
    pub(crate) element: Element,
    pub(crate) layout: Layout,
    /// Cells that are stored.
    pub(crate) stored: usize,
    /// The buffers of its cells, in the order of [`Storage`].
    buffers: Vec<Packed>,
}

/// Where the cells of a matrix go that is whole again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unpack {
    /// Where blocks go.
    ToMemory,
    ToFile,
}

impl PackedMatrix {
    /// The matrix without its cells: its labels, and what is known of it.
    pub(crate) fn rest(&self) -> &Matrix {
        &self.rest
    }

    /// Bytes of its cells once they are unpacked.
    pub(crate) fn cell_bytes(&self) -> usize {
        self.buffers.iter().map(Packed::bytes).sum()
    }

    /// Bytes that are in memory now.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.rest.memory_bytes() + self.buffers.iter().map(Packed::size_bytes).sum::<usize>()
    }

    /// The whole matrix; none where neither memory nor the disk has room.
    pub(crate) fn unpacked(&self, to: Unpack) -> Option<Matrix> {
        let cells = match self.element {
            Element::Float64 => Cells::F64(self.storage(to)?),
            Element::Float32 => Cells::F32(self.storage(to)?),
        };
        Some(Matrix { cells, ..self.rest.clone() })
    }

    fn storage<T: Scalar>(&self, to: Unpack) -> Option<Storage<T>> {
        match (self.layout, self.buffers.as_slice()) {
            (Layout::Dense, [cells]) => {
                Some(Storage::Dense(Dense::new(self.shape, unpacked(cells, to)?)))
            }
            (Layout::Csr, [offsets, columns, values]) => Some(Storage::Csr(Csr::new(
                self.shape,
                unpacked(offsets, to)?,
                unpacked(columns, to)?,
                unpacked(values, to)?,
            ))),
            _ => None,
        }
    }
}

impl Matrix {
    /// The same matrix with its cells compressed; none where they would hardly take less memory.
    pub(crate) fn packed(&self, compression: Compression) -> Option<PackedMatrix> {
        let buffers = with_storage!(&self.cells, storage => storage.packed(compression))?;
        let nothing = Cells::from(Dense::<f64>::new(Shape::new(0, 0), Vec::new().into()));
        Some(PackedMatrix {
            rest: Matrix { cells: nothing, ..self.clone() },
            shape: self.shape(),
            element: self.element(),
            layout: self.layout(),
            stored: self.cells.stored(),
            buffers,
        })
    }
}

impl<T: Scalar> Storage<T> {
    fn packed(&self, compression: Compression) -> Option<Vec<Packed>> {
        match self {
            Storage::Dense(x) => Some(vec![packed(x.buffer(), compression)?]),
            Storage::Csr(x) => Some(vec![
                packed(x.offsets(), compression)?,
                packed(x.columns(), compression)?,
                packed(x.values(), compression)?,
            ]),
        }
    }
}

fn packed<V: ArrowNativeType + Pod>(
    values: &ScalarBuffer<V>,
    compression: Compression,
) -> Option<Packed> {
    Packed::of(bytemuck::cast_slice(values), size_of::<V>(), compression)
}

fn unpacked<V: ArrowNativeType + Pod>(packed: &Packed, to: Unpack) -> Option<ScalarBuffer<V>> {
    let count = packed.bytes() / size_of::<V>();
    let mut values = match to {
        Unpack::ToMemory => CellBuffer::<V>::arbitrary(count),
        Unpack::ToFile => CellBuffer::<V>::in_file(count)?,
    };
    packed.unpack(bytemuck::cast_slice_mut(&mut values))?;
    Some(values.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Labels;

    fn sparse() -> Csr<f32> {
        let rows = 20_000_usize;
        let offsets: Vec<i64> = (0..=rows as i64).map(|row| row * 3).collect();
        let columns: Vec<u32> = (0..rows as u32 * 3).map(|at| at % 3 * 7).collect();
        let values: Vec<f32> = (0..rows * 3).map(|at| (at % 10) as f32).collect();
        Csr::new(Shape::new(rows, 30), offsets.into(), columns.into(), values.into())
    }

    #[test]
    fn matrices_come_back_as_they_were() {
        let cells = (0..60_000).map(|at| (at % 100) as f64).collect();
        let dense = Matrix::from_row_major(Shape::new(30_000, 2), cells).unwrap();
        let labelled = dense.clone().with_labels(None, Some(Labels::names(["a", "b"])));
        for matrix in [dense, labelled, Matrix::new(Cells::from(sparse()))] {
            let packed = matrix.packed(Compression::Lz4).unwrap();
            assert!(packed.memory_bytes() < matrix.size_bytes());
            assert_eq!(packed.cell_bytes(), matrix.cells().size_bytes());
            assert_eq!((packed.shape, packed.element), (matrix.shape(), matrix.element()));
            assert_eq!((packed.layout, packed.stored), (matrix.layout(), matrix.cells().stored()));
            let whole = packed.unpacked(Unpack::ToMemory).unwrap();
            assert_eq!(whole.is_sparse(), matrix.is_sparse());
            assert_eq!(
                format!("{:?}", whole.column_labels()),
                format!("{:?}", matrix.column_labels())
            );
            let cells = |x: &Matrix| with_storage!(x.cells(), storage => format!("{storage:?}"));
            assert_eq!(cells(&whole), cells(&matrix));
        }
    }

    #[test]
    fn cells_of_chance_are_not_packed() {
        let cells: Vec<f64> = (0..100_000_u32).map(|at| f64::from(at).sin()).collect();
        let matrix = Matrix::from_row_major(Shape::new(1000, 100), cells).unwrap();
        assert!(matrix.packed(Compression::Lz4).is_none());
        assert!(matrix.packed(Compression::None).is_none());
    }
}
