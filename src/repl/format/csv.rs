//! Comma-separated values as RFC 4180 has them, but for line feeds alone at the ends of lines.
//!
//! NULL is nothing, the empty text is `""`: a reader that cares can tell them apart.

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

use super::{Rows, Texts};

/// Writes a header, then a line per row.
pub(super) struct Csv {
    header: Option<String>,
}

impl Csv {
    pub(super) fn new(schema: &Schema) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|field| quoted(field.name())).collect();
        Self { header: Some(names.join(",")) }
    }

    fn begin(&mut self, output: &mut dyn Write) -> io::Result<()> {
        self.header.take().map_or(Ok(()), |header| writeln!(output, "{header}"))
    }
}

impl Rows for Csv {
    fn push(&mut self, batch: &RecordBatch, output: &mut dyn Write) -> io::Result<()> {
        self.begin(output)?;
        let texts = Texts::new(batch)?;
        for row in 0..batch.num_rows() {
            for column in 0..batch.num_columns() {
                let comma = if column > 0 { "," } else { "" };
                let value = texts.get(row, column)?.map_or(String::new(), |text| quoted(&text));
                write!(output, "{comma}{value}")?;
            }
            writeln!(output)?;
        }
        Ok(())
    }

    fn finish(&mut self, output: &mut dyn Write) -> io::Result<()> {
        self.begin(output)
    }
}

/// Between quotes where a reader would otherwise see something else.
fn quoted(text: &str) -> String {
    if text.is_empty() || text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
