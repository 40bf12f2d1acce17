//! A file that is read no further once its reader has been asked to stop.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) file: File,
    pub(super) stop: &'a AtomicBool,
}

impl Read for Source<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        go_on(self.stop)?;
        self.file.read(bytes)
    }
}

impl Seek for Source<'_> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

/// An error once the stop has been asked for; what it says is seen by nobody.
pub(super) fn go_on(stop: &AtomicBool) -> io::Result<()> {
    match stop.load(Ordering::Relaxed) {
        true => Err(io::Error::other("stopped")),
        false => Ok(()),
    }
}
