"""Replayed dead-letter records: their encoding, their processing, and refused replays."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from fixtures.worker_plugins import TextColumnConverter, TextHeaderConverter
from kept_reports import Kept

from connect_py.api.dead_letter import REPLAY_HEADER, Replay, without_replay
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import RecordOrigin, SinkRecord
from connect_py.clock import SystemClock
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import ErrorHandler
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.stage import Stage
from connect_py.task.record_pipeline import Converters, RecordPipeline
from connect_py.task.sink.consumed_messages import message_runs
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.transformation_chain import TransformationChain
from connectors.iceberg.config.sink_config import validate
from connectors.iceberg_tools.dead_letters.dead_letter_record import DeadLetterRecord, Fix, latest

REPLAY = Replay("orders", 3, 17, 2)
KEY = "errors.deadletterqueue.iceberg.replay.topic"


def process(kept: Kept, *messages: Any) -> list[SinkRecord]:
    errors = ErrorHandler(
        ErrorConfig(tolerate_all=True, replay_topic="again"), [kept], SystemClock(), lambda _: None
    )
    key, value = TextColumnConverter(), TextColumnConverter()
    for converter in (key, value):
        converter.configure({}, is_key=False)
    converters = Converters(key, value, TextHeaderConverter(), "K", "V", "H")
    pipeline = RecordPipeline(converters, TransformationChain([], errors), errors, "again")
    (rows,) = pipeline.process(message_runs(list(messages)))
    assert isinstance(rows, list)
    return rows


def message(value: bytes, *headers: tuple[str, bytes], topic: str = "again") -> Any:
    return Message(
        topic=topic,
        partition=0,
        offset=5,
        key=b"k",
        value=value,
        headers=list(headers) or None,
        timestamp=(TIMESTAMP_CREATE_TIME, 99),
    )


def test_replay_converts_under_original_coordinates_and_commits_under_its_own() -> None:
    (record,) = process(Kept(), message(b"v", ("h", b"x"), REPLAY.to_header()))
    assert (record.topic, record.partition, record.kafka_offset, record.timestamp) == (
        "orders",
        3,
        17,
        99,
    )
    assert [header.key for header in record.headers] == ["h"]
    assert (record.origin.topic, record.origin.partition, record.origin.offset) == ("again", 0, 5)


def test_failed_replay_is_a_dead_letter_of_its_original_place() -> None:
    kept = Kept()
    process(kept, message(b"bad", REPLAY.to_header()), message(b"v"))
    (failed,) = kept.reports
    assert failed.location() == "topic 'orders' partition 3 at offset 17"
    assert failed.replay == REPLAY
    shown = failed.original()
    assert shown is not None
    assert shown.headers == []
    assert failed.origin is not None
    assert failed.origin.topic == "again"


def test_foreign_record_in_replay_topic_keeps_its_own_coordinates() -> None:
    (record,) = process(Kept(), message(b"v", (REPLAY_HEADER, b"{ no json")))
    assert (record.topic, record.kafka_offset) == ("again", 5)


def test_the_header_says_nothing_of_a_record_of_another_topic() -> None:
    kept = Kept()
    process(kept, message(b"bad", REPLAY.to_header(), topic="mine"), message(b"v"))
    (failed,) = kept.reports
    assert (failed.replay, failed.location()) == (None, "topic 'mine' partition 0 at offset 5")
    shown = failed.original()
    assert shown is not None
    assert shown.headers == [REPLAY.to_header()]


def test_the_header_survives_the_way_and_leaves_the_others_alone() -> None:
    headers = [("a", b"1"), REPLAY.to_header(), ("a", None)]
    assert Replay.of(headers) == REPLAY
    assert without_replay(headers) == [("a", b"1"), ("a", None)]
    assert Replay.of([("a", b"1")]) is None


def test_the_topic_is_consumed_beside_those_of_the_connector() -> None:
    assert TopicSelection({"topics": "a,b", KEY: "again"}).listed() == ["a", "b", "again"]
    by_expression = TopicSelection({"topics.regex": "a.*", KEY: "replay"})
    assert by_expression.is_regex
    assert by_expression.among(["a1", "b", "replay"]) == ["a1", "replay"]


@pytest.mark.parametrize(
    ("props", "problem"),
    [
        ({KEY: "again"}, "has no effect without"),
        (
            {"errors.deadletterqueue.iceberg.table": "db.dead", KEY: "orders"},
            "one of the connector's topics",
        ),
    ],
)
def test_a_replay_topic_that_cannot_be_is_refused(props: dict[str, str], problem: str) -> None:
    base = {
        "name": "c",
        "topics": "orders",
        "iceberg.catalog.type": "jdbc",
        "iceberg.tables": "db.orders",
    }
    assert any(problem in error for error in validate(base | props)[KEY].errors)


def letter(offset: int, attempt: int = 0, value: bytes | None = b"\xff") -> DeadLetterRecord:
    row = {
        "topic": "orders",
        "partition": 3,
        "offset": offset,
        "attempt": attempt,
        "key": b"k",
        "value": value,
        "timestamp": datetime.fromtimestamp(1.5, UTC),
        "headers": [{"key": "h", "value": b"x"}],
        "_dlq_reason": "value_converter",
        "stage": "VALUE_CONVERTER",
        "error_message": "unreadable",
    }
    return DeadLetterRecord.of(row)


def test_dead_letter_json_has_readable_bytes_and_reads_back_unchanged() -> None:
    shown = letter(17).to_json()
    assert (shown["key"], shown["value"]) == ({"text": "k"}, {"base64": "/w=="})
    assert (shown["timestamp"], shown["stage"], shown["headers"]) == (
        1500,
        "VALUE_CONVERTER",
        [["h", {"text": "x"}]],
    )
    fix = Fix.of(shown)
    assert fix.record_id == ("orders", 3, 17)
    assert fix.changes == {"key": b"k", "value": b"\xff", "headers": [("h", b"x")]}


def test_fix_changes_only_named_fields_and_accepts_null() -> None:
    assert Fix.of({"topic": "t", "partition": 0, "offset": 1, "value": None}).changes == {
        "value": None
    }
    with pytest.raises(ConfigError, match="invalid fixed record"):
        Fix.of({"topic": "t", "partition": 0, "offset": 1, "value": "text"})


def test_of_a_record_that_failed_again_the_last_letter_counts() -> None:
    found = latest([letter(2), letter(1), letter(1, attempt=1), letter(1, attempt=2)])
    assert [(x.offset, x.attempt) for x in found] == [(1, 2), (2, 0)]
    assert found[0].next_replay() == Replay("orders", 3, 1, 3)


def test_error_raised_in_put_has_the_reason_sink() -> None:
    origin = RecordOrigin("orders", 0, 1)
    assert FailedRecord(Stage.TASK_PUT, "T", DataError("x"), origin).reason.value == "sink"
    assert FailedRecord(Stage.TASK_PUT, "T", ValueError("x"), origin).reason.value == "sink"
    assert (
        FailedRecord(Stage.HEADER_CONVERTER, "H", DataError("x"), origin).reason.value
        == "header_converter"
    )
