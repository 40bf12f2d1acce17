//! Large Parquet files in parts, which threads take as they come to them.
//!
//! DataFusion cuts files so that each thread has as many bytes; but bytes are not time, and threads are not equally fast. Its
//! scans hand on whatever of their files has not been begun to whoever asks, so parts are all that they lack: none waits
//! longer for another than one of them takes.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

/// Bytes of a part at least: to open one takes a part of a millisecond (`time_elapsed_opening` of EXPLAIN ANALYZE), to read it
/// many.
const PART_BYTES_MIN: i64 = 8 << 20;

/// Parts of what DataFusion has given to one thread of one file, at most.
const PARTS_MAX: i64 = 16;

/// The rule; see the header of this file. After DataFusion has cut files for its threads, and before joins and sorts tell scans
/// what they will ask: what is cut once serves each run of a template.
#[derive(Debug)]
pub(crate) struct FileParts;

impl PhysicalOptimizerRule for FileParts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let in_parts = node.downcast_ref::<DataSourceExec>().and_then(in_parts);
            Ok(in_parts.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &str {
        "file_parts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A scan of more parts; none where it has one thread, or rows whose order or partition means something.
fn in_parts(scan: &DataSourceExec) -> Option<Arc<dyn ExecutionPlan>> {
    let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
    // A range of a Parquet file is the row groups that begin in it.
    let is_shared = config.file_source().file_type() == "parquet"
        && config.file_groups.len() > 1
        && config.output_partitioning.is_none()
        && !config.preserve_order;
    let files = || config.file_groups.iter().flat_map(FileGroup::iter);
    if !is_shared || files().all(|file| part_count(file) == 1) {
        return None;
    }
    let groups = config.file_groups.iter().map(|group| group.iter().flat_map(parts).collect());
    let groups = groups.map(FileGroup::new).collect();
    let config = FileScanConfigBuilder::from(config.clone()).with_file_groups(groups).build();
    Some(Arc::new(scan.clone().with_data_source(Arc::new(config))))
}

fn range(file: &PartitionedFile) -> FileRange {
    let whole =
        FileRange { start: 0, end: i64::try_from(file.object_meta.size).unwrap_or(i64::MAX) };
    file.range.clone().unwrap_or(whole)
}

fn part_count(file: &PartitionedFile) -> i64 {
    let range = range(file);
    ((range.end - range.start) / PART_BYTES_MIN).clamp(1, PARTS_MAX)
}

/// A file, or a range of it, in parts of about as many bytes each.
fn parts(file: &PartitionedFile) -> Vec<PartitionedFile> {
    let (range, count) = (range(file), part_count(file));
    let length = range.end - range.start;
    let place = |part: i64| range.start + length / count * part + (length % count) * part / count;
    let part = |part: i64| {
        let mut file = file.clone();
        file.range = Some(FileRange { start: place(part), end: place(part + 1) });
        file
    };
    if count == 1 { vec![file.clone()] } else { (0..count).map(part).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_a_range_from_its_start_to_its_end() {
        for (start, end, count) in [
            (0, 10, 1),
            (5, 5 + 2 * PART_BYTES_MIN - 1, 1),
            (5, 5 + 2 * PART_BYTES_MIN + 1, 2),
            (1_273_386_542, 2_546_773_083, 16),
            (0, i64::MAX, 16),
        ] {
            let mut file = PartitionedFile::new("f.parquet", end as u64);
            file.range = Some(FileRange { start, end });
            let parts = parts(&file);
            assert_eq!(parts.len(), count);
            let ranges: Vec<_> = parts.into_iter().filter_map(|part| part.range).collect();
            assert_eq!((ranges[0].start, ranges[count - 1].end), (start, end));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            let lengths = || ranges.iter().map(|range| range.end - range.start);
            assert!(lengths().max().zip(lengths().min()).is_some_and(|(max, min)| max - min <= 1));
        }
        let whole = PartitionedFile::new("f.parquet", 3 * PART_BYTES_MIN as u64);
        assert_eq!(parts(&whole).len(), 3);
        let small = PartitionedFile::new("f.parquet", 3);
        assert!(parts(&small)[0].range.is_none());
    }
}
