//! What tiers cost, measured: `cargo test --release --lib -- --ignored --nocapture --test-threads 1 measures`.
//!
//! Files are in the system's temporary directory, or in the one that `TMPDIR` names. Before each reading that is
//! called cold, the page cache gives up the file.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::execution::spill_file::SpillFile;
use futures::StreamExt;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};

use super::faults::Fault;
use super::spill::Spilled;
use super::{Block, Disk, Pool, PoolLimits};
use crate::config::{Compression, Directory};

const PAGE_BYTES: usize = 256 << 10;

/// What a reader does with a page before it wants the next: an aggregation passes some 1.3 GB/s.
const WORK: Duration = Duration::from_micros(200);

fn disk(compression: Compression) -> Arc<Disk> {
    let path = std::env::temp_dir();
    let disk = Disk::new(vec![Directory { compression, ..Directory::at(path) }]);
    disk.set_ahead(64 << 20, 8);
    disk
}

fn give_up_cache(file: &File) {
    file.sync_data().unwrap();
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

/// Touches all lines of bytes, and then takes as long as work on them does.
fn work(bytes: &[u8]) {
    black_box(bytes.iter().step_by(64).fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
    let began = Instant::now();
    while began.elapsed() < WORK {
        std::hint::spin_loop();
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn seconds(of: impl FnOnce()) -> f64 {
    let began = Instant::now();
    of();
    began.elapsed().as_secs_f64()
}

/// A page of numbers that repeat now and then, as those of tables do.
fn page(rng: &mut SmallRng) -> Vec<u8> {
    (0..PAGE_BYTES / 8).flat_map(|_| rng.random_range(0..1_000_000_u64).to_le_bytes()).collect()
}

#[test]
#[ignore = "a measurement"]
fn pages_to_a_disk_and_back() {
    const PAGES: usize = 2000;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let names = [Compression::None, Compression::Lz4, Compression::Zstd(3)];
    let slow = Fault::SlowReads(Duration::from_millis(1));
    let cases = names.map(|of| (of, None)).into_iter().chain([(names[1], Some(slow))]);
    for (compression, fault) in cases {
        let disk = disk(compression);
        let file = Spilled::on(&disk).unwrap();
        let mut writer = file.open_writer().unwrap();
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..PAGES {
            writer.write_all(&page(&mut rng)).unwrap();
        }
        writer.finish().unwrap();
        let written = disk.traffic();
        let cold = || give_up_cache(file.file().file());
        let waits_alone = || {
            cold();
            seconds(|| file.each_page(work).unwrap()) - PAGES as f64 * WORK.as_secs_f64()
        };
        let waits_ahead = || {
            cold();
            seconds(|| {
                runtime.block_on(async {
                    let mut pages = file.read_stream().unwrap();
                    while let Some(page) = pages.next().await {
                        work(&page.unwrap());
                    }
                });
            }) - PAGES as f64 * WORK.as_secs_f64()
        };
        disk.set_fault(fault);
        let (alone, ahead): (Vec<_>, Vec<_>) =
            (0..3).map(|_| (waits_alone(), waits_ahead())).unzip();
        let (alone, ahead) = (median(alone), median(ahead));
        let read = disk.traffic();
        let slowed = if fault.is_some() { ", each 1 ms late" } else { "" };
        println!(
            "spill pages, {compression}{slowed}: written in {:?}, read cold in {:?} (p99); waiting {alone:.3} s, read \
             ahead {ahead:.3} s: {:.0} % hidden; {} of {} asked for ahead",
            written.write_p99,
            read.read_p99,
            100.0 * (1.0 - ahead / alone),
            read.asked_ahead,
            read.pages_read,
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn hints_for_mapped_blocks() {
    const PARTS: usize = 4096;
    const READ: usize = 1024;
    const ROUNDS: usize = 7;
    let disk = disk(Compression::None);
    let limits =
        PoolLimits { idle_bytes: 0, total_bytes: 0, resident_bytes: usize::MAX, poison: false };
    let pool = Pool::on(Arc::clone(&disk), limits);
    let work_here = || {
        pool.serve_this_thread();
        let mut block = Block::in_file(PARTS * PAGE_BYTES).unwrap();
        let file = block.file().unwrap();
        SmallRng::seed_from_u64(2).fill(block.bytes_mut());
        let bytes = block.bytes();
        let mut random: Vec<usize> = (0..PARTS).collect();
        random.shuffle(&mut SmallRng::seed_from_u64(3));
        let orders: [(&str, Vec<usize>); 3] = [
            ("sequential", (0..READ).collect()),
            ("strided", (0..PARTS).step_by(PARTS / READ).collect()),
            ("random", random[..READ].to_vec()),
        ];
        let part = |at: usize| &bytes[at * PAGE_BYTES..(at + 1) * PAGE_BYTES];
        for (name, order) in orders {
            let run = |is_cold: bool, reach: usize| {
                if is_cold {
                    super::done_with(bytes);
                    give_up_cache(&file);
                }
                seconds(|| {
                    for (at, &now) in order.iter().enumerate() {
                        if let Some(&next) = order.get(at + reach).filter(|_| reach > 0) {
                            super::will_need(part(next));
                        }
                        work(part(now));
                    }
                })
            };
            let warm = median((0..ROUNDS).map(|_| run(false, 0)).collect());
            let [alone, one, eight] =
                [0, 1, 8].map(|reach| median((0..ROUNDS).map(|_| run(true, reach)).collect()));
            println!(
                "mapped parts, {name}: stalls and hints take {:.3} s without hints, {:.3} s one part ahead, {:.3} s eight \
                 ahead, beside {warm:.3} s",
                alone - warm,
                one - warm,
                eight - warm,
            );
        }
    };
    std::thread::scope(|scope| scope.spawn(work_here).join().unwrap());
}

#[test]
#[ignore = "a measurement"]
fn blocks_of_the_pool_and_of_the_system() {
    const ROUNDS: u32 = 300;
    let limits = PoolLimits {
        idle_bytes: 1 << 30,
        total_bytes: 1 << 30,
        resident_bytes: usize::MAX,
        poison: false,
    };
    let pool = Pool::new(limits);
    let write = |bytes: &mut [u8]| bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let work = || {
        pool.serve_this_thread();
        for bytes in [1 << 20, 4 << 20, 16 << 20, 64 << 20] {
            let of_pool = |writes: bool| {
                seconds(|| {
                    for _ in 0..ROUNDS {
                        let mut block = Block::new(bytes);
                        if writes {
                            write(block.bytes_mut());
                        }
                        black_box(block.bytes_mut().as_mut_ptr());
                    }
                })
            };
            let of_system = |writes: bool| {
                seconds(|| {
                    for _ in 0..ROUNDS {
                        if writes {
                            let mut memory = vec![0_u8; bytes];
                            write(&mut memory);
                            black_box(memory.as_ptr());
                        } else {
                            black_box(Vec::<u8>::with_capacity(bytes).as_ptr());
                        }
                    }
                })
            };
            let each = |seconds: f64| Duration::from_secs_f64(seconds / f64::from(ROUNDS));
            of_pool(true);
            let (alone, pages) = (of_pool(false), of_pool(true));
            let (system_alone, system_pages) = (of_system(false), of_system(true));
            let writing = pages - alone;
            println!(
                "{} MiB: a block of the pool {:?}; of the system's allocator {:?} untouched, {:?} beside the {:?} of \
                 touching its pages: 1/{:.0} of that",
                bytes >> 20,
                each(alone),
                each(system_alone),
                each(system_pages - writing),
                each(writing),
                (system_pages - writing) / alone,
            );
        }
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    println!("reused: {:.3} of {} blocks", pool.usage().reuse_rate(), pool.usage().blocks);
}

#[test]
#[ignore = "a measurement"]
fn direct_and_buffered_files() {
    const BYTES: usize = 2 << 30;
    for (page_bytes, is_direct, is_cold) in [
        (PAGE_BYTES, false, false),
        (PAGE_BYTES, true, false),
        (PAGE_BYTES, false, true),
        (4 * PAGE_BYTES, true, false),
        (4 * PAGE_BYTES, false, true),
    ] {
        let file = tempfile::tempfile().unwrap();
        if is_direct {
            fcntl_setfl(&file, fcntl_getfl(&file).unwrap() | OFlags::DIRECT).unwrap();
        }
        // Direct transfers want memory that is aligned to the disk's blocks.
        let mut memory = memmap2::MmapMut::map_anon(page_bytes).unwrap();
        SmallRng::seed_from_u64(4).fill(&mut memory[..]);
        let places = || (0..BYTES as u64).step_by(page_bytes);
        let (cached, cpu) = (cached_mib(), cpu_seconds());
        let write = seconds(|| places().for_each(|at| file.write_all_at(&memory, at).unwrap()));
        let (write_cpu, cached) = (cpu_seconds() - cpu, cached_mib() - cached);
        if is_cold {
            give_up_cache(&file);
        }
        let cpu = cpu_seconds();
        let read = seconds(|| places().for_each(|at| file.read_exact_at(&mut memory, at).unwrap()));
        println!(
            "2 GiB by {} KiB, {}{}: written in {write:.2} s ({write_cpu:.2} of CPU, {cached} MiB of page cache), read in \
             {read:.2} s ({:.2} of CPU)",
            page_bytes >> 10,
            if is_direct { "direct" } else { "buffered" },
            if is_cold { ", read cold" } else { "" },
            cpu_seconds() - cpu,
        );
    }
}

fn cached_mib() -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Cached:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<i64>().unwrap() >> 10
}

/// User and system time of this process, in hundredths of a second.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after = text.rsplit_once(')').unwrap().1;
    let fields: Vec<f64> =
        after.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse().unwrap()).collect();
    fields.iter().sum::<f64>() / 100.0
}
