"""Order of changes in the source's log, encoded as one sortable string per row.

Kafka offsets order the rows of one partition. If several partitions may contain changes to the same
key, the configured columns order them. These columns contain Debezium's `source.sequence`, numbers,
timestamps, or strings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, DataError
from connect_py.api.record import Headers, TopicPartition
from connect_py.plurals import pluralize
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import (
    any_true,
    as_array,
    bad_rows,
    column_at,
    plain,
    tombstones,
)
from connectors.iceberg.conversion.types import FIELD_ID
from connectors.iceberg.conversion.types import ORDER as ORDER
from connectors.iceberg.staging.change_events import INT8, Change
from connectors.iceberg.staging.features import (
    ChangeBatch,
    CycleRows,
    StagingFeature,
    replace_column,
)
from connectors.iceberg.staging.staged_changes import CHANGE, OFFSET
from connectors.iceberg.table.table import StagedFile, StagedKind

log = logging.getLogger(__name__)

# Used if the table does not have this column. Readers then skip it like a dropped column. It needs
# a field ID because PyIceberg rejects columns without one. The ID is above the IDs of table columns
# and below the IDs that Iceberg reserves.
ORDER_FIELD = pa.field(ORDER, pa.string(), metadata={FIELD_ID: b"2000000001"})
_BUFFERED_ORDER = pa.field(ORDER, pa.string())
_DIGITS = 20  # number of digits of the largest unsigned 64-bit integer
_SMALLEST = 1 << 63
_BETWEEN = "\x01"  # sorts before any character of a value, so a prefix sorts first
_SEQUENCE = r'^\[(?:null|"?(?P<commit>[0-9]{1,20})"?), *"?(?P<position>[0-9]{1,20})"?\]$'


class OrderedChanges(StagingFeature):
    """Orders changes across partitions (`iceberg.ext.ordering-columns`)."""

    def __init__(self, config: IcebergSinkConfig, table: str) -> None:
        self._columns = config.ordering_columns
        # If the source sends deletes as records with a value, tombstones only repeat them.
        self._tombstones_repeat = config.envelopes or bool(config.cdc_field)
        self._table = table
        self._last: dict[TopicPartition, str] = {}  # order of the last staged row
        self._latest: dict[TopicPartition, str] = {}  # the same, in the cycle that is being staged

    def file_fields(self, columns: Sequence[Mapping[str, Any]]) -> Sequence[pa.Field]:
        for column in columns:
            if column["name"] == ORDER:
                field_id = str(column["id"]).encode()
                return [pa.field(ORDER, pa.string(), metadata={FIELD_ID: field_id})]
        return [ORDER_FIELD]

    def amend(self, changes: ChangeBatch) -> None:
        """Add the order column.

        A row without a value in any ordering column gets an empty string, or null if the row is a
        tombstone that repeats a delete.
        """
        try:
            order = order_of(changes.batch, changes.received, self._columns)
        except DataError as error:
            raise BadRows(dict.fromkeys(range(len(changes.batch)), error)) from error
        values = order.fill_null("")
        tombstone = tombstones(changes.received) if self._tombstones_repeat else None
        if tombstone is not None:
            values = as_array(pc.if_else(tombstone, order, values))
        changes.add_column(_BUFFERED_ORDER, values)

    def stage(self, cycle: CycleRows) -> Iterator[StagedFile]:
        """Raise the order of each row to at least the order of the preceding row."""
        whole, partition = cycle.whole, cycle.partition
        lacks_order = whole.column(ORDER).is_null()
        order = running_maximum(whole.column(ORDER), self._last.get(partition, ""))
        self._latest[partition] = order[-1].as_py()
        whole = replace_column(whole, ORDER, order, _BUFFERED_ORDER)
        # A tombstone that precedes all events with an order repeats a delete from an earlier cycle.
        # If it were applied without an order, it would delete later rows from other partitions.
        repeats = pc.and_(lacks_order, pc.equal(order, ""))
        if any_true(as_array(repeats)):
            log.warning(
                "table %s: skipping %s from %s without an order before the first change; "
                "if tombstones are the only deletes in the topic, add the order as a header",
                self._table,
                pluralize(pc.sum(repeats).as_py(), "tombstone"),
                partition,
                extra={"action": "tombstone_without_place", "table": self._table},
            )
            whole = whole.filter(pc.invert(repeats))
        cycle.replace([whole])
        return iter(())

    def staged(self, partition: TopicPartition) -> None:
        self.forget(partition)
        if partition in self._latest:
            self._last[partition] = self._latest.pop(partition)

    def forget(self, partition: TopicPartition) -> None:
        self._last.pop(partition, None)

    def clear(self) -> None:
        self._last.clear()


class OrderedReplays(OrderedChanges):
    """Orders changes, including replayed dead-letter records.

    The offset of a replayed record reflects only when a user replayed it.
    """

    def __init__(self, config: IcebergSinkConfig, table: str) -> None:
        super().__init__(config, table)
        self._topic = config.replay_topic

    def amend(self, changes: ChangeBatch) -> None:
        super().amend(changes)
        if changes.batch.origin.topic == self._topic:
            unordered = pc.equal(changes.extra[ORDER][1], "").fill_null(False)
            _check_replays(
                pc.and_(unordered, pc.not_equal(changes.effect, Change.IGNORE)),
                "it has no value for iceberg.ext.ordering-columns, so the table may contain a "
                "newer row",
            )

    def stage(self, cycle: CycleRows) -> Iterator[StagedFile]:
        """Sort and renumber the changes. Drop tombstones that repeat a delete."""
        if cycle.partition.topic != self._topic:
            yield from super().stage(cycle)
            return
        rows = cycle.whole
        rows = rows.filter(rows.column(ORDER).is_valid())
        ranked = rows.append_column("upserts", pc.equal(rows.column(CHANGE), Change.UPSERT))
        by = [(ORDER, "ascending"), ("upserts", "ascending"), (OFFSET, "ascending")]
        rows = rows.take(pc.sort_indices(ranked, sort_keys=by))
        cycle.received_offsets = as_array(rows.column(OFFSET))
        numbers = pa.array(range(rows.num_rows), pa.int64())
        cycle.replace([replace_column(rows, OFFSET, numbers)])


class Inserts(StagingFeature):
    """Stages replayed dead-letter records if no ordering columns are configured.

    The coordinator inserts only rows whose keys the table does not contain.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def amend(self, changes: ChangeBatch) -> None:
        if changes.batch.origin.topic == self._topic:
            bad = pc.is_in(
                changes.effect, value_set=pa.array([Change.DELETE, Change.TRUNCATE], INT8)
            )
            for rows in changes.unavailable.values():
                bad = pc.or_(bad, rows)
            _check_replays(
                bad,
                "without iceberg.ext.ordering-columns, only a complete row can be replayed, and "
                "only if the table does not contain its key",
            )

    def stage(self, cycle: CycleRows) -> Iterator[StagedFile]:
        """Write only the last row of each key, as a file of inserts."""
        if cycle.partition.topic != self._topic:
            return
        layout, rows = cycle.layout, cycle.whole
        rows = rows.filter(pc.equal(rows.column(CHANGE), Change.UPSERT))
        cycle.replace([rows])
        last = cycle.last_offsets()
        if last is not None:
            rows = rows.filter(pc.is_in(rows.column(OFFSET), value_set=last))
        for part in cycle.split(rows.select(layout.schema.names)):
            yield cycle.write(StagedKind.INSERTS, part, layout.schema)
        cycle.replace([])


def _check_replays(bad: pa.BooleanArray, reason: str) -> None:
    if any_true(as_array(bad)):
        raise bad_rows(bad, f"the record cannot be replayed: {reason}")


def order_of(batch: Batch, value: Column, columns: Sequence[str]) -> pa.StringArray:
    """Return the order of each row, or null if no column has a value.

    A column is a path into the value or the name of a header. Debezium's `source.sequence` is a
    pair of log positions: the position of the last commit and the position of the change. A missing
    commit position is treated as equal to the position of the change. Pairs, numbers (including
    numbers in strings), and timestamps are compared by value, and other strings character by
    character.

    Args:
        batch: The batch, whose headers are used.
        value: The record values.
        columns: The ordering columns, most significant first.

    Raises:
        DataError: A column has a type that cannot be ordered.
    """
    orders = [(name, _values(batch, value, name)) for name in columns]
    exists = orders[0][1].is_valid()
    for _, values in orders[1:]:
        exists = pc.or_(exists, values.is_valid())
    parts = [_sortable(name, values).fill_null("") for name, values in orders]
    whole = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _BETWEEN)
    return as_array(pc.if_else(exists, whole, pa.scalar(None, pa.string())))


def running_maximum(order: pa.ChunkedArray, start: str) -> pa.StringArray:
    """Return the running maximum of the order over the rows of one Kafka partition.

    A row without an order, such as a tombstone, gets the maximum of the preceding rows. `start` is
    the order that precedes the first row.
    """
    orders = pa.concat_arrays([pa.array([start]), as_array(order).fill_null("")])
    rank = pc.rank(orders, sort_keys="ascending", tiebreaker="dense")
    highest = pc.cumulative_max(rank)
    return orders.take(pc.index_in(highest, value_set=rank)).slice(1)


def _values(batch: Batch, value: Column, name: str) -> pa.Array:
    column = column_at(value, name.split("."))
    data = pa.nulls(len(batch), pa.string()) if column is None else column.data
    if batch.headers is None or data.null_count == 0:
        return data
    header_values = [_header_value(headers, name) for headers in batch.headers]
    if all(header_value is None for header_value in header_values):
        return data
    strings = pa.array(header_values, pa.string())
    return (
        strings if column is None else pc.coalesce(*(_sortable(name, d) for d in (data, strings)))
    )


def _header_value(headers: Headers, name: str) -> str | None:
    header = headers.last_with(name)
    if header is None or header.value is None:
        return None
    if isinstance(header.value, list):  # from a header converter that parses JSON
        return "[" + ",".join("null" if v is None else f'"{v}"' for v in header.value) + "]"
    return str(header.value)


def _sortable(name: str, data: pa.Array) -> pa.StringArray:
    if pa.types.is_null(data.type):
        return pa.nulls(len(data), pa.string())
    if pa.types.is_string(data.type):
        return _sortable_strings(data)
    data = plain(data)
    if not pa.types.is_integer(data.type):
        raise DataError(
            f"ordering column {name} has type {data.type}; expected numbers, timestamps, or strings"
        )
    return _sortable_numbers(data.cast(pa.int64()))


def _sortable_numbers(data: pa.Int64Array) -> pa.StringArray:
    bits = pc.bit_wise_xor(data.view(pa.uint64()), pa.scalar(_SMALLEST, pa.uint64()))
    return _padded(bits.cast(pa.string()))


def _sortable_strings(data: pa.StringArray) -> pa.StringArray:
    sequence = pc.extract_regex(data, _SEQUENCE)
    position = pc.struct_field(sequence, "position")
    if position.null_count == len(position):
        number = pc.match_substring_regex(data, "^-?[0-9]{1,18}$")
        numbers = as_array(pc.if_else(number, data, pa.scalar(None, pa.string()))).cast(pa.int64())
        return as_array(pc.coalesce(_sortable_numbers(numbers), data))
    commit = pc.struct_field(sequence, "commit")
    commit = pc.if_else(pc.equal(commit, ""), position, commit)
    pairs = pc.binary_join_element_wise(_padded(commit), _padded(position), _BETWEEN)
    return as_array(pc.coalesce(pairs, data))


def _padded(digits: pa.StringArray) -> pa.StringArray:
    return pc.utf8_lpad(digits, width=_DIGITS, padding="0")
