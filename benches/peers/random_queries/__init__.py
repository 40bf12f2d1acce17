"""Random queries in Relatrix and in DuckDB, whose answers must be the same.

    run.py random [SEED [COUNT]]     COUNT queries (500) by one seed (1): tables in memory if it is even, Parquet files if it is odd

Tables have the same columns, with values that meet, repeat and are NULL; one has no rows, one hardly a value, one more than
three batches. Queries join them, and sub-queries of the same kind, in all ways: `queries.py`; their expressions are the
lists of `expressions.py`. Half the seed says how they are asked, the remainder by four of it: once, within little memory,
with values that came later (PREPARE), or again and again while tables get rows and lose some and all answers are remembered.
Shown is each query whose rows differ, and each error of Relatrix where DuckDB has an answer.
"""
import sys
import tempfile

from . import tables
from .queries import Queries

WAYS = ["once", "little memory", "prepared", "remembered"]


def stages(way, in_files, seed):
    """What is run before the queries are asked, each time they are: for both, and for Relatrix alone."""
    if way == "little memory":
        return [([], ["SET memory_limit = '64MB'"])]
    if way == "remembered":
        remembers = "SET result_cache_after_ms = 0"
        changes = [] if in_files else [(list(tables.more_rows(seed)), []), (list(tables.fewer_rows()), [])]
        return [([], [remembers]), *changes, ([], ["SET result_cache = 'verify'"])]
    return [([], [])]


def alike(rows, is_in_order):
    """Values as they are written alike; rows in an order of their own unless the query gives them one."""
    rows = [[cell(value) for value in row] for row in rows]
    return rows if is_in_order else sorted(rows, key=str)


def cell(value):
    """A number, however it is written, to six digits; a date and a time with a T between them, and no midnight."""
    if value is None or isinstance(value, bool):
        return value
    text = str(value)
    try:
        return f"{float(text) + 0.0:.6g}"
    except ValueError:
        return text.replace(" ", "T", 1).removesuffix("T00:00:00") if text.startswith("20") else text


def run(relatrix, options):
    from .engines import DuckDB, Script
    seed, count = [*map(int, options), *[1, 500][len(options):]]
    in_files, way = seed % 2 == 1, WAYS[seed // 2 % len(WAYS)]
    queries = [Queries(f"{seed} {at}", way == "prepared").whole() for at in range(count)]
    peer, script = DuckDB(), Script()
    for statement in tables.statements():
        peer.run(statement)
        if not in_files:
            script.run([statement])
    with tempfile.TemporaryDirectory() as folder:
        if in_files:
            script.run(tables.in_files(peer, folder))
        for of_both, of_relatrix in stages(way, in_files, seed):
            for statement in of_both:
                peer.run(statement)
            script.run(of_both + of_relatrix)
            for query in queries:
                script.ask(query, peer.answers(query), 2 if way == "remembered" else 1)
        answers, errors = script.answers(relatrix, folder)
    differ = 0
    for asked, rows in zip(script.asked, answers):
        ours, theirs = alike(rows or [], asked.is_in_order), alike(asked.rows, asked.is_in_order)
        if rows is not None and ours != theirs:
            differ += 1
            print(asked.text)
            print(f"  relatrix {len(ours)} rows {[row for row in ours if row not in theirs][:3]}")
            print(f"  duckdb   {len(theirs)} rows {[row for row in theirs if row not in ours][:3]}")
    failed = [asked.text for asked, rows in zip(script.asked, answers) if rows is None]
    for text, error in zip(failed if len(failed) == len(errors) else [""] * len(errors), errors):
        print(f"{error}\n  {text}")
    print(f"seed {seed}, {way}: {len(queries)} queries, {len(answers)} answers, {differ} differ, {len(errors)} errors")
    if differ:
        sys.exit(1)
