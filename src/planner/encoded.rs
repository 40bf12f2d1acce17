//! Scans of files give their columns as these are in the files, to operators that decode them.
//!
//! Enters: a plan after all other rules, for nobody else may read such a scan. Leaves: the same plan, in which it is told so.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::operators::{with_children, with_others};
use crate::exec::encoded::takes_encoded;
use crate::pages::encoded_scan;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(crate) struct EncodedScans;

/// The operator over scans that give it their columns as it takes them; nothing where they do. Those of a plan that was optimized
/// by itself, before it became part of another one, may have had other operators above them.
fn over_encoded(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let taken = takes_encoded(plan);
    let mut children: Vec<_> = plan.children().into_iter().map(Arc::clone).collect();
    let mut is_new = false;
    for (at, child) in children.iter_mut().enumerate() {
        let scan = child.downcast_ref::<DataSourceExec>();
        if let Some(scan) = scan.and_then(|scan| encoded_scan(scan, taken == Some(at))) {
            *child = scan;
            is_new = true;
        }
    }
    is_new.then(|| with_children(Arc::clone(plan), children)).transpose()
}

impl PhysicalOptimizerRule for EncodedScans {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        with_others(plan, &mut over_encoded)
    }

    fn name(&self) -> &str {
        "encoded_scans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
