//! Statement in, plan out: every pass is a function of what it is given.
//!
//! ```text
//! relations      MATRIX(…) in FROM, asked for by DataFusion's planner
//!  └ bind        names and syntax → graph: shapes, types and labels checked
//!     ├ narrow     relations without the columns that nobody reads
//!     └ matrix_node   the graph as a node of the relational plan; DataFusion optimizes its inputs
//!        └ sparsity   whether ENTRIES lists the zeros of its result
//! lower          called for each such node by DataFusion's physical planner
//!  ├ cost        what operations and rows take by the machine's constants: built in, or by calibration
//!  ├ algebra     another expression of equal value that costs less
//!  ├ remembered  what is known of it, as matrices at hand
//!  ├ estimate    sizes, sparsity, bytes, seconds; layouts follow from them
//!  ├ schedule    passes over rows, whole operations, rounds; with fuse for loops
//!  ├ place       what a GPU runs of them
//!  ├ ordered     relations whose rows come as they are stored
//!  └ MatrixExec
//!
//! generic        plans for any values and any rows
//! neighbourhood  values for which a plan is taken that was chosen for others
//! template       operators chosen once, and made anew for each run
//! repeatable     whether a plan comes to the same each time
//! remembered     groups that are remembered, in place of an aggregation or of most of its rows; and parts of expressions
//! parameters     operators for any values
//! parts          of an aggregation's answers, which can be merged
//! modify         UPDATE and DELETE: a query that finds the rows, and a node that changes them
//! evidence       what plans of SQL are chosen by: statistics and the constants of the machine
//! joins          the order of joins by cost, which statistics estimate; choices by cost, for EXPLAIN
//! grouped_windows   windows over whole partitions as joins with what is aggregated of these
//! shared         plans that a statement contains more than once, run once
//! pair_sums      sums of products of many pairs of columns: a Gram matrix
//! contraction    joins whose pairs are summed up: products
//! ranking        conditions that let through the first few rows of each group, of which
//!  ├ best_entries   reads the best few of each row of a matrix, and
//!  └ first_rows     drops rows before they are sorted
//! nearest        a condition, and the rows among those that meet it which are nearest to a vector
//! transform      filters over numbers, and what is computed of the rows they keep
//! computed       arithmetic of decimals and patterns of texts
//! expressions    those of a physical operator, rewritten where they stand
//! operators      operators of a plan in the places of others
//! scans          large files in parts that threads take as they come to them
//! first_parts    scans that read first what may have the first rows
//! pushdown       filters, and what joins, sorts and aggregates know while they run, handed down to scans
//! ordered_aggregates   lists and texts of groups in an order, of rows that come in it
//! offloaded      aggregations that a device may run
//! partitions     whether a plan has one, for it takes less than to wake the other threads
//! spilling       operators that finish whatever the memory
//! in_order       first rows, and answers, in the order in which rows are read
//! expected       which operator yields the rows that are estimated of a node, for EXPLAIN ANALYZE
//! cooperative    the last of DataFusion's physical rules: joins that can be stopped
//! ```

mod algebra;
mod best_entries;
mod bind;
mod calibration;
pub(crate) mod computed;
mod contraction;
pub(crate) mod cooperative;
mod cost;
pub(crate) mod encoded;
mod estimate;
mod evidence;
mod expected;
mod expressions;
mod first_parts;
mod first_rows;
mod functions;
mod fuse;
pub(crate) mod generic;
mod graph;
mod grouped_windows;
mod images;
pub(crate) mod in_order;
mod joins;
mod labels;
mod least_squares;
mod lower;
mod matrix_node;
pub(crate) mod modify;
mod narrow;
mod nearest;
mod neighbourhood;
mod network;
pub(crate) mod offloaded;
mod operators;
pub(crate) mod ordered;
pub(crate) mod ordered_aggregates;
mod pair_sums;
mod parameters;
pub(crate) mod partitions;
mod parts;
mod patterns;
mod place;
mod pushdown;
mod ranking;
mod relation;
pub(crate) mod relational;
mod relations;
pub(crate) mod remembered;
mod repeatable;
mod rule;
mod scans;
mod schedule;
pub(crate) mod shared;
mod sparsity;
pub(crate) mod spilling;
mod statistics;
mod stored_cells;
mod subscript;
mod template;
pub(crate) mod transform;
mod written;

pub(crate) use bind::Parameter;
pub(crate) use calibration::{Calibration, Line as CalibrationLine};
pub(crate) use contraction::ContractionPlanner;
pub(crate) use evidence::Evidence;
pub(crate) use expected::expected;
pub(crate) use first_parts::FirstParts;
pub(crate) use first_rows::FirstRowsPlanner;
pub use functions::NAMES as MATRIX_FUNCTIONS;
pub(crate) use joins::choices::{Alternative, Choices};
pub(crate) use lower::{MatrixPlanner, has_matrix, lone_exec, matrix_exec, whole_node};
pub(crate) use nearest::NearestRows;
pub(crate) use neighbourhood::Neighbourhood;
pub(crate) use parameters::Values;
pub(crate) use relations::{Catalog, MatrixRelations, Planning, lone_plan, whole_plan};
pub(crate) use repeatable::{has_one_answer, is_repeatable};
pub(crate) use statistics::{Analysis, Given, Statistics};
pub(crate) use template::Template;
