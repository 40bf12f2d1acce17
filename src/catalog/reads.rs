//! What one statement has read, by the names it has for it: whoever finds the same under these names would read the same.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::listing::ListingTable;

use super::{Source, TableName, View};
use crate::storage::Snapshot;

/// Between the parts of a name that another process reads: no path has it.
const BETWEEN: char = '\0';

/// What a name stood for.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// Rows that stay as they are.
    Rows(Source),
    /// A table of someone else's over files.
    Foreign(Arc<dyn TableProvider>, Source),
    /// A query, whose own names were read too.
    View(Arc<View>),
    /// Rows that may be others the next time, and nothing would tell.
    Unknown,
}

impl Content {
    /// What a table of someone else's has now.
    pub(super) fn of_foreign(table: Arc<dyn TableProvider>) -> Self {
        let files = table.downcast_ref::<ListingTable>();
        let source = files.and_then(|files| Source::of_files(files.table_paths()));
        match source.filter(Source::is_settled) {
            Some(source) => Self::Foreign(table, source),
            None => Self::Unknown,
        }
    }

    /// Whether both are the same rows, as far as can be told.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rows(one), Self::Rows(other)) => one == other,
            (Self::Foreign(one, of), Self::Foreign(other, than)) => {
                Arc::ptr_eq(one, other) && of == than
            }
            (Self::View(one), Self::View(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// A table that has got rows since some of it was read, and lost none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Its number.
    pub(crate) table: u64,
    /// How many rows there were.
    pub(crate) rows: usize,
}

impl Growth {
    /// What has come to a table since this was read of it; nothing where other things have happened.
    pub(super) fn since(read: &Content, now: &Snapshot) -> Option<Self> {
        let Content::Rows(Source::Version { table, number, rows }) = *read else { return None };
        let versions = now.grown_since()..now.version();
        let has_grown = table == now.table().id() && versions.contains(&number);
        has_grown.then_some(Self { table, rows })
    }
}

/// All that a statement has read, where each of it can be found again; see [`Scope::reads`](super::Scope::reads).
#[derive(Debug, Clone, Default)]
pub(crate) struct Reads {
    pub(super) tables: Vec<(TableName, Content)>,
    /// Matrices by name, each with a number that no other one has.
    matrices: Vec<(String, u64)>,
    /// Whether something was computed that comes out otherwise each time.
    changes: bool,
}

impl Reads {
    pub(super) fn add_matrix(&mut self, name: &str, id: u64) {
        if !self.matrices.iter().any(|(known, of)| (known.as_str(), *of) == (name, id)) {
            self.matrices.push((name.to_owned(), id));
        }
    }

    /// What was read under a name, if nobody has looked that up.
    pub(super) fn add(&mut self, name: &TableName, content: &Content) {
        self.tables.push((name.clone(), content.clone()));
    }

    pub(super) fn add_change(&mut self) {
        self.changes = true;
    }

    /// The rows that were read under a name.
    pub(crate) fn source(&self, name: &TableName) -> Option<&Source> {
        let (_, content) = self.tables.iter().find(|(known, _)| known == name)?;
        match content {
            Content::Rows(source) | Content::Foreign(_, source) => Some(source),
            Content::View(_) | Content::Unknown => None,
        }
    }

    /// What was read under these names; nothing where one of them is not among those that were read, for whoever knew less than
    /// all would take for current what is not.
    pub(crate) fn only(&self, names: Vec<TableName>) -> Option<Self> {
        let read = |name: TableName| self.tables.iter().find(|(known, _)| *known == name).cloned();
        let tables = names.into_iter().map(read).collect::<Option<_>>()?;
        Some(Self { tables, ..Self::default() })
    }

    /// What was read, each by its name and as it was, where another process may find the same: files, and views over such. Nothing
    /// where anything else was read.
    pub(crate) fn lasting(&self) -> Option<Vec<(String, String)>> {
        let lasts = |(name, content): &(TableName, Content)| {
            let is = match content {
                Content::Rows(source @ Source::Files(_)) => format!("{source:?}"),
                Content::View(view) => view.text.clone(),
                _ => return None,
            };
            Some((format!("{}{BETWEEN}{}", name.schema, name.table), is))
        };
        let others = self.changes || !self.matrices.is_empty();
        self.tables.iter().map(lasts).collect::<Option<_>>().filter(|_| !others)
    }

    /// The name of something that lasts.
    pub(super) fn lasting_name(text: &str) -> Option<TableName> {
        let (schema, table) = text.split_once(BETWEEN)?;
        Some(TableName { schema: schema.to_owned(), table: table.to_owned() })
    }

    /// The matrices that were read, by name.
    pub(crate) fn matrices(&self) -> &[(String, u64)] {
        &self.matrices
    }

    /// The same, where each of it can be found again.
    pub(super) fn repeatable(self) -> Option<Self> {
        let is_known = |content: &Content| !matches!(content, Content::Unknown);
        let repeats = self.tables.iter().all(|(_, content)| is_known(content)) && !self.changes;
        repeats.then_some(self)
    }
}
