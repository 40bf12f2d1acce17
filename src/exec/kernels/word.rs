//! Keys of a fixed width, as tables of keys have them.

use bytemuck::Pod;

/// Keys whose first places in a table are read together: more than a processor waits for at once.
pub const KEYS_AT_ONCE: usize = 32;

/// A key.
pub trait Word: Pod + Eq + Default + Send + Sync {
    /// A number of 64 bits whose first bits depend on all of the key's.
    fn hash(self) -> u64;

    /// Puts bits into a key that has zeros there.
    fn put(&mut self, bits: u64, shift: u32);

    /// The 64 bits that begin at a place.
    fn bits(self, shift: u32) -> u64;

    /// All of a number of 128 bits, of which a narrow key has no more than its own.
    fn of_wide(wide: u128) -> Self;

    fn wide(self) -> u128;
}

/// Odd numbers without a pattern: digits of π.
const FACTORS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345];

fn folded(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ (product >> 64) as u64
}

impl Word for u64 {
    #[inline]
    fn hash(self) -> u64 {
        folded(self ^ FACTORS[0], FACTORS[1])
    }

    fn put(&mut self, bits: u64, shift: u32) {
        *self |= bits << shift;
    }

    fn bits(self, shift: u32) -> u64 {
        self >> shift
    }

    fn of_wide(wide: u128) -> Self {
        wide as u64
    }

    fn wide(self) -> u128 {
        self.into()
    }
}

impl Word for u128 {
    #[inline]
    fn hash(self) -> u64 {
        let high = folded((self >> 64) as u64 ^ FACTORS[0], FACTORS[1]);
        folded(self as u64 ^ high, FACTORS[0])
    }

    fn put(&mut self, bits: u64, shift: u32) {
        *self |= u128::from(bits) << shift;
    }

    fn bits(self, shift: u32) -> u64 {
        (self >> shift) as u64
    }

    fn of_wide(wide: u128) -> Self {
        wide
    }

    fn wide(self) -> u128 {
        self
    }
}
