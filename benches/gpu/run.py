"""All that is checked and measured of a GPU, in one go: against the host, beside the peers that are there, and against what is expected of it.

    python benches/gpu/run.py [RELATRIX] [--suites RUNNER [--themes THEME ...]] [--tpch FOLDER] [--side 4096] [--rows 60000000] [--runs 5]
                              [--only suites|matrices|tables|tpch ...] [--libraries FOLDER] [--full FILE.json]

It needs this folder, sqllogictests/, src/planner/joins/q_errors/tpch.sql, two programs that may have been built elsewhere (stripped and
packed as one by `xz --lzma2=dict=192MiB`, 32 MiB) and Python 3.10 with nothing beside it; PyTorch, CuPy and cuDF are peers where they are there.
After what SHOW GPU says it prints, part by part,

- suites: how many records of sqllogictests/ pass with `gpu = force`, by their runner (`cargo test --release --test sqllogictests
  --no-run` names it), and how many buffers are left;
- matrices: for statements, decompositions, images and sparse matrices how far the GPU's answer is apart from the host's, and the
  milliseconds of the host, of the GPU where all is brought there (cold) and where what it reads is there already (warm), and of what
  `gpu = auto` takes when it is asked again and again, with its regret: by how much that is slower than the faster of host and warm;
  then rates of rounds whose matrices are there, as shares of what the GPU copies and of what a peer's call takes;
- tables: the same of aggregations, sorts and joins, with what the GPU takes alone once their columns are there, and the overlap: the share
  of the time that the busiest of the host, the way and the GPU was at work while columns came in batches;
- tpch: the same of the 22 queries over tables in memory, with how many parts of each a GPU does. The files are those of
  `tpchgen-cli parquet -s 10 --output-dir FOLDER`;

and at the end what is expected beside what was measured. What it takes is printed behind each part, so that parts can be run one by one where
a GPU is lent for minutes. It ends with 1 where something is missed or cannot be run, with 2 where there is no GPU.

A dry run, over the stand-in that tests/standin/build.sh has built into a folder, in which speeds are printed but not held against anything:

    python benches/gpu/run.py target/release/relatrix --side 64 --rows 20000 --runs 1 --libraries FOLDER

- `engine`: Relatrix as a process
- `sides`: queries by the host, by the GPU and as they are placed
- `suites`, `matrices`, `tables`, `tpch`: the parts
- `peers`: the same work by others
- `verdict`: what is expected
"""

import argparse
import json
import os
import sys
import time

import matrices
import suites
import tables
import tpch
import verdict
from engine import Broken, Relatrix

PARTS = ["suites", "matrices", "tables", "tpch"]


def main():
    # Whoever reads along, or has to end it, sees how far it has come.
    sys.stdout.reconfigure(line_buffering=True)
    given = arguments().parse_args()
    given.libraries = given.libraries and os.path.abspath(given.libraries)
    engine = Relatrix(given.relatrix, given.libraries)
    try:
        facts = seen(engine)
    except Broken as error:
        print(error, file=sys.stderr)
        return 1
    if "name" not in facts:
        print(f"there is no GPU: {facts.get('absent', 'SHOW GPU names none')}", file=sys.stderr)
        return 2
    found = dict(facts=facts, seconds={}, broken={}, ends=engine.ends)
    for part in given.only or PARTS:
        if part in ["suites", "tpch"] and not getattr(given, part):
            print(f"\n{part}: left out, for --{part} is not given")
            continue
        begin = time.monotonic()
        try:
            measure(part, engine, given, found)
        except Broken as error:
            found["broken"][part] = str(error)
            print(f"\n{part} is broken: {error}")
        found["seconds"][part] = time.monotonic() - begin
        print(f"{part}: {found['seconds'][part]:.0f} s")
        save(found, given.full)
    is_good = verdict.show(found, bool(given.libraries))
    save(found, given.full)
    return 0 if is_good else 1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("relatrix", nargs="?", default="relatrix")
    parser.add_argument("--suites", metavar="RUNNER", help="the compiled runner of sqllogictests/")
    parser.add_argument("--themes", nargs="+", choices=suites.THEMES, help="only these of its folders")
    parser.add_argument("--tpch", metavar="FOLDER", help="where the Parquet files of TPC-H are")
    parser.add_argument("--side", type=int, default=4096, help="of square matrices")
    parser.add_argument("--rows", type=int, default=60_000_000, help="of the table")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts")
    parser.add_argument("--libraries", metavar="FOLDER", default="", help="a stand-in, for a dry run")
    parser.add_argument("--full", metavar="FILE", help="writes all figures there")
    return parser


def seen(engine):
    """What SHOW GPU says, which is printed."""
    [rows] = engine.answers("SET gpu = 'force'; SHOW GPU")
    for row in rows:
        print(f"{row['name']:<20}{row['value'] or '':>34} {row['unit'] or ''}")
    return {row["name"]: row["value"] for row in rows}


def measure(part, engine, given, found):
    """Puts the rows of a part among what was found."""
    match part:
        case "suites":
            found["suites"] = suites.measured(given.suites, given.themes, given.libraries)
        case "matrices":
            matrices.measured(engine, given, found["facts"], found)
        case "tables":
            found["tables"] = tables.measured(engine, given.rows, given.runs, found["facts"])
        case "tpch":
            found["tpch"] = tpch.measured(engine, given.tpch, given.runs)


def save(found, path):
    """All figures so far."""
    if path:
        with open(path, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
