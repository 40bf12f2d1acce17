//! Matrices by name, and the statements about them.
//!
//! [`Matrices`] is the catalog of a session; [`Statements`] runs CREATE, DROP, SHOW, DESCRIBE and COPY MATRIX, and plans
//! every statement in whose text a matrix expression may stand. Not here: how an expression is planned
//! (`planner`) or computed (`exec`).

mod catalog;
mod held;

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement as SqlStatement;
use sqlparser::ast::{Expr, Ident, ObjectName};

use crate::catalog::{IfTaken, Scope, check_local};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::labels::AxisLabels;
use crate::exec::operation::Stored;
use crate::exec::recall::{Fingerprint, Recall};
use crate::exec::{self, Cancel};
use crate::files;
use crate::matrix::{Layout, Matrix};
use crate::memory::task;
use crate::planner::remembered::Remembering;
use crate::planner::{
    Catalog, MatrixRelations, Parameter, Planning, cooperative, is_repeatable, lone_exec,
    lone_plan, matrix_exec, whole_node, whole_plan,
};
use crate::query::Running;
use crate::sql::{
    self, CopyMatrix, CreateMatrix, MatrixOptions, MatrixSource, Named, Statement, StatementKind,
};
use crate::value::Parameters;

pub(crate) use self::catalog::Matrices;
use self::catalog::{Entry, Found, View};

/// Relations that are run for the planning of one statement, at most: more than any has, so that planning
/// which makes another relation each time ends.
const ROUNDS_MAX: usize = 256;

/// What planning a statement asks: the matrices, the tables' keys and the parameters' values.
struct Names {
    matrices: Arc<Matrices>,
    parameters: Parameters,
    scope: Arc<Scope>,
}

impl Catalog for Names {
    fn matrix(&self, name: &str) -> Option<Stored> {
        let Entry::Matrix(held) = self.matrices.find(name)?.entry else { return None };
        let matrix = self.matrices.used(name, &held).ok()?;
        self.scope.read_matrix(name, held.id());
        let part = Some(Fingerprint::of_matrix(held.id()));
        Some(Stored { name: name.to_owned(), matrix, part })
    }

    fn primary_key(&self, table: &ObjectName) -> Option<Vec<String>> {
        self.scope.primary_key(table)
    }

    fn parameter(&self, placeholder: &str) -> Result<Parameter> {
        let name = placeholder.trim_start_matches('$');
        if let Some(matrix) = self.parameters.matrix_named(name) {
            let stored = Stored::new(placeholder, Arc::clone(matrix));
            return Ok(Parameter::Matrix(stored));
        }
        let Some(value) = self.parameters.scalar(placeholder) else {
            let name = placeholder.to_owned();
            let hint = "; give it a value, or a matrix of that name".to_owned();
            return Err(ErrorKind::Unknown { what: "parameter", name, hint }.into());
        };
        let number = value.scalar().cast_to(&arrow::datatypes::DataType::Float64);
        match number {
            Ok(ScalarValue::Float64(Some(number))) => Ok(Parameter::Number(number)),
            _ => Err(Error::argument(placeholder, format!("is {value}, and needs a number"))),
        }
    }

    fn computes_changes(&self) {
        self.scope.computes_changes();
    }
}

/// A matrix, and the operators that computed it.
struct Computed {
    matrix: Matrix,
    plan: Arc<dyn ExecutionPlan>,
}

/// Plans and runs the statements of one connection as far as matrices are concerned.
#[derive(Clone)]
pub(crate) struct Statements {
    pub(crate) matrices: Arc<Matrices>,
    pub(crate) scope: Arc<Scope>,
    pub(crate) parameters: Parameters,
    /// The statement they are part of, whose progress is that of what runs here.
    pub(crate) running: Arc<Running>,
    /// Who remembers what parts of expressions come to, if anybody does.
    pub(crate) recall: Option<Arc<dyn Recall>>,
}

/// What becomes of the parameters in a plan.
type Place = fn(&Parameters, LogicalPlan) -> Result<LogicalPlan>;

impl Statements {
    /// A statement with the names of its matrix expressions resolved.
    ///
    /// # Errors
    /// Names in positions where they mean nothing.
    pub(crate) fn resolved(&self, statement: &Statement) -> Result<StatementKind> {
        statement.resolved(&|name| self.matrices.named(name, &[]))
    }

    /// The logical plan of a resolved SQL statement.
    ///
    /// Where planning needs the size or the keys of a relation in a matrix expression, the relation runs
    /// first and planning begins again with its matrix at hand.
    ///
    /// # Errors
    /// Whatever keeps the statement from being planned.
    pub(crate) async fn plan(&self, statement: SqlStatement) -> Result<LogicalPlan> {
        self.plan_with(statement, Parameters::fill).await
    }

    /// The same with parameters in the place of their values, which it may depend on all the same: where a matrix expression
    /// names one.
    ///
    /// # Errors
    /// Whatever keeps the statement from being planned.
    pub(crate) async fn generic_plan(&self, statement: SqlStatement) -> Result<LogicalPlan> {
        self.plan_with(statement, Parameters::type_them).await
    }

    async fn plan_with(&self, statement: SqlStatement, place: Place) -> Result<LogicalPlan> {
        let mut held = Vec::new();
        let seed = rand::random();
        for _round in 0..ROUNDS_MAX {
            let names = Arc::new(self.names());
            let planning = Arc::new(Planning::new(names, held.clone(), seed));
            let relations = Arc::new(MatrixRelations(Arc::clone(&planning)));
            let planned = self.scope.plan(statement.clone(), relations).await;
            let Some(relation) = planning.wanted() else {
                return self.noted(planned?, place);
            };
            let plan = self.noted(whole_plan(relation.clone())?, Parameters::fill)?;
            let Computed { matrix, plan } = self.run(&plan, true).await?;
            let (name, matrix) = (relation.name.clone(), Arc::new(matrix));
            let part = matrix_exec(&plan)?.root_part();
            held.push((relation, Stored { name, matrix, part }));
        }
        let message = format!("planning is at no end after {ROUNDS_MAX} relations have been run");
        Err(ErrorKind::Internal(message).into())
    }

    /// A plan with the values of its parameters, which the statement may come to again or not.
    fn noted(&self, plan: LogicalPlan, place: Place) -> Result<LogicalPlan> {
        let plan = place(&self.parameters, plan)?;
        if !is_repeatable(&plan)? {
            self.scope.computes_changes();
        }
        Ok(plan)
    }

    fn names(&self) -> Names {
        Names {
            matrices: Arc::clone(&self.matrices),
            parameters: self.parameters.clone(),
            scope: Arc::clone(&self.scope),
        }
    }

    /// The matrix that a plan over [`sql::WHOLE`] computes. One that is for planning alone is worth remembering as a whole.
    async fn run(&self, plan: &LogicalPlan, is_for_planning: bool) -> Result<Computed> {
        let session = self.scope.session();
        let remembering = self.recall.clone().zip(self.scope.reads());
        let remembering =
            remembering.map(|(recall, reads)| Remembering::new(recall, reads, !is_for_planning));
        let lone = lone_exec(plan, session.config(), remembering.as_ref())?;
        let plan: Arc<dyn ExecutionPlan> = match lone {
            Some(exec) => Arc::new(exec),
            None => {
                let mut state = self.scope.state()?;
                if let Some(remembering) = remembering {
                    state.config_mut().set_extension(Arc::new(remembering));
                }
                let plan = state.create_physical_plan(plan).await?;
                cooperative::stoppable(plan, self.running.stop_check())?
            }
        };
        self.running.watch(exec::scans(&plan));
        let matrix = matrix_exec(&plan)?.matrix(task(session)).await?;
        Ok(Computed { matrix, plan })
    }

    /// The matrix of a name or an expression.
    ///
    /// # Errors
    /// Whatever keeps it from being parsed, planned or computed.
    pub(crate) async fn matrix(&self, text: &str) -> Result<Matrix> {
        let mut expr = sql::parse_expression(text)?;
        if let Expr::Identifier(name) = &expr
            && let key = sql::normalized(name)
            && let Some(Found { entry: Entry::Matrix(held), .. }) = self.matrices.find(&key)
        {
            return Ok(self.matrices.used(&key, &held)?.as_ref().clone());
        }
        sql::resolve_expression(&mut expr, &|name| self.matrices.named(name, &[]))?;
        Ok(self.compute(expr, &MatrixOptions::default()).await?.matrix)
    }

    /// Computes a resolved expression.
    ///
    /// # Errors
    /// Whatever keeps it from being planned or computed.
    async fn compute(&self, expr: Expr, options: &MatrixOptions) -> Result<Computed> {
        self.run(&self.whole(expr, options).await?, false).await
    }

    async fn whole(&self, expr: Expr, options: &MatrixOptions) -> Result<LogicalPlan> {
        let expr = options.around(expr);
        if let Some(plan) = lone_plan(&expr, &self.names(), rand::random())? {
            return Ok(plan);
        }
        let mut statement = sql::whole(expr);
        let known = self.scope.columns(sql::merged_tables(&statement)).await;
        sql::distinguish(&mut statement, &mut sql::DisplayNames::default(), &known)?;
        self.plan(statement).await
    }

    /// The matrix as `WITH (layout = …, dtype = …)` wants it.
    async fn pinned(&self, matrix: Matrix, options: &MatrixOptions) -> Result<Matrix> {
        if options.layout.is_none() && options.dtype.is_none() {
            return Ok(matrix);
        }
        let name = "$file";
        let parameters = Parameters::new().matrix("file", matrix);
        let within = Self { parameters, ..self.clone() };
        Ok(within.compute(sql::parse_expression(name)?, options).await?.matrix)
    }

    /// Bytes that the memory limit still allows.
    fn free_bytes(&self) -> usize {
        let pool = &self.scope.session().runtime_env().memory_pool;
        match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes.saturating_sub(pool.reserved()),
            _ => usize::MAX,
        }
    }

    /// The plan of CREATE MATRIX, for EXPLAIN.
    ///
    /// # Errors
    /// Whatever keeps it from being planned; a matrix from a file has no plan.
    pub(crate) async fn plan_of(&self, create: CreateMatrix) -> Result<LogicalPlan> {
        match create.source {
            MatrixSource::Relation(query) => self.whole(query.into_expr(), &create.options).await,
            MatrixSource::Expression { expr, .. } => self.whole(expr, &create.options).await,
            MatrixSource::File { .. } => {
                Err(Error::unsupported("a matrix from a file has no plan to explain"))
            }
        }
    }

    /// CREATE MATRIX; the operators that computed it, where it was computed.
    ///
    /// # Errors
    /// A name that is taken, and whatever keeps the matrix from being made; then nothing is.
    pub(crate) async fn create(
        &self,
        create: CreateMatrix,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let name = sql::normalized(&create.name);
        let owner = self.matrices.owner(create.temporary);
        let is_taken = |error: Error| error.at(sql::place_of_name(&create.name));
        let if_taken = IfTaken::new(create.or_replace, create.if_not_exists)?;
        if !owner.admits(&name, if_taken).map_err(is_taken)? {
            return Ok(None);
        }
        let (matrix, plan) = match create.source {
            MatrixSource::Expression { view: true, text, expr } => {
                self.matrices.refuse_itself(&create.name, &text)?;
                // Planned once, so that what cannot be computed is told now.
                self.whole(expr, &create.options).await?;
                let view = View { text, options: create.options };
                owner.add_view(name, view, if_taken).map_err(is_taken)?;
                return Ok(None);
            }
            MatrixSource::Expression { expr, .. } => {
                let Computed { matrix, plan } = self.compute(expr, &create.options).await?;
                (matrix, Some(plan))
            }
            MatrixSource::Relation(query) => {
                let expr = query.into_expr();
                let Computed { matrix, plan } = self.compute(expr, &create.options).await?;
                (matrix, Some(plan))
            }
            MatrixSource::File { path, options } => {
                let sql::Reading { nulls, duplicates } = create.options.reading;
                let rules = files::Rules {
                    nulls: nulls.unwrap_or_default(),
                    duplicates: duplicates.unwrap_or_default(),
                };
                let matrix = read_file(path, &options, rules, self.free_bytes()).await?;
                (self.pinned(matrix, &create.options).await?, None)
            }
        };
        owner.add(name, Arc::new(matrix), if_taken).map_err(is_taken)?;
        Ok(plan)
    }

    /// DROP MATRIX.
    ///
    /// # Errors
    /// An unknown name, unless IF EXISTS.
    pub(crate) fn drop(&self, name: &Ident, if_exists: bool) -> Result<()> {
        let key = sql::normalized(name);
        if !self.matrices.remove(&key) && !if_exists {
            return Err(self.matrices.unknown(&key).at(sql::place_of_name(name)));
        }
        Ok(())
    }

    /// SHOW MATRICES.
    ///
    /// # Errors
    /// None that a user could cause.
    pub(crate) fn show(&self) -> Result<RecordBatch> {
        let (mut rows, mut columns, mut stored, mut bytes) = (vec![], vec![], vec![], vec![]);
        let (mut names, mut layouts, mut elements, mut views) = (vec![], vec![], vec![], vec![]);
        let mut tiers = vec![];
        for (name, Found { entry, .. }) in self.matrices.all() {
            let (about, view) = match entry {
                Entry::Matrix(held) => (Some(held.about()), None),
                Entry::View(view) => (None, Some(view.text)),
            };
            let about = about.as_ref();
            names.push(name);
            rows.push(about.map(|about| about.shape.rows as i64));
            columns.push(about.map(|about| about.shape.columns as i64));
            stored.push(about.map(|about| about.stored as i64));
            layouts.push(about.map(|about| about.layout.to_string()));
            elements.push(about.map(|about| about.element.to_string()));
            bytes.push(about.map(|about| about.size_bytes as u64));
            tiers.push(about.map(|about| about.tier.to_string()));
            views.push(view);
        }
        let text = |values: Vec<Option<String>>| Arc::new(StringArray::from(values)) as ArrayRef;
        let count = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
        Ok(RecordBatch::try_from_iter_with_nullable([
            ("name", Arc::new(StringArray::from(names)) as ArrayRef, false),
            ("rows", count(rows), true),
            ("columns", count(columns), true),
            ("stored", count(stored), true),
            ("layout", text(layouts), true),
            ("type", text(elements), true),
            ("bytes", Arc::new(UInt64Array::from(bytes)) as ArrayRef, true),
            ("tier", text(tiers), true),
            ("view", text(views), true),
        ])?)
    }

    /// DESCRIBE MATRIX: a property a row.
    ///
    /// # Errors
    /// An unknown name.
    pub(crate) async fn describe(&self, name: &Ident) -> Result<RecordBatch> {
        let key = sql::normalized(name);
        let mut lines: Vec<(&str, String)> = vec![("name", key.clone())];
        match self.matrices.find(&key) {
            None => return Err(self.matrices.unknown(&key).at(sql::place_of_name(name))),
            Some(Found { entry: Entry::View(view), .. }) => {
                // What it reads may have changed, or be gone, since it was made.
                match self.described_view(name).await {
                    Ok(described) => lines.extend(described),
                    Err(error) => lines.push(("error", error.to_string())),
                }
                lines.push(("view", view.text));
            }
            Some(Found { entry: Entry::Matrix(held), temporary }) => {
                let about = held.about();
                let labels = |labels: Option<crate::matrix::Labels>| {
                    let fields = labels.as_ref().map_or(&[][..], |labels| labels.fields());
                    listed(fields.iter().map(|(name, keys)| (name, keys.data_type())))
                };
                lines.push(("shape", about.shape.to_string()));
                lines.push(("stored cells", about.stored.to_string()));
                lines.push(("layout", about.layout.to_string()));
                lines.push(("type", about.element.to_string()));
                lines.push(("bytes", about.size_bytes.to_string()));
                lines.push(("tier", about.tier.to_string()));
                lines.push(("temporary", temporary.to_string()));
                lines.push(("row labels", labels(about.row_labels)));
                lines.push(("column labels", labels(about.column_labels)));
            }
        }
        let (properties, values): (Vec<&str>, Vec<String>) = lines.into_iter().unzip();
        Ok(RecordBatch::try_from_iter([
            ("property", Arc::new(StringArray::from(properties)) as ArrayRef),
            ("value", Arc::new(StringArray::from(values)) as ArrayRef),
        ])?)
    }

    /// What is known of a view's matrix before it is computed; a size that only running can tell is `?`.
    async fn described_view(&self, name: &Ident) -> Result<Vec<(&'static str, String)>> {
        let Some(Named::View(expr)) = self.matrices.named(name, &[])? else {
            return Ok(Vec::new());
        };
        let plan = self.whole(expr, &MatrixOptions::default()).await?;
        let Some(node) = whole_node(&plan) else { return Ok(Vec::new()) };
        let root = node.graph.node(node.root);
        let labels = |labels: &AxisLabels| match labels {
            AxisLabels::None => listed([].into_iter()),
            AxisLabels::Known(labels) => {
                listed(labels.fields().iter().map(|(name, keys)| (name, keys.data_type())))
            }
            AxisLabels::Deferred(deferred) => {
                listed(deferred.fields.iter().map(|(name, data_type)| (name, data_type)))
            }
        };
        Ok(vec![
            ("shape", root.shape().to_string()),
            ("type", root.element.to_string()),
            ("row labels", labels(&root.labels[0])),
            ("column labels", labels(&root.labels[1])),
        ])
    }

    /// COPY MATRIX … TO a file; yields the number of rows written.
    ///
    /// # Errors
    /// Whatever keeps the matrix from being computed or the file from being written; then there is none.
    pub(crate) async fn copy(&self, copy: CopyMatrix) -> Result<u64> {
        check_local(&copy.path)?;
        let Computed { mut matrix, .. } =
            self.compute(copy.source, &MatrixOptions::default()).await?;
        // A file of entries or one of all cells: that follows from what the matrix is, not how it lies.
        if matrix.is_sparse() && matrix.layout() == Layout::Dense {
            let options = MatrixOptions { layout: Some(Layout::Csr), ..Default::default() };
            matrix = self.pinned(matrix, &options).await?;
        }
        let rows = matrix.shape().rows as u64;
        write_file(copy.path, &copy.options, matrix).await?;
        Ok(rows)
    }
}

/// The names and types of labels.
fn listed<'a>(fields: impl Iterator<Item = (&'a String, &'a DataType)>) -> String {
    let fields: Vec<String> = fields.map(|(name, keys)| format!("{name} {keys}")).collect();
    if fields.is_empty() { "none".to_owned() } else { fields.join(", ") }
}

async fn read_file(
    path: String,
    options: &[(String, String)],
    rules: files::Rules,
    limit_bytes: usize,
) -> Result<Matrix> {
    check_local(&path)?;
    let mut reading = files::ReadOptions { rules, ..files::ReadOptions::within(limit_bytes) };
    for (option, value) in options {
        reading.set(option, value)?;
    }
    let cancel = Cancel::default();
    let read = {
        let cancel = cancel.clone();
        move || files::read(Path::new(&path), &reading, cancel.flag())
    };
    exec::blocking(cancel, read).await
}

async fn write_file(path: String, options: &[(String, String)], matrix: Matrix) -> Result<()> {
    let mut format = None;
    for (option, value) in options {
        match option.as_str() {
            "format" => format = Some(value.parse()?),
            other => {
                let hint = "; a matrix file has format".to_owned();
                let name = other.to_owned();
                return Err(ErrorKind::Unknown { what: "option", name, hint }.into());
            }
        }
    }
    let cancel = Cancel::default();
    let write = {
        let cancel = cancel.clone();
        move || files::write(Path::new(&path), &matrix, format, cancel.flag())
    };
    exec::blocking(cancel, write).await
}
