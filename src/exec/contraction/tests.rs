//! Contractions against the join itself: every pair, folded one by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use rand::Rng;
use rand::rngs::SmallRng;

use super::groups::{Plan, plan};
use super::sides::entries;
use super::*;
use crate::exec::kernels::testing::rng;

/// Whole numbers, for sums of them are exact in any order.
fn side(rng: &mut SmallRng, rows: usize, keys: i64, groups: i64) -> RecordBatch {
    let mut integers = |most: i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..rows).map(|_| rng.random_range(0..most))))
    };
    let (keys, groups) = (integers(keys), integers(groups));
    let numbers = integers(50);
    let floats = numbers.as_primitive::<Int64Type>().values().iter().map(|&x| x as f64 - 20.0);
    let floats: ArrayRef = Arc::new(Float64Array::from_iter_values(floats));
    let columns = [("k", keys), ("g", groups), ("n", numbers), ("x", floats)];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Every cell of a matrix once.
fn full(rng: &mut SmallRng, keys: i64, groups: i64) -> RecordBatch {
    let places = || (0..keys).flat_map(|k| (0..groups).map(move |g| (k, g)));
    let count = places().count();
    let column = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
    let numbers: Vec<i64> = (0..count).map(|_| rng.random_range(0..50)).collect();
    let floats = numbers.iter().map(|&x| x as f64 - 20.0);
    let floats: ArrayRef = Arc::new(Float64Array::from_iter_values(floats));
    RecordBatch::try_from_iter([
        ("k", column(places().map(|(k, _)| k).collect())),
        ("g", column(places().map(|(_, g)| g).collect())),
        ("n", column(numbers)),
        ("x", floats),
    ])
    .unwrap()
}

/// Of every cell, those whose group is among the first where the key is, and among the others where it is not:
/// half of the groups of two such sides share no key.
fn halved(rng: &mut SmallRng, keys: i64, groups: i64) -> RecordBatch {
    let cells = full(rng, keys, groups);
    let integers = |at: usize| cells.column(at).as_primitive::<Int64Type>().values().to_vec();
    let pairs = integers(0).into_iter().zip(integers(1));
    let kept = pairs.map(|(k, g)| Some((k < keys / 2) == (g < groups / 2)));
    filter_record_batch(&cells, &kept.collect::<BooleanArray>()).unwrap()
}

fn call(function: Function, values: [Option<usize>; 2], combine: Combine) -> Call {
    let is_float = values.contains(&Some(1));
    let term_type = if is_float { DataType::Float64 } else { DataType::Int64 };
    Call { function, values, combine, term_type }
}

fn contraction(calls: Vec<Call>) -> (Contraction, SchemaRef) {
    let mut fields =
        vec![Field::new("i", DataType::Int64, true), Field::new("j", DataType::Int64, true)];
    fields.extend(calls.iter().map(|call| {
        let of = match call.function {
            Function::Average => DataType::Float64,
            Function::Count => DataType::Int64,
            _ => call.term_type.clone(),
        };
        Field::new("f", of, true)
    }));
    let keys = vec![(0, 0), (1, 0)];
    let contraction = Contraction { join_keys: 1, group_keys: [1, 1], keys, calls };
    (contraction, Arc::new(Schema::new(fields)))
}

type Cells = BTreeMap<(i64, i64), Vec<f64>>;

/// Every pair, one by one.
fn joined(calls: &[Call], left: &RecordBatch, right: &RecordBatch) -> Cells {
    let integer = |batch: &RecordBatch, at: usize, row: usize| {
        batch.column(at).as_primitive::<Int64Type>().value(row)
    };
    let number = |batch: &RecordBatch, value: usize, row: usize| match value {
        0 => integer(batch, 2, row) as f64,
        _ => batch.column(3).as_primitive::<Float64Type>().value(row),
    };
    let mut terms: BTreeMap<(i64, i64), Vec<Vec<f64>>> = BTreeMap::new();
    for l in 0..left.num_rows() {
        for r in (0..right.num_rows()).filter(|&r| integer(left, 0, l) == integer(right, 0, r)) {
            let key = (integer(left, 1, l), integer(right, 1, r));
            let cell = terms.entry(key).or_insert_with(|| vec![Vec::new(); calls.len()]);
            for (terms, call) in cell.iter_mut().zip(calls) {
                let x = call.values[0].map_or(0.0, |value| number(left, value, l));
                let y = call.values[1].map_or(0.0, |value| number(right, value, r));
                terms.push(match call.combine {
                    Combine::Times => x * y,
                    Combine::Plus => x + y,
                    Combine::Minus => x - y,
                    Combine::Left => x,
                    Combine::Right => y,
                });
            }
        }
    }
    let folded = |(call, terms): (&Call, Vec<f64>)| match call.function {
        Function::Count => terms.len() as f64,
        Function::Sum => terms.iter().sum(),
        Function::Average => terms.iter().sum::<f64>() / terms.len() as f64,
        Function::Least => terms.into_iter().fold(f64::INFINITY, f64::min),
        Function::Greatest => terms.into_iter().fold(f64::NEG_INFINITY, f64::max),
    };
    terms
        .into_iter()
        .map(|(key, terms)| (key, calls.iter().zip(terms).map(folded).collect()))
        .collect()
}

/// The cells that a plan makes, and whether it made them by dense products.
fn contracted(
    contraction: &Contraction,
    schema: &SchemaRef,
    left: &RecordBatch,
    right: &RecordBatch,
    threads: usize,
) -> (Cells, bool) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let batches = [vec![left.clone()], vec![right.clone()]];
    let sides = pool.install(|| entries(contraction, batches)).unwrap();
    let plan: Plan = pool.install(|| plan(contraction, &sides, schema)).ok().unwrap();
    let is_dense = plan.is_dense();
    let mut cells = Cells::new();
    let mut emit = |batch: RecordBatch| {
        for row in 0..batch.num_rows() {
            let key = |at: usize| batch.column(at).as_primitive::<Int64Type>().value(row);
            let number = |at: usize| match batch.column(at).data_type() {
                DataType::Int64 => key(at) as f64,
                _ => batch.column(at).as_primitive::<Float64Type>().value(row),
            };
            let folded = (2..batch.num_columns()).map(number).collect();
            assert!(cells.insert((key(0), key(1)), folded).is_none(), "a group comes once");
        }
        Ok(())
    };
    plan.run(sides, &pool, &Cancel::default(), &mut emit).unwrap();
    (cells, is_dense)
}

#[test]
fn sums_and_counts_are_those_of_the_join_by_either_way() {
    let calls = vec![
        call(Function::Sum, [Some(1), Some(1)], Combine::Times),
        call(Function::Sum, [Some(0), Some(0)], Combine::Times),
        call(Function::Average, [Some(1), None], Combine::Left),
        call(Function::Count, [None, None], Combine::Left),
    ];
    let (contraction, schema) = contraction(calls);
    let mut rng = rng(5);
    // Full, with gaps, with groups that no pair reaches, with cells that come twice, without any pair, empty.
    let sides = [
        (full(&mut rng, 30, 20), full(&mut rng, 30, 25), Some(true)),
        (full(&mut rng, 100, 9).slice(0, 700), full(&mut rng, 100, 11).slice(300, 600), Some(true)),
        (halved(&mut rng, 60, 14), halved(&mut rng, 60, 18), Some(true)),
        (side(&mut rng, 500, 20, 10), side(&mut rng, 400, 20, 12), Some(false)),
        (side(&mut rng, 60, 300, 50), side(&mut rng, 50, 300, 40), None),
        (side(&mut rng, 0, 5, 5), full(&mut rng, 3, 3), None),
    ];
    for (left, right, dense) in sides {
        let expected = joined(&contraction.calls, &left, &right);
        for threads in [1, 3] {
            let (found, is_dense) = contracted(&contraction, &schema, &left, &right, threads);
            assert_eq!(found, expected);
            assert!(dense.is_none_or(|dense| dense == is_dense));
        }
    }
}

#[test]
fn extremes_are_those_of_the_join_along_runs_and_beside_them() {
    let calls = vec![
        call(Function::Least, [Some(1), Some(1)], Combine::Plus),
        call(Function::Greatest, [Some(1), Some(1)], Combine::Minus),
        call(Function::Greatest, [None, Some(0)], Combine::Right),
        call(Function::Least, [Some(0), Some(0)], Combine::Times),
    ];
    let (contraction, schema) = contraction(calls);
    let mut rng = rng(6);
    for (left, right) in [
        (full(&mut rng, 12, 7), full(&mut rng, 12, 33)),
        (side(&mut rng, 300, 30, 20), side(&mut rng, 300, 30, 15)),
    ] {
        let (found, is_dense) = contracted(&contraction, &schema, &left, &right, 2);
        assert_eq!(found, joined(&contraction.calls, &left, &right));
        assert!(!is_dense);
    }
}

#[test]
fn what_may_not_fit_is_not_tried() {
    let (contraction, schema) =
        contraction(vec![call(Function::Sum, [Some(0), Some(0)], Combine::Times)]);
    let large = |value: i64| {
        let column = |value: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![value, value])) };
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.0, 0.0]));
        let columns = [("k", column(1)), ("g", column(1)), ("n", column(value)), ("x", floats)];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let fits = |left: i64, right: i64| {
        let sides = entries(&contraction, [vec![large(left)], vec![large(right)]]).unwrap();
        plan(&contraction, &sides, &schema).is_ok()
    };
    // Four pairs of each: four times the product must fit.
    assert!(fits(1 << 30, 1 << 30));
    assert!(fits(i64::MAX / 4, 1));
    assert!(!fits(i64::MAX / 4 + 1, 1));
    assert!(!fits(i64::MIN, -1));
}
