//! Batches on their way to a device, each by one of several ways: it is decoded, brought by a stream of the way's own, and told to who
//! adds it up.
//!
//! ```text
//! way 0    decode 0 │ bring 0  │ decode 2 │ bring 2  │
//! way 1             │ decode 1 │ bring 1  │ decode 3 │ bring 3
//! device                       │ add up 0 │ add up 1 │ add up 2
//! ```
//!
//! Enters: columns, and where they have room. Leaves: batches, in the order in which they have come. Not here: how many there are at a
//! time ([`Pace`]), and what is done with them.
//!
//! A way takes the next rows that nobody has. Where its room is for one batch, it waits for who reads the one before; on the host for
//! no longer than until that is queued.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use arrow::error::ArrowError;
use datafusion::execution::memory_pool::MemoryReservation;

use super::coded::{Coded, Piece};
use super::column::Column;
use super::pace::{Log, Pace};
use crate::exec::offload::{Failed, Queue};
use crate::exec::run::Cancel;
use crate::gpu::{Device, Mark, Stream};

/// Where batches come to.
pub(super) enum Rooms {
    /// Each to its rows.
    Whole(Vec<Column>),
    /// Those of a way to the beginning of its own.
    Each(Vec<Vec<Column>>),
}

/// The rows of a table on their way.
pub(super) struct Pipeline<'a> {
    device: &'a Arc<Device>,
    cancel: &'a Cancel,
    coming: Vec<&'a Coded<'a>>,
    rooms: &'a Rooms,
    rows: usize,
    stretch: usize,
    /// What decoded rows are counted in.
    bytes: &'a MemoryReservation,
    began: Instant,
    state: Mutex<State>,
    /// Whether nobody wants more.
    is_over: AtomicBool,
}

struct State {
    pace: Pace,
    /// The first row that nobody has taken.
    next: usize,
    /// Pipeline that go on.
    going: usize,
    /// Batches that take memory of the host.
    decoded: usize,
    host: Side,
    link: Side,
    /// When the last batch had come, and how long the host and the link had been at work.
    last: (f64, [f64; 2]),
}

/// One of those who work on batches, at one or at several at once.
#[derive(Debug, Default)]
struct Side {
    at_work: usize,
    since: f64,
    seconds: f64,
}

impl Side {
    fn begin(&mut self, now: f64) {
        if self.at_work == 0 {
            self.since = now;
        }
        self.at_work += 1;
    }

    fn end(&mut self, now: f64) {
        self.seconds = self.until(now);
        self.since = now;
        self.at_work -= 1;
    }

    /// How long it has been at work.
    fn until(&self, now: f64) -> f64 {
        self.seconds + if self.at_work > 0 { now - self.since } else { 0.0 }
    }
}

/// Rows that a way has taken, whose memory is counted until this is dropped.
struct Taken<'a> {
    rows: Range<usize>,
    turn: usize,
    of: &'a Pipeline<'a>,
    bytes: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.of.bytes.shrink(self.bytes);
        self.of.state().decoded -= 1;
    }
}

/// What ways tell.
enum Told {
    Come(Come),
    Failed(Failed),
    Ended,
}

/// A batch that has come once a mark is reached.
struct Come {
    rows: Range<usize>,
    way: usize,
    mark: Mark,
}

/// Tells that a way has ended, however it has.
struct End(Sender<Told>);

impl Drop for End {
    fn drop(&mut self) {
        // Where nobody listens any more, nobody waits.
        let _ = self.0.send(Told::Ended);
    }
}

/// Lets ways end with the batch that they have.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(
        (device, cancel): (&'a Arc<Device>, &'a Cancel),
        (coming, rooms): (Vec<&'a Coded<'a>>, &'a Rooms),
        (rows, stretch): (usize, usize),
        (pace, bytes): (Pace, &'a MemoryReservation),
    ) -> Self {
        let (host, link) = (Side::default(), Side::default());
        let last = (0.0, [0.0; 2]);
        let state = State { pace, next: 0, going: 0, decoded: 0, host, link, last };
        Self {
            device,
            cancel,
            coming,
            rooms,
            rows,
            stretch,
            bytes,
            began: Instant::now(),
            state: Mutex::new(state),
            is_over: AtomicBool::new(false),
        }
    }

    /// Has `launch` called for all rows, with the way that they have come; what it queues is behind their coming.
    pub(super) fn each(
        &self,
        queue: &Queue<'_>,
        mut launch: impl FnMut(Range<usize>, usize) -> Result<(), Failed>,
    ) -> Result<Log, Failed> {
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            // These end where this does, and so whoever waits for them.
            let (_over, mut reads) = (Over(&self.is_over), Vec::new());
            let mut ended = 0;
            loop {
                while let Some(first) = self.opened()? {
                    let (read, is_read) = mpsc::channel();
                    let (way, end) = (reads.len(), End(tell.clone()));
                    let go = move || {
                        let gone = self.go(way, first, (&end.0, &is_read));
                        gone.unwrap_or_else(|failed| drop(end.0.send(Told::Failed(failed))));
                    };
                    let named = thread::Builder::new().name("relatrix-way".to_owned());
                    let opened = named.spawn_scoped(scope, go);
                    opened.map_err(|error| Failed::Unfit(format!("no thread: {error}")))?;
                    reads.push(read);
                }
                if ended == reads.len() {
                    return Ok(self.state().pace.log);
                }
                match told.recv() {
                    Ok(Told::Come(Come { rows, way, mark })) => {
                        queue.stream.wait(&mark)?;
                        launch(rows, way)?;
                        if let Rooms::Each(_) = self.rooms {
                            let mut behind = queue.stream.new_mark()?;
                            queue.stream.mark(&mut behind)?;
                            // A way that has ended brings nothing there.
                            let _ = reads[way].send(behind);
                        }
                    }
                    Ok(Told::Failed(failed)) => return Err(failed),
                    Ok(Told::Ended) | Err(_) => ended += 1,
                }
            }
        })
    }

    /// Batches by a way, from this one on.
    fn go(
        &self,
        way: usize,
        first: Taken<'_>,
        (tell, is_read): (&Sender<Told>, &Receiver<Mark>),
    ) -> Result<(), Failed> {
        let link = self.device.stream()?;
        let (mut next, mut room_is_free) = (Some(first), true);
        while let Some(taken) = next {
            let pieces = self.at_work(|state| &mut state.host, || self.decoded(&taken.rows))?;
            if !room_is_free {
                match is_read.recv() {
                    Ok(behind) => link.wait(&behind)?,
                    Err(_) => break,
                }
            }
            room_is_free = matches!(self.rooms, Rooms::Whole(_));
            let bring = || self.bring(&link, way, &taken.rows, &pieces);
            self.at_work(|state| &mut state.link, bring)?;
            let mut mark = link.new_mark()?;
            link.mark(&mut mark)?;
            let rows = taken.rows.clone();
            self.came(&taken);
            // What was decoded is with the device, or with what it copies from.
            drop((pieces, taken));
            if tell.send(Told::Come(Come { rows, way, mark })).is_err() {
                break;
            }
            next = self.following()?;
        }
        Ok(link.finish(Some(self.cancel.flag()))?)
    }

    /// These rows of what comes.
    fn decoded(&self, rows: &Range<usize>) -> Result<Vec<Piece>, Failed> {
        let pieces = self.coming.iter().map(|of| of.piece(rows.clone()));
        Ok(pieces.collect::<Result<_, ArrowError>>()?)
    }

    /// Queues their way to where they have room.
    fn bring(
        &self,
        link: &Stream,
        way: usize,
        rows: &Range<usize>,
        pieces: &[Piece],
    ) -> Result<(), Failed> {
        let (columns, first) = self.room(way, rows);
        for (column, piece) in columns.iter().zip(pieces) {
            link.write(&column.cells, first * column.form.width.bytes(), &piece.cells)?;
            if let (Some(to), Some(valid)) = (&column.valid, &piece.valid) {
                link.write(to, first / 8, valid)?;
            }
        }
        Ok(())
    }

    /// What there is of the columns where a way brings these rows, and the row that it begins with.
    pub(super) fn room(&self, way: usize, rows: &Range<usize>) -> (&'a [Column], usize) {
        match self.rooms {
            Rooms::Whole(columns) => (columns, rows.start),
            Rooms::Each(rooms) => (&rooms[way], 0),
        }
    }

    /// What a way begins with that is opened now; nothing where there is to be none.
    fn opened(&self) -> Result<Option<Taken<'_>>, Failed> {
        let mut state = self.state();
        if state.going == state.pace.streams() {
            return Ok(None);
        }
        let taken = self.take(&mut state)?;
        if taken.is_some() {
            state.going += 1;
            state.pace.log.streams = state.going.max(state.pace.log.streams);
        }
        Ok(taken)
    }

    /// What a way goes on with; nothing where it ends.
    fn following(&self) -> Result<Option<Taken<'_>>, Failed> {
        let mut state = self.state();
        let is_one_too_many = state.going > state.pace.streams();
        let taken = if is_one_too_many { None } else { self.take(&mut state)? };
        state.going -= usize::from(taken.is_none());
        Ok(taken)
    }

    /// Rows that nobody has, as many as have room in the host's memory; nothing where there are none, or others have all memory.
    fn take<'b>(&'b self, state: &mut State) -> Result<Option<Taken<'b>>, Failed> {
        loop {
            self.cancel.check().map_err(Failed::Stopped)?;
            if state.next == self.rows || self.is_over.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let end = state.next + state.pace.stretches() * self.stretch;
            let rows = state.next..end.min(self.rows);
            let bytes = self.coming.iter().map(|of| of.piece_bytes(rows.len())).sum();
            match self.bytes.try_grow(bytes) {
                Ok(()) => {
                    (state.next, state.decoded) = (rows.end, state.decoded + 1);
                    return Ok(Some(Taken { rows, turn: state.pace.turn(), of: self, bytes }));
                }
                Err(_) if state.pace.halve() => {}
                Err(_) if state.decoded > 0 => {
                    state.pace.limit_streams(state.decoded);
                    return Ok(None);
                }
                Err(refused) => return Err(refused.into()),
            }
        }
    }

    /// Counts a batch that was brought.
    fn came(&self, taken: &Taken<'_>) {
        let (mut state, now) = (self.state(), self.now());
        let all = [&state.host, &state.link].map(|side| side.until(now));
        let (then, before) = std::mem::replace(&mut state.last, (now, all));
        let busy = [all[0] - before[0], all[1] - before[1]];
        state.pace.took(taken.turn, taken.rows.len(), busy, now - then);
    }

    /// Does what a side is at work with meanwhile.
    fn at_work<T>(&self, side: fn(&mut State) -> &mut Side, work: impl FnOnce() -> T) -> T {
        side(&mut self.state()).begin(self.now());
        let done = work();
        side(&mut self.state()).end(self.now());
        done
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Side;

    #[test]
    fn a_side_is_at_work_while_anybody_is() {
        let mut side = Side::default();
        side.begin(1.0);
        side.begin(2.0);
        assert_eq!(side.until(2.5), 1.5);
        side.end(3.0);
        assert_eq!(side.until(4.0), 3.0);
        side.end(5.0);
        assert_eq!(side.until(9.0), 4.0);
        side.begin(9.0);
        side.end(9.5);
        assert_eq!(side.until(10.0), 4.5);
    }
}
