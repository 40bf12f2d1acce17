//! Which rows a name stands for: those of a version of a table, or of files as they were.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::object_store::path::Path as StorePath;

use crate::storage::Snapshot;

/// Entries of folders that are looked at for the files of a pattern; beyond, nothing is known of them.
const ENTRIES_MAX: usize = 4096;

/// A file that changed no longer ago than this may change again and keep its stamp, for clocks of file systems tick a
/// hundred times a second.
const TICKS: Duration = Duration::from_millis(50);

/// Rows that stay as they are: other rows are another source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// So many rows of a version of a table in memory: all of them, or the last.
    Version { table: u64, number: u64, rows: usize },
    /// In the order of their paths.
    Files(Vec<Stamp>),
}

impl Source {
    pub(crate) fn of_table(snapshot: &Snapshot) -> Self {
        let (table, number) = (snapshot.table().id(), snapshot.version());
        Self::Version { table, number, rows: snapshot.row_count() }
    }

    /// The files that addresses mean; nothing where there are too many or they are not of this machine.
    pub(crate) fn of_files(addresses: &[ListingTableUrl]) -> Option<Self> {
        let (mut stamps, mut left) = (Vec::new(), ENTRIES_MAX);
        for address in addresses {
            let path = address.get_url().to_file_path().ok()?;
            list(&path, address, &mut left, &mut stamps)?;
        }
        stamps.sort_by(|one, other| one.path.cmp(&other.path));
        Some(Self::Files(stamps))
    }

    /// Whether both are of one table or of the same files, at whatever time.
    pub(crate) fn is_of_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Version { table, .. }, Self::Version { table: other, .. }) => table == other,
            (Self::Files(files), Self::Files(others)) => {
                files.iter().map(|stamp| &stamp.path).eq(others.iter().map(|stamp| &stamp.path))
            }
            _ => false,
        }
    }

    /// Whether other rows would be another source for certain.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Version { .. } => true,
            Self::Files(stamps) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
                now.is_some_and(|now| stamps.iter().all(|stamp| stamp.is_settled(now)))
            }
        }
    }
}

/// One file as it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) modified: Option<SystemTime>,
    /// Time since 1970 of the last change of anything about the file, which nobody can set.
    changed: Option<Duration>,
    /// What tells it from another file under its name.
    inode: u64,
}

impl Stamp {
    fn of(path: &Path, metadata: &Metadata) -> Self {
        let (seconds, nanoseconds) = (metadata.ctime(), metadata.ctime_nsec());
        let changed = u64::try_from(seconds).ok().zip(u32::try_from(nanoseconds).ok());
        Self {
            path: path.to_owned(),
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
            changed: changed.map(|(seconds, nanoseconds)| Duration::new(seconds, nanoseconds)),
            inode: metadata.ino(),
        }
    }

    /// A file that has been as it is for some time, so that it cannot change and keep its stamp.
    pub(crate) fn settled(path: &Path, metadata: &Metadata) -> Option<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(Self::of(path, metadata)).filter(|stamp| stamp.is_settled(now))
    }

    /// Whether it is so at a time since 1970.
    fn is_settled(&self, now: Duration) -> bool {
        let age = self.changed.and_then(|changed| now.checked_sub(changed));
        age.is_some_and(|age| age > TICKS)
    }
}

/// Gathers the files below a path that an address means; nothing where there are too many.
fn list(
    path: &Path,
    address: &ListingTableUrl,
    left: &mut usize,
    stamps: &mut Vec<Stamp>,
) -> Option<()> {
    *left = left.checked_sub(1)?;
    let metadata = fs::metadata(path).ok()?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).ok()? {
            list(&entry.ok()?.path(), address, left, stamps)?;
        }
        return Some(());
    }
    // What is no file, as a pipe, is read only once.
    if !metadata.is_file() {
        return None;
    }
    let is_pattern = address.get_glob().is_some();
    if !is_pattern || address.contains(&StorePath::from_absolute_path(path).ok()?, false) {
        stamps.push(Stamp::of(path, &metadata));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_rows_are_another_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let pattern = folder.path().join("*.csv");
        let files = |path: &Path| {
            Source::of_files(&[ListingTableUrl::parse(path.to_str().unwrap()).unwrap()]).unwrap()
        };
        fs::write(&path, "a\n1\n").unwrap();
        let (one, all) = (files(&path), files(&pattern));
        assert_eq!((&files(&path), &files(&pattern)), (&one, &all));
        let Source::Files(stamps) = &one else { panic!("{one:?}") };
        let changed = stamps[0].changed.unwrap();
        for (age, is_settled) in [(Duration::ZERO, false), (TICKS, false), (TICKS * 2, true)] {
            assert_eq!(stamps[0].is_settled(changed + age), is_settled, "{age:?}");
        }
        assert!(!stamps[0].is_settled(changed - TICKS * 2));
        // As many bytes under the same name, and as old as before.
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        std::thread::sleep(TICKS * 2);
        assert!(one.is_settled() && all.is_settled());
        fs::write(&path, "a\n2\n").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        assert_ne!(files(&path), one);
        fs::write(folder.path().join("b.txt"), "").unwrap();
        let all = files(&pattern);
        fs::write(folder.path().join("c.csv"), "a\n1\n").unwrap();
        assert_ne!(files(&pattern), all);
    }
}
