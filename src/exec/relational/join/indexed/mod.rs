//! A join over a build side in memory, whose rows are found by keys that are equal, or within ends.
//!
//! ```text
//! build side ─ keys ── rows by their keys, or in their order
//!                          │
//! probe side ─ keys ─ found ─ pairs ─ condition ─ columns of both ─ output
//!                                         └ rows of the build side that met one: they leave at the end, or do not
//! ```
//!
//! Rows leave in the order of the probe side, and those that one row meets in the order of the build side, or of its keys.
//! All partitions of the probe side share the build side; the last of them to end makes what leaves for rows of the build
//! side.
//!
//! - `keys`, `ranges`: whom a row meets by equal keys, and within ends
//! - `pairs`, `output`: pairs of rows that meet, and what leaves of them

mod keys;
mod output;
mod pairs;
mod ranges;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::SchemaRef;
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::utils::collect_columns;
use futures::{StreamExt, stream};

pub(super) use self::keys::{Keys, evaluated};
use self::output::{Output, of_build};
use self::pairs::{Found, Pairs, Piece};
use self::ranges::Ranges;
use super::deal::valid_keys;
use super::engine::Measures;
use super::probe::Seen;
use super::spec::{Method, Spec, batch};
use crate::exec::encoded::with_decoded;
use crate::exec::kernels::lookup::ROWS_MAX;
use crate::exec::relational::feed::adapted;

/// Bytes of what is made of so many rows of a build side besides them: the rows by their keys, and a bit for each. More than
/// there is where there are too many rows for that.
pub(super) fn table_bytes(method: &Method, sides: [&SchemaRef; 2], rows: usize) -> usize {
    let index = match method {
        Method::Keys { on, null_equality } if rows <= ROWS_MAX => {
            keys::bytes_max(on, *null_equality, sides, rows)
        }
        Method::Bands(_) if rows <= ROWS_MAX => rows * ranges::ROW_BYTES,
        Method::Keys { .. } | Method::Bands(_) => return usize::MAX / 2,
        Method::Nested => 0,
    };
    index + rows.div_ceil(8)
}

/// The rows of a build side, by what others find them.
pub(super) enum Index {
    Keys(Arc<Keys>),
    Ranges(Ranges),
}

impl Index {
    /// That of a method that has one, made by so many threads.
    ///
    /// # Errors
    /// Where a key cannot be computed.
    pub(super) fn new(spec: &Spec, build: &RecordBatch, threads: usize) -> Result<Option<Self>> {
        match &spec.method {
            Method::Keys { on, null_equality } => {
                let keys = Keys::new(on, *null_equality, build, &spec.sides[1], threads)?;
                Ok(Some(Self::Keys(Arc::new(keys))))
            }
            Method::Bands(bands) => Ok(Some(Self::Ranges(Ranges::new(bands, build)?))),
            Method::Nested => Ok(None),
        }
    }

    /// Whether it is an array over the range of the keys.
    pub(super) fn is_array(&self) -> bool {
        match self {
            Self::Keys(keys) => keys.are_in_array(),
            Self::Ranges(_) => false,
        }
    }

    /// Whether no row of the build side can be met.
    fn is_empty(&self) -> bool {
        match self {
            Self::Keys(keys) => keys.is_empty(),
            Self::Ranges(ranges) => ranges.is_empty(),
        }
    }
}

/// A build side, and how rows of the probe side meet it.
pub(super) struct IndexedJoin {
    spec: Spec,
    build: RecordBatch,
    index: Index,
    /// The columns of the probe side that its keys, or their ends, are computed of.
    of_keys: Vec<usize>,
    /// The rows of the build side that have met one, where that matters in the end.
    met: Option<Met>,
    /// For NOT IN: the rows of the build side whose key is not NULL, and what has been seen of the probe side.
    membership: Option<(Option<NullBuffer>, Seen)>,
    partitions_left: AtomicUsize,
    batch_rows: usize,
    measures: Measures,
}

impl IndexedJoin {
    /// # Errors
    /// Where a key cannot be computed.
    pub(super) fn new(
        spec: &Spec,
        index: Index,
        build: RecordBatch,
        partitions: usize,
        is_null_aware: bool,
        batch_rows: usize,
        measures: Measures,
    ) -> Result<Self> {
        let met = spec.ends_with_build_rows().then(|| Met::new(build.num_rows()));
        let membership = match is_null_aware {
            true => Some((valid_keys(&evaluated(&spec.keys(0), &build)?), Seen::default())),
            false => None,
        };
        let of_keys = spec.probed().iter().flat_map(collect_columns).map(|of| of.index()).collect();
        let (spec, partitions_left) = (spec.clone(), AtomicUsize::new(partitions));
        Ok(Self {
            spec,
            build,
            index,
            of_keys,
            met,
            membership,
            partitions_left,
            batch_rows,
            measures,
        })
    }

    /// What a partition of the probe side joins, whose columns may be encoded: but for keys, those of rows that meet nobody are
    /// never decoded.
    pub(super) fn run(
        self: &Arc<Self>,
        probe: SendableRecordBatchStream,
    ) -> SendableRecordBatchStream {
        let joining = Joining {
            probe: self.is_worth_reading().then_some(probe),
            piece: None,
            pairs: Pairs::default(),
            output: Output::new(&self.spec, self.build.clone(), self.batch_rows),
            rest: None,
            join: Arc::clone(self),
        };
        let rows = stream::try_unfold(joining, |mut joining| async move {
            Ok(joining.next().await?.map(|rows| (rows, joining)))
        });
        adapted(Arc::clone(&self.spec.schema), rows)
    }

    /// The rows of the build side by their keys, where these are to be equal.
    pub(super) fn keys(&self) -> Option<&Arc<Keys>> {
        match &self.index {
            Index::Keys(keys) => Some(keys),
            Index::Ranges(_) => None,
        }
    }

    /// Whether rows of the probe side can change anything.
    fn is_worth_reading(&self) -> bool {
        let meets_none = self.index.is_empty() && self.membership.is_none();
        !(meets_none && self.spec.is_empty_for(0, 1))
    }

    /// Whether it is told of rows only whether they meet anybody.
    fn is_of_one_side(&self) -> bool {
        !matches!(
            self.spec.join_type,
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full
        )
    }

    /// What leaves for these rows of the build side at the end.
    fn last(&self, rows: Vec<u32>, marks: BooleanBuffer) -> Result<RecordBatch> {
        let rows = UInt32Array::from(rows);
        let columns = self.spec.output.iter().enumerate().map(|(at, column)| {
            Ok(match column.side {
                JoinSide::Left => of_build(&self.build, column.index, &rows)?,
                JoinSide::Right => {
                    new_null_array(self.spec.schema.field(at).data_type(), rows.len())
                }
                JoinSide::None => Arc::new(BooleanArray::new(marks.clone(), None)) as ArrayRef,
            })
        });
        batch(&self.spec.schema, columns.collect::<Result<_>>()?, rows.len())
    }

    /// Whether a row of the build side leaves at the end.
    fn leaves(&self, met: &Met, row: usize) -> bool {
        match self.spec.join_type {
            JoinType::LeftMark => true,
            JoinType::LeftSemi => met.has(row),
            _ => {
                // `NULL NOT IN (…)` is unknown unless there is nothing in it.
                let is_known = self.membership.as_ref().is_none_or(|(valid, seen)| {
                    let is_valid = valid.as_ref().is_none_or(|valid| valid.is_valid(row));
                    is_valid || !seen.any_row.load(Ordering::Relaxed)
                });
                !met.has(row) && is_known
            }
        }
    }
}

/// One partition of the probe side while it is joined.
struct Joining {
    join: Arc<IndexedJoin>,
    /// None once all has been read.
    probe: Option<SendableRecordBatchStream>,
    piece: Option<Piece>,
    pairs: Pairs,
    output: Output,
    /// The rows of the build side from this one on are still to leave, or not.
    rest: Option<usize>,
}

impl Joining {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = self.output.next() {
                return Ok(Some(rows));
            }
            let read = match &mut self.probe {
                Some(probe) if self.piece.is_none() => Some(probe.next().await.transpose()?),
                _ => None,
            };
            if !self.advance(read)? {
                return Ok(None);
            }
            // Pairs may be without end, and none of them may leave.
            if self.piece.as_ref().is_some_and(Piece::has_begun) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Goes on by what has been read of the probe side, or without; false once there is nothing left.
    fn advance(&mut self, read: Option<Option<RecordBatch>>) -> Result<bool> {
        let elapsed = self.join.measures.elapsed.clone();
        let _timer = elapsed.timer();
        match read {
            Some(Some(rows)) => self.begin(rows)?,
            Some(None) => self.end()?,
            None if self.piece.is_some() => self.join_piece()?,
            None => return self.leave_rest(),
        }
        Ok(true)
    }

    fn begin(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let rows = with_decoded(rows, &self.join.of_keys, &self.join.spec.sides[1])?;
        if let Some((_, seen)) = &self.join.membership {
            seen.look(&self.join.spec.keys(1), &rows)?;
        }
        let found = match &self.join.index {
            Index::Keys(keys) => {
                Found::ByKeys(keys.find(evaluated(&self.join.spec.keys(1), &rows)?)?)
            }
            Index::Ranges(ranges) => Found::Within(ranges.spans(&rows)?),
        };
        self.piece = Some(Piece::new(rows, found));
        Ok(())
    }

    /// The probe side has been read.
    fn end(&mut self) -> Result<()> {
        self.probe = None;
        self.output.finish()
    }

    fn join_piece(&mut self) -> Result<()> {
        let (join, Some(mut piece)) = (Arc::clone(&self.join), self.piece.take()) else {
            return Ok(());
        };
        let filter = join.spec.filter.as_ref();
        if join.is_of_one_side() && filter.is_none() && self.join_whole(&join, &piece)? {
            join.measures.without_pairs.add(piece.rows.num_rows());
            return Ok(());
        }
        let (build, limit) = (&join.build, join.batch_rows);
        let is_last = piece.pairs(&join.index, filter, build, limit, &mut self.pairs)?;
        if let Some(met) = &join.met {
            for &row in &self.pairs.build {
                met.add(row as usize);
            }
        }
        match join.spec.join_type {
            JoinType::Right | JoinType::Full => piece.with_alone(&mut self.pairs),
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                piece.take_note(&self.pairs);
            }
            _ => {}
        }
        if !join.is_of_one_side() {
            self.output.push_pairs(&piece.rows, &mut self.pairs)?;
        } else if is_last && join.met.is_none() {
            self.push_probe_rows(&piece.rows, piece.met())?;
        }
        if !is_last {
            self.piece = Some(piece);
        }
        Ok(())
    }

    /// A piece of which it is known who meets anybody; false where that is not known without the pairs.
    fn join_whole(&mut self, join: &IndexedJoin, piece: &Piece) -> Result<bool> {
        if let Some(met) = &join.met {
            return Ok(piece.add_met(&join.index, |row| met.add(row as usize)));
        }
        let Some(met) = piece.met_at_once(&join.index) else { return Ok(false) };
        self.push_probe_rows(&piece.rows, met)?;
        Ok(true)
    }

    /// What leaves for rows of the probe side that have met somebody, or not.
    fn push_probe_rows(&mut self, rows: &RecordBatch, met: BooleanBuffer) -> Result<()> {
        match self.join.spec.join_type {
            JoinType::RightMark => {
                let marks = BooleanArray::new(met, None);
                self.output.push(self.join.spec.alone(rows, Some(&marks))?);
                Ok(())
            }
            JoinType::RightAnti => self.output.push_probe_rows(rows, !&met),
            _ => self.output.push_probe_rows(rows, met),
        }
    }

    /// Lets some more rows of the build side leave; false once none is left.
    fn leave_rest(&mut self) -> Result<bool> {
        let join = Arc::clone(&self.join);
        let Some(met) = &join.met else { return Ok(false) };
        let mut row = match self.rest {
            Some(row) => row,
            None if !self.is_last() => join.build.num_rows(),
            None => 0,
        };
        let mut rows = Vec::new();
        while row < join.build.num_rows() && rows.len() < join.batch_rows {
            if join.leaves(met, row) {
                rows.push(row as u32);
            }
            row += 1;
        }
        self.rest = Some(row);
        if rows.is_empty() {
            return Ok(false);
        }
        let marks = BooleanBuffer::collect_bool(rows.len(), |at| met.has(rows[at] as usize));
        self.output.push(join.last(rows, marks)?);
        Ok(true)
    }

    /// Whether all partitions have ended, and something may be said of rows of the build side.
    fn is_last(&self) -> bool {
        let is_last = self.join.partitions_left.fetch_sub(1, Ordering::AcqRel) == 1;
        // Whatever is compared with a NULL among others is not known to be none of them.
        let is_unknown = |(_, seen): &(_, Seen)| seen.any_null.load(Ordering::Relaxed);
        is_last && !self.join.membership.as_ref().is_some_and(is_unknown)
    }
}

/// A bit for each row, set by several threads.
struct Met(Vec<AtomicU64>);

impl Met {
    fn new(rows: usize) -> Self {
        let words = rows.div_ceil(u64::BITS as usize);
        Self(std::iter::repeat_with(|| AtomicU64::new(0)).take(words).collect())
    }

    fn has(&self, row: usize) -> bool {
        let word = self.0[row / u64::BITS as usize].load(Ordering::Relaxed);
        word >> (row % u64::BITS as usize) & 1 == 1
    }

    /// Adds a row; false where it was there.
    fn add(&self, row: usize) -> bool {
        // Most rows that are met again are there: a look costs less than a write that others wait for.
        if self.has(row) {
            return false;
        }
        let bit = 1 << (row % u64::BITS as usize);
        self.0[row / u64::BITS as usize].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}
