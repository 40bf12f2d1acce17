//! Which operator of a physical plan yields the rows of which node of the logical plan that it was made of.
//!
//! Enters: both plans of a statement that EXPLAIN ANALYZE runs. Leaves: the rows that operators are expected to yield, as the
//! order of joins was chosen by ([`Estimates`]). Both are followed down from their roots at once, past whatever hands on
//! each row that it reads, or the first few:
//!
//! ```text
//! Projection                                     SpillingHashJoinExec   400 rows, as
//!   Join                400 rows       ──►         RepartitionExec
//!     Filter             12 rows                     TransformExec       12 rows
//!       TableScan      1000 rows                       DataSourceExec  1000 rows
//!     …                                            …
//! ```
//!
//! Where the two do not go together nothing below is expected, and so it is where nothing is known of what is read.

use std::sync::Arc;

use datafusion::common::DFSchemaRef;
use datafusion::logical_expr::{Join, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};

use super::statistics::{Estimates, Statistics};
use crate::exec::expected::Expected;
use crate::exec::relational::aggregate::SpillingAggregateExec;
use crate::exec::transform::TransformExec;

/// What is expected of the operators of a plan, by the optimized logical plan. `sides_are_kept` says that no join has been turned
/// round since.
pub(crate) fn expected(
    logical: &LogicalPlan,
    physical: Arc<dyn ExecutionPlan>,
    statistics: &Statistics,
    sides_are_kept: bool,
) -> Expected {
    let expected = Expected::of(Arc::clone(&physical));
    let estimates = Estimates::new(statistics);
    let mut pairing = Pairing { estimates, expected, sides_are_kept };
    pairing.pair(logical, &physical, None);
    pairing.expected
}

struct Pairing<'a> {
    estimates: Estimates<'a>,
    expected: Expected,
    sides_are_kept: bool,
}

/// What an operator does to its rows.
enum Kind {
    Scan,
    Filter,
    Aggregate,
    Union,
    Join,
    Other,
}

impl Kind {
    fn of(operator: &dyn ExecutionPlan) -> Self {
        if operator.is::<FilterExec>() || operator.is::<TransformExec>() {
            return Self::Filter;
        }
        if operator.is::<AggregateExec>() || operator.is::<SpillingAggregateExec>() {
            return Self::Aggregate;
        }
        if operator.is::<UnionExec>() || operator.is::<InterleaveExec>() {
            return Self::Union;
        }
        match operator.children().len() {
            0 => Self::Scan,
            2 => Self::Join,
            _ => Self::Other,
        }
    }
}

impl Pairing<'_> {
    /// Pairs a node with the operator that yields its rows, `filter` being a node right above that has no operator of its own.
    fn pair(
        &mut self,
        node: &LogicalPlan,
        operator: &Arc<dyn ExecutionPlan>,
        filter: Option<&LogicalPlan>,
    ) {
        let (node, operator) = (past_nodes(node), past_operators(operator));
        let children = operator.children();
        match (node, Kind::of(operator.as_ref()), children.as_slice()) {
            (LogicalPlan::Filter(own), Kind::Filter, [input]) => {
                self.expect(operator, node);
                match past_nodes(&own.input) {
                    // Which of its filters a scan applies, and to which of its rows, shows when it runs.
                    LogicalPlan::TableScan(scan) if !scan.filters.is_empty() => {}
                    below => self.pair(below, input, None),
                }
            }
            (LogicalPlan::Filter(own), _, _) => {
                self.pair(&own.input, operator, Some(filter.unwrap_or(node)));
            }
            (_, Kind::Filter, [input]) => self.pair(node, input, filter),
            (LogicalPlan::TableScan(_) | LogicalPlan::Values(_), Kind::Scan, _) => {
                self.expect(operator, filter.unwrap_or(node));
            }
            // A filter that is somewhere below, no more is known.
            _ if filter.is_some() => {}
            (LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_), Kind::Aggregate, [input]) => {
                self.expect(operator, node);
                self.pair_inputs(node, &[input]);
            }
            (LogicalPlan::Join(join), Kind::Join, [one, other]) => {
                self.expect(operator, node);
                if let Some([left, right]) = self.sides(join, [one, other]) {
                    self.pair(left, one, None);
                    self.pair(right, other, None);
                }
            }
            (LogicalPlan::Union(_), Kind::Union, inputs) => {
                self.expect(operator, node);
                self.pair_inputs(node, inputs);
            }
            (
                LogicalPlan::Extension(_)
                | LogicalPlan::Unnest(_)
                | LogicalPlan::Dml(_)
                | LogicalPlan::Copy(_),
                Kind::Other | Kind::Join,
                inputs,
            ) => self.pair_inputs(node, inputs),
            _ => {}
        }
    }

    fn pair_inputs(&mut self, node: &LogicalPlan, operators: &[&Arc<dyn ExecutionPlan>]) {
        let inputs = node.inputs();
        if inputs.len() == operators.len() {
            for (input, operator) in inputs.into_iter().zip(operators) {
                self.pair(input, operator, None);
            }
        }
    }

    fn expect(&mut self, operator: &Arc<dyn ExecutionPlan>, node: &LogicalPlan) {
        if let Some(rows) = self.estimates.known_rows(node) {
            self.expected.expect(operator, rows);
        }
    }

    /// The sides of a join in the order of the operators; nothing where that cannot be told.
    fn sides<'j>(
        &self,
        join: &'j Join,
        operators: [&Arc<dyn ExecutionPlan>; 2],
    ) -> Option<[&'j LogicalPlan; 2]> {
        let sides = [join.left.as_ref(), join.right.as_ref()];
        if self.sides_are_kept {
            return Some(sides);
        }
        let is_like = |sides: [&LogicalPlan; 2]| {
            sides.iter().zip(operators).all(|(side, of)| are_alike(side.schema(), of))
        };
        let turned = [sides[1], sides[0]];
        match (is_like(sides), is_like(turned)) {
            (true, false) => Some(sides),
            (false, true) => Some(turned),
            _ => None,
        }
    }
}

/// Whether an operator has columns of the same names.
fn are_alike(schema: &DFSchemaRef, operator: &Arc<dyn ExecutionPlan>) -> bool {
    let (names, own) = (schema.fields().iter(), operator.schema());
    names.map(|field| field.name()).eq(own.fields().iter().map(|field| field.name()))
}

/// The node below all that hand on each row that they read, or the first few.
fn past_nodes(node: &LogicalPlan) -> &LogicalPlan {
    match node {
        LogicalPlan::Projection(projection) => past_nodes(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => past_nodes(&alias.input),
        LogicalPlan::Sort(sort) => past_nodes(&sort.input),
        LogicalPlan::Limit(limit) => past_nodes(&limit.input),
        LogicalPlan::Window(window) => past_nodes(&window.input),
        LogicalPlan::Repartition(repartition) => past_nodes(&repartition.input),
        node => node,
    }
}

/// The operator below all that hand on each row that they read, or the first few, or groups of some of them.
fn past_operators(operator: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    let children = operator.children();
    match children.as_slice() {
        [input] if hands_on(operator.as_ref()) => past_operators(input),
        // Its other inputs are values of expressions.
        [input, ..] if operator.is::<ScalarSubqueryExec>() => past_operators(input),
        _ => operator,
    }
}

fn hands_on(operator: &dyn ExecutionPlan) -> bool {
    if let Some(aggregate) = operator.downcast_ref::<AggregateExec>() {
        return matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::PartialReduce);
    }
    match operator.cardinality_effect() {
        _ if operator.is::<GlobalLimitExec>() => true,
        CardinalityEffect::Equal => true,
        CardinalityEffect::LowerEqual => {
            operator.fetch().is_some() && !matches!(Kind::of(operator), Kind::Filter)
        }
        CardinalityEffect::Unknown | CardinalityEffect::GreaterEqual => false,
    }
}
