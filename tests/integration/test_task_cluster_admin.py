"""What tasks and offset requests ask a real cluster."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from connect_py.api.errors import NotFoundError, RetriableError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.embedded.broker import KafkaBroker
from connect_py.kafka import cluster_admin
from connect_py.kafka.cluster_admin import ClusterAdmin, GroupNotEmptyError


@pytest.fixture
def admin(kafka_broker: KafkaBroker) -> ClusterAdmin:
    return ClusterAdmin({"bootstrap.servers": kafka_broker.bootstrap_servers})


def test_a_topic_is_created_once_and_has_an_id_and_partitions(admin: ClusterAdmin, topic_prefix: str) -> None:
    topic = f"{topic_prefix}t"
    assert admin.create_topic(topic, 3, 1)
    assert not admin.create_topic(topic, 3, 1)
    assert admin.partition_count(topic) == 3
    assert len(admin.topic_id(topic)) == 22
    assert topic in admin.topics()
    assert admin.cluster_id()
    assert admin.log_range([TopicPartition(topic, 2)]) == {TopicPartition(topic, 2): (0, 0)}


def test_a_missing_topic_is_not_found(admin: ClusterAdmin, topic_prefix: str) -> None:
    with pytest.raises(NotFoundError, match="no-such-topic"):
        admin.topic_id(f"{topic_prefix}no-such-topic")
    with pytest.raises(NotFoundError):
        admin.partition_count(f"{topic_prefix}no-such-topic")


def test_group_offsets_carry_metadata_and_are_changed_only_while_nobody_is_in_the_group(
    admin: ClusterAdmin, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic, group = f"{topic_prefix}t", f"{topic_prefix}g"
    admin.create_topic(topic, 2, 1)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.alter_group_offsets(group, {first: OffsetAndMetadata(5, "mark"), second: OffsetAndMetadata(6)})
    assert admin.committed(group, [first]) == {first: OffsetAndMetadata(5, "mark")}
    assert admin.group_offsets(group) == {first: OffsetAndMetadata(5, "mark"), second: OffsetAndMetadata(6)}
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
