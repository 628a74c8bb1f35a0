"""Alerts about workers, connectors and their records, on a real Prometheus: each fires by its
cause, and then ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from fixtures.worker_group import GroupUnderTest
from prometheus_server import Prometheus, prometheus

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
SECONDS = 60.0
JSON = "org.apache.kafka.connect.json.JsonConverter"
PLUGIN = "needs_a_file"
TABLE = f"""
from connect_py.api.plugin import Plugin, PluginKind
PLUGINS = [Plugin(PluginKind.SOURCE, "test.NeedsAFile", "{PLUGIN}.connector:NeedsAFile")]
"""
CODE = '''
from pathlib import Path

from connect_py.api.config import ConfigDef, Type
from connect_py.api.connector import SourceConnector
from connect_py.api.task import SourceTask


class NeedsAFile(SourceConnector):
    """Starts only where its file is, and has no tasks."""

    task_class = SourceTask
    config_def = ConfigDef().define("file", Type.STRING, doc="F.")

    def start(self, props):
        Path(props["file"]).read_text()

    def task_configs(self, max_tasks):
        return []

    def stop(self):
        pass
'''


def make_plugin(folder: Path) -> None:
    code = folder / "file" / PLUGIN
    code.mkdir(parents=True)
    (code / "__init__.py").write_text(TABLE)
    (code / "connector.py").write_text(CODE)
    metadata = folder / "file" / f"{PLUGIN}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[connect_py.plugins]\nfile = {PLUGIN}\n")


@dataclass
class Watched:
    """Two workers, and a Prometheus that scrapes both. The first worker reaches Kafka by a line
    that can be cut."""

    group: GroupUnderTest
    prometheus: Prometheus
    folder: Path

    @property
    def url(self) -> str:
        return self.group.workers[1].url

    def put(self, name: str, **config: str) -> None:
        keys = {key.replace("__", "."): value for key, value in config.items()}
        self.group.asked(
            lambda: httpx.put(f"{self.url}/connectors/{name}/config", json=keys, timeout=100)
        )

    def restart(self, name: str) -> None:
        self.group.asked(
            lambda: httpx.post(
                f"{self.url}/connectors/{name}/restart?includeTasks=true&onlyFailed=true",
                timeout=100,
            )
        )

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.group.broker.bootstrap_servers})

    def create_topic(self, name: str, **config: str) -> None:
        admin = self.admin()  # its responses arrive only while it exists
        admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)

    def produce(self, topic: str, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.group.broker.bootstrap_servers})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(30) == 0

    def sink(self, name: str, **config: str) -> None:
        """A FileStreamSink of JSON from the topic of its name."""
        self.put(
            name,
            connector__class="FileStreamSink",
            topics=name,
            file=str(self.folder / name),
            value__converter=JSON,
            value__converter__schemas__enable="false",
            **config,
        )


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with GroupUnderTest(
        tmp_path, "alerts-", workers=2, **{"scheduled.rebalance.max.delay.ms": "0"}
    ) as group:
        make_plugin(tmp_path / "plugins")
        with prometheus(tmp_path / "prometheus", [group.url_of(0), group.url_of(1)]) as server:
            yield Watched(group, server, tmp_path)


def start(watched: Watched) -> None:
    watched.group.start()
    for worker in watched.group.workers:
        worker.wait_until(worker.healthy, SECONDS, "the worker to be healthy")


def test_alerts_about_workers_fire_and_end_with_their_causes(watched: Watched) -> None:
    server, group = watched.prometheus, watched.group
    server.await_firing("ConnectPyNoWorkers", SECONDS)
    server.await_firing("ConnectPyWorkerDown", SECONDS, instance=group.url_of(1))
    start(watched)
    server.await_end("ConnectPyNoWorkers", SECONDS)
    server.await_end("ConnectPyWorkerDown", SECONDS)
    group.kill(1)
    server.await_firing("ConnectPyWorkerDown", SECONDS, instance=group.url_of(1))
    group.start([1])
    server.await_end("ConnectPyWorkerDown", SECONDS)
    group.cut.cut()
    server.await_firing("ConnectPyRebalancing", SECONDS, instance=group.url_of(0))
    assert server.firing("ConnectPyRebalancing", {"instance": group.url_of(1)}) == []
    group.cut.mend()
    server.await_end("ConnectPyRebalancing", SECONDS)


def test_alerts_about_connectors_and_records_fire_and_end(watched: Watched) -> None:
    server = watched.prometheus
    start(watched)
    needed = watched.folder / "needed"
    watched.put("needs-a-file", connector__class="test.NeedsAFile", file=str(needed))
    server.await_firing("ConnectPyConnectorFailed", SECONDS, connector="needs-a-file")
    needed.touch()
    watched.restart("needs-a-file")
    server.await_end("ConnectPyConnectorFailed", SECONDS)

    watched.create_topic("bad")
    watched.produce("bad", b'{"id": 1}', b"no JSON")
    watched.sink("bad")
    server.await_firing("ConnectPyTaskFailed", SECONDS, connector="bad")
    letters = {"errors__deadletterqueue__topic__name": "bad-dlq"}
    letters["errors__deadletterqueue__topic__replication__factor"] = "1"
    watched.sink("bad", errors__tolerance="all", **letters)
    server.await_end("ConnectPyTaskFailed", SECONDS)
    server.await_firing(
        "ConnectPyDeadLetters", SECONDS, connector="bad", topic="bad", reason="value_converter"
    )
    server.await_end("ConnectPyDeadLetters", SECONDS)


def test_alert_about_dead_letters_without_place_fires_and_ends(watched: Watched) -> None:
    server = watched.prometheus
    start(watched)
    watched.create_topic("large")
    watched.create_topic("large-dlq", **{"max.message.bytes": "2000"})
    watched.sink("large", errors__tolerance="all", errors__deadletterqueue__topic__name="large-dlq")
    watched.produce("large", b'{"id": 1}')
    path = watched.folder / "large"
    watched.group.workers[1].wait_until(
        lambda: path.exists() and path.stat().st_size > 0, SECONDS, "the first record"
    )
    watched.produce("large", b"no JSON" * 1_000)
    # a dead letter is never lost
    server.await_firing("ConnectPyTaskFailed", SECONDS, connector="large")
    entry = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "large-dlq", incremental_configs=[entry])
    admin = watched.admin()
    admin.incremental_alter_configs([resource])[resource].result(30)
    watched.restart("large")
    server.await_end("ConnectPyTaskFailed", SECONDS)
    server.await_firing("ConnectPyDeadLetters", SECONDS, connector="large")
