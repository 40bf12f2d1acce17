//! Kernels over dense matrices.
//!
//! Products run in faer's gemm, which reaches 80 to 93 % of a core's peak; the rest moves cells and is
//! bound by memory. What is in files is worked on by tiles that are copied into memory.

mod product;
mod reshape;
pub(super) mod tiles;

pub use product::{
    cross, cross_into, gram, half_cross, half_cross_into, half_cross_of, mirror, outer, outer_into,
    product, product_by_levels, product_into, product_of,
};
pub use reshape::{
    cumsum, cumsum_into, diagonal, diagonal_matrix, gather_columns, gather_rows, hstack, kron,
    reshape, slice_columns, transpose, vstack,
};
pub use tiles::{Factor, needs_tiles, product_by_tiles};
