//! Relatrix: an embedded engine in which SQL and matrix expressions are one language and one plan.
//!
//! A [`Database`] is opened once, a [`Connection`] runs statements, and a result is read as rows, as Arrow
//! batches or as a [`matrix::Matrix`].
//!
//! ```
//! let connection = relatrix::Database::memory()?.connect();
//! connection.execute(
//!     "CREATE TABLE points (x DOUBLE, y DOUBLE) AS VALUES (0, 1), (1, 3), (2, 5);
//!      CREATE MATRIX design AS SELECT 1.0 AS base, x FROM points ORDER BY x;
//!      CREATE MATRIX observed AS SELECT y FROM points ORDER BY x",
//! )?;
//! let line = connection.query("SELECT * FROM MATRIX(lstsq(design, observed)) AS w(term, value)")?;
//! let terms = line.rows::<(String, f64)>()?;
//! assert_eq!((terms[1].0.as_str(), terms[1].1.round()), ("x", 2.0));
//! # Ok::<(), relatrix::Error>(())
//! ```

pub mod error;
#[doc(hidden)] // Public for the benchmarks alone.
pub mod exec;
pub mod matrix;

mod anew;
mod cache;
mod catalog;
mod config;
mod connection;
mod database;
mod encoding;
mod files;
mod first_by;
mod functions;
mod gpu;
mod matrices;
mod memory;
mod pages;
mod planner;
mod query;
mod rows;
mod session;
mod sql;
mod steps;
mod storage;
mod value;

pub use arrow;
pub use config::parse_bytes;
pub use connection::{Connection, Prepared, Registered};
pub use database::{Builder, Database};
pub use datafusion;
pub use error::{Error, ErrorKind, Place, Result};
/// The names that matrix expressions may call.
///
/// ```
/// assert!(relatrix::MATRIX_FUNCTIONS.contains(&"svd"));
/// ```
pub use memory::MemoryUsage;
pub use planner::MATRIX_FUNCTIONS;
pub use query::{CancelHandle, Outcome, Progress, ResultSet, ResultStream};
pub use rows::{FromRow, FromValue};
pub use sql::{Statement, is_complete, parse};
pub use value::{Parameters, Value};

// What the README and the example show is run with the examples of the documentation.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = concat!("```standalone_crate\n", include_str!("../examples/library.rs"), "\n```")]
struct LibraryExample;
