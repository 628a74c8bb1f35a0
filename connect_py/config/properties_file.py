"""Reads Java properties files."""

from __future__ import annotations

from pathlib import Path

import javaproperties


def read_properties(path: Path) -> dict[str, str]:
    r"""Return the keys and values of a file in Java's properties syntax.

    The last of several entries with the same key wins. Files are ISO 8859-1 with `\uXXXX` escapes,
    as Java reads them.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file contains a malformed `\u` escape.
    """
    with path.open("rb") as file:
        return dict(javaproperties.load(file))
