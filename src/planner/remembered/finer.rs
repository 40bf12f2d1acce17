//! Groups that finer ones answer for: of fewer keys, and of the rows that meet a condition on keys.
//!
//! ```text
//! Aggregate: region, sum(v)               Aggregate: region, sum(sum(v))
//!   Filter: day > 3                =        Filter: day > 3
//!     sales                                   remembered groups: region, day, sum(v)
//! ```
//!
//! Rows, keys and parts are told by their hashes, so that who keeps groups need not keep their plans.

use std::hash::{Hash, Hasher};

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::{Aggregate, Expr, Filter, LogicalPlan, LogicalPlanBuilder};

use super::super::parts::{Parts, column, keys, name};
use super::has_query;

/// What tells a plan or an expression from all others.
pub(crate) type Hashes = [u64; 2];

/// Hashes a plan or an expression.
pub(crate) type Hashing<'h> = dyn Fn(&dyn Fn(&mut dyn Hasher)) -> Hashes + 'h;

/// Groups that would answer: of which rows, by which keys and with which parts, in this order.
#[derive(Debug)]
pub(crate) struct Wanted<'p> {
    pub(crate) rows: Hashes,
    pub(crate) columns: Vec<Hashes>,
    /// Where some of the rows are left out, what of their keys leaves them out.
    condition: Option<&'p Expr>,
}

/// How groups come from finer ones.
#[derive(Debug)]
pub(crate) struct Finer {
    /// Where the finer ones have each column.
    places: Vec<usize>,
    /// A condition on their columns, which are named by their numbers.
    condition: Option<Expr>,
}

impl<'p> Wanted<'p> {
    /// The groups of an aggregation, then those of the rows that its condition would leave out too; nothing where a key stands there twice.
    pub(super) fn of(asked: &'p Aggregate, parts: &Parts, hash: &Hashing<'_>) -> Vec<Self> {
        if asked.group_expr.len() != keys(asked) {
            return Vec::new();
        }
        let expressions = asked.group_expr.iter().chain(parts.made());
        let columns: Vec<Hashes> = expressions.map(|expr| of_expr(expr, hash)).collect();
        let of = |rows: &LogicalPlan, condition| {
            let rows = hash(&|mut state| rows.hash(&mut state));
            Self { rows, columns: columns.clone(), condition }
        };
        let mut wanted = vec![of(&asked.input, None)];
        if let LogicalPlan::Filter(Filter { predicate, input, .. }) = asked.input.as_ref()
            && !has_query(predicate)
        {
            wanted.push(of(input, Some(predicate)));
        }
        wanted
    }

    /// How these come from groups of the same rows with these columns; nothing where one is missing that is wanted or that the
    /// condition reads.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn from(&self, there: &[Hashes], hash: &Hashing<'_>) -> Result<Option<Finer>> {
        let place = |wanted: &Hashes| there.iter().position(|column| column == wanted);
        let places = self.columns.iter().map(place).collect::<Option<Vec<_>>>();
        let mut is_there = places.is_some();
        let condition = self.condition.cloned().map(|condition| {
            let condition = condition.transform_up(|expr| match &expr {
                Expr::Column(_) => Ok(match place(&of_expr(&expr, hash)) {
                    Some(at) => Transformed::yes(column(at)),
                    None => {
                        is_there = false;
                        Transformed::no(expr)
                    }
                }),
                _ => Ok(Transformed::no(expr)),
            });
            condition.data()
        });
        let (condition, places) = (condition.transpose()?, places.unwrap_or_default());
        Ok(is_there.then_some(Finer { places, condition }))
    }
}

impl Finer {
    /// The columns that are wanted, of finer groups whose columns are named by their numbers.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn columns(&self, groups: LogicalPlan) -> Result<LogicalPlan> {
        let mut plan = LogicalPlanBuilder::from(groups);
        if let Some(condition) = &self.condition {
            plan = plan.filter(condition.clone())?;
        }
        let columns = self.places.iter().enumerate();
        let columns = columns.map(|(at, &place)| column(place).alias(name(at)));
        plan.project(columns.collect::<Vec<_>>())?.build()
    }
}

fn of_expr(expr: &Expr, hash: &Hashing<'_>) -> Hashes {
    hash(&|mut state| expr.hash(&mut state))
}
