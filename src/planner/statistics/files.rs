//! What is known of files: Parquet by its metadata and a few pages, all others by their length.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::sum;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::object_store::path::Path as StorePath;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::RowGroupMetaData;

use super::profile::{Profile, Reader};
use super::sample::WHOLE_ROWS_MAX;
use super::{Spread, axis};
use crate::catalog::{Format, Stamp, format_of};

/// Files whose metadata is looked at: the rest is taken to be like these.
const FILES_READ_MAX: usize = 8;

/// Runs of neighbouring rows that are read to see how many values differ.
const RUNS: usize = 4;

/// Rows of a run.
const RUN_ROWS: usize = 2048;

/// Rows between the runs of one large group of rows: about a page, so that few are read to be skipped.
const RUN_DISTANCE_ROWS: usize = 20_480;

/// Bytes of a value in a file that does not say how many rows it has.
const VALUE_BYTES: f64 = 8.0;

/// The files of a table.
pub(super) struct Files {
    stamps: Vec<Stamp>,
    footers: Arc<FileMetadataCache>,
}

impl Files {
    /// Those that stand for a table's rows.
    pub(super) fn new(stamps: Vec<Stamp>, footers: Arc<FileMetadataCache>) -> Self {
        Self { stamps, footers }
    }

    /// The rows of all files.
    pub(super) fn row_count(&self, schema: &Schema) -> f64 {
        let (mut rows, mut bytes) = (0, 0);
        for stamp in self.looked_at() {
            let Some(metadata) = self.metadata(stamp) else { continue };
            rows += metadata.metadata().file_metadata().num_rows();
            bytes += stamp.bytes;
        }
        let all: u64 = self.stamps.iter().map(|stamp| stamp.bytes).sum();
        match bytes {
            0 => all as f64 / (VALUE_BYTES * schema.fields().len().max(1) as f64),
            read => rows as f64 * (all as f64 / read as f64),
        }
    }

    /// Where the values of a column lie.
    pub(super) fn spread(&self, schema: &Schema, column: usize) -> Spread {
        let (mut range, mut nulls, mut rows) = (None, 0, 0);
        let field = schema.field(column);
        for stamp in self.looked_at() {
            let Some(metadata) = self.metadata(stamp) else { continue };
            rows += metadata.metadata().file_metadata().num_rows();
            let Some((of_file, of_nulls)) = range_and_nulls(&metadata, field.name()) else {
                continue;
            };
            range = axis::joined(range, of_file);
            nulls += of_nulls;
        }
        let nulls = if rows == 0 { 0.0 } else { nulls as f64 / rows as f64 };
        // A range is that of all files only where all have been looked at.
        let of_all = range.filter(|_| self.stamps.len() <= FILES_READ_MAX);
        Spread { range, nulls, distinct_max: axis::count(of_all, field.data_type()) }
    }

    /// What rows say of a column, of which no more than so many values can differ: all of them if they are few, else some.
    pub(super) fn profile(
        &self,
        schema: &SchemaRef,
        column: usize,
        rows: f64,
        distinct_max: f64,
    ) -> Option<Profile> {
        if rows > WHOLE_ROWS_MAX as f64 || self.looked_at().count() < self.stamps.len() {
            return Profile::of_few_runs(&self.runs(schema, column)?, rows, distinct_max);
        }
        let mut groups = Vec::new();
        for stamp in &self.stamps {
            let metadata = self.metadata(stamp)?;
            for group in 0..metadata.metadata().num_row_groups() {
                let name = schema.field(column).name();
                groups.push(read(stamp, metadata.clone(), name, group, 0, WHOLE_ROWS_MAX)?);
            }
        }
        Some(Reader::of_all(&groups))
    }

    /// Some runs of a column's rows, from places far apart.
    fn runs(&self, schema: &SchemaRef, column: usize) -> Option<Vec<ArrayRef>> {
        let name = schema.field(column).name();
        let mut places = Vec::new();
        for (at, stamp) in self.looked_at().enumerate() {
            let groups = self.metadata(stamp)?.metadata().num_row_groups();
            places.extend((0..groups).map(|group| (at, group)));
        }
        let last = places.len().checked_sub(1)?;
        let chosen: Vec<_> = (0..RUNS).map(|run| places[(last * run).div_ceil(RUNS - 1)]).collect();
        let mut runs = Vec::new();
        for (at, &(file, group)) in chosen.iter().enumerate() {
            let before = chosen[..at].iter().filter(|place| **place == (file, group)).count();
            let stamp = self.looked_at().nth(file)?;
            let metadata = self.metadata(stamp)?;
            let rows = metadata.metadata().row_group(group).num_rows() as usize;
            let skipped = before * RUN_DISTANCE_ROWS.min(rows / RUNS);
            if skipped == 0 || skipped + RUN_ROWS < rows {
                runs.push(read(stamp, metadata, name, group, skipped, RUN_ROWS)?);
            }
        }
        Some(runs)
    }

    /// The files whose metadata stands for that of all.
    fn looked_at(&self) -> impl Iterator<Item = &Stamp> {
        let stride = self.stamps.len().div_ceil(FILES_READ_MAX).max(1);
        self.stamps.iter().filter(|stamp| is_parquet(&stamp.path)).step_by(stride)
    }

    /// The metadata of a file: that which scans keep, else it is read.
    fn metadata(&self, stamp: &Stamp) -> Option<ArrowReaderMetadata> {
        let kept = self.footers.get(&StorePath::from_absolute_path(&stamp.path).ok()?);
        let is_current = |bytes, modified| bytes == stamp.bytes && Some(modified) == stamp.modified;
        if let Some(kept) = kept
            && is_current(kept.meta.size, kept.meta.last_modified.into())
            && let Some(parquet) =
                kept.file_metadata.as_any().downcast_ref::<CachedParquetMetaData>()
        {
            let metadata = Arc::clone(parquet.parquet_metadata());
            return ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new()).ok();
        }
        let file = File::open(&stamp.path).ok()?;
        ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).ok()
    }
}

fn is_parquet(path: &Path) -> bool {
    path.to_str().and_then(format_of) == Some(Format::Parquet)
}

/// The range of a column in a file, where its type has one, and its NULLs.
fn range_and_nulls(
    metadata: &ArrowReaderMetadata,
    column: &str,
) -> Option<(Option<[f64; 2]>, u64)> {
    let parquet = metadata.metadata();
    let converter =
        StatisticsConverter::try_new(column, metadata.schema(), metadata.parquet_schema()).ok()?;
    let groups = || parquet.row_groups().iter();
    let nulls = sum(&converter.row_group_null_counts(groups()).ok()?).unwrap_or(0);
    let least = converter.row_group_mins(groups()).ok()?;
    let greatest = converter.row_group_maxes(groups()).ok()?;
    // A group that does not say has values anywhere, unless it has none.
    let silent = groups().zip(0..).any(|(group, at): (&RowGroupMetaData, usize)| {
        group.num_rows() > 0 && (least.is_null(at) || greatest.is_null(at))
    });
    let range = axis::joined(axis::range(&least), axis::range(&greatest));
    Some((range.filter(|_| !silent), nulls))
}

/// Some rows of a group of rows, of one column.
fn read(
    stamp: &Stamp,
    metadata: ArrowReaderMetadata,
    column: &str,
    group: usize,
    skipped: usize,
    rows: usize,
) -> Option<ArrayRef> {
    let root = metadata.schema().index_of(column).ok()?;
    let mask = ProjectionMask::roots(metadata.parquet_schema(), [root]);
    let file = File::open(&stamp.path).ok()?;
    let mut batches = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_projection(mask)
        .with_row_groups(vec![group])
        .with_batch_size(rows)
        .with_offset(skipped)
        .with_limit(rows)
        .build()
        .ok()?;
    let batch = batches.next()?.ok()?;
    Some(Arc::clone(batch.column(0)))
}
