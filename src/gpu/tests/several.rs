//! Two devices of one process: whose work is whose.

use super::*;

/// In a process of its own: two devices by the stand-ins, and their faults. True there.
fn with_two(test: &str, work: fn([Arc<Device>; 2], StandIn)) {
    with_folder(test, &[("STANDIN_devices", "2")], |folder| {
        let both = [0, 1].map(|at| devices(Some(&folder)).unwrap()[at].device().unwrap());
        // SAFETY: it is open already.
        let library = unsafe { libloading::Library::new(folder.join("libcuda.so.1")) };
        work(both, StandIn(library.unwrap()));
    });
}

/// Where nobody looks the stand-in does, so that no test of two devices passes by what one would have let through.
#[test]
fn what_is_of_one_device_is_refused_by_another() {
    with_two("several::what_is_of_one_device_is_refused_by_another", |[own, other], stand_in| {
        let expected = each_kind(&own).unwrap();
        assert_eq!(each_kind(&other).unwrap(), expected);
        assert_eq!(stand_in.get("crossed"), 0);
        let (stream, of_other) = (own.stream().unwrap(), other.stream().unwrap());
        let buffer = of_other.upload(&bytes_of(&[1.0; 16]), "a").unwrap();
        let fault = stream.copy(&buffer).unwrap_err();
        assert_eq!(fault, Fault::Misuse { call: "cuStreamWaitEvent", code: 400 });
        of_other.finish(None).unwrap();
        let fault = stream.copy(&buffer).unwrap_err();
        assert_eq!(fault, Fault::Misuse { call: "cuMemcpyDtoDAsync", code: 1 });
        let out = stream.alloc(128, "out").unwrap();
        let product =
            Product { arithmetic: Arithmetic::F64, transposed: [false; 2], m: 4, k: 4, n: 4 };
        let fault = stream.product(product, &buffer, &buffer, &out).unwrap_err();
        assert!(matches!(fault, Fault::Library { library: "cuBLAS", .. }), "{fault}");
        let arguments =
            [Argument::Buffer(&out), Argument::F64(0.5), Argument::F64(1.0), Argument::U32(16)];
        let fault = stream.launch(&other.kernel(&scale()).unwrap(), BY_OCCUPANCY, &arguments);
        assert!(matches!(fault.unwrap_err(), Fault::Misuse { code: 400, .. }));
        assert_eq!(stand_in.get("crossed"), 4);
        assert_eq!([own.lost(), other.lost()], [None, None]);
        // What a kernel follows nobody sees before it does, and that costs its device.
        let arguments =
            [Argument::Buffer(&buffer), Argument::F64(0.5), Argument::F64(1.0), Argument::U32(16)];
        stream.launch(&own.kernel(&scale()).unwrap(), BY_OCCUPANCY, &arguments).unwrap();
        assert_eq!(stream.finish(None).unwrap_err(), Fault::Lost { code: 700 });
        assert_eq!([own.lost(), other.lost()], [Some(700), None]);
        assert_eq!(found().iter().map(|device| device.ordinal()).collect::<Vec<_>>(), [1]);
        assert_eq!(each_kind(&other).unwrap(), expected);
    });
}

/// What would have to be brought to each, in seconds, the work that is under way there, and which is taken.
#[test]
fn work_goes_where_it_is_soonest_done() {
    with_two("several::work_goes_where_it_is_soonest_done", |both, _| {
        let all = || both.to_vec();
        let piece = |seconds| Piece { seconds, bytes: 1 << 20 };
        let bring = |seconds: [f64; 2]| move |of: &Arc<Device>| seconds[of.ordinal()];
        let chosen = |seconds, can: &dyn Fn(&Arc<Device>) -> bool| {
            let assigned = assign(all(), piece(0.5), bring(seconds), can);
            assigned.map(|assigned| assigned.device().ordinal())
        };
        let any = |seconds| chosen(seconds, &|_| true);
        assert_eq!([any([0.0, 0.0]), any([0.0, 1e-6]), any([1e-6, 0.0])], [0, 0, 1].map(Some));
        // Of those that can.
        assert_eq!(chosen([0.0, 1.0], &|device| device.ordinal() == 1), Some(1));
        assert_eq!(chosen([0.0, 0.0], &|_| false), None);
        // Nobody counts whose work has ended.
        assert_eq!(both.each_ref().map(|device| device.under_way()), [(0, 0.0); 2]);
        let first = assign(all(), piece(0.25), bring([0.0; 2]), |_| true).unwrap();
        assert_eq!(both.each_ref().map(|device| device.under_way()), [(1, 0.25), (0, 0.0)]);
        assert_eq!(next(&both).map(|device| device.ordinal()), Some(1));
        // What is there already is worth as long a wait as bringing it takes.
        assert_eq!([any([0.0, 0.24]), any([0.0, 0.26])], [1, 0].map(Some));
        let second = assign(all(), piece(0.25), bring([0.0; 2]), |_| true).unwrap();
        assert_eq!([first.device().ordinal(), second.device().ordinal()], [0, 1]);
        drop(second);
        drop(first);
        // Of equal ones that with more room, and one that has none only where none has.
        let stream = both[0].stream().unwrap();
        let held = stream.alloc(1000, "held").unwrap();
        assert_eq!(any([0.0; 2]), Some(1));
        drop(held);
        assert_eq!(any([0.0; 2]), Some(0));
        both[1].set_memory_limit(Some(1 << 19));
        assert_eq!(any([1.0, 0.0]), Some(0));
        both[0].set_memory_limit(Some(1 << 19));
        assert_eq!(any([1.0, 0.0]), Some(1));
    });
}
