"""Output of a benchmark: a table, a JSON line, and the speed of the machine at that time."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from connect_py.embedded.jar_lock import JarLock

DEFAULT_FILE = Path(__file__).parents[2] / "build" / "benchmarks.jsonl"
_LIBRARIES = ("confluent-kafka", "pyarrow", "msgspec", "pyiceberg", "pyspark")
_JARS = ("connect-runtime", "iceberg-kafka-connect", "iceberg-spark-runtime", "spark-sql-kafka")
_TEXT = json.dumps({f"field{i}": [i, str(i), None, i / 7] for i in range(12)})


def machine_microseconds() -> float:
    """CPU time of a fixed piece of pure Python work: figures of runs with different values are not
    comparable."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(1000):
            json.loads(_TEXT)
        best = min(best, time.process_time() - start)
    return best * 1000


def keep(file: Path, benchmark: str, measured: Mapping[str, object]) -> None:
    """Append one run as a JSON line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    line = {
        "benchmark": benchmark,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in _LIBRARIES},
        **measured,
    }
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def versions_line(locks: Sequence[str] = ("spark", "connect", "peers")) -> str:
    """Return the compared versions: Python's libraries, and the artifacts of the locks."""
    ours = [
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in _LIBRARIES),
    ]
    jars = {jar.artifact: jar.version for lock in locks for jar in JarLock.shipped(lock).jars}
    return ", ".join(
        ours
        + [
            f"{name} {found}"
            for name, found in jars.items()
            if name.startswith(_JARS) and "-events" not in name
        ]
    )


def medians(runs: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """The median of each number over runs of one kind."""
    names = [name for name, value in runs[0].items() if isinstance(value, int | float)]
    return {name: statistics.median(float(str(run[name])) for run in runs) for name in names}


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns; strings to the left, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in cells:
        print(
            "  ".join(
                c.ljust(w) if i < 2 else c.rjust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            )
        )
