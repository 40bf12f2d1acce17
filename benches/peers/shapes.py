"""Statements of many shapes over TPC-H's tables at scale factor 1, in Relatrix and in DuckDB: none of them is of a benchmark.

    run.py shapes [native] [NAME ...]     from Parquet, or from tables of each engine's own; all statements, or some

`$BENCH_DATA/tpch1` has the tables. Shown are seconds, the least of three runs of each engine, the slowest beside DuckDB
first; rows and sums of numbers must agree.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import time

RUNS = 3
TABLES = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"]
STATEMENTS = {
    "sort": "SELECT l_orderkey, l_extendedprice, l_shipdate FROM lineitem ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber",
    "sort by text": "SELECT o_clerk, o_orderkey FROM orders ORDER BY o_clerk, o_orderkey",
    "first rows": "SELECT * FROM lineitem ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber LIMIT 100",
    "first texts": "SELECT * FROM orders ORDER BY o_comment, o_orderkey LIMIT 10",
    "row numbers": "SELECT l_orderkey, row_number() OVER (PARTITION BY l_suppkey ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber) AS r FROM lineitem",
    "sum of partition": "SELECT l_orderkey, sum(l_quantity) OVER (PARTITION BY l_partkey) AS s FROM lineitem",
    "running sum": "SELECT o_orderkey, sum(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey) AS s FROM orders",
    "lag": "SELECT o_orderkey, lag(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey) AS s FROM orders",
    "first ranks": "SELECT * FROM (SELECT o_orderkey, rank() OVER (PARTITION BY o_orderpriority ORDER BY o_totalprice DESC) AS r FROM orders) WHERE r <= 10",
    "sliding mean": "SELECT o_orderkey, avg(o_totalprice) OVER (ORDER BY o_orderdate, o_orderkey ROWS BETWEEN 7 PRECEDING AND CURRENT ROW) AS s FROM orders",
    "distinct counts": "SELECT count(DISTINCT l_partkey), count(DISTINCT l_suppkey), count(DISTINCT l_orderkey) FROM lineitem",
    "distinct by group": "SELECT l_returnflag, count(DISTINCT l_partkey) FROM lineitem GROUP BY 1",
    "distinct pairs": "SELECT count(*) FROM (SELECT DISTINCT l_partkey, l_suppkey FROM lineitem)",
    "groups of texts": "SELECT o_comment, count(*) FROM orders GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10",
    "groups of months": "SELECT extract(year FROM l_shipdate) AS y, extract(month FROM l_shipdate) AS m, sum(l_extendedprice * (1 - l_discount)) FROM lineitem GROUP BY 1, 2",
    "groups of parts": "SELECT substring(l_comment, 1, 3) AS p, count(*) FROM lineitem GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
    "like": "SELECT count(*) FROM lineitem WHERE l_comment LIKE '%special%requests%'",
    "ilike": "SELECT count(*) FROM orders WHERE o_comment ILIKE '%SPECIAL%'",
    "upper": "SELECT count(*), max(upper(o_comment)) FROM orders",
    "lengths": "SELECT avg(length(l_comment)), max(length(l_comment)) FROM lineitem",
    "concatenation": "SELECT max(c_name || '-' || c_phone) FROM customer",
    "case": "SELECT sum(CASE WHEN l_returnflag = 'R' THEN l_extendedprice ELSE 0 END), sum(CASE WHEN l_quantity < 10 THEN 1 WHEN l_quantity < 20 THEN 2 ELSE 3 END) FROM lineitem",
    "left join": "SELECT count(*), count(o_orderkey) FROM customer LEFT JOIN orders ON c_custkey = o_custkey",
    "full join": "SELECT count(*), count(o_orderkey), count(c_custkey) FROM customer FULL JOIN (SELECT * FROM orders WHERE o_totalprice > 200000) ON c_custkey = o_custkey",
    "not exists": "SELECT count(*) FROM customer WHERE NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)",
    "not in": "SELECT count(*) FROM part WHERE p_partkey NOT IN (SELECT l_partkey FROM lineitem WHERE l_quantity < 5)",
    "in": "SELECT count(*) FROM lineitem WHERE l_orderkey IN (SELECT o_orderkey FROM orders WHERE o_totalprice > 300000)",
    "two keys": "SELECT count(*), sum(ps_supplycost * l_quantity) FROM lineitem JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey",
    "with itself": "SELECT count(*) FROM orders AS a JOIN orders AS b ON a.o_custkey = b.o_custkey AND a.o_orderkey < b.o_orderkey",
    "ranges": """WITH few AS (SELECT * FROM orders WHERE o_orderdate < DATE '1992-03-01')
        SELECT count(*) FROM few AS a JOIN few AS b ON a.o_totalprice BETWEEN b.o_totalprice AND b.o_totalprice + 100""",
    "intervals": """WITH few AS (SELECT l_orderkey, l_shipdate, l_receiptdate FROM lineitem WHERE l_orderkey < 60000)
        SELECT count(*) FROM few AS a JOIN few AS b ON a.l_shipdate < b.l_shipdate AND b.l_receiptdate < a.l_receiptdate""",
    "joined rows": "SELECT o_orderkey, o_comment, l_comment FROM orders JOIN lineitem ON o_orderkey = l_orderkey WHERE l_quantity > 45",
    "rollup": "SELECT l_returnflag, l_linestatus, l_shipmode, sum(l_quantity) FROM lineitem GROUP BY ROLLUP (1, 2, 3)",
    "union": "SELECT count(*) FROM (SELECT l_partkey FROM lineitem UNION SELECT ps_partkey FROM partsupp)",
    "intersect": "SELECT count(*) FROM (SELECT l_suppkey, l_partkey FROM lineitem INTERSECT SELECT ps_suppkey, ps_partkey FROM partsupp)",
    "statistics": "SELECT l_returnflag, median(l_extendedprice), stddev(l_quantity), corr(l_quantity, l_extendedprice) FROM lineitem GROUP BY 1",
    "having": "SELECT l_orderkey, sum(l_quantity) AS s FROM lineitem GROUP BY 1 HAVING sum(l_quantity) > 300",
    "extreme texts": "SELECT min(o_comment), max(o_comment), min(o_clerk) FROM orders",
    "largest groups": "SELECT o_custkey, max(o_totalprice) AS m, min(o_orderdate), count(*) FROM orders GROUP BY 1 ORDER BY m DESC LIMIT 5",
    "months": "SELECT date_trunc('month', o_orderdate) AS m, count(*), sum(o_totalprice) FROM orders GROUP BY 1",
    "in a list": "SELECT count(*), sum(l_extendedprice) FROM lineitem WHERE l_partkey IN (1, 5, 77, 1000, 5000, 10000, 20000, 30000, 50000, 100000)",
    "one row": "SELECT * FROM orders WHERE o_orderkey = 1234567",
    "twice": "WITH c AS (SELECT l_suppkey, sum(l_extendedprice) AS r FROM lineitem GROUP BY 1) SELECT count(*) FROM c WHERE r > (SELECT avg(r) FROM c)",
    "correlated": "SELECT count(*) FROM lineitem AS l WHERE l_quantity > (SELECT avg(CAST(l_quantity AS DOUBLE)) * 1.25 FROM lineitem AS x WHERE x.l_partkey = l.l_partkey)",
    "functions": "SELECT sum(sqrt(l_quantity) * ln(l_extendedprice) + power(l_discount, 2)) FROM lineitem",
    "filters": "SELECT count(*) FILTER (WHERE l_tax > 0.04), avg(l_discount) FILTER (WHERE l_quantity > 10) FROM lineitem",
    "last rows": "SELECT * FROM lineitem ORDER BY l_orderkey DESC, l_linenumber DESC LIMIT 10",
    "latest": "SELECT * FROM orders ORDER BY o_orderdate DESC, o_orderkey LIMIT 10",
    "first of some": "SELECT * FROM lineitem WHERE l_shipmode = 'AIR' ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber LIMIT 100",
    "first of a join": "SELECT l.*, o_comment FROM lineitem AS l JOIN orders ON l_orderkey = o_orderkey ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber LIMIT 100",
    "first of computed": "SELECT *, l_extendedprice * l_discount AS saved FROM lineitem ORDER BY saved DESC, l_orderkey, l_linenumber LIMIT 100",
    "a page": "SELECT * FROM orders ORDER BY o_totalprice, o_orderkey LIMIT 100 OFFSET 20000",
    "many first rows": "SELECT o_orderkey, o_totalprice, o_clerk FROM orders ORDER BY o_totalprice, o_orderkey LIMIT 200000",
    "wide sort": "SELECT * FROM orders ORDER BY o_totalprice, o_orderkey",
    "first of each": "SELECT c_custkey, o.* FROM customer, LATERAL (SELECT o_orderkey, o_totalprice FROM orders WHERE o_custkey = c_custkey ORDER BY o_totalprice DESC, o_orderkey LIMIT 2) AS o",
    "quantile": "SELECT l_suppkey, percentile_cont(0.9) WITHIN GROUP (ORDER BY CAST(l_extendedprice AS DOUBLE)) FROM lineitem GROUP BY 1",
    "medians": "SELECT l_partkey, median(l_quantity) FROM lineitem GROUP BY 1",
    "deviations": "SELECT l_suppkey, stddev(l_extendedprice), var_pop(l_discount) FROM lineitem GROUP BY 1",
    "pair groups": "SELECT l_orderkey, l_partkey, sum(l_quantity), count(*) FROM lineitem GROUP BY 1, 2",
    "text groups": "SELECT c_name, c_address, c_phone, sum(o_totalprice) FROM customer JOIN orders ON c_custkey = o_custkey GROUP BY 1, 2, 3",
    "text join": "SELECT count(*) FROM orders AS o JOIN (SELECT DISTINCT o_clerk FROM orders WHERE o_totalprice > 480000) AS c ON o.o_clerk = c.o_clerk",
    "words": "SELECT split_part(o_comment, ' ', 2) AS w, count(*) FROM orders GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10",
    "replaced": "SELECT count(DISTINCT replace(o_clerk, 'Clerk#', '')) FROM orders",
    "regular expressions": "SELECT count(DISTINCT regexp_replace(c_address, '[0-9]+', '')) FROM customer",
    "joined texts": "SELECT o_custkey, string_agg(o_orderpriority, ',' ORDER BY o_orderkey) AS p FROM orders GROUP BY 1 ORDER BY 1 LIMIT 100",
    "lists": "SELECT max(length(keys)) FROM (SELECT o_custkey, array_agg(o_orderkey) AS keys FROM orders GROUP BY 1)",
    "unnested": "SELECT sum(x) FROM (SELECT unnest([l_quantity, l_tax, l_discount]) AS x FROM lineitem)",
    "many sums": "SELECT o_orderpriority, "
    + ", ".join(f"sum(CASE WHEN extract(month FROM o_orderdate) = {month} THEN o_totalprice ELSE 0 END)" for month in range(1, 13))
    + " FROM orders GROUP BY 1",
    "either": "SELECT count(*) FROM lineitem WHERE l_quantity > 49 OR l_discount < 0.01 OR l_shipmode = 'MAIL'",
    "remainders": "SELECT count(*), sum(l_extendedprice) FROM lineitem WHERE l_orderkey % 7 = 3",
    "between": "SELECT count(*), avg(l_extendedprice) FROM lineitem WHERE l_shipdate BETWEEN DATE '1995-03-01' AND DATE '1995-03-31'",
    "prefix": "SELECT count(*) FROM customer WHERE c_phone LIKE '13-%' AND c_mktsegment = 'BUILDING'",
    "scalar of each": "SELECT c_custkey, (SELECT count(*) FROM orders WHERE o_custkey = c_custkey) AS n FROM customer",
    "another": "SELECT count(*) FROM lineitem AS a WHERE EXISTS (SELECT 1 FROM lineitem AS b WHERE b.l_orderkey = a.l_orderkey AND b.l_suppkey <> a.l_suppkey)",
    "except": "SELECT count(*) FROM (SELECT o_custkey FROM orders EXCEPT SELECT c_custkey FROM customer WHERE c_acctbal > 0)",
    "distinct texts": "SELECT count(DISTINCT o_comment) FROM orders",
    "numbers as texts": "SELECT count(DISTINCT CAST(l_quantity AS VARCHAR)) FROM lineitem",
    "greatest text": "SELECT l_shipmode, max(l_comment) FROM lineitem GROUP BY 1",
    "quarters of a ranking": "SELECT q, sum(o_totalprice) FROM (SELECT o_totalprice, ntile(4) OVER (PARTITION BY o_orderpriority ORDER BY o_totalprice, o_orderkey) AS q FROM orders) GROUP BY 1",
    "first value": "SELECT max(f) FROM (SELECT first_value(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey) AS f FROM orders)",
    "within a week": "SELECT max(n) FROM (SELECT count(*) OVER (PARTITION BY o_clerk ORDER BY o_orderdate RANGE BETWEEN INTERVAL '7' DAY PRECEDING AND CURRENT ROW) AS n FROM orders)",
    "grouping sets": "SELECT l_shipmode, l_shipinstruct, count(*), sum(l_extendedprice) FROM lineitem GROUP BY GROUPING SETS ((1, 2), (1), (2), ())",
    "weekdays": "SELECT extract(dow FROM o_orderdate) AS d, count(*), max(o_totalprice) FROM orders GROUP BY 1",
    "two levels": "SELECT n, count(*) FROM (SELECT o_custkey, count(*) AS n FROM orders GROUP BY 1) GROUP BY 1",
    "many texts": "SELECT o_orderkey, o_comment FROM orders WHERE o_orderkey % 3 = 0",
    "ratios": "SELECT l_suppkey, sum(l_extendedprice * l_discount) / sum(l_extendedprice) FROM lineitem GROUP BY 1",
    "recursion": "WITH RECURSIVE n(i, s) AS (SELECT 1, 0 UNION ALL SELECT i + 1, s + i FROM n WHERE i < 2000) SELECT max(s) FROM n",
    "outer three": "SELECT count(*), sum(l_quantity) FROM customer LEFT JOIN orders ON c_custkey = o_custkey LEFT JOIN lineitem ON o_orderkey = l_orderkey AND l_quantity > 40",
}


def in_relatrix(relatrix, files, names, is_native, folder):
    """Seconds, and rows, of each statement."""
    with open(f"{folder}/setup.sql", "w") as file:
        for table, path in files.items():
            if is_native:
                file.write(f"CREATE TABLE {table} AS SELECT * FROM '{path}';\n")
            else:
                file.write(f"CREATE EXTERNAL TABLE {table} STORED AS PARQUET LOCATION '{path}';\n")
    with open(f"{folder}/queries.sql", "w") as file:
        for at, name in enumerate(names):
            file.write(f"-- name: s{at}\n{STATEMENTS[name]};\n")
    command = [relatrix, "bench", "--setup", f"{folder}/setup.sql", "--queries", f"{folder}/queries.sql", "--runs", str(RUNS),
               "--out", folder, "--threads", "2", "--memory", "0", "--tmp", folder]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    import pyarrow.feather
    for record in map(json.loads, lines):
        if "query" in record:
            name = names[int(record["query"][1:])]
            if "error" in record:
                sys.exit(f"{name}: {record['error']}")
            yield name, min(record["seconds"]), pyarrow.feather.read_table(f"{folder}/{record['query']}.arrow")


def in_duckdb(files, names, is_native):
    """Seconds, and rows, of each statement."""
    import duckdb
    peer = duckdb.connect(config={"threads": 2})
    for table, path in files.items():
        peer.sql(f"CREATE {'TABLE' if is_native else 'VIEW'} {table} AS SELECT * FROM '{path}'")
    for name in names:
        seconds = []
        for _ in range(RUNS):
            started = time.perf_counter()
            rows = peer.sql(STATEMENTS[name]).to_arrow_table()
            seconds.append(time.perf_counter() - started)
        yield name, min(seconds), rows


def sums(rows):
    """Of each column of numbers."""
    import pyarrow
    import pyarrow.compute as compute
    of = []
    for column in rows.columns:
        if pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type) or pyarrow.types.is_decimal(column.type):
            of.append(compute.sum(compute.cast(column, pyarrow.float64())).as_py() or 0.0)
    return of


def run(relatrix, data, options):
    is_native = "native" in options
    names = [name for name in options if name != "native"] or list(STATEMENTS)
    files = {table: os.path.join(data, "tpch1", f"{table}.parquet") for table in TABLES}
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        own = {name: (seconds, rows) for name, seconds, rows in in_relatrix(relatrix, files, names, is_native, folder)}
        for name, seconds, rows in in_duckdb(files, names, is_native):
            mine, answer = own[name]
            agree = all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) for a, b in zip(sums(answer), sums(rows), strict=True))
            if answer.num_rows != rows.num_rows or not agree:
                sys.exit(f"{name}: {answer.num_rows} rows, sums {sums(answer)}; DuckDB {rows.num_rows}, {sums(rows)}")
            shown.append((mine / seconds, name, mine, seconds))
    for ratio, name, mine, seconds in sorted(shown, reverse=True):
        print(f"{name:18} relatrix {mine:.3f} s, duckdb {seconds:.3f} s, ratio {ratio:.2f}")
    mean = math.exp(sum(math.log(ratio) for ratio, *_ in shown) / len(shown))
    print(f"geometric mean {mean:.2f} of {len(shown)}, {sum(ratio > 1.3 for ratio, *_ in shown)} above 1.3")
