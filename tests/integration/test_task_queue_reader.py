"""What a task reads in large pieces is what it reads message by message, through rebalances, pauses
and seeks."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from connect_py.api.message_run import MessageRun
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.embedded.broker import KafkaBroker
from connect_py.task.sink.queue_reader import QueueReader
from connect_py.task.sink.sink_consumer import RebalanceListener, SinkConsumer

SECONDS = 60.0
BYTES: list[bytes | None] = [None, b"", b"x", bytes(range(256)), b"long" * 40_000]
HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    None,
    [("one", b"1")],
    [("", b""), ("twice", None), ("twice", b"\0")],
    [("größe", "ß".encode())],
]


class Listener(RebalanceListener):
    """Knows the next offset of each partition it has, and sees that what is read begins there."""

    def __init__(self) -> None:
        self.next: dict[TopicPartition, int] = {}

    def on_assigned(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.next |= {tp: at.offset for tp, at in positions.items()}

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            self.next.pop(tp, None)

    on_lost = on_revoked

    def see(self, runs: list[MessageRun]) -> None:
        for run in runs:
            for origin in run.origins():
                tp = TopicPartition(origin.topic, origin.partition)
                assert origin.offset == self.next[tp], f"{tp} was to be read on at {self.next[tp]}"
                self.next[tp] += 1
            assert run.consumed() == {tp: self.next[tp] for tp in run.consumed()}


def make(
    broker: KafkaBroker, group: str, listener: RebalanceListener, **settings: object
) -> SinkConsumer:
    fixed: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "session.timeout.ms": 10_000,
        "max.poll.interval.ms": 60_000,
        "metadata.max.age.ms": 1000,
    }
    return SinkConsumer(fixed | settings, listener, lambda *_: None)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patched:
        patched.setattr(QueueReader, "settings", lambda _: {})
        yield patched


def records(
    broker: KafkaBroker, group: str, topics: list[str], count: int
) -> list[tuple[Any, ...]]:
    """All messages of topics, by place."""
    consumer = make(broker, group, Listener())
    consumer.subscribe(topics)
    found: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + SECONDS
    try:
        while len(found) < count and time.monotonic() < deadline:
            for run in consumer.poll(1000, 0.2):
                assert len(run) == len(run.keys) == len(run.values) == len(run.timestamps)
                for origin, stamp in zip(run.origins(), run.timestamps.to_pylist(), strict=True):
                    found.append((*origin, stamp, run.timestamp_type))
    finally:
        consumer.close()
    return sorted(found, key=lambda record: record[:3])


def test_large_pieces_hold_what_single_messages_hold(
    kafka_broker: KafkaBroker, topic_prefix: str, one_by_one: pytest.MonkeyPatch
) -> None:
    topics = [f"{topic_prefix}{n}" for n in range(3)]
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    kinds = [{}, {"message.timestamp.type": "LogAppendTime"}, {}]
    made = admin.create_topics(
        [NewTopic(topic, 3, 1, config=kind) for topic, kind in zip(topics, kinds, strict=True)]
    )
    for future in made.values():
        future.result(SECONDS)
    rng = random.Random(17)
    count = 600
    producers = [
        Producer(
            {
                "bootstrap.servers": kafka_broker.bootstrap_servers,
                "compression.type": codec,
                "linger.ms": 5,
            }
        )
        for codec in ("none", "lz4", "zstd")
    ]
    for number in range(count):
        topic, key, value = rng.choice(topics), rng.choice(BYTES), rng.choice(BYTES)
        producer = rng.choice(producers)
        headers: Any = rng.choice(HEADERS)
        producer.produce(
            topic,
            value,
            key,
            rng.randrange(3),
            timestamp=1_760_000_000_000 + number,
            headers=headers,
        )
    for producer in producers:
        assert producer.flush(SECONDS) == 0
    singly = records(kafka_broker, f"{topic_prefix}one", topics, count)
    one_by_one.undo()
    assert QueueReader.settings(None), "the compiled reader was not built"
    assert records(kafka_broker, f"{topic_prefix}all", topics, count) == singly
    assert len(singly) == count
    assert {bool(record[5]) for record in singly} == {True, False}, "with headers and without"


def test_deleted_topic_is_logged_and_other_topics_are_still_read(
    kafka_broker: KafkaBroker, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    going, staying = f"{topic_prefix}going", f"{topic_prefix}staying"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(going, 3, 1), NewTopic(staying, 1, 1)]).values():
        future.result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce(going, b"first", partition=1)
    producer.produce(staying, b"first")
    assert producer.flush(SECONDS) == 0
    consumer = make(
        kafka_broker, f"{topic_prefix}g", Listener(), **{"topic.metadata.propagation.max.ms": 1000}
    )
    consumer.subscribe([going, staying])

    def read(count: int) -> None:
        deadline = time.monotonic() + SECONDS
        while count > 0:
            assert time.monotonic() < deadline
            count -= sum(map(len, consumer.poll(10, 0.2)))

    try:
        read(2)
        admin.delete_topics([going])[going].result(SECONDS)
        deadline = time.monotonic() + SECONDS
        while "nknown" not in caplog.text:
            assert time.monotonic() < deadline
            consumer.poll(10, 0.2)
        producer.produce(staying, b"second")
        assert producer.flush(SECONDS) == 0
        read(1)
    finally:
        consumer.close()


def test_a_consumer_that_nobody_closed_ends_by_itself(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}t"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    consumer = make(kafka_broker, f"{topic_prefix}g", Listener())
    consumer.subscribe([topic])
    deadline = time.monotonic() + SECONDS
    while not consumer.assigned:
        assert time.monotonic() < deadline
        consumer.poll(10, 0.2)
    start = time.monotonic()
    del consumer
    gc.collect()
    assert time.monotonic() - start < SECONDS


@pytest.mark.parametrize(
    "strategy", [pytest.param("range", marks=pytest.mark.long), "cooperative-sticky"]
)
def test_rebalances_pauses_and_seeks_lose_and_double_nothing(
    strategy: str, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic, partitions, each = f"{topic_prefix}t", 6, 4000
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(SECONDS)
    producer = Producer(
        {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in range(partitions * each):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(SECONDS) == 0
    rng = random.Random(strategy)
    ends = {TopicPartition(topic, p): each for p in range(partitions)}
    members: list[tuple[SinkConsumer, Listener]] = []

    def join() -> None:
        listener = Listener()
        consumer = make(
            kafka_broker,
            f"{topic_prefix}g",
            listener,
            **{"partition.assignment.strategy": strategy},
        )
        consumer.subscribe([topic])
        members.append((consumer, listener))

    def act(consumer: SinkConsumer, listener: Listener) -> None:
        mine = sorted(consumer.assigned)
        chosen = rng.sample(mine, rng.randrange(len(mine) + 1))
        kind = rng.randrange(4)
        if kind == 0:
            consumer.pause(chosen)
        elif kind == 1:
            consumer.resume(mine)
        elif kind == 2:
            back = {tp: max(0, listener.next[tp] - rng.randrange(300)) for tp in chosen}
            listener.next |= back
            consumer.seek(back)
        else:
            consumer.commit({tp: OffsetAndMetadata(listener.next[tp], "") for tp in chosen})

    join()
    deadline = time.monotonic() + 3 * SECONDS
    rebalances, polls = 0, 0
    try:
        while True:
            assert time.monotonic() < deadline, [listener.next for _, listener in members]
            polls += 1
            owned: dict[TopicPartition, int] = {}
            for consumer, listener in members:
                listener.see(consumer.poll(rng.choice([1, 50, 500]), 0.05))
                owned |= listener.next
                if rebalances < 6 and rng.random() < 0.3:
                    act(consumer, listener)
                elif rebalances >= 6:
                    consumer.resume(sorted(consumer.assigned))
            if owned == ends and rebalances >= 6:
                break
            if polls % 25 == 0 and rebalances < 6:
                rebalances += 1
                if len(members) < 2:
                    join()
                else:
                    leaving, _ = members.pop(rng.randrange(2))
                    leaving.close()
    finally:
        for consumer, _ in members:
            consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_paused_partition_is_read_again_after_it_moved_and_returned(
    strategy: str, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}t"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for number in range(200):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(SECONDS) == 0
    settings = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200}
    group, listener = f"{topic_prefix}g", Listener()
    staying, passing = (
        make(kafka_broker, group, who, **settings) for who in (listener, Listener())
    )
    deadline = time.monotonic() + SECONDS
    try:
        staying.subscribe([topic])
        while len(staying.assigned) < 2:
            assert time.monotonic() < deadline
            listener.see(staying.poll(1, 0.05))
        staying.pause(staying.assigned)
        passing.subscribe([topic])
        while len(passing.assigned) != 1 or len(staying.assigned) != 1:
            assert time.monotonic() < deadline
            listener.see(staying.poll(1, 0.05))
            passing.poll(1, 0.05)
        staying.resume(staying.assigned)
        passing.close()
        while listener.next != {TopicPartition(topic, 0): 100, TopicPartition(topic, 1): 100}:
            assert time.monotonic() < deadline, listener.next
            listener.see(staying.poll(50, 0.05))
    finally:
        for consumer in (staying, passing):
            consumer.close()
