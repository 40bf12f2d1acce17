//! The functions of matrix expressions, by name: how a call becomes nodes.
//!
//! One `match` is the whole list, in the groups of the language. What composes from other operations
//! is composed here and has no node of its own.

use sqlparser::ast::{Expr, Value};

use super::bind::{Arguments, Binder};
use super::graph::{Dim, NodeId};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::kernels::images::Pooling;
use crate::exec::operation::{Aggregate, Axis, Counted, Distribution, Operation as Op};
use crate::matrix::{Element, Layout, Shape};
use crate::sql::place_of_name;

/// Every function of matrix expressions, by name and in order.
pub const NAMES: &[&str] = &[
    "abs",
    "align",
    "avg_pool2d",
    "batch_norm",
    "cast",
    "ceil",
    "cholesky",
    "clip",
    "col_argmax",
    "col_maxs",
    "col_means",
    "col_mins",
    "col_sums",
    "conv2d",
    "cos",
    "cumsum",
    "dense",
    "det",
    "diag",
    "dot",
    "eig",
    "eigh",
    "exp",
    "expm",
    "expm1",
    "eye",
    "floor",
    "full",
    "gelu",
    "greatest",
    "hstack",
    "inv",
    "isnan",
    "iterate",
    "kron",
    "layer_norm",
    "leaky_relu",
    "least",
    "log",
    "log1p",
    "logm",
    "lstsq",
    "lu",
    "matrix_power",
    "max",
    "max_pool2d",
    "mean",
    "min",
    "ncol",
    "nnz",
    "norm",
    "normalize_cols",
    "normalize_rows",
    "nrow",
    "ones",
    "outer",
    "pinv",
    "pow",
    "prior",
    "qr",
    "rand",
    "randn",
    "range",
    "rank",
    "relu",
    "reshape",
    "round",
    "row_argmax",
    "row_maxs",
    "row_means",
    "row_mins",
    "row_sums",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softmax",
    "softplus",
    "solve",
    "sparse",
    "sqrt",
    "stddev",
    "sum",
    "svd",
    "t",
    "tan",
    "tanh",
    "trace",
    "var",
    "vstack",
    "where",
    "zeros",
];

impl Binder<'_> {
    /// Binds a call.
    ///
    /// # Errors
    /// An unknown function, a wrong number of arguments, or what the operation itself refuses.
    pub(super) fn function(&mut self, call: &Arguments<'_>) -> Result<NodeId> {
        let name = call.function.as_str();
        if let Some(function) = unary_function(name) {
            let input = self.argument(call, "x")?;
            return self.unary(function, input, call.place);
        }
        if let Some(node) = self.network(call)? {
            return Ok(node);
        }
        match name {
            "eye" => {
                let [n] = self.counts(call, ["n"])?;
                self.add(call, Op::Eye(n), [])
            }
            "zeros" | "ones" => {
                let [rows, columns] = self.counts(call, ["m", "n"])?;
                let value = self.graph.constant(if name == "ones" { 1.0 } else { 0.0 });
                self.add(call, Op::Full(Shape::new(rows, columns)), [value])
            }
            "full" => {
                let [rows, columns, value] = positional(call, ["m", "n", "v"])?;
                let shape = Shape::new(self.count(rows, "m")?, self.count(columns, "n")?);
                let value = self.expression(value)?;
                self.known_size(value, Axis::Rows)?;
                self.add(call, Op::Full(shape), [value])
            }
            "rand" | "randn" => self.random(call),
            "range" => self.range(call),
            "diag" => {
                let [x] = positional(call, ["x"])?;
                let x = self.expression(x)?;
                self.known_size(x, Axis::Rows)?;
                self.add(call, Op::Diagonal, [x])
            }

            "t" | "transpose" => self.simple(call, Op::Transpose, ["x"]),
            "reshape" => {
                let [x, rows, columns] = positional(call, ["x", "m", "n"])?;
                let x = self.expression(x)?;
                let shape = Shape::new(self.count(rows, "m")?, self.count(columns, "n")?);
                self.add(call, Op::Reshape(shape), [x])
            }
            "hstack" | "vstack" => {
                let axis = if name == "hstack" { Axis::Columns } else { Axis::Rows };
                let inputs = self.all(call)?;
                self.add(call, Op::Stack(axis), inputs)
            }
            "align" => {
                let inputs = self.inputs(call, ["x", "y"])?;
                for input in inputs {
                    if self.graph.node(input).labels[0].fields().is_empty() {
                        return Err(Error::argument("align", "both matrices need row labels"));
                    }
                }
                self.graph.align(inputs, call.place)
            }
            "nrow" | "ncol" | "nnz" => {
                let counted = match name {
                    "nrow" => Counted::Rows,
                    "ncol" => Counted::Columns,
                    _ => Counted::NonZeros,
                };
                let input = self.argument(call, "x")?;
                self.size(input, counted, call.place)
            }
            "sparse" => self.simple(call, Op::Store(Layout::Csr), ["x"]),
            "dense" => self.simple(call, Op::Store(Layout::Dense), ["x"]),
            "cast" => {
                let [x, element] = positional(call, ["x", "'float32' or 'float64'"])?;
                let x = self.expression(x)?;
                let element = element_named(&text(call, element)?)?;
                self.cast(x, element, call.place)
            }

            "pow" | "power" => self.two(call, BinaryFunction::Power),
            "least" => self.folded(call, BinaryFunction::Least),
            "greatest" => self.folded(call, BinaryFunction::Greatest),
            "clip" => {
                let [x, low, high] = self.inputs(call, ["x", "lo", "hi"])?;
                let above = self.binary(BinaryFunction::Greatest, x, low, call.place)?;
                self.binary(BinaryFunction::Least, above, high, call.place)
            }
            "where" => {
                let [condition, a, b] = positional(call, ["condition", "a", "b"])?;
                let condition = self.expression(condition)?;
                let inputs = [condition, self.expression(a)?, self.expression(b)?];
                self.select(inputs, call.place)
            }

            "sum" => self.reduce(call, Aggregate::Sum, None),
            "mean" => self.reduce(call, Aggregate::Mean, None),
            "min" => self.reduce(call, Aggregate::Min, None),
            "max" => self.reduce(call, Aggregate::Max, None),
            "var" => self.reduce(call, Aggregate::Variance, None),
            "stddev" => self.reduce(call, Aggregate::Deviation, None),
            "row_sums" => self.reduce(call, Aggregate::Sum, Some(Axis::Rows)),
            "row_means" => self.reduce(call, Aggregate::Mean, Some(Axis::Rows)),
            "row_mins" => self.reduce(call, Aggregate::Min, Some(Axis::Rows)),
            "row_maxs" => self.reduce(call, Aggregate::Max, Some(Axis::Rows)),
            "row_argmax" => self.reduce(call, Aggregate::ArgMax, Some(Axis::Rows)),
            "col_sums" => self.reduce(call, Aggregate::Sum, Some(Axis::Columns)),
            "col_means" => self.reduce(call, Aggregate::Mean, Some(Axis::Columns)),
            "col_mins" => self.reduce(call, Aggregate::Min, Some(Axis::Columns)),
            "col_argmax" => self.reduce(call, Aggregate::ArgMax, Some(Axis::Columns)),
            "col_maxs" => self.reduce(call, Aggregate::Max, Some(Axis::Columns)),
            "norm" => {
                let p = self.norm_power(call)?;
                let aggregate = Aggregate::Norm(p.into());
                let input = self.expression(call.positional[0])?;
                self.add(call, Op::Reduce { aggregate, axis: None }, [input])
            }
            "cumsum" => self.simple(call, Op::CumulativeSum, ["x"]),
            "normalize_rows" | "normalize_cols" => {
                let p = self.norm_power(call)?;
                let axis = if name == "normalize_rows" { Axis::Rows } else { Axis::Columns };
                let input = self.expression(call.positional[0])?;
                self.add(call, Op::Normalize { axis, p: p.into() }, [input])
            }

            "conv2d" => self.convolution(call),
            "max_pool2d" => self.pooling(call, Pooling::Max),
            "avg_pool2d" => self.pooling(call, Pooling::Mean),

            "kron" => self.simple(call, Op::Kronecker, ["x", "y"]),
            "outer" => {
                let [u, v] = self.inputs(call, ["u", "v"])?;
                let (u, v) = (self.column(call, u)?, self.column(call, v)?);
                let v = self.add(call, Op::Transpose, [v])?;
                self.add(call, Op::Product, [u, v])
            }
            "dot" => {
                let [u, v] = self.inputs(call, ["u", "v"])?;
                let (u, v) = (self.column(call, u)?, self.column(call, v)?);
                let lengths = [u, v].map(|vector| self.graph.node(vector).rows);
                if let [Dim::Known(left), Dim::Known(right)] = lengths
                    && left != right
                {
                    let [left, right] = [u, v].map(|vector| self.graph.node(vector).shape());
                    let (operation, needs) = ("dot".to_owned(), "vectors of one length");
                    return Err(ErrorKind::Shapes { operation, needs, left, right }.into());
                }
                let product = self.binary(BinaryFunction::Multiply, u, v, call.place)?;
                self.add(call, Op::Reduce { aggregate: Aggregate::Sum, axis: None }, [product])
            }
            "solve" => self.simple(call, Op::Solve(None), ["a", "b"]),
            "lstsq" => self.least_squares(call),
            "inv" => self.simple(call, Op::Inverse(None), ["a"]),
            "pinv" => self.simple(call, Op::PseudoInverse, ["a"]),
            "rank" => self.simple(call, Op::Rank, ["a"]),
            "expm" => self.simple(call, Op::Exponential, ["a"]),
            "logm" => self.simple(call, Op::Logarithm, ["a"]),
            "matrix_power" => self.matrix_power(call),
            "det" => self.simple(call, Op::Determinant(None), ["a"]),
            "trace" => self.simple(call, Op::Trace, ["a"]),
            "cholesky" => self.simple(call, Op::Cholesky, ["a"]),
            "lu" => self.simple(call, Op::Lu, ["a"]),
            "qr" => self.simple(call, Op::Qr, ["a"]),
            "svd" => {
                let rank = self.rank(call)?;
                let input = self.expression(call.positional[0])?;
                self.add(call, Op::Svd { rank }, [input])
            }
            "eig" => self.simple(call, Op::ComplexEigen, ["a"]),
            "eigh" => {
                let rank = self.rank(call)?;
                let input = self.expression(call.positional[0])?;
                self.add(call, Op::Eigen { rank }, [input])
            }
            _ => Err(unknown(name)),
        }
    }

    fn add(
        &mut self,
        call: &Arguments<'_>,
        operation: Op,
        inputs: impl Into<Vec<NodeId>>,
    ) -> Result<NodeId> {
        self.graph.add(operation, inputs, call.place)
    }

    /// The operation over as many arguments as there are names.
    fn simple<const N: usize>(
        &mut self,
        call: &Arguments<'_>,
        operation: Op,
        names: [&str; N],
    ) -> Result<NodeId> {
        let inputs = self.inputs(call, names)?;
        self.add(call, operation, inputs)
    }

    fn inputs<const N: usize>(
        &mut self,
        call: &Arguments<'_>,
        names: [&str; N],
    ) -> Result<[NodeId; N]> {
        let expressions = positional(call, names)?;
        let mut inputs = Vec::with_capacity(N);
        for expression in expressions {
            inputs.push(self.expression(expression)?);
        }
        Ok(inputs.try_into().expect("one node for each of N expressions"))
    }

    /// A vector as a column, whichever way it lies.
    pub(super) fn column(&mut self, call: &Arguments<'_>, vector: NodeId) -> Result<NodeId> {
        if self.graph.node(vector).columns == Dim::ONE {
            return Ok(vector);
        }
        if self.known_size(vector, Axis::Rows)? == 1 {
            return self.add(call, Op::Transpose, [vector]);
        }
        if self.known_size(vector, Axis::Columns)? == 1 {
            return Ok(vector);
        }
        let shape = self.graph.node(vector).shape();
        Err(ErrorKind::ShapeOf { function: call.function.clone(), needs: "vectors", shape }.into())
    }

    fn argument(&mut self, call: &Arguments<'_>, name: &str) -> Result<NodeId> {
        let [input] = self.inputs(call, [name])?;
        Ok(input)
    }

    /// All arguments, of which there must be one at least.
    fn all(&mut self, call: &Arguments<'_>) -> Result<Vec<NodeId>> {
        no_names(call)?;
        if call.positional.is_empty() {
            return Err(Error::argument(&call.function, "takes one argument or more"));
        }
        call.positional.iter().map(|expr| self.expression(expr)).collect()
    }

    fn counts<const N: usize>(
        &mut self,
        call: &Arguments<'_>,
        names: [&str; N],
    ) -> Result<[usize; N]> {
        let expressions = positional(call, names)?;
        let mut counts = [0; N];
        for (at, expression) in expressions.into_iter().enumerate() {
            counts[at] = self.count(expression, names[at])?;
        }
        Ok(counts)
    }

    fn two(&mut self, call: &Arguments<'_>, function: BinaryFunction) -> Result<NodeId> {
        let [a, b] = self.inputs(call, ["a", "b"])?;
        self.binary(function, a, b, call.place)
    }

    fn folded(&mut self, call: &Arguments<'_>, function: BinaryFunction) -> Result<NodeId> {
        let inputs = self.all(call)?;
        let mut result = inputs[0];
        for &input in &inputs[1..] {
            result = self.binary(function, result, input, call.place)?;
        }
        Ok(result)
    }

    fn reduce(
        &mut self,
        call: &Arguments<'_>,
        aggregate: Aggregate,
        axis: Option<Axis>,
    ) -> Result<NodeId> {
        self.simple(call, Op::Reduce { aggregate, axis }, ["x"])
    }

    /// `rand(m, n[, seed])`
    fn random(&mut self, call: &Arguments<'_>) -> Result<NodeId> {
        let ([rows, columns], seed) = with_option(call, ["m", "n"], "seed")?;
        let shape = Shape::new(self.count(rows, "m")?, self.count(columns, "n")?);
        let seed = match seed {
            Some(seed) => self.count(seed, "seed")? as u64,
            None => self.scope.seed(),
        };
        let uniform = call.function == "rand";
        let distribution = if uniform { Distribution::Uniform } else { Distribution::Normal };
        self.add(call, Op::Random { distribution, seed, shape }, [])
    }

    /// `range(a, b[, step])`: from `a` up to, not including, `b`, as one column.
    fn range(&mut self, call: &Arguments<'_>) -> Result<NodeId> {
        let ([start, end], step) = with_option(call, ["a", "b"], "step")?;
        let (start, end) = (self.number(start, "a")?, self.number(end, "b")?);
        let step = step.map_or(Ok(1.0), |step| self.number(step, "step"))?;
        let count = ((end - start) / step).ceil().max(0.0);
        if step == 0.0 || count.is_nan() || count > 1e15 {
            let message = format!("from {start} to {end} by {step} has no end");
            return Err(Error::argument("range", message));
        }
        let count = count as usize;
        self.add(call, Op::Range { start: start.into(), step: step.into(), count }, [])
    }

    /// The `p` of a norm: the second argument, or `p => …`; 2 unless given.
    fn norm_power(&mut self, call: &Arguments<'_>) -> Result<f64> {
        let p = match self.optional(call, "p")? {
            Some(expr) => self.number(expr, "p")?,
            None => 2.0,
        };
        if p <= 0.0 || p.is_nan() {
            return Err(Error::argument(&call.function, format!("p must be above 0, not {p}")));
        }
        Ok(p)
    }

    /// `matrix_power(a, k)` by squaring: of the inverse for a negative k, the identity for 0.
    fn matrix_power(&mut self, call: &Arguments<'_>) -> Result<NodeId> {
        let [a, k] = positional(call, ["a", "k"])?;
        let mut square = self.expression(a)?;
        let power = self.number(k, "k")?;
        if power.fract() != 0.0 || power.abs() > f64::from(u32::MAX) {
            let message = format!("k must be an integer within 32 bits, not {power:?}");
            return Err(Error::argument(&call.function, message));
        }
        let node = self.graph.node(square);
        if node.rows.differs(node.columns) {
            let (function, needs, shape) = (call.function.clone(), "a square matrix", node.shape());
            return Err(ErrorKind::ShapeOf { function, needs, shape }.into());
        }
        if power == 0.0 {
            let n = self.known_size(square, Axis::Rows)?;
            return self.add(call, Op::Eye(n), []);
        }
        if power < 0.0 {
            square = self.add(call, Op::Inverse(None), [square])?;
        }
        let mut rest = power.abs() as u64;
        let mut result = None;
        while rest > 0 {
            if rest % 2 == 1 {
                result = Some(match result {
                    Some(result) => self.add(call, Op::Product, [result, square])?,
                    None => square,
                });
            }
            rest /= 2;
            if rest > 0 {
                square = self.add(call, Op::Product, [square, square])?;
            }
        }
        Ok(result.unwrap_or(square))
    }

    fn rank(&mut self, call: &Arguments<'_>) -> Result<Option<usize>> {
        match self.optional(call, "k")? {
            Some(expr) => Ok(Some(self.count(expr, "k")?)),
            None => Ok(None),
        }
    }

    /// The second argument of a function of one matrix, by position or by name.
    fn optional<'e>(&self, call: &Arguments<'e>, name: &str) -> Result<Option<&'e Expr>> {
        with_option(call, ["x"], name).map(|(_, option)| option)
    }
}

fn unary_function(name: &str) -> Option<UnaryFunction> {
    use UnaryFunction as F;
    Some(match name {
        "abs" => F::Abs,
        "sign" => F::Sign,
        "sqrt" => F::Sqrt,
        "exp" => F::Exp,
        "log" | "ln" => F::Log,
        "log1p" => F::Log1p,
        "expm1" => F::Expm1,
        "sin" => F::Sin,
        "cos" => F::Cos,
        "tan" => F::Tan,
        "tanh" => F::Tanh,
        "floor" => F::Floor,
        "ceil" => F::Ceil,
        "round" => F::Round,
        "isnan" => F::IsNan,
        _ => return None,
    })
}

/// Exactly these arguments, by position.
fn positional<'e, const N: usize>(call: &Arguments<'e>, names: [&str; N]) -> Result<[&'e Expr; N]> {
    no_names(call)?;
    let given = call.positional.len();
    <[&Expr; N]>::try_from(&call.positional[..]).map_err(|_| {
        let arguments = if N == 1 { "argument" } else { "arguments" };
        let message = format!("takes {N} {arguments} ({}), not {given}", names.join(", "));
        Error::argument(&call.function, message)
    })
}

/// The arguments of a call that has these, and one more by its place or by its name.
fn with_option<'e, const N: usize>(
    call: &Arguments<'e>,
    names: [&str; N],
    option: &str,
) -> Result<([&'e Expr; N], Option<&'e Expr>)> {
    let usage = || {
        let message = format!("takes ({}[, {option}])", names.join(", "));
        Error::argument(&call.function, message)
    };
    let (first, rest) = call.positional.split_at_checked(N).ok_or_else(usage)?;
    let option = match (rest, &call.named[..]) {
        ([], []) => None,
        ([last], []) => Some(*last),
        ([], [(given, expr)]) if given.value.eq_ignore_ascii_case(option) => Some(*expr),
        _ => return Err(usage()),
    };
    Ok((first.try_into().map_err(|_| usage())?, option))
}

fn no_names(call: &Arguments<'_>) -> Result<()> {
    match call.named.first() {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!("has no argument '{name}'");
            Err(Error::argument(&call.function, message).at(place_of_name(name)))
        }
    }
}

fn text(call: &Arguments<'_>, expr: &Expr) -> Result<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Ok(text.clone()),
            other => Err(Error::argument(&call.function, format!("needs text, not {other}"))),
        },
        other => Err(Error::argument(&call.function, format!("needs text, not {other}"))),
    }
}

/// The element by its name.
pub(crate) fn element_named(name: &str) -> Result<Element> {
    match name.to_ascii_lowercase().as_str() {
        "float32" | "real" | "float4" => Ok(Element::Float32),
        "float64" | "double" | "float8" => Ok(Element::Float64),
        _ => Err(Error::argument("cast", format!("'{name}' is neither 'float32' nor 'float64'"))),
    }
}

fn unknown(name: &str) -> Error {
    let near = NAMES
        .iter()
        .map(|known| {
            (datafusion::common::utils::datafusion_strsim::levenshtein(name, known), known)
        })
        .min()
        .filter(|(distance, _)| *distance <= name.len() / 3);
    let hint = near.map_or(String::new(), |(_, known)| format!("; did you mean {known}?"));
    ErrorKind::Unknown { what: "matrix function", name: name.to_owned(), hint }.into()
}
