//! A [`Database`]: its settings, its threads, and what its connections share.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use datafusion::execution::SessionState;
use tokio::runtime::{Handle, Runtime};

use crate::catalog::unknown;
use crate::config::{Directory, Setting, Settings};
use crate::connection::Connection;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{IDLE_MAX, MemoryUsage, Pool};
use crate::query::wait;
use crate::session::{self, Resources, Session};

/// A database: its tables, matrices, threads and memory.
///
/// Cheap to clone; clones are the same database. It lives until the last clone, connection and
/// result are gone.
///
/// ```
/// let database = relatrix::Database::memory()?;
/// let (writer, reader) = (database.connect(), database.connect());
/// writer.execute("CREATE TABLE t AS SELECT 42 AS x")?;
/// assert_eq!(reader.query("SELECT x FROM t")?.rows::<(i64,)>()?, [(42,)]);
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Clone)]
pub struct Database(Arc<Shared>);

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Database")
    }
}

#[cfg(test)]
impl Database {
    pub(crate) fn disk(&self) -> &crate::memory::Disk {
        &self.0.shared.disk
    }
}

#[cfg(test)]
mod tests;

struct Shared {
    /// `None` only while it is being dropped.
    runtime: Option<Runtime>,
    /// Held by the thread that does work for itself, see [`Database::run`].
    guest: Mutex<()>,
    /// Bytes of all texts that names were given to, and that statements may have in place of these.
    named: AtomicUsize,
    shared: Resources,
    /// What every connection's session starts from.
    state: SessionState,
    settings: Settings,
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
    settings: Settings,
    reclaim: Option<fn()>,
}

impl Builder {
    /// Worker threads; as many as there are cores unless set.
    ///
    /// ```
    /// let connection = relatrix::Database::builder().threads(2).build()?.connect();
    /// let shown = connection.query("SHOW threads")?.rows::<Vec<relatrix::Value>>()?;
    /// assert_eq!(shown[0][1].to_string(), "2");
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn threads(mut self, threads: usize) -> Self {
        self.settings.threads = threads.max(1);
        self
    }

    /// Bytes that statements may use together; seven tenths of the machine's unless set. What does not fit is in
    /// files, but for what some factorizations work in.
    ///
    /// ```
    /// let connection = relatrix::Database::builder().memory_limit(16 << 20).build()?.connect();
    /// let sum = connection.query("SELECT (MATRIX(sum(2 * ones(2000, 2000))))")?.rows::<(f64,)>()?; // 32 MB
    /// assert_eq!(sum, [(8_000_000.0,)]);
    /// let error = connection.matrix("expm(ones(2000, 2000))").unwrap_err();
    /// assert!(matches!(error.kind(), relatrix::ErrorKind::MemorySpent { .. }));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.settings.memory_limit_bytes = bytes;
        self
    }

    /// Where rows go that do not fit into memory, which is made where it is not there; the system's temporary
    /// directory unless set.
    ///
    /// ```
    /// let folder = std::env::temp_dir();
    /// let connection = relatrix::Database::builder().temp_directory(&folder).build()?.connect();
    /// let shown = connection.query("SHOW temp_directory")?.rows::<Vec<relatrix::Value>>()?;
    /// assert_eq!(shown[0][1].to_string(), folder.display().to_string());
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn temp_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.temp_directories = vec![Directory::at(directory.into())];
        self
    }

    /// What makes the allocator give back to the system what it keeps of freed memory: called where the
    /// process, as the system sees it, leaves no room for what is asked for. Only with `memory_watch` on.
    ///
    /// ```
    /// fn collect() {} // as mi_collect of mimalloc, or malloc_trim of glibc
    /// let database = relatrix::Database::builder().set("memory_watch", "on")?.reclaim(collect).build()?;
    /// assert_eq!(database.connect().query("SELECT 1")?.rows::<(i64,)>()?, [(1,)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn reclaim(mut self, collect: fn()) -> Self {
        self.reclaim = Some(collect);
        self
    }

    /// Rows that operators pass on at a time.
    ///
    /// ```
    /// let connection = relatrix::Database::builder().batch_size(4).build()?.connect();
    /// let batches = connection.query("SELECT value FROM range(10)")?.collect()?;
    /// assert!(batches.iter().all(|batch| batch.num_rows() <= 4));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn batch_size(mut self, rows: usize) -> Self {
        self.settings.batch_size = rows.max(1);
        self
    }

    /// Any setting of `SHOW ALL` by its name.
    ///
    /// ```
    /// let builder = relatrix::Database::builder().set("memory_limit", "2GB")?.set("fusion", "off")?;
    /// assert!(builder.clone().set("threads", "many").is_err());
    /// assert!(builder.build().is_ok());
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where there is no such setting, or the value makes no sense for it.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self> {
        let setting = Setting::named(name).ok_or_else(|| unknown("setting", name))?;
        setting
            .set(&mut self.settings, value)
            .map_err(|error| Error::argument(setting.name, error))?;
        Ok(self)
    }

    /// Makes the database.
    ///
    /// ```
    /// let database = relatrix::Database::builder().threads(1).build()?;
    /// assert_eq!(database.connect().query("SELECT 1 + 1")?.rows::<(i64,)>()?, [(2,)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where more than 1024 threads are asked for, or the operating system refuses them or the temporary
    /// directory.
    pub fn build(self) -> Result<Database> {
        let Self { settings, reclaim } = self;
        settings.check_threads().map_err(|error| Error::argument("threads", error))?;
        let provided = settings.temp_directories.iter().try_for_each(Directory::provide);
        provided.map_err(|error| Error::argument("temp_directory", error))?;
        let shared = Resources::new(&settings, reclaim)?;
        let blocks = Arc::clone(&shared.blocks);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .on_thread_start(move || blocks.serve_this_thread())
            .thread_name("relatrix")
            .worker_threads(settings.threads)
            .thread_stack_size(STACK_BYTES)
            // A poll may be long: whoever stops a statement must not wait for dozens of them. Looking at
            // the clock each time costs short statements 3 % (measured).
            .global_queue_interval(1)
            .event_interval(16)
            .enable_all()
            .build()
            .map_err(|error| ErrorKind::Internal(error.to_string()))?;
        runtime.spawn(expired(Arc::downgrade(&shared.blocks)));
        let state = session::new_state(&settings, &shared)?;
        Ok(Database(Arc::new(Shared {
            runtime: Some(runtime),
            guest: Mutex::new(()),
            named: AtomicUsize::new(0),
            shared,
            state,
            settings,
        })))
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
    ///
    /// ```
    /// let database = relatrix::Database::builder().set("null_order", "nulls_first")?.build()?;
    /// let rows = database.connect().query("SELECT * FROM (VALUES (1), (NULL)) AS t(x) ORDER BY x")?;
    /// assert_eq!(rows.rows::<(Option<i64>,)>()?, [(None,), (Some(1),)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A connection, with settings and prepared statements of its own.
    ///
    /// ```
    /// let database = relatrix::Database::memory()?;
    /// let (one, other) = (database.connect(), database.connect());
    /// one.execute("CREATE TEMPORARY TABLE t AS SELECT 1 AS x")?;
    /// assert!(other.query("SELECT * FROM t").is_err());
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn connect(&self) -> Connection {
        let Shared { shared, state, settings, .. } = self.0.as_ref();
        let session = Session::new(shared.clone(), settings.clone(), state.clone());
        Connection::new(self.clone(), Arc::new(session))
    }

    /// How the memory of matrices is used, as `SHOW MEMORY` shows it.
    ///
    /// ```
    /// let database = relatrix::Database::builder().threads(1).build()?;
    /// assert_eq!(database.memory_usage().used_bytes, 0);
    /// database.connect().execute("CREATE MATRIX x = ones(1000, 100)")?;
    /// assert!(database.memory_usage().used_bytes >= 800_000);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn memory_usage(&self) -> MemoryUsage {
        self.0.shared.blocks.usage()
    }

    /// Takes note of so many bytes of text that a name was given to.
    pub(crate) fn note_named(&self, text_bytes: usize) {
        let more = |named: usize| Some(named.saturating_add(text_bytes));
        // It never refuses.
        let _ = self.0.named.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Runs a future for a thread that waits for it: there as far as it comes without waiting itself, for to wake two threads takes
    /// longer than most small statements, and then on the database's threads. One thread at a time does so: where there are several,
    /// the database's are awake, and no more than one works beside those. The stack is as deep as so many bytes of text may ask for.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        text_bytes: usize,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let mut future = Box::pin(future);
        // A thread of a runtime must not enter another one.
        if Handle::try_current().is_err()
            && let Ok(_guest) = self.0.guest.try_lock()
        {
            // Who polls next is the one that is woken. Within the runtime, for there long work gives way.
            let mut context = Context::from_waker(Waker::noop());
            let once = poll_fn(|_| Poll::Ready(future.as_mut().poll(&mut context)));
            let polled = || catch_unwind(AssertUnwindSafe(|| self.runtime().block_on(once)));
            let bytes = self.0.named.load(Ordering::Relaxed).saturating_add(text_bytes);
            let within = || stacker::maybe_grow(stack_needed(bytes), STACK_BYTES, polled);
            match self.0.shared.blocks.serve(within) {
                Ok(Poll::Ready(result)) => return result,
                Ok(Poll::Pending) => {}
                Err(panic) => return Err(panicked(&*panic)),
            }
        }
        wait(self.spawn(future))
    }

    /// Runs a future on the database's threads; dropping the result stops it.
    pub(crate) fn spawn<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<T>> + Send + use<T, F> {
        struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);
        impl<T> Drop for AbortOnDrop<T> {
            fn drop(&mut self) {
                self.0.abort();
            }
        }
        let mut task = AbortOnDrop(self.runtime().spawn(future));
        async move {
            match (&mut task.0).await {
                Ok(result) => result,
                Err(panic) => Err(ErrorKind::Internal(panic.to_string()).into()),
            }
        }
    }

    fn runtime(&self) -> &Runtime {
        self.0.runtime.as_ref().expect("the runtime lives as long as the database")
    }
}

/// The error of work that has panicked.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!("a statement panicked: {}", said.unwrap_or("without a word"));
    ErrorKind::Internal(message).into()
}

/// Gives back to the system what a database keeps and does not use, as long as there is one.
async fn expired(blocks: Weak<Pool>) {
    loop {
        tokio::time::sleep(IDLE_MAX / 4).await;
        let Some(blocks) = blocks.upgrade() else { return };
        blocks.expire(Instant::now());
    }
}

/// Stack of each thread, and of who does the work of one. Syntax trees are cloned and dropped by recursion, about 1.2 KB a level
/// (measured), and a chain of operators is as deep as it is long: room for some ten thousand.
const STACK_BYTES: usize = 16 << 20;

/// Stack that is enough for whoever does the work of a statement of so many bytes of text: trees are as deep as their text is
/// long, at most. A new stack takes longer than the smallest statements: its pages are touched for the first time.
fn stack_needed(text_bytes: usize) -> usize {
    const AT_LEAST: usize = 4 << 20;
    const OF_EACH_BYTE: usize = 2 << 10;
    AT_LEAST.saturating_add(text_bytes.saturating_mul(OF_EACH_BYTE)).min(STACK_BYTES)
}
