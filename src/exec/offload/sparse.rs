//! A sparse matrix in a device's memory, and its products with dense ones.
//!
//! It is there compressed by rows, or by the rows of its transpose, whichever its products read; the host turns it. What comes out is
//! dense.

use std::sync::{Arc, OnceLock};

use super::loops::THREADS;
use super::matrix::Matrix;
use super::{Failed, Queue};
use crate::exec::kernels::Real;
use crate::exec::kernels::sparse::transpose;
use crate::gpu::{Argument, Buffer, Work};
use crate::matrix::{Cells, Csr, Element, Shape, Storage};

pub(super) const TEXT: &str = include_str!("../../../kernels/sparse.cu");

/// Threads that share a row at most: a warp.
const SHARED_MAX: usize = 32;

/// As it is, and its transpose, each from the first product that reads it so.
#[derive(Clone, Default)]
pub(super) struct Sparse {
    turned: [Arc<OnceLock<Rows>>; 2],
}

/// What is stored of each row.
struct Rows {
    shape: Shape,
    element: Element,
    /// Where each row begins, and where the last one ends.
    offsets: Buffer,
    places: Buffer,
    values: Buffer,
    stored: usize,
}

impl Sparse {
    /// Its memory.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        let sides = self.turned.iter().filter_map(|rows| rows.get());
        sides.flat_map(|rows| [&rows.offsets, &rows.places, &rows.values])
    }

    /// Whether nobody else has it.
    pub(super) fn is_kept_alone(&self) -> bool {
        self.turned.iter().all(|rows| Arc::strong_count(rows) == 1)
    }
}

impl Queue<'_> {
    /// `a @ b` of a sparse matrix, or `t(a) @ b`; its cells are those of the host.
    pub(super) fn sparse_product(
        &self,
        a: &Sparse,
        cells: &Cells,
        is_turned: bool,
        b: &Matrix,
    ) -> Result<Matrix, Failed> {
        let rows = match a.turned[usize::from(is_turned)].get() {
            Some(rows) => rows,
            None => {
                let rows = self.rows(cells, is_turned)?;
                a.turned[usize::from(is_turned)].get_or_init(|| rows)
            }
        };
        if b.shape.rows != rows.shape.columns {
            return Err(Failed::Unfit("sizes that do not fit".into()));
        }
        if rows.element != b.element {
            return Err(Failed::Unfit("a sparse and a dense matrix of two types".into()));
        }
        let (height, columns) = (rows.shape.rows, b.shape.columns);
        let out = self.empty(Shape::new(height, columns), b.element)?;
        if out.is_empty() {
            return Ok(out);
        }
        let across = columns.next_power_of_two().min(SHARED_MAX);
        let in_a_row = rows.stored.div_ceil(height).next_power_of_two();
        let shared = (across * in_a_row).clamp(across, SHARED_MAX);
        let buffers = [&out.buffer, &rows.offsets, &rows.places, &rows.values, &b.buffer];
        let mut arguments: Vec<_> = buffers.map(Argument::Buffer).into();
        arguments.extend([height, columns].map(|side| Argument::U64(side as u64)));
        arguments.extend([shared, across].map(|lanes| Argument::U32(lanes as u32)));
        let entry = match b.element {
            Element::Float64 => "product_f64",
            Element::Float32 => "product_f32",
        };
        let blocks = height.div_ceil(THREADS / shared);
        self.launch(TEXT, entry, Work::Threads((blocks * THREADS) as u64), &arguments)?;
        Ok(out)
    }

    /// Brings a matrix, or its transpose.
    fn rows(&self, cells: &Cells, is_turned: bool) -> Result<Rows, Failed> {
        match cells {
            Cells::F64(Storage::Csr(x)) => self.bring(x, is_turned),
            Cells::F32(Storage::Csr(x)) => self.bring(x, is_turned),
            _ => Err(Failed::Unfit("a dense matrix".into())),
        }
    }

    fn bring<T: Real>(&self, x: &Csr<T>, is_turned: bool) -> Result<Rows, Failed> {
        let turned;
        let x = if is_turned {
            turned = transpose(x, self.cancel.stop());
            &turned
        } else {
            x
        };
        self.cancel.check().map_err(Failed::Stopped)?;
        let (first, stored) = (x.offsets()[0] as usize, x.stored());
        let bring = |bytes: &[u8]| {
            self.with_room(bytes.len(), || self.stream.upload(bytes, "a sparse matrix"))
        };
        Ok(Rows {
            shape: x.shape(),
            element: T::ELEMENT,
            offsets: bring(bytemuck::cast_slice(x.offsets()))?,
            places: bring(bytemuck::cast_slice(&x.columns()[first..first + stored]))?,
            values: bring(bytemuck::cast_slice(&x.values()[first..first + stored]))?,
            stored,
        })
    }
}
