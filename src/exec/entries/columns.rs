//! Columns of labels that memory has no room for: they come part by part, and are one column each at the end.
//!
//! Enters: some rows of all columns. Leaves: the columns, in blocks of cells, which may be files where the heap is not.

use arrow::array::{Array, ArrayData, ArrayRef, ByteView, UInt32Array, make_array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{concat, take};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::places::{Files, done_with};
use crate::error::Result;
use crate::matrix::CellBuffer;
use crate::memory::{self, shelved_column};

/// Rows of a part.
pub(super) const ROWS_AT_ONCE: usize = 1 << 13;

/// Bytes of a text that a view itself has room for.
const INLINE_BYTES_MAX: u32 = 12;

/// What a part holds, as an error names it.
const WHAT: &str = "the labels of a relation";

/// Columns of these types, part by part.
pub(super) struct Columns<'a> {
    types: &'a [DataType],
    parts: Vec<Vec<ArrayRef>>,
}

impl<'a> Columns<'a> {
    pub(super) fn new(types: &'a [DataType]) -> Self {
        Self { types, parts: vec![Vec::new(); types.len()] }
    }

    /// Puts some rows of all columns into files.
    ///
    /// # Errors
    /// Where a disk has no room.
    pub(super) fn push(&mut self, columns: Vec<ArrayRef>, files: &mut Files<'_>) -> Result<()> {
        for (parts, column) in self.parts.iter_mut().zip(columns) {
            let part = shelved_column(&column, &mut files.shelf);
            parts.push(
                part.ok_or_else(|| files.budget.disk_spent(WHAT, column.get_array_memory_size()))?,
            );
        }
        Ok(())
    }

    /// The columns.
    ///
    /// # Errors
    /// Where texts have more bytes together than their type allows.
    pub(super) fn joined(self) -> Result<Vec<ArrayRef>> {
        self.parts.iter().zip(self.types).map(|(parts, of)| joined(parts, of)).collect()
    }
}

/// The rows of columns in these places.
///
/// # Errors
/// Those of [`Columns`].
pub(super) fn taken(
    columns: &[ArrayRef],
    places: &[u32],
    files: &mut Files<'_>,
) -> Result<Vec<ArrayRef>> {
    let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
    let mut made = Columns::new(&types);
    for places in places.chunks(ROWS_AT_ONCE) {
        files.cancel.check()?;
        let places = UInt32Array::from(places.to_vec());
        let part = columns.iter().map(|column| take(column, &places, None));
        made.push(part.collect::<std::result::Result<_, _>>()?, files)?;
    }
    made.joined()
}

/// Parts of a column as one.
///
/// # Errors
/// Where texts have more bytes together than their type allows.
fn joined(parts: &[ArrayRef], of: &DataType) -> Result<ArrayRef> {
    if let [part] = parts {
        return Ok(ArrayRef::clone(part));
    }
    let rows = parts.iter().map(|part| part.len()).sum();
    let parts_data = parts.iter().map(|part| part.to_data());
    let builder = ArrayData::builder(of.clone()).len(rows);
    let data = match of {
        DataType::Utf8View | DataType::BinaryView => {
            let mut views = CellBuffer::<u8>::arbitrary(rows * size_of::<u128>());
            let (mut filled, mut buffers) = (0, Vec::new());
            for part in parts_data {
                let first = filled;
                for &view in part.buffer::<u128>(0).iter().take(part.len()) {
                    let mut view = ByteView::from(view);
                    if view.length > INLINE_BYTES_MAX {
                        view.buffer_index += buffers.len() as u32;
                    }
                    let bytes = view.as_u128().to_ne_bytes();
                    views[filled..filled + bytes.len()].copy_from_slice(&bytes);
                    filled += bytes.len();
                }
                memory::done_with(&part.buffers()[0]);
                memory::done_with(&views[first..filled]);
                buffers.extend_from_slice(&part.buffers()[1..]);
            }
            builder.add_buffer(ScalarBuffer::from(views).into_inner()).add_buffers(buffers)
        }
        DataType::Utf8 | DataType::Binary => {
            let bytes: usize = parts_data.clone().map(|part| part.buffers()[1].len()).sum();
            if i32::try_from(bytes).is_err() {
                return Err(ArrowError::OffsetOverflowError(bytes).into());
            }
            let mut ends = CellBuffer::<i32>::arbitrary(rows + 1);
            let mut values = CellBuffer::<u8>::arbitrary(bytes);
            let (mut row, mut filled) = (0, 0);
            ends[0] = 0;
            for part in parts_data {
                let offsets = &part.buffer::<i32>(0)[..part.len() + 1];
                let range = offsets[0] as usize..offsets[part.len()] as usize;
                for &end in &offsets[1..] {
                    row += 1;
                    ends[row] = filled as i32 + end - offsets[0];
                }
                let (from, to) = (&part.buffers()[1][range.clone()], filled..filled + range.len());
                memory::copy(&mut values[to], from);
                filled += range.len();
            }
            let ends = ScalarBuffer::from(ends).into_inner();
            builder.add_buffer(ends).add_buffer(ScalarBuffer::from(values).into_inner())
        }
        _ => match of.primitive_width() {
            Some(width) => {
                let mut values = CellBuffer::<u8>::arbitrary(rows * width);
                let mut filled = 0;
                for part in parts_data {
                    let bytes = &part.buffers()[0][part.offset() * width..][..part.len() * width];
                    memory::copy(&mut values[filled..filled + bytes.len()], bytes);
                    filled += bytes.len();
                }
                builder.add_buffer(ScalarBuffer::from(values).into_inner())
            }
            None => {
                let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                return Ok(concat(&parts)?);
            }
        },
    };
    parts.iter().for_each(done_with);
    // All of it is looked at as it is made.
    let joined = make_array(data.build()?);
    done_with(&joined);
    Ok(joined)
}
