//! A linear model from sums of products about the means.
//!
//! With column 0 the dependent variable y and the others x, let `s = Σ (x-x̄)(x-x̄)ᵗ`, which the ridge is
//! added to the diagonal of, and `c = Σ (x-x̄)(y-ȳ)`. The coefficients solve `s·b = c`; the intercept is
//! `ȳ - x̄ᵗb`, and nothing shrinks it.
//!
//! s is scaled to a diagonal of ones, as correlations are, and factored by Cholesky with the largest
//! pivot first. A pivot is 1 - R² of its column from those before it: where that falls below 10⁻¹², the
//! columns that are left are combinations of the others, and of the many solutions the one of least norm
//! is taken, as `lstsq` does.
//!
//! Source: Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., §10.3 and §20.4; Seber and
//! Lee, *Linear Regression Analysis*, 2nd ed., §3.3 and §11.

use crate::exec::kernels::moments::Moments;

/// The least 1 - R² of a column from other columns with which it still counts as a column of its own.
const TOLERANCE: f64 = 1e-12;

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fit {
    pub(super) intercept: f64,
    pub(super) coefficients: Vec<f64>,
    pub(super) errors: Option<StandardErrors>,
    /// The share of the variance of y that is explained: 1 where y does not vary, `None` where x does not.
    pub(super) r2: Option<f64>,
}

/// The standard errors of the estimates.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StandardErrors {
    pub(super) intercept: f64,
    pub(super) coefficients: Vec<f64>,
}

/// Fits column 0 to the others.
///
/// There are no standard errors where the model is not determined (rows are no more than parameters, or a
/// column is a combination of others), nor with a ridge, which makes estimates biased.
pub(super) fn fit(sums: Moments<'_>, ridge: f64) -> Fit {
    let count = sums.columns() - 1;
    let factor = Factor::of(sums, ridge);
    let Some(factor) = factor else {
        return Fit {
            intercept: f64::NAN,
            coefficients: vec![f64::NAN; count],
            errors: None,
            r2: Some(f64::NAN),
        };
    };
    let coefficients = factor.solution(|j| sums.product(j + 1, 0));
    let explained: f64 = (0..count).map(|j| sums.mean(j + 1) * coefficients[j]).sum();
    let residual = residual(sums, &coefficients);
    let freedom = sums.rows().saturating_sub(count as u64 + 1);
    let is_determined = ridge == 0.0 && factor.rank() == count && freedom > 0;
    let errors = is_determined.then(|| factor.errors(sums, residual / freedom as f64));
    let total = sums.product(0, 0);
    let r2 = if total == 0.0 { 1.0 } else { 1.0 - residual / total };
    Fit {
        intercept: sums.mean(0) - explained,
        coefficients,
        errors,
        r2: (factor.rank() > 0).then_some(r2),
    }
}

/// `Σ (y - ŷ)²`, which rounding must not make negative.
fn residual(sums: Moments<'_>, b: &[f64]) -> f64 {
    let mut residual = sums.product(0, 0);
    for i in 0..b.len() {
        let fitted: f64 = (0..b.len()).map(|j| sums.product(i + 1, j + 1) * b[j]).sum();
        residual += b[i] * (fitted - 2.0 * sums.product(i + 1, 0));
    }
    residual.max(0.0)
}

/// The Cholesky factor of s, scaled and permuted.
struct Factor {
    /// Square root of each column's sum of squares, 0 of one that does not vary.
    scales: Vec<f64>,
    /// The columns in the order of their pivots.
    order: Vec<usize>,
    /// For each pivot the column of l; entries are by place in `order`, zeros above the pivot.
    columns: Vec<Vec<f64>>,
}

impl Factor {
    /// `None` where a sum is not finite.
    fn of(sums: Moments<'_>, ridge: f64) -> Option<Self> {
        let count = sums.columns() - 1;
        let square = |j: usize| sums.product(j + 1, j + 1) + ridge;
        let scales: Vec<f64> = (0..count).map(|j| square(j).sqrt()).collect();
        let is_finite = |i: usize| (0..=i).all(|j| sums.product(i, j).is_finite());
        if !(0..=count).all(is_finite) {
            return None;
        }
        let entry = |i: usize, j: usize| {
            let product = if i == j { square(i) } else { sums.product(i + 1, j + 1) };
            product / (scales[i] * scales[j])
        };
        let mut left: Vec<f64> =
            scales.iter().map(|scale| if *scale > 0.0 { 1.0 } else { 0.0 }).collect();
        let mut order: Vec<usize> = (0..count).collect();
        let mut columns: Vec<Vec<f64>> = Vec::new();
        for k in 0..count {
            let largest = |best: usize, at: usize| if left[at] > left[best] { at } else { best };
            let pivot = (k..count).fold(k, largest);
            if left[pivot] <= TOLERANCE {
                break;
            }
            order.swap(k, pivot);
            left.swap(k, pivot);
            columns.iter_mut().for_each(|column| column.swap(k, pivot));
            let root = left[k].sqrt();
            let mut column = vec![0.0; count];
            column[k] = root;
            for i in k + 1..count {
                if left[i] == 0.0 {
                    continue;
                }
                let known: f64 = columns.iter().map(|column| column[i] * column[k]).sum();
                column[i] = (entry(order[i], order[k]) - known) / root;
                left[i] = (left[i] - column[i] * column[i]).max(0.0);
            }
            columns.push(column);
        }
        Some(Self { scales, order, columns })
    }

    fn rank(&self) -> usize {
        self.columns.len()
    }

    /// The solution of `s·b = c`, of several the one of least norm.
    fn solution(&self, c: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut z = self.forward(c);
        for k in (0..self.rank()).rev() {
            let known: f64 = (k + 1..self.rank()).map(|i| self.columns[k][i] * z[i]).sum();
            z[k] = (z[k] - known) / self.columns[k][k];
        }
        let mut b = vec![0.0; self.order.len()];
        for (z, &j) in z.iter().zip(&self.order) {
            b[j] = z / self.scales[j];
        }
        if self.rank() < b.len() { self.projected(&b) } else { b }
    }

    /// Solves `l·z = c` for the scaled c.
    fn forward(&self, c: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut z: Vec<f64> = Vec::with_capacity(self.rank());
        for k in 0..self.rank() {
            let j = self.order[k];
            let known: f64 = (0..k).map(|i| self.columns[i][k] * z[i]).sum();
            z.push((c(j) / self.scales[j] - known) / self.columns[k][k]);
        }
        z
    }

    /// The part of a solution that lies in the range of s, which all solutions have in common: the range
    /// is that of the factor's columns, orthogonalized twice over.
    fn projected(&self, b: &[f64]) -> Vec<f64> {
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let subtract = |x: &mut [f64], factor: f64, y: &[f64]| {
            x.iter_mut().zip(y).for_each(|(x, y)| *x -= factor * y);
        };
        let mut basis: Vec<Vec<f64>> = Vec::with_capacity(self.rank());
        for column in &self.columns {
            let mut vector = vec![0.0; b.len()];
            for (entry, &j) in column.iter().zip(&self.order) {
                vector[j] = entry * self.scales[j];
            }
            for earlier in basis.iter().chain(&basis) {
                let along = dot(earlier, &vector);
                subtract(&mut vector, along, earlier);
            }
            let length = dot(&vector, &vector).sqrt();
            vector.iter_mut().for_each(|x| *x /= length);
            basis.push(vector);
        }
        let mut projected = vec![0.0; b.len()];
        for vector in &basis {
            subtract(&mut projected, -dot(vector, b), vector);
        }
        projected
    }

    /// The roots of the diagonal of `variance·s⁻¹`, and that of the intercept's variance, which is
    /// `variance·(1/Σw + x̄ᵗ·s⁻¹·x̄)`. The rank is full.
    fn errors(&self, sums: Moments<'_>, variance: f64) -> StandardErrors {
        let squares = |z: Vec<f64>| z.into_iter().map(|z| z * z).sum::<f64>();
        let of = |column: usize| squares(self.forward(|j| if j == column { 1.0 } else { 0.0 }));
        let mean = 1.0 / sums.weight() + squares(self.forward(|j| sums.mean(j + 1)));
        StandardErrors {
            intercept: (variance * mean).sqrt(),
            coefficients: (0..self.rank()).map(|j| (variance * of(j)).sqrt()).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
