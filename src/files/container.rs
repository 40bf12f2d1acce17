//! Tables in their containers: Parquet, and Arrow's IPC file format.
//!
//! Both are read batch by batch. Their readers assert where a damaged file contradicts itself, and
//! believe the sizes it declares; so sizes are checked here first, and a panic becomes an error.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::writer::FileWriter;
use arrow::ipc::{Block, root_as_footer, root_as_message};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::matrix::Matrix;

use super::Rules;
use super::assemble::assemble;
use super::flaw::{Checked, Flaw, Limit};
use super::table::Table;

/// Cells in a batch read from Parquet; 4 MiB of them.
const BATCH_CELLS: usize = 1 << 19;

/// Encoded bytes after which a Parquet row group is complete.
const ROW_GROUP_BYTES: usize = 64 << 20;

pub(super) fn read_parquet(file: File, rules: Rules, limit: Limit<'_>) -> Checked<Matrix> {
    fenced(|| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
        let schema = Arc::clone(builder.schema());
        let batch_rows = (BATCH_CELLS / schema.fields().len().max(1)).clamp(1, 1 << 16);
        let batches = builder.with_batch_size(batch_rows).build()?;
        assemble(&schema, batches.map(|batch| Ok(batch?)), rules, limit)
    })
}

pub(super) fn write_parquet(writer: &mut (impl Write + Send), matrix: &Matrix) -> Checked<()> {
    let table = Table::of(matrix)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let mut writer = ArrowWriter::try_new(writer, Arc::clone(table.schema()), Some(properties))?;
    table.batches(|batch| {
        writer.write(&batch)?;
        if writer.in_progress_size() > ROW_GROUP_BYTES {
            writer.flush()?;
        }
        Ok(())
    })?;
    writer.close()?;
    Ok(())
}

pub(super) fn read_ipc(mut file: File, rules: Rules, limit: Limit<'_>) -> Checked<Matrix> {
    fenced(|| {
        let size_bytes = file.metadata()?.len();
        let mut start = [0; 6];
        let mut end = [0; 10];
        let whole = file.read_exact(&mut start).is_ok() && file.seek(SeekFrom::End(-10)).is_ok();
        if !whole || start != *b"ARROW1" {
            return Err(Flaw::new("not an Arrow IPC file: it does not begin with ARROW1"));
        }
        file.read_exact(&mut end)?;
        let footer_bytes = read_footer_length(end)?;
        let position = size_bytes.checked_sub(10 + footer_bytes as u64);
        file.seek(SeekFrom::Start(position.ok_or_else(damaged)?))?;
        let mut footer = vec![0; footer_bytes];
        file.read_exact(&mut footer)?;
        let footer = root_as_footer(&footer).map_err(|_| damaged())?;
        let schema = footer.schema().ok_or_else(damaged)?;
        if !schema.endianness().equals_to_target_endianness() {
            return Err(Flaw::new("an Arrow IPC file of the other byte order"));
        }
        let schema = Arc::new(fb_to_schema(schema));
        let mut decoder = FileDecoder::new(Arc::clone(&schema), footer.version());
        for block in footer.dictionaries().into_iter().flatten() {
            let buffer = read_block(&mut file, block, size_bytes, limit)?;
            decoder.read_dictionary(block, &buffer)?;
        }
        let mut read = |block: &Block| {
            let buffer = read_block(&mut file, block, size_bytes, limit)?;
            decoder.read_record_batch(block, &buffer)?.ok_or_else(damaged)
        };
        let blocks = footer.recordBatches().into_iter().flatten();
        assemble(&schema, blocks.map(&mut read), rules, limit)
    })
}

/// Reads one message with its body, both within the file.
fn read_block(
    file: &mut File,
    block: &Block,
    size_bytes: u64,
    limit: Limit<'_>,
) -> Checked<Buffer> {
    let start = u64::try_from(block.offset()).map_err(|_| damaged())?;
    let message_bytes = usize::try_from(block.metaDataLength()).map_err(|_| damaged())?;
    let body_bytes = usize::try_from(block.bodyLength()).map_err(|_| damaged())?;
    let total_bytes = message_bytes.checked_add(body_bytes).ok_or_else(damaged)?;
    let end = start.checked_add(total_bytes as u64);
    if end.is_none_or(|end| end > size_bytes) || message_bytes < 8 {
        return Err(damaged());
    }
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = vec![0; total_bytes];
    file.read_exact(&mut bytes)?;
    admit_compressed(&bytes[..message_bytes], &bytes[message_bytes..], limit)?;
    Ok(Buffer::from_vec(bytes))
}

/// Checks the sizes that compressed buffers declare: eight bytes before each.
fn admit_compressed(message: &[u8], body: &[u8], limit: Limit<'_>) -> Checked<()> {
    let message = if message.starts_with(&[0xff; 4]) { &message[8..] } else { &message[4..] };
    let message = root_as_message(message).map_err(|_| damaged())?;
    let dictionary = message.header_as_dictionary_batch().and_then(|batch| batch.data());
    let Some(batch) = message.header_as_record_batch().or(dictionary) else { return Ok(()) };
    if batch.compression().is_none() {
        return Ok(());
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let declared = usize::try_from(buffer.offset())
            .ok()
            .and_then(|offset| body.get(offset..)?.first_chunk())
            .map_or(0, |&bytes| i64::from_le_bytes(bytes));
        limit.admit(usize::try_from(declared).unwrap_or(0))?;
    }
    Ok(())
}

pub(super) fn write_ipc(writer: &mut impl Write, matrix: &Matrix) -> Checked<()> {
    let table = Table::of(matrix)?;
    let mut writer = FileWriter::try_new(writer, table.schema())?;
    table.batches(|batch| Ok(writer.write(&batch)?))?;
    Ok(writer.finish()?)
}

fn damaged() -> Flaw {
    Flaw::new("the file is damaged")
}

/// Runs a reader; where it panics, that is an error about the file.
fn fenced(read: impl FnOnce() -> Checked<Matrix>) -> Checked<Matrix> {
    // Nothing that the reader leaves half done is seen again: what it made is dropped with it.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(damaged()))
}
