//! One value a line, its column's name before it: for rows that are too wide for any table.

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

use super::{Rows, Texts};
use crate::terminal::width;

/// Writes a block of lines per row, a blank line between two.
pub(super) struct Lines {
    names: Vec<String>,
    begun: bool,
}

impl Lines {
    pub(super) fn new(schema: &Schema) -> Self {
        let names = || schema.fields().iter().map(|field| field.name());
        let widest = names().map(|name| width(name)).max().unwrap_or(0);
        let padded = |name: &String| format!("{}{name}", " ".repeat(widest - width(name)));
        Self { names: names().map(padded).collect(), begun: false }
    }
}

impl Rows for Lines {
    fn push(&mut self, batch: &RecordBatch, output: &mut dyn Write) -> io::Result<()> {
        let texts = Texts::new(batch)?;
        for row in 0..batch.num_rows() {
            if std::mem::replace(&mut self.begun, true) {
                writeln!(output)?;
            }
            for (column, name) in self.names.iter().enumerate() {
                let value = texts.get(row, column)?;
                writeln!(output, "{name} = {}", value.as_deref().unwrap_or("NULL"))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, _output: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}
