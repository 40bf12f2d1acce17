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
        look_ups: Vec::new(),
        condition: Some(Term::Compare(
            Comparison::Less,
            Box::new(Term::Column(1)),
            Box::new(Term::Whole(7)),
        )),
        keys: vec![Key::Column(0)],
        states,
    }
}

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
    let doubles = vec![
        state(What::Sum, Term::Column(3)),
        state(What::Sum, Term::AsDouble(Box::new(Term::Column(1)))),
    ];
    [
        ("groups in registers", asked(1 << 20, whole()), 8),
        ("groups in shared memory", asked(1 << 20, whole()), 500),
        ("groups in memory", asked(1 << 20, whole()), 100_000),
        ("groups of wide sums", asked(1 << 31, whole()), 5),
        ("groups of doubles", asked(1 << 20, doubles), 6),
    ]
    .map(|(name, asked, groups)| {
        (name.to_owned(), Kernel::new(&asked, &FACTS, groups).unwrap().text)
    })
    .into()
}

#[test]
fn a_text_reads_each_column_once_and_adds_up_each_sum_once() {
    let sum = || state(What::Sum, Term::Column(2));
    let asked = asked(1000, vec![sum(), state(What::Count, Term::Column(2)), sum()]);
    let kernel = Kernel::new(&asked, &FACTS, 3).unwrap();
    assert_eq!((kernel.space, kernel.words), (Space::Registers, 2));
    let expected = r#"#include "groups.cuh"

typedef Words<2, 0ull, 0ull, 0ull> Kinds;

extern "C" __global__ void __launch_bounds__(THREADS) run(u64* __restrict__ parts, u64 rows, const u8* __restrict__ c1, const u8* __restrict__ n1, i64 a2, i64 a3, u64 a4, const u8* __restrict__ c0, const u32* __restrict__ c2, i64 a7) {
    Registers<3, 2, 0ull, 0ull, 0ull> totals;
    each_pack(rows, [&](u64 pack, u32 count) {
        const Cells<u8> p1(c1, pack);
        const u32 m1 = n1[pack];
        const Cells<u8> p0(c0, pack);
        const Cells<u32> p2(c2, pack);
        #pragma unroll
        for (u32 k = 0; k < PACK; k++) {
            const bool s0 = (m1 >> k & 1);
            const i64 s1 = a2 + (i64)p1[k];
            const bool s2 = s1 < a3;
            const bool s3 = s0 && s2;
            const bool s4 = s0 && !s2;
            if (k >= count || !s3) continue;
            const u32 group = (u32)p0[k];
            const i64 s7 = a7 + (i64)p2[k];
            totals.take(0, group, 1);
            totals.take(1, group, (u64)s7);
        }
    });
    totals.finish(parts);
}

extern "C" __global__ void __launch_bounds__(THREADS) finish_totals(u64* out, const u64* parts, u64 blocks) {
    finish<Kinds, 2>(out, parts, blocks);
}
"#;
    assert_eq!(kernel.text, expected);
}

#[test]
fn totals_are_where_they_have_room() {
    let space = |what, of, groups| {
        Kernel::new(&asked(1000, vec![state(what, of)]), &FACTS, groups).map(|kernel| kernel.space)
    };
    assert_eq!(space(What::Sum, Term::Column(2), 20), Ok(Space::Registers));
    assert_eq!(space(What::Sum, Term::Column(2), 21), Ok(Space::Shared));
    assert_eq!(space(What::Sum, Term::Column(2), 3000), Ok(Space::Global));
    // A count of rows, one of values, and a sum with what it has lost.
    assert_eq!(space(What::Sum, Term::Column(3), 10), Ok(Space::Registers));
    assert!(space(What::Sum, Term::Column(3), 11).is_err());
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
        let asked = Asked { condition: any, ..asked(1000, Vec::new()) };
        Kernel::new(&asked, &FACTS, 3).map(|kernel| kernel.parameters.len())
    };
    // Beside the constants the column and its least value, and the key and how many codes it has.
    assert_eq!(kernel(58), Ok(62));
    assert!(kernel(59).is_err());
}
