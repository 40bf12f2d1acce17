//! Bytes that are put away one after another and read where they lie: rows that come until memory is full.
//!
//! Enters: bytes. Leaves: a [`Buffer`] with the same, in a file. Many small ones share a file, which is written and
//! not touched through its mapping: what is put away does not pass through the resident memory of the process.

use std::fs::File;
use std::iter::successors;
use std::os::unix::fs::FileExt;

use arrow::buffer::Buffer;

use super::Block;

/// Bytes of the first file; each next one has twice as many, up to the last figure, and fewer where the disk has no room.
const FILE_BYTES_MIN: usize = 16 << 20;
const FILE_BYTES_MAX: usize = 1 << 30;

/// Files that are filled one after another. Each is there until nobody reads what is in it.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    open: Option<Open>,
    files: u32,
}

/// The file that is being filled.
#[derive(Debug)]
struct Open {
    file: File,
    all: Buffer,
    used_bytes: usize,
}

impl Shelf {
    /// The same bytes in a file; none where the disk has no room.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<Buffer> {
        let has_room =
            self.open.as_ref().is_some_and(|open| open.all.len() - open.used_bytes >= bytes.len());
        if !has_room {
            self.open = None;
            let most = FILE_BYTES_MIN.saturating_mul(1 << self.files.min(20)).min(FILE_BYTES_MAX);
            // The last of a disk is used too.
            let smaller = successors(Some(most), |size| Some(size / 2));
            let larger = smaller.take_while(|size| *size > bytes.len());
            let block = larger.chain([bytes.len()]).find_map(Block::in_file)?;
            let file = block.file()?;
            self.open = Some(Open { file, all: block.frozen(), used_bytes: 0 });
            self.files += 1;
        }
        let open = self.open.as_mut()?;
        open.file.write_all_at(bytes, open.used_bytes as u64).ok()?;
        let put = open.all.slice_with_length(open.used_bytes, bytes.len());
        // The next ones begin where a vector may.
        open.used_bytes = (open.used_bytes + bytes.len()).next_multiple_of(64).min(open.all.len());
        Some(put)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Directory;
    use crate::memory::{Disk, Pool, PoolLimits, is_on_disk};

    /// Runs on a thread whose pool has files in a directory with a quota, and is left with none.
    fn with_quota(quota_bytes: u64, work: impl FnOnce(Shelf) + Send) {
        let disk =
            Disk::new(vec![Directory { quota_bytes, ..Directory::at(std::env::temp_dir()) }]);
        let limits =
            PoolLimits { idle_bytes: 0, total_bytes: 0, resident_bytes: 1 << 40, poison: false };
        let pool = Pool::on(Arc::clone(&disk), limits);
        let work = || {
            pool.serve_this_thread();
            work(Shelf::default());
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        assert_eq!(disk.used_bytes(), 0);
    }

    #[test]
    fn what_is_put_away_is_read_as_it_was() {
        with_quota(100 << 20, |mut shelf| {
            let put: Vec<Buffer> =
                (0..40_u8).map(|at| shelf.put(&vec![at; 1_000_001]).unwrap()).collect();
            for (at, bytes) in put.iter().enumerate() {
                assert!(is_on_disk(bytes) && (bytes.as_ptr() as usize).is_multiple_of(64));
                assert!(bytes.len() == 1_000_001 && bytes.iter().all(|&byte| byte == at as u8));
            }
            // Sixteen of the first file are gone with their last reader.
            drop(put.into_iter().take(20).collect::<Vec<_>>());
            drop(shelf.put(&[1; 10]));
            assert!(shelf.put(&vec![0; 101 << 20]).is_none());
        });
    }

    #[test]
    fn a_disk_is_filled_to_its_last_bytes() {
        let (size, quota_bytes) = (100_000, 30 << 20);
        with_quota(quota_bytes, |mut shelf| {
            let put: Vec<Buffer> = std::iter::from_fn(|| shelf.put(&vec![7; size])).collect();
            // A file ends with less than one of them.
            let least = quota_bytes as usize * 95 / 100;
            assert!(put.len() * size > least, "{} of {least} bytes", put.len() * size);
        });
    }
}
