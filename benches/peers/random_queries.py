"""Random queries in Relatrix and in DuckDB, whose answers must be the same.

    run.py random [SEED [COUNT]]     COUNT queries (500) by one seed (1): tables in memory if it is even, Parquet files if it is odd

Tables are small, their columns have the same names and values that meet, repeat and are NULL. Queries join them, and
sub-queries of the same kind, in all ways, with conditions, groups, windows, sub-queries in conditions, unions and first rows.
Shown is each query whose rows differ, and each error of Relatrix where DuckDB has an answer; a comparison of a text with a
number, which DuckDB casts when a row comes, is the one difference that is none.
"""
import csv
import io
import os
import random
import subprocess
import sys
import tempfile
import threading

ROWS = [40, 11, 6, 8, 0, 200]
COLUMNS = [("id", "number"), ("x", "number"), ("y", "number"), ("s", "text")]
SECONDS_MAX = 5  # A query that takes DuckDB longer, or yields more rows, is left out.
ROWS_MAX = 20_000
MARK = "query "


def tables():
    """Statements that make the tables, the same for all seeds."""
    for at, count in enumerate(ROWS):
        values = random.Random(at)
        yield f"CREATE TABLE t{at} (id BIGINT, x BIGINT, y BIGINT, s VARCHAR)"
        rows = []
        for row in range(count):
            x, y = values.choice(["NULL", 0, 1, 2, 3, 4, 5]), values.randint(0, 8)
            text = values.choice([None, "a", "b", "ab", "c", "Ab", ""])
            rows.append(f"({row}, {x}, {y}, {'NULL' if text is None else repr(text)})")
        if rows:
            yield f"INSERT INTO t{at} VALUES {', '.join(rows)}"


class Queries:
    """Queries by chance. A column is the name of its relation, its own and its kind."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.aliases = 0

    def one_in(self, count):
        return self.chance.randrange(count) == 0

    def alias(self):
        self.aliases += 1
        return f"r{self.aliases}"

    def of_kind(self, columns, kind, otherwise):
        names = [f"{relation}.{name}" for relation, name, of in columns if of == kind]
        return self.chance.choice(names or [otherwise])

    def number(self, columns, is_plain=False):
        column = self.of_kind(columns, "number", "1")
        if is_plain:
            return column
        other, least = self.of_kind(columns, "number", "2"), self.chance.randint(0, 4)
        return self.chance.choice([column] * 6 + [
            f"({column} + {other})", f"({column} * {least})", f"coalesce({column}, {least})", str(least),
            f"CASE WHEN {self.condition(columns, True)} THEN {column} ELSE {least} END"])

    def text(self, columns):
        column = self.of_kind(columns, "text", "'a'")
        return self.chance.choice([column] * 6 + [f"upper({column})", f"coalesce({column}, 'z')", f"substr({column}, 1, 1)"])

    def condition(self, columns, is_plain=False):
        number = lambda: self.number(columns, is_plain)
        few, more = self.chance.randint(0, 3), self.chance.randint(2, 6)
        no = self.chance.choice(["", "NOT "])
        plain = [
            lambda: f"{number()} {self.chance.choice(['<', '>', '<=', '>=', '=', '<>'])} {self.chance.randint(0, 6)}",
            lambda: f"{number()} {self.chance.choice(['<', '=', '<>'])} {number()}",
            lambda: f"{number()} IS {no}NULL",
            lambda: f"{number()} IS {no}DISTINCT FROM {number()}",
            lambda: f"{number()} {no}IN ({few}, {more})",
            lambda: f"{number()} BETWEEN {few} AND {more}",
            lambda: f"{self.text(columns)} LIKE '{self.chance.choice(['a%', '%b', '%a%', '_b', 'a_', 'b'])}'",
            lambda: f"{self.text(columns)} = '{self.chance.choice(['a', 'b', 'ab'])}'",
        ]
        nested = [
            lambda: f"({self.condition(columns, True)} OR {self.condition(columns, True)})",
            lambda: f"NOT ({self.condition(columns, True)})",
            lambda: self.exists(columns, no),
            lambda: f"{number()} {no}IN ({self.values()})",
        ]
        return self.chance.choice(plain if is_plain else plain * 2 + nested)()

    def inner(self):
        """A table within a condition: it, its name and a column of it."""
        alias = self.alias()
        return f"t{self.chance.randrange(len(ROWS))} AS {alias}", alias, self.chance.choice(["id", "x", "y"])

    def exists(self, columns, no):
        table, alias, column = self.inner()
        further = f" AND {alias}.y > {self.chance.randint(0, 4)}" if self.one_in(2) else ""
        return f"{no}EXISTS (SELECT 1 FROM {table} WHERE {alias}.{column} = {self.number(columns)}{further})"

    def values(self):
        table, alias, column = self.inner()
        return f"SELECT {alias}.{column} FROM {table} WHERE {alias}.id {self.chance.choice('<>')} {self.chance.randint(0, 9)}"

    def relation(self, depth):
        alias = self.alias()
        if depth == 0 or not self.one_in(3):
            return f"t{self.chance.randrange(len(ROWS))} AS {alias}", [(alias, *column) for column in COLUMNS]
        query, columns = self.query(depth - 1)
        return f"({query}) AS {alias}", [(alias, *column) for column in columns]

    def relations(self, depth):
        joined, columns = self.relation(depth)
        for _ in range(self.chance.choice([0, 0, 1, 1, 1, 2, 2, 3])):
            other, own = self.relation(depth)
            kind = self.chance.choice(["", "", "LEFT ", "LEFT ", "RIGHT ", "FULL "])
            on = f"{self.number(columns, True)} = {self.number(own, True)}"
            if "number" not in [of for *_, of in columns] or "number" not in [of for *_, of in own] or self.one_in(20):
                joined = f"{joined} CROSS JOIN {other}"
            else:
                if kind == "" and self.one_in(8):
                    on = on.replace("=", "<")
                elif kind != "FULL " and self.one_in(3):
                    on += f" AND {self.condition(columns + own, True)}"
                joined = f"{joined} {kind}JOIN {other} ON {on}"
            columns = columns + own
        return joined, columns

    def query(self, depth, kinds=None):
        """A query, and the names and kinds of its columns."""
        if depth and kinds is None and self.one_in(12):
            kinds = ["number", "number"]
            way = self.chance.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
            (one, columns), (other, _) = self.query(depth - 1, kinds), self.query(depth - 1, kinds)
            return f"{one} {way} {other}", columns
        joined, columns = self.relations(depth)
        conditions = [self.condition(columns) for _ in range(self.chance.choice([0, 1, 1, 2]))]
        source = f"{joined} WHERE {' AND '.join(conditions)}" if conditions else joined
        kinds = kinds or [self.chance.choice(["number", "number", "number", "text"]) for _ in range(self.chance.randint(1, 3))]
        values = [self.text(columns) if kind == "text" else self.number(columns) for kind in kinds]
        if self.one_in(3):
            return self.grouped(source, columns, values, kinds)
        for at, kind in enumerate(kinds):
            if kind == "number" and self.one_in(8):
                values[at] = self.window(columns)
        different = "DISTINCT " if self.one_in(7) else ""
        return f"SELECT {different}{named(values)} FROM {source}", [(f"c{at}", kind) for at, kind in enumerate(kinds)]

    def grouped(self, source, columns, values, kinds):
        keys = [value for value, kind in zip(values, kinds) if kind == "text" or "." in value][:self.chance.choice([0, 1, 1, 2])]
        # What is no key is aggregated: texts by their extremes, which are texts.
        items = [value if value in keys else self.aggregate(columns, value, kind) for value, kind in zip(values, kinds)]
        groups = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = f" HAVING count(*) > {self.chance.randint(0, 3)}" if self.one_in(4) else ""
        if not keys and not having:
            items[0] = items[0] if kinds[0] == "text" else "count(*)"
        return f"SELECT {named(items)} FROM {source}{groups}{having}", [(f"c{at}", kind) for at, kind in enumerate(kinds)]

    def aggregate(self, columns, value, kind):
        some = f" FILTER (WHERE {self.condition(columns, True)})" if self.one_in(6) else ""
        if kind == "text":
            return f"{self.chance.choice(['min', 'max'])}({value}){some}"
        ways = ["count(*)", f"sum({value})", f"count({value})", f"count(DISTINCT {value})", f"min({value})", f"max({value})"]
        return self.chance.choice(ways) + some

    def window(self, columns):
        part, value = self.number(columns), self.number(columns)
        order = self.number(columns, True)
        return self.chance.choice([
            f"rank() OVER (PARTITION BY {part} ORDER BY {order})", f"sum({value}) OVER (PARTITION BY {part})",
            f"count(*) OVER (PARTITION BY {part} ORDER BY {order})", f"max({value}) OVER (ORDER BY {order})"])

    def whole(self):
        """A query that may be asked for its first rows, in an order that leaves no choice."""
        query, columns = self.query(2)
        if not self.one_in(4):
            return query
        ends = ["NULLS FIRST", "DESC NULLS LAST", "NULLS LAST"]
        keys = ", ".join(f"{at + 1} {self.chance.choice(ends)}" for at in range(len(columns)))
        return f"SELECT * FROM ({query}) AS rows_in_order ORDER BY {keys} LIMIT {self.chance.randint(1, 9)}"


def named(values):
    return ", ".join(f"{value} AS c{at}" for at, value in enumerate(values))


def in_duckdb(peer, queries):
    """The rows of each query; nothing of those that fail, take long or yield many."""
    for query in queries:
        timer = threading.Timer(SECONDS_MAX, peer.interrupt)
        timer.start()
        try:
            rows = peer.execute(query).fetchmany(ROWS_MAX + 1)
            yield rows if len(rows) <= ROWS_MAX else None
        except Exception:
            yield None
        timer.cancel()


def in_relatrix(relatrix, setup, queries, folder):
    """The rows of each query as texts, without those that are one NULL; nothing of those that fail. And the errors."""
    asked = "".join(f"SELECT '{MARK}{at}' AS mark;\n{query};\n" for at, query in enumerate(queries))
    with open(f"{folder}/queries.sql", "w") as file:
        file.write("".join(f"{statement};\n" for statement in setup) + asked)
    command = [relatrix, "--format", "csv", "--keep-going", "--threads", "2", f"{folder}/queries.sql"]
    done = subprocess.run(command, capture_output=True, text=True)
    answers, rows = [None] * len(queries), None
    for row in csv.reader(io.StringIO(done.stdout)):
        if len(row) == 1 and row[0].startswith(MARK):
            rows = []
            answers[int(row[0][len(MARK):])] = rows
        elif rows is not None and row != ["mark"]:
            rows.append(row)
    return [rows[1:] if rows else None for rows in answers], [line for line in done.stderr.splitlines() if "error: " in line]


def alike(rows):
    """Rows in an order of their own, numbers as they are written alike, without those that are one NULL."""
    def cell(value):
        try:
            return "" if value is None else f"{float(value):.6g}"
        except ValueError:
            return value
    return sorted(row for row in ([cell(value) for value in row] for row in rows) if row not in ([], [""]))


def run(relatrix, options):
    import duckdb
    seed, count = [*map(int, options), *[1, 500][len(options):]]
    queries = [Queries(f"{seed} {at}").whole() for at in range(count)]
    peer = duckdb.connect(config={"threads": 1})
    setup = list(tables())
    for statement in setup:
        peer.execute(statement)
    with tempfile.TemporaryDirectory() as folder:
        if seed % 2:
            for at in range(len(ROWS)):
                peer.execute(f"COPY t{at} TO '{folder}/t{at}.parquet' (ROW_GROUP_SIZE 2048)")
            setup = [f"CREATE VIEW t{at} AS SELECT * FROM '{folder}/t{at}.parquet'" for at in range(len(ROWS))]
        expected = list(in_duckdb(peer, queries))
        asked = [(query, rows) for query, rows in zip(queries, expected) if rows is not None]
        answers, errors = in_relatrix(relatrix, setup, [query for query, _ in asked], folder)
    differ = [(query, answer, rows) for (query, rows), answer in zip(asked, answers)
              if answer is not None and alike(answer) != alike(rows)]
    for query, answer, rows in differ:
        print(f"{query}\n  relatrix {len(answer)} rows {alike(answer)[:5]}\n  duckdb   {len(rows)} rows {alike(rows)[:5]}")
    print(*errors, sep="\n")
    print(f"seed {seed}: {len(asked)} queries, {len(differ)} differ, {len(errors)} errors; {count - len(asked)} left out")
    if differ:
        sys.exit(1)
