//! What is wrong with a file, before its path is put to it.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::error::{Error, ErrorKind};
use crate::matrix::{Scalar, Shape};

use super::source::go_on;

/// The result of reading or writing one file whose path the caller knows.
pub(super) type Checked<T> = std::result::Result<T, Flaw>;

/// What is wrong with a file; [`Flaw::at`] makes it an [`Error`].
#[derive(Debug)]
pub(super) enum Flaw {
    /// Not what its format promises, or not readable.
    Text(String),
    /// Larger than the limit.
    Large { needed_bytes: usize, free_bytes: usize },
    /// A cell that a matrix cannot hold.
    Cell(ErrorKind),
}

impl Flaw {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Flaw::Text(message.into())
    }

    /// A flaw in this line, counted from 1.
    pub(super) fn in_line(line: u64, message: impl std::fmt::Display) -> Self {
        Flaw::Text(format!("line {line}: {message}"))
    }

    /// The error, with the path of the file.
    pub(super) fn at(self, path: &Path) -> Error {
        let path = path.display().to_string();
        match self {
            Flaw::Text(message) => ErrorKind::File { path, message }.into(),
            Flaw::Large { needed_bytes, free_bytes } => ErrorKind::MemorySpent {
                disk_bytes: None,
                what: format!("the matrix in {path}"),
                needed_bytes,
                free_bytes,
            }
            .into(),
            Flaw::Cell(kind) => kind.into(),
        }
    }
}

impl From<io::Error> for Flaw {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Flaw::new("the file is cut short"),
            _ => Flaw::new(error.to_string()),
        }
    }
}

impl From<arrow::error::ArrowError> for Flaw {
    fn from(error: arrow::error::ArrowError) -> Self {
        Flaw::new(error.to_string())
    }
}

impl From<parquet::errors::ParquetError> for Flaw {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Flaw::new(error.to_string())
    }
}

impl From<zip::result::ZipError> for Flaw {
    fn from(error: zip::result::ZipError) -> Self {
        io::Error::from(error).into()
    }
}

impl From<ErrorKind> for Flaw {
    fn from(kind: ErrorKind) -> Self {
        Flaw::Cell(kind)
    }
}

/// How far a reader may go: the bytes that a matrix may take, and until it is asked to stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit<'a> {
    pub(super) bytes: usize,
    pub(super) stop: &'a AtomicBool,
}

impl Limit<'_> {
    /// An error once the stop has been asked for.
    pub(super) fn go_on(self) -> Checked<()> {
        Ok(go_on(self.stop)?)
    }

    /// An error unless so many bytes may be taken; what is too large to count saturates.
    pub(super) fn admit(self, needed_bytes: usize) -> Checked<()> {
        if needed_bytes <= self.bytes {
            return Ok(());
        }
        Err(Flaw::Large { needed_bytes, free_bytes: self.bytes })
    }

    /// An error unless a dense matrix of this shape fits.
    pub(super) fn admit_dense<T: Scalar>(self, shape: Shape) -> Checked<()> {
        self.admit(shape.cells().saturating_mul(size_of::<T>()))
    }

    /// An error unless a sparse matrix of this shape fits with so many cells stored.
    pub(super) fn admit_sparse<T: Scalar>(self, shape: Shape, stored: usize) -> Checked<()> {
        let offsets = shape.rows.saturating_add(1).saturating_mul(size_of::<i64>());
        let places = stored.saturating_mul(size_of::<T>() + 2 * size_of::<u32>());
        self.admit(offsets.saturating_add(places))
    }
}
