//! A connection as the crate `sqllogictest` sees it.
//!
//! The crate hands an engine the text of a record alone, but how a value is written may depend on the
//! record's type string. So the runner announces each record first, through a cell both sides share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use relatrix::{Connection, Outcome, ResultSet};
use sqllogictest::{DB, DBOutput, MakeConnection, QueryExpect, Record, Runner};

use crate::values::{Letter, Style};

/// The type string of the record that runs next.
#[derive(Clone, Default)]
pub(crate) struct Expected(Arc<Mutex<Vec<Letter>>>);

impl Expected {
    /// Takes note of what a record expects, before it runs.
    pub(crate) fn announce(&self, record: &Record<Letter>) {
        let letters = match record {
            Record::Query { expected: QueryExpect::Results { types, .. }, .. } => types.clone(),
            _ => Vec::new(),
        };
        *self.0.lock().expect("nothing panics under the lock") = letters;
    }

    fn letters(&self) -> Vec<Letter> {
        self.0.lock().expect("nothing panics under the lock").clone()
    }
}

/// One connection, and how its values are to be written.
pub(crate) struct Engine {
    connection: Connection,
    expected: Expected,
    style: Style,
    /// How often each query is asked.
    times: usize,
}

/// What the report of a record begins with whose answer, or what that is made of, had been remembered as another one.
pub(crate) const STALE: &str = "stale answer: ";

/// A record that takes longer has failed. Products by the stand-in of a GPU take half a minute on a slow machine.
const RECORD_SECONDS_MAX: u64 = 120;

/// A runner whose records all go to one connection.
pub(crate) fn runner(
    connection: Connection,
    expected: &Expected,
    style: Style,
    times: usize,
) -> Runner<Engine, impl MakeConnection<Conn = Engine>> {
    let expected = expected.clone();
    connection.set_timeout(Some(Duration::from_secs(RECORD_SECONDS_MAX)));
    Runner::new(move || {
        let (connection, expected) = (connection.clone(), expected.clone());
        async move { Ok(Engine { connection, expected, style, times }) }
    })
}

impl Engine {
    /// Runs every statement of a record; the last one's outcome is the record's.
    fn outcome(&self, sql: &str) -> relatrix::Result<DBOutput<Letter>> {
        let mut last = DBOutput::StatementComplete(0);
        for statement in relatrix::parse(sql)? {
            let before = if is_query(statement.text()) { self.times - 1 } else { 0 };
            for _ in 0..before {
                if let Outcome::Rows(rows) = self.connection.run(&statement)? {
                    rows.collect()?;
                }
            }
            last = match self.connection.run(&statement)? {
                Outcome::Rows(rows) => self.rows(rows)?,
                Outcome::Count(count) => DBOutput::StatementComplete(count),
                Outcome::Done => DBOutput::StatementComplete(0),
            };
        }
        Ok(last)
    }

    fn rows(&self, result: ResultSet) -> relatrix::Result<DBOutput<Letter>> {
        let mut types = self.expected.letters();
        types.resize(result.schema().fields().len(), Letter::ANY);
        let mut rows = Vec::new();
        for batch in result {
            rows.extend(self.style.rows(&batch?, &types));
        }
        Ok(DBOutput::Rows { types, rows })
    }
}

/// Whether a statement changes nothing, and may be run again.
fn is_query(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    match words.next() {
        Some("select" | "from" | "values") => true,
        Some("with") => !words.any(|word| ["insert", "update", "delete", "merge"].contains(&word)),
        _ => false,
    }
}

/// What a record reports when it fails.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(String);

impl Failure {
    fn of(error: &relatrix::Error) -> Self {
        let text = error.to_string();
        let is_stale = text.contains("is not what was computed");
        Self(if is_stale { format!("{STALE}{text}") } else { text })
    }
}

impl DB for Engine {
    type Error = Failure;
    type ColumnType = Letter;

    fn run(&mut self, sql: &str) -> Result<DBOutput<Letter>, Failure> {
        match catch_unwind(AssertUnwindSafe(|| self.outcome(sql))) {
            Ok(result) => result.map_err(|error| Failure::of(&error)),
            Err(payload) => {
                let message = payload
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| payload.downcast_ref::<&str>().copied())
                    .unwrap_or("no message");
                Err(Failure(format!("panic: {message}")))
            }
        }
    }
}
