//! A sparse matrix in a device's memory, its products with dense ones, and all of its cells.
//!
//! It is there compressed by rows, or by the rows of its transpose, whichever its products read; the host turns it. Who reads all cells has
//! it made dense there, for what is stored is less to bring. What comes out is dense; products of two sparse matrices are in [`super::pairs`]. A row of very many cells, as graphs have them, is cut, for one of a few threads would be waited for by all; its parts are
//! added up by a product with a matrix of ones.

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

/// Cells of a row that some threads go through at most.
const PIECE_CELLS: usize = 4096;

/// As it is, and its transpose, each from the first product that reads it so.
#[derive(Clone, Default)]
pub(super) struct Sparse {
    turned: [Arc<OnceLock<Rows>>; 2],
}

/// What is stored of each row, or of each piece of one.
pub(super) struct Rows {
    shape: Shape,
    element: Element,
    /// Where each row begins, and where the last one ends.
    offsets: Buffer,
    places: Buffer,
    values: Buffer,
    stored: usize,
    /// What there is more where some rows are in pieces.
    whole: Option<Box<Whole>>,
}

/// How pieces are rows.
struct Whole {
    /// Where each row begins, and where the last one ends.
    offsets: Buffer,
    /// What adds them up.
    sums: Rows,
}

impl Rows {
    /// Offsets, places and values of rows, whether or not some are in pieces.
    pub(super) fn buffers(&self) -> [&Buffer; 3] {
        let offsets = self.whole.as_ref().map_or(&self.offsets, |whole| &whole.offsets);
        [offsets, &self.places, &self.values]
    }

    fn all_buffers(&self) -> Vec<&Buffer> {
        let whole = self.whole.iter();
        let more = whole.flat_map(|whole| [&whole.offsets].into_iter().chain(whole.sums.buffers()));
        [&self.offsets, &self.places, &self.values].into_iter().chain(more).collect()
    }
}

impl Sparse {
    /// Its memory.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.turned.iter().filter_map(|rows| rows.get()).flat_map(Rows::all_buffers)
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
        let rows = self.brought(a, cells, is_turned)?;
        if b.shape.rows != rows.shape.columns {
            return Err(Failed::Unfit("sizes that do not fit".into()));
        }
        if rows.element != b.element {
            return Err(Failed::Unfit("a sparse and a dense matrix of two types".into()));
        }
        let product = self.times(rows, b)?;
        match &rows.whole {
            Some(whole) => self.times(&whole.sums, &product),
            None => Ok(product),
        }
    }

    /// All cells of a matrix.
    pub(super) fn expanded(&self, a: &Sparse, cells: &Cells) -> Result<Matrix, Failed> {
        let rows = self.brought(a, cells, false)?;
        let shape = cells.shape();
        let out = self.empty(shape, rows.element)?;
        if out.is_empty() {
            return Ok(out);
        }
        self.stream.clear(&out.buffer)?;
        let shared = rows.stored.div_ceil(shape.rows).next_power_of_two().min(SHARED_MAX);
        let [offsets, places, values] = rows.buffers();
        let buffers = [&out.buffer, offsets, places, values];
        let mut arguments: Vec<_> = buffers.map(Argument::Buffer).into();
        arguments.extend([shape.rows, shape.columns].map(|side| Argument::U64(side as u64)));
        arguments.push(Argument::U32(shared as u32));
        let entry = match rows.element {
            Element::Float64 => "expand_f64",
            Element::Float32 => "expand_f32",
        };
        self.launch(TEXT, entry, Work::Threads((shape.rows * shared) as u64), &arguments)?;
        Ok(out)
    }

    /// A matrix, or its transpose, brought when it is first read.
    pub(super) fn brought<'a>(
        &self,
        a: &'a Sparse,
        cells: &Cells,
        is_turned: bool,
    ) -> Result<&'a Rows, Failed> {
        let place = &a.turned[usize::from(is_turned)];
        match place.get() {
            Some(rows) => Ok(rows),
            None => {
                let rows = self.rows(cells, is_turned)?;
                Ok(place.get_or_init(|| rows))
            }
        }
    }

    fn times(&self, rows: &Rows, b: &Matrix) -> Result<Matrix, Failed> {
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
            Cells::F64(Storage::Csr(x)) => self.compressed(x, is_turned),
            Cells::F32(Storage::Csr(x)) => self.compressed(x, is_turned),
            _ => Err(Failed::Unfit("a dense matrix".into())),
        }
    }

    fn compressed<T: Real>(&self, x: &Csr<T>, is_turned: bool) -> Result<Rows, Failed> {
        let turned;
        let x = if is_turned {
            turned = transpose(x, self.cancel.stop());
            &turned
        } else {
            x
        };
        self.cancel.check().map_err(Failed::Stopped)?;
        let cells = x.offsets()[0] as usize..x.offsets()[x.shape().rows] as usize;
        let (places, values) = (&x.columns()[cells.clone()], &x.values()[cells]);
        let (pieces, firsts) = pieces(x.offsets());
        let shape = Shape::new(pieces.len() - 1, x.shape().columns);
        let mut rows = self.bring_rows(shape, &pieces, places, values)?;
        if shape.rows > x.shape().rows {
            let sums = Shape::new(x.shape().rows, shape.rows);
            let places: Vec<u32> = (0..shape.rows as u32).collect();
            let ones = vec![T::ONE; shape.rows];
            let sums = self.bring_rows(sums, &firsts, &places, &ones)?;
            let own: &[u8] = bytemuck::cast_slice(x.offsets());
            let offsets = self.bring(own, "a sparse matrix")?;
            rows.whole = Some(Box::new(Whole { offsets, sums }));
        }
        Ok(rows)
    }

    fn bring_rows<T: Real>(
        &self,
        shape: Shape,
        offsets: &[i64],
        places: &[u32],
        values: &[T],
    ) -> Result<Rows, Failed> {
        let bring = |bytes: &[u8]| self.bring(bytes, "a sparse matrix");
        Ok(Rows {
            shape,
            element: T::ELEMENT,
            offsets: bring(bytemuck::cast_slice(offsets))?,
            places: bring(bytemuck::cast_slice(places))?,
            values: bring(bytemuck::cast_slice(values))?,
            stored: values.len(),
            whole: None,
        })
    }
}

/// Where each piece of a row begins, and the first piece of each row; both with an end.
fn pieces(offsets: &[i64]) -> (Vec<i64>, Vec<i64>) {
    let (mut pieces, mut firsts) = (Vec::with_capacity(offsets.len()), vec![0]);
    for row in offsets.windows(2) {
        pieces.push(row[0]);
        pieces.extend((row[0]..row[1]).step_by(PIECE_CELLS).skip(1));
        firsts.push(pieces.len() as i64);
    }
    pieces.extend(offsets.last());
    (pieces, firsts)
}
