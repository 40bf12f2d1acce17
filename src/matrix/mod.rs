//! The vocabulary of matrices: what every other module means by shape, element, layout and label.
//!
//! Enters: Arrow buffers. Leaves: [`Matrix`], a value that is cheap to clone and never changes.
//! Not here: arithmetic (`exec::kernels`), expressions (`planner::graph`), files (`files`).
//!
//! ```text
//! Matrix ─ Cells ─ F64 │ F32 ─ Storage ─ Dense (row-major) │ Csr (compressed rows)
//!        └ Labels of the rows, Labels of the columns
//! ```

mod buffer;
mod cells;
mod labels;
mod rules;

use std::fmt;

pub use buffer::CellBuffer;
pub use cells::{Cells, Csr, Dense, Scalar, Storage};
pub use labels::Labels;
pub use rules::{Duplicates, Nulls};

/// Rows times columns; written `3x4`, with `?` for a size that only running can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
}

impl Shape {
    /// A size that is not known while planning, as the rows of a query.
    pub const UNKNOWN: usize = usize::MAX;

    /// The shape of `rows` times `columns`.
    pub const fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns }
    }

    /// Number of cells, stored or not; saturates where the product overflows.
    pub const fn cells(self) -> usize {
        self.rows.saturating_mul(self.columns)
    }

    /// The shape of the transpose.
    pub const fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows }
    }

    /// Whether this is one row and one column, which SQL reads as a scalar.
    pub const fn is_scalar(self) -> bool {
        self.rows == 1 && self.columns == 1
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |size: usize| match size {
            Self::UNKNOWN => "?".to_owned(),
            known => known.to_string(),
        };
        write!(f, "{}x{}", size(self.rows), size(self.columns))
    }
}

/// The type of every cell of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// IEEE 754 single precision, SQL's `REAL`.
    Float32,
    /// IEEE 754 double precision, SQL's `DOUBLE`; the default.
    Float64,
}

impl Element {
    /// Bytes of one cell.
    pub const fn size_bytes(self) -> usize {
        match self {
            Element::Float32 => 4,
            Element::Float64 => 8,
        }
    }

    /// The element of a result that reads both: `FLOAT32` only where both are.
    pub fn common(self, other: Self) -> Self {
        self.max(other)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Element::Float32 => "float32",
            Element::Float64 => "float64",
        })
    }
}

/// How the cells are stored; never changes a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Every cell, row by row.
    Dense,
    /// Compressed sparse rows: the stored cells of each row, ascending by column.
    Csr,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Dense => "dense",
            Layout::Csr => "csr",
        })
    }
}

/// A whole matrix with its labels: what the catalog stores and a query returns.
///
/// Clones share the buffers. Labels, where present, are as long as their dimension.
#[derive(Debug, Clone)]
pub struct Matrix {
    cells: Cells,
    row_labels: Option<Labels>,
    column_labels: Option<Labels>,
}

impl Matrix {
    /// A matrix without labels.
    pub fn new(cells: impl Into<Cells>) -> Self {
        Self { cells: cells.into(), row_labels: None, column_labels: None }
    }

    /// A dense matrix from its cells in row-major order, which are not copied: `FLOAT64` from `f64`, `FLOAT32`
    /// from `f32`.
    ///
    /// Returns `None` unless there are exactly `rows * columns` cells.
    ///
    /// ```
    /// use relatrix::matrix::{Matrix, Shape};
    /// let x = Matrix::from_row_major(Shape::new(2, 2), vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    /// assert_eq!(x.cell(1, 0), 3.0);
    /// ```
    pub fn from_row_major<T: Scalar>(shape: Shape, cells: Vec<T>) -> Option<Self> {
        (cells.len() == shape.cells()).then(|| Self::new(Dense::new(shape, cells.into())))
    }

    /// The same from a copy of a slice.
    ///
    /// ```
    /// use relatrix::matrix::{Element, Matrix, Shape};
    /// let x = Matrix::from_slice(Shape::new(1, 3), &[1.0f32, 2.0, 3.0]).unwrap();
    /// assert_eq!((x.element(), x.cell(0, 2)), (Element::Float32, 3.0));
    /// ```
    pub fn from_slice<T: Scalar>(shape: Shape, cells: &[T]) -> Option<Self> {
        Self::from_row_major(shape, cells.to_vec())
    }

    /// The same cells under these labels; `None` leaves a dimension to its indices.
    ///
    /// # Panics
    /// Where labels are not as long as their dimension.
    pub fn with_labels(mut self, rows: Option<Labels>, columns: Option<Labels>) -> Self {
        let shape = self.shape();
        assert!(
            rows.as_ref().is_none_or(|labels| labels.len() == shape.rows),
            "row labels fit {shape}"
        );
        assert!(
            columns.as_ref().is_none_or(|labels| labels.len() == shape.columns),
            "column labels fit {shape}"
        );
        self.row_labels = rows;
        self.column_labels = columns;
        self
    }

    /// Rows times columns.
    pub fn shape(&self) -> Shape {
        self.cells.shape()
    }

    /// The type of the cells.
    pub fn element(&self) -> Element {
        self.cells.element()
    }

    /// Dense or CSR.
    pub fn layout(&self) -> Layout {
        self.cells.layout()
    }

    /// The cells without labels.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// The key of each row, where the rows have one.
    pub fn row_labels(&self) -> Option<&Labels> {
        self.row_labels.as_ref()
    }

    /// The name or key of each column, where the columns have one.
    pub fn column_labels(&self) -> Option<&Labels> {
        self.column_labels.as_ref()
    }

    /// One cell, counted from 0, widened to `f64`; 0 where a sparse matrix stores none.
    ///
    /// # Panics
    /// Outside the shape.
    pub fn cell(&self, row: usize, column: usize) -> f64 {
        self.cells.cell(row, column)
    }

    /// Bytes held by the cells and the labels.
    pub fn size_bytes(&self) -> usize {
        let labels = |labels: &Option<Labels>| labels.as_ref().map_or(0, Labels::size_bytes);
        self.cells.size_bytes() + labels(&self.row_labels) + labels(&self.column_labels)
    }
}
