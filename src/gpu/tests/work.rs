//! What copies, products and streams do where nothing fails.

use super::*;
use crate::anew;

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

/// What a stream brought is freed by the only one that read it, so that what it brings next does not wait for that.
#[test]
fn who_brings_does_not_wait_for_who_reads() {
    with_stand_in("work::who_brings_does_not_wait_for_who_reads", &[], |device, stand_in| {
        let kernel = device.kernel(&scale()).unwrap();
        let (link, work) = (device.stream().unwrap(), device.stream().unwrap());
        let halved = |x: &Buffer| {
            let out = work.copy(x).unwrap();
            let half =
                [Argument::Buffer(&out), Argument::F64(0.5), Argument::F64(0.0), Argument::U32(16)];
            work.launch(&kernel, BY_OCCUPANCY, &half).unwrap();
            out
        };
        let counters = ["up_beside", "up_behind", "down_beside", "down_behind"];
        counters.into_iter().for_each(|name| stand_in.set(name, 0));
        let first = link.upload(&bytes_of(&[2.0; 16]), "first").unwrap();
        let made = halved(&first);
        // Read again, it is not waited for again.
        let waits = stand_in.get("waits");
        drop(halved(&first));
        drop(first);
        let second = link.upload(&bytes_of(&[6.0; 16]), "second").unwrap();
        let counted = ["waits", "up_beside", "up_behind"].map(|name| stand_in.get(name));
        assert_eq!(counted, [waits, 1, 0]);
        // A mark is before what is queued after it, and so is what was shared there.
        made.share();
        let mut mark = work.new_mark().unwrap();
        work.mark(&mut mark).unwrap();
        let last = halved(&second);
        drop(work.copy(&made).unwrap());
        let back = device.stream().unwrap();
        back.wait(&mark).unwrap();
        back.finish(None).unwrap();
        let mut got = vec![0; 128];
        back.download(&made, &mut got).unwrap();
        assert_eq!(numbers_of(&got), [1.0; 16]);
        assert_eq!(["down_beside", "down_behind"].map(|name| stand_in.get(name)), [1, 0]);
        work.download(&last, &mut got).unwrap();
        assert_eq!(numbers_of(&got), [3.0; 16]);
        drop((made, second, last));
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
        let folder = anew::user_folder().unwrap();
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

/// Each factorization of one small matrix, by its definition; and none of what has no room.
#[test]
fn factors_are_those_of_their_definition() {
    with_stand_in("work::factors_are_those_of_their_definition", &[], |device, stand_in| {
        assert_factors(&device.stream().unwrap());
        device.trim().unwrap();
        assert_eq!((device.live(), stand_in.live()), (vec![], 0));
    });

    fn assert_factors(stream: &Stream) {
        // Symmetric and positive definite, so the same by rows and by columns.
        let cells = [4.0, 2.0, 1.0, 2.0, 5.0, 3.0, 1.0, 3.0, 6.0];
        let bring = |numbers: &[f64]| stream.upload(&bytes_of(numbers), "a matrix").unwrap();
        let read = |buffer: &Buffer| {
            let mut bytes = vec![0; buffer.bytes()];
            stream.download(buffer, &mut bytes).unwrap();
            numbers_of(&bytes)
        };
        let square = |buffer| Columns { buffer, arithmetic: Arithmetic::F64, rows: 3, columns: 3 };
        // `t(left)·right`, all column after column.
        let cross = |left: &[f64], right: &[f64]| -> Vec<f64> {
            let cell =
                |at: usize| (0..3).map(|k| left[at % 3 * 3 + k] * right[at / 3 * 3 + k]).sum();
            (0..9).map(cell).collect()
        };
        let assert_near = |found: &[f64], expected: &[f64]| {
            let is_near = found.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-12);
            assert!(is_near && found.len() == expected.len(), "{found:?} {expected:?}");
        };
        let scaled = |columns: &[f64], by: &[f64]| -> Vec<f64> {
            columns.iter().enumerate().map(|(at, x)| x * by[at / 3]).collect()
        };
        let turned = |x: &[f64]| -> Vec<f64> { (0..9).map(|at| x[at % 3 * 3 + at / 3]).collect() };

        let (a, pivots) = (bring(&cells), stream.alloc(24, "pivots").unwrap());
        assert_eq!(stream.factor_lu(square(&a), &pivots), Ok(0));
        let b = bring(&cells);
        stream.solve_lu(square(&a), &pivots, false, square(&b)).unwrap();
        let identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        assert_near(&read(&b), &identity);

        let a = bring(&cells);
        assert_eq!(stream.factor_cholesky(square(&a)), Ok(0));
        let mut u = read(&a);
        (u[1], u[2], u[5]) = (0.0, 0.0, 0.0);
        assert_near(&cross(&u, &u), &cells);

        let (a, scales) = (bring(&cells), stream.alloc(24, "scales").unwrap());
        stream.factor_qr(square(&a), &scales).unwrap();
        let mut r = read(&a);
        (r[1], r[2], r[5]) = (0.0, 0.0, 0.0);
        stream.orthogonal(square(&a), &scales).unwrap();
        let q = read(&a);
        assert_near(&cross(&q, &q), &identity);
        assert_near(&cross(&turned(&q), &r), &cells);

        let (a, values) = (bring(&cells), stream.alloc(24, "values").unwrap());
        assert_eq!(stream.eigen(square(&a), &values), Ok(0));
        let (v, values) = (turned(&read(&a)), read(&values));
        assert!(values.is_sorted());
        assert_near(&cross(&turned(&scaled(&turned(&v), &values)), &v), &cells);

        let (a, u, v) = (bring(&cells), bring(&cells), bring(&cells));
        let s = stream.alloc(24, "values").unwrap();
        assert_eq!(stream.svd(square(&a), square(&u), &s, square(&v)), Ok((0, 0.0)));
        let (u, s, v) = (read(&u), read(&s), read(&v));
        assert!(s.is_sorted_by(|x, y| x >= y));
        assert_near(&cross(&turned(&scaled(&u, &s)), &turned(&v)), &cells);

        // No pivot, no positive minor, no room.
        let (zeros, short) = (bring(&[0.0; 9]), bring(&[0.0; 2]));
        assert_eq!(stream.factor_cholesky(square(&zeros)), Ok(1));
        assert_eq!(stream.factor_lu(square(&zeros), &pivots), Ok(1));
        let fault = |call| Err::<i32, _>(Fault::Misuse { call, code: 1 });
        assert_eq!(stream.factor_lu(square(&short), &pivots), fault("an LU factorization"));
        assert_eq!(stream.factor_lu(square(&zeros), &short), fault("an LU factorization"));
        assert_eq!(stream.eigen(square(&zeros), &short), fault("eigenvalues"));
    }
}
