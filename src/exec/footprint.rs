//! Bytes that an operation is about to take, known from the shapes of its inputs before it runs.
//!
//! A run asks for them before it lets a kernel loose, so that what passes the memory limit is refused
//! rather than allocated. Dense results and the copies that factorizations work in count in full;
//! how much a sparse result will store only its kernel can tell, so it counts once it is there.

use super::kernels::{decompose, strassen};
use super::operation::{Axis, Counted, Operation as Op};
use crate::matrix::{Cells, Element, Layout, Shape};

/// Bytes of results and working copies together.
pub(super) fn bytes(operation: &Op, inputs: &[&Cells]) -> usize {
    let element = inputs.iter().map(|input| input.element()).reduce(Element::common);
    let cell = element.unwrap_or(Element::Float64).size_bytes();
    // Pools add without looking for an overflow.
    cells(operation, inputs).saturating_mul(cell).min(isize::MAX as usize)
}

/// Whether an operation makes its result in blocks, which may be in files. Factorizations but Cholesky's, LU, what
/// comes of that, and those of tall matrices work in copies that may not: what memory has no room for is refused.
pub(super) fn is_in_blocks(operation: &Op, inputs: &[&Cells]) -> bool {
    match operation {
        Op::Svd { .. } if leading_columns(operation, inputs[0].shape()).is_some() => true,
        Op::Qr | Op::Svd { .. } | Op::Rank | Op::LeastSquares => {
            decompose::is_tall(inputs[0].shape())
        }
        Op::Solve(Some(_))
        | Op::Determinant(Some(_))
        | Op::Inverse(Some(_))
        | Op::PseudoInverse
        | Op::Eigen { .. }
        | Op::ComplexEigen
        | Op::Exponential
        | Op::Logarithm => false,
        _ => true,
    }
}

/// Columns of the blocks that the first few singular values of a matrix come from.
fn leading_columns(operation: &Op, shape: Shape) -> Option<usize> {
    let Op::Svd { rank: Some(count) } = operation else { return None };
    decompose::block_columns(shape, *count)
}

/// The same for a product by so many levels of Strassen's method.
pub(super) fn product_bytes(sides: [usize; 3], levels: usize, cell_bytes: usize) -> usize {
    let [m, _, n] = sides;
    let cells = Shape::new(m, n).cells().saturating_add(strassen::spare_cells(sides, levels));
    cells.saturating_mul(cell_bytes).min(isize::MAX as usize)
}

fn cells(operation: &Op, inputs: &[&Cells]) -> usize {
    let shape = |at: usize| inputs[at].shape();
    let (all_sparse, any_sparse) = (
        !inputs.is_empty() && inputs.iter().all(|input| input.layout() == Layout::Csr),
        inputs.iter().any(|input| input.layout() == Layout::Csr),
    );
    let both = |rows: usize, columns: usize| Shape::new(rows, columns).cells();
    match operation {
        Op::Full(shape) | Op::Random { shape, .. } => shape.cells(),
        Op::Range { count, .. } => *count,
        // A place of 4 bytes, an offset of 8 and the cell.
        Op::Eye(n) => n.saturating_mul(3),
        Op::Store(Layout::Dense) => shape(0).cells(),

        // These share the cells of their inputs, or yield next to nothing.
        Op::Relation(_)
        | Op::Stored(_)
        | Op::Variable(_)
        | Op::Prior(_)
        | Op::Constant(_)
        | Op::Part(_)
        | Op::Iterate(_)
        | Op::Reshape(_)
        | Op::Slice { axis: Axis::Rows, .. }
        | Op::Count(Counted::Rows | Counted::Columns | Counted::NonZeros)
        | Op::Trace => 0,

        Op::Product if all_sparse => 0,
        Op::Product => both(shape(0).rows, shape(1).columns),
        Op::Cross | Op::HalfCross if all_sparse => 0,
        Op::Cross | Op::HalfCross => both(shape(0).columns, shape(1).columns),
        Op::Outer if all_sparse => 0,
        Op::Outer => both(shape(0).rows, shape(1).rows),
        Op::Gram if all_sparse => 0,
        Op::Gram => both(shape(0).columns, shape(0).columns),
        Op::Kronecker if all_sparse => 0,
        Op::Kronecker => shape(0).cells().saturating_mul(shape(1).cells()),

        Op::Solve(_) | Op::LeastSquares => {
            both(shape(0).rows, shape(0).columns.saturating_add(shape(1).columns.saturating_mul(2)))
        }
        Op::Determinant(_) => shape(0).cells(),
        Op::Inverse(_) | Op::Cholesky => shape(0).cells().saturating_mul(2),
        Op::Lu | Op::Eigen { .. } => shape(0).cells().saturating_mul(4),
        Op::Rank => shape(0).cells().saturating_mul(2),
        Op::Qr => shape(0).cells().saturating_mul(3),
        // Both factors of the Schur form, and the vectors: before they are in order, in two parts, by rows.
        Op::ComplexEigen => shape(0).cells().saturating_mul(7),
        // Three powers of it, both polynomials, and what they are added up in; or the Schur form, the last root,
        // and both sides of an equation with it.
        Op::Exponential | Op::Logarithm => shape(0).cells().saturating_mul(8),
        Op::Svd { .. } | Op::PseudoInverse => match leading_columns(operation, shape(0)) {
            Some(columns) => decompose::space_cells(shape(0), columns),
            None => decompose::svd_cells(shape(0)),
        },

        Op::Reduce { axis, .. } => match axis {
            None => 1,
            Some(Axis::Rows) => shape(0).rows,
            Some(Axis::Columns) => shape(0).columns,
        },
        Op::Diagonal if shape(0).rows == 1 || shape(0).columns == 1 => {
            shape(0).cells().saturating_mul(3)
        }
        Op::Diagonal => shape(0).rows,

        Op::Convolve(window) => {
            both(shape(0).rows, shape(1).rows.saturating_mul(window.places().area()))
        }
        Op::Pool(_, window) => {
            both(shape(0).rows, window.channels.saturating_mul(window.places().area()))
        }

        _ if any_sparse => 0,
        Op::Slice { axis: Axis::Columns, range } => both(shape(0).rows, range.count),
        Op::Stack(axis) => {
            let sum = |of: fn(Shape) -> usize| inputs.iter().map(|input| of(input.shape())).sum();
            match axis {
                Axis::Rows => both(sum(|shape| shape.rows), shape(0).columns),
                Axis::Columns => both(shape(0).rows, sum(|shape| shape.columns)),
            }
        }
        // What the stored cells of a dense matrix would be.
        Op::Sampled | Op::SampledCells(_) => shape(0).cells().saturating_mul(2),
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Transpose
        | Op::Align(_)
        | Op::Cast(_)
        | Op::Store(_)
        | Op::CumulativeSum
        | Op::Normalize { .. } => {
            let rows = inputs.iter().map(|input| input.shape().rows).max();
            let columns = inputs.iter().map(|input| input.shape().columns).max();
            both(rows.unwrap_or(0), columns.unwrap_or(0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::evaluate::evaluate;
    use super::*;
    use crate::exec::kernels::Stop;
    use crate::exec::kernels::decompose::Triangle;
    use crate::exec::kernels::elementwise::BinaryFunction;
    use crate::exec::kernels::images::{Pooling, Sides, Window};
    use crate::matrix::Dense;

    fn dense(rows: usize, columns: usize) -> Cells {
        let cells: Vec<f64> = (0..rows * columns).map(|at| ((at * 7) % 11) as f64 + 0.5).collect();
        Dense::new(Shape::new(rows, columns), cells.into()).into()
    }

    #[test]
    fn what_is_counted_beforehand_covers_what_a_dense_operation_yields() {
        let (x, y, v) = (dense(6, 4), dense(6, 4), dense(1, 4));
        let (a, b, u) = (dense(4, 4), dense(4, 2), dense(3, 1));
        let positive: Cells = Dense::new(Shape::new(1, 1), vec![2.0].into()).into();
        let (image, side) = (Sides::square(2), Sides::square(1));
        let window = Window { channels: 1, image, kernel: side, stride: side, padding: 0 };
        let cases: Vec<(Op, Vec<&Cells>)> = vec![
            (Op::Full(Shape::new(5, 7)), vec![&x]),
            (Op::Binary(BinaryFunction::Add), vec![&x, &v]),
            (Op::Transpose, vec![&x]),
            (Op::Stack(Axis::Rows), vec![&x, &y]),
            (Op::Stack(Axis::Columns), vec![&x, &y]),
            (Op::CumulativeSum, vec![&x]),
            (Op::Product, vec![&x, &b]),
            (Op::Gram, vec![&x]),
            (Op::Cross, vec![&x, &y]),
            (Op::Outer, vec![&x, &y]),
            (Op::Kronecker, vec![&x, &b]),
            (Op::Solve(None), vec![&a, &b]),
            (Op::Solve(Some(Triangle::Lower)), vec![&a, &b]),
            (Op::LeastSquares, vec![&x, &y]),
            (Op::Inverse(None), vec![&a]),
            (Op::Inverse(Some(Triangle::Upper)), vec![&a]),
            (Op::PseudoInverse, vec![&x]),
            (Op::Exponential, vec![&a]),
            (Op::Logarithm, vec![&positive]),
            (Op::Lu, vec![&a]),
            (Op::Qr, vec![&x]),
            (Op::Svd { rank: None }, vec![&x]),
            (Op::ComplexEigen, vec![&a]),
            (Op::Convolve(window), vec![&x, &u]),
            (Op::Pool(Pooling::Mean, window), vec![&x]),
        ];
        for (operation, inputs) in cases {
            let expected = bytes(&operation, &inputs);
            let found = evaluate(&operation, &inputs, Stop::NEVER).unwrap().size_bytes();
            assert!(
                found > 0 && expected >= found,
                "{operation}: {expected} before, {found} after"
            );
        }
    }

    #[test]
    fn a_shape_beyond_all_memory_saturates() {
        let one = dense(1, 1);
        let shape = Shape::new(usize::MAX / 2, 100);
        assert_eq!(bytes(&Op::Full(shape), &[&one]), isize::MAX as usize);
    }
}
