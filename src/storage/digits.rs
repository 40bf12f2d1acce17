//! Which binary digits numbers of floating point have: all of them lie between two places.
//!
//! ```text
//! 12.5, 0.75, 3   ─►   multiples of 2^-2, below 2^4
//! ```
//!
//! Numbers with few digits between these are whole numbers of a unit, which add up to what they are, in any order.

/// The powers of two of which all are multiples, and below which all are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digits {
    pub(crate) unit: i32,
    pub(crate) end: i32,
}

impl Digits {
    /// Those of zero.
    pub(crate) const NONE: Self = Self { unit: i32::MAX, end: i32::MIN };

    /// Those of a number; nothing where it is none.
    pub(crate) fn of(value: f64) -> Option<Self> {
        if value == 0.0 {
            return Some(Self::NONE);
        }
        let bits = value.to_bits();
        let (field, low) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        // Below the normal numbers there is no leading one.
        let (mantissa, exponent) = match field {
            0x7ff => return None,
            0 => (low, -1074),
            _ => (low | 1 << 52, field - 1075),
        };
        let unit = exponent + mantissa.trailing_zeros() as i32;
        Some(Self { unit, end: exponent + 64 - mantissa.leading_zeros() as i32 })
    }

    /// Those of all of these together.
    pub(super) fn of_all(mut values: impl Iterator<Item = f64>) -> Option<Self> {
        values.try_fold(Self::NONE, |all, value| Some(all.or(Self::of(value)?)))
    }

    /// Those of either.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { unit: self.unit.min(other.unit), end: self.end.max(other.end) }
    }

    /// Those of sums and differences of two numbers: what is rounded is a multiple of a larger unit.
    pub(crate) fn sum(self, other: Self) -> Self {
        let either = self.or(other);
        Self { end: either.end.saturating_add(1), ..either }
    }

    /// Those of products of two numbers; nothing where one may be beyond the finite numbers.
    pub(crate) fn product(self, other: Self) -> Option<Self> {
        if self == Self::NONE || other == Self::NONE {
            return Some(Self::NONE);
        }
        let product = Self { unit: self.unit + other.unit, end: self.end + other.end };
        (product.end <= f64::MAX_EXP).then_some(product)
    }

    /// How many there are.
    pub(crate) fn count(self) -> u32 {
        u32::try_from(i64::from(self.end) - i64::from(self.unit)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(unit: i32, end: i32) -> Option<Digits> {
        Some(Digits { unit, end })
    }

    #[test]
    fn digits_lie_between_a_unit_and_an_end() {
        assert_eq!(Digits::of(12.5), digits(-1, 4));
        assert_eq!(Digits::of(-0.75), digits(-2, 0));
        assert_eq!(Digits::of(4.0), digits(2, 3));
        assert_eq!(Digits::of(f64::from_bits(1)), digits(-1074, -1073));
        assert_eq!(Digits::of(f64::MAX), digits(971, 1024));
        assert_eq!(Digits::of(f64::NAN).or(Digits::of(f64::INFINITY)), None);
        assert_eq!(Digits::of_all([12.5, 0.0, -0.75].into_iter()), digits(-2, 4));
        assert_eq!(Digits::of_all([1.0, f64::NAN].into_iter()), None);
        assert_eq!(Digits::NONE.count(), 0);
    }

    /// Sums and products, rounded as they are, keep to the digits that they were said to have.
    #[test]
    fn what_is_computed_keeps_to_them() {
        let numbers =
            [0.0, 1.0, -3.5, 0.1, 1e-5, 123_456.789, -7e10, 1.0 / 3.0, 2_f64.powi(-60), 1e-308];
        for (x, y) in numbers.into_iter().flat_map(|x| numbers.map(|y| (x, y))) {
            let (a, b) = (Digits::of(x).unwrap(), Digits::of(y).unwrap());
            for (value, within) in
                [(x + y, a.sum(b)), (x - y, a.sum(b)), (x * y, a.product(b).unwrap())]
            {
                let own = Digits::of(value).unwrap();
                assert!(own == Digits::NONE || own.or(within) == within, "{x} and {y}: {value}");
            }
        }
        assert_eq!(Digits::of(1e200).unwrap().product(Digits::of(1e200).unwrap()), None);
    }
}
