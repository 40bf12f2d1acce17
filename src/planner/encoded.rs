//! Scans of files give their columns as these are in the files, to operators that decode them.
//!
//! Enters: a plan after all other rules, for nobody else may read such a scan. Leaves: the same plan, in which it is told so.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};

use super::operators::with_others;
use crate::exec::encoded::takes_encoded;
use crate::pages::encoded_scan;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(crate) struct EncodedScans;

/// The operator over such a scan; nothing where it reads none.
fn over_encoded(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut children: Vec<_> = plan.children().into_iter().map(Arc::clone).collect();
    let Some(child) = takes_encoded(plan).and_then(|at| children.get_mut(at)) else {
        return Ok(None);
    };
    let Some(scan) = child.downcast_ref::<DataSourceExec>().and_then(encoded_scan) else {
        return Ok(None);
    };
    *child = scan;
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Arc::clone(plan).replace_children(children, options).map(Some)
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
