//! Texts become kernels, once for a user, and run in the shape that was asked for.

use super::*;
use crate::anew;

const SUMS: &str = r#"
#include "common.cuh"
extern "C" __global__ void sums(const double *x, double *out, u64 n) {
    __shared__ double part[256];
    double sum = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x)
        sum += x[i] * x[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
"#;

fn sums(contracts: bool) -> Source {
    let headers = Headers(&[("common.cuh", "typedef unsigned long long u64;\n")]);
    Source { text: SUMS.into(), headers, entry: "sums".into(), contracts }
}

#[test]
fn nvrtc_compiles_for_devices_that_are_not_there() {
    let test = "kernels::nvrtc_compiles_for_devices_that_are_not_there";
    let Some(nvrtc) = folder("RELATRIX_NVRTC").filter(|_| is_inside(test, &[])) else { return };
    for architecture in ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100"] {
        let (image, log) = compile(Some(&nvrtc), &sums(true), architecture).unwrap();
        assert!(image.starts_with(b"\x7fELF"), "{architecture}");
        assert!(log.contains("sums") && log.contains("registers"), "{architecture}: {log}");
        assert!(log.contains(" 0 bytes spill stores"), "{architecture}: {log}");
    }
    let (ptx, _) = compile(None, &sums(false), "compute_90").unwrap();
    let ptx = String::from_utf8(ptx).unwrap();
    assert!(ptx.contains(".entry sums") && ptx.ends_with('\0'));
    assert!(ptx.contains("mul.rn.f64") && !ptx.contains("fma.rn.f64"));
    let (fused, _) = compile(None, &sums(true), "compute_90").unwrap();
    assert!(String::from_utf8(fused).unwrap().contains("fma.rn.f64"));

    let bad = Source { text: "extern \"C\" __global__ void f() { g(); }".into(), ..sums(false) };
    let fault = compile(None, &bad, "sm_90").unwrap_err();
    assert!(matches!(&fault, Fault::Compile { log, .. } if log.contains("\"g\" is undefined")));
    assert!(compile(None, &sums(false), "sm_20").is_err());

    // As deep as a generated text may be, on a thread with little stack.
    let deep = format!("{}x[0]{}", "(1 + ".repeat(2000), ")".repeat(2000));
    let deep = format!("extern \"C\" __global__ void deep(double *x) {{ x[0] = {deep}; }}");
    let deep = Source { text: deep.into(), entry: "deep".into(), ..sums(false) };
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    let compiled = thread.spawn(move || compile(None, &deep, "sm_80").is_ok()).unwrap();
    assert!(compiled.join().unwrap());

    let names = [(7, 5), (8, 0), (8, 7), (9, 0), (12, 1), (99, 0)].map(compiler::architecture);
    assert_eq!(names[..4], ["sm_75", "sm_80", "sm_87", "sm_90"]);
    assert_eq!(names[4..], ["sm_121", "compute_121"]);
}

#[test]
fn a_kernel_runs_in_the_shape_that_fills_the_device() {
    with_stand_in(
        "kernels::a_kernel_runs_in_the_shape_that_fills_the_device",
        &[],
        |device, stand_in| {
            let stream = device.stream().unwrap();
            let kernel = device.kernel(&scale()).unwrap();
            let numbers: Vec<f64> = (0..10_000).map(f64::from).collect();
            let buffer = stream.upload(&bytes_of(&numbers), "numbers").unwrap();
            let arguments = [
                Argument::Buffer(&buffer),
                Argument::F64(2.0),
                Argument::F64(0.5),
                Argument::U32(10_000),
            ];
            let asked = stand_in.get("occupancy");
            stream.launch(&kernel, BY_OCCUPANCY, &arguments).unwrap();
            assert_eq!((stand_in.get("grid"), stand_in.get("block")), (8, 128));
            let few = Launch { work: Work::Threads(300), ..BY_OCCUPANCY };
            stream.launch(&kernel, few, &arguments).unwrap();
            assert_eq!((stand_in.get("grid"), stand_in.get("block")), (3, 128));
            assert_eq!(stand_in.get("occupancy"), asked + 1, "asked once");
            let given = Launch { work: Work::Threads(1 << 40), block: Some(256), shared_bytes: 0 };
            stream.launch(&kernel, given, &arguments).unwrap();
            assert_eq!((stand_in.get("grid"), stand_in.get("block")), (32, 256));
            for (shared_bytes, told) in
                [(48 << 10, 0), (100 << 10, 1), (60 << 10, 1), (200 << 10, 2)]
            {
                let launch = Launch { work: Work::Blocks(5), block: None, shared_bytes };
                stream.launch(&kernel, launch, &arguments).unwrap();
                assert_eq!((stand_in.get("grid"), stand_in.get("attributes")), (5, told));
            }
            let mut got = vec![0; buffer.bytes()];
            stream.download(&buffer, &mut got).unwrap();
            let expected = |mut x: f64| {
                (0..7).for_each(|_| x = x * 2.0 + 0.5);
                x
            };
            assert_eq!(numbers_of(&got), numbers.into_iter().map(expected).collect::<Vec<_>>());

            let launches = device.usage().launches;
            let none = Launch { work: Work::Threads(0), ..BY_OCCUPANCY };
            stream.launch(&kernel, none, &arguments).unwrap();
            assert_eq!(device.usage().launches, launches);
            let wide = Launch { block: Some(2048), ..BY_OCCUPANCY };
            let refused = stream.launch(&kernel, wide, &arguments).unwrap_err();
            assert!(matches!(refused, Fault::Misuse { code: 701, .. }), "{refused}");

            let first = device.kernel(&Source { entry: "first".into(), ..scale() }).unwrap();
            let one = Launch { work: Work::Blocks(1), block: Some(64), shared_bytes: 0 };
            stream
                .launch(&first, one, &[Argument::Buffer(&buffer), Argument::U64(1 << 40)])
                .unwrap();
            let mut got = [0; 8];
            stream.download(&buffer, &mut got).unwrap();
            assert_eq!(numbers_of(&got), [64.0]);
            let absent = device.kernel(&Source { entry: "absent".into(), ..scale() }).unwrap_err();
            assert!(matches!(absent, Fault::Misuse { code: 500, .. }), "{absent}");
            assert_eq!(device.usage().compiled, 2, "the trial, and the text");
            assert_eq!(device.lost(), None);
        },
    );
}

#[test]
fn a_text_with_an_error_is_not_tried_again() {
    with_stand_in("kernels::a_text_with_an_error_is_not_tried_again", &[], |device, _| {
        let bad = Source { text: "a syntax error".into(), ..scale() };
        let fault = device.kernel(&bad).unwrap_err();
        assert_eq!(fault, device.kernel(&bad).unwrap_err());
        let text = fault.to_string();
        let is_told = text.contains("error: ") && text.contains("a syntax error");
        assert!(is_told && text.starts_with("kernel scale does not compile:\n"), "{text}");
        assert!(each_kind(&device).is_ok() && device.lost().is_none());
    });
}

#[test]
fn an_image_is_kept_for_the_next_process_unless_it_is_damaged() {
    let test = "kernels::an_image_is_kept_for_the_next_process_unless_it_is_damaged";
    with_stand_in(test, &[], |device, stand_in| {
        device.kernel(&scale()).unwrap();
        device.kernel(&scale()).unwrap();
        assert_eq!((device.usage().compiled, device.usage().cache_hits), (2, 0));
        let folder = anew::user_folder().unwrap().join("kernels");
        let files = || std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        assert_eq!(files().count(), 2);
        let forget = || {
            device.slots.lock().unwrap().clear();
            device.kernels.lock().unwrap().clear();
        };

        forget();
        device.kernel(&scale()).unwrap();
        assert_eq!((device.usage().compiled, device.usage().cache_hits), (2, 1));

        forget();
        files().for_each(|file| std::fs::write(file, "damaged").unwrap());
        device.kernel(&scale()).unwrap();
        assert_eq!((device.usage().compiled, device.usage().cache_hits), (3, 1));

        forget();
        stand_in.set("fail_image", 1);
        device.kernel(&scale()).unwrap();
        assert_eq!((device.usage().compiled, device.usage().cache_hits), (4, 1));

        let other = Source { contracts: true, ..scale() };
        stand_in.set("fail_image", 1);
        let fault = device.kernel(&other).unwrap_err();
        assert!(matches!(fault, Fault::Image { code: 200, .. }), "{fault}");
        assert_eq!(device.kernel(&other).unwrap_err(), fault);
        assert!(each_kind(&device).is_ok());
    });
}
