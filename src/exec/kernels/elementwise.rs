//! The functions of single cells: what each is called, computes and costs.
//!
//! [`UnaryFunction::apply`] and its siblings are the definition. A fused program runs the very same
//! code over strips of cells, and the planner folds constants by it, so all three agree to the bit.
//!
//! A condition is true where it is not 0, so `NaN` is true; comparisons and logic yield 0 or 1. For `FLOAT32` cells a
//! function is evaluated in `f64` and rounded once (for `+ - * /` and the square root that is the
//! same as computing in `f32`, because 53 bits are more than twice 24 and two).

use super::math;

/// A function of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnaryFunction {
    /// -x
    Negate,
    /// |x|
    Abs,
    /// -1, 0 or 1; `NaN` for `NaN`
    Sign,
    /// √x
    Sqrt,
    /// eˣ
    Exp,
    /// Natural logarithm
    Log,
    /// log(1 + x)
    Log1p,
    /// eˣ - 1
    Expm1,
    /// Sine
    Sin,
    /// Cosine
    Cos,
    /// Tangent
    Tan,
    /// Hyperbolic tangent
    Tanh,
    /// Largest integer not above x
    Floor,
    /// Smallest integer not below x
    Ceil,
    /// Nearest integer, halves away from 0
    Round,
    /// 1 where x is `NaN`, else 0
    IsNan,
    /// 1 where x is 0, else 0
    Not,
    /// x where positive, else 0; `NaN` for `NaN`
    Relu,
    /// 1 / (1 + e⁻ˣ)
    Sigmoid,
    /// x·Φ(x), Φ the normal distribution function
    Gelu,
    /// log(1 + eˣ)
    Softplus,
}

/// A function of two cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BinaryFunction {
    /// a + b
    Add,
    /// a - b
    Subtract,
    /// a · b
    Multiply,
    /// a / b
    Divide,
    /// a to the power b
    Power,
    /// a < b
    Less,
    /// a ≤ b
    LessEqual,
    /// a > b
    Greater,
    /// a ≥ b
    GreaterEqual,
    /// a = b
    Equal,
    /// a ≠ b
    NotEqual,
    /// Both true
    And,
    /// At least one true
    Or,
    /// The smaller; `NaN` where either is
    Least,
    /// The larger; `NaN` where either is
    Greatest,
}

impl UnaryFunction {
    /// The name in the language; for `Negate` and `Not` the operator.
    pub const fn name(self) -> &'static str {
        match self {
            UnaryFunction::Negate => "-",
            UnaryFunction::Abs => "abs",
            UnaryFunction::Sign => "sign",
            UnaryFunction::Sqrt => "sqrt",
            UnaryFunction::Exp => "exp",
            UnaryFunction::Log => "log",
            UnaryFunction::Log1p => "log1p",
            UnaryFunction::Expm1 => "expm1",
            UnaryFunction::Sin => "sin",
            UnaryFunction::Cos => "cos",
            UnaryFunction::Tan => "tan",
            UnaryFunction::Tanh => "tanh",
            UnaryFunction::Floor => "floor",
            UnaryFunction::Ceil => "ceil",
            UnaryFunction::Round => "round",
            UnaryFunction::IsNan => "isnan",
            UnaryFunction::Not => "NOT",
            UnaryFunction::Relu => "relu",
            UnaryFunction::Sigmoid => "sigmoid",
            UnaryFunction::Gelu => "gelu",
            UnaryFunction::Softplus => "softplus",
        }
    }

    /// The value for one cell.
    #[inline(always)]
    pub fn apply(self, x: f64) -> f64 {
        match self {
            UnaryFunction::Negate => -x,
            UnaryFunction::Abs => x.abs(),
            UnaryFunction::Sign if x > 0.0 => 1.0,
            UnaryFunction::Sign if x < 0.0 => -1.0,
            UnaryFunction::Sign => x + 0.0,
            UnaryFunction::Sqrt => x.sqrt(),
            UnaryFunction::Exp => math::exp(x),
            UnaryFunction::Log => math::log(x),
            UnaryFunction::Log1p => math::log1p(x),
            UnaryFunction::Expm1 => math::expm1(x),
            UnaryFunction::Sin => libm::sin(x),
            UnaryFunction::Cos => libm::cos(x),
            UnaryFunction::Tan => libm::tan(x),
            UnaryFunction::Tanh => math::tanh(x),
            UnaryFunction::Floor => x.floor(),
            UnaryFunction::Ceil => x.ceil(),
            UnaryFunction::Round => x.round(),
            UnaryFunction::IsNan => truth(x.is_nan()),
            UnaryFunction::Not => truth(x == 0.0),
            UnaryFunction::Relu if x <= 0.0 => 0.0,
            UnaryFunction::Relu => x,
            UnaryFunction::Sigmoid => math::sigmoid(x),
            UnaryFunction::Gelu => math::gelu(x),
            UnaryFunction::Softplus => math::softplus(x),
        }
    }

    /// Whether 0 is mapped to 0, so that a sparse matrix stays sparse.
    pub fn zero_preserving(self) -> bool {
        self.apply(0.0) == 0.0
    }

    /// Work for one cell in units of an addition, measured on strips in cache.
    pub const fn flops(self) -> u32 {
        match self {
            UnaryFunction::Negate
            | UnaryFunction::Abs
            | UnaryFunction::Sign
            | UnaryFunction::Round
            | UnaryFunction::Floor
            | UnaryFunction::Ceil
            | UnaryFunction::IsNan
            | UnaryFunction::Not
            | UnaryFunction::Relu => 1,
            UnaryFunction::Sqrt => 4,
            UnaryFunction::Exp => 10,
            UnaryFunction::Log | UnaryFunction::Log1p => 15,
            UnaryFunction::Expm1 | UnaryFunction::Tanh | UnaryFunction::Sigmoid => 20,
            UnaryFunction::Sin | UnaryFunction::Cos | UnaryFunction::Tan => 25,
            UnaryFunction::Softplus => 35,
            UnaryFunction::Gelu => 40,
        }
    }
}

impl BinaryFunction {
    /// The operator, or the name of the function, in the language.
    pub const fn name(self) -> &'static str {
        match self {
            BinaryFunction::Add => "+",
            BinaryFunction::Subtract => "-",
            BinaryFunction::Multiply => "*",
            BinaryFunction::Divide => "/",
            BinaryFunction::Power => "^",
            BinaryFunction::Less => "<",
            BinaryFunction::LessEqual => "<=",
            BinaryFunction::Greater => ">",
            BinaryFunction::GreaterEqual => ">=",
            BinaryFunction::Equal => "=",
            BinaryFunction::NotEqual => "<>",
            BinaryFunction::And => "AND",
            BinaryFunction::Or => "OR",
            BinaryFunction::Least => "least",
            BinaryFunction::Greatest => "greatest",
        }
    }

    /// The value for one pair of cells.
    #[inline(always)]
    pub fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            BinaryFunction::Add => a + b,
            BinaryFunction::Subtract => a - b,
            BinaryFunction::Multiply => a * b,
            BinaryFunction::Divide => a / b,
            BinaryFunction::Power => math::power(a, b),
            BinaryFunction::Less => truth(a < b),
            BinaryFunction::LessEqual => truth(a <= b),
            BinaryFunction::Greater => truth(a > b),
            BinaryFunction::GreaterEqual => truth(a >= b),
            BinaryFunction::Equal => truth(a == b),
            BinaryFunction::NotEqual => truth(a != b),
            BinaryFunction::And => truth((a != 0.0) & (b != 0.0)),
            BinaryFunction::Or => truth((a != 0.0) | (b != 0.0)),
            BinaryFunction::Least if (a < b) | a.is_nan() => a,
            BinaryFunction::Greatest if (a > b) | a.is_nan() => a,
            BinaryFunction::Least | BinaryFunction::Greatest => b,
        }
    }

    /// Whether a pair of zeros is mapped to 0, so that two sparse matrices give a sparse one.
    pub fn zero_preserving(self) -> bool {
        self.apply(0.0, 0.0) == 0.0
    }

    /// Whether the operands may be exchanged.
    pub const fn commutative(self) -> bool {
        matches!(
            self,
            BinaryFunction::Add
                | BinaryFunction::Multiply
                | BinaryFunction::Equal
                | BinaryFunction::NotEqual
                | BinaryFunction::And
                | BinaryFunction::Or
        )
    }

    /// Work for one cell in units of an addition, measured on strips in cache.
    pub const fn flops(self) -> u32 {
        match self {
            BinaryFunction::Divide => 2,
            BinaryFunction::Power => 130,
            _ => 1,
        }
    }
}

/// `a` where the condition is true (not 0), else `b`: `where(condition, a, b)`.
#[inline(always)]
pub fn select(condition: f64, a: f64, b: f64) -> f64 {
    if condition != 0.0 { a } else { b }
}

#[inline(always)]
fn truth(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}
