//! Every setting: its name, unit, default, and why that default.
//!
//! [`SETTINGS`] is the list that SET, SHOW, RESET and SHOW ALL read; [`Settings`] holds the values of one
//! connection, for DataFusion (through [`Settings::apply`]) and for our planner (as an extension of its
//! session). DataFusion's own options stay reachable as `datafusion.…`.

mod directories;
mod fusion;
mod gpu;
mod result_cache;
mod rules;

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use datafusion::config::{ConfigNonZeroUsize, ConfigOptions, SpillCompression};

use crate::memory::{Limits, PoolLimits, Thresholds};

pub(crate) use self::directories::{Compression, Directory};
pub(crate) use self::fusion::{Fusion, Pattern, Patterns};
pub(crate) use self::gpu::{Gpu, GpuPrecision};
pub(crate) use self::result_cache::{CacheLimits, ResultCache};
pub(crate) use self::rules::ForRules;

/// Threads at most. Each has a stack of its own, and those beyond the cores only take turns; some
/// thousands more, and the system refuses them in the middle of a statement.
const THREADS_MAX: usize = 1024;

/// The values of all settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) threads: usize,
    pub(crate) memory_limit_bytes: usize,
    pub(crate) memory_watch: bool,
    pub(crate) memory_tracking: bool,
    pub(crate) pool_limit_bytes: usize,
    pub(crate) pool_poison: bool,
    /// The fastest first.
    pub(crate) temp_directories: Vec<Directory>,
    /// Zero is no limit.
    pub(crate) io_bytes_per_second: u64,
    pub(crate) memory_threshold_percent: usize,
    pub(crate) compressed_threshold_percent: usize,
    pub(crate) memory_compression: Compression,
    pub(crate) disk_threshold_percent: usize,
    pub(crate) ahead_pages: usize,
    pub(crate) batch_size: usize,
    /// Zero is no limit.
    pub(crate) statement_timeout_ms: u64,
    pub(crate) null_order: String,
    pub(crate) rewrites: bool,
    pub(crate) contractions: bool,
    /// Whether joins are put in the order that costs least, rather than the written one.
    pub(crate) orders_joins: bool,
    /// Whether what is aggregated of one side of a join may be before it.
    pub(crate) groups_early: bool,
    /// Rows of a build side from which on it is looked whether the probe side has few; none is never.
    pub(crate) reversible_rows: usize,
    /// Whether plans that a statement contains more than once run once.
    pub(crate) shares_plans: bool,
    /// Whether rows go that cannot be among the first of their group.
    pub(crate) drops_rows: bool,
    /// Whether GROUP BY is run by an operator of ours, rather than DataFusion's.
    pub(crate) spills_groups: bool,
    /// Whether Parquet files are read by pages, rather than by DataFusion.
    pub(crate) reads_pages: bool,
    pub(crate) fusion: bool,
    pub(crate) fusion_patterns: Patterns,
    pub(crate) fusion_min_operations: usize,
    pub(crate) fusion_max_depth: usize,
    pub(crate) strassen: bool,
    /// Whether plans are chosen by constants measured here, rather than the built-in ones.
    pub(crate) measured_costs: bool,
    /// Zero is the planner's choice.
    pub(crate) tile_rows: usize,
    pub(crate) gpu: Gpu,
    /// A folder that is looked into before others; empty is none.
    pub(crate) gpu_libraries: String,
    /// Zero is the planner's choice.
    pub(crate) gpu_memory_limit_bytes: usize,
    /// Whether work that a GPU fails at is an error, rather than done by the host.
    pub(crate) gpu_must_not_fail: bool,
    pub(crate) gpu_precision: GpuPrecision,
    /// Whether matrices that a GPU has read stay in its memory.
    pub(crate) gpu_keeps: bool,
    pub(crate) result_cache: ResultCache,
    pub(crate) result_cache_bytes: usize,
    pub(crate) parquet_cache_bytes: usize,
    /// What takes less is not remembered.
    pub(crate) result_cache_after_ms: u64,
    /// Whether runner-ups of choices by cost are tried.
    pub(crate) strategies_are_measured: bool,
    /// What takes less is not tried in another way.
    pub(crate) strategies_after_ms: u64,
}

/// One setting, as SHOW ALL presents it.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// What it does, and why its default is what it is.
    pub(crate) description: &'static str,
    get: fn(&Settings) -> String,
    set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// All settings of ours.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "threads",
        unit: "threads",
        description: "parts that a statement is worked on in at once; all cores by default",
        get: |settings| settings.threads.to_string(),
        set: |settings, value| {
            settings.threads = number(value)?;
            settings.check_threads()?;
            Ok(())
        },
    },
    Setting {
        name: "memory_limit",
        unit: "bytes",
        description: "memory for all statements of the database together, as 512MB or 2GB; seven tenths of \
                      the machine's or the container's by default, which leaves room for the system's file \
                      cache",
        get: |settings| settings.memory_limit_bytes.to_string(),
        set: |settings, value| {
            settings.memory_limit_bytes = at_least(1 << 20, parse_bytes(value)?)?;
            Ok(())
        },
    },
    Setting {
        name: "memory_watch",
        unit: "",
        description: "whether memory_limit bounds all that the process holds, as the system sees it, or what \
                      statements count of it and a share for the rest; off by default in a library, whose \
                      process does other things too, and on in the command relatrix",
        get: |settings| settings.memory_watch.to_string(),
        set: |settings, value| {
            settings.memory_watch = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "memory_tracking",
        unit: "",
        description: "whether SHOW MEMORY tells by which functions memory was asked for from now on; off by \
                      default, as it takes about a millisecond each time",
        get: |settings| settings.memory_tracking.to_string(),
        set: |settings, value| {
            settings.memory_tracking = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "memory_threshold",
        unit: "percent",
        description: "share of memory_limit beyond which stored matrices are compressed, those that were not used for \
                      long first, and below which one in a file that is used often comes back; of the whole \
                      database, 90 by default, 100 to let them stay as they are while there is room",
        get: |settings| settings.memory_threshold_percent.to_string(),
        set: |settings, value| {
            percent(value).map(|value| settings.memory_threshold_percent = value)
        },
    },
    Setting {
        name: "compressed_threshold",
        unit: "percent",
        description: "share of memory_limit beyond which stored matrices and tables, compressed or not, move to \
                      temp_directory; of the whole database, 95 by default. They also do so where a \
                      statement would be refused memory",
        get: |settings| settings.compressed_threshold_percent.to_string(),
        set: |settings, value| {
            percent(value).map(|value| settings.compressed_threshold_percent = value)
        },
    },
    Setting {
        name: "memory_compression",
        unit: "",
        description: "how stored matrices are compressed beyond memory_threshold: lz4 (the default), zstd with a level, \
                      or none, and they move to temp_directory only",
        get: |settings| settings.memory_compression.to_string(),
        set: |settings, value| {
            settings.memory_compression = Compression::read(value)?;
            Ok(())
        },
    },
    Setting {
        name: "disk_threshold",
        unit: "percent",
        description: "share of a disk beyond which no more is put into a directory of temp_directory, but into the \
                      next one; of the whole database, 98 by default",
        get: |settings| settings.disk_threshold_percent.to_string(),
        set: |settings, value| percent(value).map(|value| settings.disk_threshold_percent = value),
    },
    Setting {
        name: "pool_limit",
        unit: "bytes",
        description: "memory of matrices that is kept for the next ones when nobody reads them any more, of \
                      the whole database and within its memory_limit; an eighth of the machine's by \
                      default: a few large results, while most stays with the system",
        get: |settings| settings.pool_limit_bytes.to_string(),
        set: |settings, value| {
            settings.pool_limit_bytes = parse_bytes(value)?;
            Ok(())
        },
    },
    Setting {
        name: "pool_poison",
        unit: "",
        description: "whether memory that an operation is to overwrite holds NaN before, so that a test \
                      sees what it leaves; of the whole database, and off by default, as filling takes time",
        get: |settings| settings.pool_poison.to_string(),
        set: |settings, value| {
            settings.pool_poison = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "temp_directory",
        unit: "path",
        description: "where the database puts what does not fit into memory, made where it is not there; the system's by default. Several, \
                      the fastest first, as /fast (quota 10GB, compression none); /slow (compression zstd 9, \
                      page 1MB): a directory that is full is passed over, compression is none, lz4 (the \
                      default) or zstd with a level from 1 to 19, page the bytes written at a time (256KB)",
        get: |settings| {
            let list: Vec<String> =
                settings.temp_directories.iter().map(ToString::to_string).collect();
            list.join("; ")
        },
        set: |settings, value| {
            let list = match Directory::list(value)? {
                none if none.is_empty() => vec![Directory::at(std::env::temp_dir())],
                list => list,
            };
            list.iter().try_for_each(Directory::provide)?;
            settings.temp_directories = list;
            Ok(())
        },
    },
    Setting {
        name: "io_limit",
        unit: "bytes",
        description: "bytes a second that go to temp_directory and come from it at most, of the whole \
                      database; 0, the default, is no limit",
        get: |settings| settings.io_bytes_per_second.to_string(),
        set: |settings, value| {
            settings.io_bytes_per_second = parse_bytes(value)? as u64;
            Ok(())
        },
    },
    Setting {
        name: "read_ahead",
        unit: "pages",
        description: "pages that a reader of rows in temp_directory asks for before it wants them, at most: one that waits for \
                      the disk doubles its reach up to here; 8 by default, of the whole database",
        get: |settings| settings.ahead_pages.to_string(),
        set: |settings, value| {
            settings.ahead_pages = at_least(1, number(value)?)?;
            Ok(())
        },
    },
    Setting {
        name: "batch_size",
        unit: "rows",
        description: "rows that operators pass on at a time; 8192 keep a few columns within a \
                      core's cache and make the cost of each call disappear. Fewer where memory_limit is \
                      below 256MB",
        get: |settings| settings.batch_size.to_string(),
        set: |settings, value| {
            settings.batch_size = at_least(1, number(value)?)?;
            Ok(())
        },
    },
    Setting {
        name: "statement_timeout_ms",
        unit: "ms",
        description: "a statement is stopped after this time; 0, the default, is no limit",
        get: |settings| settings.statement_timeout_ms.to_string(),
        set: |settings, value| {
            settings.statement_timeout_ms = number(value)?;
            Ok(())
        },
    },
    Setting {
        name: "null_order",
        unit: "",
        description: "where ORDER BY puts NULL: nulls_max (the default, as in PostgreSQL: as if it \
                      were the largest value), nulls_min, nulls_first or nulls_last",
        get: |settings| settings.null_order.clone(),
        set: |settings, value| {
            settings.null_order =
                one_of(&["nulls_max", "nulls_min", "nulls_first", "nulls_last"], value)?;
            Ok(())
        },
    },
    Setting {
        name: "rewrites",
        unit: "",
        description: "whether matrix expressions are replaced by equal ones that cost less; on by \
                      default, and off to see what an expression costs as written",
        get: |settings| settings.rewrites.to_string(),
        set: |settings, value| {
            settings.rewrites = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "contractions",
        unit: "",
        description: "whether joins whose pairs are summed up by keys of both sides run as matrix \
                      products; on by default, as the answer is the same",
        get: |settings| settings.contractions.to_string(),
        set: |settings, value| {
            settings.contractions = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "join_order",
        unit: "",
        description: "the order in which relations are joined: cost (the default) is the one that is estimated \
                      to take least, whatever the order in FROM; written is that of FROM",
        get: |settings| COST_OR_WRITTEN[usize::from(!settings.orders_joins)].to_owned(),
        set: |settings, value| {
            settings.orders_joins = one_of(&COST_OR_WRITTEN, value)? == "cost";
            Ok(())
        },
    },
    Setting {
        name: "join_reversal_rows",
        unit: "rows",
        description: "once a join has read so many rows of the side that was to be built, it looks whether the other side has far \
                      fewer, and builds that one if it has; 0 never looks",
        get: |settings| settings.reversible_rows.to_string(),
        set: |settings, value| {
            settings.reversible_rows = number(value)?;
            Ok(())
        },
    },
    Setting {
        name: "eager_groups",
        unit: "",
        description: "on (the default): what is aggregated of one side of a join is aggregated before the join, where that is \
                      estimated to save time; off",
        get: |settings| settings.groups_early.to_string(),
        set: |settings, value| {
            settings.groups_early = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "shared_plans",
        unit: "",
        description: "on (the default): what a statement asks for more than once, as a WITH query that is read twice, runs \
                      once where that is estimated to save time; off",
        get: |settings| settings.shares_plans.to_string(),
        set: |settings, value| {
            settings.shares_plans = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "first_rows",
        unit: "",
        description: "whether rows that cannot be among the first of their group, or of those nearest to a vector, go before \
                      they are sorted, where no others are asked for; on by default, as the answer is the same",
        get: |settings| settings.drops_rows.to_string(),
        set: |settings, value| {
            settings.drops_rows = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "spilling_groups",
        unit: "",
        description: "whether GROUP BY and DISTINCT, and medians of all rows, run by operators of Relatrix, which finish whatever the \
                      memory; on by default, and off for DataFusion's, whose answers are the same",
        get: |settings| settings.spills_groups.to_string(),
        set: |settings, value| {
            settings.spills_groups = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "parquet_pages",
        unit: "",
        description: "whether Parquet files are read by a reader of Relatrix's own, which decodes of most columns \
                      only the rows that meet the condition; on by default, off leaves them to DataFusion",
        get: |settings| settings.reads_pages.to_string(),
        set: |settings, value| {
            settings.reads_pages = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "fusion",
        unit: "",
        description: "whether operations become one step as fusion_patterns say; on by default, as it \
                      saves memory traffic and changes no result but for the last digits of what is sparse-driven",
        get: |settings| settings.fusion.to_string(),
        set: |settings, value| {
            settings.fusion = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "strassen",
        unit: "",
        description: "whether large dense products are made with fewer multiplications where that saves \
                      time; on by default, and off for an error bound that holds cell by cell and not \
                      only for the largest",
        get: |settings| settings.strassen.to_string(),
        set: |settings, value| {
            settings.strassen = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "fusion_patterns",
        unit: "",
        description: "which operations become one step: all (the default), none, or some of elementwise, multiply-add, \
                      norm-activation, map-reduce, row-reduce, product-add, linear-activation, \
                      conv-norm-activation, shared-scan, transform-filter and sparse-driven, whose sums have \
                      another order",
        get: |settings| settings.fusion_patterns.to_string(),
        set: |settings, value| {
            settings.fusion_patterns = Patterns::read(value)?;
            Ok(())
        },
    },
    Setting {
        name: "cost_model",
        unit: "",
        description: "what plans are chosen by: measured (the default) are rates of this machine, measured \
                      once and kept; built_in are the same everywhere, for plans that can be compared",
        get: |settings| MEASURED_OR_BUILT_IN[usize::from(!settings.measured_costs)].to_owned(),
        set: |settings, value| {
            settings.measured_costs = one_of(&MEASURED_OR_BUILT_IN, value)? == "measured";
            Ok(())
        },
    },
    Setting {
        name: "fusion_min_operations",
        unit: "operations",
        description: "operations that a fused loop has at least; 2 by default, as each more saves a matrix",
        get: |settings| settings.fusion_min_operations.to_string(),
        set: |settings, value| {
            settings.fusion_min_operations = at_least(2, number(value)?)?;
            Ok(())
        },
    },
    Setting {
        name: "fusion_max_depth",
        unit: "operations",
        description: "operations of a fused loop that follow one another at most; 64 by default, \
                      beyond which one more saves next to nothing",
        get: |settings| settings.fusion_max_depth.to_string(),
        set: |settings, value| {
            settings.fusion_max_depth = at_least(1, number(value)?)?;
            Ok(())
        },
    },
    Setting {
        name: "tile_rows",
        unit: "rows",
        description: "rows of a matrix that are worked on at a time; 0, the default, lets the \
                      planner choose by cost",
        get: |settings| settings.tile_rows.to_string(),
        set: |settings, value| {
            settings.tile_rows = number(value)?;
            Ok(())
        },
    },
    Setting {
        name: "gpu",
        unit: "",
        description: "auto (the default): matrix work goes to a GPU where there is one and that is expected to be clearly \
                      faster, with what is moved counted; off; force: wherever a GPU can do it. SHOW GPU tells \
                      what there is",
        get: |settings| settings.gpu.to_string(),
        set: |settings, value| {
            settings.gpu = Gpu::read(value)?;
            Ok(())
        },
    },
    Setting {
        name: "gpu_libraries",
        unit: "path",
        description: "a folder with libraries of CUDA that is looked into before CUDA_HOME, CUDA_PATH and the system's; of \
                      the whole process, which looks for a GPU once; none by default",
        get: |settings| settings.gpu_libraries.clone(),
        set: |settings, value| {
            settings.gpu_libraries = value.to_owned();
            Ok(())
        },
    },
    Setting {
        name: "gpu_memory_limit",
        unit: "bytes",
        description: "memory of the GPU that the process takes at most; 0, the default, is nine tenths of what it has",
        get: |settings| settings.gpu_memory_limit_bytes.to_string(),
        set: |settings, value| {
            settings.gpu_memory_limit_bytes = parse_bytes(value)?;
            Ok(())
        },
    },
    Setting {
        name: "gpu_on_failure",
        unit: "",
        description: "host (the default): what a GPU fails at is done by the host, and EXPLAIN ANALYZE and SHOW GPU tell \
                      why; error",
        get: |settings| HOST_OR_ERROR[usize::from(settings.gpu_must_not_fail)].to_owned(),
        set: |settings, value| {
            settings.gpu_must_not_fail = one_of(&HOST_OR_ERROR, value)? == "error";
            Ok(())
        },
    },
    Setting {
        name: "gpu_precision",
        unit: "",
        description: "in what a GPU multiplies matrices: off (the default), their own type; float32; tf32 and bf16: factors \
                      rounded to 11 and to 8 significant bits, sums in float32. Results keep their type, the host \
                      multiplies in full, and EXPLAIN shows it where it is used",
        get: |settings| settings.gpu_precision.to_string(),
        set: |settings, value| {
            settings.gpu_precision = GpuPrecision::read(value)?;
            Ok(())
        },
    },
    Setting {
        name: "gpu_keep",
        unit: "",
        description: "whether matrices that a GPU has read stay in its memory for the next statement that reads them; on by \
                      default, and they give way where it has no room. SHOW GPU tells what they take",
        get: |settings| settings.gpu_keeps.to_string(),
        set: |settings, value| {
            settings.gpu_keeps = switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "result_cache",
        unit: "",
        description: "on (the default): the answer of a query is remembered, and given again while the tables, matrices \
                      and files that it reads are as they were; verify: every query runs, and an answer that is \
                      not the remembered one is an error; off",
        get: |settings| settings.result_cache.to_string(),
        set: |settings, value| {
            settings.result_cache = ResultCache::read(value)?;
            Ok(())
        },
    },
    Setting {
        name: "result_cache_limit",
        unit: "bytes",
        description: "bytes of answers that the database remembers, in memory and within memory_limit while there is \
                      room, else in temp_directory; 256MB by default, and 0 forgets all. One answer may have an \
                      eighth of it, and a 64th of memory_limit",
        get: |settings| settings.result_cache_bytes.to_string(),
        set: |settings, value| {
            settings.result_cache_bytes = parse_bytes(value)?;
            Ok(())
        },
    },
    Setting {
        name: "parquet_cache_limit",
        unit: "bytes",
        description: "bytes of columns of Parquet files that stay decompressed in memory when they were read twice, for who \
                      reads them next; within memory_limit, of which they may have a sixteenth, and dropped where \
                      others need it. 128MB by default, and 0 keeps none",
        get: |settings| settings.parquet_cache_bytes.to_string(),
        set: |settings, value| {
            settings.parquet_cache_bytes = parse_bytes(value)?;
            Ok(())
        },
    },
    Setting {
        name: "result_cache_after_ms",
        unit: "milliseconds",
        description: "answers that took less are not remembered, for they are computed as quickly as they are looked up; 1 by \
                      default, and 0 remembers all",
        get: |settings| settings.result_cache_after_ms.to_string(),
        set: |settings, value| {
            settings.result_cache_after_ms = number(value)?;
            Ok(())
        },
    },
    Setting {
        name: "strategy",
        unit: "",
        description: "how a query that is asked again is run: measured (the default) tries what its estimated costs passed over by \
                      little, now and then, and goes over to what takes a tenth less several times; estimated is always \
                      by cost, and forgets what was measured. The answer is the same; SHOW STRATEGIES lists what \
                      is known",
        get: |settings| {
            MEASURED_OR_ESTIMATED[usize::from(!settings.strategies_are_measured)].to_owned()
        },
        set: |settings, value| {
            settings.strategies_are_measured = one_of(&MEASURED_OR_ESTIMATED, value)? == "measured";
            Ok(())
        },
    },
    Setting {
        name: "strategies_after_ms",
        unit: "milliseconds",
        description: "queries that take less are run as estimated, for there is little to gain; 5 by default, and 0 tries \
                      other ways for all",
        get: |settings| settings.strategies_after_ms.to_string(),
        set: |settings, value| {
            settings.strategies_after_ms = number(value)?;
            Ok(())
        },
    },
];

/// The values of the setting `strategy`.
const MEASURED_OR_ESTIMATED: [&str; 2] = ["measured", "estimated"];

/// The values of the setting `join_order`.
const COST_OR_WRITTEN: [&str; 2] = ["cost", "written"];

/// The values of the setting `gpu_on_failure`.
const HOST_OR_ERROR: [&str; 2] = ["host", "error"];

/// The values of the setting `cost_model`.
const MEASURED_OR_BUILT_IN: [&str; 2] = ["measured", "built_in"];

impl Setting {
    /// The setting of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
    }

    /// The value as text.
    pub(crate) fn get(&self, settings: &Settings) -> String {
        (self.get)(settings)
    }

    /// Takes a value from its text.
    pub(crate) fn set(&self, settings: &mut Settings, value: &str) -> Result<(), String> {
        (self.set)(settings, value.trim())
    }
}

/// Bytes of the memory limit for each row of a batch: with the some hundred batches that a plan may have
/// on their way, a row of a hundred bytes in each takes a third of it.
const LIMIT_BYTES_PER_ROW: usize = 32 << 10;

/// Rows of a batch at least, whatever the limit: below, calls cost more than rows.
const BATCH_ROWS_MIN: usize = 512;

/// Bytes and rows up to which the built side of a join is collected into one table rather than dealt out by key, where
/// joins are ordered by cost and two threads work: while one of them builds the table, the other waits. On 2 threads 13
/// queries of TPC-H at scale factor 10 take 0.95 of the processor time that they do with 400,000 rows and 4 MiB, as `SET
/// datafusion.optimizer.hash_join_single_partition_threshold_rows` and the setting beside it, of bytes, have them.
const COLLECTED_BYTES: usize = 64 << 20;
const COLLECTED_ROWS: usize = 4_000_000;

impl Default for Settings {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        Self {
            threads,
            memory_limit_bytes: machine_memory_bytes() / 10 * 7,
            memory_watch: false,
            memory_tracking: false,
            pool_limit_bytes: machine_memory_bytes() / 8,
            pool_poison: false,
            temp_directories: vec![Directory::at(std::env::temp_dir())],
            io_bytes_per_second: 0,
            memory_threshold_percent: 90,
            compressed_threshold_percent: 95,
            memory_compression: Compression::Lz4,
            disk_threshold_percent: 98,
            ahead_pages: 8,
            batch_size: 8192,
            statement_timeout_ms: 0,
            null_order: "nulls_max".to_owned(),
            rewrites: true,
            contractions: true,
            orders_joins: true,
            groups_early: true,
            reversible_rows: 1 << 18,
            shares_plans: true,
            drops_rows: true,
            spills_groups: true,
            reads_pages: true,
            fusion: true,
            fusion_patterns: Patterns::all(),
            fusion_min_operations: 2,
            fusion_max_depth: 64,
            strassen: true,
            measured_costs: true,
            tile_rows: 0,
            gpu: Gpu::Auto,
            gpu_libraries: String::new(),
            gpu_memory_limit_bytes: 0,
            gpu_must_not_fail: false,
            gpu_precision: GpuPrecision::Off,
            gpu_keeps: true,
            result_cache: ResultCache::On,
            result_cache_bytes: 256 << 20,
            parquet_cache_bytes: 128 << 20,
            result_cache_after_ms: 1,
            strategies_are_measured: true,
            strategies_after_ms: 5,
        }
    }
}

impl Settings {
    /// What a GPU's memory is limited to, where a setting says so.
    pub(crate) fn gpu_memory_limit(&self) -> Option<usize> {
        Some(self.gpu_memory_limit_bytes).filter(|&bytes| bytes > 0)
    }

    /// Whether so many threads are to be had.
    ///
    /// # Errors
    /// Says why not.
    pub(crate) fn check_threads(&self) -> Result<(), String> {
        match at_least(1, self.threads)? {
            threads if threads > THREADS_MAX => Err(format!(
                "{threads} are more than {THREADS_MAX}, which no machine has work for: each has a stack \
                 of its own, and those beyond the cores only take turns"
            )),
            _ => Ok(()),
        }
    }

    /// How long a statement may take.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        let limit = self.statement_timeout_ms;
        (limit > 0).then(|| Duration::from_millis(limit))
    }

    /// What the planner may fuse.
    pub(crate) fn fusion(&self) -> Fusion {
        let patterns = if self.fusion { self.fusion_patterns } else { Patterns::NONE };
        let (operations_min, depth_max) = (self.fusion_min_operations, self.fusion_max_depth);
        Fusion { patterns, operations_min, depth_max }
    }

    /// Rows of a tile, where they are not the planner's choice.
    pub(crate) fn tile_rows(&self) -> Option<usize> {
        (self.tile_rows > 0).then_some(self.tile_rows)
    }

    /// What statements may hold together.
    pub(crate) fn memory_limits(&self) -> Limits {
        let (bytes, watched) = (self.memory_limit_bytes, self.memory_watch);
        Limits { bytes, watched, tracked: self.memory_tracking }
    }

    /// Rows that operators pass on at a time: fewer where memory is short.
    fn batch_rows(&self) -> usize {
        let affordable = (self.memory_limit_bytes / LIMIT_BYTES_PER_ROW).max(BATCH_ROWS_MIN);
        self.batch_size.min(affordable)
    }

    /// When stored values move to slower tiers.
    pub(crate) fn thresholds(&self) -> Thresholds {
        Thresholds {
            memory: self.memory_threshold_percent,
            compressed: self.compressed_threshold_percent,
            compression: self.memory_compression,
        }
    }

    /// What the database may keep of the memory of its matrices.
    pub(crate) fn pool_limits(&self) -> PoolLimits {
        let total_bytes = self.memory_limits().reservable_bytes();
        let idle_bytes = self.pool_limit_bytes.min(total_bytes);
        PoolLimits {
            idle_bytes,
            total_bytes,
            resident_bytes: self.memory_limit_bytes,
            poison: self.pool_poison,
        }
    }

    /// Bytes of all answers that are remembered, and of one.
    pub(crate) fn result_cache_limits(&self) -> CacheLimits {
        const SHARE_OF_ALL: usize = 8;
        const SHARE_OF_MEMORY: usize = 64;
        let bytes = self.result_cache_bytes;
        let answer_bytes = (bytes / SHARE_OF_ALL).min(self.memory_limit_bytes / SHARE_OF_MEMORY);
        CacheLimits { bytes, answer_bytes }
    }

    /// Bytes of columns of Parquet files that are kept.
    pub(crate) fn parquet_cache_limit_bytes(&self) -> usize {
        const SHARE_OF_MEMORY: usize = 16;
        self.parquet_cache_bytes.min(self.memory_limit_bytes / SHARE_OF_MEMORY)
    }

    /// Seconds that a query must take to be tried in another way; nothing where all is by cost.
    pub(crate) fn strategies_after(&self) -> Option<f64> {
        self.strategies_are_measured.then(|| self.strategies_after_ms as f64 / 1e3)
    }

    /// What takes less is not remembered; where this is zero, all is.
    pub(crate) fn remembered_seconds_min(&self) -> f64 {
        match self.result_cache {
            ResultCache::Verify => 0.0,
            ResultCache::On | ResultCache::Off => self.result_cache_after_ms as f64 / 1e3,
        }
    }

    /// The values that an answer may depend on and that are not as they come, as one text.
    pub(crate) fn text_for_answers(&self) -> String {
        let others = [
            "result_cache",
            "result_cache_limit",
            "result_cache_after_ms",
            "strategy",
            "strategies_after_ms",
            "statement_timeout_ms",
        ];
        let defaults = Self::default();
        let changed = SETTINGS.iter().filter(|setting| {
            !others.contains(&setting.name) && setting.get(self) != setting.get(&defaults)
        });
        changed.map(|setting| format!("{}={}\n", setting.name, setting.get(self))).collect()
    }

    /// What all readers of files together may have read before it is wanted: a small part of the limit, and what a few
    /// readers gain from at most.
    pub(crate) fn ahead_bytes_max(&self) -> usize {
        const SHARE: usize = 64;
        const MOST: usize = 64 << 20;
        (self.memory_limit_bytes / SHARE).min(MOST)
    }

    /// Hands DataFusion what concerns it, and sets what we never leave to its defaults.
    pub(crate) fn apply(&self, options: &mut ConfigOptions) {
        options.execution.target_partitions = self.threads;
        options.execution.batch_size =
            ConfigNonZeroUsize::try_new(self.batch_rows()).expect("a batch has a row");
        options.sql_parser.default_null_ordering = self.null_order.clone();
        options.catalog.information_schema = true;
        // Pages are compressed where they are written, as their directory has it.
        options.execution.spill_compression = SpillCompression::Uncompressed;
        // Errors of names say where in the text they are.
        options.sql_parser.collect_spans = true;
        // Which side of a join is built is decided with the order, by estimates that reach further.
        options.optimizer.join_reordering = !self.orders_joins;
        // The side that is built is small then, and to deal the other one out by key costs more than to share its table.
        if self.orders_joins {
            // All other threads wait for the one that builds the table.
            let waiting = self.threads.saturating_sub(1).max(1);
            options.optimizer.hash_join_single_partition_threshold = COLLECTED_BYTES / waiting;
            options.optimizer.hash_join_single_partition_threshold_rows = COLLECTED_ROWS / waiting;
        } else {
            let defaults = ConfigOptions::default().optimizer;
            let bytes = defaults.hash_join_single_partition_threshold;
            options.optimizer.hash_join_single_partition_threshold = bytes;
            let rows = defaults.hash_join_single_partition_threshold_rows;
            options.optimizer.hash_join_single_partition_threshold_rows = rows;
        }
        let (fusion, reservable_bytes) = (self.fusion(), self.memory_limits().reservable_bytes());
        let rules = ForRules {
            fusion,
            reads_pages: self.reads_pages,
            threads: self.threads,
            orders_joins: self.orders_joins,
            groups_early: self.groups_early,
            reversible_rows: self.reversible_rows,
            shares_plans: self.shares_plans,
            drops_rows: self.drops_rows,
            spills_groups: self.spills_groups,
            reservable_bytes,
        };
        options.extensions.insert(rules);
    }
}

fn number<N: FromStr<Err: Display>>(value: &str) -> Result<N, String> {
    value.parse().map_err(|error| format!("'{value}' is not a whole number: {error}"))
}

fn percent(value: &str) -> Result<usize, String> {
    match number(value)? {
        percent if percent <= 100 => Ok(percent),
        _ => Err(format!("'{value}' is not a share in percent: 0 to 100")),
    }
}

fn at_least(least: usize, value: usize) -> Result<usize, String> {
    if value >= least { Ok(value) } else { Err(format!("{value} is less than {least}")) }
}

fn switch(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(format!("'{value}' is neither true nor false")),
    }
}

fn one_of(choices: &[&str], value: &str) -> Result<String, String> {
    let choice = choices.iter().find(|choice| choice.eq_ignore_ascii_case(value));
    choice
        .map(|&choice| choice.to_owned())
        .ok_or_else(|| format!("'{value}' is none of {}", choices.join(", ")))
}

/// Bytes from a number with a unit: `512MB` (or `512 MiB`, `512m`) are 512 · 2²⁰.
///
/// ```
/// assert_eq!(relatrix::parse_bytes("2GB"), Ok(2 << 30));
/// assert_eq!(relatrix::parse_bytes("1.5 kb"), Ok(1536));
/// assert_eq!(relatrix::parse_bytes("1e9"), Ok(1_000_000_000));
/// assert!(relatrix::parse_bytes("much").is_err());
/// ```
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if let Some(bytes) = text.parse::<f64>().ok().filter(|_| is_number) {
        return Ok(bytes as usize);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| format!("'{text}' is not a size, such as 2GB"))?;
    let power = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        unit => return Err(format!("'{unit}' is not a unit of bytes: B, KB, MB, GB, TB")),
    };
    Ok((number * (1_u64 << power) as f64) as usize)
}

/// Memory of the machine, or of the control group if that is less; 4 GiB where neither says.
fn machine_memory_bytes() -> usize {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let machine = text("/proc/meminfo").lines().find_map(|line| {
        let kilobytes = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?;
        Some(kilobytes.trim().parse::<usize>().ok()? * 1024)
    });
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let groups = groups.into_iter().filter_map(|path| text(path).trim().parse().ok());
    machine.into_iter().chain(groups).min().unwrap_or(4 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_takes_the_value_it_shows() {
        for setting in SETTINGS {
            let mut settings = Settings::default();
            let shown = setting.get(&settings);
            setting
                .set(&mut settings, &shown)
                .unwrap_or_else(|error| panic!("{}: {error}", setting.name));
            assert_eq!(settings, Settings::default(), "{}", setting.name);
            assert!(Setting::named(&setting.name.to_uppercase()).is_some());
        }
    }

    #[test]
    fn a_value_that_makes_no_sense_is_refused() {
        let refused = |name: &str, value: &str| {
            Setting::named(name).unwrap().set(&mut Settings::default(), value).unwrap_err()
        };
        assert_eq!(refused("threads", "0"), "0 is less than 1");
        assert!(refused("threads", "100000").starts_with("100000 are more than 1024"));
        assert_eq!(
            refused("memory_limit", "2 acres"),
            "'acres' is not a unit of bytes: B, KB, MB, GB, TB"
        );
        assert_eq!(refused("fusion", "perhaps"), "'perhaps' is neither true nor false");
    }
}
