"""Debezium's change events as they come, with no transformation before: the row, and what happened
to it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Column
from connect_py.api.errors import BadRows, DataError, FailureReason, NotColumnar
from connectors.iceberg.conversion.columns import any_true, as_array, tombstones
from connectors.iceberg.staging.cdc import INT8, SNAPSHOT, Change

OPERATION, BEFORE, AFTER = "op", "before", "after"
_MEANINGS = {
    "c": Change.UPSERT,
    "u": Change.UPSERT,
    "d": Change.DELETE,
    "t": Change.TRUNCATE,
    "m": Change.IGNORE,
}
_NO_ROW = (
    f"the event has no row: iceberg.ext.envelope=debezium expects {AFTER!r} of every create, "
    f"read and update"
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The events of one batch, opened; all of its length."""

    row: Column  # the row after the change, or before a delete; null where the event has none
    before: Column | None  # the row before, where the event has it; None: no event does
    operation: pa.StringArray  # Debezium's letter; null: a tombstone
    change: pa.Int8Array  # a `Change` each; tombstones delete

    @staticmethod
    def of(value: Column, read: Change = Change.UPSERT) -> Envelope:
        """Open the events of a batch; tombstones may be among them. `read` is what events of a
        snapshot mean.

        Raises:
            BadRows: These rows are no change events, or lack the row that they write.
        """
        tombstone = tombstones(value)
        if tombstone is not None and pc.all(tombstone).as_py():
            change = pa.repeat(pa.scalar(Change.DELETE, INT8), len(value))
            return Envelope(
                Column(None, pa.nulls(len(value))), None, pa.nulls(len(value), pa.string()), change
            )
        operation = value.member(OPERATION) if value.is_struct() else None
        if operation is None or not (
            pa.types.is_string(operation.data.type) or pa.types.is_null(operation.data.type)
        ):
            return _refuse(value, tombstone, None)
        codes = operation.data.cast(pa.string()).dictionary_encode()
        known = _MEANINGS | {SNAPSHOT: read}
        meanings = [known.get(code) for code in codes.dictionary.to_pylist()]
        change = pa.array(meanings, INT8).take(codes.indices)
        if tombstone is not None:
            change = as_array(pc.if_else(tombstone, pa.scalar(Change.DELETE, INT8), change))
        if change.null_count:
            return _refuse(value, tombstone, change)
        before, after = value.member(BEFORE), value.member(AFTER)
        lost = _without_row(after, change)
        if any_true(lost):
            raise BadRows(dict.fromkeys(pc.indices_nonzero(lost).to_pylist(), _no_event(_NO_ROW)))
        return Envelope(
            _rows(len(value), before, after, change), before, codes.cast(pa.string()), change
        )


def shape(value: Column) -> Column:
    """Rows that show which columns the events of a batch have; as many as there are events, or
    none."""
    if value.null_count == len(value) or not value.is_struct():
        return Column(None, pa.nulls(0))
    after = value.member(AFTER)
    if _is_empty(after):
        after = value.member(BEFORE)
    return Column(None, pa.nulls(0)) if after is None else after


def _rows(length: int, before: Column | None, after: Column | None, change: pa.Int8Array) -> Column:
    if before is None or _is_empty(before):
        return Column(None, pa.nulls(length)) if after is None else after
    if after is None or _is_empty(after):
        return before
    deletes = pc.equal(change, Change.DELETE)
    if not any_true(deletes):
        return after
    try:
        return after.mixed(before, deletes)
    except NotColumnar:  # without schemas; then the record's key says what to delete
        return after


def _without_row(after: Column | None, change: pa.Int8Array) -> pa.BooleanArray:
    """Events that write a row and have none."""
    null = pa.repeat(pa.scalar(True), len(change)) if after is None else after.is_null()
    if null is None:
        null = pa.repeat(pa.scalar(False), len(change))
    return pc.and_(null, pc.equal(change, Change.UPSERT))


def _no_event(why: str) -> DataError:
    return DataError(why, reason=FailureReason.NO_CHANGE_EVENT)


def _is_empty(rows: Column | None) -> bool:
    return rows is None or rows.null_count == len(rows)


def _refuse(
    value: Column, tombstone: pa.BooleanArray | None, change: pa.Int8Array | None
) -> Envelope:
    bad = pa.repeat(pa.scalar(True), len(value)) if change is None else change.is_null()
    if tombstone is not None:
        bad = pc.and_not(bad, tombstone)
    error = _no_event(
        f"no change event of Debezium: iceberg.ext.envelope=debezium expects an {OPERATION!r} that "
        f"is known"
    )
    raise BadRows(dict.fromkeys(pc.indices_nonzero(bad).to_pylist(), error))
