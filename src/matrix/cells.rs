//! The cells of a matrix: dense or CSR, of `f64` or `f32`, over shared Arrow buffers.

use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Range, Sub, SubAssign};

use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{ArrowNativeType, ArrowPrimitiveType, Float32Type, Float64Type};

use super::{Element, Layout, Shape};

/// `f64` or `f32`: what a kernel is generic over.
///
/// ```
/// use relatrix::matrix::{Dense, Scalar};
/// fn mean<T: Scalar>(x: &Dense<T>) -> T {
///     x.cells().iter().copied().sum::<T>() / T::from_f64(x.cells().len() as f64)
/// }
/// assert_eq!(mean(&Dense::scalar(2.5_f32)), 2.5);
/// ```
pub trait Scalar:
    ArrowNativeType
    + bytemuck::Pod
    + Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + Sum
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + SubAssign
    + Mul<Output = Self>
    + MulAssign
    + Div<Output = Self>
    + DivAssign
    + Neg<Output = Self>
    + private::Sealed
    + 'static
{
    /// The element this type stores.
    const ELEMENT: Element;
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// The Arrow type of a column of such cells.
    type Arrow: ArrowPrimitiveType<Native = Self>;

    /// Rounds to the nearest value of this type, ties to even.
    ///
    /// ```
    /// use relatrix::matrix::Scalar;
    /// assert_eq!(f32::from_f64(0.1), 0.1_f32);
    /// ```
    fn from_f64(value: f64) -> Self;
    /// Widens; exact.
    ///
    /// ```
    /// use relatrix::matrix::Scalar;
    /// assert_eq!(0.5_f32.to_f64(), 0.5_f64);
    /// ```
    fn to_f64(self) -> f64;
    /// Wraps cells of this type.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Element, Scalar, Storage};
    /// assert_eq!(f32::wrap(Storage::Dense(Dense::scalar(1.0))).element(), Element::Float32);
    /// ```
    fn wrap(storage: Storage<Self>) -> Cells;
    /// The cells, where they are of this type.
    ///
    /// ```
    /// use relatrix::matrix::{Cells, Dense, Scalar};
    /// let x = Cells::from(Dense::scalar(2.5_f64));
    /// assert!(f64::unwrap(&x).is_some() && f32::unwrap(&x).is_none());
    /// ```
    fn unwrap(cells: &Cells) -> Option<&Storage<Self>>;
}

mod private {
    pub trait Sealed {}
    impl Sealed for f64 {}
    impl Sealed for f32 {}
}

impl Scalar for f64 {
    const ELEMENT: Element = Element::Float64;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    type Arrow = Float64Type;

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }

    fn wrap(storage: Storage<Self>) -> Cells {
        Cells::F64(storage)
    }

    fn unwrap(cells: &Cells) -> Option<&Storage<Self>> {
        match cells {
            Cells::F64(storage) => Some(storage),
            Cells::F32(_) => None,
        }
    }
}

impl Scalar for f32 {
    const ELEMENT: Element = Element::Float32;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    type Arrow = Float32Type;

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    fn wrap(storage: Storage<Self>) -> Cells {
        Cells::F32(storage)
    }

    fn unwrap(cells: &Cells) -> Option<&Storage<Self>> {
        match cells {
            Cells::F32(storage) => Some(storage),
            Cells::F64(_) => None,
        }
    }
}

/// Every cell, row by row, without gaps.
///
/// ```
/// use relatrix::matrix::{Dense, Shape};
/// let x = Dense::new(Shape::new(2, 2), vec![1.0, 2.0, 3.0, 4.0].into());
/// assert_eq!(x.row(1), [3.0, 4.0]);
/// ```
#[derive(Debug, Clone)]
pub struct Dense<T: Scalar> {
    shape: Shape,
    cells: ScalarBuffer<T>,
}

impl<T: Scalar> Dense<T> {
    /// A dense matrix over its cells in row-major order.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Shape};
    /// let x = Dense::new(Shape::new(1, 3), vec![1.0, 2.0, 3.0].into());
    /// assert_eq!(x.shape().columns, 3);
    /// ```
    ///
    /// # Panics
    /// Unless there are exactly `shape.cells()` of them.
    pub fn new(shape: Shape, cells: ScalarBuffer<T>) -> Self {
        assert_eq!(cells.len(), shape.cells(), "a dense {shape} matrix has that many cells");
        Self { shape, cells }
    }

    /// A matrix of one cell.
    ///
    /// ```
    /// use relatrix::matrix::Dense;
    /// assert_eq!(Dense::scalar(2.5).cells(), [2.5]);
    /// ```
    pub fn scalar(value: T) -> Self {
        Self::new(Shape::new(1, 1), vec![value].into())
    }

    /// Rows times columns.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Shape};
    /// assert_eq!(Dense::scalar(2.5).shape(), Shape::new(1, 1));
    /// ```
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// All cells, row-major.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Shape};
    /// let x = Dense::new(Shape::new(2, 1), vec![1.0, 2.0].into());
    /// assert_eq!(x.cells().iter().sum::<f64>(), 3.0);
    /// ```
    pub fn cells(&self) -> &[T] {
        &self.cells
    }

    /// The shared buffer behind the cells.
    ///
    /// ```
    /// let x = relatrix::matrix::Dense::scalar(2.5);
    /// assert!(x.buffer().ptr_eq(x.clone().buffer()));
    /// ```
    pub fn buffer(&self) -> &ScalarBuffer<T> {
        &self.cells
    }

    /// The same without a matrix around it.
    pub(crate) fn into_buffer(self) -> ScalarBuffer<T> {
        self.cells
    }

    /// One row, counted from 0; panics outside the shape.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Shape};
    /// let x = Dense::new(Shape::new(2, 2), vec![1.0, 2.0, 3.0, 4.0].into());
    /// assert_eq!(x.row(0), [1.0, 2.0]);
    /// ```
    pub fn row(&self, row: usize) -> &[T] {
        &self.cells[row * self.shape.columns..][..self.shape.columns]
    }

    /// Whether each cell equals its mirror, in tiles that stay in cache.
    pub(crate) fn is_symmetric(&self) -> bool {
        const TILE: usize = 32;
        let (n, cells) = (self.shape.rows, self.cells());
        let is_mirrored = |top: usize, left: usize| {
            (top..n.min(top + TILE))
                .all(|i| (left..i.min(left + TILE)).all(|j| cells[i * n + j] == cells[j * n + i]))
        };
        n == self.shape.columns
            && (0..n)
                .step_by(TILE)
                .all(|top| (0..=top).step_by(TILE).all(|left| is_mirrored(top, left)))
    }

    /// A block of whole rows, sharing the cells; panics outside the shape.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Shape};
    /// let x = Dense::new(Shape::new(3, 1), vec![1.0, 2.0, 3.0].into());
    /// assert_eq!(x.rows(1..3).cells(), [2.0, 3.0]);
    /// ```
    pub fn rows(&self, range: Range<usize>) -> Self {
        let columns = self.shape.columns;
        let cells = self.cells.slice(range.start * columns, range.len() * columns);
        Self { shape: Shape::new(range.len(), columns), cells }
    }
}

/// Compressed sparse rows.
///
/// Row `i` stores `columns[offsets[i]..offsets[i + 1]]` with `values` beside them; columns ascend
/// strictly within a row. `offsets` has one entry more than there are rows and need not begin at 0,
/// so that a block of rows shares `columns` and `values`.
///
/// ```
/// use relatrix::matrix::{Csr, Shape};
/// // 0 5 0
/// // 6 0 7
/// let (offsets, columns, values) = (vec![0, 1, 3], vec![1, 0, 2], vec![5.0, 6.0, 7.0]);
/// let x = Csr::new(Shape::new(2, 3), offsets.into(), columns.into(), values.into());
/// assert_eq!(x.row(1), (&[0, 2][..], &[6.0, 7.0][..]));
/// ```
#[derive(Debug, Clone)]
pub struct Csr<T: Scalar> {
    shape: Shape,
    offsets: ScalarBuffer<i64>,
    columns: ScalarBuffer<u32>,
    values: ScalarBuffer<T>,
}

impl<T: Scalar> Csr<T> {
    /// A sparse matrix over its three buffers.
    ///
    /// ```
    /// use relatrix::matrix::{Csr, Shape};
    /// let x = Csr::new(Shape::new(1, 9), vec![0, 1].into(), vec![4].into(), vec![2.5].into());
    /// assert_eq!(x.row(0), (&[4][..], &[2.5][..]));
    /// ```
    ///
    /// # Panics
    /// Where the lengths do not fit together. That columns ascend is the caller's promise,
    /// checked in debug builds.
    pub fn new(
        shape: Shape,
        offsets: ScalarBuffer<i64>,
        columns: ScalarBuffer<u32>,
        values: ScalarBuffer<T>,
    ) -> Self {
        assert_eq!(offsets.len(), shape.rows + 1, "offsets of a {shape} matrix");
        assert_eq!(columns.len(), values.len(), "a column for each value");
        assert!(offsets[shape.rows] as usize <= columns.len(), "offsets end within the values");
        let csr = Self { shape, offsets, columns, values };
        debug_assert!((0..shape.rows).all(|row| {
            let (columns, _) = csr.row(row);
            columns.windows(2).all(|pair| pair[0] < pair[1])
                && columns.last().is_none_or(|&last| (last as usize) < shape.columns)
        }));
        csr
    }

    /// Rows times columns.
    ///
    /// ```
    /// # use relatrix::matrix::{Csr, Shape};
    /// let x = Csr::new(Shape::new(1, 9), vec![0, 1].into(), vec![4].into(), vec![2.5].into());
    /// assert_eq!(x.shape(), Shape::new(1, 9));
    /// ```
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of stored cells.
    ///
    /// ```
    /// # use relatrix::matrix::{Csr, Shape};
    /// let x = Csr::new(Shape::new(1, 9), vec![0, 1].into(), vec![4].into(), vec![2.5].into());
    /// assert_eq!(x.stored(), 1);
    /// ```
    pub fn stored(&self) -> usize {
        (self.offsets[self.shape.rows] - self.offsets[0]) as usize
    }

    /// Where each row begins, and where the last one ends.
    ///
    /// ```
    /// # use relatrix::matrix::{Csr, Shape};
    /// let x = Csr::new(Shape::new(1, 9), vec![0, 1].into(), vec![4].into(), vec![2.5].into());
    /// assert_eq!(x.offsets()[..], [0, 1]);
    /// ```
    pub fn offsets(&self) -> &ScalarBuffer<i64> {
        &self.offsets
    }

    /// The column of each stored cell; addressed by `offsets`.
    ///
    /// ```
    /// # use relatrix::matrix::{Csr, Shape};
    /// let x = Csr::new(Shape::new(1, 9), vec![0, 1].into(), vec![4].into(), vec![2.5].into());
    /// assert_eq!(x.columns()[..], [4]);
    /// ```
    pub fn columns(&self) -> &ScalarBuffer<u32> {
        &self.columns
    }

    /// Each stored cell; addressed by `offsets`.
    ///
    /// ```
    /// # use relatrix::matrix::{Csr, Shape};
    /// let x = Csr::new(Shape::new(1, 9), vec![0, 1].into(), vec![4].into(), vec![2.5].into());
    /// assert_eq!(x.values()[..], [2.5]);
    /// ```
    pub fn values(&self) -> &ScalarBuffer<T> {
        &self.values
    }

    /// The stored cells of one row, counted from 0: columns and values; panics outside the shape.
    ///
    /// ```
    /// # use relatrix::matrix::{Csr, Shape};
    /// let x = Csr::new(Shape::new(1, 9), vec![0, 1].into(), vec![4].into(), vec![2.5].into());
    /// let (columns, values) = x.row(0);
    /// assert_eq!((columns[0], values[0]), (4, 2.5));
    /// ```
    pub fn row(&self, row: usize) -> (&[u32], &[T]) {
        let range = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        (&self.columns[range.clone()], &self.values[range])
    }

    /// A block of whole rows, sharing the cells; panics outside the shape.
    ///
    /// ```
    /// # use relatrix::matrix::{Csr, Shape};
    /// let x = Csr::new(Shape::new(2, 9), vec![0, 0, 1].into(), vec![4].into(), vec![2.5].into());
    /// assert_eq!((x.rows(0..1).stored(), x.rows(1..2).stored()), (0, 1));
    /// ```
    pub fn rows(&self, range: Range<usize>) -> Self {
        Self {
            shape: Shape::new(range.len(), self.shape.columns),
            offsets: self.offsets.slice(range.start, range.len() + 1),
            columns: self.columns.clone(),
            values: self.values.clone(),
        }
    }
}

/// Cells of one element type in either layout.
///
/// ```
/// use relatrix::matrix::{Dense, Storage};
/// assert_eq!(Storage::Dense(Dense::scalar(2.5)).cell(0, 0), 2.5);
/// ```
#[derive(Debug, Clone)]
pub enum Storage<T: Scalar> {
    /// Every cell.
    Dense(Dense<T>),
    /// The stored cells of each row.
    Csr(Csr<T>),
}

impl<T: Scalar> Storage<T> {
    /// Rows times columns.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Shape, Storage};
    /// assert_eq!(Storage::Dense(Dense::scalar(2.5)).shape(), Shape::new(1, 1));
    /// ```
    pub fn shape(&self) -> Shape {
        match self {
            Storage::Dense(dense) => dense.shape(),
            Storage::Csr(csr) => csr.shape(),
        }
    }

    /// Dense or CSR.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Layout, Storage};
    /// assert_eq!(Storage::Dense(Dense::scalar(2.5)).layout(), Layout::Dense);
    /// ```
    pub fn layout(&self) -> Layout {
        match self {
            Storage::Dense(_) => Layout::Dense,
            Storage::Csr(_) => Layout::Csr,
        }
    }

    /// Number of stored cells: all of them where dense.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Storage};
    /// assert_eq!(Storage::Dense(Dense::scalar(0.0)).stored(), 1);
    /// ```
    pub fn stored(&self) -> usize {
        match self {
            Storage::Dense(dense) => dense.shape().cells(),
            Storage::Csr(csr) => csr.stored(),
        }
    }

    /// A block of whole rows, sharing the cells; panics outside the shape.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Shape, Storage};
    /// let x = Storage::Dense(Dense::new(Shape::new(3, 1), vec![1.0, 2.0, 3.0].into()));
    /// assert_eq!(x.rows(1..3).cell(0, 0), 2.0);
    /// ```
    pub fn rows(&self, range: Range<usize>) -> Self {
        match self {
            Storage::Dense(dense) => Storage::Dense(dense.rows(range)),
            Storage::Csr(csr) => Storage::Csr(csr.rows(range)),
        }
    }

    /// One cell, counted from 0.
    ///
    /// ```
    /// use relatrix::matrix::{Csr, Shape, Storage};
    /// let x = Csr::new(Shape::new(1, 9), vec![0, 1].into(), vec![4].into(), vec![2.5].into());
    /// let x = Storage::Csr(x);
    /// assert_eq!((x.cell(0, 4), x.cell(0, 5)), (2.5, 0.0));
    /// ```
    ///
    /// # Panics
    /// Outside the shape.
    pub fn cell(&self, row: usize, column: usize) -> T {
        let shape = self.shape();
        assert!(row < shape.rows && column < shape.columns, "cell within {shape}");
        match self {
            Storage::Dense(dense) => dense.row(row)[column],
            Storage::Csr(csr) => {
                let (columns, values) = csr.row(row);
                columns.binary_search(&(column as u32)).map_or(T::ZERO, |at| values[at])
            }
        }
    }

    /// Whether all cells above the diagonal are zero, and whether all below it.
    pub(crate) fn triangles(&self) -> [bool; 2] {
        let Shape { rows, columns } = self.shape();
        let sides = |row: usize| match self {
            Storage::Dense(x) => {
                let cells = x.row(row);
                (&cells[..row.min(columns)], &cells[(row + 1).min(columns)..])
            }
            Storage::Csr(x) => {
                let (places, values) = x.row(row);
                let before = |end: usize| places.partition_point(|&place| (place as usize) < end);
                (&values[..before(row)], &values[before(row + 1)..])
            }
        };
        let is_zero = |cells: &[T]| cells.iter().all(|&cell| cell == T::ZERO);
        let (mut is_lower, mut is_upper) = (true, true);
        for row in 0..rows {
            let (below, above) = sides(row);
            is_lower = is_lower && is_zero(above);
            is_upper = is_upper && is_zero(below);
            if !is_lower && !is_upper {
                break;
            }
        }
        [is_lower, is_upper]
    }

    /// Bytes of the stored cells and, where sparse, their places.
    ///
    /// ```
    /// use relatrix::matrix::{Dense, Storage};
    /// assert_eq!(Storage::Dense(Dense::scalar(2.5_f32)).size_bytes(), 4);
    /// ```
    pub fn size_bytes(&self) -> usize {
        let value = size_of::<T>();
        match self {
            Storage::Dense(dense) => dense.shape().cells() * value,
            Storage::Csr(csr) => csr.stored() * (value + 4) + (csr.shape().rows + 1) * 8,
        }
    }
}

/// Cells of either element type and layout: the untyped value that expressions pass around.
///
/// ```
/// use relatrix::matrix::{Cells, Dense};
/// let x = Cells::from(Dense::scalar(2.5_f32));
/// assert!(matches!(x, Cells::F32(_)));
/// ```
#[derive(Debug, Clone)]
pub enum Cells {
    /// `FLOAT64`.
    F64(Storage<f64>),
    /// `FLOAT32`.
    F32(Storage<f32>),
}

/// Runs `$body` with `$storage` bound to the typed storage inside `$cells`.
#[macro_export]
#[doc(hidden)]
macro_rules! with_storage {
    ($cells:expr, $storage:ident => $body:expr) => {
        match $cells {
            $crate::matrix::Cells::F64($storage) => $body,
            $crate::matrix::Cells::F32($storage) => $body,
        }
    };
}

impl Cells {
    /// Rows times columns.
    ///
    /// ```
    /// use relatrix::matrix::{Cells, Dense, Shape};
    /// assert_eq!(Cells::from(Dense::scalar(2.5)).shape(), Shape::new(1, 1));
    /// ```
    pub fn shape(&self) -> Shape {
        with_storage!(self, storage => storage.shape())
    }

    /// The type of the cells.
    ///
    /// ```
    /// use relatrix::matrix::{Cells, Dense, Element};
    /// assert_eq!(Cells::from(Dense::scalar(2.5_f32)).element(), Element::Float32);
    /// ```
    pub fn element(&self) -> Element {
        match self {
            Cells::F64(_) => Element::Float64,
            Cells::F32(_) => Element::Float32,
        }
    }

    /// Dense or CSR.
    ///
    /// ```
    /// use relatrix::matrix::{Cells, Dense, Layout};
    /// assert_eq!(Cells::from(Dense::scalar(2.5)).layout(), Layout::Dense);
    /// ```
    pub fn layout(&self) -> Layout {
        with_storage!(self, storage => storage.layout())
    }

    /// Number of stored cells: all of them where dense.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// assert_eq!(connection.matrix("sparse(eye(3))")?.cells().stored(), 3);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn stored(&self) -> usize {
        with_storage!(self, storage => storage.stored())
    }

    /// A block of whole rows, sharing the cells; panics outside the shape.
    ///
    /// ```
    /// use relatrix::matrix::{Cells, Dense, Shape};
    /// let x = Cells::from(Dense::new(Shape::new(3, 1), vec![1.0, 2.0, 3.0].into()));
    /// assert_eq!(x.rows(1..3).cell(0, 0), 2.0);
    /// ```
    pub fn rows(&self, range: Range<usize>) -> Self {
        match self {
            Cells::F64(storage) => Cells::F64(storage.rows(range)),
            Cells::F32(storage) => Cells::F32(storage.rows(range)),
        }
    }

    /// One cell, counted from 0, widened to `f64`.
    ///
    /// ```
    /// use relatrix::matrix::{Cells, Dense};
    /// assert_eq!(Cells::from(Dense::scalar(2.5_f32)).cell(0, 0), 2.5_f64);
    /// ```
    ///
    /// # Panics
    /// Outside the shape.
    pub fn cell(&self, row: usize, column: usize) -> f64 {
        with_storage!(self, storage => storage.cell(row, column).to_f64())
    }

    /// Bytes of the stored cells and, where sparse, their places.
    ///
    /// ```
    /// use relatrix::matrix::{Cells, Dense};
    /// assert_eq!(Cells::from(Dense::scalar(2.5)).size_bytes(), 8);
    /// ```
    pub fn size_bytes(&self) -> usize {
        with_storage!(self, storage => storage.size_bytes())
    }
}

impl<T: Scalar> From<Dense<T>> for Cells {
    fn from(dense: Dense<T>) -> Self {
        T::wrap(Storage::Dense(dense))
    }
}

impl<T: Scalar> From<Csr<T>> for Cells {
    fn from(csr: Csr<T>) -> Self {
        T::wrap(Storage::Csr(csr))
    }
}

impl<T: Scalar> From<Storage<T>> for Cells {
    fn from(storage: Storage<T>) -> Self {
        T::wrap(storage)
    }
}
