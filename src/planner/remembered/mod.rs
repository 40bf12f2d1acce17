//! Groups that are remembered in place of an aggregation, and brought up to date by the rows that have come since.
//!
//! ```text
//! Sort, Projection, …                 Sort, Projection, …                  Sort, Projection, …
//!   Aggregate: k, sum(v), avg(i)        Projection: k, sum, sum / count      Projection: k, sum, sum / count
//!     Filter                    ──►       Watched                      or      Watched
//!       sales                               Aggregate: k, sum(v),                Aggregate: k, sum(sum), …
//!                                                      sum(i), count(i)            Union
//!                                             Filter                                 remembered groups
//!                                               sales                                Aggregate: k, sum(v), …
//!                                                                                      Filter
//!                                                                                        sales, its new rows
//! ```
//!
//! Where nothing has come since, the remembered groups alone stand under the projection. Finer ones are merged to those that are
//! asked for (`finer`). What is remembered of a group is
//! such that two of them can be merged to the same bits in any order (`parts`): sums of integers and decimals, counts, extremes. Where
//! different values are counted, the values themselves are keys of the groups.
//! Rows that are added to one table must add rows to what is aggregated and change none: of filters, projections and inner
//! joins that is so.
//!
//! The first rows by some order are remembered likewise (`first`), and are the first of those and the new ones; and whole plans that
//! several places of a query read (`plans`).
//!
//! Where what is remembered is to be compared, all of this stands beside the aggregation, and is not taken.
//!
//! Not here: where groups are kept, and whether what they were made of has changed.

mod expressions;
mod finer;
mod first;
mod node;
mod plans;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, TableReference};
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::AggregateFunctionParams;
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, SortExpr,
    SubqueryAlias, TableScan, TableScanBuilder, TableType,
};
use datafusion::physical_plan::ExecutionPlan;

use super::parts::{Parts, Rounding, column, keys, numbered};
use crate::catalog::{Growth, TableName};
use crate::storage::{Counted, Snapshot};

pub(super) use self::expressions::Recalled;
pub(crate) use self::expressions::Remembering;
pub(crate) use self::finer::{Finer, Hashing, Wanted};
use self::first::FirstRows;
pub(crate) use self::node::{Watch, WatchedPlanner};
pub(crate) use self::plans::{Within, with_plans};

/// The scans of what is remembered, as EXPLAIN names them; no table is called so.
const GROUPS: &str = "remembered groups";
const ROWS: &str = "remembered rows";

/// What a count of different values is called between where they are counted and where they have a name.
const COUNT: &str = "__count";

/// An aggregation all of whose groups a query is about, or the first of its rows.
#[derive(Debug)]
pub(crate) struct Groups {
    /// What is done with them, from the last to the first.
    above: Vec<LogicalPlan>,
    asked: Asked,
    /// What is remembered, in columns that are named by their numbers.
    computed: LogicalPlan,
}

/// As the query has it.
#[derive(Debug)]
enum Asked {
    /// With what is remembered of each group.
    Groups(Aggregate, Parts),
    First(FirstRows),
}

impl Groups {
    /// The groups that a plan, which is not optimized yet, is about, or the first rows of tables of which one has this many; nothing
    /// where they cannot be merged, or where others than those that the query wants would be computed.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn of(plan: &LogicalPlan, rows_min: usize) -> Result<Option<Self>> {
        let (mut above, mut at) = (Vec::new(), plan);
        let asked = loop {
            if let Some(first) = FirstRows::of(at, rows_min)? {
                let computed = numbered(first.rows(LogicalPlan::clone(&first.sort.input))?)?;
                return Ok(Some(Self { above, asked: Asked::First(first), computed }));
            }
            let input = match at {
                LogicalPlan::Aggregate(aggregate) => break aggregate,
                LogicalPlan::Projection(Projection { input, .. })
                | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => input,
                LogicalPlan::Sort(sort) => &sort.input,
                LogicalPlan::Limit(limit) => &limit.input,
                LogicalPlan::Window(window) => &window.input,
                LogicalPlan::Filter(having) if is_of_answers(having) => &having.input,
                _ => return Ok(None),
            };
            above.push(at.clone());
            at = input;
        };
        // What a sub-query of a key or a call reads may change while the rows do not.
        let looks_elsewhere = asked.group_expr.iter().chain(&asked.aggr_expr).any(has_query);
        if looks_elsewhere || !is_linear(&asked.input)? {
            return Ok(None);
        }
        let asked = match CountedValues::of(asked)? {
            Some(CountedValues { values, counts }) => {
                above.extend(counts);
                values
            }
            None => asked.clone(),
        };
        let Some(parts) = Parts::of(&asked, Rounding::Same)? else { return Ok(None) };
        let aggregate = Aggregate::try_new(
            Arc::clone(&asked.input),
            asked.group_expr.clone(),
            parts.expressions().collect(),
        )?;
        let computed = numbered(LogicalPlan::Aggregate(aggregate))?;
        Ok(Some(Self { above, asked: Asked::Groups(asked, parts), computed }))
    }

    /// Whether they are rows as they are.
    pub(crate) fn are_rows(&self) -> bool {
        matches!(self.asked, Asked::First(_))
    }

    /// What EXPLAIN calls what is remembered.
    fn name(&self) -> &'static str {
        match &self.asked {
            Asked::Groups(..) => GROUPS,
            Asked::First(_) => ROWS,
        }
    }

    /// The plan that makes what is remembered.
    pub(crate) fn computed(&self) -> &LogicalPlan {
        &self.computed
    }

    /// The query, with somebody to watch the groups.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn watched(&self, watch: Watch) -> Result<LogicalPlan> {
        self.with(node::watched(self.computed.clone(), None, watch))
    }

    /// The query, computed, with somebody to compare what is known of its groups.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn compared(&self, known: LogicalPlan, watch: Watch) -> Result<LogicalPlan> {
        self.with(node::watched(self.computed.clone(), Some(known), watch))
    }

    /// The query, from what is known of its groups.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn answered(&self, known: LogicalPlan, watch: Option<Watch>) -> Result<LogicalPlan> {
        self.with(match watch {
            Some(watch) => node::watched(known, None, watch),
            None => known,
        })
    }

    /// The order of which the rows are the first, by their columns; none where these are groups.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn order(&self) -> Result<Vec<SortExpr>> {
        match &self.asked {
            Asked::Groups(..) => Ok(Vec::new()),
            Asked::First(first) => first.numbered_order(),
        }
    }

    /// The tables that are read, whose names tell what that is.
    pub(crate) fn tables(&self) -> Vec<TableName> {
        tables(&self.computed)
    }

    /// The groups that would answer: these first; none where these are first rows.
    pub(crate) fn wanted(&self, hash: &Hashing<'_>) -> Vec<Wanted<'_>> {
        match &self.asked {
            Asked::Groups(asked, parts) => Wanted::of(asked, parts, hash),
            Asked::First(_) => Vec::new(),
        }
    }

    /// The groups, from what is remembered of them and the rows that a table has got since; nothing where they read the table not
    /// once alone.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn updated(
        &self,
        known: LogicalPlan,
        growth: &Growth,
    ) -> Result<Option<LogicalPlan>> {
        let mut found = 0;
        let new = self.computed.clone().transform_up(|plan| match new_rows(&plan, growth)? {
            Some(new) => {
                found += 1;
                Ok(Transformed::yes(new))
            }
            None => Ok(Transformed::no(plan)),
        });
        let new = new.data()?;
        if found != 1 {
            return Ok(None);
        }
        let all = LogicalPlanBuilder::from(known).union(new)?.build()?;
        Ok(Some(self.merged(all)?))
    }

    /// What is remembered, or what finer groups have of it, as a plan.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn known(
        &self,
        schema: SchemaRef,
        rows: Vec<RecordBatch>,
        finer: Option<&Finer>,
    ) -> Result<LogicalPlan> {
        let rows = scan(self.name(), schema, rows)?;
        match finer {
            Some(finer) => finer.columns(rows),
            None => Ok(rows),
        }
    }

    /// One of each group, of plans whose columns are those that are remembered.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn merged(&self, all: LogicalPlan) -> Result<LogicalPlan> {
        match &self.asked {
            Asked::Groups(asked, parts) => {
                let keys = keys(asked);
                let types = self.computed.schema().fields().iter().map(|field| field.data_type());
                let of_keys = (0..keys).map(column).collect();
                parts.merged(all, of_keys, |at| column(keys + at), types)
            }
            Asked::First(first) => first.of_numbered(all),
        }
    }

    /// The query over a plan of what is remembered of its groups.
    fn with(&self, parts: LogicalPlan) -> Result<LogicalPlan> {
        let groups = match &self.asked {
            Asked::Groups(asked, of_groups) => of_groups.answered(&asked.schema, parts)?,
            Asked::First(first) => first.answered(parts)?,
        };
        self.above
            .iter()
            .rev()
            .try_fold(groups, |input, plan| plan.with_new_exprs(plan.expressions(), vec![input]))
    }
}

/// Counts of different values, as the values of each group and what counts them.
///
/// ```text
/// Aggregate: k, count(DISTINCT x)      Projection: k, count(x) under its name
///                                  =     Aggregate: k, count(x)
///                                          Aggregate: k, x
/// ```
struct CountedValues {
    values: Aggregate,
    /// From the last to the first.
    counts: [LogicalPlan; 2],
}

impl CountedValues {
    /// Nothing where anything but different values of one expression is asked for.
    fn of(asked: &Aggregate) -> Result<Option<Self>> {
        let mut counted: Option<Expr> = None;
        for expr in &asked.aggr_expr {
            let Expr::AggregateFunction(call) = expr.clone().unalias() else { return Ok(None) };
            let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } =
                call.params;
            let is_plain = filter.is_none() && order_by.is_empty() && null_treatment.is_none();
            let [value] = &args[..] else { return Ok(None) };
            let is_same = counted.as_ref().is_none_or(|counted| counted == value);
            if call.func.name() != "count" || !distinct || !is_plain || !is_same {
                return Ok(None);
            }
            counted = Some(value.clone());
        }
        let is_set = |key: &Expr| matches!(key, Expr::GroupingSet(_));
        let Some(value) = counted.filter(|value| !asked.group_expr.contains(value)) else {
            return Ok(None);
        };
        if asked.group_expr.iter().any(is_set) || value.is_volatile() {
            return Ok(None);
        }
        let keys = asked.group_expr.len();
        let all = asked.group_expr.iter().cloned().chain([value]).collect();
        let values = Aggregate::try_new(Arc::clone(&asked.input), all, Vec::new())?;
        let mut columns: Vec<Expr> =
            values.schema.columns().into_iter().map(Expr::Column).collect();
        let Some(value) = columns.pop().filter(|_| columns.len() == keys) else { return Ok(None) };
        let count = count_udaf().call(vec![value]).alias(COUNT);
        let below = Arc::new(LogicalPlan::Aggregate(values.clone()));
        let counts = LogicalPlan::Aggregate(Aggregate::try_new(below, columns, vec![count])?);
        let made = counts.schema().columns();
        let named = asked.schema.iter().enumerate().map(|(at, (table, field))| {
            let column = Expr::Column(made[at.min(keys)].clone());
            column.alias_qualified(table.cloned(), field.name())
        });
        let named = Projection::try_new(named.collect(), Arc::new(counts.clone()))?;
        Ok(Some(Self { values, counts: [LogicalPlan::Projection(named), counts] }))
    }
}

/// Whether a condition is one on what is computed of groups: one on their keys leaves out rows before they are aggregated.
fn is_of_answers(having: &Filter) -> bool {
    let LogicalPlan::Aggregate(aggregate) = having.input.as_ref() else { return false };
    let keys = keys(aggregate);
    let is_computed = |column: &&Column| {
        aggregate.schema.maybe_index_of_column(column).is_some_and(|at| at >= keys)
    };
    having.predicate.column_refs().iter().all(is_computed) && !has_query(&having.predicate)
}

/// Whether more rows of a table only add rows to those of a plan.
fn is_linear(plan: &LogicalPlan) -> Result<bool> {
    let mut is_linear = true;
    plan.apply(|plan| {
        is_linear &= match plan {
            LogicalPlan::TableScan(scan) => scan.fetch.is_none() && is_named(scan)?,
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) => {
                true
            }
            LogicalPlan::Join(join) => join.join_type == JoinType::Inner,
            _ => false,
        };
        is_linear &= !plan.expressions().iter().any(has_query);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_linear)
}

/// The tables that a plan reads.
fn tables(plan: &LogicalPlan) -> Vec<TableName> {
    let mut tables = Vec::new();
    let walked = plan.apply(|plan| {
        if let LogicalPlan::TableScan(scan) = plan {
            tables.push(TableName::from(&scan.table_name));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(walked.is_ok(), "nothing fails on the way");
    tables
}

/// Whether the name of a scan tells what it reads: functions that make tables leave their arguments out of theirs.
fn is_named(scan: &TableScan) -> Result<bool> {
    let table = source_as_provider(&scan.source)?;
    Ok(table.is::<Snapshot>() || table.is::<ListingTable>())
}

/// Whether an expression looks at other rows than its own.
pub(super) fn has_query(expr: &Expr) -> bool {
    let looks = |expr: &Expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Unnest(_)
                | Expr::Placeholder(_)
        ))
    };
    expr.exists(looks).unwrap_or(true)
}

/// In place of the scan of a table that has grown, the scan of its new rows, under the same name.
fn new_rows(plan: &LogicalPlan, growth: &Growth) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::TableScan(scan) = plan else { return Ok(None) };
    let provider = source_as_provider(&scan.source)?;
    let Some(snapshot) = provider.downcast_ref::<Snapshot>() else { return Ok(None) };
    if snapshot.table().id() != growth.table {
        return Ok(None);
    }
    // Under the table's own name the new rows would be taken for all of them, where a statement reads it twice.
    let name = TableReference::bare(format!("{}, new rows", scan.table_name.table()));
    let rows = provider_as_source(Arc::new(snapshot.after(growth.rows)?));
    let new = TableScanBuilder::new(name, rows)
        .with_projection(scan.projection.clone())
        .with_filters(scan.filters.clone())
        .build()?;
    let new =
        SubqueryAlias::try_new(Arc::new(LogicalPlan::TableScan(new)), scan.table_name.clone())?;
    Ok(Some(LogicalPlan::SubqueryAlias(new)))
}

fn scan(name: &'static str, schema: SchemaRef, groups: Vec<RecordBatch>) -> Result<LogicalPlan> {
    let groups = provider_as_source(Arc::new(Remembered { name, schema, groups }));
    LogicalPlanBuilder::scan(TableReference::bare(name), groups, None)?.build()
}

/// Groups or rows that are remembered, as a table.
#[derive(Debug)]
struct Remembered {
    name: &'static str,
    schema: SchemaRef,
    groups: Vec<RecordBatch>,
}

#[async_trait]
impl TableProvider for Remembered {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (parts, schema) = ([self.groups.clone()], self.schema());
        let source = MemorySourceConfig::try_new(&parts, schema, projection.cloned())?
            .with_show_sizes(state.config_options().explain.show_sizes);
        Ok(DataSourceExec::from_data_source(Counted::named(self.name, Arc::new(source))))
    }
}
