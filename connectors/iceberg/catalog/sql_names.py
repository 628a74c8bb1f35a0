"""Names and texts in Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def shown(name: str) -> str:
    """A name for people to copy, quoted where Spark's SQL asks for it."""
    return name if name.isidentifier() and name.isascii() else quoted(name)


def literal(text: str) -> str:
    """A text as Spark's SQL takes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def relation(catalog: str, table: str, branch: str | None = None) -> str:
    """A table, or one of its branches, by its full name."""
    parts = [catalog, *table.split(".")]
    if branch is not None:
        parts.append(f"branch_{branch}")
    return ".".join(map(quoted, parts))


def same_key(keys: Sequence[str], left: str = "t", right: str = "s", prefix: str = "") -> str:
    """The condition that two rows have equal keys; `prefix` begins the names on the right."""
    return " AND ".join(f"{left}.{quoted(key)} = {right}.{quoted(prefix + key)}" for key in keys)
