//! One file of a scan: what its footer says decides who reads it, and which rows.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_err};
use datafusion::config::ParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    DefaultParquetFileReaderFactory, RowGroupAccess,
};
use datafusion::datasource::physical_plan::{
    FileGroup, FileOpenFuture, FileOpener, FileScanConfig, FileSource, FileStreamBuilder,
    ParquetSource,
};
use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, Projector};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use futures::stream::{BoxStream, try_unfold};
use futures::{FutureExt, StreamExt};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelector};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, RowGroupMetaData};

use super::chunk::Source;
use super::fetch::{BeforeWaiting, Spare, fetch};
use super::flaw::{Checked, Flaw};
use super::layout::{Layout, is_view_of};
use super::order::{in_range, of_groups};
use super::pruning::Pruning;
use super::small::{SMALL_BYTES, SmallFiles};
use super::source::{Given, Means};
use super::window::{By, Place, Windows};
use crate::encoding::as_they_are;
use crate::first_by::FirstBy;
use crate::steps::{Step, steps};

type Batches = BoxStream<'static, Result<RecordBatch>>;

/// Bytes of columns that are worth a thread of their own, where there are fewer groups than threads.
const PART_BYTES_MIN: u64 = 1 << 20;

/// Opens the files of one partition of a scan.
pub(super) struct Opener(Arc<Scan>);

/// A scan, as one of its partitions sees it.
struct Scan {
    parquet: ParquetSource,
    /// What rows have to meet.
    condition: Option<Arc<dyn PhysicalExpr>>,
    /// By what the first few of them are asked for, where they are.
    first_by: Option<FirstBy>,
    config: FileScanConfig,
    store: Arc<dyn ObjectStore>,
    partition: usize,
    batch_rows: usize,
    means: Means,
    /// The columns that are read.
    columns: SchemaRef,
    projector: Projector,
    /// The places of the columns that are given, where these may be encoded.
    given: Option<Vec<usize>>,
    spare: Arc<Spare>,
    small: OnceLock<SmallFiles>,
    metrics: ExecutionPlanMetricsSet,
    /// Files that were left to DataFusion.
    left: Count,
}

impl Opener {
    /// # Errors
    /// None but DataFusion's, for a projection that its own schema does not fit.
    pub(super) fn new(
        parquet: ParquetSource,
        (condition, first_by): (Option<Arc<dyn PhysicalExpr>>, Option<FirstBy>),
        config: FileScanConfig,
        store: Arc<dyn ObjectStore>,
        partition: usize,
        (means, given, metrics): (Means, Given, ExecutionPlanMetricsSet),
    ) -> Result<Self> {
        let Given { batch_rows, is_encoded } = given;
        let schema = parquet.table_schema().file_schema();
        let Some(projection) = parquet.projection().cloned() else {
            return internal_err!("a scan of Parquet files without a projection");
        };
        let columns = Arc::new(schema.project(&projection.column_indices())?);
        let projection =
            projection.try_map_exprs(|expression| reassign_expr_columns(expression, &columns))?;
        let projector = projection.make_projector(&columns)?;
        let place =
            |column: &ProjectionExpr| column.expr.downcast_ref::<Column>().map(Column::index);
        let given = is_encoded.then(|| projection.iter().map(place).collect()).flatten();
        let left = MetricBuilder::new(&metrics).counter("files_not_by_pages", partition);
        let condition = condition.map(|condition| {
            let computed = reassign_expr_columns(Arc::clone(&condition), &columns)
                .and_then(|condition| (means.shared.computed)(condition, &columns));
            // A condition of which not all columns are read is taken apart later.
            computed.map_or(condition, |computed| computed.data)
        });
        Ok(Self(Arc::new(Scan {
            parquet,
            condition,
            first_by,
            config,
            store,
            partition,
            batch_rows,
            means,
            columns,
            projector,
            given,
            spare: Arc::default(),
            small: OnceLock::new(),
            metrics,
            left,
        })))
    }
}

impl FileOpener for Opener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let scan = Arc::clone(&self.0);
        Ok(async move { scan.open(file).await }.boxed())
    }
}

impl Scan {
    async fn open(self: Arc<Self>, file: PartitionedFile) -> Result<Batches> {
        let path = LocalFileSystem::new().path_to_filesystem(&file.object_meta.location)?;
        let metadata = self.metadata(&file, &path).await?;
        let bytes = file.object_meta.size;
        check(&metadata, bytes).map_err(|flaw| flaw.at(&path))?;
        let groups = in_range(&file, &metadata);
        if groups.is_empty() {
            return Ok(futures::stream::empty().boxed());
        }
        let pruning = Pruning::new(&self.parquet, self.partition, &file, &self.metrics);
        let layouts = self.layouts(&file, &metadata, &groups);
        let groups = match &self.first_by {
            Some(by) => of_groups(groups, by, self.parquet.table_schema().file_schema(), &metadata),
            None => groups,
        };
        let groups = VecDeque::from(groups);
        let Some(layouts) = layouts.filter(|_| !pruning.asks_bloom_filters(&metadata)) else {
            self.left.add(1);
            return self.left_to_datafusion(file);
        };
        let steps = self.condition.as_ref().map(|condition| steps(condition, &self.columns));
        let steps = steps.unwrap_or_default();
        let of_path = |flaw: Flaw| flaw.at(&path);
        let (spare, kept) = (&self.spare, &self.means.shared.kept);
        let place = Place::open(path.clone(), bytes, metadata, layouts, spare, kept);
        let place = place.map_err(of_path)?;
        let before_waiting = (bytes < SMALL_BYTES).then(|| self.asking_from(path));
        let reading =
            Reading { scan: self, place, before_waiting, groups, pruning, steps, windows: None };
        Ok(try_unfold(reading, Reading::next).boxed())
    }

    /// Asks for a small file and those after it.
    fn asking_from(self: &Arc<Self>, path: PathBuf) -> BeforeWaiting {
        let scan = Arc::clone(self);
        Arc::new(move || {
            let small = scan.small.get_or_init(|| SmallFiles::of(&scan.config.file_groups));
            small.ask_from(&path);
        })
    }

    /// The footer, from memory where this or another statement has read it.
    async fn metadata(&self, file: &PartitionedFile, path: &Path) -> Result<Arc<ParquetMetaData>> {
        let default = || Arc::new(DefaultParquetFileReaderFactory::new(Arc::clone(&self.store)));
        let factory = self.parquet.parquet_file_reader_factory().cloned();
        let factory = factory.unwrap_or_else(|| default() as _);
        let (hint, metrics) = (file.metadata_size_hint, &self.metrics);
        let mut reader = factory.create_reader(self.partition, file.clone(), hint, metrics)?;
        let has_condition = self.parquet.filter().is_some() && self.options().enable_page_index;
        let pages = [PageIndexPolicy::Skip, PageIndexPolicy::Optional][usize::from(has_condition)];
        let options = ArrowReaderOptions::new().with_page_index_policy(pages);
        let metadata = reader.get_metadata(Some(&options)).await;
        Ok(metadata.map_err(|error| Flaw::from(error).at(path))?)
    }

    /// What is given of the columns that are read.
    fn projected(&self, columns: Vec<ArrayRef>, path: &Path) -> Result<RecordBatch> {
        let of_path = |error| Flaw::from(error).at(path);
        let Some(given) = &self.given else {
            let batch = RecordBatch::try_new(Arc::clone(&self.columns), columns);
            return self.projector.project_batch(&batch.map_err(of_path)?);
        };
        let rows = columns.first().map_or(0, |column| column.len());
        let columns = given.iter().map(|&at| Arc::clone(&columns[at])).collect();
        Ok(as_they_are(self.projector.output_schema(), columns, rows).map_err(of_path)?)
    }

    fn options(&self) -> &ParquetOptions {
        &self.parquet.table_parquet_options().global
    }

    /// How the columns lie in a file; `None` where one of them, or of the condition, is not as it is here,
    /// or somebody has said more about which rows are wanted.
    fn layouts(
        &self,
        file: &PartitionedFile,
        metadata: &ParquetMetaData,
        groups: &[usize],
    ) -> Option<Vec<Layout>> {
        if !file.extensions.is_empty() || file.arrow_schema.is_some() {
            return None;
        }
        let described = metadata.file_metadata();
        let schema = described.schema_descr();
        let stored = parquet_to_arrow_schema(schema, described.key_value_metadata()).ok()?;
        let is_as_stored = |name: &str| {
            let here = self.parquet.table_schema().file_schema().field_with_name(name).ok();
            let there = stored.field_with_name(name).ok();
            here.zip(there)
                .is_some_and(|(here, there)| is_view_of(here.data_type(), there.data_type()))
        };
        let layouts = self.columns.fields().iter().map(|field| {
            let layout = Layout::of(field, schema)?;
            let is_readable = |&group: &usize| {
                let chunk = metadata.row_group(group).columns().get(layout.leaf);
                chunk.is_some_and(|chunk| layout.is_readable(chunk))
            };
            let is_known = is_as_stored(field.name()) && groups.iter().all(is_readable);
            is_known.then_some(Layout { is_encoded: self.given.is_some(), ..layout })
        });
        let layouts = layouts.collect::<Option<Vec<_>>>()?;
        let of_condition = self.parquet.filter().map(|filter| collect_columns(&filter));
        let of_condition = of_condition.unwrap_or_default();
        of_condition.iter().all(|column| is_as_stored(column.name())).then_some(layouts)
    }

    /// The rows of a file as DataFusion reads them.
    fn left_to_datafusion(&self, file: PartitionedFile) -> Result<Batches> {
        let mut config = self.config.clone();
        config.file_groups = vec![FileGroup::new(vec![file])];
        let source = Arc::new(self.parquet.clone());
        config.file_source = Arc::clone(&source) as _;
        let rows = source.create_morselizer(Arc::clone(&self.store), &config, 0)?;
        // Those of the scan count its rows already.
        let metrics = ExecutionPlanMetricsSet::new();
        let stream = FileStreamBuilder::new(&config).with_partition(0).with_morselizer(rows);
        Ok(stream.with_metrics(&metrics).build()?.boxed())
    }
}

/// The rows of one file that are still to come.
struct Reading {
    scan: Arc<Scan>,
    place: Arc<Place>,
    before_waiting: Option<BeforeWaiting>,
    groups: VecDeque<usize>,
    pruning: Pruning,
    steps: Vec<Step>,
    windows: Option<Windows>,
}

impl Reading {
    /// The next batch, and what comes after it.
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        loop {
            let Some(windows) = &mut self.windows else {
                match self.groups.pop_front() {
                    Some(group) => self.windows = self.open(group).await?,
                    None => return Ok(None),
                }
                continue;
            };
            match windows.next(&mut self.steps).await? {
                None => self.windows = None,
                Some(columns) if columns.is_empty() => (),
                Some(columns) => {
                    return Ok(Some((self.scan.projected(columns, &self.place.path)?, self)));
                }
            }
        }
    }

    /// The rows of a row group; `None` where none can meet the condition.
    async fn open(&mut self, group: usize) -> Result<Option<Windows>> {
        let metadata = &self.place.metadata;
        // Nothing below waits where the file is in memory: others of this thread have their turn here.
        tokio::task::yield_now().await;
        let selection = match self.pruning.access(metadata, group) {
            RowGroupAccess::Skip => return Ok(None),
            RowGroupAccess::Scan => {
                let rows = usize::try_from(metadata.row_group(group).num_rows());
                vec![RowSelector::select(rows.unwrap_or_default())]
            }
            RowGroupAccess::Selection(rows) => rows.into(),
        };
        let parts: Vec<Range<u64>> =
            (0..self.place.layouts.len()).map(|at| self.place.part(group, at)).collect();
        let bytes: u64 = parts.iter().map(|part| part.end - part.start).sum();
        let Means { threads, group_bytes_max, .. } = self.scan.means;
        let by = if metadata.num_row_groups() < threads && bytes > PART_BYTES_MIN {
            By::Threads(threads)
        } else if bytes > group_bytes_max {
            By::Threads(1)
        } else {
            let fetched = fetched(&self.place, group, parts, self.before_waiting.as_ref()).await;
            let (sources, bytes) = fetched.map_err(|flaw| flaw.at(&self.place.path))?;
            self.pruning.scanned(bytes);
            By::Here(sources)
        };
        let windows =
            Windows::open(&self.place, group, selection, &self.steps, &by, self.scan.batch_rows);
        Ok(Some(windows.map_err(|flaw| flaw.at(&self.place.path))?))
    }
}

/// The columns of a row group in memory: those that are kept, and the parts of the file that all others are; and how many bytes
/// those parts have.
async fn fetched(
    place: &Place,
    group: usize,
    parts: Vec<Range<u64>>,
    before_waiting: Option<&BeforeWaiting>,
) -> Checked<(Vec<Source>, u64)> {
    let kept: Vec<Option<Source>> = (0..parts.len()).map(|at| place.kept(group, at)).collect();
    let missing = parts.into_iter().zip(&kept).filter(|(_, kept)| kept.is_none());
    let missing: Vec<Range<u64>> = missing.map(|(part, _)| part).collect();
    let bytes = missing.iter().map(|part| part.end - part.start).sum();
    let fetched = fetch(&place.file, &missing, &place.spare, before_waiting).await?;
    let mut fetched = fetched.into_iter().zip(missing);
    let source = |kept: Option<Source>| {
        kept.or_else(|| fetched.next().map(|(bytes, part)| Source::Fetched(bytes, part.start)))
    };
    Ok((kept.into_iter().filter_map(source).collect(), bytes))
}

/// Looks at what a footer says about where its columns are.
///
/// # Errors
/// Where that is outside of the file, or there are less than no rows.
fn check(metadata: &ParquetMetaData, bytes: u64) -> Checked<()> {
    let is_within = |group: &RowGroupMetaData| {
        group.num_rows() >= 0
            && group.columns().iter().all(|chunk| {
                let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
                let (start, size) = (u64::try_from(start), u64::try_from(chunk.compressed_size()));
                let is_within = start
                    .ok()
                    .zip(size.ok())
                    .and_then(|(start, size)| Some(start.checked_add(size)? <= bytes));
                is_within == Some(true) && chunk.data_page_offset() >= 0 && chunk.num_values() >= 0
            })
    };
    match metadata.row_groups().iter().all(is_within) {
        true => Ok(()),
        false => Err(Flaw::new("its footer names columns outside of the file")),
    }
}
