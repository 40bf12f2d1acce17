"""Expressions by chance, from lists of forms: what stands in braces is another expression, a value or a sub-query.

What the engines mean differently has no form: division of whole numbers and decimals, comparisons of texts with numbers,
casts that round halves, zeros with a sign, NaN, and errors that depend on which rows are looked at.
"""
import re

FORMS = {
    "number": [
        "({number} + {number})", "({number} - {number})", "({number} * {few})", "-{number}", "abs({number})", "({number} % 3)",
        "coalesce({number}, {few})", "coalesce({number}, {number})", "nullif({number}, {few})", "greatest({number}, {number})",
        "CASE WHEN {truth} THEN {number} ELSE {few} END", "CASE {number} WHEN {few} THEN {number} WHEN 1 THEN {few} END",
        "CASE WHEN {truth} THEN NULL ELSE {number} END", "length({text})", "strpos({text}, 'b')", "CAST({truth} AS BIGINT)",
        "extract(day FROM {date})", "extract(month FROM {date})", "extract(dow FROM {date})", "extract(hour FROM {moment})",
        "({date} - {date})", "CAST(floor({double}) AS BIGINT)", "[{number}, {few}, {number}][2]", "{few}", "{total}",
    ],
    "text": [
        "upper({text})", "lower({text})", "coalesce({text}, {word})", "substr({text}, 1, 1)", "({text} || {text})", "left({text}, 2)",
        "concat({text}, '-', {number})", "replace({text}, 'a', 'bb')", "CASE WHEN {truth} THEN {text} ELSE {word} END", "reverse({text})",
        "CAST({number} AS VARCHAR)", "CAST({decimal} AS VARCHAR)", "CAST({date} AS VARCHAR)", "nullif({text}, {word})", "trim({text})",
        "greatest({text}, {word})", "repeat({text}, 2)", "{word}",
    ],
    "decimal": [
        "({decimal} + {decimal})", "({decimal} - {number})", "({decimal} * {few})", "-{decimal}", "abs({decimal})",
        "coalesce({decimal}, {few}.50)", "CASE WHEN {truth} THEN {decimal} ELSE 0 END", "least({decimal}, {decimal})", "nullif({decimal}, 1.00)",
        "CAST({number} AS DECIMAL(9, 2))", "{few}.25",
    ],
    "double": [
        "({double} + {number})", "({double} * {few})", "({double} / 4)", "(0 - {double})", "abs({double})", "floor({double})",
        "coalesce({double}, {number})", "CASE WHEN {truth} THEN {double} END", "CAST({number} AS DOUBLE)", "CAST({decimal} AS DOUBLE)",
    ],
    "date": [
        "({date} + {few})", "({date} - {few})", "CAST({date} + INTERVAL '1 month' AS DATE)", "CAST({date} - INTERVAL '{few} days' AS DATE)",
        "coalesce({date}, {one_day})", "CASE WHEN {truth} THEN {date} END", "CAST(date_trunc('month', {date}) AS DATE)", "CAST({moment} AS DATE)",
        "greatest({date}, {date})", "{one_day}",
    ],
    "moment": [
        "({moment} + INTERVAL '{few} hours')", "({moment} - INTERVAL '1 month')", "date_trunc('day', {moment})", "date_trunc('hour', {moment})",
        "CAST({date} AS TIMESTAMP)", "coalesce({moment}, {moment})",
    ],
    "truth": [
        "{number} {compared} {given}", "{number} {compared} {given}", "{number} {compared} {number}", "{text} {compared} {given_word}",
        "{decimal} {compared} {given}", "{decimal} {compared} {decimal}", "{double} {compared} {given}", "{double} {compared} {decimal}",
        "{date} {compared} {given_day}", "{date} {compared} {date}", "{moment} {compared} {date}", "{truth}", "NOT {truth}",
        "{any} IS {no}NULL", "{number} IS {no}DISTINCT FROM {number}", "{text} IS {no}DISTINCT FROM {text}", "{number} {no}IN ({given}, {few})",
        "{number} IN ({few}, NULL)", "{text} {no}IN ({word}, {word})", "{number} {no}BETWEEN {few} AND {given}", "{date} BETWEEN {one_day} AND {date}",
        "{text} {no}LIKE {pattern}", "{truth} IS {no}TRUE", "{truth} IS {no}FALSE", "coalesce({truth}, {number} = {few})",
    ],
    "nested": [
        "({truth} OR {truth})", "({truth} AND {truth})", "NOT ({truth})", "({truth} OR {truth} OR {truth})", "{exists}", "{exists}",
        "{number} {no}IN ({members})", "({number}, {number}) {no}IN ({pairs})", "{number} {compared} {total}", "{number} {some} ({members})",
        "(({truth} AND {truth}) OR ({truth} AND {truth}))",
    ],
}
AGGREGATES = {
    "number": [
        "count(*)", "count({any})", "count(DISTINCT {any})", "sum({number})", "sum(DISTINCT {number})", "min({number})", "max({number})",
        "sum(CASE WHEN {truth} THEN 1 ELSE 0 END)", "count({number}) - count(DISTINCT {number})", "max({number}) - min({number})",
    ],
    "text": ["min({text})", "max({text})", "string_agg({text}, ',' ORDER BY {text})", "string_agg(DISTINCT {text}, ',' ORDER BY {text})"],
    "decimal": ["sum({decimal})", "min({decimal})", "max({decimal})", "sum(DISTINCT {decimal})"],
    "double": ["avg({number})", "avg({double})", "sum({double})", "min({double})", "max({double})", "avg(CAST({decimal} AS DOUBLE))", "median({double})"],
    "date": ["min({date})", "max({date})"],
    "moment": ["min({moment})", "max({moment})"],
    "truth": ["bool_and({truth})", "bool_or({truth})", "count(*) > {few}", "min({number}) {compared} max({number})"],
}
FRAMES = [
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "ROWS 2 PRECEDING",
    "ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING", "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
]
RANGES = [
    "", "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING", "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", "GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
]
OVER_ROWS = [
    "row_number()", "lag({number})", "lead({number}, 2)", "lag({number}, 1, 0)", "first_value({number})", "last_value({number})", "nth_value({number}, 2)",
    "sum({number})", "count({any})", "min({number})", "max({number})", "ntile(3)",
]
OVER_RANGES = ["rank()", "dense_rank()", "sum({number})", "count(*)", "count({any})", "min({number})", "max({number})"]
ORDERS = ["", "", " NULLS FIRST", " DESC NULLS LAST", " DESC NULLS FIRST"]
WORDS = ["a", "b", "ab", "", "z"]
PATTERNS = ["a%", "%b", "%a%", "_b", "a_", "b", "%", ""]
DEPTH = 2


class Expressions:
    """Expressions over columns; a column is the name of its relation, its own and its kind."""

    def __init__(self, chance):
        self.chance = chance
        self.parameters = None  # Of parameters, where there are any.

    def one_in(self, count):
        return self.chance.randrange(count) == 0

    def of_kind(self, columns, kind):
        return [f"{relation}.{name}" for relation, name, of in columns if of == kind]

    def expression(self, columns, kind, depth=DEPTH):
        """Most often a column; where there is none, or by chance, something that is made of others."""
        names = self.of_kind(columns, kind)
        if names and (depth == 0 or not self.one_in(3)):
            return self.chance.choice(names)
        if depth == 0:
            return self.constant(kind)
        return self.filled(self.chance.choice(FORMS[kind]), columns, depth - 1)

    def condition(self, columns, is_plain=False, depth=DEPTH):
        forms = FORMS["truth"] if is_plain or depth == 0 else FORMS["truth"] * 2 + FORMS["nested"] * 2
        return self.filled(self.chance.choice(forms), columns, depth - 1, is_plain)

    def filled(self, form, columns, depth, is_plain=False):
        """The form with its braces filled; plain, without sub-queries and conditions in conditions."""
        def part(found):
            name = found[1]
            match name:
                case "few": return str(self.chance.randint(0, 5))
                case "word": return f"'{self.chance.choice(WORDS)}'"
                case "one_day": return self.day()
                case "pattern": return f"'{self.chance.choice(PATTERNS)}'"
                case "compared": return self.chance.choice(["<", ">", "<=", ">=", "=", "=", "<>"])
                case "some": return self.chance.choice(["= ANY", "> ALL", "<> ALL", "< ANY"])
                case "no": return self.chance.choice(["", "NOT "])
                case "given": return self.given(str(self.chance.randint(0, 6)))
                case "given_word": return self.given(f"'{self.chance.choice(WORDS)}'")
                case "given_day": return self.given(self.day())
                case "any": return self.chance.choice([f"{relation}.{name}" for relation, name, _ in columns])
                case "exists" | "members" | "pairs" | "total":
                    return getattr(self, name)(columns) if not is_plain and depth >= 0 else self.constant(name)
                case "truth":
                    nested = not is_plain and depth > 0 and self.one_in(2)
                    return f"({self.condition(columns, depth=depth)})" if nested else self.expression(columns, "truth", 0)
            return self.expression(columns, name, 0 if is_plain else max(depth, 0))
        return re.sub(r"\{(\w+)\}", part, form)

    def constant(self, kind):
        few = self.chance.randint(0, 5)
        return {
            "number": str(few), "text": "'a'", "decimal": f"{few}.75", "double": f"CAST({few} AS DOUBLE)", "date": self.day(),
            "moment": f"TIMESTAMP '{self.day()[6:-1]} 06:30:00'", "truth": self.chance.choice(["true", "false"]),
            "exists": "true", "members": str(few), "pairs": f"({few}, 1)", "total": str(few),
        }[kind]

    def day(self):
        return f"DATE '2020-0{self.chance.choice(['2-27', '2-29', '3-01', '3-02'])}'"

    def given(self, value):
        """The value; or a parameter that has it."""
        if self.parameters is None or len(self.parameters) == 4:
            return value
        self.parameters.append(value)
        return f"${len(self.parameters)}"

    def aggregate(self, columns, kind):
        some = f" FILTER (WHERE {self.condition(columns, True)})" if self.one_in(6) else ""
        form = self.chance.choice(AGGREGATES[kind])
        texts = self.of_kind(columns, "text")
        if form.startswith("string_agg"):  # Its order is that of its values, and those are no constants.
            form = form.replace("{text}", self.chance.choice(texts)) if texts else "min({text})"
        filled = self.filled(form, columns, 1)
        return filled + (some if re.fullmatch(r"\w+\(.*\)", form) else "")

    def window(self, columns):
        """A function over rows in an order that leaves no choice, or over ranges of values."""
        part = f"PARTITION BY {self.expression(columns, self.chance.choice(['number', 'text']), 1)} " if self.one_in(2) else ""
        if self.one_in(2):
            keys = [f"{relation}.{name}{self.chance.choice(ORDERS[1:])}" for relation, name, _ in columns]
            self.chance.shuffle(keys)
            function = self.chance.choice(OVER_ROWS)
            frame = "" if function.startswith(("row", "lag", "lead", "ntile")) else " " + self.chance.choice(FRAMES)
            return f"{self.filled(function, columns, 1)} OVER ({part}ORDER BY {', '.join(keys)}{frame})"
        if part and self.one_in(4):
            return f"sum({self.expression(columns, 'number')}) OVER ({part.strip()})"
        function = self.chance.choice(OVER_RANGES)
        frame = "" if "rank" in function else " " + self.chance.choice(RANGES)
        key = self.expression(columns, "number", 1) + self.chance.choice(ORDERS)
        return f"{self.filled(function, columns, 1)} OVER ({part}ORDER BY {key}{frame.rstrip()})"
