//! The public face: a [`Database`], and [`Connection`]s to it.
//!
//! [`Connection::run`] shows the whole flow of a statement.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Schema, UInt64Type};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{collect, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use tokio::runtime::Runtime;

use crate::error::{Error, ErrorKind, Result};
use crate::query::{CancelHandle, Outcome, ResultSet, ResultStream, Running, Statements, wait};
use crate::sql::{self, Statement, StatementKind};
use crate::value::Parameters;
use crate::{functions, session};

/// A database: its tables, matrices, threads and memory.
///
/// Cheap to clone; clones are the same database. It lives until the last clone, connection and
/// result are gone.
#[derive(Clone)]
pub struct Database(Arc<Shared>);

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Database")
    }
}

struct Shared {
    /// `None` only while it is being dropped.
    runtime: Option<Runtime>,
    context: SessionContext,
    matrices: Arc<crate::matrices::Matrices>,
}

impl Drop for Shared {
    /// A runtime must not be dropped on a thread of another one, where waiting is forbidden.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// How a database is made.
///
/// ```
/// # fn main() -> relatrix::Result<()> {
/// let database = relatrix::Database::builder().threads(2).memory_limit(1 << 30).build()?;
/// # drop(database);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Builder {
    threads: Option<usize>,
    memory_limit_bytes: Option<usize>,
}

impl Builder {
    /// Worker threads; as many as there are cores unless set.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Bytes that statements may use together.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    /// Makes the database.
    ///
    /// # Errors
    /// Where the operating system refuses threads or the temporary directory.
    pub fn build(self) -> Result<Database> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.thread_name("relatrix").enable_all().thread_stack_size(STACK_BYTES);
        let mut config = SessionConfig::new().with_information_schema(true);
        if let Some(threads) = self.threads {
            runtime.worker_threads(threads.max(1));
            config = config.with_target_partitions(threads.max(1));
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads.unwrap_or(0)).build();
        let pool = pool.map_err(|error| ErrorKind::Internal(error.to_string()))?;
        config = config.with_extension(Arc::new(crate::exec::Engine { pool }));
        config = config.with_option_extension(crate::config::Settings::default());
        let mut environment = RuntimeEnvBuilder::new();
        if let Some(bytes) = self.memory_limit_bytes {
            environment = environment.with_memory_limit(bytes, 1.0);
        }
        let runtime = runtime.build().map_err(|error| ErrorKind::Internal(error.to_string()))?;
        let state = session::new_state(config, environment.build_arc()?)?;
        let context = SessionContext::new_with_state(state);
        Ok(Database(Arc::new(Shared { runtime: Some(runtime), context, matrices: Arc::default() })))
    }
}

impl Database {
    /// A database in memory.
    ///
    /// ```
    /// # fn main() -> relatrix::Result<()> {
    /// let connection = relatrix::Database::memory()?.connect();
    /// connection.execute("CREATE TABLE t (x DOUBLE); INSERT INTO t VALUES (1.5), (2.5)")?;
    /// let sum = connection.query("SELECT sum(x) FROM t")?.rows::<(f64,)>()?;
    /// assert_eq!(sum, [(4.0,)]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Where the operating system refuses threads.
    pub fn memory() -> Result<Self> {
        Self::builder().build()
    }

    /// Threads, memory and settings, then [`Builder::build`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A connection, with settings and prepared statements of its own.
    pub fn connect(&self) -> Connection {
        Connection(Arc::new(Session {
            database: self.clone(),
            time_limit: Mutex::default(),
            statements: Arc::default(),
        }))
    }

    /// Runs a future on the database's threads; dropping the result stops it.
    fn spawn<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<T>> + Send + use<T, F> {
        struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);
        impl<T> Drop for AbortOnDrop<T> {
            fn drop(&mut self) {
                self.0.abort();
            }
        }
        let runtime = self.0.runtime.as_ref().expect("the runtime lives as long as the database");
        let mut task = AbortOnDrop(runtime.spawn(future));
        async move {
            match (&mut task.0).await {
                Ok(result) => result,
                Err(panic) => Err(ErrorKind::Internal(panic.to_string()).into()),
            }
        }
    }
}

/// A connection to a database; settings and prepared statements belong to it, tables to the database.
///
/// Cheap to clone: clones are the same connection. Every blocking call may be made on a thread of an
/// asynchronous runtime too, which it then blocks.
#[derive(Debug, Clone)]
pub struct Connection(Arc<Session>);

#[derive(Debug)]
struct Session {
    database: Database,
    time_limit: Mutex<Option<Duration>>,
    statements: Arc<Statements>,
}

/// What a statement became, before anybody decides to wait for it or not.
enum Started {
    Rows(ResultStream),
    Count(u64, Arc<Running>),
    Done(Arc<Running>),
}

impl Started {
    fn outcome(self) -> Outcome {
        match self {
            Started::Rows(stream) => Outcome::Rows(ResultSet::new(stream)),
            Started::Count(count, _) => Outcome::Count(count),
            Started::Done(_) => Outcome::Done,
        }
    }

    /// The rows, or one row with the count, or no row of no column.
    fn rows(self) -> Result<ResultStream> {
        match self {
            Started::Rows(stream) => Ok(stream),
            Started::Count(count, running) => {
                let counts = Arc::new(arrow::array::UInt64Array::from(vec![count]));
                let batch = RecordBatch::try_from_iter([("count", counts as _)])?;
                Ok(ResultStream::of(batch.schema(), vec![batch], running))
            }
            Started::Done(running) => {
                Ok(ResultStream::of(Arc::new(Schema::empty()), Vec::new(), running))
            }
        }
    }
}

impl Connection {
    /// Runs one statement.
    ///
    /// # Errors
    /// Whatever keeps the statement from being planned or from beginning to run; what fails later
    /// comes with the rows.
    pub fn run(&self, statement: &Statement) -> Result<Outcome> {
        self.run_with(statement, Parameters::new())
    }

    /// Runs one statement with these values for its parameters.
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub fn run_with(&self, statement: &Statement, parameters: Parameters) -> Result<Outcome> {
        wait(self.start(vec![statement.clone()], parameters)).map(Started::outcome)
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
    /// # Errors
    /// As [`Connection::execute`].
    pub fn execute_with(&self, text: &str, parameters: Parameters) -> Result<u64> {
        wait(self.execute_async_with(text, parameters))
    }

    /// [`Connection::execute`] for asynchronous code, on any executor.
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub async fn execute_async(&self, text: &str) -> Result<u64> {
        self.execute_async_with(text, Parameters::new()).await
    }

    /// [`Connection::execute_async`] with values for the parameters.
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub async fn execute_async_with(&self, text: &str, parameters: Parameters) -> Result<u64> {
        match self.start(sql::parse(text)?, parameters).await? {
            Started::Rows(mut stream) => {
                while futures::StreamExt::next(&mut stream).await.transpose()?.is_some() {}
                Ok(0)
            }
            Started::Count(count, _) => Ok(count),
            Started::Done(_) => Ok(0),
        }
    }

    /// Runs every statement of a text and returns the rows of the last one.
    ///
    /// A statement that writes yields one row with its count.
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub fn query(&self, text: &str) -> Result<ResultSet> {
        self.query_with(text, Parameters::new())
    }

    /// [`Connection::query`] with values for the parameters.
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub fn query_with(&self, text: &str, parameters: Parameters) -> Result<ResultSet> {
        wait(self.query_async_with(text, parameters)).map(ResultSet::new)
    }

    /// [`Connection::query`] for asynchronous code, on any executor.
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub async fn query_async(&self, text: &str) -> Result<ResultStream> {
        self.query_async_with(text, Parameters::new()).await
    }

    /// [`Connection::query_async`] with values for the parameters.
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

    /// Makes a table of these batches.
    ///
    /// # Errors
    /// Where a batch has another schema than the first.
    pub fn register(&self, name: &str, table: impl Into<Registered>) -> Result<()> {
        let Registered(table) = table.into();
        self.0.database.0.context.register_table(name, table?)?;
        Ok(())
    }

    /// Stops whatever this connection is running, from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle::all(Arc::clone(&self.0.statements))
    }

    /// Limits every later statement to this time; `None` lifts the limit.
    pub fn set_timeout(&self, limit: Option<Duration>) {
        *self.0.time_limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
    }

    /// Starts statements one after the other on the database's threads; yields what the last becomes.
    fn start(
        &self,
        statements: Vec<Statement>,
        parameters: Parameters,
    ) -> impl Future<Output = Result<Started>> + Send + use<> {
        let session = Arc::clone(&self.0);
        self.0.database.spawn(async move {
            let mut last = None;
            for statement in &statements {
                if let Some(Started::Rows(stream)) = last.take() {
                    drain(stream).await?;
                }
                let limit = *session.time_limit.lock().unwrap_or_else(PoisonError::into_inner);
                let running = session.statements.begin(limit);
                let started = session.start(statement, &parameters, &running);
                last = Some(running.unless_stopped(started).await?);
            }
            last.ok_or_else(|| Error::syntax("the text holds no statement"))
        })
    }
}

/// Runs to the end a statement whose rows nobody wants.
async fn drain(mut stream: ResultStream) -> Result<()> {
    while futures::StreamExt::next(&mut stream).await.transpose()?.is_some() {}
    Ok(())
}

impl Session {
    /// The whole flow: syntax → logical plan → physical plan → rows.
    async fn start(
        &self,
        statement: &Statement,
        parameters: &Parameters,
        running: &Arc<Running>,
    ) -> Result<Started> {
        let context = &self.database.0.context;
        let statements = crate::matrices::Statements {
            matrices: Arc::clone(&self.database.0.matrices),
            state: context.state(),
            parameters: parameters.clone(),
            primary_key: Arc::new(|_| None),
        };
        let rows = |batch: RecordBatch| {
            Started::Rows(ResultStream::of(batch.schema(), vec![batch], Arc::clone(running)))
        };
        let (plan, names) = match statements.resolved(statement)? {
            StatementKind::Sql(mut syntax) => {
                functions::expand(&mut syntax);
                let names = sql::distinguish(&mut syntax);
                (statements.plan(*syntax).await?, names)
            }
            StatementKind::CreateMatrix(create) => {
                statements.create(*create).await?;
                return Ok(Started::Done(Arc::clone(running)));
            }
            StatementKind::DropMatrix { name, if_exists } => {
                statements.drop(&name, if_exists)?;
                return Ok(Started::Done(Arc::clone(running)));
            }
            StatementKind::ShowMatrices => return Ok(rows(statements.show()?)),
            StatementKind::DescribeMatrix { name } => return Ok(rows(statements.describe(&name)?)),
            StatementKind::CopyMatrix(copy) => {
                return Ok(Started::Count(statements.copy(copy).await?, Arc::clone(running)));
            }
            other => return Err(Error::unsupported(format!("{other:?}"))),
        };
        let done = matches!(plan, LogicalPlan::Ddl(_) | LogicalPlan::Statement(_));
        let writes = matches!(plan, LogicalPlan::Dml(_) | LogicalPlan::Copy(_));
        let frame = context.execute_logical_plan(plan).await?;
        if done {
            return Ok(Started::Done(Arc::clone(running)));
        }
        let tasks = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        running.watch(&plan);
        if writes {
            let counts = collect(plan, tasks).await?;
            let count = |batch: &RecordBatch| batch.column(0).as_primitive::<UInt64Type>().value(0);
            return Ok(Started::Count(counts.iter().map(count).sum(), Arc::clone(running)));
        }
        let stream = execute_stream(plan, tasks)?;
        Ok(Started::Rows(ResultStream::start(names.renamed(stream), Arc::clone(running))))
    }
}

/// Stack of each thread. Syntax trees are cloned and dropped by recursion, about 1.2 KB a level
/// (measured), and a chain of operators is as deep as it is long: room for some ten thousand.
const STACK_BYTES: usize = 16 << 20;

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
    /// # Errors
    /// As [`Connection::run`].
    pub fn query(&self, parameters: Parameters) -> Result<ResultSet> {
        let started = wait(self.connection.start(vec![self.statement.clone()], parameters))?;
        started.rows().map(ResultSet::new)
    }

    /// Runs the statement and counts the rows it wrote.
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub fn execute(&self, parameters: Parameters) -> Result<u64> {
        match wait(self.connection.start(vec![self.statement.clone()], parameters))? {
            Started::Rows(stream) => wait(drain(stream)).map(|()| 0),
            Started::Count(count, _) => Ok(count),
            Started::Done(_) => Ok(0),
        }
    }
}

/// What can become a table: batches, or any [`TableProvider`].
#[derive(Debug)]
pub struct Registered(Result<Arc<dyn TableProvider>>);

impl From<Vec<RecordBatch>> for Registered {
    fn from(batches: Vec<RecordBatch>) -> Self {
        let schema = batches.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
        Self(match MemTable::try_new(schema, vec![batches]) {
            Ok(table) => Ok(Arc::new(table)),
            Err(error) => Err(error.into()),
        })
    }
}

impl From<Arc<dyn TableProvider>> for Registered {
    fn from(table: Arc<dyn TableProvider>) -> Self {
        Self(Ok(table))
    }
}
