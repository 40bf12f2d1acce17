//! An expression of a column and constants, of which the constants are compiled once.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

/// What is compiled of the constants.
pub(super) trait OfColumn: fmt::Debug + Send + Sync {
    /// Its values of a column; nothing where DataFusion has them, or says why there are none.
    ///
    /// # Errors
    /// None but Arrow's.
    fn values(&self, column: &ArrayRef) -> Result<Option<ArrayRef>>;

    /// Whether it has them of packed texts, too.
    fn reads_packed(&self) -> bool {
        false
    }
}

/// The expression; see the header of this file.
#[derive(Debug)]
pub(super) struct CompiledExpr {
    /// As it was planned, which says all there is to know of it. Its first child is the column, its others are constants.
    planned: Arc<dyn PhysicalExpr>,
    compiled: Arc<dyn OfColumn>,
}

impl CompiledExpr {
    pub(super) fn over(
        planned: &Arc<dyn PhysicalExpr>,
        compiled: impl OfColumn + 'static,
    ) -> Arc<dyn PhysicalExpr> {
        Arc::new(Self { planned: Arc::clone(planned), compiled: Arc::new(compiled) })
    }

    /// Whether its column may have packed texts.
    pub(super) fn reads_packed(&self) -> bool {
        self.compiled.reads_packed() && self.planned.children()[0].is::<Column>()
    }
}

super::known_as_planned!(CompiledExpr);

impl PhysicalExpr for CompiledExpr {
    super::as_planned!();

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if let ColumnarValue::Array(column) = self.planned.children()[0].evaluate(batch)?
            && let Some(values) = self.compiled.values(&column)?
        {
            return Ok(ColumnarValue::Array(values));
        }
        self.planned.evaluate(batch)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let has_same_constants = self.children()[1..].iter().copied().eq(&children[1..]);
        let planned = Arc::clone(&self.planned).with_new_children(children)?;
        let compiled = Arc::clone(&self.compiled);
        Ok(match has_same_constants {
            true => Arc::new(Self { planned, compiled }),
            false => planned,
        })
    }
}
