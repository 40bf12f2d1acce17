//! Answers as text: one file per family of formats, and here what they share.
//!
//! Every format takes record batches as they come. All but the table write them at once, so that an answer
//! of any size passes through without being held.

mod json;
mod markdown;
mod table;
mod values;

mod csv;
mod line;

use std::io::{self, Write};

use arrow::array::{Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use clap::ValueEnum;

use crate::terminal::Screen;

pub(crate) use json::string as json_string;
pub(crate) use values::grouped;

/// How answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Drawn to fit the terminal
    Table,
    /// RFC 4180 with a header, lines ended by a line feed
    Csv,
    /// One array of objects
    Json,
    /// One object a line
    Ndjson,
    /// A table for documents
    Markdown,
    /// One value a line
    Line,
    /// Nothing: statements run for their time, or for what they do
    None,
}

impl Format {
    /// A writer of rows with these columns.
    pub(crate) fn writer(self, schema: SchemaRef, screen: Screen) -> Box<dyn Rows> {
        match self {
            Format::Table => table::writer(schema, screen),
            Format::Csv => Box::new(csv::Csv::new(&schema)),
            Format::Json => Box::new(json::Json::array()),
            Format::Ndjson => Box::new(json::Json::lines()),
            Format::Markdown => Box::new(markdown::Markdown::new(schema)),
            Format::Line => Box::new(line::Lines::new(&schema)),
            Format::None => Box::new(Unwritten),
        }
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().expect("no format is hidden").get_name().to_owned()
    }
}

/// Takes the rows of one answer and writes them.
pub(crate) trait Rows {
    /// Takes the next rows.
    fn push(&mut self, batch: &RecordBatch, output: &mut dyn Write) -> io::Result<()>;

    /// Writes what is left once all rows are there.
    fn finish(&mut self, output: &mut dyn Write) -> io::Result<()>;
}

/// Rows that nobody wants to read.
struct Unwritten;

impl Rows for Unwritten {
    fn push(&mut self, _batch: &RecordBatch, _output: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, _output: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// The values of a batch as text.
struct Texts<'a> {
    /// For each column, which rows are NULL: where its values are, not where they are stored.
    columns: Vec<(Option<NullBuffer>, ArrayFormatter<'a>)>,
}

const OPTIONS: FormatOptions<'static> = FormatOptions::new()
    .with_null("NULL")
    .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
    .with_datetime_format(Some("%Y-%m-%d %H:%M:%S%.f"))
    .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));

impl<'a> Texts<'a> {
    fn new(batch: &'a RecordBatch) -> io::Result<Self> {
        let formatter = |array: &'a dyn Array| {
            Ok((
                array.logical_nulls(),
                ArrayFormatter::try_new(array, &OPTIONS).map_err(unwritable)?,
            ))
        };
        let columns = batch.columns().iter().map(|array| formatter(array.as_ref()));
        Ok(Self { columns: columns.collect::<io::Result<_>>()? })
    }

    /// One value; `None` for NULL.
    fn get(&self, row: usize, column: usize) -> io::Result<Option<String>> {
        let (nulls, formatter) = &self.columns[column];
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(None);
        }
        formatter.value(row).try_to_string().map(Some).map_err(unwritable)
    }
}

/// A value that has no text in this format.
fn unwritable(error: ArrowError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, NullArray, StringArray};

    use super::*;

    /// A number and a text column, each with a NULL.
    pub(super) fn sample() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-20.0)]));
        let names: ArrayRef = Arc::new(StringArray::from(vec![Some("a,\"b\""), Some(""), None]));
        RecordBatch::try_from_iter_with_nullable([("x", numbers, true), ("na|me", names, true)])
            .unwrap()
    }

    pub(super) fn written(format: Format, batches: &[RecordBatch], screen: Screen) -> String {
        let mut output = Vec::new();
        let mut rows = format.writer(batches[0].schema(), screen);
        for batch in batches {
            rows.push(batch, &mut output).unwrap();
        }
        rows.finish(&mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    pub(super) const PIPE: Screen = Screen { columns: None, lines: 24, colour: false };

    #[test]
    fn csv_tells_null_from_the_empty_text() {
        let expected = "x,na|me\n1.5,\"a,\"\"b\"\"\"\n,\"\"\n-20.0,\n";
        assert_eq!(written(Format::Csv, &[sample()], PIPE), expected);
    }

    #[test]
    fn csv_has_nothing_where_a_column_is_null_alone() {
        let nulls: ArrayRef = Arc::new(NullArray::new(2));
        let batch = RecordBatch::try_from_iter([("a", Arc::clone(&nulls)), ("b", nulls)]).unwrap();
        assert_eq!(written(Format::Csv, &[batch], PIPE), "a,b\n,\n,\n");
    }

    #[test]
    fn csv_has_a_header_without_rows() {
        assert_eq!(written(Format::Csv, &[sample().slice(0, 0)], PIPE), "x,na|me\n");
    }

    #[test]
    fn json_is_one_array_and_ndjson_one_object_a_line() {
        let lines = written(Format::Ndjson, &[sample().slice(0, 2), sample().slice(2, 1)], PIPE);
        let expected = [
            r#"{"x":1.5,"na|me":"a,\"b\""}"#,
            r#"{"x":null,"na|me":""}"#,
            r#"{"x":-20.0,"na|me":null}"#,
        ];
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
        let array = written(Format::Json, &[sample().slice(0, 2), sample().slice(2, 1)], PIPE);
        let array: serde_json::Value = serde_json::from_str(&array).unwrap();
        let objects = expected.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        assert_eq!(array, serde_json::Value::from(objects.to_vec()));
    }

    #[test]
    fn json_without_rows_is_an_empty_array() {
        assert_eq!(written(Format::Json, &[sample().slice(0, 0)], PIPE), "[]\n");
        assert_eq!(written(Format::Ndjson, &[sample().slice(0, 0)], PIPE), "");
    }

    #[test]
    fn markdown_escapes_bars_and_aligns_numbers() {
        let expected =
            "| x | na\\|me |\n|--:|:--|\n| 1.5 | a,\"b\" |\n| NULL |  |\n| -20.0 | NULL |\n";
        assert_eq!(written(Format::Markdown, &[sample()], PIPE), expected);
    }

    #[test]
    fn lines_have_a_value_each_and_a_blank_line_between_rows() {
        let expected = "    x = 1.5\nna|me = a,\"b\"\n\n    x = NULL\nna|me = \n";
        assert_eq!(written(Format::Line, &[sample().slice(0, 2)], PIPE), expected);
    }
}
