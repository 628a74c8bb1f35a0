"""Topics filled with the change events of `cdc_load`, and the connector configuration that reads
each of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import cdc_load
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "fixtures"))
from schema_registry_stub import schema_registry  # noqa: E402 - found through the path above

FORMATS = ("json", "json-schema", "avro")
MODES = ("append", "upsert")
PARTITIONS = 2
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_AVRO = "io.confluent.connect.avro.AvroConverter"
_UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
_FLATTEN = "org.apache.iceberg.connect.transforms.DebeziumTransform"


@dataclass(frozen=True, slots=True)
class LoadedTopic:
    """A topic that holds `events` change events, deletes followed by tombstones."""

    name: str
    form: str
    events: int
    keys: int
    ends: dict[int, int]  # by partition, the next offset to be written

    @property
    def records(self) -> int:
        """Events and tombstones."""
        return sum(self.ends.values())


def load(bootstrap_servers: str, form: str, events: int, keys: int) -> LoadedTopic:
    """Create and fill the topic of a format."""
    name = f"orders-{form}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    command = [
        sys.executable,
        str(HERE / "cdc_load.py"),
        "--bootstrap",
        bootstrap_servers,
        "--topic",
        name,
        "--partitions",
        str(PARTITIONS),
        "--format",
        form,
        "-n",
        str(events),
        "--keys",
        str(keys),
        "--tombstones",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    asked = admin.list_offsets(
        {TopicPartition(name, p): OffsetSpec.latest() for p in range(PARTITIONS)}
    )
    return LoadedTopic(
        name, form, events, keys, {tp.partition: f.result(30).offset for tp, f in asked.items()}
    )


class FullTopic:
    """A complete loaded topic with the interface of `Feed`, without copying."""

    def __init__(self, topic: LoadedTopic) -> None:
        self.topic = topic
        self.steps = 1
        self.fed = topic.records
        self.ended = True

    def copy_step(self) -> None:
        """Do nothing: nothing is copied."""


class Feed:
    """Copies a loaded topic to an empty topic step by step, with the same bytes and partitions."""

    def __init__(self, bootstrap_servers: str, source: LoadedTopic, name: str, steps: int) -> None:
        """Create the empty topic `name`."""
        self._settings = {"bootstrap.servers": bootstrap_servers}
        self._source = source
        self.steps = steps
        self._step = 0
        admin = AdminClient(self._settings)
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        self.topic = replace(source, name=name)

    @property
    def fed(self) -> int:
        """Records copied so far."""
        return sum(self._ends().values())

    @property
    def ended(self) -> bool:
        return self._step == self.steps

    def _ends(self) -> dict[int, int]:
        return {p: end * self._step // self.steps for p, end in self._source.ends.items()}

    def copy_step(self) -> None:
        """Copy the next share of every partition."""
        starts = self._ends()
        self._step += 1
        ends = self._ends()
        producer = Producer(
            {
                **self._settings,
                "compression.type": "lz4",
                "linger.ms": 20,
                "enable.idempotence": True,
            }
        )
        consumer = Consumer(
            {**self._settings, "group.id": "bench-feed", "enable.auto.commit": False}
        )
        consumer.assign(
            [TopicPartition(self._source.name, p, start) for p, start in starts.items()]
        )
        missing = sum(ends.values()) - sum(starts.values())
        while missing:
            for message in consumer.consume(1000, 1.0):
                if message.error() is None and message.offset() < ends[message.partition()]:
                    self._produce(producer, message)
                    missing -= 1
        consumer.close()
        producer.flush()

    def _produce(self, producer: Producer, message: Message) -> None:
        while True:
            try:
                producer.produce(
                    self.topic.name, message.value(), message.key(), message.partition()
                )
            except BufferError:
                producer.poll(0.05)
            else:
                return


@contextmanager
def registry() -> Iterator[str]:
    """Serve the two Avro schemas of the load; yields the address."""
    key, value = cdc_load.avro_schemas()
    with schema_registry(
        {1: {"schema": json.dumps(key)}, 2: {"schema": json.dumps(value)}}
    ) as stub:
        yield stub.url


def sink_config(topic: LoadedTopic, mode: str, registry_url: str) -> dict[str, str]:
    """The connector's converters, transformations and way to write: the chains that everything is
    measured with.

    Plain JSON goes through the Iceberg project's transformation, JSON with schema and Avro through
    Debezium's. Append keeps every event as a row, deletes are marked and tombstones make none.
    """
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": topic.name,
        "iceberg.tables": "db.orders",
        "iceberg.tables.auto-create-enabled": "true",
        "transforms": "unwrap",
    }
    for side in ("key", "value"):
        if topic.form == "avro":
            config |= {
                f"{side}.converter": _AVRO,
                f"{side}.converter.schema.registry.url": registry_url,
            }
        else:
            enabled = "true" if topic.form == "json-schema" else "false"
            config |= {f"{side}.converter": _JSON, f"{side}.converter.schemas.enable": enabled}
    upsert = mode == "upsert"
    if topic.form == "json":
        config["transforms.unwrap.type"] = _FLATTEN
        if upsert:
            config["iceberg.tables.cdc-field"] = "_cdc.op"
    else:
        config["transforms.unwrap.type"] = _UNWRAP
        config["transforms.unwrap.delete.tombstone.handling.mode"] = (
            "tombstone" if upsert else "rewrite"
        )
        if upsert:
            config["iceberg.tables.upsert-mode-enabled"] = "true"
    if upsert:
        config["iceberg.tables.default-id-columns"] = "id"
    return config


def with_two_more(config: dict[str, str]) -> dict[str, str]:
    """The same connector with two more transformations behind, such as many have: neither makes
    rows smaller."""
    stock = "org.apache.kafka.connect.transforms"
    return {
        **config,
        "transforms": config["transforms"] + ",insert,rename",
        "transforms.insert.type": f"{stock}.InsertField$Value",
        "transforms.insert.topic.field": "kafka_topic",
        "transforms.rename.type": f"{stock}.ReplaceField$Value",
        "transforms.rename.renames": "sku:article",
    }
