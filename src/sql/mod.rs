//! The front end: text becomes statements, by syntax alone.
//!
//! Enters: text. Leaves: [`Statement`]s, whose SQL is sqlparser's tree and whose matrix statements are
//! ours, each node with its position in the text. Not here: what a name stands for; the planner lends
//! [`Statement::resolved`] the names of the matrices and does the rest.
//!
//! ```text
//! text ─ tokens ─ parse (dialect, relation) ─ Statement ─ refuse, resolve ─ Statement
//!        `x[i, j]`  `@` `^` `ROWS BY` MATRIX …              every relation a sub-query
//! ```

mod copy;
mod desugar;
mod dialect;
mod merged;
mod names;
mod parse;
mod place;
mod refuse;
mod relation;
mod resolve;
mod statement;
#[cfg(test)]
mod tests;
mod tokens;
mod using;
mod walk;
mod wildcards;

pub(crate) use names::{DisplayNames, distinguish};
pub use parse::parse;
pub(crate) use parse::{parse_expression, parse_view};
pub(crate) use place::{forget_places, place_of, place_of_name};
pub(crate) use relation::{
    Axes, Axis, MatrixQuery, Reading, as_named_relation, as_reading, as_relation,
};
pub(crate) use resolve::{Named, SCALAR, WHOLE, normalized, resolve_expression, whole};
pub use statement::Statement;
pub(crate) use statement::{
    CopyMatrix, CreateMatrix, Explain, MatrixOptions, MatrixSource, StatementKind,
};
pub use tokens::is_complete;
pub(crate) use using::merged_tables;
pub(crate) use walk::{walk_expressions, walk_expressions_mut, walk_mut};
