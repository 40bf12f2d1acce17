//! The rows of a relation on their way into a pass: read in parts, cut into blocks, their keys looked at.
//!
//! A part is a run of rows in their stored order; the parts of a relation follow one another. Several are
//! read side by side, but blocks begin anew at each part and never at a place that depends on how many
//! are under way.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::row::{OwnedRow, RowConverter, SortField};

use super::intake::Intake;
use super::run::{Cancel, Rows};
use crate::error::{ErrorKind, Result};
use crate::matrix::{Labels, Nulls};

/// Parts one after another, as if they were one.
pub(super) struct InSequence {
    schema: SchemaRef,
    parts: VecDeque<Box<dyn Rows>>,
}

impl InSequence {
    pub(super) fn new(parts: Vec<Box<dyn Rows>>) -> Self {
        let schema = parts.first().map_or_else(|| Arc::new(Schema::empty()), |part| part.schema());
        Self { schema, parts: parts.into() }
    }
}

impl Rows for InSequence {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(part) = self.parts.front_mut() {
            if let Some(batch) = part.next()? {
                return Ok(Some(batch));
            }
            self.parts.pop_front();
        }
        Ok(None)
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A block of rows on its way to be computed.
pub(super) struct RowBlock {
    /// Number of its part.
    pub(super) part: usize,
    /// Rows of its part before it.
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) batches: Vec<RecordBatch>,
}

/// Cuts the parts of a relation into blocks of equally many rows.
pub(super) struct Reader<'a> {
    intake: &'a Intake,
    block_rows: usize,
    /// Parts that are read side by side at most.
    at_once: usize,
    waiting: VecDeque<Part>,
    active: VecDeque<Part>,
}

/// A part that is being read.
struct Part {
    number: usize,
    rows: Box<dyn Rows>,
    first: usize,
    rest: Option<RecordBatch>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        intake: &'a Intake,
        parts: impl IntoIterator<Item = Box<dyn Rows>>,
        block_rows: usize,
        at_once: usize,
    ) -> Self {
        let part = |(number, rows)| Part { number, rows, first: 0, rest: None };
        let waiting = parts.into_iter().enumerate().map(part).collect();
        Self { intake, block_rows, at_once, waiting, active: VecDeque::new() }
    }

    /// Up to so many blocks, of the parts that are read side by side in turn; none at the end.
    pub(super) fn window(&mut self, blocks: usize, cancel: &Cancel) -> Result<Vec<RowBlock>> {
        let mut window = Vec::with_capacity(blocks);
        while window.len() < blocks {
            cancel.check()?;
            while self.active.len() < self.at_once
                && let Some(part) = self.waiting.pop_front()
            {
                self.active.push_back(part);
            }
            let Some(mut part) = self.active.pop_front() else { break };
            if let Some(block) = part.block(self.intake, self.block_rows)? {
                window.push(block);
                self.active.push_back(part);
            }
        }
        Ok(window)
    }

    /// The first part that has rows left, or has yet to be asked.
    pub(super) fn first_open_part(&self) -> Option<usize> {
        self.active.iter().chain(&self.waiting).map(|part| part.number).min()
    }

    /// Forgets this part and those after it.
    pub(super) fn stop_before(&mut self, part: usize) {
        self.active.retain(|open| open.number < part);
        self.waiting.retain(|open| open.number < part);
    }
}

impl Part {
    fn block(&mut self, intake: &Intake, block_rows: usize) -> Result<Option<RowBlock>> {
        let (mut batches, mut missing) = (Vec::new(), block_rows);
        while missing > 0 {
            let batch = match self.rest.take() {
                Some(rest) => rest,
                None => match self.rows.next()? {
                    Some(batch) if intake.nulls == Nulls::Drop => intake.without_nulls(&batch)?,
                    Some(batch) => batch,
                    None => break,
                },
            };
            if batch.num_rows() == 0 {
                continue;
            }
            let take = missing.min(batch.num_rows());
            if take < batch.num_rows() {
                self.rest = Some(batch.slice(take, batch.num_rows() - take));
            }
            missing -= take;
            batches.push(batch.slice(0, take));
        }
        let (first, rows) = (self.first, block_rows - missing);
        self.first += rows;
        let block = RowBlock { part: self.number, first, rows, batches };
        Ok((rows > 0).then_some(block))
    }
}

/// Row keys, each of which may come once.
///
/// While they ascend, as the keys of a sorted or numbered table do, comparing neighbours is enough; what
/// came in another order is hashed at the end.
#[derive(Default)]
pub(super) struct UniqueKeys {
    converter: Option<RowConverter>,
    blocks: Vec<Vec<ArrayRef>>,
    /// The first and the last key while all ascend.
    ends: Option<(OwnedRow, OwnedRow)>,
    is_unordered: bool,
}

impl UniqueKeys {
    /// Takes the keys of the next rows.
    ///
    /// # Errors
    /// A key that equals the one before it.
    pub(super) fn push(&mut self, keys: Vec<ArrayRef>) -> Result<()> {
        if keys.first().is_none_or(|keys| keys.is_empty()) {
            return Ok(());
        }
        if !self.is_unordered {
            let converter = match &mut self.converter {
                Some(converter) => converter,
                none => none.insert(converter(&keys)?),
            };
            let rows = converter.convert_columns(&keys)?;
            for at in 0..rows.num_rows() {
                let order = match (at, &self.ends) {
                    (0, None) => continue,
                    (0, Some((_, last))) => last.row().cmp(&rows.row(0)),
                    _ => rows.row(at - 1).cmp(&rows.row(at)),
                };
                if order.is_eq() {
                    return Err(repeated(&keys, at));
                }
                self.is_unordered |= order.is_gt();
            }
            let last = rows.row(rows.num_rows() - 1).owned();
            let first = match self.ends.take() {
                Some((first, _)) => first,
                None => rows.row(0).owned(),
            };
            self.ends = Some((first, last));
        }
        self.blocks.push(keys);
        Ok(())
    }

    /// Takes the keys of the part that follows.
    pub(super) fn append(&mut self, next: Self) {
        if next.blocks.is_empty() {
            return;
        }
        self.is_unordered |= next.is_unordered;
        self.ends = match (self.ends.take(), next.ends) {
            (Some((first, last)), Some((next_first, next_last))) => {
                self.is_unordered |= last >= next_first;
                Some((first, next_last))
            }
            (ends, next_ends) => ends.or(next_ends),
        };
        self.converter = self.converter.take().or(next.converter);
        self.blocks.extend(next.blocks);
    }

    /// All keys, in the order of the rows.
    ///
    /// # Errors
    /// The first key that has been there before.
    pub(super) fn finish(self, intake: &Intake) -> Result<Option<Labels>> {
        let labels = |keys| intake.labels(0, keys);
        let blocks: Vec<Labels> = self.blocks.into_iter().filter_map(labels).collect();
        if blocks.is_empty() {
            return Ok(None);
        }
        let all = Labels::joined(&blocks)?.compacted();
        if self.is_unordered {
            let keys: Vec<ArrayRef> =
                all.fields().iter().map(|(_, keys)| Arc::clone(keys)).collect();
            let rows = converter(&keys)?.convert_columns(&keys)?;
            let mut seen = HashSet::with_capacity(rows.num_rows());
            let again = (0..rows.num_rows()).find(|&at| !seen.insert(rows.row(at)));
            if let Some(at) = again {
                return Err(repeated(&keys, at));
            }
        }
        Ok(Some(all))
    }
}

fn converter(keys: &[ArrayRef]) -> Result<RowConverter> {
    let fields = keys.iter().map(|key| SortField::new(key.data_type().clone()));
    Ok(RowConverter::new(fields.collect())?)
}

fn repeated(keys: &[ArrayRef], at: usize) -> crate::error::Error {
    let fields = keys.iter().map(|key| (String::new(), Arc::clone(key))).collect();
    let key = format!("'{}'", Labels::new(fields).text(at));
    ErrorKind::Duplicate { what: "row", key, hint: "; ROWS BY needs a unique key" }.into()
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field};

    use super::*;
    use crate::exec::intake::Form;
    use crate::matrix::{Duplicates, Element};

    /// A part that yields batches of these lengths, of values that count up.
    struct Counting(VecDeque<usize>);

    impl Rows for Counting {
        fn next(&mut self) -> Result<Option<RecordBatch>> {
            let Some(rows) = self.0.pop_front() else { return Ok(None) };
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
            Ok(Some(RecordBatch::try_from_iter([("x", column)])?))
        }

        fn schema(&self) -> SchemaRef {
            Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, false)]))
        }
    }

    fn intake() -> Intake {
        Intake {
            form: Form::Wide,
            element: Element::Float64,
            nulls: Nulls::Error,
            duplicates: Duplicates::Error,
            row_keys: 1,
            rows_given: false,
            rows_as_they_come: false,
            names: vec!["k".into()],
        }
    }

    /// The blocks of parts of these batches, as part, first row and rows, sorted.
    fn blocks(parts: &[&[usize]], at_once: usize) -> Vec<(usize, usize, usize)> {
        let intake = intake();
        let parts = parts.iter().map(|part| Box::new(Counting(part.iter().copied().collect())));
        let mut reader = Reader::new(&intake, parts.map(|part| part as Box<dyn Rows>), 4, at_once);
        let mut all = Vec::new();
        loop {
            let window = reader.window(3, &Cancel::default()).unwrap();
            if window.is_empty() {
                break;
            }
            for block in window {
                let rows: usize = block.batches.iter().map(RecordBatch::num_rows).sum();
                assert_eq!(rows, block.rows);
                all.push((block.part, block.first, block.rows));
            }
        }
        assert_eq!(reader.first_open_part(), None);
        all.sort_unstable();
        all
    }

    #[test]
    fn blocks_begin_anew_at_each_part_however_many_are_read_at_once() {
        let parts: [&[usize]; 4] = [&[3, 0, 6], &[], &[1], &[4, 4]];
        let expected = [(0, 0, 4), (0, 4, 4), (0, 8, 1), (2, 0, 1), (3, 0, 4), (3, 4, 4)].to_vec();
        for at_once in 1..6 {
            assert_eq!(blocks(&parts, at_once), expected, "{at_once} at once");
        }
    }

    #[test]
    fn parts_in_sequence_are_one() {
        let parts = [vec![2, 3], vec![], vec![4]].map(|part| Box::new(Counting(part.into())));
        let mut rows = InSequence::new(parts.into_iter().map(|part| part as _).collect());
        let mut lengths = Vec::new();
        while let Some(batch) = rows.next().unwrap() {
            lengths.push(batch.num_rows());
        }
        assert_eq!(lengths, [2, 3, 4]);
    }

    /// Whether the keys of these parts, in blocks, are unique.
    fn unique(parts: &[&[&[i64]]]) -> bool {
        let mut all = UniqueKeys::default();
        for part in parts {
            let mut keys = UniqueKeys::default();
            for block in *part {
                if keys.push(vec![Arc::new(Int64Array::from(block.to_vec()))]).is_err() {
                    return false;
                }
            }
            all.append(keys);
        }
        let expected: usize =
            parts.iter().flat_map(|part| part.iter()).map(|keys| keys.len()).sum();
        match all.finish(&intake()) {
            Ok(labels) => {
                assert_eq!(labels.map_or(0, |labels| labels.len()), expected);
                true
            }
            Err(_) => false,
        }
    }

    #[test]
    fn a_key_that_comes_twice_is_found_in_any_order() {
        assert!(unique(&[]));
        assert!(unique(&[&[&[1, 2], &[3]], &[&[4]]]));
        assert!(unique(&[&[&[9, 2], &[3]], &[&[1], &[8]]]));
        assert!(!unique(&[&[&[1, 2, 2]]]));
        assert!(!unique(&[&[&[1, 2], &[2]]]));
        assert!(!unique(&[&[&[1, 2]], &[&[2, 3]]]));
        assert!(!unique(&[&[&[5, 6]], &[&[2, 3]], &[&[6]]]));
        assert!(!unique(&[&[&[2, 1, 2]]]));
    }

    #[test]
    fn without_keys_nothing_is_kept() {
        let mut keys = UniqueKeys::default();
        keys.push(Vec::new()).unwrap();
        assert!(keys.finish(&intake()).unwrap().is_none());
        let schema = Schema::new(vec![Field::new("k", DataType::Int64, false)]);
        let empty = RecordBatch::new_empty(Arc::new(schema));
        let mut keys = UniqueKeys::default();
        keys.push(empty.columns().to_vec()).unwrap();
    }
}
