//! Finds the scans of which all columns are known here.

use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::sorts::sort::SortExec;

use super::first::First;
use super::kept::KeptColumns;
use super::source::{Computed, Means, PagedSource};
use crate::config::ForRules;

/// Reads Parquet files by pages where all columns are known here. After all rules that move conditions and
/// expressions into scans.
#[derive(Debug)]
pub(crate) struct ParquetByPages {
    kept: Arc<KeptColumns>,
    computed: Computed,
}

impl ParquetByPages {
    /// `kept` are columns that others have read, and conditions are as they are `computed`.
    pub(crate) fn new(kept: &Arc<KeptColumns>, computed: Computed) -> Self {
        Self { kept: Arc::clone(kept), computed }
    }
}

impl PhysicalOptimizerRule for ParquetByPages {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<ForRules>();
        let settings = settings.filter(|settings| settings.reads_pages);
        let Some(settings) = settings else { return Ok(plan) };
        let means = Means::of(settings, &self.kept, self.computed);
        // What is asked of the next scan.
        let mut first = None;
        with_scans(plan, &mut |plan| {
            let sort = plan.downcast_ref::<SortExec>();
            let sort = sort.filter(|sort| sort.fetch().is_some() && is_of_a_scan(sort.input()));
            if let Some(sort) = sort {
                let asked = First::of(sort, config).filter(|asked| !asked.is_by_a_column());
                // DataFusion reads row groups in the order of their statistics.
                let Some(asked) = asked else { return Below::AsItIs };
                first = Some(asked).filter(|asked| settings.drops_rows && asked.is_about_lists());
                return Below::Looked;
            }
            let scan = plan.downcast_ref::<DataSourceExec>();
            let by_pages = scan.and_then(|scan| by_pages(scan, &means, first.take()));
            by_pages.map_or(Below::Looked, Below::Instead)
        })
    }

    fn name(&self) -> &str {
        "parquet_by_pages"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What becomes of a plan.
enum Below {
    AsItIs,
    Instead(Arc<dyn ExecutionPlan>),
    /// What is below it is looked at.
    Looked,
}

/// A plan with other scans, which promise what those did that were there: the operators above need not find that out again.
fn with_scans(
    plan: Arc<dyn ExecutionPlan>,
    becomes: &mut impl FnMut(&Arc<dyn ExecutionPlan>) -> Below,
) -> Result<Arc<dyn ExecutionPlan>> {
    match becomes(&plan) {
        Below::AsItIs => return Ok(plan),
        Below::Instead(scan) => return Ok(scan),
        Below::Looked => {}
    }
    let children = plan.children().into_iter().map(|child| with_scans(Arc::clone(child), becomes));
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
    let mut config = config.clone();
    config.file_source = Arc::new(source);
    Some(Arc::new(scan.clone().with_data_source(Arc::new(config))))
}

/// The same scan, by pages, for who decodes its columns, or for who does not; nothing where it is so, or reads otherwise.
pub(crate) fn encoded_scan(
    scan: &DataSourceExec,
    is_encoded: bool,
) -> Option<Arc<dyn ExecutionPlan>> {
    let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
    let source = config.file_source.downcast_ref::<PagedSource>()?.given_encoded(is_encoded)?;
    let mut config = config.clone();
    config.file_source = Arc::new(source);
    Some(Arc::new(scan.clone().with_data_source(Arc::new(config))))
}

/// Whether a plan has the rows of one scan, of each row at most one.
fn is_of_a_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.children().as_slice() {
        [] => true,
        [input] => !plan.is::<AggregateExec>() && is_of_a_scan(input),
        _ => false,
    }
}
