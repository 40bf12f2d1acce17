//! What one statement sees: one version of each table, whatever others do meanwhile.
//!
//! DataFusion asks for tables by name. Its questions end here, in this order: temporary names, names of
//! the database, files. An answer is kept, so that every mention of a table reads the same version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::config::ConfigOptions;
use datafusion::datasource::ViewTable;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::planner::RelationPlanner;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::optimizer::Analyzer;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::sql::parser::Statement as SqlStatement;
use sqlparser::ast::ObjectName;

use super::reads::{Content, Growth, Reads};
use super::{CATALOG, Catalog, Entry, IfTaken, SCHEMA, Source, TableName, View, files};
use crate::error::{Error, Result};
use crate::storage::{MemoryTable, Snapshot};

/// Ends the name of a table whose rows are wanted with their numbers; see `planner::modify`.
pub(crate) const ROW_NUMBERS: &str = " (rows)";

/// What a name stands for in one statement.
#[derive(Debug, Clone)]
struct Seen {
    table: Arc<dyn TableProvider>,
    content: Content,
}

/// The names of one statement.
#[derive(Debug)]
pub(crate) struct Scope {
    database: Arc<Catalog>,
    temporary: Arc<Catalog>,
    /// The session's, which knows nothing of this scope.
    session: Arc<SessionState>,
    /// When the statement began, for all of its plans.
    began: ExecutionProps,
    seen: Mutex<HashMap<TableName, Seen>>,
    /// What else was read, that is no table.
    others: Mutex<Reads>,
    /// The views that are being planned, one within the other.
    expanding: Mutex<Vec<TableName>>,
}

impl Scope {
    /// A scope in which nothing has been looked up, of a statement that begins now.
    pub(crate) fn new(
        database: Arc<Catalog>,
        temporary: Arc<Catalog>,
        session: Arc<SessionState>,
    ) -> Arc<Self> {
        let (seen, others, expanding) = Default::default();
        let mut began = session.execution_props().clone();
        began.mark_start_execution(Arc::clone(session.config().options()));
        Arc::new(Self { database, temporary, session, began, seen, others, expanding })
    }

    /// The session's state, for whoever asks for no names.
    pub(crate) fn session(&self) -> &Arc<SessionState> {
        &self.session
    }

    /// The session's state with this scope as its catalog.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn state(self: &Arc<Self>) -> Result<SessionState> {
        self.state_with(None)
    }

    /// The same, for a statement whose FROM clauses have more in them than names.
    fn state_with(
        self: &Arc<Self>,
        relations: Option<Arc<dyn RelationPlanner>>,
    ) -> Result<SessionState> {
        let mut state = SessionState::clone(&self.session);
        *state.execution_props_mut() = self.began.clone();
        if let Some(relations) = &relations {
            state.register_relation_planner(Arc::clone(relations))?;
        }
        state.register_catalog_list(Arc::new(Names { scope: Arc::clone(self), relations }));
        Ok(state)
    }

    /// What DataFusion's planner makes of a statement's syntax, and of the views in it.
    ///
    /// # Errors
    /// Whatever keeps the statement from being planned.
    pub(crate) async fn plan(
        self: &Arc<Self>,
        syntax: SqlStatement,
        relations: Arc<dyn RelationPlanner>,
    ) -> Result<LogicalPlan> {
        let planned = self.state_with(Some(relations))?.statement_to_plan(syntax).await;
        planned.map_err(|error| plain_names(error).into())
    }

    /// The catalog that a name without more belongs to: that of temporary names where it is one.
    pub(crate) fn owner(&self, name: &TableName) -> &Catalog {
        let temporary = name.schema == SCHEMA && self.temporary.table(name).is_some();
        if temporary { &self.temporary } else { &self.database }
    }

    /// The catalog for new names.
    pub(crate) fn catalog(&self, temporary: bool) -> &Catalog {
        if temporary { &self.temporary } else { &self.database }
    }

    pub(crate) fn entry(&self, name: &TableName) -> Option<Entry> {
        self.owner(name).table(name)
    }

    /// The table of our own under this name.
    ///
    /// # Errors
    /// Where there is none, or it is a view or a table of someone else's.
    pub(crate) fn memory_table(&self, name: &TableName) -> Result<Arc<MemoryTable>> {
        match self.entry(name) {
            Some(Entry::Table(table)) => Ok(table),
            Some(other) => {
                let message = format!("{} '{name}' cannot be written to", other.kind());
                Err(Error::unsupported(message))
            }
            None => Err(super::unknown("table", &name.to_string())),
        }
    }

    /// The columns of the declared PRIMARY KEY of a table, which label the rows of a matrix.
    pub(crate) fn primary_key(&self, name: &ObjectName) -> Option<Vec<String>> {
        let Some(Entry::Table(table)) = self.entry(&TableName::new(name).ok()?) else {
            return None;
        };
        let name = |&column: &usize| table.schema().field(column).name().clone();
        Some(table.primary_key()?.iter().map(name).collect())
    }

    /// What a name stands for, be it a table, a view or a file.
    ///
    /// # Errors
    /// Where it stands for nothing, or for what cannot be opened.
    pub(crate) async fn relation(
        self: &Arc<Self>,
        name: &TableName,
    ) -> Result<Arc<dyn TableProvider>> {
        let table = self.table(name.clone(), &None).await?;
        table.ok_or_else(|| super::unknown("table", &name.to_string()))
    }

    /// The columns of tables, of those that can be opened.
    pub(crate) async fn columns(
        self: &Arc<Self>,
        names: Vec<ObjectName>,
    ) -> HashMap<String, Vec<String>> {
        let mut known = HashMap::new();
        for name in names {
            let Ok(table) = TableName::new(&name) else { continue };
            if let Ok(Some(table)) = self.table(table, &None).await {
                let schema = table.schema();
                let columns = schema.fields().iter().map(|field| field.name().clone()).collect();
                known.insert(name.to_string(), columns);
            }
        }
        known
    }

    /// The version of a table that this statement reads.
    pub(crate) fn snapshot(&self, name: &TableName) -> Result<Snapshot> {
        let table = self.memory_table(name)?;
        let mut seen = self.seen();
        let known = seen.get(name).and_then(|seen| seen.table.downcast_ref::<Snapshot>());
        if let Some(snapshot) = known {
            return Ok(snapshot.clone());
        }
        let snapshot = Snapshot::new(table);
        let content = Content::Rows(Source::of_table(&snapshot));
        seen.insert(name.clone(), Seen { table: Arc::new(snapshot.clone()), content });
        Ok(snapshot)
    }

    /// Takes note of a matrix that the statement reads; no other one has its number.
    pub(crate) fn read_matrix(&self, name: &str, id: u64) {
        self.others().add_matrix(name, id);
    }

    /// Takes note that the statement computes something that comes out otherwise each time.
    pub(crate) fn computes_changes(&self) {
        self.others().add_change();
    }

    /// What the statement has read until now; nothing where some of it would be read otherwise the next time, or might.
    pub(crate) fn reads(&self) -> Option<Reads> {
        let mut reads = self.others().clone();
        let seen = self.seen();
        reads.tables.extend(seen.iter().map(|(name, seen)| (name.clone(), seen.content.clone())));
        reads.repeatable()
    }

    /// Reads what another statement has read, in the versions that this one sees: tables by their numbers. Nothing where a
    /// name stands for something else than that table or that view, or for files that are not as they were.
    pub(crate) fn read_again(&self, reads: &Reads) -> Option<HashMap<u64, Snapshot>> {
        let mut tables = HashMap::new();
        for (name, content) in &reads.tables {
            match (content, self.entry(name)) {
                (Content::Rows(Source::Version { table, .. }), Some(Entry::Table(now)))
                    if *table == now.id() =>
                {
                    tables.insert(*table, self.snapshot(name).ok()?);
                }
                _ if self.content(name).is_same(content) => self.others().add(name, content),
                _ => return None,
            }
        }
        Some(tables)
    }

    /// The tables in memory that another statement has read, by their numbers, in the versions that this one sees; nothing where one
    /// is another table by now. Nothing is noted as read but these.
    pub(crate) fn tables(&self, reads: &Reads) -> Option<HashMap<u64, Snapshot>> {
        let read = reads.tables.iter().filter_map(|(name, content)| match content {
            Content::Rows(Source::Version { table, .. }) => Some((name, *table)),
            _ => None,
        });
        let seen = |(name, table)| {
            let snapshot = self.snapshot(name).ok()?;
            (snapshot.table().id() == table).then_some((table, snapshot))
        };
        read.map(seen).collect()
    }

    /// Reads what another statement has read, which is there as it was: tables by their numbers.
    ///
    /// # Errors
    /// Where a table has gone in between.
    pub(crate) fn reads_the_same(&self, reads: &Reads) -> Result<HashMap<u64, Snapshot>> {
        let mut tables = HashMap::new();
        let mut others = reads.clone();
        others.tables.clear();
        for (name, content) in &reads.tables {
            match content {
                Content::Rows(Source::Version { table, .. }) => {
                    tables.insert(*table, self.snapshot(name)?);
                }
                other => others.tables.push((name.clone(), other.clone())),
            }
        }
        *self.others() = others;
        Ok(tables)
    }

    /// What is read under the names that another process has read, where each of them stands for the same ([`Reads::lasting`]).
    pub(crate) fn reads_what_lasts(&self, names: &[(String, String)]) -> Option<Reads> {
        let mut reads = Reads::default();
        for (text, _) in names {
            let name = Reads::lasting_name(text)?;
            let content = self.content(&name);
            reads.tables.push((name, content));
        }
        (reads.lasting()? == names).then_some(reads)
    }

    /// Whether the names of tables stand for what another statement has read under them.
    pub(crate) fn is_current(&self, reads: &Reads) -> bool {
        reads.tables.iter().all(|(name, content)| self.content(name).is_same(content))
    }

    /// What a name of a table stands for now.
    fn content(&self, name: &TableName) -> Content {
        match self.entry(name) {
            Some(Entry::Table(table)) => Content::Rows(Source::of_table(&Snapshot::new(table))),
            Some(Entry::View(view)) => Content::View(view),
            Some(Entry::Foreign(table)) => Content::of_foreign(table),
            None => files::content(&name.table),
        }
    }

    /// The tables that have got rows since another statement has read them, as this statement sees them; nothing where
    /// anything else is not as that one has read it.
    pub(crate) fn growth(&self, reads: &Reads) -> Option<Vec<Growth>> {
        let seen = self.seen();
        let mut growth = Vec::new();
        for (name, content) in &reads.tables {
            let now = seen.get(name)?;
            if now.content.is_same(content) {
                continue;
            }
            growth.push(Growth::since(content, now.table.downcast_ref::<Snapshot>()?)?);
        }
        Some(growth)
    }

    fn others(&self) -> MutexGuard<'_, Reads> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<TableName, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of a name; `relations` is what views are planned with.
    async fn table(
        self: &Arc<Self>,
        name: TableName,
        relations: &Option<Arc<dyn RelationPlanner>>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = name.table.strip_suffix(ROW_NUMBERS) {
            let name = TableName { table: table.to_owned(), ..name };
            return Ok(Some(Arc::new(self.snapshot(&name)?.with_row_numbers())));
        }
        if self.expanding().contains(&name) {
            return Err(Error::argument(format!("view '{name}'"), "it is defined by itself"));
        }
        if let Some(seen) = self.seen().get(&name) {
            return Ok(Some(Arc::clone(&seen.table)));
        }
        let (table, content) = match self.entry(&name) {
            Some(Entry::Table(_)) => return Ok(Some(Arc::new(self.snapshot(&name)?))),
            Some(Entry::Foreign(table)) => (Arc::clone(&table), Content::of_foreign(table)),
            Some(Entry::View(view)) => {
                (self.view(&name, &view, relations).await?, Content::View(view))
            }
            None => {
                // Looked at before anything of them is read: if they change meanwhile, that shows.
                let content = files::content(&name.table);
                match files::open(&name.table, &self.session).await? {
                    Some(table) => (table, content),
                    None => return Ok(None),
                }
            }
        };
        self.seen().insert(name, Seen { table: Arc::clone(&table), content });
        Ok(Some(table))
    }

    /// From here on a statement defines this view, which therefore cannot be read.
    pub(crate) fn begin_view(&self, name: &TableName) {
        self.expanding().push(name.clone());
    }

    fn expanding(&self) -> MutexGuard<'_, Vec<TableName>> {
        self.expanding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn view(
        self: &Arc<Self>,
        name: &TableName,
        view: &View,
        relations: &Option<Arc<dyn RelationPlanner>>,
    ) -> Result<Arc<dyn TableProvider>> {
        let state = self.state_with(relations.clone())?;
        self.expanding().push(name.clone());
        let planned = state.statement_to_plan(view.syntax.clone()).await;
        self.expanding().pop();
        let LogicalPlan::Ddl(DdlStatement::CreateView(create)) = planned? else {
            return Err(Error::argument(format!("view '{name}'"), "it is not a query"));
        };
        // The types of a view's columns are those after coercion, as where UNION mixes two.
        let coercion = Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]);
        let plan = coercion.execute_and_check(
            Arc::unwrap_or_clone(create.input),
            &ConfigOptions::default(),
            |_, _| (),
        )?;
        Ok(Arc::new(ViewTable::new(plan, Some(view.text.clone()))))
    }
}

/// Says `t` where DataFusion says `relatrix.main.t`, which nobody wrote.
fn plain_names(error: DataFusionError) -> DataFusionError {
    match error {
        DataFusionError::Plan(message) => {
            DataFusionError::Plan(message.replace(&format!("{CATALOG}.{SCHEMA}."), ""))
        }
        DataFusionError::Diagnostic(found, inner) => {
            DataFusionError::Diagnostic(found, Box::new(plain_names(*inner)))
        }
        other => other,
    }
}

/// A scope as DataFusion's list of catalogs, of which there is one.
#[derive(Debug, Clone)]
struct Names {
    scope: Arc<Scope>,
    /// What views are planned with.
    relations: Option<Arc<dyn RelationPlanner>>,
}

impl CatalogProviderList for Names {
    fn register_catalog(
        &self,
        _name: String,
        _catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(Schemas(self.clone())) as _)
    }
}

#[derive(Debug)]
struct Schemas(Names);

impl CatalogProvider for Schemas {
    fn schema_names(&self) -> Vec<String> {
        self.0.scope.database.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let known = self.schema_names().iter().any(|schema| schema == name);
        let tables = || Tables { names: self.0.clone(), schema: name.to_owned() };
        known.then(|| Arc::new(tables()) as _)
    }
}

#[derive(Debug)]
struct Tables {
    names: Names,
    schema: String,
}

impl Tables {
    fn name(&self, table: &str) -> TableName {
        TableName { schema: self.schema.clone(), table: table.to_owned() }
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.names.scope.database.table_names(&self.schema);
        if self.schema == SCHEMA {
            names.extend(self.names.scope.temporary.table_names(SCHEMA));
            names.sort();
            names.dedup();
        }
        names
    }

    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        Ok(self.names.scope.table(self.name(name), &self.names.relations).await?)
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        let name = self.name(&name);
        self.names.scope.database.create_table(&name, Entry::Foreign(table), IfTaken::Fail)?;
        Ok(None)
    }

    fn deregister_table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        let dropped = self.names.scope.database.drop_table(&self.name(name));
        Ok(dropped.and_then(|entry| match entry {
            Entry::Foreign(table) => Some(table),
            Entry::Table(_) | Entry::View(_) => None,
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.names.scope.entry(&self.name(name)).is_some()
    }
}
