"""A folder of 5,000 Parquet files of 9 kB, read as one table by Relatrix and by DuckDB.

Each engine is one process that has read their footers before. Shown are seconds where the files are in memory, and where
the page cache has given them up, as a long-lived process finds them again.
"""
import os
import statistics
import subprocess
import time

FILES, ROWS, RUNS = 5000, 500, 5
QUERY = "SELECT count(*), sum(id), sum(v), max(s) FROM '{folder}/*.parquet'"


def make_files(folder):
    import duckdb
    os.makedirs(folder, exist_ok=True)
    for at in range(FILES):
        path = os.path.join(folder, f"{at:05}.parquet")
        if not os.path.exists(path):
            duckdb.sql(f"COPY (SELECT i AS id, hash(i) / 1e19 AS v, 'text ' || i % 7 AS s "
                       f"FROM range({at * ROWS}, {(at + 1) * ROWS}) AS t(i)) TO '{path}' (FORMAT parquet)")


def give_up_cache(folder):
    for name in os.listdir(folder):
        file = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def show(name, folder, run):
    run()

    def timed(is_cold):
        if is_cold:
            give_up_cache(folder)
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    warm, cold = (statistics.median(timed(is_cold) for _ in range(RUNS)) for is_cold in (False, True))
    print(f"{name:9} in memory {warm:.3f} s, given up {cold:.3f} s")


def run(relatrix, data):
    import duckdb
    folder = os.path.join(data, "small_files")
    make_files(folder)
    query = QUERY.format(folder=folder)
    command = [relatrix, "--format", "csv", "--threads", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ours:
        # Neither answers nor columns are to come from what is kept.
        ours.stdin.write("SET result_cache = 'off';\nSET parquet_cache_limit = '0';\n")

        def ask():
            ours.stdin.write(f"{query};\n")
            ours.stdin.flush()
            ours.stdout.readline()
            return ours.stdout.readline()

        show("relatrix", folder, ask)
        ours.stdin.close()
    peer = duckdb.connect(config={"threads": 2})
    show("duckdb", folder, lambda: peer.sql(query).fetchall())
