//! Texts of aggregations: what is generated, and that all kinds of them compile (`offload::tests`).

use super::column::Width;
use super::text::{Facts, Kernel, Space};
use super::*;
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::kernels::selection::Comparison;

/// A text, a number of one byte that may be NULL, a decimal, a double.
const VALUES: [Values; 4] =
    [Values::Texts, Values::Whole([-5, 100]), Values::Whole([0, 10_000_000]), Values::Double];

const FACTS: [Facts; 4] = [
    Facts { width: Width::U8, is_nullable: false },
    Facts { width: Width::U8, is_nullable: true },
    Facts { width: Width::U32, is_nullable: false },
    Facts { width: Width::F64, is_nullable: true },
];

fn asked(rows: usize, states: Vec<State>) -> Asked {
    Asked {
        rows,
        columns: Vec::new(),
        values: VALUES.to_vec(),
        tables: vec![0; VALUES.len()],
        digits: vec![None, None, None, Digits::of(0.25)],
        joins: Vec::new(),
        look_ups: Vec::new(),
        conditions: vec![below_seven(1)],
        keys: vec![Key::Column(0)],
        shown: vec![Shown::Key(0)],
        states,
    }
}

fn below_seven(column: usize) -> Term {
    Term::Compare(Comparison::Less, Box::new(Term::Column(column)), Box::new(Term::Whole(7)))
}

/// The same over two tables: the numbers of a row, the last of which names a row with a text and a number.
fn joined(asked: Asked) -> Asked {
    Asked {
        tables: vec![1, 1, 0, 0, 1],
        values: [&VALUES[..3], &[Values::Whole([100, 900]), Values::Whole([200, 800])]].concat(),
        joins: vec![Join { of: vec![Term::Column(3)], key: vec![4], is_near: true }],
        conditions: vec![below_seven(1), below_seven(2)],
        ..asked
    }
}

const JOINED_FACTS: [Facts; 5] = {
    let [text, byte, number, _] = FACTS;
    let named = Facts { width: Width::U16, is_nullable: true };
    [text, byte, number, named, Facts { is_nullable: false, ..named }]
};

fn state(what: What, of: Term) -> State {
    let data_type = match of.kind(&VALUES) {
        Some(Kind::Double) => DataType::Float64,
        _ => DataType::Int64,
    };
    State { what, of: Some(of), data_type }
}

fn product() -> Term {
    let rest = Term::Arithmetic(
        BinaryFunction::Subtract,
        Box::new(Term::Whole(100)),
        Box::new(Term::Column(1)),
    );
    Term::Arithmetic(BinaryFunction::Multiply, Box::new(Term::Column(2)), Box::new(rest))
}

/// Each kind of totals, under a name.
pub(in crate::exec::offload) fn texts() -> Vec<(String, String)> {
    let whole = || {
        vec![
            state(What::Sum, product()),
            state(What::Count, Term::Column(1)),
            state(What::Least, Term::Column(2)),
            state(What::Greatest, Term::Column(1)),
        ]
    };
    let doubles = || {
        vec![
            state(What::Sum, Term::Column(3)),
            state(What::Sum, Term::AsDouble(Box::new(Term::Column(1)))),
        ]
    };
    [
        ("groups in registers", asked(1 << 20, whole()), 8),
        ("groups in shared memory", asked(1 << 20, whole()), 500),
        ("groups in memory", asked(1 << 20, whole()), 100_000),
        ("groups in slots", asked(1 << 20, whole()), 1 << 40),
        ("groups of wide sums", asked(1 << 31, whole()), 5),
        ("groups of doubles", asked(1 << 20, doubles()), 6),
        ("many groups of doubles", asked(1 << 20, doubles()), 100_000),
    ]
    .map(|(name, asked, groups)| (name, Kernel::new(&asked, &FACTS, groups).unwrap().text))
    .into_iter()
    .chain([
        ("groups of a join", joined_kernel(asked(1 << 20, whole())).text),
        ("groups of a far join", far_kernel().text),
        ("the rows of keys", places::near_text("u32", true)),
        ("the rows of far keys", places::far_text(&[(Width::U16, true), (Width::U64, false)])),
    ])
    .map(|(name, text)| (name.to_owned(), text))
    .collect()
}

/// By two numbers.
fn far_kernel() -> Kernel {
    let of = vec![Term::Column(3), Term::Column(2)];
    let join = Join { of, key: vec![4, 1], is_near: false };
    let asked = joined(asked(1000, vec![state(What::Sum, Term::Column(2))]));
    Kernel::new(&Asked { joins: vec![join], ..asked }, &JOINED_FACTS, 8).unwrap()
}

fn joined_kernel(asked: Asked) -> Kernel {
    Kernel::new(&joined(asked), &JOINED_FACTS, 8).unwrap()
}

/// What the rows alone decide comes first, then the row of the other table, then what that decides.
#[test]
fn a_text_goes_on_with_the_row_that_is_named() {
    let kernel = joined_kernel(asked(1000, vec![state(What::Sum, Term::Column(2))]));
    let lines = kernel.text.lines().skip_while(|line| !line.contains("for (u32 k"));
    let lines: Vec<&str> = lines.skip(1).map(str::trim).take_while(|line| *line != "}").collect();
    let expected = [
        "if (k >= count) continue;",
        "const i64 s1 = a1 + (i64)p2[k];",
        "const bool s2 = s1 < a2;",
        "if (!s2) continue;",
        "const bool s4 = (m3 >> k & 1);",
        "const i64 s5 = a5 + (i64)p3[k];",
        "const u32 f1 = s4 ? found(a6, a7, a8, s5) : 0;",
        "if (!f1) continue;",
        "const u32 r1 = f1 - 1;",
        "const bool s9 = is_valid(n1, r1);",
        "const i64 s10 = a11 + (i64)c1[r1];",
        "const bool s11 = s10 < a2;",
        "const bool s12 = s9 && s11;",
        "const bool s13 = s9 && !s11;",
        "if (!s12) continue;",
        "const u32 group = totals.place((u32)c0[r1]);",
        "if (!totals.has(group)) continue;",
        "totals.take(0, group, 1);",
        "totals.take(1, group, (u64)s1);",
    ];
    assert_eq!(lines, expected);
    assert!(!kernel.text.contains("Cells<u8> p1"), "{}", kernel.text);
}

#[test]
fn a_text_reads_each_column_once_and_adds_up_each_sum_once() {
    let sum = || state(What::Sum, Term::Column(2));
    let asked = asked(1000, vec![sum(), state(What::Count, Term::Column(2)), sum()]);
    let kernel = Kernel::new(&asked, &FACTS, 3).unwrap();
    assert_eq!((kernel.space, kernel.words), (Space::Registers, 2));
    let expected = r#"#include "groups.cuh"

typedef Words<2, 0ull, 0ull, 0ull> Kinds;

extern "C" __global__ void __launch_bounds__(THREADS) run(u64* __restrict__ to, u64 rows, u64 stretch, u64 blocks, const u8* __restrict__ c1, const u8* __restrict__ n1, i64 a2, i64 a3, u64 a4, const u8* __restrict__ c0, const u32* __restrict__ c2, i64 a7) {
    Registers<3, 2, 0ull, 0ull, 0ull> totals;
    each_stretch(rows, stretch, blocks, [&](u64 pack, u32 count) {
        const Cells<u8> p1(c1, pack);
        const u32 m1 = n1[pack];
        const Cells<u8> p0(c0, pack);
        const Cells<u32> p2(c2, pack);
        #pragma unroll
        for (u32 k = 0; k < PACK; k++) {
            if (k >= count) continue;
            const bool s1 = (m1 >> k & 1);
            const i64 s2 = a2 + (i64)p1[k];
            const bool s3 = s2 < a3;
            const bool s4 = s1 && s3;
            const bool s5 = s1 && !s3;
            if (!s4) continue;
            const u32 group = totals.place((u32)p0[k]);
            if (!totals.has(group)) continue;
            const i64 s9 = a7 + (i64)p2[k];
            totals.take(0, group, 1);
            totals.take(1, group, (u64)s9);
        }
    });
    totals.finish(to);
}

extern "C" __global__ void __launch_bounds__(THREADS) finish_totals(u64* out, const u64* parts, u64 blocks) {
    finish<Kinds, 2>(out, parts, blocks);
}
"#;
    assert_eq!(kernel.text, expected);
}

#[test]
fn a_key_of_several_numbers_is_one_code() {
    let kernel = far_kernel();
    let lines = [
        "u64 e1 = 0, w1 = 1;",
        "const u32 f1 = s4 && coded(e1, w1, s5, a8, a11) && coded(e1, w1, s1, a9, a12) ? found_far(a6, a10, a7, e1) : 0;",
        "#include \"slots.cuh\"",
    ];
    for line in lines {
        assert!(kernel.text.contains(line), "{line} in\n{}", kernel.text);
    }
}

/// A code may be longer than a number of a group.
#[test]
fn far_codes_have_slots() {
    let two = Asked { keys: vec![Key::Column(0), Key::Column(1)], ..asked(1000, Vec::new()) };
    let kernel = Kernel::new(&two, &FACTS, 1 << 40).unwrap();
    let lines = [
        "run(u64* __restrict__ to, u64 rows, u64 stretch, u64 blocks, u64* codes, u64 slots, u32* full, u64 part, u64 parts, const u8* __restrict__ c1,",
        "    Hashed<1, 0ull, 0ull> totals(to, codes, slots, full, part, parts);",
        "const u32 group = totals.place((u64)p0[k] + (u64)a5 * (((m1 >> k & 1) ? (u64)p1[k] : (u64)a4 - 1)));",
        "            if (!totals.has(group)) continue;",
        "clear<Kinds, 1>(table, groups);\n    clear_codes(codes, groups);",
    ];
    for line in lines {
        assert!(kernel.text.contains(line), "{line} in\n{}", kernel.text);
    }
}

#[test]
fn totals_are_where_they_have_room() {
    let space = |what, of, groups| {
        Kernel::new(&asked(1000, vec![state(what, of)]), &FACTS, groups).map(|kernel| kernel.space)
    };
    assert_eq!(space(What::Sum, Term::Column(2), 20), Ok(Space::Registers));
    assert_eq!(space(What::Sum, Term::Column(2), 21), Ok(Space::Shared));
    assert_eq!(space(What::Sum, Term::Column(2), 3000), Ok(Space::Global));
    assert_eq!(space(What::Sum, Term::Column(2), 1 << 22), Ok(Space::Global));
    assert_eq!(space(What::Sum, Term::Column(2), (1 << 22) + 1), Ok(Space::Hashed));
    // A count of rows, one of values, and a sum with what it has lost.
    assert_eq!(space(What::Sum, Term::Column(3), 10), Ok(Space::Registers));
    // More groups than that are added up as whole numbers, of three words, where digits are known.
    assert_eq!(space(What::Sum, Term::Column(3), 11), Ok(Space::Shared));
    let unknown =
        Asked { digits: vec![None; 4], ..asked(1000, vec![state(What::Sum, Term::Column(3))]) };
    assert!(Kernel::new(&unknown, &FACTS, 11).is_err());
    assert_eq!(Kernel::new(&unknown, &FACTS, 10).unwrap().words, 4);
}

#[test]
fn sums_that_may_leave_63_bits_are_in_two_halves() {
    let words = |rows| {
        let asked = asked(rows, vec![state(What::Sum, Term::Column(2))]);
        Kernel::new(&asked, &FACTS, 1).unwrap().words
    };
    // Ten million is below 2^24.
    assert_eq!((words(1 << 39), words(1 << 41)), (2, 3));
}

#[test]
fn a_kernel_has_no_more_parameters_than_a_launch_passes() {
    let kernel = |constants: i64| {
        let is = |value| {
            let (column, value) = (Box::new(Term::Column(2)), Box::new(Term::Whole(value)));
            Term::Compare(Comparison::Equal, column, value)
        };
        let any = (0..constants).map(is).reduce(|x, y| Term::Or(Box::new(x), Box::new(y)));
        let asked = Asked { conditions: any.into_iter().collect(), ..asked(1000, Vec::new()) };
        Kernel::new(&asked, &FACTS, 3).map(|kernel| kernel.parameters.len())
    };
    // Beside the constants the column and its least value, and the key and how many codes it has.
    assert_eq!(kernel(56), Ok(60));
    assert!(kernel(57).is_err());
}
