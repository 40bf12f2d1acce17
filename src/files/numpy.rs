//! NumPy arrays in the `.npy` format.
//!
//! ```text
//! \x93NUMPY 1 0 │ length of the header │ {'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), } │ cells
//! ```
//!
//! Taken: `f4`, `f8`, integers and booleans of either byte order, in C and Fortran order, of up to two
//! dimensions; one dimension is a column. Written: C order, version 1.0, little-endian.
//! The header is parsed here, because its dictionary has three known keys, and a general parser of
//! Python literals recurses as deeply as a hostile file likes.
//! Source: NumPy Enhancement Proposal 1, and `numpy.lib.format`.

use std::io::{Read, Write};

use crate::error::ErrorKind;
use crate::matrix::{CellBuffer, Dense, Element, Matrix, Scalar, Shape, Storage};
use crate::with_storage;

use super::flaw::{Checked, Flaw, Limit};
use super::is_exact;

/// Longest header taken, in bytes; NumPy itself stops at 10,000.
const HEADER_BYTES_MAX: usize = 1 << 16;

/// Bytes read at a time, so that a file cut short never costs what its header declares.
const CHUNK_BYTES: usize = 1 << 16;

pub(super) fn read(mut reader: impl Read, limit: Limit<'_>) -> Checked<Matrix> {
    let header = Header::read(&mut reader)?;
    read_matrix(reader, &header, limit)
}

/// Reads the cells after a header as a dense matrix.
pub(super) fn read_matrix(reader: impl Read, header: &Header, limit: Limit<'_>) -> Checked<Matrix> {
    let shape = header.matrix_shape()?;
    match header.number()?.element() {
        Element::Float32 => Ok(Matrix::new(read_dense::<f32>(reader, header, shape, limit)?)),
        Element::Float64 => Ok(Matrix::new(read_dense::<f64>(reader, header, shape, limit)?)),
    }
}

fn read_dense<T: Scalar>(
    reader: impl Read,
    header: &Header,
    shape: Shape,
    limit: Limit<'_>,
) -> Checked<Dense<T>> {
    limit.admit_dense::<T>(shape)?;
    if header.fortran_order {
        return Ok(Dense::new(shape, by_row(read_cells(reader, header, shape)?, shape).into()));
    }
    let Some(mut buffer) = CellBuffer::mapped(shape.cells()) else {
        return Ok(Dense::new(shape, read_cells(reader, header, shape)?.into()));
    };
    let mut places = buffer.iter_mut();
    each_cell(reader, header, shape, |cell| {
        if let Some(place) = places.next() {
            *place = cell;
        }
    })?;
    Ok(Dense::new(shape, buffer.into()))
}

/// Reads every cell in the order of the file.
pub(super) fn read_cells<T: Scalar>(
    reader: impl Read,
    header: &Header,
    shape: Shape,
) -> Checked<Vec<T>> {
    let mut cells = Vec::new();
    each_cell(reader, header, shape, |cell| cells.push(cell))?;
    Ok(cells)
}

fn each_cell<T: Scalar>(
    reader: impl Read,
    header: &Header,
    shape: Shape,
    mut take: impl FnMut(T),
) -> Checked<()> {
    let column = |at: usize| match header.fortran_order {
        true => at / shape.rows.max(1),
        false => at % shape.columns.max(1),
    };
    let mut at = 0;
    header.each(reader, shape.cells(), |value| {
        let exact = match value {
            Value::Float(_) => true,
            Value::Signed(value) => is_exact(value.into()),
            Value::Unsigned(value) => is_exact(value.into()),
        };
        if !exact {
            let column = format!("c{}", column(at) + 1);
            let value = value.to_string();
            return Err(ErrorKind::Inexact { value, column, element: T::ELEMENT }.into());
        }
        at += 1;
        take(T::from_f64(match value {
            Value::Float(value) => value,
            Value::Signed(value) => value as f64,
            Value::Unsigned(value) => value as f64,
        }));
        Ok(())
    })
}

/// Reads an array of one dimension as indices, none of them negative.
pub(super) fn read_indices(
    reader: impl Read,
    header: &Header,
    limit: Limit<'_>,
) -> Checked<Vec<i64>> {
    let &[count] = header.shape.as_slice() else {
        return Err(Flaw::new("indices have one dimension"));
    };
    limit.admit(count.saturating_mul(size_of::<i64>()))?;
    let mut indices = Vec::new();
    header.each(reader, count, |value| {
        indices.push(match value {
            Value::Signed(value) if value >= 0 => value,
            Value::Unsigned(value) if value <= i64::MAX as u64 => value as i64,
            _ => return Err(Flaw::new(format!("{value} is not an index"))),
        });
        Ok(())
    })?;
    Ok(indices)
}

/// Column-major cells in row-major order, by blocks that stay in cache.
pub(super) fn by_row<T: Scalar>(by_column: Vec<T>, shape: Shape) -> Vec<T> {
    const BLOCK: usize = 32;
    let Shape { rows, columns } = shape;
    if rows <= 1 || columns <= 1 {
        return by_column;
    }
    let mut cells = vec![T::ZERO; by_column.len()];
    for first_row in (0..rows).step_by(BLOCK) {
        for first_column in (0..columns).step_by(BLOCK) {
            for row in first_row..rows.min(first_row + BLOCK) {
                for column in first_column..columns.min(first_column + BLOCK) {
                    cells[row * columns + column] = by_column[column * rows + row];
                }
            }
        }
    }
    cells
}

/// What precedes the cells.
#[derive(Debug)]
pub(super) struct Header {
    /// NumPy's name of the type, as `<f8`; empty where it is a structure.
    pub(super) dtype: String,
    fortran_order: bool,
    pub(super) shape: Vec<usize>,
}

impl Header {
    /// Reads up to the first cell.
    pub(super) fn read(mut reader: impl Read) -> Checked<Self> {
        let foreign = || Flaw::new("not a NumPy array: it does not begin with \\x93NUMPY");
        let mut start = [0; 8];
        reader.read_exact(&mut start).map_err(|_| foreign())?;
        let &[b'\x93', b'N', b'U', b'M', b'P', b'Y', version, 0] = &start else {
            return Err(foreign());
        };
        let length = match version {
            1 => {
                let mut length = [0; 2];
                reader.read_exact(&mut length)?;
                usize::from(u16::from_le_bytes(length))
            }
            2 | 3 => {
                let mut length = [0; 4];
                reader.read_exact(&mut length)?;
                u32::from_le_bytes(length) as usize
            }
            _ => {
                return Err(Flaw::new(format!(
                    "version {version}.0 of the .npy format is unknown"
                )));
            }
        };
        if length > HEADER_BYTES_MAX {
            return Err(Flaw::new(format!("a header of {length} bytes is too long to be true")));
        }
        let mut text = vec![0; length];
        reader.read_exact(&mut text)?;
        let text = String::from_utf8(text).map_err(|_| Flaw::new("the header is not text"))?;
        Self::parse(&text).ok_or_else(|| {
            let text: String = text.trim_end().chars().take(200).collect();
            Flaw::new(format!("cannot read the header {text}"))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut literal = Literal(text);
        let (mut dtype, mut fortran_order, mut shape) = (None, None, None);
        literal.token("{")?;
        while literal.token("}").is_none() {
            let key = literal.string()?;
            literal.token(":")?;
            match key {
                "descr" => dtype = Some(literal.string().unwrap_or_default().to_owned()),
                "fortran_order" => fortran_order = Some(literal.boolean()?),
                "shape" => shape = Some(literal.sizes()?),
                _ => return None,
            }
            // A structure's fields come where its type's name would; what it says does not matter.
            if dtype.as_deref() == Some("") {
                return Some(Self {
                    dtype: String::new(),
                    fortran_order: false,
                    shape: Vec::new(),
                });
            }
            if literal.token(",").is_none() {
                literal.token("}")?;
                break;
            }
        }
        literal.0.trim_ascii().is_empty().then_some(())?;
        Some(Self { dtype: dtype?, fortran_order: fortran_order?, shape: shape? })
    }

    /// Rows and columns; one dimension is a column, none a single cell.
    pub(super) fn matrix_shape(&self) -> Checked<Shape> {
        self.number()?;
        match *self.shape.as_slice() {
            [] => Ok(Shape::new(1, 1)),
            [rows] => Ok(Shape::new(rows, 1)),
            [rows, columns] => Ok(Shape::new(rows, columns)),
            _ => {
                let message =
                    format!("a matrix has two dimensions, this array {}", self.shape.len());
                Err(Flaw::new(message))
            }
        }
    }

    pub(super) fn number(&self) -> Checked<Number> {
        let (order, kind) = self.dtype.split_at_checked(1).unwrap_or_default();
        let format = match kind {
            "b1" => NumberFormat::Bool,
            "i1" => NumberFormat::I8,
            "i2" => NumberFormat::I16,
            "i4" => NumberFormat::I32,
            "i8" => NumberFormat::I64,
            "u1" => NumberFormat::U8,
            "u2" => NumberFormat::U16,
            "u4" => NumberFormat::U32,
            "u8" => NumberFormat::U64,
            "f4" => NumberFormat::F32,
            "f8" => NumberFormat::F64,
            _ => return Err(self.unsupported()),
        };
        match order {
            "<" | "|" | "=" => Ok(Number { format, big_endian: false }),
            ">" => Ok(Number { format, big_endian: true }),
            _ => Err(self.unsupported()),
        }
    }

    fn unsupported(&self) -> Flaw {
        let dtype = if self.dtype.is_empty() { "a structure" } else { &self.dtype };
        Flaw::new(format!(
            "cells are f4, f8, integers or booleans, and this array's type is {dtype}; \
             convert it with astype('f8') in NumPy"
        ))
    }

    /// Hands every value to `take`, in the order of the file.
    fn each(
        &self,
        mut reader: impl Read,
        count: usize,
        mut take: impl FnMut(Value) -> Checked<()>,
    ) -> Checked<()> {
        let number = self.number()?;
        let size = number.size_bytes();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut left = count;
        while left > 0 {
            let now = left.min(CHUNK_BYTES / size);
            let chunk = &mut chunk[..now * size];
            reader.read_exact(chunk).map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => {
                    Flaw::new(format!("the file is cut short: it declares {count} cells"))
                }
                _ => error.into(),
            })?;
            number.decode(chunk, &mut take)?;
            left -= now;
        }
        Ok(())
    }
}

/// How one number is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    format: NumberFormat,
    big_endian: bool,
}

#[derive(Debug, Clone, Copy)]
enum NumberFormat {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

/// One number as stored, without loss.
#[derive(Debug, Clone, Copy)]
enum Value {
    Float(f64),
    Signed(i64),
    Unsigned(u64),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Float(value) => value.fmt(f),
            Value::Signed(value) => value.fmt(f),
            Value::Unsigned(value) => value.fmt(f),
        }
    }
}

impl Number {
    pub(super) fn element(self) -> Element {
        match self.format {
            NumberFormat::F32 => Element::Float32,
            _ => Element::Float64,
        }
    }

    fn size_bytes(self) -> usize {
        match self.format {
            NumberFormat::Bool | NumberFormat::I8 | NumberFormat::U8 => 1,
            NumberFormat::I16 | NumberFormat::U16 => 2,
            NumberFormat::I32 | NumberFormat::U32 | NumberFormat::F32 => 4,
            NumberFormat::I64 | NumberFormat::U64 | NumberFormat::F64 => 8,
        }
    }

    fn decode(self, bytes: &[u8], take: &mut impl FnMut(Value) -> Checked<()>) -> Checked<()> {
        macro_rules! numbers {
            ($type:ty, $value:ident) => {
                bytes.as_chunks().0.iter().try_for_each(|&bytes| {
                    let value = match self.big_endian {
                        true => <$type>::from_be_bytes(bytes),
                        false => <$type>::from_le_bytes(bytes),
                    };
                    take(Value::$value(value.into()))
                })
            };
        }
        match self.format {
            NumberFormat::Bool => {
                bytes.iter().try_for_each(|&byte| take(Value::Unsigned((byte != 0).into())))
            }
            NumberFormat::I8 => numbers!(i8, Signed),
            NumberFormat::I16 => numbers!(i16, Signed),
            NumberFormat::I32 => numbers!(i32, Signed),
            NumberFormat::I64 => numbers!(i64, Signed),
            NumberFormat::U8 => numbers!(u8, Unsigned),
            NumberFormat::U16 => numbers!(u16, Unsigned),
            NumberFormat::U32 => numbers!(u32, Unsigned),
            NumberFormat::U64 => numbers!(u64, Unsigned),
            NumberFormat::F32 => numbers!(f32, Float),
            NumberFormat::F64 => numbers!(f64, Float),
        }
    }
}

/// What is left of a Python literal.
struct Literal<'a>(&'a str);

impl<'a> Literal<'a> {
    fn token(&mut self, token: &str) -> Option<()> {
        self.0 = self.0.trim_ascii_start().strip_prefix(token)?;
        Some(())
    }

    fn string(&mut self) -> Option<&'a str> {
        let text = self.0.trim_ascii_start();
        let quote = text.chars().next().filter(|&first| first == '\'' || first == '"')?;
        let (string, rest) = text[1..].split_once(quote)?;
        self.0 = rest;
        Some(string)
    }

    fn boolean(&mut self) -> Option<bool> {
        match self.token("True") {
            Some(()) => Some(true),
            None => self.token("False").map(|()| false),
        }
    }

    fn sizes(&mut self) -> Option<Vec<usize>> {
        let mut sizes = Vec::new();
        self.token("(")?;
        while self.token(")").is_none() {
            let text = self.0.trim_ascii_start();
            let end = text.find(|letter: char| !letter.is_ascii_digit())?;
            sizes.push(text[..end].parse().ok()?);
            self.0 = &text[end..];
            // Python 2 wrote long integers so.
            let _ = self.token("L");
            if self.token(",").is_none() {
                self.token(")")?;
                break;
            }
        }
        Some(sizes)
    }
}

pub(super) fn write(writer: &mut impl Write, matrix: &Matrix) -> Checked<()> {
    let Shape { rows, columns } = matrix.shape();
    write_header(writer, float_name(matrix.element()), &format!("({rows}, {columns})"))?;
    with_storage!(matrix.cells(), storage => match storage {
        Storage::Dense(dense) => write_cells(writer, dense.cells()),
        Storage::Csr(csr) => {
            let mut cells = vec![Default::default(); columns];
            (0..rows).try_for_each(|row| {
                cells.fill(Default::default());
                let (places, values) = csr.row(row);
                places.iter().zip(values).for_each(|(&at, &value)| cells[at as usize] = value);
                write_cells(writer, &cells)
            })
        }
    })
}

/// NumPy's name of an element.
pub(super) fn float_name(element: Element) -> &'static str {
    match element {
        Element::Float32 => "<f4",
        Element::Float64 => "<f8",
    }
}

/// Writes all that precedes the cells, padded so that they begin at a multiple of 64 bytes.
pub(super) fn write_header(writer: &mut impl Write, dtype: &str, shape: &str) -> Checked<()> {
    let text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    writer.write_all(b"\x93NUMPY\x01\x00")?;
    writer.write_all(&u16::try_from(length).expect("a short header").to_le_bytes())?;
    Ok(writeln!(writer, "{text:width$}", width = length - 1)?)
}

/// Writes cells in little-endian order.
pub(super) fn write_cells<T: Scalar>(writer: &mut impl Write, cells: &[T]) -> Checked<()> {
    for &cell in cells {
        match T::ELEMENT {
            // Narrowing what was widened is exact.
            Element::Float32 => writer.write_all(&(cell.to_f64() as f32).to_le_bytes())?,
            Element::Float64 => writer.write_all(&cell.to_f64().to_le_bytes())?,
        }
    }
    Ok(())
}
