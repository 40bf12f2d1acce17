//! Which operators a device may run: aggregations of rows of a table in memory, by keys of few values, beside rows of others that they are
//! joined to by a key; and sorts of rows of a table.
//!
//! ```text
//! AggregateExec: mode=Final               OffloadedAggregateExec: by the GPU (…)
//!   CoalescePartitionsExec                  AggregateExec: mode=Final
//!     AggregateExec: mode=Partial    ──►      …   the host's plan, as it was
//!       FilterExec
//!         DataSourceExec
//! ```
//!
//! A device runs what it is expected to be clearly faster at, as with matrices (`place`). Columns at hand stay there once they were
//! brought (`bringing`). The host's side is what rates of rows say, and once it has run, what it took.
//!
//! After the rules that tie operators together, so that constants have their values, and before those that put other operators in the
//! places of DataFusion's: the host's plan is below, and they go through it as ever.

mod bringing;
mod keys;
mod rows;
mod sorts;
mod terms;

use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use self::bringing::{Bringing, Host, Working};
use self::rows::Rows;
use self::terms::Terms;
use super::Evidence;
use super::cost::rows::RowCosts;
use super::operators::with_others;
use super::place;
use super::spilling::phases;
use crate::config::{ForRules, Gpu, GpuUse};
use crate::exec::offload::groups::{
    Aggregation, Asked, Key, Kind, PARTS_MAX, REGISTERS_MAX, SHARED_MAX, State, Term, Values, What,
    adds_up, expected_bytes, is_hashed, places_bytes, rows_min, words,
};
use crate::exec::offload::kept;
use crate::exec::offload::operator::{Choice, OffloadedExec};
use crate::gpu::{self, Rates};

/// Rows below which nobody asks for a device.
const ROWS_MIN: usize = 1 << 14;

/// Codes of groups, as far as they are known, beyond which they are no number.
const CODES_MAX: f64 = (1_u64 << 62) as f64;

/// Texts that a column is taken to have before it was read.
const TEXTS: f64 = 10.0;

/// Share of a device's bandwidth that reading columns reaches.
const MEMORY_SHARE: f64 = 0.75;

const WORD_BYTES: f64 = size_of::<u64>() as f64;

/// What is read of a device's memory at once, and up to which size what is looked at again and again stays nearer than that.
const SECTOR_BYTES: usize = 32;
const NEAR_BYTES: usize = 32 << 20;

/// Additions a second to a table that all of a device's threads share.
const ADDITIONS: f64 = 5e9;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(crate) struct OffloadedOperators {
    evidence: Evidence,
}

impl OffloadedOperators {
    pub(crate) fn new(evidence: Evidence) -> Self {
        Self { evidence }
    }
}

impl PhysicalOptimizerRule for OffloadedOperators {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rules = config.extensions.get::<ForRules>();
        let Some(wanted) = rules.map(|rules| &rules.gpu) else { return Ok(plan) };
        let is_off = match wanted.when {
            Gpu::Off => true,
            Gpu::Auto => gpu::is_absent(),
            Gpu::Force => false,
        };
        if is_off {
            return Ok(plan);
        }
        let costs = self.evidence.costs(config);
        with_others(plan, &mut |operator| match aggregation(operator, wanted, &costs)? {
            Some(aggregation) => Ok(Some(aggregation)),
            None => sorts::offloaded(operator, wanted, &costs),
        })
    }

    fn name(&self) -> &str {
        "offloaded_operators"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The operator over an aggregation that a device may run.
fn aggregation(
    plan: &Arc<dyn ExecutionPlan>,
    wanted: &GpuUse,
    costs: &RowCosts,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some((first, _)) = phases(plan) else { return Ok(None) };
    // A device has its groups in an order of its own.
    if plan.output_ordering().is_some() {
        return Ok(None);
    }
    loop {
        let Some(rows) = Rows::of(first.input())? else { return Ok(None) };
        let Some(mut asked) = asked(first, &rows)? else { return Ok(None) };
        if wanted.when == Gpu::Auto && asked.rows < ROWS_MIN {
            return Ok(None);
        }
        let Some((choice, is_exact)) = choice(&asked, wanted, costs, plan) else {
            return Ok(None);
        };
        // To look at all values of a column is worth it where it decides something.
        if choice.by_device || !choice.missed.is_empty() {
            // What is no key will not be taken for one again.
            if !has_keys(&asked)? {
                continue;
            }
            let may_be_many = asked.keys.iter().any(|key| codes(&asked, key).is_none());
            let is_rounded = (is_exact || may_be_many) && !has_digits(&mut asked)?;
            if is_rounded && is_exact {
                return Ok(None);
            }
        }
        let work = Aggregation { asked, calls: first.aggr_expr().to_vec() };
        let host = Arc::clone(plan);
        return Ok(Some(Arc::new(OffloadedExec::new(Arc::new(work), choice, host))));
    }
}

/// Whether each near key that joins go by is one: no two rows of its table share a value. Of far ones this turns out on the device.
fn has_keys(asked: &Asked) -> Result<bool> {
    let near = asked.joins.iter().filter(|join| join.is_near).flat_map(|join| &join.key);
    for key in near {
        if !asked.columns[*key].is_key()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What an aggregation asks of the rows of a table; nothing where a part of that is none for devices.
fn asked(first: &AggregateExec, rows: &Rows<'_>) -> Result<Option<Asked>> {
    let mut terms = Terms::new(rows);
    let groups = first.group_expr();
    if !groups.is_single() || rows.columns.iter().any(is_volatile) {
        return Ok(None);
    }
    let mut joins = Vec::new();
    for named in &rows.joins {
        match terms.join(named) {
            Some(join) => joins.push(join),
            None => return Ok(None),
        }
    }
    let Some(conditions) = terms.conditions() else { return Ok(None) };
    let groups = groups.expr().iter().map(|(key, _)| rows.over(key)).collect::<Result<Vec<_>>>()?;
    let Some((keys, shown)) = keys::of(&groups, rows, &mut terms) else { return Ok(None) };
    let mut states = Vec::new();
    for (call, filter) in first.aggr_expr().iter().zip(first.filter_expr()) {
        let of = call.expressions().iter().map(|of| rows.over(of)).collect::<Result<Vec<_>>>()?;
        let filter = filter.as_ref().map(|filter| rows.over(filter)).transpose()?;
        match states_of(call, &of, filter.as_ref(), &mut terms)? {
            Some(own) => states.extend(own),
            None => return Ok(None),
        }
    }
    let Terms { columns, values, tables, look_ups, .. } = terms;
    let rows = if columns.is_empty() { 0 } else { rows.count() };
    let digits = vec![None; columns.len()];
    let asked = Asked {
        rows,
        columns,
        values,
        tables,
        digits,
        joins,
        look_ups,
        conditions,
        keys,
        shown,
        states,
    };
    Ok(Some(asked).filter(|asked| asked.rows > 0))
}

/// Whether all sums of doubles have so few digits that they are whole numbers, for which those of their columns are looked at.
fn has_digits(asked: &mut Asked) -> Result<bool> {
    let columns: BTreeSet<usize> = asked.real_sums().flat_map(Term::columns).collect();
    for at in columns {
        asked.digits[at] = match asked.values[at] {
            Values::Double | Values::Single => asked.columns[at].digits()?,
            Values::Whole(_) | Values::Texts => None,
        };
    }
    Ok(asked.real_sums().all(|of| asked.digits(of).is_some()))
}

/// The states of an aggregate.
fn states_of(
    call: &AggregateFunctionExpr,
    of: &[Arc<dyn PhysicalExpr>],
    filter: Option<&Arc<dyn PhysicalExpr>>,
    terms: &mut Terms<'_>,
) -> Result<Option<Vec<State>>> {
    let is_plain = !call.is_distinct()
        && !call.ignore_nulls()
        && call.order_bys().is_empty()
        && call.groups_accumulator_supported();
    let [of] = of else { return Ok(None) };
    let whats: &[What] = match call.fun().name() {
        "count" => &[What::Count],
        "sum" => &[What::Sum],
        "avg" => &[What::Count, What::Sum],
        "min" => &[What::Least],
        "max" => &[What::Greatest],
        _ => return Ok(None),
    };
    let fields = call.state_fields()?;
    if !is_plain || fields.len() != whats.len() {
        return Ok(None);
    }
    let counts_rows = call.fun().name() == "count"
        && of.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null());
    let mut term = if counts_rows { Some(Term::Whole(1)) } else { terms.term(of) };
    if let (Some(filter), Some(own)) = (filter, term.take_if(|_| filter.is_some())) {
        // Texts are counted by their column alone.
        let kind = own.kind(&terms.values);
        term = terms.term(filter).zip(kind).map(|(filter, kind)| {
            Term::Choose(Box::new(filter), Box::new(own), Box::new(Term::Null(kind)))
        });
    }
    let Some(term) = term else { return Ok(None) };
    let kind = term.kind(&terms.values);
    let of = Some(term).filter(|_| !counts_rows || filter.is_some());
    let states = whats.iter().zip(fields).map(|(&what, field)| {
        let data_type = field.data_type().clone();
        let is_right = match (what, kind) {
            (What::Count, _) => data_type.is_integer(),
            (What::Sum, Some(Kind::Whole)) => data_type.is_integer() || data_type.is_decimal(),
            (What::Sum, Some(Kind::Double)) => {
                data_type.is_floating() && data_type.primitive_width() == Some(8)
            }
            // Which of two NaN is the least is left to the host.
            (What::Least | What::Greatest, Some(Kind::Whole)) => data_type.is_primitive(),
            _ => false,
        };
        is_right.then(|| State { what, of: of.clone(), data_type })
    });
    Ok(states.collect())
}

/// Who is to run it, and whether doubles are added up as whole numbers; nothing where there is no device, or it has no room.
fn choice(
    asked: &Asked,
    wanted: &GpuUse,
    costs: &RowCosts,
    plan: &Arc<dyn ExecutionPlan>,
) -> Option<(Choice, bool)> {
    let rows = asked.rows as f64;
    let codes: f64 = asked.keys.iter().map(|key| codes(asked, key).unwrap_or(TEXTS)).product();
    if codes > CODES_MAX {
        return None;
    }
    let groups = codes.min(rows);
    let words = words(asked, codes) as f64;
    let is_exact = codes * words > REGISTERS_MAX as f64 && asked.real_sums().next().is_some();
    let is_text =
        |key: &&Key| column(asked, key).is_some_and(|at| asked.values[at] == Values::Texts);
    let texts = asked.keys.iter().filter(is_text).count();
    let joined = (1..=asked.joins.len()).map(|table| {
        let others = asked.rows_of(table) as f64;
        costs.built(others).min(costs.built(rows)) + costs.probed(others, rows)
    });
    let of_host = costs.read(rows) * asked.columns.len() as f64
        + joined.sum::<f64>()
        + if asked.keys.is_empty() { 0.0 } else { costs.grouped(rows, groups, texts) };
    let by_rates = of_host * 1e-9 / wanted.threads.max(1) as f64;
    let force = wanted.when == Gpu::Force;
    let sought = place::devices(wanted, by_rates)?;
    if !adds_up(&sought.next, force) {
        return None;
    }
    let host = Host::of(plan, by_rates);
    let rates = sought.next.rates();
    // What joins look up is to be there, too.
    let places = asked.joins.iter().map(|join| places_bytes(asked, join));
    let mut there_bytes: usize = places.clone().sum();
    let mut read_bytes: usize = places.map(|bytes| gathered(asked.rows, bytes)).sum();
    let bringing = Bringing::of(asked, wanted, costs, &sought);
    // What comes with the rows takes less where these come in batches, and more where it comes whole.
    let mut more_bytes = 0;
    for (at, (&table, bytes)) in asked.tables.iter().zip(bringing::bytes(asked)).enumerate() {
        read_bytes += if table == 0 { bytes } else { gathered(asked.rows, bytes) };
        let least = match table == 0 && bringing.has(at) {
            true => {
                let column = &asked.columns[at];
                expected_bytes(rows_min(column.rows()), asked.values[at], column.nulls() > 0)
            }
            false => bytes,
        };
        there_bytes += least;
        more_bytes += bytes - least;
    }
    // A table, and what comes back of it: of a part of the groups at a time where there is no room for all.
    let (table_bytes, back_bytes) =
        (totals_bytes(asked, codes, words), groups * words * WORD_BYTES);
    let needed_bytes =
        |parts: usize| there_bytes + ((table_bytes + back_bytes) / parts as f64) as usize;
    let is_many = codes * words > SHARED_MAX as f64;
    let parts = iter::successors(Some(1), |parts| Some(parts * 2));
    let mut parts = parts.take_while(|parts| *parts == 1 || is_many && *parts <= PARTS_MAX);
    let parts = parts.find(|parts| needed_bytes(*parts) <= sought.memory_bytes())?;
    let held_bytes = needed_bytes(parts);
    // What comes is added up on its way. The host reads what came back.
    let adding =
        parts as f64 * working_seconds(asked, rates, [codes, words, table_bytes], read_bytes);
    let reading = back_bytes / rates.download + costs.kept(groups * words) * 1e-9;
    let working = Working {
        seconds: adding + reading,
        while_coming: adding,
        read_bytes,
        held_bytes,
        has_room: held_bytes + more_bytes <= sought.memory_bytes(),
    };
    Some((bringing.choice(&working, host, wanted), is_exact))
}

/// Bytes that so many looks at places of what takes so many read of a device's memory.
fn gathered(looks: usize, bytes: usize) -> usize {
    looks.saturating_mul(if bytes > NEAR_BYTES { SECTOR_BYTES } else { size_of::<u64>() })
}

/// The column that a key is made of, where it is not a row.
fn column(asked: &Asked, key: &Key) -> Option<usize> {
    match key {
        Key::Column(column) => Some(*column),
        Key::LookedUp(look_up) => Some(asked.look_ups[*look_up].column),
        Key::Row(_) => None,
    }
}

/// Codes of a key, where they are known.
fn codes(asked: &Asked, key: &Key) -> Option<f64> {
    if let Key::Row(table) = key {
        return Some(asked.rows_of(*table) as f64);
    }
    let column = column(asked, key)?;
    match asked.values[column] {
        Values::Whole([least, greatest]) => Some(greatest.abs_diff(least) as f64 + 1.0),
        _ => kept::texts(&asked.columns[column]).map(|texts| texts as f64),
    }
}

/// Bytes of the totals of groups with so many codes: a word more for each where they are in slots, which are twice as many as groups.
fn totals_bytes(asked: &Asked, codes: f64, words: f64) -> f64 {
    match is_hashed(asked, codes as u64) {
        true => 2.0 * (asked.rows as f64) * (words + 1.0) * WORD_BYTES,
        false => codes * words * WORD_BYTES,
    }
}

/// Seconds of a device that has all columns.
fn working_seconds(
    asked: &Asked,
    rates: &Rates,
    [codes, words, table_bytes]: [f64; 3],
    read_bytes: usize,
) -> f64 {
    let rows = asked.rows as f64;
    let moving = |bytes: f64| bytes / (MEMORY_SHARE * rates.memory);
    // A table is cleared and looked through, and what is added to one that is far away is read and written.
    let far_bytes = if table_bytes > NEAR_BYTES as f64 { 2.0 * SECTOR_BYTES as f64 } else { 0.0 };
    let reading = moving(read_bytes as f64 + rows * far_bytes) + moving(2.0 * table_bytes);
    let steps: usize = asked.terms().map(Term::steps).sum();
    let computing = rows * steps as f64 / rates.products64;
    // In registers nobody waits for another.
    let is_shared = codes * words > REGISTERS_MAX as f64;
    let adding = if is_shared { rows * words / ADDITIONS } else { 0.0 };
    2.0 * rates.launch_seconds + rates.synchronize_seconds + reading.max(computing + adding)
}
