//! SQL's operators where DataFusion's fail for want of memory.

pub(crate) mod aggregate;
mod feed;
mod files;
pub(crate) mod join;
mod memory;
mod packed;
pub(crate) mod recursion;
pub(crate) mod shared;
pub(crate) mod sort;
pub(crate) mod window;
