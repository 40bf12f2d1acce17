//! Which device runs what was planned for one, chosen when it starts: only then is it known what is kept where and what is under way.
//!
//! Enters: an offload, or an aggregation or a sort of rows, and which devices may be used. Leaves: one of them. Not here: how one is chosen
//! among others (`gpu::assign`), and whether any is worth it (`planner`).
//!
//! The planner has not known which it will be: it counted by one of them. So what only some devices do, to decompose or to multiply in
//! less than the type of the cells, is asked of the chosen one here, and where that fails its trial, another is chosen.

use std::sync::Arc;

use super::groups::{expected_bytes, owner, places_bytes};
use super::operator::{Choice, Work};
use super::{Failed, decomposes, finds_eigenvalues, kept, known, multiplies, taken};
use crate::config::GpuDevices;
use crate::exec::operation::Operation;
use crate::exec::program::{Offload, Program, Step};
use crate::gpu::{Arithmetic, Assigned, Device, Piece, assign};

/// The device for steps.
pub(in crate::exec) fn for_steps(
    program: &Program,
    offload: &Offload,
    among: &GpuDevices,
) -> Result<Assigned, Failed> {
    let decomposed = evaluates(&offload.steps, |of| taken(of).is_some());
    let has_spectra = evaluates(&offload.steps, |of| matches!(of, Operation::ComplexEigen));
    let products = offload.steps.iter().flat_map(Step::products);
    let less: Vec<Arithmetic> =
        products.filter_map(|(_, made)| program.notes[made].arithmetic).collect();
    let can = |device: &Arc<Device>| {
        (!decomposed || decomposes(device))
            && (!has_spectra || finds_eigenvalues(device))
            && less.iter().all(|&less| multiplies(device, less))
    };
    let bringing = |device: &Arc<Device>| {
        let absent = offload.keeps.iter().map(|(_, stored)| &stored.matrix);
        let absent = absent.filter(|matrix| !kept::is_there(device, *matrix));
        absent.map(|matrix| matrix.size_bytes()).sum::<usize>() as f64 / device.rates().upload
    };
    let piece = Piece { seconds: offload.seconds[0], bytes: offload.peak_bytes as usize };
    one_of(assign(known(among), piece, bringing, can))
}

/// The device for an aggregation or a sort.
pub(super) fn for_work(
    work: &dyn Work,
    choice: &Choice,
    among: &GpuDevices,
) -> Result<Assigned, Failed> {
    let asked = work.asked();
    let bringing = |device: &Arc<Device>| {
        let columns = asked.columns.iter().zip(&asked.values);
        let absent = columns.filter(|(column, _)| !kept::is_there(device, *column));
        let columns = absent.map(|(of, values)| expected_bytes(of.rows(), *values, of.nulls() > 0));
        let absent = asked.joins.iter();
        let absent = absent.filter(|join| !kept::is_there(device, owner(asked, join)));
        let places = absent.map(|join| places_bytes(asked, join));
        columns.chain(places).sum::<usize>() as f64 / device.rates().upload
    };
    let piece = Piece { seconds: choice.device_seconds, bytes: choice.held_bytes };
    let can = |device: &Arc<Device>| work.is_right_on(device, choice.waits);
    one_of(assign(known(among), piece, bringing, can))
}

fn one_of(assigned: Option<Assigned>) -> Result<Assigned, Failed> {
    assigned.ok_or_else(|| Failed::Unfit("it was lost".into()))
}

/// Whether steps, or those of their rounds, evaluate such an operation.
pub(crate) fn evaluates(steps: &[Step], is_one: fn(&Operation) -> bool) -> bool {
    steps.iter().any(|step| match step {
        Step::Evaluate { operation, .. } => is_one(operation),
        Step::Iterate(iterated) => {
            let rounds = [Some(&iterated.step), iterated.until.as_ref()];
            rounds.into_iter().flatten().any(|round| evaluates(&round.steps, is_one))
        }
        _ => false,
    })
}
