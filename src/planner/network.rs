//! The functions of neural networks, composed of other operations: none has a node of its own.
//!
//! ```text
//! relu(x)            greatest(x, 0)
//! leaky_relu(x, a)   where(x > 0, x, a * x)
//! sigmoid(x)         1 / (1 + exp(-x))
//! silu(x)            x * sigmoid(x)
//! softplus(x)        greatest(x, 0) + log1p(exp(-abs(x)))
//! gelu(x)            x * (1 + tanh(√(2/π) * (x + 0.044715 * x³))) / 2
//! softmax(x)         e / row_sums(e), e = exp(x - row_maxs(x))
//! batch_norm(x)      (x - mean) / sqrt(var + eps) * gamma + beta
//! layer_norm(x)      the same, with the mean and the variance of each row
//! ```
//!
//! `gelu` is the approximation by Hendrycks and Gimpel (arXiv:1606.08415), within 5e-4 of `x * Φ(x)`.

use std::f64::consts::FRAC_2_PI;

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
                    "relu" => cells.relu(x)?,
                    "sigmoid" => cells.sigmoid(x)?,
                    "silu" => {
                        let gate = cells.sigmoid(x)?;
                        cells.binary(F::Multiply, x, gate)?
                    }
                    "softplus" => cells.softplus(x)?,
                    "gelu" => cells.gelu(x)?,
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

    fn relu(&mut self, x: NodeId) -> Result<NodeId> {
        let zero = self.constant(0.0);
        self.binary(F::Greatest, x, zero)
    }

    fn sigmoid(&mut self, x: NodeId) -> Result<NodeId> {
        let one = self.constant(1.0);
        let negated = self.unary(U::Negate, x)?;
        let power = self.unary(U::Exp, negated)?;
        let below = self.binary(F::Add, one, power)?;
        self.binary(F::Divide, one, below)
    }

    /// `log(1 + exp(x))`, in the form whose power does not overflow.
    fn softplus(&mut self, x: NodeId) -> Result<NodeId> {
        let size = self.unary(U::Abs, x)?;
        let negated = self.unary(U::Negate, size)?;
        let power = self.unary(U::Exp, negated)?;
        let rest = self.unary(U::Log1p, power)?;
        let linear = self.relu(x)?;
        self.binary(F::Add, linear, rest)
    }

    fn gelu(&mut self, x: NodeId) -> Result<NodeId> {
        let [one, half] = [1.0, 0.5].map(|value| self.constant(value));
        let (cubic, scale) = (self.constant(0.044715), self.constant(FRAC_2_PI.sqrt()));
        let square = self.binary(F::Multiply, x, x)?;
        let factor = self.binary(F::Multiply, cubic, square)?;
        let factor = self.binary(F::Add, one, factor)?;
        let inner = self.binary(F::Multiply, x, factor)?;
        let inner = self.binary(F::Multiply, scale, inner)?;
        let curve = self.unary(U::Tanh, inner)?;
        let gate = self.binary(F::Add, one, curve)?;
        let halved = self.binary(F::Multiply, half, x)?;
        self.binary(F::Multiply, halved, gate)
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
