//! Where cells are: in memory, or in a file because memory has no room for them.

use std::ops::Range;

use arrow::array::{Array, ArrayData, ArrayRef, make_array};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::ArrowNativeType;
use arrow::error::ArrowError;
use bytemuck::Pod;

use super::{CellBuffer, Cells, Csr, Dense, Labels, Matrix, Scalar, Storage};
use crate::memory::{self, MAPPED_BYTES_MIN, Shelf};
use crate::with_storage;

/// The bytes of values.
fn bytes<T: ArrowNativeType + Pod>(values: &ScalarBuffer<T>) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Whether all of these are in memory.
fn is_in_memory<T: ArrowNativeType>(values: &ScalarBuffer<T>) -> bool {
    !memory::is_on_disk(values.inner())
}

/// The same values in a file; as they are where they are too few for that. None where the disk has no room.
fn on_disk<T: ArrowNativeType + Pod>(values: &ScalarBuffer<T>) -> Option<ScalarBuffer<T>> {
    if size_of_val::<[T]>(values) < MAPPED_BYTES_MIN || !is_in_memory(values) {
        return Some(values.clone());
    }
    let mut copy = CellBuffer::<T>::in_file(values.len())?;
    memory::copy(&mut copy, values);
    Some(copy.into())
}

/// The same values in memory; none where it has no room.
fn in_memory<T: ArrowNativeType + Pod>(values: &ScalarBuffer<T>) -> Option<ScalarBuffer<T>> {
    if is_in_memory(values) {
        return Some(values.clone());
    }
    let mut copy = CellBuffer::<T>::mapped(values.len())?;
    if memory::is_on_disk(bytemuck::cast_slice(&copy)) {
        return None;
    }
    memory::copy(&mut copy, values);
    Some(copy.into())
}

/// Whether somebody else has these values too.
fn is_shared<T: ArrowNativeType>(values: &ScalarBuffer<T>) -> bool {
    values.inner().strong_count() > 1
}

#[cfg(test)]
impl<T: Scalar> Dense<T> {
    /// The same cells in a file of their own, whatever their number.
    pub(crate) fn in_a_file(&self) -> Option<Self> {
        let mut copy = CellBuffer::in_file(self.shape().cells())?;
        copy.copy_from_slice(self.cells());
        Some(Self::new(self.shape(), copy.into()))
    }
}

impl<T: Scalar> Storage<T> {
    fn memory_bytes(&self) -> usize {
        match self {
            Storage::Dense(x) => {
                if is_in_memory(x.buffer()) {
                    self.size_bytes()
                } else {
                    0
                }
            }
            Storage::Csr(x) => {
                let of = |is_there: bool, bytes: usize| if is_there { bytes } else { 0 };
                of(is_in_memory(x.values()), x.stored() * size_of::<T>())
                    + of(is_in_memory(x.columns()), x.stored() * 4)
                    + of(is_in_memory(x.offsets()), (x.shape().rows + 1) * 8)
            }
        }
    }

    fn on_disk(&self) -> Option<Self> {
        Some(match self {
            Storage::Dense(x) => Storage::Dense(Dense::new(x.shape(), on_disk(x.buffer())?)),
            Storage::Csr(x) => Storage::Csr(Csr::new(
                x.shape(),
                on_disk(x.offsets())?,
                on_disk(x.columns())?,
                on_disk(x.values())?,
            )),
        })
    }
}

impl<T: Scalar> Storage<T> {
    fn in_memory(&self) -> Option<Self> {
        Some(match self {
            Storage::Dense(x) => Storage::Dense(Dense::new(x.shape(), in_memory(x.buffer())?)),
            Storage::Csr(x) => Storage::Csr(Csr::new(
                x.shape(),
                in_memory(x.offsets())?,
                in_memory(x.columns())?,
                in_memory(x.values())?,
            )),
        })
    }

    fn is_shared(&self) -> bool {
        match self {
            Storage::Dense(x) => is_shared(x.buffer()),
            Storage::Csr(x) => {
                is_shared(x.offsets()) || is_shared(x.columns()) || is_shared(x.values())
            }
        }
    }
}

/// The same values in a file, whatever their number.
fn shelved<T: ArrowNativeType + Pod>(
    values: &ScalarBuffer<T>,
    shelf: &mut Shelf,
) -> Option<ScalarBuffer<T>> {
    Some(ScalarBuffer::from(shelf.put(bytes(values))?))
}

impl<T: Scalar> Storage<T> {
    fn shelved(&self, shelf: &mut Shelf) -> Option<Self> {
        Some(match self {
            Storage::Dense(x) => Storage::Dense(Dense::new(x.shape(), shelved(x.buffer(), shelf)?)),
            Storage::Csr(x) => Storage::Csr(Csr::new(
                x.shape(),
                shelved(x.offsets(), shelf)?,
                shelved(x.columns(), shelf)?,
                shelved(x.values(), shelf)?,
            )),
        })
    }

    /// Those of the cells of some rows that lie as they are.
    fn parts(&self, rows: Range<usize>) -> [&[u8]; 2] {
        match self {
            Storage::Dense(x) => {
                let columns = x.shape().columns;
                [bytemuck::cast_slice(&x.cells()[rows.start * columns..rows.end * columns]), &[]]
            }
            Storage::Csr(x) => {
                let stored = x.offsets()[rows.start] as usize..x.offsets()[rows.end] as usize;
                let (columns, values) = (&x.columns()[stored.clone()], &x.values()[stored]);
                [bytemuck::cast_slice(columns), bytemuck::cast_slice(values)]
            }
        }
    }
}

impl Cells {
    /// The same cells on a shelf; none where the disk has no room.
    pub(crate) fn shelved(&self, shelf: &mut Shelf) -> Option<Self> {
        with_storage!(self, storage => storage.shelved(shelf).map(Cells::from))
    }

    /// Says that nobody will want these rows soon.
    pub(crate) fn done_with(&self, rows: Range<usize>) {
        with_storage!(self, storage => storage.parts(rows).into_iter().for_each(memory::done_with));
    }

    /// Says that somebody will want these rows soon.
    pub(crate) fn will_need(&self, rows: Range<usize>) {
        with_storage!(self, storage => storage.parts(rows).into_iter().for_each(memory::will_need));
    }

    /// Whether the first of them are in a file.
    pub(crate) fn is_on_disk(&self) -> bool {
        let first = 0..self.shape().rows;
        with_storage!(self, storage => storage.parts(first).into_iter().any(memory::is_on_disk))
    }

    /// Bytes of those that are in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        with_storage!(self, storage => storage.memory_bytes())
    }

    /// The same cells in memory; none where it has no room.
    pub(crate) fn in_memory(&self) -> Option<Self> {
        with_storage!(self, storage => storage.in_memory().map(Cells::from))
    }

    /// Whether somebody else reads them.
    pub(crate) fn is_shared(&self) -> bool {
        with_storage!(self, storage => storage.is_shared())
    }

    /// The same cells in files, but for what is small; none where the disk has no room.
    pub(crate) fn on_disk(&self) -> Option<Self> {
        with_storage!(self, storage => storage.on_disk().map(Cells::from))
    }
}

impl Labels {
    /// All labels of the parts, in order, as [`Labels::concat`]: numbers that memory has no room for are in a file.
    ///
    /// # Errors
    /// Where the parts differ in key columns or types.
    pub(crate) fn joined(parts: &[Labels]) -> Result<Self, ArrowError> {
        let Some(joined) = parts.first().and_then(|first| {
            let columns = 0..first.fields().len();
            columns.map(|at| joined_numbers(parts, at)).collect::<Option<Vec<_>>>()
        }) else {
            return Self::concat(parts);
        };
        let names = parts[0].fields().iter().map(|(name, _)| name.clone());
        Ok(Self::new(names.zip(joined).collect()))
    }

    /// The same labels in a file; as they are where they are few or in one.
    fn on_disk(&self) -> Option<Self> {
        if self.size_bytes() < MAPPED_BYTES_MIN || self.disk_bytes() > 0 {
            return Some(self.clone());
        }
        let mut shelf = Shelf::default();
        let fields = self
            .fields()
            .iter()
            .map(|(name, keys)| Some((name.clone(), memory::shelved_column(keys, &mut shelf)?)));
        Some(Self::new(fields.collect::<Option<_>>()?))
    }

    /// Bytes of those that are in files.
    fn disk_bytes(&self) -> usize {
        let buffers = self.buffers();
        buffers.iter().filter(|bytes| memory::is_on_disk(bytes)).map(Buffer::len).sum()
    }
}

/// A key column of all parts; none where it is not of numbers without NULL, or memory has room for it.
fn joined_numbers(parts: &[Labels], at: usize) -> Option<ArrayRef> {
    let arrays = || parts.iter().map(|part| part.fields().get(at).map(|(_, keys)| keys));
    let data_type = arrays().next()??.data_type();
    let width = data_type.primitive_width()?;
    let is_same = |keys: &ArrayRef| keys.data_type() == data_type && keys.null_count() == 0;
    if !arrays().all(|keys| keys.is_some_and(is_same)) {
        return None;
    }
    let count: usize = parts.iter().map(Labels::len).sum();
    if memory::has_room(count * width) {
        return None;
    }
    let mut joined = CellBuffer::<u8>::arbitrary(count * width);
    let mut left = &mut joined[..];
    for keys in arrays().flatten() {
        let data = keys.to_data();
        let bytes = &data.buffers()[0][data.offset() * width..][..keys.len() * width];
        let (target, rest) = left.split_at_mut(bytes.len());
        memory::copy(target, bytes);
        left = rest;
    }
    let joined = ScalarBuffer::from(joined).into_inner();
    let data = ArrayData::builder(data_type.clone()).len(count).add_buffer(joined);
    Some(make_array(data.build().ok()?))
}

impl Matrix {
    /// Bytes of cells and labels that are in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let labels = [self.row_labels(), self.column_labels()];
        let on_disk: usize = labels.into_iter().flatten().map(Labels::disk_bytes).sum();
        self.size_bytes() - self.cells.size_bytes() + self.cells.memory_bytes() - on_disk
    }

    /// The same matrix with its cells in files, and labels where they are many; none where the disk has no room.
    pub(crate) fn on_disk(&self) -> Option<Self> {
        let on_disk = |labels: Option<&Labels>| match labels {
            None => Some(None),
            Some(labels) => labels.on_disk().map(Some),
        };
        let (rows, columns) = (on_disk(self.row_labels())?, on_disk(self.column_labels())?);
        Some(Self { cells: self.cells.on_disk()?, ..self.clone() }.with_labels(rows, columns))
    }

    /// The same matrix with its cells in memory; none where it has no room.
    pub(crate) fn in_memory(&self) -> Option<Self> {
        Some(Self { cells: self.cells.in_memory()?, ..self.clone() })
    }

    /// Whether somebody else reads its cells.
    pub(crate) fn is_shared(&self) -> bool {
        self.cells.is_shared()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::testing::on_disk;
    use super::*;

    #[test]
    fn labels_that_memory_has_no_room_for_are_the_same_in_a_file() {
        let count = 2 * MAPPED_BYTES_MIN as i64 / 8;
        let all: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
        let texts = StringArray::from_iter_values((0..count).map(|at| (at % 10).to_string()));
        let texts: ArrayRef = Arc::new(texts);
        let parts = |columns: &[&ArrayRef]| {
            let part = |(start, end): (i64, i64)| {
                let cut = |keys: &&ArrayRef| keys.slice(start as usize, (end - start) as usize);
                let named = |keys| ("k".to_owned(), keys);
                Labels::new(columns.iter().map(cut).map(named).collect())
            };
            [(0, 5), (5, 5), (5, count / 3), (count / 3, count)].map(part)
        };
        let (numbers, both) = (parts(&[&all]), parts(&[&all, &texts]));
        let joined = on_disk::<f64, _>(0, |_| {
            let joined = Labels::joined(&numbers).unwrap();
            assert_eq!(joined.disk_bytes(), 2 * MAPPED_BYTES_MIN);
            assert_eq!(joined, Labels::concat(&numbers).unwrap());
            Labels::joined(&both).unwrap()
        });
        assert_eq!(joined, Labels::concat(&both).unwrap());
        assert_eq!(joined.disk_bytes(), 0);
        let away = on_disk::<f64, _>(0, |_| {
            let away = joined.on_disk().unwrap();
            assert!(away.disk_bytes() >= joined.size_bytes() * 9 / 10, "{}", away.disk_bytes());
            // What is theirs of the file, and not the room of all of it.
            assert!(away.disk_bytes() <= away.size_bytes());
            assert!(away.size_bytes() <= joined.size_bytes(), "{}", away.size_bytes());
            away == joined
        });
        assert!(away);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A pool with little room, for tests of what works on matrices in files.

    use std::sync::Arc;

    use crate::config::Directory;
    use crate::matrix::{Dense, Scalar};
    use crate::memory::{Disk, Pool, PoolLimits};

    /// Puts a matrix into a file.
    pub(crate) type Put<T> = fn(&Dense<T>) -> Dense<T>;

    /// Runs on two threads whose pool has room for so many bytes of blocks, and files for the others.
    pub(crate) fn on_disk<T: Scalar, R: Send>(
        room_bytes: usize,
        work: impl FnOnce(Put<T>) -> R + Send,
    ) -> R {
        let quota_bytes = 4 << 30;
        let disk =
            Disk::new(vec![Directory { quota_bytes, ..Directory::at(std::env::temp_dir()) }]);
        let limits = PoolLimits {
            idle_bytes: 0,
            total_bytes: room_bytes,
            resident_bytes: usize::MAX,
            poison: true,
        };
        let pool = Pool::on(disk, limits);
        let served = Arc::clone(&pool);
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(2)
            .start_handler(move |_| served.serve_this_thread())
            .build()
            .unwrap();
        threads.install(|| work(|x| x.in_a_file().expect("the disk has room")))
    }
}
