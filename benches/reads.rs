//! Ways to read what is not in memory: by one thread, by others beside it, asked for ahead, and by a ring of the system's
//! (io_uring).
//!
//! Pages of 256 KiB are read back from one file, as those put aside under a memory limit are, with 0.2 ms of work on each; and
//! small files are read whole, as those of a folder of Parquet files. Printed is what is waited beside the work, the
//! medians of three, and the processor time. Files are in the system's temporary directory, or in the one that `TMPDIR` names.

#[cfg(target_os = "linux")]
fn main() {
    measures::pages("in order", |_| ());
    measures::pages("random", |places| places.shuffle(&mut measures::random()));
    measures::small_files();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the page cache is given up on Linux alone");
}

#[cfg(target_os = "linux")]
use rand::seq::SliceRandom;

#[cfg(target_os = "linux")]
mod measures {
    use std::fs::File;
    use std::hint::black_box;
    use std::os::fd::{AsRawFd, RawFd};
    use std::os::unix::fs::FileExt;
    use std::sync::mpsc::sync_channel;
    use std::time::{Duration, Instant};

    use io_uring::{IoUring, opcode, types};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use rustix::fs::{Advice, fadvise};

    const PAGES: usize = 4096;
    const PAGE_BYTES: usize = 256 << 10;
    const PAGES_AHEAD: usize = 8;

    const FILES: usize = 5000;
    const FILE_BYTES: usize = 9000;
    /// A megabyte of them.
    const FILES_TOGETHER: usize = (1 << 20) / FILE_BYTES;
    const THREADS: usize = 32;

    /// What a reader does with a page before it wants the next: an aggregation passes some 1.3 GB/s.
    const WORK: Duration = Duration::from_micros(200);

    pub(super) fn random() -> SmallRng {
        SmallRng::seed_from_u64(1)
    }

    fn give_up_cache(file: &File) {
        file.sync_data().unwrap();
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
    }

    fn work(bytes: &[u8]) {
        black_box(bytes.iter().step_by(64).fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        let began = Instant::now();
        while began.elapsed() < WORK {
            std::hint::spin_loop();
        }
    }

    fn median(mut of: Vec<f64>) -> f64 {
        of.sort_by(f64::total_cmp);
        of[of.len() / 2]
    }

    /// User and system time of this process.
    fn cpu_seconds() -> f64 {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap();
        let after = text.rsplit_once(')').unwrap().1;
        let ticks = after.split_whitespace().skip(11).take(2);
        ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
    }

    /// The time that something takes, and that of processors, after `before`.
    fn timed(before: impl Fn(), mut of: impl FnMut()) -> (f64, f64) {
        let once = |_| {
            before();
            let (began, cpu) = (Instant::now(), cpu_seconds());
            of();
            (began.elapsed().as_secs_f64(), cpu_seconds() - cpu)
        };
        let (times, cpu): (Vec<_>, Vec<_>) = (0..3).map(once).unzip();
        (median(times), median(cpu))
    }

    /// Reads parts of files by a ring, as many under way at once as there are blocks of memory.
    fn by_ring(
        ring: &mut IoUring,
        parts: &[(RawFd, u64)],
        memory: &mut [Vec<u8>],
        work: impl Fn(&[u8]),
    ) {
        let mut left = parts.iter();
        let mut submit = |ring: &mut IoUring, slot: usize, memory: &mut Vec<u8>| {
            let Some(&(file, at)) = left.next() else { return 0 };
            let bytes = u32::try_from(memory.len()).unwrap();
            let read = opcode::Read::new(types::Fd(file), memory.as_mut_ptr(), bytes).offset(at);
            // SAFETY: the memory of a slot outlives the ring's work on it, and is left alone until that is done.
            unsafe { ring.submission().push(&read.build().user_data(slot as u64)).unwrap() };
            1
        };
        let mut under_way = 0;
        for (slot, memory) in memory.iter_mut().enumerate() {
            under_way += submit(ring, slot, memory);
        }
        while under_way > 0 {
            ring.submit_and_wait(1).unwrap();
            let done = ring.completion().map(|done| (done.user_data() as usize, done.result()));
            for (slot, count) in done.collect::<Vec<_>>() {
                work(&memory[slot][..usize::try_from(count).expect("it is read")]);
                under_way -= 1;
                under_way += submit(ring, slot, &mut memory[slot]);
            }
        }
    }

    pub(super) fn pages(order: &str, arrange: impl Fn(&mut Vec<u64>)) {
        let file = tempfile::tempfile().unwrap();
        let mut page = vec![0_u8; PAGE_BYTES];
        random().fill(&mut page[..]);
        let mut places: Vec<u64> = (0..PAGES).map(|at| (at * PAGE_BYTES) as u64).collect();
        places.iter().for_each(|&at| file.write_all_at(&page, at).unwrap());
        arrange(&mut places);

        let cold = || give_up_cache(&file);
        let total_work = PAGES as f64 * WORK.as_secs_f64();
        let tell = |by: &str, (time, cpu): (f64, f64)| {
            let (waited, cpu) = (time - total_work, cpu - total_work);
            println!(
                "1 GiB of pages, {order}, {by}: {waited:.2} s beside the work, {cpu:.2} s of CPU"
            );
        };
        tell(
            "by one thread",
            timed(cold, || {
                for &at in &places {
                    file.read_exact_at(&mut page, at).unwrap();
                    work(&page);
                }
            }),
        );
        tell(
            "by a thread that is eight ahead",
            timed(cold, || {
                let (to, pages) = sync_channel::<Vec<u8>>(PAGES_AHEAD);
                let (back, used) = sync_channel::<Vec<u8>>(2 * PAGES_AHEAD);
                (0..2 * PAGES_AHEAD).for_each(|_| back.send(vec![0; PAGE_BYTES]).unwrap());
                std::thread::scope(|scope| {
                    let (file, places) = (&file, &places);
                    scope.spawn(move || {
                        for &at in places {
                            let mut page = used.recv().unwrap();
                            file.read_exact_at(&mut page, at).unwrap();
                            to.send(page).unwrap();
                        }
                    });
                    for page in pages {
                        work(&page);
                        // The reader is at its end where nobody takes it.
                        let _ = back.send(page);
                    }
                });
            }),
        );
        let mut ring = IoUring::new(PAGES_AHEAD as u32).unwrap();
        let mut memory = vec![vec![0; PAGE_BYTES]; PAGES_AHEAD];
        let parts: Vec<_> = places.iter().map(|&at| (file.as_raw_fd(), at)).collect();
        tell("by a ring of eight", timed(cold, || by_ring(&mut ring, &parts, &mut memory, work)));
    }

    pub(super) fn small_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |at: usize| folder.path().join(at.to_string());
        let mut bytes = vec![0_u8; FILE_BYTES];
        random().fill(&mut bytes[..]);
        (0..FILES).for_each(|at| std::fs::write(path(at), &bytes).unwrap());

        let open = |at: usize| File::open(path(at)).unwrap();
        let cold = || (0..FILES).for_each(|at| give_up_cache(&open(at)));
        let tell = |by: &str, mut read: Box<dyn FnMut() + '_>| {
            let ((warm, _), (time, cpu)) = (timed(|| (), &mut read), timed(cold, &mut read));
            println!(
                "5000 files of 9 kB, {by}: {time:.3} s, {cpu:.2} s of CPU; {warm:.3} s where all are in memory"
            );
        };
        tell(
            "by one thread",
            Box::new(|| (0..FILES).for_each(|at| open(at).read_exact_at(&mut bytes, 0).unwrap())),
        );
        tell(
            "by one thread that asks for a megabyte at a time",
            Box::new(|| {
                for first in (0..FILES).step_by(FILES_TOGETHER) {
                    let together = first..FILES.min(first + FILES_TOGETHER);
                    for at in together.clone() {
                        fadvise(open(at), 0, None, Advice::WillNeed).unwrap();
                    }
                    together.for_each(|at| open(at).read_exact_at(&mut bytes, 0).unwrap());
                }
            }),
        );
        tell(
            "by 32 threads",
            Box::new(|| {
                std::thread::scope(|scope| {
                    for first in 0..THREADS {
                        scope.spawn(move || {
                            let mut bytes = vec![0_u8; FILE_BYTES];
                            let own = (first..FILES).step_by(THREADS);
                            own.for_each(|at| open(at).read_exact_at(&mut bytes, 0).unwrap());
                        });
                    }
                });
            }),
        );
        let mut ring = IoUring::new(FILES_TOGETHER as u32).unwrap();
        let mut memory = vec![vec![0; FILE_BYTES]; FILES_TOGETHER];
        tell(
            "by a ring, a megabyte at a time",
            Box::new(|| {
                for first in (0..FILES).step_by(FILES_TOGETHER) {
                    let files: Vec<File> =
                        (first..FILES.min(first + FILES_TOGETHER)).map(open).collect();
                    let parts: Vec<_> = files.iter().map(|file| (file.as_raw_fd(), 0)).collect();
                    by_ring(&mut ring, &parts, &mut memory, |bytes| {
                        black_box(bytes);
                    });
                }
            }),
        );
    }
}
