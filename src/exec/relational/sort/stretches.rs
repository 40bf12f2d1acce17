//! A sort of rows that come in the order of some of its keys, the first ones: stretch after stretch, each with all rows of those keys.
//!
//! Enters: one stream. Leaves: its rows in the order of all keys. Memory is that of a stretch, and the first rows leave when
//! the first stretch has come.
//!
//! ```text
//! a b         a b
//! 1 9         1 7
//! 1 7    ──►  1 9    sorted by b, for a has another value from here on
//! 2 8         2 3
//! 2 3         2 8
//! ```

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::row::{OwnedRow, RowConverter};
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt, stream};
use tokio::sync::Mutex;

use super::order::sort_fields;
use super::rows::RowSort;

/// Rows of a stretch at least, while there are more: to begin one costs more than to sort a few rows.
const STRETCH_ROWS_MIN: usize = 64 << 10;

/// The rows of a stream in the order of a sort, by whose keys `come` they come in order.
///
/// # Errors
/// Keys that cannot be compared as bytes.
pub(super) fn sorted(
    sort: RowSort,
    come: LexOrdering,
    input: SendableRecordBatchStream,
) -> Result<SendableRecordBatchStream> {
    let schema = Arc::clone(&sort.schema);
    let rows = Rows { input, next: None, cuts: Cuts::new(come, &schema)? };
    let left = sort.fetch.unwrap_or(usize::MAX);
    let state = Sorting { rows: Arc::new(Mutex::new(rows)), sort, left, stretch: None };
    let batches = stream::try_unfold(state, |mut state| async move {
        Ok(state.next().await?.map(|batch| (batch, state)))
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

/// A sort on its way.
struct Sorting {
    rows: Arc<Mutex<Rows>>,
    sort: RowSort,
    /// Rows that are asked for.
    left: usize,
    /// The stretch that leaves.
    stretch: Option<SendableRecordBatchStream>,
}

impl Sorting {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.left > 0 {
            if let Some(stretch) = &mut self.stretch {
                if let Some(batch) = stretch.next().await.transpose()? {
                    self.left = self.left.saturating_sub(batch.num_rows());
                    return Ok(Some(batch));
                }
                self.stretch = None;
            }
            if !self.rows.lock().await.has_more().await? {
                return Ok(None);
            }
            let fetch = self.sort.fetch.map(|_| self.left);
            let rows = stretch(Arc::clone(&self.rows));
            let rows = RecordBatchStreamAdapter::new(Arc::clone(&self.sort.schema), rows);
            let sort = RowSort { fetch, ..self.sort.clone() };
            self.stretch = Some(sort.sorted(vec![Box::pin(rows)]));
        }
        Ok(None)
    }
}

/// The rows of the input up to where the next stretch begins.
fn stretch(rows: Arc<Mutex<Rows>>) -> impl Stream<Item = Result<RecordBatch>> + Send {
    stream::try_unfold(Some((rows, Stretch::default())), |state| async move {
        let Some((rows, mut stretch)) = state else { return Ok(None) };
        let batch = rows.lock().await.of(&mut stretch).await?;
        let open = (!stretch.is_over).then_some((rows, stretch));
        Ok(batch.map(|batch| (batch, open)))
    })
}

/// What has come of a stretch.
#[derive(Default)]
struct Stretch {
    rows: usize,
    /// The keys of its last row, once it has rows enough.
    last: Option<OwnedRow>,
    is_over: bool,
}

/// The input, and what was read of it too early.
struct Rows {
    input: SendableRecordBatchStream,
    next: Option<RecordBatch>,
    cuts: Cuts,
}

impl Rows {
    async fn has_more(&mut self) -> Result<bool> {
        while self.next.is_none() {
            let Some(batch) = self.input.next().await.transpose()? else { return Ok(false) };
            self.next = Some(batch).filter(|batch| batch.num_rows() > 0);
        }
        Ok(true)
    }

    /// The next rows of a stretch.
    async fn of(&mut self, stretch: &mut Stretch) -> Result<Option<RecordBatch>> {
        if !self.has_more().await? {
            return Ok(None);
        }
        let Some(batch) = self.next.take() else { return Ok(None) };
        let count = match &stretch.last {
            Some(last) => self.cuts.first_other(&batch, last)?,
            None => batch.num_rows(),
        };
        stretch.is_over = count < batch.num_rows();
        if stretch.is_over {
            self.next = Some(batch.slice(count, batch.num_rows() - count));
        }
        if count == 0 {
            return Ok(None);
        }
        stretch.rows += count;
        if stretch.last.is_none() && stretch.rows >= STRETCH_ROWS_MIN {
            stretch.last = Some(self.cuts.last(&batch)?);
        }
        Ok(Some(batch.slice(0, count)))
    }
}

/// Where the keys change by which rows come in order.
struct Cuts {
    come: LexOrdering,
    converter: RowConverter,
}

impl Cuts {
    fn new(come: LexOrdering, schema: &Schema) -> Result<Self> {
        let converter = RowConverter::new(sort_fields(&come, schema)?)?;
        Ok(Self { come, converter })
    }

    fn keys(&mut self, batch: &RecordBatch) -> Result<arrow::row::Rows> {
        let keys =
            self.come.iter().map(|key| key.expr.evaluate(batch)?.into_array(batch.num_rows()));
        Ok(self.converter.convert_columns(&keys.collect::<Result<Vec<_>>>()?)?)
    }

    /// The first row with other keys than these; as many as there are where all have them.
    fn first_other(&mut self, batch: &RecordBatch, last: &OwnedRow) -> Result<usize> {
        let keys = self.keys(batch)?;
        let last = last.row();
        Ok(keys.iter().position(|key| key != last).unwrap_or(batch.num_rows()))
    }

    fn last(&mut self, batch: &RecordBatch) -> Result<OwnedRow> {
        let last = batch.slice(batch.num_rows() - 1, 1);
        Ok(self.keys(&last)?.row(0).owned())
    }
}
