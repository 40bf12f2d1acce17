//! The keys of rows as the text of a CUDA kernel, which makes the code of each row that is kept.
//!
//! ```text
//! WHERE y < 7 ORDER BY a, x DESC NULLS LAST
//!
//!     Told<1> told;
//!     each_pack(rows, [&](u64 pack, u32 count) {
//!         …
//!         for (u32 k = 0; k < PACK; k++) {
//!             …
//!             if (!s2) continue;
//!             const u64 row = pack * PACK + k;
//!             const u64 w0 = (u64)s4 - (u64)a3;                     of a what is above its least value …
//!             w0 = w0 * (u64)a5 + (s7 ? (u64)a8 - (u64)s6 : …);     … and of x what is below its greatest, or behind all
//!             told.take(0, w0);
//!             codes[0 * stride + row] = (u32)w0;
//! ```
//!
//! A key is a number of one or two digits, the first for whether there is a value where the other has no room for that; digits share a word
//! as long as it tells all of them apart.

use std::fmt::Write;

use super::{By, Of, WORDS_MAX};
use crate::exec::offload::groups::{Asked, ENTRY, Facts, Parameter, Text, Values};
use crate::gpu::ARGUMENTS_MAX;

/// Parameters before all others: the place for codes and how far its words are apart, the number of rows, the place for who is kept and that for
/// what is told.
const GIVEN: usize = 5;

/// How many numbers a word has.
const WORD_NUMBERS: u128 = 1 << 64;

/// A kernel beside what it is to be given.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) text: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) words: usize,
    /// Whether words have 64 bits.
    pub(super) is_wide: bool,
}

/// A number of a key, as the text has it, and how many there may be.
struct Digit {
    value: String,
    numbers: u128,
}

impl Kernel {
    /// The kernel for rows of columns that lie so, by keys of which those that are looked up have so many ranks; why there is none
    /// where a device cannot sort by them.
    pub(super) fn new(
        asked: &Asked,
        by: &[By],
        columns: &[Facts],
        ranks: &[usize],
    ) -> Result<Self, &'static str> {
        let mut text = Text::of_rows(asked, columns);
        let drops = !asked.conditions.is_empty();
        if drops {
            text.lines.push("there |= 1u << k;".to_owned());
        }
        text.lines.push("told.rows++;".to_owned());
        text.lines.push("const u64 row = pack * PACK + k;".to_owned());
        let digits: Vec<Digit> =
            by.iter().flat_map(|by| digits(&mut text, asked, by, ranks)).collect();
        let words = words(&digits);
        if words.len() > WORDS_MAX {
            return Err("more keys than a code has words for");
        }
        let numbers: u128 = words.first().map_or(1, |word| word.numbers);
        let is_wide = words.len() > 1 || numbers > 1 << u32::BITS;
        let kind = if is_wide { "u64" } else { "u32" };
        for (at, word) in words.iter().enumerate() {
            for (place, digit) in word.digits.iter().enumerate() {
                let value = &digit.value;
                let line = match place {
                    0 => format!("u64 w{at} = {value};"),
                    _ => {
                        let numbers = text.parameter(Parameter::Whole(digit.numbers as i64));
                        format!("w{at} = w{at} * (u64)a{numbers} + ({value});")
                    }
                };
                text.lines.push(line);
            }
            text.lines.push(format!("told.take({at}, w{at});"));
            text.lines.push(format!("codes[{at} * stride + row] = ({kind})w{at};"));
        }
        if GIVEN + text.parameters.len() > ARGUMENTS_MAX {
            return Err("more columns and constants than a kernel has parameters");
        }
        let (words, parameters) = (words.len(), text.parameters.clone());
        Ok(Self { text: written(&text, words, kind, drops), parameters, words, is_wide })
    }
}

/// Digits of one word.
struct Word<'a> {
    digits: Vec<&'a Digit>,
    numbers: u128,
}

/// As few words as digits have room in, in their order.
fn words(digits: &[Digit]) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    for digit in digits {
        let together = |last: &Word<'_>| {
            last.numbers.checked_mul(digit.numbers).filter(|numbers| *numbers <= WORD_NUMBERS)
        };
        let with = words.last_mut().and_then(|last| Some((together(last)?, last)));
        match with {
            Some((numbers, last)) => {
                last.numbers = numbers;
                last.digits.push(digit);
            }
            None => words.push(Word { digits: vec![digit], numbers: digit.numbers }),
        }
    }
    words
}

/// The digits of a key.
fn digits(text: &mut Text<'_>, asked: &Asked, by: &By, ranks: &[usize]) -> Vec<Digit> {
    let is_descending = by.options.descending;
    let (above, numbers, valid) = match &by.of {
        // All that the order is about is in the rank.
        Of::Looked(at) => {
            let place = text.looked_at(*at);
            let table = text.parameter(Parameter::Looked(*at));
            let value = format!("(u64)a{table}[{place}]");
            return vec![Digit { value, numbers: ranks[*at].max(1) as u128 }];
        }
        Of::Real(at) => {
            let (valid, cell) = (text.valid(*at), text.cell(*at));
            let numbers = match asked.values[*at] {
                Values::Single => 1 << u32::BITS,
                _ => WORD_NUMBERS,
            };
            let bits = format!("total_order({cell})");
            let above = match is_descending {
                true => format!("{}ull - {bits}", (numbers - 1) as u64),
                false => bits,
            };
            (above, numbers, valid)
        }
        Of::Whole(term) => {
            let [least, greatest] = term.bounds(&asked.values).unwrap_or_default();
            let made = text.made(term);
            let value = made.value();
            let above = match is_descending {
                true => {
                    let greatest = text.parameter(Parameter::Whole(greatest));
                    format!("(u64)a{greatest} - (u64){value}")
                }
                false => {
                    let least = text.parameter(Parameter::Whole(least));
                    format!("(u64){value} - (u64)a{least}")
                }
            };
            (above, u128::from(greatest.abs_diff(least)) + 1, made.valid())
        }
    };
    let Some(valid) = valid else { return vec![Digit { value: above, numbers }] };
    let first = by.options.nulls_first;
    if numbers == WORD_NUMBERS {
        let [there, none] = if first { [1, 0] } else { [0, 1] };
        let is_there = Digit { value: format!("{valid} ? {there} : {none}"), numbers: 2 };
        return vec![is_there, Digit { value: format!("{valid} ? {above} : 0"), numbers }];
    }
    let value = match first {
        true => format!("{valid} ? {above} + 1 : 0"),
        false => {
            let last = text.parameter(Parameter::Whole(numbers as i64));
            format!("{valid} ? {above} : (u64)a{last}")
        }
    };
    vec![Digit { value, numbers: numbers + 1 }]
}

fn written(text: &Text<'_>, words: usize, kind: &str, drops: bool) -> String {
    let mut out = String::from("#include \"sort.cuh\"\n\n");
    let given = "u64 stride, u64 rows, u8* __restrict__ kept, u64* told_to";
    let _ = writeln!(
        out,
        "extern \"C\" __global__ void __launch_bounds__(THREADS) {ENTRY}({kind}* __restrict__ codes, {given}{}) {{",
        text.declared()
    );
    let _ = writeln!(out, "    Told<{words}> told;");
    let around = match drops {
        true => ["        u32 there = 0;\n", "        kept[pack] = (u8)there;\n"],
        false => ["", ""],
    };
    text.each_row(&mut out, "each_pack(rows", around);
    out.push_str("    told.finish(told_to);\n}\n");
    out
}
