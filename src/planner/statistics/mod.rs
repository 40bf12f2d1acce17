//! What is known of the relations that a statement reads, and the rows that a plan is estimated to yield.
//!
//! ```text
//! Statistics     facts of tables and files, kept until these change
//!  ├ files       rows, ranges and NULLs by the metadata of Parquet files, and a few runs of their rows
//!  ├ distinct    how many values a column has that differ, by such runs
//!  └ axis        numbers, dates and times as places on one line
//! estimate       rows of a plan and values of its columns
//!  └ selectivity   the share of rows that a condition keeps
//! ```
//!
//! Enters: logical plans. Leaves: numbers. Facts are looked up when a column is first asked for, by reads that
//! are bounded: some pages of a file, some thousand rows of a table.

mod axis;
mod distinct;
mod estimate;
mod files;
mod selectivity;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::source_as_provider;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::logical_expr::TableScan;

use self::files::Files;
use crate::catalog::Source;
use crate::storage::Snapshot;

pub(super) use self::estimate::{ASKED_KEYS, Estimates, LEAST_ROWS, domain, share_of_matches};

/// Facts of so many tables and files are kept; more, and all are looked up again.
const KEPT_MAX: usize = 4096;

/// Runs of neighbouring rows that a sample is made of.
const RUNS: usize = 4;

/// Rows of a run.
const RUN_ROWS: usize = 2048;

/// What is known of tables and files, for all connections of a database.
pub(crate) struct Statistics {
    footers: Arc<FileMetadataCache>,
    kept: Mutex<HashMap<Source, Arc<Facts>>>,
}

/// What is known of a source.
#[derive(Debug)]
struct Facts {
    rows: f64,
    columns: Vec<ColumnFacts>,
}

/// What is known of a column, from the first time on that somebody asks.
#[derive(Debug, Default)]
struct ColumnFacts {
    spread: OnceLock<Spread>,
    distinct: OnceLock<f64>,
}

/// Where the values of a column lie.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spread {
    /// The least and the greatest, on the line of `axis`.
    range: Option<[f64; 2]>,
    /// The share of rows that are NULL.
    nulls: f64,
    /// The most values that can differ, by type and range.
    distinct_max: Option<f64>,
}

/// What is known of the relation that a scan reads.
pub(super) struct Relation {
    facts: Arc<Facts>,
    rows: Rows,
}

/// Where the rows are of which a few may be looked at.
enum Rows {
    Table(Snapshot),
    Files(Files),
    Elsewhere,
}

impl fmt::Debug for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statistics").field("kept", &self.kept().len()).finish_non_exhaustive()
    }
}

impl Statistics {
    /// Nothing is known yet; `footers` is where the metadata of Parquet files is kept.
    pub(crate) fn new(footers: Arc<FileMetadataCache>) -> Self {
        Self { footers, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Source, Arc<Facts>>> {
        // Entries are put in whole, so what a panic left behind is sound.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the relation that a scan reads; nothing where its source does not say.
    fn relation(&self, scan: &TableScan) -> Option<Relation> {
        let provider = source_as_provider(&scan.source).ok()?;
        let schema = provider.schema();
        if let Some(snapshot) = provider.downcast_ref::<Snapshot>() {
            // Numbers of rows are no column of the table, and nothing is known of them.
            let columns = snapshot.table().schema();
            let source = Source::of_table(snapshot);
            let facts = self.facts(source, columns, || snapshot.row_count() as f64);
            return Some(Relation { facts, rows: Rows::Table(snapshot.clone()) });
        }
        if let Some(listing) = provider.downcast_ref::<ListingTable>()
            && let Some(source) = Source::of_files(listing.table_paths())
            && let Source::Files(stamps) = &source
        {
            let files = Files::new(stamps.clone(), Arc::clone(&self.footers));
            let facts = self.facts(source, &schema, || files.row_count(&schema));
            return Some(Relation { facts, rows: Rows::Files(files) });
        }
        let rows = *provider.statistics()?.num_rows.get_value()? as f64;
        Some(Relation { facts: Arc::new(Facts::new(rows, &schema)), rows: Rows::Elsewhere })
    }

    fn facts(&self, source: Source, schema: &SchemaRef, rows: impl Fn() -> f64) -> Arc<Facts> {
        if let Some(facts) = self.kept().get(&source) {
            return Arc::clone(facts);
        }
        // Files are read while nobody waits for the lock; whoever is second finds the same.
        let facts = Arc::new(Facts::new(rows(), schema));
        let mut kept = self.kept();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(source, Arc::clone(&facts));
        facts
    }
}

impl Facts {
    fn new(rows: f64, schema: &SchemaRef) -> Self {
        let columns = schema.fields().iter().map(|_| ColumnFacts::default()).collect();
        Self { rows, columns }
    }
}

impl Relation {
    fn rows(&self) -> f64 {
        self.facts.rows
    }

    /// Whether its rows stay where they are, and can be read twice.
    fn is_stored(&self) -> bool {
        match self.rows {
            Rows::Table(_) | Rows::Files(_) => true,
            Rows::Elsewhere => false,
        }
    }

    /// Where the values of a column lie.
    fn spread(&self, schema: &SchemaRef, column: usize) -> Spread {
        let Some(facts) = self.facts.columns.get(column) else { return Spread::default() };
        *facts.spread.get_or_init(|| match &self.rows {
            Rows::Table(snapshot) => Spread::of_sample(&sample(snapshot.batches()), column),
            Rows::Files(files) => files.spread(schema, column),
            Rows::Elsewhere => Spread::default(),
        })
    }

    /// How many values of a column differ; all of them where nothing is known.
    fn distinct(&self, schema: &SchemaRef, column: usize) -> f64 {
        let Some(facts) = self.facts.columns.get(column) else { return self.rows() };
        let spread = self.spread(schema, column);
        let values = self.rows() * (1.0 - spread.nulls);
        let most = spread.distinct_max.unwrap_or(f64::INFINITY).min(values).max(1.0);
        let estimated = || match &self.rows {
            Rows::Table(snapshot) => {
                let runs = sample(snapshot.batches());
                let runs = runs.iter().map(|run| Arc::clone(run.column(column))).collect();
                distinct::estimate(runs, values)
            }
            Rows::Files(files) => distinct::estimate(files.runs(schema, column)?, values),
            Rows::Elsewhere => None,
        };
        *facts.distinct.get_or_init(|| estimated().map_or(most, |count| count.clamp(1.0, most)))
    }
}

impl Spread {
    /// By some rows: the range is that of the rows seen, so nothing follows about values that differ.
    fn of_sample(runs: &[RecordBatch], column: usize) -> Self {
        let (mut range, mut rows, mut nulls) = (None, 0, 0);
        for run in runs {
            let values = run.column(column);
            rows += values.len();
            nulls += values.null_count();
            range = axis::joined(range, axis::range(values));
        }
        let nulls = if rows == 0 { 0.0 } else { nulls as f64 / rows as f64 };
        Self { range, nulls, distinct_max: None }
    }
}

/// Runs of neighbouring rows, as far apart as they can be.
fn sample(batches: &[RecordBatch]) -> Vec<RecordBatch> {
    let all: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if all <= RUNS * RUN_ROWS {
        return batches.to_vec();
    }
    let starts = (0..RUNS).map(|run| (all - RUN_ROWS) / (RUNS - 1) * run);
    let mut runs = Vec::new();
    for start in starts {
        let (mut before, mut wanted) = (0, start..start + RUN_ROWS);
        for batch in batches {
            let end = before + batch.num_rows();
            if wanted.start < end && !wanted.is_empty() {
                let taken = wanted.end.min(end) - wanted.start;
                runs.push(batch.slice(wanted.start - before, taken));
                wanted.start += taken;
            }
            before = end;
        }
    }
    runs
}
