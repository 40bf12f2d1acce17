//! The directories of `temp_directory`: text to values.
//!
//! ```text
//! /fast (quota 10GB, compression none); /slow (compression zstd 9, page 1MB)
//! ```

use std::fmt;
use std::path::PathBuf;

use super::parse_bytes;

/// Where files go that hold what memory does not, and how they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// Bytes of all files there.
    pub(crate) quota_bytes: u64,
    pub(crate) compression: Compression,
    /// Bytes that are read and written at a time, before compression.
    pub(crate) page_bytes: usize,
}

/// How pages are made smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    /// The frames of LZ4: the quickest.
    Lz4,
    /// Zstandard, at levels from 1, quick, to 19, small.
    Zstd(u8),
}

impl Compression {
    /// Reads what [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// Says which methods there are.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (name, level) = text.split_once(' ').unwrap_or((text, ""));
        match (name.to_ascii_lowercase().as_str(), level.trim()) {
            ("none", "") => Ok(Self::None),
            ("lz4", "") => Ok(Self::Lz4),
            ("zstd", "") => Ok(Self::Zstd(3)),
            ("zstd", level) => match level.parse() {
                Ok(level @ 1..=19) => Ok(Self::Zstd(level)),
                _ => Err(format!("'{level}' is not a level of zstd: 1 to 19")),
            },
            _ => {
                Err(format!("'{text}' is not a compression: none, lz4, zstd, or zstd with a level"))
            }
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd {level}"),
        }
    }
}

impl Directory {
    /// LZ4 costs less than what it saves of a disk's time; pages of 256 KiB keep what is read at a time
    /// small beside the smallest limits.
    const COMPRESSION: Compression = Compression::Lz4;
    const PAGE_BYTES: usize = 256 << 10;
    const QUOTA_BYTES: u64 = u64::MAX;

    /// A directory without a quota.
    pub(crate) fn at(path: PathBuf) -> Self {
        let (quota_bytes, compression) = (Self::QUOTA_BYTES, Self::COMPRESSION);
        Self { path, quota_bytes, compression, page_bytes: Self::PAGE_BYTES }
    }

    /// Makes it where it is not there.
    ///
    /// # Errors
    /// Where that cannot be.
    pub(crate) fn provide(&self) -> Result<(), String> {
        if self.path.is_dir() {
            return Ok(());
        }
        let path = self.path.display();
        let absent =
            |error| format!("there is no directory '{path}', and none can be made: {error}");
        std::fs::create_dir_all(&self.path).map_err(absent)
    }

    /// Every directory of a list, the fastest first.
    ///
    /// # Errors
    /// Says which word makes no sense.
    pub(crate) fn list(text: &str) -> Result<Vec<Self>, String> {
        text.split(';').map(str::trim).filter(|one| !one.is_empty()).map(Self::read).collect()
    }

    fn read(text: &str) -> Result<Self, String> {
        let (path, options) = match text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
            Some((path, options)) => (path.trim(), options),
            None => (text, ""),
        };
        let mut directory = Self::at(PathBuf::from(path));
        for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once(' ').unwrap_or((option, ""));
            match (name.to_ascii_lowercase().as_str(), value.trim()) {
                ("quota", value) => directory.quota_bytes = parse_bytes(value)? as u64,
                ("compression", value) => directory.compression = Compression::read(value)?,
                ("page", value) => {
                    directory.page_bytes = match parse_bytes(value)? {
                        bytes if (4 << 10..=64 << 20).contains(&bytes) => bytes,
                        _ => return Err(format!("'{value}' is not a page: 4KB to 64MB")),
                    }
                }
                _ => return Err(format!("'{option}' is none of quota, compression and page")),
            }
        }
        Ok(directory)
    }
}

impl fmt::Display for Directory {
    /// As [`Directory::list`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Vec::new();
        if self.quota_bytes != Self::QUOTA_BYTES {
            options.push(format!("quota {}B", self.quota_bytes));
        }
        if self.compression != Self::COMPRESSION {
            options.push(format!("compression {}", self.compression));
        }
        if self.page_bytes != Self::PAGE_BYTES {
            options.push(format!("page {}B", self.page_bytes));
        }
        write!(f, "{}", self.path.display())?;
        if options.is_empty() { Ok(()) } else { write!(f, " ({})", options.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_is_written() {
        for text in ["/a", "/a (quota 1000000B)", "/with (paren) (compression zstd 9, page 8192B)"]
        {
            let list = Directory::list(text).unwrap();
            assert_eq!(list.len(), 1);
            assert_eq!(list[0].to_string(), text);
        }
        let list =
            Directory::list(" /fast (quota 2MB, compression none) ;/slow(page 1MB);").unwrap();
        let expected = [
            Directory {
                quota_bytes: 2 << 20,
                compression: Compression::None,
                ..Directory::at("/fast".into())
            },
            Directory::at("/slow(page 1MB)".into()),
        ];
        assert_eq!(list, expected);
        assert_eq!(Directory::list("").unwrap(), []);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |text| Directory::list(text).unwrap_err();
        assert_eq!(error("/a (speed 3)"), "'speed 3' is none of quota, compression and page");
        assert_eq!(error("/a (compression zstd 20)"), "'20' is not a level of zstd: 1 to 19");
        assert!(error("/a (compression gzip)").starts_with("'gzip' is not a compression"));
        assert_eq!(error("/a (page 1KB)"), "'1KB' is not a page: 4KB to 64MB");
        assert!(error("/a (quota lots)").contains("lots"));
    }
}
