"""Statements over matrices by the host and by the GPU, and rounds whose matrices are in its memory already."""

import statistics

import peers
import sides
from engine import Broken

# Largest cells may be so far apart: by the condition of what is decomposed, and of vectors of near values.
APART_MAX = 1e-8

# A statement that a GPU may answer is asked for so often as it is placed; decompositions take long.
ASKED, ASKED_LONG = 40, 12

# (name, expression); a and b are square, w has 64 columns, v is a column.
STATEMENTS = [
    ("product", "a @ b"),
    ("gram", "t(a) @ a"),
    ("tall product", "a @ w"),
    ("product of five", "a @ b @ a @ b @ a"),
    ("loop", "relu(a * b + 1)"),
    ("exponentials", "exp(a) / (1 + exp(b))"),
    ("sum", "sum((a - b) ^ 2)"),
    ("column sums", "col_sums(a * b)"),
    ("softmax", "exp(a - row_maxs(a)) / row_sums(exp(a - row_maxs(a)))"),
    ("layers", "relu(relu(a @ w + 1) @ t(w))"),
    ("power iteration", "ITERATE(q => v, (a @ q) / norm(a @ q), times => 50)"),
]

# (name, expression); p is symmetric and positive definite.
DECOMPOSITIONS = [
    ("solve", "solve(a, w)"),
    ("inverse", "inv(a)"),
    ("lu", "lu(a).l"),
    ("cholesky", "cholesky(p)"),
    ("qr", "qr(a).q"),
    ("eigenvectors", "eigh(p).vectors"),
    ("singular vectors", "svd(a).u"),
    ("eigenvalues", "eig(c).values_re"),
]

# images has some of 16 channels of 32 x 32, filters 32 of 3 x 3.
IMAGES = [
    ("convolution", "conv2d(images, filters, channels => 16, padding => 1)"),
    ("pooling", "max_pool2d(images, channels => 16, kernel => 2)"),
]

# net has 50 cells in each row, mesh 20: of longer rows, the host would make products of two.
SPARSE = [
    ("times a column", "net @ x"),
    ("times 64 columns", "net @ wide"),
    ("its transpose", "t(net) @ wide"),
    ("times a sparse one", "mesh @ mesh"),
    ("page rank", "ITERATE(q => x, 0.85 * (net @ q) + 0.15, times => 50)"),
]

# (name, start, round, cells moved or None, rounds): each round reads what the last has left.
RESIDENT = [
    ("loop", "a", "relu(q * b + 0.5)", 3, 1000),
    ("sum", "zeros(1, 1)", "sum(relu(b - q))", 1, 1000),
    ("column sums", "t(v)", "col_sums(relu(b - q))", 1, 1000),
    ("row sums", "v", "row_sums(relu(b - q))", 1, 1000),
    ("softmax", "a", "exp(q - row_maxs(q)) / row_sums(exp(q - row_maxs(q)))", 2, 500),
    ("transpose", "a", "t(q)", 2, 1000),
    ("product by a column", "v", "b @ q", 1, 1000),
    ("product", "a", "q @ b", None, 100),
]

# (name, start, round, columns)
RESIDENT_SPARSE = [
    ("times a column", "x", "net @ q", 1),
    ("times 64 columns", "wide", "net @ q", 64),
]


# (cells of a kind, the setting by which products have them)
KINDS = [("float64", "off"), ("float32", "off"), ("tf32", "tf32"), ("bf16", "bf16")]


def dense(side):
    """The matrices of STATEMENTS and DECOMPOSITIONS."""
    return f"""
        CREATE MATRIX a = randn({side}, {side}, 1);
        CREATE MATRIX b = randn({side}, {side}, 2) / sqrt({side});
        CREATE MATRIX w = randn({side}, 64, 3) / sqrt({side});
        CREATE MATRIX v = rand({side}, 1, 4);
        CREATE MATRIX p = t(a) @ a + {side} * eye({side});
        CREATE MATRIX c = randn({side // 4}, {side // 4}, 5);
    """


def pictures(count):
    """Those of IMAGES."""
    return f"CREATE MATRIX images = randn({count}, {16 * 32 * 32}, 6); CREATE MATRIX filters = randn(32, {16 * 3 * 3}, 7);"


def sparse(nodes):
    """Those of SPARSE."""
    return f"""
        {graph("net", nodes, 50)} {graph("mesh", nodes // 4, 20)}
        CREATE MATRIX x = rand({nodes}, 1, 1);
        CREATE MATRIX wide = rand({nodes}, 64, 2);
    """


def graph(name, nodes, others):
    """One whose nodes each have so many others, far and near."""
    other = f"(i * 7919 + s * s * 104729 + s * (i % 997)) % {nodes}"
    return f"""
        CREATE MATRIX {name} WITH (layout = 'sparse') AS
            SELECT i, j, 0.02 AS v FROM (SELECT DISTINCT i, {other} AS j
                FROM (SELECT value AS i FROM generate_series(0, {nodes - 1}) AS t(value)) AS i,
                     (SELECT value AS s FROM generate_series(1, {others}) AS t(value)) AS s) AS pairs
            NODES BY i, j;
    """


def measured(engine, given, facts, found):
    """Puts rows of statements and of rounds among what was found, the former whatever becomes of the latter."""
    beside = peers.of_matrices(given.side)
    print(f"\n{'statement':<20}{'apart by':>10}{sides.HEADS}{'fastest peer, ms':>20}")
    side, few = given.side, min(given.runs, 3)
    rows = found["statements"] = []
    rows += by_statement(engine, dense(side), STATEMENTS, given.runs, ASKED, beside)
    rows += by_statement(engine, dense(side // 2), DECOMPOSITIONS, few, ASKED_LONG, beside)
    rows += by_statement(engine, pictures(side // 16), IMAGES, few, ASKED, beside)
    rows += by_statement(engine, sparse(32 * side), SPARSE, few, ASKED, beside)
    found["rounds"] = in_rounds(engine, given, few, facts, beside)


def by_statement(engine, matrices, statements, runs, asked, beside):
    """Each statement on all sides, and how far the GPU's answer is apart from the host's, by the largest cell."""
    queries = [(name, f"CREATE OR REPLACE MATRIX r = {text}") for name, text in statements]
    apart = [(f"apart {name}", apart_by(text)) for name, text in statements]
    rows, records = sides.measured(engine, matrices, queries, runs, asked, {"warm": ([], apart)})
    for row in rows:
        found = records[f"apart {row['name']}"]
        row["failed"] = row["failed"] or found.error or ""
        row["apart"] = found.rows[0]["apart"] if found.rows else None
        row["same"] = row["apart"] is not None and row["apart"] <= APART_MAX
        row["peers"] = beside.get((row["name"], "float64"), {})
        apart = f"{row['apart']:>10.1e}" if row["apart"] is not None else f"{'–':>10}"
        print(f"{row['name']:<20}{apart}{sides.figures(row)}{peers.fastest(row['peers']):>20}")
    return rows


def apart_by(expression):
    """A text whose answer tells it."""
    return f"""SET gpu = 'off'; CREATE OR REPLACE MATRIX h = {expression};
        SET gpu = 'force'; CREATE OR REPLACE MATRIX d = {expression};
        SET gpu = 'off'; CREATE OR REPLACE MATRIX apart = max(abs(d - h)) / max(abs(h)); SET gpu = 'force';
        SELECT (MATRIX(apart)) AS apart"""


def in_rounds(engine, given, few, facts, beside):
    """What a round takes, as a share of what the GPU copies or multiplies, and as one of a peer's time."""
    rows = resident(engine, given.side, given.runs, bool(given.libraries))
    rows += resident_sparse(engine, 32 * given.side, few)
    print(f"\n{'round, resident':<22}{'of':<9}{'ms':>9}{'GB/s or GFLOP/s':>17}{'share of':>10}{'of a peer':>11}")
    for row in rows:
        name, kind, seconds = row["name"], row["kind"], row["seconds"]
        row["share"] = row["rate"] / float(facts[f"products_{kind}" if name == "product" else "bandwidth"])
        row["peers"] = beside.get((name, kind), {})
        ratio = f"{seconds / min(row['peers'].values()):.2f}" if row["peers"] else "–"
        print(f"{name:<22}{kind:<9}{1e3 * seconds:>9.3f}{row['rate'] / 1e9:>17.0f}{100 * row['share']:>9.0f}%{ratio:>11}")
    for kind in ["float64", "float32"]:
        for peer, seconds in beside.get(("copy", kind), {}).items():
            print(f"{peer} copies {kind} at {2 * given.side**2 * int(kind[5:]) / 8 / seconds / 1e9:.0f} GB/s")
    return rows


def resident(engine, side, runs, is_dry):
    """Rounds of dense matrices: the difference between many and few."""
    few, rows = 2, []
    for kind, precision in KINDS:
        cases = [one for one in RESIDENT if precision == "off" or one[0] == "product"]
        more = {name: 2 if is_dry else many for name, *_, many in cases}
        rounds = [(name, start, step, [few, few + more[name]]) for name, start, step, *_ in cases]
        reals = "" if kind == "float64" else "".join(f"CREATE OR REPLACE MATRIX {m} = CAST({m} AS REAL);" for m in "abwv")
        taken = of_rounds(engine, dense(side) + reals + f"SET gpu_precision = '{precision}';", rounds, runs)
        for name, _, _, cells, _ in cases:
            seconds = (taken[name, few + more[name]] - taken[name, few]) / more[name]
            work = 2 * side**3 if cells is None else cells * side**2 * (8 if kind == "float64" else 4)
            rows.append(dict(name=name, kind=kind, seconds=seconds, rate=work / seconds))
    return rows


def resident_sparse(engine, nodes, runs):
    """The same of a sparse matrix: what is stored and its places, a row of the other factor for each, and the result."""
    few, many = 2, 102
    rounds = [(name, start, step, [few, many]) for name, start, step, _ in RESIDENT_SPARSE]
    taken, rows = of_rounds(engine, sparse(nodes), rounds, runs), []
    for name, _, _, columns in RESIDENT_SPARSE:
        seconds = (taken[name, many] - taken[name, few]) / (many - few)
        work = nodes * (50 * (12 + 8 * columns) + 8 * columns)
        rows.append(dict(name=name, kind="float64", seconds=seconds, rate=work / seconds))
    return rows


def of_rounds(engine, setup, rounds, runs):
    """Median seconds by name and number of rounds, of (name, start, round, numbers)."""
    iterated = lambda start, step, times: f"SELECT (MATRIX(sum(ITERATE(q => {start}, {step}, times => {times}))))"
    texts = [(f"{name} {n}", iterated(start, step, n), False) for name, start, step, numbers in rounds for n in numbers]
    records = engine.measured(setup + "SET gpu = 'force'; SET gpu_on_failure = 'error';", texts, runs + 1)
    failed = [f"{name}: {records[name].error}" for name, *_ in texts if records[name].error]
    if failed:
        raise Broken("\n".join(failed))
    later = lambda seconds: statistics.median(seconds[len(seconds) // 2 :])
    return {(name, n): later(records[f"{name} {n}"].seconds) for name, *_, numbers in rounds for n in numbers}
