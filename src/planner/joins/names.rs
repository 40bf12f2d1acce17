//! What plans and orders of joins are called where a user reads of them.
//!
//! ```text
//! a, b, (c, d), e      a with b, that with the join of c and d, and all with e
//! [a, b]               what is one relation to its neighbours, made of two: a full join, say
//! semi a, anti a       a decides which rows of the others stay
//! outer a              rows of the others that have no partner in a stay too
//! ```

use datafusion::common::JoinType;
use datafusion::logical_expr::LogicalPlan;

use super::enumerate::Tree;
use super::graph::{Attachment, Relation};

/// Names beyond which a list is cut short.
const LISTED_MAX: usize = 4;

impl Relation {
    pub(super) fn name(&self) -> String {
        let name = name(&self.plan);
        match self.attached.as_ref().map(|join| join.kind) {
            None => name,
            Some(Attachment::Semi) => format!("semi {name}"),
            Some(Attachment::Anti) => format!("anti {name}"),
            Some(Attachment::Outer) => format!("outer {name}"),
        }
    }
}

/// The name of a plan that is one relation to its neighbours.
pub(in crate::planner) fn name(plan: &LogicalPlan) -> String {
    let mut names = Vec::new();
    note_names(plan, &mut names);
    match names.as_slice() {
        [name] => name.clone(),
        names => format!("[{}]", list(names)),
    }
}

/// The names of what a plan reads.
pub(in crate::planner) fn names(plan: &LogicalPlan) -> String {
    let mut names = Vec::new();
    note_names(plan, &mut names);
    list(&names)
}

/// A list of names, cut short where they are many.
pub(super) fn list(names: &[String]) -> String {
    if names.len() <= LISTED_MAX {
        return names.join(", ");
    }
    let (shown, left) = names.split_at(LISTED_MAX - 1);
    format!("{} and {} more", shown.join(", "), left.len())
}

/// The relations of a tree in the order in which they are joined. What is joined before is on the left.
pub(super) fn order(tree: &Tree<String>) -> String {
    match tree {
        Tree::Relation(name) => name.clone(),
        Tree::Join(sides) => {
            let [one, other] = sides.as_ref();
            let is_turned = one.relations().len() < other.relations().len();
            let (before, next) = if is_turned { (other, one) } else { (one, other) };
            match next {
                Tree::Relation(name) => format!("{}, {name}", order(before)),
                Tree::Join(_) => format!("{}, ({})", order(before), order(next)),
            }
        }
    }
}

fn note_names(plan: &LogicalPlan, names: &mut Vec<String>) {
    match plan {
        LogicalPlan::TableScan(scan) => names.push(scan.table_name.table().to_owned()),
        // Rules make up names for sub-queries and for what they put before a join.
        LogicalPlan::SubqueryAlias(alias) if !alias.alias.table().starts_with("__") => {
            names.push(alias.alias.table().to_owned());
        }
        // Of a semi join only one side has rows that leave.
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => note_names(&join.left, names),
            JoinType::RightSemi | JoinType::RightAnti => note_names(&join.right, names),
            _ => [&join.left, &join.right].into_iter().for_each(|side| note_names(side, names)),
        },
        _ if plan.inputs().is_empty() => {
            let text = plan.display().to_string();
            let kind = text.split(':').next().unwrap_or_default();
            names.push(kind.to_owned());
        }
        _ => plan.inputs().into_iter().for_each(|input| note_names(input, names)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(sides: [Tree<String>; 2]) -> Tree<String> {
        Tree::Join(Box::new(sides))
    }

    fn one(name: &str) -> Tree<String> {
        Tree::Relation(name.to_owned())
    }

    #[test]
    fn an_order_is_read_from_left_to_right() {
        let chain = tree([one("d"), tree([tree([one("a"), one("b")]), one("c")])]);
        assert_eq!(order(&chain), "a, b, c, d");
        let bushy = tree([tree([one("d"), one("e")]), chain]);
        assert_eq!(order(&bushy), "a, b, c, d, (d, e)");
    }

    #[test]
    fn many_names_are_cut_short() {
        let names: Vec<String> = (0..13).map(|name| format!("t{name}")).collect();
        assert_eq!(list(&names[..4]), "t0, t1, t2, t3");
        assert_eq!(list(&names), "t0, t1, t2 and 10 more");
    }
}
