//! How many bytes of columns of Parquet files stay in memory, decompressed.

use std::fmt;

use super::parse_bytes;

/// Of the memory limit, what columns have at most.
const SHARE_OF_MEMORY: usize = 16;

/// What they may have in any case, where it is not told.
const LEAST: usize = 128 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParquetCache {
    /// In proportion to what is read.
    Auto,
    Bytes(usize),
}

/// Bytes that are kept at most: in proportion to what is read, within these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ColumnLimits {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

impl ParquetCache {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        match text.eq_ignore_ascii_case("auto") {
            true => Ok(Self::Auto),
            false => {
                parse_bytes(text).map(Self::Bytes).map_err(|wrong| format!("{wrong}, nor auto"))
            }
        }
    }

    pub(super) fn limits(self, memory_limit_bytes: usize) -> ColumnLimits {
        let most = memory_limit_bytes / SHARE_OF_MEMORY;
        match self {
            Self::Auto => ColumnLimits { least: LEAST.min(most), most },
            Self::Bytes(bytes) => ColumnLimits { least: bytes.min(most), most: bytes.min(most) },
        }
    }
}

impl fmt::Display for ParquetCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}
