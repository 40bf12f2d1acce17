//! What copies, products and streams do where nothing fails.

use super::*;

/// Bytes that differ from block to block: they repeat after a prime number.
fn pattern(bytes: usize) -> Vec<u8> {
    let part: Vec<u8> = (0..65_537_usize).map(|at| (at ^ at >> 8) as u8).collect();
    let mut pattern = part.repeat(bytes / part.len() + 1);
    pattern.truncate(bytes);
    pattern
}

#[test]
fn what_went_up_comes_down() {
    with_stand_in("work::what_went_up_comes_down", &[], |device, stand_in| {
        let facts = device.facts();
        assert_eq!((facts.capability, facts.driver_version), ((9, 0), 13000));
        assert_eq!(
            (facts.libraries.nvrtc.clone(), facts.libraries.cublas.clone()),
            (Ok((0, 1)), Ok(()))
        );
        let stream = device.stream().unwrap();
        for pins in [0, 1] {
            stand_in.set("fail_pins", pins);
            device.trim().unwrap();
            for bytes in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES + 3]
            {
                let sent = pattern(bytes);
                let buffer = stream.upload(&sent, "pattern").unwrap();
                assert_eq!(buffer.bytes(), bytes);
                let copy = stream.copy(&buffer).unwrap();
                drop(buffer);
                let mut got = vec![0; bytes];
                stream.download(&copy, &mut got).unwrap();
                assert!(sent == got, "{bytes}");
                stream.clear(&copy).unwrap();
                stream.download(&copy, &mut got).unwrap();
                assert!(got.iter().all(|&byte| byte == 0), "{bytes}");
                let mut more = vec![0; bytes + 1];
                let refused = stream.download(&copy, &mut more).unwrap_err();
                assert!(matches!(refused, Fault::Misuse { .. }));
            }
        }
        stream.finish(None).unwrap();
        assert_eq!((device.live(), stand_in.live()), (vec![], 0));
        let usage = device.usage();
        assert_eq!((usage.live_bytes, usage.peak_bytes), (0, 2 * (5 * BLOCK_BYTES + 3)));
        let trial = 12;
        assert_eq!((usage.bytes_up - trial) * 2, usage.bytes_down - trial);
    });
}

#[test]
fn many_threads_share_the_blocks() {
    with_stand_in("work::many_threads_share_the_blocks", &[], |device, stand_in| {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let device = &device;
                scope.spawn(move || {
                    let stream = device.stream().unwrap();
                    for round in 0..4 {
                        let sent = pattern(2 * BLOCK_BYTES + 1000 * thread + round);
                        let buffer = stream.upload(&sent, "pattern").unwrap();
                        let mut got = vec![0; sent.len()];
                        stream.download(&buffer, &mut got).unwrap();
                        assert!(sent == got);
                    }
                });
            }
        });
        device.trim().unwrap();
        assert_eq!((device.live(), stand_in.live()), (vec![], 0));
    });
}

const ARITHMETICS: [Arithmetic; 4] =
    [Arithmetic::F64, Arithmetic::F32, Arithmetic::Tf32, Arithmetic::Bf16];

/// A number in bf16, which has room for it.
fn upper_half(x: f64) -> u16 {
    ((x as f32).to_bits() >> 16) as u16
}

/// Of numbers that no arithmetic rounds.
#[test]
fn products_are_those_of_the_formula() {
    with_stand_in("work::products_are_those_of_the_formula", &[], |device, stand_in| {
        let stream = device.stream().unwrap();
        for [m, k, n] in
            [[1, 1, 1], [2, 3, 4], [7, 1, 5], [1, 9, 2], [3, 0, 2], [0, 2, 2], [2, 2, 0]]
        {
            for transposed in [[false, false], [false, true], [true, false], [true, true]] {
                let number = |i: usize, j: usize| (i * 7 + j * 3 % 5) as f64 - 4.0;
                let stored = |rows: usize, columns: usize, is_transposed: bool| -> Vec<f64> {
                    let (r, c) = if is_transposed { (columns, rows) } else { (rows, columns) };
                    let cell = |at| match is_transposed {
                        true => number(at % c, at / c),
                        false => number(at / c, at % c),
                    };
                    (0..r * c).map(cell).collect()
                };
                let a = stored(m, k, transposed[0]);
                let b = stored(k, n, transposed[1]);
                let cell = |at: usize| -> f64 {
                    (0..k).map(|l| number(at / n, l) * number(l, at % n)).sum()
                };
                let expected: Vec<f64> = (0..m * n).map(cell).collect();
                for arithmetic in ARITHMETICS {
                    let product = Product { arithmetic, transposed, m, k, n };
                    let as_bytes = |numbers: &[f64]| match arithmetic.bytes() {
                        8 => bytes_of(numbers),
                        4 => numbers.iter().flat_map(|&x| (x as f32).to_ne_bytes()).collect(),
                        _ => numbers.iter().flat_map(|&x| upper_half(x).to_ne_bytes()).collect(),
                    };
                    let as_numbers = |bytes: &[u8]| match arithmetic.sum_bytes() {
                        8 => numbers_of(bytes),
                        _ => {
                            let number = |x: &[u8; 4]| f64::from(f32::from_ne_bytes(*x));
                            bytes.as_chunks().0.iter().map(number).collect()
                        }
                    };
                    let a = stream.upload(&as_bytes(&a), "a").unwrap();
                    let b = stream.upload(&as_bytes(&b), "b").unwrap();
                    let out = stream.alloc(m * n * arithmetic.sum_bytes(), "out").unwrap();
                    stream.product(product, &a, &b, &out).unwrap();
                    drop((a, b));
                    let mut got = vec![0; out.bytes()];
                    stream.download(&out, &mut got).unwrap();
                    assert_eq!(as_numbers(&got), expected, "{product:?}");
                }
            }
        }
        let short = stream.alloc(8, "short").unwrap();
        let product =
            Product { arithmetic: Arithmetic::F64, transposed: [false; 2], m: 2, k: 1, n: 1 };
        let refused = stream.product(product, &short, &short, &short).unwrap_err();
        assert!(matches!(refused, Fault::Misuse { .. }));
        let vast = Product { m: usize::MAX, ..product };
        assert!(stream.product(vast, &short, &short, &short).is_err());
        drop(short);
        stream.finish(None).unwrap();
        assert_eq!((device.live(), stand_in.live()), (vec![], 0));
    });
}

#[test]
fn streams_wait_for_each_other_where_they_share() {
    with_stand_in("work::streams_wait_for_each_other_where_they_share", &[], |device, stand_in| {
        let kernel = device.kernel(&scale()).unwrap();
        for is_finished in [false, true] {
            let (one, two) = (device.stream().unwrap(), device.stream().unwrap());
            let shared = one.upload(&bytes_of(&[1.0; 16]), "shared").unwrap();
            let arguments = [
                Argument::Buffer(&shared),
                Argument::F64(2.0),
                Argument::F64(1.0),
                Argument::U32(16),
            ];
            one.launch(&kernel, BY_OCCUPANCY, &arguments).unwrap();
            if is_finished {
                one.finish(None).unwrap();
            }
            // What nobody has written is no number.
            let mut got = vec![0; shared.bytes()];
            two.download(&shared, &mut got).unwrap();
            assert_eq!(numbers_of(&got), [3.0; 16]);

            let copy = two.copy(&shared).unwrap();
            drop(shared);
            // What is freed is overwritten; the other stream reads before.
            one.finish(None).unwrap();
            two.download(&copy, &mut got).unwrap();
            assert_eq!(numbers_of(&got), [3.0; 16]);
        }
        device.trim().unwrap();
        assert_eq!((device.live(), stand_in.live()), (vec![], 0));
    });
}

#[test]
fn who_waits_can_be_stopped() {
    with_stand_in("work::who_waits_can_be_stopped", &[], |device, stand_in| {
        let stream = device.stream().unwrap();
        drop(stream.upload(&pattern(100), "pattern").unwrap());
        stand_in.set("never_done", 1);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| stream.finish(Some(&stop)));
            std::thread::sleep(std::time::Duration::from_millis(10));
            assert!(!waiting.is_finished());
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(waiting.join().unwrap(), Err(Fault::Stopped));
        });
        stand_in.set("never_done", 0);
        stream.finish(Some(&AtomicBool::new(false))).unwrap();
        assert_eq!((device.live(), stand_in.live()), (vec![], 0));
    });
}

#[test]
fn rates_are_measured_once() {
    with_stand_in("work::rates_are_measured_once", &[], |device, stand_in| {
        let rates = *device.rates();
        assert_ne!(rates, Rates::default());
        let launches = device.usage().launches;
        assert_eq!(*device.rates(), rates);
        let folder = cache::user_folder().unwrap();
        let file = folder.join(format!("device-{}.txt", device.facts().uuid));
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 13, "{text}");
        let again = Rates::of(&device);
        assert!((again.upload / rates.upload - 1.0).abs() < 0.01);
        assert_eq!(device.usage().launches, launches);
        device.trim().unwrap();
        assert_eq!((device.live(), stand_in.live()), (vec![], 0));
    });
}
