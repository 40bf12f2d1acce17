//! SQL's operators: where DataFusion's fail for want of memory, and where rows need not go all the way.

pub(crate) mod aggregate;
mod cells;
mod codes;
mod feed;
mod files;
pub(crate) mod first_rows;
mod groups;
pub(crate) mod in_order;
pub(crate) mod join;
mod memory;
pub(crate) mod no_constants;
mod packed;
pub(crate) mod places;
pub(crate) mod recursion;
pub(crate) mod shared;
pub(crate) mod sort;
mod tasks;
pub(crate) mod window;

pub(in crate::exec) use self::tasks::joined;
