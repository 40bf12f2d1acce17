//! Rows that are kept, as bits: the comparisons that tell, and columns of those rows alone.
//!
//! Enters: columns of cells. Leaves: words of 64 rows each, the first row in the lowest bit; columns without the
//! rows whose bit is not set. Not here: NULLs, and how comparisons are combined.
//!
//! Floating-point numbers are compared by the total order of IEEE 754, §5.10, but for zeros, which are equal, as SQL
//! has them here: a negative `NaN` is below all numbers and a positive one above them.

#[cfg(target_arch = "x86_64")]
mod x86;

use pulp::{Simd, WithSimd};

use super::arch::Arch;

/// Rows of a word.
pub const WORD: usize = 64;

/// How two cells are compared; what else there is follows by exchanging them or by negation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// a < b
    Less,
    /// a > b
    Greater,
    /// a = b
    Equal,
}

/// Cells in a total order; those of this module, for code that is not checked believes what their vectors are.
pub trait Ordered: Copy + private::Sealed {
    /// A number of which the same holds as of the cell, whatever is compared.
    type Key: Ord + Copy;

    /// How vectors of them are compared, where they can be.
    const LANES: Option<Lanes> = None;

    /// That number.
    fn key(self) -> Self::Key;
}

/// Cells of a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    /// Floating-point numbers of 64 bits.
    Doubles,
    /// The same of 32 bits.
    Singles,
    /// Whole numbers of 64 bits with a sign.
    Longs,
    /// The same of 32 bits.
    Integers,
    /// The same of 16 bits.
    Shorts,
    /// The same of 8 bits.
    Bytes,
    /// Of 8 bits without a sign.
    Codes,
}

macro_rules! ordered_as_they_are {
    ($($cell:ty: $lanes:expr,)*) => {
        $(impl Ordered for $cell {
            type Key = $cell;
            const LANES: Option<Lanes> = $lanes;

            #[inline(always)]
            fn key(self) -> $cell {
                self
            }
        })*
    };
}

ordered_as_they_are! {
    i8: Some(Lanes::Bytes),
    i16: Some(Lanes::Shorts),
    i32: Some(Lanes::Integers),
    i64: Some(Lanes::Longs),
    i128: None,
    u8: Some(Lanes::Codes),
    u16: None,
    u32: None,
    u64: None,
    u128: None,
}

impl Ordered for f64 {
    type Key = i64;
    const LANES: Option<Lanes> = Some(Lanes::Doubles);

    /// Below zero the larger of two is the one of the smaller magnitude; -0 would be -1.
    #[inline(always)]
    fn key(self) -> i64 {
        let bits = self.to_bits().cast_signed();
        let key = bits ^ (bits >> 63 & i64::MAX);
        if key == -1 { 0 } else { key }
    }
}

impl Ordered for f32 {
    type Key = i32;
    const LANES: Option<Lanes> = Some(Lanes::Singles);

    #[inline(always)]
    fn key(self) -> i32 {
        let bits = self.to_bits().cast_signed();
        let key = bits ^ (bits >> 31 & i32::MAX);
        if key == -1 { 0 } else { key }
    }
}

/// Sets the bit of each row of which this holds, and clears those of the others and beyond the last.
///
/// # Panics
/// Where there is not a cell of `b` for each of `a`, or not a word for each 64 of them.
pub fn compare<T: Ordered>(comparison: Comparison, a: &[T], b: &[T], words: &mut [u64]) {
    assert_eq!(a.len(), b.len(), "a cell beside each");
    assert_eq!(words.len(), a.len().div_ceil(WORD), "a word for each 64 cells");
    #[cfg(target_arch = "x86_64")]
    if let (Arch::Avx512(_), Some(lanes)) = (Arch::new(), T::LANES) {
        let whole = a.len() / WORD;
        let (words, last) = words.split_at_mut(whole);
        // SAFETY: the processor has these instructions, and there are 64 cells on both sides for each word.
        unsafe { x86::compare(lanes, comparison, a.as_ptr(), b.as_ptr(), 1, words) };
        return dispatch(comparison, &a[whole * WORD..], &b[whole * WORD..], last);
    }
    dispatch(comparison, a, b, words);
}

/// The same of one number beside all cells.
///
/// # Panics
/// Where there is not a word for each 64 cells.
pub fn compare_to<T: Ordered>(comparison: Comparison, a: &[T], b: T, words: &mut [u64]) {
    assert_eq!(words.len(), a.len().div_ceil(WORD), "a word for each 64 cells");
    #[cfg(target_arch = "x86_64")]
    if let (Arch::Avx512(_), Some(lanes)) = (Arch::new(), T::LANES) {
        let whole = a.len() / WORD;
        let (words, last) = words.split_at_mut(whole);
        let same = [b; WORD];
        // SAFETY: the processor has these instructions, there are 64 cells for each word, and 64 that all
        // of them are compared with.
        unsafe { x86::compare(lanes, comparison, a.as_ptr(), same.as_ptr(), 0, words) };
        return dispatch(comparison, &a[whole * WORD..], One(b.key()), last);
    }
    dispatch(comparison, a, One(b.key()), words);
}

fn dispatch<T: Ordered>(comparison: Comparison, a: &[T], b: impl Keys<T::Key>, words: &mut [u64]) {
    let arch = Arch::new();
    match comparison {
        Comparison::Less => arch.dispatch(Bits { a, b, words, holds: Less }),
        Comparison::Greater => arch.dispatch(Bits { a, b, words, holds: Greater }),
        Comparison::Equal => arch.dispatch(Bits { a, b, words, holds: Equal }),
    }
}

/// Keys by row.
trait Keys<K>: Copy {
    fn key(self, row: usize) -> K;
}

impl<T: Ordered> Keys<T::Key> for &[T] {
    #[inline(always)]
    fn key(self, row: usize) -> T::Key {
        self[row].key()
    }
}

/// The same key for every row.
#[derive(Clone, Copy)]
struct One<K>(K);

impl<K: Copy> Keys<K> for One<K> {
    #[inline(always)]
    fn key(self, _row: usize) -> K {
        self.0
    }
}

/// A comparison as a type, for a loop is compiled for each.
trait Holds: Copy {
    fn holds<K: Ord>(self, a: K, b: K) -> bool;
}

macro_rules! comparisons {
    ($($name:ident: $operator:tt)*) => {
        $(#[derive(Clone, Copy)]
        struct $name;

        impl Holds for $name {
            #[inline(always)]
            fn holds<K: Ord>(self, a: K, b: K) -> bool {
                a $operator b
            }
        })*
    };
}

comparisons! { Less: < Greater: > Equal: == }

/// A bit for each row.
struct Bits<'a, T, B, H> {
    a: &'a [T],
    b: B,
    words: &'a mut [u64],
    holds: H,
}

impl<T: Ordered, B: Keys<T::Key>, H: Holds> WithSimd for Bits<'_, T, B, H> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { a, b, words, holds } = self;
        for (number, (word, cells)) in words.iter_mut().zip(a.chunks(WORD)).enumerate() {
            let first = number * WORD;
            let mut bits = 0;
            for (bit, cell) in cells.iter().enumerate() {
                bits |= u64::from(holds.holds(cell.key(), b.key(first + bit))) << bit;
            }
            *word = bits;
        }
    }
}

/// Which rows of a batch are kept.
#[derive(Debug)]
pub struct Selection {
    words: Vec<u64>,
    rows: usize,
    kept: usize,
}

impl Selection {
    /// The rows whose bit is set.
    ///
    /// # Panics
    /// Where there is not a word for each 64 rows, or a bit beyond the last of them is set.
    pub fn new(words: Vec<u64>, rows: usize) -> Self {
        assert_eq!(words.len(), rows.div_ceil(WORD), "a word for each 64 rows");
        let beyond = if rows.is_multiple_of(WORD) { 0 } else { u64::MAX << (rows % WORD) };
        assert!(words.last().is_none_or(|last| last & beyond == 0), "a bit for each row");
        let kept = words.iter().map(|word| word.count_ones() as usize).sum();
        Self { words, rows, kept }
    }

    /// The bits.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Number of rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of rows that are kept.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Whether all rows are.
    pub fn keeps_all(&self) -> bool {
        self.kept == self.rows
    }

    /// The cells of the rows that are kept, in their order.
    ///
    /// # Panics
    /// Where there is not a cell for each row.
    pub fn compressed<T: Lane>(&self, cells: &[T]) -> Vec<T> {
        assert_eq!(cells.len(), self.rows, "a cell for each row");
        let mut kept = Vec::with_capacity(self.kept + WORD);
        #[cfg(target_arch = "x86_64")]
        if let Arch::Avx512(_) = Arch::new() {
            // SAFETY: the processor has these instructions, there is a cell for each bit, and room for
            // all that are kept and one vector more.
            let is_done = unsafe { x86::compress(&self.words, cells, &mut kept) };
            if is_done {
                return kept;
            }
        }
        self.compress_one_by_one(cells, &mut kept);
        kept
    }

    /// Those of the rows that are kept whose bit is set: there is a bit for each of these, not for the others.
    ///
    /// # Panics
    /// Where there are fewer bits.
    pub fn narrowed(&self, bits: &[u64]) -> Self {
        let mut next = 0;
        let words = self.words.iter().map(|&word| {
            let (mut left, mut kept) = (word, 0);
            while left != 0 {
                let bit = bits[next / WORD] >> (next % WORD) & 1;
                kept |= bit << left.trailing_zeros();
                left &= left - 1;
                next += 1;
            }
            kept
        });
        Self::new(words.collect(), self.rows)
    }

    fn compress_one_by_one<T: Copy>(&self, cells: &[T], kept: &mut Vec<T>) {
        for (&word, cells) in self.words.iter().zip(cells.chunks(WORD)) {
            if word == u64::MAX {
                kept.extend_from_slice(cells);
                continue;
            }
            let mut word = word;
            while word != 0 {
                kept.push(cells[word.trailing_zeros() as usize]);
                word &= word - 1;
            }
        }
    }
}

mod private {
    pub trait Sealed {}

    macro_rules! sealed {
        ($($cell:ty)*) => {
            $(impl Sealed for $cell {})*
        };
    }

    sealed! { i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 }
}

/// A cell of 8 to 128 bits.
pub trait Lane: Copy + private::Sealed {}

impl Lane for f32 {}
impl Lane for f64 {}
impl Lane for u8 {}
impl Lane for u16 {}
impl Lane for u32 {}
impl Lane for u64 {}
impl Lane for u128 {}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;
    use crate::exec::kernels::testing::rng;

    const FLOATS: [f64; 12] = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        5e-324,
        -5e-324,
    ];

    /// Cells among which equal ones, NaN of both signs and zeros of both signs are frequent.
    fn floats(rows: usize, seed: u64) -> Vec<f64> {
        let mut rng = rng(seed);
        let mut cell = |_| {
            let cell = FLOATS[rng.random_range(0..FLOATS.len())];
            if rng.random_bool(0.3) { -cell } else { cell }
        };
        (0..rows).map(&mut cell).collect()
    }

    fn bit(words: &[u64], row: usize) -> bool {
        words[row / WORD] >> (row % WORD) & 1 == 1
    }

    #[test]
    fn floats_are_compared_by_their_total_order_but_for_zeros() {
        let order = |a: f64, b: f64| match a == b {
            true => std::cmp::Ordering::Equal,
            false => a.total_cmp(&b),
        };
        for rows in [0usize, 1, 63, 64, 65, 200, 1024] {
            let (a, b) = (floats(rows, 1), floats(rows, 1000));
            let mut words = vec![0; rows.div_ceil(WORD)];
            type Holds = fn(std::cmp::Ordering) -> bool;
            let comparisons: [(Comparison, Holds); 3] = [
                (Comparison::Less, |order| order.is_lt()),
                (Comparison::Greater, |order| order.is_gt()),
                (Comparison::Equal, |order| order.is_eq()),
            ];
            for (comparison, holds) in comparisons {
                compare(comparison, &a, &b, &mut words);
                for (row, (&a, &b)) in a.iter().zip(&b).enumerate() {
                    assert_eq!(bit(&words, row), holds(order(a, b)), "{comparison:?} {a} {b}");
                }
                let mut portable = vec![0; words.len()];
                dispatch(comparison, &a[..], &b[..], &mut portable);
                assert_eq!(portable, words, "{comparison:?}");
                let single = |cells: &[f64]| cells.iter().map(|&x| x as f32).collect::<Vec<_>>();
                for constant in [f32::NAN, 0.0, -0.0] {
                    compare_to(comparison, &single(&a), constant, &mut words);
                    for (row, &cell) in a.iter().enumerate() {
                        let cell = f64::from(cell as f32);
                        let expected = holds(order(cell, f64::from(constant)));
                        assert_eq!(bit(&words, row), expected, "{comparison:?} {cell} {constant}");
                    }
                }
            }
        }
    }

    #[test]
    fn whole_numbers_are_compared_as_they_are() {
        fn check<T: Ordered<Key = T> + Ord + std::fmt::Debug>(cells: &[T], constant: T) {
            for (comparison, order) in [
                (Comparison::Less, std::cmp::Ordering::Less),
                (Comparison::Greater, std::cmp::Ordering::Greater),
                (Comparison::Equal, std::cmp::Ordering::Equal),
            ] {
                let mut words = vec![0; cells.len().div_ceil(WORD)];
                compare_to(comparison, cells, constant, &mut words);
                for (row, cell) in cells.iter().enumerate() {
                    assert_eq!(bit(&words, row), cell.cmp(&constant) == order, "{cell:?}");
                }
            }
        }
        let mut rng = rng(7);
        let cells: Vec<i8> = (0..150).map(|_| rng.random_range(-4..4)).collect();
        check(&cells, -1);
        check(&cells.iter().map(|&cell| i16::from(cell) << 9).collect::<Vec<_>>(), -1 << 9);
        check(&cells.iter().map(|&cell| i32::from(cell)).collect::<Vec<_>>(), 0);
        check(&cells.iter().map(|&cell| i64::from(cell) << 40).collect::<Vec<_>>(), -1 << 40);
        check(&cells.iter().map(|&cell| i128::from(cell) << 90).collect::<Vec<_>>(), 1 << 90);
        // Alike in the upper half, the lower of which may look negative, or in the lower half alone.
        for constant in [-1, 0, 3, 1 << 63, -(1 << 63), i128::MAX, i128::MIN] {
            let near = |cell: &i8| match cell % 3 {
                0 => constant.wrapping_add(i128::from(*cell)),
                1 => constant ^ 1 << 63,
                _ => constant ^ i128::from(*cell) << 64,
            };
            check(&cells.iter().map(near).collect::<Vec<_>>(), constant);
        }
        for constant in [0, 3, 253, u8::MAX] {
            check(&cells.iter().map(|&cell| cell.cast_unsigned()).collect::<Vec<_>>(), constant);
        }
    }

    #[test]
    fn kept_cells_keep_their_order() {
        for rows in [0usize, 1, 63, 64, 130, 1000] {
            for share in [0.0, 0.01, 0.5, 0.99, 1.0] {
                let mut rng = rng(rows as u64);
                let mut words = vec![0; rows.div_ceil(WORD)];
                for row in (0..rows).filter(|_| rng.random_bool(share)) {
                    words[row / WORD] |= 1 << (row % WORD);
                }
                let is_kept = |row: usize| bit(&words, row);
                let cells: Vec<u64> = (0..rows as u64).collect();
                let expected: Vec<u64> =
                    cells.iter().copied().filter(|&row| is_kept(row as usize)).collect();
                let selection = Selection::new(words, rows);
                assert_eq!(selection.compressed(&cells), expected, "{share} of {rows} rows");
                let narrow: Vec<u32> = cells.iter().map(|&cell| cell as u32).collect();
                let narrow = selection.compressed(&narrow);
                assert!(narrow.iter().zip(&expected).all(|(&a, &b)| u64::from(a) == b));
                assert_eq!(narrow.len(), selection.kept());
                let narrow: Vec<u16> = cells.iter().map(|&cell| cell as u16).collect();
                let narrow = selection.compressed(&narrow);
                assert!(narrow.iter().zip(&expected).all(|(&a, &b)| a == b as u16));
                assert_eq!(narrow.len(), selection.kept());
                let narrow: Vec<u8> = cells.iter().map(|&cell| cell as u8).collect();
                let narrow = selection.compressed(&narrow);
                assert!(narrow.iter().zip(&expected).all(|(&a, &b)| a == b as u8));
                assert_eq!(narrow.len(), selection.kept());
                let wide: Vec<u128> =
                    cells.iter().map(|&cell| u128::from(cell) << 64 | 5).collect();
                let wide = selection.compressed(&wide);
                assert!(wide.iter().zip(&expected).all(|(&a, &b)| a == u128::from(b) << 64 | 5));
                assert_eq!(wide.len(), selection.kept());
                let mut one_by_one = Vec::new();
                selection.compress_one_by_one(&cells, &mut one_by_one);
                assert_eq!(one_by_one, expected, "{share} of {rows} rows");
            }
        }
    }

    #[test]
    fn a_narrower_selection_is_one_of_the_rows_that_are_kept() {
        let mut rng = rng(4);
        for rows in [0usize, 1, 64, 65, 700] {
            let mut some = |rows: usize| {
                let mut words = vec![0; rows.div_ceil(WORD)];
                for row in (0..rows).filter(|_| rng.random_bool(0.4)) {
                    words[row / WORD] |= 1 << (row % WORD);
                }
                words
            };
            let selection = Selection::new(some(rows), rows);
            let bits = some(selection.kept());
            let kept: Vec<u32> = selection.compressed(&(0..rows as u32).collect::<Vec<_>>());
            let expected: Vec<u32> = kept
                .iter()
                .enumerate()
                .filter(|(at, _)| bit(&bits, *at))
                .map(|(_, &row)| row)
                .collect();
            let narrower = selection.narrowed(&bits);
            assert_eq!(narrower.compressed(&(0..rows as u32).collect::<Vec<_>>()), expected);
            assert_eq!(narrower.kept(), expected.len());
        }
    }
}
