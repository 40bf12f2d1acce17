//! Operators of queries that are asked again with the same values, while all that they read is as it was.
//!
//! ```text
//! the first time        noted
//! the second time       the operators are kept as they are before they are tied together; of a query that reads tables in memory
//!                       the optimized plan is where these cannot be; both without the rows, which would be held longer than anybody
//!                       reads them
//! from then on          operators are made anew, and nothing is planned; or they are chosen for that plan
//! ```

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement as SqlStatement;

use super::{Optimized, Session, locked};
use crate::cache::{Question, query_of};
use crate::catalog::{Reads, Scope};
use crate::error::Result;
use crate::planner::generic::{self, Holds};
use crate::planner::{Template, Values};
use crate::query::Running;
use crate::value::Parameters;

/// Those of a query whose own are in it.
const NO_VALUES: Values<'static> = &|_| None;

/// What is known of a query with its values.
#[derive(Debug, Clone)]
pub(super) enum Known {
    /// It was asked once.
    Asked,
    Kept(Arc<Kept>),
    /// Nothing of its plan can be used again, or what it reads cannot be found again.
    Unfit,
}

/// What is kept of a query's plan.
#[derive(Debug)]
enum Planned {
    Operators(Template),
    WithoutRows(LogicalPlan),
}

/// A plan, and what it was chosen by.
#[derive(Debug)]
pub(super) struct Kept {
    planned: Planned,
    reads: Reads,
    /// How often tables had been analyzed.
    analyses: u64,
    /// The last run, for the values of sub-queries are of one run at a time.
    run: Mutex<Weak<Running>>,
}

/// How a query comes to its operators.
pub(super) enum Choice {
    /// They are there.
    Made(Arc<dyn ExecutionPlan>),
    /// They are chosen for this plan.
    Planned(LogicalPlan),
    /// The plan is made, and kept.
    Keep(Question),
    /// As if nobody asked again.
    Choose,
}

impl Session {
    /// How a query comes to its operators.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn choice(
        &self,
        syntax: &SqlStatement,
        parameters: &Parameters,
        scope: &Scope,
        running: &Arc<Running>,
    ) -> Result<Choice> {
        let question = query_of(syntax)
            .and_then(|query| self.shared.cache.question(query, parameters, self.asked_under()));
        let Some(question) = question else { return Ok(Choice::Choose) };
        let known = locked(&self.templates).get(&question);
        match known {
            None => locked(&self.templates).keep(question, Known::Asked),
            Some(Known::Asked) => return Ok(Choice::Keep(question)),
            Some(Known::Unfit) => {}
            Some(Known::Kept(kept)) => {
                if kept.analyses != self.shared.statistics.analyses()
                    || !self.is_current(scope, &kept.reads)
                {
                    return Ok(Choice::Keep(question));
                }
                return self.again(&kept, scope, running);
            }
        }
        Ok(Choice::Choose)
    }

    /// What is kept of a plan, for another run.
    fn again(&self, kept: &Kept, scope: &Scope, running: &Arc<Running>) -> Result<Choice> {
        match &kept.planned {
            Planned::WithoutRows(plan) => {
                let tables = scope.reads_the_same(&kept.reads)?;
                self.plan_hits.fetch_add(1, Ordering::Relaxed);
                Ok(Choice::Planned(generic::of_rows(plan.clone(), &tables)?))
            }
            Planned::Operators(template) => {
                let mut run = locked(&kept.run);
                if run.strong_count() > 0 {
                    return Ok(Choice::Choose);
                }
                let tables = scope.reads_the_same(&kept.reads)?;
                let Some(operators) = template.operators(&tables, NO_VALUES, scope.session())?
                else {
                    return Ok(Choice::Choose);
                };
                *run = Arc::downgrade(running);
                self.plan_hits.fetch_add(1, Ordering::Relaxed);
                Ok(Choice::Made(operators))
            }
        }
    }

    /// The operators of a plan, of which something is kept for the next time if a question says so.
    ///
    /// # Errors
    /// Whatever keeps them from being made.
    pub(super) async fn operators(
        &self,
        Optimized { state, plan }: &Optimized,
        keep: Option<Question>,
        scope: &Scope,
        running: &Arc<Running>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut operators = None;
        if let Some(question) = keep {
            let analyses = self.shared.statistics.analyses();
            let reads = scope.reads();
            let holds = generic::held(plan)?;
            let template = match holds {
                Holds::Names | Holds::Rows => Template::of(plan, state).await?,
                Holds::Others => None,
            };
            if let Some((template, reads)) = template.as_ref().zip(reads.as_ref()) {
                let tables = scope.reads_the_same(reads)?;
                operators = template.operators(&tables, NO_VALUES, state)?;
            }
            let planned = match (template, holds) {
                (Some(template), _) => Some(Planned::Operators(template)),
                (None, Holds::Rows) => {
                    Some(Planned::WithoutRows(generic::without_rows(plan.clone())?))
                }
                (None, _) => None,
            };
            let known = match planned.zip(reads) {
                Some((planned, reads)) => {
                    let run = Mutex::new(Arc::downgrade(running));
                    Known::Kept(Arc::new(Kept { planned, reads, analyses, run }))
                }
                None => Known::Unfit,
            };
            locked(&self.templates).keep(question, known);
        }
        match operators {
            Some(operators) => Ok(operators),
            None => Ok(state.query_planner().create_physical_plan(plan, state.as_ref()).await?),
        }
    }

    /// Whether the names that were read stand for what they did.
    pub(super) fn is_current(&self, scope: &Scope, reads: &Reads) -> bool {
        let is_there = |(name, id): &(String, u64)| self.matrices.is(name, *id);
        scope.is_current(reads) && reads.matrices().iter().all(is_there)
    }
}
