//! SHOW GPU: whether there is one, what it is, and what it has done; where there are several, of each.

use std::path::PathBuf;
use std::sync::Arc;

use super::settings::{Row, table};
use super::{Session, Started, locked};
use crate::config::{Gpu, GpuDevices};
use crate::error::Result;
use crate::exec::offload::{self, kept};
use crate::exec::{Cancel, blocking};
use crate::gpu::{self, Absent, Device, Facts, Missing, Rates, Seen, Usage};

/// Buffers that are listed.
const LISTED: usize = 10;

impl Session {
    /// SHOW GPU: looks for them, and measures them, where nobody has.
    ///
    /// # Errors
    /// None that a user could cause.
    pub(super) async fn show_gpu(&self) -> Result<Started> {
        let settings = locked(&self.settings).clone();
        let mut rows =
            vec![row("gpu", settings.gpu.to_string(), "", "the setting: when it is used")];
        if settings.gpu == Gpu::Off {
            return table(rows);
        }
        let shapes = settings.gpu_launch_shapes;
        let libraries = Some(PathBuf::from(settings.gpu_libraries)).filter(|path| path != "");
        let among = settings.gpu_devices;
        let look = move || Ok(gpu::devices(libraries.as_deref()).map(|all| seen(all, &among)));
        match blocking(Cancel::default(), look).await? {
            Ok(all) => {
                rows.extend(all);
                rows.extend(shapes.all().map(|(kernel, threads)| {
                    let what = format!("of a block of {kernel}: gpu_launch_shapes");
                    row("launch_shape", threads, "threads", &what)
                }));
            }
            Err(absent) => rows.push(absent_row(&absent)),
        }
        let (failed, why) = self.shared.engine.failures.all();
        rows.push(row("failed", failed, "times", "the host did what was meant for it"));
        if let Some(why) = why {
            rows.push(row("failure", why, "", "the last of them"));
        }
        table(rows)
    }
}

/// What is told of each of these devices, one after the other where there are several.
fn seen(all: &[Seen], among: &GpuDevices) -> Vec<Row> {
    let mut rows = Vec::new();
    for seen in all {
        if all.len() > 1 {
            let uuid = seen.facts().map_or_else(|_| String::new(), |facts| facts.uuid.clone());
            let what = format!("its number in gpu_devices, or GPU-{uuid}; what follows is its own");
            rows.push(row("device", seen.ordinal(), "", &what));
        }
        if seen.facts().is_ok() && !offload::is_used(seen, among) {
            rows.push(row("unused", "gpu_devices has others", "", "why it is not used"));
            continue;
        }
        match seen.device() {
            Ok(device) => rows.extend(of_device(&device, all.len() > 1)),
            Err(absent) => rows.push(absent_row(&absent)),
        }
    }
    rows
}

fn absent_row(absent: &Absent) -> Row {
    row("absent", absent.to_string(), "", "why there is none")
}

fn of_device(device: &Arc<Device>, is_one_of_several: bool) -> Vec<Row> {
    let rates = device.rates();
    let state = offload::distrust(device).unwrap_or("computes what the host computes");
    let what = "it is used where it computes what the host computes";
    let mut rows = vec![row("trial", state, "", what)];
    rows.extend(facts(device.facts()));
    rows.extend(measured(rates));
    if is_one_of_several {
        let (pieces, seconds) = device.under_way();
        rows.push(row("under_way", pieces, "pieces", "of work, of this process"));
        rows.push(row("load", format!("{seconds:.2e}"), "s", "expected of them"));
    }
    rows.extend(used(device));
    rows
}

fn facts(facts: &Facts) -> Vec<Row> {
    let (major, minor) = facts.capability;
    let version = facts.driver_version;
    vec![
        row("name", facts.name.clone(), "", "what it is"),
        row("compute_capability", format!("{major}.{minor}"), "", "what its kernels may use"),
        row("memory", facts.memory_bytes, "bytes", "all that it has"),
        row("multiprocessors", facts.multiprocessors, "", "blocks of threads run on one each"),
        row("driver", format!("{}.{}", version / 1000, version % 1000 / 10), "", "its CUDA"),
        row(
            "nvrtc",
            library(facts.libraries.nvrtc.as_ref().err()),
            "",
            "compiles loops; they are the host's without",
        ),
        row(
            "cublas",
            library(facts.libraries.cublas.as_ref().err()),
            "",
            "multiplies; the host does so without",
        ),
        row(
            "cusolver",
            library(facts.libraries.cusolver.as_ref().err()),
            "",
            "solves and decomposes; the host does so without",
        ),
    ]
}

fn library(missing: Option<&Missing>) -> String {
    missing.map_or_else(|| "present".to_owned(), Missing::to_string)
}

fn measured(rates: &Rates) -> Vec<Row> {
    let rate = |name, value: f64, unit, what| row(name, format!("{value:.2e}"), unit, what);
    vec![
        rate("upload", rates.upload, "bytes/s", "from the host"),
        rate("download", rates.download, "bytes/s", "to the host"),
        rate("bandwidth", rates.memory, "bytes/s", "of its memory, read and written"),
        rate("launch", rates.launch_seconds, "s", "of a kernel that does nothing"),
        rate("synchronize", rates.synchronize_seconds, "s", "until the host has a number"),
        rate("products_float64", rates.products64, "flop/s", "of products"),
        rate("products_float32", rates.products32, "flop/s", "of products"),
        rate(
            "products_tf32",
            rates.products_tf32,
            "flop/s",
            "of products, as gpu_precision has it",
        ),
        rate(
            "products_bf16",
            rates.products_bf16,
            "flop/s",
            "of products, as gpu_precision has it",
        ),
    ]
}

fn used(device: &Arc<Device>) -> Vec<Row> {
    // First, for those whose matrices are gone are freed now.
    let kept = kept::usage(device);
    let Usage { live_buffers, live_bytes, peak_bytes, launches, .. } = device.usage();
    let Usage {
        replays,
        unrecorded,
        products,
        factorizations,
        compiled,
        cache_hits,
        bytes_up,
        bytes_down,
        ..
    } = device.usage();
    let mut rows = vec![
        row("memory_limit", device.memory_limit(), "bytes", "gpu_memory_limit of the process"),
        row("buffers", live_buffers, "buffers", "in its memory now"),
        row("buffer_bytes", live_bytes, "bytes", "what they take"),
        row("buffer_bytes_peak", peak_bytes, "bytes", "the most they took at once"),
        row("kept", kept.matrices, "matrices", "that stay for the next who reads them"),
        row("kept_columns", kept.columns, "columns", "of tables in memory, that stay likewise"),
        row("kept_buffers", kept.buffers, "buffers", "of all, those of what is kept"),
        row("kept_bytes", kept.bytes, "bytes", "what they take, until there is no room"),
        row("launches", launches, "kernels", "that were started"),
        row("replays", replays, "rounds", "that were recorded, and started by one call each"),
        row("unrecorded", unrecorded, "iterations", "whose rounds could not be recorded"),
        row("products", products, "products", "that were started"),
        row("factorizations", factorizations, "calls", "of cuSOLVER that were started"),
        row("compiled", compiled, "kernels", "compiled by this process"),
        row("compiled_before", cache_hits, "kernels", "found where an earlier one kept them"),
        row("uploaded", bytes_up, "bytes", "brought from the host"),
        row("downloaded", bytes_down, "bytes", "brought to the host"),
    ];
    // The largest of what is there now.
    let mut live = device.live();
    live.sort_by_key(|live| std::cmp::Reverse(live.bytes));
    let held = live.into_iter().take(LISTED);
    rows.extend(held.map(|live| {
        let what = format!("{}, made by {}", live.what, live.place);
        row("held", live.bytes, "bytes", &what)
    }));
    rows
}

fn row(name: &str, value: impl ToString, unit: &'static str, description: &str) -> Row {
    let (name, value) = (name.to_owned(), Some(value.to_string()));
    Row { name, value, unit, description: description.to_owned() }
}
