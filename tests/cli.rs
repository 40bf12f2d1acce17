//! The command line as a script sees it: what goes in, what comes out where, and the exit status.

#![cfg(feature = "repl")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn relatrix() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relatrix"));
    command.stdin(Stdio::null()).env("NO_COLOR", "1").args(["--threads", "2"]);
    // What is measured while tests run is not the user's.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn run(arguments: &[&str]) -> Output {
    relatrix().args(arguments).output().expect("the binary starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("answers are UTF-8")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("errors are UTF-8")
}

/// What the binary prints on standard output for these arguments, all of which must succeed.
fn answer(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output).to_owned()
}

const ROWS: &str = "SELECT * FROM (VALUES (1, 'a,b'), (2, NULL)) AS t(id, name) ORDER BY id";

#[test]
fn every_format_writes_the_same_rows() {
    let written = |format: &str| answer(&["--format", format, "-c", ROWS]);
    let table = "\
╭────┬──────╮
│ id │ name │
├────┼──────┤
│  1 │ a,b  │
│  2 │ NULL │
╰────┴──────╯
";
    assert_eq!(written("table"), table);
    assert_eq!(written("csv"), "id,name\n1,\"a,b\"\n2,\n");
    assert_eq!(written("ndjson"), "{\"id\":1,\"name\":\"a,b\"}\n{\"id\":2,\"name\":null}\n");
    assert_eq!(written("markdown"), "| id | name |\n|--:|:--|\n| 1 | a,b |\n| 2 | NULL |\n");
    assert_eq!(written("line"), "  id = 1\nname = a,b\n\n  id = 2\nname = NULL\n");
    let json: Value = serde_json::from_str(&written("json")).unwrap();
    assert_eq!(json[1]["name"], Value::Null);
    assert_eq!(json.as_array().unwrap().len(), 2);
}

#[test]
fn an_answer_of_many_rows_streams_whole() {
    let csv = answer(&["--format", "csv", "-c", "SELECT value FROM range(100000)"]);
    assert_eq!(csv.lines().count(), 100_001);
    let json = answer(&["--format", "json", "-c", "SELECT value FROM range(10000)"]);
    assert_eq!(serde_json::from_str::<Vec<Value>>(&json).unwrap().len(), 10_000);
}

#[test]
fn a_table_without_a_terminal_shows_all_columns() {
    let columns: Vec<String> = (0..60).map(|at| format!("{at} AS column_number_{at}")).collect();
    let table = answer(&["-c", &format!("SELECT {}", columns.join(", "))]);
    assert!(table.contains("column_number_30"), "{table}");
    assert!(!table.contains('…'), "{table}");
}

#[test]
fn texts_and_files_run_in_the_order_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.sql");
    fs::write(&file, "SELECT 2 AS n;").unwrap();
    let file = file.to_str().unwrap();
    let shown = answer(&["-c", "SELECT 1 AS n", "--format=csv", file, "-c", "SELECT 3 AS n"]);
    assert_eq!(shown, "n\n1\nn\n2\nn\n3\n");
}

#[test]
fn several_statements_share_a_session() {
    let text = "CREATE TABLE t (x INT); INSERT INTO t VALUES (1), (2);";
    assert_eq!(answer(&["--format=csv", "-c", text, "-c", "SELECT sum(x) AS s FROM t"]), "s\n3\n");
}

#[test]
fn standard_input_is_run_statement_by_statement() {
    let mut child = relatrix()
        .args(["--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // The answer comes before the input ends.
    input.write_all(b"SELECT\n  ';' AS a;\n").unwrap();
    output.read_line(&mut line).unwrap();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "a\n;\n");
    input.write_all(b".mode ndjson\nSELECT 2 AS b").unwrap();
    drop(input);
    line.clear();
    output.read_to_string(&mut line).unwrap();
    assert_eq!(line, "{\"b\":2}\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_error_names_file_line_and_column_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tour.sql");
    fs::write(&file, "SELECT 1 AS n;\n\nSELECT '日本' ||\n  * 2;\nSELECT 2 AS n;\n").unwrap();
    let output = run(&["--format=csv", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "n\n1\n");
    let errors = stderr(&output);
    assert!(errors.starts_with(&format!("{}:4:3: error: ", file.display())), "{errors}");
    let lines: Vec<&str> = errors.lines().collect();
    let caret = lines.iter().position(|line| line.trim() == "^").expect("a caret");
    assert_eq!(lines[caret - 1], "    * 2;");
    let under = &lines[caret - 1][lines[caret].len() - 1..];
    assert!(under.starts_with('*'), "{errors}");
}

#[test]
fn an_unknown_column_has_a_caret_under_it() {
    let output = run(&["-c", "SELECT 1;", "-c", "SELECT '日本', nonsense FROM (SELECT 1 AS x)"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = stderr(&output);
    assert!(errors.starts_with("-c:1:14: error: "), "{errors}");
    let lines: Vec<&str> = errors.lines().collect();
    // Wide characters take two columns each.
    assert_eq!(lines[lines.len() - 1].find('^'), Some(17), "{errors}");
}

#[test]
fn keep_going_runs_the_rest_and_still_fails() {
    let text = "SELECT 1 AS n; SELECT nonsense; SELEC 2; SELECT 3 AS n";
    let output = run(&["--keep-going", "--format=csv", "-c", text]);
    assert_eq!(stdout(&output), "n\n1\nn\n3\n");
    let errors = stderr(&output).lines().filter(|line| line.starts_with("-c:1:")).count();
    assert_eq!(errors, 2, "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn timing_as_json_is_a_line_for_each_statement() {
    let text = "CREATE TABLE t (x INT); INSERT INTO t VALUES (1), (2); SELECT * FROM t";
    let output = run(&["--timing=json", "--format=csv", "-c", text, "-c", "SELECT 1"]);
    let lines: Vec<Value> =
        stderr(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let statements: Vec<&Value> = lines.iter().map(|line| &line["statement"]).collect();
    assert_eq!(statements, [1, 2, 3, 4]);
    assert_eq!((&lines[0]["rows"], &lines[1]["rows"]), (&Value::Null, &Value::from(2)));
    assert_eq!(lines[2]["rows"], 2);
    let seconds = lines[2]["seconds"].as_f64().unwrap();
    let planning_seconds = lines[2]["planning_seconds"].as_f64().unwrap();
    assert!(0.0 < planning_seconds && planning_seconds <= seconds, "{}", lines[2]);
}

#[test]
fn a_statement_that_fails_has_its_line_of_timing_too() {
    let text = "SELECT 1; SELECT absent; COPY MATRIX absent TO 'x.npy'; SET batch_size = 100";
    let output = run(&["--timing=json", "--keep-going", "-c", text]);
    let lines: Vec<Value> =
        stderr(&output).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let statements: Vec<&Value> = lines.iter().map(|line| &line["statement"]).collect();
    assert_eq!(statements, [1, 2, 3, 4], "{}", stderr(&output));
    assert_eq!(lines[1]["rows"], 0);
}

#[test]
fn answers_without_a_frame_are_kept_apart() {
    let written =
        |format: &str| answer(&["--format", format, "-c", "SELECT 1 AS a", "-c", "SELECT 2 AS b"]);
    assert_eq!(written("markdown"), "| a |\n|--:|\n| 1 |\n\n| b |\n|--:|\n| 2 |\n");
    assert_eq!(written("line"), "a = 1\n\nb = 2\n");
    assert_eq!(written("csv"), "a\n1\nb\n2\n");
    assert_eq!(answer(&["--format", "csv", "-c", "SELECT NULL AS a, 1 AS b"]), "a,b\n,1\n");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("marked.sql");
    fs::write(&file, "\u{feff}SELECT 1 AS a;\nSELECT absent").unwrap();
    let output = run(&["--format", "csv", file.to_str().unwrap()]);
    assert_eq!(stdout(&output), "a\n1\n", "{}", stderr(&output));
    assert!(stderr(&output).contains(":2:8: error"), "{}", stderr(&output));
    let error = relatrix::parse("\u{feff}SELECT )").unwrap_err();
    assert_eq!(error.place().map(|place| place.column), Some(8));
}

#[test]
fn more_threads_than_any_machine_has_work_for_are_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relatrix"));
    let output = command.args(["--threads", "100000", "-c", "SELECT 1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("100000 are more than 1024"), "{}", stderr(&output));
    assert!(relatrix::Database::builder().threads(100_000).build().is_err());
}

#[test]
fn timing_as_text_follows_each_statement() {
    let output = run(&["--timing", "--format=csv", "-c", "SELECT 1"]);
    assert!(stderr(&output).starts_with("1 row in "), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 2);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut child = relatrix()
        .args(["--format=csv", "-c", "SELECT value FROM range(100000000)"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "value\n");
    drop(output);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(stderr(&ended), "");
    assert!(ended.status.success());
}

/// A file that finds no room is told by its name and the system's reason, and nothing is left of it.
#[cfg(unix)]
#[test]
fn a_file_without_room_says_so() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("no_room");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    // No file may be longer than 100 KiB, and whoever tries is told rather than killed.
    let limited = |text: &str| {
        let mut limited = Command::new("bash");
        let script = "ulimit -f 100; trap '' XFSZ; exec \"$0\" --keep-going -c \"$1\"";
        limited.args(["-c", script, env!("CARGO_BIN_EXE_relatrix"), text]).output().unwrap()
    };
    let path = |name: &str| folder.join(name).display().to_string();
    for name in ["a.csv", "a.json"].map(path) {
        let output = limited(&format!("COPY (SELECT * FROM range(100000)) TO '{name}'"));
        assert!(!output.status.success());
        assert!(stderr(&output).contains(&format!("{name}: File too large")), "{output:?}");
    }
    // What is wrong with the next statement is not that.
    let (whole, all) = (path("a.parquet"), folder.display());
    let output = limited(&format!(
        "COPY (SELECT value * 1.5 AS x FROM range(300000)) TO '{whole}';
         COPY (SELECT CAST(concat('x', value) AS INT) FROM range(3)) TO '{all}/' STORED AS CSV"
    ));
    let errors: Vec<&str> = stderr(&output).lines().filter(|line| line.contains("error")).collect();
    let [first, second] = errors[..] else { panic!("{output:?}") };
    assert!(first.contains("File too large") && second.contains("cannot cast"), "{output:?}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

/// Ctrl-C stops a join that would run for hours, and soon.
#[cfg(unix)]
#[test]
fn ctrl_c_stops_a_long_join() {
    let join =
        "SELECT count(*) FROM range(1000000) a JOIN range(1000000) b ON a.value + b.value > 3";
    let mut child = relatrix().args(["-c", join]).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "the join is still running");
    let pressed = Instant::now();
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(pressed.elapsed() < Duration::from_secs(2), "{:?}", pressed.elapsed());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(errors.contains("error: cancelled"), "{errors}");
}

#[test]
fn dot_commands_work_in_files() {
    let text = "CREATE TABLE t (x INT, y DOUBLE);\n.mode csv\n.tables\n.schema t\n";
    assert_eq!(
        answer(&["-c", text]),
        "name,kind\nt,table\ncolumn_name,data_type,is_nullable\nx,Int32,YES\ny,Float64,YES\n"
    );
    let output = run(&["-c", ".nonsense"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "error: there is no command '.nonsense'; .help lists them\n");
}

#[test]
fn matrices_are_listed_described_and_drawn() {
    let text = "CREATE MATRIX x = eye(3);\n.mode csv\n.matrices\n.schema x\n.plot x + 1\n";
    let shown = answer(&["-c", text]);
    assert!(shown.contains("\nx,3,3,") && shown.contains("\nname,x\n"), "{shown}");
    assert!(shown.contains("│████████                │"), "{shown}");
    assert!(shown.ends_with("3x3 dense float64; from 1 to 2\n"), "{shown}");
    let output = run(&["-c", ".plot absent"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("absent"), "{}", stderr(&output));
}

#[test]
fn a_file_that_reads_itself_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("self.sql");
    fs::write(&file, format!(".read {}\n", file.display())).unwrap();
    let output = run(&[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("too deep"), "{}", stderr(&output));
}

#[test]
fn what_is_wrong_with_a_command_line_is_told() {
    assert_eq!(run(&["--format", "xml"]).status.code(), Some(2));
    assert_eq!(run(&["--memory-limit", "much", "-c", "SELECT 1"]).status.code(), Some(2));
    let output = run(&["absent.sql"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: absent.sql: "), "{}", stderr(&output));
}

#[test]
fn help_has_examples_and_version_a_number() {
    assert!(answer(&["--help"]).contains("Examples:"));
    assert_eq!(answer(&["--version"]), format!("relatrix {}\n", env!("CARGO_PKG_VERSION")));
}

/// What a person types in the first minute of the README: the lines after its prompts.
fn first_minute() -> String {
    let readme = fs::read_to_string("README.md").unwrap();
    let (_, section) = readme.split_once("## A first minute").expect("the section is there");
    let (_, block) = section.split_once("```console\n").expect("it shows a session");
    let (session, _) = block.split_once("```").expect("the session ends");
    let typed = |line: &str| {
        let rest = line.strip_prefix("relatrix> ").or_else(|| line.strip_prefix("     ...> "));
        assert!(rest.is_some() || line.starts_with("$ "), "no prompt: {line}");
        rest.map(|rest| format!("{rest}\n"))
    };
    session.lines().filter_map(typed).collect()
}

#[test]
fn the_first_minute_of_the_readme_runs() {
    let mut child = relatrix()
        .args(["--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(first_minute().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "");
    assert!(output.status.success());
    let shown = stdout(&output);
    let parts = [
        "\ncolumn2,-0.",
        "\nshape,57802x57802\n",
        "\n57802x57802 csr float64, 243,517 cells stored",
        "\nphysical_plan,",
        "\n.quit ",
    ];
    for part in parts {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
}

#[test]
fn bench_times_each_statement_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bench.sql");
    fs::write(&file, "CREATE TABLE t AS SELECT 1 AS x;\nSELECT * FROM t;\n").unwrap();
    let arguments = ["bench", file.to_str().unwrap(), "--runs", "3", "--format", "json"];
    let output = Command::new(env!("CARGO_BIN_EXE_relatrix")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let rows: Vec<Value> = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!((&rows[0]["runs"], &rows[1]["runs"]), (&Value::from(1), &Value::from(3)));
    assert_eq!(rows[1]["rows"], 1);
    let at = |name: &str| rows[1][name].as_f64().unwrap();
    assert!(at("min ms") <= at("median ms") && at("median ms") <= at("max ms"));
}

#[test]
fn bench_answers_a_harness() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::write(file("setup.sql"), "CREATE TABLE t AS SELECT value AS x FROM range(5);").unwrap();
    let queries = "-- name: q1\nSELECT x FROM t;\n-- name: bad\nSELECT y FROM t;\n-- name: q2 once\nSELECT 1;\n";
    fs::write(file("queries.sql"), queries).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_relatrix"))
        .arg("bench")
        .args(["--setup".into(), file("setup.sql"), "--queries".into(), file("queries.sql")])
        .args(["--out".into(), file("out"), "--tmp".into(), file("tmp")])
        .args(["--runs", "3", "--threads", "2", "--memory", "0"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let lines: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["load_seconds"].as_f64().is_some());
    assert_eq!((&lines[1]["query"], &lines[1]["rows"]), (&"q1".into(), &5.into()));
    assert_eq!(lines[1]["seconds"].as_array().unwrap().len(), 3);
    assert!(lines[2]["error"].as_str().is_some_and(|error| error.contains('y')));
    assert_eq!(lines[3]["seconds"].as_array().unwrap().len(), 1);
    let kept = fs::File::open(file("out").join("q1.arrow")).unwrap();
    let rows: usize = arrow::ipc::reader::FileReader::try_new(kept, None)
        .unwrap()
        .map(|batch| batch.unwrap().num_rows())
        .sum();
    assert_eq!(rows, 5);
}

#[test]
fn costs_are_measured_where_it_matters_and_kept_for_later_runs() {
    let folder = tempfile::tempdir().unwrap();
    // What is built for debugging keeps its own, for it runs many times slower.
    let name = if cfg!(debug_assertions) { "costs-debug.txt" } else { "costs.txt" };
    let file = folder.path().join("relatrix").join(name);
    let rows = |statements: &str| -> Value {
        // On all threads, as what is measured is.
        let mut command = Command::new(env!("CARGO_BIN_EXE_relatrix"));
        command.stdin(Stdio::null()).env("XDG_CACHE_HOME", folder.path());
        command.args(["--format", "json", "-c", statements]);
        let output = command.output().expect("the binary starts");
        assert!(output.status.success(), "{statements}: {}", stderr(&output));
        serde_json::from_str(stdout(&output)).unwrap()
    };
    let measured = |rows: &Value| -> Vec<Option<f64>> {
        rows.as_array().unwrap().iter().map(|row| row["measured"].as_f64()).collect()
    };
    let large = "EXPLAIN CREATE MATRIX c = rand(3000, 3000, 1) @ rand(3000, 3000, 2)";
    rows("SELECT MATRIX(sum(ones(2, 2)))");
    rows(&format!("SET cost_model = built_in; {large}"));
    let unmeasured = measured(&rows("SHOW COSTS"));
    assert!(!unmeasured.is_empty() && unmeasured.iter().all(Option::is_none));
    assert!(!file.exists());
    rows(large);
    let first = measured(&rows("SHOW COSTS"));
    assert!(file.exists() && first.iter().all(|value| value.is_some_and(|value| value > 0.0)));
    rows(large);
    assert_eq!(measured(&rows("SHOW COSTS")), first);
    fs::write(&file, "nonsense").unwrap();
    let again = measured(&rows("CALIBRATE"));
    assert_eq!(measured(&rows("SHOW COSTS")), again);
    let ran = "CREATE MATRIX c = rand(1500, 1500, 1) @ rand(1500, 1500, 2); SHOW COSTS";
    let ran = rows(ran);
    // What bounds the product is for the machine to say, and for what else it had to do while it was measured.
    let ran: Vec<&Value> = ran.as_array().unwrap().iter().filter(|row| row["runs"] != 0).collect();
    assert!(!ran.is_empty() && ran.iter().all(|row| row["ratio"].as_f64().unwrap() > 0.0));
}

/// What a process was resident with at most, in MiB, as the system counts it.
#[cfg(target_os = "linux")]
fn peak_mib(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it is running");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has memory");
    peak.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") >> 10
}

/// What statements print, one answer a line, and the peak of the process under this limit.
#[cfg(target_os = "linux")]
fn answers_within(limit: &str, statements: &str, answers: usize) -> (Vec<String>, usize) {
    let mut child = relatrix()
        .args(["--memory-limit", limit, "--format", "ndjson", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(statements.as_bytes()).expect("it reads");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let lines = (0..answers).map(|_| output.next().expect("an answer").expect("UTF-8")).collect();
    let peak = peak_mib(child.id());
    drop(input);
    assert!(child.wait().expect("it ends").success());
    (lines, peak)
}

/// Two matrices of 162 MB each, one of them read twice.
#[test]
#[cfg(target_os = "linux")]
fn a_product_beyond_the_limit_stays_within_it() {
    let statements = "\
CREATE MATRIX a = full(4500, 4500, 0.5) + eye(4500);
CREATE MATRIX c = a @ a;
SELECT 1 AS made;
";
    let (answers, peak) = answers_within("128MB", statements, 1);
    assert_eq!(answers, ["{\"made\":1}"]);
    assert!(peak <= 128 + 64, "{peak} MiB");
}
