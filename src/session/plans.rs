//! Plans of queries with parameters, which are optimized once and bound to values and to tables as they are each time.
//!
//! ```text
//! the first time        a plan with values, as of any statement
//! the second time       also one with parameters; kept if it is the first once values are in it
//! from then on          that one, with values and the tables' versions in it
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as SqlStatement;

use super::{Optimized, Session, locked};
use crate::cache::{Question, query_of};
use crate::catalog::{Reads, Scope};
use crate::error::Result;
use crate::matrices::Statements;
use crate::planner::generic;
use crate::query::Running;
use crate::value::Parameters;

/// What a session knows of a query, by its text and the types of its parameters.
#[derive(Debug, Clone)]
pub(super) enum Known {
    /// It was asked once.
    Asked,
    Plan(Arc<Plan>),
    /// Its plan is another one for other values.
    Unfit,
}

/// A plan for any values and rows, and what was read for it.
#[derive(Debug)]
pub(super) struct Plan {
    plan: LogicalPlan,
    reads: Reads,
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
        let question = || {
            let types = parameters.types().filter(|types| !types.is_empty())?;
            self.shared.cache.question(query_of(syntax)?, &types, self.asked_under())
        };
        let Some(question) = question() else { return Ok(Planning::Made) };
        let known = locked(&self.plans).get(&question);
        match known {
            None => locked(&self.plans).keep(question, Known::Asked),
            Some(Known::Asked) => return Ok(Planning::Learnt(question, syntax.clone())),
            Some(Known::Unfit) => {}
            Some(Known::Plan(known)) => {
                if let Some(plan) = bound(&known, parameters, scope, scope.session())? {
                    self.plan_hits.fetch_add(1, Ordering::Relaxed);
                    return Ok(Planning::Known(plan));
                }
                locked(&self.plans).keep(question, Known::Asked);
            }
        }
        Ok(Planning::Made)
    }

    /// Keeps the plan of a query for any values, if it is this one with these values.
    pub(super) async fn learn(
        &self,
        question: Question,
        syntax: SqlStatement,
        parameters: &Parameters,
        optimized: &Optimized,
        scope: &Arc<Scope>,
        running: &Arc<Running>,
    ) {
        let statements = self.matrices(scope, parameters.clone(), running);
        // Whatever keeps the plan from being made, the query has one of its own.
        let known = match learnt(&statements, syntax, optimized).await {
            Ok(Some(plan)) => Known::Plan(Arc::new(plan)),
            Ok(None) | Err(_) => Known::Unfit,
        };
        locked(&self.plans).keep(question, known);
    }
}

/// A plan with parameters, to be kept if it is the one with values once these are in it.
async fn learnt(
    statements: &Statements,
    syntax: SqlStatement,
    Optimized { state, plan }: &Optimized,
) -> Result<Option<Plan>> {
    // Planning may run what matrix expressions ask for; then the plan is not for any values.
    if !generic::is_for_any(plan)? {
        return Ok(None);
    }
    let generic = state.optimize(&statements.generic_plan(syntax).await?)?;
    let Some(reads) = statements.scope.reads() else { return Ok(None) };
    if !generic::is_for_any(&generic)? {
        return Ok(None);
    }
    let learnt = Plan { plan: generic::without_rows(generic)?, reads };
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
