//! The first few rows of a scan, in an order that is asked for above it.
//!
//! ```text
//! SortExec: TopK(fetch=10), expr=[d]                  no row beyond the ten that are first so far, by d
//!   ProjectionExec: cosine_distance(v, […]) as d        │
//!     FilterExec: a = 1                                 ▼
//!       DataSourceExec: a, text, v                      the same, by cosine_distance(v, […])
//! ```
//!
//! The sort narrows that condition as rows come to any of its partitions. DataFusion hands it to scans itself, but not where
//! it is about lists: there it comes from here, so that only few rows are read of all other columns.

use std::fmt;
use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPhase, PushedDown};
use datafusion::physical_plan::sorts::sort::SortExec;

/// What a sort asks for, in columns of the files.
#[derive(Debug, Clone)]
pub(super) struct First {
    /// So many rows.
    count: usize,
    by: Vec<PhysicalSortExpr>,
    /// What a row meets that may be among them, by the rows so far.
    pub(super) condition: Arc<dyn PhysicalExpr>,
    is_about_lists: bool,
}

impl First {
    /// What a sort asks of the one scan below it; `None` where that, or what is between them, needs rows that the sort does not.
    pub(super) fn of(sort: &SortExec, config: &ConfigOptions) -> Option<Self> {
        let count = sort.fetch()?;
        let told = sort.dynamic_expressions_produced().into_iter().next()?;
        let mut condition: Arc<dyn PhysicalExpr> = told;
        let mut plan = sort.input();
        while let [input] = plan.children()[..] {
            let phase = FilterPushdownPhase::Post;
            let carried = plan.gather_filters_for_pushdown(phase, vec![condition], config).ok()?;
            let carried = carried.parent_filters().pop()?.pop()?;
            if !matches!(carried.discriminant, PushedDown::Yes) {
                return None;
            }
            (condition, plan) = (carried.predicate, input);
        }
        let scan = plan.downcast_ref::<DataSourceExec>()?;
        let files = scan.data_source().downcast_ref::<FileScanConfig>()?;
        // Rows that a limit counts are not dropped before.
        let source = files.limit.is_none().then_some(&files.file_source)?;
        let schema = source.table_schema().table_schema();
        let condition = source.projection()?.unproject_expr(&condition).ok()?;
        let condition = reassign_expr_columns(condition, schema).ok()?;
        let keys = condition.children().into_iter().zip(sort.expr().iter());
        let by = keys.map(|(key, of)| PhysicalSortExpr::new(Arc::clone(key), of.options));
        let is_list = |column: &Column| schema.field(column.index()).data_type().is_list();
        let is_about_lists = collect_columns(&condition).iter().any(is_list);
        Some(Self { count, by: by.collect(), is_about_lists, condition })
    }

    /// Whether DataFusion has left the condition to us.
    pub(super) fn is_about_lists(&self) -> bool {
        self.is_about_lists
    }
}

impl fmt::Display for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by: Vec<String> = self.by.iter().map(ToString::to_string).collect();
        write!(f, "first={}, by=[{}]", self.count, by.join(", "))
    }
}
