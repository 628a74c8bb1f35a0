"""Which tables the rows of a batch go to. Works on columns: Python sees each distinct route value
once."""

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
from connectors.iceberg.conversion.columns import any_true, member, tombstones
from connectors.iceberg.table.table import WriteMode

_MAX_TEXTS = 10_000  # of route fields, remembered with their tables


@dataclass(frozen=True, slots=True)
class Routed:
    """Rows of a batch that go to one table."""

    table: str
    batch: Batch
    rows: pa.Int64Array | None = None  # which rows of the routed batch these are; None: all

    def in_whole_batch(self, bad: BadRows) -> BadRows:
        """The same errors by the index in the batch that was routed."""
        if self.rows is None:
            return bad
        index = self.rows.to_pylist()
        return BadRows({index[row]: error for row, error in bad.errors.items()})

    def where(self, mask: pa.BooleanArray) -> Routed:
        """Return the rows of a mask."""
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
    """Where the rows of a batch go; a row may go to several tables."""

    routed: Sequence[Routed]
    # rows that no table takes; tombstones in append mode are not counted, they mean nothing there
    unrouted: int


class Router:
    """Decides by configuration. One per task, used by the task thread.

    - static tables without a route field: every row to every table;
    - static tables with a route field: to each table whose route-regex matches the whole text of
      the value;
    - dynamic: the text of the value, lower-cased, is the table;
    - by topic: the first pair of `iceberg.ext.topic-to-table` that matches; `Batch.topic` counts,
      as rerouted.

    A tombstone has no route value. In MERGE mode it goes to every table with a route-regex; with
    dynamic names to the one that the route field of its key names, else to every table that rows of
    its topic went to since this task started. A key belongs to one topic, so the delete does
    nothing in a table without that key.
    """

    def __init__(self, config: IcebergSinkConfig) -> None:
        self._config = config
        self._with_pattern = [
            name for name in config.tables if config.table(name).route_regex is not None
        ]
        self.seen: dict[str, dict[str, None]] = {}  # by topic, the tables that rows of it went to
        self.by_seen = False  # whether tombstones went where `seen` says
        self.is_ahead = False  # whether it is not known yet where rows before these went
        self._tables_of_topic = cache(partial(tables_of_topic, config))
        self._tables_of_text = lru_cache(_MAX_TEXTS)(partial(tables_of_text, config))

    def route(self, batch: Batch) -> Routing:
        """Divide a batch; rows of tables that the connector does not write are left out.

        Raises: BadRows: Rows whose value has no fields although a route field is configured; rows
            that no table takes,
                if `iceberg.ext.unrouted` is dlq.
            ConnectError: A row that no table takes, if it is fail, or if that may be otherwise once
                rows before it are known.
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
        known = self.seen.setdefault(batch.topic, {})
        known.update(dict.fromkeys(masks))
        if merge and tombstone is not None:
            for table, rows in self._of_tombstones(batch, tombstone, known).items():
                masks[table] = pc.or_(masks[table], rows) if table in masks else rows
        taken: pa.BooleanArray | None = None
        routed = []
        for table, mask in masks.items():
            taken = mask if taken is None else pc.or_(taken, mask)
            if pc.all(mask).as_py():
                routed.append(Routed(table, batch))
            else:
                routed.append(
                    Routed(table, batch.where(mask), pc.indices_nonzero(mask).cast(pa.int64()))
                )
        rest = pa.repeat(pa.scalar(True), len(batch)) if taken is None else pc.invert(taken)
        if tombstone is not None and not merge:
            rest = pc.and_not(rest, tombstone)
        return self._finish(batch, routed, rest)

    def _of_tombstones(
        self, batch: Batch, tombstone: pa.BooleanArray, known: Iterable[str]
    ) -> dict[str, pa.BooleanArray]:
        """Which tombstones go to which table."""
        if not self._config.dynamic:
            return dict.fromkeys(self._with_pattern, tombstone)
        named = {
            table: pc.and_(rows, tombstone)
            for table, rows in self._masks(batch.key, strict=False).items()
        }
        rest = tombstone
        for rows in named.values():
            rest = pc.and_not(rest, rows)
        if not any_true(rest):
            return named
        self.by_seen = True
        return {**dict.fromkeys(known, rest), **named}

    def _route_values(
        self, value: Column, *, strict: bool
    ) -> tuple[list[str | None], pa.Int32Array]:
        """The distinct texts of the route field, and which one each row has (null: none)."""
        data, schema = value.data, value.schema
        for name in self._config.route_field:
            if pa.types.is_null(data.type):
                break
            if not (pa.types.is_struct(data.type) or pa.types.is_map(data.type)):
                rows = pc.indices_nonzero(data.is_valid()).to_pylist() if strict else []
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
        """Per table, the rows that the route field of this side names; tables without rows are left
        out.

        `strict`: rows whose value has no fields are bad.
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
            text = f"no table takes this row of topic {batch.topic}"
            if self._config.unrouted is Unrouted.FAIL or (self.is_ahead and self.by_seen):
                raise ConnectError(text)
            raise BadRows({row: DataError(text) for row in pc.indices_nonzero(rest).to_pylist()})
        return Routing(routed, count)


def with_changelogs(config: IcebergSinkConfig, routed: Sequence[Routed]) -> Sequence[Routed]:
    """The same rows once more for the tables that hold the changes of the others.

    Raises:
        ConnectError: A table's own name is one of a changelog, so what it holds would not be clear.
    """
    suffix = config.changelog_suffix
    if suffix is None:
        return routed
    for item in routed:
        if config.is_changelog(item.table):
            raise ConnectError(
                f"rows are routed to {item.table}, whose name is one of a changelog: set another "
                f"{CHANGELOG_SUFFIX}"
            )
    return [*routed, *(Routed(item.table + suffix, item.batch, item.rows) for item in routed)]


def tables_of_topic(config: IcebergSinkConfig, topic: str) -> tuple[str, ...]:
    """The tables of the first pair of `iceberg.ext.topic-to-table` that matches the topic; none: no
    pair does."""
    found = (rule.tables(topic) for rule in config.topic_rules)
    return tuple(
        filter(is_table_name, next((tables for tables in found if tables is not None), ()))
    )


def tables_of_text(config: IcebergSinkConfig, text: str) -> list[str]:
    """The tables of rows whose route field has this text, as Java prints it."""
    if config.dynamic:
        return [text.lower()] if is_table_name(text) else []
    patterns = {name: config.table(name).route_regex for name in config.tables}
    return [
        table for table, regex in patterns.items() if regex is not None and regex.fullmatch(text)
    ]
