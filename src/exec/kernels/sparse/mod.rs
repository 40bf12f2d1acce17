//! Kernels over compressed sparse rows.
//!
//! A sparse result is written row by row into parts of consecutive rows, in parallel, and the parts are
//! then laid end to end; that of entries, or of a transpose, where it stays, for its size is known. No result stores a zero. Where a cell that is not stored meets a `NaN` or an
//! infinity, the formula has `0 * NaN` or `0 * inf`, and the result is the `NaN` a dense one would be.

mod build;
mod combine;
mod cut_rows;
mod cuts;
mod lanes;
mod multiply;
mod product;
mod reshape;
mod rows;
mod sampled;
mod sampled_cells;
#[cfg(test)]
mod skewed;

pub use build::{
    Duplicates, Entry, Load, RepeatedEntry, from_dense, from_entries, to_dense, transpose,
};
pub use combine::{diagonal, diagonal_matrix, map, non_zeros, zip, zip_dense};
pub use multiply::{
    NonFinite, cross_dense, cross_dense_into, dense_times, dense_times_into, times_dense,
    times_dense_into,
};
pub(crate) use product::finite_pairs;
pub use product::{gram, product};
pub use reshape::{gather_columns, gather_rows, hstack, kron, slice_columns, vstack};
pub use sampled::sampled;
pub use sampled_cells::sampled_cells;

pub(super) use cuts::{PIECE_CELLS, begun, piece_cuts, pieces};
pub(super) use rows::{of_pieces, stored_values};
