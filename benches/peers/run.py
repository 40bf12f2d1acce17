#!/usr/bin/env python3
"""Measures Relatrix beside its peers, as one more engine of a benchmark harness.

    run.py sql HARNESS [options of HARNESS/sql/run.py, such as tpch1]
    run.py matrix HARNESS [options of HARNESS/matrix/run.py, such as --cases gemm --export]
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


def run_sql(harness, options):
    external = (f"relatrix={RELATRIX} bench --setup {{setup}} --queries {{queries}} --runs {{runs}} --out {{out}}"
                " --threads {threads} --memory {memory} --tmp {tmp}")
    subprocess.run([sys.executable, os.path.join(harness, "sql/run.py"), *options, "--external", external], check=True)


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
        seconds, resident = [], 0
        for _ in range(21):
            started = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            seconds.append(time.perf_counter() - started)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                sys.exit(f"{name} failed")
            resident = max(resident, usage.ru_maxrss)
        print(f"{name:14} {statistics.median(seconds):.4f} s, least {min(seconds):.4f} s, {resident / 1024:.0f} MiB")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["case", script]:
            run_case(script)
        case ["matrix", harness, *options]:
            run_matrix(harness, options)
        case ["start"]:
            run_start()
        case ["sql", harness, *options]:
            run_sql(harness, options)
        case _:
            sys.exit(__doc__)
