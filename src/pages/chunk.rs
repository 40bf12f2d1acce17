//! The pages of a column as they lie in a file, found one after another and decompressed.

use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;

use arrow::buffer::Buffer;
use bytes::Bytes;
use parquet::basic::Compression;
use parquet::file::metadata::ColumnChunkMetaData;

use super::fetch::{self, Memory, Spare};
use super::flaw::{Checked, Flaw};
use super::header::{Header, Kind};
use super::kept::{Keeping, Pages};

/// Bytes that are read of a file in the hope that they hold a header: most take some dozen.
const HEADER_BYTES: u64 = 1 << 10;

/// Bytes of a page at most: more are those of a header that makes no sense.
const PAGE_BYTES_MAX: usize = 1 << 30;

/// Where the bytes of a column are.
#[derive(Clone)]
pub(super) enum Source {
    File(Arc<File>),
    /// In memory, and at this place of the file.
    Fetched(Bytes, u64),
    /// In memory, page by page, since somebody has read them before.
    Kept(Pages),
}

impl Source {
    fn bytes(&self, at: u64, count: usize) -> Checked<Bytes> {
        match self {
            Source::File(file) => {
                let mut bytes = vec![0; count];
                fetch::read(file, &mut bytes, at)?;
                Ok(bytes.into())
            }
            Source::Fetched(bytes, first) => {
                let start = at.checked_sub(*first).and_then(|start| usize::try_from(start).ok());
                let part = start.and_then(|start| Some((start, start.checked_add(count)?)));
                let part = part.filter(|&(_, end)| end <= bytes.len());
                part.map(|(start, end)| bytes.slice(start..end)).ok_or_else(beyond)
            }
            Source::Kept(_) => Err(beyond()),
        }
    }
}

/// The bytes of a page, decompressed.
pub(super) enum PageBytes {
    /// Those of the file.
    Stored(Bytes),
    Unpacked(Memory),
}

impl Deref for PageBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            PageBytes::Stored(bytes) => bytes,
            PageBytes::Unpacked(memory) => memory.as_ref(),
        }
    }
}

impl PageBytes {
    pub(super) fn none() -> Self {
        PageBytes::Stored(Bytes::new())
    }

    /// The bytes as Arrow has them, who may keep them.
    pub(super) fn share(&mut self) -> Buffer {
        Buffer::from(self.shared())
    }

    fn shared(&mut self) -> Bytes {
        let bytes = match std::mem::replace(self, PageBytes::none()) {
            PageBytes::Stored(bytes) => bytes,
            PageBytes::Unpacked(memory) => Bytes::from_owner(memory),
        };
        *self = PageBytes::Stored(bytes.clone());
        bytes
    }
}

/// Whether pages that are compressed so can be read here.
pub(super) fn is_known(compression: Compression) -> bool {
    matches!(
        compression,
        Compression::UNCOMPRESSED
            | Compression::SNAPPY
            | Compression::ZSTD(_)
            | Compression::LZ4_RAW
    )
}

/// What is left of a column of a row group.
pub(super) struct Chunk {
    source: Source,
    /// Places in the file; of kept pages their numbers.
    first: u64,
    at: u64,
    end: u64,
    compression: Compression,
    /// The header of the page that follows, where somebody has looked at it.
    next: Option<Header>,
    spare: Arc<Spare>,
    /// Where its pages are to be kept, as long as none was passed over.
    keeping: Option<Keeping>,
}

impl Chunk {
    pub(super) fn new(
        source: Source,
        metadata: &ColumnChunkMetaData,
        spare: &Arc<Spare>,
        keeping: Option<Keeping>,
    ) -> Self {
        let (first, end) = match &source {
            Source::Kept(pages) => (0, pages.len() as u64),
            Source::File(_) | Source::Fetched(..) => {
                let (first, bytes) = metadata.byte_range();
                (first, first.saturating_add(bytes))
            }
        };
        let (compression, spare) = (metadata.compression(), Arc::clone(spare));
        Self { source, first, at: first, end, compression, next: None, spare, keeping }
    }

    /// The header of the next page; `None` after the last. Pages that hold neither values nor a dictionary are passed over.
    pub(super) fn peek(&mut self) -> Checked<Option<Header>> {
        while self.next.is_none() && self.at < self.end {
            let header = self.header()?;
            match header.kind {
                Kind::Other => self.pass(&header),
                _ => self.next = Some(header),
            }
        }
        Ok(self.next)
    }

    fn pass(&mut self, header: &Header) {
        self.at += match &self.source {
            Source::Kept(_) => 1,
            _ => (header.header_bytes + header.stored_bytes) as u64,
        };
        self.next = None;
    }

    fn header(&self) -> Checked<Header> {
        if let Source::Kept(pages) = &self.source {
            return Ok(pages[self.at as usize].0);
        }
        let left = self.end - self.at;
        let mut tried = HEADER_BYTES;
        loop {
            let bytes = tried.min(left);
            let count = usize::try_from(bytes).map_err(Flaw::new)?;
            match Header::parse(&self.source.bytes(self.at, count)?)? {
                Some(header) if header.bytes > PAGE_BYTES_MAX => {
                    return Err(Flaw::new(format!("a page of {} bytes", header.bytes)));
                }
                Some(header) => return Ok(header),
                None if bytes == left => return Err(beyond()),
                None => tried *= 16,
            }
        }
    }

    /// Passes over the next page.
    pub(super) fn skip(&mut self) -> Checked<()> {
        if let Some(header) = self.peek()? {
            self.keeping = None;
            self.pass(&header);
        }
        Ok(())
    }

    /// The next page, decompressed; `None` after the last.
    pub(super) fn next(&mut self) -> Checked<Option<(Header, PageBytes)>> {
        let Some(header) = self.peek()? else {
            if let Some(keeping) = self.keeping.take() {
                keeping.finish();
            }
            return Ok(None);
        };
        if let Source::Kept(pages) = &self.source {
            let bytes = PageBytes::Stored(pages[self.at as usize].1.clone());
            self.pass(&header);
            return Ok(Some((header, bytes)));
        }
        let start = self.at + header.header_bytes as u64;
        if header.stored_bytes as u64 > self.end.saturating_sub(start) {
            return Err(beyond());
        }
        let stored = self.source.bytes(start, header.stored_bytes)?;
        self.pass(&header);
        let mut bytes = self.unpacked(&header, stored)?;
        let is_kept =
            self.keeping.as_mut().is_some_and(|keeping| keeping.push(header, bytes.shared()));
        match self.keeping.take_if(|_| !is_kept || self.at >= self.end) {
            Some(keeping) if is_kept => keeping.finish(),
            _ => {}
        }
        Ok(Some((header, bytes)))
    }

    /// The first page once more; what comes next stays the next.
    pub(super) fn first(&mut self) -> Checked<Option<(Header, PageBytes)>> {
        let (at, next, keeping) = (self.at, self.next.take(), self.keeping.take());
        self.at = self.first;
        let first = self.next();
        (self.at, self.next, self.keeping) = (at, next, keeping);
        first
    }

    fn unpacked(&self, header: &Header, stored: Bytes) -> Checked<PageBytes> {
        // Levels of the second version lie before what is compressed.
        let plain = match header.kind {
            Kind::DataV2 { definitions_bytes, repetitions_bytes, is_compressed, .. } => {
                match is_compressed {
                    true => definitions_bytes + repetitions_bytes,
                    false => stored.len(),
                }
            }
            _ => 0,
        };
        if self.compression == Compression::UNCOMPRESSED || plain >= stored.len() {
            // What is kept must not hold what was fetched with it.
            let is_kept = self.keeping.is_some();
            return Ok(PageBytes::Stored(match is_kept {
                true => Bytes::copy_from_slice(&stored),
                false => stored,
            }));
        }
        let mut page = match self.keeping {
            Some(_) => Memory::of_its_own(header.bytes),
            None => self.spare.take(header.bytes),
        };
        let (levels, packed) = stored.split_at(plain);
        let unpacked = page.as_mut().split_at_mut_checked(plain);
        let (head, unpacked) =
            unpacked.ok_or_else(|| Flaw::new("a page ends within its levels"))?;
        head.copy_from_slice(levels);
        let count = unpack(self.compression, packed, unpacked)?;
        match count == unpacked.len() {
            true => Ok(PageBytes::Unpacked(page)),
            false => Err(Flaw::new(format!(
                "a page of {} bytes, where {} were told",
                count + plain,
                header.bytes
            ))),
        }
    }
}

/// Decompresses all bytes; says how many there are then.
fn unpack(compression: Compression, packed: &[u8], into: &mut [u8]) -> Checked<usize> {
    match compression {
        Compression::SNAPPY => {
            let told = snap::raw::decompress_len(packed).map_err(Flaw::new)?;
            // More than there is room for are no error of the decoder's that a reader would understand.
            if told != into.len() {
                return Ok(told);
            }
            snap::raw::Decoder::new().decompress(packed, into).map_err(Flaw::new)
        }
        Compression::ZSTD(_) => zstd::bulk::decompress_to_buffer(packed, into).map_err(Flaw::new),
        Compression::LZ4_RAW => lz4_flex::block::decompress_into(packed, into).map_err(Flaw::new),
        other => Err(Flaw::new(format!("pages compressed by {other}"))),
    }
}

fn beyond() -> Flaw {
    Flaw::new("a page reaches beyond its column")
}
