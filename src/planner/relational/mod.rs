//! The relational half: what Relatrix adds to DataFusion's planners and rules.
//!
//! ```text
//! syntax ─ types, coerce, aggregate: what is planned otherwise ─ LogicalPlan
//!   analyze    repeated, values, insert, hoisted (outer), membership, nested, subquery::SingleRow, selected, coerce, then DataFusion's rules, with sets among them, then texts and overflow
//!   optimize   DataFusion's rules, and subquery, keys, totals, apart and sort_keys among them; lifted and filtered at the end
//! ExecutionPlan   overflow and constants, then DataFusion's rules, with filters handed down by pushdown and sorted before the last, then spilling
//! ```

mod aggregate;
mod apart;
mod coerce;
mod constants;
mod distinct;
mod filtered;
mod hoisted;
mod insert;
mod keys;
mod lifted;
mod limits;
mod membership;
mod names;
mod nested;
mod outer;
mod overflow;
mod repeated;
mod selected;
mod sets;
mod sort_keys;
mod sorted;
mod subquery;
mod texts;
mod totals;
mod types;
mod values;

use std::sync::Arc;

use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

use super::evidence::Evidence;
use super::grouped_windows::GroupedWindows;
use super::joins::JoinOrder;
use super::joins::collected::CollectedBuilds;
use super::joins::eager::EagerGroups;
use super::pushdown::{self, TYING};
use super::rule::{IfItCan, Rule};
use super::scans::FileParts;
use super::shared::SharedPlans;
use super::spilling::SpillingOperators;
use super::{best_entries, contraction, first_rows, pair_sums};
use crate::functions::StringSubscript;

pub(crate) use types::TypeNames;

/// What plans an operator, a subscript or an aggregate before DataFusion's planners see it.
pub(crate) fn expr_planners() -> Vec<Arc<dyn ExprPlanner>> {
    vec![
        Arc::new(coerce::BooleanComparisons),
        Arc::new(StringSubscript),
        Arc::new(aggregate::NamedCasts),
    ]
}

/// DataFusion's rules, and ours before them: they make of a statement what DataFusion accepts.
pub(crate) fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
        Arc::new(repeated::RepeatedRows),
        Arc::new(values::ComputedValues),
        Arc::new(insert::NullableValues),
        Arc::new(hoisted::HoistedSubqueries),
        Arc::new(membership::UnknownMembership),
        Arc::new(nested::NestedCorrelation),
        Arc::new(subquery::SingleRow),
        Arc::new(selected::SelectedColumns),
        Arc::new(coerce::Coerce),
    ];
    rules.extend(Analyzer::new().rules);
    let coercion = rules.iter().rposition(|rule| rule.name() == sets::BEFORE);
    rules.insert(coercion.unwrap_or(rules.len()), Arc::new(sets::NamedKeys));
    rules.push(Arc::new(texts::TextsInOrders));
    rules.push(Arc::new(overflow::CheckedConstants));
    rules
}

/// DataFusion's rules for physical plans, after two of ours, for later ones may move expressions into scans, and trust what operators promise; one that
/// looks at what they have chosen for joins; one that cuts files, before scans are told what others ask of them; and one at the end that puts other operators in the place of its own.
pub(crate) fn physical_optimizer_rules(
    evidence: &Evidence,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> =
        vec![Arc::new(overflow::CheckedArithmetic), Arc::new(constants::FewerConstants)];
    rules.extend(PhysicalOptimizer::new().rules);
    let chosen = rules.iter().rposition(|rule| rule.name() == "join_selection");
    rules.insert(
        chosen.map_or(rules.len(), |at| at + 1),
        Arc::new(CollectedBuilds::new(evidence.clone())),
    );
    // It fails where it meets two columns of one name.
    for rule in rules.iter_mut().filter(|rule| rule.name() == "ProjectionPushdown") {
        *rule = Arc::new(IfItCan(Arc::clone(rule)));
    }
    for rule in rules.iter_mut().filter(|rule| rule.name() == limits::TIED_BY) {
        *rule = Arc::new(limits::LimitsStay(Arc::clone(rule)));
    }
    for ours in pushdown::RULES {
        let of_datafusion = rules.iter().position(|rule| rule.name() == ours.of_datafusion);
        if let Some(place) = of_datafusion {
            rules[place] = Arc::new(ours);
        }
    }
    let tying = rules.iter().rposition(|rule| rule.name() == TYING);
    rules.insert(tying.unwrap_or(rules.len()), Arc::new(FileParts));
    let checking = rules.iter().rposition(|rule| rule.name() == "SanityCheckPlan");
    rules.insert(checking.unwrap_or(rules.len()), Arc::new(sorted::SortedInputs));
    rules.push(Arc::new(SpillingOperators));
    rules
}

/// DataFusion's rules, and ours in their places among them.
pub(crate) fn optimizer_rules(evidence: &Evidence) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules: Vec<_> = Optimizer::new()
        .rules
        .into_iter()
        .map(keys::of_one_meaning)
        .map(distinct::of_short_keys)
        .map(aggregate::of_unlike_keys)
        .map(totals::filtered_above)
        .collect();
    // What DataFusion's rules leave of subqueries, before joins are looked at.
    let after = rules.iter().rposition(|rule| {
        matches!(
            rule.name(),
            "decorrelate_predicate_subquery"
                | "scalar_subquery_to_join"
                | "decorrelate_lateral_join"
        )
    });
    let place = after.map_or(rules.len(), |last| last + 1);
    // From the innermost subquery outwards: the outer one's rewrite then meets plain relations.
    rules.insert(place, Arc::new(Rule::bottom_up("unnest_subqueries", subquery::rewrite)));
    // Where conditions are as far down as they go, and before columns are dropped that nobody reads above.
    let filters = rules.iter().rposition(|rule| rule.name() == "push_down_filter");
    let place = filters.map_or(rules.len(), |last| last + 1);
    rules.insert(place, Arc::new(JoinOrder::new(evidence.clone())));
    // Before the rule for those with one argument that is DISTINCT.
    let distinct =
        rules.iter().position(|rule| rule.name() == "single_distinct_aggregation_to_group_by");
    let apart = Arc::new(Rule::bottom_up("apart_aggregates", apart::rewrite));
    rules.insert(distinct.unwrap_or(rules.len()), apart);
    // Before the rule that drops the columns nobody reads.
    let projections = rules.iter().rposition(|rule| rule.name() == "optimize_projections");
    rules.insert(
        projections.unwrap_or(rules.len()),
        Arc::new(Rule::bottom_up("computed_sort_keys", sort_keys::rewrite)),
    );
    // Where filters and limits have come to rest.
    rules.push(Arc::new(Rule::top_down("best_entries", best_entries::rewrite)));
    rules.push(Arc::new(Rule::bottom_up("lifted_arithmetic", lifted::rewrite)));
    rules.push(Arc::new(Rule::bottom_up("filtered_windows", filtered::rewrite)));
    // Before plans that are read twice are shared.
    rules.push(Arc::new(GroupedWindows::new(evidence.clone())));
    rules.push(Arc::new(SharedPlans::new(evidence.clone())));
    // Joins that are shared have all their rows.
    rules.push(Arc::new(EagerGroups::new(evidence.clone())));
    // Windows that are shared have all their rows.
    rules.push(Arc::new(Rule::top_down("first_rows", first_rows::rewrite)));
    rules.push(Arc::new(Rule::bottom_up("contractions", contraction::rewrite)));
    rules.push(Arc::new(Rule::bottom_up("pair_sums", pair_sums::rewrite)));
    rules
}
