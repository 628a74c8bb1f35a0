"""What the worker's log says of Spark: its session, and what each commit did."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

STARTING: Final = re.compile(r"service spark-driver \(instance \d+\) is started")
# without its place in the code
SESSION: Final = re.compile(r"Spark session: (.*?)(?: \([\w.]+:\d+\))?$")
COMMIT: Final = re.compile(
    r"commit \S+ to \S+?(\w+): committed by engine ([\w ]+), (\d+) rows in \d+ files, (\d+) "
    r"replaced"
)


class SparkLines:
    """Follows the log of a worker that runs."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0

    def new(self) -> Iterator[str]:
        """Return the events logged since the last call: the driver's start, its session, and a line
        for all commits."""
        lines = self._new_lines()
        for line in lines:
            if STARTING.search(line) is not None:
                yield "Spark is starting"
            if (session := SESSION.search(line)) is not None:
                yield f"Spark session: {session[1]}"
        commits = [found.groups() for line in lines if (found := COMMIT.search(line)) is not None]
        merged = [
            f"{replaced} rows of {table}"
            for table, engine, _, replaced in commits
            if engine != "append"
        ]
        if merged:
            yield f"MERGE INTO matched {', '.join(merged)}"
        added = [f"{rows} to {table}" for table, engine, rows, _ in commits if engine == "append"]
        if added:
            yield f"appended, nothing to replace: {', '.join(added)}"

    def _new_lines(self) -> list[str]:
        try:
            with self._log.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]  # the rest is being written
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()
