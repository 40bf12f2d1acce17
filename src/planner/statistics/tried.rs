//! The share of rows that meet a condition on one column, by trying it on those that were drawn of it.
//!
//! Patterns, functions and whatever else has no formula: it is computed as the query will, for some hundred rows. What may come out
//! otherwise the next time is not tried, and what fails on a row tells nothing. What came of it is kept with the rows, for the rules
//! of one statement ask one after another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, ExprSchema, Result};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::create_physical_expr;

use super::estimate::Estimates;
use crate::planner::repeatable::is_immutable;

/// So many conditions are known of a column; more, and all are tried again.
const KNOWN_MAX: usize = 64;

/// What came of conditions on rows of one column, once these are of a type.
#[derive(Debug, Default)]
pub(super) struct Trials {
    known: Mutex<HashMap<(DataType, Expr), Option<Trial>>>,
}

/// How many of the rows that a condition was tried on met it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trial {
    met: usize,
    rows: usize,
}

impl Trials {
    fn known(&self) -> MutexGuard<'_, HashMap<(DataType, Expr), Option<Trial>>> {
        // Entries are put in whole, so what a panic left behind is sound.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, key: (DataType, Expr), trial: Option<Trial>) {
        let mut known = self.known();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key, trial);
    }
}

impl Trial {
    /// The share of all rows. Of what none met no more is known than that half a row at most would have, and a guess may be
    /// lower.
    pub(super) fn share(self, guess: f64) -> f64 {
        let rows = self.rows as f64;
        match self.met {
            0 => guess.min(0.5 / rows),
            met => met as f64 / rows,
        }
    }
}

impl Estimates<'_> {
    /// What comes of a condition that reads one column; nothing where no rows of that are known.
    pub(super) fn tried(&self, condition: &Expr, plans: &[&LogicalPlan]) -> Option<Trial> {
        let mut columns = condition.column_refs().into_iter();
        let (Some(column), None) = (columns.next(), columns.next()) else { return None };
        if !can_be_tried(condition) {
            return None;
        }
        let (profile, of_table) = self.profile(plans, &Expr::Column(column.clone()))?;
        let drawn = profile.drawn.as_ref()?;
        // A plan may have cast what the table holds.
        let field = plans.iter().find_map(|plan| plan.schema().field_from_column(column).ok());
        let of = field.map_or(of_table, |field| field.data_type().clone());
        let key = (of, condition.clone());
        if let Some(known) = profile.trials.known().get(&key) {
            return *known;
        }
        // Nobody waits for the lock while rows are looked at; whoever is second finds the same.
        let trial = trial(condition, column, drawn, &key.0).ok().flatten();
        profile.trials.keep(key, trial);
        trial
    }
}

fn can_be_tried(condition: &Expr) -> bool {
    let is_other = |expr: &Expr| {
        let is_query = matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        );
        is_query || !is_immutable(expr)
    };
    !condition.exists(|expr| Ok(is_other(expr))).unwrap_or(true)
}

/// What comes of a condition on a column of which these rows are known, once they are of a type.
fn trial(
    condition: &Expr,
    column: &Column,
    drawn: &ArrayRef,
    of: &DataType,
) -> Result<Option<Trial>> {
    let drawn = if drawn.data_type() == of { Arc::clone(drawn) } else { cast(drawn, of)? };
    let field = Arc::new(Field::new(&column.name, of.clone(), true));
    let schema = vec![(column.relation.clone(), field)];
    let schema = DFSchema::new_with_metadata(schema, HashMap::new())?;
    let rows = drawn.len();
    let drawn = RecordBatch::try_new(Arc::clone(schema.inner()), vec![drawn])?;
    let (properties, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let condition = create_physical_expr(condition, &schema, &properties, &context)?;
    let answers = condition.evaluate(&drawn)?.into_array(rows)?;
    Ok(answers.as_boolean_opt().map(|answers| Trial { met: answers.true_count(), rows }))
}

#[cfg(test)]
mod tests {
    use datafusion::common::tree_node::TreeNodeRecursion;
    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
    use datafusion::prelude::SessionContext;

    use super::super::{Analysis, Statistics};
    use super::*;
    use crate::memory::Kept;
    use crate::storage::{Batch, MemoryTable, Snapshot, TableDefinition};

    /// A table of so many rows; multiplied by a prime, a row's number is as good as random.
    const TABLE: &str = "SELECT value AS id, value * 7919 % 60000 AS n, \
         CASE WHEN value * 7919 % 10 < 3 THEN 'special ' WHEN value * 7919 % 10 < 9 THEN 'Plain ' END \
         || CAST(value * 104729 % 60000 AS VARCHAR) AS s, \
         value * 7919 % 5 < 2 AS b, \
         date '1992-01-01' + CAST(value * 104729 % 2400 AS INTEGER) AS d FROM range(60000) AS t(value)";

    async fn context() -> (SessionContext, Statistics) {
        let context = SessionContext::new();
        let rows = context.sql(TABLE).await.unwrap();
        let schema = rows.schema().as_arrow().clone();
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let kept = Kept::new("rows", &pool);
        let rows = rows.collect().await.unwrap();
        let rows = rows.iter().map(|rows| Batch::new(rows).unwrap()).collect();
        let rows = MemoryTable::new(&schema, TableDefinition::default(), rows, kept).unwrap();
        context.register_table("t", Arc::new(Snapshot::new(Arc::new(rows)))).unwrap();
        let footers = context.runtime_env().cache_manager.get_file_metadata_cache();
        (context, Statistics::new(footers))
    }

    async fn plan(context: &SessionContext, from: &str) -> LogicalPlan {
        let query = context.sql(&format!("SELECT 1 FROM {from}")).await.unwrap();
        context.state().optimize(query.logical_plan()).unwrap()
    }

    async fn analyze(context: &SessionContext, statistics: &Statistics) {
        let provider = context.table_provider("t").await.unwrap();
        let mut analysis = Analysis::of(provider.as_ref()).unwrap();
        for batch in context.table("t").await.unwrap().collect().await.unwrap() {
            analysis.look(&batch);
        }
        statistics.keep(analysis);
    }

    #[tokio::test]
    async fn what_no_formula_tells_is_tried_on_rows() {
        let (context, statistics) = context().await;
        for is_analyzed in [false, true] {
            if is_analyzed {
                analyze(&context, &statistics).await;
            }
            let estimates = Estimates::new(&statistics);
            for from in [
                "t WHERE s LIKE '%special%'",
                "t WHERE s LIKE 'P%'",
                "t WHERE s NOT LIKE '%special%'",
                "t WHERE s ILIKE 'PLAIN %'",
                "t WHERE s ~ '[0-4]$'",
                "t WHERE substr(s, 1, 2) IN ('sp', 'xx')",
                "t WHERE length(s) > 11",
                "t WHERE s >= 'a'",
                "t WHERE coalesce(s, '') = ''",
                "t WHERE n % 7 > 1",
                "t WHERE n % 5 = 3",
                "t WHERE CASE WHEN n < 20000 THEN n ELSE 20000 END > 15000",
                "t WHERE extract(year FROM d) = 1995",
                "t WHERE b",
                "t WHERE NOT b",
                "(SELECT CAST(n AS VARCHAR) AS text FROM t) WHERE text LIKE '1%'",
                "t AS one JOIN t AS other ON one.id = other.id WHERE one.s LIKE 'sp%' AND other.id >= 0",
            ] {
                let expected = context.sql(&format!("SELECT 1 FROM {from}")).await.unwrap();
                let expected = expected.count().await.unwrap() as f64;
                let share = estimates.rows(&plan(&context, from).await) / expected;
                assert!((0.8..1.25).contains(&share), "{from}: {share} of {expected}");
            }
        }
    }

    #[tokio::test]
    async fn what_no_row_met_is_rare_and_not_impossible() {
        let (context, statistics) = context().await;
        let estimates = Estimates::new(&statistics);
        for from in ["t WHERE s LIKE '%nowhere%'", "t WHERE length(s) > 100"] {
            let rows = estimates.rows(&plan(&context, from).await);
            assert!((25.0..35.0).contains(&rows), "{from}: {rows}");
        }
        // One of as many values as differ is rarer still.
        let rows = estimates.rows(&plan(&context, "t WHERE n + 1 = -7").await);
        assert!(rows < 2.0, "{rows}");
    }

    #[tokio::test]
    async fn a_condition_is_tried_once_and_only_if_it_comes_to_the_same_again() {
        let (context, statistics) = context().await;
        let tried = async |condition: &str| {
            // Those of another rule.
            let estimates = Estimates::new(&statistics);
            let plan = plan(&context, &format!("t WHERE {condition}")).await;
            let (mut trial, mut known) = (None, 0);
            plan.apply(|plan| {
                if let LogicalPlan::Filter(filter) = plan {
                    trial = Some(estimates.tried(&filter.predicate, &[&filter.input]));
                    let columns = filter.predicate.column_refs();
                    let column = Expr::Column(columns.into_iter().next().unwrap().clone());
                    let (profile, _) = estimates.profile(&[&filter.input], &column).unwrap();
                    known = profile.trials.known().len();
                }
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
            (trial.expect("a condition is a filter"), known)
        };
        let none = Some(Trial { met: 0, rows: 1024 });
        for _ in 0..2 {
            assert_eq!(tried("length(s) > 100").await, (none, 1));
        }
        assert_eq!(tried("length(s) > 101").await, (none, 2));
        for length in 200..200 + 2 * KNOWN_MAX {
            let (trial, known) = tried(&format!("length(s) > {length}")).await;
            assert!(trial == none && known <= KNOWN_MAX, "{known}");
        }
        // By chance, by another column, and by no answer for one of the rows.
        for condition in ["n > random()", "n > id", "10 / (n - n) > 1"] {
            assert_eq!(tried(condition).await.0, None, "{condition}");
        }
    }
}
