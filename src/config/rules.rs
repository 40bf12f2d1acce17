//! What DataFusion's rules for physical plans know of our settings: they see its own settings alone.

use std::any::Any;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::config_err;

use super::{Fusion, GpuUse};

/// A part of DataFusion's settings without a name: each is set by those of ours that it is made of.
#[derive(Debug, Clone)]
pub(crate) struct ForRules {
    pub(crate) fusion: Fusion,
    /// Whether Parquet files are read by pages.
    pub(crate) reads_pages: bool,
    pub(crate) threads: usize,
    /// Whether joins are put in the order that costs least.
    pub(crate) orders_joins: bool,
    /// Whether constants of the machine may be measured ones.
    pub(crate) measured_costs: bool,
    /// Rows of a build side from which on it is looked whether the probe side has few; none is never.
    pub(crate) reversible_rows: usize,
    /// Whether what is aggregated of one side of a join may be before it.
    pub(crate) groups_early: bool,
    /// Whether windows over whole partitions may become joins with groups.
    pub(crate) groups_windows: bool,
    /// Whether plans that a statement contains more than once run once.
    pub(crate) shares_plans: bool,
    /// Whether a plan that takes less than to wake the other threads has one partition.
    pub(crate) partitions_by_cost: bool,
    /// Whether rows go that cannot be among the first of their group, where those are asked for.
    pub(crate) drops_rows: bool,
    /// Whether GROUP BY is run by an operator that finishes whatever the memory.
    pub(crate) spills_groups: bool,
    /// Bytes that operators may reserve together.
    pub(crate) reservable_bytes: usize,
    pub(crate) gpu: GpuUse,
}

impl ConfigExtension for ForRules {
    const PREFIX: &'static str = "relatrix";
}

impl ExtensionOptions for ForRules {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> datafusion::error::Result<()> {
        config_err!("there is no setting relatrix.{key}")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}
