//! Small files of a scan, asked for together: who waits for one has the system bring those after it.
//!
//! Enters: all files of a scan, in their order, and one of which something is not in memory. Leaves: nothing; a megabyte of
//! the files from there on is on its way, and there when they are read. Of files that are in memory nobody asks for any, and
//! of those whose footers have just been read all is: a footer is read with what stands before it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::datasource::physical_plan::FileGroup;
use datafusion::object_store::local::LocalFileSystem;
use rustc_hash::FxHashMap;

/// Bytes from which on a file is worth a wait of its own.
pub(super) const SMALL_BYTES: u64 = 64 << 10;

/// Bytes that are asked for together.
const TOGETHER_BYTES: u64 = 1 << 20;

/// The files of a scan.
pub(super) struct SmallFiles {
    /// Those that are small, in their order.
    files: Vec<(PathBuf, u64)>,
    places: FxHashMap<PathBuf, usize>,
    /// Of them, so many were asked for.
    taken: AtomicUsize,
}

impl SmallFiles {
    pub(super) fn of(groups: &[FileGroup]) -> Self {
        let store = LocalFileSystem::new();
        let all = groups.iter().flat_map(FileGroup::iter).map(|file| &file.object_meta);
        let small = all.filter(|file| file.size < SMALL_BYTES);
        let files: Vec<_> = small
            .filter_map(|file| Some((store.path_to_filesystem(&file.location).ok()?, file.size)))
            .collect();
        let places = files.iter().enumerate().map(|(at, (path, _))| (path.clone(), at)).collect();
        Self { files, places, taken: AtomicUsize::new(0) }
    }

    /// Asks for a file, and for those after it, if that has not been done.
    pub(super) fn ask_from(&self, path: &Path) {
        self.take_from(path).iter().for_each(|(path, _)| ask(path));
    }

    /// A file and those after it, a megabyte together; none where they were taken before.
    fn take_from(&self, path: &Path) -> &[(PathBuf, u64)] {
        let Some(&first) = self.places.get(path) else { return &[] };
        let mut bytes = 0;
        let fits = |&(_, more): &&(PathBuf, u64)| {
            bytes += more;
            bytes <= TOGETHER_BYTES
        };
        let end = first + self.files[first..].iter().take_while(fits).count();
        let ahead = |taken: usize| (taken <= first).then_some(end);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, ahead) {
            Ok(_) => &self.files[first..end],
            Err(_) => &[],
        }
    }
}

/// A hint: without it the file is read when it is opened.
#[cfg(target_os = "linux")]
fn ask(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::WillNeed);
    }
}

#[cfg(not(target_os = "linux"))]
fn ask(_: &Path) {}

#[cfg(test)]
mod tests {
    use datafusion::datasource::listing::PartitionedFile;

    use super::*;

    #[test]
    fn files_are_asked_for_a_megabyte_at_a_time_and_once() {
        let path = |at: usize| std::env::temp_dir().join(at.to_string());
        let file = |at: usize| {
            let bytes = if at == 3 { SMALL_BYTES } else { 40_000 };
            PartitionedFile::new(path(at).to_str().unwrap(), bytes)
        };
        let groups = [0..30, 30..70].map(|at| FileGroup::new(at.map(file).collect()));
        let files = SmallFiles::of(&groups);
        let taken = |at: usize| files.take_from(&path(at)).len();
        // One that is large is not among them; 26 of the others are a megabyte.
        assert_eq!([taken(3), taken(0), taken(1), taken(25), taken(26)], [0, 26, 0, 0, 0]);
        assert_eq!([taken(27), taken(52), taken(53), taken(69)], [26, 0, 17, 0]);
    }
}
