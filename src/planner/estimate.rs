//! What a graph will cost, guessed before it runs: sizes, stored cells, bytes and seconds of each node.
//!
//! Sizes are exact where shapes are known; open ones come from DataFusion's statistics, else from
//! [`ROWS_UNKNOWN`]. What sparse operands make is estimated from how many cells their rows and columns
//! store (`stored_cells`); these are counted for matrices at hand, where such an operation asks for them.
//! Everything else goes by density, as if stored cells were spread at random (Sommer et al., *MNC:
//! Structure-Exploiting Sparsity Estimation for Matrix Expressions*, SIGMOD 2019, §2).

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::cost::{Cost, CostModel};
use super::graph::{Dim, Graph, Node, NodeId};
use super::sparsity::keeps_sparse;
use super::stored_cells;
use crate::exec::costs::Constant;
use crate::exec::evaluate::DENSE_FROM;
use crate::exec::intake::Form;
use crate::exec::kernels::decompose;
use crate::exec::multiply::Algorithm;
use crate::exec::operation::{Axis, CellFunction, Iteration, Operation as Op};
use crate::matrix::counts::Counts;
use crate::matrix::{Layout, Shape};

/// Rows of a relation about which nothing is known.
const ROWS_UNKNOWN: f64 = 1e6;
/// Columns of one whose rows have a width that only they tell.
const COLUMNS_UNKNOWN: f64 = 100.0;
/// Density of entries about which nothing is known.
const DENSITY_UNKNOWN: f64 = 0.01;
/// Rounds of an iteration that only its condition ends.
const ROUNDS_UNKNOWN: f64 = 20.0;

/// Time of a sum over rows that is larger than is well held, to that of one that is not.
const HELD: f64 = 4.0;

/// What is expected of one node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) rows: f64,
    pub(crate) columns: f64,
    /// Stored cells by cells; 1 where dense.
    pub(crate) density: f64,
    pub(crate) layout: Layout,
    pub(crate) bytes: f64,
    /// Floating-point operations of the node itself.
    pub(crate) flops: f64,
    pub(crate) seconds: f64,
    /// What the seconds are bound by.
    pub(crate) bound: Option<Constant>,
    /// By which algorithm a dense product is made whole, and the best of the other kind.
    pub(crate) product: Option<[Algorithm; 2]>,
    /// The layout that a result could have as well, and its bytes.
    pub(crate) other_layout: Option<(Layout, f64)>,
}

impl Estimate {
    fn cells(&self) -> f64 {
        self.rows * self.columns
    }

    pub(super) fn stored(&self) -> f64 {
        self.cells() * self.density
    }
}

/// Estimates every node; `relation_rows` are the rows that DataFusion expects of each relation.
pub(crate) fn estimate(
    graph: &Graph,
    relation_rows: &[Option<f64>],
    cost: &CostModel,
) -> Vec<Estimate> {
    let mut estimator = Estimator::new(relation_rows, cost);
    estimator.extend(graph);
    for (id, node) in graph.nodes() {
        if let Op::Iterate(iteration) = node.operation {
            let inside = rounds_of(graph, node).map(|id| estimator.estimates[id.index()].seconds);
            estimator.estimates[id.index()].seconds = rounds(&iteration) * inside.sum::<f64>();
        }
    }
    estimator.estimates
}

/// Rounds that an iteration is expected to take.
pub(super) fn rounds(iteration: &Iteration) -> f64 {
    iteration.times.map_or(ROUNDS_UNKNOWN, |times| times as f64)
}

/// Estimates of the nodes of a graph that grows.
pub(super) struct Estimator<'a> {
    relation_rows: &'a [Option<f64>],
    cost: &'a CostModel,
    /// By the numbers of the nodes.
    pub(super) estimates: Vec<Estimate>,
    /// Stored cells of their rows and columns, where they have been asked for.
    counts: Vec<Option<Arc<Counts>>>,
    /// What is guessed for open sizes.
    open: FxHashMap<Dim, f64>,
}

impl<'a> Estimator<'a> {
    pub(super) fn new(relation_rows: &'a [Option<f64>], cost: &'a CostModel) -> Self {
        let (estimates, counts) = (Vec::new(), Vec::new());
        Self { relation_rows, cost, estimates, counts, open: FxHashMap::default() }
    }

    pub(super) fn cost(&self) -> &CostModel {
        self.cost
    }

    /// Estimates the nodes that are new. Of an iteration, what its rounds take is not part of it.
    pub(super) fn extend(&mut self, graph: &Graph) {
        for node in graph.nodes_from(self.estimates.len()) {
            self.add(graph, node);
        }
    }

    fn add(&mut self, graph: &Graph, node: &Node) {
        if let Op::Relation(index) = node.operation {
            self.open_relation(graph, node, index);
        }
        let guess = node.inputs.first().map_or(ROWS_UNKNOWN, |input| self.of(*input).rows);
        let mut size = |dim: Dim| match dim {
            Dim::Known(size) => size as f64,
            open => *self.open.entry(open).or_insert(guess),
        };
        let (rows, columns) = (size(node.rows), size(node.columns));
        let combined = self.combined(graph, node);
        let estimates = &self.estimates;
        let density = match &combined {
            Some((counts, _)) => counts.stored() / (rows * columns).max(1.0),
            None => density(graph, node, estimates, (rows, columns)),
        };
        let density = density.clamp(0.0, 1.0);
        let stored = rows * columns * density;
        let is_csr = |input: NodeId| estimates[input.index()].layout == Layout::Csr;
        let may_be_sparse = keeps_sparse(graph, node, is_csr);
        let layout = match &node.operation {
            Op::Stored(stored) => stored.matrix.cells().layout(),
            _ if density <= DENSE_FROM && may_be_sparse => Layout::Csr,
            _ => Layout::Dense,
        };
        let other = if layout == Layout::Csr { Layout::Dense } else { Layout::Csr };
        let cell = node.element.size_bytes() as f64;
        let bytes = |layout: Layout| match layout {
            Layout::Dense => rows * columns * cell,
            Layout::Csr => rows * columns * density * (cell + 4.0) + rows * 8.0,
        };
        let is_a_choice = may_be_sparse && chooses_layout(&node.operation);
        let other_layout = is_a_choice.then(|| (other, bytes(other)));
        let bytes = bytes(layout);
        let density = if layout == Layout::Dense { 1.0 } else { density };
        let mut estimate = Estimate {
            rows,
            columns,
            density,
            layout,
            bytes,
            flops: 0.0,
            seconds: 0.0,
            bound: None,
            product: None,
            other_layout,
        };
        estimate.flops = match combined {
            Some((_, Some(flops))) => flops,
            _ => flops(node, estimates, &estimate),
        };
        let bytes = moved_bytes(graph, node, estimates, &estimate);
        let cost = match node.operation {
            Op::Iterate(_) => Cost { seconds: 0.0, bound: None },
            _ if node.operation.is_product() && node.inputs.iter().copied().any(is_csr) => {
                let are_pairs = node.inputs.iter().copied().all(is_csr);
                let again = match node.operation {
                    // A sparse factor is read in its transpose, but for the left one of a dense one, whose sums are scattered.
                    Op::Outer => TURNED * self.of(node.inputs[1]).bytes,
                    Op::Gram | Op::Cross | Op::HalfCross if is_csr(node.inputs[0]) => {
                        let times = if are_pairs { TURNED } else { SCATTERED };
                        times * self.of(node.inputs[0]).bytes
                    }
                    _ => 0.0,
                };
                match are_pairs {
                    true => self.cost.pairs_cost(estimate.flops, stored, bytes + again),
                    false => self.cost.sparse_cost(estimate.flops, bytes + again),
                }
            }
            Op::Transpose if is_csr(node.inputs[0]) => {
                let bytes = TURNED * self.of(node.inputs[0]).bytes;
                self.cost.cost(&node.operation, node.element, estimate.flops, bytes)
            }
            _ if node.operation.is_product() => {
                let flops = CostModel::packed(estimate.flops, rows, columns);
                // A sum over rows is held whole, which a product row by row need not be.
                let is_held = matches!(node.operation, Op::Gram | Op::Cross | Op::HalfCross);
                let is_dear = is_held && self.cost.is_large(estimate.bytes);
                let flops = if is_dear { HELD * flops } else { flops };
                self.cost.cost(&node.operation, node.element, flops, bytes)
            }
            _ => self.cost.cost(&node.operation, node.element, estimate.flops, bytes),
        };
        (estimate.seconds, estimate.bound) = (cost.seconds, cost.bound);
        if node.operation == Op::Product && !node.inputs.iter().copied().any(is_csr) {
            let sides = [rows, self.of(node.inputs[0]).columns, columns];
            let choice = self.cost.rates(node.element).choice(sides);
            if choice[0].levels > 0 {
                estimate.seconds = choice[0].seconds + self.cost.constant(Constant::Steps);
            }
            estimate.product = Some(choice);
        }
        self.estimates.push(estimate);
        self.counts.push(combined.map(|(counts, _)| counts));
    }

    /// Of what sparse operands make: its counts and, of a product, its floating-point operations.
    fn combined(&mut self, graph: &Graph, node: &Node) -> Option<(Arc<Counts>, Option<f64>)> {
        use crate::exec::kernels::elementwise::BinaryFunction as F;
        let is_combined = match node.operation {
            _ if node.operation.is_product() => true,
            Op::Slice { .. } | Op::Stack(_) | Op::Kronecker => true,
            Op::Binary(F::Multiply | F::And | F::Add | F::Subtract | F::Or | F::NotEqual) => {
                node.inputs.iter().all(|&input| {
                    let operand = graph.node(input);
                    (operand.rows, operand.columns) == (node.rows, node.columns)
                })
            }
            _ => false,
        };
        let is_csr = |input: &NodeId| self.of(*input).layout == Layout::Csr;
        if !is_combined || !node.inputs.iter().all(is_csr) {
            return None;
        }
        if let Op::Stack(axis) = node.operation {
            let parts: Vec<Arc<Counts>> =
                node.inputs.iter().map(|&input| self.counts_of(graph, input)).collect();
            let parts: Vec<&Counts> = parts.iter().map(Arc::as_ref).collect();
            return Some((Arc::new(stored_cells::stack(&parts, axis)), None));
        }
        let first = self.counts_of(graph, node.inputs[0]);
        let second = match node.inputs.get(1) {
            Some(&input) => self.counts_of(graph, input),
            None => Arc::clone(&first),
        };
        let (left, right) = match node.operation {
            Op::Gram | Op::Cross | Op::HalfCross => {
                (Arc::new(stored_cells::transposed(&first)), second)
            }
            Op::Outer => (first, Arc::new(stored_cells::transposed(&second))),
            _ => (first, second),
        };
        let (counts, flops) = match node.operation {
            Op::Binary(F::Multiply | F::And) => (stored_cells::intersection(&left, &right), None),
            Op::Binary(_) => (stored_cells::union(&left, &right), None),
            Op::Slice { axis, range } => (stored_cells::slice(&left, axis, range), None),
            Op::Kronecker => (stored_cells::kronecker(&left, &right), None),
            _ => {
                let pairs = stored_cells::pairs(&left, &right);
                // Half of a symmetric result takes as long as all of it.
                (stored_cells::product(&left, &right, pairs), Some(2.0 * pairs))
            }
        };
        Some((Arc::new(counts), flops))
    }

    /// Stored cells of the rows and columns of a node that has been estimated.
    pub(super) fn counts_of(&mut self, graph: &Graph, id: NodeId) -> Arc<Counts> {
        if let Some(counts) = &self.counts[id.index()] {
            return Arc::clone(counts);
        }
        let (node, own) = (graph.node(id), *self.of(id));
        let shaped = |input: &NodeId| {
            let operand = graph.node(*input);
            self.of(*input).layout == Layout::Csr
                && (operand.rows, operand.columns) == (node.rows, node.columns)
        };
        let counts = match &node.operation {
            _ if own.layout == Layout::Dense => None,
            Op::Stored(stored) => stored.matrix.counts(),
            Op::Eye(_) | Op::Diagonal => Some(Arc::new(Counts::diagonal(own.rows))),
            Op::Transpose => {
                let turned = self.counts_of(graph, node.inputs[0]);
                Some(Arc::new(stored_cells::transposed(&turned)))
            }
            // Where a cell is stored is decided by the sparse operand.
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Cast(_)
            | Op::Normalize { .. }
            | Op::Store(_)
            | Op::Sampled
            | Op::SampledCells(_) => {
                let of = node.inputs.iter().copied().find(shaped);
                of.map(|input| self.counts_of(graph, input))
            }
            _ => None,
        };
        let even = || Arc::new(Counts::even(own.rows, own.columns, own.stored()));
        let counts = counts.unwrap_or_else(even);
        self.counts[id.index()] = Some(Arc::clone(&counts));
        counts
    }

    fn of(&self, id: NodeId) -> &Estimate {
        &self.estimates[id.index()]
    }

    /// Guesses the open sizes of a relation.
    fn open_relation(&mut self, graph: &Graph, node: &Node, index: usize) {
        let rows = self.relation_rows.get(index).copied().flatten().unwrap_or(ROWS_UNKNOWN);
        let (rows, columns) = match graph.relations[index].intake.form {
            Form::Wide | Form::Vectors { .. } => (rows, COLUMNS_UNKNOWN),
            // Entries are fewer than the cells they fill.
            Form::Entries { .. } | Form::Graph => {
                let side = (rows / DENSITY_UNKNOWN).sqrt();
                (side, side)
            }
        };
        self.open.entry(node.rows).or_insert(rows);
        self.open.entry(node.columns).or_insert(columns);
    }
}

/// Whether kernels keep a result of sparse operands in whichever layout takes fewer bytes.
fn chooses_layout(operation: &Op) -> bool {
    operation.is_product()
        || matches!(operation, Op::Sampled | Op::SampledCells(_) | Op::Kronecker | Op::Binary(_))
}

/// How often the cells of a sparse matrix move, about, until they lie by columns: they are read, dealt out, read again and
/// written.
const TURNED: f64 = 4.0;

/// Sums of a sparse matrix's columns times a vector wait for their places to be read and written, where those of its rows
/// only read: 10 million cells of a million columns take 59 ms and 18.
const SCATTERED: f64 = 3.0;

/// Operations that it takes to find the cell of a matrix at the place of a stored one.
const LOOKED_FOR: f64 = 2.0;

/// Bytes that are read for one cell among others that are not wanted.
const LINE_BYTES: f64 = 64.0;

/// Functions between a product and the sum over its rows: a residual, a gradient of a logistic regression.
const FUNCTIONS_MAX: usize = 4;

/// Bytes that a node reads and writes. A loop over cells hands them to the next in cache: they are moved
/// once they are written for someone who does not loop over them.
fn moved_bytes(graph: &Graph, node: &Node, estimates: &[Estimate], result: &Estimate) -> f64 {
    let loops = |operation: &Op| matches!(operation, Op::Unary(_) | Op::Binary(_) | Op::Select);
    let is_loop = loops(&node.operation) || matches!(node.operation, Op::Reduce { .. });
    // Rows of a matrix are a part of its memory, columns are copied.
    match node.operation {
        Op::Slice { axis: Axis::Rows, .. } => return 0.0,
        Op::Slice { axis: Axis::Columns, .. } => return 2.0 * result.bytes,
        _ => {}
    }
    let read = node.inputs.iter().map(|&input| {
        let Estimate { mut bytes, layout, .. } = estimates[input.index()];
        if matches!(node.operation, Op::SampledCells(_)) && layout == Layout::Dense {
            bytes = bytes.min(result.stored() * LINE_BYTES);
        }
        // One pass computes the other rows and adds up the products, while these are in cache.
        let others = node.inputs.iter().filter(|&&other| other != input);
        if node.operation == Op::Cross
            && layout == Layout::Dense
            && others.into_iter().any(|&other| is_of_rows(graph, other, input, FUNCTIONS_MAX))
        {
            return 0.0;
        }
        match (loops(&graph.node(input).operation), is_loop) {
            (true, true) => 0.0,
            (true, false) => 2.0 * bytes,
            (false, _) => bytes,
        }
    });
    let written = if loops(&node.operation) { 0.0 } else { result.bytes };
    read.sum::<f64>() + written
}

/// Whether the rows of a node are a function of products with those of another one, so many functions deep.
fn is_of_rows(graph: &Graph, id: NodeId, rows: NodeId, depth: usize) -> bool {
    let node = graph.node(id);
    match node.operation {
        Op::Product => node.inputs[0] == rows,
        Op::Unary(_) | Op::Binary(_) if depth > 0 => {
            node.inputs.iter().any(|&input| is_of_rows(graph, input, rows, depth - 1))
        }
        _ => false,
    }
}

/// The nodes that an iteration repeats.
fn rounds_of<'a>(graph: &'a Graph, node: &'a Node) -> impl Iterator<Item = NodeId> + 'a {
    let Op::Iterate(iteration) = node.operation else { unreachable!("an iteration") };
    let mut depends = vec![false; graph.len()];
    for (id, inner) in graph.nodes() {
        let itself = matches!(inner.operation,
            Op::Variable(v) | Op::Prior(v) if v.number == iteration.variable.number);
        depends[id.index()] = itself || inner.inputs.iter().any(|input| depends[input.index()]);
    }
    let last = node.inputs.iter().copied().max();
    graph.nodes().map(|(id, _)| id).filter(move |id| depends[id.index()] && Some(*id) <= last)
}

/// Stored cells by cells, if the result were sparse.
fn density(graph: &Graph, node: &Node, estimates: &[Estimate], (rows, columns): (f64, f64)) -> f64 {
    let of = |at: usize| estimates[node.inputs[at].index()];
    let cells = (rows * columns).max(1.0);
    match &node.operation {
        Op::Stored(stored) => stored.matrix.cells().stored() as f64 / cells,
        Op::Relation(index) => match graph.relations[*index].intake.form {
            Form::Wide | Form::Vectors { .. } => 1.0,
            Form::Entries { .. } | Form::Graph => DENSITY_UNKNOWN,
        },
        Op::Eye(n) => 1.0 / (*n as f64).max(1.0),
        Op::Diagonal if rows == columns => 1.0 / rows.max(1.0),
        Op::Unary(function) if !function.zero_preserving() => 1.0,
        Op::Binary(function) => {
            use crate::exec::kernels::elementwise::BinaryFunction as F;
            let (a, b) = (of(0), of(1));
            let zero_with = |at: usize, apply: &dyn Fn(f64) -> f64| {
                graph.as_constant(node.inputs[at]).is_some_and(|number| apply(number) == 0.0)
            };
            match function {
                _ if zero_with(1, &|number| function.apply(0.0, number)) => a.density,
                _ if zero_with(0, &|number| function.apply(number, 0.0)) => b.density,
                F::Multiply | F::And => a.density * b.density,
                // Zero stays zero over a scalar that is not.
                F::Divide | F::Power => a.density,
                F::Add | F::Subtract | F::Or | F::NotEqual => {
                    a.density + b.density - a.density * b.density
                }
                _ if function.apply(0.0, 0.0) == 0.0 => (a.density + b.density).min(1.0),
                _ => 1.0,
            }
        }
        product if product.is_product() => {
            let (a, b) = match node.operation {
                Op::Gram => (of(0), of(0)),
                _ => (of(0), of(1)),
            };
            let by_columns = matches!(node.operation, Op::Product | Op::Outer);
            let inner = if by_columns { a.columns } else { a.rows };
            1.0 - (1.0 - a.density * b.density).powf(inner)
        }
        Op::Sampled | Op::SampledCells(_) => of(0).density,
        Op::Kronecker => of(0).density * of(1).density,
        Op::Stack(_) => {
            let inputs = node.inputs.iter().map(|input| estimates[input.index()]);
            inputs.map(|input| input.stored()).sum::<f64>() / cells
        }
        Op::Store(Layout::Csr) => of(0).density.min(DENSE_FROM),
        Op::Transpose
        | Op::Slice { .. }
        | Op::Align(_)
        | Op::Cast(_)
        | Op::Normalize { .. }
        | Op::Unary(_) => of(0).density,
        _ => 1.0,
    }
}

/// Floating-point operations of a node, by the textbook counts (Golub and Van Loan).
fn flops(node: &Node, estimates: &[Estimate], result: &Estimate) -> f64 {
    let of = |at: usize| estimates[node.inputs[at].index()];
    let cube = |n: f64| n * n * n;
    let singular_values = |of: Estimate| decompose::svd_flops(of.cells(), of.columns.min(of.rows));
    match &node.operation {
        Op::Unary(function) => result.stored() * f64::from(function.flops()),
        Op::Binary(function) => result.stored() * f64::from(function.flops()),
        Op::Select => result.cells(),
        Op::Reduce { .. } | Op::Normalize { .. } | Op::CumulativeSum => of(0).stored(),
        Op::Outer => 2.0 * of(0).stored() * of(1).rows * of(1).density,
        Op::Product => {
            let (a, b) = (of(0), of(1));
            2.0 * a.stored() * b.columns * b.density
        }
        Op::Gram => of(0).stored() * of(0).columns * of(0).density,
        Op::Cross => 2.0 * of(0).stored() * of(1).columns * of(1).density,
        // Half of it is computed where both are dense.
        Op::HalfCross => {
            let is_dense = [of(0), of(1)].iter().all(|of| of.layout == Layout::Dense);
            let flops = if is_dense { 1.0 } else { 2.0 };
            flops * of(0).stored() * of(1).columns * of(1).density
        }
        Op::Sampled => 2.0 * of(0).stored() * of(1).columns,
        Op::SampledCells(function) => {
            let flops = match function {
                CellFunction::Unary(function) => function.flops(),
                CellFunction::Binary(function) => function.flops(),
                CellFunction::Select => 1,
            };
            // Each operand is looked for at each place.
            result.stored() * (f64::from(flops) + LOOKED_FOR * node.inputs.len() as f64)
        }
        Op::Kronecker => result.stored(),
        Op::Convolve(window) => 2.0 * result.cells() * window.kernel_cells() as f64,
        Op::Pool(_, window) => result.cells() * window.kernel.area() as f64,
        Op::Solve(None) => 2.0 / 3.0 * cube(of(0).rows) + 2.0 * of(0).cells() * of(1).columns,
        Op::LeastSquares => 2.0 * of(0).cells() * of(0).columns,
        Op::Inverse(None) => 2.0 * cube(of(0).rows),
        // By substitution.
        Op::Solve(Some(_)) => of(0).cells() * of(1).columns,
        Op::Inverse(Some(_)) => cube(of(0).rows) / 3.0,
        Op::Determinant(Some(_)) => of(0).rows,
        Op::Determinant(None) => 2.0 / 3.0 * cube(of(0).rows),
        Op::Lu => {
            let (long, short) = (of(0).rows.max(of(0).columns), of(0).rows.min(of(0).columns));
            short * short * (long - short / 3.0)
        }
        Op::Cholesky => cube(of(0).rows) / 3.0,
        Op::Qr => 4.0 * of(0).cells() * of(0).columns.min(of(0).rows),
        // Six products, a solution, and some squarings.
        Op::Exponential => 20.0 * cube(of(0).rows),
        // The Schur form, some roots of a triangular matrix and seven solutions with it, two products.
        Op::Logarithm => 40.0 * cube(of(0).rows),
        Op::Rank => 3.0 * of(0).cells() * of(0).columns.min(of(0).rows),
        Op::Svd { rank } => {
            let shape = Shape::new(of(0).rows as usize, of(0).columns as usize);
            match rank.and_then(|count| decompose::block_columns(shape, count)) {
                Some(columns) => decompose::leading_flops(of(0).stored(), columns),
                None => singular_values(of(0)),
            }
        }
        Op::PseudoInverse => singular_values(of(0)),
        Op::Eigen { .. } => 9.0 * cube(of(0).rows),
        Op::ComplexEigen => 25.0 * cube(of(0).rows),
        Op::Trace => of(0).rows,
        _ => 0.0,
    }
}
