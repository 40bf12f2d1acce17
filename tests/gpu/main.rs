//! The engine with a GPU: what it computes is what the host computes, whatever fails, and nothing stays behind.
//!
//! No GPU is needed: a stand-in for the driver and its libraries runs every kernel on the processor, thread by thread and in other
//! orders (`tests/standin`). It is compiled by g++, or found where
//! `RELATRIX_STANDIN` says; without either these tests say so and pass.

mod batches;
#[path = "../standin/built.rs"]
mod built;
mod checked;
mod compiling;
mod eigen;
mod falls;
mod graphs;
mod groups;
mod images;
mod observed;
mod random_groups;
mod rows;
#[path = "../standin/sanitizer.rs"]
mod sanitizer;
mod several;
mod shapes;
mod sorts;
mod sparse;
mod standin;
mod streams;

use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::{env, process};

use relatrix::matrix::{Layout, Matrix};
use relatrix::{Connection, Database};

/// One device for all tests: what one has fail must not fail for another.
static DEVICE: Mutex<()> = Mutex::new(());

/// Two databases with the same matrices, one that uses the device for all it can and one that never does.
struct Pair {
    device: Connection,
    host: Connection,
    _alone: MutexGuard<'static, ()>,
}

impl Pair {
    /// None where there is no stand-in.
    fn new() -> Option<Self> {
        let folder = built::folder()?;
        let alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
        standin::reset();
        own_cache();
        let connection = |gpu: &str| {
            let builder = Database::builder().threads(2).set("gpu", gpu).unwrap();
            let builder = builder.set("result_cache", "off").unwrap();
            // Tests of their own count what is recorded.
            let builder = builder.set("gpu_graphs", "off").unwrap();
            let builder = builder.set("gpu_libraries", folder.to_str().unwrap()).unwrap();
            builder.build().unwrap().connect()
        };
        let pair = Self { device: connection("force"), host: connection("off"), _alone: alone };
        pair.try_again();
        pair.execute(
            "CREATE MATRIX x = randn(300, 40, 1); CREATE MATRIX y = randn(300, 40, 2);
             CREATE MATRIX w = randn(40, 17, 3); CREATE MATRIX v = randn(300, 1, 4);
             CREATE MATRIX r = randn(1, 40, 5); CREATE MATRIX s = randn(200, 200, 6);
             CREATE MATRIX f = CAST(randn(300, 40, 7) AS REAL);
             CREATE MATRIX long = rand(1, 5000, 8); CREATE MATRIX tall = rand(5000, 3, 9);
             CREATE MATRIX net = sparse(where(rand(200, 200, 10) < 0.01, rand(200, 200, 11), 0));
             CREATE MATRIX hub = sparse(vstack(rand(1, 5000, 12), where(rand(300, 5000, 13) < 0.001, 1, 0)));
             CREATE MATRIX none = zeros(0, 40); CREATE MATRIX odd = where(x > 1, 1 / zeros(1, 1), x)",
        );
        Some(pair)
    }

    fn execute(&self, text: &str) {
        for connection in [&self.device, &self.host] {
            connection.execute(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }

    /// What the device has failed at too often is given to it again.
    fn try_again(&self) {
        let again = "SET gpu_on_failure = 'error'; SET gpu_on_failure = 'host'";
        self.device.execute(again).unwrap();
    }

    /// The same expression on both.
    fn both(&self, expression: &str) -> [Matrix; 2] {
        [&self.device, &self.host].map(|connection| {
            connection.matrix(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
        })
    }

    fn explained(&self, expression: &str) -> String {
        let text = format!("EXPLAIN SELECT * FROM ENTRIES({expression})");
        let rows = self.device.query(&text).unwrap().rows::<(String, String)>().unwrap();
        rows.into_iter().map(|(_, text)| text).collect()
    }
}

/// Kernels are kept where no earlier run has left any.
fn own_cache() {
    static CACHE: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cache-{}", process::id()));
        // SAFETY: nobody has made a database yet, and tests wait for one another.
        unsafe { env::set_var("XDG_CACHE_HOME", &folder) };
        folder
    });
    LazyLock::force(&CACHE);
}

/// A figure of SHOW GPU.
fn figure(connection: &Connection, name: &str) -> Option<String> {
    let rows = connection.query("SHOW GPU").unwrap();
    let rows = rows.rows::<(String, Option<String>, String, String)>().unwrap();
    rows.into_iter().find_map(|(found, value, ..)| (found == name).then_some(value)).flatten()
}

fn count(connection: &Connection, name: &str) -> u64 {
    figure(connection, name).unwrap_or_default().parse().unwrap_or_default()
}

fn cells(matrix: &Matrix) -> Vec<f64> {
    let shape = matrix.shape();
    (0..shape.cells()).map(|at| matrix.cell(at / shape.columns, at % shape.columns)).collect()
}

/// Whether two results are of one type and shape and differ by so many units of rounding of their largest cell at most.
fn assert_close(expression: &str, [device, host]: &[Matrix; 2], units: f64) {
    let kind = |matrix: &Matrix| (matrix.shape(), matrix.element());
    assert_eq!(kind(device), kind(host), "{expression}");
    let unit = match host.element().size_bytes() {
        4 => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    };
    let (device, host) = (cells(device), cells(host));
    let largest = host
        .iter()
        .filter(|cell| cell.is_finite())
        .fold(0.0, |most: f64, cell| most.max(cell.abs()));
    for (at, (device, host)) in device.iter().zip(&host).enumerate() {
        let is_same = device.to_bits() == host.to_bits() || (device.is_nan() && host.is_nan());
        let is_near = (device - host).abs() <= units * unit * largest;
        assert!(is_same || is_near, "{expression}: cell {at} is {device}, {host} on the host");
    }
}

/// Buffers that are not there to stay.
fn left(connection: &Connection) -> u64 {
    count(connection, "buffers") - count(connection, "kept_buffers")
}

/// Everything that the tests compute: an expression, and by how many units of rounding the device may differ.
const EXPRESSIONS: &[(&str, f64)] = &[
    // Single cells have the bits of the host.
    ("x + y * 2 - 1", 0.0),
    ("relu(x * y + 0.5)", 0.0),
    ("sqrt(abs(x)) / (1 + y ^ 2)", 0.0),
    ("exp(x) + log(abs(y)) - tanh(x) * sigmoid(y)", 0.0),
    ("log1p(abs(x)) + expm1(y) + softplus(x)", 0.0),
    ("where(x > y, x, sign(y)) + floor(x) - ceil(y) + round(x * 3)", 0.0),
    ("(x > 0 AND y < 0) OR NOT (x >= y)", 0.0),
    ("least(x, y) + greatest(x, 0.25)", 0.0),
    ("isnan(x / (x - x)) + isnan(odd)", 0.0),
    ("-odd * 0 + exp(odd)", 0.0),
    ("f * 2 + exp(f)", 0.0),
    ("tanh(f) / f + x", 0.0),
    ("x + r", 0.0),
    ("x * v - r", 0.0),
    ("long + 1", 0.0),
    ("long * long - sum(long)", 4.0),
    ("none + 1", 0.0),
    // These are the device's own functions.
    ("sin(x) + cos(y) * tan(x / 4)", 8.0),
    ("abs(x) ^ 1.7 + gelu(y)", 16.0),
    // Sums have another order.
    ("sum(x)", 64.0),
    ("mean(x * y)", 64.0),
    ("min(x)", 0.0),
    ("max(exp(x))", 0.0),
    ("hstack(var(x), stddev(y), norm(x), norm(x, 1), norm(x, 3))", 64.0),
    ("sum(none)", 0.0),
    ("mean(none)", 0.0),
    ("max(odd)", 0.0),
    ("row_sums(x * y)", 64.0),
    ("row_maxs(tall) + row_mins(tall)", 0.0),
    ("col_sums(tall)", 64.0),
    ("col_means(x) + col_maxs(y)", 64.0),
    ("col_mins(long)", 0.0),
    ("row_argmax(x) + row_argmax(odd)", 0.0),
    ("col_argmax(f) * 2 + col_argmax(round(y))", 0.0),
    ("hstack(trace(s), sum(diag(x)), trace(f[1:40, 1:40]))", 64.0),
    (
        "ITERATE(q => x[1:3, :], t(t(x) @ (row_argmax(x @ t(q)) = t(range(1, 4)))), times => 3)",
        4096.0,
    ),
    ("sum(f)", 64.0),
    ("sum(f) + 1", 64.0),
    ("col_sums(exp(f))", 64.0),
    ("exp(x - row_maxs(x)) / row_sums(exp(x - row_maxs(x)))", 64.0),
    ("x - row_means(abs(x) * 2)", 64.0),
    ("sum(exp(x - row_maxs(x)) / row_sums(exp(x - row_maxs(x))))", 64.0),
    ("col_sums((x - row_means(x)) ^ 2)", 64.0),
    ("row_maxs(x / row_sums(abs(x)))", 64.0),
    // Products.
    ("x @ w", 64.0),
    ("t(x) @ y", 64.0),
    ("t(x) @ x", 64.0),
    ("x @ t(y)", 64.0),
    ("f @ CAST(w AS REAL)", 64.0),
    ("relu(x @ w + 1)", 64.0),
    ("s @ s @ s", 4096.0),
    ("none @ w", 0.0),
    ("t(none) @ none", 0.0),
    // Products with a sparse matrix.
    ("net @ s", 64.0),
    ("net @ s[1:200, 1:1] + 1", 64.0),
    ("t(net) @ s[1:200, 1:37] * 2", 64.0),
    ("CAST(net AS REAL) @ CAST(s[1:200, 1:3] AS REAL)", 64.0),
    ("net[20:150, 1:200] @ s", 64.0),
    ("hub @ tall + hub @ (tall * 2)", 64.0),
    ("t(hub) @ tall[1:301, 1:2]", 64.0),
    ("ITERATE(q => s[1:200, 1:1], 0.85 * (net @ q) + 0.15, times => 20)", 4096.0),
    // Decompositions, whose values are as far apart as their condition says.
    ("solve(t(x) @ x, t(x) @ y)", 4096.0),
    ("solve(s[1:40, 1:40], w) + inv(t(x) @ x) @ w", 1e6),
    ("hstack(det(s[1:9, 1:9]), det(t(f) @ f), rank(x), rank(hstack(x, y)))", 4096.0),
    ("lu(s).l + lu(s).u", 1e6),
    ("lu(x).l * 2", 4096.0),
    ("lu(t(x)).u - lu(t(y)).u", 4096.0),
    ("lu(f).l + 1", 4096.0),
    ("lu(s).p - s", 0.0),
    ("row_argmax(lu(x).p * 2)", 0.0),
    ("cholesky(t(x) @ x)", 4096.0),
    ("cholesky(t(f) @ f)", 4096.0),
    ("qr(x).q + qr(y).q", 4096.0),
    ("qr(t(f)).r", 4096.0),
    ("lstsq(x, y)", 4096.0),
    ("expm(s[1:50, 1:50] / 20) + expm(s[51:100, 1:50] * 3)", 4096.0),
    ("expm(t(f) @ f / 1000)", 4096.0),
    ("eigh(t(x) @ x).values + eigh(t(y) @ y).values", 4096.0),
    ("eigh(t(x) @ x, 7).vectors", 1e6),
    ("svd(x).s + svd(t(y)).s", 4096.0),
    ("svd(x).u @ diag(1 / svd(x).s) @ svd(x).vt", 4096.0),
    ("svd(x, 5).vt", 1e6),
    ("svd(f).u[1:300, 1:4]", 1e6),
    ("pinv(x) + t(pinv(t(y)))", 4096.0),
    ("ITERATE(q => w, solve(t(x) @ x, q) / norm(q), times => 4)", 1e6),
    // The same cells elsewhere.
    ("t(s) + 1", 0.0),
    ("t(x)[3:20, 5:200] * 2", 0.0),
    ("hstack(x + 1, y - 1, v)", 0.0),
    ("vstack(x + 1, r)", 0.0),
    ("reshape(x + 1, 40, 300)", 0.0),
    ("CAST(x + y AS REAL)", 0.0),
    // What goes round stays there.
    ("ITERATE(q => v, (x @ (t(x) @ q)) / norm(q), times => 7)", 4096.0),
    ("ITERATE(q => s, 0.5 * q + 1, times => 40, until => max(abs(q - prior(q))) < 1e-3)", 16.0),
];

#[test]
fn a_device_computes_what_the_host_computes() {
    let Some(pair) = Pair::new() else { return };
    for order in 0..4 {
        standin::set("order", order);
        for (expression, units) in EXPRESSIONS {
            assert_close(expression, &pair.both(expression), *units);
        }
    }
    assert_eq!(figure(&pair.device, "failure"), None);
    assert!(count(&pair.device, "launches") > 300);
    assert_eq!(left(&pair.device), 0);
}

/// What a statement brings to the device.
fn brought(connection: &Connection, expression: &str) -> u64 {
    let before = count(connection, "uploaded");
    connection.matrix(expression).unwrap();
    count(connection, "uploaded") - before
}

#[test]
fn a_matrix_stays_for_the_next_who_reads_it() {
    let Some(pair) = Pair::new() else { return };
    let bytes = 300 * 40 * 8;
    // What made them has read some.
    pair.device.execute("SET gpu_keep = off; SET gpu_keep = on").unwrap();
    assert_eq!(brought(&pair.device, "x + y"), 2 * bytes);
    assert_eq!(brought(&pair.device, "x - y"), 0);
    assert_eq!(brought(&pair.device, "s @ s"), 200 * 200 * 8);
    assert_eq!(brought(&pair.device, "ITERATE(q => v, (x @ (t(x) @ q)), times => 2)"), 300 * 8);
    assert_eq!((count(&pair.device, "kept"), left(&pair.device)), (4, 0));
    for expression in ["x * y + sum(x)", "t(x) @ y", "x + y"] {
        assert_close(expression, &pair.both(expression), 64.0);
    }
    // What is stored under its name now is another matrix, and the old one is no more.
    pair.execute("CREATE OR REPLACE MATRIX x = y * 2");
    assert_eq!(brought(&pair.device, "x + y"), bytes);
    assert_close("x + y", &pair.both("x + y"), 0.0);
    assert_eq!((count(&pair.device, "kept"), left(&pair.device)), (4, 0));
    pair.execute("DROP MATRIX x");
    assert_eq!((count(&pair.device, "kept"), left(&pair.device)), (3, 0));
    pair.device.execute("SET gpu_keep = off").unwrap();
    assert_eq!(count(&pair.device, "buffers"), 0);
    for _ in 0..2 {
        assert_eq!(brought(&pair.device, "f + y"), bytes + bytes / 2);
        assert_eq!(count(&pair.device, "buffers"), 0);
    }
}

/// Three matrices take turns in memory for little more than one, and each is brought anew.
#[test]
fn what_stays_gives_way() {
    let Some(pair) = Pair::new() else { return };
    let bytes = 300 * 40 * 8;
    pair.device.execute(&format!("SET gpu_memory_limit = {}", 5 * bytes / 2)).unwrap();
    for _ in 0..2 {
        for expression in ["sum(x)", "sum(y)", "sum(f)", "col_sums(x * 2)"] {
            assert_close(expression, &pair.both(expression), 64.0);
            assert_eq!(left(&pair.device), 0, "{expression}");
        }
        assert_close("x + 1", &pair.both("x + 1"), 0.0);
    }
    // Who was read last stayed.
    assert_eq!(brought(&pair.device, "sum(x)"), 0);
    assert!(brought(&pair.device, "sum(y)") > 0);
    assert_eq!(figure(&pair.device, "failure"), None);
    assert!(count(&pair.device, "kept_bytes") <= 5 * bytes / 2);
    // What has no room beside what it reads is the host's.
    assert_close("x * y - f", &pair.both("x * y - f"), 0.0);
    // Whoever sets none has what there is.
    pair.device.execute("SET gpu_memory_limit = 0").unwrap();
    assert!(count(&pair.device, "memory_limit") > count(&pair.device, "memory") / 2);
}

/// What has saved most stays, though another was read after it; what was read often long ago gives way in the end.
#[test]
fn what_saves_least_gives_way_first() {
    let Some(pair) = Pair::new() else { return };
    let sum = |name: &str| brought(&pair.device, &format!("sum({name})")) > 0;
    // Two of three matrices have room.
    pair.device.execute(&format!("SET gpu_memory_limit = {}", 5 * 300 * 40 * 8 / 2)).unwrap();
    pair.execute("CREATE MATRIX z = randn(300, 40, 14)");
    pair.device.execute("SET gpu_keep = off; SET gpu_keep = on").unwrap();
    assert!(sum("x") && !sum("x") && !sum("x"));
    assert!(sum("y") && sum("z"));
    assert!(!sum("x") && !sum("z") && sum("y"));
    // Each that gives way raises what the next begins at.
    for name in ["z", "y", "z", "y", "z", "y"] {
        sum(name);
    }
    assert!(sum("x"));
    pair.device.execute("SET gpu_memory_limit = 0").unwrap();
}

#[test]
fn plans_show_what_a_device_runs() {
    let Some(pair) = Pair::new() else { return };
    for (expression, _) in EXPRESSIONS {
        let plan = pair.explained(expression);
        assert!(plan.contains("on the GPU: "), "{plan}");
    }
    pair.device.execute("SET gpu = 'off'").unwrap();
    assert!(!pair.explained("x @ w").contains("GPU"));
    // A device that is slower than the host has nothing to do.
    pair.device.execute("SET gpu = 'auto'").unwrap();
    assert!(!pair.explained("x @ w").contains("GPU"));
}

/// Each allocation, copy, launch and product in turn is refused, and the answer is the host's.
#[test]
fn whatever_fails_the_host_does() {
    let Some(pair) = Pair::new() else { return };
    pair.execute("CREATE MATRIX chain = sparse(net + 9 * eye(200))");
    let expressions = [
        ("relu(x @ w + 0.25) - row_maxs(x)", 64.0),
        ("hstack(sum(x * y), col_sums(tall)[1, 1])", 64.0),
        ("ITERATE(q => v, (x @ (t(x) @ q)) / norm(q), times => 3)", 4096.0),
        ("solve(t(x) @ x, w) * 2", 4096.0),
        ("t(net) @ (net @ s) + 1", 4096.0),
        ("lu(x).p @ y + lu(x).l", 4096.0),
        ("inv(chain) @ s", 4096.0),
        ("net @ net + net", 0.0),
        ("eig(s[1:20, 1:20]).values_re * 2", 1e6),
        (
            "avg_pool2d(relu(conv2d(x, w[1:5, 1:9], height => 5, kernel => 3)), channels => 5, height => 3, kernel_height => 3, kernel_width => 2)",
            64.0,
        ),
        (
            "svd(x).u @ diag(1 / svd(x).s) @ svd(x).vt + qr(x).q * eigh(t(x) @ x).values[1, 1]",
            4096.0,
        ),
    ];
    // Whether it multiplies and decomposes is found out once, while nothing fails.
    expressions
        .iter()
        .for_each(|(expression, units)| assert_close(expression, &pair.both(expression), *units));
    for (fault, keep) in standin::FAULTS.iter().flat_map(|fault| [(fault, "off"), (fault, "on")]) {
        pair.device.execute(&format!("SET gpu_keep = {keep}")).unwrap();
        let before = count(&pair.device, "failed");
        for (expression, units) in expressions {
            let expected = pair.host.matrix(expression).unwrap();
            for nth in 1.. {
                pair.try_again();
                standin::reset();
                standin::set(fault, nth);
                let found = pair.device.matrix(expression);
                let found =
                    found.unwrap_or_else(|error| panic!("{expression}, {fault} {nth}: {error}"));
                assert_close(expression, &[found, expected.clone()], units);
                let is_over = standin::get(fault) > 0;
                standin::reset();
                assert_eq!(left(&pair.device), 0, "{expression}, {fault} {nth}");
                if is_over {
                    break;
                }
            }
        }
        // An allocation is tried twice, so that one refusal does not count; what is kept is copied once.
        let failed = count(&pair.device, "failed") - before;
        let is_survived = *fault == "fail_alloc" || (*fault == "refuse_copy" && keep == "on");
        assert!(failed > 3 || is_survived, "{fault} happened {failed} times");
    }
    standin::set("fail_allocs", 1);
    assert_close("x + y", &pair.both("x + y"), 0.0);
    let why = figure(&pair.device, "failure").unwrap();
    assert!(why.contains("no room"), "{why}");
}

/// What is wrong with the cells of a matrix is said by the host, also where no failure is allowed; what only the host can do it does.
#[test]
fn what_a_decomposition_refuses_is_for_the_host() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for (expression, expected) in [
        ("inv(v[1:40, 1:1] @ r)", "singular"),
        ("solve(v[1:40, 1:1] @ r, w)", "singular"),
        ("solve(t(x) @ x, t(odd) @ y)", "finite"),
        ("lstsq(x, odd)", "finite"),
        ("cholesky(t(x) @ x * -1)", "positive definite"),
        ("eigh(t(odd) @ odd).values", "finite"),
        ("svd(odd).s", "finite"),
        ("lu(odd).u", "finite"),
    ] {
        assert!(pair.explained(expression).contains("on the GPU: "), "{expression}");
        let [device, host] = [&pair.device, &pair.host]
            .map(|connection| connection.matrix(expression).unwrap_err().to_string());
        assert_eq!(device, host, "{expression}");
        assert!(device.contains(expected), "{device}");
    }
    let before = count(&pair.device, "failed");
    let by_host = [
        "lstsq(hstack(x, x), y)",
        "pinv(x * 0)",
        "rank(hstack(x, y, x))",
        "svd(v @ r).s",
        "lu(hstack(x, x) * 0).u",
    ];
    for expression in by_host {
        assert_close(expression, &pair.both(expression), 4096.0);
    }
    assert_eq!(count(&pair.device, "failed") - before, by_host.len() as u64);
    assert_close("det(v[1:40, 1:1] @ r)", &pair.both("det(v[1:40, 1:1] @ r)"), 4096.0);
    assert_eq!(left(&pair.device), 0);
}

/// It is sparse, as on the host, wherever it goes from there: in products, in rounds and back.
#[test]
fn a_permutation_is_the_hosts() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for (expression, units) in [
        ("lu(s).p @ s", 64.0),
        ("lu(x).p @ x - lu(x).l @ lu(x).u + x", 4096.0),
        ("t(lu(t(y)).p) @ (lu(t(y)).l @ lu(t(y)).u)", 4096.0),
        ("lu(f).p @ f", 64.0),
        ("ITERATE(q => s, lu(q).p @ (q @ s) / norm(q), times => 3)", 1e6),
    ] {
        assert!(pair.explained(expression).contains("on the GPU: "), "{expression}");
        assert_close(expression, &pair.both(expression), units);
    }
    let [device, host] = pair.both("lu(s).p");
    assert_eq!([device.layout(), host.layout()], [Layout::Csr; 2]);
    assert_eq!(cells(&device), cells(&host));
    assert_eq!(left(&pair.device), 0);
}

/// A text that does not compile is the host's from then on, one that is not loaded is compiled anew.
#[test]
fn a_kernel_that_does_not_compile_is_not_tried_again() {
    let Some(pair) = Pair::new() else { return };
    let expression = "floor(x) * ceil(y) - round(x) * sign(y)";
    standin::set("fail_compile", 1);
    for failed in 1..3 {
        assert_close(expression, &pair.both(expression), 0.0);
        assert_eq!(count(&pair.device, "failed"), failed);
    }
    let why = figure(&pair.device, "failure").unwrap();
    assert!(why.contains("does not compile") && why.contains("asked for"), "{why}");
    let plan = format!("EXPLAIN ANALYZE SELECT * FROM ENTRIES({expression})");
    let rows = pair.device.query(&plan).unwrap().rows::<(String, String)>().unwrap();
    let plan: String = rows.into_iter().map(|(_, text)| text).collect();
    assert!(plan.contains("(done by the host: "), "{plan}");
}

#[test]
fn a_failure_is_an_error_where_it_is_to_be_one() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    standin::set("refuse_launch", 1);
    let error = pair.device.matrix("x + y").unwrap_err().to_string();
    assert!(error.contains("the GPU failed: ") && error.contains("gpu_on_failure"), "{error}");
    standin::reset();
    assert_close("x + y", &pair.both("x + y"), 0.0);
}

#[test]
fn what_has_no_room_on_the_device_stays_on_the_host() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_memory_limit = '100KB'").unwrap();
    assert!(pair.explained("v + 1").contains("on the GPU: "));
    assert!(!pair.explained("x + y").contains("GPU"));
    assert_close("x + y", &pair.both("x + y"), 0.0);
    assert!(count(&pair.device, "buffer_bytes_peak") > 0);
    pair.device.execute("SET gpu_memory_limit = '1GB'").unwrap();
    assert!(pair.explained("x + y").contains("on the GPU: "));
}

/// What `gpu_precision` may be beside off, how far a factor's cell is then from what is multiplied, and what EXPLAIN says.
const PRECISIONS: [(&str, f64, &str); 3] = [
    ("float32", 1.0 / (1 << 24) as f64, ", in float32"),
    ("tf32", 1.0 / 2048.0, ", in tf32"),
    ("bf16", 1.0 / 256.0, ", in bf16"),
];

/// The largest error of a product, as a share of what its terms come to without their signs.
fn error(found: &Matrix, exact: &Matrix, terms: &Matrix) -> f64 {
    let errors = cells(found).into_iter().zip(cells(exact)).zip(cells(terms));
    errors.map(|((found, exact), terms)| (found - exact).abs() / terms.abs()).fold(0.0, f64::max)
}

/// Each product has an error that its precision allows and a higher one would not have.
#[test]
fn products_are_as_precise_as_they_are_to_be() {
    let Some(pair) = Pair::new() else { return };
    pair.execute("CREATE MATRIX g = CAST(w AS REAL)");
    // A product, the same of doubles, its terms without their signs, and how many they are.
    let products = [
        ("x @ w", "x @ w", "abs(x) @ abs(w)", 40.0),
        ("t(x) @ y", "t(x) @ y", "t(abs(x)) @ abs(y)", 300.0),
        ("t(x) @ x", "t(x) @ x", "t(abs(x)) @ abs(x)", 300.0),
        ("x @ t(y)", "x @ t(y)", "abs(x) @ t(abs(y))", 40.0),
        ("f @ w", "CAST(f AS DOUBLE) @ w", "abs(f) @ abs(w)", 40.0),
        ("f @ g", "CAST(f AS DOUBLE) @ CAST(g AS DOUBLE)", "abs(f) @ abs(g)", 40.0),
    ];
    for (product, doubles, terms, count) in products {
        let [exact, terms] = [doubles, terms].map(|text| pair.host.matrix(text).unwrap());
        pair.device.execute("SET gpu_precision = 'off'").unwrap();
        let own = pair.device.matrix(product).unwrap();
        let is_single = own.element().size_bytes() == 4;
        let mut last = error(&own, &exact, &terms);
        assert!(last < if is_single { 1e-5 } else { 1e-13 }, "{product}: {last}");
        for (precision, roundoff, shown) in PRECISIONS {
            pair.device.execute(&format!("SET gpu_precision = '{precision}'")).unwrap();
            let plan = pair.explained(product);
            if is_single && precision == "float32" {
                assert!(!plan.contains(shown), "{plan}");
                continue;
            }
            assert!(plan.contains(shown), "{plan}");
            let found = pair.device.matrix(product).unwrap();
            assert_eq!(found.element(), own.element(), "{product}");
            let found = error(&found, &exact, &terms);
            let sums = (count + 1.0) / (1 << 24) as f64;
            let bound = 2.0 * roundoff + roundoff * roundoff + 1.01 * sums;
            assert!(found <= bound, "{product} in {precision}: {found} of {bound}");
            assert!(found > 4.0 * last, "{product} in {precision}: {found} after {last}");
            last = found;
        }
    }
    assert_eq!(figure(&pair.device, "failure"), None);
}

#[test]
fn only_products_of_dense_matrices_are_less_precise() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_precision = 'bf16'").unwrap();
    for (expression, units) in EXPRESSIONS {
        let multiplies =
            expression.contains('@') && !["net", "hub"].iter().any(|of| expression.contains(of));
        if multiplies && !expression.contains("none") {
            assert!(pair.explained(expression).contains(", in bf16"), "{expression}");
        } else {
            let is_shown = pair.explained(expression).contains(", in bf16");
            assert!(!is_shown || multiplies, "{expression}");
            assert_close(expression, &pair.both(expression), *units);
        }
    }
    // What goes round is converted once where it stays the same.
    let rounds = "ITERATE(q => v, (x @ (t(x) @ q)) / norm(q), times => 7)";
    let launches = || count(&pair.device, "launches");
    let before = launches();
    let [found, exact] = pair.both(rounds);
    let rounded = launches() - before;
    assert!(error(&found, &exact, &exact) > 1e-5);
    pair.device.execute("SET gpu_precision = 'off'").unwrap();
    assert_close(rounds, &pair.both(rounds), 4096.0);
    // Of each round two vectors before and two after, of all rounds `x`.
    assert_eq!(rounded, (launches() - before - rounded) + 7 * 4 + 1);
    // The host never rounds.
    pair.device.execute("SET gpu_precision = 'bf16'; SET gpu = 'off'").unwrap();
    assert!(!pair.explained("x @ w").contains("bf16"));
    assert_close("x @ w", &pair.both("x @ w"), 0.0);
}

#[test]
fn what_a_device_fails_at_has_the_precision_of_the_host() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_precision = 'tf32'").unwrap();
    let [rounded, exact] = pair.both("x @ w");
    assert!(error(&rounded, &exact, &exact) > 1e-5);
    for fault in standin::FAULTS {
        for nth in 1.. {
            pair.try_again();
            standin::set(fault, nth);
            let found = cells(&pair.device.matrix("x @ w").unwrap());
            let is_over = standin::get(fault) > 0;
            standin::reset();
            // All of it by the one or by the other.
            let by_device = found == cells(&rounded);
            assert!(by_device || found == cells(&exact), "{fault} {nth}");
            assert_eq!(left(&pair.device), 0, "{fault} {nth}");
            if is_over {
                assert!(by_device, "{fault} {nth}");
                break;
            }
        }
    }
    standin::set("refuse_product", 1);
    let rows = pair.device.query("EXPLAIN ANALYZE SELECT * FROM ENTRIES(x @ w)").unwrap();
    let rows = rows.rows::<(String, String)>().unwrap();
    let plan: String = rows.into_iter().map(|(_, text)| text).collect();
    assert!(plan.contains("(done by the host: ") && !plan.contains("tf32"), "{plan}");
    standin::reset();
    assert_eq!(left(&pair.device), 0);
}

/// An answer is remembered with the precision that it was computed in.
#[test]
fn answers_of_another_precision_are_others() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET result_cache = 'on'; SET result_cache_after_ms = 0").unwrap();
    let answer = |precision: &str| {
        pair.device.execute(&format!("SET gpu_precision = '{precision}'")).unwrap();
        let rows = pair.device.query("SELECT MATRIX(max(x @ w))").unwrap();
        rows.rows::<(f64,)>().unwrap()[0].0
    };
    let first = ["off", "bf16", "tf32"].map(answer);
    assert!(first[0] != first[1] && first[1] != first[2] && first[2] != first[0], "{first:?}");
    assert_eq!(["off", "bf16", "tf32"].map(answer), first);
}
