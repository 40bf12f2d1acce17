//! Products of two sparse matrices on a device, whose result is sparse and with the host.
//!
//! ```text
//! row of a ─ pairs of cells that meet ─ sorted by column ─ added up     a block for each row of up to 2048 pairs,
//!            in shared memory           and then as they came           or for many short ones
//! counts ─ the host adds them up ─ rows close up ─ download
//! ```
//!
//! Cells have the bits of the host, which adds in the order of the columns of `a`: tables that threads add to in any order would not. Longer
//! rows are the host's, which makes them meanwhile; where a cell is not finite, all of them are, for it meets cells that are not stored.

use super::loops::THREADS;
use super::sparse::{Rows, Sparse};
use super::{Failed, Queue};
use crate::exec::evaluate::settled;
use crate::exec::kernels::Real;
use crate::exec::kernels::sparse::{finite_pairs, gather_rows, product};
use crate::gpu::{Argument, Buffer, Work};
use crate::matrix::{Cells, Csr, Element, Shape, Storage};

pub(super) const TEXT: &str = include_str!("../../../kernels/pairs.cu");

/// Pairs of a block, and those that the shortest rows are given room for: what the kernel says, and four of its threads.
const SLOTS: usize = 2048;
const SLOTS_MIN: usize = 32;

/// Threads that copy a row.
const LANES: usize = 32;

/// The rows of a product, but for those that have no pairs.
struct Lengths {
    /// For each room that rows are given, in powers of two, how many have so many pairs.
    counts: Vec<(usize, usize)>,
    /// All of these, one room after the other.
    rows: Vec<u32>,
    /// Those of the host.
    long: Vec<usize>,
}

impl Lengths {
    /// By how many pairs come before each row.
    fn of(before: &[u64]) -> Self {
        let rooms = (SLOTS / SLOTS_MIN).ilog2() as usize + 1;
        let mut by_room = vec![Vec::new(); rooms];
        let mut long = Vec::new();
        for (row, ends) in before.windows(2).enumerate() {
            match (ends[1] - ends[0]) as usize {
                0 => {}
                pairs if pairs > SLOTS => long.push(row),
                pairs => {
                    let room = pairs.next_power_of_two().max(SLOTS_MIN) / SLOTS_MIN;
                    by_room[room.ilog2() as usize].push(row as u32);
                }
            }
        }
        let room = |at: usize| SLOTS_MIN << at;
        let counts = by_room.iter().enumerate().map(|(at, rows)| (room(at), rows.len())).collect();
        Self { counts, rows: by_room.concat(), long }
    }
}

impl Queue<'_> {
    /// `a @ b`, sparse unless it has filled up.
    pub(super) fn product_of_sparse(
        &self,
        [a, b]: [&Sparse; 2],
        [left, right]: [&Cells; 2],
    ) -> Result<Cells, Failed> {
        let both = [self.brought(a, left, false)?, self.brought(b, right, false)?];
        let found = match (left, right) {
            (Cells::F64(Storage::Csr(x)), Cells::F64(Storage::Csr(y))) => {
                settled(self.added(x, y, both)?)
            }
            (Cells::F32(Storage::Csr(x)), Cells::F32(Storage::Csr(y))) => {
                settled(self.added(x, y, both)?)
            }
            _ => return Err(Failed::Unfit("sparse matrices of two types".into())),
        };
        found.cells().map_err(Failed::Stopped)
    }

    fn added<T: Real>(
        &self,
        x: &Csr<T>,
        y: &Csr<T>,
        [left, right]: [&Rows; 2],
    ) -> Result<Csr<T>, Failed> {
        let shape = Shape::new(x.shape().rows, y.shape().columns);
        let is_counted = [shape.rows, shape.columns].iter().all(|&side| side < u32::MAX as usize);
        if x.shape().columns != y.shape().rows || !is_counted {
            return Err(Failed::Unfit("sizes that do not fit".into()));
        }
        let refused = || Failed::Refused("cells that are not finite".into());
        let before: Vec<u64> =
            finite_pairs(x, y).ok_or_else(refused)?.into_iter().map(|pairs| pairs as u64).collect();
        let Lengths { counts: lengths, rows, long } = Lengths::of(&before);
        if rows.is_empty() {
            return Ok(product(x, y, self.cancel.stop()));
        }
        let pairs = before[shape.rows] as usize;
        let columns = self.room_for::<u32>(pairs)?;
        let values = self.room_for::<T>(pairs)?;
        let counts = self.room_for::<u32>(shape.rows)?;
        self.stream.clear(&counts)?;
        let before = self.bring_all(&before)?;
        let [add, close_up] = match T::ELEMENT {
            Element::Float64 => ["add_pairs_f64", "close_up_f64"],
            Element::Float32 => ["add_pairs_f32", "close_up_f32"],
        };
        let mut first = 0;
        for (slots, count) in lengths.into_iter().filter(|(_, count)| *count > 0) {
            let rows = self.bring_all(&rows[first..first + count])?;
            first += count;
            let mut arguments = [&columns, &values, &counts, &rows].map(Argument::Buffer).to_vec();
            arguments.extend([Argument::U64(count as u64), Argument::U32(slots as u32)]);
            let given = [&before].into_iter().chain(left.buffers()).chain(right.buffers());
            arguments.extend(given.map(Argument::Buffer));
            let blocks = count.div_ceil(SLOTS / slots);
            self.launch(TEXT, add, Work::Threads((blocks * THREADS) as u64), &arguments)?;
        }
        let by_host = product(&gather_rows(x, &long), y, self.cancel.stop());
        self.cancel.check().map_err(Failed::Stopped)?;
        let mut stored = vec![0_u32; shape.rows];
        self.back(&counts, &mut stored)?;
        for (at, &row) in long.iter().enumerate() {
            stored[row] = by_host.row(at).0.len() as u32;
        }
        let ends = stored.iter().scan(0, |end, &count| {
            *end += i64::from(count);
            Some(*end)
        });
        let offsets: Vec<i64> = [0].into_iter().chain(ends).collect();
        let all = offsets[shape.rows] as usize;
        let (out_columns, out_values) = (self.room_for::<u32>(all)?, self.room_for::<T>(all)?);
        let places = self.bring_all(&offsets)?;
        let buffers = [&out_columns, &out_values, &columns, &values, &counts, &before, &places];
        let mut arguments = buffers.map(Argument::Buffer).to_vec();
        arguments.push(Argument::U64(shape.rows as u64));
        self.launch(TEXT, close_up, Work::Threads((shape.rows * LANES) as u64), &arguments)?;
        let (mut columns, mut values) = (vec![0_u32; all], vec![T::ZERO; all]);
        self.back(&out_columns, &mut columns)?;
        self.back(&out_values, &mut values)?;
        for (at, &row) in long.iter().enumerate() {
            let place = offsets[row] as usize..offsets[row + 1] as usize;
            let (own_columns, own_values) = by_host.row(at);
            columns[place.clone()].copy_from_slice(own_columns);
            values[place].copy_from_slice(own_values);
        }
        Ok(Csr::new(shape, offsets.into(), columns.into(), values.into()))
    }

    fn room_for<T>(&self, count: usize) -> Result<Buffer, Failed> {
        let bytes = count * size_of::<T>();
        self.with_room(bytes, || self.stream.alloc(bytes, "a product of sparse matrices"))
    }

    fn bring_all<T: bytemuck::Pod>(&self, all: &[T]) -> Result<Buffer, Failed> {
        self.bring(bytemuck::cast_slice(all), "rows of sparse matrices")
    }
}
