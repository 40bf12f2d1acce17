//! From Hessenberg to Schur form: deflation at the end, and sweeps of many shifts where it does not suffice.
//!
//! Source: Braman, Byers and Mathias, *SIAM J. Matrix Anal. Appl.* 23 (2002), 929–973.

use std::ops::Range;

use faer::MatMut;
use faer::reborrow::{Reborrow, ReborrowMut};

use super::super::super::{Real, Stop};
use super::super::Unfinished;
use super::active_from;
use super::deflate::deflate;
use super::window::{Chain, DISTANCE, Shifts, Window, exceptional};

/// Rows of a block that one window holds, and solves alone.
const LEAF: usize = 80;

/// Per cent of a window that must deflate for another one to be tried without a sweep between them.
const ENOUGH: usize = 30;

/// Turns a Hessenberg matrix until it is quasi-triangular, and `z` along with it.
pub(super) fn iterate<T: Real>(
    mut h: MatMut<'_, T>,
    mut z: MatMut<'_, T>,
    rounds_max: usize,
    stop: Stop<'_>,
) -> Result<(), Unfinished> {
    let mut end = h.nrows();
    // Rounds without any deflation.
    let mut idle = 0;
    while end > 0 {
        Unfinished::check(stop)?;
        let start = active_from(h.rb_mut(), end);
        let side = end - start;
        if side <= LEAF {
            if side > 1 {
                let mut window = Window::of(h.rb().submatrix(start, start, side, side));
                window.solve(rounds_max, stop)?;
                window.turn(h.rb_mut(), z.rb_mut(), start, stop);
            }
            (end, idle) = (start, 0);
            continue;
        }
        if idle == rounds_max {
            return Err(Unfinished::NotConverged);
        }
        let wanted = shift_count(side);
        let width = window_width(side, wanted, idle);
        let found = deflate(h.rb_mut(), z.rb_mut(), start..end, width, rounds_max, stop)?;
        end -= found.deflated;
        idle = if found.deflated > 0 { 0 } else { idle + 1 };
        if found.deflated * 100 > ENOUGH * width || end - start <= LEAF {
            continue;
        }
        let mut shifts = found.shifts;
        if idle > 0 && idle.is_multiple_of(6) {
            shifts = vec![exceptional(h.rb(), end)];
        }
        let excess = shifts.len().saturating_sub(wanted / 2);
        sweep(h.rb_mut(), z.rb_mut(), start..end, &shifts[excess..], stop)?;
    }
    Ok(())
}

/// How many shifts serve a block of this side: more make products larger, and each less effective.
fn shift_count(side: usize) -> usize {
    match side {
        0..60 => 4,
        60..150 => 10,
        150..590 => (side as f64 / (side as f64).log2()) as usize / 2 * 2,
        590..3000 => 64,
        3000..6000 => 128,
        _ => 256,
    }
}

/// The side of the window that is looked at for deflation; a larger one where the last ones found nothing.
fn window_width(side: usize, shifts: usize, idle: usize) -> usize {
    let width = if side <= 500 { shifts } else { shifts * 3 / 2 };
    let width = if idle >= 5 { width << (idle - 4).min(8) } else { width };
    width.clamp(4, (side - 1) / 3)
}

/// Chases one bulge for each pair of shifts through a block.
fn sweep<T: Real>(
    mut h: MatMut<'_, T>,
    mut z: MatMut<'_, T>,
    block: Range<usize>,
    shifts: &[Shifts],
    stop: Stop<'_>,
) -> Result<(), Unfinished> {
    let side = block.len();
    let behind = DISTANCE * (shifts.len() - 1);
    // As far as the chain is long: a shorter or a longer way is more work for each row.
    let width = 2 * (behind + DISTANCE + 1).max(24);
    let times = side - 1 + behind;
    let mut time = 0;
    while time < times {
        Unfinished::check(stop)?;
        // The last bulge leaves a cell in the column before its row.
        let top = (time.saturating_sub(behind)).saturating_sub(1);
        let bottom = side.min(top + width);
        let until = if bottom == side { times } else { bottom - 3 };
        let at = block.start + top;
        let height = bottom - top;
        let mut window = Window::of(h.rb().submatrix(at, at, height, height));
        window.chase(Chain {
            shifts,
            block: -(top as isize)..(side - top) as isize,
            times: time as isize..until as isize,
            is_first: true,
        });
        window.turn(h.rb_mut(), z.rb_mut(), at, stop);
        time = until;
    }
    Ok(())
}
