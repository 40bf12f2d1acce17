//! Plans of queries with parameters, which are optimized once and bound to values and to tables as they are each time.
//!
//! ```text
//! the first time        a plan with values, as of any statement
//! the second time       also one with parameters; kept if it is the first once values are in it
//! from then on          that one, with values and the tables' versions in it
//! while tables stay     its operators, with values in their conditions
//! ```

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
use crate::planner::{Template, generic};
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
        let Some(Known::Plan(known)) = locked(&self.plans).get(&question) else { return Ok(None) };
        let state = scope.session();
        let (reads, chosen) = match &*locked(&known.operators) {
            Operators::Bound(reads) if scope.is_current(reads) => (reads.clone(), None),
            Operators::Chosen(reads, of) if scope.is_current(reads) => {
                (reads.clone(), Some(Arc::clone(of)))
            }
            _ => return Ok(None),
        };
        let tables = scope.reads_the_same(&reads)?;
        let template = match chosen {
            Some(template) => template,
            None => {
                let plan = generic::of_rows(known.plan.clone(), &tables)?;
                let Some(template) = Template::of_any(plan, state).await? else {
                    *locked(&known.operators) = Operators::Unfit;
                    return Ok(None);
                };
                let template = Arc::new(template);
                *locked(&known.operators) = Operators::Chosen(reads.clone(), Arc::clone(&template));
                template
            }
        };
        let value = |name: &str| parameters.scalar(name).map(|value| value.scalar().clone());
        let operators = template.operators(&tables, &value, state)?;
        if operators.is_some() {
            self.plan_hits.fetch_add(1, Ordering::Relaxed);
        } else {
            // The next time others are chosen.
            *locked(&known.operators) = Operators::Bound(reads);
        }
        Ok(operators)
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
        match known {
            None => locked(&self.plans).keep(question, Known::Asked),
            Some(Known::Asked) => return Ok(Planning::Learnt(question, syntax.clone())),
            Some(Known::Unfit) => {}
            Some(Known::Plan(known)) => {
                if let Some(plan) = bound(&known, parameters, scope, scope.session())? {
                    self.plan_hits.fetch_add(1, Ordering::Relaxed);
                    known.was_bound(scope);
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

impl Plan {
    /// Notes the tables that it was bound to, for the next time.
    fn was_bound(&self, scope: &Scope) {
        let mut operators = locked(&self.operators);
        if let Some(reads) = scope.reads().filter(|_| !matches!(*operators, Operators::Unfit)) {
            *operators = Operators::Bound(reads);
        }
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
    let operators = Mutex::new(Operators::Bound(reads.clone()));
    let learnt = Plan { plan: generic::without_rows(generic)?, reads, operators };
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
