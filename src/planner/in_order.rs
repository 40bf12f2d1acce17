//! Rows that nobody has put in an order come in that of the tables and files that they are read from.
//!
//! ```text
//! CoalescePartitionsExec: fetch=n              InOrderExec: fetch=n
//!   UnionExec                            ──►     UnionExec
//!     ProjectionExec                               ProjectionExec
//!       RepartitionExec: RoundRobinBatch             …
//!         …                                      DataSourceExec: in smaller partitions
//!     DataSourceExec
//! ```
//!
//! DataFusion deals rows out to threads and gathers them as they come: the first ten of a table would be others each time, and so
//! would the order of an answer and of a table that is made of one. Enters: a plan whose other operators are chosen. Leaves: one in
//! which partitions follow one another below limits, windows and what keeps rows, and in the answer, as far as each row is handled by
//! itself; joins below them keep the order of their probe side. What groups and exchanges yield has no order to keep.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::source::DataSourceExec;
use datafusion::functions_table::generate_series::{
    GenSeriesArgs, GenerateSeriesTable, GenericSeriesState,
};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::operators::{with_children, with_others};
use super::ordered::handles_each_row;
use crate::exec::relational::in_order::InOrderExec;
use crate::exec::relational::join::SpillingJoinExec;
use crate::exec::relational::window::SpillingWindowExec;
use crate::storage::TableScan;

/// Parts of a scan for each thread at most: of what is made before its turn, little waits long.
const PARTS_PER_THREAD: usize = 64;

/// So many rows of a table come sooner than another thread begins.
const FEW_ROWS: usize = 8192;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(crate) struct RowsInOrder;

type Operator = Arc<dyn ExecutionPlan>;

impl PhysicalOptimizerRule for RowsInOrder {
    fn optimize(&self, plan: Operator, config: &ConfigOptions) -> Result<Operator> {
        let threads = config.execution.target_partitions;
        let plan = with_others(plan, &mut |plan| first_in_order(plan, threads))?;
        Ok(following(&plan, Cut::AsItIs)?.unwrap_or(plan))
    }

    fn name(&self) -> &str {
        "rows_in_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan of an answer, which comes in order where its rows have one.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn answer(plan: Operator, threads: usize) -> Result<Operator> {
    let parts = following(&plan, Cut::Into(PARTS_PER_THREAD * threads))?;
    Ok(match parts.filter(|parts| partitions(parts) > 1) {
        Some(parts) => Arc::new(InOrderExec::new(parts, None)),
        None => plan,
    })
}

/// Whether a limit in a plan takes whichever rows come first, which may be others each time: those below it have no order.
pub(crate) fn takes_any(plan: &Operator) -> bool {
    let is_gathered = |plan: &Operator| plan.is::<CoalescePartitionsExec>();
    let here = match plan.children()[..] {
        [input] if is_gathered(plan) => plan.fetch().is_some() && partitions(input) > 1,
        [input] => plan.is::<GlobalLimitExec>() && is_gathered(input),
        _ => false,
    };
    here || plan.children().into_iter().any(takes_any)
}

/// An operator over rows in the order in which they are read, for one that takes them as they come.
fn first_in_order(plan: &Operator, threads: usize) -> Result<Option<Operator>> {
    if let Some(gathered) = plan.downcast_ref::<CoalescePartitionsExec>() {
        return match gathered.fetch() {
            Some(_) => in_order(gathered, threads),
            None => Ok(None),
        };
    }
    if let Some(input) = dealt_by_turns(plan) {
        // Operators above count on as many partitions as there were.
        let series = series_in_parts(input, partitions(plan))?;
        return Ok(series.filter(|series| partitions(series) == partitions(plan)));
    }
    // A limit that only skips rows leaves none to what is below; windows number rows, and tables and files keep them as they come.
    let [below] = plan.children()[..] else { return Ok(None) };
    let goes_by_order = plan.is::<GlobalLimitExec>()
        || plan.is::<SpillingWindowExec>()
        || plan.is::<DataSinkExec>();
    let gathered = below.downcast_ref::<CoalescePartitionsExec>();
    let Some(gathered) = gathered.filter(|_| goes_by_order) else { return Ok(None) };
    let rows = in_order(gathered, threads)?;
    rows.map(|rows| with_children(Arc::clone(plan), vec![rows])).transpose()
}

fn in_order(gathered: &CoalescePartitionsExec, threads: usize) -> Result<Option<Operator>> {
    let cut = Cut::Into(PARTS_PER_THREAD * threads);
    let rows = match following(gathered.input(), cut)? {
        Some(rows) => Some(rows),
        None => of_probe_side(gathered.input(), threads)?,
    };
    let few = gathered.fetch().filter(|rows| *rows <= FEW_ROWS);
    Ok(rows.map(|rows| {
        let comes_at_once = few.is_some() && hands_on_all(&rows);
        let rows = InOrderExec::new(rows, gathered.fetch());
        Arc::new(if comes_at_once { rows.one_by_one() } else { rows }) as _
    }))
}

/// Whether each row that is read is one that comes, so that the first few are there at once.
fn hands_on_all(plan: &Operator) -> bool {
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        let files = scan.data_source().downcast_ref::<FileScanConfig>();
        return files.is_none_or(|files| files.file_source().filter().is_none());
    }
    let is_one = plan.is::<ProjectionExec>() || plan.is::<CooperativeExec>();
    (is_one || plan.is::<UnionExec>()) && plan.children().into_iter().all(hands_on_all)
}

/// The rows of one partition that are dealt out to several in turns.
fn dealt_by_turns(plan: &Operator) -> Option<&Operator> {
    let dealt = plan.downcast_ref::<RepartitionExec>()?;
    let is_by_turns = matches!(dealt.partitioning(), Partitioning::RoundRobinBatch(_));
    Some(dealt.input()).filter(|input| is_by_turns && partitions(input) == 1)
}

/// Into how many parts scans are cut.
#[derive(Clone, Copy)]
enum Cut {
    AsItIs,
    Into(usize),
}

/// The plan with partitions that follow one another in the order of the rows, where it can be made so.
fn following(plan: &Operator, cut: Cut) -> Result<Option<Operator>> {
    if partitions(plan) == 1 {
        return Ok(Some(Arc::clone(plan)));
    }
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        return scan_in_order(plan, scan, cut).map(Some);
    }
    if let Some(input) = dealt_by_turns(plan) {
        return Ok(Some(Arc::clone(input)));
    }
    if plan.is::<LazyMemoryExec>() {
        return Ok(Some(Arc::clone(plan)));
    }
    let is_row_by_row = handles_each_row(plan.as_ref())
        || plan.is::<LocalLimitExec>()
        || plan.is::<UnionExec>()
        || plan.is::<UnnestExec>();
    if !is_row_by_row {
        return Ok(None);
    }
    let inputs = plan.children().into_iter().map(|input| following(input, cut));
    let inputs: Option<Vec<_>> = inputs.collect::<Result<_>>()?;
    inputs.map(|inputs| with_children(Arc::clone(plan), inputs)).transpose()
}

/// The same for joins that keep the order of one side, which is not cut otherwise than it is: their partitions may wait for one
/// another, so that all of them must run at once.
fn of_probe_side(plan: &Operator, threads: usize) -> Result<Option<Operator>> {
    if partitions(plan) > threads {
        return Ok(None);
    }
    let at = match plan.maintains_input_order().as_slice() {
        [true] if handles_each_row(plan.as_ref()) => 0,
        [false, true] if plan.is::<SpillingJoinExec>() => 1,
        _ => return Ok(None),
    };
    let mut inputs: Vec<_> = plan.children().into_iter().map(Arc::clone).collect();
    let probe_side = match following(&inputs[at], Cut::AsItIs)? {
        Some(probe_side) => Some(probe_side),
        None => of_probe_side(&inputs[at], threads)?,
    };
    let Some(probe_side) = probe_side.filter(|side| partitions(side) == partitions(&inputs[at]))
    else {
        return Ok(None);
    };
    inputs[at] = probe_side;
    with_children(Arc::clone(plan), inputs).map(Some)
}

fn partitions(plan: &Operator) -> usize {
    plan.output_partitioning().partition_count()
}

/// A scan each of whose partitions reads what is its own, in the order of the table or the files.
fn scan_in_order(plan: &Operator, scan: &DataSourceExec, cut: Cut) -> Result<Operator> {
    if let Some(table) = scan.data_source().downcast_ref::<TableScan>() {
        let Cut::Into(parts) = cut else { return Ok(Arc::clone(plan)) };
        let table = table.in_smaller_parts(parts)?;
        let cut = table.map(|table| Arc::new(scan.clone().with_data_source(Arc::new(table))) as _);
        return Ok(cut.unwrap_or_else(|| Arc::clone(plan)));
    }
    let files = scan.data_source().downcast_ref::<FileScanConfig>();
    let Some(files) = files.filter(|files| files.output_partitioning.is_none()) else {
        return Ok(scan.with_preserve_order(true).unwrap_or_else(|| Arc::clone(plan)));
    };
    let mut config = FileScanConfigBuilder::from(files.clone()).with_preserve_order(true);
    if let Cut::Into(parts) = cut {
        let all: Vec<_> = files.file_groups.iter().flat_map(FileGroup::iter).cloned().collect();
        let of_each = all.len().div_ceil(parts.max(1)).max(1);
        let groups = all.chunks(of_each).map(|files| FileGroup::new(files.to_vec()));
        config = config.with_file_groups(groups.collect());
    }
    Ok(Arc::new(scan.clone().with_data_source(Arc::new(config.build()))))
}

/// Whole numbers of which each thread makes its own stretch, and what is computed of them.
fn series_in_parts(plan: &Operator, parts: usize) -> Result<Option<Operator>> {
    let Some(series) = plan.downcast_ref::<LazyMemoryExec>() else {
        let [input] = plan.children()[..] else { return Ok(None) };
        if !handles_each_row(plan.as_ref()) {
            return Ok(None);
        }
        let input = series_in_parts(input, parts)?;
        return input.map(|input| with_children(Arc::clone(plan), vec![input])).transpose();
    };
    let [generator] = series.generators().as_slice() else { return Ok(None) };
    let generator = generator.read();
    let numbers = generator.as_any().downcast_ref::<GenericSeriesState<i64>>();
    // Where nobody reads the numbers, there is no column of them.
    let Some(numbers) = numbers.filter(|_| series.schema().fields().len() == 1) else {
        return Ok(None);
    };
    let stretches = stretches(numbers, parts);
    if stretches.len() == 1 {
        return Ok(None);
    }
    let generators = stretches.into_iter().map(|(start, end, include_end)| {
        let (step, name) = (*numbers.step(), numbers.name());
        let args = GenSeriesArgs::Int64Args { start, end, step, include_end, name };
        GenerateSeriesTable::new(series.schema(), args).as_generator(numbers.batch_size())
    });
    let mut in_parts =
        LazyMemoryExec::try_new(series.schema(), generators.collect::<Result<_>>()?)?;
    if let Some(order) = series.properties().output_ordering() {
        in_parts.add_ordering(order.iter().cloned());
    }
    Ok(Some(Arc::new(in_parts)))
}

/// From where to where stretches of a series go that are about equally long, and whether that is one of its numbers; as many as
/// asked for, but of a batch at least.
fn stretches(numbers: &GenericSeriesState<i64>, parts: usize) -> Vec<(i64, i64, bool)> {
    let whole = (*numbers.start(), *numbers.end(), numbers.include_end());
    let [start, end, step] = [whole.0, whole.1, *numbers.step()].map(i128::from);
    let steps = (end - start).checked_div(step).unwrap_or_default();
    let batch = numbers.batch_size().max(1) as i128;
    let parts = (steps / batch).clamp(1, parts.max(1) as i128);
    // Full batches, but for the last one; the first number of a part lies between those of the whole.
    let first = |part: i128| i64::try_from(start + step * (steps * part / parts / batch * batch));
    let stretch = |part: i128| {
        let begins = first(part).ok()?;
        Some(match part + 1 == parts {
            true => (begins, whole.1, whole.2),
            false => (begins, first(part + 1).ok()?, false),
        })
    };
    (0..parts).map(stretch).collect::<Option<_>>().unwrap_or_else(|| vec![whole])
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    /// The numbers of stretches, one after another, are those of the whole.
    #[test]
    fn stretches_of_a_series_are_its_numbers() {
        for (start, end, step, include_end) in [
            (0, 1000, 1, false),
            (0, 1000, 1, true),
            (5, 1000, 7, true),
            (-3, 998, 7, false),
            (1000, -1000, -3, true),
            (1000, -1000, -1, false),
            (10, 10, 1, true),
            (10, 10, 1, false),
            (10, 0, 1, true),
            (i64::MAX - 900, i64::MAX, 1, true),
            (i64::MIN, i64::MIN + 901, 2, false),
        ] {
            let numbers = |start, end, include_end| {
                let args =
                    GenSeriesArgs::Int64Args { start, end, step, include_end, name: "range" };
                let series = GenerateSeriesTable::new(schema(), args).as_generator(100).unwrap();
                let mut all: Vec<i64> = Vec::new();
                while let Some(batch) = series.write().generate_next_batch().unwrap() {
                    all.extend(batch.column(0).as_primitive::<Int64Type>().values());
                }
                (series, all)
            };
            let (series, expected) = numbers(start, end, include_end);
            let series = series.read();
            let series = series.as_any().downcast_ref::<GenericSeriesState<i64>>().unwrap();
            let stretches = stretches(series, 4);
            assert_eq!(stretches.len(), (expected.len() / 100).clamp(1, 4));
            let all =
                stretches.into_iter().flat_map(|(start, end, with)| numbers(start, end, with).1);
            assert_eq!(all.collect::<Vec<_>>(), expected, "{start} {end} {step}");
        }
    }

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("value", DataType::Int64, false)]))
    }

    /// Whether a limit of a query takes any rows, and what its operators are.
    async fn planned(query: &str) -> (bool, String) {
        let config = SessionConfig::new().with_target_partitions(3);
        let context = SessionContext::new_with_config(config);
        let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
        let plan = RowsInOrder.optimize(plan, context.copied_config().options()).unwrap();
        (takes_any(&plan), displayable(plan.as_ref()).indent(false).to_string())
    }

    #[tokio::test]
    async fn a_limit_takes_any_rows_where_they_have_no_order() {
        const DISTINCT: &str = "SELECT DISTINCT value % 7 AS k FROM range(90000)";
        for limit in ["LIMIT 3", "OFFSET 3", "LIMIT 3 OFFSET 1"] {
            let (takes_any, text) = planned(&format!("{DISTINCT} {limit}")).await;
            assert!(takes_any && !text.contains("InOrderExec"), "{text}");
            let (takes_any, text) = planned(&format!("{DISTINCT} ORDER BY k {limit}")).await;
            assert!(!takes_any && !text.contains("InOrderExec"), "{text}");
            let read = "SELECT value + 1 FROM range(90000) UNION ALL SELECT value FROM range(9)";
            let (takes_any, text) = planned(&format!("SELECT * FROM ({read}) {limit}")).await;
            assert!(!takes_any && text.contains("InOrderExec"), "{text}");
            let within = format!("SELECT sum(k) FROM ({DISTINCT} {limit}) AS some");
            assert!(planned(&within).await.0);
        }
    }

    #[tokio::test]
    async fn a_series_is_made_in_stretches_where_it_was_dealt_out() {
        let (_, text) = planned("SELECT value + 1 FROM range(90000) WHERE value % 3 = 0").await;
        assert!(
            text.contains("LazyMemoryExec: partitions=3") && !text.contains("RoundRobin"),
            "{text}"
        );
        let (_, text) = planned("SELECT value + 1 FROM range(9) WHERE value % 3 = 0").await;
        assert!(
            text.contains("LazyMemoryExec: partitions=1") && !text.contains("RoundRobin"),
            "{text}"
        );
    }
}
