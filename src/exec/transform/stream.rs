//! Batches, one after another: each is filtered and computed whole, then gathered with others that were left small.
//!
//! Their columns may be encoded, as tables keep them. They are until rows are dropped: what is left is decoded.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, RecordBatch,
    RecordBatchOptions, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::filter;
use arrow::datatypes::{ArrowNativeType, DataType, Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::conjunction_opt;
use datafusion::physical_plan::coalesce::{LimitedBatchCoalescer, PushBatchStatus};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, RecordOutput};
use datafusion::physical_plan::stream::{EmptyRecordBatchStream, RecordBatchStreamAdapter};
use futures::{StreamExt, stream};

use super::condition::words;
use super::{Gathering, Numbers, Output, Transform};
use crate::encoding::decoded;
use crate::error::Result;
use crate::exec::kernels::fused::Scratch;
use crate::exec::kernels::selection::{Lane, Selection};
use crate::matrix::Scalar;
use crate::steps::{Step, steps};

/// The strips that a stream computes in.
#[derive(Default)]
pub(super) struct Scratches {
    pub(super) doubles: Scratch<f64>,
    pub(super) singles: Scratch<f32>,
}

/// What a stream measures.
pub(super) struct Metrics {
    pub(super) baseline: BaselineMetrics,
    /// Rows that the filter has kept, and no join needs.
    pub(super) dropped: Count,
}

/// What becomes of a stream of batches that have, once they are decoded, the columns `read`.
pub(super) fn transformed(
    transform: Arc<Transform>,
    gathering: Gathering,
    [read, schema]: [SchemaRef; 2],
    input: SendableRecordBatchStream,
    metrics: Metrics,
) -> SendableRecordBatchStream {
    let gathered = transform.filter.as_ref().map(|_| {
        let Gathering { batch_rows, rows_max } = gathering;
        LimitedBatchCoalescer::new(Arc::clone(&schema), batch_rows, rows_max)
    });
    let Metrics { baseline, dropped } = metrics;
    let work = Work {
        transform,
        read,
        schema: Arc::clone(&schema),
        scratches: Scratches::default(),
        steps: None,
        dropped,
    };
    let rows = Rows { work, input, gathered, metrics: baseline };
    let batches = stream::try_unfold(rows, |mut rows| async {
        let next = rows.next().await?.record_output(&rows.metrics);
        Ok(next.map(|batch| (batch, rows)))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

struct Rows {
    work: Work,
    input: SendableRecordBatchStream,
    /// What waits to be enough, where rows are dropped.
    gathered: Option<LimitedBatchCoalescer>,
    metrics: BaselineMetrics,
}

impl Rows {
    async fn next(&mut self) -> datafusion::error::Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.gathered.as_mut().and_then(|rows| rows.next_completed_batch())
            {
                return Ok(Some(batch));
            }
            let batch = self.input.next().await.transpose()?;
            let _timer = self.metrics.elapsed_compute().timer();
            let Some(batch) = batch else {
                let Some(mut rest) = self.gathered.take() else { return Ok(None) };
                self.input = Box::pin(EmptyRecordBatchStream::new(self.input.schema()));
                rest.finish()?;
                return Ok(rest.next_completed_batch());
            };
            let batch = self.work.batch(&batch)?;
            let Some(gathered) = &mut self.gathered else { return Ok(Some(batch)) };
            if gathered.push_batch(batch)? == PushBatchStatus::LimitReached {
                self.input = Box::pin(EmptyRecordBatchStream::new(self.input.schema()));
            }
        }
    }
}

/// What is done to one batch after another.
struct Work {
    transform: Arc<Transform>,
    read: SchemaRef,
    schema: SchemaRef,
    scratches: Scratches,
    /// Of what joins tell, once the first batch is there: they have told by then.
    steps: Option<Vec<Step>>,
    dropped: Count,
}

impl Work {
    fn batch(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let transform = Arc::clone(&self.transform);
        let selection = match &transform.filter {
            Some(filter) => {
                let selection = filter.selection(batch, &mut self.scratches)?;
                Some(self.narrowed(batch, selection)?)
            }
            None => None,
        };
        let rows = selection.as_ref().map_or(batch.num_rows(), Selection::kept);
        let selection = selection.filter(|kept| !kept.keeps_all());
        let columns = kept_columns(&transform, batch, &self.read, selection)?;
        let column = |at: usize| columns[at].as_ref().expect("a column that is read was kept");
        let Scratches { doubles, singles } = &mut self.scratches;
        let doubles = computed(&transform.doubles, column, rows, doubles)?;
        let singles = computed(&transform.singles, column, rows, singles)?;
        let outputs = transform.outputs.iter().map(|output| match *output {
            Output::Passed(at) => Arc::clone(column(at)),
            Output::Double(at) => {
                let (cells, nulls) = doubles[at].clone();
                Arc::new(Float64Array::new(cells, nulls)) as ArrayRef
            }
            Output::Single(at) => {
                let (cells, nulls) = singles[at].clone();
                Arc::new(Float32Array::new(cells, nulls))
            }
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let outputs = outputs.collect();
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), outputs, &options)?)
    }

    /// The rows of a selection that joins may need.
    fn narrowed(&mut self, batch: &RecordBatch, mut selection: Selection) -> Result<Selection> {
        let told = &self.transform.told;
        let steps = self.steps.get_or_insert_with(|| {
            let all = conjunction_opt(told.iter().cloned());
            all.map_or_else(Vec::new, |all| steps(&all, &self.read))
        });
        for step in steps.iter_mut().filter(|step| step.is_worth_it()) {
            let mut columns = vec![None; batch.num_columns()];
            let bits = bits(&selection);
            for &place in &step.places {
                let kept = kept(batch.column(place), &selection, &bits)?;
                columns[place] = Some(decoded(&kept, self.read.field(place).data_type())?);
            }
            let Some(needed) = step.kept(&columns) else { continue };
            let narrower = selection.narrowed(&words(needed.values()));
            self.dropped.add(selection.kept() - narrower.kept());
            selection = narrower;
        }
        Ok(selection)
    }
}

/// Bits in Arrow's form.
fn bits(selection: &Selection) -> BooleanArray {
    let words = Buffer::from_vec(selection.words().to_vec());
    BooleanArray::new(BooleanBuffer::new(words, 0, selection.rows()), None)
}

/// The columns that are passed on or computed with, each without the rows that are dropped; those that are passed on are decoded.
fn kept_columns(
    transform: &Transform,
    batch: &RecordBatch,
    read: &Schema,
    selection: Option<Selection>,
) -> Result<Vec<Option<ArrayRef>>> {
    let mut columns = vec![None; batch.num_columns()];
    let passed = transform.outputs.iter().filter_map(|output| match output {
        Output::Passed(at) => Some((at, true)),
        Output::Double(_) | Output::Single(_) => None,
    });
    let numbers = transform.doubles.columns().iter().chain(transform.singles.columns());
    // For what has no lanes.
    let bits = selection.as_ref().map(bits);
    for (&at, is_passed) in passed.chain(numbers.map(|at| (at, false))) {
        if columns[at].is_none() {
            let kept = match (&selection, &bits) {
                (Some(selection), Some(bits)) => kept(batch.column(at), selection, bits)?,
                _ => Arc::clone(batch.column(at)),
            };
            let data_type = read.field(at).data_type();
            columns[at] = Some(if is_passed { decoded(&kept, data_type)? } else { kept });
        }
    }
    Ok(columns)
}

/// The cells of the rows that are kept.
fn kept(column: &ArrayRef, selection: &Selection, bits: &BooleanArray) -> Result<ArrayRef> {
    let of_cells = match column.data_type() {
        DataType::Dictionary(code, _) => code,
        other => other,
    };
    let cells = match of_cells.primitive_width() {
        Some(16) => lanes::<u128>(column, selection),
        Some(8) => lanes::<u64>(column, selection),
        Some(4) => lanes::<u32>(column, selection),
        Some(2) => lanes::<u16>(column, selection),
        Some(1) => lanes::<u8>(column, selection),
        _ => return Ok(filter(column, bits)?),
    };
    let nulls = match column.nulls().filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => {
            let known = filter(&BooleanArray::new(nulls.inner().clone(), None), bits)?;
            Some(NullBuffer::new(known.as_boolean().values().clone()))
        }
        None => None,
    };
    let data = column.to_data().into_builder().offset(0).len(selection.kept());
    Ok(make_array(data.buffers(vec![cells]).nulls(nulls).build()?))
}

fn lanes<T: Lane + ArrowNativeType>(column: &ArrayRef, selection: &Selection) -> Buffer {
    let data = column.to_data();
    let cells = &data.buffers()[0].typed_data::<T>()[data.offset()..data.offset() + data.len()];
    Buffer::from_vec(selection.compressed(cells))
}

/// Cells, and which of them are NULL.
type Column<T> = (ScalarBuffer<T>, Option<NullBuffer>);

/// The numbers of all rows.
fn computed<'a, T: Scalar>(
    numbers: &Numbers,
    column: impl Fn(usize) -> &'a ArrayRef + Copy,
    rows: usize,
    scratch: &mut Scratch<T>,
) -> Result<Vec<Column<T>>> {
    let mut cells: Vec<Vec<T>> = numbers.reads().iter().map(|_| Vec::with_capacity(rows)).collect();
    numbers.each_strip(column, rows, scratch, |_, results| {
        for (number, cells) in cells.iter_mut().enumerate() {
            cells.extend_from_slice(results.cells(number));
        }
    })?;
    let with_nulls = cells.into_iter().zip(numbers.reads()).map(|(cells, reads)| {
        let nulls = reads
            .iter()
            .fold(None, |nulls, &at| NullBuffer::union(nulls.as_ref(), column(at).nulls()));
        (ScalarBuffer::from(cells), nulls)
    });
    Ok(with_nulls.collect())
}
