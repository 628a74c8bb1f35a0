"""Reads Java properties files."""

from __future__ import annotations

from pathlib import Path

import javaproperties


def read_properties(path: Path) -> dict[str, str]:
    r"""Return the keys and values of a file in Java's properties syntax.

    If a key occurs several times, the last entry wins. As in Java, files are encoded in ISO 8859-1
    with `\uXXXX` escapes.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file contains a malformed `\u` escape.
    """
    with path.open("rb") as file:
        return dict(javaproperties.load(file))
