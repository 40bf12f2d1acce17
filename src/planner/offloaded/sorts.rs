//! Which sorts a device may run: those of rows of a table in memory, by keys that are a number of few words.
//!
//! ```text
//! SortPreservingMergeExec: [k], fetch=10      OffloadedSortExec: by the GPU (…)
//!   SortExec: TopK(fetch=10), expr=[k]   ──►    SortPreservingMergeExec: [k], fetch=10
//!     FilterExec                                  …   the host's plan, as it was
//!       DataSourceExec
//! ```
//!
//! A device finds out in which order rows leave, and the host gathers them: their columns may be of any type. What it computes of them cannot fail,
//! for the host's plan would have computed it of all rows, and not only of the first.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::bringing::{self, Bringing, Host, Working};
use super::rows::{Over, Rows, replaced};
use super::terms::Terms;
use super::{MEMORY_SHARE, ROWS_MIN, TEXTS};
use crate::config::{Gpu, GpuUse};
use crate::exec::offload::groups::{Asked, Key, Kind, Term, Values};
use crate::exec::offload::kept;
use crate::exec::offload::operator::{Choice, OffloadedExec};
use crate::exec::offload::sorts::{By, Of, Sorting, WORDS_MAX, is_few, sorts};
use crate::gpu::Rates;
use crate::planner::cost::rows::RowCosts;
use crate::planner::place;
use crate::planner::spilling::merge_below;

/// Bits of a word and of a digit.
const WORD_BITS: f64 = u64::BITS as f64;
const DIGIT_BITS: f64 = 8.0;

/// Bytes of a row's number.
const NUMBER_BYTES: f64 = size_of::<u32>() as f64;

/// The operator over a sort that a device may run.
pub(super) fn offloaded(
    plan: &Arc<dyn ExecutionPlan>,
    wanted: &GpuUse,
    costs: &RowCosts,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let below = merge_below(plan);
    let (sorted, chosen) = match &below {
        Some((merge, columns)) => (merge, columns.downcast_ref::<ProjectionExec>()),
        None => (plan, None),
    };
    let Some((sort, fetch)) = sort(sorted) else { return Ok(None) };
    let Some(rows) = Rows::of(sort.input())? else { return Ok(None) };
    let Some(sorting) = sorting(&rows, sort.expr(), fetch, chosen)? else { return Ok(None) };
    if wanted.when == Gpu::Auto && sorting.asked.rows < ROWS_MIN {
        return Ok(None);
    }
    let Some(choice) = choice(&sorting, wanted, costs, plan) else { return Ok(None) };
    let host = Arc::clone(plan);
    Ok(Some(Arc::new(OffloadedExec::new(Arc::new(sorting), choice, host))))
}

/// The sort of all rows that a plan is, and how many of them are asked for.
fn sort(plan: &Arc<dyn ExecutionPlan>) -> Option<(&SortExec, Option<usize>)> {
    if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
        let sort = merge.input().downcast_ref::<SortExec>()?;
        let fetch = [merge.fetch(), sort.fetch()].into_iter().flatten().min();
        return (merge.expr() == sort.expr()).then_some((sort, fetch));
    }
    let sort = plan.downcast_ref::<SortExec>()?;
    let is_one = sort.input().output_partitioning().partition_count() == 1;
    is_one.then_some((sort, sort.fetch()))
}

/// What is asked of the rows of a table; nothing where a part of that is none for devices.
fn sorting(
    rows: &Rows<'_>,
    ordering: &LexOrdering,
    fetch: Option<usize>,
    chosen: Option<&ProjectionExec>,
) -> Result<Option<Sorting>> {
    if !rows.joins.is_empty() || rows.columns.iter().any(is_volatile) {
        return Ok(None);
    }
    let mut terms = Terms::new(rows);
    let Some(conditions) = terms.conditions() else { return Ok(None) };
    let mut by = Vec::new();
    for PhysicalSortExpr { expr, options } in ordering {
        let Some(of) = key(&rows.over(expr)?, &mut terms) else { return Ok(None) };
        by.push(By { of, options: *options });
    }
    let given = match chosen {
        Some(chosen) => chosen.expr().iter().map(|one| rows.over(&one.expr)).collect(),
        None => Ok(rows.columns.clone()),
    };
    let given: Vec<Over> = given?;
    // What is computed of rows is a term, which cannot fail; none of these is the device's.
    let mut others = Terms::new(rows);
    if !given.iter().all(|of| of.is::<Column>() || others.term(of).is_some()) {
        return Ok(None);
    }
    let schema = rows.schema();
    let (mut read, mut fields) = (Vec::new(), Vec::new());
    let mut read_at: Vec<Over> = Vec::new();
    let columns: Vec<Column> = given.iter().flat_map(collect_columns).collect();
    for (place, field) in schema.fields().iter().enumerate() {
        read_at.push(Arc::new(Column::new(field.name(), read.len())));
        if columns.iter().any(|column| column.index() == place) {
            let Some((_, column)) = rows.column(place) else { return Ok(None) };
            read.push(column);
            fields.push(Arc::clone(field));
        }
    }
    let given = given.iter().map(|of| replaced(&read_at, of)).collect::<Result<_>>()?;
    let keys = by.iter().filter_map(|by| match by.of {
        Of::Looked(at) => Some(Key::LookedUp(at)),
        Of::Whole(_) | Of::Real(_) => None,
    });
    let keys = keys.collect();
    let Terms { columns, values, tables, look_ups, .. } = terms;
    let count = if columns.is_empty() { 0 } else { rows.count() };
    let asked = Asked {
        rows: count,
        columns,
        values,
        tables,
        look_ups,
        conditions,
        keys,
        ..Asked::default()
    };
    let read_as = Arc::new(Schema::new(fields));
    let sorting = Sorting { asked, by, fetch, given, read, read_as };
    Ok(Some(sorting).filter(|sorting| sorting.asked.rows > 0))
}

/// What a sort key is about. Doubles that are computed are none: which kind of NaN comes of what is a matter of who computes it.
fn key(of: &Over, terms: &mut Terms<'_>) -> Option<Of> {
    if is_volatile(of) {
        return None;
    }
    if let Some(column) = terms.column(of) {
        return match terms.values[column] {
            Values::Double | Values::Single => Some(Of::Real(column)),
            Values::Whole(_) => Some(Of::Whole(Term::Column(column))),
            Values::Texts => terms.look_up(of).map(Of::Looked),
        };
    }
    let term = terms.term(of).filter(|term| term.kind(&terms.values) == Some(Kind::Whole));
    term.map(Of::Whole).or_else(|| terms.look_up(of).map(Of::Looked))
}

/// Who is to run it; nothing where there is no device, or it has no room.
fn choice(
    sorting: &Sorting,
    wanted: &GpuUse,
    costs: &RowCosts,
    plan: &Arc<dyn ExecutionPlan>,
) -> Option<Choice> {
    let Sorting { asked, fetch, read, .. } = sorting;
    let most = fetch.map_or(asked.rows, |fetch| fetch.min(asked.rows));
    let (rows, asked_rows) = (asked.rows as f64, most as f64);
    let is_few = is_few(most, asked.rows);
    let bits: f64 = sorting.by.iter().map(|by| bits(asked, &by.of)).sum();
    if bits > WORD_BITS * WORDS_MAX as f64 {
        return None;
    }
    let threads = wanted.threads.max(1) as f64;
    // Both sides gather what leaves.
    let gathering = costs.gathered(asked_rows * read.len() as f64) * 1e-9 / threads;
    let ordering = match is_few {
        true => costs.compared(rows) + costs.sorted(asked_rows),
        false => costs.sorted(rows),
    };
    let of_host = costs.read(rows) * asked.columns.len() as f64 + ordering;
    let by_rates = of_host * 1e-9 / threads + gathering;
    let force = wanted.when == Gpu::Force;
    let sought = place::devices(wanted, by_rates)?;
    if !sorts(&sought.next, force) {
        return None;
    }
    let host = Host::of(plan, by_rates);
    let rates = sought.next.rates();
    let read_bytes: usize = bringing::bytes(asked).sum();
    let word_bytes = if bits > f64::from(u32::BITS) { 8.0 } else { 4.0 };
    // The codes of all rows, and of those that are sorted codes and numbers twice.
    let sorted = if is_few { asked_rows } else { rows };
    let code_bytes = rows * word_bytes * (bits / WORD_BITS).ceil();
    let own_bytes = code_bytes + 2.0 * sorted * (word_bytes + NUMBER_BYTES);
    let held_bytes = (read_bytes as f64 + own_bytes) as usize;
    if held_bytes > sought.memory_bytes() {
        return None;
    }
    let seconds = working_seconds(rates, [rows, sorted, bits, word_bytes], read_bytes, is_few)
        + asked_rows * NUMBER_BYTES / rates.download
        + gathering;
    // All rows are there before any is sorted.
    let working = Working { seconds, while_coming: 0.0, read_bytes, held_bytes, has_room: true };
    Some(Bringing::of(asked, wanted, costs, &sought).choice(&working, host, wanted))
}

/// Bits of a key.
fn bits(asked: &Asked, of: &Of) -> f64 {
    let numbers = match of {
        Of::Real(at) if asked.values[*at] == Values::Single => return f64::from(u32::BITS),
        Of::Real(_) => return WORD_BITS,
        Of::Whole(term) => {
            let [least, greatest] = term.bounds(&asked.values).unwrap_or_default();
            greatest.abs_diff(least) as f64 + 1.0
        }
        Of::Looked(at) => {
            let column = asked.look_ups[*at].column;
            kept::texts(&asked.columns[column]).map_or(TEXTS, |texts| texts as f64)
        }
    };
    numbers.log2()
}

/// Seconds of a device that has all columns.
fn working_seconds(
    rates: &Rates,
    [rows, sorted, bits, word_bytes]: [f64; 4],
    read_bytes: usize,
    is_few: bool,
) -> f64 {
    let digits = (bits / DIGIT_BITS).ceil();
    // A row is counted, read and written by each digit; where few are asked for, all are counted by each, and gathered twice in two steps.
    let row_bytes = NUMBER_BYTES + word_bytes;
    let by_digit = word_bytes + 2.0 * row_bytes;
    let selecting = if is_few { rows * word_bytes * (digits + 4.0) } else { 0.0 };
    let moved = read_bytes as f64 + rows * word_bytes + sorted * digits * by_digit + selecting;
    let launches = 3.0 * digits + if is_few { 2.0 * digits + 8.0 } else { 5.0 };
    moved / (MEMORY_SHARE * rates.memory)
        + launches * rates.launch_seconds
        + 2.0 * rates.synchronize_seconds
}
