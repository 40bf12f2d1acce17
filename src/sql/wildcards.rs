//! The columns that the wildcards of a SELECT list hold, in as far as its syntax tells.
//!
//! ```text
//! SELECT *, a FROM t                    `*` holds a for certain
//! SELECT t.*, a FROM t JOIN u           `t.*` may hold a
//! SELECT * EXCLUDE (a), a FROM t        `*` may hold a, or leave it out
//! SELECT t.*, u.a FROM t JOIN u         `t.*` does not hold u.a
//! ```

use sqlparser::ast::{
    ObjectName, Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor,
    WildcardAdditionalOptions,
};

use super::names::folded;

/// The wildcards of one list.
pub(super) struct Wildcards {
    /// The relations in FROM.
    relations: Vec<String>,
    /// Whether there is a `*` that leaves nothing out.
    everything: bool,
    /// The relation of each `t.*` that leaves nothing out.
    whole: Vec<String>,
    any: bool,
}

impl Wildcards {
    pub(super) fn of(select: &Select) -> Self {
        let tables = select.from.iter();
        let factors = tables.flat_map(|table| {
            [&table.relation].into_iter().chain(table.joins.iter().map(|join| &join.relation))
        });
        let relations = factors.filter_map(relation_name).collect();
        let (mut everything, mut whole, mut any) = (false, Vec::new(), false);
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(options) => {
                    any = true;
                    everything |= leaves_names(options);
                }
                SelectItem::QualifiedWildcard(kind, options) => {
                    any = true;
                    if let SelectItemQualifiedWildcardKind::ObjectName(name) = kind
                        && leaves_names(options)
                    {
                        whole.extend(last_part(name));
                    }
                }
                _ => {}
            }
        }
        Self { relations, everything, whole, any }
    }

    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        self.any
    }

    /// Whether a column of this relation, or of one that is not told, is among them for certain.
    pub(super) fn hold(&self, relation: Option<&str>) -> bool {
        match relation {
            None => self.everything && !self.relations.is_empty(),
            Some(relation) => {
                let is_it = |name: &String| name == relation;
                self.whole.iter().any(is_it)
                    || (self.everything && self.relations.iter().any(is_it))
            }
        }
    }

    /// Whether such a column may be among them.
    pub(super) fn may_hold(&self, relation: Option<&str>) -> bool {
        self.hold(relation) || (relation.is_none() && self.any)
    }
}

/// Whether the columns of a wildcard are all those of its relations, under their own names.
fn leaves_names(options: &WildcardAdditionalOptions) -> bool {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace: _,
        opt_rename,
        opt_alias,
    } = options;
    opt_ilike.is_none()
        && opt_exclude.is_none()
        && opt_except.is_none()
        && opt_rename.is_none()
        && opt_alias.is_none()
}

/// What columns of a relation in FROM are qualified by.
fn relation_name(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(folded(&alias.name)),
        TableFactor::Table { name, alias: None, .. } => last_part(name),
        _ => None,
    }
}

fn last_part(name: &ObjectName) -> Option<String> {
    name.0.last().and_then(|part| part.as_ident()).map(folded)
}
