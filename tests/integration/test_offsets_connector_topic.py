"""Offset topics of connectors' own, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from connect_py.config.worker_config import StorageTopic
from connect_py.embedded.broker import KafkaBroker
from connect_py.storage.connector_offset_store import ConnectorOffsetStores
from connect_py.storage.kafka_based_log import KafkaLogs
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.topic_admin import TopicAdmin

SECONDS = 20.0
A, B = {"file": "a"}, {"file": "b"}


@pytest.fixture
def clients(kafka_broker: KafkaBroker, topic_prefix: str) -> StorageClients:
    return StorageClients({"bootstrap.servers": kafka_broker.bootstrap_servers}, topic_prefix)


@pytest.fixture
def shared_topic(topic_prefix: str) -> StorageTopic:
    return StorageTopic(
        f"{topic_prefix}shared", "offset.storage.topic", 2, 1, {"cleanup.policy": "compact"}
    )


@pytest.fixture
def shared(clients: StorageClients, shared_topic: StorageTopic) -> Iterator[OffsetStore]:
    TopicAdmin(clients.admin()).ensure(shared_topic)
    store = OffsetStore(shared_topic.name, KafkaLogs(clients))
    store.start()
    store.refresh(SECONDS)
    yield store
    store.stop()


@pytest.fixture
def stores(
    kafka_broker: KafkaBroker, shared: OffsetStore, shared_topic: StorageTopic
) -> ConnectorOffsetStores:
    props = {"bootstrap.servers": kafka_broker.bootstrap_servers}
    return ConnectorOffsetStores(shared, props, shared_topic)


def test_own_offsets_topic_of_connector_wins_over_worker_topic(
    stores: ConnectorOffsetStores, shared: OffsetStore, clients: StorageClients, topic_prefix: str
) -> None:
    own = {"offsets.storage.topic": f"{topic_prefix}own"}
    shared.set("c", [(A, {"at": 1}), (B, {"at": 2})]).result(SECONDS)
    with stores.open("c", own, SECONDS) as store:
        assert store.is_own
        assert store.topic == f"{topic_prefix}own"
        assert store.get(A) == {"at": 1}
        store.set([(A, {"at": 10})])
        assert store.get(A) == {"at": 10}
    admin, made = clients.admin(), ConfigResource(ResourceType.TOPIC, f"{topic_prefix}own")
    assert admin.describe_configs([made])[made].result()["cleanup.policy"].value == "compact"
    with stores.open("c", own, SECONDS) as store:  # read again from the beginning
        assert sorted(store.offsets(), key=str) == [(A, {"at": 10}), (B, {"at": 2})]
        shared.refresh(SECONDS)
        # followed, for the day when the topic is configured no more
        assert shared.get("c", A) == {"at": 10}
        store.set([(A, None), (B, None)])
        assert store.offsets() == []
    assert shared.offsets("c") == []


def test_connector_without_own_offsets_topic_shares_the_worker_topic(
    stores: ConnectorOffsetStores, shared: OffsetStore, shared_topic: StorageTopic
) -> None:
    for config in ({}, {"offsets.storage.topic": shared_topic.name}):
        with stores.open("d", config, SECONDS) as store:
            assert not store.is_own
            store.set([(A, {"at": 5})])
    assert shared.offsets("d") == [(A, {"at": 5})]


def test_records_for_a_transaction_carry_the_key_seen_last(
    stores: ConnectorOffsetStores, shared: OffsetStore, clients: StorageClients, topic_prefix: str
) -> None:
    own = f"{topic_prefix}own"
    with stores.open("e", {"offsets.storage.topic": own}, SECONDS) as store:
        producer = clients.producer("java")
        # the order of another worker's map
        producer.produce(own, b'{"at":1}', b'["e",{"zz":1,"aa":2}]')
        producer.flush(SECONDS)
        store.refresh(SECONDS)
        assert store.records([({"aa": 2, "zz": 1}, {"at": 3})]) == [
            (b'["e",{"zz":1,"aa":2}]', b'{"at":3}')
        ]
        written = []
        store.set([({"aa": 2, "zz": 1}, None)], written.extend)
        assert written == [(b'["e",{"zz":1,"aa":2}]', None)]
    reader = Consumer(clients.consumer_settings("check", read_committed=True))
    reader.assign([ClientTopicPartition(shared.topic, p, 0) for p in (0, 1)])
    keys = [
        m.key()
        for m in reader.consume(10, 3.0)
        if m.error() is None and (m.key() or b"").startswith(b'["e"')
    ]
    reader.close()
    assert len(keys) == 1  # the reset was written to the worker's topic first
