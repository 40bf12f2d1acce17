//! A device must add up by groups what the host does before an aggregation is left to it.
//!
//! Once for each device some thousand rows go through each kind of totals: of few groups in registers, of more in shared memory, of most in
//! the device's. See `offload::trial`, which does so for matrices.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};

use super::batches::{Batches, Lies};
use super::column::{Column, Form, Width};
use super::run::Run;
use super::term::{Term, Values};
use super::{Asked, Join, Key, Shown, State, What};
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::kernels::selection::Comparison;
use crate::exec::offload::tried::holds;
use crate::exec::offload::{Failed, Queue};
use crate::exec::run::Cancel;
use crate::gpu::{Buffer, Device};

/// Beyond what a block reads at a time, and no multiple of it.
const ROWS: usize = 20_001;

/// Of each kind of totals.
const GROUPS: [usize; 3] = [3, 500, 3000];

/// Whether a device is to be trusted with groups; see [`holds`].
pub(crate) fn adds_up(device: &Arc<Device>, waits: bool) -> bool {
    let adds_up = |device: &Arc<Device>| GROUPS.iter().all(|&groups| try_out(device, groups));
    holds(device, |trials| &trials.adds_up, waits, adds_up)
}

fn try_out(device: &Arc<Device>, groups: usize) -> bool {
    groups_of(device, groups).is_ok_and(|found| found == Some(expected(groups)))
}

/// The group and the value of a row, of which every fifth has none, and every seventh no group.
fn row(at: usize, groups: usize) -> (Option<usize>, Option<i64>) {
    let value = (at * 7919 % 10_007) as i64 - 5000;
    ((at % 7 != 2).then_some(at * 31 % groups), (at % 5 != 1).then_some(value))
}

/// The least key of a group; of two numbers that follow it the first is that of the next, and the other nobody's.
const LEAST: i64 = 10;

/// Count, sum and least value of the rows below 4000 of each group.
type Totals = Vec<(i64, i64, i64)>;

fn expected(groups: usize) -> Totals {
    let mut totals = vec![(0, 0, i64::MAX); groups];
    for at in 0..ROWS {
        let (group, value) = row(at, groups);
        if let (Some(group), Some(value)) = (group, value.filter(|value| *value < 4000)) {
            let (count, sum, least) = totals[group];
            totals[group] = (count + 1, sum + value, least.min(value));
        }
    }
    totals
}

/// What a device finds; nothing where that is not as it was asked for.
fn groups_of(device: &Arc<Device>, groups: usize) -> Result<Option<Totals>, Failed> {
    let cancel = Cancel::default();
    let queue = Queue::new(device, &cancel)?;
    let (mut named, mut cells, mut valid) = (Vec::new(), Vec::new(), vec![0_u8; ROWS.div_ceil(8)]);
    // A column ends with a whole pack.
    for at in 0..ROWS.next_multiple_of(8) {
        let (group, value) = row(at, groups);
        named.extend(group.map_or(1, |group| 2 * group as u16).to_ne_bytes());
        cells.extend(((value.unwrap_or(-5000) + 5000) as u16).to_ne_bytes());
        if at < ROWS && value.is_some() {
            valid[at / 8] |= 1 << (at % 8);
        }
    }
    // The groups, from the last to the first.
    let (mut keys, mut codes) = (Vec::new(), Vec::new());
    for at in 0..groups.next_multiple_of(8) {
        let group = groups.saturating_sub(at + 1) as u16;
        keys.extend((2 * group).to_ne_bytes());
        codes.extend(group.to_ne_bytes());
    }
    let upload = |bytes: &[u8]| Ok::<_, Failed>(Arc::new(queue.stream.upload(bytes, "trial")?));
    let names = (0..groups).map(|group| group.to_string());
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(names));
    let column = |cells: &[u8], valid: Option<Arc<Buffer>>, texts| {
        let form = Form { width: Width::U16, is_nullable: valid.is_some(), texts };
        Ok::<_, Failed>(Column { form, cells: upload(cells)?, valid })
    };
    let columns = vec![
        column(&named, None, None)?,
        column(&cells, Some(upload(&valid)?), None)?,
        column(&keys, None, None)?,
        column(&codes, None, Some(texts))?,
    ];
    let key = Values::Whole([LEAST, LEAST + 2 * (groups as i64 - 1)]);
    // By near keys, and by far ones.
    let is_near = groups != GROUPS[1];
    let places = match is_near {
        true => queue.near(groups, key, &columns[2])?,
        false => queue.far(groups, &[(key, &columns[2])])?,
    };
    let value = || Term::Column(1);
    let state = |what, data_type| State { what, of: Some(value()), data_type };
    // In registers and in shared memory of doubles, too: of so few digits that nothing is rounded.
    let is_real = groups != GROUPS[2];
    let sum = match is_real {
        true => Term::Arithmetic(
            BinaryFunction::Multiply,
            Box::new(Term::AsDouble(Box::new(value()))),
            Box::new(Term::Double(1.0)),
        ),
        false => value(),
    };
    let sum_type = if is_real { DataType::Float64 } else { DataType::Int64 };
    let asked = Asked {
        rows: ROWS,
        columns: Vec::new(),
        values: vec![key, Values::Whole([-5000, 5006]), key, Values::Texts],
        tables: vec![0, 0, 1, 1],
        digits: vec![None; 4],
        joins: vec![Join { of: vec![Term::Column(0)], key: vec![2], is_near }],
        look_ups: Vec::new(),
        conditions: vec![Term::Compare(
            Comparison::Less,
            Box::new(value()),
            Box::new(Term::Whole(4000)),
        )],
        keys: vec![Key::Column(3)],
        shown: vec![Shown::Key(0)],
        states: vec![
            state(What::Count, DataType::Int64),
            State { what: What::Sum, of: Some(sum), data_type: sum_type },
            state(What::Least, DataType::Int64),
        ],
    };
    let columns = columns.into_iter().map(Lies::There).collect();
    let rows = Batches::new(ROWS, (columns, &asked.tables), false);
    let run = Run { asked: &asked, queue, rows, places: vec![places], waits: true };
    // A few thousand words, of no statement.
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let bytes = MemoryConsumer::new("trial").register(&pool);
    let Ok(found) = run.groups(&bytes) else { return Ok(None) };
    let [count, sum, least] = &found.states[..] else { return Ok(None) };
    let sums: Vec<i64> = match is_real {
        true => sum.as_primitive::<Float64Type>().values().iter().map(|sum| *sum as i64).collect(),
        false => sum.as_primitive::<Int64Type>().values().to_vec(),
    };
    let mut totals = vec![(0, 0, i64::MAX); groups];
    let names = found.keys[0].as_string::<i32>();
    for (at, sum) in sums.into_iter().enumerate() {
        let Ok(group) = names.value(at).parse::<usize>() else { return Ok(None) };
        let [count, least] = [count, least].map(|of| of.as_primitive::<Int64Type>().value(at));
        totals[group] = (count, sum, least);
    }
    Ok(Some(totals))
}
