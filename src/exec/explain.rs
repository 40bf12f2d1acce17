//! A program as EXPLAIN shows it: a line for each step with what is expected of its result, and beside
//! it, once it has run, what it turned out to be.

use std::collections::HashMap;
use std::fmt;

use super::multiply::is_a_choice;
use super::program::{BlockStep, Fusion, Offload, Pass, Program, Round, Sink, Slot, Source, Step};
use super::run::Measured;

/// Share by which algebra must change what is expected for it to be worth a line.
const CHANGE_MIN: f64 = 0.01;

/// Writes the steps, each on a line of its own.
pub(super) fn steps(
    program: &Program,
    measured: &HashMap<Slot, Measured>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let [expected, written] = program.seconds;
    if (expected - written).abs() > CHANGE_MIN * written {
        write!(f, "\n    expected {}, as written {}", seconds(expected), seconds(written))?;
        if let Some((text, taken)) = &program.runner_up {
            write!(f, ", next best {} by {text}", seconds(*taken))?;
        }
    }
    if let Some(why) = &program.fallen {
        write!(f, "\n    by the host ({why})")?;
    }
    Writer { program, measured, is_by_host: false }.steps(&program.steps, 1, f)
}

#[derive(Clone, Copy)]
struct Writer<'a> {
    program: &'a Program,
    measured: &'a HashMap<Slot, Measured>,
    /// Whether the host did what was meant for a device, in the type of the cells.
    is_by_host: bool,
}

impl Writer<'_> {
    fn steps(&self, steps: &[Step], depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in steps {
            match step {
                Step::Gather { output, .. } => self.line("gather", *output, depth, f)?,
                Step::Evaluate { operation, output, .. } => {
                    if !operation.is_given() {
                        self.looped("evaluate", *output, depth, f)?;
                    }
                }
                Step::Multiply { output, .. } => {
                    self.line("evaluate", *output, depth, f)?;
                    self.algorithms(*output, depth + 1, f)?;
                }
                Step::Align { output, .. } => self.line("align", *output, depth, f)?,
                Step::Offload(offload) => self.offload(offload, depth, f)?,
                Step::Part { .. } | Step::Release(_) => {}
                Step::Pass(pass) => self.pass(pass, depth, f)?,
                Step::Iterate(rounds) => {
                    self.line("iterate", rounds.output, depth, f)?;
                    self.round("each round", &rounds.step, depth + 1, f)?;
                    if let Some(until) = &rounds.until {
                        self.round("until", until, depth + 1, f)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What a device runs: what is expected of it and of the host, and why it was the host after all.
    fn offload(&self, offload: &Offload, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Offload { steps, leaves, keeps, seconds: [device, host], moved_bytes, .. } = offload;
        let (device, host, moved) = (seconds(*device), seconds(*host), bytes(*moved_bytes));
        write!(f, "\n{:1$}on the GPU: {device}, host {host}, moves {moved}", "", 2 * depth + 2)?;
        for (at, (_, stored)) in keeps.iter().enumerate() {
            write!(f, "{} {}", if at == 0 { ", keeps" } else { "," }, stored.name)?;
        }
        let measured = leaves.last().and_then(|slot| self.measured.get(slot));
        let by_host = measured.and_then(|measured| measured.by_host.as_ref());
        if let Some(why) = by_host {
            write!(f, " (done by the host: {why})")?;
        }
        if let Some(device) = measured.and_then(|measured| measured.on_device) {
            write!(f, " (by GPU {device})")?;
        }
        Self { is_by_host: by_host.is_some(), ..*self }.steps(steps, depth + 1, f)
    }

    fn round(
        &self,
        what: &str,
        round: &Round,
        depth: usize,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        write!(f, "\n{:1$}{what}", "", 2 * depth + 2)?;
        self.steps(&round.steps, depth + 1, f)
    }

    fn pass(&self, pass: &Pass, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |slot: Slot| self.program.notes[slot].text.as_str();
        let read: Vec<&str> = match pass.source {
            Source::Relation { slot, .. } => vec![text(slot)],
            Source::Cut => Vec::new(),
        };
        let read: Vec<&str> =
            read.into_iter().chain(pass.cut.iter().map(|&slot| text(slot))).collect();
        write!(f, "\n{:1$}pass over {2}", "", 2 * depth + 2, read.join(", "))?;
        if let Some(shared) = &pass.shared {
            write!(f, ", {}", fused(shared))?;
        }
        for step in &pass.steps {
            match step {
                BlockStep::Fused { output, .. } => self.looped("compute", *output, depth + 1, f)?,
                BlockStep::Evaluate { output, .. } => {
                    self.line("compute", *output, depth + 1, f)?
                }
            }
        }
        for sink in &pass.sinks {
            match sink {
                Sink::Collect { to, over, .. } => {
                    self.line("keep", *to, depth + 1, f)?;
                    if let Some(over) = over {
                        write!(f, ", over {}", text(*over))?;
                    }
                }
                Sink::Reduce { to, .. } => self.looped("add up", *to, depth + 1, f)?,
                Sink::Cross { to, .. } | Sink::HalfCross { to, .. } | Sink::CountRows { to } => {
                    self.line("add up", *to, depth + 1, f)?
                }
                Sink::Emit { from } => self.line("hand on", *from, depth + 1, f)?,
            }
        }
        Ok(())
    }

    /// The line of a step, which may hold several operations.
    fn looped(
        &self,
        otherwise: &str,
        slot: Slot,
        depth: usize,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        match &self.program.notes[slot].fusion {
            Some(fusion) => self.line(&fused(fusion), slot, depth, f),
            None => self.line(otherwise, slot, depth, f),
        }
    }

    /// By which algorithm a product is made, and which is the next best.
    fn algorithms(&self, slot: Slot, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choice = self.program.notes[slot].product.filter(|&choice| is_a_choice(choice));
        let Some([best, next]) = choice else { return Ok(()) };
        let (taken, else_taken) = (seconds(best.seconds), seconds(next.seconds));
        write!(f, "\n{:1$}product: {best} {taken}, {next} {else_taken}", "", 2 * depth + 2)
    }

    fn line(
        &self,
        what: &str,
        slot: Slot,
        depth: usize,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let note = &self.program.notes[slot];
        write!(
            f,
            "\n{:1$}{what} {2}: {3} {4} {5}, {6:.3} stored, {7}, {8}",
            "",
            2 * depth + 2,
            note.text,
            note.shape,
            note.element,
            note.layout,
            note.density,
            bytes(note.bytes),
            seconds(note.seconds),
        )?;
        if let Some(arithmetic) = note.arithmetic.filter(|_| !self.is_by_host) {
            write!(f, ", in {arithmetic}")?;
        }
        match self.measured.get(&slot) {
            Some(Measured { shape: Some(shape), stored, bytes: held, seconds: taken, .. }) => {
                write!(
                    f,
                    " (measured {shape}, {:.3} stored, {}, {})",
                    *stored as f64 / shape.cells().max(1) as f64,
                    bytes(*held as f64),
                    seconds(*taken),
                )?
            }
            Some(other) => {
                write!(f, " (measured {}, {})", bytes(other.bytes as f64), seconds(other.seconds))?;
            }
            None => {}
        }
        match &note.other_layout {
            Some((layout, taken)) => {
                let (kept, own, other) = (&note.layout, bytes(note.bytes), bytes(*taken));
                write!(f, "\n{:1$}layout: {kept} {own}, {layout} {other}", "", 2 * depth + 4)
            }
            None => Ok(()),
        }
    }
}

/// What is fused, and what for.
pub(super) fn fused(fusion: &Fusion) -> String {
    let Fusion { pattern, operations, saved_bytes, speedup } = fusion;
    format!("fused {pattern} {operations} (saves {}, {speedup:.1}x expected)", bytes(*saved_bytes))
}

pub(super) fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e3 => format!("{bytes:.0} B"),
        bytes if bytes < 1e6 => format!("{:.1} kB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.1} GB", bytes / 1e9),
    }
}

/// A time as EXPLAIN shows it.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1e-3 => format!("{:.1} µs", seconds * 1e6),
        seconds if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}
