//! Rows that stay: those of tables, and answers that are collected.
//!
//! Enters: batches. Leaves: the same, in memory while the limit has room for them, else where they lie in a file, whose
//! pages the system brings in as they are read.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, make_array,
};
use arrow::buffer::Buffer;
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use rustc_hash::FxHashSet;

use super::buffers::{for_each_buffer, with_buffers};
use super::{Shelf, is_on_disk};

/// Buffers shorter than this stay in memory: a file would not hold them for less.
const SHELVED_BYTES_MIN: usize = 4 << 10;

/// What is kept for one owner: how much of it is in memory, and a place for the rest.
#[derive(Debug)]
pub(crate) struct Kept {
    pool: Arc<dyn MemoryPool>,
    reservation: MemoryReservation,
    shelf: Shelf,
}

impl Kept {
    /// Nothing yet, counted under this name.
    pub(crate) fn new(name: impl Into<String>, pool: &Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new(name).register(pool);
        Self { pool: Arc::clone(pool), reservation, shelf: Shelf::default() }
    }

    /// The same rows, in memory or in a file. Where neither has room they stay where they are, and count.
    pub(crate) fn keep(&mut self, batch: RecordBatch) -> RecordBatch {
        let bytes = get_record_batch_memory_size(&batch);
        if self.has_room(bytes) && self.reservation.try_grow(bytes).is_ok() {
            return batch;
        }
        match shelved(&batch, &mut self.shelf) {
            Some(shelved) => shelved,
            None => {
                self.reservation.grow(bytes);
                batch
            }
        }
    }

    /// Whether half of the limit is left beside so many more bytes: operators need memory to go on at all.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        match self.pool.memory_limit() {
            MemoryLimit::Finite(limit) => self.pool.reserved().saturating_add(bytes) <= limit / 2,
            MemoryLimit::Infinite | MemoryLimit::Unknown => true,
        }
    }

    /// Counts these batches and nothing else.
    pub(crate) fn recount<'b>(&mut self, batches: impl IntoIterator<Item = &'b RecordBatch>) {
        // A dictionary that batches share counts once.
        let (mut bytes, mut known) = (0, FxHashSet::default());
        let columns = batches.into_iter().flat_map(RecordBatch::columns);
        for column in columns.filter(|column| !is_shelved(column)) {
            for_each_buffer(&column.to_data(), &mut |buffer| {
                if known.insert(buffer.data_ptr()) {
                    bytes += buffer.capacity();
                }
            });
        }
        self.reservation.shrink(self.reservation.size());
        self.reservation.grow(bytes);
    }

    /// Counts what is made of them, from the same memory.
    pub(crate) fn reservation(&self, name: &str) -> MemoryReservation {
        MemoryConsumer::new(name).register(&self.pool)
    }

    /// Bytes that are in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.reservation.size()
    }

    /// These batches, all that there are, in a file; none where one is not there or the disk has no room for them.
    pub(crate) fn put_away(
        &mut self,
        batches: impl IntoIterator<Item = Option<RecordBatch>>,
    ) -> Option<Vec<RecordBatch>> {
        let away = batches.into_iter().map(|batch| {
            let batch = batch?;
            // Some columns may be there already, where others were changed since.
            let columns = batch.columns().iter().map(|column| match is_shelved(column) {
                true => Some(Arc::clone(column)),
                false => shelved_column(column, &mut self.shelf),
            });
            with_columns(&batch, columns.collect::<Option<_>>()?)
        });
        let away = away.collect::<Option<Vec<_>>>()?;
        self.reservation.shrink(self.reservation.size());
        Some(away)
    }
}

/// The same rows, apart from those that their buffers hold too.
pub(crate) fn compacted(batch: &RecordBatch) -> RecordBatch {
    let columns = batch.columns().iter().map(compact).collect::<Option<_>>();
    let own = columns.and_then(|columns| with_columns(batch, columns));
    own.unwrap_or_else(|| batch.clone())
}

/// As many rows of other columns of the same types.
fn with_columns(batch: &RecordBatch, columns: Vec<ArrayRef>) -> Option<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).ok()
}

/// The same rows in files; none where the disk has no room.
pub(crate) fn shelved(batch: &RecordBatch, shelf: &mut Shelf) -> Option<RecordBatch> {
    let columns = batch.columns().iter().map(|column| shelved_column(column, shelf));
    with_columns(batch, columns.collect::<Option<_>>()?)
}

/// The same values in files; none where the disk has no room.
pub(crate) fn shelved_column(column: &ArrayRef, shelf: &mut Shelf) -> Option<ArrayRef> {
    let data = compact(column)?.to_data();
    let mut shelve = |buffer: &Buffer| match buffer.len() < SHELVED_BYTES_MIN {
        true => Some(buffer.clone()),
        false => shelf.put(buffer),
    };
    Some(make_array(with_buffers(&data, &mut shelve)?))
}

/// The values of a column alone, where its buffers hold those of others too.
pub(super) fn compact(column: &ArrayRef) -> Option<ArrayRef> {
    match column.data_type() {
        DataType::Utf8View => return Some(Arc::new(column.as_string_view().gc())),
        DataType::BinaryView => return Some(Arc::new(column.as_binary_view().gc())),
        _ => {}
    }
    let own_bytes = column.to_data().get_slice_memory_size().unwrap_or(usize::MAX);
    if column.get_buffer_memory_size() / 2 <= own_bytes {
        return Some(Arc::clone(column));
    }
    let rows = UInt32Array::from_iter_values(0..u32::try_from(column.len()).ok()?);
    take(column, &rows, None).ok()
}

/// Whether rows are in a file, as far as they are enough for one.
pub(crate) fn is_away(batch: &RecordBatch) -> bool {
    batch.columns().iter().any(is_shelved)
}

/// Whether a column is in a file, as far as it is large enough for one.
fn is_shelved(column: &ArrayRef) -> bool {
    let (data, mut is_shelved) = (column.to_data(), false);
    for_each_buffer(&data, &mut |buffer| is_shelved |= is_on_disk(buffer));
    is_shelved
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, DictionaryArray, Int64Array, ListArray, StringArray, StringViewArray,
    };
    use arrow::datatypes::{Int64Type, UInt8Type};
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;
    use crate::config::Directory;
    use crate::memory::{Disk, Pool, PoolLimits};

    fn batch() -> RecordBatch {
        let rows = 0..20_000_i64;
        let texts =
            || rows.clone().map(|row| (row % 3 > 0).then(|| format!("the text of row {row}")));
        let lists = rows.clone().map(|row| (row % 5 > 0).then(|| vec![Some(row), None]));
        let few = rows.clone().map(|row| (row % 3 > 0).then(|| ["few", "texts"][row as usize % 2]));
        let columns: [(&str, ArrayRef); 6] = [
            (
                "n",
                Arc::new(Int64Array::from_iter(
                    rows.clone().map(|row| (row % 7 > 0).then_some(row)),
                )),
            ),
            ("b", Arc::new(BooleanArray::from_iter(rows.clone().map(|row| Some(row % 2 > 0))))),
            ("t", Arc::new(StringArray::from_iter(texts()))),
            ("v", Arc::new(StringViewArray::from_iter(texts()))),
            ("d", Arc::new(few.collect::<DictionaryArray<UInt8Type>>())),
            ("l", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
    }

    #[test]
    fn rows_that_memory_has_no_room_for_are_the_same_in_a_file() {
        let disk = Disk::new(vec![Directory::at(std::env::temp_dir())]);
        let limits =
            PoolLimits { idle_bytes: 0, total_bytes: 0, resident_bytes: 1 << 40, poison: false };
        let blocks = Pool::on(Arc::clone(&disk), limits);
        let work = || {
            blocks.serve_this_thread();
            let batch = batch();
            let bytes = get_record_batch_memory_size(&batch);
            let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes * 3));
            let mut kept = Kept::new("test", &pool);
            let first = kept.keep(batch.clone());
            let second = kept.keep(batch.clone());
            let part = kept.keep(batch.slice(100, 1000));
            assert_eq!((&first, &second, &part), (&batch, &batch, &batch.slice(100, 1000)));
            assert!(!first.columns().iter().any(is_shelved));
            // All but the bits, which are few bytes.
            assert_eq!(second.columns().iter().filter(|column| is_shelved(column)).count(), 5);
            assert_eq!(pool.reserved(), bytes);
            kept.recount(std::slice::from_ref(&second));
            let few_bytes = pool.reserved();
            assert!(few_bytes < SHELVED_BYTES_MIN, "{few_bytes}");
            // A column that is in memory again counts, and goes where the others are.
            let mut mixed = second.columns().to_vec();
            mixed[0] = Arc::clone(first.column(0));
            let mixed = with_columns(&second, mixed).unwrap();
            kept.recount(std::slice::from_ref(&mixed));
            assert!(pool.reserved() - few_bytes >= 20_000 * size_of::<i64>());
            let away = kept.put_away([Some(mixed)]).unwrap();
            assert!(is_shelved(away[0].column(0)) && away == std::slice::from_ref(&second));
            drop(away);
            kept.recount(&[first.clone(), second.clone()]);
            let away = kept.put_away([&first, &second].map(|batch| Some(batch.clone()))).unwrap();
            assert!(away.iter().all(is_away) && away == [first.clone(), second.clone()]);
            assert_eq!((pool.reserved(), kept.memory_bytes()), (0, 0));
            drop((kept, first, away));
            assert_eq!(second, batch);
            drop((second, part));
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        assert_eq!(disk.usage()[0].used_bytes, 0);
    }
}
