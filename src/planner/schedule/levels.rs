//! Which pass a node belongs to: how many must be over before it, and how long it can wait.

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::graph::NodeId;
use super::super::patterns::{self, Users};
use super::{Kind, Rows, Scheduler};

/// Whether a reader, the first, must not share a pass with its input.
pub(super) type Apart<'a> = &'a dyn Fn(NodeId, NodeId) -> bool;

impl Scheduler<'_> {
    /// For each node the number of passes that must be over before it can be computed; for a
    /// row-local node or a sum, the number of its own pass over its rows. An input that is `apart` from its
    /// reader is kept whole between two passes.
    pub(super) fn levels(
        &self,
        needed: &[NodeId],
        roots: &[NodeId],
        kinds: &FxHashMap<NodeId, Kind>,
        users: &Users,
        given: &FxHashSet<NodeId>,
        apart: Apart<'_>,
    ) -> FxHashMap<NodeId, usize> {
        let earliest = self.earliest(needed, kinds, given, apart);
        self.delayed(needed, roots, kinds, users, earliest, apart)
    }

    fn earliest(
        &self,
        needed: &[NodeId],
        kinds: &FxHashMap<NodeId, Kind>,
        given: &FxHashSet<NodeId>,
        apart: Apart<'_>,
    ) -> FxHashMap<NodeId, usize> {
        let mut levels: FxHashMap<NodeId, usize> = given.iter().map(|&id| (id, 0)).collect();
        for &id in needed {
            let own = match kinds[&id] {
                Kind::Local(rows) | Kind::Sum(rows) => Some(rows),
                Kind::Whole => None,
            };
            let level = self.reads(id).into_iter().map(|input| match kinds[&input] {
                Kind::Local(rows)
                    if Some(rows) == own && !self.needs_whole(id, input) && !apart(id, input) =>
                {
                    levels[&input]
                }
                Kind::Local(_) | Kind::Sum(_) => levels[&input] + 1,
                Kind::Whole => levels[&input],
            });
            let level = level.max().unwrap_or(0);
            levels.insert(id, level);
        }
        levels
    }

    /// The same levels, with row-local nodes moved on to the pass that reads them where it can as well read
    /// what they are made of: `x - mean` waits for `sqrt(var)` rather than being kept until that is there. So does
    /// a relation, of which nothing is read before all that its rows meet is there.
    fn delayed(
        &self,
        needed: &[NodeId],
        roots: &[NodeId],
        kinds: &FxHashMap<NodeId, Kind>,
        users: &Users,
        earliest: FxHashMap<NodeId, usize>,
        apart: Apart<'_>,
    ) -> FxHashMap<NodeId, usize> {
        let may_wait = |id: &NodeId| matches!(kinds[id], Kind::Local(_)) && !roots.contains(id);
        let mut latest = earliest.clone();
        latest.extend(needed.iter().copied().filter(may_wait).map(|id| (id, usize::MAX)));
        // Levels only fall, and not below the earliest.
        loop {
            let before = latest.clone();
            for &id in needed.iter().rev().filter(|id| may_wait(id)) {
                let readers = users.get(&id).into_iter().flatten();
                let bounds = readers.map(|&user| match (kinds[&user], kinds[&id]) {
                    (Kind::Local(rows) | Kind::Sum(rows), Kind::Local(own))
                        if rows == own && !self.needs_whole(user, id) && !apart(user, id) =>
                    {
                        latest[&user]
                    }
                    _ => latest[&user] - 1,
                });
                latest.insert(id, bounds.fold(latest[&id], usize::min));
            }
            for &id in needed {
                if latest[&id] > earliest[&id] && !self.reads_as_late(id, kinds, &latest) {
                    latest.insert(id, earliest[&id]);
                }
            }
            if latest == before {
                return latest;
            }
        }
    }

    /// Whether what a row-local node reads by rows is at hand in its pass, and no wider than the node.
    fn reads_as_late(
        &self,
        id: NodeId,
        kinds: &FxHashMap<NodeId, Kind>,
        levels: &FxHashMap<NodeId, usize>,
    ) -> bool {
        let node = self.graph.node(id);
        let by_rows = (0..node.inputs.len()).filter(|&at| !self.reads_whole(id, at));
        by_rows.map(|at| node.inputs[at]).all(|input| {
            let width = self.graph.node(input).columns.known();
            let is_wider = width.is_none_or(|width| Some(width) > node.columns.known());
            !is_wider && (kinds[&input] != kinds[&id] || levels[&input] == levels[&id])
        })
    }

    /// Whether a loop must not read blocks of what makes its input while they are in cache.
    pub(super) fn apart(&self, users: &Users, user: NodeId, input: NodeId) -> bool {
        patterns::is_producer(&self.graph.node(input).operation)
            && self.graph.node(user).operation.is_elementwise()
            && {
                let pattern = patterns::of_producer(self.graph, users, input);
                !self.options.fusion.patterns.contains(pattern)
            }
    }

    /// For each row-local node and each sum the widest row in cells of its pass.
    pub(super) fn row_cells(
        &self,
        needed: &[NodeId],
        kinds: &FxHashMap<NodeId, Kind>,
        levels: &FxHashMap<NodeId, usize>,
    ) -> FxHashMap<NodeId, usize> {
        let pass_of = |id: NodeId| match kinds[&id] {
            Kind::Local(rows) | Kind::Sum(rows) => Some((levels[&id], rows)),
            Kind::Whole => None,
        };
        let width = |id: NodeId| self.graph.node(id).columns.known().unwrap_or(1);
        let mut widest: FxHashMap<(usize, Rows), usize> = FxHashMap::default();
        for &id in needed {
            let Some(pass) = pass_of(id) else { continue };
            let inputs = self.graph.node(id).inputs.iter().map(|&input| width(input));
            let own = matches!(kinds[&id], Kind::Local(_)).then(|| width(id));
            let row = widest.entry(pass).or_insert(1);
            *row = inputs.chain(own).fold(*row, usize::max);
        }
        let of = |&id: &NodeId| pass_of(id).map(|pass| (id, widest[&pass]));
        needed.iter().filter_map(of).collect()
    }
}
