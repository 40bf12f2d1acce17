"""Queries of TPC-H whose FROM is written in every order: how many plans there are, and what they take beside the orders as written.

A FROM of more than six relations is shuffled 720 times instead. With `join_order = 'written'` each order is run until it has
taken three times as long as ours; the least time of these is the best order that there is.
"""
import itertools
import json
import os
import random
import re
import subprocess

QUERIES = ["q2", "q5", "q7", "q8", "q9", "q21"]
ORDERS_MAX, RUNS = 720, 3


def orders(query):
    """The query with its first FROM of several relations in every order, as it is written first."""
    relations = max(re.findall(r"from ([^\n()]*,[^\n()]*)\n", query), key=lambda found: found.count(","))
    names = [name.strip() for name in relations.split(",")]
    if len(names) <= 6:
        all_orders = list(itertools.permutations(names))
    else:
        shuffled = random.Random(0)
        all_orders = [names] + [shuffled.sample(names, len(names)) for _ in range(ORDERS_MAX - 1)]
    return [query.replace(relations, ", ".join(order), 1) for order in all_orders]


def tpch(harness):
    with open(os.path.join(harness, "sql", "queries", "tpch.sql")) as file:
        parts = re.split(r"-- name: (\w+)\n", file.read().replace("{sf}", "1"))
    return dict(zip(parts[1::2], (text.strip().rstrip(";") for text in parts[2::2])))


def ask(relatrix, setup, statements, *options):
    """What the statements print, and the seconds that each took; None for one that was stopped."""
    command = [relatrix, "--threads", "2", "--keep-going", "--timing=json", *options]
    text = ";\n".join(setup + statements) + ";\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("{") or ": error: " in line]
    seconds, stopped = [], False
    for line in lines:
        if line.startswith("{"):
            seconds.append(None if stopped else json.loads(line)["seconds"])
            stopped = False
        else:
            stopped = True
    return done.stdout, seconds[len(setup):]


def run(relatrix, harness, data):
    folder = os.path.join(data, "tpch1")
    setup = ["SET result_cache = 'off'"] + [
        f"CREATE VIEW {name.removesuffix('.parquet')} AS SELECT * FROM '{folder}/{name}'"
        for name in sorted(os.listdir(folder))]
    for name, query in tpch(harness).items():
        if name not in QUERIES:
            continue
        written = orders(query)
        explained, _ = ask(relatrix, setup, [f"EXPLAIN FORMAT indent {order}" for order in written], "--format", "json")
        plans = {}
        for order, plan in zip(written, json_arrays(explained)):
            plans.setdefault(json.dumps(plan), order)
        _, seconds = ask(relatrix, setup, [query] + list(plans.values()) * RUNS, "--format", "none")
        times = [min(seconds[1 + at::len(plans)]) for at in range(len(plans))]
        limit = f"SET statement_timeout_ms = {max(50, round(3000 * min(times)))}"
        by_hand = setup + [query, limit, "SET join_order = 'written'"]
        _, others = ask(relatrix, by_hand, written, "--format", "none")
        ended = [taken for taken in others if taken is not None]
        # The first few are timed again, for each has run once only.
        best = sorted(range(len(written)), key=lambda at: others[at] or float("inf"))[:5]
        _, again = ask(relatrix, by_hand, [written[at] for at in best] * RUNS, "--format", "none")
        best = min(taken for taken in again if taken is not None)
        print(f"{name:4} {len(written)} orders: {len(plans)} plans, {min(times):.3f} to {max(times):.3f} s; as written the best "
              f"{best:.3f} s (ratio {max(times) / best:.2f}), {len(written) - len(ended)} beyond three times ours", flush=True)


def json_arrays(text):
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        value, end = decoder.raw_decode(text, at)
        yield value
        at = end
        while at < len(text) and text[at].isspace():
            at += 1
