//! DataFusion's scan of rows in memory under a name, made to count what it has given, for progress is judged by that.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source::DataSource;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr};
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::execution_plan::SchedulingType;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

/// A source of rows that are no table's, whose scan has `output_rows` among its metrics; else it is what it was.
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    source: Arc<dyn DataSource>,
    /// What EXPLAIN calls it.
    name: &'static str,
    metrics: ExecutionPlanMetricsSet,
}

impl Counted {
    pub(crate) fn named(name: &'static str, source: Arc<dyn DataSource>) -> Self {
        Self { source, name, metrics: ExecutionPlanMetricsSet::new() }
    }

    fn of(&self, source: Arc<dyn DataSource>) -> Arc<dyn DataSource> {
        Arc::new(Self::named(self.name, source))
    }
}

impl DataSource for Counted {
    fn open(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let given = MetricBuilder::new(&self.metrics).output_rows(partition);
        let rows = self.source.open(partition, context)?;
        let schema = rows.schema();
        let rows = rows.inspect(move |batch| {
            if let Ok(batch) = batch {
                given.add(batch.num_rows());
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn metrics(&self) -> ExecutionPlanMetricsSet {
        self.metrics.clone()
    }

    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.name)?;
        self.source.fmt_as(format, f)
    }

    fn repartitioned(
        &self,
        partitions: usize,
        file_bytes_min: usize,
        order: Option<LexOrdering>,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        let source = self.source.repartitioned(partitions, file_bytes_min, order)?;
        Ok(source.map(|source| self.of(source)))
    }

    fn output_partitioning(&self) -> Partitioning {
        self.source.output_partitioning()
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        self.source.eq_properties()
    }

    fn scheduling_type(&self) -> SchedulingType {
        self.source.scheduling_type()
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        self.source.partition_statistics(partition)
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn DataSource>> {
        self.source.with_fetch(limit).map(|source| self.of(source))
    }

    fn fetch(&self) -> Option<usize> {
        self.source.fetch()
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        Ok(self.source.try_swapping_with_projection(projection)?.map(|source| self.of(source)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.source.apply_expressions(f)
    }
}
