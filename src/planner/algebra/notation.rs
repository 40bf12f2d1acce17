//! Rules as they are written: `inv(a) @ b => solve(a, b) where a: n x n`.
//!
//! Both sides are expressions of the language, with its precedence, in which every name stands for any
//! matrix. After `where` come sizes, equal where their letters are, and structure: `e: identity`. `=>` is
//! a rule in one direction, `<=>` one in both.

use std::str::FromStr;

use egg::{ENodeOrVar, Id, Language, Pattern, PatternAst, Var};

use super::changes::mark;
use super::term::Term;
use crate::exec::kernels::decompose::Triangle;
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::operation::{Aggregate, Axis, Operation as Op};

/// What is replaced by what, where all conditions hold.
#[derive(Debug)]
pub(super) struct Rule {
    #[cfg(test)]
    pub(super) text: &'static str,
    pub(super) left: Pattern<Term>,
    /// The operations on the left, that of its root last.
    pub(super) operations: Vec<Op>,
    /// The marks of the operations that the inputs of the root on the left are, 0 where they are names.
    pub(super) input_marks: Vec<u128>,
    /// Steps from the root of the left side down to the deepest of its names.
    pub(super) depth: usize,
    /// The names on the left, for which the right has no others.
    pub(super) names: Vec<Var>,
    pub(super) right: PatternAst<Term>,
    pub(super) conditions: Vec<Condition>,
}

/// What must be known of a name.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    pub(super) of: Var,
    pub(super) must: Must,
}

#[derive(Debug, Clone)]
pub(super) enum Must {
    /// These sizes: a number, or a letter that is the same size wherever it stands.
    HaveSizes([Size; 2]),
    BeIdentity,
    BeZero,
    /// With one cell at least.
    BeFilled,
    BeSymmetric,
    /// With nothing but zeros outside this triangle.
    BeTriangular(Triangle),
    /// Kept sparse.
    BeSparse,
    /// Kept sparse, of zeros and ones.
    BeMask,
    /// Kept sparse, and not known to be of zeros and ones.
    BeWeights,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    One,
    Letter(char),
}

impl Rule {
    /// The rule, or the two rules, of one line.
    ///
    /// # Panics
    /// Where the line is not in the notation; all lines are constants, and read by a test.
    pub(super) fn read(text: &'static str) -> Vec<Rule> {
        let (equation, conditions) = text.split_once(" where ").unwrap_or((text, ""));
        let (left, right, is_both) = match equation.split_once("<=>") {
            Some((left, right)) => (left, right, true),
            None => {
                let (left, right) = equation.split_once("=>").expect("a rule has two sides");
                (left, right, false)
            }
        };
        let conditions: Vec<Condition> =
            conditions.split(',').filter(|text| !text.is_empty()).map(condition).collect();
        let (left, right) = (Expression::read(left), Expression::read(right));
        let rule = |left: &PatternAst<Term>, right: &PatternAst<Term>| {
            let (operations, depth) = (operations(left), depth(left));
            let input_marks = input_marks(left);
            let left = Pattern::new(left.clone());
            let (names, right) = (left.vars(), right.clone());
            Rule {
                #[cfg(test)]
                text,
                left,
                operations,
                input_marks,
                depth,
                names,
                right,
                conditions: conditions.clone(),
            }
        };
        let mut rules = vec![rule(&left, &right)];
        if is_both {
            rules.push(rule(&right, &left));
        }
        rules
    }
}

/// The operations of an expression, inputs before users.
fn operations(of: &PatternAst<Term>) -> Vec<Op> {
    let operation = |part: &ENodeOrVar<Term>| match part {
        ENodeOrVar::ENode(term) => Some(term.operation.clone()),
        ENodeOrVar::Var(_) => None,
    };
    of.iter().filter_map(operation).collect()
}

/// The marks of what the root of an expression reads.
fn input_marks(of: &PatternAst<Term>) -> Vec<u128> {
    let mark_of = |input: &Id| match &of[*input] {
        ENodeOrVar::ENode(term) => mark(&term.operation),
        ENodeOrVar::Var(_) => 0,
    };
    of.iter().last().map_or(Vec::new(), |root| root.children().iter().map(mark_of).collect())
}

/// Steps from the root of an expression down to what is deepest in it.
fn depth(of: &PatternAst<Term>) -> usize {
    let mut depths: Vec<usize> = Vec::new();
    for part in of.iter() {
        let below = part.children().iter().map(|&input| depths[usize::from(input)] + 1);
        depths.push(below.max().unwrap_or(0));
    }
    depths.last().copied().unwrap_or(0)
}

fn variable(name: &str) -> Var {
    Var::from_str(&format!("?{name}")).expect("a name with a question mark is a variable")
}

fn condition(text: &str) -> Condition {
    let (name, must) = text.split_once(':').expect("a condition has a colon");
    let must = match must.trim() {
        "identity" => Must::BeIdentity,
        "zero" => Must::BeZero,
        "filled" => Must::BeFilled,
        "symmetric" => Must::BeSymmetric,
        "lower" => Must::BeTriangular(Triangle::Lower),
        "upper" => Must::BeTriangular(Triangle::Upper),
        "sparse" => Must::BeSparse,
        "mask" => Must::BeMask,
        "weights" => Must::BeWeights,
        sizes => {
            let (rows, columns) = sizes.split_once(" x ").expect("sizes are as m x n");
            let size = |text: &str| match text.trim() {
                "1" => Size::One,
                letter => Size::Letter(letter.chars().next().expect("a size is not empty")),
            };
            Must::HaveSizes([size(rows), size(columns)])
        }
    };
    Condition { of: variable(name.trim()), must }
}

/// A reader of one side, by recursive descent.
struct Expression<'a> {
    rest: &'a str,
    pattern: PatternAst<Term>,
}

impl Expression<'_> {
    fn read(text: &str) -> PatternAst<Term> {
        let mut reader = Expression { rest: text.trim(), pattern: PatternAst::default() };
        reader.sum();
        assert!(reader.rest.is_empty(), "what is left of '{text}': '{}'", reader.rest);
        reader.pattern
    }

    fn node(&mut self, operation: Op, inputs: Vec<Id>) -> Id {
        self.pattern.add(ENodeOrVar::ENode(Term::new(operation, inputs)))
    }

    /// The next letter, if it is one of these.
    fn next_of(&mut self, letters: &[char]) -> Option<char> {
        let letter = self.rest.chars().next().filter(|letter| letters.contains(letter))?;
        self.rest = self.rest[1..].trim_start();
        Some(letter)
    }

    fn comparison(&mut self) -> Id {
        let left = self.sum();
        let Some(rest) = self.rest.strip_prefix("<>") else { return left };
        self.rest = rest.trim_start();
        let right = self.sum();
        self.node(Op::Binary(BinaryFunction::NotEqual), vec![left, right])
    }

    fn sum(&mut self) -> Id {
        let mut left = self.product();
        while let Some(letter) = self.next_of(&['+', '-']) {
            let function =
                if letter == '+' { BinaryFunction::Add } else { BinaryFunction::Subtract };
            let right = self.product();
            left = self.node(Op::Binary(function), vec![left, right]);
        }
        left
    }

    fn product(&mut self) -> Id {
        let mut left = self.power();
        while let Some(letter) = self.next_of(&['@', '*', '/']) {
            let operation = match letter {
                '@' => Op::Product,
                '*' => Op::Binary(BinaryFunction::Multiply),
                _ => Op::Binary(BinaryFunction::Divide),
            };
            let right = self.power();
            left = self.node(operation, vec![left, right]);
        }
        left
    }

    fn power(&mut self) -> Id {
        let base = self.signed();
        if self.next_of(&['^']).is_none() {
            return base;
        }
        let exponent = self.signed();
        self.node(Op::Binary(BinaryFunction::Power), vec![base, exponent])
    }

    fn signed(&mut self) -> Id {
        if self.next_of(&['-']).is_some() {
            let negated = self.signed();
            return self.node(Op::Unary(UnaryFunction::Negate), vec![negated]);
        }
        self.atom()
    }

    /// A number, a name, a call, or an expression in parentheses.
    fn atom(&mut self) -> Id {
        if self.next_of(&['(']).is_some() {
            let inner = self.comparison();
            self.next_of(&[')']).expect("a parenthesis is closed");
            return inner;
        }
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let end = self.rest.find(|letter| !is_word(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        if let Ok(number) = word.parse::<f64>() {
            return self.node(Op::Constant(number.into()), Vec::new());
        }
        if self.next_of(&['(']).is_none() {
            return self.pattern.add(ENodeOrVar::Var(variable(word)));
        }
        let mut inputs = vec![self.sum()];
        while self.next_of(&[',']).is_some() {
            inputs.push(self.sum());
        }
        self.next_of(&[')']).expect("a call is closed");
        self.node(function(word), inputs)
    }
}

/// The operations that rules speak of, by the names that users know them by.
fn function(name: &str) -> Op {
    let reduce = |aggregate: Aggregate, axis: Option<Axis>| Op::Reduce { aggregate, axis };
    match name {
        "sampled" => Op::Sampled,
        "t" => Op::Transpose,
        "gram" => Op::Gram,
        "cross" => Op::Cross,
        "half_cross" => Op::HalfCross,
        "outer" => Op::Outer,
        "inv" => Op::Inverse(None),
        "inv_lower" => Op::Inverse(Some(Triangle::Lower)),
        "inv_upper" => Op::Inverse(Some(Triangle::Upper)),
        "solve" => Op::Solve(None),
        "solve_lower" => Op::Solve(Some(Triangle::Lower)),
        "solve_upper" => Op::Solve(Some(Triangle::Upper)),
        "det" => Op::Determinant(None),
        "det_lower" => Op::Determinant(Some(Triangle::Lower)),
        "det_upper" => Op::Determinant(Some(Triangle::Upper)),
        "trace" => Op::Trace,
        "diag" => Op::Diagonal,
        "hstack" => Op::Stack(Axis::Columns),
        "vstack" => Op::Stack(Axis::Rows),
        "sum" => reduce(Aggregate::Sum, None),
        "row_sums" => reduce(Aggregate::Sum, Some(Axis::Rows)),
        "col_sums" => reduce(Aggregate::Sum, Some(Axis::Columns)),
        "mean" => reduce(Aggregate::Mean, None),
        "row_means" => reduce(Aggregate::Mean, Some(Axis::Rows)),
        "col_means" => reduce(Aggregate::Mean, Some(Axis::Columns)),
        "var_pop" => reduce(Aggregate::PopulationVariance, None),
        "row_vars_pop" => reduce(Aggregate::PopulationVariance, Some(Axis::Rows)),
        "col_vars_pop" => reduce(Aggregate::PopulationVariance, Some(Axis::Columns)),
        "min" => reduce(Aggregate::Min, None),
        "max" => reduce(Aggregate::Max, None),
        _ => panic!("no rule speaks of '{name}' yet"),
    }
}
