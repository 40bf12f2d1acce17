"""ROLLUP, CUBE and GROUPING SETS of ten million rows, in Relatrix and in DuckDB.

The table is made once, under $BENCH_DATA. Shown are seconds, the least of five runs of each engine.
"""
import os
import subprocess
import time

ROWS, RUNS = 10_000_000, 5
TABLE = f"""
SELECT concat('id', (i * 7919) % 100) AS a, concat('id', (i * 104729) % 101) AS b, (i * 31) % 97 AS k, (i * 37) % 103 AS j,
       (i * 15485863) % {ROWS // 10} AS many, i % 5 AS v, hash(i) / 1e19 AS x
FROM range({ROWS}) AS t(i)
"""
QUERIES = {
    "two texts": "SELECT count(*), sum(s) FROM (SELECT a, b, sum(v) AS s FROM t GROUP BY ROLLUP (a, b))",
    "two numbers": "SELECT count(*), sum(s) FROM (SELECT k, j, sum(v) AS s, avg(x) AS m FROM t GROUP BY CUBE (k, j))",
    "many groups": "SELECT count(*), sum(s) FROM (SELECT a, many, sum(v) AS s FROM t GROUP BY ROLLUP (a, many))",
    "no finest set": "SELECT count(*), sum(s) FROM (SELECT k, j, sum(v) AS s FROM t GROUP BY GROUPING SETS ((k), (j), ()))",
    "medians": "SELECT count(*), sum(s) FROM (SELECT k, j, median(x) AS s FROM t GROUP BY ROLLUP (k, j))",
}


def least(run):
    def timed():
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    return min(timed() for _ in range(RUNS))


def run(relatrix, data):
    import duckdb
    path = os.path.join(data, "grouping_sets.parquet")
    if not os.path.exists(path):
        duckdb.sql(f"COPY ({TABLE}) TO '{path}' (FORMAT parquet)")
    view = f"CREATE VIEW t AS SELECT * FROM '{path}'"
    peer = duckdb.connect(config={"threads": 2})
    peer.sql(view)
    command = [relatrix, "--format", "csv", "--threads", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ours:
        ours.stdin.write(f"SET result_cache = 'off';\n{view};\n")
        for name, query in QUERIES.items():
            def ask():
                ours.stdin.write(f"{query};\n")
                ours.stdin.flush()
                ours.stdout.readline()
                return ours.stdout.readline()

            groups = peer.sql(query).fetchall()[0][0]
            if ask().split(",")[0] != str(groups):
                raise SystemExit(f"{name}: not the {groups} groups of DuckDB")
            own, other = least(ask), least(lambda: peer.sql(query).fetchall())
            print(f"{name:14} relatrix {own:.3f} s, duckdb {other:.3f} s, ratio {own / other:.2f}")
        ours.stdin.close()
