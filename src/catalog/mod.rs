//! Names, and what they stand for: tables, views (kept as their syntax), indexes.
//!
//! Enters: names as written. Leaves: tables for DataFusion, through the [`Scope`] of one statement. A
//! database has one [`Catalog`]; each connection has another for what is temporary, which comes first.
//! Files are read by [`LocalFiles`]. Not here: rows (`storage`), matrices (`matrices`), plans.

mod files;
mod local;
mod reads;
mod scope;
mod versions;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::sql::parser::Statement as SqlStatement;
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

pub(crate) use files::{Format, check_local, format_of};
pub(crate) use local::LocalFiles;
pub(crate) use reads::{Growth, Reads};
pub(crate) use scope::{ROW_NUMBERS, Scope};
pub(crate) use versions::{Source, Stamp};

use crate::error::{Error, ErrorKind, Result};
use crate::storage::MemoryTable;

/// The only catalog, in the sense of `catalog.schema.table`.
pub(crate) const CATALOG: &str = "relatrix";
/// The schema of names without one.
pub(crate) const SCHEMA: &str = "main";

/// A table's name with its schema.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TableName {
    pub(crate) schema: String,
    pub(crate) table: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.schema.as_str() {
            SCHEMA => f.write_str(&self.table),
            schema => write!(f, "{schema}.{}", self.table),
        }
    }
}

impl From<&TableReference> for TableName {
    fn from(name: &TableReference) -> Self {
        let schema = name.schema().unwrap_or(SCHEMA).to_owned();
        Self { schema, table: name.table().to_owned() }
    }
}

impl TableName {
    /// The name as written, in lower case where it is not quoted.
    ///
    /// # Errors
    /// Where it has more than three parts, or the first of three is not this catalog.
    pub(crate) fn new(name: &ObjectName) -> Result<Self> {
        let parts: Option<Vec<String>> = name.0.iter().map(part).collect();
        match parts.as_deref() {
            Some([table]) => Ok(Self { schema: SCHEMA.to_owned(), table: table.clone() }),
            Some([schema, table]) => Ok(Self { schema: schema.clone(), table: table.clone() }),
            Some([catalog, schema, table]) if catalog == CATALOG => {
                Ok(Self { schema: schema.clone(), table: table.clone() })
            }
            _ => Err(unknown("table", &name.to_string())),
        }
    }
}

fn part(part: &ObjectNamePart) -> Option<String> {
    part.as_ident().map(normalized)
}

/// An identifier as the catalog spells it.
pub(crate) fn normalized(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

pub(crate) fn unknown(what: &'static str, name: &str) -> Error {
    ErrorKind::Unknown { what, name: name.to_owned(), hint: String::new() }.into()
}

/// What a table's name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    /// Rows of our own.
    Table(Arc<MemoryTable>),
    /// A query, planned anew by each statement that names it, so that it sees the tables of that time.
    View(Arc<View>),
    /// A table of someone else's.
    Foreign(Arc<dyn TableProvider>),
}

impl Entry {
    /// What it is called in a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Entry::View(_) => "view",
            Entry::Table(_) | Entry::Foreign(_) => "table",
        }
    }
}

/// `CREATE VIEW`, as parsed and as written.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) syntax: SqlStatement,
    pub(crate) text: String,
}

/// What to do where a name to be made is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfTaken {
    Fail,
    Keep,
    Replace,
}

impl IfTaken {
    /// From `OR REPLACE` and `IF NOT EXISTS`.
    pub(crate) fn new(or_replace: bool, if_not_exists: bool) -> Result<Self> {
        match (or_replace, if_not_exists) {
            (false, false) => Ok(IfTaken::Fail),
            (false, true) => Ok(IfTaken::Keep),
            (true, false) => Ok(IfTaken::Replace),
            (true, true) => Err(Error::syntax("OR REPLACE contradicts IF NOT EXISTS")),
        }
    }
}

/// All names of a database, or the temporary ones of a connection.
#[derive(Debug)]
pub(crate) struct Catalog(RwLock<Contents>);

#[derive(Debug)]
struct Contents {
    schemas: BTreeMap<String, BTreeMap<String, Entry>>,
    /// Index names, each with its table.
    indexes: BTreeMap<String, TableName>,
}

impl Default for Catalog {
    fn default() -> Self {
        let schemas = BTreeMap::from([(SCHEMA.to_owned(), BTreeMap::new())]);
        Self(RwLock::new(Contents { schemas, indexes: BTreeMap::new() }))
    }
}

impl Catalog {
    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        // Every change is a single insertion or removal, so a panic leaves nothing half done.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn table(&self, name: &TableName) -> Option<Entry> {
        self.read().schemas.get(&name.schema)?.get(&name.table).cloned()
    }

    /// The names of a schema, sorted.
    pub(crate) fn table_names(&self, schema: &str) -> Vec<String> {
        self.read().schemas.get(schema).map_or_else(Vec::new, |all| all.keys().cloned().collect())
    }

    /// Gives a name to a table; false where the name is kept as it was.
    pub(crate) fn create_table(
        &self,
        name: &TableName,
        entry: Entry,
        if_taken: IfTaken,
    ) -> Result<bool> {
        if name.table.ends_with(ROW_NUMBERS) {
            let message = format!("a name cannot end with '{ROW_NUMBERS}'");
            return Err(Error::argument(format!("table '{name}'"), message));
        }
        let mut contents = self.write();
        let Contents { schemas, indexes, .. } = &mut *contents;
        let schema =
            schemas.get_mut(&name.schema).ok_or_else(|| unknown("schema", &name.schema))?;
        match (schema.get(&name.table), if_taken) {
            (Some(_), IfTaken::Keep) => return Ok(false),
            (Some(old), IfTaken::Fail) => return Err(exists(old.kind(), &name.table)),
            (Some(old), IfTaken::Replace) if old.kind() != entry.kind() => {
                return Err(exists(old.kind(), &name.table));
            }
            (Some(_), IfTaken::Replace) => indexes.retain(|_, table| table != name),
            (None, _) => (),
        }
        schema.insert(name.table.clone(), entry);
        Ok(true)
    }

    /// Takes a table's name away, and those of its indexes.
    pub(crate) fn drop_table(&self, name: &TableName) -> Option<Entry> {
        let mut contents = self.write();
        let entry = contents.schemas.get_mut(&name.schema)?.remove(&name.table)?;
        contents.indexes.retain(|_, table| table != name);
        Some(entry)
    }

    pub(crate) fn schema_names(&self) -> Vec<String> {
        self.read().schemas.keys().cloned().collect()
    }

    pub(crate) fn create_schema(&self, name: &str, if_taken: IfTaken) -> Result<()> {
        let mut contents = self.write();
        match (contents.schemas.contains_key(name), if_taken) {
            (true, IfTaken::Keep) => Ok(()),
            (true, _) => Err(exists("schema", name)),
            (false, _) => {
                contents.schemas.insert(name.to_owned(), BTreeMap::new());
                Ok(())
            }
        }
    }

    /// Drops a schema, with its tables only where `cascade` says so.
    pub(crate) fn drop_schema(&self, name: &str, if_exists: bool, cascade: bool) -> Result<()> {
        let mut contents = self.write();
        match contents.schemas.get(name) {
            None if if_exists => Ok(()),
            None => Err(unknown("schema", name)),
            Some(_) if name == SCHEMA => {
                Err(Error::unsupported(format!("schema '{SCHEMA}' cannot be dropped")))
            }
            Some(tables) if !tables.is_empty() && !cascade => {
                let message = "is not empty; CASCADE drops its tables too";
                Err(Error::argument(format!("schema '{name}'"), message))
            }
            Some(_) => {
                contents.schemas.remove(name);
                contents.indexes.retain(|_, table| table.schema != name);
                Ok(())
            }
        }
    }

    /// Records an index; false where the name is kept as it was.
    pub(crate) fn create_index(
        &self,
        name: &str,
        table: TableName,
        if_taken: IfTaken,
    ) -> Result<bool> {
        let mut contents = self.write();
        if contents.indexes.contains_key(name) {
            return if if_taken == IfTaken::Keep { Ok(false) } else { Err(exists("index", name)) };
        }
        contents.indexes.insert(name.to_owned(), table);
        Ok(true)
    }

    /// Forgets an index and lifts what it demanded of its table.
    pub(crate) fn drop_index(&self, name: &str) -> bool {
        let Some(table) = self.write().indexes.remove(name) else { return false };
        if let Some(Entry::Table(table)) = self.table(&table) {
            table.drop_index(name);
        }
        true
    }
}

pub(crate) fn exists(what: &'static str, name: &str) -> Error {
    ErrorKind::Exists { what, name: name.to_owned() }.into()
}
