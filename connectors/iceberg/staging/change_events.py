"""Changes in MERGE mode, read from Debezium change events or from rows with a CDC field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Column
from connect_py.api.errors import BadRows, DataError, FailureReason, NotColumnar
from connectors.iceberg.conversion.columns import (
    any_true,
    as_array,
    bad_rows,
    is_empty,
    member,
    tombstones,
)


class Change(IntEnum):
    """Effect of a record on the row with the same key."""

    UPSERT = 0
    DELETE = 1
    IGNORE = 2  # for example, a logical decoding message or a tombstone without a key
    TRUNCATE = 3  # deletes all rows of the table


INT8 = pa.int8()
OPERATION, BEFORE, AFTER = "op", "before", "after"
DELETED = "__deleted"  # marks deleted rows; a table column if iceberg.ext.delete-mode=mark
RAW_OPERATIONS = frozenset({"op", "__op"})  # fields with Debezium's operation codes
SNAPSHOT = "r"  # Debezium's operation code for rows from a snapshot of the source
_MEANINGS = {
    "c": Change.UPSERT,
    "u": Change.UPSERT,
    "d": Change.DELETE,
    "t": Change.TRUNCATE,
    "m": Change.IGNORE,
}


def changes(value: Column, cdc_field: Sequence[str], read: Change = Change.UPSERT) -> pa.Int8Array:
    """Return the `Change` of each row.

    `read` is the change type for rows from a snapshot of the source (operation code `r`).

    The first letter of the CDC field determines the change, ignoring case: `d` is a delete, and any
    other letter is an upsert. In Debezium's own operation field (`op` or `__op`), `t` is a truncate
    and `m` (message) is ignored. If the CDC field is `__deleted`, the value true is a delete. A
    tombstone is a delete.

    Raises:
        DataError: A parent of the CDC field is not a struct or map.
    """
    change = _by_field(value, cdc_field, read) if cdc_field else None
    if change is None:
        change = pa.repeat(pa.scalar(Change.UPSERT, INT8), len(value))
    return _with_deletes(change, tombstones(value))


def _with_deletes(change: pa.Int8Array, deletes: pa.BooleanArray | None) -> pa.Int8Array:
    if deletes is None:
        return change
    return as_array(pc.if_else(deletes, pa.scalar(Change.DELETE, INT8), change))


def _by_field(value: Column, path: Sequence[str], read: Change) -> pa.Int8Array | None:
    data, schema = value.data, value.schema
    for name in path:
        if pa.types.is_null(data.type):
            return None
        if not (pa.types.is_struct(data.type) or pa.types.is_map(data.type)):
            raise DataError(
                f"invalid CDC field {'.'.join(path)!r}: its parent is a {data.type}, expected a "
                "struct or map",
                reason=FailureReason.NO_CHANGE_EVENT,
            )
        data, schema = member(data, schema, name)
    if pa.types.is_null(data.type):
        return None
    encoded = data.dictionary_encode()
    meanings = [_meaning(code, path[-1], read) for code in encoded.dictionary.to_pylist()]
    if all(meaning is Change.UPSERT for meaning in meanings):
        return None
    return pa.array(meanings, INT8).take(encoded.indices).fill_null(int(Change.UPSERT))


def _meaning(value: object, field: str, read: Change) -> Change:
    code = "" if value is None else str(value).strip().lower()
    if field == DELETED:
        return Change.DELETE if code == "true" else Change.UPSERT
    if code.startswith("d"):
        return Change.DELETE
    if field not in RAW_OPERATIONS:
        return Change.UPSERT
    if code[:1] in ("t", "m"):
        return _MEANINGS[code[0]]
    return read if code == SNAPSHOT else Change.UPSERT


@dataclass(frozen=True, slots=True)
class Envelope:
    """Debezium change events from one batch. Every column has one value per event."""

    row: Column  # the row after the change, or before a delete; null if the event has no row
    before: Column | None  # the row before the change; None if no event contains it
    operation: pa.StringArray  # Debezium's operation code; null for a tombstone
    change: pa.Int8Array  # `Change` values; a tombstone is a delete

    @staticmethod
    def of(value: Column, read: Change = Change.UPSERT) -> Envelope:
        """Parse the events of a batch, which may contain tombstones.

        Args:
            value: The record values.
            read: The change type for rows from a snapshot of the source.

        Raises:
            BadRows: Some records are not change events or do not contain the row to write.
        """
        tombstone = tombstones(value)
        if tombstone is not None and pc.all(tombstone).as_py():
            change = pa.repeat(pa.scalar(Change.DELETE, INT8), len(value))
            nulls = Column(None, pa.nulls(len(value)))
            return Envelope(nulls, None, pa.nulls(len(value), pa.string()), change)
        operation = value.member(OPERATION) if value.is_struct() else None
        if operation is None or not (
            pa.types.is_string(operation.data.type) or pa.types.is_null(operation.data.type)
        ):
            raise _not_an_event(value, tombstone, None)
        codes = operation.data.cast(pa.string()).dictionary_encode()
        meanings = [
            read if code == SNAPSHOT else _MEANINGS.get(code)
            for code in codes.dictionary.to_pylist()
        ]
        change = _with_deletes(pa.array(meanings, INT8).take(codes.indices), tombstone)
        if change.null_count:
            raise _not_an_event(value, tombstone, change)
        before, after = value.member(BEFORE), value.member(AFTER)
        null = pa.scalar(True) if after is None else after.is_null()
        lost = pc.and_(pa.scalar(False) if null is None else null, pc.equal(change, Change.UPSERT))
        if any_true(lost):
            raise bad_rows(
                lost,
                f"invalid change event: it lacks {AFTER!r}, which iceberg.ext.envelope=debezium "
                "requires in every create, read, and update",
                reason=FailureReason.NO_CHANGE_EVENT,
            )
        row = _rows(len(value), before, after, change)
        return Envelope(row, before, codes.cast(pa.string()), change)


def shape(value: Column) -> Column:
    """Return the rows in a batch of change events, from which a schema can be derived.

    The result has one row for each event, or is empty if no event contains a row.
    """
    if value.null_count == len(value) or not value.is_struct():
        return Column(None, pa.nulls(0))
    after = value.member(AFTER)
    row = value.member(BEFORE) if is_empty(after) else after
    return Column(None, pa.nulls(0)) if row is None else row


def _rows(length: int, before: Column | None, after: Column | None, change: pa.Int8Array) -> Column:
    if before is None or is_empty(before):
        return Column(None, pa.nulls(length)) if after is None else after
    if after is None or is_empty(after):
        return before
    deletes = pc.equal(change, Change.DELETE)
    if not any_true(deletes):
        return after
    try:
        return after.mixed(before, deletes)
    except NotColumnar:  # schemaless rows of different types; the record key identifies the row
        return after


def _not_an_event(
    value: Column, tombstone: pa.BooleanArray | None, change: pa.Int8Array | None
) -> BadRows:
    bad = pa.repeat(pa.scalar(True), len(value)) if change is None else change.is_null()
    return bad_rows(
        bad if tombstone is None else pc.and_not(bad, tombstone),
        f"invalid change event: its {OPERATION!r} is missing or unknown; "
        "iceberg.ext.envelope=debezium expects Debezium change events",
        reason=FailureReason.NO_CHANGE_EVENT,
    )
