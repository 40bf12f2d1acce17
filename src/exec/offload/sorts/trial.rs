//! A device must sort what the host does before a sort is left to it.
//!
//! Once for each device some thousand rows are sorted by codes of either length, all of them and the first few.

use std::sync::Arc;

use arrow::compute::SortOptions;

use super::run::in_order;
use super::{By, Of};
use crate::exec::kernels::selection::Comparison;
use crate::exec::offload::groups::{Asked, Batches, Column, Form, Lies, Run, Term, Values, Width};
use crate::exec::offload::operator::Missing;
use crate::exec::offload::tried::holds;
use crate::exec::offload::{Failed, Queue};
use crate::exec::run::Cancel;
use crate::gpu::{Buffer, Device};

/// More than one block has, and no multiple of what one reads at a time.
const ROWS: usize = 5_003;

/// How many of them are few.
const FEW: usize = 100;

/// Whether a device is to be trusted with sorts; see [`holds`].
pub(crate) fn sorts(device: &Arc<Device>, waits: bool) -> bool {
    let try_out = |device: &Arc<Device>| {
        [(None, false), (Some(FEW), false), (None, true), (Some(FEW), true)].into_iter().all(
            |(fetch, is_wide)| {
                sorted(device, fetch, is_wide).is_ok_and(|found| found == expected(fetch, is_wide))
            },
        )
    };
    holds(device, |trials| &trials.sorts, waits, try_out)
}

/// The keys of a row: one that repeats, of which every fifth is NULL, and a second.
fn row(at: usize) -> (Option<i64>, f64) {
    let number = (at * 7919 % 1009) as i64;
    ((at % 5 != 1).then_some(number), (at * 31 % 257) as f64 - 100.5)
}

/// Rows are kept of which the second is below this.
const BELOW: f64 = 120.0;

fn expected(fetch: Option<usize>, is_wide: bool) -> Vec<u32> {
    let mut rows: Vec<usize> = (0..ROWS).filter(|at| row(*at).1 < BELOW).collect();
    // From the greatest on, NULL before all.
    rows.sort_by(|one, other| {
        let ((one, a), (other, b)) = (row(*one), row(*other));
        let is_null = other.is_none().cmp(&one.is_none());
        let by_number = is_null.then(other.cmp(&one));
        by_number.then(if is_wide { a.total_cmp(&b) } else { std::cmp::Ordering::Equal })
    });
    rows.truncate(fetch.unwrap_or(ROWS));
    rows.into_iter().map(|at| at as u32).collect()
}

fn sorted(device: &Arc<Device>, fetch: Option<usize>, is_wide: bool) -> Result<Vec<u32>, Missing> {
    let cancel = Cancel::default();
    let queue = Queue::new(device, &cancel)?;
    let (mut numbers, mut doubles) = (Vec::new(), Vec::new());
    let mut valid = vec![0_u8; ROWS.div_ceil(8)];
    // A column ends with a whole pack.
    for at in 0..ROWS.next_multiple_of(8) {
        let (number, double) = row(at);
        numbers.extend((number.unwrap_or(0) as u16).to_ne_bytes());
        doubles.extend(double.to_ne_bytes());
        if at < ROWS && number.is_some() {
            valid[at / 8] |= 1 << (at % 8);
        }
    }
    let column = |width, cells, valid: Option<Arc<Buffer>>| {
        let form = Form { width, is_nullable: valid.is_some(), texts: None };
        Lies::There(Column { form, cells, valid })
    };
    let upload = |bytes: &[u8]| Ok::<_, Failed>(Arc::new(queue.stream.upload(bytes, "trial")?));
    let columns = vec![
        column(Width::U16, upload(&numbers)?, Some(upload(&valid)?)),
        column(Width::F64, upload(&doubles)?, None),
    ];
    let [of, most] = [Term::Column(1), Term::Double(BELOW)].map(Box::new);
    let asked = Asked {
        rows: ROWS,
        values: vec![Values::Whole([0, 1008]), Values::Double],
        tables: vec![0; 2],
        conditions: vec![Term::Compare(Comparison::Less, of, most)],
        ..Asked::default()
    };
    let by = |of, descending| By { of, options: SortOptions { descending, nulls_first: true } };
    let mut all = vec![by(Of::Whole(Term::Column(0)), true)];
    if is_wide {
        all.push(by(Of::Real(1), false));
    }
    let rows = Batches::new(ROWS, (columns, &asked.tables), false);
    let run = Run { asked: &asked, queue, rows, places: Vec::new(), waits: true };
    in_order(&run, &all, fetch)
}
