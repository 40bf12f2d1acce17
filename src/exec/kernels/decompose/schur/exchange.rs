//! Neighbouring blocks on the diagonal of a quasi-triangular matrix change places.
//!
//! ```text
//! | a c |      a·x - x·b = c       | -x |        | b *  |
//! | 0 b |                          |  1 | = q·r  | 0 a' | = t(q)·(…)·q,   alike to a and b
//! ```
//!
//! Source: Bai and Demmel, *On swapping diagonal blocks in real Schur form*, Linear Algebra Appl. 186
//! (1993), 73–95.

use faer::{MatMut, MatRef};

use super::super::super::Real;
use super::window::Window;

/// Up to two rows beside two others.
type Small = [[f64; 4]; 4];

impl<T: Real> Window<T> {
    /// How many rows the block has that begins, or ends, with this row.
    fn block_rows(&self, i: usize) -> usize {
        let inside = |row: usize| row > 0 && row < self.side && self.cell(row, row - 1) != T::ZERO;
        if inside(i) || inside(i + 1) { 2 } else { 1 }
    }

    /// Moves the block at row `from` up to row `to`, past one block after the other; whether it arrived.
    pub(super) fn move_up(&mut self, mut from: usize, to: usize) -> bool {
        let rows = self.block_rows(from);
        while from > to {
            let above = self.block_rows(from - 1);
            if !self.exchange(from - above, above, rows) {
                return false;
            }
            from -= above;
        }
        true
    }

    /// Exchanges a block of `p` rows from row `i` on with one of `q` rows behind it. Leaves them where that would
    /// change them, as they are too much alike; whether it was done.
    fn exchange(&mut self, i: usize, p: usize, q: usize) -> bool {
        let k = p + q;
        let mut d = [[0.0; 4]; 4];
        for (row, cells) in d.iter_mut().enumerate().take(k) {
            for (column, cell) in cells.iter_mut().enumerate().take(k) {
                *cell = self.cell(i + row, i + column).to_f64();
            }
        }
        let largest = d.iter().flatten().fold(0.0f64, |most, x| most.max(x.abs()));
        let turn = turn(&d, p, q, largest);
        let mut exchanged = product(&transposed(&turn), &product(&d, &turn));
        let left = (q..k).flat_map(|row| (0..q).map(move |column| (row, column)));
        for (row, column) in left {
            if exchanged[row][column].abs() > 10.0 * T::EPSILON.to_f64() * largest {
                return false;
            }
            exchanged[row][column] = 0.0;
        }
        self.turn_rows(i, k, &turn);
        for (row, cells) in exchanged.iter().enumerate().take(k) {
            for (column, &cell) in cells.iter().enumerate().take(k) {
                *self.cell_mut(i + row, i + column) = T::from_f64(cell);
            }
        }
        if q == 2 {
            self.standardize(i);
        }
        if p == 2 {
            self.standardize(i + q);
        }
        true
    }

    /// `t(turn)·h·turn` of `k` rows and columns from `i` on, and `u·turn`.
    fn turn_rows(&mut self, i: usize, k: usize, turn: &Small) {
        let side = self.side;
        let turn = turn.map(|row| row.map(T::from_f64));
        for column in self.h[i * side..].chunks_exact_mut(side) {
            let cells = &mut column[i..i + k];
            let mut old = [T::ZERO; 4];
            old[..k].copy_from_slice(cells);
            for (at, cell) in cells.iter_mut().enumerate() {
                *cell = (0..k).fold(T::ZERO, |sum, from| sum + turn[from][at] * old[from]);
            }
        }
        for (cells, rows) in [(&mut self.h, i), (&mut self.u, side)] {
            for row in 0..rows {
                let mut old = [T::ZERO; 4];
                for (at, old) in old.iter_mut().enumerate().take(k) {
                    *old = cells[(i + at) * side + row];
                }
                for at in 0..k {
                    let sum = (0..k).fold(T::ZERO, |sum, from| sum + old[from] * turn[from][at]);
                    cells[(i + at) * side + row] = sum;
                }
            }
        }
    }
}

/// The orthogonal matrix whose first `q` columns span what belongs to the second block.
fn turn(d: &Small, p: usize, q: usize, largest: f64) -> Small {
    let x = sylvester(d, p, q, f64::EPSILON * largest);
    let mut columns = [[0.0; 4]; 4];
    for (k, column) in columns.iter_mut().enumerate().take(q) {
        (0..p).for_each(|row| column[row] = -x[row][k]);
        column[p + k] = 1.0;
    }
    orthogonal(columns, p + q, q)
}

/// The `x` of `a·x - x·b = c`, its rows those of the first block; pivots are not below `least`.
fn sylvester(d: &Small, p: usize, q: usize, least: f64) -> Small {
    let unknowns = p * q;
    // One row for each cell of c, which stands last in it.
    let mut system = [[0.0; 5]; 4];
    for row in 0..p {
        for column in 0..q {
            let equation = &mut system[row * q + column];
            for k in 0..p {
                equation[k * q + column] += d[row][k];
            }
            for k in 0..q {
                equation[row * q + k] -= d[p + k][p + column];
            }
            equation[4] = d[row][p + column];
        }
    }
    let mut places = [0, 1, 2, 3];
    for step in 0..unknowns {
        let candidates = (step..unknowns).flat_map(|i| (step..unknowns).map(move |j| (i, j)));
        let (i, j) = candidates.fold((step, step), |best, at| {
            let is_larger = system[at.0][at.1].abs() > system[best.0][best.1].abs();
            if is_larger { at } else { best }
        });
        system.swap(step, i);
        system.iter_mut().for_each(|equation| equation.swap(step, j));
        places.swap(step, j);
        if system[step][step].abs() <= least {
            system[step][step] = least.max(f64::MIN_POSITIVE);
        }
        let (done, rest) = system.split_at_mut(step + 1);
        let pivot = &done[step];
        for equation in rest {
            let factor = equation[step] / pivot[step];
            equation.iter_mut().zip(pivot).skip(step).for_each(|(x, y)| *x -= factor * y);
        }
    }
    let mut x = [[0.0; 4]; 4];
    for step in (0..unknowns).rev() {
        let known: f64 =
            (step + 1..unknowns).map(|k| system[step][k] * x[places[k] / q][places[k] % q]).sum();
        let value = (system[step][4] - known) / system[step][step];
        x[places[step] / q][places[step] % q] = value;
    }
    x
}

/// `x` of `a·x + x·b = c`, in place of `c`, each of one row or two.
pub(crate) fn solve_sylvester<T: Real>(a: MatRef<'_, T>, b: MatRef<'_, T>, mut c: MatMut<'_, T>) {
    let (p, q) = (a.nrows(), b.nrows());
    let mut d = [[0.0; 4]; 4];
    for row in 0..p {
        (0..p).for_each(|column| d[row][column] = a[(row, column)].to_f64());
        (0..q).for_each(|column| d[row][p + column] = c[(row, column)].to_f64());
    }
    for row in 0..q {
        (0..q).for_each(|column| d[p + row][p + column] = -b[(row, column)].to_f64());
    }
    let x = sylvester(&d, p, q, 0.0);
    for (row, x) in x.iter().enumerate().take(p) {
        (0..q).for_each(|column| c[(row, column)] = T::from_f64(x[column]));
    }
}

/// The orthogonal factor, k×k, of these `q` columns, by rows.
fn orthogonal(mut columns: Small, k: usize, q: usize) -> Small {
    let mut factor = [[0.0; 4]; 4];
    (0..4).for_each(|i| factor[i][i] = 1.0);
    for step in 0..q {
        let mut v = [0.0; 4];
        v[step..k].copy_from_slice(&columns[step][step..k]);
        let norm = v.iter().fold(0.0, |norm: f64, x| norm.hypot(*x));
        v[step] += norm.copysign(v[step]);
        let length = v.iter().fold(0.0, |norm: f64, x| norm.hypot(*x));
        v.iter_mut().for_each(|x| *x /= length);
        for x in columns.iter_mut().chain(&mut factor) {
            let along: f64 = v.iter().zip(&*x).map(|(v, x)| v * x).sum();
            x.iter_mut().zip(v).for_each(|(x, v)| *x -= 2.0 * along * v);
        }
    }
    factor
}

fn product(x: &Small, y: &Small) -> Small {
    std::array::from_fn(|i| std::array::from_fn(|j| (0..4).map(|k| x[i][k] * y[k][j]).sum()))
}

fn transposed(x: &Small) -> Small {
    std::array::from_fn(|i| std::array::from_fn(|j| x[j][i]))
}
