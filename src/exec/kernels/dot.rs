//! The sum of products of two rows of cells, where both lie in order.

use super::Real;

/// Lanes of the sum: cell k goes to lane k mod 32.
const LANES: usize = 32;

/// `Σ aₖ·bₖ` over the shorter of both; to be called where the processor's widest registers are in use
/// ([`pulp::Arch::dispatch`]). Its bits follow from the cells alone.
#[inline(always)]
pub(super) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
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
