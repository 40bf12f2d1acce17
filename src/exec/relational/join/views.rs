//! Texts that point into buffers, of which they may need little.
//!
//! What a join gathers of a table points into the buffers of the whole table, and so does each batch of it. Such
//! batches take the memory of the table as long as one of them is held, and what is made of many of them has so
//! many buffers that handing it on takes longer than copying its texts would.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray, RecordBatch};
use arrow::datatypes::{ByteViewType, DataType};
use datafusion::error::Result;

use super::spec::batch;

/// Bytes of buffers that are not worth a copy.
const SLACK_BYTES: usize = 64 << 10;

/// Buffers of one column, above which its texts are copied together.
const BUFFERS_MAX: usize = 64;

/// Rows whose views point to no more than about twice the bytes that they need.
pub(super) fn compacted(rows: &RecordBatch) -> Result<RecordBatch> {
    let columns = rows.columns().iter().map(compacted_column).collect();
    batch(rows.schema_ref(), columns, rows.num_rows())
}

/// The same for one column.
pub(super) fn compacted_column(column: &ArrayRef) -> ArrayRef {
    let copy: Option<ArrayRef> = match column.data_type() {
        DataType::Utf8View => copied(column.as_string_view()).map(|copy| Arc::new(copy) as _),
        DataType::BinaryView => copied(column.as_binary_view()).map(|copy| Arc::new(copy) as _),
        _ => None,
    };
    copy.unwrap_or_else(|| Arc::clone(column))
}

/// A copy; none where it would not be worth it.
fn copied<T: ByteViewType>(column: &GenericByteViewArray<T>) -> Option<GenericByteViewArray<T>> {
    let bytes: usize = column.data_buffers().iter().map(|buffer| buffer.capacity()).sum();
    let is_sparse = bytes > SLACK_BYTES && bytes > 2 * column.total_buffer_bytes_used();
    (is_sparse || column.data_buffers().len() > BUFFERS_MAX).then(|| column.gc())
}

/// Bytes of these rows alone, whatever their buffers hold besides.
pub(super) fn row_bytes(rows: &RecordBatch) -> usize {
    rows.columns().iter().map(column_bytes).sum()
}

/// The same for one column.
pub(super) fn column_bytes(column: &ArrayRef) -> usize {
    let texts = match column.data_type() {
        DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
        _ => 0,
    };
    column.to_data().get_slice_memory_size().unwrap_or(0) + texts
}
