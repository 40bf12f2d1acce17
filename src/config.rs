//! What can be set: the values of one connection, their defaults, and what follows from them.
//!
//! [`SETTINGS`] is the list that SET, SHOW, RESET and SHOW ALL read; [`Settings`] holds the values, for DataFusion
//! (through [`Settings::apply`]) and for our planner (as an extension of its session). DataFusion's own options stay
//! reachable as `datafusion.…`.

mod directories;
mod fusion;
mod gpu;
mod launch_shapes;
mod list;
mod parquet_cache;
mod result_cache;
mod rules;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion::config::{ConfigNonZeroUsize, ConfigOptions, SpillCompression};

use crate::memory::{Limits, PoolLimits, Thresholds};

pub(crate) use self::directories::{Compression, Directory};
pub(crate) use self::fusion::{Fusion, Pattern, Patterns};
pub(crate) use self::gpu::{Gpu, GpuDevices, GpuGraphs, GpuPrecision, GpuUse};
#[cfg(test)]
pub(crate) use self::launch_shapes::FREE;
pub(crate) use self::launch_shapes::LaunchShapes;
pub(crate) use self::list::{SETTINGS, Setting};
pub(crate) use self::parquet_cache::ColumnLimits;
use self::parquet_cache::ParquetCache;
pub(crate) use self::result_cache::{CacheLimits, ResultCache};
pub(crate) use self::rules::ForRules;
use self::text::at_least;
pub use self::text::parse_bytes;

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
    /// Whether windows over whole partitions may become joins with groups.
    pub(crate) groups_windows: bool,
    /// Rows of a build side from which on it is looked whether the probe side has few; none is never.
    pub(crate) reversible_rows: usize,
    /// Whether plans that a statement contains more than once run once.
    pub(crate) shares_plans: bool,
    /// Whether a plan that takes less than to wake the other threads has one partition.
    pub(crate) partitions_by_cost: bool,
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
    pub(crate) gpu_devices: Arc<GpuDevices>,
    /// Zero is the planner's choice.
    pub(crate) gpu_memory_limit_bytes: usize,
    /// Whether work that a GPU fails at is an error, rather than done by the host.
    pub(crate) gpu_must_not_fail: bool,
    pub(crate) gpu_precision: GpuPrecision,
    pub(crate) gpu_graphs: GpuGraphs,
    pub(crate) gpu_launch_shapes: Arc<LaunchShapes>,
    /// Whether matrices that a GPU has read stay in its memory.
    pub(crate) gpu_keeps: bool,
    pub(crate) result_cache: ResultCache,
    pub(crate) result_cache_bytes: usize,
    /// Where answers are that outlive the process; empty is nowhere.
    pub(crate) result_cache_directory: PathBuf,
    pub(crate) parquet_cache: ParquetCache,
    /// What takes less is not remembered.
    pub(crate) result_cache_after_ms: u64,
    /// Whether runner-ups of choices by cost are tried.
    pub(crate) strategies_are_measured: bool,
    /// What takes less is not tried in another way.
    pub(crate) strategies_after_ms: u64,
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
            groups_windows: true,
            reversible_rows: 1 << 18,
            shares_plans: true,
            partitions_by_cost: true,
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
            gpu_devices: Arc::default(),
            gpu_memory_limit_bytes: 0,
            gpu_must_not_fail: false,
            gpu_precision: GpuPrecision::Off,
            gpu_graphs: GpuGraphs::Auto,
            gpu_launch_shapes: Arc::default(),
            gpu_keeps: true,
            result_cache: ResultCache::On,
            result_cache_bytes: 256 << 20,
            result_cache_directory: PathBuf::new(),
            parquet_cache: ParquetCache::Auto,
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

    /// Where answers are that outlive the process.
    pub(crate) fn result_cache_directory(&self) -> Option<&Path> {
        let directory = self.result_cache_directory.as_path();
        Some(directory).filter(|directory| !directory.as_os_str().is_empty())
    }

    /// Bytes of columns of Parquet files that are kept.
    pub(crate) fn parquet_cache_limits(&self) -> ColumnLimits {
        self.parquet_cache.limits(self.memory_limit_bytes)
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
            "result_cache_directory",
            "result_cache_after_ms",
            "strategy",
            "strategies_after_ms",
            "statement_timeout_ms",
            "gpu_launch_shapes",
        ];
        let defaults = Self::default();
        let changed = SETTINGS.iter().filter(|setting| {
            !others.contains(&setting.name) && setting.get(self) != setting.get(&defaults)
        });
        changed.map(|setting| format!("{}={}\n", setting.name, setting.get(self))).collect()
    }

    /// What plans ask before they ask for a GPU.
    pub(crate) fn gpu_use(&self) -> GpuUse {
        GpuUse::of(self)
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
            measured_costs: self.measured_costs,
            groups_early: self.groups_early,
            groups_windows: self.groups_windows,
            reversible_rows: self.reversible_rows,
            shares_plans: self.shares_plans,
            partitions_by_cost: self.partitions_by_cost,
            drops_rows: self.drops_rows,
            spills_groups: self.spills_groups,
            reservable_bytes,
            gpu: self.gpu_use(),
        };
        options.extensions.insert(rules);
    }
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
