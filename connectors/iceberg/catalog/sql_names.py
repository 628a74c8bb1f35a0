"""Identifiers and literals in Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence


def quoted(name: str) -> str:
    """Return a quoted identifier."""
    return "`" + name.replace("`", "``") + "`"


def shown(name: str) -> str:
    """Return an identifier for messages, quoted if Spark SQL requires it."""
    return name if name.isidentifier() and name.isascii() else quoted(name)


def literal(value: str) -> str:
    """Return a string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def relation(catalog: str, table: str, branch: str | None = None) -> str:
    """Return the fully qualified name of a table or of one of its branches."""
    parts = [catalog, *table.split(".")]
    if branch is not None:
        parts.append(f"branch_{branch}")
    return ".".join(map(quoted, parts))


def same_key(keys: Sequence[str], left: str = "t", right: str = "s", prefix: str = "") -> str:
    """Return the condition that two rows have equal keys.

    Column names on the right side have the prefix `prefix`.
    """
    return " AND ".join(f"{left}.{quoted(key)} = {right}.{quoted(prefix + key)}" for key in keys)
