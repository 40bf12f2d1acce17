//! Who may hold bytes, and where they are when memory is short.
//!
//! Enters: requests of operators, matrices and tables. Leaves: memory, or a refusal on which they spill.
//! Not here: what the bytes mean.
//!
//! ```text
//! Budget         one limit: what is promised to whom; DataFusion's memory pool is a view of it
//! Watch          what the process holds beyond
//! Turns          how many statements work at once
//! Block          memory of a matrix
//! Pool           such blocks, kept for the next matrix where the limit leaves room
//! Eviction       which held values move to slower tiers when memory gets short, and which come back
//! Packed         numbers of such a value, compressed in memory
//! Spills         rows that operators put aside: pages, compressed, with check sums
//! Disk           directories, their quotas, files without a name
//! lay_together   columns of tables, apart from what is gone soon
//! Kept           rows of tables and of collected answers: in memory, else
//! Shelf          in such files
//! Residency      blocks in such files, whose pages the process gives back before it passes its limit
//! ```

mod ahead;
mod block;
mod budget;
mod buffers;
mod codec;
mod disk;
mod eviction;
#[cfg(test)]
mod faults;
mod grant;
mod kept;
mod mapping;
#[cfg(all(test, target_os = "linux"))]
mod measures;
mod packed;
mod place;
mod pool;
mod rate;
mod resident;
mod served;
mod shelf;
mod spill;
mod together;
mod traffic;
mod turns;
mod watch;

pub(crate) use block::{Block, MAPPED_BYTES_MIN, Refused};
#[cfg(test)]
pub(crate) use budget::share_of;
pub(crate) use budget::{Budget, Limits, task};
pub(crate) use disk::Disk;
pub(crate) use eviction::{Eviction, Movable, Thresholds, Tier};
#[cfg(test)]
pub(crate) use faults::Fault;
pub(crate) use grant::Grant;
pub(crate) use kept::{Kept, compacted, is_away, shelved, shelved_column};
pub(crate) use packed::Packed;
pub use pool::MemoryUsage;
pub(crate) use pool::{IDLE_MAX, Pool, PoolLimits};
pub(crate) use resident::Resident;
pub(crate) use served::{
    copy, done_with, has_room, is_on_disk, let_go, poisons, room_bytes, touched, will_need,
};
pub(crate) use shelf::Shelf;
pub(crate) use spill::Spills;
pub(crate) use together::lay_together;
pub(crate) use turns::{Turn, Turns};
