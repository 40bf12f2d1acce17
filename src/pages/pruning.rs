//! What statistics of row groups and pages say about a condition.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    PagePruningAccessPlanFilter, ParquetAccessPlan, RowGroupAccess, RowGroupAccessPlanFilter,
};
use datafusion::datasource::physical_plan::{FileSource, ParquetFileMetrics, ParquetSource};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

/// What statistics of row groups and pages say about the condition.
pub(super) struct Pruning {
    condition: Option<Arc<dyn PhysicalExpr>>,
    /// Whether a join or another operator may still narrow it.
    is_changing: bool,
    /// Of a condition that does not change.
    predicate: Option<Arc<PruningPredicate>>,
    schema: SchemaRef,
    in_list_max: usize,
    by_pages: bool,
    by_bloom_filters: bool,
    metrics: ParquetFileMetrics,
}

impl Pruning {
    pub(super) fn new(
        parquet: &ParquetSource,
        partition: usize,
        file: &PartitionedFile,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Self {
        let options = &parquet.table_parquet_options().global;
        let condition = parquet.filter().filter(|_| options.pruning);
        let name = file.object_meta.location.as_ref();
        let is_changing = condition.as_ref().is_some_and(|condition| {
            matches!(DynamicFilterTracking::classify(condition), DynamicFilterTracking::Watching(_))
        });
        let mut pruning = Self {
            condition,
            is_changing,
            predicate: None,
            schema: Arc::clone(parquet.table_schema().file_schema()),
            in_list_max: parquet.max_in_list_size(),
            by_pages: options.enable_page_index,
            by_bloom_filters: options.bloom_filter_on_read,
            metrics: ParquetFileMetrics::new(partition, name, metrics),
        };
        if let Some(condition) = &pruning.condition
            && !is_changing
        {
            pruning.predicate = pruning.predicate(condition);
        }
        pruning
    }

    fn predicate(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<Arc<PruningPredicate>> {
        let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(&self.schema));
        builder.with_max_in_list_size(self.in_list_max).build(Arc::clone(condition))
    }

    /// Whether bloom filters of a file may say more about the condition than its statistics: they tell about
    /// values that are asked for one by one.
    pub(super) fn asks_bloom_filters(&self, metadata: &ParquetMetaData) -> bool {
        let Some(condition) = &self.condition else { return false };
        let Some(predicate) = self.predicate(condition) else { return false };
        let schema = metadata.file_metadata().schema_descr();
        let filter = |group: &RowGroupMetaData, leaf: usize| {
            group.columns().get(leaf).and_then(ColumnChunkMetaData::bloom_filter_offset)
        };
        let has_filter =
            |leaf| metadata.row_groups().iter().any(|group| filter(group, leaf).is_some());
        self.by_bloom_filters
            && predicate.literal_guarantees().iter().any(|asked| {
                let name = asked.column.name();
                let mut leaves = 0..schema.num_columns();
                leaves.any(|leaf| schema.get_column_root(leaf).name() == name && has_filter(leaf))
            })
    }

    /// Notes bytes that were read.
    pub(super) fn scanned(&self, bytes: u64) {
        self.metrics.bytes_scanned.add(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// The rows of a group that may meet the condition as it is now.
    pub(super) fn access(&self, metadata: &ParquetMetaData, group: usize) -> RowGroupAccess {
        let Some(condition) = &self.condition else { return RowGroupAccess::Scan };
        let predicate = match self.is_changing {
            true => self.predicate(condition),
            false => self.predicate.clone(),
        };
        let described = metadata.file_metadata().schema_descr();
        let count = metadata.num_row_groups();
        let mut plan = ParquetAccessPlan::new_none(count);
        plan.scan(group);
        let mut plan = RowGroupAccessPlanFilter::new(plan);
        if let Some(predicate) = predicate {
            let (groups, metrics) = (metadata.row_groups(), &self.metrics);
            plan.prune_by_statistics(&self.schema, described, groups, &predicate, metrics);
        }
        let mut plan = plan.build();
        if self.by_pages && plan.should_scan(group) && metadata.column_index().is_some() {
            let pages = PagePruningAccessPlanFilter::new(condition, Arc::clone(&self.schema));
            plan = pages.prune_plan_with_page_index(
                plan,
                &self.schema,
                described,
                metadata,
                &self.metrics,
            );
        }
        let access = plan.into_inner().into_iter().nth(group);
        access.unwrap_or(RowGroupAccess::Scan)
    }
}
