from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message

from connect_py.api.errors import ConnectError
from connect_py.task import sink_consumer
from connect_py.task.sink_consumer import SinkConsumer


class _Client:
    """A client that has these messages ready, all at once."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def poll(self, timeout: float) -> Message | None:
        return self._messages.pop(0) if self._messages else None

    def consume(self, limit: int, timeout: float) -> list[Message]:
        taken, self._messages = self._messages[:limit], self._messages[limit:]
        return taken


def _record(offset: int) -> Message:
    return Message(topic="orders", partition=0, offset=offset, value=b"x")


def _news(code: int) -> Message:
    return Message(topic="orders", partition=0, error=KafkaError(code))


def _consumer(monkeypatch: pytest.MonkeyPatch, messages: list[Message]) -> SinkConsumer:
    monkeypatch.setattr(sink_consumer, "Consumer", lambda _: _Client(messages))
    return SinkConsumer({}, listener=None, on_commit=lambda *_: None)  # type: ignore[arg-type]  # no rebalance here


def test_a_topic_that_does_not_exist_yet_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = _consumer(monkeypatch, [_news(KafkaError.UNKNOWN_TOPIC_OR_PART)])
    assert consumer.poll(100, 0) == []


def test_records_beside_news_of_the_client_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = _consumer(monkeypatch, [_record(4), _news(KafkaError._PARTITION_EOF), _record(5)])
    assert [message.offset() for message in consumer.poll(100, 0)] == [4, 5]


def test_an_error_that_the_client_cannot_survive_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = _consumer(monkeypatch, [_record(4), _news(KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(ConnectError, match="the consumer cannot go on"):
        consumer.poll(100, 0)
