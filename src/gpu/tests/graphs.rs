//! Work that is recorded, and replayed.

use super::*;
use crate::gpu::graph::Graph;

/// `x = x / 2 + 1`
fn halve(stream: &Stream, x: &Buffer) -> Result<(), Fault> {
    let kernel = stream.device().kernel(&scale())?;
    let arguments =
        [Argument::Buffer(x), Argument::F64(0.5), Argument::F64(1.0), Argument::U32(16)];
    stream.launch(&kernel, BY_OCCUPANCY, &arguments)
}

/// `x = (x·x) / 2 + 1` by two launches, a product and a copy, with memory in between.
fn round(stream: &Stream, x: &Buffer) -> Result<(), Fault> {
    let copied = stream.copy(x)?;
    let out = stream.alloc(x.bytes(), "out")?;
    let product = Product { arithmetic: Arithmetic::F64, transposed: [false; 2], m: 4, k: 4, n: 4 };
    stream.product(product, &copied, x, &out)?;
    drop(copied);
    // It may have the memory of what was just dropped.
    let more = stream.alloc(x.bytes(), "more")?;
    stream.overwrite(&more, &out)?;
    halve(stream, &more)?;
    stream.overwrite(x, &more)
}

fn start() -> Vec<f64> {
    (0..16).map(|at| f64::from(at) / 40.0).collect()
}

/// What so many rounds make, of which the first runs by itself and the others are replayed where there is a graph.
fn rounds(
    stream: &Stream,
    count: usize,
    record: impl FnOnce(&Buffer) -> Option<Graph>,
) -> Vec<f64> {
    let x = stream.upload(&bytes_of(&start()), "x").unwrap();
    round(stream, &x).unwrap();
    let graph = record(&x);
    for _ in 1..count {
        match &graph {
            Some(graph) => stream.replay(graph).unwrap(),
            None => round(stream, &x).unwrap(),
        }
    }
    let mut got = vec![0; x.bytes()];
    stream.download(&x, &mut got).unwrap();
    numbers_of(&got)
}

fn recorded(stream: &Stream, x: &Buffer) -> Result<Graph, Fault> {
    stream.record(|| round(stream, x)).map(|((), graph)| graph)
}

#[test]
fn a_graph_does_again_what_was_recorded() {
    with_stand_in("graphs::a_graph_does_again_what_was_recorded", &[], |device, stand_in| {
        let stream = device.stream().unwrap();
        let expected = rounds(&stream, 6, |_| None);
        let before = device.usage();
        let found = rounds(&stream, 6, |x| {
            let graph = recorded(&stream, x).unwrap();
            // Nothing has happened yet, and what is recorded has no part of what comes after.
            assert_eq!(device.usage().launches, before.launches + 1);
            Some(graph)
        });
        assert_eq!(found, expected);
        let usage = device.usage();
        assert_eq!((usage.launches, usage.products), (before.launches + 1, before.products + 1));
        assert_eq!((before.replays, usage.replays), (0, 5));
        stream.finish(None).unwrap();
        assert_eq!((device.live(), stand_in.live(), stand_in.get("graphs")), (vec![], 0, 0));
        assert_eq!(rounds(&stream, 6, |_| None), expected);
    });
}

/// Other threads queue, free and wait in the lane meanwhile, and none of it becomes part of the graph.
#[test]
fn others_go_on_while_a_graph_is_recorded() {
    with_stand_in("graphs::others_go_on_while_a_graph_is_recorded", &[], |device, stand_in| {
        let stream = device.stream().unwrap();
        let expected = rounds(&stream, 4, |_| None);
        let kept = stream.upload(&bytes_of(&start()), "kept").unwrap();
        let dropped = stream.upload(&bytes_of(&start()), "dropped").unwrap();
        let found = rounds(&stream, 4, |x| {
            let recorded = stream.record(|| {
                std::thread::scope(|scope| {
                    let other = scope.spawn(|| {
                        drop(dropped);
                        let other = device.stream()?;
                        let copy = other.copy(&kept)?;
                        let mut got = vec![0; copy.bytes()];
                        other.download(&copy, &mut got)?;
                        Ok::<_, Fault>(numbers_of(&got))
                    });
                    assert_eq!(other.join().unwrap()?, start());
                    Ok::<_, Fault>(())
                })?;
                round(&stream, x)
            });
            Some(recorded.unwrap().1)
        });
        assert_eq!(found, expected);
        drop(kept);
        // Each stream frees what it made.
        device.trim().unwrap();
        assert_eq!((device.live(), stand_in.live(), stand_in.get("graphs")), (vec![], 0, 0));
    });
}

#[test]
fn what_cannot_be_recorded_is_refused_and_nothing_happens() {
    let test = "graphs::what_cannot_be_recorded_is_refused_and_nothing_happens";
    with_stand_in(test, &[], |device, stand_in| {
        let stream = device.stream().unwrap();
        let expected = rounds(&stream, 3, |_| None);
        type Work = fn(&Stream, &Buffer) -> Result<(), Fault>;
        let refused: [(&str, Work); 6] = [
            ("cuMemcpyHtoDAsync", |stream, _| stream.upload(&[1; 8], "x").map(drop)),
            ("cuMemcpyDtoHAsync", |stream, x| stream.download(x, &mut [0; 8])),
            ("cuStreamSynchronize", |stream, _| stream.finish(None)),
            ("cuCtxSynchronize", |stream, _| stream.device().trim()),
            ("cuStreamBeginCapture", |stream, x| {
                let other = stream.device().stream()?;
                other.record(|| halve(&other, x)).map(drop)
            }),
            ("cuStreamBeginCapture", |stream, x| recorded(stream, x).map(drop)),
        ];
        for (call, work) in refused {
            let found = rounds(&stream, 3, |x| {
                let fault = stream.record(|| {
                    round(&stream, x)?;
                    work(&stream, x)
                });
                let fault = fault.map(|_: ((), Graph)| ()).unwrap_err();
                let is_it =
                    matches!(fault, Fault::Misuse { call: found, code: 900 } if found == call);
                assert!(is_it, "{call}: {fault}");
                None
            });
            assert_eq!(found, expected, "{call}");
        }
        let x = stream.upload(&bytes_of(&start()), "x").unwrap();
        let graph = recorded(&stream, &x).unwrap();
        let fault = stream.record(|| stream.replay(&graph)).map(drop).unwrap_err();
        assert_eq!(fault, Fault::Misuse { call: "cuGraphLaunch", code: 900 });
        let fault = device.stream().unwrap().replay(&graph).unwrap_err();
        assert_eq!(fault, Fault::Misuse { call: "cuGraphLaunch", code: 1 });
        drop((x, graph));
        for step in ["refuse_capture", "refuse_captured", "refuse_graph", "refuse_launch"] {
            let found = rounds(&stream, 3, |x| {
                stand_in.set(step, 1);
                let fault = recorded(&stream, x).unwrap_err();
                let is_misuse = matches!(fault, Fault::Misuse { .. } | Fault::Memory { .. });
                assert!(is_misuse, "{step}: {fault}");
                assert_eq!(stand_in.get(step), 0, "{step}");
                None
            });
            assert_eq!(found, expected, "{step}");
        }
        stream.finish(None).unwrap();
        assert_eq!((device.live(), stand_in.live(), stand_in.get("graphs")), (vec![], 0, 0));
        assert_eq!((device.lost(), device.usage().replays), (None, 0));
    });
}
