//! The rows of a table as a device goes through them: at once where it has all columns, else batch by batch as they come.
//!
//! ```text
//! columns ─ rooms ─ pipeline ─► batches ─► who adds them up
//!      there ───────────────────┘
//! ```
//!
//! - **Where there is room, columns come whole**, and stay for the next who reads them where they may. Where there is none, two batches
//!   of them have room, one that is read while the other comes. Batches are half as large until there is room for two; where there is
//!   none for the smallest, the host goes on.
//! - **What is found does not depend on batches.** A batch is a number of stretches, and which block of a kernel goes through which rows
//!   of a stretch is decided by the rows of the table alone.
//! - **How they come**, and how many at a time, is found out on the way; see `pipeline` and [`Pace`].

use std::cell::{Cell, OnceCell};
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::memory_pool::MemoryReservation;

use super::coded::Coded;
use super::column::{Column, Form};
use super::pace::{Log, Pace};
use super::pipeline::{Pipeline, Rooms};
use crate::exec::offload::kept::{self, Here};
use crate::exec::offload::{Failed, Queue};
use crate::gpu::{Fault, Stream};

/// Rows of a stretch at least, and stretches of a table at most.
const STRETCH_MIN: usize = 1 << 16;
const STRETCHES_MAX: usize = 128;

/// Bytes of a batch at most, for the host has one for each stream beside its own work.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Batches at least that a table comes in, where it has as many stretches: nobody works while the first is decoded.
const BATCHES_MIN: usize = 8;

/// Streams at most by which they come.
const STREAMS_MAX: usize = 4;

/// Batches that have room where a table has none.
const ROOMS: usize = 2;

/// Rows of a stretch of a table.
pub(crate) fn stretch(rows: usize) -> usize {
    rows.div_ceil(STRETCHES_MAX).next_power_of_two().max(STRETCH_MIN)
}

/// Rows of a table for whose columns there must be room at least.
pub(crate) fn rows_min(rows: usize) -> usize {
    rows.min(ROOMS * stretch(rows))
}

/// The rows of a table, beside columns of those that are joined to it.
pub(in crate::exec::offload) struct Batches<'a> {
    rows: usize,
    columns: Vec<Lies<'a>>,
    /// Of which table each is, the first being that with the rows.
    tables: &'a [usize],
    /// Whether what has come stays for the next who reads it.
    keeps: bool,
    /// What has come whole.
    come: OnceCell<Vec<Column>>,
    log: Cell<Log>,
}

/// Where a column is.
pub(in crate::exec::offload) enum Lies<'a> {
    There(Column),
    /// It comes with the rows of the table.
    Coming(Coded<'a>),
}

impl Lies<'_> {
    pub(super) fn form(&self) -> &Form {
        match self {
            Self::There(column) => &column.form,
            Self::Coming(coded) => &coded.form,
        }
    }
}

/// Some rows of the table.
pub(in crate::exec::offload) struct Batch<'a> {
    pub(super) rows: Range<usize>,
    /// What is there of each column, and the row of that with which the batch begins.
    pub(super) columns: Vec<(&'a Column, usize)>,
}

impl<'a> Batches<'a> {
    /// So many rows, of the first of these tables; what comes is kept where `keeps`.
    pub(in crate::exec::offload) fn new(
        rows: usize,
        (columns, tables): (Vec<Lies<'a>>, &'a [usize]),
        keeps: bool,
    ) -> Self {
        Self { rows, columns, tables, keeps, come: OnceCell::new(), log: Cell::default() }
    }

    pub(super) fn form(&self, column: usize) -> &Form {
        self.columns[column].form()
    }

    /// All rows, where no column is to come, or all have come as a whole.
    pub(in crate::exec::offload) fn all(&self) -> Batch<'_> {
        self.batch(0..self.rows, self.come.get().map_or(&[], Vec::as_slice), 0)
    }

    /// What is done with batches.
    pub(in crate::exec::offload) fn log(&self) -> Log {
        self.log.get()
    }

    /// Bytes of the columns that were not there.
    pub(in crate::exec::offload) fn coming_bytes(&self) -> usize {
        self.bytes_of(self.rows)
    }

    /// Has `launch` called for all rows, as they come.
    pub(super) fn each(
        &self,
        queue: &Queue<'_>,
        bytes: &MemoryReservation,
        mut launch: impl FnMut(&Batch<'_>) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        if self.are_there() {
            return launch(&self.all());
        }
        let home = queue.device.stream()?;
        let rooms = self.rooms(queue, &home)?;
        self.through(queue, rooms, bytes, launch)
    }

    /// Has all rows come as a whole.
    pub(in crate::exec::offload) fn bring(
        &self,
        queue: &Queue<'_>,
        bytes: &MemoryReservation,
    ) -> Result<(), Failed> {
        if self.are_there() {
            return Ok(());
        }
        let home = queue.device.stream()?;
        let room = Rooms::Whole(self.room(queue, &home, self.rows)?);
        self.through(queue, (room, self.stretches_max()), bytes, |_| Ok(()))
    }

    /// The only column, once all of it is there.
    pub(super) fn whole(
        self,
        queue: &Queue<'_>,
        bytes: &MemoryReservation,
    ) -> Result<Column, Failed> {
        self.bring(queue, bytes)?;
        let column = self.come.into_inner().and_then(|mut columns| columns.pop());
        column.ok_or_else(|| Failed::Unfit("a column that did not come".into()))
    }

    /// The same to these rooms, in batches of so many stretches at most.
    fn through(
        &self,
        queue: &Queue<'_>,
        (rooms, stretches): (Rooms, usize),
        bytes: &MemoryReservation,
        mut launch: impl FnMut(&Batch<'_>) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let (began, coming) = (Instant::now(), Vec::from_iter(self.coming()));
        let streams = match &rooms {
            Rooms::Whole(_) => STREAMS_MAX,
            Rooms::Each(rooms) => rooms.len(),
        };
        let pipeline = Pipeline::new(
            (queue.device, queue.cancel),
            (coming, &rooms),
            (self.rows, stretch(self.rows)),
            (Pace::new(stretches, streams), bytes),
        );
        let log = pipeline.each(queue, |rows, way| {
            let (columns, first) = pipeline.room(way, &rows);
            launch(&self.batch(rows, columns, first))
        })?;
        self.log.set(log);
        if let Rooms::Whole(columns) = rooms {
            if self.keeps {
                let each = began.elapsed().as_secs_f64() / self.coming_bytes().max(1) as f64;
                for (coded, column) in self.coming().zip(&columns) {
                    kept::keep(queue.device, coded.of, (Here::Column(column.clone()), each));
                }
            }
            // It is empty, for this is the first time.
            let _ = self.come.set(columns);
        }
        Ok(())
    }

    fn are_there(&self) -> bool {
        self.come.get().is_some() || self.coming().next().is_none()
    }

    fn coming(&self) -> impl Iterator<Item = &Coded<'a>> {
        self.columns.iter().filter_map(|lies| match lies {
            Lies::There(_) => None,
            Lies::Coming(coded) => Some(coded),
        })
    }

    /// Bytes of so many rows of what comes.
    fn bytes_of(&self, rows: usize) -> usize {
        self.coming().flat_map(|coded| coded.form.bytes(rows)).sum()
    }

    /// A batch of which the columns that come are these, and begin with this row of theirs.
    fn batch<'b>(&'b self, rows: Range<usize>, come: &'b [Column], first: usize) -> Batch<'b> {
        let mut come = come.iter();
        let columns = self.columns.iter().zip(self.tables).filter_map(|(lies, table)| match lies {
            Lies::There(column) if *table == 0 => Some((column, rows.start)),
            Lies::There(column) => Some((column, 0)),
            Lies::Coming(_) => come.next().map(|column| (column, first)),
        });
        Batch { columns: columns.collect(), rows }
    }

    /// Stretches of a batch at most.
    fn stretches_max(&self) -> usize {
        let stretch = stretch(self.rows);
        let few = BATCH_BYTES_MAX / self.bytes_of(stretch).max(1);
        few.min(self.rows.div_ceil(stretch).div_ceil(BATCHES_MIN)).max(1)
    }

    /// Room for all rows, or for batches, and of how many stretches these are at most.
    fn rooms(&self, queue: &Queue<'_>, home: &Stream) -> Result<(Rooms, usize), Failed> {
        let mut stretches = self.stretches_max();
        let has_no_room = |failed: &Failed| matches!(failed, Failed::Device(Fault::Memory { .. }));
        if self.bytes_of(self.rows) <= queue.device.memory_limit() {
            match self.room(queue, home, self.rows) {
                Err(failed) if has_no_room(&failed) => {}
                room => return Ok((Rooms::Whole(room?), stretches)),
            }
        }
        loop {
            let room = || self.room(queue, home, stretches * stretch(self.rows));
            let rooms: Result<_, Failed> = iter::repeat_with(room).take(ROOMS).collect();
            match rooms {
                Err(failed) if has_no_room(&failed) && stretches > 1 => stretches /= 2,
                rooms => return Ok((Rooms::Each(rooms?), stretches)),
            }
        }
    }

    /// Room for so many rows of what comes, in memory of a stream that does nothing else.
    fn room(&self, queue: &Queue<'_>, home: &Stream, rows: usize) -> Result<Vec<Column>, Failed> {
        let alloc = |bytes: usize, what: &str| {
            queue.with_room(bytes, || home.alloc(bytes, what)).map(Arc::new)
        };
        let columns = self.coming().map(|coded| {
            let form = coded.form.clone();
            let [cells, valid] = form.bytes(rows);
            let valid = form.is_nullable.then(|| alloc(valid, "what is NULL of a column"));
            let cells = alloc(cells, "a column of a table")?;
            Ok(Column { form, cells, valid: valid.transpose()? })
        });
        columns.collect()
    }
}
