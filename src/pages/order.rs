//! Row groups in the order in which they may have the first few rows of an order that is asked for, by what footers say.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::concat;
use arrow::datatypes::Schema;
use datafusion::datasource::listing::PartitionedFile;
// Scans keep footers as this type; another one of its name, beside the readers, is none of theirs.
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccessPlanFilter};
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::ParquetMetaData;

use crate::first_by::FirstBy;

/// The row groups that begin in the part of a file that is read.
pub(super) fn in_range(file: &PartitionedFile, metadata: &ParquetMetaData) -> Vec<usize> {
    let groups = metadata.row_groups();
    let mut plan = RowGroupAccessPlanFilter::new(ParquetAccessPlan::new_all(groups.len()));
    if let Some(range) = &file.range {
        plan.prune_by_range(groups, range);
    }
    plan.row_group_indexes().collect()
}

/// Row groups of a file, the most promising first; as they are where their bounds are not known.
pub(super) fn of_groups(
    groups: Vec<usize>,
    by: &FirstBy,
    schema: &Schema,
    metadata: &ParquetMetaData,
) -> Vec<usize> {
    let order = bounds(&groups, by, schema, metadata).and_then(|bounds| by.parts(&bounds));
    match order {
        Some(order) => order.into_iter().map(|at| groups[at]).collect(),
        None => groups,
    }
}

/// Files, or parts of them, each where its most promising row group is; behind these those whose footers nobody has read.
pub(super) fn of_files(
    files: Vec<PartitionedFile>,
    by: &FirstBy,
    schema: &Schema,
    footers: &FileMetadataCache,
) -> Vec<PartitionedFile> {
    let (mut known, mut all) = (Vec::new(), Vec::new());
    for (at, file) in files.iter().enumerate() {
        let Some(metadata) = footer(file, footers) else { continue };
        let groups = in_range(file, &metadata);
        if let Some(bounds) = bounds(&groups, by, schema, &metadata) {
            known.extend(groups.iter().map(|_| at));
            all.push(bounds);
        }
    }
    let ends = |which: usize| {
        let ends: Vec<_> = all.iter().map(|bounds| bounds[which].as_ref()).collect();
        concat(&ends).ok()
    };
    let order = ends(0).zip(ends(1)).and_then(|(least, most)| by.parts(&[least, most]));
    let order = order.into_iter().flatten().map(|group| known[group]);
    let mut files: Vec<Option<PartitionedFile>> = files.into_iter().map(Some).collect();
    let all = order.chain(0..files.len()).collect::<Vec<_>>();
    all.into_iter().filter_map(|at| files[at].take()).collect()
}

/// What the footer says of the file as it was when the statement was planned, if it has been read.
fn footer(file: &PartitionedFile, footers: &FileMetadataCache) -> Option<Arc<ParquetMetaData>> {
    let known = footers.get(&file.object_meta.location)?;
    let is_same = known.meta.size == file.object_meta.size
        && known.meta.last_modified == file.object_meta.last_modified;
    let parquet = known.file_metadata.as_any().downcast_ref::<CachedParquetMetaData>()?;
    is_same.then(|| Arc::clone(parquet.parquet_metadata()))
}

/// The least and the greatest value of the column in each of some row groups; NULL where the footer does not say.
fn bounds(
    groups: &[usize],
    by: &FirstBy,
    schema: &Schema,
    metadata: &ParquetMetaData,
) -> Option<[ArrayRef; 2]> {
    let described = metadata.file_metadata().schema_descr();
    let converter = StatisticsConverter::try_new(by.column.name(), schema, described).ok()?;
    let groups = || groups.iter().map(|&group| metadata.row_group(group));
    Some([converter.row_group_mins(groups()).ok()?, converter.row_group_maxes(groups()).ok()?])
}
