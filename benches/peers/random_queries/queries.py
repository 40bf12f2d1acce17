"""Queries by chance: what they read, join, group and put together."""
import random
import re

from .expressions import ORDERS, Expressions
from .tables import COLUMNS, LIKELY, ROWS

KINDS = ["number"] * 6 + ["text"] * 3 + ["decimal", "double", "date", "moment", "truth"]


class Query:
    """A text, whether its rows have an order, and the values of its parameters, as often as it is to be asked."""

    def __init__(self, text, is_in_order, values):
        self.text, self.is_in_order, self.values = text, is_in_order, values


class Queries(Expressions):
    """Queries of one seed."""

    def __init__(self, seed, has_parameters=False):
        super().__init__(random.Random(seed))
        self.aliases = 0
        self.named = []  # The names of WITH, and their columns.
        self.parameters = [] if has_parameters else None

    def alias(self):
        self.aliases += 1
        return f"r{self.aliases}"

    def table(self):
        return f"t{self.chance.choice([*range(len(ROWS)), *LIKELY])}"

    def whole(self):
        """A query that may be asked for its first rows, in an order that leaves no choice."""
        names = [self.with_name() for _ in range(self.chance.choice([0, 0, 0, 1, 1, 2]))]
        query, columns = self.query(self.chance.choice([1, 1, 2]))
        is_in_order = self.one_in(3)
        if is_in_order:
            query = self.first_rows(query, columns)
        if names:
            query = f"WITH {'RECURSIVE ' if any('UNION' in name for name in names) else ''}{', '.join(names)} {query}"
        used = list(dict.fromkeys(re.findall(r"\$\d", query)))
        query = re.sub(r"\$\d", lambda found: f"${used.index(found[0]) + 1}", query)
        values = [self.parameters[int(name[1:]) - 1] for name in used]
        return Query(query, is_in_order, values and [values, self.others(values), values])

    def others(self, values):
        """Values of the same kinds."""
        return [str(int(value) + 1) if value.isdigit() else self.day() if value.startswith("DATE") else "'ab'" for value in values]

    def first_rows(self, query, columns):
        keys = [f"{at + 1}{self.chance.choice(ORDERS[2:])}" for at in range(len(columns))]
        self.chance.shuffle(keys)
        limit = self.chance.choice(["", f" LIMIT {self.chance.randint(0, 9)}", f" LIMIT {self.chance.randint(1, 5)} OFFSET {self.chance.randint(1, 7)}"])
        return f"SELECT * FROM ({query}) AS {self.alias()} ORDER BY {', '.join(keys)}{limit}"

    def with_name(self):
        """A name for a query, which may be read more than once, or for one that reads itself."""
        name = f"w{self.aliases}"
        if self.one_in(4):
            table, other, union = self.table(), self.table(), self.chance.choice(["UNION", "UNION ALL"])
            step = self.chance.choice([
                f"SELECT n + 1, v FROM {name} WHERE n < {self.chance.randint(1, 6)}",
                f"SELECT {name}.n + 1, {other}.y FROM {name} JOIN {other} ON {other}.id = {name}.v WHERE {name}.n < 3"])
            self.alias()
            columns = [("n", "number"), ("v", "number")]
            text = f"{name}(n, v) AS (SELECT CAST(1 AS BIGINT), CAST(x AS BIGINT) FROM {table} WHERE id < 6 {union} {step})"
        else:
            query, columns = self.query(1)
            text = f"{name} AS ({query})"
        self.named.append((name, columns))
        return text

    def exists(self, columns):
        alias = self.alias()
        own = of_table(alias)
        further = f" AND {self.condition(columns + own, not self.one_in(5))}" if self.one_in(2) else ""
        kind = self.chance.choice(["number", "number", "text", "date"])
        tie = f"{self.chance.choice(self.of_kind(own, kind))} = {self.expression(columns, kind, 1)}"
        return f"{self.chance.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {self.table()} AS {alias} WHERE {tie}{further})"

    def members(self, columns, count=1):
        alias = self.alias()
        tie = f" AND {alias}.y = {self.expression(columns, 'number', 0)}" if count == 1 and self.one_in(4) else ""
        names = ", ".join(f"{alias}.{self.chance.choice(['id', 'x', 'y'])}" for _ in range(count))
        return f"SELECT {names} FROM {self.table()} AS {alias} WHERE {alias}.id {self.chance.choice('<>')} {self.chance.randint(0, 9)}{tie}"

    def pairs(self, columns):
        return self.members(columns, 2)

    def total(self, columns):
        """A sub-query of one value."""
        alias = self.alias()
        own = of_table(alias)
        tie = self.chance.choice(["", f" WHERE {alias}.x = {self.expression(columns, 'number', 1)}",
                                  f" WHERE {alias}.id < {self.expression(columns, 'number', 0)}"])
        return f"(SELECT {self.aggregate(own, 'number')} FROM {self.table()} AS {alias}{tie})"

    def relation(self, depth):
        alias = self.alias()
        if self.named and self.one_in(3):
            name, columns = self.chance.choice(self.named)
            return f"{name} AS {alias}", [(alias, *column) for column in columns]
        if self.one_in(25):
            rows = [f"({self.constant('number')}, {self.chance.choice(['NULL', self.constant('text'), repr('ab')])})" for _ in range(3)]
            return f"(VALUES {', '.join(rows)}) AS {alias}(x, s)", [(alias, "x", "number"), (alias, "s", "text")]
        if depth == 0 or not self.one_in(3):
            return f"{self.table()} AS {alias}", of_table(alias)
        query, columns = self.query(depth - 1)
        if self.one_in(5):
            query = self.first_rows(query, columns)
        return f"({query}) AS {alias}", [(alias, *column) for column in columns]

    def relations(self, depth):
        joined, columns = self.relation(depth)
        for _ in range(self.chance.choice([0, 0, 1, 1, 1, 2, 2, 3])):
            if self.one_in(12):
                other, own = self.lateral(columns)
                joined = f"{joined} {self.chance.choice(['', 'LEFT '])}JOIN LATERAL {other} ON true"
            else:
                other, own = self.relation(depth)
                joined = f"{joined} {self.join(columns, other, own)}"
            columns = columns + own
        return joined, columns

    def join(self, columns, other, own):
        kind = self.chance.choice(["", "", "LEFT ", "LEFT ", "RIGHT ", "FULL "])
        of = self.chance.choice(["number"] * 4 + ["text", "date", "decimal"])
        if self.one_in(20) or not self.of_kind(columns, of) or not self.of_kind(own, of):
            return f"CROSS JOIN {other}"
        compared = "IS NOT DISTINCT FROM" if self.one_in(12) else "<" if kind == "" and self.one_in(8) else "="
        on = f"{self.expression(columns, of, self.chance.choice([0, 0, 1]))} {compared} {self.chance.choice(self.of_kind(own, of))}"
        if kind != "FULL " and self.one_in(3):
            on += f" AND {self.condition(columns + own, not self.one_in(4))}"
        return f"{kind}JOIN {other} ON {on}"

    def lateral(self, columns):
        """A sub-query in FROM that reads what stands before it."""
        alias, inner = self.alias(), self.alias()
        own = of_table(inner)
        source = f"{self.table()} AS {inner} WHERE {inner}.{self.chance.choice(['id', 'x', 'y'])} = {self.expression(columns, 'number', 0)}"
        if self.one_in(2):
            return f"(SELECT {self.aggregate(own, 'number')} AS n FROM {source}) AS {alias}", [(alias, "n", "number")]
        return f"(SELECT {inner}.y AS n, {inner}.s AS s FROM {source} AND {self.condition(own, True)}) AS {alias}", [
            (alias, "n", "number"), (alias, "s", "text")]

    def query(self, depth, kinds=None):
        """A query, and the names and kinds of its columns."""
        if depth and kinds is None and self.one_in(9):
            return self.united(depth)
        joined, columns = self.relations(depth)
        conditions = [self.condition(columns) for _ in range(self.chance.choice([0, 0, 1, 1, 2]))]
        source = f"{joined} WHERE {' AND '.join(conditions)}" if conditions else joined
        kinds = kinds or [self.chance.choice(KINDS) for _ in range(self.chance.randint(1, 4))]
        named = [(f"c{at}", kind) for at, kind in enumerate(kinds)]
        if self.one_in(3):
            return self.grouped(source, columns, kinds), named
        values = [self.window(columns) if kind == "number" and self.one_in(6) else self.expression(columns, kind) for kind in kinds]
        if self.one_in(25):
            return f"SELECT {items(values)} FROM {source} QUALIFY {self.window(columns)} <= {self.chance.randint(1, 4)}", named
        return f"SELECT {'DISTINCT ' if self.one_in(7) else ''}{items(values)} FROM {source}", named

    def united(self, depth):
        kinds = [self.chance.choice(KINDS) for _ in range(self.chance.randint(1, 3))]
        query, columns = self.query(depth - 1, kinds)
        for _ in range(self.chance.choice([1, 1, 2])):
            way = self.chance.choice(["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
            query = f"({query}) {way} ({self.query(depth - 1, kinds)[0]})"
        return query, columns

    def grouped(self, source, columns, kinds):
        """Groups by some of the columns; by several sets of them, perhaps."""
        keys = {at: self.expression(columns, kind, 1) for at, kind in enumerate(kinds) if self.one_in(2)}
        keys = {at: key for at, key in keys.items() if any(f"{relation}." in key for relation, *_ in columns)}
        values = [keys.get(at) or self.aggregate(columns, kind) for at, kind in enumerate(kinds)]
        names = list(dict.fromkeys(keys.values()))
        all_names = ", ".join(names)
        groups = f" GROUP BY {all_names}" if names else ""
        if len(names) > 1 and self.one_in(4):
            ways = ["GROUPING SETS ((%s), (%s), ())" % (all_names, names[0]), f"ROLLUP ({all_names})", f"CUBE ({all_names})"]
            groups = f" GROUP BY {self.chance.choice(ways)}"
        having = f" HAVING {self.aggregate(columns, 'truth')}" if self.one_in(4) else ""
        if not keys and not having and kinds[0] == "number" and self.one_in(2):
            values[0] = "count(*)"
        if kinds[-1] == "number" and len(kinds) - 1 not in keys and self.one_in(6):
            values[-1] = self.chance.choice(["sum(count(*)) OVER ()", "rank() OVER (ORDER BY count(*))"])
        return f"SELECT {items(values)} FROM {source}{groups}{having}"


def of_table(alias):
    """The columns of a table by another name."""
    return [(alias, name, kind) for name, (kind, _) in COLUMNS.items()]


def items(values):
    return ", ".join(f"{value} AS c{at}" for at, value in enumerate(values))
