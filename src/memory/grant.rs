//! Which blocks may be in memory: as many bytes of them as somebody has reserved for them, beside those that nobody
//! has reserved. A block beyond that is in a file.

use std::sync::Arc;

use super::Pool;

/// Reserved bytes that stand for blocks of a pool: so many of them may be in memory.
#[derive(Debug)]
pub(crate) struct Grant {
    pool: Arc<Pool>,
    bytes: usize,
}

impl Grant {
    /// Of nothing yet.
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        Self { pool: Arc::clone(pool), bytes: 0 }
    }

    pub(crate) fn grow(&mut self, bytes: usize) {
        self.pool.grant(bytes);
        self.bytes += bytes;
    }

    /// Fewer, down to nothing.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.pool.revoke(bytes);
        self.bytes -= bytes;
    }

    /// Bytes that the disk has for what memory has not.
    pub(crate) fn disk_bytes(&self) -> usize {
        self.pool.disk_bytes()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}
