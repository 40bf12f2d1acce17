"""Aggregations over a table in memory, joins of it, and sorts, by the host and by the GPU."""

import sides

# What so many askings do not bring to the GPU would save a twentieth of its way each time, or less.
ASKED = 20

# (name, query, bytes of a row of the columns that are read, as they lie on the GPU). As many rows as TPC-H's lineitem has at scale
# factor 10, with numbers of its kinds; amounts once more as doubles.
TABLES = [
    ("filtered sum", """SELECT sum(price * discount) AS s FROM lines WHERE day >= DATE '1994-01-01' AND day < DATE '1995-01-01'
        AND discount BETWEEN 0.05 AND 0.07 AND quantity < 24""", 9),
    ("summary", """SELECT flag, status, sum(quantity) AS a, sum(price) AS b, sum(price * (1 - discount)) AS c,
        sum(price * (1 - discount) * (1 + tax)) AS d, avg(quantity) AS e, avg(price) AS f, avg(discount) AS g, count(*) AS h
        FROM lines WHERE day <= DATE '1998-09-02' GROUP BY flag, status ORDER BY flag, status""", 12),
    ("sums of doubles", """SELECT flag, sum(amount) AS a, avg(amount) AS b FROM lines GROUP BY flag ORDER BY flag""", 9),
    ("by month", """SELECT date_trunc('month', day) AS m, sum(price) AS s, max(discount) AS d FROM lines GROUP BY m ORDER BY m""", 7),
    ("by day", "SELECT day, count(*) AS n FROM lines GROUP BY day ORDER BY day", 2),
    ("by part", """SELECT count(*) AS n, max(s) AS s FROM (SELECT part, sum(quantity) AS s FROM lines GROUP BY part) AS parts""", 6),
    ("doubles by part", "SELECT count(*) AS n, max(s) AS s FROM (SELECT part, sum(amount) AS s FROM lines GROUP BY part) AS parts", 12),
    ("by order", "SELECT count(*) AS n, max(s) AS s FROM (SELECT number, sum(price) AS s FROM lines GROUP BY number) AS orders", 8),
    ("in slots", """SELECT count(*) AS n, max(s) AS s FROM (SELECT number, part, sum(price) AS s FROM lines GROUP BY number, part) AS g""", 12),
]

# The same over joins by a key, whose sides are aggregated after the join alone; a look at a place of another table is 32 bytes.
JOINS = [
    ("join to parts", """SELECT kind, sum(price * (1 - discount)) AS s FROM lines JOIN parts ON lines.part = parts.part
        WHERE size < 25 GROUP BY kind ORDER BY kind""", 9 + 3 * 32),
    ("join to orders", """SELECT urgency, count(*) AS n, sum(price) AS s FROM lines JOIN orders ON lines.number = orders.number
        WHERE placed < DATE '1995-01-01' GROUP BY urgency ORDER BY urgency""", 8 + 3 * 32),
    ("by joined row", """SELECT count(*) AS n, max(s) AS s FROM (SELECT orders.number, placed, urgency, sum(price) AS s
        FROM lines JOIN orders ON lines.number = orders.number WHERE placed < DATE '1995-01-01' AND day > DATE '1995-03-15'
        GROUP BY orders.number, placed, urgency) AS g""", 10 + 2 * 32),
    ("by two numbers", """SELECT count(*) AS n, sum(cost * quantity) AS s FROM lines
        JOIN supplies ON lines.part = supplies.part AND lines.turn = supplies.turn""", 9 + 3 * 32),
]

# Sorts of the same rows: the first few, of all columns; and all of them.
SORTS = [
    ("ten best", "SELECT * FROM lines ORDER BY price DESC, number, turn LIMIT 10", 9),
    ("all in order", """SELECT sum(price) AS s FROM (SELECT price, row_number() OVER (ORDER BY amount, number, turn) AS place FROM lines) AS g
        WHERE place % 1000 = 0""", 13),
]

def table(rows):
    """That of TABLES; its rows in no order."""
    mixed = "(i * 2654435761 % 4294967296)"
    return f"""
        CREATE TABLE lines AS SELECT {mixed} % 200000 AS part, CAST({mixed} % 50 + 1 AS DECIMAL(15, 2)) AS quantity,
            CAST(({mixed} % 10400000 + 90000) / 100.0 AS DECIMAL(15, 2)) AS price,
            CAST(({mixed} >> 6) % 11 / 100.0 AS DECIMAL(15, 2)) AS discount, CAST(({mixed} >> 10) % 9 / 100.0 AS DECIMAL(15, 2)) AS tax,
            CASE ({mixed} >> 7) % 4 WHEN 0 THEN 'A' WHEN 1 THEN 'R' ELSE 'N' END AS flag,
            CASE ({mixed} >> 9) % 2 WHEN 0 THEN 'F' ELSE 'O' END AS status,
            DATE '1992-01-02' + CAST(({mixed} >> 4) % 2526 AS INT) AS day, CAST({mixed} AS DOUBLE) / 1048576 AS amount,
            i / 4 * 4 AS number, i % 4 AS turn
        FROM generate_series(1, {rows}) AS g(i);
    """


def joined(rows):
    """Those of JOINS: a table of parts, one of orders with four lines each, and one with four rows for each part."""
    return table(rows) + f"""
        CREATE TABLE parts AS SELECT i * 7919 % 200000 AS part, concat('kind', CAST(i % 25 AS VARCHAR)) AS kind, i * 31 % 50 AS size
        FROM generate_series(1, 200000) AS g(i);
        CREATE TABLE orders AS SELECT i * 4 AS number, DATE '1992-01-02' + CAST(i * 7919 % 2400 AS INT) AS placed,
            concat(CAST(i % 5 AS VARCHAR), '-URGENCY') AS urgency
        FROM generate_series(0, {rows // 4}) AS g(i);
        CREATE TABLE supplies AS SELECT i % 200000 AS part, i / 200000 AS turn, CAST(i * 17 % 1000 / 100.0 AS DECIMAL(9, 2)) AS cost
        FROM generate_series(0, 799999) AS g(i);
        SET eager_groups = 'off'; SET contractions = 'off';
    """


def measured(engine, rows_of_table, runs, facts):
    """Each query on all sides, and what the GPU takes alone for columns that are there."""
    cases = TABLES + SORTS + JOINS
    queries = [(name, text) for name, text, _ in cases]
    rows, records = sides.measured(engine, joined(rows_of_table), queries, runs, ASKED, sides.explained(queries))
    print(f"\n{'query':<20}{'answers':>8}{sides.HEADS}{'overlap':>9}{'GPU alone ms':>14}{'GB/s':>8}{'of copies':>11}")
    for row, (_, _, bytes_each) in zip(rows, cases):
        sides.explain(row, records)
        row["rate"] = rows_of_table * bytes_each / row["alone"] if row["alone"] else 0.0
        row["share"] = row["rate"] / float(facts["bandwidth"])
        alone = f"{1e3 * row['alone']:>14.3f}{row['rate'] / 1e9:>8.0f}{100 * row['share']:>10.0f}%"
        print(f"{row['name']:<20}{sides.answers(row):>8}{sides.figures(row)}{sides.percent(row['overlap']):>9}{alone}")
    return rows
