//! Sums of products of two rows of cells, where both lie in order.

use pulp::{Arch, Simd, WithSimd};

use super::Real;

/// Lanes of the sum: cell k goes to lane k mod 32.
const LANES: usize = 32;

/// `Σ aₖ·bₖ` over the shorter of both, of each pair in turn, by the processor's widest registers. Its bits follow from the
/// cells alone. `take` has the place of the pair and its sum.
#[inline(always)]
pub(super) fn dots<'a, T: Real>(
    arch: Arch,
    pairs: impl Iterator<Item = (&'a [T], &'a [T])>,
    take: impl FnMut(usize, T),
) {
    arch.dispatch(Dots { pairs, take });
}

/// No closure, which may be compiled apart from whoever dispatches it, and then knows of no wide register.
struct Dots<P, F> {
    pairs: P,
    take: F,
}

impl<'a, T: Real, P: Iterator<Item = (&'a [T], &'a [T])>, F: FnMut(usize, T)> WithSimd
    for Dots<P, F>
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _simd: S) {
        for (at, (a, b)) in self.pairs.enumerate() {
            (self.take)(at, dot(a, b));
        }
    }
}

#[inline(always)]
fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a_chunks.remainder().iter().zip(b_chunks.remainder());
    let mut lanes = [T::ZERO; LANES];
    for (a, b) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let rest = rest.fold(T::ZERO, |sum, (&a, &b)| sum + a * b);
    let mut count = LANES;
    while count > 1 {
        count /= 2;
        for lane in 0..count {
            let other = lanes[lane + count];
            lanes[lane] += other;
        }
    }
    lanes[0] + rest
}
