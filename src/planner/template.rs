//! Operators that are chosen once, and made anew for each run of a query.
//!
//! Enters: an optimized plan. Leaves: its operators as they are before the rules that tie them together, for joins and sorts
//! narrow what scans read while they run; and from those, as often as the query is run, operators that no run has touched. Rows of
//! tables are not kept with them: who holds rows keeps them from being moved to files. Not here: for which queries operators are
//! kept, and how long (`session::templates`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::ConfigOnlyContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

use super::operators::with_others;
use super::parameters::{self, Values};
use super::pushdown::TYING;
use crate::exec::contraction::ContractionExec;
use crate::exec::relational::first_rows::FirstRowsExec;
use crate::exec::relational::in_order::InOrderExec;
use crate::exec::relational::no_constants::NoConstantsExec;
use crate::exec::relational::shared::SharedExec;
use crate::storage::{Snapshot, TableScan};

/// A plan of so many parts of files is not kept: their names would take more memory than planning takes time.
const FILES_MAX: usize = 1024;

/// Numbers that a scan may have gathered in its runs, and beside these for each of its files: DataFusion's scans of files add
/// theirs to those of the runs before, and whoever reads them reads them all.
const METRICS_MAX: usize = 1000;
const METRICS_OF_FILE_MAX: usize = 200;

type Rules = [Arc<dyn PhysicalOptimizerRule + Send + Sync>];

/// The operators of a query, of which none has ever run.
#[derive(Debug)]
pub(crate) struct Template(Arc<dyn ExecutionPlan>);

impl Template {
    /// Nothing where an operator is none that can be made anew.
    ///
    /// # Errors
    /// Whatever keeps a plan from being made.
    pub(crate) async fn of(plan: &LogicalPlan, state: &SessionState) -> Result<Option<Self>> {
        let (choosing, _) = rules(state);
        let state = SessionStateBuilder::new_from_existing(state.clone())
            .with_physical_optimizer_rules(choosing.to_vec())
            .build();
        let operators = state.query_planner().create_physical_plan(plan, &state).await?;
        if !can_be_made_anew(&operators)? {
            return Ok(None);
        }
        Ok(Some(Self(without_rows(operators)?)))
    }

    /// The same of a plan that has parameters, whose types are known; nothing where an operator has one but in a condition.
    ///
    /// # Errors
    /// Whatever keeps a plan from being made.
    pub(crate) async fn of_any(plan: LogicalPlan, state: &SessionState) -> Result<Option<Self>> {
        let Some(plan) = parameters::as_functions(plan)? else { return Ok(None) };
        let Some(template) = Self::of(&plan, state).await? else { return Ok(None) };
        let mut in_conditions = true;
        each_operator(&template.0, &mut |operator| {
            if !operator.is::<FilterExec>() && parquet(operator).is_none() {
                operator.apply_expressions(&mut |expr| {
                    in_conditions &= !parameters::has_parameter(expr)?;
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
            Ok(())
        })?;
        Ok(in_conditions.then_some(template))
    }

    /// Whether joins collect what they build for all threads, or deal it out, as those of another template do.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn joins_like(&self, other: &Self) -> Result<bool> {
        Ok(partition_modes(&self.0)? == partition_modes(&other.0)?)
    }

    /// Operators to be run over tables by their numbers, with values for what parameters there are; nothing where a table has
    /// other rows than it had, or a scan has run so often that another template is to be made.
    ///
    /// # Errors
    /// None but DataFusion's, for an operator that cannot be made again.
    pub(crate) fn operators(
        &self,
        tables: &HashMap<u64, Snapshot>,
        values: Values<'_>,
        state: &SessionState,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        made(&self.0, tables, values, state)
    }
}

/// Operators of a template as a run has them.
fn made(
    template: &Arc<dyn ExecutionPlan>,
    tables: &HashMap<u64, Snapshot>,
    values: Values<'_>,
    state: &SessionState,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (_, tying) = rules(state);
    let context = ConfigOnlyContext::new(state.config_options());
    let mut is_usable = true;
    let operators = with_others(Arc::clone(template), &mut |operator| {
        if let Some(filter) = with_values(operator, values)? {
            return Ok(Some(filter));
        }
        if let Some(contraction) = operator.downcast_ref::<ContractionExec>() {
            let ordinary = made(contraction.ordinary(), tables, values, state)?;
            is_usable &= ordinary.is_some();
            return Ok(ordinary.map(|ordinary| Arc::new(contraction.with_ordinary(ordinary)) as _));
        }
        let Some(scan) = table_scan(operator) else {
            is_usable &= !is_worn(operator.as_ref());
            return match told_values(operator, values)? {
                Some(scan) => Ok(Some(scan)),
                None => anew(Arc::clone(operator)).map(Some),
            };
        };
        let scan = tables.get(&scan.table()).and_then(|rows| scan.with_rows(rows));
        is_usable &= scan.is_some();
        let Some(scan) = scan else { return Ok(None) };
        let filled =
            |condition: &_, schema: &SchemaRef| parameters::with_values(condition, values, schema);
        Ok(Some(over(scan.with_conditions(filled)?)))
    })?;
    if !is_usable {
        return Ok(None);
    }
    let tied =
        tying.iter().try_fold(operators, |plan, rule| rule.optimize_with_context(plan, &context));
    tied.map(Some)
}

/// The operators over tables of which they hold no rows.
fn without_rows(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    with_others(plan, &mut |operator| {
        if let Some(contraction) = operator.downcast_ref::<ContractionExec>() {
            let ordinary = without_rows(Arc::clone(contraction.ordinary()))?;
            return Ok(Some(Arc::new(contraction.with_ordinary(ordinary))));
        }
        Ok(table_scan(operator).map(|scan| over(scan.without_rows())))
    })
}

/// Visits all operators, with those that a contraction has for a join that it is not.
fn each_operator(
    plan: &Arc<dyn ExecutionPlan>,
    visit: &mut impl FnMut(&Arc<dyn ExecutionPlan>) -> Result<()>,
) -> Result<()> {
    if let Some(contraction) = plan.downcast_ref::<ContractionExec>() {
        each_operator(contraction.ordinary(), visit)?;
    }
    visit(plan)?;
    plan.children().into_iter().try_for_each(|child| each_operator(child, visit))
}

fn partition_modes(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<PartitionMode>> {
    let mut modes = Vec::new();
    each_operator(plan, &mut |operator| {
        let join = operator.downcast_ref::<HashJoinExec>();
        modes.extend(join.map(|join| *join.partition_mode()));
        Ok(())
    })?;
    Ok(modes)
}

/// The operator with values for the parameters in its condition, if it has any.
fn with_values(
    operator: &Arc<dyn ExecutionPlan>,
    values: Values<'_>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = operator.downcast_ref::<FilterExec>() else { return Ok(None) };
    let condition = parameters::with_values(filter.predicate(), values, &filter.input().schema())?;
    if Arc::ptr_eq(&condition, filter.predicate()) {
        return Ok(None);
    }
    let filter = FilterExecBuilder::from(filter).with_predicate(condition).build()?;
    Ok(Some(Arc::new(filter)))
}

/// The scan of Parquet files that an operator is, once it knows the values of parameters in its condition; nothing where it has none.
fn told_values(
    operator: &Arc<dyn ExecutionPlan>,
    values: Values<'_>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some((scan, config, parquet)) = parquet(operator) else { return Ok(None) };
    let Some(told) = parquet.filter() else { return Ok(None) };
    let schema = parquet.table_schema().table_schema();
    let condition = parameters::with_values(&told, values, schema)?;
    if Arc::ptr_eq(&condition, &told) {
        return Ok(None);
    }
    let mut config = config.clone();
    config.file_source = Arc::new(parquet.with_predicate(condition));
    Ok(Some(Arc::new(scan.clone().with_data_source(Arc::new(config)))))
}

/// A scan of Parquet files, whose conditions are all that may have parameters: what it gives are columns.
fn parquet(
    operator: &Arc<dyn ExecutionPlan>,
) -> Option<(&DataSourceExec, &FileScanConfig, &ParquetSource)> {
    let scan = operator.downcast_ref::<DataSourceExec>()?;
    let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
    Some((scan, config, config.file_source.downcast_ref()?))
}

/// The scan of a table in memory that an operator is.
fn table_scan(operator: &Arc<dyn ExecutionPlan>) -> Option<&TableScan> {
    operator.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref()
}

fn over(scan: TableScan) -> Arc<dyn ExecutionPlan> {
    DataSourceExec::from_data_source(scan)
}

/// The rules that choose operators, and those that tie them together or put others in their places.
fn rules(state: &SessionState) -> (&Rules, &Rules) {
    let rules = state.physical_optimizers();
    let tying = rules.iter().rposition(|rule| rule.name() == TYING);
    rules.split_at(tying.unwrap_or(rules.len()))
}

/// An operator that no run has touched.
fn anew(operator: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let aggregate = operator.downcast_ref::<AggregateExec>();
    // One that narrows its scan by the extreme values that it has seen would go on with those.
    let narrows = |of: &&AggregateExec| !of.dynamic_expressions_produced().is_empty();
    if let Some(aggregate) = aggregate.filter(narrows) {
        let anew = AggregateExec::try_new(
            *aggregate.mode(),
            Arc::new(aggregate.group_expr().clone()),
            aggregate.aggr_expr().to_vec(),
            aggregate.filter_expr().to_vec(),
            Arc::clone(aggregate.input()),
            aggregate.input_schema(),
        )?;
        return Ok(Arc::new(anew.with_limit_options(aggregate.limit_options())));
    }
    operator.reset_state()
}

/// Whether a scan of files has gathered too many numbers in its runs.
fn is_worn(operator: &dyn ExecutionPlan) -> bool {
    let Some(scan) = operator.downcast_ref::<DataSourceExec>() else { return false };
    let metrics_max = METRICS_MAX + METRICS_OF_FILE_MAX * files(scan).unwrap_or(0);
    scan.data_source().metrics().clone_inner().iter().count() > metrics_max
}

/// How many files, or parts of them, a scan reads, if it reads any.
fn files(scan: &DataSourceExec) -> Option<usize> {
    let files = scan.data_source().downcast_ref::<FileScanConfig>()?;
    Some(files.file_groups.iter().map(|group| group.len()).sum())
}

/// Whether all operators forget what a run has left in them when they are reset, and hold no rows but those of tables.
fn can_be_made_anew(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut can_be = true;
    each_operator(plan, &mut |operator| {
        can_be &= is_forgetful(operator.as_ref());
        Ok(())
    })?;
    Ok(can_be)
}

fn is_forgetful(operator: &dyn ExecutionPlan) -> bool {
    if let Some(scan) = operator.downcast_ref::<DataSourceExec>() {
        return scan.data_source().is::<TableScan>()
            || files(scan).is_some_and(|files| files <= FILES_MAX);
    }
    operator.is::<AggregateExec>()
        || operator.is::<CoalescePartitionsExec>()
        || operator.is::<ContractionExec>()
        || operator.is::<CooperativeExec>()
        || operator.is::<EmptyExec>()
        || operator.is::<FilterExec>()
        || operator.is::<CrossJoinExec>()
        || operator.is::<HashJoinExec>()
        || operator.is::<NestedLoopJoinExec>()
        || operator.is::<GlobalLimitExec>()
        || operator.is::<LocalLimitExec>()
        || operator.is::<PlaceholderRowExec>()
        || operator.is::<ProjectionExec>()
        || operator.is::<RepartitionExec>()
        || operator.is::<ScalarSubqueryExec>()
        || operator.is::<SortExec>()
        || operator.is::<SortPreservingMergeExec>()
        || operator.is::<UnionExec>()
        || operator.is::<BoundedWindowAggExec>()
        || operator.is::<WindowAggExec>()
        || operator.is::<FirstRowsExec>()
        || operator.is::<InOrderExec>()
        || operator.is::<NoConstantsExec>()
        || operator.is::<SharedExec>()
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::dataframe::DataFrameWriteOptions;
    use datafusion::execution::options::CsvReadOptions;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::SessionContext;

    use super::*;

    fn gathered(plan: &Arc<dyn ExecutionPlan>) -> usize {
        let of_inputs: usize = plan.children().into_iter().map(gathered).sum();
        let metrics = plan.metrics().filter(|_| plan.is::<DataSourceExec>());
        of_inputs + metrics.map_or(0, |metrics| metrics.iter().count())
    }

    #[tokio::test]
    async fn a_scan_of_parquet_files_is_told_of_values_before_it_is_tied_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let context = SessionContext::new();
        let rows = context.sql("SELECT value AS x FROM range(100)").await.unwrap();
        let path = path.to_str().unwrap();
        rows.write_parquet(path, DataFrameWriteOptions::new(), None).await.unwrap();
        context.register_parquet("t", path, Default::default()).await.unwrap();
        let rows = context.sql("SELECT x FROM t WHERE x < $1").await.unwrap();
        let (state, plan) = rows.into_parts();
        let plan = state.optimize(&plan).unwrap();
        let template = Template::of_any(plan, &state).await.unwrap().expect("it can be kept");
        for value in [3, 7] {
            let values = |_: &str| Some(ScalarValue::Int64(Some(value)));
            let operators = template.operators(&HashMap::new(), &values, &state).unwrap().unwrap();
            let text = displayable(operators.as_ref()).indent(false).to_string();
            let told = format!("predicate=x@0 < {value}, pruning_predicate=");
            assert!(text.contains(&told), "{text}");
            let batches = collect(operators, context.task_ctx()).await.unwrap();
            let count: usize = batches.iter().map(|batch| batch.num_rows()).sum();
            assert_eq!(count, value as usize);
        }
    }

    #[tokio::test]
    async fn a_template_is_given_up_before_its_scans_gather_too_many_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, "x\n1\n2\n3\n").unwrap();
        let context = SessionContext::new();
        let options = CsvReadOptions::new();
        let rows = context.read_csv(path.to_str().unwrap(), options).await.unwrap();
        let (state, plan) = rows.into_parts();
        let plan = state.optimize(&plan).unwrap();
        let mut templates = 0;
        let mut runs = 0;
        while templates < 3 {
            let template = Template::of(&plan, &state).await.unwrap().expect("it can be kept");
            templates += 1;
            let tables = HashMap::new();
            while let Some(operators) = template.operators(&tables, &|_| None, &state).unwrap() {
                let batches = collect(Arc::clone(&operators), context.task_ctx()).await.unwrap();
                assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 3);
                assert!(gathered(&operators) < 2 * (METRICS_MAX + METRICS_OF_FILE_MAX));
                runs += 1;
            }
        }
        assert!(runs > 3 * 20, "each has run some times: {runs}");
    }
}
