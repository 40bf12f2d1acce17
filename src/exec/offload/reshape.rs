//! The same cells at other places, or in fewer bits: transposes, slices, stacks, diagonals, triangles, factors of 16 bits.

use std::sync::Arc;

use super::loops::THREADS;
use super::matrix::Matrix;
use super::{Failed, Queue};
use crate::exec::kernels::decompose::Triangle;
use crate::exec::operation::{Axis, Span};
use crate::gpu::{Argument, Arithmetic, Buffer, Work};
use crate::matrix::{Element, Shape};

pub(super) const TEXT: &str = include_str!("../../../kernels/reshape.cu");

/// Side of a tile of a transpose: what the kernel says.
const TILE: usize = 32;

/// So many rows of so many cells, from a place on in rows of one width to a place in rows of another.
struct Copied {
    rows: usize,
    columns: usize,
    from: usize,
    from_width: usize,
    to: usize,
    to_width: usize,
}

impl Queue<'_> {
    pub(super) fn transpose(&self, matrix: &Matrix) -> Result<Matrix, Failed> {
        let Shape { rows, columns } = matrix.shape;
        let turned = Shape::new(columns, rows);
        if rows == 1 || columns == 1 || matrix.is_empty() {
            return Ok(matrix.reshaped(turned));
        }
        let out = self.empty(turned, matrix.element)?;
        let buffers = [&out, matrix].map(|matrix| Argument::Buffer(&matrix.buffer));
        let sides = [rows, columns].map(|side| Argument::U64(side as u64));
        let tiles = rows.div_ceil(TILE) * columns.div_ceil(TILE);
        let entry = match matrix.element {
            Element::Float64 => "transpose_f64",
            Element::Float32 => "transpose_f32",
        };
        let work = Work::Threads((tiles * THREADS) as u64);
        self.launch(TEXT, entry, work, &[buffers, sides].concat())?;
        Ok(out)
    }

    /// The cells in bf16, two in a word.
    pub(super) fn halved(&self, matrix: &Matrix) -> Result<Arc<Buffer>, Failed> {
        let cells = matrix.shape.cells();
        let (words, word_bytes) = (cells.div_ceil(2), 2 * Arithmetic::Bf16.bytes());
        let bytes = words * word_bytes;
        let out = self.with_room(bytes, || self.stream.alloc(bytes, "a matrix in bf16"))?;
        if words > 0 {
            let entry = match matrix.element {
                Element::Float64 => "halve_f64",
                Element::Float32 => "halve_f32",
            };
            let cells = Argument::U64(cells as u64);
            let arguments = [Argument::Buffer(&out), Argument::Buffer(&matrix.buffer), cells];
            self.launch(TEXT, entry, Work::Threads(words as u64), &arguments)?;
        }
        Ok(Arc::new(out))
    }

    pub(super) fn slice(&self, matrix: &Matrix, axis: Axis, range: Span) -> Result<Matrix, Failed> {
        let Shape { rows, columns } = matrix.shape;
        let (shape, side, from) = match axis {
            Axis::Rows => (Shape::new(range.count, columns), rows, range.start * columns),
            Axis::Columns => (Shape::new(rows, range.count), columns, range.start),
        };
        if range.start + range.count > side {
            return Err(Failed::Unfit("a slice beyond its matrix".into()));
        }
        let out = self.empty(shape, matrix.element)?;
        let Shape { rows, columns: to_width } = shape;
        let from_width = columns;
        let copied = Copied { rows, columns: to_width, from, from_width, to: 0, to_width };
        self.copy(&copied, matrix, &out)?;
        Ok(out)
    }

    /// The diagonal as a column.
    pub(super) fn diagonal(&self, matrix: &Matrix) -> Result<Matrix, Failed> {
        let Shape { rows, columns } = matrix.shape;
        let out = self.empty(Shape::new(rows.min(columns), 1), matrix.element)?;
        let (rows, from_width) = (out.shape.rows, columns + 1);
        let copied = Copied { rows, columns: 1, from: 0, from_width, to: 0, to_width: 1 };
        self.copy(&copied, matrix, &out)?;
        Ok(out)
    }

    pub(super) fn identity(&self, side: usize, element: Element) -> Result<Matrix, Failed> {
        let out = self.empty(Shape::new(side, side), element)?;
        self.stream.clear(&out.buffer)?;
        self.put_ones(&out)?;
        Ok(out)
    }

    /// Writes ones over the diagonal of a matrix that nobody else has.
    pub(super) fn put_ones(&self, matrix: &Matrix) -> Result<(), Failed> {
        let one = self.numbers(vec![1.0], Shape::new(1, 1), matrix.element)?;
        let Shape { rows, columns } = matrix.shape;
        let (rows, to_width) = (rows.min(columns), columns + 1);
        let copied = Copied { rows, columns: 1, from: 0, from_width: 0, to: 0, to_width };
        self.copy(&copied, &one, matrix)
    }

    /// A copy with zeros beyond this triangle.
    pub(super) fn triangle(&self, matrix: &Matrix, kept: Triangle) -> Result<Matrix, Failed> {
        let out = self.empty(matrix.shape, matrix.element)?;
        if out.is_empty() {
            return Ok(out);
        }
        let Shape { rows, columns } = matrix.shape;
        let entry = match (kept, matrix.element) {
            (Triangle::Lower, Element::Float64) => "lower_f64",
            (Triangle::Lower, Element::Float32) => "lower_f32",
            (Triangle::Upper, Element::Float64) => "upper_f64",
            (Triangle::Upper, Element::Float32) => "upper_f32",
        };
        let buffers = [&out, matrix].map(|matrix| Argument::Buffer(&matrix.buffer));
        let sides = [rows, columns].map(|side| Argument::U64(side as u64));
        let work = Work::Threads((rows * columns) as u64);
        self.launch(TEXT, entry, work, &[buffers, sides].concat())?;
        Ok(out)
    }

    /// A copy that nobody else has, to be written over.
    pub(super) fn own(&self, matrix: &Matrix) -> Result<Matrix, Failed> {
        let copy = || self.stream.copy(&matrix.buffer);
        Ok(Matrix::new(self.with_room(matrix.bytes(), copy)?, matrix.shape, matrix.element))
    }

    /// The transpose, in memory that nobody else has.
    pub(super) fn own_transpose(&self, matrix: &Matrix) -> Result<Matrix, Failed> {
        let turned = self.transpose(matrix)?;
        let is_shared = Arc::ptr_eq(&turned.buffer, &matrix.buffer);
        if is_shared { self.own(&turned) } else { Ok(turned) }
    }

    pub(super) fn stack(&self, parts: &[Matrix], axis: Axis) -> Result<Matrix, Failed> {
        let element = parts.iter().map(|part| part.element).reduce(Element::common);
        let (Some(element), Some(first)) = (element, parts.first()) else {
            return Err(Failed::Unfit("a stack of nothing".into()));
        };
        let side = |of: fn(Shape) -> usize| parts.iter().map(|part| of(part.shape)).sum::<usize>();
        let (shape, fits): (Shape, fn(Shape, Shape) -> bool) = match axis {
            Axis::Rows => {
                (Shape::new(side(|shape| shape.rows), first.shape.columns), |part, whole| {
                    part.columns == whole.columns
                })
            }
            Axis::Columns => {
                (Shape::new(first.shape.rows, side(|shape| shape.columns)), |part, whole| {
                    part.rows == whole.rows
                })
            }
        };
        if !parts.iter().all(|part| fits(part.shape, shape)) {
            return Err(Failed::Unfit("sizes that do not fit".into()));
        }
        let out = self.empty(shape, element)?;
        let mut to = 0;
        for part in parts {
            let part = self.cast(part, element)?;
            let Shape { rows, columns } = part.shape;
            let (from_width, to_width) = (columns, shape.columns);
            self.copy(&Copied { rows, columns, from: 0, from_width, to, to_width }, &part, &out)?;
            to += if axis == Axis::Rows { rows * columns } else { columns };
        }
        Ok(out)
    }

    fn copy(&self, copied: &Copied, from: &Matrix, to: &Matrix) -> Result<(), Failed> {
        let Copied { rows, columns, from: at, from_width, to: place, to_width } = *copied;
        if rows * columns == 0 {
            return Ok(());
        }
        let buffers = [to, from].map(|matrix| Argument::Buffer(&matrix.buffer));
        let places = [rows, columns, at, from_width, place, to_width];
        let places = places.map(|place| Argument::U64(place as u64));
        let arguments = [buffers.as_slice(), places.as_slice()].concat();
        let entry = match from.element {
            Element::Float64 => "copy_f64",
            Element::Float32 => "copy_f32",
        };
        self.launch(TEXT, entry, Work::Threads((rows * columns) as u64), &arguments)
    }
}
