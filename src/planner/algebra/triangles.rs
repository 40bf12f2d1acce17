//! Which terms are triangular by what they are made of.
//!
//! Outside its triangle a cell is 0, or `NaN` where 0 met what is not finite: whoever uses that it is 0 looks for
//! cells that are not finite first, as decompositions do.
//!
//! Of a matrix at hand the cells are looked at, where something is solved, inverted or a determinant is asked for.

use super::super::graph::Dim;
use super::facts::{Facts, Workbench};
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::operation::{Operation as Op, Part};

/// Whether nothing but zeros is above the diagonal, and whether so below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Triangular {
    pub(super) is_lower: bool,
    pub(super) is_upper: bool,
}

impl Triangular {
    const LOWER: Self = Self { is_lower: true, is_upper: false };
    const UPPER: Self = Self { is_lower: false, is_upper: true };
    const DIAGONAL: Self = Self { is_lower: true, is_upper: true };
    const UNKNOWN: Self = Self { is_lower: false, is_upper: false };

    fn transposed(self) -> Self {
        Self { is_lower: self.is_upper, is_upper: self.is_lower }
    }

    fn and(self, other: Self) -> Self {
        Self {
            is_lower: self.is_lower && other.is_lower,
            is_upper: self.is_upper && other.is_upper,
        }
    }

    /// What is known where both are known of one value.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            is_lower: self.is_lower || other.is_lower,
            is_upper: self.is_upper || other.is_upper,
        }
    }
}

/// Whether it is worth to look at the cells of matrices at hand.
pub(super) fn are_used_by(operation: &Op) -> bool {
    matches!(operation, Op::Solve(_) | Op::Inverse(_) | Op::Determinant(_))
}

/// What is known of an operation over these inputs, a result of this size.
pub(super) fn of(
    workbench: &Workbench<'_>,
    operation: &Op,
    inputs: &[Facts],
    size: [Dim; 2],
) -> Triangular {
    if size == [Dim::ONE; 2] {
        return Triangular::UNKNOWN;
    }
    let input = |at: usize| inputs[at].triangular;
    match operation {
        Op::Cholesky | Op::Part(Part::LuL) => Triangular::LOWER,
        Op::Part(Part::LuU | Part::QrR) => Triangular::UPPER,
        Op::Eye(_) => Triangular::DIAGONAL,
        Op::Diagonal if size[0] == size[1] => Triangular::DIAGONAL,
        Op::Stored(stored) if workbench.looks_at_cells => {
            let [is_lower, is_upper] = stored.matrix.triangles();
            Triangular { is_lower, is_upper }
        }
        Op::Transpose => input(0).transposed(),
        Op::Product => input(0).and(input(1)),
        Op::Cross | Op::HalfCross => input(0).transposed().and(input(1)),
        Op::Outer => input(0).and(input(1).transposed()),
        Op::Kronecker if inputs[1].rows == inputs[1].columns => input(0).and(input(1)),
        Op::Inverse(_) | Op::Exponential | Op::Logarithm | Op::Cast(_) | Op::Store(_) => input(0),
        Op::Slice { range, .. } if range.start == 0 => input(0),
        Op::Unary(function) if keeps(&|cell| function.apply(cell)) => input(0),
        Op::Binary(function) => binary(workbench, *function, inputs, size),
        Op::Select => whole(&inputs[1], size).and(whole(&inputs[2], size)),
        _ => Triangular::UNKNOWN,
    }
}

/// Whether what is 0 or `NaN` stays so.
fn keeps(apply: &dyn Fn(f64) -> f64) -> bool {
    apply(0.0) == 0.0 && apply(f64::NAN).is_nan()
}

/// What is known of an operand that is not stretched.
fn whole(operand: &Facts, size: [Dim; 2]) -> Triangular {
    if [operand.rows, operand.columns] == size { operand.triangular } else { Triangular::UNKNOWN }
}

fn is_scalar(facts: &Facts) -> bool {
    [facts.rows, facts.columns] == [Dim::ONE; 2]
}

fn binary(
    workbench: &Workbench<'_>,
    function: BinaryFunction,
    inputs: &[Facts],
    size: [Dim; 2],
) -> Triangular {
    let (left, right) = (whole(&inputs[0], size), whole(&inputs[1], size));
    let number = |at: usize| workbench.graph.as_constant(inputs[at].node);
    match (function, number(0), number(1)) {
        (BinaryFunction::Multiply, ..) => left.or(right),
        // What rounding left of a zero, divided by a zero, is infinite.
        (BinaryFunction::Divide, ..) if is_scalar(&inputs[1]) => left,
        (_, _, Some(number)) if keeps(&|cell| function.apply(cell, number)) => left,
        (_, Some(number), _) if keeps(&|cell| function.apply(number, cell)) => right,
        _ if keeps(&|cell| function.apply(cell, 0.0))
            && keeps(&|cell| function.apply(0.0, cell)) =>
        {
            left.and(right)
        }
        _ => Triangular::UNKNOWN,
    }
}
