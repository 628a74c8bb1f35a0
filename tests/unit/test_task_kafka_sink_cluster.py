from __future__ import annotations

import pytest

from connect_py.kafka.client_config import ClientConfigs
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.task.sink.kafka_sink_cluster import KafkaSinkCluster
from connect_py.task.topic_selection import TopicSelection

REPLAYS = {"errors.deadletterqueue.iceberg.replay.topic": "replays"}


@pytest.mark.parametrize(
    ("config", "level"),
    [
        ({}, "read_uncommitted"),
        ({"consumer.override.isolation.level": "read_committed"}, "read_committed"),
        (REPLAYS | {"consumer.override.isolation.level": "read_uncommitted"}, "read_committed"),
    ],
)
def test_a_plugin_is_told_how_its_task_reads_transactions(
    config: dict[str, str], level: str
) -> None:
    props = {"topics": "t", **config}
    clients = ClientConfigs({"bootstrap.servers": "b:1"}, props, "c")
    cluster = KafkaSinkCluster("c", 1, clients, ClusterAdmin({}), TopicSelection(props))
    assert cluster.client_config("consumer")["isolation.level"] == level
