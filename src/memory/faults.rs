//! What goes wrong with a disk, for tests.

use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// One kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Each read takes so long, however many there are at once.
    SlowReads(Duration),
    /// The system reports that it cannot read.
    ReadsFail,
    /// A bit is not what it was.
    BitsChange,
    /// The device has no room, whatever the quota.
    IsFull,
}

/// The failure there is now.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Option<Fault>>);

impl Faults {
    pub(crate) fn set(&self, fault: Option<Fault>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    fn now(&self) -> Option<Fault> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of bytes that were read.
    pub(super) fn on_read(&self, bytes: &mut [u8]) -> io::Result<()> {
        match (self.now(), bytes.first_mut()) {
            (Some(Fault::SlowReads(time)), _) => std::thread::sleep(time),
            (Some(Fault::ReadsFail), _) => return Err(io::Error::other("input/output error")),
            (Some(Fault::BitsChange), Some(byte)) => *byte ^= 1,
            (Some(Fault::BitsChange | Fault::IsFull) | None, _) => {}
        }
        Ok(())
    }

    /// Whether bytes may be written.
    pub(super) fn on_write(&self) -> io::Result<()> {
        match self.now() {
            Some(Fault::IsFull) => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}
