//! Which rows of a batch are kept: comparisons of its columns, combined as SQL's three truth values are.
//!
//! Enters: a batch, whose columns may be encoded. Leaves: the rows for which the condition is true, and neither false nor unknown.
//!
//! A condition is two bits a row, one set where it is true and one where it is false:
//!
//! ```text
//! NOT a      true where a is false                  false where a is true
//! a AND b    true where a and b are                 false where a or b is
//! a OR b     true where a or b is                   false where a and b are
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, MAX_INLINE_VIEW_LEN, make_view};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{ArrowPrimitiveType, DataType, UInt8Type};
use datafusion::physical_expr::PhysicalExpr;

use super::numbers::{Number, Numbers};
use super::stream::Scratches;
use super::texts::OfTexts;
use crate::encoding::{decoded, for_whole_numbers, shared_codes};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::kernels::fused::Scratch;
use crate::exec::kernels::selection::{Comparison, Ordered, Selection, WORD, compare, compare_to};
use crate::matrix::Scalar;

/// What is asked of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Condition {
    Test(Test),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
}

/// A condition without parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Test {
    /// Of numbers of 64 bits.
    Doubles(Comparison, Number, Number),
    /// Of numbers of 32 bits.
    Singles(Comparison, Number, Number),
    /// Of a column of integers, dates, times or decimals with a number in the column's own unit.
    Column(Comparison, usize, i128),
    /// Of two such columns of one type.
    Columns(Comparison, [usize; 2]),
    /// Whether the text of a column is this one.
    Text(usize, Arc<str>),
    /// What this says of the texts of a column, which is its first and only one.
    OfTexts(usize, Arc<dyn PhysicalExpr>),
    /// Whether one of these columns is NULL; never unknown.
    IsNull(BTreeSet<usize>),
    /// Whether a column of truth values is true.
    Holds(usize),
}

impl Condition {
    /// Operations that it takes.
    pub(crate) fn operations(&self) -> usize {
        match self {
            Condition::Test(Test::IsNull(_) | Test::Holds(_)) => 0,
            Condition::Test(test) => {
                let numbers = test.numbers().into_iter().flatten();
                1 + numbers.map(Number::operations).sum::<usize>()
            }
            // One that is not written, for a ≥ b is the opposite of a < b, costs nothing either.
            Condition::Not(a) => a.operations(),
            Condition::And(a, b) | Condition::Or(a, b) => 1 + a.operations() + b.operations(),
        }
    }

    /// The comparisons and what else has no parts, from left to right.
    pub(crate) fn tests<'a>(&'a self, tests: &mut Vec<&'a Test>) {
        match self {
            Condition::Test(test) => tests.push(test),
            Condition::Not(a) => a.tests(tests),
            Condition::And(a, b) | Condition::Or(a, b) => {
                a.tests(tests);
                b.tests(tests);
            }
        }
    }
}

impl Test {
    /// The numbers that are compared.
    pub(crate) fn numbers(&self) -> Option<[&Number; 2]> {
        match self {
            Test::Doubles(_, a, b) | Test::Singles(_, a, b) => Some([a, b]),
            Test::Column(..)
            | Test::Columns(..)
            | Test::Text(..)
            | Test::OfTexts(..)
            | Test::IsNull(_)
            | Test::Holds(_) => None,
        }
    }

    /// Operations that follow one another before the comparison.
    pub(crate) fn depth(&self) -> usize {
        let numbers = self.numbers().into_iter().flatten();
        numbers.map(Number::depth).max().unwrap_or(0)
    }

    /// Adds the columns that it reads.
    pub(crate) fn add_columns(&self, columns: &mut BTreeSet<usize>) {
        self.numbers().into_iter().flatten().for_each(|number| number.add_columns(columns));
        match self {
            Test::Doubles(..) | Test::Singles(..) => {}
            Test::Column(_, at, _) | Test::Text(at, _) | Test::OfTexts(at, _) | Test::Holds(at) => {
                columns.extend([*at])
            }
            Test::Columns(_, pair) => columns.extend(pair),
            Test::IsNull(read) => columns.extend(read),
        }
    }
}

/// A condition as programs.
#[derive(Debug)]
pub(crate) struct Filter {
    doubles: Numbers,
    singles: Numbers,
    tests: Vec<Compiled>,
    condition: Condition,
    /// The columns that any test reads.
    reads: BTreeSet<usize>,
}

/// The columns of a batch, as far as a condition reads them.
#[derive(Clone, Copy)]
pub(super) struct Read<'a> {
    rows: usize,
    columns: &'a [Option<ArrayRef>],
}

impl<'a> Read<'a> {
    /// Columns by their numbers; those are there that the condition reads.
    pub(super) fn new(rows: usize, columns: &'a [Option<ArrayRef>]) -> Self {
        Self { rows, columns }
    }

    fn column(self, at: usize) -> &'a ArrayRef {
        self.columns[at].as_ref().expect("a column that a condition reads is there")
    }
}

/// A test, the numbers of which are results of the programs.
#[derive(Debug)]
enum Compiled {
    Doubles(Comparison, [usize; 2]),
    Singles(Comparison, [usize; 2]),
    Column(Comparison, usize, i128),
    Columns(Comparison, [usize; 2]),
    Text(usize, Arc<str>),
    OfTexts(usize, OfTexts),
    IsNull(Vec<usize>),
    Holds(usize),
}

impl Filter {
    pub(crate) fn new(condition: Condition) -> Self {
        let (mut doubles, mut singles) = (Vec::new(), Vec::new());
        let mut tests = Vec::new();
        condition.tests(&mut tests);
        let mut reads = BTreeSet::new();
        tests.iter().for_each(|test| test.add_columns(&mut reads));
        let pair = |numbers: &mut Vec<Number>, a: &Number, b: &Number| {
            numbers.extend([a.clone(), b.clone()]);
            [numbers.len() - 2, numbers.len() - 1]
        };
        let compiled = tests.into_iter().map(|test| match test {
            Test::Doubles(comparison, a, b) => {
                Compiled::Doubles(*comparison, pair(&mut doubles, a, b))
            }
            Test::Singles(comparison, a, b) => {
                Compiled::Singles(*comparison, pair(&mut singles, a, b))
            }
            Test::Column(comparison, column, constant) => {
                Compiled::Column(*comparison, *column, *constant)
            }
            Test::Columns(comparison, pair) => Compiled::Columns(*comparison, *pair),
            Test::Text(column, text) => Compiled::Text(*column, Arc::clone(text)),
            Test::OfTexts(column, condition) => {
                Compiled::OfTexts(*column, OfTexts::new(Arc::clone(condition)))
            }
            Test::IsNull(columns) => Compiled::IsNull(columns.iter().copied().collect()),
            Test::Holds(column) => Compiled::Holds(*column),
        });
        let tests: Vec<Compiled> = compiled.collect();
        let [doubles, singles] = [doubles, singles].map(|numbers| Numbers::new(&numbers));
        Self { tests, doubles, singles, condition, reads }
    }

    /// The columns that it reads.
    pub(super) fn reads(&self) -> &BTreeSet<usize> {
        &self.reads
    }

    /// The rows for which the condition is true.
    ///
    /// # Errors
    /// Where a column has another type than was planned for.
    pub(super) fn selection(&self, read: Read<'_>, scratches: &mut Scratches) -> Result<Selection> {
        let rows = read.rows;
        let mut truths = self.truths(read, scratches)?.into_iter();
        let mut holds = combined(&self.condition, &mut truths).holds;
        // What is beyond the last row is as false as it is true where something was negated.
        if let Some(last) = holds.last_mut().filter(|_| !rows.is_multiple_of(WORD)) {
            *last &= !(u64::MAX << (rows % WORD));
        }
        Ok(Selection::new(holds, rows))
    }

    /// What each test says.
    fn truths(&self, read: Read<'_>, scratches: &mut Scratches) -> Result<Vec<Truth>> {
        let words = read.rows.div_ceil(WORD);
        let mut holds = vec![vec![0; words]; self.tests.len()];
        let Scratches { doubles, singles } = scratches;
        self.compare(&self.doubles, read, doubles, &mut holds, |test| match *test {
            Compiled::Doubles(comparison, numbers) => Some((comparison, numbers)),
            _ => None,
        })?;
        self.compare(&self.singles, read, singles, &mut holds, |test| match *test {
            Compiled::Singles(comparison, numbers) => Some((comparison, numbers)),
            _ => None,
        })?;
        let tested = self.tests.iter().zip(holds);
        tested.map(|(test, holds)| self.truth(test, holds, read)).collect()
    }

    /// Sets the bits of those tests that compare numbers of this type.
    fn compare<T: Scalar + Ordered>(
        &self,
        numbers: &Numbers,
        read: Read<'_>,
        scratch: &mut Scratch<T>,
        holds: &mut [Vec<u64>],
        compared: impl Fn(&Compiled) -> Option<(Comparison, [usize; 2])>,
    ) -> Result<()> {
        numbers.each_strip(
            |at| read.column(at),
            read.rows,
            scratch,
            |strip, results| {
                let words = strip.start / WORD..strip.end.div_ceil(WORD);
                for (test, holds) in self.tests.iter().zip(&mut *holds) {
                    if let Some((comparison, [a, b])) = compared(test) {
                        let (a, b) = (results.cells(a), results.cells(b));
                        compare(comparison, a, b, &mut holds[words.clone()]);
                    }
                }
            },
        )
    }

    /// What one test says, by the bits that comparing numbers has left.
    fn truth(&self, test: &Compiled, mut holds: Vec<u64>, read: Read<'_>) -> Result<Truth> {
        let known = |columns: &[usize]| {
            let nulls = columns.iter().fold(None, |nulls, &at| {
                NullBuffer::union(nulls.as_ref(), read.column(at).logical_nulls().as_ref())
            });
            nulls.filter(|nulls| nulls.null_count() > 0).map(|nulls| words(nulls.inner()))
        };
        Ok(match test {
            Compiled::Doubles(_, pair) => {
                let reads = self.doubles.reads();
                Truth::of(holds, known(&[&reads[pair[0]][..], &reads[pair[1]]].concat()))
            }
            Compiled::Singles(_, pair) => {
                let reads = self.singles.reads();
                Truth::of(holds, known(&[&reads[pair[0]][..], &reads[pair[1]]].concat()))
            }
            Compiled::Column(comparison, at, constant) => {
                compare_column(*comparison, read.column(*at), *constant, &mut holds)?;
                Truth::of(holds, known(&[*at]))
            }
            Compiled::Columns(comparison, pair) => {
                let [left, right] = pair.map(|at| read.column(at));
                compare_columns(*comparison, left, right, &mut holds)?;
                Truth::of(holds, known(pair))
            }
            Compiled::Text(at, text) => {
                equal_text(read.column(*at), text, &mut holds)?;
                Truth::of(holds, known(&[*at]))
            }
            Compiled::OfTexts(at, of) => {
                Truth::of(words(&of.met(read.column(*at))?), known(&[*at]))
            }
            Compiled::IsNull(columns) => {
                let known = known(columns).unwrap_or_else(|| vec![u64::MAX; holds.len()]);
                Truth::of(known, None).negated()
            }
            Compiled::Holds(at) => {
                Truth::of(words(read.column(*at).as_boolean().values()), known(&[*at]))
            }
        })
    }
}

/// Bits as words, the last of which is filled up.
pub(super) fn words(bits: &BooleanBuffer) -> Vec<u64> {
    bits.bit_chunks().iter_padded().take(bits.len().div_ceil(WORD)).collect()
}

/// Where a condition is true, and where it is false.
struct Truth {
    holds: Vec<u64>,
    fails: Vec<u64>,
}

impl Truth {
    /// True as these bits say where the condition is known, which is everywhere unless it is told.
    fn of(mut holds: Vec<u64>, known: Option<Vec<u64>>) -> Self {
        let mut fails: Vec<u64> = holds.iter().map(|word| !word).collect();
        if let Some(known) = known {
            keep(&mut holds, &known);
            keep(&mut fails, &known);
        }
        Self { holds, fails }
    }

    fn negated(self) -> Self {
        Self { holds: self.fails, fails: self.holds }
    }
}

fn combined(condition: &Condition, tests: &mut impl Iterator<Item = Truth>) -> Truth {
    match condition {
        Condition::Test(_) => tests.next().expect("a truth for each test"),
        Condition::Not(a) => combined(a, tests).negated(),
        Condition::And(a, b) => {
            let (mut a, b) = (combined(a, tests), combined(b, tests));
            keep(&mut a.holds, &b.holds);
            join(&mut a.fails, &b.fails);
            a
        }
        Condition::Or(a, b) => {
            let (mut a, b) = (combined(a, tests), combined(b, tests));
            join(&mut a.holds, &b.holds);
            keep(&mut a.fails, &b.fails);
            a
        }
    }
}

fn keep(bits: &mut [u64], others: &[u64]) {
    bits.iter_mut().zip(others).for_each(|(word, other)| *word &= other);
}

fn join(bits: &mut [u64], others: &[u64]) {
    bits.iter_mut().zip(others).for_each(|(word, other)| *word |= other);
}

/// Compares a column with a number of its own type, which one that is encoded need not have.
fn compare_column(
    comparison: Comparison,
    column: &ArrayRef,
    constant: i128,
    holds: &mut [u64],
) -> Result<()> {
    fn of<P: ArrowPrimitiveType<Native: Ordered + TryFrom<i128>>>(
        comparison: Comparison,
        column: &ArrayRef,
        constant: i128,
        holds: &mut [u64],
    ) -> Result<()> {
        let cells = column.as_primitive::<P>().values();
        match (P::Native::try_from(constant), comparison) {
            (Ok(constant), _) => compare_to(comparison, cells, constant, holds),
            (Err(_), Comparison::Less) if constant > 0 => holds.fill(u64::MAX),
            (Err(_), Comparison::Greater) if constant < 0 => holds.fill(u64::MAX),
            (Err(_), _) => holds.fill(0),
        }
        Ok(())
    }
    for_whole_numbers!(
        column.data_type(),
        of(comparison, column, constant, holds),
        other => Err(not_whole(other))
    )
}

/// Compares two columns of one type, which may be encoded.
fn compare_columns(
    comparison: Comparison,
    left: &ArrayRef,
    right: &ArrayRef,
    holds: &mut [u64],
) -> Result<()> {
    fn of<P: ArrowPrimitiveType<Native: Ordered>>(
        comparison: Comparison,
        left: &ArrayRef,
        right: &ArrayRef,
        holds: &mut [u64],
    ) -> Result<()> {
        let (left, right) = (left.as_primitive::<P>(), right.as_primitive::<P>());
        compare(comparison, left.values(), right.values(), holds);
        Ok(())
    }
    let [width, other] = [left, right].map(|column| column.data_type().primitive_width());
    let wider = if width < other { right } else { left }.data_type();
    let (left, right) = (&decoded(left, wider)?, &decoded(right, wider)?);
    for_whole_numbers!(wider, of(comparison, left, right, holds), other => Err(not_whole(other)))
}

fn not_whole(data_type: &DataType) -> Error {
    ErrorKind::Internal(format!("{data_type} compared by its bits")).into()
}

/// Sets the bits of the rows with this text. A short one is a number of 128 bits in a view.
fn equal_text(column: &ArrayRef, text: &str, holds: &mut [u64]) -> Result<()> {
    if let Some(codes) = shared_codes(column) {
        if let Some(code) = place_of(codes.values(), text) {
            compare_to(Comparison::Equal, codes.keys().values(), code, holds);
        }
        return Ok(());
    }
    match column.data_type() {
        DataType::Dictionary(..) => {
            let codes = column.as_dictionary::<UInt8Type>();
            // Of its values at most one is this text.
            let mut of_values = vec![0; codes.values().len().div_ceil(WORD)];
            equal_text(codes.values(), text, &mut of_values)?;
            if let Some(word) = of_values.iter().position(|&bits| bits != 0) {
                let code = word * WORD + of_values[word].trailing_zeros() as usize;
                compare_to(Comparison::Equal, codes.keys().values(), code as u8, holds);
            }
        }
        DataType::Utf8View if text.len() <= MAX_INLINE_VIEW_LEN as usize => {
            let view = make_view(text.as_bytes(), 0, 0);
            compare_to(Comparison::Equal, column.as_string_view().views(), view, holds);
        }
        DataType::Utf8View => {
            let column = column.as_string_view();
            // Length and first bytes are at hand; the rest is looked up where those agree.
            let view = make_view(text.as_bytes(), 0, 0) as u64;
            let is_text =
                |row: usize| column.views()[row] as u64 == view && column.value(row) == text;
            set(holds, column.len(), is_text);
        }
        DataType::Utf8 => {
            let column = column.as_string::<i32>();
            set(holds, column.len(), |row| column.value(row) == text);
        }
        DataType::LargeUtf8 => {
            let column = column.as_string::<i64>();
            set(holds, column.len(), |row| column.value(row) == text);
        }
        DataType::Struct(_) => equal_text(&decoded(column, &DataType::Utf8View)?, text, holds)?,
        other => return Err(ErrorKind::Internal(format!("{other} compared as texts")).into()),
    }
    Ok(())
}

/// The place of a text in a dictionary that is in order.
fn place_of(dictionary: &ArrayRef, text: &str) -> Option<u32> {
    let at = |at: usize| match dictionary.data_type() {
        DataType::Utf8 => dictionary.as_string::<i32>().value(at),
        _ => dictionary.as_string_view().value(at),
    };
    let (mut low, mut high) = (0, dictionary.len());
    while low < high {
        let middle = (low + high) / 2;
        if at(middle) < text { low = middle + 1 } else { high = middle }
    }
    (low < dictionary.len() && at(low) == text).then_some(low as u32)
}

/// Sets the bits of the rows of which this holds.
fn set(words: &mut [u64], rows: usize, holds: impl Fn(usize) -> bool) {
    for (number, word) in words.iter_mut().enumerate() {
        let first = number * WORD;
        for row in first..rows.min(first + WORD) {
            *word |= u64::from(holds(row)) << (row - first);
        }
    }
}
