//! A file that appears at its path whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::source::go_on;

/// A file being written under a temporary name beside its target; dropped, it is removed.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    file: BufWriter<File>,
    /// Whether to write no further.
    stop: &'a AtomicBool,
    temporary: PathBuf,
    target: PathBuf,
}

/// Tells drafts of one process apart.
static SERIAL: AtomicU64 = AtomicU64::new(0);

impl<'a> Draft<'a> {
    /// Begins a file that is to appear at `target`.
    ///
    /// The temporary name is in the same folder, because only there is a rename atomic.
    pub(super) fn beside(target: &Path, stop: &'a AtomicBool) -> io::Result<Self> {
        let name = target.file_name().ok_or_else(|| io::Error::other("a folder, not a file"))?;
        if target.is_dir() {
            return Err(io::Error::other("a folder, not a file"));
        }
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let hidden = format!(".{}.{}-{serial}.part", name.to_string_lossy(), std::process::id());
        let temporary = target.with_file_name(hidden);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        Ok(Self { file: BufWriter::new(file), stop, temporary, target: target.to_owned() })
    }

    /// Moves the finished file to its target, over what was there.
    pub(super) fn publish(mut self) -> io::Result<()> {
        self.file.flush()?;
        fs::rename(&self.temporary, &self.target)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // After `publish` there is nothing under this name; otherwise nobody else will remove it.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        go_on(self.stop)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Draft<'_> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}
