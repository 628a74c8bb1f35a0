"""A group's state in Kafka is lost, except its source topics: recreated connectors resume
exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka_offsets import committed
from sink_case import KAFKA_SECONDS, case_on_own_worker

from connect_py.embedded.broker import KafkaBroker

MERGE = {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("extra", [{}, MERGE], ids=["append", "upsert"])
def test_connector_created_again_without_internal_topics_continues_exactly(
    extra: Mapping[str, str],
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    spark_environment: dict[str, str],
) -> None:
    servers = kafka_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    with case_on_own_worker(tmp_path, servers, topic_prefix, {}, extra) as case:
        case.start()
        case.produce_ids(range(100))
        case.assert_complete(range(100))
        assert case.worker.stop() == 0
        group = case.worker.group
        lost = [
            topic
            for topic in admin.list_topics(timeout=KAFKA_SECONDS).topics
            if topic.startswith(f"{group}-")
        ]
        assert {f"{group}-{kind}" for kind in ("config", "status", "offset", "control")} <= set(
            lost
        )
        lost.append(f"control-iceberg-connect-{case.name}")
        deleted = {
            **admin.delete_topics(lost),
            **admin.delete_consumer_groups([f"connect-{case.name}"]),
        }
        for future in deleted.values():
            future.result(KAFKA_SECONDS)
        assert committed(servers, f"connect-{case.name}", case.name) == {}
        case.produce_ids(range(100, 200))
        case.worker.start()
        assert case.worker.get("/connectors") == []
        case.start()
        case.assert_complete(range(200))
