//! Tables that fit the terminal and say what they left out.
//!
//! Long tables lose rows from their middle, wide ones first the ends of long values, then columns from their
//! middle. Rows that will not be shown are counted and let go.
//!
//! ```text
//! ╭────┬───┬──────╮
//! │ id │ … │ name │
//! ├────┼───┼──────┤
//! │  1 │ … │ a    │
//! │  … │ … │ …    │
//! │ 99 │ … │ z    │
//! ╰────┴───┴──────╯
//! … 97 rows and 3 columns more
//! ```

use std::collections::VecDeque;
use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table as Drawing};

use super::values::{grouped, is_right_aligned};
use super::{Rows, Texts};
use crate::terminal::{Screen, printable, shortened, width};

/// Rows shown on a terminal: as many as a person scrolls back over.
const ROWS_ON_TERMINAL: usize = 40;
/// Rows shown elsewhere: a table is drawn from memory, and nobody reads more.
const ROWS_ELSEWHERE: usize = 10_000;
/// A column keeps this width, if its values need it, before any column is left out.
const COLUMN_WIDTH_MIN: usize = 12;
/// The border and the blanks around each value; the table has one border more.
const COLUMN_MARGIN: usize = 3;
/// Borders with round corners, and no line but the one under the header.
const BORDERS: &str = "││──├─┼┤│    ┬┴╭╮╰╯";

/// A table; or for a plan, which is a text with lines of its own, just that text.
pub(super) fn writer(schema: SchemaRef, screen: Screen) -> Box<dyn Rows> {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    match names[..] {
        ["plan_type", "plan"] => Box::new(Plan),
        _ => Box::new(Table::new(schema, screen)),
    }
}

/// Keeps the first and the last rows, and draws them when all were seen.
struct Table {
    schema: SchemaRef,
    screen: Screen,
    rows_max: usize,
    rows_seen: usize,
    head: Vec<RecordBatch>,
    tail: VecDeque<RecordBatch>,
}

impl Table {
    fn new(schema: SchemaRef, screen: Screen) -> Self {
        let rows_max = if screen.columns.is_some() { ROWS_ON_TERMINAL } else { ROWS_ELSEWHERE };
        Self { schema, screen, rows_max, rows_seen: 0, head: Vec::new(), tail: VecDeque::new() }
    }

    fn head_rows(&self) -> usize {
        self.rows_max.div_ceil(2)
    }

    fn tail_rows(&self) -> usize {
        self.rows_max / 2
    }
}

impl Rows for Table {
    fn push(&mut self, batch: &RecordBatch, _output: &mut dyn Write) -> io::Result<()> {
        let to_head = self.head_rows().saturating_sub(self.rows_seen).min(batch.num_rows());
        self.rows_seen += batch.num_rows();
        if to_head > 0 {
            self.head.push(batch.slice(0, to_head));
        }
        if to_head < batch.num_rows() {
            self.tail.push_back(batch.slice(to_head, batch.num_rows() - to_head));
        }
        let mut kept: usize = self.tail.iter().map(RecordBatch::num_rows).sum();
        while let Some(first) = self.tail.front() {
            kept -= first.num_rows();
            if kept < self.tail_rows() {
                break;
            }
            self.tail.pop_front();
        }
        Ok(())
    }

    fn finish(&mut self, output: &mut dyn Write) -> io::Result<()> {
        if self.schema.fields().is_empty() {
            return Ok(());
        }
        let mut rows = texts(&self.head)?;
        let mut last_rows = texts(self.tail.make_contiguous())?;
        last_rows.drain(..last_rows.len().saturating_sub(self.tail_rows()));
        let left_out = self.rows_seen - rows.len() - last_rows.len();
        let gap = (left_out > 0).then_some(rows.len());
        rows.append(&mut last_rows);
        let columns_left_out = draw(&self.schema, &rows, gap, self.screen, output)?;
        match more(left_out, columns_left_out) {
            Some(more) => writeln!(output, "{more}"),
            None if rows.is_empty() => writeln!(output, "no rows"),
            None => Ok(()),
        }
    }
}

/// The rows as texts on one line each; `None` is NULL.
fn texts(batches: &[RecordBatch]) -> io::Result<Vec<Vec<Option<String>>>> {
    let mut rows = Vec::new();
    for batch in batches {
        let texts = Texts::new(batch)?;
        for row in 0..batch.num_rows() {
            let value = |column| Ok(texts.get(row, column)?.map(|text| printable(&text)));
            rows.push((0..batch.num_columns()).map(value).collect::<io::Result<_>>()?);
        }
    }
    Ok(rows)
}

/// Draws the table and returns how many columns had no place in it.
fn draw(
    schema: &Schema,
    rows: &[Vec<Option<String>>],
    gap: Option<usize>,
    screen: Screen,
    output: &mut dyn Write,
) -> io::Result<usize> {
    let names: Vec<String> = schema.fields().iter().map(|field| printable(field.name())).collect();
    let natural: Vec<usize> = (0..names.len())
        .map(|at| {
            let value = |row: &Vec<Option<String>>| row[at].as_deref().map_or(4, width);
            rows.iter().map(value).chain([width(&names[at])]).max().unwrap_or(0)
        })
        .collect();
    let columns = fitted(&natural, screen.columns.unwrap_or(usize::MAX));
    let mut drawing = Drawing::new();
    drawing.load_preset(BORDERS).set_content_arrangement(ContentArrangement::Disabled);
    if screen.colour {
        drawing.enforce_styling();
    } else {
        drawing.force_no_tty();
    }
    let aligned = |cell: Cell, at: usize| {
        let right = is_right_aligned(schema.field(at).data_type());
        cell.set_alignment(if right { CellAlignment::Right } else { CellAlignment::Left })
    };
    let omitted = || Cell::new("…").add_attribute(Attribute::Dim);
    drawing.set_header(columns.iter().map(|column| match *column {
        Column::Shown { at, width } => {
            aligned(Cell::new(shortened(&names[at], width)).add_attribute(Attribute::Bold), at)
        }
        Column::Omitted { .. } => omitted(),
    }));
    for (number, row) in rows.iter().enumerate() {
        if gap == Some(number) {
            drawing.add_row(columns.iter().map(|column| match *column {
                Column::Shown { at, .. } => aligned(omitted(), at),
                Column::Omitted { .. } => omitted(),
            }));
        }
        drawing.add_row(columns.iter().map(|column| match *column {
            Column::Shown { at, width } => match &row[at] {
                Some(text) => aligned(Cell::new(shortened(text, width)), at),
                None => {
                    let null = shortened("NULL", width);
                    aligned(Cell::new(null).add_attribute(Attribute::Dim), at)
                }
            },
            Column::Omitted { .. } => omitted(),
        }));
    }
    writeln!(output, "{drawing}")?;
    Ok(columns.iter().map(Column::left_out).sum())
}

/// A column of the drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    /// A column of the answer, cut to this width.
    Shown { at: usize, width: usize },
    /// What stands for so many columns.
    Omitted { count: usize },
}

impl Column {
    fn left_out(&self) -> usize {
        match *self {
            Column::Shown { .. } => 0,
            Column::Omitted { count } => count,
        }
    }
}

/// Chooses columns and their widths so that the table is at most `available` wide.
///
/// First the widest columns give way, down to [`COLUMN_WIDTH_MIN`]; then columns from the middle.
/// One column is always shown.
fn fitted(natural: &[usize], available: usize) -> Vec<Column> {
    let least: Vec<usize> = natural.iter().map(|&width| width.min(COLUMN_WIDTH_MIN)).collect();
    let needed = |shown: &[usize]| -> usize {
        1 + shown.iter().map(|&at| least[at] + COLUMN_MARGIN).sum::<usize>()
    };
    let mut shown: Vec<usize> = (0..natural.len()).collect();
    let mut omitted = 0;
    let mut marker = 0;
    while shown.len() > 1 && needed(&shown) + marker > available {
        // Of an even number the left one of the middle pair, so that the first columns stay longest.
        shown.remove(shown.len() / 2);
        omitted += 1;
        marker = 1 + COLUMN_MARGIN;
    }
    let for_values = available.saturating_sub(1 + marker + shown.len() * COLUMN_MARGIN);
    let cap = widest_cap(shown.iter().map(|&at| natural[at]).collect(), for_values.max(1));
    let mut columns: Vec<Column> =
        shown.iter().map(|&at| Column::Shown { at, width: natural[at].min(cap) }).collect();
    if omitted > 0 {
        columns.insert(shown.len().div_ceil(2), Column::Omitted { count: omitted });
    }
    columns
}

/// The largest cap for which the capped widths are at most `available` together.
fn widest_cap(mut widths: Vec<usize>, available: usize) -> usize {
    widths.sort_unstable();
    let mut left = available;
    for (at, &width) in widths.iter().enumerate() {
        let share = left / (widths.len() - at);
        if width > share {
            return share.max(1);
        }
        left -= width;
    }
    usize::MAX
}

/// What a table has more than it shows.
fn more(rows: usize, columns: usize) -> Option<String> {
    let counted = |count: usize, what: &str| {
        let plural = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{} {what}{plural}", grouped(count as u64)))
    };
    let parts: Vec<String> =
        [counted(rows, "row"), counted(columns, "column")].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("… {} more", parts.join(" and ")))
}

/// Writes plans as they are: their lines and indentation are what there is to see.
struct Plan;

impl Rows for Plan {
    fn push(&mut self, batch: &RecordBatch, output: &mut dyn Write) -> io::Result<()> {
        let texts = Texts::new(batch)?;
        for row in 0..batch.num_rows() {
            let kind = texts.get(row, 0)?.unwrap_or_default().replace('_', " ");
            let plan = texts.get(row, 1)?.unwrap_or_default();
            writeln!(output, "{kind}\n{}", "─".repeat(width(&kind)))?;
            writeln!(output, "{}\n", plan.trim_end())?;
        }
        Ok(())
    }

    fn finish(&mut self, _output: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::super::Format;
    use super::super::tests::{PIPE, sample, written};
    use super::*;

    fn terminal(columns: usize) -> Screen {
        Screen { columns: Some(columns), lines: 24, colour: false }
    }

    fn numbers(rows: i64, columns: usize) -> RecordBatch {
        let column = |at: usize| {
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
            (format!("column_{at}"), values)
        };
        RecordBatch::try_from_iter((0..columns).map(column)).unwrap()
    }

    #[test]
    fn numbers_stand_right_and_null_is_shown() {
        let expected = "\
╭───────┬───────╮
│     x │ na|me │
├───────┼───────┤
│   1.5 │ a,\"b\" │
│  NULL │       │
│ -20.0 │ NULL  │
╰───────┴───────╯
";
        assert_eq!(written(Format::Table, &[sample()], PIPE), expected);
    }

    #[test]
    fn every_table_fits_its_terminal() {
        for columns in 10..120 {
            for count in 1..12 {
                let drawn = written(Format::Table, &[numbers(3, count)], terminal(columns));
                let widest = drawn.lines().map(width).max().unwrap();
                assert!(widest <= columns.max(28), "{columns} columns:\n{drawn}");
            }
        }
    }

    #[test]
    fn a_wide_table_loses_its_middle_columns() {
        let drawn = written(Format::Table, &[numbers(1, 9)], terminal(60));
        assert!(
            drawn.contains("│ column_0 │ column_1 │ column_2 │ … │ column_7 │ column_8 │"),
            "{drawn}"
        );
        assert!(drawn.ends_with("… 4 columns more\n"), "{drawn}");
    }

    #[test]
    fn a_long_table_loses_its_middle_rows() {
        let batch = numbers(1000, 1);
        let batches: Vec<RecordBatch> = (0..10).map(|at| batch.slice(at * 100, 100)).collect();
        let drawn = written(Format::Table, &batches, terminal(80));
        let lines: Vec<&str> = drawn.lines().map(|line| line.trim_matches(['│', ' '])).collect();
        assert_eq!(lines[3..6], ["0", "1", "2"]);
        assert_eq!(lines[22..25], ["19", "…", "980"]);
        assert_eq!(lines[lines.len() - 3..], ["999", lines[lines.len() - 2], "… 960 rows more"]);
    }

    #[test]
    fn a_table_of_just_the_limit_is_whole() {
        for rows in [39, 40] {
            let drawn = written(Format::Table, &[numbers(rows, 1)], terminal(80));
            assert_eq!(drawn.lines().count() as i64, rows + 4, "{drawn}");
        }
        let drawn = written(Format::Table, &[numbers(41, 9)], terminal(60));
        assert!(drawn.ends_with("… 1 row and 4 columns more\n"), "{drawn}");
    }

    #[test]
    fn long_values_are_cut_before_columns_are_left_out() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["日本語".repeat(40)]));
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
        let drawn = written(Format::Table, &[batch], terminal(30));
        assert!(drawn.contains("│  1 │ 日本語日本語日本語日…"), "{drawn}");
        assert!(drawn.lines().all(|line| width(line) == 30 || width(line) == 29), "{drawn}");
    }

    #[test]
    fn the_widest_columns_give_way_first() {
        let shown = |at, width| Column::Shown { at, width };
        assert_eq!(fitted(&[5, 100, 30], 80), [shown(0, 5), shown(1, 35), shown(2, 30)]);
        assert_eq!(fitted(&[5, 5], 80), [shown(0, 5), shown(1, 5)]);
        assert_eq!(fitted(&[50], 3), [shown(0, 1)]);
    }

    #[test]
    fn no_rows_say_so() {
        let drawn = written(Format::Table, &[sample().slice(0, 0)], PIPE);
        assert!(drawn.ends_with("╯\nno rows\n"), "{drawn}");
    }
}
