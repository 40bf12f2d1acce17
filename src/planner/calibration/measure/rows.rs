//! What is done to rows, each by the kernels that do it for operators: on one thread, over tables of a key and a value.
//!
//! An operator does more than its kernel, by batches that wait, are copied and leave, and how much more is in the built-in
//! constants. What is measured is by how much the kernels of this machine are faster than those of the one these are of.
//!
//! Tables and groups are there before anything is looked up in them, and what is looked up is in them: of those that are made
//! on the way a second look would pay less than the first.

use std::fmt::Debug;
use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::kernels::cmp::lt;
use arrow::compute::kernels::numeric::add_wrapping;
use arrow::compute::{concat_batches, filter_record_batch, sum, take_record_batch};
use arrow::datatypes::Int64Type;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;

use super::{Task, rate};
use crate::exec::costs::Constant;
use crate::exec::kernels::distinct::mixed;
use crate::exec::kernels::lookup::Lookup;
use crate::exec::kernels::numbering::Numbering;
use crate::exec::kernels::radix;
use crate::planner::cost::CostModel;
use crate::planner::cost::rows::missed;

/// What each of them takes, about, beside what it is made ready by.
const SECONDS: f64 = 0.016;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// Rows that are read, kept, built, dealt out, grouped and sorted, and those that are looked up.
const ROWS: usize = 1 << 18;

/// Rows of a table within the caches, and of one beyond most of them.
const NEAR: usize = 1 << 12;
const FAR: usize = 1 << 19;

/// A machine is no more than so many times as fast or as slow as that of the built-in constants: two measurements, one of which is
/// a part of the other, may come out alike.
const FACTOR_MAX: f64 = 8.0;

/// The constants that are about rows: the built-in ones by as much faster as the kernels run here than on a Xeon with AVX-512
/// (two threads), whose rates stand behind them.
pub(super) fn constants() -> Vec<(Constant, f64)> {
    let rate = |size: usize, task: fn(usize) -> Task| rate(SECONDS, &[size], task);
    let [probed, probed_far] = apart([NEAR, FAR].map(|rows| rate(rows, looked_up)));
    let [grouped, grouped_far] = apart([NEAR, FAR].map(|groups| rate(groups, added_to)));
    let found = [
        (Constant::Read, rate(ROWS, read), 8.1e8),
        (Constant::Kept, rate(ROWS, kept), 1.2e9),
        (Constant::Built, rate(ROWS, built), 8.3e7),
        (Constant::Probed, probed, 1.7e8),
        (Constant::ProbedFar, probed_far, 6.2e7),
        (Constant::Gathered, rate(ROWS, gathered), 3.3e8),
        (Constant::Compared, rate(BATCH_ROWS, compared), 1.4e9),
        (Constant::Dealt, rate(ROWS, dealt), 3.6e8),
        (Constant::Grouped, grouped, 2.2e8),
        (Constant::GroupedFar, grouped_far, 3.8e7),
        (Constant::Sorted, rate(ROWS, sorted), 3.2e7),
    ];
    let scaled = |(constant, here, there): (Constant, f64, f64)| {
        let factor: f64 = here / there;
        let built_in = CostModel::default().constant(constant);
        (constant, built_in * factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX))
    };
    found.map(scaled).into()
}

/// The rates of near and of far looks, of two measurements that have some of each. What seems to take less than nothing takes
/// nothing, about.
fn apart(rates: [f64; 2]) -> [f64; 2] {
    let [at_near, at_far] = rates.map(|rate| 1.0 / rate);
    let [near, far] = [NEAR, FAR].map(|rows| missed(rows as f64));
    let slope = (at_far - at_near) / (far - near);
    [at_near - slope * near, at_near + slope * (1.0 - near)]
        .map(|taken| 1.0 / taken.max(f64::MIN_POSITIVE))
}

/// Half of the rows.
fn read(rows: usize) -> Task {
    let batches = batches(rows);
    let middle = Int64Array::new_scalar(BATCH_ROWS as i64 / 2);
    of_batches(rows, batches, move |batch| {
        let is_met = certain(lt(batch.column(1), &middle));
        black_box(certain(filter_record_batch(batch, &is_met)));
    })
}

/// Copies of all values, which are read again.
fn kept(rows: usize) -> Task {
    let batches = batches(rows);
    Task::new(2.0 * rows as f64, move || {
        let copies = concatenated(&batches);
        for column in copies.columns() {
            black_box(sum(column.as_primitive::<Int64Type>()));
        }
    })
}

/// Rows that become one batch, and their keys a table.
fn built(rows: usize) -> Task {
    let batches = batches(rows);
    Task::new(rows as f64, move || {
        let whole = concatenated(&batches);
        let keys = whole.column(0).as_primitive::<Int64Type>().values();
        let words = keys.iter().map(|&key| key as u64).collect();
        black_box((&whole, Lookup::<u64>::new(words, None)));
    })
}

/// Keys that are looked up in a table of so many rows.
fn looked_up(rows: usize) -> Task {
    let table = Lookup::<u64>::new((0..rows).map(key).collect(), None);
    let mut places = Vec::new();
    of_words(rows, move |words| {
        table.first(words, None, &mut places);
        black_box(&places);
    })
}

/// Pairs of rows, of which the columns are gathered.
fn gathered(rows: usize) -> Task {
    let whole = concatenated(&batches(rows));
    let places = (0..rows).map(|at| place(at, rows) as u32).collect::<Vec<_>>();
    let pieces = places.chunks(BATCH_ROWS).map(|of| UInt32Array::from(of.to_vec()));
    let pieces: Vec<UInt32Array> = pieces.collect();
    Task::new(rows as f64, move || {
        for places in &pieces {
            black_box(certain(take_record_batch(&whole, places)));
        }
    })
}

/// Pairs of one row and of each of so many others, by a condition that none meets.
fn compared(rows: usize) -> Task {
    let values = Int64Array::from_iter_values((0..rows).map(|at| at as i64));
    let (one, zero) = (Int64Array::new_scalar(1), Int64Array::new_scalar(0));
    Task::new(rows as f64, move || {
        let sums = certain(add_wrapping(&values, &one));
        black_box(certain(lt(&sums, &zero)));
    })
}

/// Rows that are dealt out by their keys.
fn dealt(rows: usize) -> Task {
    let batches = batches(rows);
    let keys = vec![Arc::new(Column::new("key", 0)) as Arc<dyn PhysicalExpr>];
    let mut dealer = certain(BatchPartitioner::new_hash_partitioner(keys, 2, Time::new()));
    of_batches(rows, batches, move |batch| {
        certain(dealer.partition(batch.clone(), |_, part| {
            black_box(part);
            Ok(())
        }));
    })
}

/// Rows that are added to so many groups.
fn added_to(groups: usize) -> Task {
    let (mut numbering, mut numbers) = (Numbering::<u64>::default(), Vec::new());
    let keys: Vec<u64> = (0..groups).map(key).collect();
    numbering.number(&keys, &mut numbers);
    let mut sums = vec![0_u64; groups];
    of_words(groups, move |words| {
        numbers.clear();
        numbering.number(words, &mut numbers);
        for (&number, &word) in numbers.iter().zip(words) {
            sums[number] = sums[number].wrapping_add(word);
        }
    })
}

/// Rows that are put in the order of their keys.
fn sorted(rows: usize) -> Task {
    let whole = concatenated(&batches(rows));
    Task::new(rows as f64, move || {
        let keys = whole.column(0).as_primitive::<Int64Type>().values().iter();
        let mut entries: Vec<(u64, u32)> =
            keys.enumerate().map(|(at, &key)| (key as u64, at as u32)).collect();
        radix::sort(&mut entries, |entry| entry.0);
        let places = UInt32Array::from_iter_values(entries.into_iter().map(|(_, at)| at));
        black_box(certain(take_record_batch(&whole, &places)));
    })
}

/// What is done to each batch of so many rows.
fn of_batches(
    rows: usize,
    batches: Vec<RecordBatch>,
    mut work: impl FnMut(&RecordBatch) + Send + 'static,
) -> Task {
    Task::new(rows as f64, move || batches.iter().for_each(&mut work))
}

/// What is done to keys that so many rows have, in no order, a batch at a time.
fn of_words(rows: usize, mut work: impl FnMut(&[u64]) + Send + 'static) -> Task {
    let words: Vec<u64> = (0..ROWS).map(|at| key(place(at, rows))).collect();
    Task::new(words.len() as f64, move || words.chunks(BATCH_ROWS).for_each(&mut work))
}

/// One of so many rows, far from those before and after it.
fn place(at: usize, rows: usize) -> usize {
    (mixed(at as u64) % rows as u64) as usize
}

/// The key of a row, far from those of the rows beside it.
fn key(row: usize) -> u64 {
    mixed(row as u64)
}

/// So many rows: of each its key, and its place in its batch.
fn batches(rows: usize) -> Vec<RecordBatch> {
    let batch = |start: usize| {
        let rows = start..rows.min(start + BATCH_ROWS);
        let keys = Int64Array::from_iter_values(rows.clone().map(|row| key(row) as i64));
        let values = Int64Array::from_iter_values(rows.map(|row| (row - start) as i64));
        let columns = [("key", Arc::new(keys) as ArrayRef), ("value", Arc::new(values))];
        certain(RecordBatch::try_from_iter(columns))
    };
    (0..rows).step_by(BATCH_ROWS).map(batch).collect()
}

fn concatenated(batches: &[RecordBatch]) -> RecordBatch {
    certain(concat_batches(batches[0].schema_ref(), batches))
}

/// What comes of columns that are as [`batches`] makes them.
fn certain<T, E: Debug>(found: Result<T, E>) -> T {
    found.expect("two columns of numbers, of one length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_far_looks_are_told_apart() {
        let (near, far) = (2e-9, 9e-9);
        let of = |rows: usize| 1.0 / (near + (far - near) * missed(rows as f64));
        let found = apart([NEAR, FAR].map(of)).map(|rate| 1.0 / rate);
        assert!((found[0] / near - 1.0).abs() < 1e-9 && (found[1] / far - 1.0).abs() < 1e-9);
        // A table far beyond the caches that is faster says nothing, and does not divide by it.
        assert!(apart([1.0, 1e9]).iter().all(|rate| *rate > 0.0 && rate.is_finite()));
    }

    #[test]
    fn what_is_looked_up_is_there() {
        let table = Lookup::<u64>::new((0..NEAR).map(key).collect(), None);
        let asked: Vec<u64> = (0..ROWS).map(|at| key(place(at, NEAR))).collect();
        let mut places = Vec::new();
        table.first(&asked, None, &mut places);
        assert!(!table.is_array() && table.is_unique() && places.iter().all(|&place| place > 0));
    }
}
