//! The table of matrix operations: every node of a graph is one of these over its inputs.
//!
//! A closed set: the compiler lists the matches to extend when one is added. What an operation does
//! to shapes is in `planner::graph`, to labels in `planner::labels`, what it costs in
//! `planner::estimate`, how it runs in `exec::evaluate` and `exec::pass`.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::kernels::decompose::Triangle;
use super::kernels::elementwise::{BinaryFunction, UnaryFunction};
use super::kernels::images::{Pooling, Window};
use super::kernels::reduce::Reduction;
use super::recall::Fingerprint;
use crate::matrix::{Element, Layout, Matrix, Shape};

/// One operation; its operands are the inputs of its node, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// A matrix at hand: stored in the catalog, given as a parameter, or already computed.
    Stored(Stored),
    /// The rows of a query; the number counts the graph's relations.
    Relation(usize),
    /// The value of an iteration's last round; its number and type.
    Variable(Variable),
    /// The value of the round before that.
    Prior(Variable),
    /// A number.
    Constant(Number),
    /// The identity.
    Eye(usize),
    /// Every cell is the 1x1 input.
    Full(Shape),
    /// `start, start + step, …` down one column.
    Range {
        start: Number,
        step: Number,
        count: usize,
    },
    /// Pseudo-random cells that depend on the seed and the cell's place alone.
    Random {
        distribution: Distribution,
        seed: u64,
        shape: Shape,
    },
    /// A vector as the diagonal of a square matrix; the diagonal of any other matrix as a column.
    Diagonal,

    /// A function of each cell.
    Unary(UnaryFunction),
    /// A function of two cells, with broadcasting.
    Binary(BinaryFunction),
    /// The second input where the first is not 0, else the third; with broadcasting.
    Select,

    Transpose,
    /// The same cells, row by row, in another shape.
    Reshape(Shape),
    /// Inputs beside (`Columns`) or below (`Rows`) one another.
    Stack(Axis),
    /// A range of rows or columns.
    Slice {
        axis: Axis,
        range: Span,
    },
    /// The rows of the first input in the order of the second one's labels; the number counts the graph's
    /// alignments.
    Align(usize),
    Cast(Element),
    /// A change of layout.
    Store(Layout),

    /// One number from all cells, from each row (`Rows`: m x 1) or from each column (1 x n).
    Reduce {
        aggregate: Aggregate,
        axis: Option<Axis>,
    },
    /// A size that only running can tell.
    Count(Counted),
    /// Running sums down the rows.
    CumulativeSum,
    /// Each row or column divided by its p-norm; zero stays zero.
    Normalize {
        axis: Axis,
        p: Number,
    },
    /// Each row, an image, under each row of the second input, a filter.
    Convolve(Window),
    /// The largest or the mean pixel that a window shows, at each of its places.
    Pool(Pooling, Window),

    /// `a @ b`
    Product,
    /// `t(x) @ x`, half of it computed.
    Gram,
    /// `t(x) @ y` without forming the transpose.
    Cross,
    /// The same where it is symmetric, half of it computed.
    HalfCross,
    /// `x @ t(y)` without forming the transpose.
    Outer,
    /// `m * (a @ t(b))`, computed for the stored cells of `m` alone.
    Sampled,
    /// `m * f(x, …)`, the first input being `m`, for its stored cells alone.
    SampledCells(CellFunction),
    Kronecker,
    /// With a first input of which this triangle alone may be other than 0, where that is known.
    Solve(Option<Triangle>),
    LeastSquares,
    /// Of such a triangle.
    Inverse(Option<Triangle>),
    /// Of any matrix.
    PseudoInverse,
    /// `Σ aᵏ/k!`
    Exponential,
    /// The principal one.
    Logarithm,
    /// Of such a triangle.
    Determinant(Option<Triangle>),
    Rank,
    Trace,
    /// The lower factor `l` of `l @ t(l)`.
    Cholesky,
    Lu,
    Qr,
    Svd {
        rank: Option<usize>,
    },
    /// Of a symmetric matrix.
    Eigen {
        rank: Option<usize>,
    },
    /// Of any square matrix, in complex numbers.
    ComplexEigen,
    /// One result of a decomposition.
    Part(Part),

    /// Inputs: the beginning, the step, and the condition to stop at, if there is one.
    Iterate(Iteration),
}

/// A function of cells at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum CellFunction {
    Unary(UnaryFunction),
    Binary(BinaryFunction),
    /// As [`Operation::Select`].
    Select,
}

impl From<CellFunction> for Operation {
    fn from(function: CellFunction) -> Self {
        match function {
            CellFunction::Unary(function) => Operation::Unary(function),
            CellFunction::Binary(function) => Operation::Binary(function),
            CellFunction::Select => Operation::Select,
        }
    }
}

/// Rows or columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Axis {
    Rows,
    Columns,
}

impl Axis {
    /// `row` or `column`, as messages say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Axis::Rows => "row",
            Axis::Columns => "column",
        }
    }
}

/// A range of rows or columns, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) count: usize,
}

/// A matrix at hand. Two are equal where they are the same value, not equal values.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// What EXPLAIN calls it.
    pub(crate) name: String,
    pub(crate) matrix: Arc<Matrix>,
    /// What tells its value from every other one for as long as anybody remembers; nothing for one that was given or is made anew
    /// by each statement.
    pub(crate) part: Option<Fingerprint>,
}

impl Stored {
    /// One of which nobody remembers anything.
    pub(crate) fn new(name: impl Into<String>, matrix: Arc<Matrix>) -> Self {
        Self { name: name.into(), matrix, part: None }
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.matrix) as usize
    }
}

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for Stored {}

impl Hash for Stored {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl PartialOrd for Stored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Stored {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

/// The value that an iteration carries from round to round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Variable {
    /// Told apart from those of other iterations.
    pub(crate) number: u32,
    pub(crate) element: Element,
}

/// How an iteration ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Iteration {
    pub(crate) variable: Variable,
    /// Rounds at most; without a bound, `until` ends it.
    pub(crate) times: Option<usize>,
    /// Whether there is a third input, 1x1, that ends it where it is not 0.
    pub(crate) until: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Distribution {
    /// Over 0 ≤ x < 1.
    Uniform,
    /// Mean 0, deviation 1.
    Normal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Aggregate {
    Sum,
    Mean,
    Min,
    Max,
    /// Of a sample, by n − 1, as SQL's VAR.
    Variance,
    /// Of all there are, by n, as SQL's VAR_POP: what rules make of a mean of squared distances.
    PopulationVariance,
    /// Of a sample, as SQL's STDDEV.
    Deviation,
    /// The p-norm of the cells as one vector.
    Norm(Number),
    /// Which column (counted from 1) or row holds the first maximum.
    ArgMax,
}

impl Aggregate {
    /// What the kernels call it.
    pub(crate) fn reduction(self) -> Reduction {
        match self {
            Aggregate::Sum => Reduction::Sum,
            Aggregate::Mean => Reduction::Mean,
            Aggregate::Min => Reduction::Min,
            Aggregate::Max => Reduction::Max,
            Aggregate::Variance => Reduction::Variance,
            Aggregate::PopulationVariance => Reduction::PopulationVariance,
            Aggregate::Deviation => Reduction::Deviation,
            Aggregate::Norm(p) => Reduction::Norm(p.get()),
            Aggregate::ArgMax => Reduction::ArgMax,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Counted {
    Rows,
    Columns,
    NonZeros,
}

/// One result of a decomposition, by the field that picks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    LuL,
    LuU,
    LuP,
    QrQ,
    QrR,
    SvdU,
    SvdS,
    SvdVt,
    EigenValues,
    EigenVectors,
    ComplexValuesRe,
    ComplexValuesIm,
    ComplexVectorsRe,
    ComplexVectorsIm,
}

impl Part {
    /// The field's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::LuL => "l",
            Part::LuU | Part::SvdU => "u",
            Part::LuP => "p",
            Part::QrQ => "q",
            Part::QrR => "r",
            Part::SvdS => "s",
            Part::SvdVt => "vt",
            Part::EigenValues => "values",
            Part::EigenVectors => "vectors",
            Part::ComplexValuesRe => "values_re",
            Part::ComplexValuesIm => "values_im",
            Part::ComplexVectorsRe => "vectors_re",
            Part::ComplexVectorsIm => "vectors_im",
        }
    }

    /// The parts of a decomposition, in the order in which it yields them.
    pub(crate) fn all(decomposition: &Operation) -> &'static [Part] {
        match decomposition {
            Operation::Lu => &[Part::LuL, Part::LuU, Part::LuP],
            Operation::Qr => &[Part::QrQ, Part::QrR],
            Operation::Svd { .. } => &[Part::SvdU, Part::SvdS, Part::SvdVt],
            Operation::Eigen { .. } => &[Part::EigenValues, Part::EigenVectors],
            Operation::ComplexEigen => &[
                Part::ComplexValuesRe,
                Part::ComplexValuesIm,
                Part::ComplexVectorsRe,
                Part::ComplexVectorsIm,
            ],
            _ => &[],
        }
    }
}

/// A number that is equal to itself bit by bit, so that nodes can be told apart by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Number(u64);

impl Number {
    pub(crate) fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

impl Operation {
    /// Whether the value is at hand before anything runs.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self, Operation::Stored(_) | Operation::Constant(_))
    }

    /// Whether each cell of the result is a function of the cells at its place.
    pub(crate) fn is_elementwise(&self) -> bool {
        matches!(self, Operation::Unary(_) | Operation::Binary(_) | Operation::Select)
    }

    /// Whether it multiplies matrices.
    pub(crate) fn is_product(&self) -> bool {
        use Operation::{Cross, Gram, HalfCross, Outer, Product};
        matches!(self, Product | Gram | Cross | HalfCross | Outer)
    }

    /// Whether the input at this place is read whole where the others are read by rows.
    pub(crate) fn reads_whole(&self, at: usize) -> bool {
        matches!(self, Operation::Product | Operation::Outer | Operation::Convolve(_)) && at == 1
    }

    /// The name users know it by.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Operation::Stored(_) => "matrix",
            Operation::Relation(_) => "relation",
            Operation::Variable(_) => "variable",
            Operation::Prior(_) => "prior",
            Operation::Constant(_) => "constant",
            Operation::Eye(_) => "eye",
            Operation::Full(_) => "full",
            Operation::Range { .. } => "range",
            Operation::Random { distribution: Distribution::Uniform, .. } => "rand",
            Operation::Random { distribution: Distribution::Normal, .. } => "randn",
            Operation::Diagonal => "diag",
            Operation::Unary(function) => function.name(),
            Operation::Binary(function) => function.name(),
            Operation::Select => "where",
            Operation::Transpose => "t",
            Operation::Reshape(_) => "reshape",
            Operation::Stack(Axis::Columns) => "hstack",
            Operation::Stack(Axis::Rows) => "vstack",
            Operation::Slice { axis: Axis::Rows, .. } => "rows",
            Operation::Slice { axis: Axis::Columns, .. } => "columns",
            Operation::Align(_) => "align",
            Operation::Cast(_) => "cast",
            Operation::Store(Layout::Dense) => "dense",
            Operation::Store(Layout::Csr) => "sparse",
            Operation::Reduce { aggregate, axis } => aggregate.name(*axis),
            Operation::Count(Counted::Rows) => "nrow",
            Operation::Count(Counted::Columns) => "ncol",
            Operation::Count(Counted::NonZeros) => "nnz",
            Operation::CumulativeSum => "cumsum",
            Operation::Normalize { axis: Axis::Rows, .. } => "normalize_rows",
            Operation::Normalize { axis: Axis::Columns, .. } => "normalize_cols",
            Operation::Convolve(_) => "conv2d",
            Operation::Pool(Pooling::Max, _) => "max_pool2d",
            Operation::Pool(Pooling::Mean, _) => "avg_pool2d",
            Operation::Product => "@",
            Operation::Gram => "gram",
            Operation::Cross => "cross",
            Operation::HalfCross => "half_cross",
            Operation::Outer => "outer",
            Operation::Sampled | Operation::SampledCells(_) => "sampled",
            Operation::Kronecker => "kron",
            Operation::Solve(None) => "solve",
            Operation::Solve(Some(Triangle::Lower)) => "solve_lower",
            Operation::Solve(Some(Triangle::Upper)) => "solve_upper",
            Operation::LeastSquares => "lstsq",
            Operation::Inverse(None) => "inv",
            Operation::Inverse(Some(Triangle::Lower)) => "inv_lower",
            Operation::Inverse(Some(Triangle::Upper)) => "inv_upper",
            Operation::PseudoInverse => "pinv",
            Operation::Exponential => "expm",
            Operation::Logarithm => "logm",
            Operation::Rank => "rank",
            Operation::Determinant(None) => "det",
            Operation::Determinant(Some(Triangle::Lower)) => "det_lower",
            Operation::Determinant(Some(Triangle::Upper)) => "det_upper",
            Operation::Trace => "trace",
            Operation::Cholesky => "cholesky",
            Operation::Lu => "lu",
            Operation::Qr => "qr",
            Operation::Svd { .. } => "svd",
            Operation::Eigen { .. } => "eigh",
            Operation::ComplexEigen => "eig",
            Operation::Part(part) => part.name(),
            Operation::Iterate(_) => "iterate",
        }
    }
}

impl Aggregate {
    fn name(self, axis: Option<Axis>) -> &'static str {
        let of = |all, rows, columns| match axis {
            None => all,
            Some(Axis::Rows) => rows,
            Some(Axis::Columns) => columns,
        };
        match self {
            Aggregate::Sum => of("sum", "row_sums", "col_sums"),
            Aggregate::Mean => of("mean", "row_means", "col_means"),
            Aggregate::Min => of("min", "row_mins", "col_mins"),
            Aggregate::Max => of("max", "row_maxs", "col_maxs"),
            Aggregate::Variance => of("var", "row_vars", "col_vars"),
            Aggregate::PopulationVariance => of("var_pop", "row_vars_pop", "col_vars_pop"),
            Aggregate::Deviation => of("stddev", "row_stddevs", "col_stddevs"),
            Aggregate::Norm(_) => of("norm", "row_norms", "col_norms"),
            Aggregate::ArgMax => of("argmax", "row_argmax", "col_argmax"),
        }
    }
}

/// The name with what is fixed about it, as EXPLAIN prints it: `columns 1:3`, `svd k=2`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Stored(stored) => f.write_str(&stored.name),
            Operation::Constant(value) => write!(f, "{value}"),
            Operation::Variable(variable) => write!(f, "r{}", variable.number),
            Operation::Prior(variable) => write!(f, "prior(r{})", variable.number),
            Operation::Eye(n) => write!(f, "eye({n})"),
            Operation::Range { start, step, count } => {
                write!(f, "range({start}, {}, {step})", start.get() + step.get() * *count as f64)
            }
            Operation::Random { seed, shape, .. } => {
                write!(f, "{}({}, {}, {seed})", self.name(), shape.rows, shape.columns)
            }
            Operation::Full(shape) | Operation::Reshape(shape) => {
                write!(f, "{} {shape}", self.name())
            }
            Operation::Slice { range, .. } => {
                write!(f, "{} {}:{}", self.name(), range.start + 1, range.start + range.count)
            }
            Operation::Cast(element) => write!(f, "cast {element}"),
            Operation::Normalize { p, .. } => write!(f, "{} p={p}", self.name()),
            Operation::Convolve(window) | Operation::Pool(_, window) => {
                write!(f, "{} {window}", self.name())
            }
            Operation::Reduce { aggregate: Aggregate::Norm(p), .. } => {
                write!(f, "{} p={p}", self.name())
            }
            Operation::Svd { rank: Some(k) } | Operation::Eigen { rank: Some(k) } => {
                write!(f, "{} k={k}", self.name())
            }
            Operation::Part(part) => write!(f, "field {}", part.name()),
            Operation::Iterate(iteration) => match iteration.times {
                Some(times) => write!(f, "iterate times={times}"),
                None => f.write_str("iterate"),
            },
            operation => f.write_str(operation.name()),
        }
    }
}
