"""The tables that random queries read, the same for all seeds."""
import datetime
import random

ROWS = [40, 11, 6, 8, 0, 200, 30, 30_000]
OF_NULLS, LARGE = 6, 7  # The table with hardly a value, and the one with more than three batches.
LIKELY = [0, 1, 2, 3, 5] * 3  # Tables that are read more often.
COLUMNS = {
    "id": ("number", "BIGINT"), "x": ("number", "BIGINT"), "y": ("number", "INTEGER"), "s": ("text", "VARCHAR"),
    "price": ("decimal", "DECIMAL(9,2)"), "share": ("double", "DOUBLE"), "day": ("date", "DATE"),
    "moment": ("moment", "TIMESTAMP"), "good": ("truth", "BOOLEAN"),
}
TEXTS = ["a", "b", "ab", "c", "Ab", "", "äb", "a longer text, which no view holds"]
FIRST_DAY = datetime.date(2020, 2, 26)


def statements():
    """Statements that make the tables."""
    types = ", ".join(f"{name} {type}" for name, (_, type) in COLUMNS.items())
    for at, count in enumerate(ROWS):
        yield f"CREATE TABLE t{at} ({types})"
        if count:
            yield insert(at, range(count), random.Random(at))


def insert(at, ids, chance):
    return f"INSERT INTO t{at} VALUES {', '.join(row(at, id, chance) for id in ids)}"


def row(at, id, chance):
    """A row as a text. Doubles are quarters, so that sums are exact in any order."""
    range_of_x = 5 if at != LARGE else 20_000
    day = FIRST_DAY + datetime.timedelta(days=chance.randint(0, 6))
    values = [
        str(chance.randint(0, range_of_x)), str(chance.randint(0, 8)), f"'{chance.choice(TEXTS)}'",
        f"{chance.randint(-4, 12) / 4:.2f}", f"{chance.randint(-8, 20) / 4}", f"DATE '{day}'",
        f"TIMESTAMP '{day} {chance.choice(['00:00:00', '06:30:00', '23:59:59'])}'", chance.choice(["true", "false"])]
    nulls_of_ten = 9 if at == OF_NULLS else 1.5
    kept = [value if chance.random() * 10 > nulls_of_ten else "NULL" for value in values]
    if at == OF_NULLS:
        kept[0] = "NULL"
    return f"({', '.join([str(id), *kept])})"


def in_files(peer, folder):
    """Writes the tables of DuckDB as Parquet files; statements that make them views of these."""
    for at in range(len(ROWS)):
        peer.run(f"COPY t{at} TO '{folder}/t{at}.parquet' (ROW_GROUP_SIZE 10240)")
    return [f"CREATE VIEW t{at} AS SELECT * FROM '{folder}/t{at}.parquet'" for at in range(len(ROWS))]


def more_rows(seed):
    """Statements that give some of the tables, the empty one too, more rows."""
    chance = random.Random(seed)
    for at in range(len(ROWS)):
        if chance.randrange(3):
            yield insert(at, range(ROWS[at], ROWS[at] + chance.randint(1, 5)), chance)


def fewer_rows():
    yield "DELETE FROM t0 WHERE x = 2"
    yield "UPDATE t5 SET x = y WHERE id > 100"
