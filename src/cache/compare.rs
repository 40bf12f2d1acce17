//! The rows of a run on their way to its reader, compared with those that are remembered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::compute::{cast, concat_batches, take};
use arrow::datatypes::{DataType, Float64Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};

use super::{Answer, Content};
use crate::error::{Error, ErrorKind};
use crate::matrix::{Cells, Element, Labels};

/// By how much two sums of the same numbers may differ, as a share: their order is not that of the rows behind a join.
const TOLERANCE: f64 = 1e-9;

/// Compares what a run yields with what is remembered.
#[derive(Debug)]
pub(crate) struct Comparison {
    remembered: Arc<Answer>,
    batches: Vec<RecordBatch>,
}

impl Comparison {
    pub(crate) fn with(remembered: Arc<Answer>) -> Self {
        Self { remembered, batches: Vec::new() }
    }

    /// The same rows, then an error if they are others than those remembered.
    pub(crate) fn of(self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        Box::pin(Compared { rows, comparison: Some(self) })
    }

    fn finish(self, schema: &SchemaRef) -> Result<()> {
        let Some(remembered) = self.remembered.as_rows() else { return Ok(()) };
        match difference(schema, &remembered.batches, &self.batches)? {
            None => Ok(()),
            Some(difference) => Err(stale("this query", &difference).into()),
        }
    }
}

/// What is remembered of something is not what it has come to.
pub(crate) fn stale(of: &str, difference: &str) -> Error {
    let message = format!("what is remembered of {of} is not what was computed: {difference}");
    ErrorKind::Internal(message).into()
}

struct Compared {
    rows: SendableRecordBatchStream,
    /// Until the rows are at their end.
    comparison: Option<Comparison>,
}

impl Stream for Compared {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.rows.poll_next_unpin(context));
        match &item {
            Some(Ok(batch)) => {
                let comparison = self.comparison.as_mut();
                comparison.into_iter().for_each(|compared| compared.batches.push(batch.clone()));
            }
            Some(Err(_)) => self.comparison = None,
            None => {
                let schema = self.rows.schema();
                let compared = self.comparison.take().map(|comparison| comparison.finish(&schema));
                return Poll::Ready(compared.and_then(Result::err).map(Err));
            }
        }
        Poll::Ready(item)
    }
}

impl RecordBatchStream for Compared {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

/// How what a part of a matrix expression has come to differs from what is remembered of it: in the order in which rows come the
/// last digits of sums do not count.
pub(crate) fn unlike(remembered: &Content, computed: &Content) -> Option<String> {
    let (one, other) = match (remembered, computed) {
        (Content::Matrices(one), Content::Matrices(other)) => (one, other),
        (Content::Labels(one), Content::Labels(other)) => {
            let fields = |labels: &Option<Labels>| labels.as_ref().map(|one| one.fields().to_vec());
            let is_same = one.iter().zip(other).all(|(one, other)| fields(one) == fields(other));
            return (!is_same).then(|| "other labels".to_owned());
        }
        _ => return Some("another kind of result".to_owned()),
    };
    if one.len() != other.len() {
        return Some(format!("{} matrices, and {}", one.len(), other.len()));
    }
    one.iter().zip(other).find_map(|(one, other)| unlike_cells(one, other))
}

/// The first cells in which two matrices differ by more than a little of the largest.
fn unlike_cells(one: &Cells, other: &Cells) -> Option<String> {
    let shape = one.shape();
    if shape != other.shape() || one.element() != other.element() {
        let extent = |cells: &Cells| format!("{} of {}", cells.shape(), cells.element());
        return Some(format!("{}, and {}", extent(one), extent(other)));
    }
    let places = || (0..shape.rows).flat_map(|row| (0..shape.columns).map(move |at| (row, at)));
    let magnitude = |(row, at): (usize, usize)| one.cell(row, at).abs();
    let largest = places().map(magnitude).filter(|cell| cell.is_finite()).fold(0.0, f64::max);
    let tolerance = match one.element() {
        Element::Float64 => TOLERANCE * largest,
        Element::Float32 => f64::from(f32::EPSILON) * 16.0 * largest,
    };
    let is_close = |one: f64, other: f64| {
        one == other || (one.is_nan() && other.is_nan()) || (one - other).abs() <= tolerance
    };
    let (row, at) =
        places().find(|&(row, at)| !is_close(one.cell(row, at), other.cell(row, at)))?;
    let cells = [one, other].map(|cells| cells.cell(row, at));
    Some(format!("{} in row {}, column {}, and {}", cells[0], row + 1, at + 1, cells[1]))
}

/// How two answers differ, in whatever order their rows are.
pub(super) fn difference(
    schema: &SchemaRef,
    remembered: &[RecordBatch],
    computed: &[RecordBatch],
) -> Result<Option<String>> {
    let (one, other) = (concat_batches(schema, remembered)?, concat_batches(schema, computed)?);
    if one.num_rows() != other.num_rows() {
        return Ok(Some(format!("{} rows, and {}", one.num_rows(), other.num_rows())));
    }
    let (one, other) = (in_order(&one)?, in_order(&other)?);
    let unlike = |(one, other): (&ArrayRef, &ArrayRef)| first_unlike(one, other).transpose();
    let unlike = one.columns().iter().zip(other.columns()).filter_map(unlike);
    let Some(row) = unlike.collect::<Result<Vec<_>>>()?.into_iter().min() else { return Ok(None) };
    Ok(Some(format!("({}), and ({})", shown(&one, row)?, shown(&other, row)?)))
}

/// The rows in an order that their numbers with digits decide last, for those may differ a little.
fn in_order(batch: &RecordBatch) -> Result<RecordBatch> {
    let is_float = |column: &&ArrayRef| column.data_type().is_floating();
    let (floats, others): (Vec<_>, Vec<_>) = batch.columns().iter().partition(is_float);
    let keys: Vec<ArrayRef> = others.into_iter().chain(floats).cloned().collect();
    if keys.is_empty() {
        return Ok(batch.clone());
    }
    let fields = keys.iter().map(|key| SortField::new(key.data_type().clone())).collect();
    let rows = RowConverter::new(fields)?.convert_columns(&keys)?;
    let mut places: Vec<u64> = (0..batch.num_rows() as u64).collect();
    places.sort_by(|one, other| rows.row(*one as usize).cmp(&rows.row(*other as usize)));
    let places = UInt64Array::from(places);
    let columns = batch.columns().iter().map(|column| take(column, &places, None));
    Ok(RecordBatch::try_new(batch.schema(), columns.collect::<Result<_, _>>()?)?)
}

/// The first row in which two columns differ.
fn first_unlike(one: &ArrayRef, other: &ArrayRef) -> Result<Option<usize>> {
    if one == other {
        return Ok(None);
    }
    let rows = 0..one.len();
    if !one.data_type().is_floating() {
        return Ok(rows.into_iter().find(|&row| one.slice(row, 1) != other.slice(row, 1)));
    }
    let (one, other) = (cast(one, &DataType::Float64)?, cast(other, &DataType::Float64)?);
    let (one, other) = (one.as_primitive::<Float64Type>(), other.as_primitive::<Float64Type>());
    let is_close = |one: f64, other: f64| {
        let is_same = one == other || (one.is_nan() && other.is_nan());
        is_same || (one - other).abs() <= TOLERANCE * one.abs().max(other.abs())
    };
    let is_unlike = |&row: &usize| match (one.is_null(row), other.is_null(row)) {
        (false, false) => !is_close(one.value(row), other.value(row)),
        (one, other) => one != other,
    };
    Ok(rows.into_iter().find(is_unlike))
}

fn shown(batch: &RecordBatch, row: usize) -> Result<String> {
    let options = FormatOptions::default().with_null("NULL");
    let shown = batch
        .columns()
        .iter()
        .map(|column| Ok(ArrayFormatter::try_new(column, &options)?.value(row).to_string()));
    Ok(shown.collect::<Result<Vec<_>>>()?.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array};

    use super::*;

    fn rows(keys: Vec<i64>, values: Vec<Option<f64>>) -> RecordBatch {
        let keys: ArrayRef = Arc::new(Int64Array::from(keys));
        let values: ArrayRef = Arc::new(Float64Array::from(values));
        RecordBatch::try_from_iter_with_nullable([("v", values, true), ("k", keys, false)]).unwrap()
    }

    fn compared(one: RecordBatch, other: Vec<RecordBatch>) -> Option<String> {
        difference(&one.schema(), &[one], &other).unwrap()
    }

    #[test]
    fn rows_are_the_same_in_any_order_and_with_other_last_digits() {
        let one = rows(vec![1, 2, 3, 3], vec![Some(0.1 + 0.2), None, Some(f64::NAN), Some(-1.0)]);
        let other = [
            rows(vec![3, 2], vec![Some(-1.0), None]),
            rows(vec![1, 3], vec![Some(0.3), Some(f64::NAN)]),
        ];
        assert_eq!(compared(one, other.to_vec()), None);
    }

    #[test]
    fn the_first_row_that_differs_is_told() {
        let one = || rows(vec![1, 2], vec![Some(0.5), None]);
        let told = |keys, values| compared(one(), vec![rows(keys, values)]).unwrap();
        assert_eq!(told(vec![1], vec![Some(0.5)]), "2 rows, and 1");
        assert_eq!(told(vec![2, 1], vec![None, Some(0.6)]), "(0.5, 1), and (0.6, 1)");
        assert_eq!(told(vec![1, 2], vec![Some(0.5), Some(0.0)]), "(NULL, 2), and (0.0, 2)");
        assert_eq!(told(vec![1, 3], vec![Some(0.5), None]), "(NULL, 2), and (NULL, 3)");
    }
}
