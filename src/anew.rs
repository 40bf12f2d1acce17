//! What can be made anew, in files that outlive the process: compiled kernels, what was measured of a machine, answers.
//!
//! Enters: bytes, by a file or by a key. Leaves: the bytes, in a later run, as they were written or not at all. Not here: what a
//! key is made of, and what bytes mean.
//!
//! ```text
//! <folder>/<key>   check sum, 16 bytes │ bytes
//! ```

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Length of a check sum.
const SUM_BYTES: usize = 16;

/// Bytes by their keys. Without a folder there are none, and a folder that cannot be written is no error.
#[derive(Debug)]
pub(crate) struct Folder {
    path: Option<PathBuf>,
}

/// The user's folder for what this engine can make anew, if there is one.
pub(crate) fn user_folder() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("relatrix"))
}

/// A number for a text that nobody has chosen to collide with another's.
pub(crate) fn sum<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u128 {
    let mut halves = [DefaultHasher::new(), DefaultHasher::new()];
    halves[1].write_u8(1);
    for part in parts {
        for half in &mut halves {
            half.write_usize(part.len());
            half.write(part);
        }
    }
    let [low, high] = halves.map(|half| u128::from(half.finish()));
    high << 64 | low
}

/// Writes a file as a whole: who reads it meanwhile finds the old one, or none.
pub(crate) fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    /// Threads of a process may write the same.
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = file.with_extension(format!("{}-{number}.draft", process::id()));
    let written = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, file));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

impl Folder {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path }
    }

    /// The bytes of a key, if they are as they were written.
    pub(crate) fn get(&self, key: u128) -> Option<Vec<u8>> {
        let file = self.file(key)?;
        let mut bytes = fs::read(&file).ok()?;
        let body = bytes.split_off(SUM_BYTES.min(bytes.len()));
        if bytes != sum_of(&body) {
            self.remove(key);
            return None;
        }
        // It was used last now. Where that cannot be written, it makes room earlier.
        let _ = fs::File::options()
            .append(true)
            .open(&file)
            .and_then(|opened| opened.set_modified(SystemTime::now()));
        Some(body)
    }

    /// Keeps bytes, where all together have no more than these: those that were not used for longest make room.
    pub(crate) fn put(&self, key: u128, body: &[u8], bytes_max: u64) {
        let Some(file) = self.file(key) else { return };
        let bytes = [&sum_of(body), body].concat();
        if bytes.len() as u64 <= bytes_max && write(&file, &bytes).is_ok() {
            self.make_room(bytes_max);
        }
    }

    pub(crate) fn remove(&self, key: u128) {
        if let Some(file) = self.file(key) {
            // Another process may have removed it.
            let _ = fs::remove_file(file);
        }
    }

    fn file(&self, key: u128) -> Option<PathBuf> {
        Some(self.path.as_ref()?.join(format!("{key:032x}")))
    }

    /// Removes files, the oldest first, while they are too many bytes; drafts of who was killed are among them.
    fn make_room(&self, bytes_max: u64) {
        let Some(files) = self.path.as_ref().and_then(|folder| fs::read_dir(folder).ok()) else {
            return;
        };
        let aged = |file: fs::DirEntry| {
            let facts = file.metadata().ok()?;
            Some((facts.modified().ok()?, facts.len(), file.path()))
        };
        let mut files: Vec<_> = files.flatten().filter_map(aged).collect();
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, length, path) in files {
            if bytes <= bytes_max {
                return;
            }
            let _ = fs::remove_file(path);
            bytes -= length;
        }
    }
}

fn sum_of(body: &[u8]) -> [u8; SUM_BYTES] {
    sum([body].into_iter()).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of three as they are below.
    const BYTES_MAX: u64 = 3 * (100 + SUM_BYTES as u64);

    #[test]
    fn bytes_are_found_as_they_were_written_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Folder::new(Some(folder.path().to_path_buf()));
        assert_eq!(cache.get(1), None);
        cache.put(1, b"image", BYTES_MAX);
        cache.put(2, b"", BYTES_MAX);
        assert_eq!(cache.get(1).as_deref(), Some(&b"image"[..]));
        assert_eq!(cache.get(2).as_deref(), Some(&b""[..]));
        let file = cache.file(1).unwrap();
        for bad in [&b""[..], b"image", b"0123456789abcdefimage"] {
            cache.put(1, b"image", BYTES_MAX);
            fs::write(&file, bad).unwrap();
            assert_eq!((cache.get(1), file.exists()), (None, false));
        }
        Folder::new(None).put(1, b"image", BYTES_MAX);
        assert_eq!(Folder::new(None).get(1), None);
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Folder::new(Some(folder.path().to_path_buf()));
        let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
        for key in 0..3 {
            cache.put(key, &[key as u8; 100], BYTES_MAX);
            pause();
        }
        assert!(cache.get(0).is_some());
        pause();
        cache.put(3, &[3; 100], BYTES_MAX);
        let left = [0, 1, 2, 3].map(|key| cache.get(key).is_some());
        assert_eq!(left, [true, false, true, true]);
        cache.put(4, &[4; 1000], BYTES_MAX);
        assert_eq!(cache.get(4), None, "longer than all together may be");
    }
}
