//! Rounds of an iteration that are recorded once and replayed: the same bits by fewer calls, whatever fails.

use std::thread;
use std::time::{Duration, Instant};

use super::{Pair, assert_close, cells, count, figure, left, standin};

/// An iteration; how many rounds run; kernels and products of a round.
const ITERATIONS: &[(&str, u64, u64)] = &[
    // PageRank over a sparse graph, without and with an end.
    ("ITERATE(q => s[1:200, 1:1], 0.85 * (net @ q) + 0.15, times => 20)", 20, 2),
    (
        "ITERATE(q => s[1:200, 1:1], 0.85 * (net @ q) + 0.15, times => 100, until => max(abs(q - prior(q))) < 1e-6)",
        0,
        0,
    ),
    // The largest singular value; a regression by gradients.
    ("ITERATE(q => r, t(t(x) @ (x @ t(q))) / norm(q), times => 9)", 9, 4),
    ("ITERATE(q => w, q - 0.001 * (t(x) @ (x @ q - y @ w)), times => 30)", 30, 4),
    // Of the value before the last, and of another type.
    ("ITERATE(q => v, 0.5 * q + 0.25 * prior(q) + 1, times => 12)", 12, 1),
    ("ITERATE(q => f, tanh(q) + CAST(r AS REAL) / 2, times => 8)", 8, 1),
    // Centres of clusters, by where the largest of each row is.
    (
        "ITERATE(q => x[1:3, :], t(t(x) @ (row_argmax(x @ t(q)) = t(range(1, 4)))), times => 6)",
        6,
        0,
    ),
];

fn set(pair: &Pair, graphs: &str) {
    pair.device.execute(&format!("SET gpu_graphs = '{graphs}'")).unwrap();
}

/// Kernels and products that were started one by one, and rounds that were replayed.
fn started(pair: &Pair) -> [u64; 2] {
    let [launches, products, replays] =
        ["launches", "products", "replays"].map(|name| count(&pair.device, name));
    [launches + products, replays]
}

/// The cells of an expression, and what was started for it.
fn run(pair: &Pair, expression: &str) -> (Vec<f64>, [u64; 2]) {
    let before = started(pair);
    let found = pair.device.matrix(expression);
    let found = found.unwrap_or_else(|error| panic!("{expression}: {error}"));
    let after = started(pair);
    (cells(&found), [after[0] - before[0], after[1] - before[1]])
}

#[test]
fn rounds_that_are_replayed_have_the_same_bits() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for (expression, rounds, in_a_round) in ITERATIONS {
        set(&pair, "off");
        // Constants are brought and converted.
        run(&pair, expression);
        let (expected, [launches, none]) = run(&pair, expression);
        set(&pair, "force");
        let (found, [fewer, replays]) = run(&pair, expression);
        assert_eq!(found, expected, "{expression}");
        assert_eq!(none, 0, "{expression}");
        assert!(
            replays > 2 && fewer < launches / 2,
            "{expression}: {launches}, {fewer}, {replays}"
        );
        if *rounds > 0 {
            assert_eq!(replays, rounds - 1, "{expression}");
            assert_eq!((launches - fewer) % replays, 0, "{expression}");
        }
        if *in_a_round > 0 {
            assert_eq!(launches - fewer, replays * in_a_round, "{expression}");
        }
        assert_eq!(left(&pair.device), 0, "{expression}");
        assert_eq!(standin::get("graphs"), 0, "{expression}");
        assert_close(expression, &pair.both(expression), 4096.0);
    }
    assert_eq!(figure(&pair.device, "failure"), None);
    assert_eq!(count(&pair.device, "unrecorded"), 0);
}

#[test]
fn products_of_less_precision_are_recorded_too() {
    let Some(pair) = Pair::new() else { return };
    let rounds = "ITERATE(q => v, (x @ (t(x) @ q)) / norm(q), times => 7)";
    for precision in ["float32", "tf32", "bf16"] {
        pair.device.execute(&format!("SET gpu_precision = '{precision}'")).unwrap();
        set(&pair, "off");
        let (expected, _) = run(&pair, rounds);
        set(&pair, "force");
        let (found, [_, replays]) = run(&pair, rounds);
        assert_eq!((found, replays), (expected, 6), "{precision}");
        // Factors that are read where the variable is, before and after it changes, are converted anew.
        let until = "ITERATE(q => v, (x @ (t(x) @ q)) / norm(q), times => 7, until => max(abs(t(x) @ q - t(x) @ prior(q))) < 1e-3)";
        set(&pair, "off");
        let (expected, _) = run(&pair, until);
        set(&pair, "force");
        assert_eq!(run(&pair, until).0, expected, "{precision}");
        let after = format!("t(x) @ ({until})");
        set(&pair, "off");
        let (expected, _) = run(&pair, &after);
        set(&pair, "force");
        assert_eq!(run(&pair, &after).0, expected, "{precision}");
    }
    assert_eq!(count(&pair.device, "unrecorded"), 0);
    assert_eq!((figure(&pair.device, "failure"), left(&pair.device)), (None, 0));
}

/// What rounds make is made in the same memory, however many they are.
#[test]
fn memory_does_not_grow_with_rounds() {
    let Some(pair) = Pair::new() else { return };
    set(&pair, "force");
    let peak = |times: usize| {
        run(
            &pair,
            &format!("ITERATE(q => w, q - 0.001 * (t(x) @ (x @ q - y @ w)), times => {times})"),
        );
        count(&pair.device, "buffer_bytes_peak")
    };
    // What stays from the first is there for all others, and few rounds have another plan.
    peak(40);
    let first = peak(40);
    assert_eq!(peak(160), first);
    assert_eq!((left(&pair.device), standin::get("graphs")), (0, 0));
}

/// Rounds in which the host sees a number, or has a part, run one by one, as without.
#[test]
fn rounds_that_need_the_host_are_not_recorded() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for expression in [
        "ITERATE(q => w, solve(t(x) @ x, q) / norm(q), times => 4)",
        "ITERATE(q => s, lu(q).p @ (q @ s) / norm(q), times => 3)",
        "ITERATE(q => v, ITERATE(p => q, p * 0.5 + 1, times => 1) + q, times => 4)",
    ] {
        set(&pair, "off");
        let (expected, _) = run(&pair, expression);
        set(&pair, "force");
        let (found, [_, replays]) = run(&pair, expression);
        assert_eq!((found, replays), (expected, 0), "{expression}");
    }
    assert_eq!(count(&pair.device, "unrecorded"), 0);
    assert_eq!((figure(&pair.device, "failure"), left(&pair.device)), (None, 0));
}

/// What the driver does not record is started one by one; that is no failure.
#[test]
fn what_is_not_recorded_runs_as_before() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    let rounds = "ITERATE(q => w, q - 0.001 * (t(x) @ (x @ q - y @ w)), times => 30)";
    let (expected, [launches, _]) = run(&pair, rounds);
    set(&pair, "force");
    let before = count(&pair.device, "unrecorded");
    for (at, step) in standin::GRAPH_FAULTS[..3].iter().enumerate() {
        standin::set(step, 1);
        assert_eq!(run(&pair, rounds), (expected.clone(), [launches, 0]), "{step}");
        assert_eq!(count(&pair.device, "unrecorded"), before + at as u64 + 1);
        assert_eq!((left(&pair.device), standin::get("graphs")), (0, 0), "{step}");
    }
    assert_eq!(run(&pair, rounds).0, expected);
    assert_eq!(figure(&pair.device, "failure"), None);
}

#[test]
fn whatever_fails_of_replays_the_host_does() {
    let Some(pair) = Pair::new() else { return };
    set(&pair, "force");
    let expressions = [
        "ITERATE(q => v, (x @ (t(x) @ q)) / norm(q), times => 4)",
        "ITERATE(q => s[1:200, 1:1], 0.85 * (net @ q) + 0.15, times => 5, until => max(abs(q - prior(q))) < 1e-6)",
    ];
    for expression in expressions {
        pair.device.matrix(expression).unwrap();
        for fault in standin::FAULTS[..4].iter().chain(&standin::GRAPH_FAULTS) {
            let refused = refuse_each(&pair, expression, fault, "SET gpu_keep = on");
            let is_none = *fault == "refuse_product" && !expression.contains("x @");
            assert!(refused > 0 || is_none, "{expression}, {fault}");
        }
    }
}

/// Refuses the first call of a kind that an expression makes, then the second, and so on, under some settings; how many there are. Each
/// time the answer is the host's, and nothing stays.
pub(super) fn refuse_each(pair: &Pair, expression: &str, fault: &str, settings: &str) -> i64 {
    let expected = pair.host.matrix(expression).unwrap();
    for nth in 1.. {
        pair.try_again();
        pair.device.execute(settings).unwrap();
        standin::reset();
        standin::set(fault, nth);
        let found = pair.device.matrix(expression);
        let found = found.unwrap_or_else(|error| panic!("{expression}, {fault} {nth}: {error}"));
        let is_over = standin::get(fault) > 0;
        standin::reset();
        assert_close(expression, &[found, expected.clone()], 4096.0);
        assert_eq!(left(&pair.device), 0, "{expression}, {fault} {nth}");
        assert_eq!(standin::get("graphs"), 0, "{expression}, {fault} {nth}");
        if is_over {
            return nth - 1;
        }
    }
    unreachable!("an expression makes no calls without end")
}

/// Whoever stops between replays has his error, nothing stays, and the next finds all as it was.
#[test]
fn replays_can_be_stopped() {
    let Some(pair) = Pair::new() else { return };
    set(&pair, "force");
    for until in ["", ", until => max(abs(q)) < 0"] {
        let rounds =
            |times: usize| format!("ITERATE(q => v, 0.5 * q + 1, times => {times}{until})");
        let (long, short) = (rounds(100_000_000), rounds(20));
        // Kernels are compiled.
        let expected = run(&pair, &short).0;
        let replays = count(&pair.device, "replays");
        let canceller = pair.device.cancel_handle();
        let error = thread::scope(|scope| {
            let asked = scope.spawn(|| pair.device.matrix(&long).map(drop).unwrap_err());
            let start = Instant::now();
            while standin::get("graphs") == 0 && start.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(10));
            }
            thread::sleep(Duration::from_millis(100));
            canceller.cancel();
            asked.join().unwrap().to_string()
        });
        assert!(error.contains("cancel"), "{error}");
        assert!(count(&pair.device, "replays") > replays);
        assert_eq!(run(&pair, &short).0, expected);
        assert_eq!((left(&pair.device), standin::get("graphs")), (0, 0));
    }
}
