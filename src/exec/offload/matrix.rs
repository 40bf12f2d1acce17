//! A dense matrix in a device's memory, and its way there and back.

use std::sync::{Arc, OnceLock};

use bytemuck::Pod;

use super::{Failed, Queue, kept};
use crate::exec::block::Fresh;
use crate::gpu::{Arithmetic, Buffer, Fault, Stream};
use crate::matrix::{Cells, Element, Shape, Storage};

/// Dense cells in row-major order. A copy shares them, for nobody writes over what has been made.
#[derive(Clone)]
pub(in crate::exec) struct Matrix {
    pub(super) buffer: Arc<Buffer>,
    pub(super) shape: Shape,
    pub(super) element: Element,
    rounded: Arc<Rounded>,
}

/// The same cells in fewer bits, each from the first product that wants them so.
#[derive(Default)]
struct Rounded {
    singles: OnceLock<Arc<Buffer>>,
    halves: OnceLock<Arc<Buffer>>,
}

impl Matrix {
    pub(super) fn new(buffer: Buffer, shape: Shape, element: Element) -> Self {
        Self { buffer: Arc::new(buffer), shape, element, rounded: Arc::default() }
    }

    /// The same cells in rows of another length.
    pub(super) fn reshaped(&self, shape: Shape) -> Self {
        Self { shape, ..self.clone() }
    }

    /// The same memory, of which other cells have been made.
    pub(super) fn changed(&self) -> Self {
        Self { rounded: Arc::default(), ..self.clone() }
    }

    pub(in crate::exec) fn bytes(&self) -> usize {
        self.shape.cells() * self.element.size_bytes()
    }

    /// Its memory, and that of its cells in fewer bits.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        let Rounded { singles, halves } = self.rounded.as_ref();
        [Some(&self.buffer), singles.get(), halves.get()].into_iter().flatten()
    }

    /// Whether nobody else has it.
    pub(super) fn is_kept_alone(&self) -> bool {
        self.buffers().all(|of| Arc::strong_count(of) == 1)
    }

    /// Whether it is the same one.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer) && self.shape == other.shape
    }

    pub(super) fn is_vector(&self) -> bool {
        self.shape.rows == 1 || self.shape.columns == 1
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

    /// A matrix that steps read.
    pub(super) fn upload(&self, cells: &Cells) -> Result<Matrix, Failed> {
        let bytes: &[u8] = match cells {
            Cells::F64(Storage::Dense(x)) => bytemuck::cast_slice(x.cells()),
            Cells::F32(Storage::Dense(x)) => bytemuck::cast_slice(x.cells()),
            _ => return Err(Failed::Unfit("a sparse matrix".into())),
        };
        let buffer = self.bring(bytes, "a matrix")?;
        Ok(Matrix::new(buffer, cells.shape(), cells.element()))
    }

    /// What takes memory of so many bytes or more, for which what is kept gives way.
    pub(super) fn with_room<T>(
        &self,
        bytes: usize,
        mut take: impl FnMut() -> Result<T, Fault>,
    ) -> Result<T, Failed> {
        loop {
            match take() {
                Err(Fault::Memory { .. }) if kept::give_way(self.device, bytes) => {}
                taken => return Ok(taken?),
            }
        }
    }

    /// The cells of a matrix as products in this arithmetic read them: rounded once, however many products and rounds do.
    pub(super) fn factor(
        &self,
        matrix: &Matrix,
        arithmetic: Arithmetic,
    ) -> Result<Arc<Buffer>, Failed> {
        let rounded = match (arithmetic, matrix.element) {
            (Arithmetic::F64, element) | (Arithmetic::F32 | Arithmetic::Tf32, element)
                if element.size_bytes() == arithmetic.bytes() =>
            {
                return Ok(Arc::clone(&matrix.buffer));
            }
            (Arithmetic::F64, _) => return Ok(self.cast(matrix, Element::Float64)?.buffer),
            (Arithmetic::F32 | Arithmetic::Tf32, _) => &matrix.rounded.singles,
            (Arithmetic::Bf16, _) => &matrix.rounded.halves,
        };
        if let Some(buffer) = rounded.get() {
            return Ok(Arc::clone(buffer));
        }
        let buffer = match arithmetic {
            Arithmetic::Bf16 => self.halved(matrix)?,
            _ => self.cast(matrix, Element::Float32)?.buffer,
        };
        Ok(Arc::clone(rounded.get_or_init(|| buffer)))
    }

    /// Waits for a matrix.
    pub(super) fn download(&self, matrix: &Matrix) -> Result<Cells, Failed> {
        self.download_by(&self.stream, matrix)
    }

    /// Waits for what is queued on a stream, and then brings a matrix back by it.
    pub(super) fn download_by(&self, stream: &Stream, matrix: &Matrix) -> Result<Cells, Failed> {
        let mut fresh = Fresh::arbitrary(matrix.element, matrix.shape.cells());
        let bytes: &mut [u8] = match &mut fresh {
            Fresh::F64(cells) => bytemuck::cast_slice_mut(cells),
            Fresh::F32(cells) => bytemuck::cast_slice_mut(cells),
        };
        self.back_by(stream, &matrix.buffer, bytes)?;
        Ok(fresh.frozen(matrix.shape))
    }

    /// The first cells of what there is once all before it is done.
    pub(super) fn back<T: Pod>(&self, of: &Buffer, to: &mut [T]) -> Result<(), Failed> {
        self.back_by(&self.stream, of, bytemuck::cast_slice_mut(to))
    }

    fn back_by(&self, stream: &Stream, of: &Buffer, to: &mut [u8]) -> Result<(), Failed> {
        // Here and not in the copy, which cannot be stopped.
        stream.finish(Some(self.cancel.flag()))?;
        Ok(stream.download(of, to)?)
    }
}
