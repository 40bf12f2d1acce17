//! Blocks of two rows on the diagonal of a quasi-triangular matrix, in 64 bits.
//!
//! ```text
//! | a b |   two real eigenvalues: turned until c is zero
//! | c d |   a conjugate pair: turned until a = d, and then b·c < 0 and the values are a ± √(b·c)
//! ```
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §7.6.3; Bai and Demmel, *Linear
//! Algebra Appl.* 186 (1993), 73–95, for the standard form.

use super::super::super::Real;

/// An eigenvalue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Value {
    pub(crate) re: f64,
    pub(crate) im: f64,
}

/// The cells by rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pair {
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) c: f64,
    pub(crate) d: f64,
}

/// A turn of the plane: rows become `cos·x + sin·y` and `cos·y - sin·x`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rotation {
    pub(super) cos: f64,
    pub(super) sin: f64,
}

impl Pair {
    pub(crate) fn new<T: Real>(a: T, b: T, c: T, d: T) -> Self {
        Self { a: a.to_f64(), b: b.to_f64(), c: c.to_f64(), d: d.to_f64() }
    }

    /// Its eigenvalues, that with a positive imaginary part first, once it is in standard form.
    pub(crate) fn values(self) -> [Value; 2] {
        let im = if self.c == 0.0 { 0.0 } else { self.b.abs().sqrt() * self.c.abs().sqrt() };
        [Value { re: self.a, im }, Value { re: self.d, im: -im }]
    }

    /// Turned into standard form, and by what: `r·pair·t(r)`.
    pub(super) fn standardized(self) -> (Self, Rotation) {
        let Self { a, b, c, d } = self;
        if c == 0.0 {
            return (self, Rotation { cos: 1.0, sin: 0.0 });
        }
        if b == 0.0 {
            return (Self { a: d, b: -c, c: 0.0, d: a }, Rotation { cos: 0.0, sin: 1.0 });
        }
        let half = (a - d) / 2.0;
        if half == 0.0 && (b < 0.0) != (c < 0.0) {
            return (self, Rotation { cos: 1.0, sin: 0.0 });
        }
        // The discriminant over a scale that keeps its squares in the range.
        let larger = b.abs().max(c.abs());
        let smaller = b.abs().min(c.abs()) * b.signum() * c.signum();
        let scale = half.abs().max(larger);
        let discriminant = half / scale * half + larger / scale * smaller;
        if discriminant >= 4.0 * f64::EPSILON * scale {
            let root = scale.sqrt() * discriminant.sqrt();
            let z = half + root.copysign(half);
            let length = c.hypot(z);
            let turned = Self { a: d + z, b: b - c, c: 0.0, d: d - larger / z * smaller };
            return (turned, Rotation { cos: z / length, sin: c / length });
        }
        self.with_equal_diagonal()
    }

    /// That of a pair whose values are complex, or real and nearly equal.
    fn with_equal_diagonal(self) -> (Self, Rotation) {
        let Self { a, b, c, d } = self;
        let (sum, difference) = (b + c, a - d);
        let length = sum.hypot(difference);
        let cos = (0.5 * (1.0 + sum.abs() / length)).sqrt();
        let sin = -(0.5 * difference / (length * cos)) * sum.signum();
        let turn = Rotation { cos, sin };
        let turned = turn.applied(self);
        let middle = 0.5 * (turned.a + turned.d);
        let turned = Self { a: middle, d: middle, ..turned };
        if turned.c == 0.0 || (turned.b != 0.0 && (turned.b < 0.0) != (turned.c < 0.0)) {
            return (turned, turn);
        }
        if turned.b == 0.0 {
            let Rotation { cos, sin } = turn;
            let quarter = Rotation { cos: -sin, sin: cos };
            return (Self { b: -turned.c, c: 0.0, ..turned }, quarter);
        }
        // Both of one sign: real values, a root apart.
        let (root_b, root_c) = (turned.b.abs().sqrt(), turned.c.abs().sqrt());
        let apart = (root_b * root_c).copysign(turned.c);
        let length = (turned.b + turned.c).abs().sqrt();
        let next = Rotation { cos: root_b / length, sin: root_c / length };
        let turned = Self { a: middle + apart, b: turned.b - turned.c, c: 0.0, d: middle - apart };
        let both = Rotation {
            cos: turn.cos * next.cos - turn.sin * next.sin,
            sin: turn.cos * next.sin + turn.sin * next.cos,
        };
        (turned, both)
    }
}

impl Rotation {
    /// `r·pair·t(r)`.
    fn applied(self, Pair { a, b, c, d }: Pair) -> Pair {
        let Self { cos, sin } = self;
        let (ra, rb, rc, rd) =
            (cos * a + sin * c, cos * b + sin * d, cos * c - sin * a, cos * d - sin * b);
        Pair {
            a: ra * cos + rb * sin,
            b: rb * cos - ra * sin,
            c: rc * cos + rd * sin,
            d: rd * cos - rc * sin,
        }
    }
}
