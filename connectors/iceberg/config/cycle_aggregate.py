"""`iceberg.ext.cycle-aggregate.<table>`: a second table that is kept in step with a table of the
connector.

Beside the query stand `.keys`, the columns that name a row; `.add`, the columns whose values are
added to those of the table; and `.from`, the table whose commits it follows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.cycle_step import STAGED, parse_query
from connectors.iceberg.config.keys import AGGREGATE_PREFIX
from connectors.iceberg.config.partition_by import list_items

VIEWS: Final = (STAGED, "removed", "before", "after", "current")
_KEYS, _ADD, _FROM = _SETTINGS = ".keys", ".add", ".from"
# Spark's own SQL has the word elsewhere, too: `CURRENT ROW`. After FROM, relations with their
# aliases may come first.
_READS_CURRENT: Final = re.compile(
    r"(?i)\b(?:from|join|table)\s+(?:[\w.`]+(?:\s+(?:as\s+)?\w+)?\s*,\s*)*`?current\b(?!\s*[.(])"
)
# and comments
_LITERALS: Final = re.compile(r"""(?s)'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/""")
_READS_ROWS: Final = re.compile(rf"(?i)\b({'|'.join(VIEWS[:-1])})\b")


@dataclass(frozen=True, slots=True)
class CycleAggregate:
    """One such table."""

    table: str
    sql: str  # a query over `VIEWS`
    keys: tuple[str, ...]
    add: tuple[str, ...]  # columns of numbers; others are replaced
    source: str  # the table whose commits it follows

    @property
    def key(self) -> str:
        """The setting, for messages."""
        return AGGREGATE_PREFIX + self.table

    @property
    def reads_current(self) -> bool:
        """Whether the query reads the rows that the table has."""
        return _READS_CURRENT.search(_LITERALS.sub(" ", self.sql)) is not None

    @property
    def digest(self) -> str:
        """Tells this query from others."""
        return hashlib.sha256(
            repr((self.sql, self.keys, self.add, self.source)).encode()
        ).hexdigest()[:16]


def parse_aggregates(
    settings: Mapping[str, str], tables: Sequence[str] | None
) -> tuple[CycleAggregate, ...]:
    """Parse the connector's settings.

    Args:
        settings: Those below `iceberg.ext.cycle-aggregate.`.
        tables: Of the connector; None: they are not known beforehand.

    Raises:
        ConfigError: One of them makes no sense.
    """
    queries = {
        key: text for key, text in settings.items() if not key.endswith(_SETTINGS) and text.strip()
    }
    for key in settings:
        table = key.rpartition(".")[0]
        if key not in queries and key.endswith(_SETTINGS) and table not in queries:
            raise ConfigError(AGGREGATE_PREFIX + key, f"there is no {AGGREGATE_PREFIX}{table}")
    found = []
    for table, text in queries.items():
        key = AGGREGATE_PREFIX + table
        if not all(table.split(".")) or table in (tables or ()):
            raise ConfigError(
                key,
                f"{table} is {'a table of the records' if table in (tables or ()) else 'no table'}",
            )
        try:
            sql = parse_query(
                text, _READS_ROWS, f"does not read {', '.join(VIEWS[:-2])} or {VIEWS[-2]}"
            )
            keys, add = (list_items(settings.get(table + each, "")) for each in (_KEYS, _ADD))
        except ValueError as error:
            raise ConfigError(key, str(error)) from error
        if not keys:
            raise ConfigError(key + _KEYS, f"is missing: the columns that name a row of {table}")
        if both := [name for name in add if name in keys]:
            raise ConfigError(key + _ADD, f"{both[0]} is a key column")
        found.append(
            CycleAggregate(
                table, sql, keys, add, _source(key, settings.get(table + _FROM, "").strip(), tables)
            )
        )
    return tuple(found)


def _source(key: str, named: str, tables: Sequence[str] | None) -> str:
    if not named and tables is not None and len(tables) == 1:
        return tables[0]
    if not named:
        raise ConfigError(key + _FROM, "is missing: the table whose commits it follows")
    if tables and named not in tables:
        raise ConfigError(key + _FROM, f"no rows go to a table {named}")
    return named


def aggregate_keys(props: Mapping[str, str]) -> Iterator[str]:
    """The keys of a connector that hold queries of its own."""
    for key, value in props.items():
        if key.startswith(AGGREGATE_PREFIX) and not key.endswith(_SETTINGS) and value.strip():
            yield key
