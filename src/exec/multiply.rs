//! By which algorithm a dense product is made, by what each is expected to take.
//!
//! The planner asks with the sizes that it knows or guesses, and shows the answer; a run asks again with those
//! that turned out, by the same rates, so the two differ only where the planner had to guess.

use std::fmt;

use super::kernels::strassen;

/// Levels of Strassen's method at most: with each the error bound grows by 18 / 4.
const LEVELS_MAX: usize = 3;

/// Side below which nobody asks: the sums cost more than they save on any machine, and planning asks often.
const SIDE_MIN: f64 = 512.0;

/// Share of the time that the first level must save to be worth its weaker error bound, and that each further one
/// must: those evict from the cache what the others are about to read (4096 a side, measured: 5 to 7 % saved by
/// one level, 3 % by two).
const GAIN_MIN: [f64; 2] = [0.03, 0.07];

/// What the machine can do, for one type of cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    pub(crate) flops_per_second: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) cell_bytes: f64,
    /// Working memory that Strassen's method may take; zero where it must not be used.
    pub(crate) spare_bytes_max: f64,
}

/// One way to make a product, and what it is expected to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Algorithm {
    /// Of Strassen's method; zero is the classical product.
    pub(crate) levels: usize,
    pub(crate) seconds: f64,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.levels {
            0 => f.write_str("classical"),
            1 => f.write_str("strassen 1 level"),
            levels => write!(f, "strassen {levels} levels"),
        }
    }
}

/// Share of its time by which the next best algorithm may be slower and still be worth mentioning.
const CLOSE: f64 = 0.1;

/// Whether there is more than one algorithm to speak of.
pub(crate) fn is_a_choice([best, next]: [Algorithm; 2]) -> bool {
    best.levels > 0 || (next.levels > 0 && next.seconds <= best.seconds * (1.0 + CLOSE))
}

impl Rates {
    /// The best algorithm for a product of m×k by k×n, and the best of the other kind; for its tiles where it will be
    /// made by tiles.
    pub(crate) fn choice(&self, whole: [f64; 3]) -> [Algorithm; 2] {
        let sides = self.tile(whole);
        let tiles =
            whole.iter().zip(sides).map(|(whole, side)| whole / side.max(1.0)).product::<f64>();
        let tiles = tiles.max(1.0);
        let of = |levels| Algorithm { levels, seconds: tiles * self.seconds(sides, levels) };
        let classical = of(0);
        let is_small = sides.iter().any(|&side| side < SIDE_MIN);
        if is_small || self.spare_bytes_max <= 0.0 {
            return [classical; 2];
        }
        let all: [Algorithm; LEVELS_MAX + 1] = std::array::from_fn(of);
        let is_worth_it = |pair: &[Algorithm]| {
            let spare = strassen::spare_cells(sides.map(|side| side as usize), pair[1].levels);
            1.0 - pair[1].seconds / pair[0].seconds > GAIN_MIN[usize::from(pair[0].levels > 0)]
                && spare as f64 * self.cell_bytes <= self.spare_bytes_max
        };
        let levels = all.windows(2).take_while(|pair| is_worth_it(pair)).count();
        // One level more or less is hardly another algorithm.
        let other = if levels > 0 { 0 } else { 1 };
        [all[levels], all[other]]
    }

    /// Levels of Strassen's method for a product of these sides.
    pub(crate) fn levels(&self, sides: [usize; 3]) -> usize {
        self.choice(sides.map(|side| side as f64))[0].levels
    }

    /// Sides of what a product is made of: of tiles that fill half of the memory limit where factors and result pass
    /// it, of which working memory may take a quarter.
    fn tile(&self, sides @ [m, k, n]: [f64; 3]) -> [f64; 3] {
        let limit_bytes = 4.0 * self.spare_bytes_max;
        if limit_bytes <= 0.0 || (m * k + k * n + m * n) * self.cell_bytes <= limit_bytes {
            return sides;
        }
        let side = (limit_bytes / 2.0 / 3.0 / self.cell_bytes).sqrt().floor();
        sides.map(|whole| whole.min(side))
    }

    fn seconds(&self, [m, k, n]: [f64; 3], levels: usize) -> f64 {
        let moved = |cells: f64| cells * self.cell_bytes / self.bytes_per_second;
        if levels == 0 {
            let arithmetic = 2.0 * m * k * n / self.flops_per_second;
            return arithmetic.max(moved(m * k + k * n + m * n));
        }
        let half = [m / 2.0, k / 2.0, n / 2.0];
        let added = if levels > 1 { 3.0 } else { 1.0 } * moved(half[0] * half[2]);
        // Four sums of quadrants of each factor read two and write one; four products are joined, three added.
        let sums = moved(3.0 * m * k + 3.0 * k * n + 7.0 / 4.0 * m * n);
        7.0 * self.seconds(half, levels - 1) + 3.0 * added + sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates {
        flops_per_second: 2e11,
        bytes_per_second: 4e10,
        cell_bytes: 8.0,
        spare_bytes_max: f64::MAX,
    };

    #[test]
    fn large_products_take_strassens_method_and_others_do_not() {
        let levels = |side: usize| RATES.levels([side; 3]);
        assert_eq!([10, 500, 1000].map(levels), [0; 3]);
        assert_eq!(levels(4096), 1);
        assert!(levels(20_000) >= 2);
        assert_eq!(RATES.levels([1_000_000, 100, 100]), 0);
        assert_eq!(RATES.levels([0, 5000, 5000]), 0);
        for spare_bytes_max in [0.0, 1e6] {
            assert_eq!(Rates { spare_bytes_max, ..RATES }.levels([10_000; 3]), 0);
        }
        // What will be made by tiles: as they are.
        let by_tiles = Rates { spare_bytes_max: 400e6, ..RATES };
        assert_eq!(by_tiles.levels([20_000; 3]), by_tiles.levels([5_700; 3]));
        assert!(by_tiles.levels([20_000; 3]) > 0);
        let [tiled, whole] = [by_tiles, RATES].map(|rates| rates.choice([20_000.0; 3])[0].seconds);
        assert!(whole < tiled && tiled < 1.3 * whole, "{tiled} {whole}");
    }

    #[test]
    fn the_choice_is_the_cheapest_and_the_runner_up_of_the_other_kind() {
        for side in [600.0, 1500.0, 3000.0, 10_000.0, 50_000.0] {
            let [best, next] = RATES.choice([side; 3]);
            assert!(best.seconds * (1.0 - GAIN_MIN[0]) <= next.seconds, "{side}");
            assert!((best.levels == 0) != (next.levels == 0));
        }
    }
}
