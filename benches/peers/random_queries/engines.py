"""The two engines that are asked."""
import json
import re
import subprocess
import threading

import duckdb

SECONDS_MAX = 2  # A query that takes DuckDB longer, or yields more rows, is left out.
ROWS_MAX = 40_000
MARK = "which question"


class Asked:
    """A question as a text, whether its rows have an order, and DuckDB's rows."""

    def __init__(self, text, is_in_order, rows):
        self.text, self.is_in_order, self.rows = text, is_in_order, rows


class DuckDB:
    """DuckDB with the tables that it was given; a new one after an error that leaves it useless."""

    def __init__(self):
        self.statements, self.peer = [], duckdb.connect(config={"threads": 1})

    def run(self, statement):
        self.statements.append(statement)
        self.peer.execute(statement)

    def answers(self, query):
        """What is asked, and its rows, for each of a query's values; nothing if it fails, takes long or yields many."""
        timer = threading.Timer(SECONDS_MAX, self.peer.interrupt)
        timer.start()
        try:
            answers = []
            for values in query.values or [[]]:
                text = f"EXECUTE p({', '.join(values)})" if values else query.text
                if values and not answers:
                    self.peer.execute(f"PREPARE p AS {query.text}")
                answers.append((text, self.peer.execute(text).fetchmany(ROWS_MAX + 1)))
            return answers if all(len(rows) <= ROWS_MAX for _, rows in answers) else []
        except duckdb.InterruptException:
            return []
        except (duckdb.InternalException, duckdb.FatalException):
            statements = self.statements
            self.__init__()
            for statement in statements:
                self.run(statement)
            return []
        except duckdb.Error as error:
            print(f"{query.text}\n  duckdb: {error}")
            return []
        finally:
            timer.cancel()


class Script:
    """Statements for Relatrix, and what the questions among them should answer."""

    def __init__(self):
        self.lines, self.asked = [], []

    def run(self, statements):
        self.lines.extend(f"{statement};\n" for statement in statements)

    def ask(self, query, answers, times):
        """Asks a query as often as it is told to, with all its values."""
        if query.values:
            self.run([f"PREPARE p AS {query.text}"])
        for text, rows in answers * times:
            self.run([f"SELECT {len(self.asked)} AS \"{MARK}\"", text])
            shown = f"{text} OF {query.text}" if query.values else text
            self.asked.append(Asked(shown, query.is_in_order, rows))
        if query.values:
            self.run(["DEALLOCATE p"])

    def answers(self, relatrix, folder):
        """The rows of each question, nothing where it failed; and the errors."""
        with open(f"{folder}/queries.sql", "w") as file:
            file.writelines(self.lines)
        command = [relatrix, "--format", "json", "--keep-going", "--threads", "2", f"{folder}/queries.sql"]
        done = subprocess.run(command, capture_output=True, text=True)
        found = [None] * len(self.asked)
        parts = re.split(rf'^\[\{{"{MARK}":(\d+)\}}\]$', done.stdout, flags=re.M)
        for at, text in zip(parts[1::2], parts[2::2]):
            try:
                found[int(at)] = [list(row.values()) for row in json.loads(text)]
            except ValueError:
                pass
        return found, [line for line in done.stderr.splitlines() if "error: " in line]
