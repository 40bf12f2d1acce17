//! Whether a row of the probe side meets anybody in a build side, as an expression: scans pass over rows that do not.
//!
//! By all of its keys; and where these are several, by one of them alone, which most often tells as much, and of which a scan
//! need not read the others.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;

use super::indexed::{Keys, evaluated};

/// True for keys that the build side has; for some others as well, where keys are known by their hashes, or by one of them alone.
#[derive(Debug)]
pub(super) struct Members {
    probe: Vec<Arc<dyn PhysicalExpr>>,
    known: Known,
}

/// What is known of a build side.
#[derive(Debug, Clone)]
enum Known {
    /// Its rows by all of their keys, in a table for each of its partitions.
    Rows(Vec<Arc<Keys>>),
    /// The numbers that one key has.
    Numbers(Arc<Numbers>),
}

impl Members {
    /// Those by all keys, which the partitions of a build side have.
    pub(super) fn new(probe: Vec<Arc<dyn PhysicalExpr>>, tables: Vec<Arc<Keys>>) -> Self {
        Self { probe, known: Known::Rows(tables) }
    }

    /// Those by one of several keys.
    pub(super) fn by_number(probe: Arc<dyn PhysicalExpr>, numbers: Numbers) -> Self {
        Self { probe: vec![probe], known: Known::Numbers(Arc::new(numbers)) }
    }
}

impl Known {
    /// Where it is: whoever shares it knows the same.
    fn places(&self) -> Vec<*const ()> {
        match self {
            Self::Rows(tables) => tables.iter().map(|keys| Arc::as_ptr(keys).cast()).collect(),
            Self::Numbers(numbers) => vec![Arc::as_ptr(numbers).cast()],
        }
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        self.known.places() == other.known.places() && self.probe == other.probe
    }
}

impl Eq for Members {}

impl Hash for Members {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.known.places().hash(state);
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
        let keys = evaluated(&self.probe, rows)?;
        let is_member = match &self.known {
            Known::Rows(tables) => {
                let mut is_member = BooleanBuffer::new_unset(rows.num_rows());
                for table in tables {
                    let first = table.find(keys.clone())?.first;
                    let is_there = |row: usize| first[row] != 0;
                    is_member |= &BooleanBuffer::collect_bool(first.len(), is_there);
                }
                is_member
            }
            Known::Numbers(numbers) => numbers.are_there(&keys[0])?,
        };
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(is_member, None))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.probe.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { probe: children, known: self.known.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bits for each row of a build side that the numbers of one of its keys may have.
pub(super) const BITS_A_ROW: usize = 32;

/// Of the numbers between the least and the largest those that are there, at most, for it to be worth looking.
const SHARE_MAX: f64 = 0.3;

/// The numbers of one key of a build side: a bit for each from the least on.
#[derive(Debug)]
pub(super) struct Numbers {
    least: i64,
    bits: Vec<u64>,
}

impl Numbers {
    /// Those of a column, between the least and the largest of them; none where they are no whole numbers, or most of those between
    /// are there too.
    pub(super) fn of(key: &ArrayRef, [least, largest]: [&ScalarValue; 2]) -> Result<Option<Self>> {
        if !Self::are_of(key.data_type()) {
            return Ok(None);
        }
        let whole = |end: &ScalarValue| end.cast_to(&DataType::Int64);
        let (ScalarValue::Int64(Some(least)), ScalarValue::Int64(Some(largest))) =
            (whole(least)?, whole(largest)?)
        else {
            return Ok(None);
        };
        let last = usize::try_from(largest.abs_diff(least)).unwrap_or(usize::MAX);
        if last / BITS_A_ROW >= key.len() {
            return Ok(None);
        }
        let numbers = cast(key, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        let mut bits = vec![0; last / 64 + 1];
        let mut add = |number: i64| {
            let at = number.abs_diff(least) as usize;
            bits[at / 64] |= 1 << (at % 64);
        };
        match numbers.nulls() {
            None => numbers.values().iter().copied().for_each(&mut add),
            Some(_) => numbers.iter().flatten().for_each(&mut add),
        }
        let there: u32 = bits.iter().map(|word: &u64| word.count_ones()).sum();
        let is_worth_it = f64::from(there) <= SHARE_MAX * (last + 1) as f64;
        Ok(is_worth_it.then_some(Self { least, bits }))
    }

    /// Whether a column of this type has numbers that are looked at here.
    pub(super) fn are_of(data_type: &DataType) -> bool {
        *data_type == DataType::Date32 || data_type.is_integer() && *data_type != DataType::UInt64
    }

    /// Which rows of a column have one of them.
    fn are_there(&self, key: &ArrayRef) -> Result<BooleanBuffer> {
        let numbers = cast(key, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        let values = numbers.values();
        let has = BooleanBuffer::collect_bool(values.len(), |row| self.has(values[row]));
        Ok(match numbers.nulls() {
            Some(nulls) => &has & nulls.inner(),
            None => has,
        })
    }

    #[inline]
    fn has(&self, number: i64) -> bool {
        let at = number.wrapping_sub(self.least) as u64;
        self.bits.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}
