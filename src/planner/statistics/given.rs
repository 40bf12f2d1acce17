//! Values that stand for parameters, so that a plan for any values is chosen as one for these would be.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, lit};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use super::Statistics;
use super::estimate::plain;
use crate::planner::parameters::names_parameter;

/// The values of parameters, by names that begin with `$`.
pub(crate) type Given = Arc<dyn Fn(&str) -> Option<ScalarValue> + Send + Sync>;

impl Statistics {
    /// Conditions with the values of their parameters; nothing where there are none to be put in.
    pub(super) fn with_given(&self, conditions: &[&Expr]) -> Option<Vec<Expr>> {
        let given = self.given.as_ref()?;
        let mut conditions = conditions.iter();
        if !conditions.clone().any(|condition| names_parameter(condition)) {
            return None;
        }
        conditions.try_fold(Vec::new(), |mut filled, condition| {
            filled.push(with_values(condition, given).ok()?);
            Some(filled)
        })
    }
}

/// The expression with values for its parameters; what is computed of values alone is a value.
fn with_values(expr: &Expr, given: &Given) -> Result<Expr> {
    let filled = expr.clone().transform_up(|expr| {
        let value = match &expr {
            Expr::Placeholder(Placeholder { id, .. }) => given(id),
            _ => None,
        };
        Ok(value.map_or_else(|| Transformed::no(expr), |value| Transformed::yes(lit(value))))
    });
    let simplifier = ExprSimplifier::new(SimplifyContext::default());
    let computed = filled.data()?.transform_down(|expr| {
        if matches!(plain(&expr), Expr::Literal(..)) {
            return Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump));
        }
        if !expr.column_refs().is_empty() || !is_of_values(&expr)? {
            return Ok(Transformed::no(expr));
        }
        // What cannot be computed is estimated as it stands.
        let value = simplifier.simplify(expr.clone()).unwrap_or(expr);
        Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
    });
    computed.data()
}

/// Whether an expression without columns is made of values and what is computed of them.
fn is_of_values(expr: &Expr) -> Result<bool> {
    let is_other = |expr: &Expr| {
        Ok(!matches!(
            expr,
            Expr::Literal(..)
                | Expr::Cast(_)
                | Expr::TryCast(_)
                | Expr::BinaryExpr(_)
                | Expr::Negative(_)
                | Expr::ScalarFunction(_)
        ))
    };
    expr.exists(is_other).map(|has_other| !has_other)
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, placeholder};
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn what_is_computed_of_values_alone_is_a_value() {
        let given: Given = Arc::new(|name| (name == "$1").then(|| ScalarValue::from(3_i64)));
        let filled = |expr: Expr| with_values(&expr, &given).unwrap();
        let one = placeholder("$1");
        assert_eq!(filled(col("x").lt(one.clone() + lit(4_i64))), col("x").lt(lit(7_i64)));
        assert_eq!(
            filled((col("x") + one.clone()).eq(one.clone())),
            (col("x") + lit(3_i64)).eq(lit(3_i64))
        );
        // What fails is left for whoever runs it.
        let fails = one / lit(0_i64);
        assert_eq!(filled(fails), lit(3_i64) / lit(0_i64));
        assert_eq!(filled(placeholder("$2")), placeholder("$2"));
    }

    #[test]
    fn conditions_without_parameters_are_as_they_were() {
        let environment = SessionContext::new().runtime_env();
        let statistics = Statistics::new(environment.cache_manager.get_file_metadata_cache());
        let given = statistics.given(Arc::new(|_| Some(ScalarValue::from(3_i64))));
        let (plain, with) = (col("x").lt(lit(1_i64)), col("x").lt(placeholder("$1")));
        assert_eq!(given.with_given(&[&plain]), None);
        assert_eq!(statistics.with_given(&[&with]), None);
        assert_eq!(
            given.with_given(&[&plain, &with]),
            Some(vec![plain.clone(), col("x").lt(lit(3_i64))])
        );
    }
}
