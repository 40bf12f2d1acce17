//! Batches, one after another: each is filtered and computed whole, then gathered with others that were left small.
//!
//! Their columns may be encoded, as tables keep them, and what is left of them is until it leaves. It leaves decoded, or as it is
//! to who takes it so, but for batches that are gathered: what is put together has one type.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, RecordBatch, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::{BatchCoalescer, filter};
use arrow::datatypes::{ArrowNativeType, DataType, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::conjunction_opt;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, RecordOutput};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::{self, BoxStream, StreamExt};

use super::condition::{Read, words};
use super::{Gathering, Numbers, Output, Transform};
use crate::encoding::{Waking, as_they_are, decoded, decoded_batch};
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
    is_encoded: bool,
    input: BoxStream<'static, datafusion::error::Result<Waking>>,
    metrics: Metrics,
) -> SendableRecordBatchStream {
    let Gathering { batch_rows, rows_max } = gathering;
    let gathered = transform.filter.as_ref().map(|_| {
        let waiting = BatchCoalescer::new(Arc::clone(&schema), batch_rows)
            .with_biggest_coalesce_batch_size(Some(batch_rows / 2));
        let alone_rows = if is_encoded { batch_rows / 2 } else { usize::MAX };
        let still_wanted = rows_max.unwrap_or(usize::MAX);
        Gathered { waiting, still_wanted, alone_rows, alone: None }
    });
    // What is gathered is decoded as it is.
    let decodes = !is_encoded && gathered.is_none();
    let Metrics { baseline, dropped } = metrics;
    let work = Work {
        transform,
        read,
        schema: Arc::clone(&schema),
        scratches: Scratches::default(),
        steps: None,
        decodes,
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
    input: BoxStream<'static, datafusion::error::Result<Waking>>,
    /// What waits to be enough, where rows are dropped.
    gathered: Option<Gathered>,
    metrics: BaselineMetrics,
}

/// Batches that are put together, and those that leave as they are.
struct Gathered {
    waiting: BatchCoalescer,
    still_wanted: usize,
    /// Rows of a batch that leaves as it is, once what waits before it has left.
    alone_rows: usize,
    alone: Option<RecordBatch>,
}

impl Gathered {
    fn next(&mut self) -> Option<RecordBatch> {
        self.waiting.next_completed_batch().or_else(|| self.alone.take())
    }

    /// Takes a batch in; false where no more rows are wanted.
    fn push(&mut self, batch: &RecordBatch, schema: &SchemaRef) -> Result<bool> {
        let batch = batch.slice(0, batch.num_rows().min(self.still_wanted));
        self.still_wanted -= batch.num_rows();
        if batch.num_rows() >= self.alone_rows {
            self.waiting.finish_buffered_batch()?;
            self.alone = Some(batch);
        } else {
            self.waiting.push_batch(decoded_batch(&batch, schema)?)?;
        }
        Ok(self.still_wanted > 0)
    }
}

impl Rows {
    async fn next(&mut self) -> datafusion::error::Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.gathered.as_mut().and_then(Gathered::next) {
                return Ok(Some(batch));
            }
            let batch = self.input.next().await.transpose()?;
            let _timer = self.metrics.elapsed_compute().timer();
            let Some(batch) = batch else {
                let Some(mut rest) = self.gathered.take() else { return Ok(None) };
                self.input = stream::empty().boxed();
                rest.waiting.finish_buffered_batch()?;
                return Ok(rest.waiting.next_completed_batch());
            };
            let batch = self.work.batch(&batch)?;
            let Some(gathered) = &mut self.gathered else { return Ok(Some(batch)) };
            if !gathered.push(&batch, &self.work.schema)? {
                self.input = stream::empty().boxed();
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
    /// Whether what leaves is decoded.
    decodes: bool,
    dropped: Count,
}

impl Work {
    fn batch(&mut self, batch: &Waking) -> Result<RecordBatch> {
        let transform = Arc::clone(&self.transform);
        let selection = match &transform.filter {
            Some(filter) => {
                let mut columns = vec![None; batch.num_columns()];
                for &at in filter.reads() {
                    columns[at] = Some(batch.column(at)?);
                }
                let read = Read::new(batch.num_rows(), &columns);
                let selection = filter.selection(read, &mut self.scratches)?;
                Some(self.narrowed(batch, selection)?)
            }
            None => None,
        };
        let rows = selection.as_ref().map_or(batch.num_rows(), Selection::kept);
        let selection = selection.filter(|kept| !kept.keeps_all());
        let columns = kept_columns(&transform, batch, selection)?;
        let column = |at: usize| columns[at].as_ref().expect("a column that is read was kept");
        let Scratches { doubles, singles } = &mut self.scratches;
        let doubles = computed(&transform.doubles, column, rows, doubles)?;
        let singles = computed(&transform.singles, column, rows, singles)?;
        let decimals = transform.decimals.computed(column, rows)?;
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
            Output::Decimal(at) => Arc::clone(&decimals[at]),
        });
        let outputs = as_they_are(&self.schema, outputs.collect(), rows)?;
        Ok(if self.decodes { decoded_batch(&outputs, &self.schema)? } else { outputs })
    }

    /// The rows of a selection that joins may need.
    fn narrowed(&mut self, batch: &Waking, mut selection: Selection) -> Result<Selection> {
        let told = &self.transform.told;
        let steps = self.steps.get_or_insert_with(|| {
            let all = conjunction_opt(told.iter().cloned());
            all.map_or_else(Vec::new, |all| steps(&all, &self.read))
        });
        for step in steps.iter_mut().filter(|step| step.is_worth_it()) {
            let mut columns = vec![None; batch.num_columns()];
            let kept = Kept::new(&selection);
            for &place in &step.places {
                let column = kept.column(batch, place)?;
                columns[place] = Some(decoded(&column, self.read.field(place).data_type())?);
            }
            let Some(needed) = step.kept(&columns) else { continue };
            let narrower = selection.narrowed(&words(needed.values()));
            self.dropped.add(selection.kept() - narrower.kept());
            selection = narrower;
        }
        Ok(selection)
    }
}

/// The columns that are passed on or computed with, each without the rows that are dropped.
fn kept_columns(
    transform: &Transform,
    batch: &Waking,
    selection: Option<Selection>,
) -> Result<Vec<Option<ArrayRef>>> {
    let mut columns = vec![None; batch.num_columns()];
    let passed = transform.outputs.iter().filter_map(|output| match output {
        Output::Passed(at) => Some(at),
        Output::Double(_) | Output::Single(_) | Output::Decimal(_) => None,
    });
    let numbers = transform.doubles.columns().iter().chain(transform.singles.columns());
    let kept = selection.as_ref().map(Kept::new);
    for &at in passed.chain(numbers).chain(transform.decimals.columns()) {
        if columns[at].is_none() {
            columns[at] = Some(match &kept {
                Some(kept) => kept.column(batch, at)?,
                None => batch.column(at)?,
            });
        }
    }
    Ok(columns)
}

/// Rows that are kept, in the forms in which columns are asked for theirs.
struct Kept<'a> {
    selection: &'a Selection,
    /// For what has no lanes.
    bits: BooleanArray,
    /// Their places, where they are few.
    few: Option<Vec<usize>>,
}

impl<'a> Kept<'a> {
    fn new(selection: &'a Selection) -> Self {
        let words = Buffer::from_vec(selection.words().to_vec());
        let bits = BooleanBuffer::new(words, 0, selection.rows());
        Self { selection, few: Waking::few(&bits), bits: BooleanArray::new(bits, None) }
    }

    /// The cells of a column; where these are few, the others of one at rest are left there.
    fn column(&self, batch: &Waking, at: usize) -> Result<ArrayRef> {
        if let Some(few) = &self.few
            && let Some(few) = batch.taken(at, few)?
        {
            return Ok(few);
        }
        kept(&batch.column(at)?, self.selection, &self.bits)
    }
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
