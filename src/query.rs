//! A statement on its way: its rows one batch at a time, how far it is, and how to stop it.
//!
//! Every statement runs as tasks of the database's own runtime; a caller only receives. So the same
//! code serves a plain thread, a thread of someone else's runtime, and `async` code anywhere.
//!
//! ```text
//! database's runtime                         caller
//!   ExecutionPlan ─► feed ─► [ one batch ] ─► ResultStream ─► ResultSet (blocking)
//!                      ▲                        │ dropped: the task stops
//!                   Running ◄── CancelHandle, time limit, Progress
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::StatisticsArgs;
use futures::{Stream, StreamExt, stream};
use tokio::sync::{mpsc, watch};

use crate::error::{Error, ErrorKind, Result};
use crate::matrix::Matrix;
use crate::memory::{Kept, Turn};
use crate::rows::{self, FromRow};
use crate::steps::ROWS_DROPPED;

/// What one statement yields.
///
/// ```
/// use relatrix::Outcome;
/// let connection = relatrix::Database::memory()?.connect();
/// let text = "CREATE TABLE t (x INT); INSERT INTO t VALUES (1), (2); SELECT * FROM t";
/// for statement in relatrix::parse(text)? {
///     match connection.run(&statement)? {
///         Outcome::Rows(rows) => assert_eq!(rows.rows::<(i32,)>()?, [(1,), (2,)]),
///         Outcome::Count(count) => assert_eq!(count, 2),
///         Outcome::Done => assert_eq!(statement.text(), "CREATE TABLE t (x INT)"),
///     }
/// }
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug)]
pub enum Outcome {
    /// Rows, as from `SELECT`.
    Rows(ResultSet),
    /// How many rows were written, as from `INSERT`.
    Count(u64),
    /// Nothing, as from `CREATE TABLE`.
    Done,
}

/// The rows of a statement as Arrow batches, produced while they are read.
///
/// Dropping it half-way stops the statement.
///
/// ```
/// # fn main() -> relatrix::Result<()> {
/// let connection = relatrix::Database::memory()?.connect();
/// let mut rows = connection.query("SELECT value FROM range(1000000)")?;
/// let first = rows.next().expect("there are rows")?;
/// assert!(first.num_rows() > 0);
/// drop(rows); // The rest is never computed.
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ResultSet {
    stream: ResultStream,
}

impl ResultSet {
    pub(crate) fn new(stream: ResultStream) -> Self {
        Self { stream }
    }

    /// Names and types of the columns.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let schema = connection.query("SELECT 1 AS id, 0.5 AS share")?.schema();
    /// assert_eq!(schema.field(1).name(), "share");
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    /// All batches that are left: in memory, and where the memory limit has no room for them, in files that are mapped
    /// and go with the last of them.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let batches = connection.query("SELECT value FROM range(10)")?.collect()?;
    /// assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 10);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// Whatever went wrong while the statement ran.
    pub fn collect(self) -> Result<Vec<RecordBatch>> {
        self.stream.running.collects.store(true, Ordering::Relaxed);
        Iterator::collect(self)
    }

    /// All rows that are left, as tuples of Rust values; `Option` admits NULL.
    ///
    /// ```
    /// # fn main() -> relatrix::Result<()> {
    /// let connection = relatrix::Database::memory()?.connect();
    /// let rows = connection
    ///     .query("SELECT * FROM (VALUES (1, 'one', 0.5), (2, 'two', NULL))")?
    ///     .rows::<(i64, String, Option<f64>)>()?;
    /// assert_eq!(rows[1], (2, "two".to_owned(), None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Where the number or a type of the columns does not fit, or a NULL meets a type without it.
    pub fn rows<R: FromRow>(mut self) -> Result<Vec<R>> {
        let schema = self.schema();
        R::check(&schema)?;
        let mut all = Vec::new();
        for batch in &mut self {
            R::read(&batch?, &mut all)?;
        }
        Ok(all)
    }

    /// The rows as a matrix: every column a number, or one column of equally long lists of numbers.
    ///
    /// A single list column that arrives in one batch is not copied.
    ///
    /// ```
    /// # fn main() -> relatrix::Result<()> {
    /// let connection = relatrix::Database::memory()?.connect();
    /// let x = connection.query("SELECT * FROM (VALUES (1.0, 2.0), (3.0, 4.0))")?.matrix()?;
    /// assert_eq!(x.cell(1, 0), 3.0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Where a column is not numeric, a cell is NULL, or lists differ in length.
    pub fn matrix(self) -> Result<Matrix> {
        let schema = self.schema();
        rows::matrix(&schema, &self.collect()?)
    }

    /// Stops the statement from any thread.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let rows = connection.query("SELECT max(value % 7) FROM range(1000000000000)")?;
    /// rows.cancel_handle().cancel();
    /// assert!(matches!(rows.collect().unwrap_err().kind(), relatrix::ErrorKind::Cancelled));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn cancel_handle(&self) -> CancelHandle {
        self.stream.cancel_handle()
    }

    /// How far the statement is.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let mut rows = connection.query("SELECT value FROM range(1000000000)")?;
    /// rows.next().expect("there are rows")?;
    /// assert!(rows.progress().rows > 0);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn progress(&self) -> Progress {
        self.stream.progress()
    }
}

impl Iterator for ResultSet {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        wait(self.stream.next())
    }
}

/// The rows of a statement as an asynchronous stream; [`ResultSet`] is its blocking twin.
///
/// It can be polled by any executor. Dropping it half-way stops the statement.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use futures::StreamExt;
/// let connection = relatrix::Database::memory()?.connect();
/// let mut stream = connection.query_async("SELECT value FROM range(10)").await?;
/// while let Some(batch) = stream.next().await {
///     assert_eq!(batch?.num_columns(), 1);
/// }
/// # Ok::<(), relatrix::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct ResultStream {
    schema: SchemaRef,
    batches: mpsc::Receiver<Result<RecordBatch>>,
    /// Stops with its last reader.
    feed: Option<SpawnedTask<()>>,
    running: Arc<Running>,
    ended: bool,
}

impl ResultStream {
    /// Feeds batches through a channel of one, from a task on the current runtime; of few rows that are there at once
    /// no task is made, for to wake a thread takes as long as to look one row up.
    pub(crate) fn start(
        mut stream: SendableRecordBatchStream,
        running: Arc<Running>,
        kept: Kept,
    ) -> Self {
        let schema = stream.schema();
        let (sender, batches) = mpsc::channel(1);
        // Whoever polls next is the one that is woken.
        let mut at_once = || stream.poll_next_unpin(&mut Context::from_waker(Waker::noop()));
        let mut polled = at_once();
        if let Poll::Ready(Some(Ok(batch))) = polled {
            sender.try_send(Ok(batch)).expect("the channel was made to hold one");
            polled = at_once();
        }
        let next = match polled {
            Poll::Ready(Some(batch)) => Some(batch),
            Poll::Pending => None,
            Poll::Ready(None) => {
                running.end_turn();
                return Self { schema, batches, feed: None, running, ended: false };
            }
        };
        let stream = stream::iter(next).chain(stream);
        let feed = SpawnedTask::spawn(feed(stream, sender, Arc::clone(&running), kept));
        Self { schema, batches, feed: Some(feed), running, ended: false }
    }

    /// A stream of batches that are here already.
    pub(crate) fn of(schema: SchemaRef, ready: Vec<RecordBatch>) -> Self {
        let (sender, batches) = mpsc::channel(ready.len().max(1));
        for batch in ready {
            sender.try_send(Ok(batch)).expect("the channel was made to hold them all");
        }
        Self { schema, batches, feed: None, running: Running::new(None), ended: false }
    }

    /// Names and types of the columns.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let connection = relatrix::Database::memory()?.connect();
    /// let stream = connection.query_async("SELECT 1 AS id").await?;
    /// assert_eq!(stream.schema().field(0).name(), "id");
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Stops the statement from any thread.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use futures::TryStreamExt;
    /// let connection = relatrix::Database::memory()?.connect();
    /// let stream = connection.query_async("SELECT max(value % 7) FROM range(1000000000000)").await?;
    /// stream.cancel_handle().cancel();
    /// assert!(stream.try_collect::<Vec<_>>().await.is_err());
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle(Target::Statement(Arc::clone(&self.running)))
    }

    /// How far the statement is.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use futures::StreamExt;
    /// let connection = relatrix::Database::memory()?.connect();
    /// let mut stream = connection.query_async("SELECT value FROM range(1000000000)").await?;
    /// stream.next().await.expect("there are rows")?;
    /// assert!(stream.progress().rows > 0);
    /// # Ok::<(), relatrix::Error>(()) }).unwrap();
    /// ```
    pub fn progress(&self) -> Progress {
        self.running.progress()
    }
}

impl Drop for ResultStream {
    /// Nobody waits for the rest: what only looks at the stop ends too.
    fn drop(&mut self) {
        self.running.cancel();
    }
}

impl Stream for ResultStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let item = match self.batches.poll_recv(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => ready!(self.poll_end(context)).map(Err),
            Poll::Ready(item) => item,
        };
        self.ended = !matches!(item, Some(Ok(_)));
        Poll::Ready(item)
    }
}

impl ResultStream {
    /// Why there are no more batches: a task that was stopped, or that panicked, has no last word
    /// of its own, and its rows must not pass for all rows.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Option<Error>> {
        let Some(feed) = &mut self.feed else { return Poll::Ready(None) };
        Poll::Ready(match ready!(Pin::new(feed).poll(context)) {
            Ok(()) => self.running.stop_error(),
            Err(panic) => Some(ErrorKind::Internal(panic.to_string()).into()),
        })
    }
}

/// Moves batches from the plan to the caller until either ends or the statement is stopped.
async fn feed(
    mut stream: impl Stream<Item = datafusion::common::Result<RecordBatch>> + Unpin,
    sender: mpsc::Sender<Result<RecordBatch>>,
    running: Arc<Running>,
    mut kept: Kept,
) {
    let all = async {
        while let Some(batch) = stream.next().await {
            let last = batch.is_err();
            let place = match sender.try_reserve() {
                Ok(place) => Ok(place),
                Err(_) => running.while_others_work(sender.reserve()).await,
            };
            let Ok(place) = place else { break };
            let keep = |batch| match running.collects.load(Ordering::Relaxed) {
                true => kept.keep(batch),
                false => batch,
            };
            place.send(batch.map(keep).map_err(Error::from));
            if last {
                break;
            }
        }
        Ok(())
    };
    // On a stop the reader finds the reason in `running`, so nothing has to fit into the channel.
    let _stopped = running.unless_stopped(all).await;
    running.end_turn();
}

/// Why a statement was stopped.
#[derive(Debug, Clone, Copy)]
enum Stop {
    Cancelled,
    TimedOut(Duration),
}

/// A statement that is running: what handles, the time limit and the progress share.
#[derive(Debug)]
pub(crate) struct Running {
    stop: watch::Sender<Option<Stop>>,
    time_limit: Option<Duration>,
    started: Instant,
    /// The scans of the latest of its plans, and the rows that each had given before it began: a scan may have run before.
    scans: Mutex<Vec<(Arc<dyn ExecutionPlan>, usize)>>,
    turn: Mutex<Option<Turn>>,
    /// Whether its reader keeps all rows.
    collects: AtomicBool,
}

impl Running {
    pub(crate) fn new(time_limit: Option<Duration>) -> Arc<Self> {
        let stop = watch::Sender::new(None);
        let (scans, turn, collects) = Default::default();
        Arc::new(Self { stop, time_limit, started: Instant::now(), scans, turn, collects })
    }

    /// Takes its turn among the statements that work.
    pub(crate) fn take(&self, turn: Turn) {
        *self.turn() = Some(turn);
    }

    /// Leaves its turn to others, for nothing is left to be done.
    pub(crate) fn end_turn(&self) {
        *self.turn() = None;
    }

    fn turn(&self) -> MutexGuard<'_, Option<Turn>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a reader, while others may have its turn.
    async fn while_others_work<T>(&self, reader: impl Future<Output = T>) -> T {
        self.turn().iter().for_each(Turn::pause);
        let value = reader.await;
        self.turn().iter().for_each(Turn::resume);
        value
    }

    /// Lets progress be read from the scans of a plan while it runs.
    pub(crate) fn watch(&self, scans: Vec<Arc<dyn ExecutionPlan>>) {
        let scans = scans.into_iter().map(|scan| {
            let before = rows_passed(scan.as_ref()).unwrap_or(0);
            (scan, before)
        });
        *self.scans.lock().unwrap_or_else(PoisonError::into_inner) = scans.collect();
    }

    /// The value of `future`, or the reason why the statement was stopped before it was there.
    pub(crate) async fn unless_stopped<T>(
        &self,
        future: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut stop = self.stop.subscribe();
        let stopped = async {
            // The sender is `self.stop`, so the channel cannot close while this waits.
            let _changed = stop.wait_for(Option::is_some).await;
        };
        let overdue = async {
            match self.time_limit {
                Some(limit) => {
                    tokio::time::sleep_until((self.started + limit).into()).await;
                    self.stop(Stop::TimedOut(limit));
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stopped => (),
            () = overdue => (),
            value = future => return value,
        }
        Err(self.stop_error().expect("one of the two above has set it"))
    }

    /// What the conditions of joins look at. The clock is looked at here too: while all threads compare
    /// rows, none is there for whoever waits for the time limit.
    pub(crate) fn stop_check(self: &Arc<Self>) -> impl Fn() -> Result<()> + Send + Sync + use<> {
        let running = Arc::clone(self);
        move || {
            if let Some(limit) =
                running.time_limit.filter(|limit| running.started.elapsed() > *limit)
            {
                running.stop(Stop::TimedOut(limit));
            }
            running.stop_error().map_or(Ok(()), Err)
        }
    }

    fn cancel(&self) {
        self.stop(Stop::Cancelled);
    }

    /// The first reason counts.
    fn stop(&self, reason: Stop) {
        self.stop.send_if_modified(|stop| stop.is_none().then(|| *stop = Some(reason)).is_some());
    }

    fn stop_error(&self) -> Option<Error> {
        let stop = *self.stop.borrow();
        stop.map(|stop| match stop {
            Stop::Cancelled => ErrorKind::Cancelled.into(),
            Stop::TimedOut(limit) => ErrorKind::TimedOut { seconds: limit.as_secs_f64() }.into(),
        })
    }

    fn progress(&self) -> Progress {
        let elapsed = self.started.elapsed();
        let scans = self.scans.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut rows_read, mut rows_expected, mut is_known) = (0, 0, true);
        for (scan, before) in scans.iter() {
            let counted = rows_passed(scan.as_ref());
            let read = counted.unwrap_or(0).saturating_sub(*before);
            let expected = scan
                .statistics_from_inputs(&[], &StatisticsArgs::default())
                .ok()
                .and_then(|statistics| statistics.num_rows.get_value().copied());
            rows_read += read;
            rows_expected += expected.unwrap_or(0).max(read);
            is_known &= expected.is_some() && counted.is_some();
        }
        let is_known = is_known && rows_expected > 0;
        let fraction = is_known.then(|| rows_read as f64 / rows_expected as f64);
        Progress { fraction, rows: rows_read as u64, elapsed }
    }
}

/// The rows that a scan has given or passed over; not every one counts them.
fn rows_passed(scan: &dyn ExecutionPlan) -> Option<usize> {
    let metrics = scan.metrics()?;
    let dropped = metrics.sum_by_name(ROWS_DROPPED).map_or(0, |count| count.as_usize());
    Some(metrics.output_rows()? + dropped)
}

/// How far a statement is, judged by the rows its scans have given.
///
/// ```
/// let connection = relatrix::Database::memory()?.connect();
/// let mut rows = connection.query("SELECT value FROM range(1000000000)")?;
/// rows.next().expect("there are rows")?;
/// let progress = rows.progress();
/// assert!(progress.fraction.is_none_or(|fraction| (0.0..=1.0).contains(&fraction)));
/// assert!(progress.elapsed > std::time::Duration::ZERO);
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Between 0 and 1; `None` where a scan cannot say how many rows it has.
    pub fraction: Option<f64>,
    /// Rows read so far.
    pub rows: u64,
    /// Time since the statement began.
    pub elapsed: Duration,
}

impl Progress {
    /// Seconds left if the rest goes as fast as what is done.
    ///
    /// ```
    /// use std::time::Duration;
    /// let quarter = relatrix::Progress { fraction: Some(0.25), rows: 10, elapsed: Duration::from_secs(1) };
    /// assert_eq!(quarter.seconds_left(), Some(3.0));
    /// ```
    pub fn seconds_left(&self) -> Option<f64> {
        let fraction = self.fraction.filter(|&fraction| fraction > 0.0)?;
        Some(self.elapsed.as_secs_f64() * (1.0 - fraction) / fraction)
    }
}

/// Stops a statement, or whatever a connection is running, and tells how far it is.
///
/// ```
/// use relatrix::ErrorKind;
/// # fn main() -> relatrix::Result<()> {
/// let connection = relatrix::Database::memory()?.connect();
/// let mut rows = connection.query("SELECT max(value % 7) FROM range(1000000000000)")?;
/// let handle = rows.cancel_handle();
/// std::thread::spawn(move || handle.cancel());
/// let error = rows.next().expect("the error")
///     .expect_err("counting takes longer than a thread takes to start");
/// assert!(matches!(error.kind(), ErrorKind::Cancelled));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct CancelHandle(Target);

#[derive(Debug, Clone)]
enum Target {
    Statement(Arc<Running>),
    Connection(Arc<Statements>),
}

impl CancelHandle {
    /// A handle of everything that these statements become.
    pub(crate) fn all(statements: Arc<Statements>) -> Self {
        Self(Target::Connection(statements))
    }

    /// Stops the statement; a connection's handle stops all that run now and none that come later.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let handle = connection.cancel_handle();
    /// handle.cancel(); // Nothing runs, so nothing stops.
    /// assert_eq!(connection.query("SELECT 1")?.rows::<(i64,)>()?, [(1,)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn cancel(&self) {
        match &self.0 {
            Target::Statement(running) => running.cancel(),
            Target::Connection(statements) => {
                statements.running().iter().for_each(|running| running.cancel());
            }
        }
    }

    /// How far the statement is, or the latest one of the connection; `None` where none runs.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let handle = connection.cancel_handle();
    /// assert_eq!(handle.progress(), None);
    /// let rows = connection.query("SELECT value FROM range(1000000000)")?;
    /// assert!(handle.progress().is_some());
    /// # drop(rows);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn progress(&self) -> Option<Progress> {
        match &self.0 {
            Target::Statement(running) => Some(running.progress()),
            Target::Connection(statements) => {
                statements.running().last().map(|running| running.progress())
            }
        }
    }
}

/// The statements that a connection is running, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Statements(Mutex<Vec<Weak<Running>>>);

impl Statements {
    /// A new statement, listed here for as long as it lives.
    pub(crate) fn begin(&self, time_limit: Option<Duration>) -> Arc<Running> {
        let running = Running::new(time_limit);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&running));
        running
    }

    fn running(&self) -> Vec<Arc<Running>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Waits on this thread, which may belong to a runtime: only another thread has to make progress.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
