//! Relatrix: an embedded engine in which SQL and matrix expressions are one language and one plan.

pub mod error;
#[doc(hidden)] // Public for the benchmarks alone.
pub mod exec;
pub mod matrix;

mod catalog;
mod config;
mod database;
mod files;
mod functions;
mod matrices;
mod planner;
mod query;
mod rows;
mod session;
mod sql;
mod storage;
mod value;

pub use arrow;
pub use config::parse_bytes;
pub use database::{Builder, Connection, Database, Prepared, Registered};
pub use datafusion;
pub use error::{Error, ErrorKind, Place, Result};
pub use planner::MATRIX_FUNCTIONS;
pub use query::{CancelHandle, Outcome, Progress, ResultSet, ResultStream};
pub use rows::{FromRow, FromValue};
pub use sql::{Statement, is_complete, parse};
pub use value::{Parameters, Value};
