//! By which keys a device puts rows into groups: each expression by itself, or the row that several of them are columns of.

use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;

use super::rows::Rows;
use super::terms::Terms;
use crate::exec::offload::groups::{Key, Shown};

/// The keys of an aggregation by these expressions, and what of them leaves; nothing where one is none for devices.
pub(super) fn of(
    groups: &[Arc<dyn PhysicalExpr>],
    rows: &Rows<'_>,
    terms: &mut Terms<'_>,
) -> Option<(Vec<Key>, Vec<Shown>)> {
    let mut keys = Vec::new();
    let mut shown: Vec<Option<Shown>> = groups.iter().map(|_| None).collect();
    for (at, join) in rows.joins.iter().enumerate() {
        let table = at + 1;
        // Rows of one group that have the same key of a table have the same row of it.
        let number = |of: &Arc<dyn PhysicalExpr>| {
            join.of.iter().zip(&join.key).find(|(own, key)| of.eq(own) || of.eq(key))
        };
        let has = |key: &Arc<dyn PhysicalExpr>| {
            groups.iter().filter_map(number).any(|(_, known)| known.eq(key))
        };
        if !join.key.iter().all(has) {
            continue;
        }
        let column = |of: &Arc<dyn PhysicalExpr>| {
            let of = number(of).map_or(of, |(_, key)| key);
            rows.column_of(of).filter(|(own, _)| *own == table).map(|(_, column)| column)
        };
        let columns = groups.iter().map(column).zip(&shown);
        let columns: Vec<_> = columns.map(|(of, known)| of.filter(|_| known.is_none())).collect();
        if columns.iter().flatten().count() < 2 {
            continue;
        }
        for (shown, column) in shown.iter_mut().zip(columns) {
            *shown = column.map(|column| Shown::OfRow(keys.len(), column)).or(shown.take());
        }
        keys.push(Key::Row(table));
    }
    let shown = shown.into_iter().zip(groups).map(|(shown, of)| {
        shown.or_else(|| {
            keys.push(terms.key(of)?);
            Some(Shown::Key(keys.len() - 1))
        })
    });
    let shown = shown.collect::<Option<Vec<_>>>()?;
    Some((keys, shown))
}
