//! The memory limit as the operating system sees it: the binary as a process, and the most that it was resident with.

#![cfg(all(feature = "repl", target_os = "linux"))]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

const MIB: usize = 1 << 20;

/// Limits that every case passes several times, and what the process may hold beyond.
const LIMITS: [(usize, Beyond); 2] = [(256, Beyond::WithCode(64)), (64, Beyond::Code(48))];

/// What a process may hold beyond its limit.
#[derive(Clone, Copy)]
enum Beyond {
    /// So many MiB, its code among them.
    WithCode(usize),
    /// So many MiB beside its code: how much of that the system brings in with what a statement reads of it is the
    /// system's to decide, from some 60 MiB on, and as much as a small limit.
    Code(usize),
}

/// How often it is looked whether a statement that failed has given back what it held.
const LOOKS_MAX: usize = 10_000;

/// A process of the binary that reads statements, and what it answers.
struct Process {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_relatrix"))
            .args(["--format", "csv", "--keep-going"])
            .args(if arguments.contains(&"--threads") { &[][..] } else { &["--threads", "2"] })
            .args(arguments)
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, answers }
    }

    /// The rows of a statement that yields some, and nothing where it fails.
    fn rows(&mut self, statement: &str) -> Vec<String> {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{statement};\nSELECT 'that was all' AS it;").expect("it reads");
        let mut rows = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).expect("text") > 0, "it ended: {rows:?}");
            rows.push(line.trim_end().to_owned());
            if rows.ends_with(&["it".to_owned(), "that was all".to_owned()]) {
                rows.truncate(rows.len() - 2);
                return rows;
            }
        }
    }

    /// The most that it was resident with.
    fn peak_mib(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap() / 1024
    }

    /// Code that is in memory: pages of files that have a name, as those have not that it puts rows in.
    fn code_mib(&self) -> usize {
        let maps = fs::read_to_string(format!("/proc/{}/smaps", self.child.id())).unwrap();
        let (mut is_code, mut kib) = (false, 0);
        for line in maps.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["Rss:", resident, _] => {
                    kib += if is_code { resident.parse::<usize>().unwrap() } else { 0 };
                }
                [range, _, _, _, _, path @ ..] if range.contains('-') => {
                    is_code = matches!(path, [path] if path.starts_with('/'));
                }
                _ => (),
            }
        }
        kib / 1024
    }

    /// Whether it kept to its limit, and prints how far.
    fn is_within(&self, name: &str, limit_mib: usize, beyond: Beyond) -> bool {
        let (peak_mib, code_mib) = (self.peak_mib(), self.code_mib());
        let most_mib = match beyond {
            Beyond::WithCode(mib) => limit_mib + mib,
            Beyond::Code(mib) => limit_mib + code_mib + mib,
        };
        println!(
            "{name}: {peak_mib} MiB of {limit_mib}, {code_mib} of it code, at most {most_mib}"
        );
        peak_mib <= most_mib
    }

    /// What it wrote to standard error.
    fn complaints(mut self) -> String {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output().expect("it ends");
        String::from_utf8(output.stderr).expect("text")
    }
}

/// Each computes one row from some hundred megabytes.
const CASES: &[(&str, &str)] = &[
    (
        "sort",
        "SELECT count(*), sum(k * (v % 7)) FROM (SELECT (value * 7919) % 8000009 AS k, value AS v \
         FROM range(8000000) ORDER BY k, v LIMIT 7900000)",
    ),
    (
        "sort of texts",
        "SELECT count(*), max(t), min(t) FROM (SELECT concat('text ', (value * 7919) % 2000003) AS t \
         FROM range(2000000) ORDER BY t LIMIT 1900000)",
    ),
    (
        "top of many",
        "SELECT sum(k) FROM (SELECT (value * 7919) % 8000009 AS k, value AS v FROM range(8000000) \
         ORDER BY k LIMIT 6000000)",
    ),
    (
        "group",
        "SELECT count(*), sum(n * s) FROM (SELECT value % 3000017 AS k, count(*) AS n, sum(value) AS s \
         FROM range(6000000) GROUP BY k)",
    ),
    (
        "distinct",
        "SELECT count(*) FROM (SELECT DISTINCT concat('text ', value % 1500000) FROM range(3000000))",
    ),
    (
        "several distinct counts",
        "SELECT count(DISTINCT value % 2000003), count(DISTINCT (value * 7919) % 1500007), sum(value) FROM range(3000000)",
    ),
    ("median", "SELECT median((value * 7919) % 8000009), count(*) FROM range(8000000)"),
    (
        "several distinct counts of huge groups",
        "SELECT sum(k * a), sum(k * b), sum(n) FROM (SELECT value % 2 AS k, count(DISTINCT value % 2000003) AS a, \
         count(DISTINCT (value * 7919) % 1500007) AS b, count(*) AS n FROM range(3000000) GROUP BY value % 2)",
    ),
    (
        "medians of totals",
        "SELECT sum(m), sum(d), count(*) FROM (SELECT value % 3 AS k, median((value * 7919) % 8000009) AS m, \
         count(DISTINCT concat('text ', value % 700001)) AS d FROM range(2000000) GROUP BY ROLLUP (k))",
    ),
    (
        "medians of huge groups",
        "SELECT sum(k * m), sum(n) FROM (SELECT value % 3 AS k, median((value * 7919) % 8000009) AS m, count(*) AS n \
         FROM range(8000000) GROUP BY value % 3)",
    ),
    (
        "join",
        "SELECT count(*), sum(a.v * b.v) FROM (SELECT value AS k, value % 11 AS v FROM range(5000000)) AS a \
         JOIN (SELECT (value * 7919) % 5000011 AS k, value % 13 AS v FROM range(5000000)) AS b ON a.k = b.k",
    ),
    (
        "full join",
        "SELECT count(*), count(a.k), count(b.k), sum(a.v), sum(b.v) FROM \
         (SELECT value AS k, value % 11 AS v FROM range(3000000)) AS a FULL JOIN \
         (SELECT value + 1500000 AS k, value % 13 AS v FROM range(3000000)) AS b ON a.k = b.k",
    ),
    (
        "not in",
        "SELECT count(*), sum(value) FROM range(5000000) WHERE value NOT IN \
         (SELECT (value * 7919) % 9000011 FROM range(4000000))",
    ),
    (
        "window",
        "SELECT sum(r * v), sum(s) FROM (SELECT value % 101 AS v, \
         row_number() OVER (PARTITION BY value % 1009 ORDER BY (value * 7919) % 4000037) AS r, \
         sum(value % 7) OVER (PARTITION BY value % 1009 ORDER BY (value * 7919) % 4000037) AS s FROM range(4000000))",
    ),
    (
        "window without parts",
        "SELECT sum(r), max(n) FROM (SELECT rank() OVER (ORDER BY value % 1000003) AS r, count(*) OVER () AS n \
         FROM range(3000000))",
    ),
    (
        "window from behind",
        "SELECT sum(r), sum(s), max(l) FROM (SELECT count(*) OVER w AS r, sum(value % 7) OVER w AS s, last_value(value) OVER w AS l \
         FROM range(4000000) WINDOW w AS (ORDER BY (value * 7919) % 4000037 ROWS BETWEEN 3 PRECEDING AND UNBOUNDED FOLLOWING))",
    ),
    (
        "window from far before and after",
        "SELECT sum(r), sum(s), sum(f) FROM (SELECT count(*) OVER b AS r, first_value(value % 7) OVER b AS f, \
         sum(value % 7) OVER a AS s FROM range(4000000) \
         WINDOW b AS (ORDER BY (value * 7919) % 4000037 RANGE BETWEEN 1000000 PRECEDING AND UNBOUNDED FOLLOWING), \
         a AS (ORDER BY (value * 7919) % 4000037 RANGE BETWEEN 1000000 FOLLOWING AND UNBOUNDED FOLLOWING))",
    ),
    (
        "pairs by a condition",
        "SELECT count(*), sum(a.value) FROM range(3000000) AS a JOIN range(3) AS b ON a.value % 5 > b.value",
    ),
    (
        "recursion",
        "WITH RECURSIVE r AS (SELECT value AS x FROM range(1000000) UNION ALL SELECT x + 1000000 FROM r \
      WHERE x < 3000000) SELECT count(*), sum(x) FROM r",
    ),
];

#[test]
fn every_operator_keeps_to_the_limit_and_answers_as_without() {
    let mut free = Process::start(&[]);
    for (name, statement) in CASES {
        let expected = free.rows(statement);
        for (limit_mib, beyond) in LIMITS {
            let mut bound = Process::start(&["--memory-limit", &format!("{limit_mib}MiB")]);
            let answer = bound.rows(statement);
            let is_within = bound.is_within(name, limit_mib, beyond);
            assert_eq!(answer, expected, "{name}: {}", bound.complaints());
            assert!(is_within, "{name}");
        }
    }
    assert_eq!(free.complaints(), "");
}

/// What a thread may hold beyond a limit that leaves nothing: batches, a small table and pages of files.
const MIB_OF_THREAD: usize = 12;

/// Groups whose tables take some 300 MiB, by numbers and by texts, each row of a group of its own and not.
const GROUPS: &[(&str, &str)] = &[
    (
        "groups",
        "SELECT count(*), sum(n * s), max(m) FROM (SELECT (value * 7919) % 3000017 AS k, count(*) AS n, \
         sum(value) AS s, max(value) AS m FROM range(6000000) GROUP BY k)",
    ),
    (
        "distinct",
        "SELECT count(*), max(length(t)) FROM (SELECT DISTINCT concat('the text number ', (value * 7919) % 1500007) AS t \
         FROM range(2000000))",
    ),
    (
        "union",
        "SELECT count(*), sum(value) FROM (SELECT value FROM range(2000000) UNION SELECT value + 1000000 FROM range(2000000))",
    ),
];

#[test]
fn groups_finish_in_next_to_no_memory_on_any_number_of_threads() {
    let mut free = Process::start(&[]);
    for (name, statement) in GROUPS {
        let expected = free.rows(statement);
        for threads in ["1", "2", "4", "8"] {
            let mut bound = Process::start(&["--memory-limit", "32MiB", "--threads", threads]);
            let answer = bound.rows(statement);
            let peak_mib = bound.peak_mib();
            println!("{name}, {threads} threads: {peak_mib} MiB of 32");
            assert_eq!(answer, expected, "{name}, {threads} threads: {}", bound.complaints());
            let beyond_mib = 96 + MIB_OF_THREAD * threads.parse::<usize>().expect("a number");
            assert!(peak_mib <= 32 + beyond_mib, "{name}, {threads} threads: {peak_mib} MiB of 32");
        }
    }
}

/// Limits of the matrices below, and what the process may hold beyond: pages of files that come in between two looks, and
/// what a kernel puts its sums in.
const MATRIX_LIMITS: [(usize, Beyond); 2] = [(256, Beyond::WithCode(96)), (64, Beyond::Code(80))];

/// Statements over matrices that pass every limit, and a query of what they made. Cells are whole numbers where sums are compared.
const MATRICES: &[(&str, &str, &str)] = &[
    (
        "product",
        "CREATE MATRIX a = floor(rand(3600, 3000, 1) * 9); CREATE MATRIX b = floor(rand(3000, 3300, 2) * 9); \
         CREATE MATRIX c = a @ b",
        "SELECT (MATRIX(sum(c))), (MATRIX(max(c))), (MATRIX(sum(c[100, :]))), (MATRIX(sum(c[:, 3300])))",
    ),
    (
        "products with transposes",
        "CREATE MATRIX a = floor(rand(4000, 2500, 1) * 9); CREATE MATRIX b = floor(rand(4000, 2600, 2) * 9); \
         CREATE MATRIX c = t(a) @ a; CREATE MATRIX d = t(a) @ b; CREATE MATRIX e = c @ t(a)",
        "SELECT (MATRIX(sum(c))), (MATRIX(sum(c - t(c)))), (MATRIX(sum(d))), (MATRIX(max(d))), (MATRIX(sum(e)))",
    ),
    (
        "cell by cell",
        "CREATE MATRIX a = floor(rand(4000, 5000, 1) * 9); CREATE MATRIX b = t(floor(rand(5000, 4000, 2) * 9)); \
         CREATE MATRIX c = a * 2 + b; CREATE MATRIX d = cumsum(hstack(c, a))",
        "SELECT (MATRIX(sum((a - c) ^ 2))); SELECT (MATRIX(max(row_sums(c)))); SELECT (MATRIX(max(col_sums(t(c))))); \
         SELECT (MATRIX(sum(d[4000, :]))); SELECT (MATRIX(sum(vstack(a, b))))",
    ),
    (
        "matrices in FROM",
        "CREATE MATRIX a = floor(rand(400000, 50, 1) * 9)",
        "SELECT e.n, e.s, e.t, m.s FROM (SELECT count(*) AS n, sum(value) AS s, sum(value * column) AS t FROM ENTRIES(a)) AS e, \
         (SELECT sum(c1 * c2) AS s FROM MATRIX(a)) AS m",
    ),
    (
        "wide rows with labels",
        "CREATE MATRIX w AS SELECT (value * 7919) % 3000017 AS id, value % 7 AS a, value % 11 AS b, value % 13 AS c, \
         value % 17 AS d FROM range(3000000) ROWS BY id",
        "SELECT (MATRIX(sum(w))), (MATRIX(sum(t(w) @ w))), (SELECT sum(id * a) FROM MATRIX(w))",
    ),
    (
        "entries",
        "CREATE MATRIX m WITH (duplicates = 'sum') AS SELECT (value * 7919) % 700001 AS r, (value * 104729) % 1000003 AS c, \
         value % 9 - 3 AS v FROM range(8000000) ROWS BY r COLUMNS BY c; CREATE MATRIX v = ones(ncol(m), 1)",
        "SELECT (MATRIX(nnz(m))), (MATRIX(nrow(m))), (MATRIX(ncol(m))), (MATRIX(sum(m))), (MATRIX(max(m @ v))), \
         (SELECT sum(r % 1009 * value) FROM ENTRIES(m)), (SELECT sum(c % 1009 * value) FROM ENTRIES(m))",
    ),
    (
        "entries of texts",
        "CREATE MATRIX m WITH (duplicates = 'last') AS SELECT concat('r', (value * 7919) % 20011) AS r, \
         (value * 104729) % 50021 * 1000000007 AS c, value % 9 - 3 AS v FROM range(6000000) ROWS BY r COLUMNS BY c",
        "SELECT (MATRIX(nnz(m))), (MATRIX(nrow(m))), (MATRIX(ncol(m))), (MATRIX(sum(m))), \
         (SELECT sum(length(r) * value) FROM ENTRIES(m)), (SELECT min(r) FROM ENTRIES(m))",
    ),
    (
        "entries of many texts",
        "CREATE MATRIX m WITH (duplicates = 'sum') AS SELECT concat('the row number ', (value * 7919) % 1000003) AS r, \
         concat('c', value % 1009) AS c, value % 9 - 3 AS v FROM range(3000000) ROWS BY r COLUMNS BY c",
        "SELECT (MATRIX(nnz(m))), (MATRIX(nrow(m))), (MATRIX(ncol(m))), (MATRIX(sum(m))), \
         (SELECT sum(length(r) * value) FROM ENTRIES(m)), (SELECT max(r) FROM ENTRIES(m)), (SELECT min(c) FROM ENTRIES(m))",
    ),
    (
        "a graph",
        "CREATE MATRIX g WITH (duplicates = 'sum') AS SELECT (value * 7919) % 500009 AS s, (value * value) % 700001 AS t \
         FROM range(8000000) NODES BY s, t",
        "SELECT (MATRIX(nnz(g))), (MATRIX(nrow(g))), (MATRIX(sum(g))), (MATRIX(max(row_sums(g)))), (MATRIX(max(col_sums(g))))",
    ),
    (
        "one row of entries",
        "CREATE MATRIX m WITH (duplicates = 'sum') AS SELECT value % 2 AS r, (value * 7919) % 4000037 AS c, value % 5 AS v \
         FROM range(6000000) ROWS BY r COLUMNS BY c",
        "SELECT (MATRIX(nnz(m))), (MATRIX(ncol(m))), (MATRIX(sum(m))), (MATRIX(sum(m[2, :])))",
    ),
    (
        "solved",
        "CREATE MATRIX a = rand(3000, 3000, 1) + 3000 * eye(3000); CREATE MATRIX x = solve(a, ones(3000, 1)); \
         CREATE MATRIX s = t(a) @ a; CREATE MATRIX l = cholesky(s); CREATE MATRIX i = inv(a)",
        "SELECT (MATRIX(sum(x))), (MATRIX(sum(l))), (MATRIX(norm(a @ x - 1) < 1e-9)), (MATRIX(norm(a @ i - eye(3000)) < 1e-9))",
    ),
    (
        "tall factors",
        "CREATE MATRIX a = rand(700000, 25, 1); CREATE MATRIX q = qr(a).q; CREATE MATRIX s = svd(a).s",
        "SELECT (MATRIX(norm(t(q) @ q - eye(25)) < 1e-9)), (MATRIX(sum(s))), (MATRIX(nrow(q)))",
    ),
    (
        "first singular values",
        "CREATE MATRIX a = rand(4000, 3000, 1); CREATE MATRIX s = svd(a, 1).s; CREATE MATRIX v = t(svd(a, 1).vt)",
        "SELECT (MATRIX(sum(s))), (MATRIX(sum(v))), (MATRIX(abs(norm(a @ v) / s - 1) < 1e-12))",
    ),
];

/// Whether two rows of answers are the same but for the last digits of numbers.
fn are_close(left: &str, right: &str) -> bool {
    let (left, right): (Vec<&str>, Vec<&str>) =
        (left.split(',').collect(), right.split(',').collect());
    let is_close = |left: &str, right: &str| match (left.parse::<f64>(), right.parse::<f64>()) {
        (Ok(x), Ok(y)) => (x - y).abs() <= 1e-9 * x.abs().max(y.abs()),
        _ => left == right,
    };
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_close(left, right))
}

#[test]
fn matrices_beyond_the_limit_answer_as_those_within() {
    for (name, statements, query) in MATRICES {
        let text = format!("{statements}; {query}");
        let mut free = Process::start(&[]);
        let expected = free.rows(&text);
        assert_eq!(free.complaints(), "", "{name}");
        for (limit_mib, beyond) in MATRIX_LIMITS {
            let mut bound = Process::start(&["--memory-limit", &format!("{limit_mib}MiB")]);
            let answer = bound.rows(&text);
            let is_within = bound.is_within(name, limit_mib, beyond);
            let is_same = answer.len() == expected.len()
                && answer.iter().zip(&expected).all(|(left, right)| are_close(left, right));
            assert!(is_same, "{name}: {answer:?} is not {expected:?}; {}", bound.complaints());
            assert!(is_within, "{name}");
        }
    }
}

/// Statements over cells in files, and the megabytes at least that they read and write there. Memory may have room for the
/// 16 MB of places of a sparse matrix.
const PASSED: &[(&str, usize)] = &[
    ("CREATE MATRIX a = rand(3000, 3000, 1)", 72),
    ("CREATE MATRIX b = floor(rand(3000, 3000, 2) * 9)", 144),
    ("CREATE MATRIX c = cumsum(a)", 144),
    ("CREATE MATRIX d = hstack(a, b)", 288),
    ("SELECT (MATRIX(sum(a[:, 7])))", 72),
    ("SELECT (MATRIX(nnz(a)))", 72),
    ("CREATE MATRIX n = rand(100000, 90, 3)", 72),
    ("SELECT sum(c9 * c10) FROM MATRIX(n)", 72),
    ("SELECT sum(value) FROM ENTRIES(b) WHERE column = 5", 72),
    (
        "CREATE MATRIX s AS SELECT value % 3001 AS r, value % 20011 AS c, 1 AS v FROM range(4000000) ROWS BY r COLUMNS BY c",
        32,
    ),
    ("SELECT (MATRIX(nnz(s)))", 32),
    ("SELECT (MATRIX(max(s @ rand(20011, 1, 4))))", 32),
    ("SELECT (MATRIX(max(row_sums(s))))", 32),
];

/// Whoever does not say what he is done with leaves it to a thread that may have to wait.
#[test]
fn kernels_say_what_they_are_done_with_in_files() {
    let mut process = Process::start(&["--memory-limit", "64MiB"]);
    let passed = |process: &mut Process| -> usize {
        let rows = process.rows("SHOW MEMORY");
        let of = |name: &str| {
            let row = rows.iter().find(|row| row.starts_with(name)).expect(name);
            row.split(',').nth(1).expect("its value").parse::<usize>().expect("a number")
        };
        of("mapped_in_order,") + of("mapped_scattered,")
    };
    for (statement, least_mb) in PASSED {
        let before = passed(&mut process);
        process.rows(statement);
        let found_mb = (passed(&mut process) - before) / 1_000_000;
        assert!(found_mb >= *least_mb, "{statement}: {found_mb} MB of {least_mb}");
    }
    assert_eq!(process.complaints(), "");
}

#[test]
fn a_full_directory_is_an_error_and_the_next_statement_works() {
    let folder = tempfile::tempdir().unwrap();
    let directory = format!("{} (quota 4MB)", folder.path().display());
    let mut process = Process::start(&["--memory-limit", "64MiB", "--temp-directory", &directory]);
    process.rows("SET result_cache = off");
    let sort = "SELECT (value * 7919) % 8000009 AS k FROM range(8000000) ORDER BY k DESC";
    let entries = "SELECT value % 2 AS r, value AS c, value AS v FROM range(8000000)";
    for statement in [
        format!("SELECT max(k) FROM ({sort} LIMIT 7000000)"),
        format!("CREATE MATRIX m AS {entries} ROWS BY r COLUMNS BY c"),
    ] {
        assert_eq!(process.rows(&statement), [""; 0]);
        assert_eq!(process.rows("SELECT 6 * 7 AS answer"), ["answer", "42"]);
    }
    let of = |left: &[String], name: &str| {
        let row = left.iter().find(|row| row.starts_with(name)).expect(name);
        row.split(',').nth(1).unwrap().parse::<usize>().unwrap()
    };
    // What other threads were at for the statement ends soon after it.
    let held = ["reserved".to_owned(), format!("disk {}", folder.path().display())];
    let mut looks = (0..LOOKS_MAX).map(|_| process.rows("SHOW MEMORY"));
    let left = looks.find(|left| held.iter().all(|name| of(left, name) == 0));
    let left = left.expect("all is given back");
    assert!(of(&left, "refused") > 0);
    assert!(of(&left, &format!("disk_peak {}", folder.path().display())) > MIB);
    let complaints = process.complaints();
    assert!(complaints.contains("quota"), "{complaints}");
    assert!(complaints.contains("no room on disk: "), "{complaints}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn nothing_is_left_of_a_process_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let mut process = Process::start(&["--memory-limit", "64MiB", "--temp-directory", directory]);
    let sort = "SELECT sum(k) FROM (SELECT (value * 7919) % 80000009 AS k FROM range(80000000) ORDER BY k LIMIT 70000000);\n";
    let input = process.child.stdin.as_mut().unwrap();
    input.write_all(sort.as_bytes()).unwrap();
    input.flush().unwrap();
    let files = || {
        let open = fs::read_dir(format!("/proc/{}/fd", process.child.id())).unwrap();
        open.flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .filter(|path| path.starts_with(directory))
            .count()
    };
    while files() == 0 {
        std::thread::yield_now();
    }
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
