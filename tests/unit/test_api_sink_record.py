"""Sink records from the fast functions are equal to records from the constructor."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from connect_py.api.record import (
    NO_HEADERS,
    NOWHERE,
    Headers,
    SinkRecord,
    TimestampType,
    sink_record,
)
from connect_py.api.schema import INT64, STRING

QUICK = sink_record(
    "orders",
    1,
    INT64,
    7,
    STRING,
    "row",
    1_760_000_000_000,
    NO_HEADERS,
    TimestampType.LOG_APPEND_TIME,
    NOWHERE,
)
CONSTRUCTED = SinkRecord(
    "orders",
    1,
    INT64,
    7,
    STRING,
    "row",
    1_760_000_000_000,
    NO_HEADERS,
    TimestampType.LOG_APPEND_TIME,
    NOWHERE,
)


def test_a_quick_record_equals_a_constructed_one() -> None:
    assert type(QUICK) is SinkRecord
    assert QUICK == CONSTRUCTED
    assert repr(QUICK) == repr(CONSTRUCTED)
    assert pickle.loads(pickle.dumps(QUICK)) == QUICK


@pytest.mark.parametrize("record", [QUICK, QUICK.replace(topic="other")])
def test_a_quick_record_does_not_change(record: SinkRecord) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.topic = "x"  # type: ignore[misc] # this is the point
    with pytest.raises(dataclasses.FrozenInstanceError):
        del record.topic


@pytest.mark.parametrize(
    "changes", [{}, {"value": None}, {"topic": "t", "headers": Headers().add("h", 1)}]
)
def test_replacing_members_gives_what_dataclasses_gives(changes: dict[str, Any]) -> None:
    assert CONSTRUCTED.replace(**changes) == dataclasses.replace(CONSTRUCTED, **changes)


def test_replacing_a_member_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(TypeError):
        QUICK.replace(kafka_offset=3)


@dataclasses.dataclass(frozen=True, slots=True)
class Marked(SinkRecord):
    """A plugin's own kind of record."""

    mark: str = ""


def test_a_record_of_a_subclass_stays_one() -> None:
    marked = Marked("orders", 1, None, None, None, 1, mark="m").replace(value=2)
    assert marked == Marked("orders", 1, None, None, None, 2, mark="m")
