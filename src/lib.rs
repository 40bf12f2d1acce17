//! Relatrix: an embedded engine in which SQL and matrix expressions are one language and one plan.

pub mod error;
pub mod matrix;

mod database;

pub use database::{Builder, Connection, Database};
pub use error::{Error, ErrorKind, Place, Result};
