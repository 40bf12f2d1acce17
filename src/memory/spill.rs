//! Where operators put rows that memory has no room for: DataFusion's temporary files, as pages on a [`Disk`].
//!
//! Enters: a stream of Arrow messages. Leaves: the same messages, one by one, from pages that were compressed and
//! carry a check sum. A message is handed out in bytes of its own, for DataFusion counts a batch by the whole of the
//! bytes that it points into.
//!
//! ```text
//! writer:  messages → a page of whole messages → compressed → its place in the file, its check sum
//! reader:  the next pages are read by threads for that while this one is decoded, as many as it takes for none to
//!          be late
//! ```

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arrow::buffer::{Buffer, MutableBuffer};
use arrow::ipc::root_as_message;
use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::spill_file::{SpillFile, SpillWriter, TempFileFactory};
use futures::Stream;

use super::ahead::{AheadBytes, Reach};
use super::codec::{compressed, decompressed};
use super::disk::{Disk, DiskFile};
use super::traffic::Traffic;

/// Makes files for DataFusion.
#[derive(Debug)]
pub(crate) struct Spills {
    disk: Arc<Disk>,
}

impl Spills {
    pub(crate) fn new(disk: Arc<Disk>) -> Self {
        Self { disk }
    }
}

impl TempFileFactory for Spills {
    fn create_temp_file(&self, _description: &str) -> Result<Arc<dyn SpillFile>> {
        Ok(Arc::new(Spilled::on(&self.disk)?))
    }
}

/// A file of pages. Pages are added and never change, so readers go on while somebody writes.
pub(super) struct Spilled(Arc<Mutex<Pages>>);

impl Spilled {
    /// An empty one.
    ///
    /// # Errors
    /// Where no directory takes a file.
    pub(super) fn on(disk: &Arc<Disk>) -> io::Result<Self> {
        let file = Arc::new(disk.file(0)?);
        let (pages, end, bytes) = Default::default();
        Ok(Self(Arc::new(Mutex::new(Pages { disk: Arc::clone(disk), file, end, pages, bytes }))))
    }
}

#[cfg(test)]
impl Spilled {
    pub(super) fn file(&self) -> Arc<DiskFile> {
        Arc::clone(&locked(&self.0).file)
    }

    /// Reads page after page, and none ahead.
    pub(super) fn each_page(&self, of: impl Fn(&[u8])) -> io::Result<()> {
        let pages = locked(&self.0).pages.clone();
        for page in &pages {
            of(&read(page, PageMemory::of(page))?);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Pages {
    disk: Arc<Disk>,
    /// Where pages are added: where its directory is full, the next ones go to one after it.
    file: Arc<DiskFile>,
    /// Bytes of it.
    end: u64,
    pages: Vec<Page>,
    /// Bytes written.
    bytes: u64,
}

/// A page as it is stored.
#[derive(Debug, Clone)]
struct Page {
    file: Arc<DiskFile>,
    offset: u64,
    stored_bytes: usize,
    checksum: u32,
    /// Before compression.
    bytes: usize,
    /// Where each message but the last ends.
    borders: Arc<[usize]>,
}

fn locked(pages: &Mutex<Pages>) -> MutexGuard<'_, Pages> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pages {
    /// Stores a page.
    ///
    /// # Errors
    /// Where no directory has room, and those of the disk.
    fn add(&mut self, bytes: &[u8], borders: &[usize]) -> io::Result<()> {
        let began = Instant::now();
        let (stored_bytes, checksum) = loop {
            let smaller = compressed(self.file.directory().compression, bytes)?;
            let stored = smaller.as_deref().unwrap_or(bytes);
            let Err(error) = self.file.append_at(stored, self.end) else {
                break (stored.len(), crc32fast::hash(stored));
            };
            let next = match error.kind() {
                ErrorKind::QuotaExceeded | ErrorKind::StorageFull => {
                    self.disk.file_after(&self.file, 0)
                }
                _ => None,
            };
            (self.file, self.end) = (Arc::new(next.ok_or(error)?), 0);
        };
        self.pages.push(Page {
            file: Arc::clone(&self.file),
            offset: self.end,
            stored_bytes,
            checksum,
            bytes: bytes.len(),
            borders: borders.into(),
        });
        self.end += stored_bytes as u64;
        self.bytes += stored_bytes as u64;
        self.file.traffic().written.add(began.elapsed());
        Ok(())
    }
}

/// A page's bytes as they were before they were stored.
fn read(page: &Page, memory: PageMemory) -> io::Result<Bytes> {
    let Page { file, .. } = page;
    let damaged = |why: &str| {
        let why = format!("it is damaged at byte {}: {why}", page.offset);
        file.failed("a file in", io::Error::new(ErrorKind::InvalidData, why))
    };
    let began = Instant::now();
    let PageMemory { mut stored, bytes } = memory;
    file.read_at(&mut stored, page.offset).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => damaged("it ends there"),
        _ => error,
    })?;
    if crc32fast::hash(&stored) != page.checksum {
        return Err(damaged("its check sum differs"));
    }
    let bytes = match bytes {
        None => stored,
        Some(mut bytes) => {
            let written = decompressed(file.directory().compression, &stored, &mut bytes)?;
            if written != page.bytes {
                return Err(damaged("it is shorter than it was"));
            }
            bytes
        }
    };
    file.traffic().read.add(began.elapsed());
    Ok(Bytes::from_owner(Aligned(bytes.into())))
}

/// What a page is read into. It is asked for by who will let it go: threads that only read would keep what others
/// free, each for itself.
struct PageMemory {
    stored: MutableBuffer,
    /// Where it goes from there, if it is compressed.
    bytes: Option<MutableBuffer>,
}

impl PageMemory {
    fn of(page: &Page) -> Self {
        let is_compressed = page.stored_bytes != page.bytes;
        let bytes = is_compressed.then(|| MutableBuffer::from_len_zeroed(page.bytes));
        Self { stored: MutableBuffer::from_len_zeroed(page.stored_bytes), bytes }
    }
}

/// Bytes that begin where Arrow wants them to, so that no batch is copied.
struct Aligned(Buffer);

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl SpillFile for Spilled {
    fn size(&self) -> Option<u64> {
        Some(locked(&self.0).bytes)
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        Ok(Box::pin(futures::stream::try_unfold(Reader::new(&self.0), Reader::message)))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        let page_bytes = locked(&self.0).file.directory().page_bytes;
        let (page, borders) = Default::default();
        Ok(Box::new(Writer { pages: Arc::clone(&self.0), page_bytes, page, borders, whole: 0 }))
    }
}

/// A file that is read from its beginning.
struct Reader {
    pages: Arc<Mutex<Pages>>,
    /// Where it is counted how long pages took.
    traffic: Arc<Traffic>,
    /// The page after those that are coming.
    next: usize,
    coming: VecDeque<Coming>,
    reach: Reach,
    messages: VecDeque<Bytes>,
}

/// A page on its way.
struct Coming {
    messages: SpawnedTask<io::Result<VecDeque<Bytes>>>,
    /// What it takes of the bytes that all readers may read ahead; the next page of each is free.
    _ahead: Option<AheadBytes>,
}

impl Reader {
    fn new(pages: &Arc<Mutex<Pages>>) -> Self {
        let traffic = Arc::clone(locked(pages).file.traffic());
        let (coming, messages) = Default::default();
        let (pages, reach) = (Arc::clone(pages), Reach::new());
        Self { pages, traffic, next: 0, coming, reach, messages }
    }

    async fn message(mut self) -> Result<Option<(Bytes, Self)>> {
        loop {
            if let Some(message) = self.messages.pop_front() {
                return Ok(Some((message, self)));
            }
            let was_asked = !self.coming.is_empty();
            if !was_asked && !self.read_next(None) {
                return Ok(None);
            }
            let Some(coming) = self.coming.pop_front() else { return Ok(None) };
            let began = Instant::now();
            let messages = coming.messages.join().await;
            let waited = began.elapsed();
            self.traffic.waited.add(waited);
            if was_asked {
                let most = locked(&self.pages).file.ahead_pages_max();
                self.reach.waited(waited, most);
            }
            self.messages = messages.map_err(|error| DataFusionError::External(error.into()))??;
            self.read_ahead();
        }
    }

    /// Begins to read pages that will be wanted: the next one, and more as far as the reach goes and all readers
    /// together have room.
    fn read_ahead(&mut self) {
        let file = Arc::clone(&locked(&self.pages).file);
        let page_bytes = file.directory().page_bytes.saturating_mul(2);
        while self.coming.len() < self.reach.pages() {
            let ahead = match self.coming.is_empty() {
                true => None,
                false => match file.ahead(page_bytes) {
                    None => return,
                    ahead => ahead,
                },
            };
            if !self.read_next(ahead) {
                return;
            }
            self.traffic.ahead.asked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins to read the next page, where there is one.
    fn read_next(&mut self, ahead: Option<AheadBytes>) -> bool {
        let Some(page) = locked(&self.pages).pages.get(self.next).cloned() else { return false };
        self.next += 1;
        let memory = PageMemory::of(&page);
        let messages = SpawnedTask::spawn_blocking(move || {
            let bytes = read(&page, memory)?;
            let ends = page.borders.iter().copied().chain([page.bytes]);
            let starts = [0].into_iter().chain(page.borders.iter().copied());
            Ok(starts.zip(ends).map(|(start, end)| bytes.slice(start..end)).collect())
        });
        self.coming.push_back(Coming { messages, _ahead: ahead });
        true
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.traffic.ahead.wasted.fetch_add(self.coming.len() as u64, Ordering::Relaxed);
    }
}

/// Gathers messages to pages.
struct Writer {
    pages: Arc<Mutex<Pages>>,
    page_bytes: usize,
    page: Vec<u8>,
    borders: Vec<usize>,
    /// Bytes of the page that are whole messages.
    whole: usize,
}

impl Writer {
    /// Finds the messages that are whole by now.
    fn divide(&mut self) {
        while let Some(bytes) = message_bytes(&self.page[self.whole..]) {
            let Some(end) = self.whole.checked_add(bytes).filter(|end| *end <= self.page.len())
            else {
                return;
            };
            if self.whole > 0 {
                self.borders.push(self.whole);
            }
            self.whole = end;
        }
    }

    /// Stores the first bytes of the page, and begins the next with the others.
    fn store(&mut self, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        locked(&self.pages).add(&self.page[..bytes], &self.borders)?;
        self.page.drain(..bytes);
        self.borders.clear();
        self.whole = 0;
        Ok(())
    }
}

/// Bytes of the Arrow message that begins here, as far as its head is there; of what is not one, all there are.
fn message_bytes(bytes: &[u8]) -> Option<usize> {
    const CONTINUATION: [u8; 4] = [0xff; 4];
    const HEAD_BYTES: usize = 8;
    let head = bytes.get(..HEAD_BYTES)?;
    let (mark, length) = head.split_at(4);
    if mark != CONTINUATION {
        return Some(bytes.len());
    }
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    if length == 0 {
        return Some(HEAD_BYTES);
    }
    let metadata = bytes.get(HEAD_BYTES..HEAD_BYTES.checked_add(length)?)?;
    let Ok(message) = root_as_message(metadata) else { return Some(bytes.len()) };
    usize::try_from(message.bodyLength()).ok()?.checked_add(HEAD_BYTES + length)
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.page.extend_from_slice(bytes);
        if self.page.len() >= self.page_bytes {
            self.divide();
            self.store(self.whole)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.divide();
        self.store(self.page.len())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        Ok(self.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::time::Duration;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
    use datafusion::execution::disk_manager::DiskManagerBuilder;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::SpillManager;
    use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
    use datafusion::physical_plan::spill::get_record_batch_memory_size;
    use futures::{StreamExt, TryStreamExt};

    use super::super::faults::Fault;
    use super::*;
    use crate::config::{Compression, Directory};

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd(9)];

    fn spilled(directory: Directory) -> (tempfile::TempDir, Arc<Disk>, Spilled) {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(vec![Directory { path: folder.path().to_owned(), ..directory }]);
        let file = Spilled::on(&disk).unwrap();
        (folder, disk, file)
    }

    fn with(compression: Compression) -> Directory {
        Directory { compression, page_bytes: 4096, ..Directory::at("".into()) }
    }

    async fn all(file: &Spilled) -> Result<Vec<Bytes>> {
        file.read_stream()?.try_collect().await
    }

    fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
        let texts = rows.clone().map(|row| (row % 3 > 0).then(|| format!("the text of row {row}")));
        let columns: [(&str, ArrayRef); 2] = [
            ("n", Arc::new(Int64Array::from_iter_values(rows.clone()))),
            ("t", Arc::new(StringViewArray::from_iter(texts))),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
    }

    #[tokio::test]
    async fn batches_come_back_in_bytes_of_their_own() {
        for compression in ALL {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().to_owned();
            let disk = Disk::new(vec![Directory { path, ..with(compression) }]);
            let factory: Arc<dyn TempFileFactory> = Arc::new(Spills::new(Arc::clone(&disk)));
            let files = DiskManagerBuilder::default().with_temp_file_factory(factory);
            let environment =
                RuntimeEnvBuilder::new().with_disk_manager_builder(files).build_arc().unwrap();
            let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
            let manager = SpillManager::new(environment, metrics, batch(0..1).schema());
            let batches: Vec<_> = [0..1, 1..500, 500..500, 500..1000].map(batch).into();
            let mut writer = manager.create_in_progress_file("test").unwrap();
            for batch in &batches {
                writer.append_batch(batch).unwrap();
            }
            let file = writer.finish().unwrap().unwrap();
            assert_eq!(file.size().unwrap(), disk.usage()[0].used_bytes);
            for _ in 0..2 {
                let stream = manager.read_spill_as_stream(Arc::clone(&file), None).unwrap();
                let read: Vec<RecordBatch> = stream.try_collect().await.unwrap();
                assert_eq!(read, batches);
                let counted: usize = read.iter().map(get_record_batch_memory_size).sum();
                let written: usize = batches.iter().map(get_record_batch_memory_size).sum();
                assert!(counted < written * 2, "{counted} for {written}");
            }
            drop(file);
            assert_eq!(disk.usage()[0].used_bytes, 0);
        }
    }

    #[tokio::test]
    async fn bytes_of_any_kind_and_length_come_back() {
        for compression in ALL {
            let (_folder, _disk, file) = spilled(with(compression));
            let text: Vec<u8> = (0..50_000_u32).map(|at| (at / 7 % 251) as u8).collect();
            let mut writer = file.open_writer().unwrap();
            let mut reader = file.read_stream().unwrap();
            for (at, chunk) in text.chunks(777).enumerate() {
                writer.write_all(chunk).unwrap();
                if at == 0 {
                    // A reader sees what is flushed, while there is a writer.
                    writer.flush().unwrap();
                    assert_eq!(reader.next().await.unwrap().unwrap(), chunk);
                }
            }
            writer.finish().unwrap();
            assert_eq!(all(&file).await.unwrap().concat(), text);
            assert!(compression == Compression::None || file.size().unwrap() < 40_000);
        }
    }

    #[tokio::test]
    async fn what_was_changed_on_the_disk_is_an_error() {
        for compression in ALL {
            let (_folder, disk, file) = spilled(with(compression));
            let mut writer = file.open_writer().unwrap();
            writer.write_all(&[7; 10_000]).unwrap();
            writer.finish().unwrap();
            let last = file.size().unwrap() - 1;
            file.file().file().write_all_at(&[99], last).unwrap();
            let error = all(&file).await.unwrap_err().to_string();
            let directory = disk.usage()[0].path.display().to_string();
            assert!(error.contains("is damaged") && error.contains(&directory), "{error}");
            assert!(error.contains("check sum"), "{error}");
            locked(&file.0).file.file().set_len(last).unwrap();
            let error = all(&file).await.unwrap_err().to_string();
            assert!(error.contains("it ends there"), "{error}");
            drop((file, writer));
            assert_eq!(disk.usage()[0].used_bytes, 0);
        }
    }

    #[tokio::test]
    async fn a_full_directory_is_an_error_and_what_is_written_stays() {
        let directory = Directory { quota_bytes: 10_000, ..with(Compression::None) };
        let (_folder, disk, file) = spilled(directory);
        let mut writer = file.open_writer().unwrap();
        writer.write_all(&[1; 9000]).unwrap();
        writer.flush().unwrap();
        let error = writer.write_all(&[2; 9000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        assert_eq!(all(&file).await.unwrap().concat(), [1; 9000]);
        drop((file, writer));
        assert_eq!(disk.usage()[0].used_bytes, 0);
    }

    #[tokio::test]
    async fn pages_go_on_in_the_next_directory_where_one_is_full() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let directory = |at: usize, quota_bytes, compression| Directory {
            path: folders[at].path().to_owned(),
            quota_bytes,
            ..with(compression)
        };
        let fast = directory(0, 10_000, Compression::None);
        let slow = directory(1, 1 << 20, Compression::Lz4);
        let disk = Disk::new(vec![fast, slow]);
        let file = Spilled::on(&disk).unwrap();
        let text: Vec<u8> = (0..50_000_u32).map(|at| (at / 7 % 251) as u8).collect();
        let mut writer = file.open_writer().unwrap();
        text.chunks(5000).for_each(|chunk| writer.write_all(chunk).unwrap());
        writer.finish().unwrap();
        assert_eq!(all(&file).await.unwrap().concat(), text);
        let used: Vec<u64> = disk.usage().iter().map(|of| of.used_bytes).collect();
        assert!(used[0] == 10_000 && (1000..30_000).contains(&used[1]), "{used:?}");
        drop((file, writer));
        assert_eq!(disk.used_bytes(), 0);
    }

    #[tokio::test]
    async fn who_waits_reads_further_ahead() {
        let (_folder, disk, file) = spilled(with(Compression::None));
        disk.set_ahead(1 << 20, 8);
        let mut writer = file.open_writer().unwrap();
        (0..40_u8).for_each(|at| writer.write_all(&[at; 4096]).unwrap());
        writer.finish().unwrap();
        disk.set_fault(Some(Fault::SlowReads(Duration::from_millis(20))));
        let pages = all(&file).await.unwrap();
        assert!((0..40).all(|at| pages[at][..] == [at as u8; 4096]));
        assert_eq!((disk.traffic().asked_ahead, disk.traffic().wasted), (39, 0));
        let mut stream = file.read_stream().unwrap();
        for _ in 0..5 {
            stream.next().await.unwrap().unwrap();
        }
        drop(stream);
        // One page ahead is what a reader that never waits asks for.
        assert!(disk.traffic().wasted > 1);
    }
}
