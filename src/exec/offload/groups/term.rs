//! What is computed of a row: numbers and truths, any of which may be NULL.
//!
//! Whole numbers are of 64 bits, decimals, days and times among them, as the numbers that they are kept as. How large each may become
//! follows from the least and the greatest value of the columns, and what might leave 64 bits is none of these: so nothing overflows.

use std::fmt;

use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::kernels::selection::Comparison;
use crate::storage::Digits;

/// A value of each row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Term {
    /// That of the column of this number.
    Column(usize),
    Whole(i64),
    Double(f64),
    Truth(bool),
    /// No value of this kind.
    Null(Kind),
    /// What the look-up of this number has for the value of its column.
    Looked(usize),
    /// Sums, differences and products; quotients of doubles.
    Arithmetic(BinaryFunction, Box<Term>, Box<Term>),
    /// A whole number as a double.
    AsDouble(Box<Term>),
    Compare(Comparison, Box<Term>, Box<Term>),
    And(Box<Term>, Box<Term>),
    Or(Box<Term>, Box<Term>),
    Not(Box<Term>),
    IsNull(Box<Term>),
    /// The second where the first is true, else the third.
    Choose(Box<Term>, Box<Term>, Box<Term>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Whole,
    Double,
    Truth,
}

/// What is known of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// The least and the greatest.
    Whole([i64; 2]),
    Double,
    Single,
    /// They are known by codes of a dictionary.
    Texts,
}

impl Values {
    /// How many whole numbers there are between the least and the greatest.
    pub(crate) fn numbers(self) -> u64 {
        match self {
            Self::Whole([least, greatest]) => greatest.abs_diff(least).saturating_add(1),
            Self::Double | Self::Single | Self::Texts => 0,
        }
    }
}

impl Term {
    pub(crate) fn and(self, other: Self) -> Self {
        Self::And(Box::new(self), Box::new(other))
    }

    pub(crate) fn negated(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// The terms that it is made of.
    pub(super) fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Column(_) | Self::Whole(_) | Self::Double(_) | Self::Truth(_) => Vec::new(),
            Self::Null(_) | Self::Looked(_) => Vec::new(),
            Self::AsDouble(x) | Self::Not(x) | Self::IsNull(x) => vec![x],
            Self::Arithmetic(_, x, y)
            | Self::Compare(_, x, y)
            | Self::And(x, y)
            | Self::Or(x, y) => {
                vec![x, y]
            }
            Self::Choose(x, y, z) => vec![x, y, z],
        }
    }

    /// The columns that it reads itself.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let own = match self {
            Self::Column(at) => Some(*at),
            _ => None,
        };
        own.into_iter().chain(self.parts().into_iter().flat_map(Self::columns)).collect()
    }

    /// What it is; nothing of the texts of a column.
    pub(crate) fn kind(&self, columns: &[Values]) -> Option<Kind> {
        Some(match self {
            Self::Column(at) => match columns.get(*at)? {
                Values::Whole(_) => Kind::Whole,
                Values::Double | Values::Single => Kind::Double,
                Values::Texts => return None,
            },
            Self::Whole(_) => Kind::Whole,
            Self::Double(_) | Self::AsDouble(_) => Kind::Double,
            Self::Null(kind) => *kind,
            Self::Arithmetic(_, x, _) | Self::Choose(_, x, _) => x.kind(columns)?,
            Self::Truth(_) | Self::Looked(_) | Self::Compare(..) | Self::IsNull(_) => Kind::Truth,
            Self::And(..) | Self::Or(..) | Self::Not(_) => Kind::Truth,
        })
    }

    /// The least and the greatest that a whole number may be; nothing where it, or a part of it, may leave 64 bits.
    pub(crate) fn bounds(&self, columns: &[Values]) -> Option<[i64; 2]> {
        let within = |[least, greatest]: [i128; 2]| {
            Some([i64::try_from(least).ok()?, i64::try_from(greatest).ok()?])
        };
        match self {
            Self::Column(at) => match columns.get(*at)? {
                Values::Whole(bounds) => Some(*bounds),
                _ => None,
            },
            Self::Whole(value) => Some([*value; 2]),
            Self::Null(Kind::Whole) => Some([0; 2]),
            Self::Choose(_, x, y) => {
                // A NULL has no value that would widen those of others.
                let (x, y) = match (x.as_ref(), y.as_ref()) {
                    (Self::Null(_), other) | (other, Self::Null(_)) => (other, other),
                    both => both,
                };
                let ([a, b], [c, d]) = (x.bounds(columns)?, y.bounds(columns)?);
                Some([a.min(c), b.max(d)])
            }
            Self::Arithmetic(function, x, y) => {
                let ([a, b], [c, d]) = (x.bounds(columns)?, y.bounds(columns)?);
                let [a, b, c, d] = [a, b, c, d].map(i128::from);
                within(match function {
                    BinaryFunction::Add => [a + c, b + d],
                    BinaryFunction::Subtract => [a - d, b - c],
                    BinaryFunction::Multiply => {
                        let ends = [a * c, a * d, b * c, b * d];
                        let least = ends.iter().copied().fold(i128::MAX, i128::min);
                        [least, ends.iter().copied().fold(i128::MIN, i128::max)]
                    }
                    _ => return None,
                })
            }
            _ => None,
        }
    }

    /// The digits that a number of floating point may have; nothing where some of a column are not known, or there is no end of them.
    pub(super) fn digits(&self, columns: &[Values], known: &[Option<Digits>]) -> Option<Digits> {
        let of = |term: &Self| term.digits(columns, known);
        match self {
            Self::Column(at) => *known.get(*at)?,
            Self::Double(value) => Digits::of(*value),
            Self::Null(Kind::Double) => Some(Digits::NONE),
            // What is beyond 53 bits is rounded to the next power at most.
            Self::AsDouble(whole) => {
                let ends = whole.bounds(columns)?.map(|end| Digits::of(end as f64));
                let [Some(least), Some(greatest)] = ends else { return None };
                Some(Digits { unit: 0, end: least.or(greatest).end.max(0) })
            }
            Self::Arithmetic(BinaryFunction::Add | BinaryFunction::Subtract, x, y) => {
                Some(of(x)?.sum(of(y)?))
            }
            Self::Arithmetic(BinaryFunction::Multiply, x, y) => of(x)?.product(of(y)?),
            Self::Choose(_, x, y) => Some(of(x)?.or(of(y)?)),
            _ => None,
        }
    }

    /// Whether no whole number in it may leave 64 bits, and all its parts are of the kinds that go together.
    pub(crate) fn fits(&self, columns: &[Values]) -> bool {
        let kinds: Vec<_> = self.parts().iter().map(|part| part.kind(columns)).collect();
        let is_sound = match (self, &kinds[..]) {
            (Self::Arithmetic(..), [x, y]) => {
                x == y && matches!(x, Some(Kind::Whole | Kind::Double))
            }
            (Self::Compare(..), [x, y]) => x == y && matches!(x, Some(Kind::Whole | Kind::Double)),
            (Self::And(..) | Self::Or(..) | Self::Not(_), all) => {
                all.iter().all(|kind| *kind == Some(Kind::Truth))
            }
            (Self::AsDouble(_), [x]) => *x == Some(Kind::Whole),
            // Of a text, too: its column alone says so.
            (Self::IsNull(of), [x]) => x.is_some() || matches!(of.as_ref(), Self::Column(_)),
            (Self::Choose(..), [condition, x, y]) => {
                *condition == Some(Kind::Truth) && x == y && x.is_some()
            }
            (_, []) => true,
            _ => false,
        };
        let is_text = |of: &Self| matches!(of, Self::Column(_)) && of.kind(columns).is_none();
        let is_whole = self.kind(columns) == Some(Kind::Whole);
        is_sound
            && (!is_whole || self.bounds(columns).is_some())
            && self.parts().iter().all(|part| part.fits(columns) || is_text(part))
    }

    /// How many steps it is.
    pub(crate) fn steps(&self) -> usize {
        1 + self.parts().into_iter().map(Self::steps).sum::<usize>()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "i64",
            Self::Double => "f64",
            Self::Truth => "bool",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Values; 3] =
        [Values::Whole([-3, 7]), Values::Whole([0, i64::MAX]), Values::Double];

    fn of(function: BinaryFunction, x: Term, y: Term) -> Term {
        Term::Arithmetic(function, Box::new(x), Box::new(y))
    }

    #[test]
    fn bounds_are_those_that_a_row_can_reach() {
        let column = || Term::Column(0);
        let bounds = |term: &Term| term.bounds(&COLUMNS);
        let all = [
            (of(BinaryFunction::Add, column(), Term::Whole(2)), [-1, 9]),
            (of(BinaryFunction::Subtract, column(), column()), [-10, 10]),
            (of(BinaryFunction::Multiply, column(), Term::Whole(-2)), [-14, 6]),
            (of(BinaryFunction::Multiply, column(), column()), [-21, 49]),
        ];
        for (term, expected) in &all {
            assert_eq!(bounds(term), Some(*expected), "{term:?}");
            // As every row of every pair of values shows.
            let Term::Arithmetic(function, _, y) = term else { panic!() };
            let others = y.bounds(&COLUMNS).unwrap();
            for (x, y) in (-3..=7).flat_map(|x| (others[0]..=others[1]).map(move |y| (x, y))) {
                let value = function.apply(x as f64, y as f64) as i64;
                assert!((expected[0]..=expected[1]).contains(&value), "{term:?} of {x} and {y}");
            }
        }
        let chosen = |y| Term::Choose(Box::new(Term::Truth(true)), Box::new(column()), Box::new(y));
        assert_eq!(bounds(&chosen(Term::Whole(9))), Some([-3, 9]));
        assert_eq!(bounds(&chosen(Term::Null(Kind::Whole))), Some([-3, 7]));
    }

    #[test]
    fn what_may_leave_64_bits_is_refused_wherever_it_stands() {
        let large = || of(BinaryFunction::Add, Term::Column(1), Term::Whole(1));
        assert!(Term::Column(1).fits(&COLUMNS) && !large().fits(&COLUMNS));
        let inside = Term::Compare(Comparison::Less, Box::new(large()), Box::new(Term::Whole(0)));
        assert!(!inside.fits(&COLUMNS) && !Term::IsNull(Box::new(large())).fits(&COLUMNS));
        // Numbers of two kinds, and truths of numbers.
        assert!(!of(BinaryFunction::Add, Term::Column(0), Term::Column(2)).fits(&COLUMNS));
        assert!(!Term::Column(0).negated().fits(&COLUMNS));
        let double = Term::AsDouble(Box::new(Term::Column(0)));
        assert!(of(BinaryFunction::Add, double, Term::Column(2)).fits(&COLUMNS));
    }
}
