//! A table for documents: GitHub's Markdown.

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::values::is_right_aligned;
use super::{Rows, Texts};

/// Writes a line per row; columns are not padded, so rows need not be held.
pub(super) struct Markdown {
    schema: SchemaRef,
    begun: bool,
}

impl Markdown {
    pub(super) fn new(schema: SchemaRef) -> Self {
        Self { schema, begun: false }
    }

    fn begin(&mut self, output: &mut dyn Write) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let fields = self.schema.fields();
        for field in fields {
            write!(output, "| {} ", escaped(field.name()))?;
        }
        writeln!(output, "|")?;
        for field in fields {
            write!(
                output,
                "{}",
                if is_right_aligned(field.data_type()) { "|--:" } else { "|:--" }
            )?;
        }
        writeln!(output, "|")
    }
}

impl Rows for Markdown {
    fn push(&mut self, batch: &RecordBatch, output: &mut dyn Write) -> io::Result<()> {
        self.begin(output)?;
        let texts = Texts::new(batch)?;
        for row in 0..batch.num_rows() {
            for column in 0..batch.num_columns() {
                let text = texts.get(row, column)?;
                write!(output, "| {} ", text.map_or("NULL".to_owned(), |text| escaped(&text)))?;
            }
            writeln!(output, "|")?;
        }
        Ok(())
    }

    fn finish(&mut self, output: &mut dyn Write) -> io::Result<()> {
        self.begin(output)
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('\n', "<br>")
}
