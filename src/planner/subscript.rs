//! Subscripts: `x[2, :]`, `x[1:10, 'a':'c']`, `x['key', :]` as slices.
//!
//! Numbers count from 1 and both ends are included, as in SQL arrays; a text or number that is a label
//! picks by label where it is quoted. This is where 1 becomes 0.

use sqlparser::ast::{Expr, Subscript, Value};

use super::bind::Binder;
use super::graph::NodeId;
use super::labels;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::labels::AxisLabels;
use crate::exec::operation::{Axis, Operation, Span};
use crate::matrix::Shape;
use crate::sql;

impl Binder<'_> {
    /// One subscript along one axis.
    ///
    /// # Errors
    /// A position outside the matrix, or a label that it does not have.
    pub(super) fn subscript(
        &mut self,
        node: NodeId,
        subscript: &Subscript,
        axis: Axis,
    ) -> Result<NodeId> {
        let (first, last) = match subscript {
            Subscript::Slice { lower_bound: None, upper_bound: None, stride: None } => {
                return Ok(node);
            }
            Subscript::Slice { stride: Some(stride), .. } => {
                let error = Error::unsupported("a slice has no stride");
                return Err(error.at(sql::place_of(stride)));
            }
            Subscript::Slice { lower_bound, upper_bound, .. } => {
                let size = |binder: &mut Self| binder.known_size(node, axis);
                let first = match lower_bound {
                    Some(bound) => self.position(node, bound, axis)?,
                    None => 0,
                };
                let last = match upper_bound {
                    Some(bound) => self.position(node, bound, axis)? + 1,
                    None => size(self)?,
                };
                (first, last)
            }
            Subscript::Index { index } => {
                let at = self.position(node, index, axis)?;
                (at, at + 1)
            }
        };
        let range = Span { start: first, count: last.saturating_sub(first) };
        let place = self.graph.node(node).place;
        self.graph.add(Operation::Slice { axis, range }, [node], place)
    }

    /// The position, counted from 0, that a number or a label stands for.
    fn position(&mut self, node: NodeId, expr: &Expr, axis: Axis) -> Result<usize> {
        let place = sql::place_of(expr);
        if let Expr::Value(value) = expr
            && let Value::SingleQuotedString(label) = &value.value
        {
            return self.labelled(node, label, axis).map_err(|error| error.at(place));
        }
        let size = self.known_size(node, axis).map_err(|error| error.at(place))?;
        let value = self.number(expr, "a subscript")?;
        if value.fract() != 0.0 {
            let message = format!("an index is a whole number, not {value}");
            return Err(Error::argument("subscript", message).at(place));
        }
        if value < 1.0 || value > size as f64 {
            let shape: Shape = self.graph.node(node).shape();
            let kind = ErrorKind::OutOfRange { dimension: axis.name(), index: value as i64, shape };
            return Err(Error::from(kind).at(place));
        }
        Ok(value as usize - 1)
    }

    /// The position of a label, compared as text so that `'7'` finds the key 7.
    fn labelled(&mut self, node: NodeId, label: &str, axis: Axis) -> Result<usize> {
        if let AxisLabels::Deferred(_) = self.graph.node(node).labels[axis as usize] {
            self.want_relations(node)?;
        }
        let absent = || {
            Error::from(ErrorKind::NoLabel { dimension: axis.name(), label: format!("'{label}'") })
        };
        let labels = labels::known(&self.graph, node, axis).ok_or_else(absent)?;
        let mut places = (0..labels.len()).filter(|&at| labels.text(at) == label);
        let found = places.next().ok_or_else(absent)?;
        match places.next() {
            None => Ok(found),
            Some(_) => Err(ErrorKind::Duplicate {
                what: "label",
                key: format!("'{label}'"),
                hint: "; use its number",
            }
            .into()),
        }
    }
}
