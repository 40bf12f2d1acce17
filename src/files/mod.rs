//! Matrices from files and to files, whole.
//!
//! Enters: a path, with [`ReadOptions`] or a [`Matrix`]. Leaves: the matrix, or a complete file: it is
//! written beside its target and renamed, so a failed write leaves what was there. Not here: tables,
//! which DataFusion reads and writes.
//!
//! | format | extension | labels | layout | element |
//! |---|---|---|---|---|
//! | [`Format::MatrixMarket`] | `mtx` | lost | kept | always `FLOAT64` |
//! | [`Format::Npy`] | `npy` | lost | always dense | kept |
//! | [`Format::Npz`] | `npz` | lost | kept | kept |
//! | [`Format::Parquet`] | `parquet` | kept | kept | kept |
//! | [`Format::Ipc`] | `arrow` `feather` `ipc` | kept | kept | kept |
//! | [`Format::Csv`] | `csv` | as text | see [`delimited`] | always `FLOAT64` |
//!
//! A file is a stranger: what it declares is checked against the limit before it is allocated, and
//! against the rest of the file before it is believed.

mod assemble;
mod container;
mod delimited;
mod draft;
mod entries;
mod flaw;
mod keys;
mod market;
mod numpy;
mod source;
mod table;
mod zipped;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{Duplicates, Matrix, Nulls};

use draft::Draft;
use flaw::{Flaw, Limit};
use source::Source;

/// How a matrix is written to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Matrix Market exchange format, coordinate or array.
    MatrixMarket,
    /// One NumPy array.
    Npy,
    /// A zip archive of NumPy arrays; SciPy's sparse matrices too.
    Npz,
    /// Apache Parquet, as a table.
    Parquet,
    /// Apache Arrow's IPC file format (Feather version 2), as a table.
    Ipc,
    /// Comma-separated values, as a table.
    Csv,
}

impl Format {
    /// The format of this name, which is an extension in any case.
    fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "mtx" => Format::MatrixMarket,
            "npy" => Format::Npy,
            "npz" => Format::Npz,
            "parquet" => Format::Parquet,
            "arrow" | "feather" | "ipc" => Format::Ipc,
            "csv" => Format::Csv,
            _ => return None,
        })
    }

    /// The format chosen, else that of the extension.
    fn of(path: &Path, chosen: Option<Self>) -> Result<Self> {
        let by_extension = || Format::named(path.extension()?.to_str()?);
        chosen.or_else(by_extension).ok_or_else(|| {
            Flaw::new(
                "the format of a matrix file is told by its extension: \
                 .mtx .npy .npz .parquet .arrow .feather .ipc .csv",
            )
            .at(path)
        })
    }
}

impl std::str::FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Format::named(name).ok_or_else(|| {
            let message = format!(
                "there is no matrix file format '{name}'; there are mtx, npy, npz, parquet, arrow, csv"
            );
            Error::argument("format", message)
        })
    }
}

/// What becomes of cells that are missing, and of entries that come twice.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules {
    pub(crate) nulls: Nulls,
    pub(crate) duplicates: Duplicates,
}

/// What a reader may be told beside the path.
#[derive(Debug, Clone)]
pub(crate) struct ReadOptions {
    /// The format, where the extension does not tell.
    pub(crate) format: Option<Format>,
    /// The array of an `.npz` archive, where there are several.
    pub(crate) array: Option<String>,
    /// Whether the first line of a CSV file is a header, where that is in doubt.
    pub(crate) header: Option<bool>,
    /// What is no matrix as it stands.
    pub(crate) rules: Rules,
    /// Bytes that the matrix may take in memory.
    pub(crate) limit_bytes: usize,
}

impl ReadOptions {
    /// Everything told by the file, within this many bytes.
    pub(crate) fn within(limit_bytes: usize) -> Self {
        let rules = Rules::default();
        Self { format: None, array: None, header: None, rules, limit_bytes }
    }

    /// Sets the option `format`, `array` or `header` from its text in an `OPTIONS` list.
    pub(crate) fn set(&mut self, option: &str, value: &str) -> Result<()> {
        match option {
            "format" => self.format = Some(value.parse()?),
            "array" => self.array = Some(value.to_owned()),
            "header" => {
                let header = value.to_ascii_lowercase().parse();
                self.header =
                    Some(header.map_err(|_| Error::argument("header", "takes 'true' or 'false'"))?);
            }
            _ => {
                let hint = "; a matrix file has format, array and header".to_owned();
                return Err(
                    ErrorKind::Unknown { what: "option", name: option.to_owned(), hint }.into()
                );
            }
        }
        Ok(())
    }
}

/// Reads a matrix, until it is asked to stop.
///
/// # Errors
/// [`ErrorKind::Cancelled`] then; else
/// [`ErrorKind::File`] where the file cannot be read or is not what its format promises,
/// [`ErrorKind::NullCell`], [`ErrorKind::Inexact`] and [`ErrorKind::RaggedList`] for its cells, and
/// [`ErrorKind::MemorySpent`] past the limit.
pub(crate) fn read(path: &Path, options: &ReadOptions, stop: &AtomicBool) -> Result<Matrix> {
    let format = Format::of(path, options.format)?;
    let (rules, limit) = (options.rules, Limit { bytes: options.limit_bytes, stop });
    let open = || Ok(File::open(path)?);
    let read = |file: File| {
        let source = |file| BufReader::new(Source { file, stop });
        match format {
            Format::MatrixMarket => market::read(source(file), rules.duplicates, limit),
            Format::Npy => numpy::read(source(file), limit),
            Format::Npz => {
                zipped::read(source(file), options.array.as_deref(), rules.duplicates, limit)
            }
            Format::Parquet => container::read_parquet(file, rules, limit),
            Format::Ipc => container::read_ipc(file, rules, limit),
            Format::Csv => delimited::read(source(file), options.header, rules, limit),
        }
    };
    open().and_then(read).map_err(|flaw| told(flaw, path, stop))
}

/// What a flaw is to whoever asked: after a stop, all that went wrong is that.
fn told(flaw: Flaw, path: &Path, stop: &AtomicBool) -> Error {
    if stop.load(Ordering::Relaxed) { ErrorKind::Cancelled.into() } else { flaw.at(path) }
}

/// Writes a matrix, in the format chosen or told by the extension, over what was at `path`; until it is asked
/// to stop.
///
/// # Errors
/// [`ErrorKind::Cancelled`] then, else [`ErrorKind::File`]; nothing has changed at `path`.
pub(crate) fn write(
    path: &Path,
    matrix: &Matrix,
    format: Option<Format>,
    stop: &AtomicBool,
) -> Result<()> {
    let format = Format::of(path, format)?;
    let draft = || {
        let mut draft = Draft::beside(path, stop)?;
        match format {
            Format::MatrixMarket => market::write(&mut draft, matrix),
            Format::Npy => numpy::write(&mut draft, matrix),
            Format::Npz => zipped::write(&mut draft, matrix),
            Format::Parquet => container::write_parquet(&mut draft, matrix),
            Format::Ipc => container::write_ipc(&mut draft, matrix),
            Format::Csv => delimited::write(&mut draft, matrix),
        }?;
        Ok(draft.publish()?)
    };
    draft().map_err(|flaw| told(flaw, path, stop))
}

/// Whether every integer up to this magnitude, 2^53, is an `f64`.
fn is_exact(integer: i128) -> bool {
    integer.unsigned_abs() <= 1 << 53
}

#[cfg(test)]
mod tests;
