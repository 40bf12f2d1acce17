//! A [`Connection`] to a database: statements in, rows, counts and matrices out; blocking and asynchronous.
//!
//! [`Connection::run`] shows the whole flow of a statement.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::catalog::TableProvider;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::TableType;
use futures::{StreamExt, TryStreamExt};

use crate::catalog::{Entry, IfTaken, SCHEMA, TableName};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::memory::Kept;
use crate::query::{CancelHandle, Outcome, ResultSet, ResultStream, wait};
use crate::session::{Session, Started};
use crate::sql::{self, Statement};
use crate::storage::{Batch, MemoryTable, TableDefinition};
use crate::value::Parameters;

/// A connection to a database; settings and prepared statements belong to it, tables to the database.
///
/// Cheap to clone: clones are the same connection. A blocking call does what comes at once on the thread that makes it, and leaves
/// the rest to the database's. It may be made on a thread of an asynchronous runtime too, which it then blocks and does nothing on.
///
/// ```
/// let connection = relatrix::Database::memory()?.connect();
/// connection.execute("CREATE TABLE t AS SELECT value AS x FROM range(100)")?;
/// let clone = connection.clone();
/// let count = std::thread::spawn(move || clone.execute("DELETE FROM t WHERE x < 40"));
/// assert_eq!(count.join().expect("no panic")?, 40);
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Connection {
    database: Database,
    pub(crate) session: Arc<Session>,
}

impl Connection {
    pub(crate) fn new(database: Database, session: Arc<Session>) -> Self {
        Self { database, session }
    }

    /// Runs one statement.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let statement = &relatrix::parse("CREATE TABLE t AS SELECT 1 AS x")?[0];
    /// assert!(matches!(connection.run(statement)?, relatrix::Outcome::Count(1)));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// Whatever keeps the statement from being planned or from beginning to run; what fails later
    /// comes with the rows.
    pub fn run(&self, statement: &Statement) -> Result<Outcome> {
        self.run_with(statement, Parameters::new())
    }

    /// Runs one statement with these values for its parameters.
    ///
    /// ```
    /// use relatrix::{Outcome, params};
    /// let connection = relatrix::Database::memory()?.connect();
    /// let statement = &relatrix::parse("SELECT $1 * $2")?[0];
    /// let Outcome::Rows(rows) = connection.run_with(statement, params![6, 7])? else { panic!("rows") };
    /// assert_eq!(rows.rows::<(i64,)>()?, [(42,)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub fn run_with(&self, statement: &Statement, parameters: Parameters) -> Result<Outcome> {
        self.begin(vec![statement.clone()], parameters).map(Started::outcome)
    }

    /// Runs every statement of a text and counts the rows that the last one wrote.
    ///
    /// ```
    /// # fn main() -> relatrix::Result<()> {
    /// let connection = relatrix::Database::memory()?.connect();
    /// let count = connection.execute("CREATE TABLE t (x INT); INSERT INTO t VALUES (1), (2)")?;
    /// assert_eq!(count, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of the first statement that fails; the ones before it have taken effect.
    pub fn execute(&self, text: &str) -> Result<u64> {
        self.execute_with(text, Parameters::new())
    }

    /// [`Connection::execute`] with values for the parameters.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// connection.execute("CREATE TABLE t (id INT, share DOUBLE)")?;
    /// let count = connection.execute_with("INSERT INTO t VALUES ($1, $2)", relatrix::params![1, 0.5])?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub fn execute_with(&self, text: &str, parameters: Parameters) -> Result<u64> {
        wait(written(self.begin(sql::parse(text)?, parameters)?))
    }

    /// [`Connection::execute`] for asynchronous code, on any executor.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let connection = relatrix::Database::memory()?.connect();
    /// let count = connection.execute_async("CREATE TABLE t AS SELECT 1 AS x").await?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub async fn execute_async(&self, text: &str) -> Result<u64> {
        self.execute_async_with(text, Parameters::new()).await
    }

    /// [`Connection::execute_async`] with values for the parameters.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let connection = relatrix::Database::memory()?.connect();
    /// connection.execute_async("CREATE TABLE t (x DOUBLE)").await?;
    /// let insert = "INSERT INTO t VALUES ($1), ($1 + 1)";
    /// assert_eq!(connection.execute_async_with(insert, relatrix::params![0.5]).await?, 2);
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub async fn execute_async_with(&self, text: &str, parameters: Parameters) -> Result<u64> {
        written(self.start(sql::parse(text)?, parameters).await?).await
    }

    /// Runs every statement of a text and returns the rows of the last one.
    ///
    /// A statement that writes yields one row with its count.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let text = "CREATE TABLE t AS SELECT value AS x FROM range(5); SELECT sum(x) FROM t";
    /// let rows = connection.query(text)?;
    /// assert_eq!(rows.rows::<(i64,)>()?, [(10,)]);
    /// let written = connection.query("DELETE FROM t WHERE x > 2")?.rows::<(i64,)>()?;
    /// assert_eq!(written, [(2,)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub fn query(&self, text: &str) -> Result<ResultSet> {
        self.query_with(text, Parameters::new())
    }

    /// [`Connection::query`] with values for the parameters.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let count = "SELECT count(*) FROM range(10) WHERE value BETWEEN ? AND ?";
    /// let rows = connection.query_with(count, relatrix::params![3, 5])?;
    /// assert_eq!(rows.rows::<(i64,)>()?, [(3,)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub fn query_with(&self, text: &str, parameters: Parameters) -> Result<ResultSet> {
        self.begin(sql::parse(text)?, parameters)?.rows().map(ResultSet::new)
    }

    /// [`Connection::query`] for asynchronous code, on any executor.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use futures::StreamExt;
    /// let connection = relatrix::Database::memory()?.connect();
    /// let mut rows = connection.query_async("SELECT 1 AS x").await?;
    /// let batch = rows.next().await.expect("one batch")?;
    /// assert_eq!((batch.num_rows(), batch.num_columns()), (1, 1));
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub async fn query_async(&self, text: &str) -> Result<ResultStream> {
        self.query_async_with(text, Parameters::new()).await
    }

    /// [`Connection::query_async`] with values for the parameters.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use futures::TryStreamExt;
    /// let connection = relatrix::Database::memory()?.connect();
    /// let rows = connection.query_async_with("SELECT $1 AS x", relatrix::params![1]).await?;
    /// let batches: Vec<_> = rows.try_collect().await?;
    /// assert_eq!(batches[0].num_rows(), 1);
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub async fn query_async_with(
        &self,
        text: &str,
        parameters: Parameters,
    ) -> Result<ResultStream> {
        self.start(sql::parse(text)?, parameters).await?.rows()
    }

    /// Parses a statement once, to be run often.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// connection.execute("CREATE TABLE t (x INT)")?;
    /// let insert = connection.prepare("INSERT INTO t VALUES (?)")?;
    /// for x in 0..3 {
    ///     assert_eq!(insert.execute(relatrix::params![x])?, 1);
    /// }
    /// assert!(connection.prepare("SELECT 1; SELECT 2").is_err());
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where the text is not exactly one statement.
    pub fn prepare(&self, text: &str) -> Result<Prepared> {
        match <[Statement; 1]>::try_from(sql::parse(text)?) {
            Ok([statement]) => Ok(Prepared { connection: self.clone(), statement }),
            Err(all) => {
                Err(Error::argument("prepare", format!("takes one statement, not {}", all.len())))
            }
        }
    }

    /// Makes a table of batches, of a stream of them, or of any [`TableProvider`].
    ///
    /// A stream is read to its end. A table of the same name is replaced.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use relatrix::arrow::array::{ArrayRef, Int64Array, RecordBatch};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    /// let batch = RecordBatch::try_from_iter([("n", numbers)])?;
    /// let connection = relatrix::Database::memory()?.connect();
    /// connection.register("numbers", vec![batch])?;
    /// let sum = connection.query("SELECT sum(n) FROM numbers")?.rows::<(i64,)>()?;
    /// assert_eq!(sum, [(6,)]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Where there is no batch to tell the columns, or one has other columns than the first.
    pub fn register(&self, name: &str, table: impl Into<Registered>) -> Result<()> {
        let kept = Kept::new(format!("table {name}"), &self.session.shared.budget.share());
        let entry = match table.into().0 {
            Source::Foreign(table) => {
                // Nobody knows how deep its plan is.
                if table.table_type() == TableType::View {
                    self.database.note_named(usize::MAX);
                }
                Entry::Foreign(table)
            }
            Source::Batches(batches) => {
                let Some(first) = batches.first() else {
                    let message = "there is no batch, and so no columns";
                    return Err(Error::argument(format!("table '{name}'"), message));
                };
                memory_table(&first.schema(), batches, kept)?
            }
            Source::Stream(stream) => {
                let schema = stream.schema();
                let batches = wait(
                    self.database.spawn(async move { Ok(stream.try_collect::<Vec<_>>().await?) }),
                )?;
                memory_table(&schema, batches, kept)?
            }
        };
        let name = TableName { schema: SCHEMA.to_owned(), table: name.to_owned() };
        self.session.shared.catalog.create_table(&name, entry, IfTaken::Replace)?;
        Ok(())
    }

    /// Gives a name to a matrix, in place of one that had it.
    ///
    /// ```
    /// use relatrix::matrix::{Matrix, Shape};
    /// # fn main() -> relatrix::Result<()> {
    /// let connection = relatrix::Database::memory()?.connect();
    /// let x = Matrix::from_row_major(Shape::new(2, 1), vec![3.0, 4.0]).expect("two cells");
    /// connection.register_matrix("x", x)?;
    /// assert_eq!(connection.matrix("X")?.cell(1, 0), 4.0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Where the memory limit has no room for it.
    pub fn register_matrix(&self, name: &str, matrix: impl Into<Arc<Matrix>>) -> Result<()> {
        self.session.shared.matrices.add(name.to_lowercase(), matrix.into(), IfTaken::Replace)
    }

    /// The matrix of a name or of any expression.
    ///
    /// The cells of a stored matrix are shared, not copied.
    ///
    /// ```
    /// # fn main() -> relatrix::Result<()> {
    /// let connection = relatrix::Database::memory()?.connect();
    /// connection.execute("CREATE MATRIX x AS VALUES (1.0, 2.0), (3.0, 4.0)")?;
    /// assert_eq!(connection.matrix("t(x) @ x")?.cell(0, 1), 14.0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Whatever keeps the expression from being parsed, planned or computed.
    pub fn matrix(&self, expression: &str) -> Result<Matrix> {
        self.matrix_with(expression, Parameters::new())
    }

    /// [`Connection::matrix`] with values for the parameters.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let scaled = relatrix::Parameters::new().named("scale", 3.0);
    /// assert_eq!(connection.matrix_with("$scale * eye(2)", scaled)?.cell(1, 1), 3.0);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Connection::matrix`].
    pub fn matrix_with(&self, expression: &str, parameters: Parameters) -> Result<Matrix> {
        self.database.run(expression.len(), self.computed(expression, parameters))
    }

    /// [`Connection::matrix`] for asynchronous code, on any executor.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let connection = relatrix::Database::memory()?.connect();
    /// assert_eq!(connection.matrix_async("eye(2) + 1").await?.cell(0, 0), 2.0);
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Connection::matrix`].
    pub async fn matrix_async(&self, expression: &str) -> Result<Matrix> {
        self.matrix_async_with(expression, Parameters::new()).await
    }

    /// [`Connection::matrix_async`] with values for the parameters.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use relatrix::{Parameters, matrix::{Matrix, Shape}};
    /// let connection = relatrix::Database::memory()?.connect();
    /// let x = Matrix::from_row_major(Shape::new(1, 2), vec![3.0, 4.0]).expect("two cells");
    /// let norm = connection.matrix_async_with("norm($x)", Parameters::new().matrix("x", x)).await?;
    /// assert_eq!(norm.cell(0, 0), 5.0);
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Connection::matrix`].
    pub async fn matrix_async_with(
        &self,
        expression: &str,
        parameters: Parameters,
    ) -> Result<Matrix> {
        self.database.spawn(self.computed(expression, parameters)).await
    }

    /// How long the latest statement took from its syntax to a plan ready to run.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// connection.query("SELECT 1")?.collect()?;
    /// assert!(connection.planning_time() > std::time::Duration::ZERO);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn planning_time(&self) -> Duration {
        self.session.planning_time()
    }

    /// Stops whatever this connection is running, from any thread.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let rows = connection.query("SELECT max(value % 7) FROM range(1000000000000)")?;
    /// connection.cancel_handle().cancel();
    /// assert!(matches!(rows.collect().unwrap_err().kind(), relatrix::ErrorKind::Cancelled));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle::all(Arc::clone(&self.session.statements))
    }

    /// Limits every later statement to this time; `None` lifts the limit.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// connection.set_timeout(Some(std::time::Duration::from_millis(50)));
    /// let rows = connection.query("SELECT max(value % 7) FROM range(1000000000000)")?;
    /// assert!(matches!(rows.collect().unwrap_err().kind(), relatrix::ErrorKind::TimedOut { .. }));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn set_timeout(&self, limit: Option<Duration>) {
        self.session.set_time_limit(limit);
    }

    /// What the last of some statements becomes, which are started one after the other: for a thread that waits.
    fn begin(&self, statements: Vec<Statement>, parameters: Parameters) -> Result<Started> {
        let text_bytes = statements.iter().map(|statement| statement.text().len()).sum();
        self.database.run(text_bytes, self.started(statements, parameters))
    }

    /// The same for asynchronous code, on the database's threads.
    fn start(
        &self,
        statements: Vec<Statement>,
        parameters: Parameters,
    ) -> impl Future<Output = Result<Started>> + Send + use<> {
        self.database.spawn(self.started(statements, parameters))
    }

    fn started(
        &self,
        statements: Vec<Statement>,
        parameters: Parameters,
    ) -> impl Future<Output = Result<Started>> + Send + use<> {
        let session = Arc::clone(&self.session);
        let naming = statements.iter().filter(|statement| statement.names_text());
        self.database.note_named(naming.map(|statement| statement.text().len()).sum());
        async move {
            let mut last = None;
            for statement in &statements {
                if let Some(Started::Rows(stream)) = last.take() {
                    drain(stream).await?;
                }
                let running = session.statements.begin(session.time_limit());
                let started = session.start(statement, &parameters, &running);
                last = Some(running.unless_stopped(started).await?);
            }
            last.ok_or_else(|| Error::syntax("the text holds no statement"))
        }
    }

    /// The matrix of an expression.
    fn computed(
        &self,
        expression: &str,
        parameters: Parameters,
    ) -> impl Future<Output = Result<Matrix>> + Send + use<> {
        let (session, text) = (Arc::clone(&self.session), expression.to_owned());
        let running = session.statements.begin(session.time_limit());
        async move { running.unless_stopped(session.matrix(&text, parameters, &running)).await }
    }
}

/// The rows that a statement wrote, once it is over.
async fn written(started: Started) -> Result<u64> {
    match started {
        Started::Rows(stream) => drain(stream).await.map(|()| 0),
        Started::Count(count) => Ok(count),
        Started::Done => Ok(0),
    }
}

/// Runs to the end a statement whose rows nobody wants.
async fn drain(mut stream: ResultStream) -> Result<()> {
    while stream.next().await.transpose()?.is_some() {}
    Ok(())
}

/// A statement that is parsed and waits for its parameters.
///
/// ```
/// use relatrix::params;
/// # fn main() -> relatrix::Result<()> {
/// let connection = relatrix::Database::memory()?.connect();
/// let double = connection.prepare("SELECT 2 * $1")?;
/// assert_eq!(double.query(params![4])?.rows::<(i64,)>()?, [(8,)]);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Prepared {
    connection: Connection,
    statement: Statement,
}

impl Prepared {
    /// Runs the statement and returns its rows.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let between = connection.prepare("SELECT count(*) FROM range(100) WHERE value BETWEEN $1 AND $2")?;
    /// assert_eq!(between.query(relatrix::params![10, 19])?.rows::<(i64,)>()?, [(10,)]);
    /// assert_eq!(between.query(relatrix::params![0, 4])?.rows::<(i64,)>()?, [(5,)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub fn query(&self, parameters: Parameters) -> Result<ResultSet> {
        let started = self.connection.begin(vec![self.statement.clone()], parameters)?;
        started.rows().map(ResultSet::new)
    }

    /// [`Prepared::query`] for asynchronous code, on any executor.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use futures::StreamExt;
    /// let connection = relatrix::Database::memory()?.connect();
    /// let double = connection.prepare("SELECT 2 * $1 AS x")?;
    /// let mut rows = double.query_async(relatrix::params![4]).await?;
    /// assert_eq!(rows.next().await.expect("one batch")?.num_rows(), 1);
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub async fn query_async(&self, parameters: Parameters) -> Result<ResultStream> {
        self.connection.start(vec![self.statement.clone()], parameters).await?.rows()
    }

    /// Runs the statement and counts the rows it wrote.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// connection.execute("CREATE TABLE t AS SELECT value AS x FROM range(10)")?;
    /// let delete = connection.prepare("DELETE FROM t WHERE x % $1 = 0")?;
    /// assert_eq!(delete.execute(relatrix::params![5])?, 2);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub fn execute(&self, parameters: Parameters) -> Result<u64> {
        wait(written(self.connection.begin(vec![self.statement.clone()], parameters)?))
    }

    /// [`Prepared::execute`] for asynchronous code, on any executor.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let connection = relatrix::Database::memory()?.connect();
    /// connection.execute("CREATE TABLE t (x INT)")?;
    /// let insert = connection.prepare("INSERT INTO t VALUES ($1), (-$1)")?;
    /// assert_eq!(insert.execute_async(relatrix::params![1]).await?, 2);
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub async fn execute_async(&self, parameters: Parameters) -> Result<u64> {
        let started = self.connection.start(vec![self.statement.clone()], parameters);
        written(started.await?).await
    }
}

/// What can become a table: batches, a stream of them, or any [`TableProvider`].
///
/// ```
/// use std::sync::Arc;
/// use relatrix::datafusion::catalog::{MemTable, TableProvider};
/// let connection = relatrix::Database::memory()?.connect();
/// let batches = connection.query("SELECT value AS n FROM range(4)")?.collect()?;
/// let table: Arc<dyn TableProvider> = Arc::new(MemTable::try_new(batches[0].schema(), vec![batches])?);
/// connection.register("numbers", table)?;
/// assert_eq!(connection.query("SELECT sum(n) FROM numbers")?.rows::<(i64,)>()?, [(6,)]);
/// # Ok::<(), relatrix::Error>(())
/// ```
pub struct Registered(Source);

enum Source {
    Batches(Vec<RecordBatch>),
    Stream(SendableRecordBatchStream),
    Foreign(Arc<dyn TableProvider>),
}

impl From<Vec<RecordBatch>> for Registered {
    fn from(batches: Vec<RecordBatch>) -> Self {
        Self(Source::Batches(batches))
    }
}

impl From<SendableRecordBatchStream> for Registered {
    fn from(stream: SendableRecordBatchStream) -> Self {
        Self(Source::Stream(stream))
    }
}

impl From<Arc<dyn TableProvider>> for Registered {
    fn from(table: Arc<dyn TableProvider>) -> Self {
        Self(Source::Foreign(table))
    }
}

fn memory_table(schema: &Schema, batches: Vec<RecordBatch>, mut kept: Kept) -> Result<Entry> {
    let rows = batches.iter().map(|rows| Ok(Batch::new(rows)?.kept(&mut kept)));
    let rows = rows.collect::<Result<_>>()?;
    let table = MemoryTable::new(schema, TableDefinition::default(), rows, kept)?;
    Ok(Entry::Table(Arc::new(table)))
}
