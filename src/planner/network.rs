//! The functions of neural networks: those that are no function of single cells are composed of such.
//!
//! ```text
//! leaky_relu(x, a)   where(x > 0, x, a * x)
//! silu(x)            x * sigmoid(x)
//! softmax(x)         e / row_sums(e), e = exp(x - row_maxs(x))
//! batch_norm(x)      (x - mean) / sqrt(var + eps) * gamma + beta
//! layer_norm(x)      the same, with the mean and the variance of each row
//! ```
//!
//! `relu`, `sigmoid`, `softplus` and `gelu`, which is `x * Φ(x)`, are functions of single cells.
//! Convolution and pooling are in [`super::images`].

use super::bind::{Arguments, Binder};
use super::graph::NodeId;
use crate::error::{Error, Place, Result};
use crate::exec::kernels::elementwise::{BinaryFunction as F, UnaryFunction as U};
use crate::exec::operation::{Aggregate, Axis, Operation as Op};
use crate::sql::place_of_name;

/// The slope of `leaky_relu` below 0, where none is given; as in PyTorch.
const SLOPE: f64 = 0.01;

/// What is added to a variance before its root is taken, where nothing is given; as in PyTorch.
const EPSILON: f64 = 1e-5;

/// How normal cells are scaled, shifted and kept from a division by zero, where that is said.
const SCALING: [&str; 3] = ["gamma", "beta", "eps"];

impl Binder<'_> {
    /// The function of this name, if it is one of these.
    pub(super) fn network(&mut self, call: &Arguments<'_>) -> Result<Option<NodeId>> {
        let name = call.function.as_str();
        let mut cells = Cells { place: call.place, binder: self };
        Ok(Some(match name {
            "relu" | "sigmoid" | "silu" | "softplus" | "gelu" | "softmax" => {
                let ([x], []) = cells.given(call, ["x"], [])?;
                match name {
                    "relu" => cells.unary(U::Relu, x)?,
                    "sigmoid" => cells.unary(U::Sigmoid, x)?,
                    "softplus" => cells.unary(U::Softplus, x)?,
                    "gelu" => cells.unary(U::Gelu, x)?,
                    "silu" => {
                        let gate = cells.unary(U::Sigmoid, x)?;
                        cells.binary(F::Multiply, x, gate)?
                    }
                    _ => cells.softmax(x)?,
                }
            }
            "leaky_relu" => {
                let ([x], [slope]) = cells.given(call, ["x"], ["slope"])?;
                let slope = slope.unwrap_or_else(|| cells.constant(SLOPE));
                let zero = cells.constant(0.0);
                let is_above = cells.binary(F::Greater, x, zero)?;
                let below = cells.binary(F::Multiply, slope, x)?;
                cells.binder.graph.add(Op::Select, [is_above, x, below], call.place)?
            }
            "batch_norm" => {
                let ([x, mean, variance], more) =
                    cells.given(call, ["x", "mean", "var"], SCALING)?;
                let centred = cells.binary(F::Subtract, x, mean)?;
                cells.scaled(centred, variance, more)?
            }
            "layer_norm" => {
                let ([x], more) = cells.given(call, ["x"], SCALING)?;
                let mean = cells.by_row(Aggregate::Mean, x)?;
                let centred = cells.binary(F::Subtract, x, mean)?;
                let squares = cells.binary(F::Multiply, centred, centred)?;
                let variance = cells.by_row(Aggregate::Mean, squares)?;
                cells.scaled(centred, variance, more)?
            }
            _ => return Ok(None),
        }))
    }
}

/// Operations at the place of one call.
struct Cells<'b, 'a> {
    place: Option<Place>,
    binder: &'b mut Binder<'a>,
}

impl Cells<'_, '_> {
    /// The arguments of these names, by position or by name: those that must be there, and those that may.
    fn given<const M: usize, const N: usize>(
        &mut self,
        call: &Arguments<'_>,
        required: [&str; M],
        optional: [&str; N],
    ) -> Result<([NodeId; M], [Option<NodeId>; N])> {
        let usage = || {
            let more: Vec<String> = optional.iter().map(|name| format!("[, {name}]")).collect();
            let message = format!("takes ({}{})", required.join(", "), more.concat());
            Error::argument(&call.function, message)
        };
        let names: Vec<&str> = required.into_iter().chain(optional).collect();
        let mut given: Vec<Option<NodeId>> = vec![None; names.len()];
        for (at, expr) in call.positional.iter().enumerate() {
            *given.get_mut(at).ok_or_else(usage)? = Some(self.binder.expression(expr)?);
        }
        for (name, expr) in &call.named {
            let at = names.iter().position(|known| name.value.eq_ignore_ascii_case(known));
            match at.map(|at| &mut given[at]) {
                Some(slot @ None) => *slot = Some(self.binder.expression(expr)?),
                _ => return Err(usage().at(place_of_name(name))),
            }
        }
        let required: Option<Vec<NodeId>> = given[..M].iter().copied().collect();
        let required = required.ok_or_else(usage)?.try_into().expect("there are M of them");
        Ok((required, given[M..].try_into().expect("there are N of them")))
    }

    fn constant(&mut self, value: f64) -> NodeId {
        self.binder.graph.constant(value)
    }

    fn unary(&mut self, function: U, x: NodeId) -> Result<NodeId> {
        self.binder.unary(function, x, self.place)
    }

    fn binary(&mut self, function: F, left: NodeId, right: NodeId) -> Result<NodeId> {
        self.binder.binary(function, left, right, self.place)
    }

    fn by_row(&mut self, aggregate: Aggregate, x: NodeId) -> Result<NodeId> {
        let operation = Op::Reduce { aggregate, axis: Some(Axis::Rows) };
        self.binder.graph.add(operation, [x], self.place)
    }

    fn softmax(&mut self, x: NodeId) -> Result<NodeId> {
        let most = self.by_row(Aggregate::Max, x)?;
        let below = self.binary(F::Subtract, x, most)?;
        let powers = self.unary(U::Exp, below)?;
        let sums = self.by_row(Aggregate::Sum, powers)?;
        self.binary(F::Divide, powers, sums)
    }

    /// `centred / sqrt(variance + epsilon) * gamma + beta`.
    fn scaled(
        &mut self,
        centred: NodeId,
        variance: NodeId,
        [gamma, beta, epsilon]: [Option<NodeId>; 3],
    ) -> Result<NodeId> {
        let epsilon = epsilon.unwrap_or_else(|| self.constant(EPSILON));
        let variance = self.binary(F::Add, variance, epsilon)?;
        let deviation = self.unary(U::Sqrt, variance)?;
        let mut result = self.binary(F::Divide, centred, deviation)?;
        if let Some(gamma) = gamma {
            result = self.binary(F::Multiply, result, gamma)?;
        }
        match beta {
            Some(beta) => self.binary(F::Add, result, beta),
            None => Ok(result),
        }
    }
}
