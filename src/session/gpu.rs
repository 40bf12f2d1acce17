//! SHOW GPU: whether there is one, what it is, and what it has done.

use std::path::PathBuf;

use super::settings::{Row, table};
use super::{Session, Started, locked};
use crate::config::Gpu;
use crate::error::Result;
use crate::exec::offload::{self, kept};
use crate::exec::{Cancel, blocking};
use crate::gpu::{self, Device, Facts, Missing, Rates, Usage};

/// Buffers that are listed.
const LISTED: usize = 10;

impl Session {
    /// SHOW GPU: looks for it, and measures it, where nobody has.
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
        let look = move || {
            Ok(gpu::device(libraries.as_deref()).map(|device| {
                let (rates, distrust) = (*device.rates(), offload::distrust(&device));
                (device, rates, distrust)
            }))
        };
        match blocking(Cancel::default(), look).await? {
            Ok((device, rates, distrust)) => {
                let state = distrust.map_or("computes what the host computes", |why| why);
                rows.push(row(
                    "trial",
                    state,
                    "",
                    "it is used where it computes what the host computes",
                ));
                rows.extend(facts(device.facts()));
                rows.extend(measured(&rates));
                rows.extend(used(&device));
                rows.extend(shapes.all().map(|(kernel, threads)| {
                    let what = format!("of a block of {kernel}: gpu_launch_shapes");
                    row("launch_shape", threads, "threads", &what)
                }));
            }
            Err(absent) => rows.push(row("absent", absent.to_string(), "", "why there is none")),
        }
        let (failed, why) = self.shared.engine.failures.all();
        rows.push(row("failed", failed, "times", "the host did what was meant for it"));
        if let Some(why) = why {
            rows.push(row("failure", why, "", "the last of them"));
        }
        table(rows)
    }
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

fn used(device: &Device) -> Vec<Row> {
    // First, for those whose matrices are gone are freed now.
    let kept = kept::usage();
    let Usage { live_buffers, live_bytes, peak_bytes, launches, .. } = device.usage();
    let Usage { products, factorizations, compiled, cache_hits, bytes_up, bytes_down, .. } =
        device.usage();
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
    rows.extend(held.map(|live| row("held", live.bytes, "bytes", &live.what)));
    rows
}

fn row(name: &str, value: impl ToString, unit: &'static str, description: &str) -> Row {
    let (name, value) = (name.to_owned(), Some(value.to_string()));
    Row { name, value, unit, description: description.to_owned() }
}
