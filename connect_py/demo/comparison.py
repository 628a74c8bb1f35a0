"""`Comparison`: compares every PostgreSQL table with its Iceberg table, value by value.

It does not use any of the worker's code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from connect_py.embedded.postgres import PostgresServer
from connect_py.plurals import pluralize

_TABLES = """\
SELECT json_build_object('table', c.relname,
  'types', (SELECT json_object_agg(a.attname, t.typname) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  'key', (SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_index i JOIN pg_attribute a
          ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey) WHERE i.indrelid = c.oid AND i.indisprimary))
FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
ORDER BY c.relname;
"""  # noqa: E501 - contains long lines

Row = dict[str, Any]


def _json(value: Any) -> Any:
    return json.loads(value, parse_float=Decimal) if isinstance(value, str) else value


def _bytes(value: Any) -> Any:
    return bytes.fromhex(value.removeprefix("\\x")) if isinstance(value, str) else value


def _text(value: Any) -> str:
    return str(value)


# Conversions from PostgreSQL's JSON value and from PyIceberg's value to a common form, keyed by
# PostgreSQL type. Columns of other types are not compared.
_FORMS: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    **dict.fromkeys(
        ("int2", "int4", "int8", "bool", "text", "varchar", "bpchar"), (lambda value: value,) * 2
    ),
    **dict.fromkeys(("json", "jsonb"), (lambda value: value, _json)),
    **dict.fromkeys(("float4", "float8"), (float, float)),
    "numeric": (lambda value: Decimal(str(value)), lambda value: Decimal(str(value))),
    "uuid": (_text, _text),
    "date": (date.fromisoformat, lambda value: value),
    **dict.fromkeys(("timestamp", "timestamptz"), (datetime.fromisoformat, lambda value: value)),
    "bytea": (_bytes, lambda value: value),
}


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A PostgreSQL table with its column types and primary key."""

    name: str
    types: Mapping[str, str]
    key: tuple[str, ...]

    @property
    def left_out(self) -> list[str]:
        """Return the columns whose types cannot be compared."""
        return [
            column for column, kind in self.types.items() if kind.removeprefix("_") not in _FORMS
        ]


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Comparison result for one table. `differences` is empty if both sides are equal."""

    table: str
    source_rows: int
    iceberg_rows: int
    left_out: Sequence[str]
    differences: Sequence[str]


class Comparison:
    """Compares all tables in the schema `public` with the Iceberg tables in a namespace."""

    def __init__(
        self, postgres: PostgresServer, database: str, catalog: SqlCatalog, namespace: str
    ) -> None:
        self._postgres = postgres
        self._database = database
        self._catalog = catalog
        self._namespace = namespace

    def tables(self) -> list[SourceTable]:
        """Return the PostgreSQL tables, sorted by name."""
        descriptions = [
            json.loads(line) for line in self._postgres.run(_TABLES, self._database).splitlines()
        ]
        return [
            SourceTable(each["table"], each["types"], tuple(each["key"] or ()))
            for each in descriptions
        ]

    def compare(self) -> list[TableComparison]:
        """Read both sides and compare them as multisets of rows.

        Raises:
            PostgresError: PostgreSQL does not respond.
        """
        return [self._compare(table) for table in self.tables()]

    def _compare(self, table: SourceTable) -> TableComparison:
        source, iceberg = self._source_rows(table), self._iceberg_rows(table)
        columns = [column for column in table.types if column not in table.left_out]
        expected = Counter(_frozen({name: row.get(name) for name in columns}) for row in source)
        actual = Counter(_frozen({name: row.get(name) for name in columns}) for row in iceberg)
        missing, extra = expected - actual, actual - expected
        differences = []
        if missing:
            rows = pluralize(
                missing.total(), "row is missing or differs", "rows are missing or differ"
            )
            differences.append(f"{rows}, for example {min(missing)}")
        if extra:
            rows = pluralize(extra.total(), "row is unexpected", "rows are unexpected")
            differences.append(f"{rows}, for example {min(extra)}")
        return TableComparison(table.name, len(source), len(iceberg), table.left_out, differences)

    def _source_rows(self, table: SourceTable) -> list[Row]:
        lines = self._postgres.run(
            f"SELECT to_jsonb(t) FROM public.{_quoted(table.name)} t;", self._database
        )
        rows = [json.loads(line, parse_float=Decimal) for line in lines.splitlines()]
        return [
            {name: _form(table.types[name], value, 0) for name, value in row.items()}
            for row in rows
        ]

    def _iceberg_rows(self, table: SourceTable) -> list[Row]:
        try:
            loaded = self._catalog.load_table(f"{self._namespace}.{table.name}")
        except NoSuchTableError:
            return []  # the table is created with its first row
        rows: list[Row] = loaded.scan().to_arrow().to_pylist()
        return [
            {
                name: _form(table.types[name], value, 1)
                for name, value in row.items()
                if name in table.types
            }
            for row in rows
        ]


def _form(kind: str, value: Any, side: int) -> Any:
    """Convert a value to the common form. Arrays are converted item by item."""
    if value is None:
        return None
    if kind.startswith("_"):
        return [_form(kind[1:], item, side) for item in value]
    forms = _FORMS.get(kind)
    return value if forms is None else forms[side](value)


def _frozen(row: Row) -> str:
    """Return a string that is the same for equal rows: sorted columns, no trailing zeros."""
    return json.dumps(row, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}" if value.is_finite() else str(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return value.hex() if isinstance(value, bytes) else str(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
