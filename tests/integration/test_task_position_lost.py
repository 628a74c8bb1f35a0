"""A consumer whose position retention has removed: it asks the task, and else goes where
`auto.offset.reset` says."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.embedded.broker import KafkaBroker
from connect_py.task.sink.sink_consumer import RebalanceListener, SinkConsumer

SECONDS = 30.0


class Listener(RebalanceListener):
    """Takes whatever position was committed; deals with lost ones if it is told to."""

    def __init__(self, deals: bool) -> None:
        self.deals = deals
        self.lost: list[TopicPartition] = []

    def on_position_lost(self, partition: TopicPartition) -> bool:
        self.lost.append(partition)
        return self.deals


@pytest.fixture
def topic(kafka_broker: KafkaBroker, topic_prefix: str) -> str:
    """Ten records of which the first six were removed."""
    name = f"{topic_prefix}orders"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for number in range(10):
        producer.produce(name, f"{number}")
    producer.flush(SECONDS)
    removed = ClientTopicPartition(name, 0, 6)
    admin.delete_records([removed])[removed].result(SECONDS)
    return name


def make(
    broker: KafkaBroker, topic: str, listener: Listener, reset: str, strategy: str = "range"
) -> SinkConsumer:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"{topic}-g",
        "enable.auto.commit": False,
        "auto.offset.reset": reset,
        "partition.assignment.strategy": strategy,
        "isolation.level": "read_committed",
    }
    consumer = SinkConsumer(settings, listener, lambda *_: None)
    consumer.subscribe([topic])
    return consumer


def read(consumer: SinkConsumer, count: int) -> list[int]:
    offsets: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(offsets) < count and time.monotonic() < deadline:
        offsets += [offset for run in consumer.poll(100, 0.2) for offset in run.offsets.to_pylist()]
    return offsets


def test_lost_position_follows_auto_offset_reset_unless_task_handles_it(
    kafka_broker: KafkaBroker, topic: str
) -> None:
    listener = Listener(deals=False)
    consumer = make(kafka_broker, topic, listener, "earliest")
    try:
        assert read(consumer, 4) == [6, 7, 8, 9]
        consumer.seek({TopicPartition(topic, 0): 2})
        assert read(consumer, 4) == [6, 7, 8, 9]
        assert listener.lost == [TopicPartition(topic, 0)]
    finally:
        consumer.close()


def test_client_error_from_before_a_seek_leaves_new_position_unchanged(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    name = f"{topic_prefix}orders"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for number in range(200):
        producer.produce(name, f"{number}", partition=number % 2)
    producer.flush(SECONDS)
    partitions = [TopicPartition(name, number) for number in range(2)]
    listener = Listener(deals=False)
    consumer = make(kafka_broker, name, listener, "latest")
    try:
        deadline = time.monotonic() + SECONDS
        while len(consumer.assigned) < 2:
            assert time.monotonic() < deadline
            consumer.poll(1, 0.1)
        consumer.seek(dict.fromkeys(partitions, 0))
        assert len(read(consumer, 200)) == 200
        consumer.seek(dict.fromkeys(partitions, 500))
        # the client hears of both meanwhile; where it does not, nothing waits to be misunderstood
        time.sleep(2)
        consumer.poll(1, 0.1)  # tells of one of them
        consumer.seek(dict.fromkeys(partitions, 50))
        assert sorted(read(consumer, 100)) == sorted([*range(50, 100)] * 2)
        assert listener.lost == []
    finally:
        consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_task_that_handles_lost_position_seeks_to_next_offset(
    strategy: str, kafka_broker: KafkaBroker, topic: str
) -> None:
    listener = Listener(deals=True)
    consumer = make(kafka_broker, topic, listener, "earliest", strategy)
    try:
        assert read(consumer, 4) == [6, 7, 8, 9]
        consumer.seek({TopicPartition(topic, 0): 2})
        deadline = time.monotonic() + SECONDS
        while not listener.lost:
            assert time.monotonic() < deadline
            assert consumer.poll(100, 0.2) == []
        assert consumer.poll(100, 1.0) == []
        consumer.seek({TopicPartition(topic, 0): 8})
        assert read(consumer, 2) == [8, 9]
    finally:
        consumer.close()


def test_lost_position_without_auto_offset_reset_is_an_error(
    kafka_broker: KafkaBroker, topic: str
) -> None:
    listener = Listener(deals=False)
    first = make(kafka_broker, topic, listener, "earliest")
    read(first, 4)
    assert first.commit_and_wait({TopicPartition(topic, 0): OffsetAndMetadata(2, "")}) is None
    first.close()
    consumer = make(kafka_broker, topic, listener, "error")
    try:
        with pytest.raises(
            ConnectError, match=r"cannot resume reading .*, and auto\.offset\.reset is none"
        ):
            read(consumer, 1)
    finally:
        consumer.close()


def test_position_survives_when_retention_removes_a_transaction_marker(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    name = f"{topic_prefix}orders"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS)
    producer = Producer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": name}
    )
    producer.init_transactions(SECONDS)
    partition, listener = TopicPartition(name, 0), Listener(deals=True)
    consumer = make(kafka_broker, name, listener, "earliest")
    try:
        for finish in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce(name, "x")
            producer.flush(SECONDS)  # else there is nothing to abort
            finish(SECONDS)
        offsets: list[int] = []
        reached = 0
        deadline = time.monotonic() + SECONDS
        while reached < 4:
            assert time.monotonic() < deadline
            offsets += [
                offset for run in consumer.poll(100, 0.2) for offset in run.offsets.to_pylist()
            ]
            reached = consumer.ends().get(partition, reached)
        assert (offsets, reached) == ([0], 4)
        assert consumer.commit_and_wait({partition: OffsetAndMetadata(reached, "")}) is None
    finally:
        consumer.close()
    removed = ClientTopicPartition(name, 0, 4)
    admin.delete_records([removed])[removed].result(SECONDS)
    later = make(kafka_broker, name, listener, "earliest")
    try:
        producer.begin_transaction()
        producer.produce(name, "x")
        producer.commit_transaction(SECONDS)
        assert read(later, 1) == [4]
        assert listener.lost == []
    finally:
        later.close()
