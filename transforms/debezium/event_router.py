"""`EventRouter`: rows of an outbox table become the events that they hold."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type, one_of
from connect_py.api.errors import ConnectError, DataError
from connect_py.api.record import R
from connect_py.api.schema import OPTIONAL_STRING, SchemaAndValue, Struct, Value, struct
from connect_py.api.schema import Type as SchemaType
from connect_py.api.transformation import Transformation
from connect_py.java.errors import IllegalStateError
from connect_py.java.patterns import JavaPattern, Replacement
from transforms.debezium.envelope import AFTER, OP, PER_SECOND, is_envelope
from transforms.debezium.expanded_json import JsonExpansion
from transforms.requirements import require_struct
from transforms.validators import java_regex

log = logging.getLogger(__name__)

# of an event, unless configured
ID: Final[Mapping[str, str]] = {"table": "id", "collection": "_id"}
_DECODER: Final = json.JSONDecoder()
_PLACES: Final = ("header", "envelope", "partition")


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


def event_router_config(prefix: str) -> ConfigDef:
    """The options of the routers: those of the outbox itself begin with `prefix`, table or
    collection."""
    kept = ("optional_bytes", "ignore")
    return (
        ConfigDef()
        .define(
            f"{prefix}.field.event.id",
            Type.STRING,
            default=ID[prefix],
            importance=Importance.LOW,
            doc="The field of the event's id, which becomes the header id.",
        )
        .define(
            f"{prefix}.field.event.key",
            Type.STRING,
            default="aggregateid",
            importance=Importance.LOW,
            doc="The field of the event's key.",
        )
        .define(
            f"{prefix}.field.event.type",
            Type.STRING,
            default="type",
            importance=Importance.LOW,
            doc="The field of the event's type.",
        )
        .define(
            f"{prefix}.field.event.payload",
            Type.STRING,
            default="payload",
            importance=Importance.LOW,
            doc="The field of the event itself.",
        )
        .define(
            f"{prefix}.field.event.timestamp",
            Type.STRING,
            default=None,
            importance=Importance.MEDIUM,
            doc="The field of the event's time; without it that of the change.",
        )
        .define(
            f"{prefix}.field.event.schema.version",
            Type.STRING,
            default=None,
            importance=Importance.LOW,
            doc="The field of the version of the event's schema.",
        )
        .define(
            f"{prefix}.fields.additional.placement",
            Type.LIST,
            default="",
            validator=_additional,
            importance=Importance.HIGH,
            doc="More fields: field:header, field:envelope or field:partition, each perhaps with "
            ":alias.",
        )
        .define(
            f"{prefix}.field.additional.missing",
            Type.STRING,
            default="error",
            importance=Importance.MEDIUM,
            validator=one_of("error", "ignore", case_insensitive=True),
            doc="What to do where one of these is missing.",
        )
        .define(
            f"{prefix}.fields.additional.error.on.missing",
            Type.BOOLEAN,
            default=True,
            importance=Importance.MEDIUM,
            doc=f"Deprecated: false is {prefix}.field.additional.missing=ignore.",
        )
        .define(
            f"{prefix}.op.invalid.behavior",
            Type.STRING,
            default="warn",
            importance=Importance.MEDIUM,
            validator=one_of("warn", "error", "fatal", case_insensitive=True),
            doc="What to do about updates: warn and error say so and drop them, fatal fails.",
        )
        .define(
            "route.by.field",
            Type.STRING,
            default="aggregatetype",
            importance=Importance.HIGH,
            doc="The field that decides about the topic.",
        )
        .define(
            "route.topic.regex",
            Type.STRING,
            default="(?<routedByValue>.*)",
            validator=java_regex,
            importance=Importance.LOW,
            doc="What the field must match.",
        )
        .define(
            "route.topic.replacement",
            Type.STRING,
            default="outbox.event.${routedByValue}",
            importance=Importance.HIGH,
            doc="The topic, made of the match.",
        )
        .define(
            "route.tombstone.on.empty.payload",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Whether an event without payload becomes a tombstone.",
        )
        .define(
            f"{prefix}.expand.json.payload",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Whether a payload of JSON becomes structs.",
        )
        .define(
            f"{prefix}.json.payload.null.behavior",
            Type.STRING,
            default="ignore",
            importance=Importance.MEDIUM,
            validator=one_of(*kept, case_insensitive=True),
            doc="What nulls in it become: left out, or optional bytes.",
        )
        .define(
            f"{prefix}.json.payload.empty.array.behavior",
            Type.STRING,
            default="ignore",
            importance=Importance.MEDIUM,
            validator=one_of(*kept, case_insensitive=True),
            doc="What empty arrays in it become: left out, or arrays of optional bytes.",
        )
    )


class EventRouter(Transformation[R]):
    """Only inserts become events: deletes and tombstones of the outbox table are dropped, updates
    are wrong."""

    prefix = "table"
    config_def = event_router_config(prefix)

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._columns: Mapping[str, str | None] = {
            what: props[f"{self.prefix}.field.event.{what}"]
            for what in ("id", "key", "payload", "timestamp", "schema.version")
        }
        placement = props[f"{self.prefix}.fields.additional.placement"]
        self._additional = [_Additional.parse(text) for text in placement]
        self._fails_on_missing: bool = (
            props[f"{self.prefix}.field.additional.missing"].lower() == "error"
            and props[f"{self.prefix}.fields.additional.error.on.missing"]
        )
        self._on_update: str = props[f"{self.prefix}.op.invalid.behavior"].lower()
        self._route_by: str = props["route.by.field"]
        self._pattern = JavaPattern(props["route.topic.regex"])
        self._replacement = Replacement(props["route.topic.replacement"])
        self._makes_tombstones: bool = props["route.tombstone.on.empty.payload"]
        self.payload_field: str = self._columns["payload"] or ""
        self.expands: bool = props[f"{self.prefix}.expand.json.payload"]
        self._expansion = JsonExpansion(
            *(
                props[f"{self.prefix}.json.payload.{what}.behavior"].lower() != "ignore"
                for what in ("null", "empty.array")
            )
        )

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
        return self._event(record, self.row(record.value))

    def row(self, event: Struct) -> Struct:
        """The row of the outbox that an event inserts."""
        return require_struct(event.get_without_default(AFTER), "Read Outbox Event")

    def payload(self, payload: SchemaAndValue) -> SchemaAndValue:
        """The payload as it goes on."""
        if (
            not self.expands
            or not isinstance(payload.value, str)
            or not payload.value.startswith(("{", "["))
        ):
            return payload
        try:
            # what follows is passed over, as in Java
            tree: Any = _DECODER.raw_decode(payload.value)[0]
        except (ValueError, RecursionError):
            return payload
        return self._expansion.expanded(tree, "payload") or payload

    def _update(self, record: R) -> R | None:
        if self._on_update == "fatal":
            raise IllegalStateError("Unexpected update message received in the outbox")
        level = logging.WARNING if self._on_update == "warn" else logging.ERROR
        log.log(level, "an unexpected update in the outbox, topic %s, is left out", record.topic)
        return None

    def _event(self, record: R, row: Struct) -> R:
        routed_by: str = _of_type(row, self._route_by, SchemaType.STRING)
        topic = routed_by
        if self._pattern.matches(topic):
            topic = self._pattern.replace_first(topic, self._replacement)
        found = row.schema.field(self.payload_field)
        if found is None:
            raise ConnectError(f"Unable to find payload field {self.payload_field} in event")
        payload = self.payload(SchemaAndValue(found.schema, row.values[found.index]))
        key = self._optional(row, "key")
        event_id = _column(row, self._columns["id"] or "")
        headers = record.headers.add("id", event_id.value, event_id.schema)
        partition = record.partition
        envelope: list[tuple[str, SchemaAndValue]] = []
        for extra in self._additional:
            if row.schema.field(extra.column) is None and not self._fails_on_missing:
                continue
            if extra.place == "header":
                value = _column(row, extra.column)
                headers = headers.add(extra.name, value.value, value.schema)
            elif extra.place == "envelope":
                envelope.append((extra.name, _column(row, extra.column)))
            else:
                partition = _of_type(row, extra.column, SchemaType.INT32)
        timestamp = self._timestamp(record.value, row)
        if self._makes_tombstones and payload.value in (None, "", b""):
            made = SchemaAndValue(None, None)
        elif any(extra.place == "envelope" for extra in self._additional):
            made = _enveloped(
                payload, envelope, _event_name(row.schema.name, routed_by), self._version(row)
            )
        else:
            made = payload
        return record.replace(
            topic=topic,
            partition=partition,
            key_schema=key.schema,
            key=key.value,
            value_schema=made.schema,
            value=made.value,
            timestamp=timestamp,
            headers=headers,
        )

    def _optional(self, row: Struct, what: str) -> SchemaAndValue:
        name = self._columns[what]
        return SchemaAndValue(None, None) if name is None else _column(row, name)

    def _version(self, row: Struct) -> int | None:
        name = self._columns["schema.version"]
        return None if name is None else _of_type(row, name, SchemaType.INT32)

    def _timestamp(self, event: Struct, row: Struct) -> int | None:
        """Milliseconds: of the column, or of the change."""
        name = self._columns["timestamp"]
        found: int | None = None if name is None else _of_type(row, name, SchemaType.INT64)
        if name is None or found is None:
            moment: int | None = event.get("ts_ms")
            return moment
        per_second = PER_SECOND.get(row.schema[name].name or "")
        if per_second is None:
            kind = row.schema[name].name or "INT64 (without logical schema name)"
            raise ConnectError(f"Unsupported field type {kind} for event timestamp")
        unit = per_second // 1000
        return -(-found // unit) if found < 0 else found // unit


def _column(row: Struct, name: str) -> SchemaAndValue:
    field = row.schema.field(name)
    if field is None:
        raise DataError(f"{name} is not a valid field name")
    return SchemaAndValue(field.schema, row.values[field.index])


def _of_type(row: Struct, name: str, kind: SchemaType) -> Value:
    """The value of a field of this type; DataError: there is none."""
    found = _column(row, name)
    if found.schema is None or found.schema.type is not kind:
        raise DataError(f"Field '{name}' is not of type {kind.name}")
    return found.value


def _event_name(row: str | None, routed_by: str) -> str | None:
    """The name of the schema of an event with an envelope: that of the row with its kind before the
    last part."""
    if row is None:
        return None
    head, dot, tail = row.rpartition(".")
    return f"{head}{dot}{routed_by}.{tail}"


def _enveloped(
    payload: SchemaAndValue,
    extra: Sequence[tuple[str, SchemaAndValue]],
    name: str | None,
    version: int | None,
) -> SchemaAndValue:
    parts = [("payload", payload), *extra]
    schema = struct(
        *((each, part.schema or OPTIONAL_STRING) for each, part in parts),
        name=name,
        version=version,
    )
    return SchemaAndValue(schema, Struct(schema, [part.value for _, part in parts]))
