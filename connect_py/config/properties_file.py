"""Reading Java properties files."""

from __future__ import annotations

from pathlib import Path

import javaproperties


def read_properties(path: Path) -> dict[str, str]:
    """Return the keys and values of a file in Java's properties syntax; of duplicates the last one
    wins.

    Files are ISO 8859-1 with `\\uXXXX` escapes, as Java reads them.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds a malformed `\\u` escape.
    """
    with path.open("rb") as file:
        return dict(javaproperties.load(file))
