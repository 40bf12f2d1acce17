"""What a GPU makes of matrix work, of aggregations and of sorts: checked against the host, measured beside it, and beside PyTorch where that is.

    python benches/gpu.py [relatrix] [--side 4096] [--rows 60000000] [--runs 5] [--only tables|matrices] [--libraries FOLDER]
                          [--full FILE.json]

It prints, in this order, what SHOW GPU says; for each statement how far the GPU's answer is apart from the host's, and the
milliseconds of the host, of the GPU where all is brought there (cold) and where what it reads is there already (warm), and of what
`gpu = auto` takes when it is asked again and again, with its regret: by how much that is slower than the faster of host and warm; the
same of decompositions, half as large, and of a sparse matrix, beside PyTorch's calls of the same libraries; then rates of steps whose
matrices are in the GPU's memory already, as shares of what it copies and of what cuBLAS does when PyTorch calls it; and the same of
aggregations over a table of so many rows, and over joins of it, and of sorts, with what the GPU takes alone once their columns are there, by EXPLAIN ANALYZE.

A dry run, over the stand-in that tests/standin/build.sh has built into a folder:

    python benches/gpu.py target/release/relatrix --side 64 --rows 20000 --runs 1 --libraries FOLDER

Expected of a data-centre device: loops, and aggregations of few groups, at 85 % of its copies, products at nine tenths of cuBLAS alone, a regret of
10 % at most.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import warnings

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
]

# net has 50 cells in each row.
SPARSE = [
    ("times a column", "net @ x"),
    ("times 64 columns", "net @ wide"),
    ("its transpose", "t(net) @ wide"),
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

# (name, query, bytes of a row of the columns that are read, as they lie on the GPU). As many rows as TPC-H's lineitem has at scale
# factor 10, with numbers of its kinds; amounts once more as doubles.
TABLES = [
    ("filtered sum", """SELECT sum(price * discount) AS s FROM lines WHERE day >= DATE '1994-01-01' AND day < DATE '1995-01-01'
        AND discount BETWEEN 0.05 AND 0.07 AND quantity < 24""", 9),
    ("summary", """SELECT flag, status, sum(quantity) AS a, sum(price) AS b, sum(price * (1 - discount)) AS c,
        sum(price * (1 - discount) * (1 + tax)) AS d, avg(quantity) AS e, avg(price) AS f, avg(discount) AS g, count(*) AS h
        FROM lines WHERE day <= DATE '1998-09-02' GROUP BY flag, status ORDER BY flag, status""", 12),
    ("sums of doubles", """SELECT flag, sum(amount) AS a, avg(amount) AS b FROM lines GROUP BY flag ORDER BY flag""", 9),
    ("by month", """SELECT date_trunc('month', day) AS m, sum(price) AS s, max(discount) AS d FROM lines GROUP BY m ORDER BY m""", 7),
    ("by day", "SELECT day, count(*) AS n FROM lines GROUP BY day ORDER BY day", 2),
    ("by part", """SELECT count(*) AS n, max(s) AS s FROM (SELECT part, sum(quantity) AS s FROM lines GROUP BY part) AS parts""", 6),
    ("doubles by part", "SELECT count(*) AS n, max(s) AS s FROM (SELECT part, sum(amount) AS s FROM lines GROUP BY part) AS parts", 12),
    ("by order", "SELECT count(*) AS n, max(s) AS s FROM (SELECT number, sum(price) AS s FROM lines GROUP BY number) AS orders", 8),
    ("in slots", """SELECT count(*) AS n, max(s) AS s FROM (SELECT number, part, sum(price) AS s FROM lines GROUP BY number, part) AS g""", 12),
]

# The same over joins by a key, whose sides are aggregated after the join alone; a look at a place of another table is 32 bytes.
JOINS = [
    ("join to parts", """SELECT kind, sum(price * (1 - discount)) AS s FROM lines JOIN parts ON lines.part = parts.part
        WHERE size < 25 GROUP BY kind ORDER BY kind""", 9 + 3 * 32),
    ("join to orders", """SELECT urgency, count(*) AS n, sum(price) AS s FROM lines JOIN orders ON lines.number = orders.number
        WHERE placed < DATE '1995-01-01' GROUP BY urgency ORDER BY urgency""", 8 + 3 * 32),
    ("by joined row", """SELECT count(*) AS n, max(s) AS s FROM (SELECT orders.number, placed, urgency, sum(price) AS s
        FROM lines JOIN orders ON lines.number = orders.number WHERE placed < DATE '1995-01-01' AND day > DATE '1995-03-15'
        GROUP BY orders.number, placed, urgency) AS g""", 10 + 2 * 32),
    ("by two numbers", """SELECT count(*) AS n, sum(cost * quantity) AS s FROM lines
        JOIN supplies ON lines.part = supplies.part AND lines.turn = supplies.turn""", 9 + 3 * 32),
]

# Sorts of the same rows: the first few, of all columns; and all of them.
SORTS = [
    ("ten best", "SELECT * FROM lines ORDER BY price DESC, number, turn LIMIT 10", 9),
    ("all in order", """SELECT sum(price) AS s FROM (SELECT price, row_number() OVER (ORDER BY amount, number, turn) AS place FROM lines) AS g
        WHERE place % 1000 = 0""", 13),
]

PRECISIONS = ["off", "tf32", "bf16"]

SIDES = {
    "host": "SET gpu = 'off';",
    "cold": "SET gpu = 'force'; SET gpu_keep = 'off';",
    "warm": "SET gpu = 'force';",
    # A GPU is looked for beside the work, and what is asked meanwhile is done by the host: here it has been found.
    "auto": "SET gpu = 'force'; SHOW GPU; SET gpu = 'auto';",
}


def dense(side):
    """The matrices of STATEMENTS and DECOMPOSITIONS."""
    return f"""
        CREATE MATRIX a = randn({side}, {side}, 1);
        CREATE MATRIX b = randn({side}, {side}, 2) / sqrt({side});
        CREATE MATRIX w = randn({side}, 64, 3) / sqrt({side});
        CREATE MATRIX v = rand({side}, 1, 4);
        CREATE MATRIX p = t(a) @ a + {side} * eye({side});
    """


def sparse(nodes):
    """Those of SPARSE: a graph whose nodes each have 50 others, far and near."""
    other = f"(i * 7919 + s * s * 104729 + s * (i % 997)) % {nodes}"
    return f"""
        CREATE MATRIX net WITH (layout = 'sparse') AS
            SELECT i, j, 0.02 AS v FROM (SELECT DISTINCT i, {other} AS j
                FROM (SELECT value AS i FROM generate_series(0, {nodes - 1}) AS t(value)) AS i,
                     (SELECT value AS s FROM generate_series(1, 50) AS t(value)) AS s) AS pairs
            NODES BY i, j;
        CREATE MATRIX x = rand({nodes}, 1, 1);
        CREATE MATRIX wide = rand({nodes}, 64, 2);
    """


def table(rows):
    """That of TABLES; its rows in no order."""
    mixed = "(i * 2654435761 % 4294967296)"
    return f"""
        CREATE TABLE lines AS SELECT {mixed} % 200000 AS part, CAST({mixed} % 50 + 1 AS DECIMAL(15, 2)) AS quantity,
            CAST(({mixed} % 10400000 + 90000) / 100.0 AS DECIMAL(15, 2)) AS price,
            CAST(({mixed} >> 6) % 11 / 100.0 AS DECIMAL(15, 2)) AS discount, CAST(({mixed} >> 10) % 9 / 100.0 AS DECIMAL(15, 2)) AS tax,
            CASE ({mixed} >> 7) % 4 WHEN 0 THEN 'A' WHEN 1 THEN 'R' ELSE 'N' END AS flag,
            CASE ({mixed} >> 9) % 2 WHEN 0 THEN 'F' ELSE 'O' END AS status,
            DATE '1992-01-02' + CAST(({mixed} >> 4) % 2526 AS INT) AS day, CAST({mixed} AS DOUBLE) / 1048576 AS amount,
            i / 4 * 4 AS number, i % 4 AS turn
        FROM generate_series(1, {rows}) AS g(i);
    """


def joined(rows):
    """Those of JOINS: a table of parts, one of orders with four lines each, and one with four rows for each part."""
    return table(rows) + f"""
        CREATE TABLE parts AS SELECT i * 7919 % 200000 AS part, concat('kind', CAST(i % 25 AS VARCHAR)) AS kind, i * 31 % 50 AS size
        FROM generate_series(1, 200000) AS g(i);
        CREATE TABLE orders AS SELECT i * 4 AS number, DATE '1992-01-02' + CAST(i * 7919 % 2400 AS INT) AS placed,
            concat(CAST(i % 5 AS VARCHAR), '-URGENCY') AS urgency
        FROM generate_series(0, {rows // 4}) AS g(i);
        CREATE TABLE supplies AS SELECT i % 200000 AS part, i / 200000 AS turn, CAST(i * 17 % 1000 / 100.0 AS DECIMAL(9, 2)) AS cost
        FROM generate_series(0, 799999) AS g(i);
        SET eager_groups = 'off'; SET contractions = 'off';
    """


class Relatrix:
    """The program under measurement, with settings that all of its runs have."""

    def __init__(self, program, libraries, matrices):
        self.program = program
        self.begin = f"SET result_cache = 'off'; SET gpu_libraries = '{libraries}';\n"
        self.matrices = matrices

    def rows(self, text):
        """The rows of the one query of a text."""
        command = [self.program, "--format", "json", "-c", self.begin + text]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{text}\n{done.stderr}")
        return json.loads(done.stdout)

    def texts(self, text):
        """All answers of a text as lines."""
        command = [self.program, "--format", "csv", "-c", self.begin + self.matrices + text]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{text}\n{done.stderr}")
        return done.stdout

    def apart(self, expression):
        """How far the GPU's answer is from the host's, by the largest cell."""
        text = f"""{self.matrices}
            SET gpu = 'off'; CREATE MATRIX h = {expression};
            SET gpu = 'force'; SET gpu_on_failure = 'error'; CREATE MATRIX d = {expression};
            SET gpu = 'off'; SELECT (MATRIX(max(abs(d - h)) / max(abs(h)))) AS apart;"""
        return self.rows(text)[-1]["apart"]

    def seconds(self, settings, queries, runs, reals=""):
        """The median of the later half of each named query's runs; some of the matrices in single precision."""
        matrices = self.matrices
        for name in reals:
            matrices += f"CREATE OR REPLACE MATRIX {name} = CAST({name} AS REAL);"
        with tempfile.TemporaryDirectory() as folder:
            setup, named = os.path.join(folder, "setup.sql"), os.path.join(folder, "queries.sql")
            with open(setup, "w") as file:
                file.write(self.begin + matrices + settings)
            with open(named, "w") as file:
                for name, query in queries:
                    file.write(f"-- name: {name.replace(' ', '_')}\n{query};\n")
            command = [self.program, "bench", "--setup", setup, "--queries", named]
            command += ["--runs", str(runs + 1)]
            done = subprocess.run(command, capture_output=True, text=True)
        found = {}
        for line in done.stdout.splitlines():
            record = json.loads(line)
            if "error" in record:
                raise SystemExit(f"{record['query']}: {record['error']}")
            if "query" in record:
                seconds = record["seconds"]
                found[record["query"].replace("_", " ")] = statistics.median(seconds[len(seconds) // 2 :])
        if done.returncode:
            raise SystemExit(done.stderr)
        return found


def by_statement(engine, statements, runs, beside):
    """Each statement by the host, by the GPU, and as it is placed, beside what PyTorch takes for the calls alone."""
    queries = [(name, f"CREATE OR REPLACE MATRIX r = {text}") for name, text in statements]
    of = {}
    for column, settings in SIDES.items():
        # Whoever is to choose has seen each statement often enough.
        asked = 40 if column == "auto" else runs
        of[column] = engine.seconds(f"SET gpu_on_failure = 'error'; {settings}", queries, asked)
    heads = "".join(f"{column + ' ms':>10}" for column in SIDES)
    print(f"\n{'statement':<20}{'apart by':>10}{heads}{'regret':>8}{'PyTorch ms':>12}")
    rows = []
    for name, text in statements:
        taken = {column: of[column][name] for column in SIDES}
        regret, apart = taken["auto"] / min(taken["host"], taken["warm"]) - 1, engine.apart(text)
        peer = beside.get((name, "float64"))
        rows.append(dict(name=name, apart=apart, seconds=taken, peer=peer))
        figures = "".join(f"{1e3 * seconds:>10.2f}" for seconds in taken.values())
        shown = f"{1e3 * peer:>12.2f}" if peer else f"{'–':>12}"
        print(f"{name:<20}{apart:>10.1e}{figures}{100 * regret:>7.0f}%{shown}", flush=True)
    return rows


def by_query(engine, tables, runs, rows):
    """Each aggregation or sort by the host and by the GPU, and what the GPU itself takes for columns that are there."""
    queries = [(name, text) for name, text, _ in tables]
    of = {}
    for column, settings in SIDES.items():
        asked = 40 if column == "auto" else runs
        of[column] = engine.seconds(f"SET gpu_on_failure = 'error'; {settings}", queries, asked)
    texts = [f"EXPLAIN ANALYZE {text};" for _, text in queries]
    # Of several runs of each, the last.
    shown = engine.texts(SIDES["warm"] + "".join(3 * text for text in texts)).split("by_device=")[1:]
    # How much of the time the host, or the way to the GPU, was at work while columns came.
    coming = engine.texts(SIDES["cold"] + "".join(texts)).split("busy_percent=")[1:]
    busy = [int(re.match(r"[0-9]+", text).group()) for text in coming]
    answers = [engine.texts(SIDES[side] + ";".join(text for _, text in queries) + ";") for side in ["host", "warm"]]
    print(f"\nanswers of the GPU are {'the same' if near(*answers) else 'OTHERS'}")
    heads = "".join(f"{column + ' ms':>10}" for column in SIDES)
    print(f"{'query':<20}{heads}{'busy':>6}{'regret':>8}{'GPU alone ms':>14}{'GB/s':>8}")
    found = []
    for at, (name, _, bytes_each) in enumerate(tables):
        taken = {column: of[column][name] for column in SIDES}
        regret, alone = taken["auto"] / min(taken["host"], taken["warm"]) - 1, duration(shown[3 * at + 2])
        found.append(dict(name=name, seconds=taken, alone=alone, busy=busy[at], rate=rows * bytes_each / alone))
        figures = "".join(f"{1e3 * seconds:>10.2f}" for seconds in taken.values())
        print(f"{name:<20}{figures}{busy[at]:>5}%{100 * regret:>7.0f}%{1e3 * alone:>14.3f}{found[-1]['rate'] / 1e9:>8.0f}", flush=True)
    return found


def duration(text):
    """The seconds that a text begins with."""
    number = re.match(r"[0-9.]+", text).group()
    unit = re.match(r"[^0-9.,\] ]+", text[len(number) :]).group()
    return float(number) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


def near(one, other):
    """Whether two texts are the same but for the last digits of doubles."""
    one, other = re.split(r"[\s,]+", one), re.split(r"[\s,]+", other)
    is_near = lambda a, b: a == b or ("." in a and abs(float(a) - float(b)) <= 1e-9 * abs(float(b)))
    return len(one) == len(other) and all(map(is_near, one, other))


def resident(engine, side, runs, is_dry):
    """What a round takes whose matrices are there: the difference between many rounds and few."""
    few, rows = 2, []
    for precision in PRECISIONS:
        for reals in [False, True]:
            cases = [one for one in RESIDENT if precision == "off" or (one[0] == "product" and reals)]
            queries = []
            for name, start, step, _, many in cases:
                for times in [few, few + (2 if is_dry else many)]:
                    rounds = f"ITERATE(q => {start}, {step}, times => {times})"
                    queries.append((f"{name} {times}", f"SELECT (MATRIX(sum({rounds})))"))
            settings = f"SET gpu = 'force'; SET gpu_on_failure = 'error'; SET gpu_precision = '{precision}';"
            taken = engine.seconds(settings, queries, runs, "abwv" if reals else "") if queries else {}
            for name, _, _, cells, many in cases:
                more = 2 if is_dry else many
                seconds = (taken[f"{name} {few + more}"] - taken[f"{name} {few}"]) / more
                work = 2 * side**3 if cells is None else cells * side**2 * (4 if reals else 8)
                element = "float32" if reals else "float64"
                kind = element if precision == "off" else precision
                rows.append(dict(name=name, kind=kind, seconds=seconds, rate=work / seconds))
    return rows


def resident_sparse(engine, nodes, runs):
    """The same of a sparse matrix: what is stored and its places, a row of the other factor for each, and the result."""
    few, many, queries, rows = 2, 102, [], []
    for name, start, step, _ in RESIDENT_SPARSE:
        for times in [few, many]:
            rounds = f"ITERATE(q => {start}, {step}, times => {times})"
            queries.append((f"{name} {times}", f"SELECT (MATRIX(sum({rounds})))"))
    taken = engine.seconds("SET gpu = 'force'; SET gpu_on_failure = 'error';", queries, runs)
    for name, _, _, columns in RESIDENT_SPARSE:
        seconds = (taken[f"{name} {many}"] - taken[f"{name} {few}"]) / (many - few)
        work = nodes * (50 * (12 + 8 * columns) + 8 * columns)
        rows.append(dict(name=name, kind="float64", seconds=seconds, rate=work / seconds))
    return rows


def peers(side):
    """The same rounds by PyTorch: seconds by (name, kind). Nothing where it or a device is not there."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    found = {}

    def clock(name, kind, work, times=100):
        for _ in range(3):
            work()
        best = []
        for _ in range(5):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(times):
                work()
            end.record()
            torch.cuda.synchronize()
            best.append(begin.elapsed_time(end) / 1e3 / times)
        found[name, kind] = statistics.median(best)

    for kind, dtype in [("float64", torch.float64), ("float32", torch.float32)]:
        a, b = (torch.randn(side, side, dtype=dtype, device="cuda") for _ in range(2))
        v, out = torch.rand(side, 1, dtype=dtype, device="cuda"), torch.empty_like(a)
        clock("copy", kind, lambda: out.copy_(a))
        clock("loop", kind, lambda: torch.relu(a * b + 0.5))
        clock("sum", kind, lambda: torch.relu(b - 1).sum())
        clock("column sums", kind, lambda: torch.relu(b - v.T).sum(0))
        clock("row sums", kind, lambda: torch.relu(b - v).sum(1))
        clock("softmax", kind, lambda: torch.softmax(a, 1))
        clock("transpose", kind, lambda: a.T.contiguous())
        clock("product by a column", kind, lambda: b @ v)
        clock("product", kind, lambda: torch.matmul(a, b, out=out))
    torch.backends.cuda.matmul.allow_tf32 = True
    clock("product", "tf32", lambda: torch.matmul(a, b, out=out))
    a, b = a.bfloat16(), b.bfloat16()
    clock("product", "bf16", lambda: a @ b)
    n, nodes = side // 2, 32 * side
    a, w = (torch.randn(n, columns, dtype=torch.float64, device="cuda") for columns in [n, 64])
    p = a.T @ a + n * torch.eye(n, dtype=torch.float64, device="cuda")
    clock("solve", "float64", lambda: torch.linalg.solve(a, w), 3)
    clock("inverse", "float64", lambda: torch.linalg.inv(a), 3)
    clock("lu", "float64", lambda: torch.linalg.lu_factor(a), 3)
    clock("cholesky", "float64", lambda: torch.linalg.cholesky(p), 3)
    clock("qr", "float64", lambda: torch.linalg.qr(a), 3)
    clock("eigenvectors", "float64", lambda: torch.linalg.eigh(p), 1)
    clock("singular vectors", "float64", lambda: torch.linalg.svd(a, full_matrices=False), 1)
    places = torch.randint(nodes, (2, 50 * nodes), device="cuda")
    cells = torch.ones(50 * nodes, dtype=torch.float64, device="cuda")
    warnings.simplefilter("ignore")
    net = torch.sparse_coo_tensor(places, cells, (nodes, nodes)).coalesce().to_sparse_csr()
    x, wide = (torch.rand(nodes, columns, dtype=torch.float64, device="cuda") for columns in [1, 64])
    clock("times a column", "float64", lambda: net @ x, 10)
    clock("times 64 columns", "float64", lambda: net @ wide, 10)
    return found


def of_matrices(engine, made, given, facts):
    """Statements and rounds."""
    beside, few = peers(given.side), min(given.runs, 3)
    statements = by_statement(engine, STATEMENTS, given.runs, beside)
    statements += by_statement(made(dense(given.side // 2)), DECOMPOSITIONS, few, beside)
    statements += by_statement(made(sparse(32 * given.side)), SPARSE, few, beside)
    rounds = resident(engine, given.side, given.runs, bool(given.libraries))
    rounds += resident_sparse(made(sparse(32 * given.side)), 32 * given.side, few)
    print(f"\n{'round, resident':<22}{'of':<9}{'ms':>9}{'GB/s or GFLOP/s':>17}{'share of':>10}{'PyTorch':>10}")
    for row in rounds:
        name, kind = row["name"], row["kind"]
        limit = f"products_{kind}" if name == "product" else "bandwidth"
        share, peer = row["rate"] / float(facts[limit]), beside.get((name, kind))
        row["peer"] = peer
        ratio = f"{row['seconds'] / peer:.2f}" if peer else "–"
        figures = f"{1e3 * row['seconds']:>9.3f}{row['rate'] / 1e9:>17.0f}{100 * share:>9.0f}%{ratio:>10}"
        print(f"{name:<22}{kind:<9}{figures}")
    for kind in ["float64", "float32"]:
        if peer := beside.get(("copy", kind)):
            print(f"PyTorch copies {kind} at {2 * given.side**2 * int(kind[5:]) / 8 / peer / 1e9:.0f} GB/s")
    return statements, rounds


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("relatrix", nargs="?", default="relatrix")
    arguments.add_argument("--side", type=int, default=4096)
    arguments.add_argument("--rows", type=int, default=60_000_000)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--only", choices=["tables", "matrices"])
    arguments.add_argument("--libraries", default="")
    arguments.add_argument("--full", help="writes all figures there")
    given = arguments.parse_args()
    made = lambda matrices: Relatrix(given.relatrix, given.libraries, matrices)
    engine = made(dense(given.side))

    shown = engine.rows("SET gpu = 'force'; SHOW GPU")
    facts = {row["name"]: row["value"] for row in shown}
    for row in shown:
        print(f"{row['name']:<20}{row['value']:>34} {row['unit'] or ''}")
    if "name" not in facts:
        raise SystemExit("there is no GPU")

    statements = rounds = aggregations = []
    if given.only != "tables":
        statements, rounds = of_matrices(engine, made, given, facts)
    if given.only != "matrices":
        aggregations = by_query(made(table(given.rows)), TABLES + SORTS, given.runs, given.rows)
        aggregations += by_query(made(joined(given.rows)), JOINS, given.runs, given.rows)
    if given.full:
        with open(given.full, "w") as file:
            json.dump(dict(facts=facts, statements=statements, rounds=rounds, aggregations=aggregations), file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
