"""The scripts of sqllogictests/, with a GPU for whatever it can do, by their compiled runner."""

import os
import re
import subprocess
import time

from engine import Broken

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
# Of `plan` none is run by a GPU: what is planned may be another way there.
THEMES = ["sql", "matrix", "mixed", "spill", "error"]


def measured(runner, themes, libraries):
    """What the runner says of each theme."""
    print(f"\n{'suite':<10}{'passed':>8}{'failed':>8}{'launches':>10}{'buffers left':>14}{'seconds':>9}")
    rows = []
    for theme in themes or THEMES:
        row = ran(runner, theme, libraries)
        rows.append(row)
        print(f"{theme:<10}{row['passed']:>8}{row['failed']:>8}{row['launches']:>10}{row['left']:>14}{row['seconds']:>9.1f}")
        print("\n".join(row["wrong"][:3]), end="\n" if row["wrong"] else "")
    return rows


def ran(runner, theme, libraries):
    """One theme; a runner that says nothing of its records, or of a GPU, has failed."""
    # The runner has no setting for a folder of libraries: the loader is told.
    around = {"LD_LIBRARY_PATH": libraries} if libraries else {}
    begin = time.monotonic()
    try:
        # Its scripts name files from the root on.
        done = subprocess.run([os.path.abspath(runner), "--device", f"{theme}/"], cwd=ROOT, env={**os.environ, **around},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise Broken(f"{runner}: {error.strerror}")
    said = done.stdout
    records = re.search(r"(\d+) records passed, (\d+) failed", said)
    device = dict(re.findall(r"^device: (\w+) (.*)$", said, re.MULTILINE))
    passed, failed = map(int, records.groups()) if records else (0, 0)
    wrong = said.split("own files: ")[1:-1]
    if not failed and (done.returncode or not passed):
        failed, wrong = 1, [f"{said.strip()}\nthe runner ended with {done.returncode}"]
    left = int(device.get("buffers", 0)) - int(device.get("kept_buffers", 0))
    return dict(theme=theme, passed=passed, failed=failed, launches=device.get("launches", "–"), left=left,
                seconds=time.monotonic() - begin, wrong=wrong)
