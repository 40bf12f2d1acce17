//! Comma-separated values: a header, then a line for each row.
//!
//! - Read: leading columns whose first value is no number are row labels (dates and timestamps as
//!   such), all others are matrix columns, named by the header. A first line that is all numbers may
//!   be a header or a row, so [`super::ReadOptions::header`] must say.
//! - Entries: a header of just `row,column,value` is a sparse matrix, counted from 1, as large as
//!   its last row and column.
//! - Written: the row labels, then a column per matrix column; a sparse matrix as entries, under its
//!   labels where it has them. The text of a number reads back as the same number.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use csv::{ErrorKind as CsvErrorKind, ReaderBuilder, StringRecord, Writer};

use crate::error::ErrorKind;
use crate::matrix::{Csr, Dense, Element, Labels, Matrix, Nulls, Scalar, Shape, Storage};
use crate::with_storage;

use super::entries::{Entries, place};
use super::flaw::{Checked, Flaw, Limit};
use super::table::{ENTRY_COLUMNS, column_names};
use super::{Rules, is_exact};

pub(super) fn read(
    reader: impl Read,
    header: Option<bool>,
    rules: Rules,
    limit: Limit<'_>,
) -> Checked<Matrix> {
    let mut records = ReaderBuilder::new().has_headers(false).from_reader(reader);
    let mut first = StringRecord::new();
    if !records.read_record(&mut first).map_err(flaw)? {
        return Err(Flaw::new("the file is empty: there is no header"));
    }
    let doubtful = first.iter().all(|field| field.trim().parse::<f64>().is_ok());
    let has_header = match header {
        Some(header) => header,
        None if doubtful => {
            let message =
                "all numbers: OPTIONS (header true | false) says whether it is the header";
            return Err(Flaw::in_line(1, message));
        }
        None => true,
    };
    let names: Vec<String> = match has_header {
        true => first.iter().map(|name| name.trim().to_owned()).collect(),
        false => (1..=first.len()).map(|column| format!("c{column}")).collect(),
    };
    let mut next = || -> Checked<Option<StringRecord>> {
        let mut record = StringRecord::new();
        Ok(records.read_record(&mut record).map_err(flaw)?.then_some(record))
    };
    let first = if has_header { next()? } else { Some(first) };
    let records = first.map(Ok).into_iter().chain(std::iter::from_fn(|| next().transpose()));
    if has_header && names == ENTRY_COLUMNS {
        return read_entries(records, rules, limit);
    }
    read_wide(records, names, has_header, rules.nulls, limit)
}

fn read_wide(
    records: impl Iterator<Item = Checked<StringRecord>>,
    names: Vec<String>,
    has_header: bool,
    nulls: Nulls,
    limit: Limit<'_>,
) -> Checked<Matrix> {
    let mut records = records.peekable();
    let key_count = match records.peek() {
        Some(Ok(first)) => first.iter().take_while(|field| is_key(field)).count(),
        _ => 0,
    };
    let column_count = names.len() - key_count;
    let mut keys: Vec<Vec<Option<String>>> = vec![Vec::new(); key_count];
    let mut cells: Vec<f64> = Vec::new();
    let mut rows = 0;
    for record in records {
        let record = record?;
        let is_missing = |field: &str| field.trim().is_empty();
        if nulls == Nulls::Drop && record.iter().skip(key_count).any(is_missing) {
            continue;
        }
        rows += 1;
        limit.admit_dense::<f64>(Shape::new(rows, column_count))?;
        for (key, field) in keys.iter_mut().zip(&record) {
            key.push((!field.is_empty()).then(|| field.to_owned()));
        }
        for (name, field) in names.iter().zip(&record).skip(key_count) {
            cells.push(match nulls.cell() {
                Some(cell) if is_missing(field) => cell,
                _ => number(field, name, rows, &record)?,
            });
        }
    }
    let key_fields = names.iter().zip(keys).map(|(name, key)| (name.clone(), typed(key)));
    let row_labels = (key_count > 0).then(|| Labels::new(key_fields.collect()));
    let column_labels = has_header.then(|| Labels::names(&names[key_count..]));
    let matrix = Matrix::new(Dense::new(Shape::new(rows, column_count), cells.into()));
    Ok(matrix.with_labels(row_labels, column_labels))
}

/// Whether a first value makes its column a key: a missing one does not, but is a missing cell.
fn is_key(field: &str) -> bool {
    let field = field.trim();
    !field.is_empty() && field.parse::<f64>().is_err() && boolean(field).is_none()
}

fn boolean(field: &str) -> Option<f64> {
    if field.eq_ignore_ascii_case("true") {
        return Some(1.0);
    }
    field.eq_ignore_ascii_case("false").then_some(0.0)
}

fn number(field: &str, name: &str, row: usize, record: &StringRecord) -> Checked<f64> {
    let field = field.trim();
    if field.is_empty() {
        return Err(ErrorKind::NullCell { column: name.to_owned(), row }.into());
    }
    let line = || record.position().map_or(0, |position| position.line());
    let Some(value) = field.parse::<f64>().ok().or_else(|| boolean(field)) else {
        let field: String = field.chars().take(40).collect();
        let message = format!("'{field}' in column '{name}' is not a number");
        return Err(Flaw::in_line(line(), message));
    };
    let digits = field.trim_start_matches(['+', '-']);
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_integer && !field.parse().is_ok_and(is_exact) {
        let (value, column) = (field.to_owned(), name.to_owned());
        return Err(ErrorKind::Inexact { value, column, element: Element::Float64 }.into());
    }
    Ok(value)
}

/// A key as dates or timestamps where every value is one, else as text.
fn typed(key: Vec<Option<String>>) -> ArrayRef {
    let text: ArrayRef = Arc::new(StringArray::from(key));
    let all = |data_type: DataType| {
        let typed = cast(&text, &data_type).ok()?;
        (typed.null_count() == text.null_count() && !text.is_empty()).then_some(typed)
    };
    let date = || all(DataType::Date32);
    let timestamp = || all(DataType::Timestamp(TimeUnit::Nanosecond, None));
    let is_date = |field: &str| field.len() == "2026-01-31".len();
    let strings = text.as_any().downcast_ref::<StringArray>().expect("made as strings");
    let found = if strings.iter().flatten().all(is_date) { date() } else { timestamp() };
    found.unwrap_or(text)
}

fn read_entries(
    records: impl Iterator<Item = Checked<StringRecord>>,
    Rules { nulls, duplicates }: Rules,
    limit: Limit<'_>,
) -> Checked<Matrix> {
    let mut entries = Entries::new();
    for (at, record) in records.enumerate() {
        let record = record?;
        let line = record.position().map_or(0, |position| position.line());
        let index = |field: &str| {
            let index = field.trim().parse::<usize>().ok().and_then(|index| index.checked_sub(1));
            match index {
                Some(index) => place(index),
                None => Err(Flaw::in_line(line, format!("'{field}' does not count from 1"))),
            }
        };
        let value = match nulls.cell() {
            _ if !record[2].trim().is_empty() || nulls == Nulls::Error => {
                number(&record[2], ENTRY_COLUMNS[2], at + 1, &record)?
            }
            Some(cell) => cell,
            None => continue,
        };
        entries.push(index(&record[0])?, index(&record[1])?, value);
        limit.admit_sparse::<f64>(Shape::new(0, 0), entries.len())?;
    }
    let shape = entries.extent();
    Ok(Matrix::new(entries.into_csr(shape, duplicates, limit)?))
}

fn flaw(error: csv::Error) -> Flaw {
    match error.into_kind() {
        CsvErrorKind::Io(error) => error.into(),
        CsvErrorKind::Utf8 { pos: Some(at), .. } => Flaw::in_line(at.line(), "not UTF-8 text"),
        CsvErrorKind::UnequalLengths { pos: Some(at), expected_len, len } => {
            let message = format!("{len} fields, where the lines before have {expected_len}");
            Flaw::in_line(at.line(), message)
        }
        other => Flaw::new(format!("{other:?}")),
    }
}

pub(super) fn write(writer: &mut impl Write, matrix: &Matrix) -> Checked<()> {
    let mut writer = Writer::from_writer(writer);
    with_storage!(matrix.cells(), storage => match storage {
        Storage::Dense(dense) => write_wide(&mut writer, matrix, dense),
        Storage::Csr(csr) => write_entries(&mut writer, matrix, csr),
    })?;
    Ok(writer.flush()?)
}

fn write_wide<T: Scalar>(
    writer: &mut Writer<impl Write>,
    matrix: &Matrix,
    dense: &Dense<T>,
) -> Checked<()> {
    let options = FormatOptions::default();
    let keys = Keys::of(matrix.row_labels(), "row", &options)?;
    let names = column_names(matrix);
    let key_names = if matrix.row_labels().is_some() { keys.names.as_slice() } else { &[] };
    if names.is_empty() && key_names.is_empty() {
        return Err(Flaw::new("CSV has no text for a matrix without columns"));
    }
    writer.write_record(key_names.iter().chain(&names)).map_err(flaw)?;
    for row in 0..dense.shape().rows {
        if matrix.row_labels().is_some() {
            keys.write(writer, row)?;
        }
        for &cell in dense.row(row) {
            writer.write_field(format!("{cell:?}")).map_err(flaw)?;
        }
        writer.write_record(None::<&[u8]>).map_err(flaw)?;
    }
    Ok(())
}

fn write_entries<T: Scalar>(
    writer: &mut Writer<impl Write>,
    matrix: &Matrix,
    csr: &Csr<T>,
) -> Checked<()> {
    let options = FormatOptions::default();
    let row_keys = Keys::of(matrix.row_labels(), ENTRY_COLUMNS[0], &options)?;
    let column_keys = Keys::of(matrix.column_labels(), ENTRY_COLUMNS[1], &options)?;
    let value = ENTRY_COLUMNS[2].to_owned();
    let header = row_keys.names.iter().chain(&column_keys.names).chain([&value]);
    writer.write_record(header).map_err(flaw)?;
    for row in 0..csr.shape().rows {
        let (columns, values) = csr.row(row);
        for (&column, value) in columns.iter().zip(values) {
            row_keys.write(writer, row)?;
            column_keys.write(writer, column as usize)?;
            writer.write_field(format!("{value:?}")).map_err(flaw)?;
            writer.write_record(None::<&[u8]>).map_err(flaw)?;
        }
    }
    Ok(())
}

/// The text of one dimension's labels, or of its indices where it has none.
struct Keys<'a> {
    names: Vec<String>,
    formatters: Vec<ArrayFormatter<'a>>,
}

impl<'a> Keys<'a> {
    fn of(
        labels: Option<&'a Labels>,
        index_name: &str,
        options: &FormatOptions<'a>,
    ) -> Checked<Self> {
        let Some(labels) = labels else {
            return Ok(Self { names: vec![index_name.to_owned()], formatters: Vec::new() });
        };
        let formatter =
            |(_, array): &'a (String, ArrayRef)| ArrayFormatter::try_new(array, options);
        Ok(Self {
            names: labels.fields().iter().map(|(name, _)| name.clone()).collect(),
            formatters: labels.fields().iter().map(formatter).collect::<Result<_, _>>()?,
        })
    }

    fn write(&self, writer: &mut Writer<impl Write>, index: usize) -> Checked<()> {
        if self.formatters.is_empty() {
            return writer.write_field((index + 1).to_string()).map_err(flaw);
        }
        for formatter in &self.formatters {
            writer.write_field(formatter.value(index).to_string()).map_err(flaw)?;
        }
        Ok(())
    }
}
