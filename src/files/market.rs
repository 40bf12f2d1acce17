//! The Matrix Market exchange format: text, as coordinates or as a dense array by column.
//!
//! ```text
//! %%MatrixMarket matrix coordinate real general      %%MatrixMarket matrix array real symmetric
//! % a comment                                        2 2
//! 2 3 1                                              1.0
//! 2 3 0.5                                            0.5
//!                                                    2.0
//! ```
//!
//! Symmetric and skew-symmetric files hold one triangle, and both are made. Cells are `FLOAT64`; a
//! `FLOAT32` matrix is written as its exact values.
//! Source: Boisvert, Pozo, Remington, *The Matrix Market Exchange Formats*, NISTIR 5935, 1996.

use std::io::{BufRead, Read, Write};

use arrow::buffer::ScalarBuffer;

use crate::error::ErrorKind;
use crate::matrix::{Csr, Dense, Duplicates, Element, Matrix, Scalar, Shape, Storage};
use crate::with_storage;

use super::entries::{Entries, place};
use super::flaw::{Checked, Flaw, Limit};
use super::is_exact;
use super::numpy::by_row;

/// Longest line taken, in bytes: the format's own limit is 1,024.
const LINE_BYTES_MAX: u64 = 1 << 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Real,
    Integer,
    Pattern,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Symmetry {
    General,
    Symmetric,
    Skew,
}

struct Banner {
    coordinate: bool,
    field: Field,
    symmetry: Symmetry,
}

pub(super) fn read(
    reader: impl BufRead,
    duplicates: Duplicates,
    limit: Limit<'_>,
) -> Checked<Matrix> {
    let mut lines = Lines { reader, line: 0, text: Vec::new() };
    let banner = banner(&mut lines)?;
    let sizes = match lines.content()? {
        Some(text) => text.split_ascii_whitespace().map(str::parse).collect::<Result<Vec<_>, _>>(),
        None => return Err(Flaw::new("there is no line of sizes")),
    };
    let (shape, declared): (Shape, Option<usize>) = match (banner.coordinate, sizes.as_deref()) {
        (true, Ok(&[rows, columns, stored])) => (Shape::new(rows, columns), Some(stored)),
        (false, Ok(&[rows, columns])) => (Shape::new(rows, columns), None),
        (true, _) => return Err(lines.flaw("not rows, columns and number of entries")),
        (false, _) => return Err(lines.flaw("not rows and columns")),
    };
    if banner.symmetry != Symmetry::General && shape.rows != shape.columns {
        return Err(lines.flaw(format!("a symmetric matrix is square, not {shape}")));
    }
    match declared {
        Some(stored) => read_coordinates(&mut lines, &banner, (shape, stored), duplicates, limit),
        None => read_array(&mut lines, &banner, shape, limit),
    }
}

fn banner(lines: &mut Lines<impl BufRead>) -> Checked<Banner> {
    let text = lines.next()?.unwrap_or_default().to_ascii_lowercase();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let &["%%matrixmarket", object, format, field, symmetry] = words.as_slice() else {
        return Err(Flaw::new(
            "not a Matrix Market file: the first line begins '%%MatrixMarket matrix'",
        ));
    };
    let unknown = |what, word| Err(lines.flaw(format!("{what} '{word}' is not of this format")));
    let unsupported =
        |word| Err(lines.flaw(format!("a matrix has real cells, and these are {word}")));
    if object != "matrix" {
        return unknown("object", object);
    }
    let coordinate = match format {
        "coordinate" => true,
        "array" => false,
        _ => return unknown("layout", format),
    };
    let field = match field {
        "real" | "double" => Field::Real,
        "integer" | "unsigned-integer" => Field::Integer,
        "pattern" if coordinate => Field::Pattern,
        "pattern" => return Err(lines.flaw("an array cannot be a pattern")),
        "complex" => return unsupported("complex"),
        _ => return unknown("field", field),
    };
    let symmetry = match symmetry {
        "general" => Symmetry::General,
        "symmetric" => Symmetry::Symmetric,
        "skew-symmetric" if field == Field::Pattern => {
            return Err(lines.flaw("a pattern cannot be skew-symmetric"));
        }
        "skew-symmetric" => Symmetry::Skew,
        "hermitian" => return unsupported("hermitian"),
        _ => return unknown("symmetry", symmetry),
    };
    Ok(Banner { coordinate, field, symmetry })
}

fn read_coordinates(
    lines: &mut Lines<impl BufRead>,
    banner: &Banner,
    (shape, declared): (Shape, usize),
    duplicates: Duplicates,
    limit: Limit<'_>,
) -> Checked<Matrix> {
    place(shape.rows.max(shape.columns))?;
    limit.admit_sparse::<f64>(shape, declared)?;
    let mut entries = Entries::new();
    for read in 0..declared {
        let Some(text) = lines.content()? else {
            return Err(Flaw::new(format!("the file ends after {read} of {declared} entries")));
        };
        let mut words = text.split_ascii_whitespace();
        let index = |word: Option<&str>, end: usize| {
            let index = word?.parse::<usize>().ok()?;
            (1..=end).contains(&index).then(|| index - 1)
        };
        let row = index(words.next(), shape.rows);
        let column = index(words.next(), shape.columns);
        let value = match banner.field {
            Field::Pattern => Ok(1.0),
            field => number(words.next().unwrap_or_default(), field, column.unwrap_or_default()),
        };
        let rest = words.next().is_some();
        let line = lines.line;
        let (Some(row), Some(column)) = (row, column) else {
            let message = format!("not a row and a column of a {shape} matrix, counted from 1");
            return Err(Flaw::in_line(line, message));
        };
        if rest {
            return Err(Flaw::in_line(line, "more than one entry"));
        }
        let value = value.map_err(|problem| problem.in_line(line))?;
        let (row, column) = (place(row)?, place(column)?);
        entries.push(row, column, value);
        match banner.symmetry {
            Symmetry::Symmetric if row != column => entries.push(column, row, value),
            Symmetry::Skew if row != column => entries.push(column, row, -value),
            Symmetry::Skew => {
                return Err(Flaw::in_line(line, "a skew-symmetric matrix stores no diagonal"));
            }
            Symmetry::General | Symmetry::Symmetric => {}
        }
    }
    if lines.content()?.is_some() {
        return Err(lines.flaw(format!("there are more than the {declared} entries declared")));
    }
    Ok(Matrix::new(entries.into_csr(shape, duplicates, limit)?))
}

fn read_array(
    lines: &mut Lines<impl BufRead>,
    banner: &Banner,
    shape: Shape,
    limit: Limit<'_>,
) -> Checked<Matrix> {
    limit.admit_dense::<f64>(shape)?;
    let first_row = |column: usize| match banner.symmetry {
        Symmetry::General => 0,
        Symmetry::Symmetric => column,
        Symmetry::Skew => column + 1,
    };
    let mut stored = Vec::new();
    for column in 0..shape.columns {
        for row in first_row(column)..shape.rows {
            let Some(text) = lines.content()? else {
                let (row, column) = (row + 1, column + 1);
                let message = format!("the file ends before row {row} of column {column}");
                return Err(Flaw::new(message));
            };
            let value = number(text.trim(), banner.field, column);
            stored.push(value.map_err(|problem| problem.in_line(lines.line))?);
        }
    }
    if lines.content()?.is_some() {
        return Err(lines.flaw(format!("there are more values than a {shape} matrix has")));
    }
    if banner.symmetry == Symmetry::General {
        return Ok(Matrix::new(Dense::new(shape, by_row(stored, shape).into())));
    }
    let mut cells = vec![0.0; shape.cells()];
    let sign = if banner.symmetry == Symmetry::Skew { -1.0 } else { 1.0 };
    let mut values = stored.into_iter();
    for column in 0..shape.columns {
        for row in first_row(column)..shape.rows {
            let value = values.next().expect("one value for each stored cell");
            cells[column * shape.columns + row] = sign * value;
            cells[row * shape.columns + column] = value;
        }
    }
    Ok(Matrix::new(Dense::new(shape, ScalarBuffer::from(cells))))
}

/// Why a word is not a cell.
enum Problem {
    NotANumber(String),
    Inexact(ErrorKind),
}

impl Problem {
    fn in_line(self, line: u64) -> Flaw {
        match self {
            Problem::NotANumber(word) => Flaw::in_line(line, format!("'{word}' is not a number")),
            Problem::Inexact(kind) => kind.into(),
        }
    }
}

fn number(word: &str, field: Field, column: usize) -> Result<f64, Problem> {
    let not_a_number = || Problem::NotANumber(word.chars().take(40).collect());
    if field != Field::Integer {
        return word.parse().map_err(|_| not_a_number());
    }
    let integer: i128 = word.parse().map_err(|_| not_a_number())?;
    if !is_exact(integer) {
        return Err(Problem::Inexact(ErrorKind::Inexact {
            value: word.to_owned(),
            column: format!("c{}", column + 1),
            element: Element::Float64,
        }));
    }
    Ok(integer as f64)
}

/// Lines with their numbers, each bounded.
struct Lines<R> {
    reader: R,
    line: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    fn flaw(&self, message: impl std::fmt::Display) -> Flaw {
        Flaw::in_line(self.line, message)
    }

    fn next(&mut self) -> Checked<Option<&str>> {
        self.text.clear();
        self.line += 1;
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.text)?;
        if read as u64 == LINE_BYTES_MAX {
            return Err(self.flaw(format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        if read == 0 {
            return Ok(None);
        }
        match std::str::from_utf8(&self.text) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Flaw::in_line(self.line, "not text")),
        }
    }

    /// The next line that is neither blank nor a comment.
    fn content(&mut self) -> Checked<Option<&str>> {
        loop {
            match self.next()? {
                None => return Ok(None),
                Some(text) if text.trim_start().is_empty() || text.starts_with('%') => {}
                // Read again: a borrow that leaves a loop early is one the checker cannot follow.
                Some(_) => break,
            }
        }
        Ok(Some(std::str::from_utf8(&self.text).expect("checked when it was read")))
    }
}

pub(super) fn write(writer: &mut impl Write, matrix: &Matrix) -> Checked<()> {
    with_storage!(matrix.cells(), storage => match storage {
        Storage::Dense(dense) => write_array(writer, dense),
        Storage::Csr(csr) => write_coordinates(writer, csr),
    })
}

fn write_array<T: Scalar>(writer: &mut impl Write, dense: &Dense<T>) -> Checked<()> {
    let shape = dense.shape();
    writeln!(writer, "%%MatrixMarket matrix array real general")?;
    writeln!(writer, "{} {}", shape.rows, shape.columns)?;
    for column in 0..shape.columns {
        for row in 0..shape.rows {
            // `Debug` writes the shortest text that reads back as the same number.
            writeln!(writer, "{:?}", dense.row(row)[column].to_f64())?;
        }
    }
    Ok(())
}

fn write_coordinates<T: Scalar>(writer: &mut impl Write, csr: &Csr<T>) -> Checked<()> {
    let shape = csr.shape();
    writeln!(writer, "%%MatrixMarket matrix coordinate real general")?;
    writeln!(writer, "{} {} {}", shape.rows, shape.columns, csr.stored())?;
    for row in 0..shape.rows {
        let (columns, values) = csr.row(row);
        for (column, value) in columns.iter().zip(values) {
            writeln!(writer, "{} {} {:?}", row + 1, u64::from(*column) + 1, value.to_f64())?;
        }
    }
    Ok(())
}
