//! The devices of this machine: for each its memory, its streams, its kernels, and how much work it has.
//!
//! Enters: bytes, CUDA texts, sides of products. Leaves: bytes, in the order in which they were asked for, or a
//! [`Fault`] after which the caller goes on without the device. Not here: what bytes mean, what is worth a device
//! (the planner), and what gives way when its memory is short (who keeps buffers).
//!
//! ```text
//! devices()    probe     ─► Device    each found once in a process, or why it is none (Absent)
//! assign()     assigned  ─► Assigned  the device that is soonest done with a piece of work, which it counts until it ends
//! Source       compiler  ─► image     by NVRTC, else from the user's folder
//! image        kernel    ─► Kernel    loaded once in a process
//! &[u8]        staging   ─► Buffer    through pinned blocks: one is filled while the last is copied
//! Buffers      Stream    ─► Buffer    launches, products and factorizations, queued in order
//! Stream       graph     ─► Graph     work that is recorded, to be queued by one call
//! Buffer       staging   ─► &mut [u8]
//! Stream       finish    ─► Fault     what went wrong in anything that was queued
//! ```
//!
//! No CUDA is needed to build: libraries are opened when somebody asks for the device ([`library`]). cudarc, through
//! which they are called, panics where one is missing, so it is called after the probe only; and what it says of an
//! error is never formatted, for that calls the driver again.
//!
//! A stream is a queue: a call returns before the work is done, and a buffer that is dropped is freed after the work
//! that was queued before. Another stream may read a buffer: it waits for what was queued when it asked, unless it comes after what was
//! done with that already ([`Mark`]), and the buffer is freed after it. Once another has, its own stream writes it again only after it was
//! told to wait for that; nobody checks.
//!
//! Some faults leave a device useless for the rest of the process. Then it is lost: nothing is called or freed any
//! more, each call says so, and so does [`Seen::device`]. The others go on.
//!
//! What belongs to a device is of no use to another: a buffer, a stream and a kernel know theirs, and whatever is called enters its context
//! first. Nothing here goes from one device to another.

mod assigned;
mod buffer;
mod compiler;
mod device;
mod fault;
mod graph;
mod kernel;
mod library;
mod probe;
mod product;
mod rates;
mod solver;
mod staging;
mod stream;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use assigned::{Assigned, Piece, assign, next};
pub(crate) use buffer::Buffer;
#[cfg(test)]
pub(crate) use compiler::compile;
pub(crate) use compiler::{Headers, Source};
pub(crate) use device::{Device, Facts, Trials, Tried, Usage};
pub(crate) use fault::{Absent, Fault};
pub(crate) use graph::Graph;
pub(crate) use kernel::{ARGUMENTS_MAX, Argument, Launch, Work};
pub(crate) use library::Missing;
pub(crate) use probe::{Seen, are_several, devices, found, is_absent};
pub(crate) use product::{Arithmetic, Product};
pub(crate) use rates::Rates;
pub(crate) use solver::Columns;
pub(crate) use stream::{Mark, Stream};
