//! Rows of any set of the relations of a graph, once they are joined.
//!
//! ```text
//! rows(S) = Π rows of relations · Π over classes (1 / values that differ, but for the member with the fewest)
//!           · Π shares of other conditions · Π shares that semi joins keep · Π partners in outer joins
//! ```
//!
//! An estimate is of a set, whatever the order in which it is joined: Moerkotte, *Building Query Compilers*, §24. Two keys
//! that join the same two relations are rarely independent: where each side has fewer rows than its keys have
//! combinations, the smaller side is taken for the domain of both, as a key and its references are.

use datafusion::logical_expr::{Expr, LogicalPlan};

use super::graph::{Attached, Attachment, ConditionKind, Graph};
use super::set::Set;
use crate::planner::statistics::{Estimates, LEAST_ROWS, UNMATCHED_MIN, domain, share_of_matches};

/// The share of rows that a semi join with a further condition keeps, of those that have a partner.
const FURTHER: f64 = 0.9;

/// Rows of the sets of relations of a graph.
pub(super) struct Cardinality {
    /// Of each relation by itself; for one that is attached, of its own rows.
    rows: Vec<f64>,
    /// By class: relations with the number of values that differ, the most first.
    classes: Vec<Vec<(usize, f64)>>,
    /// Shares that are kept once all of these relations are joined.
    shares: Vec<(Set, f64)>,
    /// Relations whose rows multiply those of others.
    joined: Set,
}

impl Cardinality {
    pub(super) fn of(graph: &Graph, estimates: &Estimates<'_>) -> Self {
        let rows = graph.relations.iter().map(|relation| estimates.rows(&relation.plan)).collect();
        let classes: Vec<Vec<(usize, f64)>> = graph
            .classes
            .iter()
            .map(|class| {
                let members = class.iter().map(|member| {
                    let plan = &graph.relations[member.relation].plan;
                    (member.relation, estimates.keys_of(plan, &member.expr))
                });
                let mut members: Vec<_> = members.collect();
                members.sort_by(|one, other| other.1.total_cmp(&one.1));
                members
            })
            .collect();
        let joined = graph.relations.iter().enumerate();
        let joined = joined.filter(|(_, relation)| relation.attached.is_none());
        let joined: Set = joined.map(|(at, _)| at).collect();
        let mut this = Self { rows, classes, shares: Vec::new(), joined };
        this.note_conditions(graph, estimates);
        this.note_attached(graph, estimates);
        this.note_repeated_pairs(graph, estimates);
        this.note_common_keys(graph, estimates);
        this
    }

    /// Rows of a set.
    pub(super) fn rows(&self, set: Set) -> f64 {
        if let (1, Some(relation)) = (set.count(), set.least()) {
            return self.rows[relation];
        }
        let mut rows: f64 =
            set.within(self.joined).iter().map(|relation| self.rows[relation]).product();
        for class in &self.classes {
            let mut domains = class.iter().filter(|(relation, _)| set.meets(Set::one(*relation)));
            // The fewest values are all found in the other domains.
            domains.next_back();
            rows /= domains.map(|(_, distinct)| distinct).product::<f64>();
        }
        for (relations, share) in &self.shares {
            if set.includes(*relations) {
                rows *= share;
            }
        }
        rows.max(LEAST_ROWS)
    }

    fn note_conditions(&mut self, graph: &Graph, estimates: &Estimates<'_>) {
        for condition in &graph.conditions {
            let plans: Vec<&LogicalPlan> =
                condition.relations.iter().map(|at| &graph.relations[at].plan).collect();
            let share = match &condition.kind {
                ConditionKind::Other(expr) => estimates.kept_of_pairs(&[expr], &plans),
                ConditionKind::Equality([(_, left), (_, right)]) => {
                    estimates.kept(&[&left.clone().eq(right.clone())], &plans)
                }
            };
            self.shares.push((condition.relations, share));
        }
    }

    fn note_attached(&mut self, graph: &Graph, estimates: &Estimates<'_>) {
        for (at, relation) in graph.relations.iter().enumerate() {
            let Some(join) = &relation.attached else { continue };
            let share = share_kept(graph, join, &relation.plan, estimates);
            self.shares.push((join.required.with(Set::one(at)), share));
        }
    }

    /// Where two relations are joined by one class, and no other relation by that, puts what is known of values that are
    /// common in both in the place of an even spread.
    fn note_common_keys(&mut self, graph: &Graph, estimates: &Estimates<'_>) {
        for (class, known) in graph.classes.iter().zip(&self.classes) {
            let [one, other] = class.as_slice() else { continue };
            let pair = Set::from_iter([one.relation, other.relation]);
            let is_pair = |class: &&Vec<(usize, f64)>| {
                let members: Set = class.iter().map(|(relation, _)| *relation).collect();
                members.includes(pair)
            };
            let is_only = self.classes.iter().filter(is_pair).count() == 1;
            if pair.count() < 2 || !self.joined.includes(pair) || !is_only {
                continue;
            }
            let sides =
                [one, other].map(|member| (&graph.relations[member.relation].plan, &member.expr));
            if let (Some(share), Some((_, most))) = (estimates.share_of_pairs(sides), known.first())
            {
                self.shares.push((pair, share * most));
            }
        }
    }

    /// Where two relations are joined by several classes, puts one share for all in the place of one for each.
    fn note_repeated_pairs(&mut self, graph: &Graph, estimates: &Estimates<'_>) {
        let joined: Vec<usize> = self.joined.iter().collect();
        for (at, &one) in joined.iter().enumerate() {
            for &other in &joined[at + 1..] {
                let pairs = self.classes.iter().filter_map(|class| {
                    let of = |relation| class.iter().find(|(own, _)| *own == relation);
                    Some([of(one)?.1, of(other)?.1])
                });
                let pairs: Vec<[f64; 2]> = pairs.collect();
                if pairs.len() < 2 {
                    continue;
                }
                let independent: f64 =
                    pairs.iter().map(|pair| 1.0 / pair[0].max(pair[1])).product();
                let side = |side: usize, relation: usize| {
                    let combinations: f64 = pairs.iter().map(|pair| pair[side]).product();
                    (combinations, estimates.rows_unfiltered(&graph.relations[relation].plan))
                };
                let sides = [side(0, one), side(1, other)];
                let share = (1.0 / domain(sides) / independent).max(1.0);
                self.shares.push((Set::from_iter([one, other]), share));
            }
        }
    }
}

/// The share of rows that a semi or anti join keeps, or the rows that an outer join makes of each.
fn share_kept(
    graph: &Graph,
    join: &Attached,
    plan: &LogicalPlan,
    estimates: &Estimates<'_>,
) -> f64 {
    let plans: Vec<&LogicalPlan> =
        join.required.iter().map(|relation| &graph.relations[relation].plan).collect();
    let kept = |expr: &Expr| {
        let of = plans.iter().find(|plan| {
            expr.column_refs().into_iter().all(|column| plan.schema().has_column(column))
        });
        of.map_or(1.0, |plan| estimates.distinct(plan, expr))
    };
    let rows = estimates.rows(plan);
    let domain: f64 = join.on.iter().map(|(own, _)| kept(own)).product();
    let others: f64 = join.on.iter().map(|(_, other)| estimates.distinct(plan, other)).product();
    let others = others.min(rows);
    let matched = share_of_matches(domain, others);
    let matched = if join.filter.is_some() { matched * FURTHER } else { matched };
    match join.kind {
        Attachment::Semi => matched,
        Attachment::Anti => (1.0 - matched).max(UNMATCHED_MIN),
        Attachment::Outer => (rows / domain.max(others).max(1.0)).max(1.0),
    }
}
