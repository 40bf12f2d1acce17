//! DataFusion's source of Parquet files, but for who opens a file.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileOpener, FileScanConfig, FileSource, ParquetSource,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::logical_expr::Volatility;
use datafusion::object_store::ObjectStore;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal, NegativeExpr};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr,
    conjunction_opt, split_conjunction,
};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};

use super::first::First;
use super::kept::KeptColumns;
use super::layout::is_known;
use super::opener::Opener;
use super::order::of_files;
use crate::config::ForRules;
use crate::first_by::FirstBy;

/// An expression over columns of a schema as whoever made the rule computes it, to the same answers.
pub(crate) type Computed =
    fn(Arc<dyn PhysicalExpr>, &Schema) -> Result<Transformed<Arc<dyn PhysicalExpr>>>;

/// What all scans of a database share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    /// Columns that others have read.
    pub(crate) kept: Arc<KeptColumns>,
    /// Footers that have been read.
    pub(crate) footers: Arc<FileMetadataCache>,
    /// Conditions are as they are computed so.
    pub(crate) computed: Computed,
}

/// What a scan may use.
#[derive(Debug, Clone)]
pub(super) struct Means {
    /// Columns that are read side by side.
    pub(super) threads: usize,
    /// Bytes of the columns of a row group that each thread may have in memory at once.
    pub(super) group_bytes_max: u64,
    pub(super) shared: Shared,
}

/// Bytes of the columns of a row group in memory, whatever the limit.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// The part of what may be reserved that all threads may take for them.
const MEMORY_SHARE: usize = 8;

impl Means {
    /// What `shared` scans have, as far as settings let one of them.
    pub(super) fn of(settings: &ForRules, shared: &Shared) -> Self {
        let share_bytes = settings.reservable_bytes / (MEMORY_SHARE * settings.threads.max(1));
        let group_bytes_max = share_bytes.min(GROUP_BYTES_MAX) as u64;
        Self { threads: settings.threads, group_bytes_max, shared: shared.clone() }
    }
}

/// A source of Parquet files of which only columns are read that are known here.
#[derive(Clone)]
pub(super) struct PagedSource {
    parquet: ParquetSource,
    means: Means,
    /// Rows that are asked for, where DataFusion does not say so.
    first: Option<First>,
    /// By what the first rows are asked for: row groups that may have them are read before others.
    first_by: Option<FirstBy>,
    given: Given,
    /// Of this scan alone: those of DataFusion's source are of all runs of a plan that is kept.
    metrics: ExecutionPlanMetricsSet,
}

/// How rows are given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    pub(super) batch_rows: usize,
    /// Whether columns are encoded, for who decodes them.
    pub(super) is_encoded: bool,
}

/// Rows of a batch, where nobody has said how many.
const BATCH_ROWS: usize = 8192;

impl PagedSource {
    /// `None` where other columns are read, or those of the files have to be computed, or conditions are
    /// to be met by the scan alone.
    pub(super) fn of(parquet: &ParquetSource, means: Means, first: Option<First>) -> Option<Self> {
        let schema = parquet.table_schema();
        let fields = schema.file_schema().fields();
        let is_stored = |expression: &Arc<dyn PhysicalExpr>| {
            collect_columns(expression).iter().all(|column| {
                let field = fields.get(column.index());
                field.is_some_and(|field| field.name() == column.name())
            })
        };
        let projection = parquet.projection()?;
        let columns = projection.column_indices();
        let is_known =
            |&at: &usize| fields.get(at).is_some_and(|field| is_known(field.data_type()));
        let is_plain =
            projection.iter().all(|column| is_stored(&column.expr) && is_plain(&column.expr));
        let names = fields.iter().map(|field| field.name());
        let is_ours = !columns.is_empty()
            && columns.iter().all(is_known)
            && is_plain
            && parquet.filter().is_none_or(|filter| is_stored(&filter))
            && schema.virtual_columns().is_empty()
            && !parquet.table_parquet_options().global.pushdown_filters
            && names.collect::<std::collections::HashSet<_>>().len() == fields.len();
        let parquet = parquet.clone();
        let given = Given { batch_rows: BATCH_ROWS, is_encoded: false };
        let metrics = ExecutionPlanMetricsSet::new();
        is_ours.then(|| Self { parquet, means, first, first_by: None, given, metrics })
    }

    /// The same source for who decodes its columns, or for who does not; nothing where it is so.
    pub(super) fn given_encoded(&self, is_encoded: bool) -> Option<Self> {
        let given = Given { is_encoded, ..self.given };
        (is_encoded != self.given.is_encoded).then(|| Self { given, ..self.clone() })
    }

    /// The same source of which the first rows are asked for, where one of its conditions says so.
    pub(super) fn first_by(
        &self,
        of: &dyn Fn(&Arc<dyn PhysicalExpr>) -> Option<FirstBy>,
    ) -> Option<Self> {
        let filter = self.parquet.filter()?;
        let first_by = split_conjunction(&filter).into_iter().find_map(of)?;
        Some(Self { first_by: Some(first_by), ..self.clone() })
    }

    /// What DataFusion made of its source, read as this one where that is still possible.
    fn again(&self, parquet: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        let ours = parquet.downcast_ref::<ParquetSource>().and_then(|parquet| {
            let source = Self::of(parquet, self.means.clone(), self.first.clone())?;
            Some(Arc::new(Self { parquet: source.parquet, ..self.clone() }) as _)
        });
        ours.unwrap_or(parquet)
    }
}

/// Whether an expression means the same in every file, and is told by its row.
fn is_plain(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let mut is_plain = true;
    let walked = expression.apply(|expression| {
        let function = expression.downcast_ref::<ScalarFunctionExpr>();
        is_plain &= expression.is::<Column>()
            || expression.is::<Literal>()
            || expression.is::<CastExpr>()
            || expression.is::<BinaryExpr>()
            || expression.is::<NegativeExpr>()
            || function.is_some_and(|of| of.fun().signature().volatility == Volatility::Immutable);
        Ok(TreeNodeRecursion::Continue)
    });
    is_plain && walked.is_ok()
}

impl FileSource for PagedSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let (parquet, config) = (self.parquet.clone(), config.clone());
        let means = (self.means.clone(), self.given, self.metrics.clone());
        let asked = (self.filter(), self.first_by.clone());
        Ok(Arc::new(Opener::new(parquet, asked, config, store, partition, means)?))
    }

    fn table_schema(&self) -> &TableSchema {
        self.parquet.table_schema()
    }

    fn with_batch_size(&self, batch_rows: usize) -> Arc<dyn FileSource> {
        let source = self.parquet.with_batch_size(batch_rows);
        match source.downcast_ref::<ParquetSource>().cloned() {
            Some(parquet) => {
                let given = Given { batch_rows, ..self.given };
                Arc::new(Self { parquet, given, ..self.clone() })
            }
            None => source,
        }
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        let first = self.first.as_ref().map(|first| Arc::clone(&first.condition));
        conjunction_opt(self.parquet.filter().into_iter().chain(first))
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.parquet.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        self.parquet.file_type()
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                f.write_str(", reader=pages")?;
                self.first.iter().try_for_each(|first| write!(f, ", {first}"))?;
                self.first_by.iter().try_for_each(|by| write!(f, ", {by}"))?;
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "reader=pages")?;
                self.first.iter().try_for_each(|first| writeln!(f, "{first}"))?;
                self.first_by.iter().try_for_each(|by| writeln!(f, "{by}"))?;
            }
        }
        self.parquet.fmt_extra(format, f)
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        match &self.first_by {
            Some(by) => {
                let schema = self.parquet.table_schema().file_schema();
                of_files(files, by, schema, self.means.shared.footers.as_ref())
            }
            None => files,
        }
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let mut pushed = self.parquet.try_pushdown_filters(filters, config)?;
        pushed.updated_node = pushed.updated_node.map(|source| self.again(source));
        Ok(pushed)
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        // The order of row groups is DataFusion's to change.
        self.parquet.try_pushdown_sort(order, properties)
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let pushed = self.parquet.try_pushdown_projection(projection)?;
        Ok(pushed.map(|source| self.again(source)))
    }

    fn repartitioned(
        &self,
        partitions: usize,
        file_bytes_min: usize,
        order: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        self.parquet.repartitioned(partitions, file_bytes_min, order, config)
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let next = self.parquet.apply_expressions(f)?;
        match &self.first {
            Some(first) => next.visit_sibling(|| f(&first.condition)),
            None => Ok(next),
        }
    }
}
