//! How many cells a sparse result will store, from how many the rows and columns of its operands store.
//!
//! Exact where a factor has at most one cell in each row, or column, as a permutation or a diagonal has;
//! elsewhere the outer products that a product is a sum of are taken to fall upon one another at random
//! (Sommer et al., *MNC*, SIGMOD 2019, §3.2 for products, §4 for everything else). Where cells are spread
//! evenly this is the estimate from densities alone.

mod pieces;

pub(crate) use pieces::{kronecker, slice, stack};

use crate::matrix::counts::{Counts, Side};

/// Pairs of stored cells that meet in `a·b`: half its floating-point operations.
pub(crate) fn pairs(a: &Counts, b: &Counts) -> f64 {
    met(&a.columns, &b.rows)
}

/// Of `a·b`, in which so many pairs meet.
pub(crate) fn product(a: &Counts, b: &Counts, pairs: f64) -> Counts {
    if a.is_diagonal && a.rows.present == a.rows.size {
        return b.clone();
    }
    if b.is_diagonal && b.rows.present == b.rows.size {
        return a.clone();
    }
    let cells = a.rows.present * b.columns.present;
    let at_least = a.rows.half_full * b.columns.half_full;
    let stored = if a.rows.most <= 1.0 || b.columns.most <= 1.0 {
        pairs
    } else {
        overlapping(a, b).min(pairs).min(cells).max(at_least)
    };
    let rows = a.rows.along(&b.rows, stored, b.columns.size);
    let columns = b.columns.along(&a.columns, stored, a.rows.size);
    Counts { rows, columns, is_diagonal: a.is_diagonal && b.is_diagonal }
}

/// Cells of a product whose outer products overlap: cells alone in their row, or column, meet nothing but
/// what they are multiplied by; the rest fall upon the rows and columns that are left.
fn overlapping(a: &Counts, b: &Counts) -> f64 {
    let cells = (a.rows.present - a.rows.single) * (b.columns.present - b.columns.single);
    let (left, right) = (&a.columns, &b.rows);
    if left.alone.is_empty() && right.alone.is_empty() {
        return cells * -log_empty(left, right, cells.max(1.0)).exp_m1();
    }
    let (mut exact, mut log_empty) = (0.0, 0.0);
    for group in Group::all(left, right) {
        let (l, r) = (group.mean(left), group.mean(right));
        let (of_l, of_r) = (group.alone(left), group.alone(right));
        exact += group.width * (of_l * r + (l - of_l) * of_r);
        log_empty += group.width * log_missed((l - of_l) * (r - of_r) / cells.max(1.0));
    }
    exact + cells * -log_empty.exp_m1()
}

/// The logarithm of the share of so many cells that stay empty, where none is alone.
fn log_empty(left: &Side, right: &Side, cells: f64) -> f64 {
    let (Some((left_last, left_rest)), Some((right_last, right_rest))) =
        (left.groups.split_last(), right.groups.split_last())
    else {
        return 0.0;
    };
    if left_rest.len() != right_rest.len() {
        let missed = |group: Group| log_missed(group.mean(left) * group.mean(right) / cells);
        return Group::all(left, right).map(|group| group.width * missed(group)).sum();
    }
    let (width, last) = (left.width.max(1.0), left.width_of(left_rest.len()).max(1.0));
    let (each, of_last) = (1.0 / (width * width * cells), 1.0 / (last * last * cells));
    let rest = if left.most * right.most < SMALL_HIT * cells {
        summed(left_rest, right_rest, |pairs| log_of_small(pairs * each))
    } else {
        summed(left_rest, right_rest, |pairs| log_missed(pairs * each))
    };
    width * rest + last * log_missed(left_last * right_last * of_last)
}

/// What is hit so seldom is as good as by its logarithm's series.
const SMALL_HIT: f64 = 0.02;

/// The logarithm of `1 - hit`.
fn log_missed(hit: f64) -> f64 {
    if hit < SMALL_HIT { log_of_small(hit) } else { (-hit.min(1.0)).ln_1p() }
}

fn log_of_small(hit: f64) -> f64 {
    -hit * (1.0 + hit * (1.0 / 2.0 + hit * (1.0 / 3.0 + hit / 4.0)))
}

/// The sum of something of the products of two lists, equally long, in lanes: for a long product of sparse factors
/// most of planning is such sums, and additions that wait for one another take several times as long.
#[inline(always)]
fn summed(left: &[f64], right: &[f64], of: impl Fn(f64) -> f64) -> f64 {
    const LANES: usize = 8;
    let (left, right) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let rest = left.remainder().iter().zip(right.remainder());
    let rest: f64 = rest.map(|(left, right)| of(left * right)).sum();
    let mut lanes = [0.0; LANES];
    for (left, right) in left.zip(right) {
        for lane in 0..LANES {
            lanes[lane] += of(left[lane] * right[lane]);
        }
    }
    lanes.iter().sum::<f64>() + rest
}

/// Of `x * y`, cell by cell, both of one shape.
pub(crate) fn intersection(x: &Counts, y: &Counts) -> Counts {
    combined(
        x,
        y,
        |left, right, both| both.min(left).min(right),
        f64::min,
        |size, left, right| left * right / size.max(1.0),
    )
}

/// Of `x + y`.
pub(crate) fn union(x: &Counts, y: &Counts) -> Counts {
    let either = |left: f64, right: f64, both: f64| left + right - both.min(left).min(right);
    combined(
        x,
        y,
        either,
        |left, right| left + right,
        |size, left, right| left + right - left * right / size.max(1.0),
    )
}

/// Counts of two matrices put together: of each row, by what both store of it and what they have in common;
/// of the fullest; of those that store anything.
fn combined(
    x: &Counts,
    y: &Counts,
    cells: impl Fn(f64, f64, f64) -> f64,
    most: impl Fn(f64, f64) -> f64,
    present: impl Fn(f64, f64, f64) -> f64,
) -> Counts {
    let all = (x.stored() * y.stored()).max(1.0);
    let is_diagonal = x.is_diagonal && y.is_diagonal;
    let side = |left: &Side, right: &Side, across: [&Side; 2]| {
        // How likely a cell of one and a cell of the other, in one row, are in one column too.
        let in_common = if is_diagonal { 1.0 } else { met(across[0], across[1]) / all };
        let of_group = |group: Group| {
            let (a, b) = (group.mean(left), group.mean(right));
            group.width * cells(a, b, a * b * in_common)
        };
        let groups: Vec<f64> = Group::all(left, right).map(of_group).collect();
        let most = most(left.most, right.most).min(across[0].size);
        let present = present(left.size, left.present, right.present);
        let single = if most <= 1.0 { present } else { 0.0 };
        let width = if groups.len() == left.groups.len() { left.width } else { right.width };
        Side {
            size: left.size,
            width,
            groups,
            alone: Vec::new(),
            most,
            present,
            single,
            half_full: 0.0,
        }
    };
    let rows = side(&x.rows, &y.rows, [&x.columns, &y.columns]);
    let columns = side(&x.columns, &y.columns, [&x.rows, &y.rows]);
    let stored: f64 = rows.groups.iter().sum();
    let columns = Side { groups: columns.groups_of(stored), ..columns };
    Counts { rows, columns, is_diagonal }
}

/// Of `t(x)`.
pub(crate) fn transposed(x: &Counts) -> Counts {
    Counts { rows: x.columns.clone(), columns: x.rows.clone(), is_diagonal: x.is_diagonal }
}

/// Pairs of cells, one of each of two sides of one size, that are at the same place of them.
fn met(left: &Side, right: &Side) -> f64 {
    let all = |side: &Side| side.groups.iter().sum::<f64>();
    let (Some((left_last, left_rest)), Some((right_last, right_rest))) =
        (left.groups.split_last(), right.groups.split_last())
    else {
        return 0.0;
    };
    if left_rest.len() != right_rest.len() {
        return all(left) * all(right) / left.size.max(1.0);
    }
    // All groups but the last are equally wide.
    let pairs = summed(left_rest, right_rest, |pairs| pairs);
    let last = left_last * right_last / left.width_of(left_rest.len()).max(1.0);
    pairs / left.width.max(1.0) + last
}

/// A group of each of two sides of one size; a side that is even, or cut otherwise, is so in all of them.
#[derive(Clone, Copy)]
struct Group {
    at: usize,
    count: usize,
    width: f64,
    /// One by the width.
    share: f64,
}

impl Group {
    fn all<'a>(left: &'a Side, right: &'a Side) -> impl Iterator<Item = Group> + 'a {
        let of = if left.groups.len() >= right.groups.len() { left } else { right };
        let count = of.groups.len();
        (0..count).map(move |at| {
            let width = of.width_of(at).max(1.0);
            Group { at, count, width, share: 1.0 / width }
        })
    }

    /// Cells of each row, or column, of the group.
    fn mean(self, side: &Side) -> f64 {
        if side.groups.len() == self.count {
            side.groups[self.at] * self.share
        } else {
            side.groups.iter().sum::<f64>() / side.size.max(1.0)
        }
    }

    /// The same of the cells that are alone.
    fn alone(self, side: &Side) -> f64 {
        if side.alone.len() == self.count { side.alone[self.at] * self.share } else { 0.0 }
    }
}

impl Side {
    /// The groups of the same distribution over so many cells.
    fn groups_of(&self, stored: f64) -> Vec<f64> {
        let sum: f64 = self.groups.iter().sum();
        let factor = stored / sum.max(f64::MIN_POSITIVE);
        self.groups.iter().map(|cells| cells * factor).collect()
    }

    /// The rows of a product whose left factor has these, and whose right factor those `met`.
    fn along(&self, met: &Side, stored: f64, across: f64) -> Self {
        let most = across.min(self.most * met.most);
        let present = if self.most <= 1.0 {
            self.present * met.present / met.size.max(1.0)
        } else {
            self.present * -(-stored / self.present.max(1.0)).exp_m1()
        };
        let single = if most <= 1.0 { present } else { 0.0 };
        Side {
            size: self.size,
            width: self.width,
            groups: self.groups_of(stored),
            alone: Vec::new(),
            most,
            present,
            single,
            half_full: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::kernels::testing::{random_sparse, rng};
    use crate::exec::kernels::{Stop, sparse};
    use crate::matrix::counts::GROUPS;
    use crate::matrix::{Csr, Shape};
    use rand::Rng;
    use rand::seq::SliceRandom;

    /// A matrix that stores ones in these columns of each row.
    pub(super) fn of_rows(columns: usize, rows: Vec<Vec<u32>>) -> Csr<f64> {
        let mut offsets = vec![0];
        let mut places = Vec::new();
        for mut row in rows {
            row.sort();
            row.dedup();
            places.extend(row);
            offsets.push(places.len() as i64);
        }
        let shape = Shape::new(offsets.len() - 1, columns);
        let values = vec![1.0; places.len()];
        Csr::new(shape, offsets.into(), places.into(), values.into())
    }

    pub(super) struct Cases {
        n: usize,
        pub(super) random: Csr<f64>,
        sparser: Csr<f64>,
        pub(super) diagonal: Csr<f64>,
        pub(super) gaps: Csr<f64>,
        permutation: Csr<f64>,
        pub(super) selection: Csr<f64>,
        pub(super) power_law: Csr<f64>,
        pub(super) empty_rows: Csr<f64>,
        pub(super) band: Csr<f64>,
    }

    pub(super) fn cases(n: usize) -> Cases {
        let mut rng = rng(21);
        let places = |n: usize| (0..n as u32).collect::<Vec<_>>();
        let mut order = places(n);
        order.shuffle(&mut rng);
        let skewed = |rng: &mut rand::rngs::SmallRng| {
            // Columns by a power law, the most popular ones first.
            let x: f64 = rng.random_range(0.0..1.0);
            ((n as f64).powf(x) as u32 - 1).min(n as u32 - 1)
        };
        let random = random_sparse(&mut rng, n, n, 8.0 / n as f64);
        let sparser = random_sparse(&mut rng, n, n, 2.0 / n as f64);
        let power_law = (0..n).map(|_| (0..8).map(|_| skewed(&mut rng)).collect()).collect();
        let empty = |i: usize, rng: &mut rand::rngs::SmallRng| {
            let count = if i.is_multiple_of(10) { 30 } else { 0 };
            (0..count).map(|_| rng.random_range(0..n as u32)).collect()
        };
        let empty_rows = (0..n).map(|i| empty(i, &mut rng)).collect();
        let selection = (0..n).map(|_| vec![rng.random_range(0..n as u32)]).collect();
        let gap = |i: usize| if i.is_multiple_of(3) { vec![i as u32] } else { vec![] };
        let near = |i: usize| (i.saturating_sub(2)..(i + 3).min(n)).map(|j| j as u32).collect();
        Cases {
            n,
            random,
            sparser,
            diagonal: of_rows(n, (0..n).map(|i| vec![i as u32]).collect()),
            gaps: of_rows(n, (0..n).map(gap).collect()),
            permutation: of_rows(n, order.into_iter().map(|j| vec![j]).collect()),
            selection: of_rows(n, selection),
            power_law: of_rows(n, power_law),
            empty_rows: of_rows(n, empty_rows),
            band: of_rows(n, (0..n).map(near).collect()),
        }
    }

    /// How far an estimate is off: 0 where exact, 1 where it is twice or half the truth.
    pub(super) fn error(estimate: f64, truth: usize) -> f64 {
        let truth = truth as f64;
        (estimate.max(truth) / estimate.min(truth).max(1e-9)) - 1.0
    }

    fn estimated(a: &Counts, b: &Counts) -> Counts {
        product(a, b, pairs(a, b))
    }

    #[test]
    fn products_of_structured_matrices_are_estimated_better_than_from_densities() {
        for n in [60, 3000] {
            let c = cases(n);
            let turned = sparse::transpose(&c.power_law, Stop::NEVER);
            let exact = n <= GROUPS;
            // Left, right, and the largest error: zero where structure tells all.
            let table: [(&str, &Csr<f64>, &Csr<f64>, f64); 16] = [
                ("random·random", &c.random, &c.random, 0.1),
                ("random·sparser", &c.random, &c.sparser, 0.1),
                ("diagonal·random", &c.diagonal, &c.random, 0.0),
                ("random·diagonal", &c.random, &c.diagonal, 0.0),
                ("gaps·power law", &c.gaps, &c.power_law, if exact { 0.0 } else { 0.05 }),
                ("permutation·power law", &c.permutation, &c.power_law, 1e-9),
                ("power law·permutation", &c.power_law, &c.permutation, 1e-9),
                ("permutation·empty rows", &c.permutation, &c.empty_rows, 1e-9),
                ("selection·random", &c.selection, &c.random, if exact { 0.0 } else { 0.05 }),
                ("selection·empty rows", &c.selection, &c.empty_rows, 0.6),
                ("power law·random", &c.power_law, &c.random, 0.5),
                // The popular columns and rows coincide, within groups that show only their mean.
                ("power law·turned", &c.power_law, &turned, if exact { 0.1 } else { 1.2 }),
                ("turned·power law", &turned, &c.power_law, 0.9),
                ("empty rows·random", &c.empty_rows, &c.random, 0.1),
                ("random·empty rows", &c.random, &c.empty_rows, 0.6),
                ("band·gaps", &c.band, &c.gaps, 0.1),
            ];
            for (name, a, b, most) in table {
                let truth = sparse::product(a, b, Stop::NEVER).stored();
                let found = estimated(&Counts::of(a), &Counts::of(b)).stored();
                let density = |x: &Csr<f64>| x.stored() as f64 / (c.n * c.n) as f64;
                let hit = density(a) * density(b);
                let plain = (c.n * c.n) as f64 * (1.0 - (1.0 - hit).powf(c.n as f64));
                let (mnc, metadata) = (error(found, truth), error(plain, truth));
                println!("{n:5} {name:24} {truth:8} counts {mnc:.4} densities {metadata:.4}");
                assert!(mnc <= most + 1e-9, "{name}: {mnc}");
                assert!(mnc <= metadata + 0.02, "{name}: {mnc}, from densities {metadata}");
            }
        }
    }

    #[test]
    fn sums_and_products_cell_by_cell_are_estimated_no_worse_than_from_densities() {
        let c = cases(400);
        let table: [(&str, &Csr<f64>, &Csr<f64>); 6] = [
            ("random, sparser", &c.random, &c.sparser),
            ("power law, power law", &c.power_law, &c.power_law),
            ("power law, random", &c.power_law, &c.random),
            ("empty rows, random", &c.empty_rows, &c.random),
            ("diagonal, permutation", &c.diagonal, &c.permutation),
            ("gaps, diagonal", &c.gaps, &c.diagonal),
        ];
        let cells = (c.n * c.n) as f64;
        for (name, x, y) in table {
            let (of_x, of_y) = (Counts::of(x), Counts::of(y));
            let (p, q) = (x.stored() as f64 / cells, y.stored() as f64 / cells);
            let sum = sparse::zip(x, y, |x, y| x + y, Stop::NEVER).stored();
            let both = sparse::zip(x, y, |x, y| x * y, Stop::NEVER).stored();
            let found = error(union(&of_x, &of_y).stored(), sum);
            let plain = error((p + q - p * q) * cells, sum);
            println!("{name:24} sum      counts {found:.4} densities {plain:.4}");
            assert!(found <= plain + 0.02, "{name}: {found}, from densities {plain}");
            let found = error(intersection(&of_x, &of_y).stored().max(1.0), both.max(1));
            let plain = error((p * q * cells).max(1.0), both.max(1));
            println!("{name:24} product  counts {found:.4} densities {plain:.4}");
            assert!(found <= plain + 0.3, "{name}: {found}, from densities {plain}");
        }
    }

    #[test]
    fn even_counts_are_estimated_as_from_densities() {
        let (a, b) = (Counts::even(1000.0, 500.0, 20_000.0), Counts::even(500.0, 800.0, 9000.0));
        let hit: f64 = 20_000.0 / 500_000.0 * (9000.0 / 400_000.0);
        let expected = 800_000.0 * (1.0 - (1.0 - hit).powf(500.0));
        assert!((estimated(&a, &b).stored() / expected - 1.0).abs() < 1e-9);
        let (p, q) = (Counts::even(100.0, 100.0, 500.0), Counts::even(100.0, 100.0, 2000.0));
        assert!((intersection(&p, &q).stored() - 100.0).abs() < 1e-6);
        assert!((union(&p, &q).stored() - 2400.0).abs() < 1e-6);
    }
}
