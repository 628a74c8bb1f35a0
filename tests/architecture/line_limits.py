"""How many lines the Iceberg sink may have, so that it grows only when somebody means it to. Run by `make lint`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Lower them when the code gets shorter. Higher than once by the pairs of changed keys (rules 29 to 32 of the protocol),
# and once by the history of tables.
LIMITS = {"connectors/iceberg/spark": 3_873, "connectors/iceberg": 20_756}
SUFFIXES = (".py", ".java")


def lines_of(folder: str) -> int:
    """Lines of all sources below a folder."""
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    return sum(path.read_text().count("\n") for path in files)


def main() -> int:
    """Print each count beside its limit; returns 1 if one is above."""
    counts = {folder: lines_of(folder) for folder in LIMITS}
    for folder, limit in LIMITS.items():
        verdict = "" if counts[folder] <= limit else ": too many, simplify before you raise the limit"
        print(f"{folder}: {counts[folder]:,} lines, at most {limit:,}{verdict}")
    return int(any(counts[folder] > limit for folder, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
