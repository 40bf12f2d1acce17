//! Contractions: for every pair of entries that share an inner place, a term, folded into the cell of
//! their outer places. A matrix product is one, by products and sums; a shortest path of two steps is
//! one, by sums and minima.
//!
//! ```text
//! left (i, k, x)                 right (k, j, y)
//!         └── cell (i, j) ← fold(cell, term(x, y)) ──┘     for every pair of one k
//! ```
//!
//! Cells are those that a pair reaches, whatever its value: structure and not value says which groups
//! there are. Entries may repeat, and each counts. Row by row of the left side, as in Gustavson's *Two
//! Fast Algorithms for Sparse Matrices* (ACM TOMS 4(3), 1978), so pairs fold in the order of the entries.

use std::ops::Range;

use arrow::buffer::ScalarBuffer;

use super::Stop;

/// The entries of one side in the order of the places that they are looked up by.
#[derive(Debug, Default)]
pub struct Side {
    /// For each place that is looked up, where its entries begin; at last their number.
    starts: Vec<usize>,
    /// The other place of each entry.
    places: ScalarBuffer<u32>,
    /// Of each place that is looked up, whether its entries' other places follow one another.
    runs: Vec<bool>,
    /// The values of the entries, in columns.
    columns: Vec<Column>,
}

/// One value for each entry, and whether it is one: what stands for NULL is none.
#[derive(Debug, Clone)]
pub struct Column {
    /// The numbers; any where there is none.
    pub values: Values,
    /// Which are numbers; all of them where nothing is said.
    pub valid: Option<Vec<bool>>,
}

/// Numbers of one type.
#[derive(Debug, Clone)]
pub enum Values {
    /// In 64 bits.
    Floats(Vec<f64>),
    /// In 64 bits; terms and sums must fit.
    Integers(Vec<i64>),
}

/// What a pair of values makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd)]
pub enum Combine {
    /// `x * y`
    Times,
    /// `x + y`
    Plus,
    /// `x - y`
    Minus,
    /// `x`
    Left,
    /// `y`
    Right,
}

/// What becomes of the terms of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd)]
pub enum Fold {
    /// Their sum, from zero.
    Sum,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
    /// How many there are.
    Count,
}

/// What is folded of each pair: values of columns of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// Which column of the left side, where one counts.
    pub left: Option<usize>,
    /// Which column of the right side, where one counts.
    pub right: Option<usize>,
    /// What the pair makes.
    pub combine: Combine,
    /// Whether that is rounded to 32 bits.
    pub is_single: bool,
    /// What becomes of it.
    pub fold: Fold,
}

/// The cells of some rows, and for each term a number.
#[derive(Debug, Default)]
pub struct Groups {
    /// The row of each cell.
    pub rows: Vec<u32>,
    /// The column of each cell.
    pub columns: Vec<u32>,
    /// For each term the numbers of the cells.
    pub folded: Vec<Values>,
}

/// What one thread needs beside the sides; used again from task to task.
#[derive(Debug)]
pub struct Scratch {
    /// For each column the last row, from 1, that reached it.
    reached: Vec<u32>,
    /// The columns that the row at hand reaches.
    columns: Vec<u32>,
    folded: Vec<Values>,
}

impl Side {
    /// Entries, looked up by `by` among so many places; `others` are their other places.
    ///
    /// # Panics
    /// Where the parts are not equally long, or a place is outside.
    pub fn new(count: usize, by: &[u32], others: ScalarBuffer<u32>, columns: Vec<Column>) -> Self {
        assert_eq!(by.len(), others.len(), "every entry has two places");
        let mut starts = vec![0; count + 1];
        by.iter().for_each(|&place| starts[place as usize + 1] += 1);
        for at in 0..count {
            starts[at + 1] += starts[at];
        }
        if by.is_sorted() {
            return Self::sorted(starts, others, columns);
        }
        let mut next = starts.clone();
        let mut order = vec![0u32; by.len()];
        for (entry, &place) in by.iter().enumerate() {
            order[next[place as usize]] = entry as u32;
            next[place as usize] += 1;
        }
        let places = permuted(&others, &order).into();
        let columns = columns.into_iter().map(|column| column.permuted(&order)).collect();
        Self::sorted(starts, places, columns)
    }

    fn sorted(starts: Vec<usize>, places: ScalarBuffer<u32>, columns: Vec<Column>) -> Self {
        let is_run = |ends: &[usize]| {
            places[ends[0]..ends[1]].windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
        };
        let runs = starts.windows(2).map(is_run).collect();
        Self { starts, places, runs, columns }
    }

    fn entries(&self, place: usize) -> Range<usize> {
        self.starts[place]..self.starts[place + 1]
    }

    /// The number of places that are looked up.
    pub fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// For each row of this left side, the pairs that it makes with the entries of a right side.
    pub fn pairs(&self, right: &Side) -> Vec<u64> {
        let of_row = |row: usize| {
            let inner = &self.places[self.entries(row)];
            inner.iter().map(|&k| right.entries(k as usize).len() as u64).sum()
        };
        (0..self.count()).map(of_row).collect()
    }
}

fn permuted<T: Copy>(values: &[T], order: &[u32]) -> Vec<T> {
    order.iter().map(|&at| values[at as usize]).collect()
}

impl Column {
    fn permuted(self, order: &[u32]) -> Self {
        let values = match self.values {
            Values::Floats(values) => Values::Floats(permuted(&values, order)),
            Values::Integers(values) => Values::Integers(permuted(&values, order)),
        };
        Self { values, valid: self.valid.map(|valid| permuted(&valid, order)) }
    }
}

impl Values {
    /// So many of one value.
    fn filled(of: &Values, count: usize, value: f64) -> Self {
        match of {
            Values::Floats(_) => Values::Floats(vec![value; count]),
            Values::Integers(_) => Values::Integers(vec![value as i64; count]),
        }
    }
}

/// What a term folds into: numbers of the type of its columns, and counts of none.
fn folded_type(term: &Term, left: &Side, right: &Side) -> Values {
    let column = match (term.left, term.right) {
        _ if term.fold == Fold::Count => None,
        (Some(at), _) => Some(&left.columns[at]),
        (None, at) => at.map(|at| &right.columns[at]),
    };
    match column.map(|column| &column.values) {
        Some(Values::Floats(_)) => Values::Floats(Vec::new()),
        _ => Values::Integers(Vec::new()),
    }
}

impl Scratch {
    /// For cells in so many columns.
    pub fn new(columns: usize, terms: &[Term], left: &Side, right: &Side) -> Self {
        let folded = terms
            .iter()
            .map(|term| Values::filled(&folded_type(term, left, right), columns, 0.0))
            .collect();
        Self { reached: vec![0; columns], columns: Vec::new(), folded }
    }

    /// Bytes for so many columns and terms.
    pub fn size_bytes(columns: usize, terms: usize) -> usize {
        columns * (2 * size_of::<u32>() + terms * size_of::<f64>())
    }
}

/// The cells of some rows of the left side, in the order in which pairs reach them.
pub fn contract(
    rows: Range<usize>,
    left: &Side,
    right: &Side,
    terms: &[Term],
    scratch: &mut Scratch,
    stop: Stop<'_>,
) -> Groups {
    let folded = terms.iter().map(|term| folded_type(term, left, right)).collect();
    let mut groups = Groups { folded, ..Groups::default() };
    for row in rows {
        if stop.is_asked() {
            break;
        }
        reach(row, left, right, scratch);
        for (term, folded) in terms.iter().zip(&mut scratch.folded) {
            clear(folded, &scratch.columns, term.fold);
            for entry in left.entries(row) {
                fold_entry(term, left, entry, right, folded);
            }
        }
        groups.rows.resize(groups.rows.len() + scratch.columns.len(), row as u32);
        groups.columns.extend_from_slice(&scratch.columns);
        for (kept, folded) in groups.folded.iter_mut().zip(&scratch.folded) {
            let cells = scratch.columns.iter().map(|&column| column as usize);
            match (kept, folded) {
                (Values::Floats(kept), Values::Floats(folded)) => {
                    kept.extend(cells.map(|column| folded[column]));
                }
                (Values::Integers(kept), Values::Integers(folded)) => {
                    kept.extend(cells.map(|column| folded[column]));
                }
                _ => unreachable!("what is kept has the type of what is folded"),
            }
        }
    }
    groups
}

/// Lists the columns that a row reaches.
fn reach(row: usize, left: &Side, right: &Side, scratch: &mut Scratch) {
    scratch.columns.clear();
    let mark = row as u32 + 1;
    for &inner in &left.places[left.entries(row)] {
        if scratch.columns.len() == scratch.reached.len() {
            break;
        }
        for &column in &right.places[right.entries(inner as usize)] {
            let reached = &mut scratch.reached[column as usize];
            if *reached != mark {
                *reached = mark;
                scratch.columns.push(column);
            }
        }
    }
}

/// Sets the cells of a row to what a fold begins with.
fn clear(folded: &mut Values, columns: &[u32], fold: Fold) {
    let columns = columns.iter().map(|&column| column as usize);
    match folded {
        Values::Floats(cells) => {
            let begin = match fold {
                Fold::Sum | Fold::Count => 0.0,
                Fold::Least => f64::INFINITY,
                Fold::Greatest => f64::NEG_INFINITY,
            };
            columns.for_each(|column| cells[column] = begin);
        }
        Values::Integers(cells) => {
            let begin = match fold {
                Fold::Sum | Fold::Count => 0,
                Fold::Least => i64::MAX,
                Fold::Greatest => i64::MIN,
            };
            columns.for_each(|column| cells[column] = begin);
        }
    }
}

/// Numbers that terms are made of.
trait Number: Copy {
    const ZERO: Self;
    fn values(values: &Values) -> &[Self];
    fn sum(self, other: Self) -> Self;
    fn difference(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn single(self) -> Self;
    fn least(self, other: Self) -> Self;
    fn greatest(self, other: Self) -> Self;
}

impl Number for f64 {
    const ZERO: Self = 0.0;

    fn values(values: &Values) -> &[Self] {
        match values {
            Values::Floats(values) => values,
            Values::Integers(_) => unreachable!("the columns of a term have one type"),
        }
    }

    fn sum(self, other: Self) -> Self {
        self + other
    }

    fn difference(self, other: Self) -> Self {
        self - other
    }

    fn product(self, other: Self) -> Self {
        self * other
    }

    fn single(self) -> Self {
        f64::from(self as f32)
    }

    fn least(self, other: Self) -> Self {
        if other < self { other } else { self }
    }

    fn greatest(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

/// Of terms and sums that fit: whoever asks has looked.
impl Number for i64 {
    const ZERO: Self = 0;

    fn values(values: &Values) -> &[Self] {
        match values {
            Values::Integers(values) => values,
            Values::Floats(_) => unreachable!("the columns of a term have one type"),
        }
    }

    fn sum(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn difference(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    fn product(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }

    fn single(self) -> Self {
        self
    }

    fn least(self, other: Self) -> Self {
        self.min(other)
    }

    fn greatest(self, other: Self) -> Self {
        self.max(other)
    }
}

/// Folds the pairs of one entry of the left side.
fn fold_entry(term: &Term, left: &Side, entry: usize, right: &Side, folded: &mut Values) {
    let x = term.left.map(|at| &left.columns[at]);
    if x.is_some_and(|x| x.valid.as_ref().is_some_and(|valid| !valid[entry])) {
        return;
    }
    let inner = left.places[entry] as usize;
    let pairs = right.entries(inner);
    let y = term.right.map(|at| &right.columns[at]);
    let row = Row {
        columns: &right.places[pairs.clone()],
        is_run: right.runs[inner],
        valid: y.and_then(|y| y.valid.as_ref()).map(|valid| &valid[pairs.clone()]),
    };
    match folded {
        Values::Integers(cells) if term.fold == Fold::Count => row.count(cells),
        Values::Floats(cells) => row.fold::<f64>(term, x, entry, y, pairs, cells),
        Values::Integers(cells) => row.fold::<i64>(term, x, entry, y, pairs, cells),
    }
}

/// The entries of the right side that share one inner place.
struct Row<'a> {
    columns: &'a [u32],
    /// Whether each column is the one after the last: loops over them need no gathers.
    is_run: bool,
    valid: Option<&'a [bool]>,
}

impl Row<'_> {
    fn count(&self, cells: &mut [i64]) {
        for (at, &column) in self.columns.iter().enumerate() {
            cells[column as usize] += i64::from(self.valid.is_none_or(|valid| valid[at]));
        }
    }

    fn fold<N: Number>(
        &self,
        term: &Term,
        x: Option<&Column>,
        entry: usize,
        y: Option<&Column>,
        pairs: Range<usize>,
        cells: &mut [N],
    ) {
        let x = x.map_or(N::ZERO, |x| N::values(&x.values)[entry]);
        let y = y.map(|y| &N::values(&y.values)[pairs]);
        let Some(y) = y.filter(|_| term.combine != Combine::Left) else {
            // Nothing is read of the right side but its columns.
            return self.terms(term.fold, self.columns, |_| x, cells);
        };
        match (term.combine, term.is_single) {
            (Combine::Times, false) => self.terms(term.fold, y, |y| x.product(y), cells),
            (Combine::Times, true) => self.terms(term.fold, y, |y| x.product(y).single(), cells),
            (Combine::Plus, false) => self.terms(term.fold, y, |y| x.sum(y), cells),
            (Combine::Plus, true) => self.terms(term.fold, y, |y| x.sum(y).single(), cells),
            (Combine::Minus, false) => self.terms(term.fold, y, |y| x.difference(y), cells),
            (Combine::Minus, true) => self.terms(term.fold, y, |y| x.difference(y).single(), cells),
            (Combine::Left | Combine::Right, _) => self.terms(term.fold, y, |y| y, cells),
        }
    }

    fn terms<Y: Copy, N: Number>(
        &self,
        fold: Fold,
        y: &[Y],
        term: impl Fn(Y) -> N,
        cells: &mut [N],
    ) {
        match fold {
            Fold::Sum | Fold::Count => self.each(y, term, N::sum, cells),
            Fold::Least => self.each(y, term, N::least, cells),
            Fold::Greatest => self.each(y, term, N::greatest, cells),
        }
    }

    fn each<Y: Copy, N: Number>(
        &self,
        y: &[Y],
        term: impl Fn(Y) -> N,
        fold: impl Fn(N, N) -> N,
        cells: &mut [N],
    ) {
        if let Some(valid) = self.valid {
            let pairs = self.columns.iter().zip(y).zip(valid);
            for ((&column, &y), _) in pairs.filter(|(_, valid)| **valid) {
                let cell = &mut cells[column as usize];
                *cell = fold(*cell, term(y));
            }
            return;
        }
        if let (true, Some(&first)) = (self.is_run, self.columns.first()) {
            for (cell, &y) in cells[first as usize..].iter_mut().zip(y) {
                *cell = fold(*cell, term(y));
            }
            return;
        }
        for (&column, &y) in self.columns.iter().zip(y) {
            let cell = &mut cells[column as usize];
            *cell = fold(*cell, term(y));
        }
    }
}
