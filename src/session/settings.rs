//! SET, RESET, SHOW and SHOW ALL, over the list in `config`.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use datafusion::sql::parser::{ResetStatement, Statement as SqlStatement};
use sqlparser::ast::{Expr, Ident, ObjectName, Set, Statement, Value, ValueWithSpan};

use super::{Session, Started, locked};
use crate::config::{Gpu, SETTINGS, Setting, Settings};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::offload::{falls, kept};
use crate::gpu;
use crate::query::ResultStream;
use crate::sql;

/// A setting of DataFusion's that has a name without dots too.
const TIME_ZONE: &str = "timezone";

/// Makes `SET TIME ZONE 'UTC'` the `SET timezone = 'UTC'` that it is.
pub(super) fn rewrite(syntax: &mut SqlStatement) {
    if let SqlStatement::Statement(statement) = syntax
        && let Statement::Set(set @ Set::SetTimeZone { .. }) = statement.as_mut()
        && let Set::SetTimeZone { value, .. } = set
    {
        *set = Set::SingleAssignment {
            scope: None,
            hivevar: false,
            variable: ObjectName::from(Ident::new(TIME_ZONE)),
            values: vec![value.clone()],
        };
    }
}

impl Session {
    /// Does what SET and SHOW of our own settings say; `None` for all else.
    pub(super) async fn setting(&self, statement: &Statement) -> Result<Option<Started>> {
        match statement {
            Statement::Set(Set::SingleAssignment { variable, values, .. }) => {
                let Some(setting) = named(variable)? else { return Ok(None) };
                let [value] = values.as_slice() else {
                    return Err(Error::argument(setting.name, "takes one value"));
                };
                let value = match is_default(value) {
                    true => setting.get(&self.defaults),
                    false => text(value),
                };
                self.set(setting, &value).map(|()| Some(Started::Done))
            }
            Statement::ShowVariable { variable } => match variable.as_slice() {
                [all] if all.value.eq_ignore_ascii_case("all") => self.show_all().map(Some),
                [memory] if memory.value.eq_ignore_ascii_case("memory") => {
                    self.show_memory().map(Some)
                }
                [gpu] if gpu.value.eq_ignore_ascii_case("gpu") => self.show_gpu().await.map(Some),
                name => match named(&ObjectName::from(name.to_vec()))? {
                    Some(setting) => self.show(&[setting]).map(Some),
                    None => Ok(None),
                },
            },
            _ => Ok(None),
        }
    }

    /// Does what RESET of one of our own settings, or of all, says; `None` for all else.
    pub(super) fn reset(
        &self,
        ResetStatement::Variable(name): &ResetStatement,
    ) -> Result<Option<Started>> {
        let all = name.to_string().eq_ignore_ascii_case("all");
        let reset: Vec<_> = match all {
            true => SETTINGS.iter().collect(),
            false => match named(name)? {
                Some(setting) => vec![setting],
                None => return Ok(None),
            },
        };
        for setting in reset {
            self.set(setting, &setting.get(&self.defaults))?;
        }
        Ok(Some(Started::Done))
    }

    fn set(&self, setting: &Setting, value: &str) -> Result<()> {
        let mut settings = locked(&self.settings);
        let mut changed = settings.clone();
        setting.set(&mut changed, value).map_err(|error| Error::argument(setting.name, error))?;
        if changed == *settings {
            return Ok(());
        }
        self.apply(&settings, &changed)?;
        *settings = changed;
        Ok(())
    }

    /// Hands new values to DataFusion's state.
    fn apply(&self, old: &Settings, new: &Settings) -> Result<()> {
        let state = self.context.state_ref();
        let mut state = state.write();
        new.apply(state.config_mut().options_mut());
        state.config_mut().set_extension(Arc::new(new.clone()));
        drop(state);
        self.forget_state();
        if old.memory_limits() != new.memory_limits() {
            self.shared.budget.set_limits(new.memory_limits());
            self.shared.turns.set_limit(new.memory_limit_bytes);
        }
        self.shared.disk.set_rate(new.io_bytes_per_second);
        self.shared.disk.set_ahead(new.ahead_bytes_max(), new.ahead_pages);
        self.shared.disk.set_threshold(new.disk_threshold_percent);
        self.shared.eviction.set_thresholds(new.thresholds());
        self.shared.cache.set_limits(new.result_cache_limits());
        if old.result_cache_directory != new.result_cache_directory {
            self.shared.cache.set_directory(new.result_cache_directory());
        }
        if !new.strategies_are_measured {
            self.shared.strategies.forget();
        }
        self.shared.columns.set_limits(new.parquet_cache_limits());
        if (old.gpu, old.gpu_keeps) != (new.gpu, new.gpu_keeps) {
            kept::forget();
        }
        if (old.gpu, old.gpu_must_not_fail) != (new.gpu, new.gpu_must_not_fail) {
            falls::forget();
        }
        for device in gpu::found() {
            if old.gpu_memory_limit() != new.gpu_memory_limit() {
                device.set_memory_limit(new.gpu_memory_limit());
            }
            if new.gpu == Gpu::Off {
                // What it keeps for the next; where it fails, it is lost and has nothing.
                let _ = device.trim();
            }
        }
        if old.temp_directories != new.temp_directories {
            self.shared.disk.set_directories(new.temp_directories.clone());
        }
        if old.pool_limits() != new.pool_limits() {
            self.shared.blocks.set_limits(new.pool_limits());
        }
        Ok(())
    }

    fn show(&self, shown: &[&Setting]) -> Result<Started> {
        let settings = locked(&self.settings);
        let rows = shown.iter().map(|setting| Row {
            name: setting.name.to_owned(),
            value: Some(setting.get(&settings)),
            unit: setting.unit,
            description: setting.description.to_owned(),
        });
        table(rows.collect())
    }

    /// Ours first, then DataFusion's.
    fn show_all(&self) -> Result<Started> {
        let settings = locked(&self.settings);
        let ours = SETTINGS.iter().map(|setting| Row {
            name: setting.name.to_owned(),
            value: Some(setting.get(&settings)),
            unit: setting.unit,
            description: setting.description.to_owned(),
        });
        let state = self.context.state();
        let mut theirs = state.config_options().entries();
        theirs.sort_by(|a, b| a.key.cmp(&b.key));
        let theirs = theirs.into_iter().map(|entry| Row {
            name: entry.key,
            value: entry.value,
            unit: "",
            description: entry.description.to_owned(),
        });
        table(ours.chain(theirs).collect())
    }
}

/// A setting, or a figure, as SHOW shows it.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) value: Option<String>,
    pub(super) unit: &'static str,
    pub(super) description: String,
}

pub(super) fn table(rows: Vec<Row>) -> Result<Started> {
    let column = |text: fn(&Row) -> Option<&str>| {
        Arc::new(rows.iter().map(text).collect::<StringArray>()) as _
    };
    let batch = RecordBatch::try_from_iter([
        ("name", column(|row| Some(&row.name))),
        ("value", column(|row| row.value.as_deref())),
        ("unit", column(|row| Some(row.unit))),
        ("description", column(|row| Some(&row.description))),
    ])?;
    Ok(Started::Rows(ResultStream::of(batch.schema(), vec![batch])))
}

/// The setting of ours that is named; a name with dots is one of DataFusion's, as the time zone is.
///
/// # Errors
/// [`ErrorKind::Unknown`].
fn named(name: &ObjectName) -> Result<Option<&'static Setting>> {
    let [part] = name.0.as_slice() else { return Ok(None) };
    let Some(ident) = part.as_ident() else { return Ok(None) };
    match Setting::named(&ident.value) {
        None if !ident.value.eq_ignore_ascii_case(TIME_ZONE) => {
            let (name, hint) = (ident.value.clone(), "; SHOW ALL lists them".to_owned());
            let unknown = Error::from(ErrorKind::Unknown { what: "setting", name, hint });
            Err(unknown.at(sql::place_of_name(ident)))
        }
        setting => Ok(setting),
    }
}

/// Whether a value is the word DEFAULT, which means what RESET does.
fn is_default(value: &Expr) -> bool {
    matches!(value, Expr::Identifier(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default"))
}

/// The value of SET as text, without quotes.
fn text(value: &Expr) -> String {
    match value {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => text.clone(),
        Expr::Value(ValueWithSpan { value: Value::DoubleQuotedString(text), .. }) => text.clone(),
        Expr::Identifier(name) => name.value.clone(),
        other => other.to_string(),
    }
}
