//! What plans of SQL are chosen by: what is known of the rows that they read, and of the machine that reads them.

use std::sync::Arc;

use datafusion::config::ConfigOptions;

use super::calibration::Calibration;
use super::cost::rows::RowCosts;
use super::statistics::{Estimates, Statistics};
use crate::config::ForRules;

/// What the rules of all connections choose by.
#[derive(Debug, Clone)]
pub(crate) struct Evidence {
    statistics: Arc<Statistics>,
    calibration: Arc<Calibration>,
}

impl Evidence {
    pub(crate) fn new(statistics: &Arc<Statistics>, calibration: &Arc<Calibration>) -> Self {
        Self { statistics: Arc::clone(statistics), calibration: Arc::clone(calibration) }
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Estimates for one statement, by the measured constants where there are any.
    pub(super) fn estimates(&self, options: &ConfigOptions) -> Estimates<'_> {
        Estimates::new(&self.statistics).at(self.costs(options))
    }

    /// The constants without the rows, for operators.
    pub(super) fn costs(&self, options: &ConfigOptions) -> RowCosts {
        let known = measures(options).then(|| self.calibration.known()).flatten();
        known.unwrap_or_default().rows()
    }

    /// Estimates by measured constants, where there were none and a statement may have them.
    pub(super) fn measured(&self, options: &ConfigOptions) -> Option<Estimates<'_>> {
        let is_due = measures(options) && self.calibration.known().is_none();
        is_due.then(|| Estimates::new(&self.statistics).at(self.calibration.model().rows()))
    }
}

/// Whether constants may be measured ones.
fn measures(options: &ConfigOptions) -> bool {
    options.extensions.get::<ForRules>().is_some_and(|rules| rules.measured_costs)
}
