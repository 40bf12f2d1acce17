//! Orders a graph into steps: what shares one reading of rows, what runs whole, what a round repeats.
//!
//! A node is *row-local* where a block of its rows needs only the same rows of its inputs, and other
//! inputs whole: elementwise operations, `x @ w` with a long `x`, convolutions, slices of columns. Row-local
//! nodes over the same rows, and the sums over them, share one pass. A pass can only begin when its whole
//! inputs are there, so `y - x @ solve(t(x) @ x, t(x) @ y)` takes two: the first keeps `x` and `y` for the
//! second.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::cost::CostModel;
use super::estimate::Estimate;
use super::fuse;
use super::graph::{Dim, Graph, NodeId};
use crate::exec::multiply::is_a_choice;
use crate::exec::operation::{Aggregate, Axis, Counted, Operation as Op, Part};
use crate::exec::program::{Pass, Round, Rounds, Sink, Slot, Source, Step};
use crate::matrix::Layout;

/// Whole matrices of fewer rows than this are multiplied at once rather than by row blocks: a block
/// packs the right operand anew, which pays only when what follows reads the block from cache.
const PRODUCT_ROWS_MIN: usize = 4096;

/// What scheduling may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options<'a> {
    /// What algorithms are chosen by.
    pub(crate) cost: &'a CostModel,
    /// Whether elementwise chains become one loop.
    pub(crate) fusion: bool,
    /// Whether the root's rows may leave block by block.
    pub(crate) emit: bool,
}

/// Orders everything that `root` needs.
pub(crate) fn steps(
    graph: &Graph,
    estimates: &[Estimate],
    root: NodeId,
    options: Options<'_>,
) -> Vec<Step> {
    let mut scheduler = Scheduler { graph, estimates, options };
    let mut steps = scheduler.run(&[root], &HashSet::new(), true);
    release(&mut steps, &[root.index()]);
    steps
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

struct Scheduler<'a> {
    graph: &'a Graph,
    estimates: &'a [Estimate],
    options: Options<'a>,
}

impl Scheduler<'_> {
    /// Steps that make `roots` available, given what is.
    fn run(&mut self, roots: &[NodeId], given: &HashSet<NodeId>, outermost: bool) -> Vec<Step> {
        let needed = self.needed(roots, given);
        let kinds = self.kinds(&needed, given);
        let users = self.users(&needed);
        let earliest = self.levels(&needed, &kinds, given);
        let levels = self.delayed(&needed, roots, &kinds, &users, earliest);

        // What a pass must leave whole: for a whole operation, for another pass, or as a result.
        let mut kept: HashSet<NodeId> = HashSet::new();
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

        let mut steps = Vec::new();
        let mut done: HashSet<NodeId> = given.clone();
        let mut passes: BTreeSet<(usize, Rows)> = needed
            .iter()
            .filter_map(|id| match kinds[id] {
                Kind::Local(rows) | Kind::Sum(rows) => Some((levels[id], rows)),
                Kind::Whole => None,
            })
            .collect();
        let emitting = emitted.map(|id| match kinds[&id] {
            Kind::Local(rows) => (levels[&id], rows),
            _ => unreachable!("an emitted node is row-local"),
        });
        loop {
            // Whole operations first, as soon as their inputs are there: the order of the graph serves.
            for &id in &needed {
                let ready = kinds[&id] == Kind::Whole
                    && !done.contains(&id)
                    && self.reads(id).iter().all(|input| done.contains(input));
                if ready {
                    steps.push(self.whole(id));
                    done.insert(id);
                }
            }
            let is_ready = |&(level, rows): &(usize, Rows)| {
                needed.iter().all(|id| match kinds[id] {
                    Kind::Local(other) | Kind::Sum(other)
                        if (levels[id], other) == (level, rows) =>
                    {
                        self.reads(*id).iter().all(|input| {
                            done.contains(input)
                                || matches!(kinds.get(input), Some(Kind::Local(of))
                                    if (levels[input], *of) == (level, rows))
                        })
                    }
                    _ => true,
                })
            };
            // A pass that hands its rows on is the last.
            let mut ready = passes.iter().filter(|pass| is_ready(pass));
            let next = ready.find(|pass| Some(**pass) != emitting).or(emitting.as_ref());
            let Some(&pass) = next.filter(|pass| passes.contains(pass)) else { break };
            passes.remove(&pass);
            let members: Vec<NodeId> = needed
                .iter()
                .copied()
                .filter(|id| match kinds[id] {
                    Kind::Local(rows) | Kind::Sum(rows) => (levels[id], rows) == pass,
                    Kind::Whole => false,
                })
                .collect();
            let emitted = emitted.filter(|id| members.contains(id));
            steps.push(Step::Pass(self.pass(pass.1, &members, &kinds, &kept, emitted)));
            done.extend(members.iter().filter(|id| {
                kept.contains(id) || matches!(kinds[id], Kind::Sum(_)) || emitted == Some(**id)
            }));
        }
        debug_assert!(passes.is_empty(), "every pass has run");
        steps
    }

    /// The nodes that roots need beyond what is given, inputs before users.
    fn needed(&self, roots: &[NodeId], given: &HashSet<NodeId>) -> Vec<NodeId> {
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
        let mut depends: HashMap<NodeId, bool> = HashMap::new();
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

    fn kinds(&self, needed: &[NodeId], given: &HashSet<NodeId>) -> HashMap<NodeId, Kind> {
        let mut kinds = HashMap::new();
        for &id in needed {
            let kind = self.kind(id, &kinds);
            kinds.insert(id, kind);
        }
        kinds.extend(given.iter().map(|&id| (id, Kind::Whole)));
        kinds
    }

    fn kind(&self, id: NodeId, kinds: &HashMap<NodeId, Kind>) -> Kind {
        let node = self.graph.node(id);
        let local = |input: NodeId| match kinds.get(&input) {
            Some(Kind::Local(rows)) => Some(*rows),
            _ => None,
        };
        let dense = |input: NodeId| self.estimates[input.index()].layout == Layout::Dense;
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
                let sparse = self.estimates[id.index()].layout == Layout::Csr;
                if node.is_scalar() || sparse { Kind::Whole } else { Kind::Local(shared()) }
            }
            Op::Product | Op::Outer => {
                let (left, right) = (node.inputs[0], node.inputs[1]);
                match local(left) {
                    Some(rows @ Rows::Relation(_)) => Kind::Local(rows),
                    // Row blocks are too flat for fewer multiplications.
                    _ if self.is_by_levels(id) => Kind::Whole,
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
            Op::Gram => match local(node.inputs[0]) {
                Some(rows @ Rows::Relation(_)) => Kind::Sum(rows),
                Some(rows) if long(self.graph.node(node.inputs[0]).rows) => Kind::Sum(rows),
                _ => Kind::Whole,
            },
            Op::Cross => {
                let (left, right) = (local(node.inputs[0]), local(node.inputs[1]));
                match (left, right) {
                    (Some(rows @ Rows::Relation(_)), _) | (_, Some(rows @ Rows::Relation(_))) => {
                        Kind::Sum(rows)
                    }
                    (Some(rows), _) | (_, Some(rows))
                        if long(self.graph.node(node.inputs[0]).rows) =>
                    {
                        Kind::Sum(rows)
                    }
                    _ => Kind::Whole,
                }
            }
            _ => Kind::Whole,
        }
    }

    /// Whether a product of known sizes takes fewer multiplications than the classical one.
    fn is_by_levels(&self, id: NodeId) -> bool {
        let product = self.estimates[id.index()].product;
        product.is_some_and(|[best, _]| best.levels > 0) && self.graph.is_sized(id)
    }

    /// Whether there is more than one algorithm for a product, as far as is known before it runs.
    fn is_open_product(&self, id: NodeId) -> bool {
        let product = self.estimates[id.index()].product;
        let is_a_choice = product.is_some_and(is_a_choice);
        let is_open = product.is_some() && !self.graph.is_sized(id);
        let rates = self.options.cost.rates(self.graph.node(id).element);
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

    fn users(&self, needed: &[NodeId]) -> HashMap<NodeId, Vec<NodeId>> {
        let mut users: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        for &id in needed {
            for input in self.reads(id) {
                users.entry(input).or_default().push(id);
            }
        }
        users
    }

    /// For each node the number of passes that must be over before it can be computed; for a
    /// row-local node or a sum, the number of its own pass over its rows.
    fn levels(
        &self,
        needed: &[NodeId],
        kinds: &HashMap<NodeId, Kind>,
        given: &HashSet<NodeId>,
    ) -> HashMap<NodeId, usize> {
        let mut levels: HashMap<NodeId, usize> = given.iter().map(|&id| (id, 0)).collect();
        for &id in needed {
            let own = match kinds[&id] {
                Kind::Local(rows) | Kind::Sum(rows) => Some(rows),
                Kind::Whole => None,
            };
            let level = self.reads(id).into_iter().map(|input| match kinds[&input] {
                Kind::Local(rows) if Some(rows) == own && !self.needs_whole(id, input) => {
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
    /// what they are made of: `x - mean` waits for `sqrt(var)` rather than being kept until that is there.
    fn delayed(
        &self,
        needed: &[NodeId],
        roots: &[NodeId],
        kinds: &HashMap<NodeId, Kind>,
        users: &HashMap<NodeId, Vec<NodeId>>,
        earliest: HashMap<NodeId, usize>,
    ) -> HashMap<NodeId, usize> {
        let may_wait = |id: &NodeId| {
            let is_leaf = matches!(self.graph.node(*id).operation, Op::Relation(_));
            matches!(kinds[id], Kind::Local(_)) && !is_leaf && !roots.contains(id)
        };
        let mut latest = earliest.clone();
        latest.extend(needed.iter().copied().filter(may_wait).map(|id| (id, usize::MAX)));
        // Levels only fall, and not below the earliest.
        loop {
            let before = latest.clone();
            for &id in needed.iter().rev().filter(|id| may_wait(id)) {
                let readers = users.get(&id).into_iter().flatten();
                let bounds = readers.map(|&user| match (kinds[&user], kinds[&id]) {
                    (Kind::Local(rows) | Kind::Sum(rows), Kind::Local(own))
                        if rows == own && !self.needs_whole(user, id) =>
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
        kinds: &HashMap<NodeId, Kind>,
        levels: &HashMap<NodeId, usize>,
    ) -> bool {
        let node = self.graph.node(id);
        let by_rows = (0..node.inputs.len()).filter(|&at| !self.reads_whole(id, at));
        by_rows.map(|at| node.inputs[at]).all(|input| {
            let width = self.graph.node(input).columns.known();
            let is_wider = width.is_none_or(|width| Some(width) > node.columns.known());
            !is_wider && (kinds[&input] != kinds[&id] || levels[&input] == levels[&id])
        })
    }

    /// The step of a node that is computed at once.
    fn whole(&mut self, id: NodeId) -> Step {
        let node = self.graph.node(id);
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
                let given: HashSet<NodeId> =
                    outside.into_iter().chain(variable).chain(prior).collect();
                let mut round = |result: NodeId| {
                    let mut steps = self.run(&[result], &given, false);
                    let keep = given.iter().chain([&result]).map(|id| id.index());
                    release(&mut steps, &keep.collect::<Vec<_>>());
                    Round { steps, result: result.index(), makes_result: !given.contains(&result) }
                };
                Step::Iterate(Box::new(Rounds {
                    iteration: *iteration,
                    start: node.inputs[0].index(),
                    step: round(node.inputs[1]),
                    until: node.inputs.get(2).map(|&until| round(until)),
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
                rates: self.options.cost.rates(node.element),
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
        &self,
        rows: Rows,
        members: &[NodeId],
        kinds: &HashMap<NodeId, Kind>,
        kept: &HashSet<NodeId>,
        emitted: Option<NodeId>,
    ) -> Pass {
        let inside = |id: NodeId| members.contains(&id) && matches!(kinds[&id], Kind::Local(_));
        let mut cut = Vec::new();
        let mut row_cells = 1;
        for &id in members {
            let node = self.graph.node(id);
            for (at, &input) in node.inputs.iter().enumerate() {
                let of = self.graph.node(input);
                row_cells = row_cells.max(of.columns.known().unwrap_or(1));
                let by_rows = !inside(input) && !self.reads_whole(id, at);
                if by_rows && !cut.contains(&input.index()) {
                    cut.push(input.index());
                }
            }
            if inside(id) {
                row_cells = row_cells.max(node.columns.known().unwrap_or(1));
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
        let mut visible: HashSet<NodeId> = kept.clone();
        visible.extend(emitted);
        let fused = fuse::chains(self.graph, members, &inside, &visible, self.options.fusion);
        let mut sinks = fused.sinks;
        for &id in members {
            let node = self.graph.node(id);
            let input = |at: usize| node.inputs[at].index();
            if kept.contains(&id) {
                let (columns, element) = (node.columns.known(), node.element);
                sinks.push(Sink::Collect { from: id.index(), to: id.index(), columns, element });
            }
            if !matches!(kinds[&id], Kind::Sum(_)) {
                continue;
            }
            sinks.push(match &node.operation {
                // Among the loops.
                Op::Reduce { .. } => continue,
                Op::Gram => Sink::Gram { from: input(0), to: id.index() },
                Op::Cross => Sink::Cross { left: input(0), right: input(1), to: id.index() },
                Op::Count(_) => Sink::CountRows { to: id.index() },
                other => unreachable!("{other} is no sum over rows"),
            });
        }
        sinks.extend(emitted.map(|id| Sink::Emit { from: id.index() }));
        Pass { source, cut, steps: fused.steps, sinks, row_cells }
    }
}

/// Lets every value go after its last reader, but for those that are kept.
fn release(steps: &mut Vec<Step>, keep: &[Slot]) {
    let mut last: HashMap<Slot, usize> = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        for slot in touched(step) {
            last.insert(slot, at);
        }
    }
    let mut released = Vec::with_capacity(steps.len());
    for (at, step) in std::mem::take(steps).into_iter().enumerate() {
        let mut over: Vec<Slot> = touched(&step)
            .into_iter()
            .filter(|slot| last[slot] == at && !keep.contains(slot))
            .collect();
        over.sort_unstable();
        over.dedup();
        released.push(step);
        if !over.is_empty() {
            released.push(Step::Release(over));
        }
    }
    *steps = released;
}

/// The slots that a step reads or writes from outside.
fn touched(step: &Step) -> Vec<Slot> {
    match step {
        Step::Gather { output, .. } => vec![*output],
        Step::Evaluate { inputs, output, .. } | Step::Multiply { inputs, output, .. } => {
            inputs.iter().copied().chain([*output]).collect()
        }
        Step::Pass(pass) => pass.whole_slots(),
        Step::Iterate(rounds) => {
            let repeated = [Some(&rounds.step), rounds.until.as_ref()].into_iter().flatten();
            let inside = repeated.flat_map(|round| {
                round.steps.iter().flat_map(touched).chain([round.result]).collect::<Vec<_>>()
            });
            inside.chain([rounds.start, rounds.output]).collect()
        }
        Step::Align { input, output, .. } => vec![*input, *output],
        Step::Part { of, output, .. } => vec![*of, *output],
        Step::Release(_) => Vec::new(),
    }
}
