//! How fast a device is: measured once for a user, a device and a driver. Devices of one name are taken to be as fast as the first of them
//! that was measured, so that a machine of eight is not measured eight times.
//!
//! Enters: a device. Leaves: its [`Rates`], from the user's folder or measured in about 0.1 s. Not here: what work costs
//! by them (the planner).
//!
//! ```text
//! relatrix device 3
//! device NVIDIA H200
//! uuid 1b9c…
//! driver 13000
//! upload 2.5e10 B/s
//! …
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::compiler::{Headers, Source};
use super::device::{Device, Facts};
use super::fault::Fault;
use super::kernel::{Launch, Work};
use super::product::{Arithmetic, Product};
use super::stream::Stream;
use crate::anew;

/// First line; another version is another file.
const VERSION: &str = "relatrix device 3";

/// A rate that differs from the built-in one by more is not believed. A stand-in for a device may be that slow.
const FACTOR_MAX: f64 = 1e6;

/// What is measured is made larger until it takes so long that its start does not matter.
const SECONDS_MIN: f64 = 2e-3;

/// Bytes that are copied to and from the device and within it, at first and at most.
const COPIED_BYTES: [usize; 2] = [4 << 20, 64 << 20];
const MOVED_BYTES: [usize; 2] = [4 << 20, 256 << 20];

/// Copies within the device, launches and waits that are measured together.
const MOVES: usize = 8;
const LAUNCHES: u32 = 1000;
const WAITS: u32 = 20;

/// Sides of products, at first and at most.
const SIDES: [usize; 2] = [256, 2048];

/// What a device does in a second, and what it takes to start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    /// Bytes a second from the caller's memory to the device, through staging, and back.
    pub(crate) upload: f64,
    pub(crate) download: f64,
    /// Bytes a second of the device's memory, read and written.
    pub(crate) memory: f64,
    pub(crate) launch_seconds: f64,
    /// From a wait for a few bytes until they are here.
    pub(crate) synchronize_seconds: f64,
    /// Floating-point operations a second in products of `f64`, of `f32`, and of `f32` with rounded factors.
    pub(crate) products64: f64,
    pub(crate) products32: f64,
    pub(crate) products_tf32: f64,
    pub(crate) products_bf16: f64,
}

impl Default for Rates {
    /// Those of a data-centre device on PCIe 4 (H100 and its datasheet, three quarters of it in products; launches
    /// and copies as others have measured). Rounded factors are taken to be no faster, until they are measured.
    fn default() -> Self {
        Self {
            upload: 10e9,
            download: 10e9,
            memory: 2.5e12,
            launch_seconds: 5e-6,
            synchronize_seconds: 15e-6,
            products64: 45e12,
            products32: 45e12,
            products_tf32: 45e12,
            products_bf16: 45e12,
        }
    }
}

impl Rates {
    /// Those of a device of the same name, else from the user's folder, else measured and kept there. What cannot be measured is as built
    /// in.
    pub(super) fn of(device: &Arc<Device>) -> Self {
        static BY_NAME: Mutex<Vec<(String, Rates)>> = Mutex::new(Vec::new());
        let name = &device.facts().name;
        // Who asks meanwhile waits.
        let mut by_name = BY_NAME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = by_name.iter().find(|(known, _)| known == name) {
            return *known;
        }
        let (rates, is_whole) = Self::of_one(device);
        if is_whole {
            by_name.push((name.clone(), rates));
        }
        rates
    }

    /// The rates, and whether all are known.
    fn of_one(device: &Arc<Device>) -> (Self, bool) {
        let file = anew::user_folder().map(|folder| file_in(&folder, device.facts()));
        if let Some(known) = file.as_deref().and_then(|file| read(file, device.facts())) {
            return (known, true);
        }
        let (rates, is_whole) = measured(device);
        if let (Some(file), true) = (file, is_whole) {
            // A folder that cannot be written is no error: the next run measures again.
            let _ = anew::write(&file, text(&rates, device.facts()).as_bytes());
        }
        (rates, is_whole)
    }

    /// Floating-point operations a second in products.
    pub(crate) fn products(&self, arithmetic: Arithmetic) -> f64 {
        match arithmetic {
            Arithmetic::F64 => self.products64,
            Arithmetic::F32 => self.products32,
            Arithmetic::Tf32 => self.products_tf32,
            Arithmetic::Bf16 => self.products_bf16,
        }
    }

    /// Names and units, as in a file.
    fn parts(&mut self) -> [(&'static str, &'static str, &mut f64); 9] {
        [
            ("upload", "B/s", &mut self.upload),
            ("download", "B/s", &mut self.download),
            ("memory", "B/s", &mut self.memory),
            ("launch", "s", &mut self.launch_seconds),
            ("synchronize", "s", &mut self.synchronize_seconds),
            ("products64", "flop/s", &mut self.products64),
            ("products32", "flop/s", &mut self.products32),
            ("products_tf32", "flop/s", &mut self.products_tf32),
            ("products_bf16", "flop/s", &mut self.products_bf16),
        ]
    }
}

fn file_in(folder: &Path, facts: &Facts) -> PathBuf {
    folder.join(format!("device-{}.txt", facts.uuid))
}

fn header(facts: &Facts) -> String {
    let Facts { name, uuid, driver_version, .. } = facts;
    format!("{VERSION}\ndevice {name}\nuuid {uuid}\ndriver {driver_version}\n")
}

fn text(rates: &Rates, facts: &Facts) -> String {
    // To three digits: more would be noise.
    let line = |(name, unit, rate): (&str, &str, &mut f64)| format!("{name} {rate:.2e} {unit}\n");
    header(facts) + &{ *rates }.parts().map(line).concat()
}

/// The rates in a file, if all are there and of this device.
fn read(file: &Path, facts: &Facts) -> Option<Rates> {
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text.strip_prefix(&header(facts))?.lines();
    let mut rates = Rates::default();
    for (name, _, rate) in rates.parts() {
        let mut words = lines.next()?.split_whitespace();
        let value = (words.next()? == name).then_some(words.next()?)?.parse::<f64>().ok()?;
        let is_likely = (1.0 / FACTOR_MAX..FACTOR_MAX).contains(&(value / *rate));
        *rate = is_likely.then_some(value)?;
    }
    Some(rates)
}

/// The rates, and whether all were measured.
fn measured(device: &Arc<Device>) -> (Rates, bool) {
    let mut rates = Rates::default();
    let stream = device.stream();
    let mut is_whole = true;
    let mut keep = |to: &mut f64, measure: &dyn Fn(&Stream) -> Result<f64, Fault>| {
        match stream.as_ref().map_err(Clone::clone).and_then(measure) {
            Ok(rate) if rate.is_finite() && rate > 0.0 => *to = rate,
            // Without a library there are no products, and no rate to wait for.
            Err(Fault::Missing(_)) => {}
            _ => is_whole = false,
        }
    };
    keep(&mut rates.upload, &upload);
    keep(&mut rates.download, &download);
    keep(&mut rates.memory, &memory);
    keep(&mut rates.launch_seconds, &launch);
    keep(&mut rates.synchronize_seconds, &synchronize);
    keep(&mut rates.products64, &|stream| products(stream, Arithmetic::F64));
    keep(&mut rates.products32, &|stream| products(stream, Arithmetic::F32));
    // Where a device does not have them, they are taken to be as fast as those of `f32`.
    [rates.products_tf32, rates.products_bf16] = [rates.products32; 2];
    keep(&mut rates.products_tf32, &|stream| products(stream, Arithmetic::Tf32));
    keep(&mut rates.products_bf16, &|stream| products(stream, Arithmetic::Bf16));
    (rates, is_whole)
}

/// The shorter of two times, after a first that is not counted.
fn seconds(stream: &Stream, mut work: impl FnMut() -> Result<(), Fault>) -> Result<f64, Fault> {
    let mut shortest = f64::INFINITY;
    for round in 0..3 {
        let start = Instant::now();
        work()?;
        stream.finish(None)?;
        if round > 0 {
            shortest = shortest.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(shortest)
}

/// The size that takes long enough, and its time.
fn long_enough(
    [first, most]: [usize; 2],
    mut seconds: impl FnMut(usize) -> Result<f64, Fault>,
) -> Result<(f64, f64), Fault> {
    let mut size = first;
    loop {
        let taken = seconds(size)?;
        if taken >= SECONDS_MIN || size >= most {
            return Ok((size as f64, taken));
        }
        size *= 2;
    }
}

fn upload(stream: &Stream) -> Result<f64, Fault> {
    let (bytes, seconds) = long_enough(COPIED_BYTES, |bytes| {
        let bytes = vec![1; bytes];
        seconds(stream, || stream.upload(&bytes, "rates").map(drop))
    })?;
    Ok(bytes / seconds)
}

fn download(stream: &Stream) -> Result<f64, Fault> {
    let (bytes, seconds) = long_enough(COPIED_BYTES, |bytes| {
        let (buffer, mut bytes) = (stream.alloc(bytes, "rates")?, vec![1; bytes]);
        seconds(stream, || stream.download(&buffer, &mut bytes))
    })?;
    Ok(bytes / seconds)
}

fn memory(stream: &Stream) -> Result<f64, Fault> {
    let (bytes, seconds) = long_enough(MOVED_BYTES, |bytes| {
        let buffer = stream.alloc(bytes, "rates")?;
        seconds(stream, || (0..MOVES).try_for_each(|_| stream.copy(&buffer).map(drop)))
    })?;
    // Each is read and written.
    Ok(2.0 * MOVES as f64 * bytes / seconds)
}

fn launch(stream: &Stream) -> Result<f64, Fault> {
    let text = "extern \"C\" __global__ void nothing() {}\n";
    let source = Source {
        text: text.into(),
        headers: Headers(&[]),
        entry: "nothing".into(),
        contracts: false,
    };
    let kernel = stream.device().kernel(&source)?;
    let one = Launch { work: Work::Blocks(1), block: Some(32), shared_bytes: 0 };
    let all = || (0..LAUNCHES).try_for_each(|_| stream.launch(&kernel, one, &[]));
    Ok(seconds(stream, all)? / f64::from(LAUNCHES))
}

fn synchronize(stream: &Stream) -> Result<f64, Fault> {
    let buffer = stream.upload(&[0; 8], "rates")?;
    let all = || (0..WAITS).try_for_each(|_| stream.download(&buffer, &mut [0; 8]));
    Ok(seconds(stream, all)? / f64::from(WAITS))
}

fn products(stream: &Stream, arithmetic: Arithmetic) -> Result<f64, Fault> {
    let (side, seconds) = long_enough(SIDES, |side| {
        // Numbers between 0 and 1 in both lengths: a device computes faster with zeros.
        let a = stream.upload(&vec![0x3f; side * side * arithmetic.bytes()], "rates")?;
        let out = stream.alloc(side * side * arithmetic.sum_bytes(), "rates")?;
        let product = Product { arithmetic, transposed: [false; 2], m: side, k: side, n: side };
        seconds(stream, || stream.product(product, &a, &a, &out))
    })?;
    Ok(2.0 * side.powi(3) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::library::{Libraries, Missing};

    fn facts() -> Facts {
        let missing = Missing::Library("NVRTC");
        Facts {
            name: "A device".to_owned(),
            uuid: "00ff".to_owned(),
            capability: (9, 0),
            memory_bytes: 1 << 30,
            multiprocessors: 8,
            driver_version: 13000,
            libraries: Libraries {
                nvrtc: Err(missing.clone()),
                cublas: Err(missing.clone()),
                cusolver: Err(missing.clone()),
                eigenvalues: Err(missing),
            },
        }
    }

    #[test]
    fn a_file_holds_the_rates_of_one_device_and_driver() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_in(folder.path(), &facts());
        assert_eq!(read(&file, &facts()), None);
        let mut rates = Rates::default();
        rates.parts().into_iter().for_each(|(_, _, rate)| *rate *= 2.0);
        anew::write(&file, text(&rates, &facts()).as_bytes()).unwrap();
        assert_eq!(read(&file, &facts()), Some(rates));
        assert_eq!(read(&file, &Facts { driver_version: 13010, ..facts() }), None);
        assert_eq!(read(&file, &Facts { uuid: "ff00".to_owned(), ..facts() }), None);
        let good = fs::read_to_string(&file).unwrap();
        let last = good.lines().last().unwrap();
        for bad in [
            good.replace(last, ""),
            good.replace(last, "products_bf16 NaN flop/s"),
            good.replace(last, "products_bf16 1e60 flop/s"),
            good.replace("upload", "download"),
            good.replace("device 3", "device 0"),
            String::new(),
        ] {
            fs::write(&file, &bad).unwrap();
            assert_eq!(read(&file, &facts()), None, "{bad}");
        }
    }
}
