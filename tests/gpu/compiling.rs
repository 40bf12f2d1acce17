//! Where a GPU is chosen, and not asked for, nobody waits for a compiler: the host answers until there is a kernel.
//!
//! A stand-in is slower than the host, so a process of this test's own finds rates of a GPU in its user's folder.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use relatrix::{Connection, Database};

use super::groups::answer;
use super::{built, count, figure};

/// Says in which process this is: that which measures the stand-in, or that which goes by other rates.
const INSIDE: &str = "RELATRIX_GPU_TEST_INSIDE";

const TEST: &str = "compiling::a_kernel_is_compiled_while_the_host_answers";

/// Until it is compiled, and its columns are there.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_kernel_is_compiled_while_the_host_answers() {
    let Some(folder) = built::folder() else { return };
    match env::var(INSIDE).as_deref() {
        Err(_) => {
            let cache = Path::new(env!("CARGO_TARGET_TMPDIR"))
                .join(format!("compiling-{}", std::process::id()));
            fs::create_dir_all(&cache).unwrap();
            inside("measures", &cache);
            make_fast(&cache);
            inside("chooses", &cache);
            fs::remove_dir_all(&cache).unwrap();
        }
        Ok("measures") => {
            let measured = figure(&connection(folder), "launch");
            assert!(measured.is_some());
        }
        Ok(_) => chooses(&connection(folder)),
    }
}

/// This test in a process of its own.
fn inside(what: &str, cache: &Path) {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(INSIDE, what)
        .env("XDG_CACHE_HOME", cache)
        .env("RELATRIX_STANDIN", built::folder().unwrap())
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && text[0].contains("1 passed"), "{what}: {}", text.concat());
}

/// Writes rates of a GPU over those that were measured.
fn make_fast(cache: &Path) {
    let folder = fs::read_dir(cache).unwrap().next().unwrap().unwrap().path();
    let is_rates = |path: &Path| path.to_string_lossy().contains("device-");
    let mut files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let file = files.find(|path| is_rates(path)).unwrap();
    let faster = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [name, rate, "s"] if rate.parse::<f64>().is_ok() => format!("{name} 1e-6 s\n"),
        [name, rate, unit] if rate.parse::<f64>().is_ok() => format!("{name} 1e12 {unit}\n"),
        _ => format!("{line}\n"),
    };
    let text: String = fs::read_to_string(&file).unwrap().lines().map(faster).collect();
    assert!(text.contains("launch 1e-6 s"), "{text}");
    fs::write(&file, text).unwrap();
}

fn connection(folder: &Path) -> Connection {
    let builder = Database::builder().threads(2).set("gpu", "force").unwrap();
    let builder = builder.set("result_cache", "off").unwrap();
    let builder = builder.set("gpu_libraries", folder.to_str().unwrap()).unwrap();
    builder.build().unwrap().connect()
}

fn chooses(connection: &Connection) {
    connection
        .execute(
            "CREATE TABLE t AS SELECT CAST(i % 7 AS TINYINT) AS k, CAST(i % 100 AS SMALLINT) AS a, i % 5003 AS b
             FROM generate_series(1, 400000) AS g(i)",
        )
        .unwrap();
    // Whether the device is to be trusted, and adds up, is known from then on.
    answer(connection, "SELECT count(*) FROM t WHERE a > 3");
    let statement =
        "SELECT k, count(*), sum(a), sum(b), min(b), max(a) FROM t GROUP BY k ORDER BY k";
    connection.execute("SET gpu = 'off'").unwrap();
    let expected = answer(connection, statement);
    connection.execute("SET gpu = 'auto'").unwrap();
    let launches = || count(connection, "launches");
    let (before, compiled) = (launches(), count(connection, "compiled"));
    let start = Instant::now();
    // Columns are brought once they are owed as much.
    while !answer(connection, &format!("EXPLAIN {statement}")).contains("by the GPU") {
        assert_eq!(answer(connection, statement), expected);
        assert!(
            start.elapsed() < PATIENCE,
            "{}",
            answer(connection, &format!("EXPLAIN {statement}"))
        );
    }
    assert_eq!((launches(), count(connection, "compiled")), (before, compiled));
    // It is the device's, and the host answers: that is no failure.
    let measured = answer(connection, &format!("EXPLAIN ANALYZE {statement}"));
    assert!(measured.contains("by the GPU") && measured.contains("by_host=1"), "{measured}");
    assert!(!measured.contains("done by the host"), "{measured}");
    assert_eq!(launches(), before);
    while launches() == before {
        assert_eq!(answer(connection, statement), expected);
        assert!(start.elapsed() < PATIENCE, "nobody compiles");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(count(connection, "compiled"), compiled + 1);
    assert_eq!((figure(connection, "failure"), count(connection, "failed")), (None, 0));
}
