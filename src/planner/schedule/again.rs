//! What several passes compute for themselves, rather than one of them keeping it for the others.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::fuse;
use super::super::graph::NodeId;
use super::super::patterns::Users;
use super::{Kind, Scheduler};

/// Cells from which a value does not wait in a cache for the next pass.
const AGAIN_CELLS_MIN: f64 = (1 << 20) as f64;

/// Operations that are computed again at most, so that they stay cheap beside a cell's way to memory and back.
const AGAIN_NODES_MAX: usize = 4;

impl Scheduler<'_> {
    /// What several passes read and is computed in each of them rather than kept between them: a few sums and
    /// products of cells that are at hand, which take less time than writing them and reading them again. For
    /// each such node itself and what must be computed for it, inputs first.
    pub(super) fn again(
        &self,
        roots: &[NodeId],
        kinds: &FxHashMap<NodeId, Kind>,
        users: &Users,
        kept: &FxHashSet<NodeId>,
    ) -> FxHashMap<NodeId, Vec<NodeId>> {
        let by_rows_alone = |id: NodeId| {
            users.get(&id).into_iter().flatten().all(|&user| {
                let same_rows = match (kinds[&user], kinds[&id]) {
                    (Kind::Local(rows) | Kind::Sum(rows), Kind::Local(own)) => rows == own,
                    _ => false,
                };
                same_rows && !self.needs_whole(user, id)
            })
        };
        let candidates =
            kept.iter().copied().filter(|id| !roots.contains(id) && by_rows_alone(*id));
        candidates.filter_map(|id| self.parts(id, kinds, kept).map(|parts| (id, parts))).collect()
    }

    /// The row-local nodes to compute for this one, itself the last, where they are few, quick and long.
    fn parts(
        &self,
        id: NodeId,
        kinds: &FxHashMap<NodeId, Kind>,
        kept: &FxHashSet<NodeId>,
    ) -> Option<Vec<NodeId>> {
        let is_quick = |id: NodeId| fuse::is_quick(&self.graph.node(id).operation);
        // The rows of a relation come once: what is computed again is so from those that are kept.
        let is_computed = |id: NodeId| {
            matches!(kinds[&id], Kind::Local(_)) && (is_quick(id) || !kept.contains(&id))
        };
        let mut parts = BTreeSet::from([id]);
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let estimate = &self.expected.estimates[id.index()];
            if estimate.rows * estimate.columns < AGAIN_CELLS_MIN || !is_quick(id) {
                return None;
            }
            let inputs = &self.graph.node(id).inputs;
            let computed = inputs.iter().copied().filter(|&input| is_computed(input));
            open.extend(computed.filter(|&input| parts.insert(input)));
            if parts.len() > AGAIN_NODES_MAX {
                return None;
            }
        }
        Some(Vec::from_iter(parts))
    }

    /// Whether all is there that these nodes read and do not compute themselves.
    pub(super) fn at_hand(&self, parts: &[NodeId], done: &FxHashSet<NodeId>) -> bool {
        let mut read = parts.iter().flat_map(|&id| self.reads(id));
        read.all(|input| parts.contains(&input) || done.contains(&input))
    }
}
