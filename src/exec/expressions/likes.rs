//! `LIKE` with a pattern of several parts, for which DataFusion takes a regular expression.
//!
//! Enters: the expression as DataFusion has planned it. Leaves: the same, whose parts are looked for one after another by
//! [`kernels::parts`](crate::exec::kernels::parts). A pattern of one part DataFusion looks for itself.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayAccessor, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{LikeExpr, Literal};

use crate::exec::kernels::parts::Parts;

/// Parts from which on DataFusion takes a regular expression.
const PARTS_MIN: usize = 2;

/// Whether a text consists of some parts.
#[derive(Debug)]
pub(super) struct PartsExpr {
    /// As it was planned, which says all there is to know of it.
    planned: Arc<dyn PhysicalExpr>,
    text: Arc<dyn PhysicalExpr>,
    parts: Parts,
    is_negated: bool,
}

impl PartsExpr {
    /// That of a pattern of several parts.
    ///
    /// # Errors
    /// None but DataFusion's, for an expression that does not fit the schema.
    pub(super) fn of(expression: &dyn PhysicalExpr, schema: &Schema) -> Result<Option<Self>> {
        let Some(planned) = expression.downcast_ref::<LikeExpr>() else { return Ok(None) };
        let (text, is_negated) = (Arc::clone(planned.expr()), planned.negated());
        let pattern = planned.pattern().downcast_ref::<Literal>();
        let pattern = pattern.and_then(|pattern| pattern.value().try_as_str().flatten());
        let parts = pattern.and_then(Parts::of).filter(|parts| parts.count() >= PARTS_MIN);
        let Some(parts) = parts.filter(|_| !planned.case_insensitive()) else { return Ok(None) };
        if !matches!(
            text.data_type(schema)?,
            DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8
        ) {
            return Ok(None);
        }
        let pattern = Arc::clone(planned.pattern());
        let planned = LikeExpr::new(is_negated, false, Arc::clone(&text), pattern);
        Ok(Some(Self { planned: Arc::new(planned), text, parts, is_negated }))
    }

    fn answers<'a>(&self, texts: impl ArrayAccessor<Item = &'a str>) -> BooleanArray {
        BooleanArray::from_unary(texts, |text| {
            self.parts.are_of(text.as_bytes()) != self.is_negated
        })
    }
}

impl PartialEq for PartsExpr {
    fn eq(&self, other: &Self) -> bool {
        self.planned.eq(&other.planned)
    }
}

impl Eq for PartsExpr {}

impl Hash for PartsExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.planned.hash(state);
    }
}

impl PhysicalExpr for PartsExpr {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let texts = self.text.evaluate(batch)?.into_array(batch.num_rows())?;
        let answers = match texts.data_type() {
            DataType::Utf8View => self.answers(texts.as_string_view()),
            DataType::Utf8 => self.answers(texts.as_string::<i32>()),
            DataType::LargeUtf8 => self.answers(texts.as_string::<i64>()),
            _ => return self.planned.evaluate(batch),
        };
        Ok(ColumnarValue::Array(Arc::new(answers)))
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.planned.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.planned.children()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let text = Arc::clone(&children[0]);
        let planned = Arc::clone(&self.planned).with_new_children(children)?;
        let (parts, is_negated) = (self.parts.clone(), self.is_negated);
        Ok(Arc::new(Self { planned, text, parts, is_negated }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.planned.fmt_sql(f)
    }
}

/// As DataFusion writes it.
impl fmt::Display for PartsExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.planned.fmt(f)
    }
}
