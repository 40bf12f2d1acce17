//! A sparse factor that is full enough is multiplied as a dense one: `a @ b` becomes `dense(a) @ b`, where that is expected to be
//! cheaper.
//!
//! A stored cell takes up to fifty times as long as one of a dense factor, whose product reads no places and is cut to fit the caches.

use egg::Id;

use super::Classes;
use super::shifts::{Form, facts};
use crate::exec::operation::Operation as Op;
use crate::matrix::Layout;

/// Share of stored cells below which nobody asks: planning asks often.
const DENSITY_MIN: f64 = 0.01;

/// The same product of dense factors, if one of them is sparse and all that are can be filled up. The result is stored as the
/// other factor makes it: dense, if that is.
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
        let bytes = estimate.rows * estimate.columns * facts.element.size_bytes() as f64;
        let fits = estimate.density >= DENSITY_MIN && !workbench.is_large(bytes);
        fits.then(|| Form::of(Op::Store(Layout::Dense), [Form::Class(factor)]))
    };
    let forms = factors.iter().map(&mut form).collect::<Option<Vec<Form>>>()?;
    is_other.then(|| Form::of(product.clone(), forms))
}
