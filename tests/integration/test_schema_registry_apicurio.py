"""The converters with a schema registry, against a real one: Apicurio's, through its
Confluent-compatible API."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.schema_registry import Schema as SchemaText
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fixtures.apicurio import ApicurioRegistry
from fixtures.converter_rows import by_columns, by_reference, same
from fixtures.topic_reader import read_topic
from google.protobuf.message_factory import GetMessageClass
from recorded_sink import DEADLINE_SECONDS, News, Sink, dead_letters, news, registry, until, worker
from standalone_process import StandaloneProcess, standalone_properties

from connect_py.api.errors import DataError, UnavailableError
from connect_py.api.schema import (
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaAndValue,
    Struct,
    array,
    date,
    decimal,
    map_of,
    struct,
    timestamp,
)
from connect_py.converters.avro.avro_converter import AvroConverter
from connect_py.converters.json_schema.json_schema_converter import JsonSchemaConverter
from connect_py.converters.protobuf.proto_compiler import compile_proto
from connect_py.converters.protobuf.protobuf_converter import ProtobufConverter
from connect_py.converters.registry.registry_converter import RegistryConverter
from connect_py.embedded.broker import KafkaBroker
from connect_py.log_context import TextFormatter
from connect_py.worker.worker import Worker

__all__ = ["news", "registry", "worker"]  # fixtures

# In every run: a registry in Python, in tests/contract/test_converters_registry_options.py.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # two starts of a JVM on a busy machine

CONVERTERS: Final[dict[str, type[RegistryConverter]]] = {
    "avro": AvroConverter,
    "json": JsonSchemaConverter,
    "protobuf": ProtobufConverter,
}
JAVA_NAMES: Final = {
    "avro": "io.confluent.connect.avro.AvroConverter",
    "json": "io.confluent.connect.json.JsonSchemaConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
}
PATIENCE_SECONDS: Final = 90.0  # three task processes start, or a JVM, on a busy machine
LINES: Final = TextFormatter()
UNKNOWN: Final = b"\0\x0f\xff\xff\xff\0 and so on"  # an id that nobody gave out
INNER: Final = struct(("street", OPTIONAL_STRING), name="shop.Address", optional=True)
OLD: Final = struct(
    ("id", INT32),
    ("price", decimal(2, optional=True)),
    ("day", date(optional=True)),
    ("at", timestamp(optional=True)),
    ("tags", array(STRING)),
    ("counts", map_of(STRING, INT64)),
    ("address", INNER),
    name="shop.Order",
    version=1,
)
NEW: Final = struct(
    *((f.name, f.schema) for f in OLD.fields),
    ("note", OPTIONAL_STRING),
    name="shop.Order",
    version=2,
)


@pytest.fixture(scope="module")
def apicurio() -> Iterator[ApicurioRegistry]:
    with ApicurioRegistry() as server:
        yield server


@pytest.fixture
def make(apicurio: ApicurioRegistry) -> Iterator[Callable[..., RegistryConverter]]:
    """Makes converters, and closes them."""
    opened: list[RegistryConverter] = []

    def made(format: str, **configs: str) -> RegistryConverter:  # noqa: A002 - Connect's word
        one = CONVERTERS[format]()
        one.configure({"schema.registry.url": apicurio.url, **configs}, is_key=False)
        opened.append(one)
        return one

    yield made
    for one in opened:
        one.close()


def order(schema: Schema, number: int) -> Struct:
    note = [f"note {number}"] if schema is NEW else []
    address = Struct(INNER, [f"street {number}"])
    return Struct(
        schema,
        [number, Decimal(number).scaleb(-2), number, number, ["a"], {"k": number}, address, *note],
    )


def plain(value: Any) -> Any:
    """Return a value without its schema: Protobuf renames nested schemas."""
    return (
        {field.name: plain(item) for field, item in value} if isinstance(value, Struct) else value
    )


@pytest.mark.parametrize("format", CONVERTERS)
def test_two_schema_versions_in_one_poll_keep_their_schemas(
    make: Callable[..., RegistryConverter],
    topic_prefix: str,
    format: str,  # noqa: A002 - Connect's word
) -> None:
    topic = f"{topic_prefix}orders"
    schemas = [OLD, OLD, NEW, NEW, NEW, OLD]
    writing = make(format)
    written = [
        writing.from_connect(topic, schema, order(schema, n)) for n, schema in enumerate(schemas)
    ]
    assert len({data[:5] for data in written if data}) == 2
    read = by_reference(make(format), [*written, None], topic)
    assert all(map(same, by_columns(make(format), [*written, None], topic), read))
    *rows, tombstone = [row for row in read if isinstance(row, SchemaAndValue)]
    assert tombstone.value is None
    assert [plain(row.value) for row in rows] == [
        plain(order(schema, n)) for n, schema in enumerate(schemas)
    ]
    assert [row.schema and row.schema.version for row in rows] == [1, 1, 2, 2, 2, 1]


AVRO_ADDRESS: Final = {
    "type": "record",
    "name": "Address",
    "namespace": "shop",
    "fields": [{"name": "street", "type": "string"}],
}
AVRO_CUSTOMER: Final = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}, {"name": "home", "type": "shop.Address"}],
}
AVRO_ORDER: Final = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "to", "type": "shop.Address"},
        {"name": "by", "type": "shop.Customer"},
    ],
}
JSON_ADDRESS: Final = {"type": "object", "properties": {"street": {"type": "string"}}}
JSON_CUSTOMER: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "home": {"$ref": "address.json"}},
}
JSON_ORDER: Final = {
    "type": "object",
    "title": "shop.Order",
    "properties": {
        "id": {"type": "integer", "connect.type": "int32"},
        "to": {"$ref": "address.json"},
        "by": {"$ref": "customer.json"},
    },
}
PROTO_ADDRESS: Final = 'syntax = "proto3"; package shop; message Address { string street = 1; }'
PROTO_CUSTOMER: Final = (
    'syntax = "proto3"; package shop; import "address.proto"; message Customer '
    "{ string name = 1; Address home = 2; }"
)
PROTO_ORDER: Final = (
    'syntax = "proto3"; package shop; import "address.proto"; import "customer.proto";'
    " message Order { int32 id = 1; Address to = 2; Customer by = 3; }"
)
SENT: Final = {"id": 7, "to": {"street": "a"}, "by": {"name": "n", "home": {"street": "b"}}}


class ForeignProducer:
    """Confluent's own Python serializers, with schemas that refer to each other."""

    def __init__(self, client: SchemaRegistryClient, topic: str) -> None:
        self._client = client
        self._topic = topic

    def send(self, format: str) -> bytes:  # noqa: A002 - Connect's word
        serializer, value = {"avro": self._avro, "json": self._json, "protobuf": self._protobuf}[
            format
        ]()
        data: bytes = serializer(value, SerializationContext(self._topic, MessageField.VALUE))
        return data

    def _avro(self) -> tuple[Any, Any]:
        names = "shop.Address", "shop.Customer"
        order_schema = self._register("AVRO", names, AVRO_ADDRESS, AVRO_CUSTOMER, AVRO_ORDER)
        return AvroSerializer(self._client, order_schema), SENT

    def _json(self) -> tuple[Any, Any]:
        names = "address.json", "customer.json"
        return JSONSerializer(
            self._register("JSON", names, JSON_ADDRESS, JSON_CUSTOMER, JSON_ORDER), self._client
        ), SENT

    def _register(
        self, kind: str, names: tuple[str, str], address: object, customer: object, last: object
    ) -> Any:
        """Register the references of the last schema, and return it with its references."""
        references: list[SchemaReference] = []
        for name, schema in zip(names, (address, customer), strict=True):
            subject = f"{self._topic}-{name}"
            self._client.register_schema(
                subject, SchemaText(json.dumps(schema), kind, list(references))
            )
            references.append(SchemaReference(name, subject, 1))
        return SchemaText(json.dumps(last), kind, references)

    def _protobuf(self) -> tuple[Any, Any]:
        """Its serializer registers a file's imports automatically."""
        files = {"address.proto": PROTO_ADDRESS, "customer.proto": PROTO_CUSTOMER}
        message = GetMessageClass(compile_proto(PROTO_ORDER, files).message_types_by_name["Order"])
        home = {"street": "b"}
        value = message(id=7, to={"street": "a"}, by={"name": "n", "home": home})
        return ProtobufSerializer(message, self._client, {"use.deprecated.format": False}), value


@pytest.mark.parametrize("format", CONVERTERS)
def test_schemas_that_refer_to_others_are_put_together(
    make: Callable[..., RegistryConverter],
    apicurio: ApicurioRegistry,
    topic_prefix: str,
    format: str,  # noqa: A002 - Connect's word
) -> None:
    topic = f"{topic_prefix}references"
    with SchemaRegistryClient({"url": apicurio.url}) as client:
        data = ForeignProducer(client, topic).send(format)
    (row,) = by_reference(make(format), [data], topic)
    assert isinstance(row, SchemaAndValue), row
    assert plain(row.value) == SENT
    assert all(same(each, row) for each in by_columns(make(format), [data, data], topic))


@pytest.mark.parametrize("format", CONVERTERS)
def test_schemas_are_looked_up_where_they_must_not_be_registered(
    make: Callable[..., RegistryConverter],
    topic_prefix: str,
    format: str,  # noqa: A002 - Connect's word
) -> None:
    topic = f"{topic_prefix}known"
    strict = make(format, **{"auto.register.schemas": "false"})
    with pytest.raises(DataError, match="404"):
        strict.from_connect(topic, OLD, order(OLD, 1))
    first = make(format).from_connect(topic, OLD, order(OLD, 1))
    assert strict.from_connect(topic, OLD, order(OLD, 1)) == first
    latest = make(format, **{"auto.register.schemas": "false", "use.latest.version": "true"})
    assert latest.from_connect(topic, OLD, order(OLD, 1)) == first


@pytest.mark.parametrize("format", CONVERTERS)
def test_unknown_schema_id_is_retried_and_then_becomes_bad_record(
    make: Callable[..., RegistryConverter],
    monkeypatch: pytest.MonkeyPatch,
    format: str,  # noqa: A002 - Connect's word
) -> None:
    reading = make(format)
    with pytest.raises(UnavailableError, match="does not contain schema"):
        reading.to_connect("t", UNKNOWN)
    monkeypatch.setattr(reading._registry, "_grace_seconds", 0.0)
    with pytest.raises(DataError, match="Failed to deserialize data for topic t to "):
        reading.to_connect("t", UNKNOWN)


ROWS: Final = 40
# both in the second half
SCHEMAS: Final = [NEW if n >= ROWS // 2 and n % 2 else OLD for n in range(ROWS)]


class Stream:
    """A sink task that reads one format, and the rows to feed it with."""

    def __init__(self, sink: Sink, url: str, format: str) -> None:  # noqa: A002 - Connect's word
        self.sink = sink
        self.format = format
        self.dead_letters = f"{sink.name}-dlq"
        sink.create_topic()
        writing = CONVERTERS[format]()
        writing.configure({"schema.registry.url": url}, is_key=False)
        self._rows = [
            writing.from_connect(sink.topic, schema, order(schema, n))
            for n, schema in enumerate(SCHEMAS)
        ]
        writing.close()
        self.task = sink.start(
            **{
                "value.converter": JAVA_NAMES[format],
                "value.converter.schema.registry.url": url,
                "transforms": "id",
                "transforms.id.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
                "transforms.id.field": "id",
                "errors.tolerance": "all",
                # a registry that is back is noticed sooner than by default
                "errors.retry.delay.max.ms": "500",
                "errors.deadletterqueue.topic.name": self.dead_letters,
                "errors.deadletterqueue.topic.replication.factor": "1",
            }
        )

    def send(self, start: int, stop: int) -> None:
        self.sink.produce(self._rows[start:stop])

    def has(self, rows: int) -> bool:
        """Return True if the first rows have arrived, once and in order, and no others."""
        return self.sink.values() == list(range(rows))

    def waits(self, told: Sequence[logging.LogRecord]) -> bool:
        """Return True if the task reported that it waits for the registry."""
        lines = [
            LINES.format(record)
            for record in list(told)
            if "VALUE_CONVERTER waits" in record.getMessage()
        ]
        return any(f"[{self.sink.name}|task-0]" in line for line in lines)

    def dead(self) -> int:
        """Return the number of dead-letter records."""
        ends = self.sink.admin.list_offsets(
            {TopicPartition(self.dead_letters, 0): OffsetSpec.latest()}
        )
        return sum(int(future.result(DEADLINE_SECONDS).offset) for future in ends.values())


class Source:
    """A worker whose connectors read lines of a file into topics, one connector per format.

    Each topic has a separate subject: a new line requires the registry.
    """

    def __init__(self, url: str, broker: KafkaBroker, prefix: str, folder: Path) -> None:
        self._servers, self._prefix = broker.bootstrap_servers, prefix
        self._lines = folder / "lines"
        self.worker = StandaloneProcess(folder, self._servers, standalone_properties(folder))
        self.worker.connectors = tuple(self._config(folder, each, url) for each in CONVERTERS)

    def _config(self, folder: Path, format: str, url: str) -> Path:  # noqa: A002 - Connect's word
        """The line becomes a member of a struct, as Protobuf has structs only, and the topic's last
        word."""
        file = folder / f"{format}.json"
        config = {
            "name": f"{self._prefix}{format}",
            "connector.class": "FileStreamSource",
            "file": str(self._lines),
            "topic": f"{self._prefix}{format}",
            "errors.tolerance": "all",
            "errors.retry.delay.max.ms": "500",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "value.converter": JAVA_NAMES[format],
            "value.converter.schema.registry.url": url,
            "transforms": "route,hoist",
            "transforms.route.type": "io.debezium.transforms.ContentBasedRouter",
            "transforms.route.language": "connect_py.expression",
            "transforms.route.topic.expression": f"'{self._prefix}{format}-' + value",
            "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.hoist.field": "line",
        }
        file.write_text(json.dumps(config))
        return file

    def send(self, line: str) -> None:
        with self._lines.open("a") as file:
            file.write(f"{line}\n")

    def read(self, format: str, line: str) -> list[bytes]:  # noqa: A002 - Connect's word
        """The messages for a line, if there is a topic for it already."""
        topic = f"{self._prefix}{format}-{line}"
        known = (
            AdminClient({"bootstrap.servers": self._servers})
            .list_topics(timeout=DEADLINE_SECONDS)
            .topics
        )
        return (
            [r.value for r in read_topic(self._servers, topic) if r.value] if topic in known else []
        )

    def waits(self) -> bool:
        """Return True if each task reported that it waits for the registry."""
        told = [
            line
            for line in self.worker.log_path.read_text().splitlines()
            if "VALUE_CONVERTER waits" in line
        ]
        return all(
            any(f"[{self._prefix}{each}|task-0]" in line for line in told) for each in CONVERTERS
        )


@pytest.mark.long
def test_registry_outage_delays_source_records_and_loses_none(
    apicurio: ApicurioRegistry,
    make: Callable[..., RegistryConverter],
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    source = Source(apicurio.url, kafka_broker, topic_prefix, tmp_path)
    try:
        source.send("first")
        source.worker.start()
        for each in CONVERTERS:
            until("the first line", partial(source.read, each, "first"), PATIENCE_SECONDS)
        apicurio.stop()
        source.send("first")  # with a cached schema: continues
        source.send("second")
        until("they wait", source.waits, PATIENCE_SECONDS)
        assert [source.read(each, "second") for each in CONVERTERS] == [[], [], []]
        apicurio.start()
        for each in CONVERTERS:
            for line, count in (("second", 1), ("first", 2)):
                sent = until("the line", partial(source.read, each, line), PATIENCE_SECONDS)
                rows = by_reference(make(each), sent)
                assert [row.value["line"] for row in rows if isinstance(row, SchemaAndValue)] == [
                    line
                ] * count
        assert source.worker.stop() == 0
    finally:
        source.worker.close()


@pytest.mark.long
def test_registry_outage_delays_sink_records_and_loses_none(
    apicurio: ApicurioRegistry,
    make: Callable[..., RegistryConverter],
    worker: Worker,
    news: News,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    half = ROWS // 2
    sinks = {
        each: Sink(worker, news, kafka_broker, f"{topic_prefix}{each}", tmp_path)
        for each in CONVERTERS
    }
    streams = [Stream(sink, apicurio.url, each) for each, sink in sinks.items()]
    for stream in streams:
        stream.send(0, half)
    for stream in streams:
        until("the first half", partial(stream.has, half), PATIENCE_SECONDS)

    apicurio.stop()
    for stream in streams:
        stream.send(half, ROWS)  # the second of these is of a schema that no reader has seen
    for stream in streams:
        until("it waits", partial(stream.waits, caplog.records), PATIENCE_SECONDS)
        assert stream.has(half) or stream.has(half + 1)
        assert stream.sink.committed().get(0, (0, ""))[0] <= half + 1
        with pytest.raises(UnavailableError):
            # as a source would
            make(stream.format).from_connect(f"{stream.sink.topic}-2", NEW, order(NEW, 1))

    apicurio.start()
    for stream in streams:
        until("all rows", partial(stream.has, ROWS), PATIENCE_SECONDS)
        until(
            "the commit behind them",
            lambda s=stream.sink: s.committed() == {0: (ROWS, "")},
            PATIENCE_SECONDS,
        )
        assert stream.dead() == 0

    for stream in streams:
        stream.sink.produce([UNKNOWN])
    for stream in streams:
        (letter,) = dead_letters(stream.sink, stream.dead_letters, 1)
        assert letter.value() == UNKNOWN
    assert not [item for item in news.items if item[0] == "task_failure"]
    worker.stop_tasks([stream.task for stream in streams]).result(DEADLINE_SECONDS)
