//! Plans of queries with parameters, which are optimized once and bound to values and to tables as they are each time.
//!
//! ```text
//! the first time        a plan with values, as of any statement
//! the second time       also one with parameters; kept if it is the first once values are in it
//! from then on          that one, with values and the tables' versions in it
//! while tables stay     its operators, with values in their conditions
//! ```
//!
//! A plan that joins is for values by which its relations have about as many rows as they had (`planner::Neighbourhood`); for others
//! there are other plans, of which a few are kept.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement as SqlStatement;

use super::{Optimized, Session, locked};
use crate::cache::{Question, query_of};
use crate::catalog::{Reads, Scope};
use crate::error::Result;
use crate::matrices::Statements;
use crate::planner::{Choices, Evidence, Given, Neighbourhood, Statistics, Template, generic};
use crate::query::Running;
use crate::storage::Snapshot;
use crate::value::Parameters;

/// So many plans of one query are kept, each for values near those that it was made for.
const PLANS_OF_QUERY_MAX: usize = 4;

/// Once values were near those of no plan so often, all plans are forgotten: there may be other rows by now, or other askers.
const MISSES_MAX: usize = 16;

/// What a session knows of a query, by its text and the types of its parameters.
#[derive(Debug, Clone)]
pub(super) enum Known {
    /// It was asked once.
    Asked,
    Plans(Plans),
    /// Its plan is another one for other values.
    Unfit,
}

/// Plans of a query, of which each is for values near those that it was made for.
#[derive(Debug, Clone, Default)]
pub(super) struct Plans {
    kept: Vec<Arc<Plan>>,
    /// How often values were near those of none.
    misses: usize,
}

/// A plan for any values and rows, and what was read for it.
#[derive(Debug)]
pub(super) struct Plan {
    plan: LogicalPlan,
    reads: Reads,
    neighbourhood: Neighbourhood,
    /// How often tables had been analyzed.
    analyses: u64,
    operators: Mutex<Operators>,
}

/// What is known of the operators of a plan for any values.
#[derive(Debug)]
enum Operators {
    /// The plan was bound to these tables last.
    Bound(Reads),
    /// They were chosen for these.
    Chosen(Reads, Arc<Template>),
    /// They are others for other values.
    Unfit,
}

/// What becomes of the plan of a query.
pub(super) enum Planning {
    /// It is known but for values and rows.
    Known(LogicalPlan),
    /// It is made, and so is another one for any values.
    Learnt(Question, SqlStatement),
    Made,
}

impl Session {
    /// The operators of a query with these values, where they are chosen for any; they are if its tables are as they were the last
    /// time.
    ///
    /// # Errors
    /// None but DataFusion's: where a constant cannot be computed.
    pub(super) async fn operators_for_any(
        &self,
        syntax: &SqlStatement,
        parameters: &Parameters,
        scope: &Arc<Scope>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(question) = self.question_for_any(syntax, parameters) else { return Ok(None) };
        let Some(Known::Plans(plans)) = locked(&self.plans).get(&question) else { return Ok(None) };
        let statistics = self.shared.statistics.given(given(parameters));
        for known in &plans.kept {
            let Some((reads, chosen)) = known.operators_now(scope) else { continue };
            if known.is_outdated(statistics.analyses()) || !known.is_for(&statistics, scope)? {
                continue;
            }
            // Those of these values alone may be the fastest of the ways that were tried.
            if !known.neighbourhood.is_everywhere() && self.has_template(syntax, parameters) {
                return Ok(None);
            }
            let operators = known.operators(self, reads, chosen, parameters, scope).await?;
            self.plan_hits.fetch_add(u64::from(operators.is_some()), Ordering::Relaxed);
            return Ok(operators);
        }
        Ok(None)
    }

    /// A query with the types of its values; nothing where it has none.
    fn question_for_any(&self, syntax: &SqlStatement, parameters: &Parameters) -> Option<Question> {
        let types = parameters.types().filter(|types| !types.is_empty())?;
        self.shared.cache.question(query_of(syntax)?, &types, self.asked_under())
    }

    /// How a query comes to its plan.
    ///
    /// # Errors
    /// None but DataFusion's: where a constant cannot be computed.
    pub(super) fn planning(
        &self,
        syntax: &SqlStatement,
        parameters: &Parameters,
        scope: &Arc<Scope>,
    ) -> Result<Planning> {
        let Some(question) = self.question_for_any(syntax, parameters) else {
            return Ok(Planning::Made);
        };
        let known = locked(&self.plans).get(&question);
        let mut plans = match known {
            None => {
                locked(&self.plans).keep(question, Known::Asked);
                return Ok(Planning::Made);
            }
            Some(Known::Asked) => return Ok(Planning::Learnt(question, syntax.clone())),
            Some(Known::Unfit) => return Ok(Planning::Made),
            Some(Known::Plans(plans)) => plans,
        };
        let statistics = self.shared.statistics.given(given(parameters));
        if plans.kept.iter().any(|known| known.is_outdated(statistics.analyses())) {
            locked(&self.plans).keep(question.clone(), Known::Asked);
            return Ok(Planning::Learnt(question, syntax.clone()));
        }
        for known in &plans.kept {
            if !known.is_for(&statistics, scope)? {
                continue;
            }
            let Some(plan) = bound(known, parameters, scope, scope.session())? else {
                locked(&self.plans).keep(question, Known::Asked);
                return Ok(Planning::Made);
            };
            self.plan_hits.fetch_add(1, Ordering::Relaxed);
            known.was_bound(scope);
            return Ok(Planning::Known(plan));
        }
        plans.misses += 1;
        let is_learnt = plans.misses < PLANS_OF_QUERY_MAX;
        let are_forgotten = plans.misses >= MISSES_MAX;
        let known = if are_forgotten { Known::Asked } else { Known::Plans(plans) };
        locked(&self.plans).keep(question.clone(), known);
        Ok(if is_learnt { Planning::Learnt(question, syntax.clone()) } else { Planning::Made })
    }

    /// Keeps the plan of a query for any values near these, if it is this one with these values.
    pub(super) async fn learn(
        &self,
        question: Question,
        syntax: SqlStatement,
        parameters: &Parameters,
        optimized: &Optimized,
        scope: &Arc<Scope>,
        running: &Arc<Running>,
    ) {
        let choices = Choices::of(optimized.state.config_options());
        // What was measured of these values says nothing of others.
        if choices.is_some_and(|choices| choices.instead().is_some()) {
            return;
        }
        let statements = self.matrices(scope, parameters.clone(), running);
        let statistics = Arc::new(self.shared.statistics.given(given(parameters)));
        // Whatever keeps the plan from being made, the query has one of its own.
        let evidence = Evidence::new(&statistics, &self.shared.calibration);
        let learnt = learnt(&statements, syntax, optimized, &evidence).await.ok().flatten();
        let mut plans = match locked(&self.plans).get(&question) {
            Some(Known::Plans(plans)) => plans,
            Some(Known::Asked | Known::Unfit) | None => Plans::default(),
        };
        plans.kept.extend(learnt.map(Arc::new));
        let known = if plans.kept.is_empty() { Known::Unfit } else { Known::Plans(plans) };
        locked(&self.plans).keep(question, known);
    }
}

impl Plan {
    /// Whether it is likely to be the plan of the values that statistics are given.
    fn is_for(&self, statistics: &Statistics, scope: &Scope) -> Result<bool> {
        if self.neighbourhood.is_everywhere() {
            return Ok(true);
        }
        match scope.tables(&self.reads) {
            Some(tables) => Ok(self.neighbourhood.includes(&tables, statistics)?),
            // That a table has gone is found when the plan is bound.
            None => Ok(true),
        }
    }

    /// Whether more is known of tables than when it was chosen.
    fn is_outdated(&self, analyses: u64) -> bool {
        self.analyses != analyses && !self.neighbourhood.is_everywhere()
    }

    /// What its operators were chosen for, and they if they are, where that is as it was.
    fn operators_now(&self, scope: &Scope) -> Option<(Reads, Option<Arc<Template>>)> {
        match &*locked(&self.operators) {
            Operators::Bound(reads) if scope.is_current(reads) => Some((reads.clone(), None)),
            Operators::Chosen(reads, of) if scope.is_current(reads) => {
                Some((reads.clone(), Some(Arc::clone(of))))
            }
            _ => None,
        }
    }

    /// Operators with these values, of those that are chosen for any, by now or before; nothing where these values' own would be
    /// others.
    async fn operators(
        &self,
        session: &Session,
        reads: Reads,
        chosen: Option<Arc<Template>>,
        parameters: &Parameters,
        scope: &Arc<Scope>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (state, tables) = (scope.session(), scope.reads_the_same(&reads)?);
        let chosen = match chosen {
            Some(template) => Some(template),
            None => self.template(session, parameters, &tables, state).await?.map(Arc::new),
        };
        let Some(template) = chosen else {
            *locked(&self.operators) = Operators::Unfit;
            return Ok(None);
        };
        let value = |name: &str| parameters.scalar(name).map(|value| value.scalar().clone());
        let operators = template.operators(&tables, &value, state)?;
        *locked(&self.operators) = match operators {
            Some(_) => Operators::Chosen(reads, template),
            // The next time others are chosen.
            None => Operators::Bound(reads),
        };
        Ok(operators)
    }

    /// Operators for any values; nothing where those of these values would be others.
    async fn template(
        &self,
        session: &Session,
        parameters: &Parameters,
        tables: &HashMap<u64, Snapshot>,
        state: &Arc<SessionState>,
    ) -> Result<Option<Template>> {
        let plan = generic::of_rows(self.plan.clone(), tables)?;
        let any = session.partitioned(Optimized { state: Arc::clone(state), plan })?;
        let Optimized { state, plan } = any;
        let Some(template) = Template::of_any(plan, &state).await? else { return Ok(None) };
        if self.neighbourhood.is_everywhere() {
            return Ok(Some(template));
        }
        let plan = generic::of_values(parameters.fill(self.plan.clone())?, tables, state.as_ref())?;
        let Some(own) = Template::of(&plan, &state).await? else { return Ok(None) };
        Ok(if template.joins_like(&own)? { Some(template) } else { None })
    }

    /// Notes the tables that it was bound to, for the next time.
    fn was_bound(&self, scope: &Scope) {
        let mut operators = locked(&self.operators);
        if let Some(reads) = scope.reads().filter(|_| !matches!(*operators, Operators::Unfit)) {
            *operators = Operators::Bound(reads);
        }
    }
}

/// The values of parameters, for estimates.
fn given(parameters: &Parameters) -> Given {
    let parameters = parameters.clone();
    Arc::new(move |name| parameters.scalar(name).map(|value| value.scalar().clone()))
}

/// A plan with parameters, to be kept if it is the one with values once these are in it.
async fn learnt(
    statements: &Statements,
    syntax: SqlStatement,
    Optimized { state, plan }: &Optimized,
    evidence: &Evidence,
) -> Result<Option<Plan>> {
    // Planning may run what matrix expressions ask for; then the plan is not for any values.
    if !generic::is_for_any(plan)? {
        return Ok(None);
    }
    let generic = generic::optimized(statements.generic_plan(syntax).await?, state, evidence)?;
    let Some(reads) = statements.scope.reads() else { return Ok(None) };
    if !generic::is_for_any(&generic)? {
        return Ok(None);
    }
    let operators = Mutex::new(Operators::Bound(reads.clone()));
    let statistics = evidence.statistics();
    let neighbourhood = Neighbourhood::of(&generic, statistics)?;
    let (plan_for_any, analyses) = (generic::without_rows(generic)?, statistics.analyses());
    let learnt = Plan { plan: plan_for_any, reads, neighbourhood, analyses, operators };
    let again = bound(&learnt, &statements.parameters, &statements.scope, state)?;
    Ok(again.filter(|again| again == plan).map(|_| learnt))
}

/// The plan with these values, of the tables as a statement sees them; nothing where it reads something else by now.
fn bound(
    known: &Plan,
    parameters: &Parameters,
    scope: &Arc<Scope>,
    state: &SessionState,
) -> Result<Option<LogicalPlan>> {
    let Some(tables) = scope.read_again(&known.reads) else { return Ok(None) };
    let plan = parameters.fill(known.plan.clone())?;
    Ok(Some(generic::of_values(plan, &tables, state)?))
}
