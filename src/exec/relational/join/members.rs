//! Whether a row of the probe side meets anybody in a build side, as an expression: scans pass over rows that do not.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Schema};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;

use super::indexed::{Keys, evaluated};

/// True for keys that the build side has; for some others as well, where keys are known by their hashes.
#[derive(Debug)]
pub(super) struct Members {
    probe: Vec<Arc<dyn PhysicalExpr>>,
    keys: Arc<Keys>,
}

impl Members {
    pub(super) fn new(probe: Vec<Arc<dyn PhysicalExpr>>, keys: Arc<Keys>) -> Self {
        Self { probe, keys }
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.keys, &other.keys) && self.probe == other.probe
    }
}

impl Eq for Members {}

impl Hash for Members {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.keys).hash(state);
        self.probe.hash(state);
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (at, key) in self.probe.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{key}")?;
        }
        f.write_str(") IN (build side)")
    }
}

impl PhysicalExpr for Members {
    fn data_type(&self, _input: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _input: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, rows: &RecordBatch) -> Result<ColumnarValue> {
        let first = self.keys.find(evaluated(&self.probe, rows)?)?.first;
        let is_member = BooleanBuffer::collect_bool(first.len(), |row| first[row] != 0);
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(is_member, None))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.probe.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { probe: children, keys: Arc::clone(&self.keys) }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
