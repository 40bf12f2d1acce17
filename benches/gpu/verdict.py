"""What is expected of a GPU, beside what was measured: met, MISSED, or not measured."""

SCAN_SHARE_MIN = 0.85
PRODUCT_SHARE_MIN = 0.90
OVERLAP_MIN = 0.80
REGRET_MAX = 0.10
SLOWER_MAX = 0.05

# Single statements of less are not told apart by a clock beside other work.
NOISE_SECONDS = 1e-4

# Scans that read each cell or row once, and keep few sums.
SCANS_OF_MATRICES = [("loop", "float64"), ("loop", "float32")]
SCANS_OF_TABLES = ["filtered sum", "summary", "sums of doubles"]


def verdicts(found):
    """(what is expected, what was measured, whether it is met or None, whether it is a speed)."""
    tables, tpch = found.get("tables", []), found.get("tpch", [])
    placed = found.get("statements", []) + tables + tpch
    return [
        ("parts: all come to their end", *ended(found), False),
        ("suites: no record fails", *suites(found.get("suites", [])), False),
        ("answers: those of the host", *answers(placed), False),
        ("leaks: no buffer left", *leaks(found), False),
        (f"fused scan of matrices >= {SCAN_SHARE_MIN:.0%} of copies", *least(scans_of_matrices(found), SCAN_SHARE_MIN), True),
        (f"fused scan of a table >= {SCAN_SHARE_MIN:.0%} of copies", *least(scans_of_tables(tables), SCAN_SHARE_MIN), True),
        *[(f"product, {kind} >= {PRODUCT_SHARE_MIN:.0%} of cuBLAS", *least(products(found, kind), PRODUCT_SHARE_MIN), True)
          for kind in ["float64", "float32", "bf16"]],
        (f"overlap >= {OVERLAP_MIN:.0%}", *least(overlaps(tables + tpch), OVERLAP_MIN), True),
        (f"regret over all <= {REGRET_MAX:.0%}", *regret_over_all(placed), True),
        (f"regret of the worst <= {REGRET_MAX:.0%}", *most(regrets(placed), REGRET_MAX), True),
        (f"TPC-H: auto <= {SLOWER_MAX:.0%} slower than the host", *most(slower(tpch), SLOWER_MAX), True),
    ]


def show(found, is_standin):
    """Prints them; whether none is missed. Over a stand-in speeds mean nothing, and are not held against anything."""
    print(f"\n{'expected':<48}{'measured':<44}verdict")
    rows = []
    for name, text, is_met, is_speed in verdicts(found):
        held = is_met is not None and not (is_speed and is_standin)
        word = ("met" if is_met else "MISSED") if held else "not measured" if is_met is None else "not held"
        rows.append(dict(expected=name, measured=text, verdict=word))
        print(f"{name:<48}{text:<44}{word}")
    found["verdict"] = rows
    return all(row["verdict"] != "MISSED" for row in rows)


def ended(found):
    broken = found["broken"]
    return f"{len(found['seconds']) - len(broken)} of {len(found['seconds'])}", not broken


def suites(rows):
    if not rows:
        return "–", None
    passed, failed = (sum(row[count] for row in rows) for count in ["passed", "failed"])
    return f"{passed} passed, {failed} failed, of {len(rows)} themes", not failed


def answers(rows):
    if not rows:
        return "–", None
    failed = [row["name"] for row in rows if row["failed"]]
    others = [row["name"] for row in rows if not row["failed"] and not row["same"]]
    text = f"{len(rows) - len(failed) - len(others)} of {len(rows)}"
    text += f", others: {', '.join(others)}" if others else ""
    text += f", failed: {', '.join(failed)}" if failed else ""
    return text, not failed and not others


def leaks(found):
    """Buffers beyond those that are kept for the next who reads them, at the end of each process; and whether there was a GPU still."""
    ends = found.get("ends", [])
    lost = [end["absent"] for end in ends if "absent" in end]
    if lost:
        return f"lost in {len(lost)} of {len(ends)} processes", False
    left = [int(end["buffers"]) - int(end["kept_buffers"]) for end in ends] + [row["left"] for row in found.get("suites", [])]
    return (f"{sum(left)} after {len(left)} processes", not any(left)) if left else ("–", None)


def scans_of_matrices(found):
    rounds = {(row["name"], row["kind"]): row["share"] for row in found.get("rounds", [])}
    return {f"{name}, {kind}": rounds[name, kind] for name, kind in SCANS_OF_MATRICES if (name, kind) in rounds}


def scans_of_tables(rows):
    return {row["name"]: row["share"] for row in rows if row["name"] in SCANS_OF_TABLES and not row["failed"]}


def products(found, kind):
    """As shares of what a peer's call of cuBLAS does."""
    rows = [row for row in found.get("rounds", []) if (row["name"], row["kind"]) == ("product", kind) and row["peers"]]
    return {min(row["peers"], key=row["peers"].get): min(row["peers"].values()) / row["seconds"] for row in rows}


def overlaps(rows):
    return {row["name"]: row["overlap"] for row in rows if row["overlap"] is not None}


def regrets(rows):
    return {row["name"]: row["regret"] if is_told(row, "host", "warm") else 0.0 for row in rows if not row["failed"]}


def slower(rows):
    """By what share of the host's time each is slower as it is placed."""
    share = lambda taken: taken["auto"] / taken["host"] - 1
    return {row["name"]: share(row["seconds"]) if is_told(row, "host") else 0.0 for row in rows if not row["failed"]}


def is_told(row, *sides):
    """Whether a query as it is placed is slower by more than a clock's noise than the fastest of these sides."""
    return row["seconds"]["auto"] - min(row["seconds"][side] for side in sides) > NOISE_SECONDS


def regret_over_all(rows):
    taken = [row["seconds"] for row in rows if not row["failed"]]
    if not taken:
        return "–", None
    regret = sum(of["auto"] for of in taken) / sum(min(of["host"], of["warm"]) for of in taken) - 1
    return f"{regret:.0%} of {len(taken)} queries", regret <= REGRET_MAX


def least(shares, limit):
    """The least of them, by whom, and whether it reaches the limit."""
    if not shares:
        return "–", None
    name = min(shares, key=shares.get)
    return f"{shares[name]:.0%} ({name})", shares[name] >= limit


def most(shares, limit):
    if not shares:
        return "–", None
    name = max(shares, key=shares.get)
    return f"{shares[name]:.0%} ({name})", shares[name] <= limit
