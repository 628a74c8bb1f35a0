"""Runs of consecutive records that share a topic and schemas, and therefore fit into one batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from connect_py.api.record import SinkRecord
from connect_py.api.schema import Schema, Value


def runs(records: list[SinkRecord]) -> Iterator[list[SinkRecord]]:
    """Yield runs of consecutive records that fit into one batch.

    The records in a run have the same topic, origin topic, timestamp type, key schema, and value
    schema. Tombstones fit into any run.
    """
    if records and _is_one_run(records):
        yield records
        return
    run: list[SinkRecord] = []
    run_identity: list[Any] = []
    for record in records:
        identity = [
            record.topic,
            record.origin.topic,
            record.timestamp_type,
            _identity(record.key_schema, record.key),
            _identity(record.value_schema, record.value),
        ]
        merged = (
            [_merge(a, b) for a, b in zip(run_identity, identity, strict=True)] if run else identity
        )
        if any(m is _DIFFERENT for m in merged):
            yield run
            run, merged = [], identity
        run_identity = merged
        run.append(record)
    if run:
        yield run


def _is_one_run(records: list[SinkRecord]) -> bool:
    """Return True if a fast check proves that the records form one run.

    False means that they may form several runs.
    """
    first, count = records[0], len(records)
    return (
        [r.topic for r in records].count(first.topic) == count
        and [r.origin.topic for r in records].count(first.origin.topic) == count
        and [r.timestamp_type for r in records].count(first.timestamp_type) == count
        and _is_one_schema([r.key_schema for r in records], [r.key for r in records])
        and _is_one_schema([r.value_schema for r in records], [r.value for r in records])
    )


def _is_one_schema(schemas: list[Schema | None], values: list[Value]) -> bool:
    distinct = list({id(schema): schema for schema in schemas}.values())
    if None not in distinct:
        return all(schema == distinct[0] for schema in distinct[1:])
    return len(distinct) == 1 or (
        len(distinct) == 2
        and all(v is None for s, v in zip(schemas, values, strict=True) if s is None)
    )


_DIFFERENT = object()
_TOMBSTONE = object()
_SCHEMALESS = object()


def _identity(schema: Schema | None, value: Value) -> object:
    if schema is None:
        return _TOMBSTONE if value is None else _SCHEMALESS
    return schema


def _merge(first: object, second: object) -> object:
    """Return the value that represents both arguments, or `_DIFFERENT` if there is none.

    Tombstones fit into any run.
    """
    if first is _TOMBSTONE:
        return second
    if second is _TOMBSTONE or first is second or first == second:
        return first
    return _DIFFERENT
