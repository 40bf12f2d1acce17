//! A dense matrix in a device's memory, and its way there and back.

use std::sync::{Arc, OnceLock};

use super::{Failed, Queue};
use crate::exec::block::Fresh;
use crate::gpu::Buffer;
use crate::matrix::{Cells, Element, Shape, Storage};

/// Dense cells in row-major order. A copy shares them, for nobody writes over what has been made.
#[derive(Clone)]
pub(in crate::exec) struct Matrix {
    pub(super) buffer: Arc<Buffer>,
    pub(super) shape: Shape,
    pub(super) element: Element,
    /// The same cells in single precision, from the first product that wants them so.
    singles: Arc<OnceLock<Arc<Buffer>>>,
}

impl Matrix {
    fn new(buffer: Buffer, shape: Shape, element: Element) -> Self {
        Self { buffer: Arc::new(buffer), shape, element, singles: Arc::default() }
    }

    /// The same cells in rows of another length.
    pub(super) fn reshaped(&self, shape: Shape) -> Self {
        Self { shape, ..self.clone() }
    }

    pub(in crate::exec) fn bytes(&self) -> usize {
        self.shape.cells() * self.element.size_bytes()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shape.cells() == 0
    }
}

impl Queue<'_> {
    /// Memory for a matrix, of any value.
    pub(super) fn empty(&self, shape: Shape, element: Element) -> Result<Matrix, Failed> {
        let bytes = shape.cells().checked_mul(element.size_bytes());
        let bytes = bytes.ok_or_else(|| Failed::Unfit("more cells than there are bytes".into()))?;
        Ok(Matrix::new(self.stream.alloc(bytes, "a matrix")?, shape, element))
    }

    pub(super) fn upload(&self, cells: &Cells) -> Result<Matrix, Failed> {
        let bytes: &[u8] = match cells {
            Cells::F64(Storage::Dense(x)) => bytemuck::cast_slice(x.cells()),
            Cells::F32(Storage::Dense(x)) => bytemuck::cast_slice(x.cells()),
            _ => return Err(Failed::Unfit("a sparse matrix".into())),
        };
        let buffer = self.stream.upload(bytes, "a matrix")?;
        Ok(Matrix::new(buffer, cells.shape(), cells.element()))
    }

    /// A matrix in single precision: converted once, however many products and rounds read it.
    pub(super) fn singles(&self, matrix: &Matrix) -> Result<Matrix, Failed> {
        let Some(buffer) = matrix.singles.get() else {
            let singles = self.cast(matrix, Element::Float32)?;
            matrix.singles.get_or_init(|| Arc::clone(&singles.buffer));
            return Ok(singles);
        };
        let element = Element::Float32;
        Ok(Matrix { buffer: Arc::clone(buffer), element, ..matrix.clone() })
    }

    /// Waits for a matrix.
    pub(in crate::exec) fn download(&self, matrix: &Matrix) -> Result<Cells, Failed> {
        let mut fresh = Fresh::arbitrary(matrix.element, matrix.shape.cells());
        let bytes: &mut [u8] = match &mut fresh {
            Fresh::F64(cells) => bytemuck::cast_slice_mut(cells),
            Fresh::F32(cells) => bytemuck::cast_slice_mut(cells),
        };
        // Here and not in the copy, which cannot be stopped.
        self.stream.finish(Some(self.cancel.flag()))?;
        self.stream.download(&matrix.buffer, bytes)?;
        Ok(fresh.frozen(matrix.shape))
    }
}
