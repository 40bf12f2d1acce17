//! The public face: a [`Database`], and [`Connection`]s to it.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::error::{Error, ErrorKind, Result};

/// A database: its tables, matrices, threads and memory.
#[derive(Clone)]
pub struct Database(Arc<Inner>);

struct Inner {
    runtime: tokio::runtime::Runtime,
    context: SessionContext,
}

/// How a database is made.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    threads: Option<usize>,
}

impl Builder {
    /// Worker threads; as many as there are cores unless set.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Makes the database.
    pub fn build(self) -> Result<Database> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        if let Some(threads) = self.threads {
            runtime.worker_threads(threads);
        }
        let runtime = runtime
            .enable_all()
            .build()
            .map_err(|error| Error::from(ErrorKind::Internal(error.to_string())))?;
        let mut config = SessionConfig::new().with_information_schema(true);
        if let Some(threads) = self.threads {
            config = config.with_target_partitions(threads);
        }
        Ok(Database(Arc::new(Inner { runtime, context: SessionContext::new_with_config(config) })))
    }
}

impl Database {
    /// A database in memory.
    pub fn memory() -> Result<Self> {
        Self::builder().build()
    }

    /// Threads, memory and settings, then [`Builder::build`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A connection: cheap to make and to clone.
    pub fn connect(&self) -> Connection {
        Connection { database: self.clone() }
    }
}

/// A connection to a database.
#[derive(Clone)]
pub struct Connection {
    database: Database,
}

impl Connection {
    /// Runs one statement and collects its rows.
    pub fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        let inner = &self.database.0;
        inner.runtime.block_on(async { Ok(inner.context.sql(sql).await?.collect().await?) })
    }
}
