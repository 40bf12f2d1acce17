//! Bytes made smaller, by the methods that settings name.

use std::io::{self, ErrorKind};

use crate::config::Compression;

/// The bytes made smaller; `None` where they are not to be, or would not be.
///
/// # Errors
/// None that bytes could cause.
pub(super) fn compressed(compression: Compression, bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let smaller = match compression {
        Compression::None => return Ok(None),
        Compression::Lz4 => lz4_flex::block::compress(bytes),
        Compression::Zstd(level) => zstd::bulk::compress(bytes, i32::from(level))?,
    };
    Ok((smaller.len() < bytes.len()).then_some(smaller))
}

/// What was compressed, and how many bytes it is.
///
/// # Errors
/// Where it is damaged, or more than there is room for.
pub(super) fn decompressed(
    compression: Compression,
    stored: &[u8],
    bytes: &mut [u8],
) -> io::Result<usize> {
    match compression {
        Compression::Lz4 => lz4_flex::block::decompress_into(stored, bytes)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error)),
        Compression::Zstd(_) => zstd::bulk::decompress_to_buffer(stored, bytes),
        Compression::None => Ok(0),
    }
}
