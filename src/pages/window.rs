//! The rows of a row group, some thousand at a time.
//!
//! Columns that a condition is about come first: where no row of a window meets it, the others are passed
//! over. Rows that do not meet it stay where another does, for whoever asked drops them anyway. Columns are
//! dealt out to as many parts as may be read at once; what reads blocks, and is on threads for that.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use parquet::arrow::arrow_reader::RowSelector;
use parquet::file::metadata::ParquetMetaData;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::column::{Column, column};
use super::flaw::{Checked, Flaw};
use super::layout::Layout;
use crate::error::Result;

/// Windows in which a condition may keep every row before it is given up: to look at it costs time.
const TRIES: usize = 8;

/// A condition without which rows are of no use to whoever asks for them.
pub(super) struct Condition {
    pub(super) expression: Arc<dyn PhysicalExpr>,
    /// The places of its columns among those that are read.
    pub(super) places: Vec<usize>,
    /// Those columns, as the expression counts them.
    pub(super) schema: SchemaRef,
    /// Windows that it has kept.
    kept: usize,
}

impl Condition {
    pub(super) fn new(
        expression: Arc<dyn PhysicalExpr>,
        places: Vec<usize>,
        schema: SchemaRef,
    ) -> Self {
        Self { expression, places, schema, kept: 0 }
    }

    /// Whether it has let a window go lately.
    fn is_worth_it(&self) -> bool {
        self.kept < TRIES
    }

    /// Whether a row may meet it. What cannot be told is true: who asked will find out.
    fn may_hold(&mut self, columns: &[ArrayRef]) -> bool {
        let holds = || {
            let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns.to_vec()).ok()?;
            let holds = self.expression.evaluate(&batch).ok()?;
            let holds = holds.into_array(batch.num_rows()).ok()?;
            Some(holds.as_boolean_opt()?.true_count() > 0)
        };
        let holds = holds().unwrap_or(true);
        self.kept = if holds { self.kept + 1 } else { 0 };
        holds
    }
}

/// A file, and which of its columns are read.
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// As it was when the statement was planned.
    pub(super) bytes: u64,
    pub(super) metadata: Arc<ParquetMetaData>,
    pub(super) layouts: Vec<Layout>,
}

impl Place {
    fn open(&self) -> Checked<Arc<File>> {
        let file = File::open(&self.path)?;
        match file.metadata()?.len() {
            bytes if bytes == self.bytes => Ok(Arc::new(file)),
            _ => Err(Flaw::new("the file was changed while it was read")),
        }
    }

    /// Columns of a row group.
    fn columns(&self, group: usize, places: &[usize]) -> Checked<Vec<Box<dyn Column>>> {
        // A file of their own, for reading moves its cursor.
        let file = self.open()?;
        let columns = places.iter().map(|&at| {
            let layout = &self.layouts[at];
            column(&file, &self.metadata, group, layout)
                .map_err(|flaw| flaw.within(layout.field.name()))
        });
        columns.collect()
    }
}

/// What is left of a row group.
pub(super) struct Windows {
    place: Arc<Place>,
    /// The columns of the condition first, where there is one.
    parts: Vec<Part>,
    /// Rows to pass over and rows to read, in turn.
    selection: VecDeque<RowSelector>,
    batch_rows: usize,
}

/// Columns that one thread reads from the first row of a row group to its last, which also keeps what it
/// allocates with it.
struct Part {
    places: Vec<usize>,
    requests: Sender<Request>,
    answers: Receiver<Checked<Vec<ArrayRef>>>,
    /// Rows to pass over before the next is read.
    skipped: usize,
}

struct Request {
    skipped: usize,
    rows: usize,
}

impl Windows {
    /// The rows of a row group: all, or those that are selected.
    pub(super) fn open(
        place: &Arc<Place>,
        group: usize,
        selection: impl IntoIterator<Item = RowSelector>,
        condition: Option<&Condition>,
        part_count: usize,
        batch_rows: usize,
    ) -> Self {
        let parts = dealt_out(place, group, condition, part_count);
        let parts = parts.into_iter().map(|places| Part::open(place, group, places)).collect();
        let selection = selection.into_iter().collect();
        Self { place: Arc::clone(place), parts, selection, batch_rows }
    }

    /// The columns of the next window, `None` after the last; empty where the condition lets it go.
    pub(super) async fn next(
        &mut self,
        condition: Option<&mut Condition>,
    ) -> Result<Option<Vec<ArrayRef>>> {
        let Some(rows) = self.next_rows() else { return Ok(None) };
        let mut columns = vec![None; self.place.layouts.len()];
        let condition = condition.filter(|condition| condition.is_worth_it());
        let mut read = 0;
        if let Some(condition) = condition {
            self.read(0..1, rows, &mut columns).await?;
            let of_condition: Vec<_> =
                condition.places.iter().filter_map(|&place| columns[place].clone()).collect();
            if !condition.may_hold(&of_condition) {
                self.parts[1..].iter_mut().for_each(|part| part.skipped += rows);
                return Ok(Some(Vec::new()));
            }
            read = 1;
        }
        self.read(read..self.parts.len(), rows, &mut columns).await?;
        Ok(Some(columns.into_iter().flatten().collect()))
    }

    /// Rows of the next window.
    fn next_rows(&mut self) -> Option<usize> {
        loop {
            let next = self.selection.front_mut()?;
            if next.skip || next.row_count == 0 {
                let rows = next.row_count;
                self.parts.iter_mut().for_each(|part| part.skipped += rows);
                self.selection.pop_front();
                continue;
            }
            let rows = next.row_count.min(self.batch_rows);
            next.row_count -= rows;
            return Some(rows);
        }
    }

    /// Reads rows of some parts at once, each column into its place.
    async fn read(
        &mut self,
        parts: Range<usize>,
        rows: usize,
        columns: &mut [Option<ArrayRef>],
    ) -> Result<()> {
        let parts = &mut self.parts[parts];
        for part in &mut *parts {
            part.ask(rows).await;
        }
        for part in parts {
            let arrays = part.answer().await.map_err(|flaw| flaw.at(&self.place.path))?;
            part.places.iter().zip(arrays).for_each(|(&at, array)| columns[at] = Some(array));
        }
        Ok(())
    }
}

impl Part {
    fn open(place: &Arc<Place>, group: usize, places: Vec<usize>) -> Self {
        let (requests, asked) = channel(1);
        let (given, answers) = channel(1);
        let (place, read, refused) = (Arc::clone(place), places.clone(), given.clone());
        // A thread of its own: one of those that are shared for work that blocks would be held while nobody
        // asks, and whoever waits for all parts of a plan would wait for ever once none is left. It ends
        // where nobody asks any more.
        let thread = std::thread::Builder::new().name("relatrix-pages".to_owned());
        if let Err(error) = thread.spawn(move || serve(&place, group, &read, asked, &given)) {
            let _is_first = refused.try_send(Err(error.into()));
        }
        Self { places, requests, answers, skipped: 0 }
    }

    async fn ask(&mut self, rows: usize) {
        let skipped = std::mem::take(&mut self.skipped);
        // A thread that has ended has left an answer that says why.
        let _has_ended = self.requests.send(Request { skipped, rows }).await;
    }

    async fn answer(&mut self) -> Checked<Vec<ArrayRef>> {
        let answer = self.answers.recv().await;
        answer.unwrap_or_else(|| Err(Flaw::new("its pages make no sense")))
    }
}

/// Reads what is asked for until nobody asks, or it cannot be read.
fn serve(
    place: &Place,
    group: usize,
    places: &[usize],
    mut asked: Receiver<Request>,
    given: &Sender<Checked<Vec<ArrayRef>>>,
) {
    let served = place.columns(group, places).and_then(|mut columns| {
        while let Some(Request { skipped, rows }) = asked.blocking_recv() {
            let arrays = columns.iter_mut().zip(places).map(|(column, &at)| {
                let read = column.skip(skipped).and_then(|()| column.read(rows));
                read.map_err(|flaw| flaw.within(place.layouts[at].field.name()))
            });
            let arrays = arrays.collect::<Checked<Vec<_>>>()?;
            if given.blocking_send(Ok(arrays)).is_err() {
                return Ok(());
            }
        }
        Ok(())
    });
    if let Err(flaw) = served {
        let _nobody_asks = given.blocking_send(Err(flaw));
    }
}

/// The columns of a condition, and all others in `count` parts of about as many bytes.
fn dealt_out(
    place: &Place,
    group: usize,
    condition: Option<&Condition>,
    count: usize,
) -> Vec<Vec<usize>> {
    let bytes = |at: usize| {
        let chunk = place.metadata.row_group(group).column(place.layouts[at].leaf);
        u64::try_from(chunk.compressed_size()).unwrap_or(0).max(1)
    };
    let first = condition.map(|condition| condition.places.clone());
    let is_first = |at: &usize| first.as_ref().is_some_and(|first| first.contains(at));
    let others: Vec<usize> = (0..place.layouts.len()).filter(|at| !is_first(at)).collect();
    let share = others.iter().map(|&at| bytes(at)).sum::<u64>().div_ceil(count as u64);
    let (mut parts, mut taken) = (Vec::from_iter(first.clone()), share);
    for at in others {
        if taken >= share {
            parts.push(Vec::new());
            taken = 0;
        }
        taken += bytes(at);
        parts.last_mut().expect("a part was begun above").push(at);
    }
    parts
}
