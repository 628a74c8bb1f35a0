"""`CycleAggregate`: an aggregate table that is updated with each commit to another table.

The key for the query is `iceberg.ext.cycle-aggregate.<table>`. The keys for the other settings
append a suffix to this key:

- `.keys`: columns that identify a row
- `.add`: columns whose values are added to the existing values
- `.from`: table whose commits update the aggregate
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
from connectors.iceberg.config.layout_terms import list_items

VIEWS: Final = (STAGED, "removed", "before", "after", "current")
_KEYS, _ADD, _FROM = _SETTINGS = ".keys", ".add", ".from"
# Matches `current` as a relation, but not in the window frame `CURRENT ROW`. In the FROM clause,
# other relations and their aliases may precede it.
_READS_CURRENT: Final = re.compile(
    r"(?i)\b(?:from|join|table)\s+(?:[\w.`]+(?:\s+(?:as\s+)?\w+)?\s*,\s*)*`?current\b(?!\s*[.(])"
)
# string literals and comments
_LITERALS: Final = re.compile(r"""(?s)'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/""")
_READS_ROWS: Final = re.compile(rf"(?i)\b({'|'.join(VIEWS[:-1])})\b")


@dataclass(frozen=True, slots=True)
class CycleAggregate:
    """Declaration of one aggregate table."""

    table: str
    sql: str  # query that reads the views in `VIEWS`
    keys: tuple[str, ...]
    # numeric columns whose values are added; the values of all other columns are replaced
    add: tuple[str, ...]
    source: str  # table whose commits update the aggregate

    @property
    def key(self) -> str:
        """Config key of the query, for error messages."""
        return AGGREGATE_PREFIX + self.table

    @property
    def reads_current(self) -> bool:
        """True if the query reads the existing rows of the aggregate."""
        return _READS_CURRENT.search(_LITERALS.sub(" ", self.sql)) is not None

    @property
    def digest(self) -> str:
        """Digest of the query and the other settings."""
        return hashlib.sha256(
            repr((self.sql, self.keys, self.add, self.source)).encode()
        ).hexdigest()[:16]


def parse_aggregates(
    settings: Mapping[str, str], tables: Sequence[str] | None
) -> tuple[CycleAggregate, ...]:
    """Parse a connector's aggregate declarations.

    Args:
        settings: Values by key, without the prefix `iceberg.ext.cycle-aggregate.`.
        tables: The destination tables of the connector, or None if the records determine them.

    Raises:
        ConfigError: A setting is not valid.
    """
    queries = {
        key: text for key, text in settings.items() if not key.endswith(_SETTINGS) and text.strip()
    }
    for key in settings:
        table = key.rpartition(".")[0]
        if key not in queries and key.endswith(_SETTINGS) and table not in queries:
            raise ConfigError(AGGREGATE_PREFIX + key, f"{AGGREGATE_PREFIX}{table} is not set")
    aggregates = []
    for table, text in queries.items():
        key = AGGREGATE_PREFIX + table
        if not all(table.split(".")) or table in (tables or ()):
            problem = "a destination table" if table in (tables or ()) else "not a table name"
            raise ConfigError(key, f"{table} is {problem}")
        try:
            sql = parse_query(
                text, _READS_ROWS, f"must read {', '.join(VIEWS[:-2])}, or {VIEWS[-2]}"
            )
            keys, add = (list_items(settings.get(table + name, "")) for name in (_KEYS, _ADD))
        except ValueError as error:
            raise ConfigError(key, str(error)) from error
        if not keys:
            raise ConfigError(
                key + _KEYS, f"is required and must list the columns that identify a row of {table}"
            )
        if added_keys := [name for name in add if name in keys]:
            raise ConfigError(key + _ADD, f"{added_keys[0]} is a key column")
        source = _source(key, settings.get(table + _FROM, "").strip(), tables)
        aggregates.append(CycleAggregate(table, sql, keys, add, source))
    return tuple(aggregates)


def _source(key: str, table: str, tables: Sequence[str] | None) -> str:
    if not table and tables is not None and len(tables) == 1:
        return tables[0]
    if not table:
        raise ConfigError(
            key + _FROM, "is required and must be the table whose commits update the aggregate"
        )
    if tables and table not in tables:
        raise ConfigError(key + _FROM, f"no rows are routed to table {table}")
    return table


def aggregate_keys(props: Mapping[str, str]) -> Iterator[str]:
    """Iterate over the keys whose values are aggregate queries."""
    for key, value in props.items():
        if key.startswith(AGGREGATE_PREFIX) and not key.endswith(_SETTINGS) and value.strip():
            yield key
