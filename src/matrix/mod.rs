//! The vocabulary of matrices: what every other module means by shape, element, layout and label.
//!
//! Enters: Arrow buffers. Leaves: [`Matrix`], a value that is cheap to clone and never changes.
//! Not here: arithmetic (`exec::kernels`), expressions (`planner::graph`), files (`files`).
//!
//! ```text
//! Matrix ─ Cells ─ F64 │ F32 ─ Storage ─ Dense (row-major) │ Csr (compressed rows)
//!        └ Labels of the rows, Labels of the columns
//! ```
//!
//! ```
//! use relatrix::matrix::{Labels, Matrix, Shape};
//! let flats = Matrix::from_row_major(Shape::new(1, 2), vec![55.0, 2.0]).expect("two cells");
//! let flats = flats.with_labels(None, Some(Labels::names(["area", "floor"])));
//! assert_eq!(flats.cell(0, 1), 2.0);
//! ```

mod buffer;
mod cells;
pub(crate) mod counts;
mod labels;
pub(crate) mod packed;
mod rules;
pub(crate) mod tier;

use std::fmt;
use std::sync::{Arc, OnceLock};

pub use buffer::CellBuffer;
pub use cells::{Cells, Csr, Dense, Scalar, Storage};
use counts::Counts;
pub use labels::Labels;
pub use rules::{Duplicates, Nulls};

/// Rows times columns; written `3x4`, with `?` for a size that only running can tell.
///
/// ```
/// use relatrix::matrix::Shape;
/// let shape = Shape { rows: 3, columns: 4 };
/// assert_eq!(shape.to_string(), "3x4");
/// assert_eq!(Shape::new(Shape::UNKNOWN, 4).to_string(), "?x4");
/// # Ok::<(), relatrix::Error>(())
/// ```
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
    ///
    /// ```
    /// use relatrix::matrix::Shape;
    /// assert_eq!(Shape::new(3, 4), Shape { rows: 3, columns: 4 });
    /// ```
    pub const fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns }
    }

    /// Number of cells, stored or not; saturates where the product overflows.
    ///
    /// ```
    /// use relatrix::matrix::Shape;
    /// assert_eq!(Shape::new(3, 4).cells(), 12);
    /// assert_eq!(Shape::new(usize::MAX, 2).cells(), usize::MAX);
    /// ```
    pub const fn cells(self) -> usize {
        self.rows.saturating_mul(self.columns)
    }

    /// The shape of the transpose.
    ///
    /// ```
    /// use relatrix::matrix::Shape;
    /// assert_eq!(Shape::new(3, 4).transposed(), Shape::new(4, 3));
    /// ```
    pub const fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows }
    }

    /// Whether this is one row and one column, which SQL reads as a scalar.
    ///
    /// ```
    /// use relatrix::matrix::Shape;
    /// assert!(Shape::new(1, 1).is_scalar() && !Shape::new(1, 4).is_scalar());
    /// ```
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
///
/// ```
/// use relatrix::matrix::Element;
/// let connection = relatrix::Database::memory()?.connect();
/// assert_eq!(connection.matrix("eye(2)")?.element(), Element::Float64);
/// assert_eq!(connection.matrix("cast(eye(2), 'float32')")?.element(), Element::Float32);
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// IEEE 754 single precision, SQL's `REAL`.
    Float32,
    /// IEEE 754 double precision, SQL's `DOUBLE`; the default.
    Float64,
}

impl Element {
    /// Bytes of one cell.
    ///
    /// ```
    /// use relatrix::matrix::Element;
    /// assert_eq!((Element::Float32.size_bytes(), Element::Float64.size_bytes()), (4, 8));
    /// ```
    pub const fn size_bytes(self) -> usize {
        match self {
            Element::Float32 => 4,
            Element::Float64 => 8,
        }
    }

    /// The element of a result that reads both: `FLOAT32` only where both are.
    ///
    /// ```
    /// use relatrix::matrix::Element::{Float32, Float64};
    /// assert_eq!(Float32.common(Float64), Float64);
    /// assert_eq!(Float32.common(Float32), Float32);
    /// ```
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
///
/// ```
/// use relatrix::matrix::Layout;
/// let connection = relatrix::Database::memory()?.connect();
/// assert_eq!(connection.matrix("dense(eye(2))")?.layout(), Layout::Dense);
/// assert_eq!(connection.matrix("sparse(ones(2, 2))")?.layout(), Layout::Csr);
/// # Ok::<(), relatrix::Error>(())
/// ```
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
///
/// ```
/// let connection = relatrix::Database::memory()?.connect();
/// connection.execute("CREATE MATRIX x AS SELECT 1.0 AS base, value AS year FROM range(3)")?;
/// let x = connection.matrix("x")?;
/// assert_eq!((x.shape().rows, x.shape().columns), (3, 2));
/// assert_eq!(x.column_labels().map(|labels| labels.text(1)), Some("year".to_owned()));
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Matrix {
    cells: Cells,
    is_sparse: bool,
    row_labels: Option<Labels>,
    column_labels: Option<Labels>,
    counts: OnceLock<Arc<Counts>>,
    triangles: OnceLock<[bool; 2]>,
    is_symmetric: OnceLock<bool>,
}

impl Matrix {
    /// A matrix without labels.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Matrix, Shape};
    /// let x = Matrix::new(Dense::new(Shape::new(1, 2), vec![1.0, 2.0].into()));
    /// assert_eq!(x.cell(0, 1), 2.0);
    /// ```
    pub fn new(cells: impl Into<Cells>) -> Self {
        let cells = cells.into();
        let is_sparse = cells.layout() == Layout::Csr;
        Self {
            cells,
            is_sparse,
            row_labels: None,
            column_labels: None,
            counts: OnceLock::new(),
            triangles: OnceLock::new(),
            is_symmetric: OnceLock::new(),
        }
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
    /// ```
    /// use relatrix::matrix::{Labels, Matrix, Shape};
    /// let x = Matrix::from_slice(Shape::new(1, 2), &[1.0, 2.0]).unwrap();
    /// let x = x.with_labels(None, Some(Labels::names(["length", "width"])));
    /// assert_eq!(x.column_labels().unwrap().text(1), "width");
    /// assert!(x.row_labels().is_none());
    /// ```
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

    /// The same cells, of which those that are zero count as entries, or do not.
    pub(crate) fn with_sparsity(self, is_sparse: bool) -> Self {
        Self { is_sparse, ..self }
    }

    /// Stored cells of its rows and columns, counted when first asked for; none of a dense matrix, nor of one
    /// that would take a tenth of a second.
    pub(crate) fn counts(&self) -> Option<Arc<Counts>> {
        const CELLS_MAX: usize = 1 << 25;
        if self.cells.layout() == Layout::Dense || self.cells.stored() > CELLS_MAX {
            return None;
        }
        let count = || match &self.cells {
            Cells::F64(Storage::Csr(x)) => Arc::new(Counts::of(x)),
            Cells::F32(Storage::Csr(x)) => Arc::new(Counts::of(x)),
            _ => unreachable!("a dense matrix is not counted"),
        };
        Some(Arc::clone(self.counts.get_or_init(count)))
    }

    /// Whether all cells above the diagonal are zero, and whether all below it, looked at when first asked for.
    pub(crate) fn triangles(&self) -> [bool; 2] {
        *self
            .triangles
            .get_or_init(|| crate::with_storage!(&self.cells, storage => storage.triangles()))
    }

    /// Whether each cell equals its mirror, looked at when first asked for; false of a sparse matrix, and of one that
    /// would take a tenth of a second.
    pub(crate) fn is_symmetric(&self) -> bool {
        const CELLS_MAX: usize = 1 << 24;
        let look = || match &self.cells {
            _ if self.shape().cells() > CELLS_MAX => false,
            Cells::F64(Storage::Dense(x)) => x.is_symmetric(),
            Cells::F32(Storage::Dense(x)) => x.is_symmetric(),
            _ => false,
        };
        *self.is_symmetric.get_or_init(look)
    }

    /// Whether a cell that is zero is no entry: so in what is made from entries, whatever its layout.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let full = connection.matrix("(SELECT * FROM (VALUES (1, 1, 0.5)) AS t(i, j, x) ROWS BY i COLUMNS BY j)")?;
    /// assert!(full.is_sparse());
    /// assert!(!connection.matrix("ones(2, 2)")?.is_sparse());
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn is_sparse(&self) -> bool {
        self.is_sparse
    }

    /// Rows times columns.
    ///
    /// ```
    /// use relatrix::matrix::{Matrix, Shape};
    /// let x = Matrix::from_slice(Shape::new(1, 2), &[1.0, 2.0]).unwrap();
    /// assert_eq!(x.shape(), Shape::new(1, 2));
    /// ```
    pub fn shape(&self) -> Shape {
        self.cells.shape()
    }

    /// The type of the cells.
    ///
    /// ```
    /// use relatrix::matrix::{Element, Matrix, Shape};
    /// let x = Matrix::from_slice(Shape::new(1, 1), &[1.0_f32]).unwrap();
    /// assert_eq!(x.element(), Element::Float32);
    /// ```
    pub fn element(&self) -> Element {
        self.cells.element()
    }

    /// Dense or CSR.
    ///
    /// ```
    /// use relatrix::matrix::{Layout, Matrix, Shape};
    /// let x = Matrix::from_slice(Shape::new(1, 1), &[1.0]).unwrap();
    /// assert_eq!(x.layout(), Layout::Dense);
    /// ```
    pub fn layout(&self) -> Layout {
        self.cells.layout()
    }

    /// The cells without labels.
    ///
    /// ```
    /// use relatrix::matrix::{Cells, Matrix, Shape, Storage};
    /// let x = Matrix::from_slice(Shape::new(1, 2), &[1.0, 2.0]).unwrap();
    /// let Cells::F64(Storage::Dense(dense)) = x.cells() else { panic!("dense, from f64") };
    /// assert_eq!(dense.cells(), [1.0, 2.0]);
    /// ```
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// The key of each row, where the rows have one.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let x = connection.matrix("(SELECT * FROM (VALUES (7, 0.5), (9, 1.5)) AS t(id, x) ROWS BY id)")?;
    /// assert_eq!(x.row_labels().map(|labels| labels.text(1)), Some("9".to_owned()));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn row_labels(&self) -> Option<&Labels> {
        self.row_labels.as_ref()
    }

    /// The name or key of each column, where the columns have one.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let x = connection.matrix("(SELECT 0.5 AS length, 1.5 AS width)")?;
    /// assert_eq!(x.column_labels().map(|labels| labels.text(1)), Some("width".to_owned()));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn column_labels(&self) -> Option<&Labels> {
        self.column_labels.as_ref()
    }

    /// One cell, counted from 0, widened to `f64`; 0 where a sparse matrix stores none.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let identity = connection.matrix("eye(3)")?;
    /// assert_eq!((identity.cell(2, 2), identity.cell(2, 1)), (1.0, 0.0));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Panics
    /// Outside the shape.
    pub fn cell(&self, row: usize, column: usize) -> f64 {
        self.cells.cell(row, column)
    }

    /// Bytes held by the cells and the labels.
    ///
    /// ```
    /// use relatrix::matrix::{Matrix, Shape};
    /// let x = Matrix::from_slice(Shape::new(2, 3), &[0.0_f32; 6]).unwrap();
    /// assert_eq!(x.size_bytes(), 24);
    /// ```
    pub fn size_bytes(&self) -> usize {
        let labels = |labels: &Option<Labels>| labels.as_ref().map_or(0, Labels::size_bytes);
        self.cells.size_bytes() + labels(&self.row_labels) + labels(&self.column_labels)
    }
}
