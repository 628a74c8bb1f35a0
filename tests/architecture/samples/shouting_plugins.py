"""A plugin author's code, with one plugin of every kind: checked by mypy and executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.connector import SinkConnector, SourceConnector
from connect_py.api.converter import Converter
from connect_py.api.errors import DataError, NotColumnar, RetriableError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.api.predicate import Predicate
from connect_py.api.record import (
    NO_HEADERS,
    MutableHeaders,
    R,
    RawHeaders,
    SinkRecord,
    SourceRecord,
    TopicPartition,
)
from connect_py.api.schema import OPTIONAL_STRING, Schema, SchemaAndValue, Struct, Value
from connect_py.api.task import SinkTask, SourceTask
from connect_py.api.transformation import Transformation

PLUGINS = (
    Plugin(PluginKind.SINK, "com.example.ListSink", "shouting_plugins:ListSinkConnector"),
    Plugin(PluginKind.TRANSFORMATION, "com.example.Shout", "shouting_plugins:Shout"),
)


class ListSinkTask(SinkTask):
    def start(self, props: Mapping[str, str]) -> None:
        self._limit = ListSinkConnector.config_def.parse(props)["limit"]
        self.rows: list[Value] = []
        self._safe: dict[TopicPartition, int] = {}

    def put(self, records: Sequence[SinkRecord]) -> None:
        if len(self.rows) + len(records) > self._limit:
            raise RetriableError("the list is full")
        for record in records:
            self.rows.append(record.value)
            # last read -> next to read
            self._safe[record.origin.topic_partition] = record.kafka_offset + 1

    def pre_commit(self, current: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return self._safe

    def stop(self) -> None:
        self.rows.clear()


class ListSinkConnector(SinkConnector):
    config_def = ConfigDef().define(
        "limit", Type.INT, default=1000, importance=Importance.HIGH, doc="Rows that are kept."
    )
    task_class = ListSinkTask

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self._props] * max_tasks


class CounterTask(SourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        last = self.context.offset_storage_reader.offset({"counter": "one"}) or {"value": 0}
        self._value = int(last["value"])

    def poll(self) -> Sequence[SourceRecord]:
        self._value += 1
        return [
            SourceRecord(
                topic="numbers",
                partition=None,
                key_schema=None,
                key=None,
                value_schema=OPTIONAL_STRING,
                value=str(self._value),
                source_partition={"counter": "one"},
                source_offset={"value": self._value},
            )
        ]

    def stop(self) -> None:
        return


class CounterConnector(SourceConnector):
    config_def = ConfigDef()
    task_class = CounterTask

    def start(self, props: Mapping[str, str]) -> None:
        return

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}]


class Shout(Transformation[R]):
    config_def = ConfigDef().define("field", Type.STRING, default="name", doc="The field to shout.")

    def configure(self, configs: Mapping[str, str]) -> None:
        self._field: str = self.config_def.parse(configs)["field"]

    def apply(self, record: R) -> R | None:
        value = record.value
        if isinstance(value, Struct):
            text = value.get(self._field)
            if not isinstance(text, str):
                raise DataError(f"{self._field} is no text")
            shouted = Struct.of(value.schema, **{self._field: text.upper()})
            return record.replace(value=shouted)
        return None

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if batch.value.schema is None:
            raise NotColumnar("only rows with a schema")
        return [batch.where(pc.is_valid(batch.value.data))]


class FromTopic(Predicate[R]):
    def configure(self, configs: Mapping[str, str]) -> None:
        self._topic = configs["topic"]

    def test(self, record: R) -> bool:
        return record.topic == self._topic and record.headers == NO_HEADERS

    def test_batch(self, batch: Batch) -> bool:
        return batch.topic == self._topic


class TextConverter(Converter):
    def configure(self, configs: Mapping[str, str], *, is_key: bool) -> None:
        return

    def to_connect(
        self, topic: str, data: bytes | None, headers: RawHeaders = ()
    ) -> SchemaAndValue:
        return SchemaAndValue(OPTIONAL_STRING, None if data is None else data.decode())

    def from_connect(
        self, topic: str, schema: Schema | None, value: Value, headers: MutableHeaders | None = None
    ) -> bytes | None:
        return None if value is None else str(value).encode()
