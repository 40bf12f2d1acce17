//! Files of this machine, as DataFusion's readers see them.
//!
//! All is [`LocalFileSystem`]'s but two things. Parts that are read, such as the columns of a Parquet file, are read together where they
//! lie side by side, into memory that nobody has filled with zeros before. And why a file could not be written is kept for who asks, for
//! DataFusion's writers of texts drop that on its way up.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path as Location;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use futures::stream::BoxStream;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

/// Bytes that parts side by side are read into together, at most by one part more.
const TOGETHER_BYTES: u64 = 1 << 20;

/// See the header of this file.
#[derive(Debug, Default)]
pub(crate) struct LocalFiles {
    files: LocalFileSystem,
    /// Files that could not be written whole, and why.
    unwritten: Mutex<Vec<(Location, String)>>,
}

impl fmt::Display for LocalFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

impl LocalFiles {
    fn all_unwritten(&self) -> MutexGuard<'_, Vec<(Location, String)>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets which files at or below this place could not be written.
    pub(crate) fn forget(&self, below: &Location) {
        self.all_unwritten().retain(|(location, _)| !location.prefix_matches(below));
    }

    /// A file at or below this place that could not be written, and why; told once.
    pub(crate) fn unwritten(&self, below: &Location) -> Option<(String, String)> {
        let mut unwritten = self.all_unwritten();
        let at = unwritten.iter().position(|(location, _)| location.prefix_matches(below))?;
        let (location, why) = unwritten.swap_remove(at);
        let path = self.files.path_to_filesystem(&location);
        Some((path.map_or_else(|_| location.to_string(), |path| path.display().to_string()), why))
    }
}

#[async_trait]
impl ObjectStore for LocalFiles {
    async fn get_ranges(&self, location: &Location, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (path, parts) = (self.files.path_to_filesystem(location)?, ranges.to_vec());
        match tokio::task::spawn_blocking(move || read(&path, &parts)).await {
            Ok(Ok(parts)) => Ok(parts),
            // It says what is wrong with the file, or the parts.
            _ => self.files.get_ranges(location, ranges).await,
        }
    }

    async fn get_opts(&self, location: &Location, options: GetOptions) -> Result<GetResult> {
        self.files.get_opts(location, options).await
    }

    async fn put_opts(
        &self,
        location: &Location,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let written = self.files.put_opts(location, payload, options).await;
        if let Err(error) = &written {
            self.forget(location);
            self.all_unwritten().push((location.clone(), cause(error)));
        }
        written
    }

    async fn put_multipart_opts(
        &self,
        location: &Location,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Location>>,
    ) -> BoxStream<'static, Result<Location>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Location>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Location>,
        offset: &Location,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Location>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Location, to: &Location, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }

    async fn rename_opts(
        &self,
        from: &Location,
        to: &Location,
        options: RenameOptions,
    ) -> Result<()> {
        self.files.rename_opts(from, to, options).await
    }
}

/// What is at the bottom of an error: what the operating system said, where it said anything.
fn cause(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Parts of a file, in their order.
fn read(path: &Path, parts: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
    let file = File::open(path)?;
    let mut read = Vec::with_capacity(parts.len());
    let mut rest = parts;
    while let Some(first) = rest.first() {
        let joins = |pair: &[Range<u64>]| {
            pair[1].start == pair[0].end && pair[0].end - first.start < TOGETHER_BYTES
        };
        let count = 1 + rest.windows(2).take_while(|pair| joins(pair)).count();
        let (together, others) = rest.split_at(count);
        let bytes = read_one(&file, first.start..together[count - 1].end)?;
        let within = |at: u64| (at - first.start) as usize;
        let part = |part: &Range<u64>| bytes.slice(within(part.start)..within(part.end));
        read.extend(together.iter().map(part));
        rest = others;
    }
    Ok(read)
}

fn read_one(file: &File, part: Range<u64>) -> io::Result<Bytes> {
    let length = part.end.checked_sub(part.start).ok_or(io::ErrorKind::InvalidInput)?;
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length)?;
    while bytes.len() < length {
        let from = part.start + bytes.len() as u64;
        match pread(file, spare_capacity(&mut bytes), from) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(length);
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use datafusion::object_store::ObjectStore;

    use super::*;

    /// What is read of a file of 3 MB, and what the file system's own reader makes of the same parts.
    async fn both(parts: &[Range<u64>]) -> [Result<Vec<Bytes>>; 2] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7 % 251) as u8).collect();
        std::fs::write(file.path(), bytes).unwrap();
        let location = Location::from_filesystem_path(file.path()).unwrap();
        let ours = LocalFiles::default().get_ranges(&location, parts).await;
        [ours, LocalFileSystem::new().get_ranges(&location, parts).await]
    }

    #[tokio::test]
    async fn parts_are_read_as_they_are_in_the_file() {
        for parts in [
            vec![],
            vec![7..7, 9..9],
            vec![0..3_000_000, 0..2_000_000],
            // Side by side, apart, one again, some backwards, and at the end.
            vec![4..90, 90..90, 90..1_200_000, 1_200_000..1_200_001, 1_200_001..2_500_000],
            vec![5..90, 91..100, 91..100, 40..60, 0..40, 2_999_999..3_000_000],
        ] {
            let [ours, theirs] = both(&parts).await;
            assert_eq!(ours.unwrap(), theirs.unwrap(), "{parts:?}");
        }
    }

    #[tokio::test]
    async fn parts_that_are_not_there_are_the_file_systems_error() {
        for parts in [vec![0..5, 5..3_000_001], vec![3_000_000..3_000_010, 0..1]] {
            let [ours, theirs] = both(&parts).await.map(|read| read.map_err(|e| e.to_string()));
            assert!(ours.is_err(), "{parts:?}");
            assert_eq!(ours, theirs);
        }
    }
}
