//! The rows of a row group, some thousand at a time.
//!
//! Columns that a condition is about come first, and of the others those rows alone are read that meet it; where it keeps
//! most rows all are, for whoever asked drops the rest anyway. Where the columns of a row group are small they are
//! fetched and decoded here. Where they are large, or few row groups leave threads without work, they are dealt out to
//! threads of their own, which read page by page.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::filter;
use parquet::arrow::arrow_reader::RowSelector;
use parquet::file::metadata::ParquetMetaData;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::chunk::{Chunk, Source};
use super::column::{Column, column};
use super::fetch::Spare;
use super::flaw::{Checked, Flaw};
use super::kept::{FileColumns, KeptColumns};
use super::layout::Layout;
use super::texts::{CODES_MAX, compact, short_codes};
use crate::error::Result;
use crate::steps::{Step, decoded};

/// A file, and which of its columns are read.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    pub(super) metadata: Arc<ParquetMetaData>,
    pub(super) layouts: Vec<Layout>,
    pub(super) spare: Arc<Spare>,
    /// Its columns that are kept, where some may be.
    kept: Option<FileColumns>,
}

impl Place {
    /// The file at a path, which had so many bytes when the statement was planned.
    ///
    /// # Errors
    /// Where it cannot be opened, or is another one now.
    pub(super) fn open(
        path: PathBuf,
        bytes: u64,
        metadata: Arc<ParquetMetaData>,
        layouts: Vec<Layout>,
        spare: &Arc<Spare>,
        kept: &Arc<KeptColumns>,
    ) -> Checked<Arc<Self>> {
        let file = Arc::new(File::open(&path)?);
        let found = file.metadata()?;
        if found.len() != bytes {
            return Err(Flaw::new("the file was changed while it was read"));
        }
        let columns = metadata
            .row_groups()
            .iter()
            .flat_map(|group| layouts.iter().filter_map(|layout| group.columns().get(layout.leaf)));
        let scan_bytes = columns.map(|column| column.uncompressed_size() as f64).sum();
        let kept = FileColumns::of(kept, &path, &found, scan_bytes);
        Ok(Arc::new(Self { path, file, metadata, layouts, spare: Arc::clone(spare), kept }))
    }

    /// Whether columns leave encoded, to who decodes them.
    fn is_encoded(&self) -> bool {
        self.layouts.iter().any(|layout| layout.is_encoded)
    }

    /// Where a column of a row group is in the file.
    pub(super) fn part(&self, group: usize, at: usize) -> Range<u64> {
        let column = self.metadata.row_group(group).column(self.layouts[at].leaf);
        let (start, bytes) = column.byte_range();
        start..start.saturating_add(bytes)
    }

    /// The column, if it is kept.
    pub(super) fn kept(&self, group: usize, at: usize) -> Option<Source> {
        let pages = self.kept.as_ref()?.pages(self.part(group, at).start)?;
        Some(Source::Kept(pages))
    }

    /// Columns of a row group.
    fn columns(
        &self,
        group: usize,
        places: &[usize],
        source: impl Fn(usize) -> Source,
    ) -> Checked<Vec<Box<dyn Column>>> {
        let columns = places.iter().map(|&at| {
            let layout = &self.layouts[at];
            let metadata = self.metadata.row_group(group).column(layout.leaf);
            let source = source(at);
            let keeping = match (&source, &self.kept) {
                (Source::File(_) | Source::Fetched(..), Some(kept)) => {
                    kept.keeping(metadata, layout.form)
                }
                _ => None,
            };
            let chunk = Chunk::new(source, metadata, &self.spare, keeping);
            column(chunk, metadata, layout).map_err(|flaw| self.within(at, flaw))
        });
        columns.collect()
    }

    fn within(&self, at: usize, flaw: Flaw) -> Flaw {
        flaw.within(self.layouts[at].field.name())
    }

    /// The next rows of columns.
    fn read(
        &self,
        columns: &mut [Box<dyn Column>],
        places: &[usize],
        request: &Request,
    ) -> Checked<Vec<ArrayRef>> {
        let arrays = columns.iter_mut().zip(places).map(|(column, &at)| {
            let (rows, chosen) = (request.rows, request.chosen.as_deref());
            let read = column.skip(request.skipped).and_then(|()| match request.codes_max {
                0 => column.read(rows, chosen),
                most => column.read_codes(rows, chosen, most),
            });
            read.map_err(|flaw| self.within(at, flaw))
        });
        arrays.collect()
    }
}

/// Who reads the columns of a row group.
pub(super) enum By {
    /// Whoever asks, of these.
    Here(Vec<Source>),
    /// Threads, each about as many bytes of those columns that no condition is about.
    Threads(usize),
}

/// What is left of a row group.
pub(super) struct Windows {
    place: Arc<Place>,
    /// The columns of each step of the condition first, then all others.
    parts: Vec<Part>,
    /// Rows to pass over and rows to read, in turn.
    selection: VecDeque<RowSelector>,
    batch_rows: usize,
    /// Values of a dictionary at most of which texts leave as their codes.
    codes_max: usize,
}

/// Columns that are read together, from the first row of a row group to its last.
struct Part {
    places: Vec<usize>,
    reader: Reader,
    /// Rows to pass over before the next is read.
    skipped: usize,
}

enum Reader {
    Here {
        columns: Vec<Box<dyn Column>>,
        asked: Option<Request>,
    },
    /// A thread, which also keeps what it allocates with it.
    Thread {
        requests: Sender<Request>,
        answers: Receiver<Checked<Vec<ArrayRef>>>,
    },
}

struct Request {
    skipped: usize,
    rows: usize,
    /// The places of the rows that are asked for, where not all are.
    chosen: Option<Arc<[u32]>>,
    /// Values of a dictionary at most of which texts may come as their codes.
    codes_max: usize,
}

/// The rows of one window, as far as they are read.
struct Window {
    rows: usize,
    chosen: Option<Arc<[u32]>>,
    columns: Vec<Option<ArrayRef>>,
}

impl Window {
    fn is_empty(&self) -> bool {
        self.chosen.as_ref().is_some_and(|chosen| chosen.is_empty())
    }

    /// Keeps these of the rows that are left.
    fn narrow(&mut self, kept: &BooleanArray) -> Checked<()> {
        let places = kept.values().set_indices();
        self.chosen = Some(match &self.chosen {
            Some(chosen) => places.map(|at| chosen[at]).collect(),
            None => kept.values().set_indices_u32().collect(),
        });
        for column in self.columns.iter_mut().flatten() {
            *column = filter(column, kept)?;
        }
        Ok(())
    }

    /// The columns, of which those are of codes in the end that have no more values than these.
    fn finish(self, codes_max: usize) -> Checked<Vec<ArrayRef>> {
        let is_narrow = self.chosen.is_some();
        let columns = self.columns.into_iter().flatten().map(|column| {
            let Some(codes) = column.as_dictionary_opt() else { return Ok(column) };
            if codes_max > 0 && codes.values().len() <= codes_max {
                return short_codes(codes);
            }
            let texts = decoded(codes)?;
            Ok(if is_narrow { compact(&texts) } else { texts })
        });
        columns.collect()
    }
}

impl Windows {
    /// The rows of a row group: all, or those that are selected.
    ///
    /// # Errors
    /// Where the footer says what cannot be.
    pub(super) fn open(
        place: &Arc<Place>,
        group: usize,
        selection: impl IntoIterator<Item = RowSelector>,
        steps: &[Step],
        by: &By,
        batch_rows: usize,
    ) -> Checked<Self> {
        let parts = dealt_out(place, group, steps, by).into_iter().map(|places| match by {
            By::Here(sources) => Part::here(place, group, places, sources),
            By::Threads(_) => Ok(Part::on_a_thread(place, group, places)),
        });
        let parts = parts.collect::<Checked<_>>()?;
        let selection = selection.into_iter().collect();
        let codes_max = if place.is_encoded() { CODES_MAX } else { 0 };
        Ok(Self { place: Arc::clone(place), parts, selection, batch_rows, codes_max })
    }

    /// The columns of the next window, `None` after the last; empty where the condition lets it go.
    ///
    /// # Errors
    /// Where the file is not what its footer says.
    pub(super) async fn next(&mut self, steps: &mut [Step]) -> Result<Option<Vec<ArrayRef>>> {
        let columns = self.next_columns(steps).await;
        columns.map_err(|flaw| flaw.at(&self.place.path))
    }

    async fn next_columns(&mut self, steps: &mut [Step]) -> Checked<Option<Vec<ArrayRef>>> {
        let Some(rows) = self.next_rows() else { return Ok(None) };
        let columns = vec![None; self.place.layouts.len()];
        let mut window = Window { rows, chosen: None, columns };
        for step in steps.iter_mut().filter(|step| step.is_worth_it()) {
            let of_step = |part: &Part| part.has_any(&step.places);
            let codes_max = if step.is_of_one_column() { usize::MAX } else { 0 };
            self.read(&mut window, of_step, codes_max).await?;
            if let Some(kept) = step.kept(&window.columns) {
                window.narrow(&kept)?;
            }
            if window.is_empty() {
                let unread = self.parts.iter_mut().filter(|part| !part.is_read(&window));
                unread.for_each(|part| part.skipped += rows);
                return Ok(Some(Vec::new()));
            }
        }
        self.read(&mut window, |_| true, self.codes_max).await?;
        window.finish(self.codes_max).map(Some)
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

    /// Reads what is missing of some parts at once, each column into its place.
    async fn read(
        &mut self,
        window: &mut Window,
        is_asked: impl Fn(&Part) -> bool,
        codes_max: usize,
    ) -> Checked<()> {
        let asked = |part: &&mut Part| is_asked(part) && !part.is_read(window);
        let mut parts: Vec<&mut Part> = self.parts.iter_mut().filter(asked).collect();
        for part in &mut parts {
            part.ask(window.rows, window.chosen.clone(), codes_max).await;
        }
        for part in parts {
            let arrays = part.answer(&self.place).await?;
            for (&at, array) in part.places.iter().zip(arrays) {
                window.columns[at] = Some(array);
            }
        }
        Ok(())
    }
}

impl Part {
    fn here(
        place: &Arc<Place>,
        group: usize,
        places: Vec<usize>,
        sources: &[Source],
    ) -> Checked<Self> {
        let columns = place.columns(group, &places, |at| sources[at].clone())?;
        let reader = Reader::Here { columns, asked: None };
        Ok(Self { places, reader, skipped: 0 })
    }

    fn on_a_thread(place: &Arc<Place>, group: usize, places: Vec<usize>) -> Self {
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
        Self { places, reader: Reader::Thread { requests, answers }, skipped: 0 }
    }

    fn has_any(&self, places: &[usize]) -> bool {
        self.places.iter().any(|place| places.contains(place))
    }

    fn is_read(&self, window: &Window) -> bool {
        self.places.iter().all(|&place| window.columns[place].is_some())
    }

    async fn ask(&mut self, rows: usize, chosen: Option<Arc<[u32]>>, codes_max: usize) {
        let skipped = std::mem::take(&mut self.skipped);
        let request = Request { skipped, rows, chosen, codes_max };
        match &mut self.reader {
            Reader::Here { asked, .. } => *asked = Some(request),
            // A thread that has ended has left an answer that says why.
            Reader::Thread { requests, .. } => drop(requests.send(request).await),
        }
    }

    /// The columns that were asked for.
    async fn answer(&mut self, place: &Place) -> Checked<Vec<ArrayRef>> {
        match &mut self.reader {
            Reader::Here { columns, asked } => match asked.take() {
                Some(request) => place.read(columns, &self.places, &request),
                None => Ok(Vec::new()),
            },
            Reader::Thread { answers, .. } => {
                let answer = answers.recv().await;
                answer.unwrap_or_else(|| Err(Flaw::new("its pages make no sense")))
            }
        }
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
    let mut serving = || {
        let of_file = || Source::File(Arc::clone(&place.file));
        let source = |at| place.kept(group, at).unwrap_or_else(of_file);
        let mut columns = place.columns(group, places, source)?;
        while let Some(request) = asked.blocking_recv() {
            let arrays = place.read(&mut columns, places, &request)?;
            if given.blocking_send(Ok(arrays)).is_err() {
                return Ok(());
            }
        }
        Ok(())
    };
    if let Err(flaw) = serving() {
        let _nobody_asks = given.blocking_send(Err(flaw));
    }
}

/// The columns of each step that no earlier one is about, and all others, in parts of about as many bytes.
fn dealt_out(place: &Place, group: usize, steps: &[Step], by: &By) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..place.layouts.len()).collect();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for step in steps {
        let (of_step, others) = left.into_iter().partition(|at| step.places.contains(at));
        left = others;
        parts.push(of_step);
    }
    let bytes = |at: usize| {
        let chunk = place.metadata.row_group(group).column(place.layouts[at].leaf);
        u64::try_from(chunk.compressed_size()).unwrap_or(0).max(1)
    };
    let count = match by {
        By::Here(_) => 1,
        By::Threads(count) => *count as u64,
    };
    let share = left.iter().map(|&at| bytes(at)).sum::<u64>().div_ceil(count);
    let mut taken = share;
    for at in left {
        if taken >= share {
            parts.push(Vec::new());
            taken = 0;
        }
        taken += bytes(at);
        parts.last_mut().expect("a part was begun above").push(at);
    }
    parts.retain(|part| !part.is_empty());
    parts
}
