//! CREATE, DROP and TRUNCATE of tables, views, schemas and indexes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::Constraint;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{
    CreateIndex, CreateMemoryTable, DdlStatement, Expr as Planned, LogicalPlan,
};
use datafusion::physical_plan::{ExecutionPlan, execute_stream_partitioned};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as SqlStatement;
use futures::StreamExt;
use sqlparser::ast::{ObjectName, ObjectType, Statement, Truncate};

use super::{Session, Started, locked};
use crate::catalog::{Entry, IfTaken, Scope, TableName, View, check_local, exists, unknown};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Kept, task};
use crate::query::Running;
use crate::sql;
use crate::storage::{Batch, Key, MemoryTable, TableDefinition};
use crate::value::Parameters;

/// Takes TEMPORARY out of a CREATE TABLE, which DataFusion's planner would refuse.
pub(super) fn take_temporary(syntax: &mut SqlStatement) -> bool {
    let SqlStatement::Statement(statement) = syntax else { return false };
    match statement.as_mut() {
        Statement::CreateTable(create) => std::mem::take(&mut create.temporary),
        _ => false,
    }
}

impl Session {
    /// Does what CREATE VIEW, DROP, TRUNCATE and ALTER say; `None` for all else.
    pub(super) async fn define_by_syntax(
        &self,
        statement: &Statement,
        running: &Arc<Running>,
    ) -> Result<Option<Started>> {
        match statement {
            Statement::CreateView(create) => {
                let mut create = create.clone();
                let temporary = std::mem::take(&mut create.temporary);
                if create.materialized {
                    return Err(Error::unsupported(
                        "a materialized view is not supported; CREATE TABLE AS is",
                    ));
                }
                let if_taken = IfTaken::new(create.or_replace, create.if_not_exists)?;
                create.if_not_exists = false;
                let name = TableName::new(&create.name)?;
                let syntax = Statement::CreateView(create);
                let text = syntax.to_string();
                let mut kept = syntax.clone();
                sql::forget_places(&mut kept);
                let kept = SqlStatement::Statement(Box::new(kept));
                let syntax = SqlStatement::Statement(Box::new(syntax));
                let scope = self.scope();
                if if_taken != IfTaken::Keep {
                    scope.begin_view(&name);
                }
                let planned = self.plan(&scope, syntax, &Parameters::new(), running).await?;
                planned.inputs().iter().try_for_each(|input| check_names(input))?;
                let view = Entry::View(Arc::new(View { syntax: kept, text }));
                scope.catalog(temporary).create_table(&name, view, if_taken)?;
                Ok(Some(Started::Done))
            }
            Statement::Drop { object_type, if_exists, names, cascade, .. } => {
                for name in names {
                    self.drop_object(*object_type, name, *if_exists, *cascade)?;
                }
                Ok(Some(Started::Done))
            }
            Statement::Truncate(Truncate { table_names, .. }) => {
                let mut count = 0;
                for target in table_names {
                    let table = self.scope().memory_table(&TableName::new(&target.name)?)?;
                    let _turn = table.turn().await;
                    count += table.truncate();
                }
                Ok(Some(Started::Count(count)))
            }
            Statement::AlterTable(_) | Statement::AlterView { .. } => {
                Err(Error::unsupported("ALTER is not supported yet"))
            }
            _ => Ok(None),
        }
    }

    fn drop_object(
        &self,
        kind: ObjectType,
        name: &ObjectName,
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let what = match kind {
            ObjectType::Table => "table",
            ObjectType::View => "view",
            ObjectType::Schema => {
                let schema = TableName::new(name)?.table;
                return self.shared.catalog.drop_schema(&schema, if_exists, cascade);
            }
            ObjectType::Index => {
                let index = TableName::new(name)?.table;
                let dropped =
                    self.temporary.drop_index(&index) || self.shared.catalog.drop_index(&index);
                return if dropped || if_exists { Ok(()) } else { Err(unknown("index", &index)) };
            }
            other => return Err(Error::unsupported(format!("DROP {other} is not supported"))),
        };
        let name = TableName::new(name)?;
        let scope = self.scope();
        match scope.entry(&name) {
            None if if_exists => Ok(()),
            Some(entry) if entry.kind() == what => {
                scope.owner(&name).drop_table(&name);
                Ok(())
            }
            Some(entry) => {
                let message = format!("it is a {0}: DROP {0}", entry.kind());
                Err(Error::argument(format!("DROP {what} {name}"), message))
            }
            None => Err(unknown(what, &name.to_string())),
        }
    }

    /// Does what the plan of a definition says.
    pub(super) async fn define(
        &self,
        scope: &Arc<Scope>,
        definition: DdlStatement,
        temporary: bool,
    ) -> Result<Started> {
        match definition {
            DdlStatement::CreateMemoryTable(create) => {
                self.create_table(scope, create, temporary).await
            }
            DdlStatement::CreateIndex(create) => create_index(scope, create),
            DdlStatement::CreateCatalogSchema(create) => {
                let if_taken = IfTaken::new(false, create.if_not_exists)?;
                self.shared.catalog.create_schema(&create.schema_name, if_taken)?;
                Ok(Started::Done)
            }
            DdlStatement::CreateExternalTable(create) => {
                create.locations.iter().try_for_each(|location| check_local(location))?;
                let external = DdlStatement::CreateExternalTable(create);
                // Registers the files under their name through the scope.
                let context = SessionContext::new_with_state(scope.state()?);
                context.execute_logical_plan(LogicalPlan::Ddl(external)).await?;
                Ok(Started::Done)
            }
            DdlStatement::DropFunction(drop) => {
                let name = drop.name.clone();
                let drop = LogicalPlan::Ddl(DdlStatement::DropFunction(drop));
                self.context.execute_logical_plan(drop).await?;
                locked(&self.dropped_functions).insert(name);
                self.forget_state();
                Ok(Started::Done)
            }
            function @ DdlStatement::CreateFunction(_) => {
                // An error: nobody makes functions of text.
                self.context.execute_logical_plan(LogicalPlan::Ddl(function)).await?;
                Ok(Started::Done)
            }
            other => Err(Error::unsupported(format!("{} is not supported", other.name()))),
        }
    }

    async fn create_table(
        &self,
        scope: &Arc<Scope>,
        create: CreateMemoryTable,
        temporary: bool,
    ) -> Result<Started> {
        let name = TableName::from(&create.name);
        let if_taken = IfTaken::new(create.or_replace, create.if_not_exists)?;
        let catalog = scope.catalog(temporary);
        match (catalog.table(&name), if_taken) {
            (Some(_), IfTaken::Keep) => return Ok(Started::Done),
            (Some(taken), IfTaken::Fail) => {
                return Err(exists(taken.kind(), &name.table));
            }
            (Some(_), IfTaken::Replace) | (None, _) => (),
        }
        check_names(&create.input)?;
        let keys = create.constraints.iter().map(|constraint| match constraint {
            Constraint::PrimaryKey(columns) => {
                Key { index: None, columns: columns.clone(), primary: true }
            }
            Constraint::Unique(columns) => {
                Key { index: None, columns: columns.clone(), primary: false }
            }
        });
        let definition = TableDefinition {
            keys: keys.collect(),
            defaults: create.column_defaults.into_iter().collect(),
        };
        let pool = &scope.session().runtime_env().memory_pool;
        let kept = Arc::new(Mutex::new(Kept::new(format!("table {}", name.table), pool)));
        let (schema, rows) = match create.input.as_ref() {
            LogicalPlan::EmptyRelation(_) => (Arc::clone(create.input.schema().inner()), None),
            input => {
                let state = scope.state()?;
                let plan = state.create_physical_plan(input).await?;
                let schema = table_schema(&plan.schema());
                let rows = kept_rows(plan, task(&state), &schema, &kept).await?;
                (schema, Some(rows))
            }
        };
        let count =
            rows.as_ref().map(|rows| rows.iter().map(|batch| batch.num_rows() as u64).sum());
        let kept = Arc::into_inner(kept).and_then(|kept| kept.into_inner().ok());
        let kept =
            kept.ok_or_else(|| ErrorKind::Internal("rows are still being written".into()))?;
        let table = MemoryTable::new(&schema, definition, rows.unwrap_or_default(), kept)?;
        let table = Arc::new(table);
        self.shared.eviction.add(&table);
        catalog.create_table(&name, Entry::Table(table), if_taken)?;
        Ok(count.map_or(Started::Done, Started::Count))
    }
}

/// All rows of a plan under the schema of their table, kept as they come, in the order of the parts, which follow
/// one another.
async fn kept_rows(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    schema: &SchemaRef,
    kept: &Arc<Mutex<Kept>>,
) -> Result<Vec<Batch>> {
    let parts = execute_stream_partitioned(plan, context)?;
    let parts = parts.into_iter().map(|mut part| {
        let (schema, kept) = (Arc::clone(schema), Arc::clone(kept));
        SpawnedTask::spawn(async move {
            let mut rows = Vec::new();
            while let Some(batch) = part.next().await {
                let batch = Batch::new(&under(&schema, &batch?)?)?;
                rows.push(batch.kept(&mut locked(&kept)));
            }
            Ok::<_, Error>(rows)
        })
    });
    let parts: Vec<_> = parts.collect();
    let mut rows = Vec::new();
    for part in parts {
        let part = part.join().await.map_err(|error| ErrorKind::Internal(error.to_string()))?;
        rows.extend(part?);
    }
    Ok(rows)
}

/// The columns of a table that holds the rows of a query. What the query happens to have no NULL in may
/// still take one later; a column of NULLs alone is one of integers, as DuckDB has it.
fn table_schema(of_query: &Schema) -> SchemaRef {
    let column = |field: &FieldRef| {
        let of = match field.data_type() {
            DataType::Null => DataType::Int32,
            known => known.clone(),
        };
        Field::new(field.name(), of, true)
    };
    Arc::new(Schema::new(of_query.fields().iter().map(column).collect::<Vec<_>>()))
}

/// A batch under the schema of its table.
fn under(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| cast(column, field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// A table's columns go by name alone, so each name must be there once.
fn check_names(rows: &LogicalPlan) -> Result<()> {
    let mut seen = HashSet::new();
    for field in rows.schema().fields() {
        if !seen.insert(field.name()) {
            let message = "more than one column has this name; AS gives them others";
            return Err(Error::argument(format!("column '{}'", field.name()), message));
        }
    }
    Ok(())
}

/// An index is a name, and where UNIQUE a key that the table enforces; the planner needs none.
fn create_index(scope: &Scope, create: CreateIndex) -> Result<Started> {
    let name = TableName::from(&create.table);
    let table = scope.memory_table(&name)?;
    let columns: Option<Vec<usize>> = create
        .columns
        .iter()
        .map(|sort| match &sort.expr {
            Planned::Column(column) => table.schema().index_of(&column.name).ok(),
            _ => None,
        })
        .collect();
    let index = create.name.unwrap_or_else(|| {
        let columns: Vec<_> = create.columns.iter().map(|sort| sort.expr.to_string()).collect();
        format!("{}_{}_idx", name.table, columns.join("_"))
    });
    let if_taken = IfTaken::new(false, create.if_not_exists)?;
    let owner = scope.owner(&name);
    if !owner.create_index(&index, name.clone(), if_taken)? || !create.unique {
        return Ok(Started::Done);
    }
    let added = match columns {
        Some(columns) => table.add_key(Key { index: Some(index.clone()), columns, primary: false }),
        None => Err(Error::unsupported("a UNIQUE index over an expression is not supported")),
    };
    if added.is_err() {
        owner.drop_index(&index);
    }
    added.map(|()| Started::Done)
}
