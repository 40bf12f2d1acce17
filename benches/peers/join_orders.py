"""Queries whose FROM is written in every order: how many plans there are, and what they take beside the orders as written.

    run.py join-orders HARNESS           of TPC-H
    run.py snowflakes [SEED [COUNT]]     generated ones, whose references are skewed; fifty are usual

A FROM of more than six relations is shuffled 720 times instead; snowflakes of five relations at most have each order run. With `join_order = 'written'` each order is run until it has
taken three times as long as ours; the least time of these is the best order that there is.
"""
import itertools
import json
import os
import random
import re
import subprocess

QUERIES = ["q2", "q5", "q7", "q8", "q9", "q21"]
ORDERS_MAX, RUNS = 720, 7
RELATIONS_RUN_MAX = 5  # of snowflakes


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
    setup = [
        f"CREATE VIEW {name.removesuffix('.parquet')} AS SELECT * FROM '{folder}/{name}'"
        for name in sorted(os.listdir(folder))]
    for name, query in tpch(harness).items():
        if name in QUERIES:
            compare(relatrix, setup, name, orders(query), True)


def run_snowflakes(relatrix, options):
    first, count = (list(map(int, options)) + [1, 50][len(options):])[:2]
    found = []
    for seed in range(first, first + count):
        setup, query, relations = snowflake(random.Random(seed))
        found.append(compare(relatrix, setup, f"snowflake {seed}", orders(query), relations <= RELATIONS_RUN_MAX))
    slowest = max(slowest for slowest, _ in found)
    ratios = sorted(ratio for _, ratio in found if ratio is not None)
    print(f"{count} snowflakes: the slowest plan {slowest:.2f} of the fastest; of the best order as written {ratios[0]:.2f} to "
          f"{ratios[-1]:.2f}, median {ratios[len(ratios) // 2]:.2f}, of {len(ratios)}")


def snowflake(chance):
    """Statements that make tables which refer to one another as branches do to their root, a query of them all, and how many there are.

    Half of the references have a value more often the lower it is, and so have half of the attributes."""
    count = chance.randint(3, 7)
    rows = [chance.choice([1_000_000, 2_000_000, 4_000_000])] + [int(10 ** chance.uniform(1, 5.5)) for _ in range(count - 1)]
    columns, conditions = [[] for _ in rows], []
    for table in range(1, count):
        parent = chance.choice(range(table)) if chance.random() < 0.5 else 0
        columns[parent].append(f"{drawn(chance, table, rows[table])} AS to_{table}")
        conditions.append(f"t{parent}.to_{table} = t{table}.id")
    setup = []
    for table, number in enumerate(rows):
        columns[table].append(f"{drawn(chance, 100 + table, 100)} AS v")
        setup.append(f"CREATE TABLE t{table} AS SELECT id, {', '.join(columns[table])} FROM range({number}) AS r(id)")
        if chance.random() < 0.5:
            conditions.append(f"t{table}.v < {chance.randint(5, 95)}")
    chance.shuffle(conditions)
    tables = ", ".join(f"t{table}" for table in range(count))
    query = f"SELECT t1.v, count(*), sum(t0.v)\nfrom {tables}\nWHERE {' AND '.join(conditions)} GROUP BY t1.v"
    return setup, query, count


def drawn(chance, salt, number):
    """A number below this one, of each row another."""
    uniform = f"(id * {2 * chance.randrange(2 ** 20) + 1} + {salt} * 7919) % 1000003 / 1000003.0"
    power = chance.choice([1, 1, 2, 4])
    return f"CAST(floor(pow({uniform}, {power}) * {number}) AS BIGINT)"


def compare(relatrix, setup, name, written, all_are_run):
    """Prints how many plans these orders have, the slowest beside the fastest, and, where all are run, beside the best order as written."""
    setup = ["SET result_cache = 'off'"] + setup
    explained, _ = ask(relatrix, setup, [f"EXPLAIN FORMAT indent {order}" for order in written], "--format", "json")
    plans = {}
    for order, plan in zip(written, json_arrays(explained)):
        plans.setdefault(json.dumps(plan), order)
    plans = list(plans.values())
    times = by_turns(relatrix, setup, plans, [])[0]
    line = f"{name:12} {len(written)} orders: {len(plans)} plans"
    if not all_are_run:
        print(f"{line}, {min(times):.3f} to {max(times):.3f} s", flush=True)
        return max(times) / min(times), None
    limit = f"SET statement_timeout_ms = {max(50, round(3000 * min(times)))}"
    _, others = ask(relatrix, setup + [written[0], limit, "SET join_order = 'written'"], written, "--format", "none")
    ended = [taken for taken in others if taken is not None]
    # The first few are timed again, for each has run once only.
    best = sorted(range(len(written)), key=lambda at: others[at] or float("inf"))[:5]
    times, by_hand = by_turns(relatrix, setup, plans, [written[at] for at in best])
    print(f"{line}, {min(times):.3f} to {max(times):.3f} s; as written the best {min(by_hand):.3f} s "
          f"(ratio {max(times) / min(by_hand):.2f}), {len(written) - len(ended)} beyond three times ours", flush=True)
    return max(times) / min(times), max(times) / min(by_hand)


def by_turns(relatrix, setup, plans, by_hand):
    """The least seconds of each of ours and of each order as written, of several rounds."""
    chosen, kept = "SET join_order = 'cost'", "SET join_order = 'written'"
    of_round = [chosen] + plans + ([kept] + by_hand if by_hand else [])
    _, seconds = ask(relatrix, setup, of_round * (1 + RUNS), "--format", "none")
    rounds = [seconds[at:at + len(of_round)] for at in range(len(of_round), len(seconds), len(of_round))]
    least = [min(taken) for taken in zip(*rounds)]
    return least[1:1 + len(plans)], least[2 + len(plans):]


def json_arrays(text):
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        value, end = decoder.raw_decode(text, at)
        yield value
        at = end
        while at < len(text) and text[at].isspace():
            at += 1
