//! The rules of algebra, one to a line, in the notation of [`super::notation`].
//!
//! Each is proved by a test that evaluates both sides over random matrices of all shapes that its
//! conditions allow. Algebra is that of finite numbers: where cells are infinite or `NaN`, one side may be
//! `NaN` where the other is not; where what is computed on the way leaves the range of the numbers, `sum(a / 1e10)` of
//! cells near the greatest, or `(1e200 * a) @ b` of the least, one side may be infinite or 0; and a zero may
//! lose its sign. For all others both sides are sums of the same products, rounded in another
//! order: they differ by at most `k·u·S`, where u is the unit of rounding, k the number of roundings
//! along the longest sum, and S the value of the expression with every cell replaced by its magnitude.
//! `inv(a) @ b` as `solve(a, b)` differs by the condition of `a` as well, to the better.
//!
//! What is not here would lose digits or an error: `a @ (b - c)` is never distributed, for a difference of
//! products has not the digits of a product of differences; `inv(inv(a))` is not `a`, for `a` may be
//! singular; `0 * a` is not 0, nor is `0 / a`, so a quotient is not sampled.

use std::sync::LazyLock;

use super::notation::Rule;

/// The rules of [`LINES`], read once.
pub(super) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| read(LINES));

/// The rules of [`SPARSE_DRIVEN`], read once.
pub(super) static SPARSE_DRIVEN_RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| read(SPARSE_DRIVEN));

fn read(lines: &[&'static str]) -> Vec<Rule> {
    lines.iter().flat_map(|line| Rule::read(line)).collect()
}

#[rustfmt::skip]
pub(super) const LINES: &[&str] = &[
    // The order of products, and what they have in common.
    "(a @ b) @ c <=> a @ (b @ c)",
    "a @ b + a @ c => a @ (b + c) where b: n x k, c: n x k",
    "a @ b - a @ c => a @ (b - c) where b: n x k, c: n x k",
    "a @ c + b @ c => (a + b) @ c where a: m x n, b: m x n",
    "a @ c - b @ c => (a - b) @ c where a: m x n, b: m x n",
    "hstack(a, b) @ vstack(c, d) => a @ c + b @ d where a: m x n, c: n x k",
    "vstack(a, b) @ c <=> vstack(a @ c, b @ c) where a: m x n, b: p x n, c: n x k",
    "a @ hstack(b, c) <=> hstack(a @ b, a @ c) where a: m x n, b: n x k, c: n x p",

    // Scales go where they touch the fewest cells.
    "(s * a) @ b <=> s * (a @ b) where s: 1 x 1, a: m x n, b: n x k",
    "a @ (s * b) <=> s * (a @ b) where s: 1 x 1, a: m x n, b: n x k",
    "(a / s) @ b <=> (a @ b) / s where s: 1 x 1, a: m x n, b: n x k",
    "a @ (b / s) <=> (a @ b) / s where s: 1 x 1, a: m x n, b: n x k",
    "(-a) @ b <=> -(a @ b)",
    "a @ (-b) <=> -(a @ b)",
    "(v * a) @ b <=> v * (a @ b) where v: m x 1, a: m x n, b: n x k",
    "a @ (b * r) <=> (a @ b) * r where r: 1 x k, a: m x n, b: n x k",
    "(a * r) @ b <=> a @ (t(r) * b) where r: 1 x n, a: m x n, b: n x k",
    "s * a + s * b => s * (a + b) where s: 1 x 1, a: m x n, b: m x n",
    "s * a - s * b => s * (a - b) where s: 1 x 1, a: m x n, b: m x n",
    "a / s + b / s => (a + b) / s where s: 1 x 1, a: m x n, b: m x n",
    "a + b => b + a",
    "a * b => b * a",
    "-(-a) => a",

    // Transposes: none, or those of the smaller matrices.
    "t(t(a)) => a",
    "t(a) => a where a: symmetric",
    "t(s) => s where s: 1 x 1",
    "t(a @ b) <=> t(b) @ t(a)",
    "t(a + b) <=> t(a) + t(b)",
    "t(a - b) <=> t(a) - t(b)",
    "t(a * b) <=> t(a) * t(b)",
    "t(a / b) <=> t(a) / t(b)",
    "t(-a) <=> -t(a)",
    "t(a) @ a => gram(a)",
    "t(a) @ b => cross(a, b)",
    "a @ t(b) => outer(a, b)",
    "a @ t(a) => gram(t(a))",

    // Of a symmetric product half is enough: t(x) @ (w * x), a @ s @ t(a), s @ s.
    "cross(a, v * a) => half_cross(a, v * a) where v: m x 1, a: m x n",
    "cross(v * a, a) => half_cross(v * a, a) where v: m x 1, a: m x n",
    "cross(a, s @ a) => half_cross(a, s @ a) where s: symmetric",
    "outer(a * r, a) => half_cross(t(a), t(r) * t(a)) where r: 1 x n, a: m x n",
    "outer(a @ s, a) => half_cross(t(a), s @ t(a)) where s: symmetric",
    "s @ s => gram(s) where s: symmetric",

    // Diagonal matrices scale rows and columns.
    "diag(v) @ a => v * a where v: n x 1, a: n x k",
    "diag(r) @ a => t(r) * a where r: 1 x n, a: n x k",
    "a @ diag(v) => a * t(v) where v: n x 1, a: m x n",
    "a @ diag(r) => a * r where r: 1 x n, a: m x n",
    "diag(diag(v)) => v where v: n x 1",
    "diag(a @ b) => row_sums(a * t(b)) where a: n x m, b: m x n",

    // Sums over products and scales need neither.
    "sum(a @ b) => col_sums(a) @ row_sums(b)",
    "col_sums(a @ b) => col_sums(a) @ b",
    "row_sums(a @ b) => a @ row_sums(b)",
    // The mean of no cells is no number, while a product along no cells is 0.
    "mean(a @ b) => col_means(a) @ row_means(b) where a: filled",
    "col_means(a @ b) => col_means(a) @ b where a: filled",
    "row_means(a @ b) => a @ row_means(b) where a: filled",
    "sum(t(a)) => sum(a)",
    "mean(t(a)) => mean(a)",
    "min(t(a)) => min(a)",
    "max(t(a)) => max(a)",
    "row_sums(t(a)) <=> t(col_sums(a))",
    "col_sums(t(a)) <=> t(row_sums(a))",
    "row_means(t(a)) <=> t(col_means(a))",
    "col_means(t(a)) <=> t(row_means(a))",
    "sum(s * a) => s * sum(a) where s: 1 x 1",
    "sum(a / s) => sum(a) / s where s: 1 x 1",
    "sum(-a) => -sum(a)",
    "mean(s * a) => s * mean(a) where s: 1 x 1",
    "mean(a / s) => mean(a) / s where s: 1 x 1",
    "row_sums(v * a) <=> v * row_sums(a) where v: m x 1, a: m x n",
    "col_sums(r * a) <=> r * col_sums(a) where r: 1 x n, a: m x n",
    "row_sums(r * a) => a @ t(r) where r: 1 x n, a: m x n",
    "col_sums(v * a) => cross(v, a) where v: m x 1, a: m x n",
    "row_sums(s * a) <=> s * row_sums(a) where s: 1 x 1",
    "col_sums(s * a) <=> s * col_sums(a) where s: 1 x 1",
    "sum(a + b @ c) => sum(a) + sum(b @ c) where a: m x n, b: m x k, c: k x n",
    "sum(a - b @ c) => sum(a) - sum(b @ c) where a: m x n, b: m x k, c: k x n",
    "sum(b @ c - a) => sum(b @ c) - sum(a) where a: m x n, b: m x k, c: k x n",
    "row_sums(a + b @ c) => row_sums(a) + row_sums(b @ c) where a: m x n, b: m x k, c: k x n",
    "row_sums(a - b @ c) => row_sums(a) - row_sums(b @ c) where a: m x n, b: m x k, c: k x n",
    "col_sums(a + b @ c) => col_sums(a) + col_sums(b @ c) where a: m x n, b: m x k, c: k x n",
    "col_sums(a - b @ c) => col_sums(a) - col_sums(b @ c) where a: m x n, b: m x k, c: k x n",
    "mean(a + b @ c) => mean(a) + mean(b @ c) where a: filled, a: m x n, b: m x k, c: k x n",
    "mean(a - b @ c) => mean(a) - mean(b @ c) where a: filled, a: m x n, b: m x k, c: k x n",
    // Mean and squares about it are of one reading.
    "mean((a - mean(a)) ^ 2) => var_pop(a)",
    "row_means((a - row_means(a)) ^ 2) => row_vars_pop(a)",
    "col_means((a - col_means(a)) ^ 2) => col_vars_pop(a)",
    // A sum of one cell is that cell.
    "sum(s) => s where s: 1 x 1",
    "row_sums(v) => v where v: m x 1",
    "col_sums(r) => r where r: 1 x n",
    "mean(s) => s where s: 1 x 1",
    "row_means(v) => v where v: m x 1",
    "col_means(r) => r where r: 1 x n",
    "sum(row_sums(a)) => sum(a)",
    "sum(col_sums(a)) => sum(a)",
    "sum(diag(v)) => sum(v) where v: n x 1",

    // Traces look at the diagonal alone.
    "trace(a @ b) => sum(a * t(b)) where a: m x n, b: n x m",
    "trace(t(a)) => trace(a)",
    "trace(a + b) => trace(a) + trace(b) where a: n x n, b: n x n",
    "trace(a - b) => trace(a) - trace(b) where a: n x n, b: n x n",
    "trace(s * a) => s * trace(a) where s: 1 x 1",
    "trace(gram(a)) => sum(a * a)",
    "trace(diag(v)) => sum(v) where v: n x 1",

    // A system is solved for no more columns than are asked for.
    "inv(a) @ b => solve(a, b)",
    "b @ inv(a) => t(solve(t(a), t(b)))",
    "solve(a, b) @ c <=> solve(a, b @ c)",
    "solve(a, s * b) <=> s * solve(a, b) where s: 1 x 1, a: n x n, b: n x k",
    "inv(t(a)) <=> t(inv(a))",
    "det(t(a)) => det(a)",

    // A triangle is its own factor.
    "solve(a, b) => solve_lower(a, b) where a: lower",
    "solve(a, b) => solve_upper(a, b) where a: upper",
    "inv(a) => inv_lower(a) where a: lower",
    "inv(a) => inv_upper(a) where a: upper",
    "det(a) => det_lower(a) where a: lower",
    "det(a) => det_upper(a) where a: upper",

    // What changes nothing.
    "e @ a => a where e: identity",
    "a @ e => a where e: identity",
    "a + z => a where z: zero, z: m x n, a: m x n",
    "a - z => a where z: zero, z: m x n, a: m x n",
    "a * 1 => a",
    "a / 1 => a",
    "a ^ 1 => a",
    "a + 0 => a",
    "a - 0 => a",
];

/// Where a sparse matrix stores nothing, nothing is computed that it is multiplied by. Functions of cells are in
/// [`super::sampling`].
pub(super) const SPARSE_DRIVEN: &[&str] = &[
    "m * (a @ b) => sampled(m, a, t(b)) where m: sparse, m: p x k, a: p x n, b: n x k",
    "w * a => w * ((w <> 0) * a) where w: weights, w: m x n, a: m x n",
    "m * (m * a) => m * a where m: mask",
    "(w <> 0) * w => w",
];
