//! Sums of products of many pairs of columns: the cells of a Gram matrix that somebody asks for.

use super::dot::dots;

/// Rows at a time: so many of each column stay in the cache while all pairs read them.
const ROWS: usize = 1024;

/// Adds to each sum the products of a pair of columns, which are equally long, in the order of the rows.
///
/// # Panics
/// Where a pair names no column, or there are fewer sums than pairs.
pub fn add_products(columns: &[&[f64]], pairs: &[(usize, usize)], sums: &mut [f64]) {
    let rows = columns.iter().map(|column| column.len()).min().unwrap_or(0);
    for first in (0..rows).step_by(ROWS) {
        let rows = first..(first + ROWS).min(rows);
        let rows = |column: usize| &columns[column][rows.clone()];
        let mut done = 0;
        for pairs in pairs.chunk_by(|pair, next| pair.0 == next.0) {
            let others = pairs.iter().map(|&(_, y)| rows(y));
            dots(others, rows(pairs[0].0), |at, sum| sums[done + at] += sum);
            done += pairs.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::super::testing::rng;
    use super::*;

    #[test]
    fn every_pair_is_summed_whatever_the_length() {
        let mut rng = rng(3);
        for rows in [0, 1, 31, 1024, 2500] {
            let mut column =
                || (0..rows).map(|_| f64::from(rng.random_range(-9..9))).collect::<Vec<_>>();
            let columns = [column(), column(), column()];
            let pairs = [(0, 0), (2, 1), (1, 2), (0, 2)];
            let mut sums = [1.0; 4];
            add_products(&columns.each_ref().map(Vec::as_slice), &pairs, &mut sums);
            for ((x, y), sum) in pairs.into_iter().zip(sums) {
                let products = columns[x].iter().zip(&columns[y]).map(|(x, y)| x * y);
                assert_eq!(sum, 1.0 + products.sum::<f64>(), "{rows} rows");
            }
        }
    }
}
