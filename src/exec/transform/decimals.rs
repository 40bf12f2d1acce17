//! Decimals that are computed of the rows that are kept, from columns that may be encoded.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;

use crate::encoding::as_they_are;
use crate::exec::expressions::{encoded_values, over_columns};

/// Expressions of decimals over the columns that they read.
#[derive(Debug, Default)]
pub(crate) struct Decimals {
    /// The columns, in ascending order, and what they are once they are decoded.
    columns: Vec<usize>,
    rows: Option<SchemaRef>,
    expressions: Vec<Arc<dyn PhysicalExpr>>,
}

impl Decimals {
    /// Those of some expressions, arithmetic of decimals over columns of an input.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn new(expressions: &[Arc<dyn PhysicalExpr>], input: &Schema) -> Result<Self> {
        if expressions.is_empty() {
            return Ok(Self::default());
        }
        let read = expressions.iter().flat_map(collect_columns);
        let columns: BTreeSet<usize> = read.map(|column| column.index()).collect();
        let columns: Vec<usize> = columns.into_iter().collect();
        let fields: Vec<_> = columns.iter().map(|&at| input.field(at).clone()).collect();
        let expressions = expressions.iter().map(|expression| over_columns(expression, &columns));
        let expressions = expressions.collect::<Result<_>>()?;
        Ok(Self { columns, rows: Some(Arc::new(Schema::new(fields))), expressions })
    }

    /// The columns that any of them reads.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The decimals of so many rows, which may be encoded.
    ///
    /// # Errors
    /// Those of the expressions.
    pub(super) fn computed<'a>(
        &self,
        column: impl Fn(usize) -> &'a ArrayRef,
        rows: usize,
    ) -> Result<Vec<ArrayRef>> {
        let Some(schema) = &self.rows else { return Ok(Vec::new()) };
        let columns = self.columns.iter().map(|&at| Arc::clone(column(at))).collect();
        let batch = as_they_are(schema, columns, rows)?;
        self.expressions.iter().map(|expression| encoded_values(expression, &batch)).collect()
    }
}
