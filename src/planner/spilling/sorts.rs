//! Sorts that may not fit into memory become ours.
//!
//! ```text
//! SortPreservingMergeExec: [k]        SpillingSortExec: expr=[k]
//!   SortExec: expr=[k]          ──►     …
//!     …
//! ```
//!
//! Columns that are chosen between the two, by rows that are sorted so, are chosen above: a merge compares row by row on one thread.
//! Rows that come in the order of the first keys are sorted stretch by stretch; of several partitions the merge stays above.
//!
//! The best few rows stay with DataFusion, which keeps no others and tells scans what it will not need: as long as they
//! are sure to fit, and so few that a heap of them is no detour.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::config::ForRules;
use crate::exec::relational::sort::SpillingSortExec;

/// The rule; see the header of this file. After all rules that look for sorts by type.
#[derive(Debug)]
pub(crate) struct SpillingSorts;

/// Best rows that DataFusion finds sooner than a sort of all. Of 1.5 million rows it takes 0.02 s for the first thousand, 0.15 for
/// 20,000 and 2.4 for 200,000, where all are sorted in 0.32.
const BEST_ROWS_MAX: usize = 20_000;

/// Of what operators may reserve, the part that the best rows of a sort may take.
const BEST_ROWS_PART: usize = 16;

/// Bytes of best rows that are sorted quickly, whatever there is of memory.
const BEST_ROWS_BYTES_MAX: usize = 64 << 20;

/// Bytes of a text or a list, about.
const VARIABLE_BYTES: usize = 64;

/// What the rule knows of a statement's settings.
#[derive(Clone, Copy)]
struct Finder {
    /// Bytes of the best rows that are left to DataFusion.
    best_rows_bytes: usize,
}

impl Finder {
    /// What stands for a plan, if it is a sort, or a merge of columns of sorted rows.
    fn found(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some((merge, columns)) = merge_below(plan) else { return self.spilling(plan) };
        let sort = self.spilling(&merge)?;
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        sort.map(|sort| columns.replace_children(vec![sort], options)).transpose()
    }

    /// The sort that stands for a plan, if it is one.
    fn spilling(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let merge = plan.downcast_ref::<SortPreservingMergeExec>();
        let below = merge.map_or(plan, SortPreservingMergeExec::input);
        let Some(sort) = below.downcast_ref::<SortExec>() else { return Ok(None) };
        if merge.is_some_and(|merge| merge.expr() != sort.expr()) {
            return Ok(None);
        }
        let fetch = [merge.and_then(SortPreservingMergeExec::fetch), sort.fetch()];
        let fetch = fetch.into_iter().flatten().min();
        let input = sort.input();
        let ordering = sort.expr().clone();
        let in_order = input.equivalence_properties().ordering_satisfy(ordering.clone())?;
        let few = fetch.is_some_and(|fetch| self.are_few(fetch, input));
        if in_order || few || input.boundedness().is_unbounded() {
            return Ok(None);
        }
        let come_by = come_by(input, &ordering)?;
        if come_by > 0 && merge.is_some() && input.output_partitioning().partition_count() > 1 {
            // Each partition is sorted by itself, quickly, and the merge stays.
            return Ok(None);
        }
        let by_partition = merge.is_none() && sort.preserve_partitioning();
        let (input, properties) = (Arc::clone(input), Arc::clone(plan.properties()));
        let sort = SpillingSortExec::new(input, ordering, fetch, by_partition, properties);
        let sort = sort.coming_by(come_by);
        Ok(sort.can_sort().then(|| Arc::new(sort) as _))
    }

    /// Whether so many rows of each partition are quickly found, and sure to fit.
    fn are_few(&self, rows: usize, input: &Arc<dyn ExecutionPlan>) -> bool {
        let partitions = input.output_partitioning().partition_count();
        let row_bytes: usize = input
            .schema()
            .fields()
            .iter()
            .map(|field| field.data_type().primitive_width().unwrap_or(VARIABLE_BYTES))
            .sum();
        let bytes = rows.saturating_mul(row_bytes.max(1)).saturating_mul(partitions);
        rows <= BEST_ROWS_MAX && bytes <= self.best_rows_bytes
    }
}

/// A merge of columns of sorted rows as the merge of these rows, and the columns that are to be chosen above it.
pub(in crate::planner) fn merge_below(
    plan: &Arc<dyn ExecutionPlan>,
) -> Option<(Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>)> {
    let merge: &SortPreservingMergeExec = plan.downcast_ref()?;
    let columns: &ProjectionExec = merge.input().downcast_ref()?;
    let sort: &SortExec = columns.input().downcast_ref()?;
    let chosen: Option<Vec<&Column>> =
        columns.expr().iter().map(|column| column.expr.downcast_ref()).collect();
    let chosen = chosen?;
    let is_same = |(above, below): (&PhysicalSortExpr, &PhysicalSortExpr)| {
        let columns = (above.expr.downcast_ref::<Column>(), below.expr.downcast_ref::<Column>());
        let (Some(above_of), Some(below_of)) = columns else { return false };
        chosen[above_of.index()] == below_of && above.options == below.options
    };
    let (above, below) = (merge.expr(), sort.expr());
    if above.len() != below.len() || !above.iter().zip(below.iter()).all(is_same) {
        return None;
    }
    let below = SortPreservingMergeExec::new(below.clone(), Arc::clone(columns.input()));
    Some((Arc::new(below.with_fetch(merge.fetch())), Arc::clone(merge.input())))
}

/// By how many of the first keys each partition comes in order: zeros of either sign are one key to some who order rows.
fn come_by(input: &Arc<dyn ExecutionPlan>, ordering: &LexOrdering) -> Result<usize> {
    let schema = input.schema();
    for count in (1..ordering.len()).rev() {
        let Some(first) = LexOrdering::new(ordering.iter().take(count).cloned()) else { continue };
        let mut are_exact = true;
        for key in &first {
            let data_type = key.expr.data_type(&schema)?;
            are_exact &= !data_type.is_floating() && !data_type.is_nested();
        }
        if are_exact && input.equivalence_properties().ordering_satisfy(first)? {
            return Ok(count);
        }
    }
    Ok(0)
}

impl PhysicalOptimizerRule for SpillingSorts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let reservable_bytes = config.extensions.get::<ForRules>();
        let reservable_bytes = reservable_bytes.map_or(0, |settings| settings.reservable_bytes);
        let best_rows_bytes = BEST_ROWS_BYTES_MAX.min(reservable_bytes / BEST_ROWS_PART);
        let finder = Finder { best_rows_bytes };
        plan.transform_down(|plan| {
            let found = finder.found(&plan)?;
            Ok(found.map_or_else(|| Transformed::no(plan), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &str {
        "spilling_sorts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
