#!/usr/bin/env python3
"""Measures Relatrix beside its peers, as one more engine of a benchmark harness.

    run.py sql HARNESS [options of HARNESS/sql/run.py, such as tpch1]
    run.py matrix HARNESS [options of HARNESS/matrix/run.py, such as --cases gemm --export]
    run.py memory HARNESS           the most memory that each end-to-end case of HARNESS/matrix takes, as a process
    run.py limits [CASE ...]        work that does not fit into the memory limit, beside DuckDB: limits.py
    run.py limits-tpch HARNESS [MIB] [QUERY ...]    TPC-H, scale factor 10, under a memory limit, beside DuckDB
    run.py join-orders HARNESS      queries of TPC-H with FROM in every order, beside the orders as written: join_orders.py
    run.py snowflakes [SEED [COUNT]]    generated joins with FROM in every order, likewise
    run.py grouping-sets            ROLLUP, CUBE and GROUPING SETS beside DuckDB: grouping_sets.py
    run.py shapes [native] [NAME ...]    46 statements of many shapes, of no benchmark, beside DuckDB: shapes.py
    run.py random [SEED [COUNT]]    random queries whose answers must be DuckDB's: random_queries/
    run.py small-files              5,000 files of 9 kB as one table, beside DuckDB: small_files.py
    run.py product [SIDE]           the product of two matrices as a join of their entries, beside a @ b and DuckDB
    run.py start                    processes from their start to the answer of SELECT 1, and their peak memory

The harnesses take any command line as an engine; the binary is `$RELATRIX`, else the release build of this
repository. For SQL the command is `relatrix bench` as it is. For matrices, each file of the folder `matrix` serves
the cases of its first line, in which `{case}` stands for the case and `{data}` for the folder of inputs:

    -- cases: NAME …
    statements                    once, outside the clock
    -- timed
    statements                    under the clock: one warm-up, then five runs
    -- checksum dense C           the answer to check: the matrix C without labels,
    -- checksum labelled C        the dense matrix C whose row labels count from 0,
    -- checksum sparse C          the entries of C, whose labels count from 0,
    -- checksum answer            or the last column of the rows that the timed part yields
"""
import glob
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import grouping_sets
import join_orders
import limits
import random_queries
import shapes
import small_files

HERE = os.path.dirname(os.path.abspath(__file__))
RELATRIX = os.path.abspath(os.environ.get("RELATRIX") or os.path.join(HERE, "../../target/release/relatrix"))
RUNS = 6  # The first warms up.

# The harness takes a dense answer in row-major order, every 97th cell where there are more than 100,000.
DENSE = """
WITH cells AS (
    SELECT (CAST(i AS BIGINT) - {first}) * CAST((MATRIX(ncol({name}))) AS BIGINT) + CAST(j AS BIGINT) - 1 AS at,
           CASE WHEN (MATRIX(nrow({name}) * ncol({name}))) > 100000 THEN 97 ELSE 1 END AS stride,
           CAST(value AS DOUBLE) AS value
    FROM ENTRIES({name}) AS entry(i, j, value))
SELECT sqrt(sum(value * value * (1 + (at / stride) % 7))) FROM cells WHERE at % stride = 0;
"""
SPARSE = """
SELECT count(*) + sum(value * value * (1 + (i + 3 * j) % 7)) FROM ENTRIES({name}) AS entry(i, j, value);
"""


def bench(setup, queries, folder):
    """Runs `relatrix bench` on two texts; its records by the name of the query."""
    for name, text in (("setup.sql", setup), ("queries.sql", queries)):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    command = [RELATRIX, "bench", "--setup", f"{folder}/setup.sql", "--queries", f"{folder}/queries.sql", "--out", folder,
               "--runs", str(RUNS), "--threads", os.environ.get("BENCH_THREADS", "2")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    records = {r["query"]: r for r in map(json.loads, done.stdout.splitlines()) if "query" in r}
    for name, record in records.items():
        if "error" in record:
            sys.exit(f"{name}: {record['error']}")
    return records


def last_column(folder, query):
    import pyarrow.feather
    return pyarrow.feather.read_table(os.path.join(folder, query + ".arrow")).columns[-1].to_pylist()


def run_case(script):
    """Prints `case seconds checksum min runs`, the line that the matrix harness reads."""
    case = os.path.basename(script).removesuffix(".sql")
    with open(script) as file:
        text = file.read().replace("{case}", case).replace("{data}", os.path.abspath(os.environ["BENCH_DATA"]))
    setup, rest = text.split("-- timed\n")
    timed, kind, name = re.fullmatch(r"(.*)^-- checksum (\w+) ?(\w*)\n", rest, re.S | re.M).groups()
    check = {"dense": DENSE, "labelled": DENSE, "sparse": SPARSE, "answer": ""}[kind]
    check = check.replace("{name}", name).replace("{first}", "0" if kind == "labelled" else "1")
    queries = f"-- name: {case}\n{timed}" + (f"-- name: checksum once\n{check}" if check else "")
    with tempfile.TemporaryDirectory() as folder:
        seconds = sorted(bench(setup, queries, folder)[case]["seconds"][1:])
        if check:
            checksum = last_column(folder, "checksum")[0]
        else:
            checksum = math.sqrt(sum(value * value * (1 + k % 7) for k, value in enumerate(last_column(folder, case))))
    print(case, f"{statistics.median(seconds):.6f} {checksum:.10e} {seconds[0]:.6f} {len(seconds)}")


def run_matrix(harness, options):
    """Writes one script per case, and lets the harness run them all."""
    with tempfile.TemporaryDirectory() as scripts:
        for path in glob.glob(os.path.join(HERE, "matrix/*.sql")):
            with open(path) as file:
                header, text = file.readline(), file.read()
            for case in header.removeprefix("-- cases:").split():
                with open(os.path.join(scripts, case + ".sql"), "w") as file:
                    file.write(text)
        external = f"relatrix={sys.executable} {os.path.abspath(__file__)} case {{script}}"
        subprocess.run([sys.executable, os.path.join(harness, "matrix/run.py"), *options, "--external", external, "--scripts", scripts], check=True)


def resident(command, **options):
    """Runs a process; the most memory it had, in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} failed")
    return usage.ru_maxrss / 1024


def run_memory(harness):
    """Prints the peak memory of every end-to-end case in Relatrix, and in what the harness has for it of DuckDB."""
    folder, threads = os.path.join(harness, "matrix"), os.environ.get("BENCH_THREADS", "2")
    data = os.path.abspath(os.environ["BENCH_DATA"])
    sys.path.insert(0, folder)
    import peers
    for path in sorted(glob.glob(os.path.join(HERE, "matrix/e2e_*.sql"))):
        with open(path) as file:
            case, text = file.readline().split()[-1], file.read()
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(text.split("-- checksum")[0].replace("{case}", case).replace("{data}", data))
            script.flush()
            own = resident([RELATRIX, "--threads", threads, script.name])
        print(f"{case:14} {'relatrix':18} {own:7.0f} MiB")
        for engine, of in sorted(peers.PEERS):
            if of == case and engine.startswith("duckdb"):
                command = [sys.executable, os.path.join(folder, "peers.py"), engine, case]
                taken = resident(command, env=dict(os.environ, BENCH_THREADS=threads))
                print(f"{'':14} {engine:18} {taken:7.0f} MiB  ratio {own / taken:.2f}")


def run_sql(harness, options):
    external = (f"relatrix={RELATRIX} bench --setup {{setup}} --queries {{queries}} --runs {{runs}} --out {{out}}"
                " --threads {threads} --memory {memory} --tmp {tmp}")
    subprocess.run([sys.executable, os.path.join(harness, "sql/run.py"), *options, "--external", external], check=True)


def run_product(side):
    """Prints the median seconds of the join in Relatrix, of `a @ b` in Relatrix and NumPy, and one run in DuckDB."""
    import duckdb
    import numpy
    cells = "(({0} * 7 + {1} * 3) % 11) / 3.0::DOUBLE"
    tables = [("a", "i", "k", cells.format("i", "k")), ("b", "k", "j", cells.format("k", "j"))]
    query = "SELECT a.i, b.j, sum(a.v * b.v) AS v FROM a JOIN b ON a.k = b.k GROUP BY a.i, b.j"
    total = f"SELECT sum(v * (1 + (i + 3 * j) % 7)) AS total FROM ({query})"

    def table(name, row, column, value, rows):
        return (f"CREATE TABLE {name} AS SELECT {row}, {column}, {value} AS v FROM"
                f" {rows.format(row)}, {rows.format(column)};\n")
    setup = "".join(table(*t, f"(SELECT value AS {{0}} FROM range({side})) AS {{0}}_") for t in tables)
    setup += "CREATE MATRIX x AS SELECT i, k, v FROM a ROWS BY i COLUMNS BY k;\n"
    setup += "CREATE MATRIX y AS SELECT k, j, v FROM b ROWS BY k COLUMNS BY j;\n"
    queries = (f"-- name: join\n{query};\n"
               f"-- name: matrix\nSELECT count(*) FROM VECTORS(x @ y);\n-- name: total\n{total};\n")
    with tempfile.TemporaryDirectory() as folder:
        records = bench(setup, queries, folder)
        answer = last_column(folder, "total")[0]
    seconds = {name: statistics.median(records[name]["seconds"][1:]) for name in ("join", "matrix")}
    peer = duckdb.connect(config={"threads": int(os.environ.get("BENCH_THREADS", "2"))})
    for t in tables:
        peer.execute(table(*t, f"(SELECT range AS {{0}} FROM range({side})) AS {{0}}_"))
    started = time.perf_counter()
    expected = peer.execute(total).fetchone()[0]
    seconds["duckdb"] = time.perf_counter() - started
    x, y = (peer.execute(f"SELECT v FROM {t} ORDER BY {r}, {c}").fetchnumpy()["v"].reshape(side, side)
            for t, r, c, _ in tables)
    runs = []
    for _ in range(RUNS):
        started = time.perf_counter()
        x @ y
        runs.append(time.perf_counter() - started)
    seconds["numpy"] = statistics.median(runs[1:])
    for name, taken in seconds.items():
        print(f"{name:8} {taken:9.4f} s  join / {name} {seconds['join'] / taken:.3f}")
    print(f"totals differ by {abs(answer - expected) / abs(expected):.1e}")


def run_start():
    """Prints the median and least seconds of 21 processes each, and the largest resident size."""
    engines = {
        "relatrix": [RELATRIX, "-c", "SELECT 1"],
        "duckdb": [sys.executable, "-c", "import duckdb; print(duckdb.sql('SELECT 1').fetchall())"],
        "datafusion": [sys.executable, "-c", "import datafusion; print(datafusion.SessionContext().sql('SELECT 1').to_pylist())"],
        "numpy": [sys.executable, "-c", "import numpy; print(numpy.ones(1))"],
        "python alone": [sys.executable, "-c", "print(1)"],
    }
    for name, command in engines.items():
        seconds, most = [], 0
        for _ in range(21):
            started = time.perf_counter()
            most = max(most, resident(command))
            seconds.append(time.perf_counter() - started)
        print(f"{name:14} {statistics.median(seconds):.4f} s, least {min(seconds):.4f} s, {most:.0f} MiB")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["case", script]:
            run_case(script)
        case ["matrix", harness, *options]:
            run_matrix(harness, options)
        case ["memory", harness]:
            run_memory(harness)
        case ["limits", *options]:
            limits.run(RELATRIX, options)
        case ["limits-tpch", harness, *options]:
            limits.run_tpch(RELATRIX, harness, options)
        case ["product", *side]:
            run_product(int(*side or [2000]))
        case ["grouping-sets"]:
            grouping_sets.run(RELATRIX, os.environ["BENCH_DATA"])
        case ["join-orders", harness]:
            join_orders.run(RELATRIX, harness, os.environ["BENCH_DATA"])
        case ["snowflakes", *options]:
            join_orders.run_snowflakes(RELATRIX, options)
        case ["random", *options]:
            random_queries.run(RELATRIX, options)
        case ["shapes", *options]:
            shapes.run(RELATRIX, os.environ["BENCH_DATA"], options)
        case ["small-files"]:
            small_files.run(RELATRIX, os.environ["BENCH_DATA"])
        case ["start"]:
            run_start()
        case ["sql", harness, *options]:
            run_sql(harness, options)
        case _:
            sys.exit(__doc__)
