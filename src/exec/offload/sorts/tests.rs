//! Texts of sort keys, and what sorts by codes, alone: over all sizes at which something begins anew, in several orders of threads.

use arrow::array::{ArrayRef, StringArray};

use super::order::{Codes, TEXT, Told};
use super::run::ranks;
use super::text::Kernel;
use super::*;
use crate::exec::kernels::selection::Comparison;
use crate::exec::offload::Queue;
use crate::exec::offload::groups::{Facts, Key, LookUp, Values, Width};
use crate::exec::run::Cancel;
use crate::gpu::tests::with_device;
use datafusion::physical_expr::expressions::Column;

/// A text, a number of one byte that may be NULL, any number, a double that may be NULL.
const VALUES: [Values; 4] =
    [Values::Texts, Values::Whole([-5, 100]), Values::Whole([i64::MIN, i64::MAX]), Values::Double];

const FACTS: [Facts; 4] = [
    Facts { width: Width::U8, is_nullable: false },
    Facts { width: Width::U8, is_nullable: true },
    Facts { width: Width::U64, is_nullable: false },
    Facts { width: Width::F64, is_nullable: true },
];

fn by(of: Of, descending: bool, nulls_first: bool) -> By {
    By { of, options: SortOptions { descending, nulls_first } }
}

fn number(column: usize) -> Of {
    Of::Whole(Term::Column(column))
}

fn asked(is_filtered: bool) -> Asked {
    let seven =
        Term::Compare(Comparison::Less, Box::new(Term::Column(1)), Box::new(Term::Whole(7)));
    Asked {
        rows: 1000,
        values: VALUES.to_vec(),
        tables: vec![0; VALUES.len()],
        conditions: if is_filtered { vec![seven] } else { Vec::new() },
        look_ups: vec![LookUp { column: 0, of: Arc::new(Column::new("text", 0)) }],
        keys: vec![Key::LookedUp(0)],
        ..Asked::default()
    }
}

fn kernel(is_filtered: bool, by: &[By]) -> Kernel {
    Kernel::new(&asked(is_filtered), by, &FACTS, &[12]).unwrap()
}

/// All that is launched, under names.
pub(in crate::exec::offload) fn texts() -> Vec<(String, String)> {
    let few = [by(Of::Looked(0), false, true), by(number(1), true, false)];
    let many = [by(number(2), true, false), by(Of::Real(3), false, true), few[0].clone()];
    [
        ("sort", TEXT.to_owned()),
        ("codes of few bits", kernel(true, &few).text),
        ("codes of three words", kernel(false, &many).text),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into()
}

#[test]
fn a_text_makes_one_code_of_keys_that_have_room_in_it() {
    let kernel = kernel(true, &[by(Of::Looked(0), false, true), by(number(1), true, false)]);
    assert_eq!((kernel.words, kernel.is_wide), (1, false));
    let expected = r#"#include "sort.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) run(u32* __restrict__ codes, u64 stride, u64 rows, u8* __restrict__ kept, u64* told_to, const u8* __restrict__ c1, const u8* __restrict__ n1, i64 a2, i64 a3, const u8* __restrict__ c0, const u32* __restrict__ a5, i64 a6, i64 a7, i64 a8) {
    Told<1> told;
    each_pack(rows, [&](u64 pack, u32 count) {
        const Cells<u8> p1(c1, pack);
        const u32 m1 = n1[pack];
        const Cells<u8> p0(c0, pack);
        u32 there = 0;
        #pragma unroll
        for (u32 k = 0; k < PACK; k++) {
            if (k >= count) continue;
            const bool s1 = (m1 >> k & 1);
            const i64 s2 = a2 + (i64)p1[k];
            const bool s3 = s2 < a3;
            const bool s4 = s1 && s3;
            const bool s5 = s1 && !s3;
            if (!s4) continue;
            there |= 1u << k;
            told.rows++;
            const u64 row = pack * PACK + k;
            u64 w0 = (u64)a5[p0[k]];
            w0 = w0 * (u64)a8 + (s1 ? (u64)a6 - (u64)s2 : (u64)a7);
            told.take(0, w0);
            codes[0 * stride + row] = (u32)w0;
        }
        kept[pack] = (u8)there;
    });
    told.finish(told_to);
}
"#;
    assert_eq!(kernel.text, expected);
}

/// NULL beside all numbers of a word has a digit of its own.
#[test]
fn keys_have_as_many_words_as_tell_them_apart() {
    let words = |by: &[By]| {
        let kernel = kernel(false, by);
        (kernel.words, kernel.is_wide)
    };
    let double = || by(Of::Real(3), false, true);
    assert_eq!(words(&[by(number(1), false, false)]), (1, false));
    assert_eq!(words(&[by(number(2), false, false)]), (1, true));
    assert_eq!(words(&[double()]), (2, true));
    assert_eq!(words(&[by(number(1), false, false), double()]), (2, true));
    assert_eq!(words(&[double(), by(number(1), false, false)]), (3, true));
    let text = kernel(false, &[double()]).text;
    let lines = [
        "u64 w0 = (m3 >> k & 1) ? 1 : 0;",
        "u64 w1 = (m3 >> k & 1) ? total_order(p3[k]) : 0;",
        "codes[1 * stride + row] = (u64)w1;",
    ];
    for line in lines {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(!text.contains("kept[pack]"), "{text}");
    let five = [double(), double(), double()];
    assert!(Kernel::new(&asked(false), &five, &FACTS, &[12]).is_err());
}

#[test]
fn a_rank_is_the_place_among_different_values() {
    let texts = [Some("b"), None, Some("a"), Some("c"), Some("a"), None];
    let texts: ArrayRef = Arc::new(StringArray::from_iter(texts));
    let ranks =
        |descending, nulls_first| ranks(&texts, SortOptions { descending, nulls_first }).unwrap();
    assert_eq!(ranks(false, false), (vec![1, 3, 0, 2, 0, 3], 4));
    assert_eq!(ranks(true, false), (vec![1, 3, 2, 0, 2, 3], 4));
    assert_eq!(ranks(false, true), (vec![2, 0, 1, 3, 1, 0], 4));
}

/// Words of rows, the first word first, and which rows are kept.
struct Case {
    words: Vec<Vec<u64>>,
    is_wide: bool,
    kept: Option<Vec<bool>>,
}

impl Case {
    fn rows(&self) -> usize {
        self.words[0].len()
    }

    fn kept(&self) -> impl Iterator<Item = usize> {
        (0..self.rows()).filter(|&row| self.kept.as_ref().is_none_or(|kept| kept[row]))
    }

    /// By the standard library's stable sort.
    fn expected(&self, fetch: Option<usize>) -> Vec<u32> {
        let mut rows: Vec<usize> = self.kept().collect();
        let code = |row: usize| Vec::from_iter(self.words.iter().map(|word| word[row]));
        rows.sort_by_key(|row| code(*row));
        rows.truncate(fetch.unwrap_or(rows.len()));
        rows.into_iter().map(|row| row as u32).collect()
    }

    fn codes(&self, queue: &Queue<'_>) -> Codes {
        let mut cells = Vec::new();
        for cell in self.words.iter().flatten() {
            match self.is_wide {
                true => cells.extend(cell.to_ne_bytes()),
                false => cells.extend((*cell as u32).to_ne_bytes()),
            }
        }
        let kept = self.kept.as_ref().map(|kept| {
            let bits = kept.chunks(8).map(|pack| {
                pack.iter().enumerate().fold(0_u8, |bits, (at, kept)| bits | u8::from(*kept) << at)
            });
            queue.stream.upload(&Vec::from_iter(bits), "kept").unwrap()
        });
        let bits = self.words.iter().map(|word| {
            let all = || self.kept().map(|row| word[row]);
            [all().fold(0, |bits, own| bits | own), all().fold(0, |bits, own| bits | !own)]
        });
        Codes {
            cells: queue.stream.upload(&cells, "codes").unwrap(),
            words: self.words.len(),
            is_wide: self.is_wide,
            rows: self.rows(),
            stride: self.rows(),
            kept,
            told: Told { rows: self.kept().count(), bits: bits.collect() },
        }
    }
}

/// A word of each row: of one value, of few, of all, and of digits that are far apart.
fn words(rows: usize) -> [Vec<u64>; 4] {
    let mixed = |at: usize| (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = |of: fn(u64) -> u64| (0..rows).map(|at| of(mixed(at))).collect();
    [
        word(|_| 0x0102_0304),
        word(|x| x >> 61),
        word(|x| x >> 32),
        word(|x| (x >> 60) << 24 | 0x00ab_cd00 | x >> 63),
    ]
}

const SIZES: [usize; 11] = [0, 1, 31, 32, 33, 255, 257, 2047, 2048, 2049, 4500];

#[test]
fn rows_come_in_the_order_of_their_codes() {
    let path = "exec::offload::sorts::tests::rows_come_in_the_order_of_their_codes";
    with_device(path, |device, set_order| {
        let cancel = Cancel::default();
        let queue = Queue::new(device, &cancel).unwrap();
        let check = |name: &str, case: &Case, fetch| {
            let found = queue.in_order(&case.codes(&queue), fetch);
            let found = found.unwrap_or_else(|failed| panic!("{name}: {failed}"));
            assert!(found == case.expected(fetch), "{name}, {fetch:?} of {} rows", case.rows());
        };
        for (at, rows) in SIZES.into_iter().enumerate() {
            set_order((at % 4) as i64);
            let [one, few, many, apart] = words(rows);
            let some = (0..rows).map(|row| row % 3 != 1).collect::<Vec<bool>>();
            let kept = [None, Some(some), Some(vec![false; rows])];
            for kept in &kept[..if at == 5 { 3 } else { 1 + at % 2 }] {
                let case = |words: &[&Vec<u64>], is_wide| Case {
                    words: words.iter().map(|&word| word.clone()).collect(),
                    is_wide,
                    kept: kept.clone(),
                };
                let cases = [
                    ("one", case(&[&one], false)),
                    ("few", case(&[&few], false)),
                    ("many", case(&[&many], false)),
                    ("apart", case(&[&apart], true)),
                    ("two words", case(&[&few, &apart], true)),
                    ("three words", case(&[&one, &few, &many], true)),
                ];
                for (name, case) in &cases {
                    for fetch in [None, Some(1), Some(rows / 20)] {
                        check(name, case, fetch);
                    }
                }
            }
        }
        // All bits of a word, and rows of which the first are all at the threshold.
        let all = (0..3000_u64).map(|at| at.wrapping_mul(0xd134_2543_de82_ef95)).collect();
        let case = Case { words: vec![all], is_wide: true, kept: None };
        let fetches = [None, Some(0), Some(7), Some(9000)];
        fetches.iter().for_each(|fetch| check("all bits", &case, *fetch));
        let ties = (0..3000_u64).map(|at| u64::from(at % 2 == 0) << 40).collect();
        let case = Case { words: vec![ties], is_wide: true, kept: None };
        [1, 100].iter().for_each(|fetch| check("ties", &case, Some(*fetch)));
    });
}
