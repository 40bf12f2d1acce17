"""Work that does not fit into the memory limit, in Relatrix and in DuckDB under the same limit.

Each case is a process of its own. Shown are seconds, the most memory the process had, and by how much that passes the
limit: at most 64 MiB, code included. Tables are made once, under $BENCH_DATA.
"""
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
TPCH = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]

# Tables of the join and of the windows: (file, rows, columns as SQL over range(rows) with its column i).
TABLES = {
    "limits_left.parquet": (20_000_000, "(i * 7919) % 20000000 AS k, i AS a, i * 0.5::DOUBLE AS x"),
    "limits_right.parquet": (20_000_000, "(i * 104729) % 20000000 AS k, i AS b, i * 0.25::DOUBLE AS y"),
    "limits_window.parquet": (50_000_000, "(i * 7919) % 100003 AS k, (i * 104729) % 50000017 AS t, (i % 1009) * 0.5::DOUBLE AS v"),
}

# name: (limit in MiB, query over {data}); rows leave the query only where the name says so.
CASES = {
    "sort": (1024, "SELECT k FROM '{data}/sort/keys.parquet' ORDER BY k"),
    "sort_files": (256, "SELECT k FROM '{data}/sort/keys.parquet' ORDER BY k"),
    "join": (300, "SELECT count(*), sum(a + b), sum(x * y) FROM '{data}/limits_left.parquet' AS l "
                  "JOIN '{data}/limits_right.parquet' AS r ON l.k = r.k"),
    "join_rows": (300, "SELECT l.k, a, b, x, y FROM '{data}/limits_left.parquet' AS l "
                       "JOIN '{data}/limits_right.parquet' AS r ON l.k = r.k"),
    "window": (256, "SELECT sum(r), sum(s) FROM (SELECT row_number() OVER (PARTITION BY k ORDER BY t) AS r, "
                    "sum(v) OVER (PARTITION BY k ORDER BY t) AS s FROM '{data}/limits_window.parquet')"),
    "window_running": (256, "SELECT sum(s) FROM (SELECT sum(v) OVER (ORDER BY t ROWS BETWEEN 100 PRECEDING AND CURRENT ROW) AS s "
                            "FROM '{data}/limits_window.parquet')"),
    "window_total": (256, "SELECT sum(v / s) FROM (SELECT v, sum(v) OVER (PARTITION BY k) AS s FROM '{data}/limits_window.parquet')"),
    "group": (256, "SELECT count(*), sum(n) FROM (SELECT t, count(*) AS n FROM '{data}/limits_window.parquet' GROUP BY t)"),
    "product": (2048, None),
}

# What the product is given where it is to be done in memory, to compare with.
IN_MEMORY_MIB = 16 << 10

# In matrices; made within the limit too.
PRODUCT = """
CREATE MATRIX a = rand({side}, {side}, 1);
CREATE MATRIX b = rand({side}, {side}, 2);
CREATE MATRIX c = a @ b;
SELECT (MATRIX(sum(c)));
"""


def make_tables(data):
    import duckdb
    for name, (rows, columns) in TABLES.items():
        path = os.path.join(data, name)
        if not os.path.exists(path):
            duckdb.sql(f"COPY (SELECT {columns} FROM range({rows}) AS t(i)) TO '{path}' (FORMAT parquet)")


def measured(command, passed=None):
    """Runs a process: seconds, peak MiB, what it wrote, and its exit status; the bytes that it read and wrote go into `passed`."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    seconds = time.monotonic() - began
    if passed is not None:
        with open(f"/proc/{process.pid}/io") as file:
            passed.update((name, int(value)) for name, value in (line.split(": ") for line in file))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return seconds, usage.ru_maxrss / 1024, output.strip(), process.returncode


def bandwidths(folder, threads, size=1 << 30, piece=1 << 20):
    """Bytes a second of so many threads that write a file there one piece after another, and that read it again."""
    block = os.urandom(piece)

    def rate(move):
        def part(number):
            for at in range(number * piece, size, threads * piece):
                move(at)
        workers = [threading.Thread(target=part, args=(number,)) for number in range(threads)]
        began = time.monotonic()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return size / (time.monotonic() - began)

    with tempfile.TemporaryFile(dir=folder) as file:
        written = rate(lambda at: os.pwrite(file.fileno(), block, at))
        return written, rate(lambda at: os.pread(file.fileno(), piece, at))


def row_of_passes(name, seconds, passed, threads):
    """How near a case comes to moving its bytes and doing nothing else: reads of input and files, and what it writes."""
    written, read = bandwidths(tempfile.gettempdir(), threads)
    bound = passed["rchar"] / read + passed["wchar"] / written
    print(f"{name:16} {'passes':10} read {passed['rchar'] >> 20} MiB at {read / 1e9:.1f} GB/s, wrote {passed['wchar'] >> 20} MiB at "
          f"{written / 1e9:.1f} GB/s: {bound:.2f} s, {bound / seconds:.0%} of the bandwidth", flush=True)


def duckdb_command(query, limit_mib, threads):
    program = (f"import duckdb; c = duckdb.connect(config={{'memory_limit': '{limit_mib}MiB', 'threads': {threads}}})\n"
               f"r = c.sql({query!r}).to_arrow_reader(100_000)\n"
               "rows = 0\nfor batch in r: rows += batch.num_rows\n"
               "print(rows)")
    return [sys.executable, "-c", program]


def row(name, engine, limit_mib, seconds, peak, failed):
    over = peak - limit_mib
    verdict = "FAILED: " + failed if failed else "ok" if over <= 64 else "OVER"
    print(f"{name:16} {engine:10} {limit_mib:6} MiB {seconds:8.1f} s {peak:7.0f} MiB {over:+6.0f} {verdict}", flush=True)


def run(relatrix, options):
    """limits [CASE ...] [--no-duckdb] [--no-memory] [--repeat N]: the cases named, else all."""
    data, threads = os.path.abspath(os.environ["BENCH_DATA"]), os.environ.get("BENCH_THREADS", "2")
    repeat = int(options[options.index("--repeat") + 1]) if "--repeat" in options else 1
    named = [option for option in options if option in CASES]
    make_tables(data)
    for name, (limit, query) in CASES.items():
        if named and name not in named:
            continue
        side = int(os.environ.get("PRODUCT_SIDE", 20_000))
        text = PRODUCT.format(side=side) if query is None else query.format(data=data)
        for _ in range(repeat):
            passed = {}
            seconds, peak, output, status = measured(
                [relatrix, "--threads", threads, "--memory-limit", f"{limit}MiB", "--format", "none", "-c", text], passed)
            row(name, "relatrix", limit, seconds, peak, output[-200:] if status else "")
            if name.startswith("sort"):
                row_of_passes(name, seconds, passed, int(threads))
            if query is None and "--no-memory" not in options:
                seconds, peak, output, status = measured(
                    [relatrix, "--threads", threads, "--memory-limit", f"{IN_MEMORY_MIB}MiB", "--format", "none", "-c", text])
                row(name, "in memory", IN_MEMORY_MIB, seconds, peak, output[-200:] if status else "")
            elif query and "--no-duckdb" not in options:
                seconds, peak, output, status = measured(duckdb_command(text, limit, threads))
                row(name, "duckdb", limit, seconds, peak, output[-200:] if status else "")


def run_tpch(relatrix, harness, options):
    """limits-tpch [MIB] [QUERY ...] [--no-duckdb]: every query of TPC-H, scale factor 10, in processes of their own.

    Each engine runs each query twice, and goes first once: of the least times the sum, of the peaks the largest.
    """
    data, threads = os.path.abspath(os.environ["BENCH_DATA"]), os.environ.get("BENCH_THREADS", "2")
    limit = int(options[0]) if options and options[0].isdigit() else 1024
    named = [option for option in options if option.startswith("q")]
    scale = os.environ.get("TPCH", "tpch10")
    with open(os.path.join(harness, "sql/queries/tpch.sql")) as file:
        pieces = re.split(r"^-- name: (\w+).*\n", file.read(), flags=re.M)[1:]
    engines = ["relatrix"] if "--no-duckdb" in options else ["relatrix", "duckdb"]
    total = dict.fromkeys(engines, 0.0)
    for name, query in zip(pieces[::2], pieces[1::2]):
        query = query.replace("{sf}", scale.removeprefix("tpch"))
        if named and name not in named:
            continue
        views = "".join(f"CREATE VIEW {t} AS SELECT * FROM '{data}/{scale}/{t}.parquet';\n" for t in TPCH)
        program = (f"import duckdb; c = duckdb.connect(config={{'memory_limit': '{limit}MiB', 'threads': {threads}}})\n"
                   f"c.execute({views!r})\nc.sql({query!r}).to_arrow_table()")
        commands = {
            "relatrix": [relatrix, "--threads", threads, "--memory-limit", f"{limit}MiB", "--format", "none", "-c", views + query],
            "duckdb": [sys.executable, "-c", program],
        }
        runs = {engine: [] for engine in engines}
        for engine in engines + engines[::-1]:
            runs[engine].append(measured(commands[engine]))
        for engine, of in runs.items():
            seconds, peak = min(run[0] for run in of), max(run[1] for run in of)
            failures = [output[-200:] for _, _, output, status in of if status]
            row(name, engine, limit, seconds, peak, "; ".join(failures))
            total[engine] += seconds
    print({engine: round(seconds, 1) for engine, seconds in total.items()})
