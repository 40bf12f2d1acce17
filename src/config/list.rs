//! The list of settings: each with its name, its unit, what it does, and why its default is what it is.
//!
//! Enters: a name, and a value as text. Leaves: the value in [`Settings`], or what is wrong with it. Not here: what is made of the values.

use super::text::{at_least, number, one_of, parse_bytes, percent, switch};
use super::{
    Compression, Directory, Gpu, GpuDevices, GpuGraphs, GpuPrecision, LaunchShapes, ParquetCache,
    Patterns, ResultCache, Settings,
};

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
        name: "grouped_windows",
        unit: "",
        description: "on (the default): a window over whole partitions, without ORDER BY, becomes a join with what is \
                      aggregated of each partition, where that is estimated to save time; off",
        get: |settings| settings.groups_windows.to_string(),
        set: |settings, value| {
            settings.groups_windows = switch(value)?;
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
        name: "partitions",
        unit: "",
        description: "cost (the default): a plan over tables in memory and single Parquet files has one partition where it is \
                      estimated to take less than to wake other threads; threads: one for each thread, however few the rows",
        get: |settings| COST_OR_THREADS[usize::from(!settings.partitions_by_cost)].to_owned(),
        set: |settings, value| {
            settings.partitions_by_cost = one_of(&COST_OR_THREADS, value)? == "cost";
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
        description: "auto (the default): matrix work and aggregations over tables in memory go to a GPU where there is one \
                      and that is expected to be clearly faster, with what is moved counted; off; force: wherever a \
                      GPU can do it. SHOW GPU tells what there is",
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
        name: "gpu_devices",
        unit: "",
        description: "which GPUs of several are used: their numbers from 0 or UUIDs, as in '0,2' or 'GPU-1b9c', as SHOW GPU lists \
                      them; all where it is empty, the default. Nothing is done with others, not even a trial",
        get: |settings| settings.gpu_devices.text().to_owned(),
        set: |settings, value| {
            settings.gpu_devices = GpuDevices::read(value)?.into();
            Ok(())
        },
    },
    Setting {
        name: "gpu_memory_limit",
        unit: "bytes",
        description: "memory of each GPU that the process takes at most; 0, the default, is nine tenths of what it has",
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
        name: "gpu_graphs",
        unit: "",
        description: "auto (the default): rounds of an iteration on a GPU are recorded once and then started by one call each \
                      where that is expected to be faster than starting their kernels one by one; off; force: wherever \
                      they can be recorded. SHOW GPU counts them as replays",
        get: |settings| settings.gpu_graphs.to_string(),
        set: |settings, value| {
            settings.gpu_graphs = GpuGraphs::read(value)?;
            Ok(())
        },
    },
    Setting {
        name: "gpu_launch_shapes",
        unit: "path",
        description: "a file with lines of a kernel and the threads that a block of it has on a GPU, for devices on which other \
                      numbers than the built-in ones are faster; of the whole process. Results keep their bits, so not all \
                      kernels can be chosen. None by default",
        get: |settings| settings.gpu_launch_shapes.file().to_owned(),
        set: |settings, value| {
            settings.gpu_launch_shapes = LaunchShapes::read(value)?.into();
            Ok(())
        },
    },
    Setting {
        name: "gpu_keep",
        unit: "",
        description: "whether matrices, and columns of tables, that a GPU has read stay in its memory for the next statement \
                      that reads them; on by default, and they give way where it has no room. SHOW GPU tells what \
                      they take",
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
        name: "result_cache_directory",
        unit: "path",
        description: "where the database puts answers of queries that read nothing but files, for the next process that asks the                       same while these are as they were; made where it is not there, with result_cache_limit bytes at                       most. None by default. Other builds of the program do not read them",
        get: |settings| settings.result_cache_directory.display().to_string(),
        set: |settings, value| {
            if !value.is_empty() {
                Directory::at(value.into()).provide()?;
            }
            settings.result_cache_directory = value.into();
            Ok(())
        },
    },
    Setting {
        name: "parquet_cache_limit",
        unit: "bytes",
        description: "bytes of columns of Parquet files that stay decompressed in memory when they were read twice, for who \
                      reads them next; within memory_limit, of which they may have a sixteenth, and dropped where \
                      others need it. auto, the default, is a quarter of all columns that are read, as they are in \
                      their files, and at least 128MB; 0 keeps none",
        get: |settings| settings.parquet_cache.to_string(),
        set: |settings, value| {
            settings.parquet_cache = ParquetCache::read(value)?;
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

/// The values of the setting `partitions`.
const COST_OR_THREADS: [&str; 2] = ["cost", "threads"];

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
