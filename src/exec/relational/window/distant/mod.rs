//! Frames of which an end lies some way off: rows are read several times, each time in their order.
//!
//! Enters: rows in the order of their partitions and places. Leaves: the same batches with the columns of one step.
//!
//! - `offsets`: how far from its row a frame begins or ends, and by what that is counted
//! - `readers`, over `queue`: the same rows for several readers, each at a pace of its own
//! - `pointer`: finds, for one row after the other, the first that is not before an end
//! - `firsts`: values of the first row of each frame
//! - `spans`: aggregates of all rows of each frame

mod firsts;
mod offsets;
mod pointer;
mod queue;
mod readers;
mod spans;

pub(super) use self::firsts::Firsts;
pub(super) use self::offsets::{Offset, Span};
#[cfg(test)]
pub(super) use self::queue::Queue;
pub(super) use self::spans::Spans;
