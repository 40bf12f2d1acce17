//! The whole text of a kernel around what is done for each row: its parameters, where totals lie, and the entries beside it that clear
//! totals, put them together, or tell which there are.

use std::fmt::Write;

use super::{CLEAR, COUNT, ENTRY, FINISH, GATHER, Parameter, SCAN, Space, Text, Word};
use crate::exec::offload::groups::Key;

impl Text<'_> {
    pub(super) fn written(&self, space: Space, groups: usize) -> String {
        let bits = |is_one: fn(&Word) -> bool| {
            let ones = self.words.iter().enumerate().filter(|(_, word)| is_one(word));
            ones.fold(0_u64, |bits, (place, _)| bits | 1 << place)
        };
        let least = bits(|word| matches!(word, Word::Least(_)));
        let greatest = bits(|word| matches!(word, Word::Greatest(_)));
        let real = bits(|word| matches!(word, Word::Real(_)));
        let words = self.words.len();
        let kinds = format!("{words}, {least}ull, {greatest}ull");
        let is_many = matches!(space, Space::Global | Space::Hashed);
        let is_far = self.asked.joins.iter().any(|join| !join.is_near);
        let header = if is_many || is_far { "slots" } else { "groups" };
        let mut out = format!("#include \"{header}.cuh\"\n\n");
        let _ = writeln!(out, "typedef Words<{kinds}, {real}ull> Kinds;\n");
        let parameters = self.declared();
        let head = "extern \"C\" __global__ void __launch_bounds__(THREADS)";
        let slots = match space {
            Space::Registers | Space::Shared => "",
            Space::Global => ", u64 first, u64 count",
            Space::Hashed => ", u64* codes, u64 slots, u32* full, u64 part, u64 parts",
        };
        let _ = writeln!(
            out,
            "{head} {ENTRY}(u64* __restrict__ to, u64 rows, u64 stretch, u64 blocks{slots}{parameters}) {{"
        );
        let _ = match space {
            Space::Registers => {
                writeln!(out, "    Registers<{groups}, {kinds}, {real}ull> totals;")
            }
            Space::Shared => writeln!(
                out,
                "    __shared__ u64 table[{}];\n    Shared<{groups}, {kinds}> totals(table);",
                groups * words
            ),
            Space::Global => writeln!(out, "    Global<{kinds}> totals(to, first, count);"),
            Space::Hashed => {
                writeln!(out, "    Hashed<{kinds}> totals(to, codes, slots, full, part, parts);")
            }
        };
        self.each_row(&mut out, "each_stretch(rows, stretch, blocks", ["", ""]);
        out.push_str("    totals.finish(to);\n}\n\n");
        let mut entry = |name: &str, given: &str, body: &str| {
            let _ = writeln!(out, "{head} {name}({given}) {{\n    {body}\n}}");
        };
        if !is_many {
            let body = format!("finish<Kinds, {words}>(out, parts, blocks);");
            entry(FINISH, "u64* out, const u64* parts, u64 blocks", &body);
            return out;
        }
        let clear = format!("clear<Kinds, {words}>(table, groups);");
        match space {
            Space::Hashed => entry(
                CLEAR,
                "u64* table, u64 groups, u64* codes",
                &format!("{clear}\n    clear_codes(codes, groups);"),
            ),
            _ => entry(CLEAR, "u64* table, u64 groups", &clear),
        }
        let count = format!("count_groups<{words}>(counts, table, groups);");
        entry(COUNT, "u64* counts, const u64* table, u64 groups", &count);
        entry(SCAN, "u64* counts, u64 blocks", "scan_counts(counts, blocks);");
        let given = "u64* out_codes, u64* out, const u64* counts, const u64* table, u64 groups, const u64* codes";
        let gather =
            format!("gather_groups<{words}>(out_codes, out, counts, table, groups, codes);");
        entry(GATHER, given, &gather);
        out
    }
}

impl Text<'_> {
    /// All parameters, with a comma before each.
    pub(in crate::exec::offload) fn declared(&self) -> String {
        self.parameters.iter().enumerate().map(declared(self)).collect()
    }

    /// What is done for all rows by this loop over packs, with something before those of a pack and something after them.
    pub(in crate::exec::offload) fn each_row(
        &self,
        out: &mut String,
        packs: &str,
        [before, after]: [&str; 2],
    ) {
        let _ = writeln!(out, "    {packs}, [&](u64 pack, u32 count) {{");
        for parameter in &self.parameters {
            // Columns of other tables are read row by row.
            let _ = match parameter {
                Parameter::Cells(at) | Parameter::Valid(at) if self.asked.tables[*at] > 0 => Ok(()),
                Parameter::Cells(at) => {
                    let of = self.columns[*at].width;
                    writeln!(out, "        const Cells<{of}> p{at}(c{at}, pack);")
                }
                Parameter::Valid(at) => writeln!(out, "        const u32 m{at} = n{at}[pack];"),
                _ => Ok(()),
            };
        }
        out.push_str(before);
        out.push_str("        #pragma unroll\n        for (u32 k = 0; k < PACK; k++) {\n");
        for line in &self.lines {
            let _ = writeln!(out, "            {line}");
        }
        out.push_str("        }\n");
        out.push_str(after);
        out.push_str("    });\n");
    }
}

/// A parameter's type and name.
fn declared<'a>(text: &'a Text<'_>) -> impl Fn((usize, &Parameter)) -> String + 'a {
    let is_key = |look_up: usize| {
        let keys = &text.asked.keys;
        keys.iter().any(|key| matches!(key, Key::LookedUp(of) if *of == look_up))
    };
    move |(place, parameter)| match parameter {
        Parameter::Cells(at) => {
            format!(", const {}* __restrict__ c{at}", text.columns[*at].width)
        }
        Parameter::Valid(at) => format!(", const u8* __restrict__ n{at}"),
        Parameter::Places(_) => format!(", const u32* __restrict__ a{place}"),
        Parameter::Slots(_) => format!(", const u64* __restrict__ a{place}"),
        Parameter::Looked(at) => {
            let of = if is_key(*at) { "u32" } else { "u8" };
            format!(", const {of}* __restrict__ a{place}")
        }
        Parameter::Base(_) | Parameter::Whole(_) => format!(", i64 a{place}"),
        Parameter::Last(_) | Parameter::Codes(_) => format!(", u64 a{place}"),
        Parameter::Numbers(_) | Parameter::Span(_) => format!(", u64 a{place}"),
        Parameter::Double(_) => format!(", f64 a{place}"),
    }
}
