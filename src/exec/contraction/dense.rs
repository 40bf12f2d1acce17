//! Contractions where most pairs exist: products of dense matrices, and which of their cells a pair reaches.

use std::ops::Range;

use super::groups::is_integer;
use super::sides::Entries;
use crate::exec::kernels::Stop;
use crate::exec::kernels::contract::{Combine, Fold, Groups, Term, Values};
use crate::exec::kernels::dense;
use crate::matrix::{CellBuffer, Dense, Shape};

/// Which cells of a matrix have an entry: a bit for each, the rows padded to whole words.
pub(super) struct Occupied {
    words: Vec<u64>,
    words_per_row: usize,
    is_full: bool,
}

impl Occupied {
    /// The cells of one side, by group key and join key; none where one has two entries.
    pub(super) fn new(side: &Entries) -> Option<Self> {
        let words_per_row = side.inner_count.div_ceil(64);
        let mut words = vec![0u64; side.outer_count() * words_per_row];
        for (&outer, &inner) in side.outer.iter().zip(&side.inner) {
            let word = &mut words[outer as usize * words_per_row + inner as usize / 64];
            let bit = 1 << (inner % 64);
            if *word & bit != 0 {
                return None;
            }
            *word |= bit;
        }
        let is_full = side.len() == side.outer_count() * side.inner_count;
        Some(Self { words, words_per_row, is_full })
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    fn row(&self, row: usize) -> &[u64] {
        &self.words[row * self.words_per_row..(row + 1) * self.words_per_row]
    }

    /// Whether a row here and one there share a join key.
    fn meets(&self, row: usize, other: &Self, other_row: usize) -> bool {
        let words = self.row(row).iter().zip(other.row(other_row));
        words.into_iter().any(|(left, right)| left & right != 0)
    }
}

/// The products of all terms.
pub(super) struct Products<'a> {
    folded: Vec<Dense<f64>>,
    occupied: &'a [Occupied; 2],
    are_integers: Vec<bool>,
}

impl<'a> Products<'a> {
    /// One product for each term, whose fold is a sum or a count of products.
    pub(super) fn new(
        sides: &[Entries; 2],
        occupied: &'a [Occupied; 2],
        terms: &[Term],
        stop: Stop<'_>,
    ) -> Self {
        let product = |term: &Term| {
            let (left, right) = match term.combine {
                _ if term.fold == Fold::Count => (None, None),
                Combine::Left => (term.left, None),
                Combine::Right => (None, term.right),
                _ => (term.left, term.right),
            };
            let (left, right) =
                rayon::join(|| matrix(&sides[0], left, false), || matrix(&sides[1], right, true));
            dense::product(&left, &right, stop)
        };
        let folded = terms.iter().map(product).collect();
        let are_integers = terms.iter().map(|term| is_integer(term, sides)).collect();
        Self { folded, occupied, are_integers }
    }

    /// The groups of some rows.
    pub(super) fn groups(&self, rows: Range<usize>, columns: usize) -> Groups {
        let mut groups = Groups {
            folded: self
                .are_integers
                .iter()
                .map(|&is_integer| match is_integer {
                    true => Values::Integers(Vec::new()),
                    false => Values::Floats(Vec::new()),
                })
                .collect(),
            ..Groups::default()
        };
        let [left, right] = self.occupied;
        let all = left.is_full && right.is_full;
        for row in rows {
            let first = groups.columns.len();
            let reached = |column: &u32| all || left.meets(row, right, *column as usize);
            groups.columns.extend((0..columns as u32).filter(reached));
            groups.rows.resize(groups.columns.len(), row as u32);
            let reached = &groups.columns[first..];
            for (kept, cells) in groups.folded.iter_mut().zip(&self.folded) {
                let cells = cells.row(row);
                let cells = reached.iter().map(|&column| cells[column as usize]);
                match kept {
                    Values::Floats(kept) => kept.extend(cells),
                    Values::Integers(kept) => kept.extend(cells.map(|cell| cell as i64)),
                }
            }
        }
        groups
    }
}

/// A column of one side as a matrix by group key and join key, or the other way round; ones without one.
fn matrix(side: &Entries, column: Option<usize>, by_inner: bool) -> Dense<f64> {
    let shape = Shape::new(side.outer_count(), side.inner_count);
    let shape = if by_inner { shape.transposed() } else { shape };
    let mut cells = CellBuffer::zeroed(shape.cells());
    let places = side.outer.iter().zip(&side.inner).map(|(&outer, &inner)| {
        let (row, column) = if by_inner { (inner, outer) } else { (outer, inner) };
        row as usize * shape.columns + column as usize
    });
    match column.map(|at| &side.columns[at].values) {
        None => places.for_each(|place| cells[place] = 1.0),
        Some(Values::Floats(values)) => {
            places.zip(values).for_each(|(place, &value)| cells[place] = value);
        }
        Some(Values::Integers(values)) => {
            places.zip(values).for_each(|(place, &value)| cells[place] = value as f64);
        }
    }
    Dense::new(shape, cells.into())
}
