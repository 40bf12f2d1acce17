//! Walks over sqlparser's trees, compiled once.
//!
//! A walk is some nine hundred functions, one for each type of node, and sqlparser's is generic over the
//! visitor: eighteen visitors made 16,000 functions, more than half of what an edit compiled. Here all visitors
//! come behind the same two.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};

/// Shows a tree to a visitor.
pub(crate) fn walk<V: Visitor>(syntax: &impl Visit, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut kept = Kept { visitor, broken: None };
    let _ = Visit::visit(syntax, &mut Any(&mut kept));
    kept.outcome()
}

/// Shows a tree to a visitor that may change it.
pub(crate) fn walk_mut<V: VisitorMut>(
    syntax: &mut impl VisitMut,
    visitor: &mut V,
) -> ControlFlow<V::Break> {
    let mut kept = Kept { visitor, broken: None };
    let _ = VisitMut::visit(syntax, &mut AnyMut(&mut kept));
    kept.outcome()
}

/// Shows every expression, before those within it.
pub(crate) fn walk_expressions<B>(
    syntax: &impl Visit,
    visit: impl FnMut(&Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    walk(syntax, &mut Expressions(visit))
}

/// Shows every expression, after those within it, to be changed.
pub(crate) fn walk_expressions_mut<B>(
    syntax: &mut impl VisitMut,
    visit: impl FnMut(&mut Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    walk_mut(syntax, &mut Expressions(visit))
}

struct Expressions<F>(F);

impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for Expressions<F> {
    type Break = B;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
        (self.0)(expr)
    }
}

impl<B, F: FnMut(&mut Expr) -> ControlFlow<B>> VisitorMut for Expressions<F> {
    type Break = B;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<B> {
        (self.0)(expr)
    }
}

/// A visitor of some type, and what it broke off with: as `dyn`, all are of one type.
struct Kept<'v, V, B> {
    visitor: &'v mut V,
    broken: Option<B>,
}

impl<V, B> Kept<'_, V, B> {
    fn outcome(self) -> ControlFlow<B> {
        match self.broken {
            Some(broken) => ControlFlow::Break(broken),
            None => ControlFlow::Continue(()),
        }
    }
}

/// Any visitor.
struct Any<'v>(&'v mut dyn Visitor<Break = ()>);

/// Any visitor that may change what it sees.
struct AnyMut<'v>(&'v mut dyn VisitorMut<Break = ()>);

macro_rules! pass_on {
    ([$($mutable:tt)?] $method:ident $node:ident) => {
        fn $method(&mut self, node: &$($mutable)? $node) -> ControlFlow<()> {
            self.0.$method(node)
        }
    };
}

macro_rules! keep {
    ([$($mutable:tt)?] $method:ident $node:ident) => {
        fn $method(&mut self, node: &$($mutable)? $node) -> ControlFlow<()> {
            self.visitor.$method(node).map_break(|broken| self.broken = Some(broken))
        }
    };
}

/// What a visitor is shown, all of it.
macro_rules! each_method {
    ($does:ident $mutable:tt) => {
        $does!($mutable pre_visit_query Query);
        $does!($mutable post_visit_query Query);
        $does!($mutable pre_visit_select Select);
        $does!($mutable post_visit_select Select);
        $does!($mutable pre_visit_relation ObjectName);
        $does!($mutable post_visit_relation ObjectName);
        $does!($mutable pre_visit_table_factor TableFactor);
        $does!($mutable post_visit_table_factor TableFactor);
        $does!($mutable pre_visit_expr Expr);
        $does!($mutable post_visit_expr Expr);
        $does!($mutable pre_visit_statement Statement);
        $does!($mutable post_visit_statement Statement);
        $does!($mutable pre_visit_value ValueWithSpan);
        $does!($mutable post_visit_value ValueWithSpan);
    };
}

impl Visitor for Any<'_> {
    type Break = ();
    each_method!(pass_on []);
}

impl VisitorMut for AnyMut<'_> {
    type Break = ();
    each_method!(pass_on [mut]);
}

impl<V: Visitor> Visitor for Kept<'_, V, V::Break> {
    type Break = ();
    each_method!(keep []);
}

impl<V: VisitorMut> VisitorMut for Kept<'_, V, V::Break> {
    type Break = ();
    each_method!(keep [mut]);
}
