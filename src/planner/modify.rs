//! UPDATE and DELETE: the rows they change are found by an ordinary query, and changed by a node of ours.
//!
//! The query is planned and optimized like any other, so sub-queries, joins and constants in the condition
//! mean what they mean everywhere. DataFusion's own nodes rebuild the condition from the optimized plan and
//! can lose it on the way.
//!
//! ```text
//! DELETE FROM t WHERE c               SELECT (row) FROM "t (rows)" AS t WHERE c
//! UPDATE t SET a = e FROM u WHERE c   SELECT (row), e AS a FROM "t (rows)" AS t, u WHERE c
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{Column, DFSchema, DFSchemaRef};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::logical_plan::{Analyze, Explain, PlanType, ToStringifiedPlan};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr as Planned, ExprSchemable, Extension, LogicalPlan, LogicalPlanBuilder,
    UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use datafusion::sql::parser::{ExplainStatement, Statement as SqlStatement};
use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, GroupByExpr, Ident, LimitClause,
    ObjectName, OrderBy, OrderByKind, Query, Select, SelectFlavor, SelectItem, SetExpr, Statement,
    TableAlias, TableFactor, TableWithJoins, Update, UpdateTableFromKind,
};

use crate::catalog::{ROW_NUMBERS, Scope, TableName, normalized, unknown};
use crate::error::{Error, Result};
use crate::storage::{ROW_NUMBER, Snapshot};

/// What is done with the rows that the query finds.
#[derive(Debug)]
pub(crate) struct Modification {
    table: TableName,
    /// The columns that an UPDATE sets; `None` for DELETE.
    columns: Option<Vec<String>>,
}

/// Replaces an UPDATE or DELETE, or one that is explained, by the query that finds its rows.
///
/// # Errors
/// For clauses that are not supported.
pub(crate) fn rewrite(syntax: &mut SqlStatement) -> Result<Option<Modification>> {
    match syntax {
        SqlStatement::Explain(ExplainStatement { statement, .. }) => rewrite(statement),
        SqlStatement::Statement(statement) => {
            let (query, modification) = match statement.as_mut() {
                Statement::Delete(delete) => delete_query(delete.clone())?,
                Statement::Update(update) => update_query(update.clone())?,
                _ => return Ok(None),
            };
            **statement = Statement::Query(Box::new(query));
            Ok(Some(modification))
        }
        _ => Ok(None),
    }
}

/// The table that a statement writes to, whose other writers have to be waited for.
pub(crate) fn written_table(syntax: &SqlStatement) -> Option<TableName> {
    let SqlStatement::Statement(statement) = syntax else { return None };
    let name = match statement.as_ref() {
        Statement::Insert(insert) => match &insert.table {
            sqlparser::ast::TableObject::TableName(name) => name,
            _ => return None,
        },
        Statement::Update(update) => table_name(&update.table)?,
        Statement::Delete(delete) => table_name(delete_tables(delete).first()?)?,
        _ => return None,
    };
    TableName::new(name).ok()
}

fn table_name(table: &TableWithJoins) -> Option<&ObjectName> {
    match &table.relation {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

fn delete_tables(delete: &Delete) -> &[TableWithJoins] {
    match &delete.from {
        FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables) => tables,
    }
}

fn delete_query(delete: Delete) -> Result<(Query, Modification)> {
    refuse("DELETE", "RETURNING", delete.returning.is_some() || delete.output.is_some())?;
    let tables = delete_tables(&delete);
    refuse("DELETE", "more than one table", tables.len() != 1 || !delete.tables.is_empty())?;
    let mut from = tables.to_vec();
    let table = number_rows(&mut from[0])?;
    from.extend(delete.using.into_iter().flatten());
    let query = query(vec![row_number(&from[0])?], from, delete.selection);
    let query = limited(query, delete.order_by, delete.limit);
    Ok((query, Modification { table, columns: None }))
}

fn update_query(update: Update) -> Result<(Query, Modification)> {
    refuse("UPDATE", "RETURNING", update.returning.is_some() || update.output.is_some())?;
    refuse("UPDATE", "OR", update.or.is_some())?;
    let mut from = vec![update.table];
    let table = number_rows(&mut from[0])?;
    match update.from {
        Some(UpdateTableFromKind::BeforeSet(more) | UpdateTableFromKind::AfterSet(more)) => {
            from.extend(more);
        }
        None => (),
    }
    let mut columns = Vec::new();
    let mut select = vec![row_number(&from[0])?];
    for Assignment { target, value } in update.assignments {
        for (column, value) in assigned(target, value)? {
            let name = normalized(&column);
            if columns.contains(&name) {
                return Err(Error::argument("UPDATE", format!("column '{name}' is set twice")));
            }
            let alias = Ident::with_quote('"', name.clone());
            columns.push(name);
            select.push(SelectItem::ExprWithAlias { expr: value, alias });
        }
    }
    let query = query(select, from, update.selection);
    let query = limited(query, update.order_by, update.limit);
    Ok((query, Modification { table, columns: Some(columns) }))
}

fn refuse(statement: &str, clause: &str, present: bool) -> Result<()> {
    match present {
        true => Err(Error::unsupported(format!("{statement} with {clause} is not supported"))),
        false => Ok(()),
    }
}

/// The columns and values of `a = e` or `(a, b) = (e, f)`.
fn assigned(target: AssignmentTarget, value: Expr) -> Result<Vec<(Ident, Expr)>> {
    let last = |name: &ObjectName| {
        let ident = name.0.last().and_then(|part| part.as_ident()).cloned();
        ident.ok_or_else(|| unknown("column", &name.to_string()))
    };
    match (target, value) {
        (AssignmentTarget::ColumnName(name), value) => Ok(vec![(last(&name)?, value)]),
        (AssignmentTarget::Tuple(names), Expr::Tuple(values)) if names.len() == values.len() => {
            names.iter().zip(values).map(|(name, value)| Ok((last(name)?, value))).collect()
        }
        (AssignmentTarget::Tuple(names), _) => {
            let message = format!("{} columns are not set to as many values", names.len());
            Err(Error::argument("UPDATE", message))
        }
    }
}

/// Has a table give its row numbers too, under the alias it had or would have had.
fn number_rows(table: &mut TableWithJoins) -> Result<TableName> {
    let TableFactor::Table { name, alias, .. } = &mut table.relation else {
        return Err(Error::unsupported("only a table can be changed"));
    };
    let target = TableName::new(name)?;
    if alias.is_none() {
        let name = Ident::with_quote('"', target.table.clone());
        *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    }
    let schema = Ident::with_quote('"', target.schema.clone());
    let numbered = Ident::with_quote('"', format!("{}{ROW_NUMBERS}", target.table));
    *name = ObjectName::from(vec![schema, numbered]);
    Ok(target)
}

fn row_number(table: &TableWithJoins) -> Result<SelectItem> {
    let TableFactor::Table { alias: Some(alias), .. } = &table.relation else {
        return Err(Error::unsupported("only a table can be changed"));
    };
    let number = Ident::with_quote('"', ROW_NUMBER);
    Ok(SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![alias.name.clone(), number])))
}

/// `SELECT projection FROM from WHERE selection`.
pub(crate) fn query(
    projection: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
) -> Query {
    let select = Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection,
        exclude: None,
        into: None,
        from,
        lateral_views: Vec::new(),
        prewhere: None,
        selection,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    };
    Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

fn limited(query: Query, order_by: Vec<sqlparser::ast::OrderByExpr>, limit: Option<Expr>) -> Query {
    let order = || OrderBy { kind: OrderByKind::Expressions(order_by.clone()), interpolate: None };
    let limit = limit.map(|limit| LimitClause::LimitOffset {
        limit: Some(limit),
        offset: None,
        limit_by: Vec::new(),
    });
    let order_by = (!order_by.is_empty()).then(order);
    Query { order_by, limit_clause: limit, ..query }
}

impl Modification {
    /// Puts the node that changes rows above the query that finds them, within EXPLAIN if that is asked.
    ///
    /// # Errors
    /// Where the table has no such column, or a value cannot become of its type.
    pub(crate) fn plan(self, scope: &Scope, query: LogicalPlan) -> Result<LogicalPlan> {
        match query {
            LogicalPlan::Explain(explain) => {
                let plan = self.plan(scope, Arc::unwrap_or_clone(explain.plan))?;
                let stringified_plans = vec![plan.to_stringified(PlanType::InitialLogicalPlan)];
                Ok(LogicalPlan::Explain(Explain {
                    plan: Arc::new(plan),
                    stringified_plans,
                    ..explain
                }))
            }
            LogicalPlan::Analyze(analyze) => {
                let input = self.plan(scope, Arc::unwrap_or_clone(analyze.input))?;
                Ok(LogicalPlan::Analyze(Analyze { input: Arc::new(input), ..analyze }))
            }
            rows => self.node(scope, rows),
        }
    }

    fn node(self, scope: &Scope, rows: LogicalPlan) -> Result<LogicalPlan> {
        let snapshot = scope.snapshot(&self.table)?;
        let schema = Arc::clone(snapshot.table().schema());
        let (input, columns) = match self.columns {
            None => (rows, None),
            Some(names) => {
                let columns = names
                    .iter()
                    .map(|name| schema.index_of(name).map_err(|_| unknown("column", name)))
                    .collect::<Result<Vec<_>>>()?;
                let found = Arc::clone(rows.schema());
                let column = |at| Planned::Column(Column::from(found.qualified_field(at)));
                let mut select = vec![column(0)];
                for (at, &target) in columns.iter().enumerate() {
                    let field = schema.field(target);
                    let value = column(at + 1).cast_to(field.data_type(), &found)?;
                    select.push(value.alias(field.name()));
                }
                (LogicalPlanBuilder::from(rows).project(select)?.build()?, Some(columns))
            }
        };
        let count = Schema::new(vec![Field::new("count", DataType::UInt64, false)]);
        let node = ModifyRows {
            name: self.table.to_string(),
            snapshot,
            columns,
            input,
            schema: Arc::new(DFSchema::try_from(count)?),
        };
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
    }
}

/// Changes the rows whose numbers come in, and yields their count.
#[derive(Debug, Clone)]
pub(crate) struct ModifyRows {
    name: String,
    snapshot: Snapshot,
    columns: Option<Vec<usize>>,
    input: LogicalPlan,
    schema: DFSchemaRef,
}

impl ModifyRows {
    fn key(&self) -> (u64, u64, &Option<Vec<usize>>, &LogicalPlan) {
        (self.snapshot.table().id(), self.snapshot.version(), &self.columns, &self.input)
    }
}

impl PartialEq for ModifyRows {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ModifyRows {}

impl PartialOrd for ModifyRows {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.key().partial_cmp(&other.key())
    }
}

impl Hash for ModifyRows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl UserDefinedLogicalNodeCore for ModifyRows {
    fn name(&self) -> &str {
        match self.columns {
            Some(_) => "UpdateRows",
            None => "DeleteRows",
        }
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Planned> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", UserDefinedLogicalNodeCore::name(self), self.name)
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Planned>,
        inputs: Vec<LogicalPlan>,
    ) -> DataFusionResult<Self> {
        let [input] = <[LogicalPlan; 1]>::try_from(inputs)
            .map_err(|all| Error::argument("ModifyRows", format!("{} inputs", all.len())))?;
        Ok(Self { input, ..self.clone() })
    }
}

/// Whether a node changes rows, so that its result is a count.
pub(crate) fn is_modification(extension: &Extension) -> bool {
    extension.node.as_any().is::<ModifyRows>()
}

/// Plans [`ModifyRows`] as a sink for the rows of its input.
#[derive(Debug)]
pub(crate) struct ModifyPlanner;

#[async_trait]
impl ExtensionPlanner for ModifyPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> DataFusionResult<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<ModifyRows>() else { return Ok(None) };
        let [input] = physical_inputs else { return Ok(None) };
        Ok(Some(node.snapshot.change(node.columns.clone(), Arc::clone(input))))
    }
}
