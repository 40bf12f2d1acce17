//! `MATRIX(…)`, `ENTRIES(…)` and `VECTORS(…)` in FROM: where SQL's planner meets the matrix graph.
//!
//! DataFusion asks [`MatrixRelations`] about every table factor. A matrix factor is bound to a graph
//! and becomes a [`MatrixNode`], whose inputs are the plans of the relations that the graph reads. One
//! [`Planning`] serves one statement: its parameters, and the relations that were run first because
//! planning needs their size or keys.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, DataFusionError, TableReference};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr as Column, LogicalPlan, LogicalPlanBuilder};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, Spanned, TableAlias,
    TableAliasColumnDef, TableFactor,
};

use super::bind::{Binder, Parameter, Scope};
use super::graph::{Graph, NodeId};
use super::matrix_node::{MatrixNode, ReaderNames};
use super::narrow;
use super::ordered::{has_sort, query_order};
use super::relation::{Relation, RowOrder};
use crate::error::{Error, ErrorKind, Place, Result};
use crate::exec::emit::Form as Output;
use crate::exec::intake::{self, Form, Intake};
use crate::exec::operation::Stored;
use crate::sql::{self, Axes, MatrixQuery, Reading};

/// What planning one statement asks of the rest of the database.
pub(crate) trait Catalog: Send + Sync {
    /// A matrix by name.
    fn matrix(&self, name: &str) -> Option<Stored>;

    /// The columns of a table's declared primary key.
    fn primary_key(&self, table: &ObjectName) -> Option<Vec<String>>;

    /// The value of a placeholder such as `$1`.
    fn parameter(&self, name: &str) -> Result<Parameter>;

    /// Takes note that the statement computes something that comes out otherwise each time.
    fn computes_changes(&self);
}

/// The state of planning one statement.
pub(crate) struct Planning {
    catalog: Arc<dyn Catalog>,
    held: Vec<(Relation, Stored)>,
    wanted: Mutex<Option<Relation>>,
    /// Where the seeds of random cells come from: the same ones each time that a statement is planned.
    seeds: Mutex<SmallRng>,
}

impl fmt::Debug for Planning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planning").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

impl Planning {
    /// Planning in which these relations have been run already. `seed` is that of the statement.
    pub(crate) fn new(catalog: Arc<dyn Catalog>, held: Vec<(Relation, Stored)>, seed: u64) -> Self {
        let seeds = Mutex::new(SmallRng::seed_from_u64(seed));
        Self { catalog, held, wanted: Mutex::new(None), seeds }
    }

    /// The relation that must run before the statement can be planned, if that is why planning failed.
    pub(crate) fn wanted(&self) -> Option<Relation> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The relation planner of one statement.
#[derive(Debug, Clone)]
pub(crate) struct MatrixRelations(pub(crate) Arc<Planning>);

impl RelationPlanner for MatrixRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> datafusion::error::Result<RelationPlanning> {
        refuse_sample(&relation)?;
        let Some(factor) = matrix_factor(&relation)? else {
            let (relation, alias) = without_column_names(relation);
            let Some(alias) = alias else {
                return Ok(RelationPlanning::Original(Box::new(relation)));
            };
            let plan = context.plan(relation)?;
            let alias = Some(naming_all(alias, &plan));
            return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))));
        };
        let plan = self.plan(&factor, context)?;
        // An alias for the whole is in the plan by now; one for its columns is checked by DataFusion.
        let alias = factor.alias.filter(|alias| !alias.columns.is_empty());
        let alias = alias.map(|alias| naming_all(alias, &plan));
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

impl MatrixRelations {
    fn plan(
        &self,
        factor: &MatrixFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<LogicalPlan> {
        let MatrixFactor { output, ref expression, .. } = *factor;
        let mut scope = PlanScope { planning: &self.0, context, reading: Reading::default() };
        let mut binder = Binder::new(&mut scope);
        let root = binder.expression(expression)?;
        let planned = binder
            .ready_for(root, output)
            .and_then(|()| matrix_plan(binder.into_graph(), root, output, &factor.names()));
        planned.map_err(|error| error.at(sql::place_of(expression)))
    }
}

/// The plan that reads a graph's result.
fn matrix_plan(
    graph: Graph,
    root: NodeId,
    output: Output,
    names: &ReaderNames,
) -> Result<LogicalPlan> {
    let (graph, root) = narrow::narrowed(graph, root)?;
    MatrixNode::new(graph, root, output, names).map(MatrixNode::into_plan)
}

/// The plan that reads one relation as a matrix.
pub(crate) fn whole_plan(relation: Relation) -> Result<LogicalPlan> {
    let mut graph = Graph::default();
    let root = graph.relation(relation, None)?;
    matrix_plan(graph, root, Output::Whole, &ReaderNames::default())
}

/// The plan of an expression that is made of matrices, parameters and numbers, of which SQL's planner need not
/// know; `None` for one that reads a table or a query. `seed` is that of the statement.
///
/// # Errors
/// What keeps the expression from being bound.
pub(crate) fn lone_plan(
    expression: &Expr,
    catalog: &dyn Catalog,
    seed: u64,
) -> Result<Option<LogicalPlan>> {
    let seeds = SmallRng::seed_from_u64(seed);
    let mut scope =
        LoneScope { catalog, seeds, reading: Reading::default(), reads_relation: false };
    let mut binder = Binder::new(&mut scope);
    let planned = binder.expression(expression).and_then(|root| {
        binder.ready_for(root, Output::Whole)?;
        Ok((binder.into_graph(), root))
    });
    if scope.reads_relation {
        return Ok(None);
    }
    let planned = planned
        .and_then(|(graph, root)| matrix_plan(graph, root, Output::Whole, &ReaderNames::default()));
    planned.map(Some).map_err(|error| error.at(sql::place_of(expression)))
}

/// Names within an expression that is to do without relations.
struct LoneScope<'a> {
    catalog: &'a dyn Catalog,
    seeds: SmallRng,
    reading: Reading,
    /// Whether it asked for one.
    reads_relation: bool,
}

impl LoneScope<'_> {
    fn relation(&mut self) -> Result<Relation> {
        self.reads_relation = true;
        Err(ErrorKind::Internal("a relation is planned by SQL's planner".into()).into())
    }
}

impl Scope for LoneScope<'_> {
    fn matrix(&mut self, name: &str) -> Option<Stored> {
        self.catalog.matrix(name)
    }

    fn table(&mut self, _: &ObjectName) -> Result<Relation> {
        self.relation()
    }

    fn query(&mut self, _: &MatrixQuery) -> Result<Relation> {
        self.relation()
    }

    fn reading(&mut self) -> &mut Reading {
        &mut self.reading
    }

    fn parameter(&mut self, name: &str) -> Result<Parameter> {
        self.catalog.parameter(name)
    }

    fn held(&self, _: &Relation) -> Option<Stored> {
        None
    }

    fn want(&mut self, _: Relation) {
        self.reads_relation = true;
    }

    fn seed(&mut self) -> u64 {
        self.catalog.computes_changes();
        self.seeds.random()
    }
}

/// Names, within one matrix expression.
struct PlanScope<'a> {
    planning: &'a Planning,
    context: &'a mut dyn RelationPlannerContext,
    reading: Reading,
}

impl PlanScope<'_> {
    fn plan(&mut self, query: &Query) -> Result<LogicalPlan> {
        let factor = TableFactor::Derived {
            lateral: false,
            subquery: Box::new(query.clone()),
            alias: None,
            sample: None,
        };
        let plan = self.context.plan(factor)?;
        if let Some(Column::OuterReferenceColumn(_, column)) = plan.all_out_ref_exprs().first() {
            let message =
                "a query inside a matrix expression cannot refer to columns outside it".to_owned();
            let error = Error::unsupported(format!("{message}, here {column}"));
            let place = column.spans.first().map(|span| span.start);
            return Err(error.at(place.map(|at| Place { line: at.line, column: at.column })));
        }
        Ok(plan)
    }
}

impl Scope for PlanScope<'_> {
    fn matrix(&mut self, name: &str) -> Option<Stored> {
        self.planning.catalog.matrix(name)
    }

    fn table(&mut self, name: &ObjectName) -> Result<Relation> {
        let keys = self.planning.catalog.primary_key(name);
        let plan = self.context.plan(table_factor(name)).map_err(|error| unknown(name, error))?;
        let axes = match keys {
            Some(keys) => {
                let keys = keys.into_iter().map(|key| Ident::with_quote('"', key)).collect();
                Axes::Wide { rows: sql::Axis { keys, over: None } }
            }
            None => Axes::Unlabelled,
        };
        relation(name.to_string(), plan, &axes, [None, None], self.reading)
    }

    fn query(&mut self, query: &MatrixQuery) -> Result<Relation> {
        let plan = self.plan(&query.query)?;
        let mut labels =
            |over: &Option<Box<Query>>| over.as_ref().map(|over| self.plan(over)).transpose();
        let given = match &query.axes {
            Axes::Wide { rows } => [labels(&rows.over)?, None],
            Axes::Entries { rows, columns } => [labels(&rows.over)?, labels(&columns.over)?],
            Axes::Nodes { over, .. } => [labels(over)?, None],
            Axes::Unlabelled => [None, None],
        };
        relation("query".to_owned(), plan, &query.axes, given, self.reading)
    }

    fn reading(&mut self) -> &mut Reading {
        &mut self.reading
    }

    fn parameter(&mut self, name: &str) -> Result<Parameter> {
        self.planning.catalog.parameter(name)
    }

    fn held(&self, relation: &Relation) -> Option<Stored> {
        let found = self.planning.held.iter().find(|(held, _)| held == relation);
        found.map(|(_, stored)| stored.clone())
    }

    fn want(&mut self, relation: Relation) {
        *self.planning.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(relation);
    }

    fn seed(&mut self) -> u64 {
        self.planning.catalog.computes_changes();
        self.planning.seeds.lock().unwrap_or_else(PoisonError::into_inner).random()
    }
}

/// A query as a matrix leaf: its columns put in order, their types looked at.
///
/// # Errors
/// A key that the query does not have, and columns that are no numbers.
pub(crate) fn relation(
    name: String,
    plan: LogicalPlan,
    axes: &Axes,
    given: [Option<LogicalPlan>; 2],
    reading: Reading,
) -> Result<Relation> {
    let schema = Arc::clone(plan.schema());
    let (row_keys, column_keys) = match axes {
        Axes::Unlabelled => (Vec::new(), Vec::new()),
        Axes::Wide { rows } => (positions(&rows.keys, &schema)?, Vec::new()),
        Axes::Entries { rows, columns } => {
            (positions(&rows.keys, &schema)?, positions(&columns.keys, &schema)?)
        }
        Axes::Nodes { from, to, .. } => (
            positions(std::slice::from_ref(from), &schema)?,
            positions(std::slice::from_ref(to), &schema)?,
        ),
    };
    let keys: Vec<usize> = row_keys.iter().chain(&column_keys).copied().collect();
    let values: Vec<usize> =
        (0..schema.fields().len()).filter(|position| !keys.contains(position)).collect();
    let names = |positions: &[usize]| {
        positions.iter().map(|&at| schema.field(at).name().clone()).collect::<Vec<_>>()
    };
    let types: Vec<&DataType> = values.iter().map(|&at| schema.field(at).data_type()).collect();

    let cells = |types: &[&DataType]| {
        intake::element_of(types.iter().copied())
            .map_err(|at| not_numeric(&names(&values)[at], types[at]))
    };
    let (form, element) = match axes {
        Axes::Unlabelled | Axes::Wide { .. } => match types.as_slice() {
            [list] if intake::vector_type(list).is_some() => {
                let (width, item) = intake::vector_type(list).expect("it is a list");
                (Form::Vectors { width }, cells(&[item])?)
            }
            types => (Form::Wide, cells(types)?),
        },
        Axes::Entries { .. } | Axes::Nodes { .. } => {
            if types.len() > 1 {
                let names = names(&values).join("', '");
                let message = format!("one column is left for the value, not '{names}'");
                return Err(Error::argument("COLUMNS BY", message));
            }
            let form = match axes {
                Axes::Nodes { .. } => Form::Graph,
                _ => Form::Entries {
                    column_keys: column_keys.len(),
                    columns_given: given[1].is_some(),
                },
            };
            (form, cells(&types)?)
        }
    };

    for (given, keys) in given.iter().zip([&row_keys, &column_keys]) {
        check_given(given.as_ref(), keys.len())?;
    }

    let is_sorted = query_order(&plan) == RowOrder::Query && has_sort(&plan);
    let order = match axes {
        Axes::Unlabelled => query_order(&plan),
        Axes::Wide { .. } if is_sorted => RowOrder::Query,
        _ => RowOrder::Keys,
    };
    let is_ordered = query_order(&plan) == RowOrder::Query;
    let intake = Intake {
        form,
        element,
        nulls: reading.nulls.unwrap_or_default(),
        duplicates: reading.duplicates.unwrap_or_default(),
        row_keys: row_keys.len(),
        rows_given: given[0].is_some(),
        rows_as_they_come: is_sorted && matches!(form, Form::Entries { .. }) && given[0].is_none(),
        names: names(&[&keys[..], &values[..]].concat()),
    };
    let columns = keys.iter().chain(&values).map(|&at| {
        let (qualifier, field) = schema.qualified_field(at);
        Column::Column(datafusion::common::Column::new(qualifier.cloned(), field.name()))
    });
    let plan = LogicalPlanBuilder::from(plan).project(columns.collect::<Vec<_>>())?.build()?;
    Ok(Relation { name, plan, given, intake, order, is_ordered })
}

/// # Errors
/// Where labels that OVER gives have more columns than a key, or fewer.
fn check_given(given: Option<&LogicalPlan>, keys: usize) -> Result<()> {
    match given.map(|plan| plan.schema().fields().len()) {
        Some(columns) if columns != keys => {
            let message = format!("labels of {columns} columns do not label keys of {keys}");
            Err(Error::argument("OVER", message))
        }
        _ => Ok(()),
    }
}

/// The places of key columns.
fn positions(keys: &[Ident], schema: &DFSchema) -> Result<Vec<usize>> {
    keys.iter()
        .map(|key| {
            let name = sql::normalized(key);
            schema.index_of_column_by_name(None, &name).ok_or_else(|| {
                let names: Vec<_> =
                    schema.fields().iter().map(|field| field.name().as_str()).collect();
                let hint = format!("; the query's columns are {}", names.join(", "));
                Error::from(ErrorKind::Unknown { what: "key column", name, hint })
                    .at(sql::place_of_name(key))
            })
        })
        .collect()
}

fn not_numeric(name: &str, data_type: &DataType) -> Error {
    Error::unsupported(format!(
        "column '{name}' is {data_type}, and cells are numbers; leave it out, cast it, or make it a \
         label with ROWS BY"
    ))
}

/// DataFusion's message about a table that is not there names the table function; ours says what the
/// name could have been.
fn unknown(name: &ObjectName, error: DataFusionError) -> Error {
    let error = Error::from(error);
    let missing = match error.kind() {
        ErrorKind::Relational(inner) => inner.to_string().contains("not found"),
        _ => false,
    };
    if !missing {
        return error;
    }
    let hint = match name.0.last().and_then(|part| part.as_ident()) {
        Some(last) if name.0.len() > 1 && last.value == "t" => "; the transpose is .T",
        _ => "; a matrix expression reads matrices, tables, views and queries",
    };
    let (name, hint) = (name.to_string(), hint.to_owned());
    ErrorKind::Unknown { what: "matrix or table", name, hint }.into()
}

/// Takes an alias that names columns off a relation whose plan has all of them.
fn without_column_names(mut relation: TableFactor) -> (TableFactor, Option<TableAlias>) {
    let alias = match &mut relation {
        TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } => {
            alias.take_if(|alias| !alias.columns.is_empty())
        }
        _ => None,
    };
    (relation, alias)
}

/// An alias for the first columns of a relation is one for all of them: the others keep their names.
fn naming_all(mut alias: TableAlias, plan: &LogicalPlan) -> TableAlias {
    let others = plan.schema().fields().iter().skip(alias.columns.len());
    let others = others.map(|field| TableAliasColumnDef {
        name: Ident::with_quote('"', field.name()),
        data_type: None,
    });
    alias.columns.extend(others.collect::<Vec<_>>());
    alias
}

/// DataFusion would read all rows of a sample.
fn refuse_sample(factor: &TableFactor) -> Result<()> {
    match factor {
        TableFactor::Table { sample: Some(_), .. }
        | TableFactor::Derived { sample: Some(_), .. } => {
            let message = "TABLESAMPLE is not supported; WHERE random() < 0.1 keeps about a tenth of the rows";
            let start = factor.span().start;
            let place = Place { line: start.line, column: start.column };
            Err(Error::unsupported(message).at((start.line > 0).then_some(place)))
        }
        _ => Ok(()),
    }
}

fn table_factor(name: &ObjectName) -> TableFactor {
    TableFactor::Table {
        name: name.clone(),
        alias: None,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// A matrix in FROM.
struct MatrixFactor {
    /// How its result is read.
    output: Output,
    expression: Expr,
    alias: Option<TableAlias>,
}

impl MatrixFactor {
    /// The names that its alias gives to it and to its columns.
    fn names(&self) -> ReaderNames {
        let Some(alias) = &self.alias else { return ReaderNames::default() };
        let columns = alias.columns.iter().map(|column| sql::normalized(&column.name));
        let relation = Some(TableReference::bare(sql::normalized(&alias.name)));
        ReaderNames { relation, columns: columns.collect() }
    }
}

fn matrix_factor(factor: &TableFactor) -> Result<Option<MatrixFactor>> {
    let TableFactor::Table { name, args: Some(arguments), alias, with_hints, .. } = factor else {
        return Ok(None);
    };
    let text = name.to_string().to_ascii_lowercase();
    let output = match text.as_str() {
        "matrix" => Output::Rows,
        "entries" => Output::Entries,
        "vectors" => Output::Vectors,
        sql::SCALAR => Output::Scalar,
        sql::WHOLE => Output::Whole,
        _ => return Ok(None),
    };
    if let [hint, ..] = with_hints.as_slice() {
        let message = "WITH (…) of a matrix belongs to CREATE MATRIX";
        return Err(Error::unsupported(message).at(sql::place_of(hint)));
    }
    match &arguments.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(expression))] => {
            let (expression, alias) = (expression.clone(), alias.clone());
            Ok(Some(MatrixFactor { output, expression, alias }))
        }
        other => {
            let function =
                if text == sql::SCALAR { "MATRIX".to_owned() } else { text.to_uppercase() };
            let message = format!("takes one matrix expression, not {}", other.len());
            let place = name.0.first().and_then(|part| part.as_ident());
            Err(Error::argument(function, message).at(place.and_then(sql::place_of_name)))
        }
    }
}

/// The sort that puts a relation's rows in the order of its row keys.
pub(crate) fn sorted_by_keys(relation: &Relation) -> Result<LogicalPlan> {
    let keys = (0..relation.intake.row_keys).map(|at| {
        let (qualifier, field) = relation.plan.schema().qualified_field(at);
        let column = datafusion::common::Column::new(qualifier.cloned(), field.name());
        Column::Column(column).sort(true, true)
    });
    Ok(LogicalPlanBuilder::from(relation.plan.clone()).sort(keys.collect::<Vec<_>>())?.build()?)
}
