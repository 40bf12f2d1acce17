//! What goes wrong with a device, and where there is none.

use super::*;

#[test]
fn a_machine_without_a_driver_says_so() {
    if is_inside("faults::a_machine_without_a_driver_says_so", &[]) {
        let absent = device(None).unwrap_err();
        if absent == Absent::NoDriver {
            assert_eq!(absent.to_string(), "no NVIDIA driver is installed");
        }
        assert_eq!(device(Some("/nowhere".as_ref())).unwrap_err(), absent);
    }
}

#[test]
fn want_of_memory_is_survived_once_and_reported_twice() {
    with_stand_in(
        "faults::want_of_memory_is_survived_once_and_reported_twice",
        &[],
        |device, stand_in| {
            let expected = each_kind(&device).unwrap();
            for nth in 1..=3 {
                stand_in.set("fail_alloc", nth);
                assert_eq!(each_kind(&device).unwrap(), expected);
                assert_eq!(device.usage().trims, nth as u64);
            }
            stand_in.set("fail_allocs", 1);
            let fault = each_kind(&device).unwrap_err();
            assert_eq!(fault, Fault::Memory { bytes: 128 });
            assert_eq!(fault.to_string(), "the device has no room for 128 bytes");
            stand_in.set("fail_allocs", 0);
            assert_eq!(each_kind(&device).unwrap(), expected);
            device.trim().unwrap();
            assert_eq!((device.live(), stand_in.live(), device.lost()), (vec![], 0, None));
        },
    );
}

#[test]
fn a_small_device_frees_what_was_dropped_before_it_refuses() {
    let small = [("STANDIN_memory", "1000000")];
    with_stand_in(
        "faults::a_small_device_frees_what_was_dropped_before_it_refuses",
        &small,
        |device, _| {
            assert_eq!(device.memory_limit(), 900_000);
            let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
            for round in 0..10 {
                // The last one is freed in its queue, which nobody has waited for.
                let stream = if round % 2 == 0 { &stream } else { &other };
                drop(stream.alloc(800_000, "most").unwrap());
            }
            assert_eq!(device.usage().trims, 9);
            let held = stream.alloc(500_000, "half").unwrap();
            assert_eq!(
                stream.alloc(500_000, "half").unwrap_err(),
                Fault::Memory { bytes: 500_000 }
            );
            let [Live { what, bytes: 500_000, place }] = &device.live()[..] else {
                panic!("{:?}", device.live())
            };
            assert_eq!((what.as_str(), place.file()), ("half", file!()));
            device.set_memory_limit(Some(100_000));
            drop(held);
            assert_eq!(stream.alloc(200_000, "x").unwrap_err(), Fault::Memory { bytes: 200_000 });
            // Beyond what the device has, whatever the limit.
            device.set_memory_limit(None);
            assert_eq!(
                stream.alloc(2_000_000, "x").unwrap_err(),
                Fault::Memory { bytes: 2_000_000 }
            );
            assert_eq!(device.live(), []);
        },
    );
}

#[test]
fn a_refused_copy_is_no_loss() {
    with_stand_in("faults::a_refused_copy_is_no_loss", &[], |device, stand_in| {
        let expected = each_kind(&device).unwrap();
        for nth in 1..=2 {
            stand_in.set("refuse_copy", nth);
            let fault = each_kind(&device).unwrap_err();
            assert!(matches!(fault, Fault::Misuse { code: 1, .. }), "{nth}: {fault}");
            assert_eq!((device.live(), device.lost()), (vec![], None));
        }
        assert_eq!(each_kind(&device).unwrap(), expected);
        device.trim().unwrap();
        assert_eq!(stand_in.live(), 0);
    });
}

/// A failure of queued work shows when somebody waits, and then nothing goes any more.
fn a_loss(device: Arc<Device>, stand_in: StandIn) {
    let kept = device.stream().unwrap().upload(&[1; 100], "kept").unwrap();
    each_kind(&device).unwrap();
    let [kind, nth] = ["LOSS_KIND", "LOSS_NTH"].map(|name| std::env::var(name).unwrap());
    stand_in.set(&kind, nth.parse().unwrap());
    assert_eq!(each_kind(&device).unwrap_err(), Fault::Lost { code: 700 }, "{kind} {nth}");
    assert_eq!(device.lost(), Some(700));
    let absent = super::device(None).unwrap_err();
    assert_eq!(absent, Absent::Lost(700));
    let text = "the device was lost: a kernel used an illegal address (error 700 of the driver)";
    assert_eq!(absent.to_string(), text);
    assert_eq!(device.stream().unwrap_err(), Fault::Lost { code: 700 });
    assert_eq!(device.kernel(&scale()).unwrap_err(), Fault::Lost { code: 700 });
    assert_eq!(device.trim().unwrap_err(), Fault::Lost { code: 700 });
    let live = device.live();
    assert!(matches!(&live[..], [Live { what, bytes: 100, .. }] if what == "kept"), "{live:?}");
    let freed = stand_in.live();
    drop(kept);
    assert_eq!((device.live(), stand_in.live()), (vec![], freed), "nothing is freed");
}

#[test]
fn a_failed_copy_loses_the_device() {
    for nth in ["1", "2", "3"] {
        let which = [("LOSS_KIND", "fail_copy"), ("LOSS_NTH", nth)];
        if with_stand_in("faults::a_failed_copy_loses_the_device", &which, a_loss) {
            return;
        }
    }
}

#[test]
fn a_failed_launch_loses_the_device() {
    for nth in ["1", "2"] {
        let which = [("LOSS_KIND", "fail_launch"), ("LOSS_NTH", nth)];
        if with_stand_in("faults::a_failed_launch_loses_the_device", &which, a_loss) {
            return;
        }
    }
}

#[test]
fn a_device_that_does_not_do_says_why() {
    let test = "faults::a_device_that_does_not_do_says_why";
    for (name, value, text) in [
        ("STANDIN_init", "100", "there is no NVIDIA device"),
        (
            "STANDIN_init",
            "803",
            "the NVIDIA driver does not start: the driver and its library are of different \
             versions (error 803 of the driver)",
        ),
        ("STANDIN_init", "77", "the NVIDIA driver does not start: error 77 of the driver"),
        ("STANDIN_devices", "0", "there is no NVIDIA device"),
        (
            "STANDIN_driver",
            "11080",
            "the NVIDIA driver is too old: it is of CUDA 11.8, 12.0 is needed",
        ),
        (
            "STANDIN_capability",
            "61",
            "Stand-in is too old: its compute capability is 6.1, 7.5 is needed",
        ),
        (
            "STANDIN_fail_allocs",
            "1",
            "Stand-in failed its trial: the device has no room for 12 bytes",
        ),
    ] {
        let is_inside = with_folder(test, &[(name, value), ("EXPECTED", text)], |folder| {
            let absent = device(Some(&folder)).unwrap_err();
            assert_eq!(absent.to_string(), std::env::var("EXPECTED").unwrap());
        });
        if is_inside {
            return;
        }
    }
}

#[test]
fn a_driver_alone_copies() {
    let test = "faults::a_driver_alone_copies";
    let Some(folder) = folder("RELATRIX_STANDIN").filter(|_| is_inside(test, &[])) else { return };
    let alone = tempfile::tempdir().unwrap();
    let name = "libcuda.so.1";
    std::fs::copy(folder.join(name), alone.path().join(name)).unwrap();
    let device = device(Some(alone.path())).unwrap();
    let libraries = &device.facts().libraries;
    let stream = device.stream().unwrap();
    let buffer = stream.upload(&[1, 2, 3], "three").unwrap();
    let mut got = [0; 3];
    stream.download(&buffer, &mut got).unwrap();
    assert_eq!(got, [1, 2, 3]);
    if let Err(missing) = &libraries.nvrtc {
        let fault = device.kernel(&scale()).unwrap_err();
        assert_eq!(fault, Fault::Missing(missing.clone()));
        assert_eq!(fault.to_string(), "NVRTC is not installed");
    }
    if let Err(missing) = &libraries.cublas {
        let product =
            Product { arithmetic: Arithmetic::F32, transposed: [false; 2], m: 0, k: 0, n: 0 };
        let fault = stream.product(product, &buffer, &buffer, &buffer).unwrap_err();
        assert_eq!(fault, Fault::Missing(missing.clone()));
    }
    if let Err(missing) = &libraries.cusolver {
        let (arithmetic, rows, columns) = (Arithmetic::F32, 1, 1);
        let a = Columns { buffer: &buffer, arithmetic, rows, columns };
        assert_eq!(stream.factor_cholesky(a).unwrap_err(), Fault::Missing(missing.clone()));
    }
    assert_eq!(device.rates().products64, Rates::default().products64);
}
