//! ANALYZE: reads all rows of a table once, and keeps what plans are chosen by.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::execute_stream;
use futures::TryStreamExt;
use sqlparser::ast::ObjectName;

use super::Session;
use crate::catalog::{Entry, Scope, TableName};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::{Cancel, blocking};
use crate::memory::task;
use crate::planner::{Analysis, ordered};

impl Session {
    /// ANALYZE of a table, or of all that have a name.
    ///
    /// # Errors
    /// Where the name is unknown or that of a view, nobody would know that its rows have changed, they did while they were
    /// read, or they cannot be read.
    pub(super) async fn analyze(&self, name: Option<&ObjectName>) -> Result<()> {
        let scope = self.scope();
        if let Some(name) = name {
            let name = TableName::new(name)?;
            if let Some(Entry::View(_)) = scope.entry(&name) {
                let message = "it has no rows of its own; ANALYZE the tables that it reads";
                return Err(Error::argument(format!("view '{name}'"), message));
            }
            let table = scope.relation(&name).await?;
            return match Analysis::of(table.as_ref()) {
                Some(analysis) => self.read(&scope, &name, table, analysis).await,
                None => {
                    let message = "nothing would tell when its rows change; copy them INTO a table";
                    Err(Error::argument(format!("table '{name}'"), message))
                }
            };
        }
        for name in self.tables() {
            let table = scope.relation(&name).await?;
            if let Some(analysis) = Analysis::of(table.as_ref()) {
                self.read(&scope, &name, table, analysis).await?;
            }
        }
        Ok(())
    }

    /// The names of all tables that are no views.
    fn tables(&self) -> BTreeSet<TableName> {
        let mut tables = BTreeSet::new();
        for catalog in [&self.shared.catalog, &self.temporary] {
            for schema in catalog.schema_names() {
                for table in catalog.table_names(&schema) {
                    let name = TableName { schema: schema.clone(), table };
                    match catalog.table(&name) {
                        Some(Entry::Table(_) | Entry::Foreign(_)) => _ = tables.insert(name),
                        Some(Entry::View(_)) | None => {}
                    }
                }
            }
        }
        tables
    }

    /// Reads the rows of a table in the order in which they are stored, for what is kept must not depend on threads.
    async fn read(
        &self,
        scope: &Arc<Scope>,
        name: &TableName,
        table: Arc<dyn TableProvider>,
        mut analysis: Analysis,
    ) -> Result<()> {
        let state = ordered::serial(&scope.state()?);
        let source = provider_as_source(Arc::clone(&table));
        let plan = LogicalPlanBuilder::scan(name.table.as_str(), source, None)?.build()?;
        let plan = state.create_physical_plan(&plan).await?;
        let context = task(&state);
        let memory = MemoryConsumer::new("ANALYZE").register(context.memory_pool());
        memory.try_grow(analysis.bytes())?;
        let mut rows = execute_stream(plan, context)?;
        while let Some(batch) = rows.try_next().await? {
            let engine = Arc::clone(&self.shared.engine);
            let look = move || {
                engine.pool.install(|| analysis.look(&batch));
                Ok(analysis)
            };
            analysis = blocking(Cancel::default(), look).await?;
        }
        if !analysis.is_of(table.as_ref()) {
            let message = "it changed while it was read; ANALYZE it again".to_owned();
            return Err(ErrorKind::File { path: name.to_string(), message }.into());
        }
        self.shared.statistics.keep(analysis);
        Ok(())
    }
}
