//! How many threads of a database work at once, as the operating system sees it.
//!
//! A database has `threads` for rows and as many for blocks of cells. Statements share both, so their number does not
//! count: what is counted here is how many threads of a process could run at some moments, looked at from another one. And what
//! is at hand is given without any of them.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use relatrix::params;

use super::builder;

const THREADS: usize = 2;
const CONNECTIONS: usize = 12;

/// How long the connections work, all of them to the end.
const LOAD: Duration = Duration::from_secs(2);

/// Threads that can run now.
fn running(process: u32) -> usize {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    // What has ended meanwhile does not run.
    let states = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    // The state stands behind the name, which is in parentheses.
    states.filter(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" R"))).count()
}

/// This test binary as a process that runs one test.
fn process(test: &str) -> Child {
    Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", test, "--ignored", "--test-threads", "1"])
        .spawn()
        .expect("it starts again")
}

#[test]
fn more_connections_are_no_more_threads_that_work() {
    let mut process = process("threads::connections_compute_and_aggregate");
    let mut counts = Vec::new();
    while process.try_wait().expect("a process of ours").is_none() {
        counts.push(running(process.id()));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(process.wait().expect("a process of ours").success());
    counts.sort_unstable();
    assert!(counts.len() > 100, "it was looked at {} times", counts.len());
    // Those that hand statements in plan them, and one that waits for a core can run too: what half of the looks saw,
    // and as many again that plan.
    let usual = counts[counts.len() / 2];
    assert!(usual >= THREADS, "{usual} threads work where there is always work for {THREADS}");
    assert!(usual <= 3 * THREADS, "{usual} threads of {THREADS} and {THREADS} work");
}

#[test]
fn small_statements_wake_no_thread() {
    let mut process = process("threads::a_caller_asks_for_little");
    assert!(process.wait().expect("a process of ours").success());
}

/// How often threads of this name have gone to sleep, or were sent to.
fn sleeps(name: &str) -> u64 {
    let of = |status: String| {
        let is_one = status.starts_with(&format!("Name:\t{name}\n"));
        let count = |line: &str| line.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok();
        is_one.then(|| status.lines().filter_map(count).sum::<u64>())
    };
    let tasks = fs::read_dir("/proc/self/task").expect("this process");
    let statuses =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    statuses.filter_map(of).sum()
}

#[test]
#[ignore = "another test runs it, in a process that has nothing else to do"]
fn a_caller_asks_for_little() {
    let connection = builder().threads(THREADS).build().unwrap().connect();
    connection
        .execute("CREATE TABLE t AS SELECT value AS id, value * 2 AS x FROM range(100000)")
        .unwrap();
    let ask = |id: i64| {
        let rows = connection.query_with("SELECT x FROM t WHERE id = $1", params![id]).unwrap();
        assert_eq!(rows.rows::<(i64,)>().unwrap(), [(2 * id,)]);
        let rows = connection.query_with("SELECT $1 + 1", params![id]).unwrap();
        assert_eq!(rows.rows::<(i64,)>().unwrap(), [(id + 1,)]);
    };
    // Those who made the table go to sleep.
    (0..3).for_each(ask);
    std::thread::sleep(Duration::from_millis(50));
    let before = sleeps("relatrix");
    (0..500).for_each(ask);
    let woken = sleeps("relatrix") - before;
    assert!(woken < 100, "threads were woken {woken} times for a thousand statements");
}

#[test]
#[ignore = "another test runs it, in a process that has nothing else to do"]
fn connections_compute_and_aggregate() {
    let database = builder().threads(THREADS).build().unwrap();
    database.connect().execute("CREATE MATRIX x = rand(600, 600)").unwrap();
    let end = Instant::now() + LOAD;
    std::thread::scope(|threads| {
        for number in 0..CONNECTIONS {
            let connection = database.connect();
            threads.spawn(move || {
                connection.execute("SET result_cache = off").unwrap();
                let statement = match number % 2 {
                    0 => "SELECT (MATRIX(sum(x @ t(x) @ x)))",
                    _ => "SELECT sum(n) FROM (SELECT value % 1000 AS k, count(*) AS n FROM range(1000000) GROUP BY k)",
                };
                while Instant::now() < end {
                    connection.query(statement).unwrap().collect().unwrap();
                }
            });
        }
    });
}
