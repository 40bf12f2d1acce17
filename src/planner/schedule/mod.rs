//! Orders a graph into steps: what shares one reading of rows, what runs whole, what a round repeats.
//!
//! A node is *row-local* where a block of its rows needs only the same rows of its inputs, and other
//! inputs whole: elementwise operations, `x @ w` with a long `x`, convolutions, slices of columns. Row-local
//! nodes over the same rows, and the sums over them, share one pass. A pass can only begin when its whole
//! inputs are there, so `y - x @ solve(t(x) @ x, t(x) @ y)` takes two: the first keeps `x` and `y` for the
//! second.

mod again;
mod levels;
mod overwrite;
mod release;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use self::release::release;
use super::fuse;
use super::graph::{Dim, Graph, NodeId};
use super::patterns::{Expected, Users};
use crate::config::{Fusion, Pattern};
use crate::exec::multiply::is_a_choice;
use crate::exec::operation::{Aggregate, Axis, Counted, Operation as Op, Part};
use crate::exec::program::{self, Pass, Round, Rounds, Sink, Slot, Source, Step};
use crate::matrix::Layout;

/// Whole matrices of fewer rows than this are multiplied at once rather than by row blocks: a block
/// packs the right operand anew, which pays only when what follows reads the block from cache.
const PRODUCT_ROWS_MIN: usize = 4096;

/// A right operand of more bytes has left the caches before the next block packs it. Factors of 4096 a side by row blocks
/// took twice the time of all at once where memory is slow.
const PACKED_BYTES_MAX: usize = 8 << 20;

/// What scheduling may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// What becomes one step.
    pub(crate) fusion: Fusion,
    /// Whether the root's rows may leave block by block.
    pub(crate) emit: bool,
}

/// Steps, and for each node that several operations are one step with what that saves.
pub(super) struct Scheduled {
    pub(super) steps: Vec<Step>,
    pub(super) fusions: FxHashMap<NodeId, program::Fusion>,
}

/// Orders everything that `root` needs.
pub(super) fn steps(expected: Expected<'_>, root: NodeId, options: Options) -> Scheduled {
    let graph = expected.graph;
    let mut scheduler = Scheduler { graph, expected, options, fusions: FxHashMap::default() };
    let mut steps = scheduler.run(&[root], &FxHashSet::default(), true);
    scheduler.overwrite(&mut steps, &[root.index()]);
    release(&mut steps, &[root.index()]);
    Scheduled { steps, fusions: scheduler.fusions }
}

/// The rows that a row-local node goes through: all nodes over the same rows can share a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Rows {
    /// The rows of a relation as they arrive; the node that reads it.
    Relation(NodeId),
    /// As many rows as whole matrices at hand have.
    Whole(Dim),
}

/// How a node is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Block by block over these rows.
    Local(Rows),
    /// Added up over a pass through these rows.
    Sum(Rows),
    /// At once.
    Whole,
}

/// What one reading of rows computes.
struct Scan {
    nodes: Vec<NodeId>,
    /// Whether it keeps what is kept, and hands on what is handed on.
    is_last: bool,
}

struct Scheduler<'a> {
    graph: &'a Graph,
    expected: Expected<'a>,
    options: Options,
    fusions: FxHashMap<NodeId, program::Fusion>,
}

impl Scheduler<'_> {
    /// Steps that make `roots` available, given what is.
    fn run(&mut self, roots: &[NodeId], given: &FxHashSet<NodeId>, outermost: bool) -> Vec<Step> {
        let needed = self.needed(roots, given);
        let users = self.users(&needed);
        let kinds = self.kinds(&needed, roots, given, &users);
        let natural = self.levels(&needed, roots, &kinds, &users, given, &|_, _| false);
        // What is not fused does not change how rows are cut, so that no bit changes.
        let row_cells = self.row_cells(&needed, &kinds, &natural);
        let apart = |user: NodeId, input: NodeId| self.apart(&users, user, input);
        let levels = self.levels(&needed, roots, &kinds, &users, given, &apart);

        // What a pass must leave whole: for a whole operation, for another pass, or as a result.
        let mut kept: FxHashSet<NodeId> = FxHashSet::default();
        let mut emitted = None;
        for &id in &needed {
            let Kind::Local(rows) = kinds[&id] else { continue };
            let elsewhere = users.get(&id).into_iter().flatten().any(|&user| match kinds[&user] {
                Kind::Local(other) | Kind::Sum(other) => {
                    other != rows || levels[&user] != levels[&id] || self.needs_whole(user, id)
                }
                Kind::Whole => true,
            });
            let is_root = roots.contains(&id);
            let streams = outermost && self.options.emit && matches!(rows, Rows::Relation(_));
            if is_root && streams {
                emitted = Some(id);
            }
            if elsewhere || (is_root && emitted != Some(id)) {
                kept.insert(id);
            }
        }
        let again = self.again(roots, &kinds, &users, &kept);
        kept.retain(|id| !again.contains_key(id));

        let mut steps = Vec::new();
        let mut done: FxHashSet<NodeId> = given.clone();
        // The nodes of each pass, and whole operations that have not run, both in the order of the graph.
        let mut passes: BTreeMap<(usize, Rows), Vec<NodeId>> = BTreeMap::new();
        let mut whole = Vec::new();
        for &id in &needed {
            match kinds[&id] {
                Kind::Local(rows) | Kind::Sum(rows) => {
                    passes.entry((levels[&id], rows)).or_default().push(id);
                }
                Kind::Whole => whole.push(id),
            }
        }
        let emitting = emitted.map(|id| match kinds[&id] {
            Kind::Local(rows) => (levels[&id], rows),
            _ => unreachable!("an emitted node is row-local"),
        });
        loop {
            // Whole operations first, as soon as their inputs are there: the order of the graph serves.
            whole.retain(|&id| {
                let ready = self.reads(id).iter().all(|input| done.contains(input));
                if ready {
                    steps.push(self.whole(id));
                    done.insert(id);
                }
                !ready
            });
            let is_ready = |pass: (usize, Rows), nodes: &[NodeId]| {
                let mut read = nodes.iter().flat_map(|&id| self.reads(id));
                read.all(|input| {
                    done.contains(&input)
                        || again.get(&input).is_some_and(|parts| self.at_hand(parts, &done))
                        || matches!(kinds.get(&input), Some(Kind::Local(of))
                            if (levels[&input], *of) == pass)
                })
            };
            // A pass that hands its rows on is the last.
            let mut ready = passes.iter().filter(|(pass, nodes)| is_ready(**pass, nodes));
            let next = ready.find(|(pass, _)| Some(**pass) != emitting);
            let next = next.map(|(pass, _)| *pass).or(emitting);
            let Some((pass, nodes)) = next.and_then(|pass| passes.remove_entry(&pass)) else {
                break;
            };
            let mut members = BTreeSet::from_iter(nodes);
            let read = members.iter().flat_map(|&id| self.reads(id));
            let repeated: Vec<&Vec<NodeId>> = read.filter_map(|input| again.get(&input)).collect();
            members.extend(repeated.into_iter().flatten());
            let members = Vec::from_iter(members);
            let emitted = emitted.filter(|id| members.contains(id));
            let row_cells = members.iter().filter_map(|id| row_cells.get(id)).max();
            let row_cells = row_cells.copied().unwrap_or(1);
            for members in self.scans(pass.1, &members, &kinds, &kept, emitted) {
                let keeps = |id: &&NodeId| members.is_last && kept.contains(*id);
                let kept: FxHashSet<NodeId> = members.nodes.iter().filter(keeps).copied().collect();
                let emitted = emitted.filter(|_| members.is_last);
                let made = self.pass(pass.1, &members.nodes, &kinds, &users, &kept, emitted);
                steps.push(Step::Pass(Pass { row_cells, ..made }));
            }
            done.extend(members.iter().filter(|id| {
                kept.contains(id) || matches!(kinds[id], Kind::Sum(_)) || emitted == Some(**id)
            }));
        }
        debug_assert!(passes.is_empty(), "every pass has run");
        steps
    }

    fn layout(&self, id: NodeId) -> Layout {
        self.expected.estimates[id.index()].layout
    }

    /// The members of one pass; or where sums must not share a reading of rows at hand, those of one pass for
    /// each of them, and of one that makes the rest.
    fn scans(
        &self,
        rows: Rows,
        members: &[NodeId],
        kinds: &FxHashMap<NodeId, Kind>,
        kept: &FxHashSet<NodeId>,
        emitted: Option<NodeId>,
    ) -> Vec<Scan> {
        let sums = members.iter().copied().filter(|id| matches!(kinds[id], Kind::Sum(_)));
        let sums: Vec<NodeId> = sums.collect();
        let shares = self.options.fusion.patterns.contains(Pattern::SharedScan);
        if shares || sums.len() < 2 || matches!(rows, Rows::Relation(_)) {
            return vec![Scan { nodes: members.to_vec(), is_last: true }];
        }
        let needed_for = |targets: Vec<NodeId>| {
            let mut nodes = BTreeSet::new();
            let mut open = targets;
            while let Some(id) = open.pop() {
                if members.contains(&id) && nodes.insert(id) {
                    open.extend(&self.graph.node(id).inputs);
                }
            }
            Vec::from_iter(nodes)
        };
        let stays = |id: &NodeId| kept.contains(id) || emitted == Some(*id);
        let rest = needed_for(members.iter().copied().filter(stays).collect());
        let sums =
            sums.into_iter().map(|sum| Scan { nodes: needed_for(vec![sum]), is_last: false });
        let rest = Scan { nodes: rest, is_last: true };
        sums.chain([rest]).filter(|scan| !scan.nodes.is_empty()).collect()
    }

    /// The nodes that roots need beyond what is given, inputs before users.
    fn needed(&self, roots: &[NodeId], given: &FxHashSet<NodeId>) -> Vec<NodeId> {
        let mut needed = BTreeSet::new();
        let mut open: Vec<NodeId> = roots.to_vec();
        while let Some(id) = open.pop() {
            if !given.contains(&id) && needed.insert(id) {
                open.extend(self.reads(id));
            }
        }
        needed.into_iter().collect()
    }

    /// The nodes whose values a node reads: its inputs, or for an iteration its beginning and what
    /// its rounds read from outside.
    fn reads(&self, id: NodeId) -> Vec<NodeId> {
        let node = self.graph.node(id);
        let Op::Iterate(iteration) = node.operation else { return node.inputs.clone() };
        let (_, outside) = self.rounds(&node.inputs[1..], iteration.variable.number);
        [node.inputs[0]].into_iter().chain(outside).collect()
    }

    /// The nodes of a round, which depend on the variable, and those it reads from outside.
    fn rounds(&self, roots: &[NodeId], variable: u32) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        let mut depends: FxHashMap<NodeId, bool> = FxHashMap::default();
        let mut reached = BTreeSet::new();
        let mut open = roots.to_vec();
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                open.extend(self.reads(id));
            }
        }
        for &id in &reached {
            let node = self.graph.node(id);
            let itself =
                matches!(node.operation, Op::Variable(v) | Op::Prior(v) if v.number == variable);
            depends.insert(id, itself || self.reads(id).iter().any(|input| depends[input]));
        }
        let inside: BTreeSet<NodeId> = reached.iter().copied().filter(|id| depends[id]).collect();
        let mut outside: BTreeSet<NodeId> =
            inside.iter().flat_map(|&id| self.reads(id)).filter(|id| !depends[id]).collect();
        outside.extend(roots.iter().filter(|id| !depends[id]));
        // An outer iteration's variable is given where this one runs; it is read, not computed.
        (inside, outside)
    }

    fn kinds(
        &self,
        needed: &[NodeId],
        roots: &[NodeId],
        given: &FxHashSet<NodeId>,
        users: &Users,
    ) -> FxHashMap<NodeId, Kind> {
        let mut kinds = FxHashMap::default();
        for &id in needed {
            let passes_by = !roots.contains(&id) && self.passes_by(id, users);
            let kind = self.kind(id, &kinds, passes_by);
            kinds.insert(id, kind);
        }
        kinds.extend(given.iter().map(|&id| (id, Kind::Whole)));
        kinds
    }

    /// Whether a result is large and all who read it can do so row by row.
    fn passes_by(&self, id: NodeId, users: &Users) -> bool {
        let by_rows = |user: &NodeId| match self.graph.node(*user).operation {
            Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) => true,
            Op::Reduce { aggregate: Aggregate::ArgMax, axis } => axis == Some(Axis::Rows),
            Op::Reduce { .. } => true,
            _ => false,
        };
        self.expected.cost.is_large(self.expected.estimates[id.index()].bytes)
            && users.get(&id).is_some_and(|users| {
                users.iter().all(|user| by_rows(user) && !self.needs_whole(*user, id))
            })
    }

    fn kind(&self, id: NodeId, kinds: &FxHashMap<NodeId, Kind>, passes_by: bool) -> Kind {
        let node = self.graph.node(id);
        let local = |input: NodeId| match kinds.get(&input) {
            Some(Kind::Local(rows)) => Some(*rows),
            _ => None,
        };
        let dense = |input: NodeId| self.layout(input) == Layout::Dense;
        let first = node.inputs.first().copied();
        // The rows that inputs which are not stretched go through; a relation's before a whole's.
        let shared = || {
            let full = node
                .inputs
                .iter()
                .filter(|&&input| self.graph.node(input).rows != Dim::ONE || node.rows == Dim::ONE);
            let rows: Vec<Rows> = full.filter_map(|&input| local(input)).collect();
            let relation = rows.iter().find(|rows| matches!(rows, Rows::Relation(_)));
            relation.or(rows.first()).copied().unwrap_or(Rows::Whole(node.rows))
        };
        let long = |dim: Dim| dim.known().is_none_or(|rows| rows >= PRODUCT_ROWS_MIN);
        match &node.operation {
            Op::Relation(index) if self.graph.relations[*index].intake.streams() => {
                Kind::Local(Rows::Relation(id))
            }
            Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) => {
                let sparse = self.layout(id) == Layout::Csr;
                if node.is_scalar() || sparse { Kind::Whole } else { Kind::Local(shared()) }
            }
            Op::Product | Op::Outer => {
                let (left, right) = (node.inputs[0], node.inputs[1]);
                match local(left) {
                    Some(rows @ Rows::Relation(_)) => Kind::Local(rows),
                    // Row blocks are too flat for fewer multiplications, and too many for a large right operand.
                    _ if !passes_by && (self.is_by_levels(id) || self.leaves_caches(right)) => {
                        Kind::Whole
                    }
                    Some(rows) if long(node.rows) && dense(right) => Kind::Local(rows),
                    _ if long(node.rows)
                        && node.rows.known().is_some()
                        && dense(left)
                        && dense(right) =>
                    {
                        Kind::Local(Rows::Whole(node.rows))
                    }
                    _ => Kind::Whole,
                }
            }
            Op::Slice { axis: Axis::Columns, .. }
            | Op::Stack(Axis::Columns)
            | Op::Normalize { axis: Axis::Rows, .. } => {
                let inputs = &node.inputs;
                match inputs.iter().find_map(|&input| local(input)) {
                    Some(_) => Kind::Local(shared()),
                    None => Kind::Whole,
                }
            }
            Op::Convolve(_) | Op::Pool(..) => {
                Kind::Local(first.and_then(local).unwrap_or(Rows::Whole(node.rows)))
            }
            Op::Reduce { axis: Some(Axis::Rows), .. } => match first.and_then(local) {
                Some(rows) => Kind::Local(rows),
                None if first.is_some_and(dense) => Kind::Local(Rows::Whole(node.rows)),
                None => Kind::Whole,
            },
            Op::Reduce { aggregate, axis }
                if !matches!((aggregate, axis), (Aggregate::ArgMax, _)) =>
            {
                let input = node.inputs[0];
                match local(input) {
                    Some(rows) => Kind::Sum(rows),
                    None if dense(input) && !self.graph.node(input).is_scalar() => {
                        Kind::Sum(Rows::Whole(self.graph.node(input).rows))
                    }
                    None => Kind::Whole,
                }
            }
            Op::Count(Counted::Rows) => match first.and_then(local) {
                Some(rows) => Kind::Sum(rows),
                None => Kind::Whole,
            },
            Op::Gram | Op::Cross | Op::HalfCross => {
                let rows = || node.inputs.iter().filter_map(|&input| local(input));
                let relation = rows().find(|rows| matches!(rows, Rows::Relation(_)));
                let whole = rows().next().filter(|_| long(self.graph.node(node.inputs[0]).rows));
                relation.or(whole).map_or(Kind::Whole, Kind::Sum)
            }
            _ => Kind::Whole,
        }
    }

    /// Whether a product of known sizes takes fewer multiplications than the classical one.
    fn is_by_levels(&self, id: NodeId) -> bool {
        let product = self.expected.estimates[id.index()].product;
        product.is_some_and(|[best, _]| best.levels > 0) && self.graph.is_sized(id)
    }

    /// Whether a matrix is known to be too large to be packed for every block of rows.
    fn leaves_caches(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let cells = node.rows.known().zip(node.columns.known());
        let bytes = |(rows, columns): (usize, usize)| {
            rows.saturating_mul(columns).saturating_mul(node.element.size_bytes())
        };
        cells.is_some_and(|cells| bytes(cells) > PACKED_BYTES_MAX)
    }

    /// Whether there is more than one algorithm for a product, as far as is known before it runs.
    fn is_open_product(&self, id: NodeId) -> bool {
        let product = self.expected.estimates[id.index()].product;
        let is_a_choice = product.is_some_and(is_a_choice);
        let is_open = product.is_some() && !self.graph.is_sized(id);
        let rates = self.expected.cost.rates(self.graph.node(id).element);
        let may_choose = rates.spare_bytes_max > 0.0;
        may_choose && (is_a_choice || is_open)
    }

    /// Whether `user` reads `input` whole, at any of its places.
    fn needs_whole(&self, user: NodeId, input: NodeId) -> bool {
        let inputs = &self.graph.node(user).inputs;
        (0..inputs.len()).any(|at| inputs[at] == input && self.reads_whole(user, at))
    }

    /// Whether `user` reads its input at this place whole rather than by the rows of its block. In `q @ q`
    /// it does both.
    fn reads_whole(&self, user: NodeId, at: usize) -> bool {
        let node = self.graph.node(user);
        match &node.operation {
            Op::Unary(_) | Op::Binary(_) | Op::Select => {
                self.graph.node(node.inputs[at]).rows == Dim::ONE && node.rows != Dim::ONE
            }
            operation => operation.reads_whole(at),
        }
    }

    fn users(&self, needed: &[NodeId]) -> Users {
        let mut users = Users::default();
        for &id in needed {
            for input in self.reads(id) {
                users.entry(input).or_default().push(id);
            }
        }
        users
    }

    /// The step of a node that is computed at once.
    fn whole(&mut self, id: NodeId) -> Step {
        let node = self.graph.node(id);
        self.fusions.extend(self.expected.sparse_driven(id).map(|fusion| (id, fusion)));
        let slots = |ids: &[NodeId]| ids.iter().map(|id| id.index()).collect::<Vec<Slot>>();
        match &node.operation {
            Op::Relation(relation) => Step::Gather { relation: *relation, output: id.index() },
            Op::Iterate(iteration) => {
                let (inside, outside) = self.rounds(&node.inputs[1..], iteration.variable.number);
                let variable = |prior: bool| {
                    inside.iter().copied().find(|&id| match self.graph.node(id).operation {
                        Op::Variable(v) => !prior && v.number == iteration.variable.number,
                        Op::Prior(v) => prior && v.number == iteration.variable.number,
                        _ => false,
                    })
                };
                let (variable, prior) = (variable(false), variable(true));
                let given: FxHashSet<NodeId> =
                    outside.into_iter().chain(variable).chain(prior).collect();
                let mut round = |result: NodeId, over: Option<NodeId>| {
                    let mut steps = self.run(&[result], &given, false);
                    let keep: Vec<Slot> =
                        given.iter().chain([&result]).map(|id| id.index()).collect();
                    // What nobody reads after its round, though the next one has another.
                    let stays = |slot: &Slot| Some(*slot) != over.map(NodeId::index);
                    let others: Vec<Slot> = keep.iter().copied().filter(stays).collect();
                    self.overwrite(&mut steps, &others);
                    release(&mut steps, &keep);
                    Round { steps, result: result.index(), makes_result: !given.contains(&result) }
                };
                Step::Iterate(Box::new(Rounds {
                    iteration: *iteration,
                    start: node.inputs[0].index(),
                    step: round(node.inputs[1], variable.filter(|_| prior.is_none())),
                    until: node.inputs.get(2).map(|&until| round(until, None)),
                    variable: variable.map(NodeId::index),
                    prior: prior.map(NodeId::index),
                    output: id.index(),
                }))
            }
            Op::Align(number) => {
                let [from, to] = self.graph.alignments[*number].clone();
                Step::Align { from, to, input: node.inputs[0].index(), output: id.index() }
            }
            Op::Part(part) => {
                let of = node.inputs[0];
                let parts = Part::all(&self.graph.node(of).operation);
                let at = parts.iter().position(|known| known == part);
                let at = at.expect("a part is one of its decomposition's");
                Step::Part { of: of.index(), at, output: id.index() }
            }
            Op::Product if self.is_open_product(id) => Step::Multiply {
                rates: self.expected.cost.rates(node.element),
                inputs: slots(&node.inputs),
                output: id.index(),
            },
            operation => Step::Evaluate {
                operation: operation.clone(),
                inputs: slots(&node.inputs),
                output: id.index(),
            },
        }
    }

    /// One pass over rows: its members in order, its elementwise chains fused.
    fn pass(
        &mut self,
        rows: Rows,
        members: &[NodeId],
        kinds: &FxHashMap<NodeId, Kind>,
        users: &Users,
        kept: &FxHashSet<NodeId>,
        emitted: Option<NodeId>,
    ) -> Pass {
        let inside = |id: NodeId| members.contains(&id) && matches!(kinds[&id], Kind::Local(_));
        let mut cut = Vec::new();
        for &id in members {
            let node = self.graph.node(id);
            for (at, &input) in node.inputs.iter().enumerate() {
                let by_rows = !inside(input) && !self.reads_whole(id, at);
                if by_rows && !cut.contains(&input.index()) {
                    cut.push(input.index());
                }
            }
        }
        let source = match rows {
            Rows::Relation(id) => match self.graph.node(id).operation {
                Op::Relation(relation) if members.contains(&id) => {
                    Source::Relation { relation, slot: id.index() }
                }
                _ => Source::Cut,
            },
            Rows::Whole(_) => Source::Cut,
        };
        let mut visible: FxHashSet<NodeId> = kept.clone();
        visible.extend(emitted);
        let options = self.options.fusion;
        let fused = fuse::chains(self.expected, members, &inside, &visible, users, options);
        self.fusions.extend(fused.fusions);
        let mut sinks = fused.sinks;
        for &id in members {
            let node = self.graph.node(id);
            let input = |at: usize| node.inputs[at].index();
            if kept.contains(&id) {
                let (columns, element) = (node.columns.known(), node.element);
                let (from, to, over) = (id.index(), id.index(), None);
                sinks.push(Sink::Collect { from, to, columns, element, over });
            }
            if !matches!(kinds[&id], Kind::Sum(_)) {
                continue;
            }
            sinks.push(match &node.operation {
                // Among the loops.
                Op::Reduce { .. } => continue,
                Op::Gram => Sink::HalfCross { left: input(0), right: input(0), to: id.index() },
                Op::HalfCross => {
                    Sink::HalfCross { left: input(0), right: input(1), to: id.index() }
                }
                Op::Cross => Sink::Cross { left: input(0), right: input(1), to: id.index() },
                Op::Count(_) => Sink::CountRows { to: id.index() },
                other => unreachable!("{other} is no sum over rows"),
            });
        }
        sinks.extend(emitted.map(|id| Sink::Emit { from: id.index() }));
        let is_sum = |id: &NodeId| matches!(kinds[id], Kind::Sum(_));
        let sums: Vec<NodeId> = members.iter().copied().filter(is_sum).collect();
        let shared = self.expected.shared_scan(&sums);
        Pass { source, cut, steps: fused.steps, sinks, row_cells: 1, shared }
    }
}
