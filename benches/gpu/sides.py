"""The same queries by the host, by the GPU and as they are placed: in one process, so that what they read is made once."""

import re
import statistics

from engine import Broken

# In this order: nothing that was read is in the GPU's memory before `auto`, which has to find out what is worth its way there.
SIDES = {
    "host": "SET gpu = 'off'",
    "cold": "SET gpu = 'force'; SET gpu_keep = 'off'",
    # A GPU is looked for beside the work, and what is asked meanwhile is done by the host: here it has been found.
    "auto": "SET gpu_keep = 'on'; SET gpu = 'force'; SHOW GPU; SET gpu = 'auto'",
    "warm": "SET gpu = 'force'",
}

HEADS = "".join(f"{side + ' ms':>10}" for side in SIDES) + f"{'regret':>8}"

# An operator that a GPU may run, with what EXPLAIN ANALYZE says of it: why the host has done it after all, and figures.
PART = re.compile(r"Offloaded\w+Exec: by the (GPU|host).*")
WHY = re.compile(r"\(done by the host: (.*?)\), metrics=")
FIGURE = re.compile(r"(\w+)=([^,\]]+)")


def measured(engine, setup, queries, runs, asked, also, on_failure="error"):
    """Rows of (name, text), and all records; `also` has those that are asked once, before and behind the queries of a side.

    `auto` is asked so many times at least: a matrix or a column comes to the GPU once what it would have saved there is worth its
    way, so what has not come by then would save less than that part of its way each time.
    """
    texts = []
    for side, settings in SIDES.items():
        texts.append((f"settings of {side}", f"SET gpu_on_failure = '{on_failure}'; {settings}", True))
        times = -(-asked // (runs + 1)) if side == "auto" else 1
        before, behind = ([(name, text, True) for name, text in asked_once] for asked_once in also.get(side, ([], [])))
        texts += before + times * [(f"{side} {name}", text, False) for name, text in queries] + behind
    records = engine.measured(setup, texts, runs + 1)
    refused = [records[f"settings of {side}"].error for side in SIDES]
    if any(refused):
        raise Broken("; ".join(filter(None, refused)))
    return [row_of(records, name) for name, _ in queries], records


def row_of(records, name):
    """Seconds of a query by side, and its regret: by how much it is slower as it is placed than by the faster of host and warm."""
    of = {side: records[f"{side} {name}"] for side in SIDES}
    failed = "; ".join(f"{side}: {record.error}" for side, record in of.items() if record.error)
    row = dict(name=name, failed=failed, seconds={}, regret=None)
    if not failed:
        # The later half, for the first runs compile, bring and find out.
        taken = {side: statistics.median(record.seconds[len(record.seconds) // 2 :]) for side, record in of.items()}
        row.update(seconds=taken, regret=taken["auto"] / min(taken["host"], taken["warm"]) - 1)
    return row


def figures(row):
    """What HEADS are above of, or what has failed."""
    if row["failed"]:
        return f"  {row['failed'].splitlines()[0]:{len(HEADS) - 2}.{len(HEADS) - 2}}"
    return "".join(f"{1e3 * seconds:>10.2f}" for seconds in row["seconds"].values()) + f"{100 * row['regret']:>7.0f}%"


def answers(row):
    """Whether all sides have the same."""
    return "failed" if row["failed"] else "same" if row["same"] else "OTHERS"


def percent(share):
    """As text."""
    return "–" if share is None else f"{100 * share:.0f}%"


def explained(queries):
    """What to ask beside queries in SQL: what a GPU fails at, how their columns come, how they were placed, and how long the GPU takes alone."""
    plans = lambda kind, how: [(f"{kind} {name}", f"{how} {text}") for name, text in queries]
    first, coming, alone = (plans(kind, "EXPLAIN ANALYZE") for kind in ["first", "coming", "alone"])
    # The first time kernels are compiled, and it is found out what a GPU cannot do; of those that are warm the first brings columns.
    return {"cold": (first + coming, []), "auto": ([], plans("placed", "EXPLAIN")), "warm": (alone + alone, [])}


def explain(row, records):
    """Adds to a row what `explained` has found out, and whether all sides answer as the host does."""
    name = row["name"]
    answers = [records[f"{side} {name}"].rows for side in SIDES]
    row["same"] = all(near(answers[0], answer) for answer in answers[1:])
    first, coming, placed, alone = (parts(records[f"{kind} {name}"]) for kind in ["first", "coming", "placed", "alone"])
    row["placed"] = sum(part["by"] == "GPU" for part in placed)
    row["fell"] = [part["why"] for part in first if "why" in part]
    row["parts"] = len(done(alone))
    row["alone"] = sum(part["seconds"] for part in done(alone))
    row["overlap"] = overlap(done(coming), row["alone"])


def overlap(parts, alone):
    """The share of the time that the busiest of the host, the way and the GPU was at work, while columns came in batches; None of one batch."""
    parts = [part for part in parts if number(part["batches"]) > 1]
    if not parts:
        return None
    seconds = sum(part["seconds"] for part in parts)
    busy = sum(part["seconds"] * number(part["busy_percent"]) / 100 for part in parts)
    return max(busy, min(alone, seconds)) / seconds


def parts(record):
    """The operators of a plan that a GPU may run: by whom each is, why the host did it after all, and its figures."""
    found = []
    for line in PART.finditer("\n".join(row["plan"] for row in record.rows or [] if row["plan_type"] != "Choices")):
        part = dict(FIGURE.findall(line.group()), by=line.group(1))
        if why := WHY.search(line.group()):
            part["why"] = why.group(1)
        found.append(part)
    return found


def done(parts):
    """Those that a GPU has done, with their seconds: the host's plan below another one has no figures, and a clock that never ran says 1 ns."""
    timed = [dict(part, seconds=duration(part["by_device"])) for part in parts if "by_device" in part and "why" not in part]
    return [part for part in timed if part["seconds"] > 1e-9]


def number(text):
    """That of a counter, as 12 or 60.17 K."""
    value, *unit = text.split()
    return float(value) * {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}[unit[0] if unit else ""]


def duration(text):
    """The seconds of a time, as 21.17ms."""
    value, unit = re.match(r"([0-9.]+)(\D+)", text).groups()
    return float(value) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


def near(one, other):
    """Whether two answers are the same but for the last digits of numbers with a point."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-9 * abs(one)
    return one is not None and one == other or one is other is None
