//! Files for what does not fit into memory.
//!
//! Enters: a number of bytes. Leaves: a [`DiskFile`] without a name, in the first directory that has room. The
//! system takes a file without a name back when its last owner lets it go, also where the process was killed:
//! nothing remains that somebody had to sweep. Not here: what is written ([`Spills`](super::Spills)).

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::ahead::{AheadBytes, AheadLimit};
#[cfg(test)]
use super::faults::{Fault, Faults};
use super::rate::Rate;
use super::traffic::{Traffic, TrafficUsage};
use crate::config::Directory;

/// Directories of falling speed, and what is in them.
#[derive(Debug)]
pub(crate) struct Disk {
    places: RwLock<Vec<Arc<Place>>>,
    /// Of each disk, in percent.
    threshold: Arc<AtomicUsize>,
    rate: Arc<Rate>,
    traffic: Arc<Traffic>,
    ahead: Arc<AheadLimit>,
    #[cfg(test)]
    faults: Arc<Faults>,
}

/// A directory, and how many bytes the files there take.
#[derive(Debug)]
struct Place {
    directory: Directory,
    /// The share of the disk that may be in use, by whomever, in percent.
    threshold: Arc<AtomicUsize>,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

impl Place {
    /// Bytes that its disk has room for; all there are where the system does not say.
    ///
    /// # Errors
    /// Where the directory is not there.
    fn free_on_disk(&self) -> io::Result<u64> {
        let system = match rustix::fs::statvfs(&self.directory.path) {
            Err(Errno::NOSYS) => return Ok(u64::MAX),
            system => system?,
        };
        let beyond = 100 - self.threshold.load(Ordering::Relaxed).min(100) as u64;
        let kept = system.f_blocks / 100 * beyond;
        Ok(system.f_bavail.saturating_sub(kept).saturating_mul(system.f_frsize))
    }

    /// # Errors
    /// Where so many bytes more would pass the threshold, or the directory is not there.
    fn check_disk(&self, bytes: u64) -> io::Result<()> {
        if bytes <= self.free_on_disk()? {
            return Ok(());
        }
        let percent = self.threshold.load(Ordering::Relaxed);
        let message =
            format!("its disk would be more than {percent} percent full (disk_threshold)");
        Err(io::Error::new(ErrorKind::StorageFull, message))
    }
}

/// How much is in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectoryUsage {
    pub(crate) path: PathBuf,
    pub(crate) used_bytes: u64,
    pub(crate) peak_bytes: u64,
}

impl Disk {
    pub(crate) fn new(directories: Vec<Directory>) -> Arc<Self> {
        let (places, traffic, ahead) = Default::default();
        let disk = Arc::new(Self {
            places,
            threshold: Arc::new(AtomicUsize::new(100)),
            rate: Arc::new(Rate::new(0)),
            traffic,
            ahead,
            #[cfg(test)]
            faults: Arc::default(),
        });
        disk.set_directories(directories);
        disk
    }

    /// Takes other directories for the files to come; those there are stay where they are.
    pub(crate) fn set_directories(&self, directories: Vec<Directory>) {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let same = |directory: &Directory| {
            places.iter().find(|place| place.directory == *directory).map(Arc::clone)
        };
        let place = |directory| {
            same(&directory).unwrap_or_else(|| {
                let (used_bytes, peak_bytes) = Default::default();
                let threshold = Arc::clone(&self.threshold);
                Arc::new(Place { directory, threshold, used_bytes, peak_bytes })
            })
        };
        *places = directories.into_iter().map(place).collect();
    }

    /// Lets so large a share of each disk be in use, in percent.
    pub(crate) fn set_threshold(&self, percent: usize) {
        self.threshold.store(percent, Ordering::Relaxed);
    }

    /// Lets so many bytes a second pass at most; 0 is no limit.
    pub(crate) fn set_rate(&self, bytes_per_second: u64) {
        self.rate.set(bytes_per_second);
    }

    /// Lets all readers together read so many bytes ahead at most, beside one page of each, and one so many pages.
    pub(crate) fn set_ahead(&self, bytes_max: usize, pages_max: usize) {
        self.ahead.set(bytes_max, pages_max);
    }

    fn places(&self) -> Vec<Arc<Place>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A file that will have so many bytes, in the first directory that has room for them.
    ///
    /// # Errors
    /// Where none has; what each said is in the text.
    pub(crate) fn file(&self, bytes: u64) -> io::Result<DiskFile> {
        let mut refused = Vec::new();
        for place in self.places() {
            match self.file_in(&place, bytes) {
                Ok(file) => return Ok(file),
                Err(error) => refused.push(format!("{}: {error}", place.directory.path.display())),
            }
        }
        let refused =
            if refused.is_empty() { "no directory".to_owned() } else { refused.join("; ") };
        let message = format!(
            "temp_directory has no room for {bytes} bytes: {refused}; make room there, or add a directory: \
             SET temp_directory = '…; …'"
        );
        Err(io::Error::new(ErrorKind::StorageFull, message))
    }

    /// The same in a directory that comes after that of a file; none where none of them has room.
    pub(super) fn file_after(&self, full: &DiskFile, bytes: u64) -> Option<DiskFile> {
        let places = self.places();
        let at = places.iter().position(|place| Arc::ptr_eq(place, &full.charge.place));
        let after = at.map_or(0, |at| at + 1);
        places[after..].iter().find_map(|place| self.file_in(place, bytes).ok())
    }

    fn file_in(&self, place: &Arc<Place>, bytes: u64) -> io::Result<DiskFile> {
        let charge = Charge::new(place, bytes)?;
        Ok(DiskFile {
            file: tempfile::tempfile_in(&place.directory.path)?,
            charge,
            rate: Arc::clone(&self.rate),
            traffic: Arc::clone(&self.traffic),
            ahead: Arc::clone(&self.ahead),
            #[cfg(test)]
            faults: Arc::clone(&self.faults),
        })
    }

    /// What passed to the directories and from them.
    pub(crate) fn traffic(&self) -> TrafficUsage {
        self.traffic.usage()
    }

    /// Bytes that the directories have room for: the most that any of them has.
    pub(crate) fn free_bytes(&self) -> u64 {
        let free = |place: Arc<Place>| {
            let used_bytes = place.used_bytes.load(Ordering::Relaxed);
            let quota = place.directory.quota_bytes.saturating_sub(used_bytes);
            quota.min(place.free_on_disk().unwrap_or(0))
        };
        self.places().into_iter().map(free).max().unwrap_or(0)
    }

    /// What is in each directory, the fastest first.
    pub(crate) fn usage(&self) -> Vec<DirectoryUsage> {
        let usage = |place: Arc<Place>| DirectoryUsage {
            path: place.directory.path.clone(),
            used_bytes: place.used_bytes.load(Ordering::Relaxed),
            peak_bytes: place.peak_bytes.load(Ordering::Relaxed),
        };
        self.places().into_iter().map(usage).collect()
    }
}

/// A file without a name, and what it takes of its directory's quota.
pub(crate) struct DiskFile {
    file: File,
    charge: Charge,
    rate: Arc<Rate>,
    traffic: Arc<Traffic>,
    ahead: Arc<AheadLimit>,
    #[cfg(test)]
    faults: Arc<Faults>,
}

impl fmt::Debug for DiskFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskFile").field("bytes", &self.charge.bytes).finish_non_exhaustive()
    }
}

impl DiskFile {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Where it is counted how long pages took.
    pub(super) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Pages that a reader asks for ahead at most.
    pub(super) fn ahead_pages_max(&self) -> usize {
        self.ahead.pages_max()
    }

    /// Room to read so many bytes ahead.
    pub(super) fn ahead(&self, bytes: usize) -> Option<AheadBytes> {
        self.ahead.take(bytes)
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.charge.place.directory
    }

    /// Writes at a place, as fast as the rate allows, and counts so many bytes more.
    ///
    /// # Errors
    /// Where the directory has no room for them, and those of the system; then nothing is counted.
    pub(crate) fn append_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let failed = |error| self.failed("writing to", error);
        let more = Charge::new(&self.charge.place, bytes.len() as u64).map_err(failed)?;
        self.rate.pass(bytes.len());
        #[cfg(test)]
        self.faults.on_write().map_err(failed)?;
        write_at(&self.file, bytes, offset).map_err(failed)?;
        // One charge stands for both.
        self.charge.bytes.fetch_add(more.bytes.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }

    /// Takes space on the disk for so many bytes, which are zero.
    ///
    /// # Errors
    /// Where the disk has none.
    pub(super) fn reserve(&self, bytes: u64) -> io::Result<()> {
        #[cfg(test)]
        self.faults.on_write()?;
        Ok(fallocate(&self.file, FallocateFlags::empty(), 0, bytes)?)
    }

    /// Reads from a place until the bytes are filled, as fast as the rate allows.
    ///
    /// # Errors
    /// Those of the system, and where the file ends before.
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.rate.pass(bytes.len());
        let read = read_at(&self.file, bytes, offset);
        #[cfg(test)]
        let read = read.and_then(|()| self.faults.on_read(bytes));
        read.map_err(|error| self.failed("reading from", error))
    }

    /// An error that names the directory, and says what to do.
    pub(crate) fn failed(&self, what: &str, error: io::Error) -> io::Error {
        let remedy = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there, or add",
            _ => "see to that disk, or name",
        };
        let path = self.directory().path.display();
        let message = format!(
            "{what} {path}, a directory of temp_directory, failed: {error}; {remedy} another: SET temp_directory = '…'"
        );
        io::Error::new(error.kind(), message)
    }
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !bytes.is_empty() {
        let written = file.seek_write(bytes, offset)?;
        (bytes, offset) = (&bytes[written..], offset + written as u64);
    }
    Ok(())
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !bytes.is_empty() {
        match file.seek_read(bytes, offset)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => (bytes, offset) = (&mut bytes[read..], offset + read as u64),
        }
    }
    Ok(())
}

/// Bytes of a directory's quota.
struct Charge {
    place: Arc<Place>,
    bytes: AtomicU64,
}

impl Charge {
    fn new(place: &Arc<Place>, bytes: u64) -> io::Result<Self> {
        place.check_disk(bytes)?;
        let quota_bytes = place.directory.quota_bytes;
        let room = |used: u64| used.checked_add(bytes).filter(|used| *used <= quota_bytes);
        match place.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(used) => {
                place.peak_bytes.fetch_max(used + bytes, Ordering::Relaxed);
                Ok(Self { place: Arc::clone(place), bytes: AtomicU64::new(bytes) })
            }
            Err(used) => {
                let message = format!("{used} bytes of a quota of {quota_bytes} are in use");
                Err(io::Error::new(ErrorKind::QuotaExceeded, message))
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.place.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Disk {
    /// What goes wrong from now on.
    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        self.faults.set(fault);
    }

    /// Bytes of all files there are.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.usage().iter().map(|directory| directory.used_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn directory(quota_bytes: u64) -> (tempfile::TempDir, Directory) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        (folder, Directory { quota_bytes, ..Directory::at(path) })
    }

    #[test]
    fn the_first_directory_that_has_room_is_taken() {
        let ((_a, fast), (_b, slow)) = (directory(100), directory(1000));
        let disk = Disk::new(vec![fast.clone(), slow.clone()]);
        let first = disk.file(80).unwrap();
        let second = disk.file(80).unwrap();
        assert_eq!((first.directory(), second.directory()), (&fast, &slow));
        second.append_at(&[0; 900], 0).unwrap();
        let error = second.append_at(&[0; 100], 900).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        assert!(error.to_string().contains(slow.path.to_str().unwrap()), "{error}");
        assert_eq!(disk.file_after(&first, 20).unwrap().directory(), &slow);
        assert!(disk.file_after(&first, 21).is_none() && disk.file_after(&second, 1).is_none());
        let error = disk.file(101).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(error.to_string().contains("80 bytes of a quota of 100"), "{error}");
        drop((first, second));
        let usage: Vec<_> =
            disk.usage().into_iter().map(|of| (of.used_bytes, of.peak_bytes)).collect();
        assert_eq!(usage, [(0, 80), (0, 1000)]);
    }

    #[test]
    fn a_directory_that_is_not_there_has_no_room_and_is_passed_over() {
        let (folder, there) = directory(1000);
        let gone = Directory::at(folder.path().join("gone"));
        let disk = Disk::new(vec![gone.clone()]);
        assert_eq!(disk.free_bytes(), 0);
        let error = disk.file(1).unwrap_err().to_string();
        assert!(error.contains("gone: No such file"), "{error}");
        let disk = Disk::new(vec![gone, there.clone()]);
        assert_eq!(disk.file(1).unwrap().directory(), &there);
        assert_eq!(disk.free_bytes(), 1000);
    }

    #[test]
    fn a_disk_is_filled_up_to_its_threshold() {
        let ((_a, fast), (_b, slow)) = (directory(1000), directory(1000));
        let disk = Disk::new(vec![fast, slow]);
        let file = disk.file(10).unwrap();
        disk.set_threshold(0);
        let error = disk.file(1).unwrap_err().to_string();
        assert_eq!(
            error.matches("more than 0 percent full (disk_threshold)").count(),
            2,
            "{error}"
        );
        let error = file.append_at(&[0; 10], 0).unwrap_err();
        assert_eq!((error.kind(), disk.free_bytes()), (ErrorKind::StorageFull, 0));
        disk.set_threshold(100);
        file.append_at(&[0; 10], 0).unwrap();
        assert_eq!((disk.free_bytes(), disk.usage()[0].used_bytes), (1000, 20));
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = Disk::new(vec![Directory::at("/nowhere/at/all".into())]).file(1).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
        assert!(Disk::new(Vec::new()).file(0).unwrap_err().to_string().contains("no directory"));
    }

    #[test]
    fn nothing_is_seen_of_a_file_and_a_change_leaves_those_there_are() {
        let (folder, there) = directory(1 << 20);
        let disk = Disk::new(vec![there]);
        let file = disk.file(10).unwrap();
        file.file().write_all(b"0123456789").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        disk.set_directories(Vec::new());
        assert!(disk.file(1).is_err());
        assert_eq!(file.file().metadata().unwrap().len(), 10);
    }
}
