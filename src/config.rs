//! Every setting: its name, unit, default, and why that default.
//!
//! [`SETTINGS`] is the list that SET, SHOW, RESET and SHOW ALL read; [`Settings`] holds the values of one
//! connection, for DataFusion (through [`Settings::apply`]) and for our planner (as an extension of its
//! session). DataFusion's own options stay reachable as `datafusion.…`.

mod fusion;
mod pages;
mod rules;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use datafusion::config::{ConfigNonZeroUsize, ConfigOptions, SpillCompression};

use crate::matrix::PoolLimits;

pub(crate) use self::fusion::{Fusion, Pattern, Patterns};
pub(crate) use self::pages::{PageReading, Pages};
pub(crate) use self::rules::ForRules;

/// Threads at most. Each has a stack of its own, and those beyond the cores only take turns; some
/// thousands more, and the system refuses them in the middle of a statement.
const THREADS_MAX: usize = 1024;

/// The values of all settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) threads: usize,
    pub(crate) memory_limit_bytes: usize,
    pub(crate) pool_limit_bytes: usize,
    pub(crate) pool_poison: bool,
    /// The system's own where `None`.
    pub(crate) temp_directory: Option<PathBuf>,
    pub(crate) batch_size: usize,
    /// Zero is no limit.
    pub(crate) statement_timeout_ms: u64,
    pub(crate) null_order: String,
    pub(crate) rewrites: bool,
    pub(crate) contractions: bool,
    pub(crate) parquet_pages: Pages,
    pub(crate) fusion: bool,
    pub(crate) fusion_patterns: Patterns,
    pub(crate) fusion_min_operations: usize,
    pub(crate) fusion_max_depth: usize,
    pub(crate) strassen: bool,
    /// Whether plans are chosen by constants measured here, rather than the built-in ones.
    pub(crate) measured_costs: bool,
    /// Zero is the planner's choice.
    pub(crate) tile_rows: usize,
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
        description: "memory for all statements together, as 512MB or 2GB; three quarters of the \
                      machine's by default, which leaves room for the system's file cache",
        get: |settings| settings.memory_limit_bytes.to_string(),
        set: |settings, value| {
            settings.memory_limit_bytes = at_least(1 << 20, parse_bytes(value)?)?;
            Ok(())
        },
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
        description: "where rows go that do not fit into memory; the system's by default",
        get: |settings| path_text(settings.temp_directory.as_deref()),
        set: |settings, value| {
            settings.temp_directory = (!value.is_empty()).then(|| PathBuf::from(value));
            Ok(())
        },
    },
    Setting {
        name: "batch_size",
        unit: "rows",
        description: "rows that operators pass on at a time; 8192 keep a few columns within a \
                      core's cache and make the cost of each call disappear",
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
        name: "parquet_pages",
        unit: "",
        description: "of which Parquet files numbers and lists of numbers are read page by page: auto (the \
                      default) for lists, which takes half the time, and where a group of rows is too large \
                      to be held whole; on wherever it can be done; off",
        get: |settings| settings.parquet_pages.name().to_owned(),
        set: |settings, value| {
            settings.parquet_pages = Pages::read(value)?;
            Ok(())
        },
    },
    Setting {
        name: "fusion",
        unit: "",
        description: "whether operations become one step as fusion_patterns say; on by default, as it \
                      saves memory traffic and never changes a result",
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
        description: "which operations become one step: all (the default, as none changes a result), none, \
                      or some of elementwise, multiply-add, norm-activation, map-reduce, row-reduce, product-add, \
                      linear-activation, conv-norm-activation, shared-scan and transform-filter",
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
];

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

/// Of a memory limit, what DataFusion may hand out: it counts its large buffers only, and the batches
/// on their way between operators come on top. Measured on sorts and joins of several times the limit.
const COUNTED_SHARE: f64 = 0.7;

impl Default for Settings {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        Self {
            threads,
            memory_limit_bytes: machine_memory_bytes() / 4 * 3,
            pool_limit_bytes: machine_memory_bytes() / 8,
            pool_poison: false,
            temp_directory: None,
            batch_size: 8192,
            statement_timeout_ms: 0,
            null_order: "nulls_max".to_owned(),
            rewrites: true,
            contractions: true,
            parquet_pages: Pages::Auto,
            fusion: true,
            fusion_patterns: Patterns::all(),
            fusion_min_operations: 2,
            fusion_max_depth: 64,
            strassen: true,
            measured_costs: true,
            tile_rows: 0,
        }
    }
}

impl Settings {
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

    /// Bytes that operators may reserve together.
    pub(crate) fn reservable_bytes(&self) -> usize {
        (self.memory_limit_bytes as f64 * COUNTED_SHARE) as usize
    }

    /// What the database may keep of the memory of its matrices.
    pub(crate) fn pool_limits(&self) -> PoolLimits {
        let total_bytes = self.reservable_bytes();
        let idle_bytes = self.pool_limit_bytes.min(total_bytes);
        PoolLimits { idle_bytes, total_bytes, poison: self.pool_poison }
    }

    /// Hands DataFusion what concerns it, and sets what we never leave to its defaults.
    pub(crate) fn apply(&self, options: &mut ConfigOptions) {
        options.execution.target_partitions = self.threads;
        options.execution.batch_size =
            ConfigNonZeroUsize::try_new(self.batch_size).expect("a batch has a row");
        options.sql_parser.default_null_ordering = self.null_order.clone();
        options.catalog.information_schema = true;
        // Spilled batches that are compressed come back in buffers of their exact size. Uncompressed ones
        // are counted with the whole block they point into, and sorts fail that could succeed.
        options.execution.spill_compression = SpillCompression::Lz4Frame;
        // Errors of names say where in the text they are.
        options.sql_parser.collect_spans = true;
        let reading = PageReading { pages: self.parquet_pages, threads: self.threads };
        options.extensions.insert(ForRules { fusion: self.fusion(), reading });
    }
}

fn number<N: FromStr<Err: Display>>(value: &str) -> Result<N, String> {
    value.parse().map_err(|error| format!("'{value}' is not a whole number: {error}"))
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

fn path_text(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
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
    let group = text("/sys/fs/cgroup/memory.max").trim().parse().ok();
    [machine, group].into_iter().flatten().min().unwrap_or(4 << 30)
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
