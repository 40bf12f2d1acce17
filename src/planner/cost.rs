//! Seconds of an operation: its arithmetic over the machine's rate, or its bytes over the bandwidth,
//! whichever takes longer.

use crate::exec::operation::Operation as Op;
use crate::matrix::Element;

/// Rates of the machine. The constants are those measured on two cores of a Zen 4 server; they decide
/// between plans by their ratios, which vary less between machines than the rates do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CostModel {
    /// Dense products and what is built of them, in `f64`: half of the fused multiply-add peak.
    pub(crate) product_flops_per_second: f64,
    /// Decompositions, whose panels are bound by latency.
    pub(crate) decomposition_flops_per_second: f64,
    /// Products with a sparse operand, bound by gathers.
    pub(crate) sparse_flops_per_second: f64,
    /// Elementwise functions, in units of one addition.
    pub(crate) elementwise_flops_per_second: f64,
    /// Reading and writing memory.
    pub(crate) bytes_per_second: f64,
    /// What every step takes, however little it does.
    pub(crate) step_seconds: f64,
}

impl Default for CostModel {
    fn default() -> Self {
        Self {
            product_flops_per_second: 1.0e11,
            decomposition_flops_per_second: 3.0e10,
            sparse_flops_per_second: 2.0e9,
            elementwise_flops_per_second: 8.0e9,
            bytes_per_second: 3.0e10,
            step_seconds: 2.0e-6,
        }
    }
}

impl CostModel {
    /// Seconds of an operation of so many flops over so many bytes, read and written.
    pub(crate) fn seconds(&self, operation: &Op, element: Element, flops: f64, bytes: f64) -> f64 {
        let rate = match operation {
            Op::Product | Op::Gram | Op::Cross | Op::Outer | Op::Convolve(_) => {
                self.product_flops_per_second
            }
            Op::Solve
            | Op::LeastSquares
            | Op::Inverse
            | Op::PseudoInverse
            | Op::Exponential
            | Op::Logarithm
            | Op::Rank
            | Op::Determinant
            | Op::Cholesky
            | Op::Lu
            | Op::Qr
            | Op::Svd { .. }
            | Op::Eigen { .. }
            | Op::ComplexEigen => self.decomposition_flops_per_second,
            _ => self.elementwise_flops_per_second,
        };
        // Twice as many single-precision numbers fit a vector register.
        let rate = if element == Element::Float32 { 2.0 * rate } else { rate };
        match operation {
            // A value at hand, or a name for a part of one.
            Op::Stored(_) | Op::Variable(_) | Op::Prior(_) | Op::Constant(_) | Op::Part(_) => 0.0,
            _ => (flops / rate).max(bytes / self.bytes_per_second) + self.step_seconds,
        }
    }

    /// The same for a product with a sparse operand.
    pub(crate) fn sparse_seconds(&self, flops: f64, bytes: f64) -> f64 {
        (flops / self.sparse_flops_per_second).max(bytes / self.bytes_per_second)
            + self.step_seconds
    }
}
