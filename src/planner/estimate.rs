//! What a graph will cost, guessed before it runs: sizes, stored cells, bytes and seconds of each node.
//!
//! Sizes are exact where shapes are known; open ones come from DataFusion's statistics, else from
//! [`ROWS_UNKNOWN`]. Sparsity goes through operations as if stored cells were spread at random (Sommer
//! et al., *MNC: Structure-Exploiting Sparsity Estimation for Matrix Expressions*, SIGMOD 2019, §2: the
//! metadata estimator).

use super::cost::CostModel;
use super::graph::{Dim, Graph, Node, NodeId};
use super::sparsity::keeps_sparse;
use crate::exec::evaluate::DENSE_FROM;
use crate::exec::intake::Form;
use crate::exec::operation::Operation as Op;
use crate::matrix::Layout;

/// Rows of a relation about which nothing is known.
const ROWS_UNKNOWN: f64 = 1e6;
/// Density of entries about which nothing is known.
const DENSITY_UNKNOWN: f64 = 0.01;
/// Rounds of an iteration that only its condition ends.
const ROUNDS_UNKNOWN: f64 = 20.0;

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
}

impl Estimate {
    fn cells(&self) -> f64 {
        self.rows * self.columns
    }

    fn stored(&self) -> f64 {
        self.cells() * self.density
    }
}

/// Estimates every node; `relation_rows` are the rows that DataFusion expects of each relation.
pub(crate) fn estimate(
    graph: &Graph,
    relation_rows: &[Option<f64>],
    cost: &CostModel,
) -> Vec<Estimate> {
    let mut estimates: Vec<Estimate> = Vec::with_capacity(graph.len());
    let mut open: std::collections::HashMap<Dim, f64> = Default::default();
    for (_, node) in graph.nodes() {
        let of = |at: usize| estimates[node.inputs[at].index()];
        if let Op::Relation(index) = node.operation {
            let rows = relation_rows.get(index).copied().flatten().unwrap_or(ROWS_UNKNOWN);
            let (rows, columns) = match graph.relations[index].intake.form {
                Form::Wide | Form::Vectors { .. } => (rows, 100.0),
                // Entries are fewer than the cells they fill.
                Form::Entries { .. } | Form::Graph => {
                    let side = (rows / DENSITY_UNKNOWN).sqrt();
                    (side, side)
                }
            };
            open.entry(node.rows).or_insert(rows);
            open.entry(node.columns).or_insert(columns);
        }
        let mut size = |dim: Dim, guess: f64| match dim {
            Dim::Known(size) => size as f64,
            open_size => *open.entry(open_size).or_insert(guess),
        };
        let guess = if node.inputs.is_empty() { ROWS_UNKNOWN } else { of(0).rows };
        let (rows, columns) = (size(node.rows, guess), size(node.columns, guess));
        let density = density(graph, node, &estimates, (rows, columns)).clamp(0.0, 1.0);
        let is_csr = |input: NodeId| estimates[input.index()].layout == Layout::Csr;
        let layout = if density <= DENSE_FROM && keeps_sparse(graph, node, is_csr) {
            Layout::Csr
        } else {
            Layout::Dense
        };
        let density = if layout == Layout::Dense { 1.0 } else { density };
        let mut estimate =
            Estimate { rows, columns, density, layout, bytes: 0.0, flops: 0.0, seconds: 0.0 };
        let cell = node.element.size_bytes() as f64;
        estimate.bytes = match layout {
            Layout::Dense => estimate.cells() * cell,
            Layout::Csr => estimate.stored() * (cell + 4.0) + rows * 8.0,
        };
        estimate.flops = flops(node, &estimates, &estimate);
        let read: f64 = node.inputs.iter().map(|input| estimates[input.index()].bytes).sum();
        let is_product = matches!(node.operation, Op::Product | Op::Gram | Op::Cross);
        estimate.seconds = if is_product && node.inputs.iter().copied().any(is_csr) {
            cost.sparse_seconds(estimate.flops, read + estimate.bytes)
        } else {
            cost.seconds(&node.operation, node.element, estimate.flops, read + estimate.bytes)
        };
        if let Op::Iterate(iteration) = node.operation {
            let rounds = iteration.times.map_or(ROUNDS_UNKNOWN, |times| times as f64);
            let inside: f64 = rounds_of(graph, node).map(|id| estimates[id.index()].seconds).sum();
            estimate.seconds = rounds * inside;
        }
        estimates.push(estimate);
    }
    estimates
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
        Op::Product | Op::Gram | Op::Cross => {
            let (a, b) = match node.operation {
                Op::Gram => (of(0), of(0)),
                _ => (of(0), of(1)),
            };
            let inner = if matches!(node.operation, Op::Product) { a.columns } else { a.rows };
            1.0 - (1.0 - a.density * b.density).powf(inner)
        }
        Op::Kronecker => of(0).density * of(1).density,
        Op::Stack(_) => {
            let inputs = node.inputs.iter().map(|input| estimates[input.index()]);
            inputs.map(|input| input.stored()).sum::<f64>() / cells
        }
        Op::Store(Layout::Csr) => of(0).density.min(DENSE_FROM),
        Op::Transpose
        | Op::Slice { .. }
        | Op::Align
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
    match &node.operation {
        Op::Unary(function) => result.stored() * f64::from(function.flops()),
        Op::Binary(function) => result.stored() * f64::from(function.flops()),
        Op::Select => result.cells(),
        Op::Reduce { .. } | Op::Normalize { .. } | Op::CumulativeSum => of(0).stored(),
        Op::Product => {
            let (a, b) = (of(0), of(1));
            2.0 * a.stored() * b.columns * b.density
        }
        Op::Gram => of(0).stored() * of(0).columns * of(0).density,
        Op::Cross => 2.0 * of(0).stored() * of(1).columns * of(1).density,
        Op::Kronecker => result.stored(),
        Op::Convolve(window) => 2.0 * result.cells() * window.kernel_cells() as f64,
        Op::Pool(_, window) => result.cells() * window.kernel.area() as f64,
        Op::Solve => 2.0 / 3.0 * cube(of(0).rows) + 2.0 * of(0).cells() * of(1).columns,
        Op::LeastSquares => 2.0 * of(0).cells() * of(0).columns,
        Op::Inverse => 2.0 * cube(of(0).rows),
        Op::Determinant | Op::Lu => 2.0 / 3.0 * cube(of(0).rows),
        Op::Cholesky => cube(of(0).rows) / 3.0,
        Op::Qr => 4.0 * of(0).cells() * of(0).columns.min(of(0).rows),
        // Six products, a solution, and some squarings.
        Op::Exponential => 20.0 * cube(of(0).rows),
        // Some five roots of ten steps each, and seven solutions.
        Op::Logarithm => 200.0 * cube(of(0).rows),
        Op::Svd { .. } | Op::PseudoInverse | Op::Rank => {
            14.0 * of(0).cells() * of(0).columns.min(of(0).rows)
        }
        Op::Eigen { .. } => 9.0 * cube(of(0).rows),
        Op::Trace => of(0).rows,
        _ => 0.0,
    }
}
