//! A scan of a table: which of its batches and columns.
//!
//! It names batches by their numbers, so that a plan can be kept without the rows, and given those of the same version again.
//! Conditions come from filters above, and from joins and sorts that narrow them while they run. Batches that they rule out are
//! left out, and rows that nobody needs by what joins and sorts have told; whoever handed a condition down looks at it again.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Statistics, internal_err};
use datafusion::datasource::source::DataSource;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr, ScalarFunctionExpr,
};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::SchedulingType;
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::projection::{all_alias_free_columns, new_projections_for_columns};
use futures::stream::BoxStream;

use super::batch::Batch;
use super::column::TableColumn;
use super::memory::{MemoryTable, Version};
use super::read::{self, Read};
use super::snapshot::Snapshot;
use crate::encoding::{Texts, Waking};
use crate::first_by::FirstBy;

/// So many rows are read by one thread before another has begun.
const FEW_ROWS: usize = 8192;

/// Rows of a partition at least where a scan is cut for more than there are threads.
const PART_ROWS_MIN: usize = 32_768;

/// Partitions whose numbers of batches EXPLAIN tells one by one.
const SIZES_MAX: usize = 16;

/// A scan of one version of a table.
#[derive(Debug, Clone)]
pub(crate) struct TableScan {
    /// The number of the table.
    table: u64,
    rows: Rows,
    schema: SchemaRef,
    /// The columns that are given, by their numbers in the schema.
    columns: Arc<[usize]>,
    given: SchemaRef,
    /// The numbers of batches, for each partition.
    parts: Vec<Arc<[usize]>>,
    /// By which batches were left out, over the columns of the schema.
    conditions: Vec<Arc<dyn PhysicalExpr>>,
    /// What joins and sorts tell while they run, over the same.
    told: Vec<Arc<dyn PhysicalExpr>>,
    /// By what a sort asks for the first rows: batches that may have them are read before others.
    first_by: Option<FirstBy>,
    /// Rows of a partition after which no more are given.
    fetch: Option<usize>,
    /// Whether EXPLAIN tells how many batches there are.
    shows_sizes: bool,
    metrics: ExecutionPlanMetricsSet,
}

#[derive(Debug, Clone)]
enum Rows {
    There(Arc<MemoryTable>, Arc<Version>),
    /// Of the version of this number, to be put in.
    Of(u64),
}

impl TableScan {
    /// A scan of all batches, in parts.
    ///
    /// # Errors
    /// Where a column is asked for that there is not.
    pub(super) fn new(
        table: &Arc<MemoryTable>,
        version: &Arc<Version>,
        schema: &SchemaRef,
        columns: Option<&Vec<usize>>,
        parts: Vec<Arc<[usize]>>,
        shows_sizes: bool,
    ) -> Result<Self> {
        let columns: Arc<[usize]> = match columns {
            Some(columns) => columns.as_slice().into(),
            None => (0..schema.fields().len()).collect(),
        };
        Ok(Self {
            table: table.id(),
            rows: Rows::There(Arc::clone(table), Arc::clone(version)),
            given: Arc::new(schema.project(&columns)?),
            schema: Arc::clone(schema),
            columns,
            parts,
            conditions: Vec::new(),
            told: Vec::new(),
            first_by: None,
            fetch: None,
            shows_sizes,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// The number of the table.
    pub(crate) fn table(&self) -> u64 {
        self.table
    }

    /// What joins and sorts tell while they run of single rows, over the columns that are given, as far as it is about these.
    pub(crate) fn told(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        let over_given = |told| reassign_expr_columns(Arc::clone(told), &self.given).ok();
        self.told_of_rows().filter_map(over_given).collect()
    }

    /// What a sort computes for its keys would be computed twice.
    fn told_of_rows(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        fn calls_functions(told: &Arc<dyn PhysicalExpr>) -> bool {
            told.is::<ScalarFunctionExpr>() || told.children().into_iter().any(calls_functions)
        }
        self.told.iter().filter(|told| !calls_functions(told))
    }

    /// The same scan, which reads those batches first that may have the first rows, where something that is told says what these
    /// are, and bounds of batches where they may be.
    pub(crate) fn first_by(
        &self,
        of: &dyn Fn(&Arc<dyn PhysicalExpr>) -> Option<FirstBy>,
    ) -> Option<Self> {
        let first_by = self.told.iter().find_map(of)?;
        self.version().ok()?.zones.bounds(first_by.column.index())?;
        Some(Self { first_by: Some(first_by), ..self.anew() })
    }

    /// Whether the texts of a column that is given are kept as codes, but for a few.
    pub(crate) fn has_codes(&self, given: usize) -> bool {
        let Some((column, version)) = self.columns.get(given).zip(self.version().ok()) else {
            return false;
        };
        let is_coded = |batch: &&Batch| {
            let is_there = *column < batch.schema().fields().len();
            is_there && matches!(batch.texts(*column), Texts::Codes | Texts::SharedCodes)
        };
        let coded: usize = version.batches.iter().filter(is_coded).map(Batch::num_rows).sum();
        coded > version.rows / 4 * 3
    }

    /// A column that is given, with all rows of the table; nothing where only some are wanted, or they are not there.
    pub(crate) fn column(&self, given: usize) -> Option<TableColumn> {
        let version = self.version().ok().filter(|_| self.fetch.is_none())?;
        let (place, field) = (*self.columns.get(given)?, self.given.fields().get(given)?);
        // Numbers of rows are none of its columns.
        version.batches.first().filter(|batch| place < batch.schema().fields().len())?;
        Some(TableColumn::new(version, place, field.data_type()))
    }

    /// The same scan, for a plan that is kept longer than anybody reads the rows.
    pub(crate) fn without_rows(&self) -> Self {
        let rows = match &self.rows {
            Rows::There(_, version) => Rows::Of(version.number),
            Rows::Of(number) => Rows::Of(*number),
        };
        Self { rows, ..self.anew() }
    }

    /// The same scan of rows that are those it was made for; nothing where they are others.
    pub(crate) fn with_rows(&self, of: &Snapshot) -> Option<Self> {
        let number = match &self.rows {
            Rows::There(_, version) => version.number,
            Rows::Of(number) => *number,
        };
        let is_same = of.table().id() == self.table && of.version() == number;
        let rows = || Rows::There(Arc::clone(of.table()), Arc::clone(of.rows()));
        is_same.then(|| Self { rows: rows(), ..self.anew() })
    }

    /// The same scan once its conditions are what `filled` makes of them.
    ///
    /// # Errors
    /// Whatever keeps a condition from being made.
    pub(crate) fn with_conditions(
        &self,
        filled: impl Fn(&Arc<dyn PhysicalExpr>, &SchemaRef) -> Result<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        let made = self.conditions.iter().map(|condition| filled(condition, &self.schema));
        let conditions: Vec<_> = made.collect::<Result<_>>()?;
        let others = conditions.iter().zip(&self.conditions);
        let others = others.filter(|(made, before)| !Arc::ptr_eq(made, before));
        let others: Vec<_> = others.map(|(made, _)| Arc::clone(made)).collect();
        if others.is_empty() {
            return Ok(self.clone());
        }
        let mut parts = self.that_may_meet(&others)?;
        if self.count_rows(&parts)? <= FEW_ROWS {
            parts = vec![parts.iter().flat_map(|part| part.iter().copied()).collect()];
        }
        Ok(Self { parts, conditions, ..self.anew() })
    }

    /// The same scan, which has counted nothing.
    fn anew(&self) -> Self {
        Self { metrics: ExecutionPlanMetricsSet::new(), ..self.clone() }
    }

    fn version(&self) -> Result<&Arc<Version>> {
        self.there().map(|(_, version)| version)
    }

    fn there(&self) -> Result<(&Arc<MemoryTable>, &Arc<Version>)> {
        match &self.rows {
            Rows::There(table, version) => Ok((table, version)),
            Rows::Of(number) => {
                internal_err!("version {number} of table number {} is not there", self.table)
            }
        }
    }

    /// The rows of a partition that joins and sorts may need, whose columns are encoded: who reads them decodes them.
    ///
    /// # Errors
    /// Where the rows are not there.
    pub(crate) fn encoded_rows(&self, partition: usize) -> Result<SendableRecordBatchStream> {
        let rows = read::rows(self.read(partition, true)?, true, &self.metrics, partition);
        Ok(make_cooperative(rows))
    }

    /// All rows of a partition, whose columns wake as they are asked for: who has a condition of his own looks at what is told of
    /// what that leaves.
    ///
    /// # Errors
    /// Where the rows are not there.
    pub(crate) fn waking_rows(
        &self,
        partition: usize,
    ) -> Result<BoxStream<'static, Result<Waking>>> {
        Ok(read::waking_rows(self.read(partition, true)?, &self.metrics, partition))
    }

    /// What is read of a partition.
    fn read(&self, partition: usize, is_encoded: bool) -> Result<Read> {
        let (table, version) = self.there()?;
        // What finds a few rows says nothing about the next scan.
        let is_of_most = is_encoded || self.count_rows(&self.parts)? > version.rows / 2;
        if partition == 0 && is_of_most {
            self.columns.iter().for_each(|&column| table.note_read(version, column, is_encoded));
        }
        Ok(Read {
            table: Arc::clone(table),
            version: Arc::clone(version),
            schema: Arc::clone(&self.schema),
            columns: Arc::clone(&self.columns),
            given: Arc::clone(&self.given),
            batches: self.parts.get(partition).cloned().unwrap_or_default(),
            told: self.told.clone(),
            told_of_rows: self.told_of_rows().cloned().collect(),
            first_by: self.first_by.clone(),
            fetch: self.fetch,
        })
    }

    /// The same scan in more partitions that follow one another, of [`PART_ROWS_MIN`] rows at least; nothing where there are no more.
    ///
    /// # Errors
    /// Where it is a scan of a version that was not put in.
    pub(crate) fn in_smaller_parts(&self, parts_max: usize) -> Result<Option<Self>> {
        let parts = parts_max.min(self.count_rows(&self.parts)? / PART_ROWS_MIN);
        if parts <= self.parts.len() {
            return Ok(None);
        }
        let parts = self.in_parts(parts)?;
        Ok(parts.map(|parts| Self { parts, ..self.anew() }))
    }

    /// All batches in so many parts of about as many rows each, in their order; nothing where there are fewer.
    fn in_parts(&self, count: usize) -> Result<Option<Vec<Arc<[usize]>>>> {
        let version = self.version()?;
        let batches: Vec<usize> = self.parts.iter().flat_map(|part| part.iter().copied()).collect();
        if batches.len() < count {
            return Ok(None);
        }
        let rows = |batch: &usize| version.batches[*batch].num_rows();
        let total: usize = batches.iter().map(rows).sum();
        let mut parts = vec![Vec::new(); count];
        let mut first = 0;
        for batch in batches {
            let part = (first * count).checked_div(total).unwrap_or(0).min(count - 1);
            first += rows(&batch);
            parts[part].push(batch);
        }
        Ok(Some(parts.into_iter().map(Into::into).collect()))
    }

    fn count_rows<'p>(&self, parts: impl IntoIterator<Item = &'p Arc<[usize]>>) -> Result<usize> {
        let version = self.version()?;
        let batches = parts.into_iter().flat_map(|part| part.iter());
        Ok(batches.map(|&batch| version.batches[batch].num_rows()).sum())
    }

    /// What is known of the rows of some parts.
    fn statistics(&self, parts: &[&Arc<[usize]>]) -> Result<Statistics> {
        let version = self.version()?;
        let rows = self.count_rows(parts.iter().copied())?;
        let is_all = rows == version.rows;
        let figures = version.figures();
        let (mut bytes, mut columns) = (0, Vec::with_capacity(self.columns.len()));
        for &column in self.columns.iter() {
            let mut known = ColumnStatistics::new_unknown();
            // Numbers of rows are none of its columns.
            if let Some(figures) = figures.get(column) {
                bytes += figures.bytes;
                let nulls = Precision::Exact(figures.nulls);
                known.null_count = if is_all { nulls } else { nulls.to_inexact() };
            } else {
                bytes += version.rows * size_of::<u64>();
                known.null_count = Precision::Exact(0);
            }
            columns.push(known);
        }
        let share = rows as f64 / version.rows.max(1) as f64;
        Ok(Statistics {
            num_rows: Precision::Exact(rows),
            total_byte_size: Precision::Inexact((bytes as f64 * share) as usize),
            column_statistics: columns,
        })
    }

    /// The batches that may have rows which meet all conditions, by the least and the greatest values.
    fn that_may_meet(&self, conditions: &[Arc<dyn PhysicalExpr>]) -> Result<Vec<Arc<[usize]>>> {
        let zones = &self.version()?.zones;
        Ok(match zones.that_may_meet(conditions, &self.schema) {
            Some(kept) => {
                let kept = |part: &Arc<[usize]>| {
                    part.iter().copied().filter(|&batch| kept[batch]).collect()
                };
                self.parts.iter().map(kept).collect()
            }
            None => self.parts.clone(),
        })
    }
}

impl DataSource for TableScan {
    fn open(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = read::rows(self.read(partition, false)?, false, &self.metrics, partition);
        Ok(make_cooperative(rows))
    }

    fn metrics(&self) -> ExecutionPlanMetricsSet {
        self.metrics.clone()
    }

    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "partitions={}", self.parts.len())?;
                self.first_by.iter().try_for_each(|by| write!(f, ", {by}"))?;
                if self.shows_sizes && self.parts.len() <= SIZES_MAX {
                    let sizes: Vec<usize> = self.parts.iter().map(|part| part.len()).collect();
                    write!(f, ", partition_sizes={sizes:?}")?;
                }
                self.fetch.iter().try_for_each(|fetch| write!(f, ", fetch={fetch}"))
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "format=memory")?;
                let known = self.partition_statistics(None).map_err(|_| fmt::Error)?;
                writeln!(f, "rows={}", known.num_rows.get_value().unwrap_or(&0))?;
                writeln!(f, "bytes={}", known.total_byte_size.get_value().unwrap_or(&0))
            }
        }
    }

    fn repartitioned(
        &self,
        partitions: usize,
        _file_bytes_min: usize,
        order: Option<LexOrdering>,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        // A scan that ends early would end for each part.
        if self.parts.len() >= partitions || order.is_some() || self.fetch.is_some() {
            return Ok(None);
        }
        let parts = self.in_parts(partitions)?;
        Ok(parts.map(|parts| Arc::new(Self { parts, ..self.anew() }) as _))
    }

    fn output_partitioning(&self) -> Partitioning {
        Partitioning::UnknownPartitioning(self.parts.len())
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        EquivalenceProperties::new(Arc::clone(&self.given))
    }

    fn scheduling_type(&self) -> SchedulingType {
        SchedulingType::Cooperative
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        // Operators ask as they are put over a scan, even if nobody runs them.
        if matches!(self.rows, Rows::Of(_)) {
            return Ok(Arc::new(Statistics::new_unknown(&self.given)));
        }
        let parts: Vec<&Arc<[usize]>> = match partition {
            Some(partition) => self.parts.get(partition).into_iter().collect(),
            None => self.parts.iter().collect(),
        };
        Ok(Arc::new(self.statistics(&parts)?))
    }

    /// All conditions are to be looked at again.
    fn try_pushdown_filters(
        &self,
        conditions: Vec<Arc<dyn PhysicalExpr>>,
        _options: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn DataSource>>> {
        let all = vec![PushedDown::No; conditions.len()];
        let done = FilterPushdownPropagation::with_parent_pushdown_result(all);
        let conditions = conditions.into_iter().filter(|condition| !is_volatile(condition));
        let conditions: Vec<_> = conditions
            .map(|condition| reassign_expr_columns(condition, &self.schema))
            .collect::<Result<_>>()?;
        // Rows that a limit counts are not dropped before.
        if conditions.is_empty() || self.fetch.is_some() {
            return Ok(done);
        }
        let parts = self.that_may_meet(&conditions)?;
        let mut scan = Self { parts, ..self.anew() };
        for condition in conditions {
            match DynamicFilterTracking::classify(&condition) {
                DynamicFilterTracking::Static => scan.conditions.push(condition),
                _ => scan.told.push(condition),
            }
        }
        Ok(done.with_updated_node(Arc::new(scan)))
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn DataSource>> {
        self.told.is_empty().then(|| Arc::new(Self { fetch, ..self.anew() }) as _)
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        let asked: Vec<_> = projection.iter().cloned().collect();
        if !all_alias_free_columns(&asked) {
            return Ok(None);
        }
        let columns: Arc<[usize]> = new_projections_for_columns(&asked, &self.columns).into();
        let given = Arc::new(self.schema.project(&columns)?);
        Ok(Some(Arc::new(Self { columns, given, ..self.anew() })))
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for condition in &self.told {
            if visit(condition)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }
}
