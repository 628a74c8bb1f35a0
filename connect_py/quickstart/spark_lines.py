"""`SparkLines`: extracts Spark session and commit events from the worker's log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from connect_py.plurals import pluralize

STARTING: Final = re.compile(r"service spark-driver \(instance \d+\): started process")
# excludes the source location, which follows in parentheses
SESSION: Final = re.compile(r"Spark session: (.*?)(?: \([\w.]+:\d+\))?$")
COMMIT: Final = re.compile(
    r"commit \S+ to \S+?(\w+): committed by engine ([\w ]+), (\d+) rows? in \d+ files?, "
    r"(\d+) replaced"
)


class SparkLines:
    """Follows the log of a running worker and summarizes its Spark events."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0

    def new(self) -> Iterator[str]:
        """Yield a summary of the driver starts, sessions, and commits since the last call."""
        lines = self._new_lines()
        for line in lines:
            if STARTING.search(line) is not None:
                yield "Spark is starting"
            if (session := SESSION.search(line)) is not None:
                yield f"Spark session: {session[1]}"
        commits = [match.groups() for line in lines if (match := COMMIT.search(line)) is not None]
        merged = [
            f"{pluralize(int(replaced), 'row')} in {table}"
            for table, engine, _, replaced in commits
            if engine != "append"
        ]
        if merged:
            yield f"MERGE INTO matched {', '.join(merged)}"
        added = [
            f"{pluralize(int(rows), 'row')} to {table}"
            for table, engine, rows, _ in commits
            if engine == "append"
        ]
        if added:
            yield f"appended (no rows to replace): {', '.join(added)}"

    def _new_lines(self) -> list[str]:
        try:
            with self._log.open("rb") as file:
                file.seek(self._read)
                content = file.read()
        except FileNotFoundError:
            return []
        complete = content[: content.rfind(b"\n") + 1]  # the last line may be incomplete
        self._read += len(complete)
        return complete.decode(errors="replace").splitlines()
