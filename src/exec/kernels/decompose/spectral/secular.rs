//! The roots of the secular equation, `1 + Σ zᵢ²/(pᵢ - λ) = 0`, and the vectors that belong to
//! them.
//!
//! There is one root above each pole, below the next. It is kept as its distance from the nearer of
//! the two, so that its distance from every pole has all its digits. Each step solves the equation
//! with the sums of the poles on either side replaced by one pole that agrees in value and slope; a
//! step that leaves the interval known to hold the root halves that.
//!
//! The vectors are those of the z for which the roots found are exact: so they are orthogonal to
//! working precision however close the roots are.
//!
//! With `SQUARED`, poles and roots are given by their square roots, as singular values: differences
//! of squares are then products of a sum and a difference. All is in `f64`, whatever the cells are.
//!
//! Source: Gu and Eisenstat, *A stable and efficient algorithm for the rank-one modification of the
//! symmetric eigenproblem*, 1994, and *A divide-and-conquer algorithm for the bidiagonal SVD*,
//! 1995; Li, *Solving secular equations stably and efficiently*, LAPACK Working Note 89.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::super::super::Stop;
use super::super::super::arch::Arch;

/// The poles, ascending and apart, and the z beside them, none of them zero.
pub(super) struct Secular<'a, const SQUARED: bool> {
    /// What the loops over poles run with.
    pub(super) arch: Arch,
    pub(super) poles: &'a [f64],
    pub(super) z: &'a [f64],
}

/// A root: the pole it is nearest to, and how far above.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Root {
    pub(super) pole: f64,
    pub(super) shift: f64,
}

impl Root {
    pub(super) fn value(self) -> f64 {
        self.pole + self.shift
    }

    /// `p - λ`, or of their squares.
    #[inline(always)]
    fn below<const SQUARED: bool>(self, pole: f64) -> f64 {
        let difference = (pole - self.pole) - self.shift;
        if SQUARED { difference * ((pole + self.pole) + self.shift) } else { difference }
    }

    /// The root that is `distance` above a pole, in squares if squared.
    fn above<const SQUARED: bool>(pole: f64, distance: f64) -> Self {
        let sum = pole + (pole * pole + distance).max(0.0).sqrt();
        Self { pole, shift: if SQUARED { distance / sum } else { distance } }
    }
}

impl<const SQUARED: bool> Secular<'_, SQUARED> {
    /// All roots, ascending.
    pub(super) fn roots(&self, stop: Stop<'_>) -> Vec<Root> {
        let mut roots = vec![Root::default(); self.poles.len()];
        in_parallel(&mut roots, 1, stop, |j, root| root[0] = self.root(j));
        roots
    }

    /// The root above pole `j`.
    fn root(&self, j: usize) -> Root {
        // Some five do.
        const STEPS_MAX: usize = 100;
        if let (&[pole], &[z]) = (self.poles, self.z) {
            return Root { pole, shift: if SQUARED { z.abs() } else { z * z } };
        }
        let (origin, mut low, mut high) = self.interval(j);
        let mut x = if low < 0.0 { low } else { high };
        let mut root = Root::above::<SQUARED>(origin, x);
        let mut before = f64::INFINITY;
        for step in 0..STEPS_MAX {
            let sums = self.sums(j, root);
            let value = sums.value();
            if value.abs() <= 4.0 * f64::EPSILON * (1.0 - sums.left + sums.right) {
                break;
            }
            if value < 0.0 {
                low = x;
            } else {
                high = x;
            }
            let model = if step == 0 {
                Model::Weights
            } else if value.abs() > 0.1 * before {
                Model::Slopes
            } else {
                Model::WeightAndSlope
            };
            let mut next = x + self.step(j, root, &sums, model);
            let is_slow = step > 8 && value.abs() > 0.5 * before;
            if is_slow || !(low < next && next < high) {
                next = halfway(low, high);
            }
            if next == x || !(low < next && next < high) {
                break;
            }
            (x, before) = (next, value.abs());
            root = Root::above::<SQUARED>(origin, x);
        }
        root
    }

    /// The pole that the root above pole `j` is nearer to, and how far from it the root lies, at
    /// least and at most: the end that is not zero is halfway between two poles, or beyond the last
    /// root.
    fn interval(&self, j: usize) -> (f64, f64, f64) {
        let pole = self.poles[j];
        let Some(&next) = self.poles.get(j + 1) else {
            return (pole, 0.0, self.z.iter().map(|z| z * z).sum());
        };
        let middle = Root { pole, shift: 0.0 }.below::<SQUARED>(next) / 2.0;
        let sums = self.sums(j, Root::above::<SQUARED>(pole, middle));
        if sums.value() < 0.0 { (next, -middle, 0.0) } else { (pole, 0.0, middle) }
    }

    /// How far it is to the root of `rest + a/(p - λ) + b/(q - λ)`, which agrees with the equation
    /// at `root`, for the poles p and q on either side; above the last pole without q.
    fn step(&self, j: usize, root: Root, sums: &Sums, model: Model) -> f64 {
        let value = sums.value();
        let slope = sums.left_slope + sums.right_slope;
        let p = root.below::<SQUARED>(self.poles[j]);
        let Some(&next) = self.poles.get(j + 1) else {
            let a = slope * p * p;
            return p + a / (value - a / p);
        };
        let q = root.below::<SQUARED>(next);
        let (own_a, own_b) = (self.z[j] * self.z[j], self.z[j + 1] * self.z[j + 1]);
        let (a, b) = match model {
            Model::Weights => (own_a, own_b),
            Model::Slopes => (sums.left_slope * p * p, sums.right_slope * q * q),
            Model::WeightAndSlope if root.pole == next => {
                ((slope - own_b / (q * q)) * p * p, own_b)
            }
            Model::WeightAndSlope => (own_a, (slope - own_a / (p * p)) * q * q),
        };
        let rest = value - a / p - b / q;
        let linear = rest * (p + q) + a + b;
        let constant = value * p * q;
        let root = (linear * linear - 4.0 * rest * constant).abs().sqrt();
        if linear <= 0.0 {
            (linear - root) / (2.0 * rest)
        } else {
            2.0 * constant / (linear + root)
        }
    }

    /// The sums over the poles up to `j`, and over those above.
    fn sums(&self, j: usize, root: Root) -> Sums {
        let part = |poles, z| self.arch.dispatch(Terms::<SQUARED> { poles, z, root });
        let (left, left_slope) = part(&self.poles[..=j], &self.z[..=j]);
        let (right, right_slope) = part(&self.poles[j + 1..], &self.z[j + 1..]);
        Sums { left, right, left_slope, right_slope }
    }

    /// The z, with these signs, of which `roots` are the exact roots.
    pub(super) fn exact_z(&self, roots: &[Root], stop: Stop<'_>) -> Vec<f64> {
        let mut z = self.z.to_vec();
        let bases: Vec<f64> = roots.iter().map(|root| root.pole).collect();
        let shifts: Vec<f64> = roots.iter().map(|root| root.shift).collect();
        in_parallel(&mut z, 1, stop, |i, z| {
            let (k, pole) = (roots.len(), self.poles[i]);
            let part = |range: std::ops::Range<usize>, from: usize| Ratios::<SQUARED> {
                pole,
                bases: &bases[range.clone()],
                shifts: &shifts[range.clone()],
                poles: &self.poles[from..from + range.len()],
            };
            let below = self.arch.dispatch(part(0..i, 0));
            let above = self.arch.dispatch(part(i..k - 1, i + 1));
            let last = -roots[k - 1].below::<SQUARED>(pole);
            z[0] = (last.abs() * below * above).abs().sqrt().copysign(z[0]);
        });
        z
    }

    /// `zᵢ/(pᵢ - λ)`, in place of what `terms` held.
    pub(super) fn vector(&self, z: &[f64], root: Root, terms: &mut [f64]) {
        if let [z] = z {
            terms[0] = -1f64.copysign(*z);
            return;
        }
        self.arch.dispatch(Vector::<SQUARED> { poles: self.poles, z, root, terms });
    }
}

/// Runs over chunks of some cells, in parallel, unless asked to stop.
pub(super) fn in_parallel<T: Send>(
    cells: &mut [T],
    chunk: usize,
    stop: Stop<'_>,
    run: impl Fn(usize, &mut [T]) + Sync,
) {
    let tasks = cells.par_chunks_mut(chunk).enumerate().with_min_len(16);
    tasks.for_each(|(i, cells)| {
        if !stop.is_asked() {
            run(i, cells);
        }
    });
}

/// Between two distances of the same sign, or zero, by their sizes rather than by their difference.
fn halfway(low: f64, high: f64) -> f64 {
    let small = low.abs().min(high.abs());
    let large = low.abs().max(high.abs());
    let small = small.max(large * 1e-20);
    if large > 4.0 * small {
        (small.sqrt() * large.sqrt()).copysign(low + high)
    } else {
        low + (high - low) / 2.0
    }
}

/// What the two poles of a step are given.
enum Model {
    /// Their own z², the rest of the sum a constant.
    Weights,
    /// The nearer its own z², the other what makes the slope right: converges fastest.
    WeightAndSlope,
    /// Each what makes the slope of its side right: for when the other does not.
    Slopes,
}

/// The two sides of the equation at one place, and their slopes.
struct Sums {
    left: f64,
    right: f64,
    left_slope: f64,
    right_slope: f64,
}

impl Sums {
    fn value(&self) -> f64 {
        1.0 + self.left + self.right
    }
}

const LANES: usize = 8;

/// `Σ z²/(p - λ)` and `Σ z²/(p - λ)²`.
struct Terms<'a, const SQUARED: bool> {
    poles: &'a [f64],
    z: &'a [f64],
    root: Root,
}

impl<const SQUARED: bool> WithSimd for Terms<'_, SQUARED> {
    type Output = (f64, f64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> (f64, f64) {
        let Self { poles, z, root } = self;
        let (mut sum, mut slope) = ([0.0; LANES], [0.0; LANES]);
        let (poles, last_poles) = poles.as_chunks::<LANES>();
        let (z, last_z) = z.as_chunks::<LANES>();
        for (poles, z) in poles.iter().zip(z) {
            for l in 0..LANES {
                let ratio = z[l] / root.below::<SQUARED>(poles[l]);
                sum[l] += z[l] * ratio;
                slope[l] += ratio * ratio;
            }
        }
        for (l, (pole, z)) in last_poles.iter().zip(last_z).enumerate() {
            let ratio = z / root.below::<SQUARED>(*pole);
            sum[l] += z * ratio;
            slope[l] += ratio * ratio;
        }
        (sum.iter().sum(), slope.iter().sum())
    }
}

/// `Π (λⱼ - p)/(pⱼ - p)`.
struct Ratios<'a, const SQUARED: bool> {
    pole: f64,
    bases: &'a [f64],
    shifts: &'a [f64],
    poles: &'a [f64],
}

impl<const SQUARED: bool> WithSimd for Ratios<'_, SQUARED> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let Self { pole, bases, shifts, poles } = self;
        let mut product = [1.0; LANES];
        let (bases, last_bases) = bases.as_chunks::<LANES>();
        let (shifts, last_shifts) = shifts.as_chunks::<LANES>();
        let (poles, last_poles) = poles.as_chunks::<LANES>();
        for ((bases, shifts), poles) in bases.iter().zip(shifts).zip(poles) {
            for l in 0..LANES {
                let other = Root { pole: poles[l], shift: 0.0 };
                let root = Root { pole: bases[l], shift: shifts[l] };
                product[l] *= root.below::<SQUARED>(pole) / other.below::<SQUARED>(pole);
            }
        }
        for l in 0..last_poles.len() {
            let other = Root { pole: last_poles[l], shift: 0.0 };
            let root = Root { pole: last_bases[l], shift: last_shifts[l] };
            product[l] *= root.below::<SQUARED>(pole) / other.below::<SQUARED>(pole);
        }
        product.iter().product()
    }
}

/// `zᵢ/(pᵢ - λ)`.
struct Vector<'a, const SQUARED: bool> {
    poles: &'a [f64],
    z: &'a [f64],
    root: Root,
    terms: &'a mut [f64],
}

impl<const SQUARED: bool> WithSimd for Vector<'_, SQUARED> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { poles, z, root, terms } = self;
        for ((term, z), &pole) in terms.iter_mut().zip(z).zip(poles) {
            *term = z / root.below::<SQUARED>(pole);
        }
    }
}
