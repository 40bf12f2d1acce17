//! Groups that are remembered, and the first rows of an order: those that a query is about, and those within a query.
//!
//! ```text
//! the query is about one aggregation     what is known of its groups, or somebody who watches them
//! it has aggregations within             what is known of them; else nothing changes, for who is watched is not
//!                                        optimized together with the rest
//! ```
//!
//! Where what is remembered is to be verified, what would be taken in all these places is compared with what is computed there.

use std::hash::Hasher;
use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::logical_expr::{Analyze, Explain, LogicalPlan, SortExpr};
use datafusion::physical_expr::PhysicalSortExpr;

use super::remember::Asked;
use super::{Session, locked};
use crate::cache::{
    About, Answer, ComparedExec, Grouped, Kind, Question, RecordedExec, Recorder, Recording,
};
use crate::catalog::Scope;
use crate::error::Result;
use crate::planner::remembered::{Finer, Groups, Wanted, Watch};

/// Of fewer rows the first ones are found as quickly as those that are remembered.
const SORTED_ROWS_MIN: usize = 1 << 16;

impl Session {
    /// A query whose groups are remembered, or come from what is remembered of them; the same plan where neither can be. And whether
    /// all of it is computed.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn reusing_groups(
        &self,
        plan: LogicalPlan,
        asked: Option<&Asked>,
        scope: &Scope,
    ) -> Result<(LogicalPlan, bool)> {
        let Some(is_taken) = self.takes_remembered(asked) else { return Ok((plan, true)) };
        // What is explained is not computed, and what is analyzed takes longer than it would.
        match plan {
            LogicalPlan::Explain(explain) => {
                let inner = LogicalPlan::clone(&explain.plan);
                let (plan, is_whole) = self.with_groups(inner, None, is_taken, scope)?;
                let plan = Arc::new(plan);
                Ok((LogicalPlan::Explain(Explain { plan, ..explain }), is_whole))
            }
            LogicalPlan::Analyze(analyze) => {
                let inner = LogicalPlan::clone(&analyze.input);
                let (input, is_whole) = self.with_groups(inner, None, is_taken, scope)?;
                let input = Arc::new(input);
                Ok((LogicalPlan::Analyze(Analyze { input, ..analyze }), is_whole))
            }
            plan if asked.is_some() => self.with_groups(plan, asked, is_taken, scope),
            plan => Ok((plan, true)),
        }
    }

    /// The plan of a query, with somebody to watch its groups where it is run to be answered, and whether nothing known is in it.
    fn with_groups(
        &self,
        plan: LogicalPlan,
        asked: Option<&Asked>,
        is_taken: bool,
        scope: &Scope,
    ) -> Result<(LogicalPlan, bool)> {
        let Some(reads) = scope.reads() else { return Ok((plan, true)) };
        let rows_min = match locked(&self.settings).remembered_seconds_min() {
            0.0 => 0,
            _ => SORTED_ROWS_MIN,
        };
        let Some(groups) = Groups::of(&plan, rows_min)? else {
            return self.with_groups_within(plan, asked.is_some(), is_taken, scope);
        };
        let looked_for = self.looked_for(&groups);
        let kind = if groups.are_rows() { Kind::Rows } else { Kind::Groups };
        // What the groups would take without what is known of them.
        let recording = |seconds| {
            let query = asked?.text.clone();
            let grouped = looked_for.wanted.first();
            let grouped = grouped
                .map(|wanted| Grouped { rows: wanted.rows, columns: wanted.columns.clone() });
            let reads = reads.only(groups.tables())?;
            let about = About { grouped, ..About::new(kind, query, reads, seconds) };
            Some(self.recording(looked_for.question.clone(), about))
        };
        let Some(found) = self.known_groups(&groups, &looked_for, asked.is_some(), scope)? else {
            let plan = match recording(0.0) {
                Some(recording) => groups.watched(watch(Some(recording), Vec::new()))?,
                None => plan,
            };
            return Ok((plan, true));
        };
        let recording = found.seconds.and_then(recording);
        let plan = if is_taken {
            let watch = recording.map(|recording| watch(Some(recording), Vec::new()));
            groups.answered(found.plan, watch)?
        } else {
            groups.compared(found.plan, watch(recording, order(&groups, scope)?))?
        };
        Ok((plan, false))
    }

    /// A query whose aggregations are remembered, as far as they are. `is_run` tells whether that is of use to it.
    fn with_groups_within(
        &self,
        plan: LogicalPlan,
        is_run: bool,
        is_taken: bool,
        scope: &Scope,
    ) -> Result<(LogicalPlan, bool)> {
        if !self.shared.cache.has(Kind::Groups) {
            return Ok((plan, true));
        }
        let mut is_whole = true;
        let replaced = plan.transform_down_with_subqueries(|plan| {
            if !matches!(plan, LogicalPlan::Aggregate(_)) {
                return Ok(Transformed::no(plan));
            }
            let Some(groups) = Groups::of(&plan, usize::MAX)? else {
                return Ok(Transformed::no(plan));
            };
            let looked_for = self.looked_for(&groups);
            let Some(found) = self.known_groups(&groups, &looked_for, is_run, scope)? else {
                return Ok(Transformed::no(plan));
            };
            is_whole = false;
            let plan = if is_taken {
                groups.answered(found.plan, None)?
            } else {
                groups.compared(found.plan, watch(None, Vec::new()))?
            };
            Ok(Transformed::new(plan, true, TreeNodeRecursion::Jump))
        });
        Ok((replaced.data()?, is_whole))
    }

    fn looked_for<'g>(&self, groups: &'g Groups) -> LookedFor<'g> {
        let cache = &self.shared.cache;
        let question = cache.part(groups.computed(), self.asked_under());
        LookedFor { question, wanted: groups.wanted(&|what| cache.hashes(what)) }
    }

    /// Groups as they are remembered, or made of what is; nothing where nothing is known of them.
    fn known_groups(
        &self,
        groups: &Groups,
        looked_for: &LookedFor<'_>,
        is_run: bool,
        scope: &Scope,
    ) -> Result<Option<Found>> {
        let cache = &self.shared.cache;
        let hash = |what: &dyn Fn(&mut dyn Hasher)| cache.hashes(what);
        let answered = |known: &Answer, finer: Option<&Finer>| -> Result<Option<Found>> {
            let growth = scope.growth(&known.about().reads);
            let (Some(growth), Some(rows)) = (growth, known.as_rows()) else { return Ok(None) };
            let rows = groups.known(rows.schema, rows.batches, finer)?;
            let seconds = Some(known.about().seconds);
            Ok(match &growth[..] {
                [] if finer.is_some() => Some(Found { plan: groups.merged(rows)?, seconds }),
                [] => Some(Found { plan: rows, seconds: None }),
                [growth] => groups.updated(rows, growth)?.map(|plan| Found { plan, seconds }),
                _ => None,
            })
        };
        let LookedFor { question, wanted } = looked_for;
        let known = cache.known(question);
        let known = known.map(|known| Ok((question.clone(), known, None)));
        let finer = wanted.iter().flat_map(|wanted| {
            let there = cache.groups_of(wanted.rows, &self.asked_under()).into_iter();
            there.filter_map(|(question, there)| {
                let columns = &there.about().grouped.as_ref()?.columns;
                let finer = wanted.from(columns, &hash).transpose()?;
                Some(finer.map(|finer| (question, there, Some(finer))))
            })
        });
        for known in known.into_iter().chain(finer) {
            let (question, known, finer) = known?;
            let Some(found) = answered(&known, finer.as_ref())? else { continue };
            if is_run {
                cache.reuse(&question);
            }
            return Ok(Some(found));
        }
        Ok(None)
    }
}

/// What is looked for of groups: as they are, and as they could be made of others.
struct LookedFor<'g> {
    question: Question,
    wanted: Vec<Wanted<'g>>,
}

/// What is known of groups.
struct Found {
    plan: LogicalPlan,
    /// What those took that it is made of, where the outcome is not remembered yet.
    seconds: Option<f64>,
}

/// Who records the rows, and compares them with those that are known. An order tells that they are the first by it.
pub(super) fn watch(recording: Option<Recording>, order: Vec<PhysicalSortExpr>) -> Watch {
    let (recorder, order) = (recording.map(Recorder::new), Arc::from(order));
    Watch::new(move |computed, known| {
        let rows = match known {
            Some(known) => {
                Arc::new(ComparedExec::new(computed, Arc::clone(known), Arc::clone(&order))) as _
            }
            None => computed,
        };
        match &recorder {
            Some(recorder) => Arc::new(RecordedExec::new(rows, recorder.clone())),
            None => rows,
        }
    })
}

/// The order of which the rows are the first, to be computed.
fn order(groups: &Groups, scope: &Scope) -> Result<Vec<PhysicalSortExpr>> {
    let schema = groups.computed().schema();
    let key = |key: SortExpr| {
        let options = SortOptions { descending: !key.asc, nulls_first: key.nulls_first };
        let expr = scope.session().create_physical_expr(key.expr, schema)?;
        Ok(PhysicalSortExpr::new(expr, options))
    };
    groups.order()?.into_iter().map(key).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::RecordBatch;

    use crate::cache::{Content, Kind, Rows};
    use crate::connection::Connection;
    use crate::database::Database;
    use crate::matrix::{Matrix, Shape};
    use crate::query::ResultSet;

    const TABLE: &str = "CREATE TABLE t (k INT, d INT, v BIGINT); CREATE TABLE u (k INT);
         INSERT INTO u VALUES (1), (2);
         INSERT INTO t VALUES (1, 1, 10), (1, 2, 20), (2, 1, 30), (2, 2, 40), (3, 1, 50);
         CREATE TABLE w AS SELECT value % 1000 AS k, value % 7 AS v FROM range(100000);
         CREATE VIEW many AS SELECT k, median(v) AS m FROM w GROUP BY k";

    /// What is remembered of a query, and what happens then to another.
    const REUSES: [(Kind, &str, Option<&str>, &str); 9] = [
        (Kind::Answer, "SELECT v + 1 FROM t", None, "SELECT v + 1 FROM t"),
        (Kind::Groups, BY_KEY, None, "SELECT k, sum(v) AS s FROM t GROUP BY k ORDER BY s"),
        (Kind::Groups, "SELECT k, d, sum(v) FROM t GROUP BY k, d", None, BY_KEY),
        (Kind::Groups, BY_KEY, Some("INSERT INTO t VALUES (2, 3, 5)"), BY_KEY),
        (
            Kind::Groups,
            BY_KEY,
            None,
            "SELECT count(*) FROM u JOIN (SELECT k, sum(v) AS s FROM t GROUP BY k) g USING (k)",
        ),
        (Kind::Rows, FIRST, Some("INSERT INTO t VALUES (4, 1, 15)"), FIRST),
        (Kind::Plan, TWICE, None, "SELECT a.m - b.m FROM many a JOIN many b ON a.k = b.k + 1"),
        (Kind::Plan, TWICE, None, "SELECT max(m) FROM many"),
        (
            Kind::Matrix,
            "SELECT * FROM MATRIX(inv((SELECT d, v FROM t WHERE k = 2)) + 1)",
            None,
            "SELECT * FROM MATRIX(inv((SELECT d, v FROM t WHERE k = 2)) + 2)",
        ),
    ];

    const BY_KEY: &str = "SELECT k, sum(v) FROM t GROUP BY k";

    const TWICE: &str = "SELECT a.m + b.m FROM many a JOIN many b USING (k)";

    const FIRST: &str = "SELECT k, v FROM t ORDER BY abs(v) LIMIT 2";

    fn verifies() -> Connection {
        let builder = Database::builder().threads(2).set("result_cache", "verify").unwrap();
        let connection = builder.build().unwrap().connect();
        connection.execute(TABLE).unwrap();
        connection
    }

    fn answer(connection: &Connection, query: &str) -> Result<Vec<RecordBatch>, String> {
        let answer = connection.query(query).and_then(ResultSet::collect);
        answer.map_err(|error| error.to_string())
    }

    /// As if a row had been left out, or a cell computed wrong.
    fn falsified(content: Content) -> Content {
        match content {
            Content::Rows(Rows { schema, batches }) => {
                let less = |batch: RecordBatch| batch.slice(1, batch.num_rows() - 1);
                Content::Rows(Rows { schema, batches: batches.into_iter().map(less).collect() })
            }
            Content::Matrices(all) => {
                let zeros = |shape: Shape| {
                    let cells = vec![0.0; shape.rows * shape.columns];
                    Matrix::from_row_major(shape, cells).unwrap().cells().clone()
                };
                Content::Matrices(all.iter().map(|one| zeros(one.shape())).collect())
            }
            Content::Labels(labels) => Content::Labels(labels),
        }
    }

    #[test]
    fn whatever_is_remembered_wrong_is_found_where_it_would_be_taken() {
        for (kind, first, change, then) in REUSES {
            for is_false in [false, true] {
                let connection = verifies();
                answer(&connection, first).unwrap();
                let cache = &connection.session.shared.cache;
                if is_false {
                    assert!(cache.falsify(kind, falsified) > 0, "{kind}: {first}");
                }
                if let Some(change) = change {
                    connection.execute(change).unwrap();
                }
                let found = answer(&connection, then);
                let is_found = found.is_err_and(|error| error.contains("is not what was computed"));
                assert_eq!(is_found, is_false, "{kind}: {first}; {change:?}; {then}");
            }
        }
    }
}
