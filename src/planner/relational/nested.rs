//! Sub-queries within sub-queries that name columns of a query further out. DataFusion hands columns in by one level: the values of
//! these become one row, which is joined to those of the query between.
//!
//! ```text
//! Filter: EXISTS                            Filter: EXISTS
//!   a                                         a
//!   └ Filter: EXISTS                          └ Filter: EXISTS
//!       b                             ──►         Cross Join:
//!       └ Filter: c.y = outer(a.y)                  b
//!           c                                       Projection: outer(a.y) AS o.c0
//!                                                     one row
//!                                                 └ Filter: c.y = outer(o.c0)
//!                                                     c
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, TableReference};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

use super::names;
use super::subquery::{input_of, subquery_of};

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct NestedCorrelation;

impl AnalyzerRule for NestedCorrelation {
    fn name(&self) -> &str {
        "nested_correlation"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut made = 0;
        // From the outermost query inwards: what is handed in by one level may have to go further.
        let mut supply = |further_out: &[&LogicalPlan], plan: LogicalPlan| {
            plan.transform_up(|node| supplied(node, further_out, &mut made))
        };
        plan.transform_down_with_subqueries(|node| changed_within(node, &mut supply)).data()
    }
}

/// The node with the columns of a query further out among its rows that its sub-queries name.
fn supplied(
    node: LogicalPlan,
    further_out: &[&LogicalPlan],
    made: &mut usize,
) -> Result<Transformed<LogicalPlan>> {
    let (LogicalPlan::Filter(_) | LogicalPlan::Projection(_), Some(input)) =
        (&node, input_of(&node))
    else {
        return Ok(Transformed::no(node));
    };
    let alias = TableReference::bare(format!("__outer_{made}"));
    let (mut pairs, mut row) = (Vec::new(), Vec::new());
    for column in named_further_out(&node)? {
        let source = further_out.iter().find(|input| input.schema().has_column(&column));
        let Some(source) = source else { continue };
        let field = source.schema().qualified_field_from_column(&column)?.1;
        let own = Column::new(Some(alias.clone()), format!("c{}", pairs.len()));
        let value = Expr::OuterReferenceColumn(Arc::clone(field), column.clone());
        row.push(value.alias_qualified(Some(alias.clone()), &own.name));
        pairs.push((column, own));
    }
    if pairs.is_empty() {
        return Ok(Transformed::no(node));
    }
    *made += 1;
    let row = LogicalPlanBuilder::empty(true).project(row)?.build()?;
    let rows = LogicalPlanBuilder::from(input.clone()).cross_join(row)?.build()?;

    let columns = node.schema().columns();
    let node = changed_within(node, &mut |_, plan| renamed(plan, &pairs))?.data;
    let supplied = node.with_new_exprs(node.expressions(), vec![rows])?;
    if supplied.schema().fields().len() == columns.len() {
        return Ok(Transformed::yes(supplied));
    }
    let columns = columns.into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(supplied).project(columns)?.build().map(Transformed::yes)
}

/// The columns that sub-queries of a node name, at any depth, and that its inputs do not have.
fn named_further_out(node: &LogicalPlan) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    node.apply_expressions(|expression| {
        expression.apply(|part| {
            if let Some(subquery) = subquery_of(part) {
                columns.extend(named_outside(&subquery.subquery)?);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    columns.retain(|column| !has(&node.inputs(), column));
    columns.sort_unstable();
    columns.dedup();
    Ok(columns)
}

/// The columns that a plan names and that are of queries around it.
pub(super) fn named_outside(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    plan.apply(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::OuterReferenceColumn(_, column) = part {
                    columns.push(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        columns.extend(named_further_out(node)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(columns)
}

/// The plan of a sub-query with other columns in the place of those that it names outside.
fn renamed(plan: LogicalPlan, pairs: &[(Column, Column)]) -> Result<Transformed<LogicalPlan>> {
    plan.transform_down(|node| {
        let node = names::rewritten(node, |expression| {
            expression.transform_down(|part| match part {
                Expr::OuterReferenceColumn(field, column) => {
                    let Some((_, own)) = pairs.iter().find(|(outer, _)| *outer == column) else {
                        return Ok(Transformed::no(Expr::OuterReferenceColumn(field, column)));
                    };
                    Ok(Transformed::yes(Expr::OuterReferenceColumn(field, own.clone())))
                }
                part => Ok(Transformed::no(part)),
            })
        })?;
        // What an input has under that name is nearer.
        let mut rename = |inputs: &[&LogicalPlan], plan| {
            let pairs = pairs.iter().filter(|(outer, _)| !has(inputs, outer)).cloned();
            renamed(plan, &pairs.collect::<Vec<_>>())
        };
        node.transform_data(|node| changed_within(node, &mut rename))
    })
}

/// A node of which the plans of sub-queries are changed, which is told of its inputs.
fn changed_within(
    node: LogicalPlan,
    change: &mut impl FnMut(&[&LogicalPlan], LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut holds_any = false;
    node.apply_expressions(|expression| {
        holds_any |= expression.exists(|part| Ok(subquery_of(part).is_some()))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !holds_any {
        return Ok(Transformed::no(node));
    }
    let around = node.clone();
    let inputs = around.inputs();
    names::rewritten(node, |expression| {
        expression.transform_down(|mut part| {
            let (Expr::ScalarSubquery(subquery)
            | Expr::Exists(Exists { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. })) = &mut part
            else {
                return Ok(Transformed::no(part));
            };
            let changed = change(&inputs, LogicalPlan::clone(&subquery.subquery))?;
            if !changed.transformed {
                return Ok(Transformed::no(part));
            }
            subquery.outer_ref_columns = changed.data.all_out_ref_exprs();
            subquery.subquery = Arc::new(changed.data);
            Ok(Transformed::yes(part))
        })
    })
}

fn has(inputs: &[&LogicalPlan], column: &Column) -> bool {
    inputs.iter().any(|input| input.schema().has_column(column))
}
