//! A dense matrix in a device's memory, and its way there and back.

use std::sync::{Arc, OnceLock};

use super::{Failed, Queue, kept};
use crate::exec::block::Fresh;
use crate::gpu::{Buffer, Fault};
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

    /// Its memory, and that of its cells in single precision.
    pub(super) fn buffers(&self) -> Vec<&Buffer> {
        [Some(&self.buffer), self.singles.get()].into_iter().flatten().map(Arc::as_ref).collect()
    }

    /// Whether nobody else has it.
    pub(super) fn is_kept_alone(&self) -> bool {
        let singles = self.singles.get();
        [Some(&self.buffer), singles].into_iter().flatten().all(|of| Arc::strong_count(of) == 1)
    }

    /// Whether it is the same one.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer) && self.shape == other.shape
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
        let buffer = self.with_room(bytes, || self.stream.alloc(bytes, "a matrix"))?;
        Ok(Matrix::new(buffer, shape, element))
    }

    pub(super) fn upload(&self, cells: &Cells) -> Result<Matrix, Failed> {
        let bytes: &[u8] = match cells {
            Cells::F64(Storage::Dense(x)) => bytemuck::cast_slice(x.cells()),
            Cells::F32(Storage::Dense(x)) => bytemuck::cast_slice(x.cells()),
            _ => return Err(Failed::Unfit("a sparse matrix".into())),
        };
        let buffer = self.with_room(bytes.len(), || self.stream.upload(bytes, "a matrix"))?;
        Ok(Matrix::new(buffer, cells.shape(), cells.element()))
    }

    /// Memory of so many bytes, for which what is kept gives way.
    pub(super) fn with_room(
        &self,
        bytes: usize,
        take: impl Fn() -> Result<Buffer, Fault>,
    ) -> Result<Buffer, Failed> {
        loop {
            match take() {
                Err(Fault::Memory { .. }) if kept::give_way(bytes) => {}
                taken => return Ok(taken?),
            }
        }
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
