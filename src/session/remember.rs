//! Queries whose answers are remembered: asked before they are planned, recorded as they run; and SHOW CACHE. Not here: the groups
//! that they are made of (`groups`), and parts of matrix expressions (`recall`).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::config::ConfigOptions;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement as SqlStatement;
use futures::stream;

use super::{Session, Started, locked};
use crate::cache::{
    About, Answer, Comparison, DurableQuestion, Kind, Question, Recording, Rows, query_of,
};
use crate::catalog::{Reads, Scope};
use crate::config::ResultCache;
use crate::error::Result;
use crate::memory::Kept;
use crate::query::{ResultStream, Running};
use crate::sql::DisplayNames;
use crate::value::Parameters;

/// A question, and what is remembered of it.
pub(super) struct Asked {
    question: Question,
    durable: Option<DurableQuestion>,
    /// The statement as written.
    pub(super) text: String,
    remembered: Option<Arc<Answer>>,
    mode: ResultCache,
}

impl Asked {
    /// The rows of the answer, where they need not be computed.
    pub(super) fn answer(&self) -> Option<Rows> {
        self.remembered()?.as_rows()
    }

    /// The same, to be compared with what is remembered only where the rows are the same ones each time.
    pub(super) fn compared_if(self, are_the_same: impl FnOnce() -> bool) -> Self {
        let remembered = self.remembered.filter(|_| are_the_same());
        Self { remembered, ..self }
    }

    /// What is remembered, where it need not be computed.
    fn remembered(&self) -> Option<&Arc<Answer>> {
        self.remembered.as_ref().filter(|_| self.mode == ResultCache::On)
    }
}

impl Session {
    /// What a statement asks; nothing where it is no query, or answers are not to be remembered.
    pub(super) fn asked(
        &self,
        statement: &SqlStatement,
        text: &str,
        parameters: &Parameters,
        scope: &Scope,
    ) -> Option<Asked> {
        let mode = locked(&self.settings).result_cache;
        if mode == ResultCache::Off {
            return None;
        }
        let (cache, settings) = (&self.shared.cache, self.asked_under());
        let query = query_of(statement)?;
        let durable = cache.durable_question(query, parameters, &settings);
        let question = cache.question(query, parameters, settings)?;
        let is_current = |reads: &Reads| self.is_current(scope, reads);
        let remembered = cache.answer(&question, is_current).or_else(|| {
            cache.durable_answer(&question, durable?, |read| scope.reads_what_lasts(read))
        });
        Some(Asked { question, durable, text: text.to_owned(), remembered, mode })
    }

    /// Whether what is remembered is taken, rather than compared with what is computed; nothing where it is neither: where nothing is
    /// remembered, or is to be compared and nobody asks for the rows.
    pub(super) fn takes_remembered(&self, asked: Option<&Asked>) -> Option<bool> {
        match locked(&self.settings).result_cache {
            ResultCache::On => Some(true),
            ResultCache::Verify => asked.map(|_| false),
            ResultCache::Off => None,
        }
    }

    /// What a query asks; nothing where a statement is none.
    pub(super) fn question(
        &self,
        syntax: &SqlStatement,
        parameters: &Parameters,
    ) -> Option<Question> {
        self.shared.cache.question(query_of(syntax)?, parameters, self.asked_under())
    }

    /// The settings under which questions are asked: those that are not as they come, and functions that are not there.
    pub(super) fn asked_under(&self) -> Arc<str> {
        static DEFAULTS: LazyLock<HashMap<String, Option<String>>> = LazyLock::new(|| {
            let all = ConfigOptions::default().entries().into_iter();
            all.map(|entry| (entry.key, entry.value)).collect()
        });
        // In this order, for who changes a setting holds the first while it forgets the second.
        let settings = locked(&self.settings);
        let mut known = locked(&self.asked_under);
        let text = known.get_or_insert_with(|| {
            let mut text = settings.text_for_answers();
            let entries = self.state().config_options().entries().into_iter();
            let changed = entries.filter(|entry| DEFAULTS.get(&entry.key) != Some(&entry.value));
            text.extend(changed.map(|entry| format!("{}={:?}\n", entry.key, entry.value)));
            let dropped = locked(&self.dropped_functions);
            text.extend(dropped.iter().map(|name| format!("no function {name:?}\n")));
            text.into()
        });
        Arc::clone(text)
    }

    /// The rows of an answer that is remembered.
    pub(super) fn answered(
        &self,
        Rows { schema, batches }: Rows,
        names: &DisplayNames,
        began: Instant,
        running: &Arc<Running>,
    ) -> Started {
        let batches = stream::iter(batches.into_iter().map(Ok));
        let rows = Box::pin(RecordBatchStreamAdapter::new(schema, batches));
        let kept = Kept::new("answer", &self.shared.budget.share());
        *locked(&self.planning_time) = began.elapsed();
        Started::Rows(ResultStream::start(names.renamed(rows), Arc::clone(running), kept))
    }

    /// The rows of a run, remembered or compared with what is.
    pub(super) fn watched(
        &self,
        asked: Option<Asked>,
        rows: SendableRecordBatchStream,
        scope: &Scope,
        began: Instant,
    ) -> SendableRecordBatchStream {
        let Some(Asked { question, durable, text, remembered, .. }) = asked else { return rows };
        if let Some(answer) = remembered {
            return Comparison::with(answer).of(rows);
        }
        let Some(reads) = scope.reads() else { return rows };
        let seconds = began.elapsed().as_secs_f64();
        let about = About::new(Kind::Answer, text, reads, seconds);
        self.recording(question, about).durable(durable).of(rows)
    }

    pub(super) fn recording(&self, question: Question, about: About) -> Recording {
        let seconds_min = locked(&self.settings).remembered_seconds_min();
        Recording::new(&self.shared.cache, question, about, seconds_min)
    }

    /// What EXPLAIN ANALYZE shows of a query whose answer is remembered; nothing for all else.
    ///
    /// # Errors
    /// None that a user could cause.
    pub(super) fn analyzed(
        &self,
        statement: &SqlStatement,
        text: &str,
        parameters: &Parameters,
        scope: &Scope,
    ) -> Result<Option<RecordBatch>> {
        let SqlStatement::Explain(explain) = statement else { return Ok(None) };
        if !explain.options.analyze {
            return Ok(None);
        }
        let asked = self.asked(&explain.statement, text, parameters, scope);
        let Some(answer) = asked.as_ref().and_then(Asked::remembered) else { return Ok(None) };
        let plan = format!(
            "RememberedAnswer: rows={}, bytes={}, tier={}, seconds_saved={:.6}\n  \
             SET result_cache = off runs the query",
            answer.rows(),
            answer.bytes(),
            answer.tier(),
            answer.about().seconds
        );
        let text = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
        let columns = [("plan_type", text("Plan with Metrics")), ("plan", text(&plan))];
        Ok(Some(RecordBatch::try_from_iter(columns)?))
    }

    /// SHOW CACHE: an answer a row, what is worth most first.
    ///
    /// # Errors
    /// None that a user could cause.
    pub(super) fn show_cache(&self) -> Result<RecordBatch> {
        let all = self.shared.cache.all();
        let counts = |count: fn(&Answer) -> usize| -> ArrayRef {
            let counts = all.iter().map(|(answer, _)| count(answer) as u64);
            Arc::new(UInt64Array::from_iter_values(counts))
        };
        let kinds = all.iter().map(|(answer, _)| answer.about().kind.to_string());
        let queries = all.iter().map(|(answer, _)| answer.about().query.as_str());
        let tiers = all.iter().map(|(answer, _)| answer.tier().to_string());
        let uses = all.iter().map(|(_, uses)| *uses);
        let seconds = all.iter().map(|(answer, _)| answer.about().seconds);
        Ok(RecordBatch::try_from_iter([
            ("kind", Arc::new(StringArray::from_iter_values(kinds)) as ArrayRef),
            ("query", Arc::new(StringArray::from_iter_values(queries)) as ArrayRef),
            ("rows", counts(Answer::rows)),
            ("bytes", counts(Answer::bytes)),
            ("tier", Arc::new(StringArray::from_iter_values(tiers)) as ArrayRef),
            ("uses", Arc::new(UInt64Array::from_iter_values(uses)) as ArrayRef),
            ("seconds", Arc::new(Float64Array::from_iter_values(seconds)) as ArrayRef),
        ])?)
    }
}
