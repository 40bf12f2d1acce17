//! Finds the scans of which all columns are known here.

use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::sorts::sort::SortExec;

use super::first::First;
use super::source::{Means, PagedSource, Shared};
use crate::config::ForRules;
use crate::first_by::FirstBy;

/// Reads Parquet files by pages where all columns are known here. After all rules that move conditions and
/// expressions into scans.
#[derive(Debug)]
pub(crate) struct ParquetByPages(pub(crate) Shared);

impl PhysicalOptimizerRule for ParquetByPages {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<ForRules>();
        let settings = settings.filter(|settings| settings.reads_pages);
        let Some(settings) = settings else { return Ok(plan) };
        let means = Means::of(settings, &self.0);
        // What is asked of the next scan.
        let mut first = None;
        with_scans(plan, &mut |plan| {
            let sort = plan.downcast_ref::<SortExec>();
            let sort = sort.filter(|sort| sort.fetch().is_some() && is_of_a_scan(sort.input()));
            if let Some(sort) = sort {
                let asked = First::of(sort, config).filter(First::is_about_lists);
                first = asked.filter(|_| settings.drops_rows);
                return None;
            }
            let scan = plan.downcast_ref::<DataSourceExec>();
            scan.and_then(|scan| by_pages(scan, &means, first.take()))
        })
    }

    fn name(&self) -> &str {
        "parquet_by_pages"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A plan with other scans, which promise what those did that were there: the operators above need not find that out again.
fn with_scans(
    plan: Arc<dyn ExecutionPlan>,
    other: &mut impl FnMut(&Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = other(&plan) {
        return Ok(scan);
    }
    let children = plan.children().into_iter().map(|child| with_scans(Arc::clone(child), other));
    let children = children.collect::<Result<Vec<_>>>()?;
    let mut pairs = children.iter().zip(plan.children());
    if pairs.all(|(new, old)| Arc::ptr_eq(new, old)) {
        return Ok(plan);
    }
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))
}

/// A scan that reads by pages; `None` where it is none of Parquet files of this machine, or reads what is
/// left to DataFusion.
fn by_pages(
    scan: &DataSourceExec,
    means: &Means,
    first: Option<First>,
) -> Option<Arc<dyn ExecutionPlan>> {
    let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
    let parquet = config.file_source.downcast_ref::<ParquetSource>()?;
    if config.object_store_url != ObjectStoreUrl::local_filesystem()
        || config.expr_adapter_factory.is_some()
    {
        return None;
    }
    let source = PagedSource::of(parquet, means.clone(), first)?;
    Some(with_source(scan, config.clone(), source))
}

/// The same scan, by pages, for who decodes its columns, or for who does not; nothing where it is so, or reads otherwise.
pub(crate) fn encoded_scan(
    scan: &DataSourceExec,
    is_encoded: bool,
) -> Option<Arc<dyn ExecutionPlan>> {
    let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
    let source = config.file_source.downcast_ref::<PagedSource>()?.given_encoded(is_encoded)?;
    Some(with_source(scan, config.clone(), source))
}

/// The same scan, by pages, that reads those row groups first that may have the first rows, where one of its conditions says what
/// these are; nothing where it reads otherwise.
pub(crate) fn first_by(
    scan: &DataSourceExec,
    of: &dyn Fn(&Arc<dyn PhysicalExpr>) -> Option<FirstBy>,
) -> Option<Arc<dyn ExecutionPlan>> {
    let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
    let source = config.file_source.downcast_ref::<PagedSource>()?.first_by(of)?;
    let mut config = config.clone();
    // Where a limit of sorted rows has asked for their order, and these have none: so each thread takes the best part that is left.
    config.preserve_order &= !config.output_ordering.is_empty();
    Some(with_source(scan, config, source))
}

fn with_source(
    scan: &DataSourceExec,
    mut config: FileScanConfig,
    source: PagedSource,
) -> Arc<dyn ExecutionPlan> {
    config.file_source = Arc::new(source);
    Arc::new(scan.clone().with_data_source(Arc::new(config)))
}

/// Whether a plan has the rows of one scan, of each row at most one.
fn is_of_a_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.children().as_slice() {
        [] => true,
        [input] => !plan.is::<AggregateExec>() && is_of_a_scan(input),
        _ => false,
    }
}
