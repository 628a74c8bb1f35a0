"""`Router`: assigns rows to tables. It evaluates each distinct route value of a batch once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, ConnectError, DataError
from connect_py.columns.arrow import schemaless_values, to_values
from connect_py.java.strings import java_text
from connectors.iceberg.config.keys import CHANGELOG_SUFFIX
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import Unrouted
from connectors.iceberg.config.topic_rules import is_table_name
from connectors.iceberg.conversion.columns import (
    any_true,
    bad_rows,
    member,
    row_numbers,
    tombstones,
)
from connectors.iceberg.table.table import WriteMode

_MAX_VALUES = 10_000  # maximum number of route values that are cached with their tables


@dataclass(frozen=True, slots=True)
class Routed:
    """Rows of a batch for one table."""

    table: str
    batch: Batch
    rows: pa.Int64Array | None = None  # row indexes in the routed batch, or None for all rows

    def in_whole_batch(self, bad: BadRows) -> BadRows:
        """Return the errors by row index in the routed batch."""
        if self.rows is None:
            return bad
        index = self.rows.to_pylist()
        return BadRows({index[row]: error for row, error in bad.errors.items()})

    def where(self, mask: pa.BooleanArray) -> Routed:
        """Return the rows that a mask selects."""
        rows = pc.indices_nonzero(mask).cast(pa.int64())
        in_batch = rows if self.rows is None else self.rows.take(rows)
        return Routed(self.table, self.batch.where(mask), in_batch)

    def without_tombstones(self) -> Routed | None:
        """Return the rows that have a value, or None if there are none."""
        tombstone = tombstones(self.batch.value)
        if tombstone is None:
            return self
        with_value = pc.invert(tombstone)
        return self.where(with_value) if any_true(with_value) else None


@dataclass(frozen=True, slots=True)
class Routing:
    """Rows of a batch by table. A row may be routed to several tables."""

    routed: Sequence[Routed]
    # number of rows without a table, not counting tombstones in APPEND mode, which have no effect
    unrouted: int


class Router:
    """Routes rows according to the configuration. Used by the task thread only.

    - Static tables without a route field: every row is written to every table.
    - Static tables with a route field: a row is written to every table whose route-regex matches
      the whole route value.
    - Dynamic tables: the route value in lower case is the name of the table.
    - By topic: the first entry in `iceberg.ext.topic-to-table` that matches `Batch.topic` lists the
      tables.

    A tombstone has no route value. In MERGE mode, it is routed to every static table that has a
    route-regex. With dynamic tables, the route field of the record key contains the table name. If
    the key has no such field, the tombstone is routed to every table to which an earlier row from
    its topic was routed, because one of them contains the key. The delete has no effect on the
    other tables.
    """

    def __init__(self, config: IcebergSinkConfig) -> None:
        self._config = config
        self._with_pattern = [
            name for name in config.tables if config.table(name).route_regex is not None
        ]
        self.seen: dict[str, dict[str, None]] = {}  # tables of earlier rows, by topic
        self.by_seen = False  # whether tombstones were routed according to `seen`
        self.is_ahead = False  # whether the tables of earlier rows are unknown
        self._tables_of_topic = cache(partial(tables_of_topic, config))
        self._tables_of_text = lru_cache(_MAX_VALUES)(partial(tables_of_text, config))

    def route(self, batch: Batch) -> Routing:
        """Return the rows of a batch by table, without tables that the connector does not write to.

        Raises:
            BadRows: Some rows have no fields although a route field is configured, or have no table
                and `iceberg.ext.unrouted` is `dlq`.
            ConnectError: A row has no table, and either `iceberg.ext.unrouted` is `fail` or its
                table depends on earlier rows that are unknown.
        """
        routing = self._route(batch)
        if not self._config.only_tables:
            return routing
        return Routing(
            [each for each in routing.routed if self._config.writes(each.table)], routing.unrouted
        )

    def _route(self, batch: Batch) -> Routing:
        config = self._config
        if config.topic_rules:
            if tables := self._tables_of_topic(batch.topic):
                return Routing([Routed(table, batch) for table in tables], 0)
            return self._finish(batch, [], pa.repeat(pa.scalar(True), len(batch)))
        if not config.route_field:
            return Routing([Routed(table, batch) for table in config.tables], 0)
        return self._route_by_field(batch)

    def _route_by_field(self, batch: Batch) -> Routing:
        tombstone = tombstones(batch.value)
        masks = self._masks(batch.value)
        merge = self._config.mode is WriteMode.MERGE
        tables = self.seen.setdefault(batch.topic, {})
        tables.update(dict.fromkeys(masks))
        if merge and tombstone is not None:
            for table, rows in self._of_tombstones(batch, tombstone, tables).items():
                masks[table] = pc.or_(masks[table], rows) if table in masks else rows
        has_table: pa.BooleanArray | None = None
        routed = []
        for table, mask in masks.items():
            has_table = mask if has_table is None else pc.or_(has_table, mask)
            if pc.all(mask).as_py():
                routed.append(Routed(table, batch))
            else:
                routed.append(Routed(table, batch).where(mask))
        rest = pa.repeat(pa.scalar(True), len(batch)) if has_table is None else pc.invert(has_table)
        if tombstone is not None and not merge:
            rest = pc.and_not(rest, tombstone)
        return self._finish(batch, routed, rest)

    def _of_tombstones(
        self, batch: Batch, tombstone: pa.BooleanArray, tables: Iterable[str]
    ) -> dict[str, pa.BooleanArray]:
        """Return a mask of tombstones for each table."""
        if not self._config.dynamic:
            return dict.fromkeys(self._with_pattern, tombstone)
        by_key = {
            table: pc.and_(rows, tombstone)
            for table, rows in self._masks(batch.key, strict=False).items()
        }
        rest = tombstone
        for rows in by_key.values():
            rest = pc.and_not(rest, rows)
        if not any_true(rest):
            return by_key
        self.by_seen = True
        return {**dict.fromkeys(tables, rest), **by_key}

    def _route_values(
        self, value: Column, *, strict: bool
    ) -> tuple[list[str | None], pa.Int32Array]:
        """Return the distinct values of the route field, and the index of each row's value."""
        data, schema = value.data, value.schema
        for name in self._config.route_field:
            if pa.types.is_null(data.type):
                break
            if not (pa.types.is_struct(data.type) or pa.types.is_map(data.type)):
                rows = row_numbers(data.is_valid()) if strict else []
                if rows:
                    error = DataError("Expected a struct/map type on the way to the route field")
                    raise BadRows(dict.fromkeys(rows, error))
                return [], pa.nulls(len(value), pa.int32())
            data, schema = member(data, schema, name)
        if pa.types.is_null(data.type):
            return [], pa.nulls(len(value), pa.int32())
        if pa.types.is_nested(data.type):
            values = schemaless_values(data, {}) if schema is None else to_values(schema, data)
            data = pa.array(
                [None if v is None else java_text(None, v) for v in values], pa.string()
            )
            schema = None
        encoded = data.dictionary_encode()
        distinct = encoded.dictionary
        texts = schemaless_values(distinct, {}) if schema is None else to_values(schema, distinct)
        return [None if v is None else java_text(None, v) for v in texts], encoded.indices

    def _masks(self, side: Column, *, strict: bool = True) -> dict[str, pa.BooleanArray]:
        """Return a mask of rows for each table, from the route field of keys or values.

        If `strict` is True, rows without fields are reported as bad rows.
        """
        values, route = self._route_values(side, strict=strict)
        tables: dict[str, list[bool]] = {}
        for at, text in enumerate(values):
            if text is None:
                continue
            for table in self._tables_of_text(text):
                tables.setdefault(table, [False] * len(values))[at] = True
        return {
            table: pa.array(hits, pa.bool_()).take(route).fill_null(False)
            for table, hits in tables.items()
        }

    def _finish(self, batch: Batch, routed: list[Routed], rest: pa.BooleanArray) -> Routing:
        count = pc.sum(rest).as_py() or 0
        if count and self._config.unrouted is not Unrouted.IGNORE:
            message = f"no table for this row from topic {batch.topic}"
            if self._config.unrouted is Unrouted.FAIL or (self.is_ahead and self.by_seen):
                raise ConnectError(message)
            raise bad_rows(rest, message)
        return Routing(routed, count)


def with_changelogs(config: IcebergSinkConfig, routed: Sequence[Routed]) -> Sequence[Routed]:
    """Return the rows for all tables, followed by the same rows for the tables' changelogs.

    Raises:
        ConnectError: A table has the name of a changelog.
    """
    suffix = config.changelog_suffix
    if suffix is None:
        return routed
    for item in routed:
        if config.is_changelog(item.table):
            raise ConnectError(
                f"rows are routed to {item.table}, which has the name of a changelog; change "
                f"{CHANGELOG_SUFFIX}"
            )
    return [*routed, *(Routed(item.table + suffix, item.batch, item.rows) for item in routed)]


def tables_of_topic(config: IcebergSinkConfig, topic: str) -> tuple[str, ...]:
    """Return the tables from the first matching entry in `iceberg.ext.topic-to-table`, if any."""
    matches = (rule.tables(topic) for rule in config.topic_rules)
    return tuple(
        filter(is_table_name, next((tables for tables in matches if tables is not None), ()))
    )


def tables_of_text(config: IcebergSinkConfig, text: str) -> list[str]:
    """Return the tables for rows with this route value, which is formatted as in Java."""
    if config.dynamic:
        return [text.lower()] if is_table_name(text) else []
    patterns = {name: config.table(name).route_regex for name in config.tables}
    return [
        table for table, regex in patterns.items() if regex is not None and regex.fullmatch(text)
    ]
