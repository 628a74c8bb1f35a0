"""`EventRouter`: rows of an outbox table become the events that they hold."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type, one_of
from connect_py.api.errors import ConnectError, DataError
from connect_py.api.record import R
from connect_py.api.schema import INT32, Schema, SchemaAndValue, Struct, Value, struct
from connect_py.api.schema import Type as SchemaType
from connect_py.api.transformation import Transformation
from transforms.debezium.envelope import AFTER, OP, is_envelope
from transforms.debezium.expanded_json import expanded
from transforms.java_regex import JavaPattern, Replacement
from transforms.regex_router import java_regex

log = logging.getLogger(__name__)

_PLACES = ("header", "envelope", "partition")


@dataclass(frozen=True, slots=True)
class _Additional:
    """A column that goes along with the event."""

    column: str
    place: str
    name: str

    @classmethod
    def parse(cls, text: str) -> _Additional:
        column, _, rest = text.strip().partition(":")
        place, _, alias = rest.partition(":")
        if not column or place not in _PLACES:
            raise ValueError(f"Unexpected additional field: {text}")
        return cls(column, place, alias or column)


def _additional(name: str, value: Parsed) -> None:
    try:
        for text in value or []:
            _Additional.parse(text)
    except ValueError as error:
        raise ConfigValueError(name, value, str(error)) from error


class EventRouter(Transformation[R]):
    """Only inserts become events: deletes and tombstones of the outbox table are dropped, updates are wrong."""

    config_def = (
        ConfigDef()
        .define("table.field.event.id", Type.STRING, default="id", importance=Importance.LOW,
                doc="The column of the event's id, which becomes the header id.")
        .define("table.field.event.key", Type.STRING, default="aggregateid", importance=Importance.LOW,
                doc="The column of the event's key.")
        .define("table.field.event.type", Type.STRING, default="type", importance=Importance.LOW,
                doc="The column of the event's type.")
        .define("table.field.event.payload", Type.STRING, default="payload", importance=Importance.LOW,
                doc="The column of the event itself.")
        .define("table.field.event.timestamp", Type.STRING, default=None, importance=Importance.MEDIUM,
                doc="The column of the event's time; without it that of the change.")
        .define("table.field.event.schema.version", Type.STRING, default=None, importance=Importance.LOW,
                doc="The column of the version of the event's schema.")
        .define("table.fields.additional.placement", Type.LIST, default="", validator=_additional,
                importance=Importance.HIGH,
                doc="More columns: column:header, column:envelope or column:partition, each perhaps with :alias.")
        .define("table.fields.additional.error.on.missing", Type.BOOLEAN, default=True, importance=Importance.MEDIUM,
                doc="Whether a missing one of these is an error.")
        .define("table.op.invalid.behavior", Type.STRING, default="warn", importance=Importance.MEDIUM,
                validator=one_of("warn", "error", "fatal", case_insensitive=True),
                doc="What to do about updates: warn and error say so and drop them, fatal fails.")
        .define("route.by.field", Type.STRING, default="aggregatetype", importance=Importance.HIGH,
                doc="The column that decides about the topic.")
        .define("route.topic.regex", Type.STRING, default="(?<routedByValue>.*)", validator=java_regex,
                importance=Importance.LOW, doc="What the column must match.")
        .define("route.topic.replacement", Type.STRING, default="outbox.event.${routedByValue}",
                importance=Importance.HIGH, doc="The topic, made of the match.")
        .define("route.tombstone.on.empty.payload", Type.BOOLEAN, default=False, importance=Importance.LOW,
                doc="Whether an event without payload becomes a tombstone.")
        .define("table.expand.json.payload", Type.BOOLEAN, default=False, importance=Importance.MEDIUM,
                doc="Whether a payload of JSON text becomes structs.")
    )  # fmt: skip

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._columns: Mapping[str, str | None] = {
            what: props[f"table.field.event.{what}"] for what in ("id", "key", "payload", "timestamp", "schema.version")
        }
        self._additional = [_Additional.parse(text) for text in props["table.fields.additional.placement"]]
        self._fails_on_missing: bool = props["table.fields.additional.error.on.missing"]
        self._on_update: str = props["table.op.invalid.behavior"].lower()
        self._route_by: str = props["route.by.field"]
        self._pattern = JavaPattern(props["route.topic.regex"])
        self._replacement = Replacement(props["route.topic.replacement"])
        self._makes_tombstones: bool = props["route.tombstone.on.empty.payload"]
        self._expands: bool = props["table.expand.json.payload"]

    def apply(self, record: R) -> R | None:
        if record.value is None:
            return None
        if not is_envelope(record.value_schema):
            return record
        code = record.value.get(OP)
        if code == "u":
            return self._update(record)
        if code not in ("c", "r"):
            return None
        row = record.value.get_without_default(AFTER)
        return None if row is None else self._event(record, row)

    def _update(self, record: R) -> R | None:
        text = f"Unexpected update message received '{record.key}' and ignored"
        if self._on_update == "fatal":
            raise ConnectError(text)
        (log.warning if self._on_update == "warn" else log.error)("%s", text)
        return None

    def _event(self, record: R, row: Struct) -> R:
        topic = str(_column(row, self._route_by).value)
        if self._pattern.matches(topic):
            topic = self._pattern.replace_first(topic, self._replacement)
        payload = _column(row, self._columns["payload"] or "")
        if self._expands and isinstance(payload.value, str):
            payload = _expanded(payload)
        key = self._optional(row, "key")
        event_id = _column(row, self._columns["id"] or "")
        headers = record.headers.add("id", event_id.value, event_id.schema)
        partition = record.partition
        envelope: list[tuple[str, SchemaAndValue]] = []
        for extra in self._additional:
            if row.schema.field(extra.column) is None and not self._fails_on_missing:
                continue
            found = _column(row, extra.column)
            if extra.place == "header":
                headers = headers.add(extra.name, found.value, found.schema)
            elif extra.place == "envelope":
                envelope.append((extra.name, found))
            else:
                partition = _partition(found)
        timestamp = self._timestamp(record.value, row)
        if self._makes_tombstones and payload.value in (None, "", b""):
            value = SchemaAndValue(None, None)
        elif envelope:
            value = _enveloped(payload, envelope, self._version(row))
        else:
            value = payload
        return record.replace(
            topic=topic, partition=partition, key_schema=key.schema, key=key.value, value_schema=value.schema,
            value=value.value, timestamp=timestamp, headers=headers,
        )  # fmt: skip

    def _optional(self, row: Struct, what: str) -> SchemaAndValue:
        name = self._columns[what]
        return SchemaAndValue(None, None) if name is None else _column(row, name)

    def _version(self, row: Struct) -> int | None:
        found = self._optional(row, "schema.version").value
        return None if found is None else int(found)

    def _timestamp(self, event: Struct, row: Struct) -> int | None:
        name = self._columns["timestamp"]
        found: int | None = event.get("ts_ms") if name is None else _column(row, name).value
        return found


def _column(row: Struct, name: str) -> SchemaAndValue:
    field = row.schema.field(name)
    if field is None:
        raise DataError(f"Unable to find field {name} in event")
    return SchemaAndValue(field.schema, row.values[field.index])


def _partition(found: SchemaAndValue) -> int:
    if found.schema is None or found.schema.type is not INT32.type or found.value is None:
        raise DataError("the column of the partition must hold an INT32")
    return int(found.value)


def _enveloped(payload: SchemaAndValue, extra: list[tuple[str, SchemaAndValue]], version: int | None) -> SchemaAndValue:
    parts = [("payload", payload), *extra]
    schema = struct(*((name, _schema(part)) for name, part in parts), version=version)
    return SchemaAndValue(schema, Struct(schema, [part.value for _, part in parts]))


def _schema(part: SchemaAndValue) -> Schema:
    return part.schema or Schema(SchemaType.STRING, optional=True)


def _expanded(payload: SchemaAndValue) -> SchemaAndValue:
    """The payload as structs if it is a JSON object or array; else as it is."""
    text: Value = payload.value
    try:
        tree: Any = json.loads(text)
    except ValueError:
        return payload
    if not isinstance(tree, dict | list):
        return payload
    made = expanded(tree)
    return payload if made.schema is None else made
