"""Relatrix as a process: the seconds that named texts take there, and what they answer."""

import json
import os
import subprocess
import tempfile
from collections import namedtuple

# Of a named text: the seconds of each run, the rows of the last, and what is wrong with it, or None.
Record = namedtuple("Record", "seconds rows error")


class Broken(Exception):
    """What a part needs is not there, or has ended before its time."""


class Relatrix:
    """The program under measurement, with settings that all of its runs have."""

    def __init__(self, program, libraries):
        self.program = program
        self.begin = f"SET result_cache = 'off'; SET gpu_libraries = '{libraries}';\n"
        # Of each process, what SHOW GPU says at its end.
        self.ends = []

    def answers(self, text):
        """The rows of each statement that has some."""
        done = self._run(["--format", "json", "-c", self.begin + text])
        if done.returncode:
            raise Broken(done.stderr.strip() or f"the process ended with {done.returncode}")
        found, at, decoder = [], 0, json.JSONDecoder()
        while at < len(done.stdout):
            rows, at = decoder.raw_decode(done.stdout, at)
            found.append(rows)
            while at < len(done.stdout) and done.stdout[at].isspace():
                at += 1
        return found

    def measured(self, setup, texts, runs):
        """Runs (name, text, once) in their order, in one process: records by name, and of one name all its seconds in one."""
        texts = [*texts, ("end", "SHOW GPU", True)]
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ["setup.sql", "queries.sql"]]
            pieces = [f"-- name: {name.replace(' ', '_')}{' once' if once else ''}\n{text};\n" for name, text, once in texts]
            for path, text in zip(paths, [self.begin + setup, "".join(pieces)]):
                with open(path, "w") as file:
                    file.write(text)
            done = self._run(["bench", "--setup", paths[0], "--queries", paths[1], "--runs", str(runs), "--out", folder])
            if done.returncode:
                raise Broken(done.stderr.strip() or f"the process ended with {done.returncode}")
            found = self._records(done.stdout, folder)
        self.ends.append({row["name"]: row["value"] for row in found["end"].rows})
        return found

    def _records(self, output, folder):
        """What the lines of a harness say, with the answers that lie beside."""
        found = {}
        for line in filter(lambda said: "query" in said, map(json.loads, output.splitlines())):
            name = line["query"].replace("_", " ")
            before = found.get(name, Record([], None, None))
            found[name] = Record(before.seconds + line["seconds"], None, before.error or line.get("error"))
        paths = {name: os.path.join(folder, name.replace(" ", "_") + ".arrow") for name in found}
        paths = {name: path for name, path in paths.items() if os.path.exists(path)}
        answers = self.answers("".join(f"SELECT * FROM '{path}';" for path in paths.values()))
        for name, rows in zip(paths, answers):
            found[name] = found[name]._replace(rows=rows)
        return found

    def _run(self, arguments):
        try:
            return subprocess.run([self.program, *arguments], capture_output=True, text=True)
        except OSError as error:
            raise Broken(f"{self.program}: {error.strerror}")
