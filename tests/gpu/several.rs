//! Two devices in a process: each piece of work goes to one of them, and nothing of one is used on the other.
//!
//! A process finds its devices once, so these tests run in processes of their own, whose stand-in has two ([`in_a_process`]); beside the
//! other tests they say nothing. Each counts what is of one device and was used in the context of the other: the stand-in refuses it, and
//! the host would hide that.

use std::env;
use std::process::Command;
use std::thread;
use std::time::Duration;

use relatrix::{Connection, Database};

use super::groups::{answer, assert_same, table};
use super::{Pair, assert_close, built, own_cache, standin};

/// Bytes of the matrices `x` and `y`, and of `s`.
const SMALL: u64 = 300 * 40 * 8;
const LARGE: u64 = 200 * 200 * 8;

/// What a machine whose second device alone may hold much has less of on the first.
const FEW_BYTES: &str = "2000000";

/// Runs these tests of this file where there are two devices, with these figures of the stand-in beside.
fn in_a_process(tests: &[&str], figures: &[(&str, &str)]) {
    let Some(folder) = built::folder() else { return };
    let output = Command::new(env::current_exe().unwrap())
        .args(tests.iter().map(|test| format!("several::{test}")))
        .args(["--exact", "--nocapture", "--test-threads", "1"])
        .env("RELATRIX_STANDIN", folder)
        .env("STANDIN_devices", "2")
        .envs(figures.iter().copied())
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let is_done = output.status.success() && text[0].contains(&format!("{} passed", tests.len()));
    assert!(is_done, "{}", text.concat());
}

#[test]
fn work_goes_to_one_of_two_devices() {
    in_a_process(
        &[
            "statements_at_once_have_a_device_each",
            "a_plan_goes_where_what_it_reads_is_kept",
            "what_has_no_room_on_one_device_takes_nothing_from_another",
            "whatever_fails_on_one_device_the_host_does",
            "settings_say_which_devices_are_used",
            "both_devices_compute_what_the_host_computes",
        ],
        &[],
    );
}

#[test]
fn a_process_goes_on_with_the_device_that_is_left() {
    in_a_process(&["a_lost_device_is_passed_over"], &[]);
}

#[test]
fn devices_need_not_be_alike() {
    in_a_process(&["a_device_with_little_memory_is_avoided"], &[("STANDIN_memory_0", FEW_BYTES)]);
    in_a_process(&["a_device_that_does_not_do_is_passed_over"], &[("STANDIN_capability_0", "61")]);
    in_a_process(&["what_a_device_does_not_do_another_does"], &[]);
}

#[test]
fn what_is_not_to_be_used_is_left_alone() {
    in_a_process(&["a_device_that_is_not_named_is_not_even_tried"], &[]);
}

/// A pair with two devices; none in a process that has one.
fn pair() -> Option<Pair> {
    let pair = Pair::new().filter(|_| env::var_os("STANDIN_devices").is_some())?;
    forget();
    pair.device.execute("SET gpu_keep = off; SET gpu_keep = on").unwrap();
    Some(pair)
}

/// Nothing fails any more on either.
fn forget() {
    standin::reset();
    for device in 0..2 {
        standin::FAULTS.iter().for_each(|fault| standin::set(&format!("{fault}_{device}"), 0));
        standin::set(&format!("fail_allocs_{device}"), 0);
    }
}

/// A figure of SHOW GPU, of one device.
fn figure(connection: &Connection, device: usize, name: &str) -> Option<String> {
    let rows = connection.query("SHOW GPU").unwrap();
    let rows = rows.rows::<(String, Option<String>, String, String)>().unwrap();
    let mut of = None;
    rows.into_iter().find_map(|(found, value, ..)| {
        if found == "device" {
            of = value.clone();
        }
        (found == name && of == Some(device.to_string())).then_some(value).flatten()
    })
}

fn count(connection: &Connection, device: usize, name: &str) -> u64 {
    figure(connection, device, name).unwrap_or_default().parse().unwrap_or_default()
}

fn counts(pair: &Pair, name: &str) -> [u64; 2] {
    [0, 1].map(|device| count(&pair.device, device, name))
}

/// Nothing is under way or left there, and neither was taken for the other.
fn assert_clean(pair: &Pair) {
    let (buffers, kept) = (counts(pair, "buffers"), counts(pair, "kept_buffers"));
    assert_eq!(buffers, kept);
    assert_eq!(counts(pair, "under_way"), [0; 2]);
    assert_eq!(standin::get("crossed"), 0);
}

/// The device by which a statement is said to have run.
fn ran_by(pair: &Pair, statement: &str) -> Option<usize> {
    let plan = answer(&pair.device, &format!("EXPLAIN ANALYZE {statement}"));
    let found = [0, 1].into_iter().filter(|device| plan.contains(&format!("(by GPU {device})")));
    let found = Vec::from_iter(found);
    assert!(found.len() < 2, "{plan}");
    assert_eq!(found.is_empty(), !plan.contains("(by GPU"), "{plan}");
    found.first().copied()
}

fn entries(expression: &str) -> String {
    format!("SELECT * FROM ENTRIES({expression})")
}

/// A device whose work does not end, until this is dropped: also by a test that fails.
struct Busy(String);

impl Busy {
    fn new(device: usize) -> Self {
        let name = format!("never_done_{device}");
        standin::set(&name, 1);
        Self(name)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        standin::set(&self.0, 0);
    }
}

/// Waits until so many pieces of work are under way on a device.
fn wait_for(pair: &Pair, device: usize, pieces: u64) {
    for _ in 0..1000 {
        if count(&pair.device, device, "under_way") == pieces {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("there are not {pieces} pieces of work on device {device}");
}

/// While a first statement is under way on one device, without an end.
fn while_busy(pair: &Pair, device: usize, expression: &str, work: impl FnOnce()) {
    thread::scope(|scope| {
        let busy = Busy::new(device);
        let first = scope.spawn(|| pair.device.matrix(expression).unwrap());
        wait_for(pair, device, 1);
        work();
        drop(busy);
        let expected = pair.host.matrix(expression).unwrap();
        assert_close(expression, &[first.join().unwrap(), expected], 64.0);
    });
}

#[test]
fn statements_at_once_have_a_device_each() {
    let Some(pair) = pair() else { return };
    table(&pair);
    pair.device.execute("SET gpu_on_failure = 'error'; SET gpu_keep = off").unwrap();
    // What is not busy and has as much room is the first.
    assert_eq!(ran_by(&pair, &entries("x @ w")), Some(0));
    assert_eq!(ran_by(&pair, "SELECT s, sum(p) FROM t GROUP BY s"), Some(0));
    while_busy(&pair, 0, "x @ w", || {
        let seconds = figure(&pair.device, 0, "load").unwrap().parse::<f64>().unwrap();
        assert!(seconds > 0.0);
        let before = counts(&pair, "launches");
        assert_close("y @ w", &pair.both("y @ w"), 64.0);
        assert_eq!(ran_by(&pair, &entries("relu(x) + 1")), Some(1));
        assert_eq!(ran_by(&pair, "SELECT s, sum(p) FROM t GROUP BY s"), Some(1));
        assert_same(&pair, "SELECT s, sum(p), max(b) FROM t GROUP BY s ORDER BY s");
        let after = counts(&pair, "launches");
        assert_eq!(after[0], before[0]);
        assert!(after[1] > before[1]);
        assert_eq!(counts(&pair, "under_way"), [1, 0]);
    });
    assert_eq!(ran_by(&pair, &entries("x @ w")), Some(0));
    assert_clean(&pair);
}

#[test]
fn a_plan_goes_where_what_it_reads_is_kept() {
    let Some(pair) = pair() else { return };
    table(&pair);
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    // The first has nothing to choose by, the second goes where more room is.
    for (expression, expected) in [("x + 1", [SMALL, 0]), ("y + 1", [0, SMALL])] {
        let before = counts(&pair, "uploaded");
        assert_close(expression, &pair.both(expression), 0.0);
        let after = counts(&pair, "uploaded");
        assert_eq!([after[0] - before[0], after[1] - before[1]], expected, "{expression}");
    }
    let before = counts(&pair, "uploaded");
    for (expression, expected) in [("x * 2", 0), ("y * 2", 1), ("y - 3", 1), ("t(x) @ x", 0)] {
        assert_eq!(ran_by(&pair, &entries(expression)), Some(expected), "{expression}");
        assert_close(expression, &pair.both(expression), 64.0);
    }
    assert_eq!(counts(&pair, "uploaded"), before);
    // Of two that are apart the smaller is brought to the larger, and is then on both.
    assert_eq!(ran_by(&pair, &entries("s @ s")), Some(0));
    assert_eq!(ran_by(&pair, &entries("hstack(sum(s), sum(y))")), Some(0));
    let after = counts(&pair, "uploaded");
    assert_eq!([after[0] - before[0], after[1] - before[1]], [LARGE + SMALL, 0]);
    assert_eq!(counts(&pair, "kept"), [3, 1]);
    // Columns of tables, likewise: first where more room is.
    assert_eq!(ran_by(&pair, "SELECT sum(b) FROM t"), Some(1));
    let before = counts(&pair, "uploaded");
    assert_eq!(ran_by(&pair, "SELECT max(b) FROM t"), Some(1));
    assert_same(&pair, "SELECT min(b), sum(b) FROM t");
    assert_eq!(counts(&pair, "uploaded"), before);
    // One that is busy for longer than it takes to bring them elsewhere has no claim to who reads them.
    while_busy(&pair, 1, "y + 7", || {
        assert_eq!(ran_by(&pair, &entries("x + y")), Some(0));
    });
    // What is no more is on neither.
    pair.execute("DROP MATRIX y");
    assert_eq!(counts(&pair, "kept"), [2, 0]);
    assert_clean(&pair);
}

#[test]
fn what_has_no_room_on_one_device_takes_nothing_from_another() {
    let Some(pair) = pair() else { return };
    assert_eq!(ran_by(&pair, &entries("x + 1")), Some(0));
    assert_eq!(ran_by(&pair, &entries("y + 1")), Some(1));
    assert_eq!(counts(&pair, "kept"), [1, 1]);
    standin::set("fail_allocs_1", 1);
    pair.device.execute("SET gpu_devices = '1'").unwrap();
    let plan = answer(&pair.device, &format!("EXPLAIN ANALYZE {}", entries("s + 2")));
    assert!(plan.contains("(done by the host: the device has no room"), "{plan}");
    // What the second kept was in the way of what it was asked for, what the first keeps was not.
    assert_eq!(counts(&pair, "kept"), [0, 0]);
    pair.device.execute("SET gpu_devices = ''").unwrap();
    assert_eq!(counts(&pair, "kept"), [1, 0]);
    forget();
    assert_eq!(ran_by(&pair, &entries("x - 2")), Some(0));
    assert_clean(&pair);
}

/// Each allocation, copy, launch and product on the second device in turn is refused, and the answer is the host's. Of the first it is so
/// where there is one alone.
#[test]
fn whatever_fails_on_one_device_the_host_does() {
    let Some(pair) = pair() else { return };
    table(&pair);
    let expression = "relu(x @ w + 0.25) - row_maxs(x)";
    let statement =
        "SELECT s, count(*), sum(p * q) FROM t WHERE n LIKE 'name1%' GROUP BY s ORDER BY s";
    let failed = || super::count(&pair.device, "failed");
    let first = count(&pair.device, 0, "launches");
    let mut refused = 0;
    for (fault, keep) in standin::FAULTS[..4].iter().flat_map(|on| [(on, "off"), (on, "on")]) {
        let fault = format!("{fault}_1");
        for nth in 1.. {
            let set = "SET gpu_devices = '1'; SET gpu_keep = off; SET gpu_keep =";
            pair.device.execute(&format!("{set} {keep}")).unwrap();
            pair.try_again();
            let before = failed();
            standin::set(&fault, nth);
            assert_close(expression, &pair.both(expression), 64.0);
            assert_same(&pair, statement);
            let is_over = standin::get(&fault) > 0;
            forget();
            refused += failed() - before;
            pair.device.execute("SET gpu_devices = ''").unwrap();
            assert_clean(&pair);
            if is_over {
                break;
            }
        }
    }
    assert!(refused > 20, "{refused}");
    assert_eq!(count(&pair.device, 0, "launches"), first);
}

#[test]
fn settings_say_which_devices_are_used() {
    let Some(pair) = pair() else { return };
    table(&pair);
    pair.device.execute("SET gpu_on_failure = 'error'; SET gpu_keep = off").unwrap();
    let uuid = format!("GPU-{}", "a5".repeat(15));
    for (named, expected) in
        [("1", 1), ("0", 0), ("1, 7", 1), ("", 0), (&format!("{uuid}a6"), 1), (&uuid, 0)]
    {
        pair.device.execute(&format!("SET gpu_devices = '{named}'")).unwrap();
        assert_eq!(ran_by(&pair, &entries("x @ w")), Some(expected), "{named}");
        assert_eq!(ran_by(&pair, "SELECT sum(p) FROM t"), Some(expected), "{named}");
        let is_used = |device: usize| figure(&pair.device, device, "trial").is_some();
        let both = named.is_empty() || named == uuid;
        assert_eq!([is_used(0), is_used(1)], [both || expected == 0, both || expected == 1]);
    }
    // What there is not is not used.
    pair.device.execute("SET gpu_devices = '7'").unwrap();
    assert!(!pair.explained("x @ w").contains("GPU"));
    assert_close("x @ w", &pair.both("x @ w"), 0.0);
    let error = pair.device.execute("SET gpu_devices = 'first'").unwrap_err().to_string();
    assert!(error.contains("'first' is neither the number of a GPU"), "{error}");
    pair.device.execute("SET gpu_devices = ''").unwrap();
    assert_clean(&pair);
}

/// All that is tested of one device, by statements that go to the one and to the other.
#[test]
fn both_devices_compute_what_the_host_computes() {
    let Some(pair) = pair() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for device in ["0", "1", ""] {
        pair.device.execute(&format!("SET gpu_devices = '{device}'")).unwrap();
        for (expression, units) in super::EXPRESSIONS.iter().step_by(3) {
            assert_close(expression, &pair.both(expression), *units);
        }
    }
    let [first, second] = counts(&pair, "launches");
    assert!(first > 50 && second > 50, "{first} {second}");
    // In less than their type, beside one that is busy.
    pair.device.execute("SET gpu_keep = off; SET gpu_precision = 'bf16'").unwrap();
    assert_eq!(ran_by(&pair, &entries("x @ w")), Some(0));
    while_busy(&pair, 0, "x + y", || {
        let plan = answer(&pair.device, &format!("EXPLAIN ANALYZE {}", entries("x @ w")));
        assert!(plan.contains("in bf16") && plan.contains("(by GPU 1)"), "{plan}");
    });
    assert_clean(&pair);
}

#[test]
fn a_lost_device_is_passed_over() {
    let Some(pair) = pair() else { return };
    table(&pair);
    assert_eq!(ran_by(&pair, &entries("x + 1")), Some(0));
    assert_eq!(ran_by(&pair, &entries("y + 1")), Some(1));
    assert_eq!(ran_by(&pair, "SELECT sum(a) FROM t"), Some(0));
    standin::set("fail_launch_0", 1);
    let plan = answer(&pair.device, &format!("EXPLAIN ANALYZE {}", entries("x * 3")));
    assert!(plan.contains("(done by the host: ") && !plan.contains("(by GPU"), "{plan}");
    let why = figure(&pair.device, 0, "absent").unwrap();
    assert!(why.contains("lost") && why.contains("illegal address"), "{why}");
    // The next goes to the other, and what was kept on the first is brought there.
    let brought = count(&pair.device, 1, "uploaded");
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for (statement, units) in [("x * 3", 0.0), ("x @ w", 64.0), ("y + x", 0.0)] {
        assert_eq!(ran_by(&pair, &entries(statement)), Some(1), "{statement}");
        assert_close(statement, &pair.both(statement), units);
    }
    assert_eq!(count(&pair.device, 1, "uploaded") - brought, SMALL + 40 * 17 * 8);
    assert_eq!(ran_by(&pair, "SELECT sum(a) FROM t"), Some(1));
    assert_same(&pair, "SELECT s, sum(a), count(*) FROM t GROUP BY s ORDER BY s");
    assert_eq!(count(&pair.device, 1, "buffers"), count(&pair.device, 1, "kept_buffers"));
    assert_eq!(count(&pair.device, 1, "under_way"), 0);
    assert_eq!(standin::get("crossed"), 0);
    // And once that is lost, too, all is the host's.
    pair.device.execute("SET gpu_on_failure = 'host'").unwrap();
    standin::set("fail_launch_1", 1);
    assert_same(&pair, "SELECT s, max(a) FROM t GROUP BY s ORDER BY s");
    for _ in 0..2 {
        assert_close("x @ w", &pair.both("x @ w"), 0.0);
        assert_eq!(ran_by(&pair, "SELECT sum(a) FROM t"), None);
    }
    assert!(!pair.explained("x @ w").contains("GPU"));
}

#[test]
fn a_device_with_little_memory_is_avoided() {
    let Some(pair) = pair() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'; SET gpu_keep = off").unwrap();
    pair.execute("CREATE MATRIX large = randn(400, 400, 20)");
    assert_eq!(counts(&pair, "memory"), [FEW_BYTES.parse().unwrap(), 1 << 30]);
    // It has less room for anything, and none for this.
    for expression in ["r + 1", "large @ large"] {
        assert_eq!(ran_by(&pair, &entries(expression)), Some(1), "{expression}");
        assert_close(expression, &pair.both(expression), 64.0);
    }
    while_busy(&pair, 1, "x + y", || {
        assert_eq!(ran_by(&pair, &entries("r * 2")), Some(0));
        // What has no room there shares the one that is busy.
        thread::scope(|scope| {
            let second = scope.spawn(|| pair.device.matrix("large @ large").unwrap());
            wait_for(&pair, 1, 2);
            assert_eq!(count(&pair.device, 0, "under_way"), 0);
            standin::set("never_done_1", 0);
            assert_close(
                "large @ large",
                &[second.join().unwrap(), pair.host.matrix("large @ large").unwrap()],
                64.0,
            );
        });
    });
    assert_clean(&pair);
}

/// The first is too old.
#[test]
fn a_device_that_does_not_do_is_passed_over() {
    let Some(pair) = pair() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    assert!(figure(&pair.device, 0, "absent").unwrap().contains("too old"));
    for expression in ["x @ w", "s @ s", "x + y"] {
        assert_eq!(ran_by(&pair, &entries(expression)), Some(1), "{expression}");
        assert_close(expression, &pair.both(expression), 64.0);
    }
    assert_eq!(standin::get("crossed"), 0);
}

/// The planner asks the first whether it decomposes, and what is decomposed is kept on the second, which has not been tried and fails.
#[test]
fn what_a_device_does_not_do_another_does() {
    let Some(pair) = pair() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    assert_eq!(ran_by(&pair, &entries("x + 1")), Some(0));
    assert_eq!(ran_by(&pair, &entries("y + 1")), Some(1));
    standin::set("refuse_factorization_1", 1);
    assert_eq!(ran_by(&pair, &entries("cholesky(t(y) @ y)")), Some(0));
    assert_eq!(standin::get("refuse_factorization_1"), 0);
    assert_close("cholesky(t(y) @ y)", &pair.both("cholesky(t(y) @ y)"), 4096.0);
    assert_clean(&pair);
}

#[test]
fn a_device_that_is_not_named_is_not_even_tried() {
    let Some(folder) = built::folder().filter(|_| env::var_os("STANDIN_devices").is_some()) else {
        return;
    };
    own_cache();
    let builder = Database::builder().set("gpu", "force").unwrap();
    let builder = builder.set("gpu_libraries", folder.to_str().unwrap()).unwrap();
    let connection = builder.set("gpu_devices", "1").unwrap().build().unwrap().connect();
    connection.execute("CREATE MATRIX x = randn(300, 40, 1)").unwrap();
    let plan = answer(&connection, "EXPLAIN ANALYZE SELECT * FROM ENTRIES(x * 2)");
    assert!(plan.contains("(by GPU 1)"), "{plan}");
    let why = figure(&connection, 0, "unused").unwrap();
    assert_eq!((why.as_str(), figure(&connection, 0, "trial")), ("gpu_devices has others", None));
    assert_eq!((standin::get("contexts"), standin::get("crossed")), (1, 0));
}
