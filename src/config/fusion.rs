//! What operations become one step: the patterns, and the settings that turn them off.

use std::fmt;

/// How operations that would each write a matrix become one step that writes none between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    Elementwise,
    MultiplyAdd,
    NormActivation,
    MapReduce,
    RowReduce,
    ProductAdd,
    LinearActivation,
    ConvNormActivation,
    SharedScan,
    TransformFilter,
    SparseDriven,
}

/// Every pattern, its name, and what it makes of which operations.
pub(crate) const PATTERNS: &[(Pattern, &str, &str)] = &[
    (Pattern::Elementwise, "elementwise", "a chain of functions of cells is one loop"),
    (
        Pattern::MultiplyAdd,
        "multiply-add",
        "the same of a product of cells and a sum, as a * b + c",
    ),
    (
        Pattern::NormActivation,
        "norm-activation",
        "the same of a normalization and what it activates",
    ),
    (Pattern::MapReduce, "map-reduce", "a reduction takes in the chain before it"),
    (
        Pattern::RowReduce,
        "row-reduce",
        "a chain takes in reductions of its rows, while those are in cache",
    ),
    (
        Pattern::ProductAdd,
        "product-add",
        "a chain reads blocks of a product while they are in cache",
    ),
    (Pattern::LinearActivation, "linear-activation", "the same with an activation at its end"),
    (Pattern::ConvNormActivation, "conv-norm-activation", "the same behind a convolution"),
    (
        Pattern::SharedScan,
        "shared-scan",
        "reductions of one matrix read it once; rows of a query always are",
    ),
    (
        Pattern::TransformFilter,
        "transform-filter",
        "numbers that a query filters by and computes are one loop",
    ),
    (
        Pattern::SparseDriven,
        "sparse-driven",
        "what a sparse matrix multiplies is computed for its stored cells alone",
    ),
];

impl Pattern {
    pub(crate) fn name(self) -> &'static str {
        let of = PATTERNS.iter().find(|(pattern, ..)| *pattern == self);
        of.map_or("", |(_, name, _)| name)
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A set of patterns; written as their names, `all` or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patterns(u16);

impl Patterns {
    pub(crate) const NONE: Patterns = Patterns(0);

    pub(crate) fn all() -> Self {
        Self(PATTERNS.iter().fold(0, |bits, (pattern, ..)| bits | pattern.bit()))
    }

    pub(crate) fn contains(self, pattern: Pattern) -> bool {
        self.0 & pattern.bit() != 0
    }

    /// The patterns of these names.
    ///
    /// # Errors
    /// Says which name is none, and what they are.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut patterns = Self::NONE;
        for word in text.split(',').map(str::trim) {
            let named = PATTERNS.iter().find(|(_, name, _)| name.eq_ignore_ascii_case(word));
            match (word.to_ascii_lowercase().as_str(), named) {
                ("all", _) => patterns = Self::all(),
                ("none", _) => {}
                (_, Some((pattern, ..))) => patterns.0 |= pattern.bit(),
                _ => {
                    let names: Vec<&str> = PATTERNS.iter().map(|(_, name, _)| *name).collect();
                    return Err(format!("'{word}' is none of all, none, {}", names.join(", ")));
                }
            }
        }
        Ok(patterns)
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = PATTERNS.iter().filter(|(pattern, ..)| self.contains(*pattern));
        let names: Vec<&str> = names.map(|(_, name, _)| *name).collect();
        f.write_str(&match names.len() {
            0 => "none".to_owned(),
            all if all == PATTERNS.len() => "all".to_owned(),
            _ => names.join(", "),
        })
    }
}

/// What the planner may fuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fusion {
    pub(crate) patterns: Patterns,
    /// Operations that a fused step has at least.
    pub(crate) operations_min: usize,
    /// Operations of a loop that follow one another, at most.
    pub(crate) depth_max: usize,
}

impl Fusion {
    /// Whether so many operations may become one step of this pattern.
    pub(crate) fn has(&self, pattern: Pattern, operations: usize) -> bool {
        self.patterns.contains(pattern) && operations >= self.operations_min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_as_they_are_written() {
        for text in ["all", "none", "elementwise, map-reduce", "shared-scan"] {
            assert_eq!(Patterns::read(text).unwrap().to_string(), text);
        }
        let some = Patterns::read(" Shared-Scan,product-add").unwrap();
        assert!(some.contains(Pattern::ProductAdd) && !some.contains(Pattern::Elementwise));
        assert!(Patterns::read("all, chains").unwrap_err().starts_with("'chains' is none of all,"));
        for (pattern, name, _) in PATTERNS {
            assert_eq!(Patterns::read(name).unwrap(), Patterns(pattern.bit()), "{name}");
            assert_eq!(pattern.name(), *name);
        }
    }
}
