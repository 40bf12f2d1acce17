//! What is known of the relations that a statement reads, and the rows that a plan is estimated to yield.
//!
//! ```text
//! Statistics     facts of tables and files, kept until these change
//!  ├ files       rows, ranges and NULLs by the metadata of Parquet files, and a few runs of their rows
//!  ├ distinct    how many values a column has that differ, by such runs
//!  ├ profile     what is known of a column by its rows: all of them by ANALYZE
//!  ├ drawn       some of its rows, each as likely as any other
//!  ├ sample      the rows of a table in memory that are looked at before, all of them if they are few
//!  └ axis        numbers, dates and times as places on one line
//! estimate       rows of a plan and values of its columns
//!  ├ given         values that stand for parameters
//!  ├ pinned        columns that a filter holds to one value
//!  ├ selectivity   the share of rows that a condition keeps
//!  ├ implied       the same of rows that are filtered by what follows of it
//!  └ tried         the same by some rows, on which it is tried
//! ```
//!
//! Enters: logical plans. Leaves: numbers. Facts are looked up when a column is first asked for, by reads that
//! are bounded: some pages of a file, some ten thousand rows of a table. They hold until a file changes, or rows of a table do;
//! one that has only grown, by no more than a tenth, is taken to have more of the same.

mod axis;
mod distinct;
mod drawn;
mod estimate;
mod files;
mod given;
mod implied;
mod pinned;
mod profile;
mod sample;
mod selectivity;
mod tried;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::source_as_provider;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::logical_expr::TableScan;
use rayon::prelude::*;

use self::distinct::Count;
use self::files::Files;
use self::profile::{Profile, READER_BYTES, Reader};
use crate::catalog::Source;
use crate::storage::Snapshot;

pub(crate) use self::given::Given;

pub(super) use self::estimate::{
    ASKED_KEYS, Estimates, LEAST_ROWS, UNMATCHED_MIN, domain, share_of_matches,
};

/// Facts of so many tables and files are kept; more, and all are looked up again.
const KEPT_MAX: usize = 4096;

/// What is known of a table holds until it has grown by such a part.
const GROWTH_PART: usize = 10;

/// What is known of tables and files, for all connections of a database.
pub(crate) struct Statistics {
    footers: Arc<FileMetadataCache>,
    kept: Arc<Mutex<HashMap<Source, Arc<Facts>>>>,
    analyses: Arc<AtomicU64>,
    given: Option<Given>,
}

/// What is known of a source.
#[derive(Debug)]
struct Facts {
    rows: f64,
    columns: Vec<ColumnFacts>,
    is_analyzed: bool,
    /// Rows that there were when the first of this was found, of a table that may have grown since.
    first_rows: usize,
}

/// What is known of a column, from the first time on that somebody asks.
#[derive(Debug, Default)]
struct ColumnFacts {
    spread: OnceLock<Spread>,
    distinct: OnceLock<Count>,
    /// By all rows, or by some thousands.
    profile: OnceLock<Option<Arc<Profile>>>,
}

/// What ANALYZE has found so far of rows that it reads.
pub(crate) struct Analysis {
    source: Source,
    rows: usize,
    columns: Vec<Reader>,
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
        Self { footers, kept: Arc::default(), analyses: Arc::default(), given: None }
    }

    /// The same, for conditions whose parameters have values.
    pub(crate) fn given(&self, values: Given) -> Self {
        let (footers, kept) = (Arc::clone(&self.footers), Arc::clone(&self.kept));
        Self { footers, kept, analyses: Arc::clone(&self.analyses), given: Some(values) }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Source, Arc<Facts>>> {
        // Entries are put in whole, so what a panic left behind is sound.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the relation that a scan reads; nothing where its source does not say.
    fn relation(&self, scan: &TableScan) -> Option<Relation> {
        let provider = source_as_provider(&scan.source).ok()?;
        let schema = provider.schema();
        let source = source_of(provider.as_ref());
        if let Some(snapshot) = provider.downcast_ref::<Snapshot>()
            && let Some(source) = source
        {
            // Numbers of rows are no column of the table, and nothing is known of them.
            let columns = snapshot.table().schema();
            self.grow(&source, snapshot);
            let facts = self.facts(source, columns, || snapshot.row_count() as f64);
            return Some(Relation { facts, rows: Rows::Table(snapshot.clone()) });
        }
        if let Some(source) = source
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
        self.insert(source, Arc::clone(&facts));
        facts
    }

    /// Takes what is known of an earlier version of a table for the one that has grown of it.
    fn grow(&self, source: &Source, snapshot: &Snapshot) {
        let mut kept = self.kept();
        if kept.contains_key(source) {
            return;
        }
        let grown = kept.iter().filter_map(|(known, facts)| match known {
            &Source::Version { table, number, rows } if table == snapshot.table().id() => {
                let is_grown = (snapshot.grown_since()..snapshot.version()).contains(&number)
                    && rows <= snapshot.row_count()
                    && snapshot.row_count() <= facts.first_rows + facts.first_rows / GROWTH_PART;
                is_grown.then_some((number, known))
            }
            _ => None,
        });
        let last = grown.max_by_key(|(number, _)| *number).map(|(_, known)| known.clone());
        if let Some(facts) = last.and_then(|last| kept.remove(&last)) {
            kept.insert(source.clone(), Arc::new(facts.grown(snapshot.row_count())));
        }
    }

    /// What is analyzed goes last, for it is not looked up again.
    fn insert(&self, source: Source, facts: Arc<Facts>) {
        let mut kept = self.kept();
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, facts| facts.is_analyzed);
        }
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(source, facts);
    }

    /// Keeps what was found, in the place of what is known of the same table or files.
    pub(crate) fn keep(&self, analysis: Analysis) {
        let Analysis { source, rows, columns } = analysis;
        let columns = columns.into_iter().map(|column| ColumnFacts::of(column.profile(), rows));
        let columns = columns.collect();
        let facts = Facts { rows: rows as f64, columns, is_analyzed: true, first_rows: rows };
        self.kept().retain(|known, _| !known.is_of_same(&source));
        self.insert(source, Arc::new(facts));
        self.analyses.fetch_add(1, Ordering::Release);
    }

    /// How often something was analyzed: plans that were made before might be others by now.
    pub(crate) fn analyses(&self) -> u64 {
        self.analyses.load(Ordering::Acquire)
    }
}

/// The rows of a table, where these stay as they are.
fn source_of(provider: &dyn TableProvider) -> Option<Source> {
    if let Some(snapshot) = provider.downcast_ref::<Snapshot>() {
        return Some(Source::of_table(snapshot));
    }
    Source::of_files(provider.downcast_ref::<ListingTable>()?.table_paths())
}

impl Analysis {
    /// That of a table of which nothing was read; nothing where nobody could tell that its rows are others.
    pub(crate) fn of(provider: &dyn TableProvider) -> Option<Self> {
        let columns = provider.schema().fields().iter().map(|_| Reader::new()).collect();
        Some(Self { source: source_of(provider)?, rows: 0, columns })
    }

    /// Bytes that it takes at most, until it is kept.
    pub(crate) fn bytes(&self) -> usize {
        self.columns.len() * READER_BYTES
    }

    /// Looks at some rows, on the threads of the pool that it is called in.
    pub(crate) fn look(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows();
        let columns = self.columns.par_iter_mut().zip(batch.columns());
        columns.for_each(|(column, values)| column.look(values));
    }

    /// Whether a table has the rows still that were read.
    pub(crate) fn is_of(&self, provider: &dyn TableProvider) -> bool {
        source_of(provider).as_ref() == Some(&self.source)
    }
}

impl ColumnFacts {
    fn of(profile: Profile, rows: usize) -> Self {
        let spread = Spread { range: profile.range(), nulls: profile.nulls, distinct_max: None };
        let distinct = profile.distinct.unwrap_or(Count::counted(rows as f64));
        let distinct = distinct.clamp(1.0, f64::INFINITY);
        let profile = Some(Arc::new(profile));
        Self { spread: spread.into(), distinct: distinct.into(), profile: profile.into() }
    }

    /// The same of a few more rows. The range is looked up again, for new values often lie beyond it.
    fn grown(&self) -> Self {
        let profile = self.profile.clone();
        Self { profile, ..Self::default() }
    }
}

impl Facts {
    fn new(rows: f64, schema: &SchemaRef) -> Self {
        let columns = schema.fields().iter().map(|_| ColumnFacts::default()).collect();
        Self { rows, columns, is_analyzed: false, first_rows: rows as usize }
    }

    /// The same of a table that has grown.
    fn grown(&self, rows: usize) -> Self {
        let columns = self.columns.iter().map(ColumnFacts::grown).collect();
        Self { rows: rows as f64, columns, ..*self }
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

    /// What rows say of a column: all of them where it was analyzed or they are few, else some of a table or of files.
    fn profile(&self, schema: &SchemaRef, column: usize) -> Option<Arc<Profile>> {
        let facts = self.facts.columns.get(column)?;
        let look = || match &self.rows {
            Rows::Table(snapshot) => {
                let values =
                    axis::count(bounds(snapshot, column), schema.field(column).data_type());
                let lengths: Vec<usize> = snapshot.lengths().collect();
                let rows = |batch, rows| snapshot.values(batch, column, rows).ok();
                sample::profile(&lengths, rows, values.unwrap_or(f64::INFINITY))
            }
            Rows::Files(files) => {
                let values = self.spread(schema, column).distinct_max;
                files.profile(schema, column, self.rows(), values.unwrap_or(f64::INFINITY))
            }
            Rows::Elsewhere => None,
        };
        facts.profile.get_or_init(|| look().map(Arc::new)).clone()
    }

    /// Where the values of a column lie: those of a table in memory by the bounds of its batches, else as far as its rows were
    /// looked at.
    fn spread(&self, schema: &SchemaRef, column: usize) -> Spread {
        let Some(facts) = self.facts.columns.get(column) else { return Spread::default() };
        *facts.spread.get_or_init(|| match &self.rows {
            Rows::Table(snapshot) => {
                let range = bounds(snapshot, column);
                let distinct_max = axis::count(range, schema.field(column).data_type());
                let profile = self.profile(schema, column);
                let nulls = profile.as_ref().map_or(0.0, |profile| profile.nulls);
                Spread { range: range.or_else(|| profile?.range()), nulls, distinct_max }
            }
            Rows::Files(files) => files.spread(schema, column),
            Rows::Elsewhere => Spread::default(),
        })
    }

    /// How many values of a column differ; all of them where nothing is known.
    fn distinct(&self, schema: &SchemaRef, column: usize) -> Count {
        let Some(facts) = self.facts.columns.get(column) else {
            return Count::counted(self.rows());
        };
        let spread = self.spread(schema, column);
        let values = self.rows() * (1.0 - spread.nulls);
        let most = spread.distinct_max.unwrap_or(f64::INFINITY).min(values).max(1.0);
        let estimated = || self.profile(schema, column)?.distinct;
        let estimated = || estimated().unwrap_or(Count::counted(most)).clamp(1.0, most);
        *facts.distinct.get_or_init(estimated)
    }
}

/// The range of a column, by the bounds of all batches.
fn bounds(snapshot: &Snapshot, column: usize) -> Option<[f64; 2]> {
    let [least, greatest] = snapshot.bounds(column)?;
    axis::joined(axis::range(&least), axis::range(&greatest))
}
