"""`connect-py load`: topics of a real broker, read and staged by Spark, as tasks of the connector would have it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fixtures.iceberg_commit import Lake, LocalLake, activate, lake
from kafka_offsets import committed
from topic_reader import read_topic
from typer.testing import CliRunner

from connect_py.api.command import provide_sink_hosts
from connect_py.embedded.broker import KafkaBroker
from connect_py.worker.sink_host import CommandSinkHost
from connectors.iceberg.commands.load import load
from connectors.iceberg.coordinator import table_manager
from connectors.iceberg.load import load as load_module

__all__ = ["lake"]

JSON = "org.apache.kafka.connect.json.JsonConverter"
UNWRAP = "org.apache.iceberg.connect.transforms.DebeziumTransform"
NAMES = ("id", "name")


class SharedLake(LocalLake):
    """A `LakeClient` for several threads, which take turns."""

    lock = threading.Lock()

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(current[0].catalog)

    def __enter__(self) -> SharedLake:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    def request(self) -> None:
        return

    def commit(self, request: Any) -> Any:
        with self.lock:
            activate(self._session.spark)
            return self._session.engine.commit(request)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._session, name)

        def call(*args: Any, **named: Any) -> Any:
            with self.lock:
                activate(self._session.spark)
                return method(*args, **named)

        return call


current: list[Lake] = []


class Shop:
    """A topic of change events in two partitions, a connector, and the command."""

    def __init__(self, broker: KafkaBroker, folder: Path, prefix: str) -> None:
        self.servers, self.topic, self.name = broker.bootstrap_servers, f"{prefix}users", f"{prefix}sink"
        self.table = f"shop.{self.topic.replace('-', '_')}"
        self._file = folder / "sink.json"
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result(30)

    def change(self, op: str, key: int, value: str | None, **more: Any) -> None:
        """One event of Debezium's."""
        row = {"id": key, "name": value, **more}
        source = {"db": "shop", "table": "users", "ts_ms": 1}
        before, after = (None if op == "c" else row), (None if op == "d" else row)
        event = {"op": op, "before": before, "after": after, "source": source, "ts_ms": 1}
        self.produce(json.dumps({"id": key}).encode(), json.dumps(event).encode(), key % 2)

    def produce(self, key: bytes, value: bytes, partition: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        producer.produce(self.topic, value, key, partition)
        assert producer.flush(30) == 0

    def config(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector", "topics": self.topic,
            "key.converter": JSON, "key.converter.schemas.enable": "false", "value.converter": JSON,
            "value.converter.schemas.enable": "false", "transforms": "unwrap", "transforms.unwrap.type": UNWRAP,
            "iceberg.tables": self.table, "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.cdc-field": "_cdc.op", "iceberg.tables.default-id-columns": "id",
            "iceberg.catalog": "lake", "iceberg.catalog.type": "jdbc", "iceberg.catalog.uri": "jdbc:sqlite::memory:",
            **{key.replace("__", ".").replace("_", "-"): text for key, text in more.items()},
        }  # fmt: skip

    def run(self, *words: str, **more: str) -> Result:
        self._file.write_text(json.dumps({"name": self.name, "config": self.config(**more)}))
        app = typer.Typer()
        app.command()(load)
        return CliRunner().invoke(app, [str(self._file), "--bootstrap-server", self.servers, *words])

    def loaded(self, *words: str, **more: str) -> dict[str, Any]:
        done = self.run("--json", *words, **more)
        assert done.exit_code == 0, done.output
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def offsets(self) -> dict[int, int]:
        found = committed(self.servers, f"connect-{self.name}", self.topic)
        return {partition: offset for (_, partition), offset in found.items()}


@pytest.fixture
def shop(
    kafka_broker: KafkaBroker, lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, topic_prefix: str
) -> Iterator[Shop]:
    current[:] = [lake]
    monkeypatch.setattr(load_module, "LakeClient", SharedLake)
    monkeypatch.setattr(table_manager, "LakeClient", SharedLake)
    hosts: list[CommandSinkHost] = []

    def host(connector: Any, _: Path | None, settings: Any) -> CommandSinkHost:
        hosts.append(CommandSinkHost(connector, settings))
        return hosts[-1]

    provide_sink_hosts(host)
    yield Shop(kafka_broker, tmp_path, topic_prefix)
    provide_sink_hosts(None)
    for each in hosts:
        each.close()


def state(lake: Lake, table: str, columns: Sequence[str] = NAMES) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(row) for row in lake.catalog.spark.sql(f"SELECT {', '.join(columns)} FROM lake.{table}").collect()
    )


def test_load_merges_changes_in_steps_and_goes_on_behind_them(shop: Shop, lake: Lake) -> None:
    for key in range(10):
        shop.change("c", key, f"first {key}")
    for key in range(5):
        shop.change("u", key, f"second {key}")
    shop.change("d", 9, None)
    planned = shop.run("--plan")
    assert "at most 16 records" in planned.output
    report = shop.loaded("--step-rows", "10")
    assert (report["records"], report["steps"]) == (16, 3)  # of which the first opens the table
    wanted = [(key, f"second {key}" if key < 5 else f"first {key}") for key in range(9)]
    assert (state(lake, shop.table), shop.offsets()) == (wanted, {0: 8, 1: 8})
    shop.change("u", 8, "third", city="Bern")  # a column that the table lacks
    again = shop.loaded("--step-rows", "1", iceberg__tables__evolve_schema_enabled="true")
    assert again["records"] == 1
    assert state(lake, shop.table, ("id", "name", "city"))[-1] == (8, "third", "Bern")


@pytest.mark.long
def test_load_keeps_dead_letters_and_names_a_bad_record(shop: Shop, lake: Lake, topic_prefix: str) -> None:
    shop.change("c", 1, "good")
    shop.produce(b'{"id": 2}', b"{no json", 0)
    shop.change("c", 3, "good")
    stopped = shop.run("--json")
    assert (stopped.exit_code, f"{shop.topic}" in stopped.output) == (1, True), stopped.output
    assert "VALUE_CONVERTER" in stopped.output
    dead_letters = {
        "errors__tolerance": "all", "errors__deadletterqueue__iceberg__table": f"{shop.table}_dead",
        "errors__deadletterqueue__topic__name": f"{topic_prefix}dead",
        "errors__deadletterqueue__topic__replication__factor": "1",
    }  # fmt: skip
    report = shop.loaded(**dead_letters)
    assert report["records"] == 3
    assert state(lake, shop.table) == [(1, "good"), (3, "good")]
    assert state(lake, f"{shop.table}_dead", ["topic", "partition", "offset"]) == [(shop.topic, 0, 0)]
    assert [letter.value for letter in read_topic(shop.servers, f"{topic_prefix}dead")] == [b"{no json"]


@pytest.mark.parametrize(("words", "why"), [
    (("--to", "yesterday"), "expected latest, a time"),
    (("--to", "users:0:1"), "does not consume users-0"),
    (("--conf", "nothing"), "--conf"),
    (("--from", "users:0:x"), "expected latest, a time"),
])  # fmt: skip
def test_bounds_and_settings_that_make_no_sense_are_refused(shop: Shop, words: Sequence[str], why: str) -> None:
    refused = shop.run(*words)
    assert (refused.exit_code, why in refused.output) == (1, True), refused.output


@pytest.mark.long
def test_load_between_bounds_reads_those_offsets_alone(shop: Shop, lake: Lake) -> None:
    for key in range(8):
        shop.change("c", key, "x")
    shop.loaded("--from", f"{shop.topic}:0:1,{shop.topic}:1:2", "--to", f"{shop.topic}:0:3,{shop.topic}:1:3")
    assert [row[0] for row in state(lake, shop.table)] == [2, 4, 5]
    assert shop.offsets() == {0: 3, 1: 3}
    refused = shop.run("--from", "earliest")
    assert (refused.exit_code, "is for a connector that never ran" in refused.output) == (1, True)


def test_load_of_a_running_connector_is_refused(shop: Shop) -> None:
    consumer = Consumer({"bootstrap.servers": shop.servers, "group.id": f"connect-{shop.name}"})
    consumer.subscribe([shop.topic])
    try:
        while not consumer.assignment():
            consumer.poll(0.2)
        refused = shop.run()
    finally:
        consumer.close()
    assert (refused.exit_code, "has 1 members; stop it first" in refused.output) == (1, True), refused.output
