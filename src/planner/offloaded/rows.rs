//! The rows that an aggregation, or a sort, reads, as what is computed of those of one table and of the rows of others that each of them names.
//!
//! ```text
//! HashJoinExec: l_orderkey = o_orderkey       tables       lineitem, orders
//!   FilterExec: l_shipdate < …                joins    ─►  orders by o_orderkey, which l_orderkey names
//!     DataSourceExec: lineitem                conditions   l_shipdate < …
//!   DataSourceExec: orders                    columns      over those of lineitem, and then those of orders
//! ```
//!
//! Which side of a join the host builds its table of is its own affair: here the one is looked up whose key is its own.

use std::iter;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use super::terms::key_column;
use crate::exec::offload::kept::{self, Owner};
use crate::exec::relational::join::SpillingJoinExec;
use crate::storage::{TableColumn, TableScan};

/// An expression over the columns of all tables, one table after the other.
pub(super) type Over = Arc<dyn PhysicalExpr>;

/// See the header of this file.
#[derive(Clone)]
pub(super) struct Rows<'a> {
    tables: Vec<Table<'a>>,
    /// Of the tables after the first.
    pub(super) joins: Vec<Named>,
    /// Rows are kept for which all of these hold.
    pub(super) conditions: Vec<Over>,
    pub(super) columns: Vec<Over>,
}

/// What a scan gives of a table.
#[derive(Clone)]
struct Table<'a> {
    scan: &'a TableScan,
    schema: SchemaRef,
}

/// A row of another table, by the columns of its key and what names it.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) of: Vec<Over>,
    pub(super) key: Vec<Over>,
    pub(super) is_near: bool,
}

/// Codes of a key of several columns at most.
const CODES_MAX: u128 = 1 << 62;

impl<'a> Rows<'a> {
    /// The rows that a plan gives; nothing where they are not of such tables.
    pub(super) fn of(plan: &'a Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        if let Some(source) = plan.downcast_ref::<DataSourceExec>() {
            let scan = source.data_source().downcast_ref::<TableScan>();
            return Ok(scan.map(|scan| Self::of_table(scan, plan.schema())));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let Some(mut rows) = Self::of(projection.input())? else { return Ok(None) };
            let columns = projection.expr().iter().map(|one| rows.over(&one.expr));
            rows.columns = columns.collect::<Result<_>>()?;
            return Ok(Some(rows));
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>().filter(|of| of.fetch().is_none()) {
            let Some(mut rows) = Self::of(filter.input())? else { return Ok(None) };
            let condition = rows.over(filter.predicate())?;
            rows.conditions.push(condition);
            if let Some(kept) = filter.projection().as_ref() {
                rows.columns = kept.iter().map(|&at| Arc::clone(&rows.columns[at])).collect();
            }
            return Ok(Some(rows));
        }
        let spilling = plan.downcast_ref::<SpillingJoinExec>().map(SpillingJoinExec::join);
        if let Some(join) = spilling.unwrap_or(plan).downcast_ref::<HashJoinExec>() {
            return Self::joined(join);
        }
        // Who adds rows up does not ask which partition they were in.
        let passed = plan.downcast_ref::<CooperativeExec>().map(CooperativeExec::input);
        let dealt = plan.downcast_ref::<RepartitionExec>().map(RepartitionExec::input);
        let collected = plan.downcast_ref::<CoalescePartitionsExec>();
        let collected = collected.filter(|of| of.fetch().is_none());
        let collected = collected.map(CoalescePartitionsExec::input);
        passed.or(dealt).or(collected).map_or(Ok(None), Self::of)
    }

    fn of_table(scan: &'a TableScan, schema: SchemaRef) -> Self {
        let columns = schema.fields().iter().enumerate();
        let columns = columns.map(|(at, field)| Arc::new(Column::new(field.name(), at)) as Over);
        let columns = columns.collect();
        let tables = vec![Table { scan, schema }];
        Self { tables, joins: Vec::new(), conditions: Vec::new(), columns }
    }

    /// The rows of a join of which one side has, for each row of the other, one row or none.
    fn joined(join: &'a HashJoinExec) -> Result<Option<Self>> {
        let is_plain = join.null_equality() == NullEquality::NullEqualsNothing
            && !join.null_aware
            && join.fetch().is_none();
        let firsts: &[JoinSide] = match join.join_type() {
            JoinType::Inner => &[JoinSide::Left, JoinSide::Right],
            JoinType::LeftSemi => &[JoinSide::Left],
            JoinType::RightSemi => &[JoinSide::Right],
            _ => &[],
        };
        if !is_plain || firsts.is_empty() {
            return Ok(None);
        }
        let (Some(left), Some(right)) = (Self::of(join.left())?, Self::of(join.right())?) else {
            return Ok(None);
        };
        let on = join.on().iter().map(|(a, b)| {
            let [a, b] = [left.over(a)?, right.over(b)?];
            Ok([left.nearest(a), right.nearest(b)])
        });
        let on: Vec<[Over; 2]> = on.collect::<Result<_>>()?;
        let key = |first: JoinSide, is_near: bool| {
            let (side, of) = match first {
                JoinSide::Left => (&right, 1),
                _ => (&left, 0),
            };
            let key = side.key(on.iter().map(|pair| &pair[of]), is_near)?;
            Some((first, key, is_near, side.tables[0].rows()))
        };
        // Near keys are found faster, and one of fewer rows is more likely to be a key.
        let ways = [true, false].into_iter().map(|is_near| {
            let keys = firsts.iter().filter_map(|first| key(*first, is_near));
            keys.min_by_key(|(.., rows)| *rows)
        });
        let Some((first, named, is_near, _)) = ways.flatten().next() else { return Ok(None) };
        let is_left = first == JoinSide::Left;
        let (mut rows, other, [own, others]) = match is_left {
            true => (left, right, [0, 1]),
            false => (right, left, [1, 0]),
        };
        let width = rows.width();
        let other = other.after(width)?;
        let on = on.into_iter().map(|pair| {
            let other = after(&pair[others], width)?;
            Ok([Arc::clone(&pair[own]), other])
        });
        let mut own = Named { of: Vec::new(), key: Vec::new(), is_near };
        for (at, [of, key]) in on.collect::<Result<Vec<_>>>()?.into_iter().enumerate() {
            if named.contains(&at) {
                own.of.push(of);
                own.key.push(key);
            } else {
                rows.conditions.push(equal(of, key));
            }
        }
        rows.joins.push(own);
        rows.tables.extend(other.tables);
        rows.joins.extend(other.joins);
        rows.conditions.extend(other.conditions);
        let [left, right] = match is_left {
            true => [&rows.columns, &other.columns],
            false => [&other.columns, &rows.columns],
        };
        if let Some(filter) = join.filter() {
            let read = filter.column_indices().iter().map(|of| match of.side {
                JoinSide::Left => left.get(of.index),
                _ => right.get(of.index),
            });
            let Some(read) = read.collect::<Option<Vec<_>>>() else { return Ok(None) };
            let read: Vec<Over> = read.into_iter().cloned().collect();
            rows.conditions.push(replaced(&read, filter.expression())?);
        }
        let all: Vec<Over> = match join.join_type() {
            JoinType::LeftSemi => left.clone(),
            JoinType::RightSemi => right.clone(),
            _ => left.iter().chain(right).cloned().collect(),
        };
        rows.columns = match join.projection.as_ref() {
            Some(kept) => kept.iter().map(|&at| Arc::clone(&all[at])).collect(),
            None => all,
        };
        Ok(Some(rows))
    }

    /// An expression over what is given as one over the columns of the tables.
    pub(super) fn over(&self, expr: &Over) -> Result<Over> {
        replaced(&self.columns, expr)
    }

    /// What is equal to an expression, in the first table that has it: what names a row is the key of that.
    fn nearest(&self, expr: Over) -> Over {
        self.joins.iter().rev().fold(expr, |expr, join| {
            let names = join.of.iter().zip(&join.key).find(|(_, key)| expr.eq(key));
            names.map(|(of, _)| Arc::clone(of)).unwrap_or(expr)
        })
    }

    /// Which of these may be a key of the first table: one of near numbers, or all columns of it together.
    fn key<'e>(&self, all: impl Iterator<Item = &'e Over>, is_near: bool) -> Option<Vec<usize>> {
        let column = |expr: &Over| {
            let place = key_column(expr).downcast_ref::<Column>()?.index();
            let own = Some(place).filter(|place| *place < self.tables[0].width());
            own.and_then(|place| self.tables[0].scan.column(place))
        };
        let own = all.enumerate().filter_map(|(at, expr)| Some((at, column(expr)?)));
        if is_near {
            let mut near = own.filter(|(_, column)| column.may_be_key());
            return near.next().map(|(at, _)| vec![at]);
        }
        let own: Vec<(usize, TableColumn)> = own.collect();
        let numbers = own.iter().try_fold(1_u128, |all, (_, column)| {
            let [least, greatest] = column.bounds()?;
            all.checked_mul(greatest.abs_diff(least) + 1)
        });
        let is_far = (self.count() as u128..CODES_MAX).contains(&numbers?);
        let owner = Owner::Places(own.iter().map(|(_, column)| column.same()).collect());
        let repeats = own.iter().all(|(_, column)| column.repeats()) && own.len() < 2;
        let is_none = repeats || !is_far || kept::is_unfit(owner);
        (!is_none).then(|| own.into_iter().map(|(at, _)| at).collect())
    }

    /// Columns of all tables.
    fn width(&self) -> usize {
        self.tables.iter().map(Table::width).sum()
    }

    /// The same behind so many columns of other tables.
    fn after(self, width: usize) -> Result<Self> {
        let all = |of: &[Over]| of.iter().map(|one| after(one, width)).collect::<Result<_>>();
        let joins = self.joins.iter().map(|join| {
            let (of, key) = (all(&join.of)?, all(&join.key)?);
            Ok(Named { of, key, is_near: join.is_near })
        });
        Ok(Self {
            joins: joins.collect::<Result<_>>()?,
            conditions: all(&self.conditions)?,
            columns: all(&self.columns)?,
            tables: self.tables,
        })
    }

    /// The columns of all tables.
    pub(super) fn schema(&self) -> SchemaRef {
        let fields = self.tables.iter().flat_map(|table| table.schema.fields());
        let fields: Vec<Arc<Field>> = fields.cloned().collect();
        Arc::new(Schema::new(fields))
    }

    /// A column of them, with the number of its table.
    pub(super) fn column(&self, place: usize) -> Option<(usize, TableColumn)> {
        let firsts = self.tables.iter().scan(0, |first, table| {
            let own = *first;
            *first += table.width();
            Some(own)
        });
        let own = firsts.chain(iter::once(self.width())).take_while(|first| *first <= place);
        let (table, first) = own.enumerate().last()?;
        Some((table, self.tables.get(table)?.scan.column(place - first)?))
    }

    /// That of an expression which is one.
    pub(super) fn column_of(&self, expr: &Over) -> Option<(usize, TableColumn)> {
        self.column(expr.downcast_ref::<Column>()?.index())
    }

    /// Rows of the first table.
    pub(super) fn count(&self) -> usize {
        self.tables[0].rows()
    }
}

impl Table<'_> {
    fn width(&self) -> usize {
        self.schema.fields().len()
    }

    /// None where nobody knows of any.
    fn rows(&self) -> usize {
        self.scan.column(0).map_or(0, |column| column.rows())
    }
}

/// An expression with these in the places of the columns that it reads.
pub(super) fn replaced(columns: &[Over], expr: &Over) -> Result<Over> {
    let column = |expr: Over| {
        let column = expr.downcast_ref::<Column>().map(|column| column.index());
        Ok(match column.and_then(|at| columns.get(at)) {
            Some(of) => Transformed::yes(Arc::clone(of)),
            None => Transformed::no(expr),
        })
    };
    Arc::clone(expr).transform_up(column).data()
}

/// An expression over columns that are so many places further.
fn after(expr: &Over, width: usize) -> Result<Over> {
    let column = |expr: Over| {
        Ok(match expr.downcast_ref::<Column>() {
            Some(of) => {
                Transformed::yes(Arc::new(Column::new(of.name(), of.index() + width)) as Over)
            }
            None => Transformed::no(expr),
        })
    };
    Arc::clone(expr).transform_up(column).data()
}

fn equal(of: Over, key: Over) -> Over {
    Arc::new(BinaryExpr::new(of, Operator::Eq, key))
}
