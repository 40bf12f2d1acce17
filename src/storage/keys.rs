//! Columns whose values no two rows share: PRIMARY KEY, UNIQUE and CREATE UNIQUE INDEX.
//!
//! The keys of all rows are kept as a set of Arrow's row encoding, made at the first insert that needs
//! it and dropped where rows go or change, so that loading and reading cost nothing.

use std::collections::HashSet;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Schema};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::array_value_to_string;

use super::batch::Batch;
use crate::error::{Error, ErrorKind, Result};

/// A declared key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// The index that made it, where one did.
    pub(crate) index: Option<String>,
    pub(crate) columns: Vec<usize>,
    pub(crate) primary: bool,
}

/// A key with the values that are taken.
#[derive(Debug)]
pub(super) struct UniqueKey {
    pub(super) key: Key,
    /// `None` where it has to be made anew from all rows.
    taken: Option<HashSet<Box<[u8]>>>,
}

impl UniqueKey {
    pub(super) fn new(key: Key) -> Self {
        Self { key, taken: None }
    }

    /// Forgets the values, because rows went or changed.
    pub(super) fn forget(&mut self) {
        self.taken = None;
    }

    /// The keys of `rows`, checked against each other and against those of `present`.
    ///
    /// Nothing is kept yet: the rows are in only when [`UniqueKey::keep`] is told so, after every other
    /// key of the table has agreed.
    pub(super) fn check(
        &mut self,
        schema: &Schema,
        present: &[Batch],
        rows: &[Batch],
    ) -> Result<HashSet<Box<[u8]>>> {
        let taken = match self.taken.take() {
            Some(taken) => taken,
            None => self.encode(schema, present, &HashSet::new())?,
        };
        let new = self.encode(schema, rows, &taken);
        self.taken = Some(taken);
        new
    }

    /// Takes the keys that [`UniqueKey::check`] found free.
    pub(super) fn keep(&mut self, new: HashSet<Box<[u8]>>) {
        match &mut self.taken {
            Some(taken) => taken.extend(new),
            None => self.taken = Some(new),
        }
    }

    /// The keys of all rows; a NULL differs from every other value, so rows with one have none.
    fn encode(
        &self,
        schema: &Schema,
        batches: &[Batch],
        taken: &HashSet<Box<[u8]>>,
    ) -> Result<HashSet<Box<[u8]>>> {
        let columns = &self.key.columns;
        let types = columns.iter().map(|&column| schema.field(column).data_type());
        let fields = types.map(|data_type: &DataType| SortField::new(data_type.clone())).collect();
        let converter = RowConverter::new(fields)?;
        let mut found = HashSet::new();
        for batch in batches {
            let values = columns.iter().map(|&column| batch.column(column));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            let encoded = converter.convert_columns(&values)?;
            for row in 0..batch.num_rows() {
                if values.iter().any(|column| column.is_null(row)) {
                    continue;
                }
                let key: Box<[u8]> = encoded.row(row).as_ref().into();
                if taken.contains(&key) || !found.insert(key) {
                    return Err(self.violation(schema, &values, row));
                }
            }
        }
        Ok(found)
    }

    /// What a row breaks that has these values in the columns of the key.
    fn violation(&self, schema: &Schema, values: &[ArrayRef], row: usize) -> Error {
        let part = |(&column, values): (&usize, &ArrayRef)| {
            let value = array_value_to_string(values, row).unwrap_or_default();
            format!("{} = {value}", schema.field(column).name())
        };
        let parts: Vec<_> = self.key.columns.iter().zip(values).map(part).collect();
        let (what, hint) = match self.key {
            Key { primary: true, .. } => ("primary key", "; it holds each value once"),
            Key { .. } => ("unique key", "; it holds each value once"),
        };
        ErrorKind::Duplicate { what, key: parts.join(", "), hint }.into()
    }
}
