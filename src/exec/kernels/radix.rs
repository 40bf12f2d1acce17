//! Items in the order of a number that each has, byte by byte.
//!
//! All bytes are counted in one reading; those that all items share need no round, and where many are left comparing is as quick. Each other one is a round, from the lowest
//! up, that deals items out to 256 places and keeps the order of those that it cannot tell apart.
//!
//! Source: Knuth, *The Art of Computer Programming*, vol. 3, 2nd ed., §5.2.5 (sorting by distribution), with all counts taken at
//! once.

/// Bytes of a number, and what each may be.
const DIGITS: usize = 8;
const VALUES: usize = 256;

/// Fewer items are compared.
const ITEMS_MIN: usize = 1 << 10;

/// More rounds take as long as comparing does: a million items of 16 bytes take 11 ns each in two rounds, 13 in four, and 21
/// compared (a thread of a Zen 5, `benches/RESULTS.md`).
const ROUNDS_MAX: usize = 6;

/// Sorts items, which are ordered by a number first; those of one number must come in their order. True where they were dealt
/// out, and not compared.
///
/// ```
/// let mut items: Vec<(u64, usize)> = (0..5_000).map(|at| (at as u64 * 7919 % 100, at)).collect();
/// assert!(relatrix::exec::kernels::radix::sort(&mut items, |item| item.0));
/// assert!(items.is_sorted());
/// ```
pub fn sort<T: Copy + Ord>(items: &mut Vec<T>, number: impl Fn(&T) -> u64) -> bool {
    if items.is_sorted() {
        return false;
    }
    let counts = counts(items, &number);
    let all = items.len() as u32;
    let rounds = (0..DIGITS).filter(|&digit| !counts[digit].contains(&all));
    let rounds: Vec<usize> = rounds.collect();
    if items.len() < ITEMS_MIN || rounds.len() > ROUNDS_MAX {
        items.sort_unstable();
        return false;
    }
    let mut dealt = items.clone();
    for digit in rounds {
        let mut next = 0;
        let mut places = counts[digit].map(|count| {
            next += count;
            (next - count) as usize
        });
        for item in items.iter() {
            let place = &mut places[usize::from(number(item).to_le_bytes()[digit])];
            dealt[*place] = *item;
            *place += 1;
        }
        std::mem::swap(items, &mut dealt);
    }
    true
}

/// How many items have each value of each byte, the lowest first.
fn counts<T>(items: &[T], number: impl Fn(&T) -> u64) -> [[u32; VALUES]; DIGITS] {
    let mut counts = [[0; VALUES]; DIGITS];
    for item in items {
        let bytes = number(item).to_le_bytes();
        for (counts, byte) in counts.iter_mut().zip(bytes) {
            counts[usize::from(byte)] += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn items_are_in_the_order_of_their_numbers_and_else_in_their_own() {
        let mut random = SmallRng::seed_from_u64(1);
        for count in [0, 1, 2, 100, ITEMS_MIN - 1, ITEMS_MIN, 10_000, 70_000] {
            for mask in [0, 1, 0xff, 0xff00, 0x00f0_00f0, u64::MAX >> 16, u64::MAX, 0xff << 56] {
                let items = (0..count).map(|at| (random.random::<u64>() & mask, at));
                let mut items: Vec<(u64, usize)> = items.collect();
                let mut expected = items.clone();
                expected.sort_unstable();
                let is_sorted = items == expected;
                let is_dealt = sort(&mut items, |item| item.0);
                assert_eq!(items, expected, "{count} items, {mask:x}");
                let is_narrow = mask <= u64::MAX >> 16 || mask == 0xff << 56;
                let expected = !is_sorted && is_narrow && count >= ITEMS_MIN;
                assert_eq!(is_dealt, expected, "{count} items, {mask:x}");
            }
        }
    }
}
