//! The condition of a join, which fails once its statement has been stopped.
//!
//! A join may compare rows for long without handing anything on or asking for more, and a task can be
//! stopped where it yields and nowhere else. The condition is evaluated all the while.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;

use crate::error;

/// An error once the statement has been stopped.
pub(crate) type StopCheck = Arc<dyn Fn() -> error::Result<()> + Send + Sync>;

/// An expression that is evaluated as long as the statement runs.
pub(crate) struct Stoppable {
    inner: Arc<dyn PhysicalExpr>,
    check: StopCheck,
}

impl Stoppable {
    pub(crate) fn new(inner: Arc<dyn PhysicalExpr>, check: StopCheck) -> Self {
        Self { inner, check }
    }

    /// What is evaluated, of an expression that may be such a one.
    pub(crate) fn within(expression: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
        expression.downcast_ref::<Self>().map_or(expression, |stoppable| &stoppable.inner)
    }
}

impl PhysicalExpr for Stoppable {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        (self.check)()?;
        self.inner.evaluate(batch)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.inner.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().unwrap_or_else(|| Arc::clone(&self.inner));
        Ok(Arc::new(Self { inner, check: Arc::clone(&self.check) }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

impl fmt::Display for Stoppable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for Stoppable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stoppable").field(&self.inner).finish()
    }
}

impl PartialEq for Stoppable {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Stoppable {}

impl Hash for Stoppable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}
