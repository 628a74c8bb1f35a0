from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException

from connect_py.api.errors import ConnectError, DataError
from connect_py.api.record import RecordOrigin
from connect_py.error_handling.dead_letter_queue import DeadLetterQueue
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.stage import Stage
from connect_py.model import ConnectorTaskId
from connect_py.testing import FakeClock


class Refused:
    def str(self) -> str:
        return "no such luck"


class FakeProducer:
    """Acknowledges records on request; its queue has room for two."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.waiting: list[Any] = []
        self.errors: list[Any] = []
        self.acknowledging = False
        self.takes = True
        self.polls: list[float] = []
        self.clock = FakeClock()

    def produce(self, topic: str, **message: Any) -> None:
        if len(self.waiting) == 2:
            raise BufferError
        if not self.takes:
            raise KafkaException(Refused())
        self.sent.append({"topic": topic, **message})
        self.waiting.append(message["on_delivery"])

    def poll(self, timeout: float) -> None:
        self.polls.append(timeout)
        self.clock.now += timeout
        if self.acknowledging or timeout:
            for delivered in self.waiting if self.acknowledging else self.waiting[:1]:
                delivered(self.errors.pop() if self.errors else None, None)
            self.waiting = [] if self.acknowledging else self.waiting[1:]


def failed(offset: int) -> FailedRecord:
    origin = RecordOrigin("orders", 2, offset, b"k", None, (("h", b"x"), ("h", None)))
    return FailedRecord(Stage.TRANSFORMATION, "org.x.Smt", DataError(""), origin, 123)


def queue(producer: FakeProducer, *, headers: bool = False) -> DeadLetterQueue:
    config = ErrorConfig(dead_letter_topic="dlq", dead_letter_headers=headers)
    return DeadLetterQueue(ConnectorTaskId("c", 4), config, producer, producer.clock)  # type: ignore[arg-type] # a fake


def test_dead_letter_is_sent_as_consumed_without_choosing_a_partition() -> None:
    producer = FakeProducer()
    queue(producer).report(failed(7))
    (sent,) = producer.sent
    del sent["on_delivery"]
    assert sent == {
        "topic": "dlq",
        "key": b"k",
        "value": None,
        "timestamp": 123,
        "headers": [("h", b"x"), ("h", None)],
    }


def test_record_that_fails_again_makes_no_second_dead_letter() -> None:
    producer = FakeProducer()
    producer.acknowledging = True
    dead_letters = queue(producer)
    for offset in (7, 8, 7, 8, 9):
        dead_letters.report(failed(offset))
    assert len(producer.sent) == 3
    assert dead_letters.produced == 3


def test_context_headers_follow_original_headers_and_empty_message_is_null() -> None:
    producer = FakeProducer()
    queue(producer, headers=True).report(failed(7))
    headers = producer.sent[0]["headers"]
    assert headers[:2] == [("h", b"x"), ("h", None)]
    told = dict(headers[2:])
    assert told["__connect.errors.offset"] == b"7"
    assert told["__connect.errors.task.id"] == b"4"
    assert told["__connect.errors.exception.message"] is None
    assert list(told)[-1] == "__connect.errors.exception.stacktrace"


def test_flush_waits_for_acknowledgements_and_reports_a_timeout() -> None:
    producer = FakeProducer()
    letters = queue(producer)
    letters.report(failed(1))
    letters.report(failed(2))
    assert letters.pending() == 2
    producer.acknowledging = True
    assert letters.flush(5.0)
    assert letters.pending() == 0
    producer.acknowledging = False
    letters.report(failed(3))
    assert not letters.flush(0.0)


def test_a_full_local_queue_makes_room_by_deliveries() -> None:
    producer = FakeProducer()
    letters = queue(producer)
    for offset in range(4):
        letters.report(failed(offset))
    assert len(producer.sent) == 4


def test_record_refused_by_producer_fails_task_naming_dead_letter_topic() -> None:
    producer = FakeProducer()
    producer.takes = False
    letters = queue(producer)
    with pytest.raises(
        ConnectError, match="failed to write a record to dead-letter topic 'dlq': no such luck"
    ):
        letters.report(failed(1))
    assert letters.failures == 1
    with pytest.raises(ConnectError, match="dlq"):
        letters.flush(1.0)


def test_a_refused_record_fails_the_next_flush_for_good() -> None:
    producer = FakeProducer()
    producer.errors = [Refused()]
    letters = queue(producer)
    letters.report(failed(1))
    producer.acknowledging = True
    for _ in range(2):
        with pytest.raises(ConnectError, match="dead-letter topic 'dlq': no such luck"):
            letters.flush(1.0)
