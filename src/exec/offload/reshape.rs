//! The same cells at other places: transposes, slices, stacks.

use super::loops::THREADS;
use super::matrix::Matrix;
use super::{Failed, Queue};
use crate::exec::operation::{Axis, Span};
use crate::gpu::{Argument, Work};
use crate::matrix::{Element, Shape};

pub(super) const TEXT: &str = include_str!("../../../kernels/reshape.cu");

/// Side of a tile of a transpose: what the kernel says.
const TILE: usize = 32;

/// So many rows of so many cells, from one place of a matrix to one of another.
struct Copied {
    rows: usize,
    columns: usize,
    from: usize,
    to: usize,
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
        let copied = Copied { rows: shape.rows, columns: shape.columns, from, to: 0 };
        self.copy(&copied, matrix, &out)?;
        Ok(out)
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
            self.copy(&Copied { rows, columns, from: 0, to }, &part, &out)?;
            to += if axis == Axis::Rows { rows * columns } else { columns };
        }
        Ok(out)
    }

    fn copy(&self, copied: &Copied, from: &Matrix, to: &Matrix) -> Result<(), Failed> {
        let Copied { rows, columns, .. } = *copied;
        if rows * columns == 0 {
            return Ok(());
        }
        let buffers = [to, from].map(|matrix| Argument::Buffer(&matrix.buffer));
        let places = [rows, columns, copied.from, from.shape.columns, copied.to, to.shape.columns];
        let places = places.map(|place| Argument::U64(place as u64));
        let arguments = [buffers.as_slice(), places.as_slice()].concat();
        let entry = match from.element {
            Element::Float64 => "copy_f64",
            Element::Float32 => "copy_f32",
        };
        self.launch(TEXT, entry, Work::Threads((rows * columns) as u64), &arguments)
    }
}
