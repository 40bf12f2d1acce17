//! DataFusion's scan of rows in memory, made to count what it has given, for progress is judged by that, and to leave out
//! batches that a condition rules out.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSource;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr};
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::execution_plan::SchedulingType;
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use super::zones::Zones;

/// The batches of a table that a scan is to give, in parts.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    pub(super) parts: Vec<Vec<RecordBatch>>,
    pub(super) zones: Zones,
    pub(super) schema: SchemaRef,
    pub(super) projection: Option<Vec<usize>>,
    /// Whether EXPLAIN tells how many batches there are.
    pub(super) shows_sizes: bool,
}

impl Rows {
    fn source(&self) -> Result<MemorySourceConfig> {
        let schema = Arc::clone(&self.schema);
        let source = MemorySourceConfig::try_new(&self.parts, schema, self.projection.clone())?;
        Ok(source.with_show_sizes(self.shows_sizes))
    }

    /// Those that may meet conditions over what the scan gives; nothing where all may.
    fn that_may_meet(&self, conditions: &[Arc<dyn PhysicalExpr>]) -> Result<Option<Self>> {
        let columns = match &self.projection {
            Some(projection) => Arc::new(self.schema.project(projection)?),
            None => Arc::clone(&self.schema),
        };
        let kept = self.zones.that_may_meet(conditions, &columns, &self.schema);
        let Some(kept) = kept.filter(|kept| kept.contains(&false)) else { return Ok(None) };
        let mut kept = kept.into_iter();
        let parts = self.parts.iter().map(|part| {
            let kept = part.iter().zip(kept.by_ref()).filter(|(_, kept)| *kept);
            kept.map(|(batch, _)| batch.clone()).collect()
        });
        Ok(Some(Self { parts: parts.collect(), ..self.clone() }))
    }
}

/// A source of rows whose scan has `output_rows` among its metrics; else it is what it was.
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    source: Arc<dyn DataSource>,
    /// What EXPLAIN calls it.
    name: Option<&'static str>,
    /// What the source is made of, until conditions have left some out.
    rows: Option<Rows>,
    metrics: ExecutionPlanMetricsSet,
}

impl Counted {
    pub(super) fn new(rows: Rows) -> Result<Self> {
        let source = Arc::new(rows.source()?);
        Ok(Self { rows: Some(rows), ..Self::over(None, source) })
    }

    /// One that EXPLAIN calls by a name, for it is no table's.
    pub(crate) fn named(name: &'static str, source: Arc<dyn DataSource>) -> Self {
        Self::over(Some(name), source)
    }

    fn over(name: Option<&'static str>, source: Arc<dyn DataSource>) -> Self {
        Self { source, name, rows: None, metrics: ExecutionPlanMetricsSet::new() }
    }

    fn of(&self, source: Arc<dyn DataSource>) -> Arc<dyn DataSource> {
        Arc::new(Self::over(self.name, source))
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
        if let Some(name) = self.name {
            write!(f, "{name}, ")?;
        }
        self.source.fmt_as(format, f)
    }

    fn repartitioned(
        &self,
        partitions: usize,
        file_bytes_min: usize,
        order: Option<LexOrdering>,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        Ok(self
            .source
            .repartitioned(partitions, file_bytes_min, order)?
            .map(|source| self.of(source)))
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

    /// All conditions are to be looked at again: they are true of no row of the batches that go, and of some of the others.
    fn try_pushdown_filters(
        &self,
        conditions: Vec<Arc<dyn PhysicalExpr>>,
        _options: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn DataSource>>> {
        let left = match &self.rows {
            Some(rows) => rows.that_may_meet(&conditions)?,
            None => None,
        };
        let all = vec![PushedDown::No; conditions.len()];
        let done = FilterPushdownPropagation::with_parent_pushdown_result(all);
        Ok(match left {
            Some(rows) => done.with_updated_node(self.of(Arc::new(rows.source()?))),
            None => done,
        })
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
