//! A sort of rows that are one number each: the numbers themselves are sorted, and no row is ever moved.
//!
//! Enters: the partitions of a relation of one column of a fixed width. Leaves: its rows in order, as one stream. Rows
//! that are equal are the same bits, so nothing depends on who sorted what.
//!
//! ```text
//! batches ─ gather ─ runs, held or written ─ pieces ─ sorted by threads ─ batches
//! ```

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, RecordBatch, make_array, new_null_array};
use arrow::buffer::Buffer;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use bytemuck::Zeroable;
use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::SpillMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};

use super::gather::{Gather, Runs};
use super::pieces::Pieces;
use super::runs::Writer;
use crate::error::{Error, ErrorKind};
use crate::exec::relational::cells::{Cell, Key, with_cell};

/// Keys of a piece: 1 MiB of 64-bit keys, within a core's cache.
const PIECE_KEYS_MAX: usize = 128 << 10;
const PIECE_KEYS_MIN: usize = 8 << 10;

/// Bytes that reading a file takes: what comes at once, and a block that is not yet taken.
const READ_BYTES: usize = 256 << 10;

/// Files that are merged at once at least.
const FAN_IN_MIN: usize = 8;

/// What is sorted, and how.
pub(super) struct KeySort {
    pub(super) schema: SchemaRef,
    pub(super) options: SortOptions,
    pub(super) fetch: Option<usize>,
    pub(super) context: Arc<TaskContext>,
    pub(super) spills: SpillMetrics,
}

/// Whether cells of this type are sorted as numbers.
pub(super) fn is_key(data_type: &DataType) -> bool {
    with_cell!(data_type, _Cell => ()).is_some()
}

impl KeySort {
    /// The rows of all inputs in order.
    ///
    /// # Errors
    /// A type whose cells are none of those that [`is_key`] names.
    pub(super) fn sorted(
        self,
        inputs: Vec<SendableRecordBatchStream>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(&self.schema);
        let data_type = schema.field(0).data_type();
        with_cell!(data_type, C => self.sorted_as::<C>(inputs)).ok_or_else(|| {
            let message = format!("cells of {data_type} are not sorted as numbers");
            Error::from(ErrorKind::Internal(message)).into()
        })
    }

    fn sorted_as<C: Cell>(
        self,
        inputs: Vec<SendableRecordBatchStream>,
    ) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let batches = stream::once(self.batches::<C>(inputs)).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    /// Gathers all keys; the batches are made as they are asked for.
    async fn batches<C: Cell>(
        self,
        inputs: Vec<SendableRecordBatchStream>,
    ) -> Result<impl Stream<Item = Result<RecordBatch>> + Send> {
        let config = self.context.session_config();
        let threads = config.target_partitions();
        let rows = Arc::new(Rows {
            schema: Arc::clone(&self.schema),
            batch_rows: config.batch_size(),
            flipped: if self.options.descending { !C::Key::zeroed() } else { C::Key::zeroed() },
        });
        let environment = self.context.runtime_env();
        let runs = Runs::new(environment, self.spills.clone(), self.fetch, inputs.len());
        let runs = Arc::new(runs);
        gather::<C>(&runs, rows.flipped, inputs).await?;

        let nulls = std::mem::take(&mut runs.kept().nulls);
        // Of the rows that are asked for, what comes first leaves the rest to the other.
        let fetch = self.fetch.unwrap_or(usize::MAX);
        let first = self.options.nulls_first;
        let others = if first { 0 } else { runs.kept().count() };
        let nulls = nulls.min(fetch.saturating_sub(others));
        let values = if first { fetch - nulls } else { fetch };
        let nulls = stream::iter(Arc::clone(&rows).nulls(nulls));
        let values = merge(&runs, threads)
            .await?
            .limited(values)
            .made(threads + 1, move |keys| rows.batches::<C>(keys))
            .map_ok(|batches| stream::iter(batches).map(Ok))
            .try_flatten();
        Ok(match first {
            true => nulls.chain(values).left_stream(),
            false => values.chain(nulls).right_stream(),
        })
    }
}

/// The keys of all inputs, of several each on a task of its own.
async fn gather<C: Cell>(
    runs: &Arc<Runs<C::Key>>,
    flipped: C::Key,
    inputs: Vec<SendableRecordBatchStream>,
) -> Result<()> {
    let is_one = inputs.len() == 1;
    let gathering = inputs.into_iter().map(|input| {
        let gather = Gather::<C>::new(Arc::clone(runs), flipped).all(input);
        if is_one {
            gather.left_future()
        } else {
            SpawnedTask::spawn(gather).map(done).right_future()
        }
    });
    for gathered in gathering.collect::<Vec<_>>() {
        gathered.await?;
    }
    Ok(())
}

/// What came of a task.
fn done(task: Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    task.map_err(|stopped| Error::from(ErrorKind::Internal(stopped.to_string())))?
}

/// All runs as one sequence of pieces. Runs go to files until there is memory to merge, and where even the files are too
/// many for it, some of them become one.
async fn merge<K: Key>(runs: &Arc<Runs<K>>, threads: usize) -> Result<Pieces<K>> {
    // A piece as it was read, the space to merge in, its batches, and those before that are being read.
    let piece_bytes = |keys: usize| keys * size_of::<K>() * 4 * (threads + 1);
    let affordable = runs.memory.limit_bytes / 16 / piece_bytes(1);
    let piece_keys = affordable.clamp(PIECE_KEYS_MIN, PIECE_KEYS_MAX);
    let piece_keys = piece_keys.min(runs.kept().count().max(1));
    let fan_in = fan_in(runs, piece_bytes(piece_keys))?;
    loop {
        let group = runs.kept().take_beyond(fan_in);
        if group.is_empty() {
            break;
        }
        let pieces = Pieces::new(Arc::clone(runs), group, piece_keys)?;
        let mut writer = Writer::new(&runs.environment, runs.spills.clone())?;
        let mut sorted = Box::pin(pieces.made(threads, |keys| Ok(keys.to_vec())));
        while let Some(keys) = sorted.try_next().await? {
            writer.append(&keys)?;
        }
        let run = writer.finish()?;
        runs.kept().written.push(run);
    }
    let all = runs.kept().take();
    Pieces::new(Arc::clone(runs), all, piece_keys)
}

/// How many files are merged at once, for which memory is taken beside that of the pieces.
fn fan_in<K: Key>(runs: &Runs<K>, pieces_bytes: usize) -> Result<usize> {
    let needed = |files: usize| pieces_bytes + files * READ_BYTES;
    loop {
        let files = runs.kept().written.len();
        if runs.memory.try_grow(needed(files)) {
            return Ok(files);
        }
        if !runs.write_held()? {
            break;
        }
    }
    let mut fan_in = runs.kept().written.len();
    while fan_in > FAN_IN_MIN {
        fan_in = (fan_in - fan_in.div_ceil(8)).max(FAN_IN_MIN);
        if runs.memory.try_grow(needed(fan_in)) {
            return Ok(fan_in);
        }
    }
    runs.memory.grow(needed(FAN_IN_MIN));
    Ok(FAN_IN_MIN)
}

/// How keys become rows again.
struct Rows<K> {
    schema: SchemaRef,
    batch_rows: usize,
    flipped: K,
}

impl<K: Key> Rows<K> {
    fn batches<C: Cell<Key = K>>(&self, keys: &[K]) -> Result<Vec<RecordBatch>> {
        let data_type = self.schema.field(0).data_type();
        let batch = |keys: &[K]| {
            let cells: Vec<C> = keys.iter().map(|&key| C::of(key ^ self.flipped)).collect();
            let data = ArrayData::builder(data_type.clone())
                .len(cells.len())
                .add_buffer(Buffer::from_vec(cells))
                .build()?;
            self.batch(make_array(data))
        };
        keys.chunks(self.batch_rows).map(batch).collect()
    }

    fn batch(&self, column: ArrayRef) -> Result<RecordBatch> {
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), vec![column])?)
    }

    /// So many rows of NULL, made as they are asked for.
    fn nulls(self: Arc<Self>, count: usize) -> impl Iterator<Item = Result<RecordBatch>> {
        let batch_rows = self.batch_rows;
        (0..count).step_by(batch_rows).map(move |at| {
            let rows = batch_rows.min(count - at);
            self.batch(new_null_array(self.schema.field(0).data_type(), rows))
        })
    }
}
