"""Texts that are the same in every Avro message."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from connect_py.api import arrow
from connect_py.api.errors import NotColumnar
from connect_py.converters.avro_columns import AvroColumns
from connect_py.converters.avro_schema import avro_type

SOURCE = {
    "type": "record", "name": "Source",
    "fields": [
        {"name": "version", "type": "string"}, {"name": "snapshot", "type": ["string", "null"]},
        {"name": "ts_ms", "type": "long"}, {"name": "db", "type": "string"},
        {"name": "sequence", "type": ["null", "string"]}, {"name": "xmin", "type": ["null", "long"]},
    ],
}  # fmt: skip
ENVELOPE = {
    "type": "record", "name": "Envelope",
    "fields": [{"name": "id", "type": "long"}, {"name": "source", "type": SOURCE}, {"name": "op", "type": "string"}],
}  # fmt: skip
PARSED = fastavro.parse_schema(ENVELOPE)


def event(number: int, **source: Any) -> dict[str, Any]:
    usual = {"version": "3", "snapshot": None, "ts_ms": number, "db": "shöp", "sequence": f"[{number}]", "xmin": None}
    return {"id": number, "source": usual | source, "op": "c"}


def message(value: dict[str, Any] | None) -> bytes | None:
    if value is None:
        return None
    body = io.BytesIO(b"\0\0\0\0\1")
    body.seek(5)
    fastavro.schemaless_writer(body, PARSED, value)
    return body.getvalue()


Reader = Callable[[list[dict[str, Any] | None]], None]


@pytest.fixture
def read() -> Reader:
    """Reads events with a reader that remembers, and compares."""
    avro = avro_type(json.dumps(ENVELOPE))
    columns = AvroColumns(avro)

    def read(events: list[dict[str, Any] | None]) -> None:
        data, null = columns.read([message(e) for e in events])
        assert arrow.as_logical(avro.schema, data).to_pylist() == events
        assert (None if null is None else null.to_pylist()) == (
            None if None not in events else [e is None for e in events]
        )

    return read


def test_a_text_that_changes_at_last_is_read_again(read: Reader) -> None:
    for poll in range(6):
        read([event(i) for i in range(100)])
        read([event(i, db="shöp" if i < 99 else f"other{poll}") for i in range(100)])


def test_a_text_of_the_same_length_is_not_taken_for_the_usual_one(read: Reader) -> None:
    for _ in range(4):
        read([event(i, version="3") for i in range(100)])
    read([event(i, version="4" if i == 50 else "3") for i in range(100)])


def test_a_null_is_as_constant_as_a_text(read: Reader) -> None:
    for _ in range(3):
        read([event(i, snapshot=None, sequence=None) for i in range(100)])
    read([event(i, snapshot="x" if i == 7 else None, sequence=None) for i in range(100)])


def test_null_messages_stand_between_constants(read: Reader) -> None:
    for _ in range(4):
        read([None if i % 3 == 0 else event(i) for i in range(100)])


def test_any_mixture_is_read_as_it_was_written(read: Reader) -> None:
    draw = random.Random(5)
    for _ in range(40):
        change = draw.choice([{}, {"db": "a"}, {"snapshot": "last"}, {"version": "44"}])
        rare = draw.choice([0.0, 0.0, 0.02])
        read([
            None if draw.random() < 0.1 else event(i, **(change if draw.random() < rare else {})) for i in range(80)
        ])  # fmt: skip


def test_a_message_of_another_id_is_refused() -> None:
    avro = avro_type(json.dumps(ENVELOPE))
    columns = AvroColumns(avro)
    messages = [message(event(i)) or b"" for i in range(100)]
    for _ in range(3):
        columns.read(messages)
    messages[50] = b"\0\0\0\0\2" + messages[50][5:]
    with pytest.raises(NotColumnar):
        columns.read(messages)
