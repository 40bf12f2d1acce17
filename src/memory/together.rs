//! Columns that stay, in a piece of memory that is theirs alone.
//!
//! Enters: columns that lie wherever they were made. Leaves: the same, one behind another. What stays for long was made among
//! buffers that are gone soon, and an allocator which has both in a page can give back neither: tables of 448 MB had the process
//! hold 178 more, and 62 once they lie so.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, make_array};
use arrow::buffer::Buffer;
use bytes::Bytes;
use memmap2::MmapMut;

use super::buffers::{for_each_buffer, with_buffers};
use super::is_on_disk;
use super::kept::compact;

/// Columns of fewer bytes stay where they are: what a piece loses to its last page is then more than a hundredth.
const PIECE_BYTES_MIN: usize = 64 << 10;

/// Pieces of a process, for a system knows a limited number of them (65,530 on Linux), and other things need some.
const PIECES_MAX: usize = 32 << 10;

/// Where a buffer may begin, as the allocator has it.
const ALIGNMENT: usize = 64;

static PIECES: AtomicUsize = AtomicUsize::new(0);

/// Memory of the system's, given back when nobody has any part of it.
struct Piece(MmapMut);

impl Piece {
    /// So many zeros; none where the system has none, or there are too many pieces already.
    fn new(bytes: usize) -> Option<Self> {
        let has_place = PIECES.fetch_add(1, Ordering::Relaxed) < PIECES_MAX;
        let map = has_place.then(|| MmapMut::map_anon(bytes).ok()).flatten();
        if map.is_none() {
            PIECES.fetch_sub(1, Ordering::Relaxed);
        }
        map.map(Self)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        PIECES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A buffer in a piece. To whoever counts bytes it is one of its own, for a column that somebody keeps is not all of them.
struct Part {
    piece: Arc<Piece>,
    place: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.piece.0[self.place.clone()]
    }
}

/// Puts columns one behind another in memory of their own; where they are too few bytes for that, in a file, or where the system
/// gives no memory, they stay where they are.
pub(crate) fn lay_together(columns: &mut [&mut ArrayRef]) {
    let alone = |column: &ArrayRef| compact(column).unwrap_or_else(|| Arc::clone(column)).to_data();
    let all: Vec<_> = columns.iter().map(|column| alone(column)).collect();
    let mut buffers = Vec::new();
    all.iter().for_each(|data| for_each_buffer(data, &mut |buffer| buffers.push(buffer)));
    let places = buffers.iter().scan(0_usize, |next, buffer| {
        let first: usize = next.next_multiple_of(ALIGNMENT);
        *next = first + buffer.len();
        Some(first..*next)
    });
    let places: Vec<_> = places.collect();
    let bytes = places.last().map_or(0, |last| last.end);
    if bytes < PIECE_BYTES_MIN || buffers.iter().any(|buffer| is_on_disk(buffer)) {
        return;
    }
    let Some(mut piece) = Piece::new(bytes) else { return };
    for (place, buffer) in places.iter().zip(buffers) {
        piece.0[place.clone()].copy_from_slice(buffer);
    }
    let piece = Arc::new(piece);
    let parts = places.into_iter().map(|place| Part { piece: Arc::clone(&piece), place });
    let mut copies = parts.map(|part| Buffer::from(Bytes::from_owner(part)));
    for (column, data) in columns.iter_mut().zip(&all) {
        if let Some(data) = with_buffers(data, &mut |_| copies.next()) {
            **column = make_array(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, DictionaryArray, Int16Array, StringArray, StringViewArray, StructArray,
    };
    use arrow::datatypes::{DataType, Field, UInt8Type};

    use super::*;

    /// Columns of many types, some rows of which are NULL.
    fn columns(rows: usize) -> Vec<ArrayRef> {
        let there = |row: usize| !row.is_multiple_of(7);
        let number = |row| there(row).then_some((row % 1000) as i16);
        let text = |row| there(row).then(|| format!("a text of a row, the {row}th"));
        let few = |row| there(row).then_some(if row % 2 == 0 { "even" } else { "odd" });
        let texts: StringArray = (0..rows).map(text).collect();
        let field = Arc::new(Field::new("text", DataType::Utf8, true));
        vec![
            Arc::new((0..rows).map(number).collect::<Int16Array>()),
            Arc::new((0..rows).map(|row| Some(row % 3 == 0)).collect::<BooleanArray>()),
            Arc::new(texts.clone()),
            Arc::new((0..rows).map(text).collect::<StringViewArray>()),
            Arc::new((0..rows).map(few).collect::<DictionaryArray<UInt8Type>>()),
            Arc::new(StructArray::from(vec![(field, Arc::new(texts) as ArrayRef)])),
            Arc::new(Int16Array::from(Vec::<i16>::new())),
        ]
    }

    fn lay(mut columns: Vec<ArrayRef>) -> Vec<ArrayRef> {
        lay_together(&mut columns.iter_mut().collect::<Vec<_>>());
        columns
    }

    fn starts(column: &ArrayRef) -> Vec<usize> {
        let (data, mut starts) = (column.to_data(), Vec::new());
        for_each_buffer(&data, &mut |buffer| starts.push(buffer.as_ptr() as usize));
        starts
    }

    #[test]
    fn columns_are_the_same_elsewhere_and_count_for_what_they_are() {
        let all = columns(8192);
        for (first, rows) in [(0, 8192), (13, 8000)] {
            let of: Vec<ArrayRef> = all
                .iter()
                .map(|column| column.slice(first.min(column.len()), rows.min(column.len())))
                .collect();
            let laid = lay(of.clone());
            assert_eq!(laid, of);
            let starts: Vec<usize> = laid.iter().flat_map(starts).collect();
            assert!(starts.iter().all(|start| start.is_multiple_of(ALIGNMENT)));
            assert!(starts.is_sorted() && starts[starts.len() - 1] - starts[0] < 2 << 20);
            // A column that somebody keeps counts for itself alone, and is there when the others are gone.
            let bytes = |column: &ArrayRef| column.get_buffer_memory_size();
            assert!(laid.iter().zip(&of).all(|(laid, of)| bytes(laid) <= bytes(of)));
            let text = laid.into_iter().nth(2).unwrap();
            assert_eq!(&text, &of[2]);
        }
    }

    #[test]
    fn few_bytes_stay_where_they_are() {
        let of = columns(100);
        assert_eq!(
            lay(of.clone()).iter().map(starts).collect::<Vec<_>>(),
            of.iter().map(starts).collect::<Vec<_>>()
        );
    }
}
