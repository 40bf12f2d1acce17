//! How many threads of a database work at once, as the operating system sees it.
//!
//! A database has `threads` for rows and as many for blocks of cells. Statements share both, so their number does not
//! count: what is counted here is how many threads of a process could run at some moments, looked at from another one.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use relatrix::Database;

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
#[ignore = "another test runs it, in a process that has nothing else to do"]
fn connections_compute_and_aggregate() {
    let database = Database::builder().threads(THREADS).build().unwrap();
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
