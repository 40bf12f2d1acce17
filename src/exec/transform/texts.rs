//! Conditions on one column of texts: of a column that is kept as codes, they are computed for the texts that these stand for.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Field, Schema, UInt8Type};
use datafusion::physical_expr::PhysicalExpr;

use crate::encoding::{decoded, shared_codes, unpacked};
use crate::error::{ErrorKind, Result};

/// A condition that never fails, true or false of every text.
#[derive(Debug)]
pub(super) struct OfTexts {
    /// Over a column.
    condition: Arc<dyn PhysicalExpr>,
    of_dictionary: Mutex<Option<OfDictionary>>,
}

/// What it says of a dictionary that batches share.
#[derive(Debug)]
struct OfDictionary {
    dictionary: ArrayRef,
    /// Rows that were asked for.
    rows: usize,
    /// Once those are as many as the texts: most of them may be of rows that nobody asks for.
    met: Option<Arc<BooleanArray>>,
}

impl OfTexts {
    pub(super) fn new(condition: Arc<dyn PhysicalExpr>) -> Self {
        Self { condition, of_dictionary: Mutex::default() }
    }

    /// Which rows meet it; whatever of those that are NULL.
    ///
    /// # Errors
    /// Where the column has no texts.
    pub(super) fn met(&self, column: &ArrayRef) -> Result<BooleanBuffer> {
        if let Some(codes) = shared_codes(column) {
            let keys = codes.keys().values();
            return Ok(match self.of_shared(codes.values(), keys.len())? {
                Some(met) => {
                    BooleanBuffer::collect_bool(keys.len(), |row| met.value(keys[row] as usize))
                }
                None => {
                    let texts = decoded(column, codes.values().data_type())?;
                    self.computed(&texts)?.values().clone()
                }
            });
        }
        if let Some(codes) = column.as_dictionary_opt::<UInt8Type>() {
            let (met, keys) = (self.computed(codes.values())?, codes.keys().values());
            let of: [bool; 256] = std::array::from_fn(|code| code < met.len() && met.value(code));
            return Ok(BooleanBuffer::collect_bool(keys.len(), |row| of[usize::from(keys[row])]));
        }
        Ok(self.computed(&unpacked(column)?)?.values().clone())
    }

    /// What it says of a dictionary, if it pays to know by so many more rows.
    fn of_shared(&self, dictionary: &ArrayRef, rows: usize) -> Result<Option<Arc<BooleanArray>>> {
        let mut known = self.of_dictionary.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let dictionary = Arc::clone(dictionary);
            OfDictionary { dictionary, rows: 0, met: None }
        };
        let mut of = known
            .take()
            .filter(|known| Arc::ptr_eq(&known.dictionary, dictionary))
            .unwrap_or_else(new);
        of.rows = of.rows.saturating_add(rows);
        if of.met.is_none() && of.rows >= dictionary.len() {
            of.met = Some(Arc::new(self.computed(dictionary)?));
        }
        Ok(known.insert(of).met.clone())
    }

    fn computed(&self, texts: &ArrayRef) -> Result<BooleanArray> {
        let schema = Schema::new(vec![Field::new("text", texts.data_type().clone(), true)]);
        let rows = RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(texts)])?;
        let met = self.condition.evaluate(&rows)?.into_array(texts.len())?;
        let met = met.as_boolean_opt().cloned();
        met.ok_or_else(|| ErrorKind::Internal(format!("{} is no condition", self.condition)).into())
    }
}
