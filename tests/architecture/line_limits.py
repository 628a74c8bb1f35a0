"""How many lines the product may have, so that it grows only on purpose. Run by `make lint`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("connect_py", "connectors", "transforms", "rest", "native")
SPARK = ("connectors/iceberg/spark",)
# Lower them when the code gets shorter. Both were raised by what looks after a table (its history, refs, files and
# their places, what its rows are expected to be, and a step of the user's own), the second by `connect-py try`, by
# `connect-py pipeline`, by `connect-py load`, by connectors that stop by themselves, by commands for workers, and by
# what alerts ask for.
LIMITS = {SPARK: 5_640, PRODUCT: 92_440}
SUFFIXES = (".py", ".java", ".rs")


def lines_of(folders: tuple[str, ...]) -> int:
    """Lines of all sources below the folders, without what was built there."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    return sum(path.read_text().count("\n") for path in files if "target" not in path.parts)


def main() -> int:
    """Print each count beside its limit; returns 1 if one is above."""
    counts = {folders: lines_of(folders) for folders in LIMITS}
    for folders, limit in LIMITS.items():
        verdict = "" if counts[folders] <= limit else ": too many, simplify before you raise the limit"
        print(f"{', '.join(folders)}: {counts[folders]:,} lines, at most {limit:,}{verdict}")
    return int(any(counts[folders] > limit for folders, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
