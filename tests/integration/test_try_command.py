"""`connect-py try`: records of a real topic, and their effect on a real catalog."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fixtures.command_line import command_app, fake_parts
from fixtures.iceberg_commands import table_commands
from fixtures.iceberg_commit import Lake, lake

from connect_py.config.properties_file import read_properties
from connect_py.embedded.broker import KafkaBroker
from connect_py.task.pipeline_factory import TaskPipelineFactory
from connectors.iceberg_tools.commands.try_records import try_records
from connectors.iceberg_tools.trial.topic_sample import SampleRequest, TopicSample

__all__ = ["lake"]

JSON = "org.apache.kafka.connect.json.JsonConverter"


PARTS = fake_parts(
    pipelines=lambda connector, worker: TaskPipelineFactory(
        connector, {} if worker is None else read_properties(worker)
    )
)


class Shop:
    """A topic of orders, a connector, and the command."""

    def __init__(
        self, broker: KafkaBroker, lake: Lake, patch: pytest.MonkeyPatch, folder: Path, prefix: str
    ) -> None:
        self.topic = f"{prefix}orders"
        self._broker, self._lake, self._patch, self._folder = broker, lake, patch, folder
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result(30)

    def produce(self, values: Sequence[Any], partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap_servers})
        for value in values:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(self.topic, data, key=b"k", partition=partition)
        assert producer.flush(30) == 0

    def run(self, settings: dict[str, str], *words: str) -> Result:
        connector = {
            "name": "orders-sink",
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": self.topic,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": JSON,
            "value.converter.schemas.enable": "false",
            "iceberg.catalog": "lake",
            "iceberg.catalog.type": "jdbc",
            "iceberg.catalog.uri": "jdbc:sqlite::memory:",
            **settings,
        }
        path = self._folder / "orders.json"
        path.write_text(json.dumps({"name": "orders-sink", "config": connector}))
        app = command_app(try_records, parts=PARTS)
        options = ["--bootstrap-server", self._broker.bootstrap_servers]
        return table_commands(self._lake, self._patch, app, options)(str(path), *words)


@pytest.fixture
def shop(
    kafka_broker: KafkaBroker,
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    topic_prefix: str,
) -> Shop:
    return Shop(kafka_broker, lake, monkeypatch, tmp_path, topic_prefix)


def test_records_of_a_new_table_show_its_statement_and_rows(shop: Shop, lake: Lake) -> None:
    shop.produce([{"id": n, "at": "2026-01-02", "who": {"name": "a b"}} for n in range(30)])
    shop.produce([{"id": "x", "at": 1}, b"{not json", None], partition=1)
    name = f"shop.{shop.topic.replace('-', '_')}"
    settings = {
        "iceberg.tables": name,
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": "id",
        "iceberg.tables.default-partition-by": "bucket(id, 4)",
        "transforms": "copy",
        "transforms.copy.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.copy.static.field": "shop",
        "transforms.copy.static.value": "north",
    }
    found = shop.run(settings, "--records", "12")
    assert found.exit_code == 1, found.output
    assert found.stdout.splitlines()[:18] == [
        f"orders-sink: 12 records from {shop.topic}",
        "",
        f"{name}: would be created, 9 rows",
        f"  CREATE TABLE {name} (",
        "    id bigint,",
        "    at string,",
        "    who struct<name: string>,",
        "    shop string",
        "  ) USING iceberg",
        "  PARTITIONED BY (bucket(4, id))",
        "  TBLPROPERTIES ('connect-py.created-by-sink' = 'true', 'format-version' = '3', "
        "'write.delete.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read', "
        "'write.metadata.delete-after-commit.enabled' = 'true', "
        "'write.metadata.previous-versions-max' = '100', 'write.update.mode' = 'merge-on-read')",
        '  {"id": 0, "at": "2026-01-02", "who": {"name": "a b"}, "shop": "north"}',
        '  {"id": 1, "at": "2026-01-02", "who": {"name": "a b"}, "shop": "north"}',
        '  {"id": 2, "at": "2026-01-02", "who": {"name": "a b"}, "shop": "north"}',
        "",
        "3 bad records:",
        "  2 does_not_fit",
        "  1 value_converter",
    ], found.stdout
    assert f"{shop.topic}-1 at offset 1: " in found.stdout
    assert found.stdout.splitlines()[-1] == "nothing was committed"
    assert not lake.catalog.spark.catalog.tableExists(f"lake.{name}")
    newest = json.loads(shop.run(settings, "--records", "2", "--newest", "--json").stdout)
    assert [each["samples"][0]["id"] for each in newest["tables"]] == [29]


def test_records_show_what_a_table_that_is_there_lacks(shop: Shop, lake: Lake) -> None:
    name = f"shop.{shop.topic.replace('-', '_')}"
    lake.sql(f"CREATE TABLE lake.{name} (id INT, note STRING) USING iceberg")
    shop.produce([{"id": 1, "note": "a"}, {"id": 2, "note": "b", "price": 1.5}, {"id": 1 << 40}])
    settings = {"iceberg.tables": name, "iceberg.tables.evolve-schema-enabled": "true"}
    found = json.loads(shop.run(settings, "--json").stdout)
    (table,) = found["tables"]
    assert (found["records"], table["exists"], table["create"], table["rows"]) == (3, True, None, 2)
    assert table["changes"] == [
        {"change": "add column price of type double", "action": "apply", "rows": 2}
    ]
    assert table["samples"] == [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}]
    assert [(each["offset"], each["reason"]) for each in found["bad"]] == [(2, "does_not_fit")]
    plain = shop.run({"iceberg.tables": name, "iceberg.tables.auto-create-enabled": "true"})
    assert "exists, " in plain.stdout
    missing = shop.run({"iceberg.tables": f"{name}_x"})
    assert (missing.exit_code, "auto-create-enabled is false" in missing.stdout) == (1, True)
    unknown = shop.run({"iceberg.tables": name, "topics": "no-such-topic"})
    assert (unknown.exit_code, unknown.stderr.splitlines()[-1]) == (
        2,
        "connect-py: topic no-such-topic does not exist",
    )


def test_partition_that_ends_with_a_transaction_is_read_to_its_end(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    """The marker of a transaction has an offset, but is not a record."""
    topic, settings = f"{topic_prefix}gaps", {"bootstrap.servers": kafka_broker.bootstrap_servers}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions(30)
    for _ in range(2):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, str(number).encode(), partition=number % 2)
        producer.commit_transaction(30)
    sample = TopicSample(settings, {"topics": topic}, SampleRequest(100))
    partitions = [number for run in sample.read() for number in run.partitions.to_pylist()]
    assert partitions == [0, 0, 0, 0, 1, 1]
    assert sample.records == 6
