//! How many different values there are, about, by their hashes.
//!
//! Of the hashes that fall into one register, the longest run of leading zeros is kept. With m registers the count is within
//! 1.04 / √m of the truth in two cases of three: 0.8 % for 16,384 of them. Few values leave registers empty, and
//! are counted by those.
//!
//! Source: Flajolet, Fusy, Gandouet and Meunier, *HyperLogLog*, AofA 2007; linear counting for few values: Whang, Vander-Zanden
//! and Taylor, ACM TODS 15(2), 1990.

/// A sketch of values, of a power of two of registers.
pub(crate) struct DistinctSketch {
    /// For each register the longest run of zeros and one, or nothing.
    runs: Box<[u8]>,
}

impl DistinctSketch {
    pub(crate) fn new(registers: usize) -> Self {
        assert!(registers.is_power_of_two(), "registers are told apart by bits of a hash");
        Self { runs: vec![0; registers].into() }
    }

    /// Looks at the hash of a value.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64) {
        let hash = mixed(hash);
        let run = &mut self.runs[hash as usize & (self.runs.len() - 1)];
        *run = (*run).max(hash.leading_zeros() as u8 + 1);
    }

    /// Values that differ.
    pub(crate) fn count(&self) -> f64 {
        let registers = self.runs.len() as f64;
        let sum: f64 = self.runs.iter().map(|&run| (-f64::from(run)).exp2()).sum();
        let count = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        let empty = self.runs.iter().filter(|&&run| run == 0).count();
        match empty {
            1.. if count <= 2.5 * registers => registers * (registers / empty as f64).ln(),
            _ => count,
        }
    }
}

/// A hash of which each bit depends on all bits of this one.
///
/// Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
pub(crate) fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_values_are_counted() {
        for (values, tolerance) in
            [(0, 0.0), (3, 0.01), (1000, 0.01), (30_000, 0.02), (1_000_000, 0.03)]
        {
            let mut sketch = DistinctSketch::new(1 << 14);
            // Each of them twice.
            for value in (0..values).chain(0..values) {
                sketch.add(value);
            }
            let error = (sketch.count() - values as f64).abs();
            assert!(error <= tolerance * values as f64, "{values}: {}", sketch.count());
        }
    }
}
