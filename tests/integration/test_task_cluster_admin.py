"""Requests of tasks and offset operations to a real cluster."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, cimpl

from connect_py.api.errors import NotFoundError, RetriableError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.embedded.broker import KafkaBroker
from connect_py.kafka import cluster_admin
from connect_py.kafka.cluster_admin import ClusterAdmin, GroupNotEmptyError


@pytest.fixture
def admin(kafka_broker: KafkaBroker) -> ClusterAdmin:
    return ClusterAdmin({"bootstrap.servers": kafka_broker.bootstrap_servers})


def test_topic_is_created_once_with_its_id_and_partitions(
    admin: ClusterAdmin, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}t"
    assert admin.create_topic(topic, 3, 1)
    assert not admin.create_topic(topic, 3, 1)
    while topic not in admin.topics():  # the controller answers before the broker knows of it
        time.sleep(0.05)
    assert admin.partition_count(topic) == 3
    assert len(admin.topic_id(topic)) == 22
    assert admin.cluster_id()
    assert admin.log_range([TopicPartition(topic, 2)]) == {TopicPartition(topic, 2): (0, 0)}


def test_committed_end_offset_is_before_an_open_transaction(
    admin: ClusterAdmin, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}t"
    partition = TopicPartition(topic, 0)
    admin.create_topic(topic, 1, 1)
    producer = Producer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, "x")
    producer.commit_transaction(30)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce(topic, "y")
    assert producer.flush(30) == 0
    assert admin.log_range([partition], committed=True) == {partition: (0, 2)}
    assert admin.log_range([partition]) == {partition: (0, 7)}
    producer.commit_transaction(30)


def test_offsets_at_a_time_are_those_of_its_first_records(
    admin: ClusterAdmin, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}t"
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.create_topic(topic, 2, 1)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for timestamp in (1000, 3000, 2000, 4000):
        producer.produce(topic, "x", partition=0, timestamp=timestamp)
    assert producer.flush(30) == 0
    assert admin.offsets_at([full, empty], 2000) == {full: 1, empty: 0}
    assert admin.offsets_at([full, empty], 4001) == {full: 4, empty: 0}
    assert admin.offsets_at([], 0) == {}


def test_a_missing_topic_is_not_found(admin: ClusterAdmin, topic_prefix: str) -> None:
    with pytest.raises(NotFoundError, match="no-such-topic"):
        admin.topic_id(f"{topic_prefix}no-such-topic")
    with pytest.raises(NotFoundError):
        admin.partition_count(f"{topic_prefix}no-such-topic")


def test_group_offsets_carry_metadata_and_change_only_in_empty_groups(
    admin: ClusterAdmin, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic, group = f"{topic_prefix}t", f"{topic_prefix}g"
    admin.create_topic(topic, 2, 1)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.alter_group_offsets(
        group, {first: OffsetAndMetadata(5, "mark"), second: OffsetAndMetadata(6)}
    )
    assert admin.committed(group, [first]) == {first: OffsetAndMetadata(5, "mark")}
    assert admin.group_offsets(group) == {
        first: OffsetAndMetadata(5, "mark"),
        second: OffsetAndMetadata(6),
    }
    member = Consumer({"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": group})
    try:
        member.subscribe([topic])
        for _ in range(100):
            if member.assignment():
                break
            member.poll(0.1)
        with pytest.raises(GroupNotEmptyError):
            admin.alter_group_offsets(group, {first: OffsetAndMetadata(0)})
        with pytest.raises(GroupNotEmptyError):
            admin.delete_group(group)
        with pytest.raises(GroupNotEmptyError):
            admin.delete_group_offsets(group, [first])
    finally:
        member.close()
    admin.delete_group_offsets(group, [second])
    assert admin.group_offsets(group) == {first: OffsetAndMetadata(5, "mark")}
    with pytest.raises(NotFoundError):
        admin.delete_group_offsets(group, [TopicPartition(f"{topic_prefix}no-such-topic", 0)])
    with pytest.raises(NotFoundError):
        admin.delete_group_offsets(f"{group}-never", [first])
    assert admin.group_offsets(group) == {first: OffsetAndMetadata(5, "mark")}
    admin.delete_group(group)
    admin.delete_group(group)
    assert admin.group_offsets(group) == {}


def test_a_cluster_that_is_away_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_admin, "REQUEST_SECONDS", 0.5)
    away = ClusterAdmin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(RetriableError):
        away.cluster_id()
    with pytest.raises(RetriableError):
        away.topics()


OFFSET_FETCH = 9  # of Kafka's requests
PRODUCER = 0  # of the client library's kinds of clients


class PretendedCluster:
    """The client library's mock broker, which returns the requested errors."""

    def __init__(self, topic: str) -> None:
        self._library = ctypes.CDLL(cimpl.__file__)
        for name in ("conf_new", "new", "mock_cluster_new"):
            getattr(self._library, f"rd_kafka_{name}").restype = ctypes.c_void_p
        self._library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._library.rd_kafka_conf_set(conf, b"log_level", b"0", None, ctypes.c_size_t(0))
        self._client = ctypes.c_void_p(
            self._library.rd_kafka_new(PRODUCER, conf, None, ctypes.c_size_t(0))
        )
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._client, 1))
        self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), 1, 1)
        self.servers = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def refuse(self, request: int, *errors: int) -> None:
        """Answer the next requests of this kind with these errors, one each."""
        codes = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), codes
        )

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)


@pytest.fixture
def pretended() -> Iterator[PretendedCluster]:
    made = PretendedCluster("t")
    yield made
    made.close()


@pytest.mark.parametrize(
    "moved", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE]
)
def test_offset_request_is_retried_when_the_group_coordinator_moves(
    pretended: PretendedCluster, moved: int
) -> None:
    admin = ClusterAdmin({"bootstrap.servers": pretended.servers})
    pretended.refuse(OFFSET_FETCH, moved, moved)
    assert admin.committed("g", [TopicPartition("t", 0)]) == {}
    pretended.refuse(OFFSET_FETCH, moved)
    assert admin.group_offsets("g") == {}
