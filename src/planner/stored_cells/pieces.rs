//! How many cells slices, stacks and Kronecker products store: their rows and columns are those of their
//! operands, cut, put one after the other or repeated.
//!
//! Along the dimension that is cut or extended, counts are exact where the operands' rows are counted one by one
//! (up to [`GROUPS`] of them), else even within a group. Across it, what a slice leaves of a column is its share of
//! the cells, and what two parts store in one column adds up (Sommer et al., *MNC*, SIGMOD 2019, §4).

use super::Group;
use crate::exec::operation::{Axis, Span};
use crate::matrix::counts::{Counts, GROUPS, Side};

/// Of a range of the rows, or of the columns.
pub(crate) fn slice(x: &Counts, axis: Axis, range: Span) -> Counts {
    match axis {
        Axis::Rows => slice_rows(x, range),
        Axis::Columns => super::transposed(&slice_rows(&super::transposed(x), range)),
    }
}

/// Of matrices below one another (`Rows`), or beside.
pub(crate) fn stack(parts: &[&Counts], axis: Axis) -> Counts {
    if axis == Axis::Rows {
        return stack_rows(parts);
    }
    let turned: Vec<Counts> = parts.iter().map(|part| super::transposed(part)).collect();
    super::transposed(&stack_rows(&turned.iter().collect::<Vec<_>>()))
}

/// Of a Kronecker product: a row of it is a row of each factor.
pub(crate) fn kronecker(a: &Counts, b: &Counts) -> Counts {
    Counts {
        rows: repeated(&a.rows, &b.rows),
        columns: repeated(&a.columns, &b.columns),
        is_diagonal: a.is_diagonal && b.is_diagonal,
    }
}

fn slice_rows(x: &Counts, range: Span) -> Counts {
    let start = (range.start as f64).min(x.rows.size);
    let count = (range.count as f64).min(x.rows.size - start);
    if count == x.rows.size {
        return x.clone();
    }
    let rows = cut(&x.rows, start, count);
    let stored = rows.groups.iter().sum::<f64>();
    let columns = if x.is_diagonal {
        diagonal_columns(&x.columns, &rows, start)
    } else {
        thinned(&x.columns, stored, count)
    };
    Counts { rows, columns, is_diagonal: false }
}

/// So many rows from this one on.
fn cut(side: &Side, start: f64, count: f64) -> Side {
    let inside = |of: &[f64]| clipped(pieces(side, of), start, count);
    let groups = inside(&side.groups);
    let stored: f64 = groups.iter().map(|piece| piece.cells).sum();
    let share = count / side.size.max(1.0);
    let present = match side.most {
        most if most <= 1.0 => stored,
        // Of rows that are counted one by one it is known which they are.
        _ if side.width == 1.0 => groups.iter().filter(|piece| piece.cells > 0.0).count() as f64,
        _ => (side.present * share).min(stored),
    };
    let single = if side.most <= 1.0 { present } else { (side.single * share).min(present) };
    Side {
        alone: regrouped(count, &inside(&side.alone)),
        most: side.most,
        present,
        single,
        half_full: side.half_full * share,
        ..regular(count, &groups)
    }
}

/// The columns of which a slice of a diagonal leaves those that meet its rows.
fn diagonal_columns(columns: &Side, rows: &Side, start: f64) -> Side {
    let gap = |width: f64| Piece { width, cells: 0.0 };
    let after = columns.size - start - rows.size;
    let inside = pieces(rows, &rows.groups);
    let all = [gap(start)].into_iter().chain(inside).chain([gap(after)]);
    let side = regular(columns.size, &all.collect::<Vec<_>>());
    let stored = rows.groups.iter().sum();
    Side { alone: side.groups.clone(), most: 1.0, present: stored, single: stored, ..side }
}

/// The columns of which a slice of so many rows leaves so many cells.
fn thinned(columns: &Side, stored: f64, rows: f64) -> Side {
    let before = columns.groups.iter().sum::<f64>().max(1.0);
    let share = (stored / before).min(1.0);
    let most = columns.most.min(rows);
    // Of c cells, each of which stays with this chance, one at least.
    let each = before / columns.present.max(1.0);
    let present = if most <= 1.0 {
        stored.min(columns.present)
    } else {
        columns.present * (1.0 - (1.0 - share).powf(each))
    };
    Side {
        groups: columns.groups.iter().map(|cells| cells * share).collect(),
        alone: Vec::new(),
        most,
        present,
        single: if most <= 1.0 { present } else { 0.0 },
        half_full: 0.0,
        ..columns.clone()
    }
}

fn stack_rows(parts: &[&Counts]) -> Counts {
    let total = |of: fn(&Side) -> f64| parts.iter().map(|part| of(&part.rows)).sum::<f64>();
    let all: Vec<Piece> =
        parts.iter().flat_map(|part| pieces(&part.rows, &part.rows.groups)).collect();
    let rows = Side {
        most: parts.iter().map(|part| part.rows.most).fold(0.0, f64::max),
        present: total(|side| side.present),
        single: total(|side| side.single),
        half_full: total(|side| side.half_full),
        ..regular(total(|side| side.size), &all)
    };
    let mut columns = parts[0].columns.clone();
    for part in &parts[1..] {
        columns = added(&columns, &part.columns);
    }
    let columns = Side { most: columns.most.min(rows.size), ..columns };
    Counts { rows, columns, is_diagonal: parts.len() == 1 && parts[0].is_diagonal }
}

/// Columns of one matrix above those of another.
fn added(upper: &Side, lower: &Side) -> Side {
    let sum = |group: Group| group.width * (group.mean(upper) + group.mean(lower));
    let groups: Vec<f64> = Group::all(upper, lower).map(sum).collect();
    let size = upper.size;
    Side {
        size,
        width: if groups.len() == upper.groups.len() { upper.width } else { lower.width },
        groups,
        alone: Vec::new(),
        most: upper.most + lower.most,
        present: upper.present + lower.present - upper.present * lower.present / size.max(1.0),
        single: 0.0,
        half_full: 0.0,
    }
}

/// For each row of the first the rows of the second, with as many cells as both have.
fn repeated(first: &Side, second: &Side) -> Side {
    let size = first.size * second.size;
    let of = |first_cells: &[f64], second_cells: &[f64]| -> Vec<Piece> {
        let seconds = pieces(second, second_cells);
        let stored: f64 = second_cells.iter().sum();
        let repeat = |piece: Piece| -> Vec<Piece> {
            if piece.width != 1.0 {
                let (width, cells) = (piece.width * second.size, piece.cells * stored);
                return vec![Piece { width, cells }];
            }
            let scaled = |of: &Piece| Piece { width: of.width, cells: of.cells * piece.cells };
            seconds.iter().map(scaled).collect()
        };
        pieces(first, first_cells).into_iter().flat_map(repeat).collect()
    };
    Side {
        alone: regrouped(size, &of(&first.alone, &second.alone)),
        most: first.most * second.most,
        present: first.present * second.present,
        single: first.single * second.single,
        ..regular(size, &of(&first.groups, &second.groups))
    }
}

/// Consecutive rows, and the cells that they store, evenly.
#[derive(Clone, Copy)]
struct Piece {
    width: f64,
    cells: f64,
}

/// The groups of a side, of which these are the cells.
fn pieces(side: &Side, cells: &[f64]) -> Vec<Piece> {
    let piece = |(at, &cells)| Piece { width: side.width_of(at), cells };
    cells.iter().enumerate().map(piece).collect()
}

/// What is inside a range of so many rows.
fn clipped(pieces: Vec<Piece>, start: f64, count: f64) -> Vec<Piece> {
    let mut first = 0.0;
    let inside = |piece: Piece| {
        let (from, to) = (f64::max(first, start), (first + piece.width).min(start + count));
        first += piece.width;
        let width = (to - from).max(0.0);
        Piece { width, cells: piece.cells * width / piece.width.max(1.0) }
    };
    pieces.into_iter().map(inside).filter(|piece| piece.width > 0.0).collect()
}

/// So many rows in as many groups as are counted, of which nothing else is known.
fn regular(size: f64, pieces: &[Piece]) -> Side {
    Side {
        size,
        width: width_of_groups(size),
        groups: regrouped(size, pieces),
        alone: Vec::new(),
        most: 0.0,
        present: 0.0,
        single: 0.0,
        half_full: 0.0,
    }
}

fn width_of_groups(size: f64) -> f64 {
    (size / GROUPS as f64).ceil().max(1.0)
}

/// The cells of each group of so many rows.
fn regrouped(size: f64, pieces: &[Piece]) -> Vec<f64> {
    if pieces.is_empty() {
        return Vec::new();
    }
    let width = width_of_groups(size);
    let mut groups = vec![0.0; (size / width).ceil() as usize];
    let Some(last) = groups.len().checked_sub(1) else { return groups };
    let mut at = 0.0;
    for piece in pieces {
        let end = at + piece.width;
        while at < end {
            let group = ((at / width) as usize).min(last);
            let next = if group == last { end } else { end.min((group + 1) as f64 * width) };
            groups[group] += piece.cells * (next - at) / piece.width;
            at = next;
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Cases, cases, error, of_rows};
    use super::*;
    use crate::exec::kernels::{Stop, sparse};
    use crate::matrix::Csr;

    /// Cells of all groups that are counted where there are others, by all cells.
    fn displaced(found: &Side, truth: &Side) -> f64 {
        assert_eq!(found.size, truth.size);
        let apart = |group: Group| group.width * (group.mean(found) - group.mean(truth)).abs();
        let apart: f64 = Group::all(found, truth).map(apart).sum();
        apart / truth.groups.iter().sum::<f64>().max(1.0)
    }

    /// Asserts that cells are counted no worse than from a density, and where they are no worse than evenly spread;
    /// exactly along the dimensions of which it is said.
    fn assert_counted(
        name: &str,
        found: &Counts,
        actual: &Csr<f64>,
        density: f64,
        is_exact: [bool; 2],
    ) {
        let (truth, shape) = (Counts::of(actual), actual.shape());
        let (rows, columns) = (shape.rows as f64, shape.columns as f64);
        let plain = Counts::even(rows, columns, actual.stored() as f64);
        let errors = |counts: &Counts, stored: f64| {
            let stored = error(stored.max(1.0), actual.stored().max(1));
            [
                stored,
                displaced(&counts.rows, &truth.rows),
                displaced(&counts.columns, &truth.columns),
            ]
        };
        let even = errors(&plain, rows * columns * density);
        let counted = errors(found, found.stored());
        println!("{name:24} {:8} counts {counted:.4?} density {even:.4?}", actual.stored());
        let is_as_good = |(counted, even): (&f64, &f64)| *counted <= even + 0.05;
        assert!(counted.iter().zip(&even).all(is_as_good), "{name}: {counted:?}, {even:?}");
        for (at, is_exact) in is_exact.into_iter().enumerate() {
            assert!(!is_exact || counted[0] + counted[at + 1] < 1e-9, "{name}: {counted:?}");
        }
    }

    fn named(c: &Cases) -> [(&'static str, &Csr<f64>); 6] {
        [
            ("random", &c.random),
            ("power law", &c.power_law),
            ("empty rows", &c.empty_rows),
            ("band", &c.band),
            ("diagonal", &c.diagonal),
            ("selection", &c.selection),
        ]
    }

    #[test]
    fn slices_are_counted_along_the_dimension_that_is_cut() {
        for n in [60, 3000] {
            let c = cases(n);
            let is_exact = n <= GROUPS;
            for (name, x) in named(&c) {
                let (counts, density) = (Counts::of(x), x.stored() as f64 / (n * n) as f64);
                for (start, count) in [(0, n / 3), (n / 7, n / 2), (n / 2, n / 8), (0, n)] {
                    let range = Span { start, count };
                    let rows = slice(&counts, Axis::Rows, range);
                    let actual = x.rows(start..start + count);
                    let exact = [is_exact, false];
                    assert_counted(&format!("{n} {name} rows"), &rows, &actual, density, exact);
                    let columns = slice(&counts, Axis::Columns, range);
                    let actual = sparse::slice_columns(x, start..start + count);
                    let exact = [false, is_exact];
                    let name = format!("{n} {name} columns");
                    assert_counted(&name, &columns, &actual, density, exact);
                }
            }
        }
    }

    #[test]
    fn the_head_of_a_power_law_is_counted_where_densities_miss_it() {
        let c = cases(3000);
        let range = Span { start: 0, count: 100 };
        let found = slice(&Counts::of(&c.power_law), Axis::Columns, range).stored();
        let truth = sparse::slice_columns(&c.power_law, 0..100).stored();
        let plain = c.power_law.stored() as f64 * 100.0 / 3000.0;
        assert!(error(found, truth) < 0.05, "{found} of {truth}");
        assert!(error(plain, truth) > 5.0, "{plain} of {truth}");
    }

    #[test]
    fn a_slice_of_a_diagonal_knows_its_columns() {
        for n in [50, 1000] {
            let diagonal = of_rows(n, (0..n as u32).map(|i| vec![i]).collect());
            let range = Span { start: n / 4, count: n / 5 };
            let actual = diagonal.rows(range.start..range.start + range.count);
            for counts in [Counts::of(&diagonal), Counts::diagonal(n as f64)] {
                let found = slice(&counts, Axis::Rows, range);
                let exact = [true, n <= GROUPS];
                assert_counted("slice of a diagonal", &found, &actual, 1.0 / n as f64, exact);
                assert_eq!((found.columns.present, found.columns.most), (range.count as f64, 1.0));
            }
        }
    }

    #[test]
    fn stacks_are_counted_exactly_across_their_parts() {
        for n in [60, 3000] {
            let c = cases(n);
            for (name, x) in named(&c) {
                let parts = [x.clone(), c.power_law.clone(), c.gaps.clone()];
                let counts = parts.each_ref().map(Counts::of);
                let counts = counts.each_ref();
                // The groups of a stack are not those of its parts.
                let actual = sparse::vstack(&parts);
                let density = actual.stored() as f64 / (3 * n * n) as f64;
                let found = stack(&counts, Axis::Rows);
                let name = format!("{n} {name}");
                assert_counted(&name, &found, &actual, density, [false, true]);
                let found = stack(&counts, Axis::Columns);
                assert_counted(&name, &found, &sparse::hstack(&parts), density, [true, false]);
            }
        }
    }

    #[test]
    fn kronecker_products_are_counted_as_both_factors_are() {
        let (small, large) = (cases(12), cases(100));
        for (name, x) in named(&small) {
            for (other, y) in named(&large) {
                let (a, b) = (Counts::of(x), Counts::of(y));
                let actual = sparse::kron(x, y, Stop::NEVER);
                let cells = actual.shape().cells() as f64;
                let (density, inexact) = (actual.stored() as f64 / cells, [false; 2]);
                let name = format!("{name} x {other}");
                assert_counted(&name, &kronecker(&a, &b), &actual, density, inexact);
                let actual = sparse::kron(y, x, Stop::NEVER);
                assert_counted(&name, &kronecker(&b, &a), &actual, density, inexact);
            }
        }
    }
}
