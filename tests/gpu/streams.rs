//! Matrices that come and go beside the work on them: copies wait for the kernels that they have to do with, and for no others.
//!
//! The stand-in works on a stream only when somebody waits for it, and its memory is full of rubbish: what is read before it has come, or
//! goes back before it is made, is wrong each time. What its streams still have to do tells which kernels a copy comes behind.

use std::thread;
use std::time::{Duration, Instant};

use super::graphs::refuse_each;
use super::{Pair, assert_close, cells, count, figure, left, standin};

/// Steps that read other matrices than those before, how many copies come beside kernels, and by how many units results may differ.
const COMING: &[(&str, i64, f64)] = &[
    ("x @ w + tanh(y) @ w", 1, 64.0),
    ("t(x) @ y + t(x * 2) @ odd", 1, 64.0),
    ("sum(x @ w) + sum(f @ w) * sum(s @ s)", 2, 4096.0),
    // Offsets, places and values, and of long rows more.
    ("net @ tanh(s)", 3, 64.0),
    ("hub @ (t(hub) @ u) * sum(x @ w)", 9, 4096.0),
];

/// A product that only the host makes, of two results of a device, of which the first goes back while the device makes the second; and how
/// many copies go behind kernels, for they tell whether a step succeeded.
const GOING: &[(&str, i64, f64)] = &[
    ("kron(r @ w, t(x) @ y)", 0, 4096.0),
    // The next step reads the first.
    ("kron(r @ w, tanh(r @ w))", 0, 64.0),
    ("kron(net @ s[1:200, 1:1], r @ w)", 0, 4096.0),
    // It is what rounds begin with.
    ("kron(r @ w, ITERATE(q => r @ w, tanh(q) * 2, times => 6))", 0, 4096.0),
    // A part of a decomposition.
    ("kron(qr(x).r, r @ w)", 2, 4096.0),
    // The value of rounds, with one before it, and with an end.
    ("kron(ITERATE(q => v, (x @ (t(x) @ q)) / norm(q), times => 5), r @ w)", 0, 4096.0),
    ("kron(ITERATE(q => v, 0.5 * q + 0.25 * prior(q), times => 9), r @ w)", 0, 4096.0),
    (
        "kron(ITERATE(q => v, 0.5 * q + 1, times => 40, until => max(abs(q - prior(q))) < 1e-3), r @ w)",
        0,
        4096.0,
    ),
];

const COPIES: [&str; 4] = ["up_behind", "up_beside", "down_behind", "down_beside"];

fn pair() -> Option<Pair> {
    let pair = Pair::new()?;
    pair.execute("CREATE MATRIX u = randn(301, 1, 13)");
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    // Whether it multiplies and decomposes is found out once, and kernels are compiled.
    let coming = COMING.iter().map(|(expression, ..)| expression);
    for expression in coming.chain(GOING.iter().map(|(expression, ..)| expression)) {
        assert!(pair.explained(expression).contains("on the GPU: "), "{expression}");
        pair.device.matrix(expression).unwrap();
    }
    Some(pair)
}

fn set(pair: &Pair, settings: &str) {
    pair.device.execute(settings).unwrap();
}

/// Has an expression computed as the host does it, and tells how many copies went behind kernels, and how many beside.
fn copies(pair: &Pair, expression: &str, units: f64) -> [i64; 4] {
    COPIES.iter().for_each(|name| standin::set(name, 0));
    let found = pair.device.matrix(expression);
    let found = found.unwrap_or_else(|error| panic!("{expression}: {error}"));
    let copies = COPIES.map(standin::get);
    assert_close(expression, &[found, pair.host.matrix(expression).unwrap()], units);
    assert_eq!(left(&pair.device), 0, "{expression}");
    copies
}

#[test]
fn what_a_later_step_reads_comes_beside_an_earlier_one() {
    let Some(pair) = pair() else { return };
    // Whether it is freed as soon as it is read, or stays.
    for keep in ["SET gpu_keep = off", "SET gpu_keep = off; SET gpu_keep = on"] {
        for &(expression, beside, units) in COMING {
            set(&pair, keep);
            let found = copies(&pair, expression, units);
            assert_eq!(found, [0, beside, 0, 0], "{expression}, {keep}");
        }
    }
    assert_eq!(figure(&pair.device, "failure"), None);
}

#[test]
fn a_result_goes_back_beside_later_steps() {
    let Some(pair) = pair() else { return };
    for graphs in ["off", "force"] {
        set(&pair, &format!("SET gpu_graphs = '{graphs}'"));
        for &(expression, behind, units) in GOING {
            let [.., found_behind, beside] = copies(&pair, expression, units);
            assert_eq!((found_behind, beside), (behind, 1), "{expression}, {graphs}");
        }
    }
    assert_eq!((figure(&pair.device, "failure"), standin::get("graphs")), (None, 0));
}

/// A stream waits once for what was brought before, however often it is read then, and for nothing of what is kept or the only result.
#[test]
fn streams_wait_no_more_than_they_have_to() {
    let Some(pair) = pair() else { return };
    set(&pair, "SET gpu_keep = off; SET gpu_keep = on");
    let waits = |expression: &str| {
        let before = standin::get("waits");
        copies(&pair, expression, 4096.0);
        standin::get("waits") - before
    };
    let rounds = "ITERATE(q => v, (x @ (t(x) @ q)) / norm(q), times => 20)";
    assert_eq!([waits(rounds), waits(rounds)], [1, 0]);
    assert_eq!([waits("x @ w"), waits("x @ w")], [1, 0]);
    assert_eq!([waits("kron(r @ w, t(x) @ y)"), waits("kron(r @ w, t(x) @ y)")], [3, 1]);
}

/// Each allocation, copy, wait, launch and so on in turn is refused, and the answer is the host's.
#[test]
fn whatever_fails_beside_the_host_does() {
    let Some(pair) = pair() else { return };
    let expressions = [COMING[0].0, COMING[3].0, GOING[1].0, GOING[4].0, GOING[7].0];
    set(&pair, "SET gpu_graphs = 'force'");
    let faults = standin::FAULTS.iter().chain(&standin::GRAPH_FAULTS);
    let faults = faults.chain(&["refuse_wait", "refuse_record"]);
    for (fault, keep) in faults.flat_map(|fault| [(fault, "off"), (fault, "on")]) {
        let before = count(&pair.device, "failed");
        // Whatever is kept was brought by another.
        let anew = format!("SET gpu_keep = off; SET gpu_keep = {keep}");
        for expression in expressions {
            refuse_each(&pair, expression, fault, &anew);
        }
        let failed = count(&pair.device, "failed") - before;
        let is_survived = *fault == "fail_alloc" || standin::GRAPH_FAULTS[..3].contains(fault);
        assert!(failed > 0 || is_survived, "{fault} happened {failed} times");
    }
}

/// Whoever stops while a result is waited for has his error, nothing stays, and the next finds all as it was.
#[test]
fn a_result_on_its_way_can_be_stopped() {
    let Some(pair) = pair() else { return };
    let expression = GOING[0].0;
    let expected = cells(&pair.device.matrix(expression).unwrap());
    let downloaded = count(&pair.device, "downloaded");
    standin::set("never_done", 1);
    let canceller = pair.device.cancel_handle();
    let error = thread::scope(|scope| {
        let asked = scope.spawn(|| pair.device.matrix(expression).map(drop).unwrap_err());
        thread::sleep(Duration::from_millis(300));
        assert!(!asked.is_finished());
        canceller.cancel();
        asked.join().unwrap().to_string()
    });
    assert!(error.contains("cancel"), "{error}");
    // Who is told so does not wait for the thread that waits for the device, and that sees it at its next look.
    let start = Instant::now();
    while left(&pair.device) > 0 && start.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((count(&pair.device, "downloaded"), left(&pair.device)), (downloaded, 0));
    standin::set("never_done", 0);
    assert_eq!(cells(&pair.device.matrix(expression).unwrap()), expected);
    assert_eq!(left(&pair.device), 0);
}
