//! The rows of a relation on their way into a pass: cut into blocks, their keys looked at.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::row::{RowConverter, SortField};

use super::intake::Intake;
use super::run::{Cancel, Rows};
use crate::error::{ErrorKind, Result};
use crate::matrix::{Labels, Nulls};

/// A relation that has been read.
pub(super) struct Spent;

impl Rows for Spent {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        Ok(None)
    }
}

/// Cuts a relation's batches into blocks of equally many rows.
pub(super) struct Reader<'a> {
    intake: &'a Intake,
    rows: &'a mut dyn Rows,
    rest: Option<RecordBatch>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(intake: &'a Intake, rows: &'a mut dyn Rows) -> Self {
        Self { intake, rows, rest: None }
    }

    /// Up to so many blocks; none at the end.
    pub(super) fn window(
        &mut self,
        blocks: usize,
        block_rows: usize,
        cancel: &Cancel,
    ) -> Result<Vec<Vec<RecordBatch>>> {
        let mut window = Vec::with_capacity(blocks);
        while window.len() < blocks {
            cancel.check()?;
            let block = self.block(block_rows)?;
            if block.is_empty() {
                break;
            }
            window.push(block);
        }
        Ok(window)
    }

    fn block(&mut self, block_rows: usize) -> Result<Vec<RecordBatch>> {
        let (mut block, mut missing) = (Vec::new(), block_rows);
        while missing > 0 {
            let batch = match self.rest.take() {
                Some(rest) => rest,
                None => match self.rows.next()? {
                    Some(batch) if self.intake.nulls == Nulls::Drop => {
                        self.intake.without_nulls(&batch)?
                    }
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
            block.push(batch.slice(0, take));
        }
        Ok(block)
    }
}

/// Row keys seen so far.
#[derive(Default)]
pub(super) struct UniqueKeys {
    converter: Option<RowConverter>,
    seen: HashSet<Box<[u8]>>,
}

impl UniqueKeys {
    /// # Errors
    /// The first key that has been there before.
    pub(super) fn check(&mut self, keys: &[ArrayRef]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let converter = match &mut self.converter {
            Some(converter) => converter,
            none => {
                let fields = keys.iter().map(|key| SortField::new(key.data_type().clone()));
                none.insert(RowConverter::new(fields.collect())?)
            }
        };
        let rows = converter.convert_columns(keys)?;
        for (at, row) in rows.iter().enumerate() {
            if !self.seen.insert(row.data().into()) {
                let fields = keys.iter().map(|key| (String::new(), Arc::clone(key))).collect();
                let key = format!("'{}'", Labels::new(fields).text(at));
                return Err(ErrorKind::Duplicate {
                    what: "row",
                    key,
                    hint: "; ROWS BY needs a unique key",
                }
                .into());
            }
        }
        Ok(())
    }
}
