//! JSON: an array of objects, or an object a line. NULL, NaN and infinities are `null`.

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::json::WriterBuilder;
use arrow::json::writer::LineDelimited;

use super::{Rows, unwritable};

/// Writes the rows of each batch as objects.
pub(super) struct Json {
    /// What comes before the first row, and what before each later one.
    opening: &'static str,
    between: &'static str,
    closing: &'static str,
    begun: bool,
}

impl Json {
    /// One array.
    pub(super) fn array() -> Self {
        Self { opening: "[", between: ",\n ", closing: "]\n", begun: false }
    }

    /// One object a line.
    pub(super) fn lines() -> Self {
        Self { opening: "", between: "\n", closing: "\n", begun: false }
    }
}

impl Rows for Json {
    fn push(&mut self, batch: &RecordBatch, output: &mut dyn Write) -> io::Result<()> {
        let mut lines = Vec::new();
        let mut writer =
            WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut lines);
        writer.write(batch).and_then(|()| writer.finish()).map_err(unwritable)?;
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let before = if self.begun { self.between } else { self.opening };
            output.write_all(before.as_bytes())?;
            output.write_all(line)?;
            self.begun = true;
        }
        Ok(())
    }

    fn finish(&mut self, output: &mut dyn Write) -> io::Result<()> {
        match (self.begun, self.opening) {
            (false, "") => Ok(()),
            (false, opening) => write!(output, "{opening}{}", self.closing),
            (true, _) => output.write_all(self.closing.as_bytes()),
        }
    }
}

/// A text as a JSON string with its quotes.
pub(crate) fn string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\t' => json.push_str("\\t"),
            c if u32::from(c) < 0x20 => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_read_back_as_they_were() {
        for text in ["", "a \"b\" \\ c", "line\nline\r\tend\u{1}\u{7f}", "日本 ü 🦀"] {
            let back: String = serde_json::from_str(&string(text)).unwrap();
            assert_eq!(back, text);
        }
    }
}
