//! A sparse factor that is full enough is multiplied as a dense one: `a @ b` becomes `dense(a) @ b`, where that is expected to be
//! cheaper.
//!
//! A stored cell takes as long as eight cells of a dense factor and up to fifty, whose product reads no places and is cut to fit the caches.

use egg::Id;

use super::super::graph::Dim;
use super::Classes;
use super::shifts::{Form, facts};
use crate::exec::operation::Operation as Op;
use crate::matrix::Layout;

/// Share of stored cells below which nobody asks: planning asks often.
const DENSITY_MIN: f64 = 0.01;

/// The same product of dense factors, if one of them is sparse and every one that is has few enough cells to be filled up.
pub(super) fn filled(classes: &Classes<'_>, product: &Op, factors: &[Id]) -> Option<Form> {
    let workbench = &classes.analysis;
    let mut is_other = false;
    let mut form = |&factor: &Id| {
        let facts = facts(classes, factor)?;
        let estimate = workbench.estimate(facts.node);
        if !facts.is_sparse || estimate.layout == Layout::Dense {
            return Some(Form::Class(factor));
        }
        is_other = true;
        // Of a relation, whose sizes are guessed, the density is too.
        let (Dim::Known(rows), Dim::Known(columns)) = (facts.rows, facts.columns) else {
            return None;
        };
        let bytes = rows as f64 * columns as f64 * facts.element.size_bytes() as f64;
        let fits = estimate.density >= DENSITY_MIN && !workbench.is_large(bytes);
        fits.then(|| Form::of(Op::Store(Layout::Dense), [Form::Class(factor)]))
    };
    let forms = factors.iter().map(&mut form).collect::<Option<Vec<Form>>>()?;
    is_other.then(|| Form::of(product.clone(), forms))
}
