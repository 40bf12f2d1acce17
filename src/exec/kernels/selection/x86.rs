//! Comparisons and compressions on vectors of 512 bits, which have instructions for both that no compiler finds.
//!
//! What they answer is what the loops beside them answer, bit for bit.

use std::arch::x86_64::{
    __m512i, _MM_CMPINT_EQ, _MM_CMPINT_LT, _MM_CMPINT_NLE, _mm512_and_si512, _mm512_cmp_epi8_mask,
    _mm512_cmp_epi16_mask, _mm512_cmp_epi32_mask, _mm512_cmp_epi64_mask, _mm512_cmp_epu8_mask,
    _mm512_cmpneq_epi32_mask, _mm512_cmpneq_epi64_mask, _mm512_loadu_epi8, _mm512_loadu_epi16,
    _mm512_loadu_epi32, _mm512_loadu_epi64, _mm512_maskz_compress_epi8,
    _mm512_maskz_compress_epi16, _mm512_maskz_compress_epi32, _mm512_maskz_compress_epi64,
    _mm512_maskz_mov_epi32, _mm512_maskz_mov_epi64, _mm512_set1_epi32, _mm512_set1_epi64,
    _mm512_srai_epi32, _mm512_srai_epi64, _mm512_storeu_epi8, _mm512_storeu_epi16,
    _mm512_storeu_epi32, _mm512_storeu_epi64, _mm512_xor_si512,
};

use super::{Comparison, Lane, Lanes, WORD};

/// Compares 64 cells of `a` for each word with as many of `b`, which are the next ones or the same again.
///
/// # Safety
/// The processor has AVX-512F and AVX-512BW. There are cells of this kind: 64 of `a` for each word, and of `b` 64 for each
/// where `step` is 1, or 64 in all where it is 0.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn compare<T>(
    lanes: Lanes,
    comparison: Comparison,
    a: *const T,
    b: *const T,
    step: usize,
    words: &mut [u64],
) {
    const LESS: i32 = _MM_CMPINT_LT;
    const GREATER: i32 = _MM_CMPINT_NLE;
    const EQUAL: i32 = _MM_CMPINT_EQ;
    let compare = match (lanes, comparison) {
        (Lanes::Doubles, Comparison::Less) => compare_64::<true, LESS>,
        (Lanes::Doubles, Comparison::Greater) => compare_64::<true, GREATER>,
        (Lanes::Doubles, Comparison::Equal) => compare_64::<true, EQUAL>,
        (Lanes::Singles, Comparison::Less) => compare_32::<true, LESS>,
        (Lanes::Singles, Comparison::Greater) => compare_32::<true, GREATER>,
        (Lanes::Singles, Comparison::Equal) => compare_32::<true, EQUAL>,
        (Lanes::Longs, Comparison::Less) => compare_64::<false, LESS>,
        (Lanes::Longs, Comparison::Greater) => compare_64::<false, GREATER>,
        (Lanes::Longs, Comparison::Equal) => compare_64::<false, EQUAL>,
        (Lanes::Integers, Comparison::Less) => compare_32::<false, LESS>,
        (Lanes::Integers, Comparison::Greater) => compare_32::<false, GREATER>,
        (Lanes::Integers, Comparison::Equal) => compare_32::<false, EQUAL>,
        (Lanes::Shorts, Comparison::Less) => compare_16::<LESS>,
        (Lanes::Shorts, Comparison::Greater) => compare_16::<GREATER>,
        (Lanes::Shorts, Comparison::Equal) => compare_16::<EQUAL>,
        (Lanes::Bytes, Comparison::Less) => compare_8::<true, LESS>,
        (Lanes::Bytes, Comparison::Greater) => compare_8::<true, GREATER>,
        (Lanes::Bytes, Comparison::Equal) => compare_8::<true, EQUAL>,
        (Lanes::Codes, Comparison::Less) => compare_8::<false, LESS>,
        (Lanes::Codes, Comparison::Greater) => compare_8::<false, GREATER>,
        (Lanes::Codes, Comparison::Equal) => compare_8::<false, EQUAL>,
    };
    // SAFETY: as the caller promises.
    unsafe { compare(a.cast(), b.cast(), step, words) };
}

#[target_feature(enable = "avx512f")]
unsafe fn compare_64<const IS_FLOAT: bool, const COMPARISON: i32>(
    a: *const u8,
    b: *const u8,
    step: usize,
    words: &mut [u64],
) {
    for (number, word) in words.iter_mut().enumerate() {
        *word = 0;
        for lane in (0..WORD).step_by(8) {
            // SAFETY: both places are within the 64 cells of this word.
            let [a, b] = unsafe {
                [
                    _mm512_loadu_epi64(a.cast::<i64>().add(number * WORD + lane)),
                    _mm512_loadu_epi64(b.cast::<i64>().add(number * step * WORD + lane)),
                ]
            };
            let [a, b] = if IS_FLOAT { [key_64(a), key_64(b)] } else { [a, b] };
            *word |= u64::from(_mm512_cmp_epi64_mask::<COMPARISON>(a, b)) << lane;
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn compare_32<const IS_FLOAT: bool, const COMPARISON: i32>(
    a: *const u8,
    b: *const u8,
    step: usize,
    words: &mut [u64],
) {
    for (number, word) in words.iter_mut().enumerate() {
        *word = 0;
        for lane in (0..WORD).step_by(16) {
            // SAFETY: both places are within the 64 cells of this word.
            let [a, b] = unsafe {
                [
                    _mm512_loadu_epi32(a.cast::<i32>().add(number * WORD + lane)),
                    _mm512_loadu_epi32(b.cast::<i32>().add(number * step * WORD + lane)),
                ]
            };
            let [a, b] = if IS_FLOAT { [key_32(a), key_32(b)] } else { [a, b] };
            *word |= u64::from(_mm512_cmp_epi32_mask::<COMPARISON>(a, b)) << lane;
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn compare_16<const COMPARISON: i32>(
    a: *const u8,
    b: *const u8,
    step: usize,
    words: &mut [u64],
) {
    for (number, word) in words.iter_mut().enumerate() {
        *word = 0;
        for lane in (0..WORD).step_by(32) {
            // SAFETY: both places are within the 64 cells of this word.
            let [a, b] = unsafe {
                [
                    _mm512_loadu_epi16(a.cast::<i16>().add(number * WORD + lane)),
                    _mm512_loadu_epi16(b.cast::<i16>().add(number * step * WORD + lane)),
                ]
            };
            *word |= u64::from(_mm512_cmp_epi16_mask::<COMPARISON>(a, b)) << lane;
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn compare_8<const IS_SIGNED: bool, const COMPARISON: i32>(
    a: *const u8,
    b: *const u8,
    step: usize,
    words: &mut [u64],
) {
    for (number, word) in words.iter_mut().enumerate() {
        // SAFETY: both places are the 64 cells of this word.
        let [a, b] = unsafe {
            [
                _mm512_loadu_epi8(a.cast::<i8>().add(number * WORD)),
                _mm512_loadu_epi8(b.cast::<i8>().add(number * step * WORD)),
            ]
        };
        *word = if IS_SIGNED {
            _mm512_cmp_epi8_mask::<COMPARISON>(a, b)
        } else {
            _mm512_cmp_epu8_mask::<COMPARISON>(a, b)
        };
    }
}

/// The keys of eight numbers; see [`super::Ordered`].
#[inline]
#[target_feature(enable = "avx512f")]
fn key_64(bits: __m512i) -> __m512i {
    let flipped = _mm512_and_si512(_mm512_srai_epi64::<63>(bits), _mm512_set1_epi64(i64::MAX));
    let key = _mm512_xor_si512(bits, flipped);
    _mm512_maskz_mov_epi64(_mm512_cmpneq_epi64_mask(key, _mm512_set1_epi64(-1)), key)
}

/// The same of sixteen.
#[inline]
#[target_feature(enable = "avx512f")]
fn key_32(bits: __m512i) -> __m512i {
    let flipped = _mm512_and_si512(_mm512_srai_epi32::<31>(bits), _mm512_set1_epi32(i32::MAX));
    let key = _mm512_xor_si512(bits, flipped);
    _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(key, _mm512_set1_epi32(-1)), key)
}

/// Each of four bits twice.
const HALVES: [u8; 16] = {
    let mut halves = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        let mut bit = 0;
        while bit < 4 {
            halves[bits] |= ((bits >> bit & 1) as u8 * 0b11) << (2 * bit);
            bit += 1;
        }
        bits += 1;
    }
    halves
};

/// Appends the cells whose bit is set; none of them, and false, where the processor cannot with cells of so few bits.
///
/// # Safety
/// The processor has AVX-512F; no bit is set beyond the last cell; `kept` has room for the cells whose bit is
/// set and for one vector behind them.
pub(super) unsafe fn compress<T: Lane>(words: &[u64], cells: &[T], kept: &mut Vec<T>) -> bool {
    // SAFETY: as the caller promises, and the processor is asked for what it need not have.
    unsafe {
        if size_of::<T>() >= 4 {
            compress_wide(words, cells, kept);
        } else if is_x86_feature_detected!("avx512vbmi2") {
            compress_narrow(words, cells, kept);
        } else {
            return false;
        }
    }
    true
}

#[target_feature(enable = "avx512f,popcnt")]
unsafe fn compress_wide<T: Lane>(words: &[u64], cells: &[T], kept: &mut Vec<T>) {
    // SAFETY: a whole vector of cells lies at `from`, and there is room for one at `to`.
    unsafe {
        compress_vectors(words, cells, kept, |bits, from, to| {
            if size_of::<T>() == 16 {
                let halves = HALVES[(bits & 0b1111) as usize];
                let vector = _mm512_loadu_epi64(from.cast());
                _mm512_storeu_epi64(to.cast(), _mm512_maskz_compress_epi64(halves, vector));
            } else if size_of::<T>() == 8 {
                let vector = _mm512_loadu_epi64(from.cast());
                _mm512_storeu_epi64(to.cast(), _mm512_maskz_compress_epi64(bits as u8, vector));
            } else {
                let vector = _mm512_loadu_epi32(from.cast());
                _mm512_storeu_epi32(to.cast(), _mm512_maskz_compress_epi32(bits as u16, vector));
            }
        });
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
unsafe fn compress_narrow<T: Lane>(words: &[u64], cells: &[T], kept: &mut Vec<T>) {
    // SAFETY: a whole vector of cells lies at `from`, and there is room for one at `to`.
    unsafe {
        compress_vectors(words, cells, kept, |bits, from, to| {
            if size_of::<T>() == 2 {
                let vector = _mm512_loadu_epi16(from.cast());
                _mm512_storeu_epi16(to.cast(), _mm512_maskz_compress_epi16(bits as u32, vector));
            } else {
                let vector = _mm512_loadu_epi8(from.cast());
                _mm512_storeu_epi8(to.cast(), _mm512_maskz_compress_epi8(bits, vector));
            }
        });
    }
}

/// Compresses vector by vector with the bits of each, which come lowest, and one by one what is less than a word at the end.
///
/// # Safety
/// No bit is set beyond the last cell; `kept` has room for the cells whose bit is set and for one vector behind them; `compress`
/// reads one vector and writes one.
#[inline(always)]
unsafe fn compress_vectors<T: Lane>(
    words: &[u64],
    cells: &[T],
    kept: &mut Vec<T>,
    compress: impl Fn(u64, *const T, *mut T),
) {
    let lanes = 64 / size_of::<T>();
    let mut count = kept.len();
    for (&word, cells) in words.iter().zip(cells.chunks(WORD)) {
        if cells.len() < WORD {
            let mut word = word;
            while word != 0 {
                // SAFETY: there is room for all whose bit is set.
                unsafe {
                    kept.as_mut_ptr().add(count).write(cells[word.trailing_zeros() as usize])
                };
                count += 1;
                word &= word - 1;
            }
            break;
        }
        if word == 0 {
            continue;
        }
        for start in (0..WORD).step_by(lanes) {
            let bits = word >> start & (u64::MAX >> (WORD - lanes));
            // SAFETY: a whole vector of cells lies there, and there is room for a whole vector.
            unsafe { compress(bits, cells.as_ptr().add(start), kept.as_mut_ptr().add(count)) };
            count += bits.count_ones() as usize;
        }
    }
    // SAFETY: so many cells were written.
    unsafe { kept.set_len(count) };
}
