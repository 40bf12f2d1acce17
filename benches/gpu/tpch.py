"""The 22 queries of TPC-H over tables in memory, by the host and by the GPU."""

import os
import re

import peers
import sides
from engine import Broken
from suites import ROOT

NAMES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]
QUERIES = os.path.join(ROOT, "src/planner/joins/q_errors/tpch.sql")

# 22 queries at scale factor 10 take the host seconds, and a GPU is lent for minutes. After so many askings what would save more than an
# eighth of its way each time has come.
RUNS, ASKED = 2, 8


def measured(engine, folder, runs):
    """Each query on all sides; what a GPU fails at is the host's, and counted."""
    paths = {name: os.path.abspath(os.path.join(folder, f"{name}.parquet")) for name in NAMES}
    for path in paths.values():
        if not os.path.exists(path):
            raise Broken(f"{path} is not there")
    setup = "".join(f"CREATE TABLE {name} AS SELECT * FROM '{path}';\n" for name, path in paths.items())
    queries = read()
    also = sides.explained(queries)
    also["host"] = ([("rows", "SELECT count(*) AS n FROM lineitem")], [])
    rows, records = sides.measured(engine, setup, queries, min(RUNS, runs), ASKED, also, "host")
    lines = records["rows"].rows[0]["n"]
    beside = peers.of_tables(paths["lineitem"], lines)
    print(f"\nTPC-H, {lines} lines\n{'query':<6}{'answers':>8}{sides.HEADS}{'overlap':>9}{'parts':>7}{'GPU alone ms':>14}{'auto by':>9}"
          f"{'fastest peer, ms':>20}")
    for row in rows:
        sides.explain(row, records)
        row["peers"] = beside.get(row["name"], {})
        share = f"{row['parts']}/{row['parts'] + len(row['fell'])}"
        parts = f"{share:>7}{1e3 * row['alone']:>14.3f}{'GPU' if row['placed'] else 'host':>9}"
        print(f"{row['name']:<6}{sides.answers(row):>8}{sides.figures(row)}{sides.percent(row['overlap']):>9}{parts}"
              f"{peers.fastest(row['peers']):>20}")
    total(rows, engine.ends[-1])
    return rows


def read():
    """The queries, by name."""
    with open(QUERIES) as file:
        pieces = re.split(r"^-- name: (\w+)\n", file.read(), flags=re.MULTILINE)[1:]
    return [(name, text.strip().rstrip(";")) for name, text in zip(pieces[::2], pieces[1::2])]


def total(rows, end):
    """What all together take, how much of it a GPU did, and why it did not do the rest of what it was to."""
    whole = [row for row in rows if not row["failed"]]
    seconds = {side: sum(row["seconds"][side] for row in whole) for side in sides.SIDES}
    figures = ", ".join(f"{side} {taken:.3f} s" for side, taken in seconds.items())
    by_gpu = sum(row["parts"] > 0 for row in rows)
    print(f"all: {figures}; {by_gpu} of {len(rows)} have a part that a GPU does; {end.get('failed')} times in all the host did what was meant for it")
    for row in rows:
        for why in row["fell"]:
            print(f"{row['name']}, the host after all: {why}")
