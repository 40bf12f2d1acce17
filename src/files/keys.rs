//! Labels in a table's file: the place of each key, and all keys as text.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::{Field, Schema};
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use arrow::row::{OwnedRow, RowConverter, SortField};

use crate::matrix::Labels;

use super::entries::place;
use super::flaw::{Checked, Flaw};

/// Where each key stands among labels that are all different.
pub(super) struct Places {
    converter: RowConverter,
    places: HashMap<OwnedRow, u32>,
}

impl Places {
    /// `None` where two labels are equal.
    pub(super) fn of(labels: &Labels) -> Checked<Option<Self>> {
        let columns: Vec<ArrayRef> =
            labels.fields().iter().map(|(_, array)| Arc::clone(array)).collect();
        let fields =
            columns.iter().map(|array| SortField::new(array.data_type().clone())).collect();
        let converter = RowConverter::new(fields)?;
        let keys = converter.convert_columns(&columns)?;
        let mut places = HashMap::with_capacity(labels.len());
        for (index, key) in keys.iter().enumerate() {
            if places.insert(key.owned(), place(index)?).is_some() {
                return Ok(None);
            }
        }
        Ok(Some(Self { converter, places }))
    }

    /// The place of each row's key; `name` is the dimension, for the error.
    pub(super) fn find(&self, columns: &[ArrayRef], name: &str) -> Checked<Vec<u32>> {
        let keys = self.converter.convert_columns(columns)?;
        let place = |key: arrow::row::Row<'_>| self.places.get(&key.owned()).copied();
        keys.iter()
            .map(|key| place(key).ok_or_else(|| Flaw::new(format!("an entry of no known {name}"))))
            .collect()
    }
}

/// Labels as hexadecimal text of an Arrow IPC stream: schema metadata holds nothing but text.
pub(super) fn encode(labels: &Labels) -> Checked<String> {
    let fields: Vec<Field> = labels
        .fields()
        .iter()
        .map(|(name, array)| Field::new(name, array.data_type().clone(), true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let columns = labels.fields().iter().map(|(_, array)| Arc::clone(array)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(labels.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    writer.write(&batch)?;
    let mut text = String::new();
    for byte in writer.into_inner()? {
        text.extend(
            [byte >> 4, byte & 15].map(|half| char::from_digit(half.into(), 16)).iter().flatten(),
        );
    }
    Ok(text)
}

/// The labels that [`encode`] wrote.
pub(super) fn decode(text: &str) -> Checked<Labels> {
    let broken = || Flaw::new("the labels in the schema's metadata cannot be read");
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    let bytes = text.as_bytes().as_chunks().0.iter().map(byte).collect::<Option<Vec<u8>>>();
    // The decoder waits for bytes that are not there, where a reader would allocate for them.
    let mut buffer = Buffer::from_vec(bytes.ok_or_else(broken)?);
    let batch = StreamDecoder::new().decode(&mut buffer)?.ok_or_else(broken)?;
    if batch.num_columns() == 0 {
        return Err(broken());
    }
    let names = batch.schema_ref().fields().iter().map(|field| field.name().clone());
    Ok(Labels::new(names.zip(batch.columns().iter().cloned()).collect()))
}
