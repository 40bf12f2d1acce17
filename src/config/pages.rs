//! What DataFusion's physical rules know of our settings: they see its options alone.

use std::any::Any;

use datafusion::common::Result;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::exec_err;

/// How Parquet files are read. No option that has a name: the setting `parquet_pages` is its only one.
#[derive(Debug, Clone)]
pub(crate) struct PageReading {
    /// Whether numbers are read page by page.
    pub(crate) is_on: bool,
    /// Columns that are read side by side.
    pub(crate) threads: usize,
}

impl ConfigExtension for PageReading {
    const PREFIX: &'static str = "relatrix";
}

impl ExtensionOptions for PageReading {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> Result<()> {
        exec_err!("there is no setting 'relatrix.{key}'")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}
