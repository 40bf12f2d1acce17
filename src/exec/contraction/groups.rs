//! How the groups are computed, decided once the entries are there; and the groups as batches.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, SchemaRef};
use rayon::prelude::*;

use super::dense::{Occupied, Products};
use super::sides::Entries;
use super::{Call, Contraction, Function, Ordinary};
use crate::error::Result;
use crate::exec::kernels::contract::{
    Column, Combine, Fold, Groups, Scratch, Side, Term, Values, contract,
};
use crate::exec::run::Cancel;

/// Integers up to here are exact in 64-bit floats.
const EXACT_MAX: u128 = 1 << 53;
/// Pairs that are one task, and groups of one, about.
const TASK_PAIRS: u64 = 1 << 20;
const TASK_GROUPS: u64 = 1 << 16;
/// A pair of the sparse way takes as long as so many multiplications of a dense product.
const PAIR_WORK: f64 = 50.0;

/// What is to be done, and that it fits.
pub(super) struct Plan {
    contraction: Contraction,
    schema: SchemaRef,
    terms: Vec<Term>,
    /// Which terms a call reads: its own, then how many numbers there were where that matters.
    calls: Vec<(usize, Option<usize>)>,
    /// For each group key of the left side the pairs that its entries make.
    pairs: Vec<u64>,
    /// Where products of dense matrices take less time.
    dense: Option<[Occupied; 2]>,
    columns: usize,
    bytes: usize,
}

/// Decides how; or that a number might not fit.
pub(super) fn plan(
    contraction: &Contraction,
    sides: &[Entries; 2],
    schema: &SchemaRef,
) -> Result<Plan, Ordinary> {
    let [left, right] = sides;
    let bounds =
        sides.each_ref().map(|side| side.columns.par_iter().map(Bound::of).collect::<Vec<_>>());
    let mut terms = Vec::new();
    let mut calls = Vec::new();
    for call in &contraction.calls {
        let term = term(call);
        let has_nulls = read(call, &bounds).any(|bound| bound.has_nulls);
        let counts = call.function == Function::Average || has_nulls;
        let place = place_of(&mut terms, term);
        let count = (counts && term.fold != Fold::Count).then(|| {
            let count =
                Term { combine: Combine::Left, is_single: false, fold: Fold::Count, ..term };
            place_of(&mut terms, count)
        });
        calls.push((place, count));
    }
    let mut by_inner = vec![0u64; left.inner_count];
    right.inner.iter().for_each(|&inner| by_inner[inner as usize] += 1);
    let mut pairs = vec![0u64; left.outer_count()];
    for (&outer, &inner) in left.outer.iter().zip(&left.inner) {
        pairs[outer as usize] += by_inner[inner as usize];
    }
    let most = pairs.iter().copied().max().unwrap_or(0);
    let fields = &schema.fields()[contraction.keys.len()..];
    for (call, field) in contraction.calls.iter().zip(fields) {
        if !fits(call, &bounds, most, field.data_type()) {
            return Err(Ordinary::Overflow);
        }
    }
    let cells = left.outer_count() as f64 * right.outer_count() as f64;
    let total: u64 = pairs.iter().sum();
    let is_dense = PAIR_WORK * total as f64 > cells * left.inner_count as f64
        && contraction.calls.iter().all(|call| is_product(call, &bounds, left.inner_count));
    let dense = if is_dense { occupied(sides, &bounds) } else { None };
    let inner_cells = (left.outer_count() + right.outer_count()) * left.inner_count;
    let bytes = match dense {
        // The words of all bits, both factors at a time, and all products.
        Some(_) => inner_cells / 8 + 8 * inner_cells + 8 * cells as usize * terms.len(),
        None => 0,
    };
    Ok(Plan {
        contraction: contraction.clone(),
        schema: Arc::clone(schema),
        terms,
        calls,
        pairs,
        dense,
        columns: right.outer_count(),
        bytes,
    })
}

/// Where products may be dense: cells of one entry each, and where some have none, numbers whose product
/// with zero is zero.
fn occupied(sides: &[Entries; 2], bounds: &[Vec<Bound>; 2]) -> Option<[Occupied; 2]> {
    let [left, right] = sides;
    let (left, right) = rayon::join(|| Occupied::new(left), || Occupied::new(right));
    let (left, right) = (left?, right?);
    let is_full = left.is_full() && right.is_full();
    (is_full || bounds.iter().flatten().all(|bound| bound.is_finite)).then_some([left, right])
}

fn place_of(terms: &mut Vec<Term>, term: Term) -> usize {
    terms.iter().position(|other| *other == term).unwrap_or_else(|| {
        terms.push(term);
        terms.len() - 1
    })
}

fn term(call: &Call) -> Term {
    let fold = match call.function {
        Function::Count => Fold::Count,
        Function::Sum | Function::Average => Fold::Sum,
        Function::Least => Fold::Least,
        Function::Greatest => Fold::Greatest,
    };
    let [left, right] = call.values;
    let is_single = call.term_type == DataType::Float32;
    Term { left, right, combine: call.combine, is_single, fold }
}

/// Of the columns that a call reads.
fn read<'a>(call: &Call, bounds: &'a [Vec<Bound>; 2]) -> impl Iterator<Item = &'a Bound> {
    let columns = call.values.into_iter().zip(bounds);
    columns.filter_map(|(at, bounds)| at.map(|at| &bounds[at]))
}

/// Whether a term folds into integers.
pub(super) fn is_integer(term: &Term, sides: &[Entries; 2]) -> bool {
    let column = |at: Option<usize>, side: &Entries| {
        at.is_none_or(|at| matches!(side.columns[at].values, Values::Integers(_)))
    };
    term.fold == Fold::Count || (column(term.left, &sides[0]) && column(term.right, &sides[1]))
}

/// How large the numbers of a column are.
struct Bound {
    integer: u128,
    float: f64,
    is_finite: bool,
    has_nulls: bool,
}

impl Bound {
    fn of(column: &Column) -> Self {
        let has_nulls = column.valid.is_some();
        match &column.values {
            Values::Integers(values) => {
                let most = values.iter().map(|value| value.unsigned_abs()).max().unwrap_or(0);
                let (integer, float) = (u128::from(most), most as f64);
                Self { integer, float, is_finite: true, has_nulls }
            }
            Values::Floats(values) => {
                let most = values.iter().map(|value| value.abs()).fold(0.0, f64::max);
                let is_finite = values.iter().all(|value| value.is_finite());
                Self { integer: 0, float: most, is_finite, has_nulls }
            }
        }
    }
}

/// Whether every term and every fold of so many is what SQL would make of it.
fn fits(call: &Call, bounds: &[Vec<Bound>; 2], pairs: u64, result: &DataType) -> bool {
    let bounds = || read(call, bounds);
    let largest_float = || {
        let floats = bounds().map(|bound| bound.float);
        match call.combine {
            Combine::Times => floats.product(),
            _ => floats.sum::<f64>(),
        }
    };
    match (&call.term_type, call.function) {
        (_, Function::Count) | (DataType::Float64, Function::Sum | Function::Average) => true,
        (DataType::Float32, Function::Sum | Function::Average) => true,
        // Which of several values without an order is kept depends on the order of the rows.
        (DataType::Float32 | DataType::Float64, _) => {
            let single = call.term_type == DataType::Float32;
            let limit = if single { f64::from(f32::MAX) } else { f64::MAX };
            bounds().all(|bound| bound.is_finite) && largest_float() < limit
        }
        (integer, function) => {
            let integers = bounds().map(|bound| bound.integer);
            let largest: u128 = match call.combine {
                Combine::Times => integers.product(),
                _ => integers.sum(),
            };
            let limit = match integer {
                DataType::Int8 => i8::MAX as u128,
                DataType::Int16 => i16::MAX as u128,
                DataType::Int32 => i32::MAX as u128,
                _ => i64::MAX as u128,
            };
            let sum_limit = if result.is_floating() { EXACT_MAX } else { i64::MAX as u128 };
            let sums = matches!(function, Function::Sum | Function::Average);
            largest <= limit && (!sums || largest.saturating_mul(u128::from(pairs)) <= sum_limit)
        }
    }
}

/// Whether a call is a product of matrices, as exact as its terms are.
fn is_product(call: &Call, bounds: &[Vec<Bound>; 2], inner_count: usize) -> bool {
    let sums = matches!(call.function, Function::Count | Function::Sum | Function::Average);
    let factors = matches!(call.combine, Combine::Times | Combine::Left | Combine::Right);
    let bounds = || read(call, bounds);
    let exact = match &call.term_type {
        DataType::Float64 => true,
        // Each product is rounded, as none within a product of matrices is.
        DataType::Float32 => call.combine != Combine::Times,
        _ => {
            let largest: u128 = bounds().map(|bound| bound.integer).product();
            largest.saturating_mul(inner_count as u128) <= EXACT_MAX
        }
    };
    sums && factors && exact && bounds().all(|bound| !bound.has_nulls)
}

impl Plan {
    pub(super) fn pairs(&self) -> u64 {
        self.pairs.iter().sum()
    }

    pub(super) fn is_dense(&self) -> bool {
        self.dense.is_some()
    }

    /// Bytes that so many threads need beside the entries.
    pub(super) fn size_bytes(&self, threads: usize) -> usize {
        match self.dense {
            Some(_) => self.bytes,
            None => threads * Scratch::size_bytes(self.columns, self.terms.len()),
        }
    }

    /// Makes all groups.
    pub(super) fn run(
        self,
        sides: [Entries; 2],
        pool: &rayon::ThreadPool,
        cancel: &Cancel,
        emit: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let keys = sides.each_ref().map(|side| side.keys.clone());
        let tasks = self.tasks();
        let (plan, keys) = (&self, &keys);
        let mut each = |groups: &(dyn Fn(Range<usize>) -> Groups + Sync)| -> Result<()> {
            // As many at a time as keep every thread at work while batches are handed on.
            for wave in tasks.chunks(4 * pool.current_num_threads()) {
                cancel.check()?;
                let batches: Vec<Result<RecordBatch>> = pool.install(|| {
                    wave.par_iter().map(|rows| plan.batch(groups(rows.clone()), keys)).collect()
                });
                cancel.check()?;
                for batch in batches {
                    let batch = batch?;
                    if batch.num_rows() > 0 {
                        emit(batch)?;
                    }
                }
            }
            Ok(())
        };
        if let Some(occupied) = &plan.dense {
            let products =
                pool.install(|| Products::new(&sides, occupied, &plan.terms, cancel.stop()));
            drop(sides);
            return each(&|rows| products.groups(rows, plan.columns));
        }
        let [left, right] = sides;
        let inner = left.inner_count;
        let (left, right) = pool.install(|| {
            rayon::join(
                || Side::new(plan.pairs.len(), &left.outer, left.inner, left.columns),
                || Side::new(inner, &right.inner, right.outer, right.columns),
            )
        });
        let idle: Mutex<Vec<Scratch>> = Mutex::default();
        let take = || idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        each(&|rows| {
            let mut scratch =
                take().unwrap_or_else(|| Scratch::new(plan.columns, &plan.terms, &left, &right));
            let groups = contract(rows, &left, &right, &plan.terms, &mut scratch, cancel.stop());
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
            groups
        })
    }

    /// Runs of rows that make about as many pairs each, and not too many groups.
    fn tasks(&self) -> Vec<Range<usize>> {
        let mut tasks = Vec::new();
        let (mut first, mut pairs, mut groups) = (0, 0, 0);
        for (row, &of_row) in self.pairs.iter().enumerate() {
            pairs += if self.is_dense() { 0 } else { of_row };
            groups += of_row.min(self.columns as u64);
            if pairs >= TASK_PAIRS || groups >= TASK_GROUPS {
                tasks.push(first..row + 1);
                (first, pairs, groups) = (row + 1, 0, 0);
            }
        }
        tasks.push(first..self.pairs.len());
        tasks
    }

    /// Groups under their keys.
    fn batch(&self, groups: Groups, keys: &[Vec<ArrayRef>; 2]) -> Result<RecordBatch> {
        let count = groups.columns.len();
        let places = [UInt32Array::from(groups.rows), UInt32Array::from(groups.columns)];
        let mut arrays = Vec::with_capacity(self.schema.fields().len());
        for &(side, at) in &self.contraction.keys {
            arrays.push(take(&keys[side][at], &places[side], None)?);
        }
        let fields = &self.schema.fields()[arrays.len()..];
        for ((call, &(folded, counted)), field) in
            self.contraction.calls.iter().zip(&self.calls).zip(fields)
        {
            let counts = counted.map(|at| integers(&groups.folded[at]));
            let array = finished(call.function, &groups.folded[folded], counts);
            arrays.push(cast(&array, field.data_type())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}

fn integers(values: &Values) -> &[i64] {
    match values {
        Values::Integers(values) => values,
        Values::Floats(_) => &[],
    }
}

/// The result of a call from what was folded and, where that matters, of how many numbers.
fn finished(function: Function, folded: &Values, counts: Option<&[i64]>) -> ArrayRef {
    let nulls = counts.map(|counts| counts.iter().map(|&count| count > 0).collect());
    let nulls: Option<NullBuffer> = nulls;
    match (function, folded) {
        (Function::Average, folded) => {
            let sums: Vec<f64> = match folded {
                Values::Floats(sums) => sums.clone(),
                Values::Integers(sums) => sums.iter().map(|&sum| sum as f64).collect(),
            };
            let counts = counts.unwrap_or_default();
            let means = sums.iter().zip(counts).map(|(sum, &count)| sum / count as f64);
            Arc::new(Float64Array::new(means.collect(), nulls))
        }
        (_, Values::Floats(folded)) => Arc::new(Float64Array::new(folded.clone().into(), nulls)),
        (_, Values::Integers(folded)) => Arc::new(Int64Array::new(folded.clone().into(), nulls)),
    }
}
