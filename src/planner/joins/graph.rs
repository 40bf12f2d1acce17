//! The joins of a query as a graph: relations, and the conditions that join them.
//!
//! ```text
//! Inner Join: b.y = c.y                  a ── x ── b ── y ── c          relations a, b, c
//!   LeftSemi Join: a.x = s.x                 └──── x ──── s             s, which is attached to a
//!     Inner Join: a.x = b.x     ──►
//!       a, b                             classes of equal expressions: {a.x, b.x}, {b.y, c.y}
//!     s
//!   c
//! ```
//!
//! Expressions that conditions hold equal are a class: any two of its members join their relations, whichever were
//! written. Relations are in an order of their own, so that the graph is the same however the query was written.
//!
//! A relation on the inner side of an outer join, or that a semi or anti join asks, is attached: it joins whole sets that have
//! all that its condition reads, by that condition alone. For every row of the others is kept or not, or finds the same
//! partners, whatever other rows there are. What is not reordered (full joins, outer joins of which other conditions read the
//! inner side, NOT IN, aggregates, sub-queries with a name) is a relation by itself.

use std::collections::HashMap;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, JoinType, NullEquality};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, Join, LogicalPlan, Operator, Projection,
};

use super::enumerate::Tree;
use super::set::Set;

/// A relation of the graph.
#[derive(Debug)]
pub(super) struct Relation {
    pub(super) plan: LogicalPlan,
    /// For one that joins by a condition of its own.
    pub(super) attached: Option<Attached>,
}

/// What a relation that is attached to others does to their rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attachment {
    /// Keeps those with a partner.
    Semi,
    /// Keeps those without.
    Anti,
    /// Adds its columns: those of each partner, or NULLs where there is none.
    Outer,
}

/// A semi, anti or outer join, without its sides.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) kind: Attachment,
    /// Expressions over the rows that it joins, and over the relation.
    pub(super) on: Vec<(Expr, Expr)>,
    pub(super) filter: Option<Expr>,
    /// The relations whose columns are asked for, and what those that are attached themselves ask for.
    pub(super) required: Set,
}

/// An expression over one relation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Member {
    pub(super) relation: usize,
    pub(super) expr: Expr,
}

/// A condition over several relations that is no equality of members.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) relations: Set,
    pub(super) kind: ConditionKind,
}

#[derive(Debug)]
pub(super) enum ConditionKind {
    /// Two expressions, each over relations that the other does not read.
    Equality([(Set, Expr); 2]),
    Other(Expr),
}

/// The joins of a query.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) relations: Vec<Relation>,
    /// No class has two members of one relation.
    pub(super) classes: Vec<Vec<Member>>,
    pub(super) conditions: Vec<Condition>,
}

/// What a plan is made of, in the order in which it was written.
#[derive(Default)]
struct Parts {
    relations: Vec<LogicalPlan>,
    attached: Vec<(LogicalPlan, Attached)>,
    equalities: Vec<(Expr, Expr)>,
    others: Vec<Expr>,
}

impl Graph {
    /// The graph of a plan that is a join; nothing where there are no two relations whose order could be changed.
    pub(super) fn of(plan: &LogicalPlan) -> Option<Self> {
        let mut parts = Parts::default();
        parts.take(plan);
        let count = parts.relations.len() + parts.attached.len();
        if !(2..=Set::ROOM).contains(&count) {
            return None;
        }
        parts.graph()
    }
}

impl Graph {
    /// The order in which a plan, which the graph was made of, joins its relations; nothing where one of them has no columns.
    pub(super) fn written(&self, plan: &LogicalPlan) -> Option<Tree> {
        match plan {
            LogicalPlan::Join(join) if is_inner(join) => {
                let sides = [self.written(&join.left)?, self.written(&join.right)?];
                Some(Tree::Join(Box::new(sides)))
            }
            LogicalPlan::Join(join) => {
                if let Some((kept, _, attached)) = attached(join)
                    && let Some(relation) = self.attached_by(&attached)
                {
                    let sides = [self.written(kept)?, Tree::Relation(relation)];
                    return Some(Tree::Join(Box::new(sides)));
                }
                match [self.relation_of(&join.left), self.relation_of(&join.right)] {
                    // An outer join that is an inner one here.
                    [Some(left), Some(right)] if left != right => {
                        let sides = [self.written(&join.left)?, self.written(&join.right)?];
                        Some(Tree::Join(Box::new(sides)))
                    }
                    _ => self.relation_of(plan),
                }
            }
            LogicalPlan::Projection(projection) if only_drops(projection) && is_joined(plan) => {
                self.written(&projection.input)
            }
            LogicalPlan::Filter(filter) if can_move(&filter.predicate) && is_joined(plan) => {
                self.written(&filter.input)
            }
            _ => self.relation_of(plan),
        }
    }

    /// The relation that is attached in this way.
    fn attached_by(&self, join: &Attached) -> Option<usize> {
        let is_same =
            |of: &Relation| of.attached.as_ref().is_some_and(|attached| attached.on == join.on);
        self.relations.iter().position(is_same)
    }

    /// The relation that a plan is, by its columns.
    fn relation_of(&self, plan: &LogicalPlan) -> Option<Tree> {
        let column = plan.schema().columns().into_iter().next()?;
        let has = |relation: &Relation| {
            relation.attached.is_none() && relation.plan.schema().has_column(&column)
        };
        self.relations.iter().position(has).map(Tree::Relation)
    }
}

impl Parts {
    fn take(&mut self, plan: &LogicalPlan) {
        match plan {
            LogicalPlan::Join(join) if is_inner(join) => {
                self.take_inner([&join.left, &join.right], join.on.clone(), join.filter.clone());
            }
            LogicalPlan::Join(join) => match attached(join) {
                Some((kept, relation, join)) if join.kind == Attachment::Outer => {
                    // The conditions above are known by now.
                    if self.fail_on_nulls_of(relation) {
                        self.take_inner([kept, relation], join.on, join.filter);
                    } else if self.read(relation) {
                        self.relations.push(plan.clone());
                    } else {
                        self.attached.push((relation.clone(), join));
                        self.take(kept);
                    }
                }
                Some((kept, relation, join)) => {
                    self.attached.push((relation.clone(), join));
                    self.take(kept);
                }
                None => self.relations.push(plan.clone()),
            },
            LogicalPlan::Projection(projection) if only_drops(projection) && is_joined(plan) => {
                self.take(&projection.input);
            }
            LogicalPlan::Filter(filter) if can_move(&filter.predicate) && is_joined(plan) => {
                self.others.extend(split_conjunction_owned(filter.predicate.clone()));
                self.take(&filter.input);
            }
            _ => self.relations.push(plan.clone()),
        }
    }

    fn take_inner(
        &mut self,
        [one, other]: [&LogicalPlan; 2],
        on: Vec<(Expr, Expr)>,
        filter: Option<Expr>,
    ) {
        self.equalities.extend(on);
        self.others.extend(filter.into_iter().flat_map(split_conjunction_owned));
        self.take(one);
        self.take(other);
    }

    /// Whether an equality of inner joins is never met where all columns of a plan are NULL.
    fn fail_on_nulls_of(&self, plan: &LogicalPlan) -> bool {
        let mut sides = self.equalities.iter().flat_map(|(left, right)| [left, right]);
        sides.any(|side| matches!(side, Expr::Column(column) if plan.schema().has_column(column)))
    }

    /// Whether a condition of inner joins reads columns of a plan.
    fn read(&self, plan: &LogicalPlan) -> bool {
        let sides = self.equalities.iter().flat_map(|(left, right)| [left, right]);
        let mut columns = sides.chain(&self.others).flat_map(Expr::column_refs);
        columns.any(|column| plan.schema().has_column(column))
    }

    /// Everything in its own order, and every name looked up; nothing where one is of no relation or of two.
    fn graph(mut self) -> Option<Graph> {
        self.relations.sort_by_cached_key(text);
        self.attached.sort_by_cached_key(|(plan, join)| {
            let conditions = format!("{:?} {:?}", join.on, join.filter);
            (text(plan), without_made_up_name(conditions, plan))
        });
        let mut relations: Vec<Relation> =
            self.relations.into_iter().map(Relation::joined).collect();
        let attached = self.attached.into_iter();
        relations.extend(attached.map(|(plan, join)| Relation { plan, attached: Some(join) }));
        let yield_columns = relations.iter().enumerate().filter(|(_, of)| of.yields_columns());
        let schemas = yield_columns.clone().map(|(_, of)| of.plan.schema().as_ref().clone());
        let joined = schemas.map(Some).reduce(|one, other| one?.join(&other?).ok());
        joined.flatten()?;
        let mut names = Names::default();
        for (at, relation) in yield_columns {
            names.add(relation.plan.schema(), at);
        }
        require(&mut relations, &names)?;
        let mut graph = Graph { relations, classes: Vec::new(), conditions: Vec::new() };
        let mut equalities = self.equalities;
        for other in self.others {
            match other {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                    equalities.push((*left, *right));
                }
                other => graph.add_condition(&names, other)?,
            }
        }
        // The one that comes first is on the left, so that it does not matter how an equality was written.
        let mut equalities: Vec<_> = equalities
            .into_iter()
            .map(|(left, right)| {
                let texts = (left.to_string(), right.to_string());
                if texts.0 <= texts.1 {
                    (texts, left, right)
                } else {
                    ((texts.1, texts.0), right, left)
                }
            })
            .collect();
        equalities.sort_by(|one, other| one.0.cmp(&other.0));
        for (_, left, right) in equalities {
            graph.add_equality(&names, left, right)?;
        }
        graph.conditions.sort_by_cached_key(|condition| format!("{:?}", condition.kind));
        Some(graph)
    }
}

impl Relation {
    fn joined(plan: LogicalPlan) -> Self {
        Self { plan, attached: None }
    }

    /// Whether its columns leave with those of the relations that it joins.
    fn yields_columns(&self) -> bool {
        self.attached.as_ref().is_none_or(|join| !join.is_semi())
    }
}

impl Attached {
    /// Whether it decides which rows stay, and adds nothing to them.
    pub(super) fn is_semi(&self) -> bool {
        matches!(self.kind, Attachment::Semi | Attachment::Anti)
    }
}

/// Notes what attached relations ask for; nothing where one asks for none, or a name is of two.
fn require(relations: &mut [Relation], names: &Names) -> Option<()> {
    let required = relations.iter().enumerate().map(|(at, relation)| match &relation.attached {
        Some(join) => names.required(join, at, relation),
        None => Some(Set::EMPTY),
    });
    let mut required: Vec<Set> = required.collect::<Option<_>>()?;
    // What one asks for that is attached itself is not there before what that asks for. No two ask for one another.
    for _ in 0..relations.len() {
        for at in 0..relations.len() {
            let further = required[at].iter().map(|relation| required[relation]);
            required[at] = further.fold(required[at], Set::with);
        }
    }
    for (relation, required) in relations.iter_mut().zip(required) {
        if let Some(join) = &mut relation.attached {
            join.required = required;
        }
    }
    Some(())
}

impl Graph {
    fn add_equality(&mut self, names: &Names, left: Expr, right: Expr) -> Option<()> {
        let sides = [names.relations(&left)?, names.relations(&right)?];
        let [one, other] = sides;
        if one.meets(other) || one.is_empty() || other.is_empty() {
            return self.add_condition(names, left.eq(right));
        }
        if let (Some(a), Some(b)) = (one.least(), other.least())
            && one.count() == 1
            && other.count() == 1
            && let Some(of) = self.type_of(a, &left)
            && Some(of) == self.type_of(b, &right)
        {
            let pair = [Member { relation: a, expr: left }, Member { relation: b, expr: right }];
            return self.add_pair(pair);
        }
        let kind = ConditionKind::Equality([(one, left), (other, right)]);
        self.conditions.push(Condition { relations: one.with(other), kind });
        Some(())
    }

    /// Puts two members into one class, unless it had two of one relation then.
    fn add_pair(&mut self, [one, other]: [Member; 2]) -> Option<()> {
        let place = |member: &Member| self.classes.iter().position(|class| class.contains(member));
        let (of_one, of_other) = (place(&one), place(&other));
        if of_one.is_some() && of_one == of_other {
            return Some(());
        }
        let mut class = of_one.map_or_else(|| vec![one.clone()], |at| self.classes[at].clone());
        class.extend(of_other.map_or_else(|| vec![other.clone()], |at| self.classes[at].clone()));
        let relations: Set = class.iter().map(|member| member.relation).collect();
        if relations.count() < class.len() {
            let sides = [one, other].map(|member| (Set::one(member.relation), member.expr));
            let relations = sides[0].0.with(sides[1].0);
            self.conditions.push(Condition { relations, kind: ConditionKind::Equality(sides) });
            return Some(());
        }
        let mut at = 0;
        self.classes.retain(|_| {
            at += 1;
            Some(at - 1) != of_one && Some(at - 1) != of_other
        });
        class.sort_by_key(|member| member.relation);
        self.classes.push(class);
        Some(())
    }

    /// Notes a condition, which filters its relation where it reads one alone.
    fn add_condition(&mut self, names: &Names, expr: Expr) -> Option<()> {
        let relations = names.relations(&expr)?;
        match (relations.count(), relations.least()) {
            (_, None) => None,
            (1, Some(relation)) => {
                let plan = std::mem::take(&mut self.relations[relation].plan);
                let filter = Filter::try_new(expr, plan.into()).ok()?;
                self.relations[relation].plan = LogicalPlan::Filter(filter);
                Some(())
            }
            _ => {
                self.conditions.push(Condition { relations, kind: ConditionKind::Other(expr) });
                Some(())
            }
        }
    }

    fn type_of(&self, relation: usize, expr: &Expr) -> Option<DataType> {
        expr.get_type(self.relations[relation].plan.schema()).ok()
    }
}

/// The relation of every column.
#[derive(Default)]
struct Names(HashMap<Column, usize>);

impl Names {
    fn add(&mut self, schema: &DFSchema, relation: usize) {
        self.0.extend(schema.columns().into_iter().map(|column| (column, relation)));
    }

    /// The relations that an expression reads; nothing where a column is of none.
    fn relations(&self, expr: &Expr) -> Option<Set> {
        expr.column_refs().into_iter().map(|column| self.0.get(column).copied()).collect()
    }

    /// The relations that an attached one asks for beside itself; nothing where there are none, or a name is of both.
    fn required(&self, join: &Attached, at: usize, relation: &Relation) -> Option<Set> {
        let own = relation.plan.schema();
        let mut required = Set::EMPTY;
        for (kept, _) in &join.on {
            required = required.with(self.relations(kept)?);
        }
        let read = join.filter.iter().flat_map(Expr::column_refs);
        for column in read.filter(|column| !own.has_column(column)) {
            required = required.with(Set::one(*self.0.get(column)?));
        }
        let of_others = |column: &Column| self.0.get(column).is_some_and(|&of| of != at);
        let is_clear = !own.columns().iter().any(of_others);
        (is_clear && !required.is_empty()).then_some(required)
    }
}

/// What a plan says, without a name that a rule made up for it: such names are counted in the order of the text.
fn text(plan: &LogicalPlan) -> String {
    without_made_up_name(plan.display_indent().to_string(), plan)
}

fn without_made_up_name(text: String, plan: &LogicalPlan) -> String {
    match plan {
        LogicalPlan::SubqueryAlias(alias) if alias.alias.table().starts_with("__") => {
            text.replace(alias.alias.table(), "")
        }
        _ => text,
    }
}

fn is_inner(join: &Join) -> bool {
    join.join_type == JoinType::Inner && has_plain_conditions(join)
}

fn has_plain_conditions(join: &Join) -> bool {
    let on = join.on.iter().flat_map(|(left, right)| [left, right]);
    join.null_equality == NullEquality::NullEqualsNothing
        && !join.null_aware
        && on.chain(&join.filter).all(can_move)
}

/// The rows that are joined, the relation that is attached to them, and how; nothing where a join is none of that kind.
fn attached(join: &Join) -> Option<(&LogicalPlan, &LogicalPlan, Attached)> {
    let (kind, is_right) = match join.join_type {
        JoinType::LeftSemi => (Attachment::Semi, false),
        JoinType::RightSemi => (Attachment::Semi, true),
        JoinType::LeftAnti => (Attachment::Anti, false),
        JoinType::RightAnti => (Attachment::Anti, true),
        JoinType::Left => (Attachment::Outer, false),
        JoinType::Right => (Attachment::Outer, true),
        _ => return None,
    };
    if !has_plain_conditions(join) || join.on.is_empty() {
        return None;
    }
    let (kept, relation) =
        if is_right { (&join.right, &join.left) } else { (&join.left, &join.right) };
    let on = join.on.iter().cloned();
    let on = on.map(|(left, right)| if is_right { (right, left) } else { (left, right) }).collect();
    let attached = Attached { kind, on, filter: join.filter.clone(), required: Set::EMPTY };
    Some((kept, relation, attached))
}

/// Whether a condition means the same wherever its columns are.
pub(super) fn can_move(expr: &Expr) -> bool {
    let is_bound = |expr: &Expr| {
        matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        )
    };
    !expr.is_volatile() && !expr.exists(|expr| Ok(is_bound(expr))).unwrap_or(true)
}

/// Whether a projection leaves out columns and does nothing else.
pub(super) fn only_drops(projection: &Projection) -> bool {
    projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_)))
}

/// Whether there is a join to be reordered below filters, and projections that only drop columns.
fn is_joined(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            only_drops(projection) && is_joined(&projection.input)
        }
        LogicalPlan::Filter(filter) => can_move(&filter.predicate) && is_joined(&filter.input),
        LogicalPlan::Join(join) => is_inner(join) || attached(join).is_some(),
        _ => false,
    }
}
