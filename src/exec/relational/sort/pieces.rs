//! Runs merged piece by piece.
//!
//! Enters: sorted runs. Leaves: pieces, each of the least keys that are left, which threads sort at once. Of every
//! block the last key is known, so a piece is cut before it is read: its blocks are those that end first, and of each
//! run's next block the keys below that cut. Within a piece the runs' parts are sorted already; a merge sort that looks
//! for such parts only merges them.
//!
//! Source: Knuth, *The Art of Computer Programming*, vol. 3, 2nd ed., §5.4.6, on forecasting.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use futures::{Stream, StreamExt, stream};

use super::gather::Runs;
use super::runs::{BLOCK_KEYS, Reader, Run};
use crate::error::{Error, ErrorKind};
use crate::exec::relational::cells::Key;

/// What is left of some runs.
pub(super) struct Pieces<K> {
    runs: Arc<Runs<K>>,
    sources: Vec<Source<K>>,
    /// The last key of the next block of each source that has one.
    ahead: BinaryHeap<Reverse<(K, usize)>>,
    /// Keys of a piece, about.
    piece_keys: usize,
    /// Keys that are asked for.
    left: usize,
}

struct Source<K> {
    reader: Option<Reader<K>>,
    held_bytes: usize,
    lasts: Vec<K>,
    count: usize,
    /// Keys that were handed out, and those that the piece that is being cut will have.
    taken: usize,
    upto: usize,
}

impl<K: Key> Source<K> {
    fn new(run: Run<K>) -> Result<Self> {
        let held_bytes = match &run {
            Run::Held(keys) => keys.capacity() * size_of::<K>(),
            Run::Written(_) => 0,
        };
        let (lasts, count) = (run.lasts(), run.count());
        let reader = Some(Reader::new(run)?);
        Ok(Self { reader, held_bytes, lasts, count, taken: 0, upto: 0 })
    }

    /// The last key of the block that follows.
    fn next_last(&self) -> Option<K> {
        (self.upto < self.count).then(|| self.lasts[self.upto / BLOCK_KEYS])
    }

    /// The end of the block that follows.
    fn block_end(&self) -> usize {
        ((self.upto / BLOCK_KEYS + 1) * BLOCK_KEYS).min(self.count)
    }
}

impl<K: Key> Pieces<K> {
    /// # Errors
    /// Where a file cannot be opened.
    pub(super) fn new(runs: Arc<Runs<K>>, of: Vec<Run<K>>, piece_keys: usize) -> Result<Self> {
        let sources = of.into_iter().map(Source::new).collect::<Result<Vec<_>>>()?;
        let ahead = sources.iter().enumerate();
        let ahead = ahead.filter_map(|(at, source)| Some(Reverse((source.next_last()?, at))));
        let left = runs.fetch.unwrap_or(usize::MAX);
        Ok(Self { ahead: ahead.collect(), runs, sources, piece_keys, left })
    }

    /// The first so many of the keys.
    pub(super) fn limited(mut self, count: usize) -> Self {
        self.left = self.left.min(count);
        self
    }

    /// The next piece, not yet in order.
    async fn next(&mut self) -> Result<Option<Piece<K>>> {
        let mut count = 0;
        let mut cut = None;
        while count < self.piece_keys && self.left > 0 {
            let Some(Reverse((last, at))) = self.ahead.pop() else { break };
            let source = &mut self.sources[at];
            let end = source.block_end();
            count += end - source.upto;
            source.upto = end;
            cut = Some(last);
            self.ahead.extend(source.next_last().map(|last| Reverse((last, at))));
        }
        let Some(cut) = cut else { return Ok(None) };
        let mut keys = Vec::with_capacity(count + self.sources.len() * BLOCK_KEYS / 2);
        for source in &mut self.sources {
            let whole = source.upto - source.taken;
            let more = source.upto < source.count;
            let within = if more { source.block_end() - source.upto } else { 0 };
            let Some(reader) = &mut source.reader else { continue };
            let below = reader.take(whole, within, cut, &mut keys).await?;
            source.upto += below;
            source.taken = source.upto;
            if source.taken == source.count {
                source.reader = None;
                self.runs.memory.shrink(source.held_bytes);
            }
        }
        let asked = keys.len().min(self.left);
        self.left -= asked;
        Ok(Some(Piece { keys, asked }))
    }

    /// What is made of each piece, in order, so many of them at once.
    pub(super) fn made<R: Send + 'static>(
        self,
        at_once: usize,
        make: impl Fn(&[K]) -> Result<R> + Send + Sync + 'static,
    ) -> impl Stream<Item = Result<R>> + Send {
        let make = Arc::new(make);
        let pieces = stream::try_unfold(self, |mut pieces| async {
            Ok(pieces.next().await?.map(|piece| (piece, pieces)))
        });
        let tasks = pieces.map(move |piece: Result<Piece<K>>| {
            let make = Arc::clone(&make);
            let task = piece.map(|piece| SpawnedTask::spawn(async move { make(&piece.sorted()) }));
            async move {
                let made = task?.join_unwind().await;
                made.map_err(|stopped| Error::from(ErrorKind::Internal(stopped.to_string())))?
            }
        });
        tasks.buffered(at_once)
    }
}

/// Keys that no key of a later piece is below.
struct Piece<K> {
    keys: Vec<K>,
    /// How many of the least are asked for.
    asked: usize,
}

impl<K: Key> Piece<K> {
    fn sorted(mut self) -> Vec<K> {
        self.keys.sort();
        self.keys.truncate(self.asked);
        self.keys
    }
}
