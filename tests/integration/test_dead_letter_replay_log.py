"""The replay topic: each record is written once per attempt, even if processes are killed between
steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from connect_py.api.dead_letter import Replay
from connect_py.api.errors import ConnectError
from connect_py.embedded.broker import KafkaBroker
from connectors.iceberg.protocol import faults
from connectors.iceberg_tools.dead_letters.dead_letter_record import DeadLetterRecord
from connectors.iceberg_tools.dead_letters.replay_log import ReplayLog

READ_SECONDS = 30.0


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.read_environment_again()


def letter(offset: int, attempt: int = 0) -> DeadLetterRecord:
    return DeadLetterRecord(
        "orders",
        0,
        offset,
        attempt,
        1_000 + offset,
        b"k",
        b"v",
        [("h", b"x")],
        "value_converter",
        {},
    )


def open_log(broker: KafkaBroker, prefix: str) -> ReplayLog:
    return ReplayLog(
        {"bootstrap.servers": broker.bootstrap_servers}, f"{prefix}again", f"{prefix}sink"
    ).open()


def visible(broker: KafkaBroker, prefix: str) -> list[Message]:
    """Return the records that a connector reads."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(f"{prefix}again", 0, 0)])
        while True:
            message = consumer.poll(READ_SECONDS)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return found
            found.append(message)
    finally:
        consumer.close()


def test_replayed_record_keeps_bytes_timestamp_and_origin_and_appears_once(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    assert open_log(kafka_broker, topic_prefix).write([letter(1), letter(2)]) == 2
    assert open_log(kafka_broker, topic_prefix).write([letter(1), letter(2), letter(3)]) == 1
    # it failed again
    assert open_log(kafka_broker, topic_prefix).write([letter(1, attempt=1)]) == 1
    messages = visible(kafka_broker, topic_prefix)
    replays = [Replay.of(m.headers()) for m in messages]  # type: ignore[arg-type] # a list of pairs
    assert replays == [Replay("orders", 0, *place) for place in ((1, 1), (2, 1), (3, 1), (1, 2))]
    first = messages[0]
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", b"v", 1_001)
    assert (first.headers() or [])[0] == ("h", b"x")


@pytest.mark.parametrize(
    ("point", "left"), [("before_replay_commit", 0), ("after_replay_commit", 2)]
)
def test_replay_writes_all_or_nothing_and_the_next_completes_it(
    point: str,
    left: int,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(faults.SPEC_VARIABLE, f"{point}=raise")
    faults.read_environment_again()
    dead = open_log(kafka_broker, topic_prefix)
    with pytest.raises(faults.FaultInjected):
        dead.write([letter(1), letter(2)])
    monkeypatch.delenv(faults.SPEC_VARIABLE)
    faults.read_environment_again()
    assert open_log(kafka_broker, topic_prefix).write([letter(1), letter(2)]) == 2 - left
    assert len(visible(kafka_broker, topic_prefix)) == 2


def test_a_replay_that_another_one_overtook_writes_nothing(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    slow = open_log(kafka_broker, topic_prefix)
    assert slow.written() == set()
    assert open_log(kafka_broker, topic_prefix).write([letter(1)]) == 1
    with pytest.raises(ConnectError, match=r"replay again to find out|cannot be written"):
        slow._commit([letter(1)])
    assert len(visible(kafka_broker, topic_prefix)) == 1


def test_reading_replay_log_creates_no_topic_and_fences_no_replay(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    settings = {"bootstrap.servers": kafka_broker.bootstrap_servers}
    look = ReplayLog(settings, f"{topic_prefix}again", f"{topic_prefix}sink")
    assert look.written() == set()
    assert (
        f"{topic_prefix}again" not in AdminClient(settings).list_topics(timeout=READ_SECONDS).topics
    )
    replaying = open_log(kafka_broker, topic_prefix)
    assert look.written() == set()
    assert replaying.write([letter(1)]) == 1
    assert look.written() == {Replay("orders", 0, 1, 1)}
