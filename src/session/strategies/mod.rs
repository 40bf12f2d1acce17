//! Questions that are asked again and again: what their runs take, and whether the runner-up of a choice takes less.
//!
//! ```text
//! measured   what runs took, and what is next: a run, a look at the runner-ups, a try
//! trial      the rows of a run that is measured, and of a try, which can be stopped until it has all
//! here       which questions may be run in several ways; plans of those ways; SHOW STRATEGIES
//! ```
//!
//! A runner-up is one of a choice by cost (`planner::Choices`): another order of joins, another side to be built, an aggregation before
//! a join or after it, a plan that runs once or for each reader. Only questions with one answer are run in another way: no plan may show
//! in an answer. What was measured is kept for a database, for as long as it is open.

mod measured;
mod trial;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::{
    ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::Statement as SqlStatement;

use self::measured::{Measured, Next, RUNNER_UPS, State};
use super::recent::Recent;
use super::{Session, Way, locked};
use crate::cache::{Question, query_of};
use crate::catalog::Scope;
use crate::error::Result;
use crate::planner::{Alternative, Choices, has_one_answer};
use crate::value::Parameters;

/// So many questions are measured, with some names of relations each.
const MEASURED_MAX: usize = 256;

/// What is known of the questions of a database.
#[derive(Debug, Default)]
pub(super) struct Strategies(Mutex<Recent<Arc<Mutex<Measured>>, MEASURED_MAX>>);

impl Strategies {
    /// Forgets all that was measured.
    pub(super) fn forget(&self) {
        locked(&self.0).forget_all();
    }

    fn get(&self, question: &Question) -> Option<Arc<Mutex<Measured>>> {
        locked(&self.0).get(question)
    }
}

/// A question that was asked before, and how it is run.
#[derive(Debug)]
pub(super) struct Again {
    measured: Arc<Mutex<Measured>>,
    /// The runner-up that its runs take; nothing where all is by cost.
    in_use: Option<Arc<Alternative>>,
    /// Whether its runner-ups are to be noted, or are known.
    notes: bool,
    /// Whether it is to be planned for that.
    looks: bool,
    /// Whether it may be run in other ways.
    has_one_answer: bool,
    tried: Option<Try>,
    /// The operators of what is tried.
    trial: Option<Arc<dyn ExecutionPlan>>,
}

/// A try: whatever becomes of it, others may come after it.
#[derive(Debug)]
struct Try {
    measured: Arc<Mutex<Measured>>,
    alternative: Arc<Alternative>,
    /// What it may take.
    most: Duration,
}

impl Try {
    fn give_up(&self, state: State) {
        locked(&self.measured).give_up(&self.alternative, state);
    }

    fn ended(&self, took: Option<Duration>) {
        match took {
            Some(time) => locked(&self.measured).tried(&self.alternative, time),
            None => self.give_up(State::Stopped),
        }
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        locked(&self.measured).end_try();
    }
}

impl Again {
    /// The same; what is tried looks at the stop, too.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn stoppable(mut self, way: &Way<'_>, session: &Session) -> Result<Self> {
        let trial = self.trial.take();
        self.trial = trial.map(|trial| way.stoppable(session, trial)).transpose()?;
        Ok(self)
    }

    /// Whether operators that take this runner-up are the ones to be run.
    pub(super) fn runs(&self, instead: Option<&Arc<Alternative>>) -> bool {
        !self.looks && self.in_use.as_ref() == instead
    }

    /// Whether another way is to be tried.
    pub(super) fn tries(&self) -> bool {
        self.tried.is_some()
    }

    /// Whether somebody wants to know what is chosen.
    pub(super) fn notes(&self) -> bool {
        self.notes
    }

    /// A list for what is chosen, where somebody wants to know it.
    pub(super) fn choices(&self) -> Option<Choices> {
        self.notes.then(|| Choices::taking(self.in_use.clone()))
    }

    /// Takes note of what was chosen.
    pub(super) fn consider(&self, state: &SessionState) {
        let Some(choices) = Choices::of(state.config_options()) else { return };
        let mut measured = locked(&self.measured);
        match &self.in_use {
            Some(in_use) if !choices.are_met() => measured.give_up(in_use, State::NotFound),
            _ => {
                let count = if self.has_one_answer { RUNNER_UPS } else { 0 };
                let (cost, runner_ups) = choices.alternatives(count);
                measured.consider(cost, runner_ups);
            }
        }
    }

    /// The rows of these operators, measured, or those of what is tried.
    ///
    /// # Errors
    /// Whatever keeps operators from being run.
    pub(super) fn rows(
        mut self,
        operators: Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let trial = self.tried.take().zip(self.trial.take());
        let started = trial.and_then(|(of, trial)| {
            let rows = execute_stream(trial, Arc::clone(context));
            rows.inspect_err(|_| of.give_up(State::Stopped)).ok().map(|rows| (of, rows))
        });
        match started {
            Some((of, rows)) => {
                let (most, pool) = (of.most, Arc::clone(context.memory_pool()));
                let context = Arc::clone(context);
                let known = move || execute_stream(operators, context);
                Ok(trial::tried(rows, most, known, pool, move |took| of.ended(took)))
            }
            None => {
                let Self { measured, in_use, .. } = self;
                let ran = move |time| locked(&measured).ran(in_use.as_deref(), time);
                Ok(trial::measured(execute_stream(operators, Arc::clone(context))?, ran))
            }
        }
    }
}

impl Session {
    /// How a question is run that was asked before; nothing where all runs are by cost.
    pub(super) fn again(&self, question: &Question, syntax: &SqlStatement) -> Option<Again> {
        let seconds_min = locked(&self.settings).strategies_after()?;
        let measured = self.shared.strategies.get(question).unwrap_or_else(|| {
            let text = query_of(syntax).map(ToString::to_string).unwrap_or_default();
            let measured = Arc::new(Mutex::new(Measured::new(text)));
            locked(&self.shared.strategies.0).keep(question.clone(), Arc::clone(&measured));
            measured
        });
        let (mut again, next) = {
            let mut known = locked(&measured);
            let next = known.next(seconds_min);
            let looks = next == Next::Look;
            let (in_use, notes) = (known.in_use().cloned(), looks || known.is_looked_at());
            let measured = Arc::clone(&measured);
            let (has_one_answer, tried, trial) = Default::default();
            (Again { measured, in_use, notes, looks, has_one_answer, tried, trial }, next)
        };
        if let Next::Try(alternative, most) = next {
            again.tried = Some(Try { measured, alternative, most });
        }
        Some(again)
    }

    /// What is to be known of the plan of a question before it is optimized: whether it may be run in other ways, and the operators of
    /// the one that is to be tried.
    ///
    /// # Errors
    /// None but DataFusion's, where the plan cannot be walked.
    pub(super) async fn prepare(
        &self,
        again: &mut Again,
        plan: &LogicalPlan,
        scope: &Arc<Scope>,
    ) -> Result<()> {
        again.has_one_answer = again.notes && has_one_answer(plan)?;
        let Some(of) = &again.tried else { return Ok(()) };
        let choices = Choices::taking(Some(Arc::clone(&of.alternative)));
        // Whatever keeps a way from being planned, the question has another.
        if let Ok(optimized) = self.optimized(scope, plan, Some(choices.clone()))
            && choices.are_met()
            && again.has_one_answer
        {
            let state = optimized.state.as_ref();
            let planner = state.query_planner();
            again.trial = planner.create_physical_plan(&optimized.plan, state).await.ok();
        }
        if again.trial.is_none() {
            of.give_up(State::NotFound);
        }
        Ok(())
    }

    /// A list for what is chosen where a query is explained, with what its runs take: in no format of somebody's choice, which are for
    /// machines.
    pub(super) fn explained_choices(
        &self,
        syntax: &SqlStatement,
        parameters: &Parameters,
    ) -> Option<Choices> {
        let SqlStatement::Explain(explain) = syntax else { return None };
        let in_use = self.question(&explain.statement, parameters).and_then(|question| {
            locked(&self.settings).strategies_after()?;
            let known = self.shared.strategies.get(&question)?;
            locked(&known).in_use().cloned()
        });
        let is_listed = explain.options.format.is_none() || in_use.is_some();
        is_listed.then(|| Choices::taking(in_use))
    }

    /// SHOW STRATEGIES: a way of a question a row, the question that was asked last first.
    ///
    /// # Errors
    /// None that a user could cause.
    pub(super) fn show_strategies(&self) -> Result<RecordBatch> {
        let (mut queries, mut choices, mut ways, mut states) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut runs, mut seconds, mut since) = (Vec::new(), Vec::new(), Vec::new());
        for measured in locked(&self.shared.strategies.0).all() {
            let measured = locked(&measured);
            for way in measured.ways() {
                let (choice, text) = match way.alternative.as_deref() {
                    None => (None, "by cost".to_owned()),
                    Some(Alternative { of, taken, runner_up }) => {
                        (Some(of.clone()), format!("{runner_up}, not {taken}"))
                    }
                };
                queries.push(measured.query().to_owned());
                choices.push(choice);
                ways.push(text);
                states.push(way.state.to_string());
                runs.push(way.runs);
                seconds.push(way.median().or(way.last()));
                since.push(microseconds(way.since));
            }
        }
        let text = |values: Vec<String>| Arc::new(StringArray::from(values)) as ArrayRef;
        let since = TimestampMicrosecondArray::from(since).with_timezone("UTC");
        Ok(RecordBatch::try_from_iter_with_nullable([
            ("query", text(queries), false),
            ("choice", Arc::new(StringArray::from(choices)) as ArrayRef, true),
            ("way", text(ways), false),
            ("state", text(states), false),
            ("since", Arc::new(since) as ArrayRef, false),
            ("runs", Arc::new(UInt64Array::from(runs)) as ArrayRef, false),
            ("seconds", Arc::new(Float64Array::from(seconds)) as ArrayRef, true),
        ])?)
    }
}

/// Since 1970.
fn microseconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;
    use crate::{Connection, Database};

    /// Either side of its join might be built.
    const QUERY: &str = "SELECT kind, max(price + item.id) FROM sales JOIN item ON item = item.id GROUP BY kind ORDER BY kind";

    fn connect() -> Connection {
        let builder = Database::builder().threads(2).set("result_cache", "off").unwrap();
        let builder = builder.set("cost_model", "built_in").unwrap();
        let builder = builder.set("strategies_after_ms", "0").unwrap();
        let connection = builder.build().unwrap().connect();
        let make = "CREATE TABLE sales AS SELECT (value * 7919) % 100000 AS item, value % 100 AS price FROM range(200000);
             CREATE TABLE item AS SELECT value AS id, 'i' || (value % 40) AS kind FROM range(100000)";
        connection.execute(make).unwrap();
        connection
    }

    fn texts(connection: &Connection, statement: &str) -> String {
        let rows = connection.query(statement).unwrap().rows::<(String, String)>().unwrap();
        rows.into_iter().map(|(_, text)| text).collect()
    }

    fn answer(connection: &Connection) -> Vec<(String, i64)> {
        connection.query(QUERY).unwrap().rows().unwrap()
    }

    /// The question of [`QUERY`], as the session has it.
    fn known(connection: &Connection) -> Arc<Mutex<Measured>> {
        let all = locked(&connection.session.shared.strategies.0).all();
        assert_eq!(all.len(), 1);
        Arc::clone(&all[0])
    }

    #[test]
    fn what_is_faster_several_times_is_planned_and_shown_until_tables_change() {
        let connection = connect();
        let expected = answer(&connection);
        for _ in 0..4 {
            assert_eq!(answer(&connection), expected);
        }
        let explain = format!("EXPLAIN {QUERY}");
        let by_cost = texts(&connection, &explain);
        assert!(!by_cost.contains("measured times"), "{by_cost}");
        let known = known(&connection);
        let runner_up = {
            let mut known = locked(&known);
            let runner_up = known.ways()[1].alternative.clone().unwrap();
            for _ in 0..3 {
                known.tried(&runner_up, Duration::from_nanos(1));
            }
            assert_eq!(known.in_use(), Some(&runner_up));
            runner_up
        };
        let measured = texts(&connection, &explain);
        let taken = format!("{}: {}", runner_up.of, runner_up.runner_up);
        assert!(measured.contains(&taken) && measured.contains("by measured times"), "{measured}");
        for runs in 4..6 {
            assert_eq!(answer(&connection), expected);
            assert_eq!(locked(&known).ways()[1].runs, runs);
        }
        for _ in 0..7 {
            locked(&known).ran(Some(&runner_up), Duration::from_secs(1000));
        }
        assert_eq!(locked(&known).in_use(), None);
        assert_eq!(texts(&connection, &explain), by_cost);
        connection.execute("INSERT INTO sales SELECT * FROM sales").unwrap();
        for _ in 0..2 {
            answer(&connection);
        }
        assert!(locked(&known).ways().iter().all(|way| way.runs < 3));
    }

    #[test]
    fn so_many_questions_are_measured_and_no_more() {
        let connection = Database::memory().unwrap().connect();
        let session = &connection.session;
        let statement = DFParser::parse_sql("SELECT 1").unwrap().pop_front().unwrap();
        let question = |number: u64| Question::of_part([number, 0], "".into());
        let asked = MEASURED_MAX as u64 + 10;
        for number in 0..asked {
            assert!(session.again(&question(number), &statement).is_some());
        }
        let strategies = &session.shared.strategies;
        assert_eq!(locked(&strategies.0).all().len(), MEASURED_MAX);
        // Those that were asked last are known.
        assert!(strategies.get(&question(9)).is_none());
        assert!((10..asked).all(|number| strategies.get(&question(number)).is_some()));
    }

    #[test]
    fn a_runner_up_that_is_not_met_is_given_up() {
        let connection = connect();
        let expected = answer(&connection);
        for _ in 0..5 {
            answer(&connection);
        }
        let known = known(&connection);
        let of = |text: &str| text.to_owned();
        let nothing = Alternative { of: of("join order"), taken: of("a"), runner_up: of("b") };
        // Operators are kept, so that nobody looks at the cost.
        locked(&known).consider(f64::MAX, vec![nothing]);
        for _ in 0..7 {
            assert_eq!(answer(&connection), expected);
        }
        assert_eq!(locked(&known).ways()[1].state, State::NotFound);
        assert_eq!(locked(&known).in_use(), None);
    }
}
