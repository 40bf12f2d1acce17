//! What plans of SQL are chosen by: what is known of the rows that they read, and of the machine that reads them.

use std::sync::Arc;

use super::cost::rows::RowCosts;
use super::statistics::{Estimates, Statistics};

/// What the rules of all connections choose by.
#[derive(Debug, Clone)]
pub(crate) struct Evidence {
    statistics: Arc<Statistics>,
}

impl Evidence {
    pub(crate) fn new(statistics: &Arc<Statistics>) -> Self {
        Self { statistics: Arc::clone(statistics) }
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Estimates for one statement.
    pub(super) fn estimates(&self) -> Estimates<'_> {
        Estimates::new(&self.statistics)
    }

    /// What is done to rows costs, for operators.
    pub(super) fn costs(&self) -> RowCosts {
        RowCosts::default()
    }
}
