"""Topics that connectors used, on a real broker: forgotten by one worker, seen again by another."""

from __future__ import annotations

from connect_py.config.worker_config import StorageTopic
from connect_py.embedded.broker import KafkaBroker
from connect_py.model import ConnectorTaskId
from connect_py.storage.kafka_based_log import KafkaLogs
from connect_py.storage.status_store import StatusStore
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.topic_admin import TopicAdmin

SECONDS = 20.0
TASK = ConnectorTaskId("a", 0)


def test_topic_reset_by_another_worker_is_recorded_on_next_use(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    clients = StorageClients({"bootstrap.servers": kafka_broker.bootstrap_servers}, topic_prefix)
    name = f"{topic_prefix}status"
    TopicAdmin(clients.admin()).ensure(
        StorageTopic(name, "status.storage.topic", 2, 1, {"cleanup.policy": "compact"})
    )
    runs, asked = StatusStore(name, KafkaLogs(clients)), StatusStore(name, KafkaLogs(clients))
    for store in (runs, asked):
        store.start()
    try:
        for _ in range(2):
            runs.put_topic(TASK, "orders")
            runs.put_topic(TASK, "orders")  # written once
            runs.flush(SECONDS)
            for store in (asked, runs):
                store.refresh(SECONDS)
                assert [status.topic for status in store.topics("a")] == ["orders"]
            asked.delete_topics("a")
            asked.flush(SECONDS)
            for store in (asked, runs):
                store.refresh(SECONDS)
                assert store.topics("a") == []
    finally:
        for store in (runs, asked):
            store.stop()
