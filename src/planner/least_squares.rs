//! `lstsq(a, b, weights => w, ridge => lambda)`: least squares, weighted and shrunk, by one operation.
//!
//! ```text
//! weights   Σ wᵢ·(aᵢx - bᵢ)²           rows times √w:              lstsq(√w * a, √w * b)
//! ridge     ‖a·x - b‖² + lambda·‖x‖²   rows of √lambda below:      lstsq([a; √lambda·I], [b; 0])
//! ```
//!
//! Both together weigh the rows first. A weight below 0 has no root, and is an error where it is known
//! while planning; else the error says that a cell is not finite.
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §6.1.

use sqlparser::ast::Expr;

use super::bind::{Arguments, Binder};
use super::graph::NodeId;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::operation::{Axis, Operation as Op};
use crate::matrix::Shape;
use crate::sql::{place_of, place_of_name};

impl Binder<'_> {
    /// Binds the call.
    ///
    /// # Errors
    /// Rows or weights that do not fit, and what is below 0.
    pub(super) fn least_squares(&mut self, call: &Arguments<'_>) -> Result<NodeId> {
        let usage = || {
            let message = "takes (a, b[, weights => w][, ridge => lambda])";
            Error::argument(&call.function, message)
        };
        let [a, b] = call.positional[..] else { return Err(usage()) };
        let mut sides = [self.expression(a)?, self.expression(b)?];
        // Also where it is not the result: it says whether the rows of the two sides match.
        let plain = self.graph.add(Op::LeastSquares, sides, call.place)?;
        let (mut weights, mut ridge) = (None, None);
        for &(name, expr) in &call.named {
            match name.value.to_ascii_lowercase().as_str() {
                "weights" => weights = Some(expr),
                "ridge" => ridge = Some(expr),
                _ => return Err(usage().at(place_of_name(name))),
            }
        }
        if let Some(expr) = weights {
            sides = self.weighted(call, sides, expr)?;
        }
        if let Some(expr) = ridge {
            sides = self.stacked(call, sides, expr)?;
        }
        match (weights, ridge) {
            (None, None) => Ok(plain),
            _ => self.graph.add(Op::LeastSquares, sides, call.place),
        }
    }

    /// Both sides with each row times the root of its weight.
    fn weighted(
        &mut self,
        call: &Arguments<'_>,
        sides: [NodeId; 2],
        expr: &Expr,
    ) -> Result<[NodeId; 2]> {
        let given = self.expression(expr)?;
        let weights = self.column(call, given)?;
        if let Some(weight) = self.only_cell(weights).filter(|weight| *weight < 0.0) {
            return Err(below_zero(call, "a weight", weight, expr));
        }
        let (rows, known) = (self.graph.node(sides[0]).rows, self.graph.node(weights).rows);
        if rows.differs(known) && self.graph.as_constant(weights).is_none() {
            let [left, right] = [sides[0], weights].map(|side| self.graph.node(side).shape());
            let operation = call.function.clone();
            let needs = "a weight for each row";
            return Err(ErrorKind::Shapes { operation, needs, left, right }.into());
        }
        let roots = self.unary(UnaryFunction::Sqrt, weights, call.place)?;
        let mut weigh = |side| self.binary(BinaryFunction::Multiply, side, roots, call.place);
        Ok([weigh(sides[0])?, weigh(sides[1])?])
    }

    /// Both sides with as many rows more as there are unknowns: the root of lambda on a diagonal, and
    /// zeros.
    fn stacked(
        &mut self,
        call: &Arguments<'_>,
        [a, b]: [NodeId; 2],
        expr: &Expr,
    ) -> Result<[NodeId; 2]> {
        let lambda = self.number(expr, "ridge")?;
        if !(lambda >= 0.0 && lambda.is_finite()) {
            return Err(below_zero(call, "ridge", lambda, expr));
        }
        let count = self.known_size(a, Axis::Columns)?;
        let sides = self.known_size(b, Axis::Columns)?;
        let root = self.graph.constant(lambda.sqrt());
        let identity = self.graph.add(Op::Eye(count), [], call.place)?;
        let diagonal = self.binary(BinaryFunction::Multiply, root, identity, call.place)?;
        let zero = self.graph.constant(0.0);
        let zeros = self.graph.add(Op::Full(Shape::new(count, sides)), [zero], call.place)?;
        let below = |graph: &mut super::graph::Graph, side, rows| {
            graph.add(Op::Stack(Axis::Rows), [side, rows], call.place)
        };
        Ok([below(&mut self.graph, a, diagonal)?, below(&mut self.graph, b, zeros)?])
    }

    /// The value that all cells have, where that is known while planning.
    fn only_cell(&self, node: NodeId) -> Option<f64> {
        match self.graph.node(node).operation {
            Op::Full(_) => self.graph.as_constant(self.graph.node(node).inputs[0]),
            _ => self.graph.as_constant(node),
        }
    }
}

fn below_zero(call: &Arguments<'_>, what: &str, value: f64, expr: &Expr) -> Error {
    let message = format!("{what} is a number from 0 on, not {value:?}");
    Error::argument(&call.function, message).at(place_of(expr))
}
