//! What is wrong with a file, before its path is put to it.

use std::fmt::Display;
use std::io;
use std::path::Path;

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

use crate::error::{Error, ErrorKind};

/// The result of reading one file whose path the caller knows.
pub(super) type Checked<T> = Result<T, Flaw>;

/// What is wrong with a file; [`Flaw::at`] makes it an [`Error`].
#[derive(Debug)]
pub(super) struct Flaw(String);

impl Flaw {
    pub(super) fn new(message: impl Display) -> Self {
        Self(message.to_string())
    }

    /// A flaw in this column.
    pub(super) fn within(self, column: &str) -> Self {
        Self(format!("column '{column}': {}", self.0))
    }

    /// The error, with the path of the file.
    pub(super) fn at(self, path: &Path) -> Error {
        ErrorKind::File { path: path.display().to_string(), message: self.0 }.into()
    }
}

impl From<io::Error> for Flaw {
    fn from(error: io::Error) -> Self {
        Self::new(error)
    }
}

impl From<ParquetError> for Flaw {
    fn from(error: ParquetError) -> Self {
        Self::new(error)
    }
}

impl From<ArrowError> for Flaw {
    fn from(error: ArrowError) -> Self {
        Self::new(error)
    }
}
