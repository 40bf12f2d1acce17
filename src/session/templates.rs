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

use super::strategies::Again;
use super::{Optimized, Session, locked};
use crate::cache::Question;
use crate::catalog::{Reads, Scope};
use crate::error::Result;
use crate::planner::generic::{self, Holds};
use crate::planner::{Alternative, Choices, Template, Values};
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
    /// The runner-up that was taken.
    instead: Option<Arc<Alternative>>,
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
    /// How a query comes to its operators, and how it is run if it was asked before.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn choice(
        &self,
        syntax: &SqlStatement,
        parameters: &Parameters,
        scope: &Scope,
        running: &Arc<Running>,
    ) -> Result<(Choice, Option<Again>)> {
        let Some(question) = self.question(syntax, parameters) else {
            return Ok((Choice::Choose, None));
        };
        let known = locked(&self.templates).get(&question);
        let Some(known) = known else {
            locked(&self.templates).keep(question, Known::Asked);
            return Ok((Choice::Choose, None));
        };
        let again = self.again(&question, syntax);
        let is_used = |kept: &Kept| {
            let instead = kept.instead.as_ref();
            kept.analyses == self.shared.statistics.analyses()
                && self.is_current(scope, &kept.reads)
                && again.as_ref().map_or(instead.is_none(), |again| again.runs(instead))
        };
        let choice = match known {
            Known::Unfit => Some(Choice::Choose),
            Known::Kept(kept) if is_used(&kept) => self.once_more(&kept, scope, running)?,
            Known::Asked | Known::Kept(_) => None,
        };
        Ok((choice.unwrap_or(Choice::Keep(question)), again))
    }

    /// Whether something is kept of the plan of a query with these values.
    pub(super) fn has_template(&self, syntax: &SqlStatement, parameters: &Parameters) -> bool {
        let question = self.question(syntax, parameters);
        let known = question.and_then(|question| locked(&self.templates).get(&question));
        matches!(known, Some(Known::Kept(_)))
    }

    /// What is kept of a plan, for another run; nothing where it is to be kept anew.
    fn once_more(
        &self,
        kept: &Kept,
        scope: &Scope,
        running: &Arc<Running>,
    ) -> Result<Option<Choice>> {
        match &kept.planned {
            Planned::WithoutRows(plan) => {
                let tables = scope.reads_the_same(&kept.reads)?;
                self.plan_hits.fetch_add(1, Ordering::Relaxed);
                Ok(Some(Choice::Planned(generic::of_rows(plan.clone(), &tables)?)))
            }
            Planned::Operators(template) => {
                let mut run = locked(&kept.run);
                if run.strong_count() > 0 {
                    return Ok(Some(Choice::Choose));
                }
                let tables = scope.reads_the_same(&kept.reads)?;
                let operators = template.operators(&tables, NO_VALUES, scope.session())?;
                if operators.is_some() {
                    *run = Arc::downgrade(running);
                    self.plan_hits.fetch_add(1, Ordering::Relaxed);
                }
                Ok(operators.map(Choice::Made))
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
                Holds::Names | Holds::Rows | Holds::HiddenRows => Template::of(plan, state).await?,
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
                    let choices = Choices::of(state.config_options());
                    let instead = choices.and_then(Choices::instead);
                    Known::Kept(Arc::new(Kept { planned, reads, analyses, instead, run }))
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
