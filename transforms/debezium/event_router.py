"""`EventRouter`: replaces rows of an outbox table with the events that they contain."""

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

# default name of the event ID field, by option prefix
ID: Final[Mapping[str, str]] = {"table": "id", "collection": "_id"}
_DECODER: Final = json.JSONDecoder()
_PLACEMENTS: Final = ("header", "envelope", "partition")


@dataclass(frozen=True, slots=True)
class _Additional:
    """Column to add to the event."""

    column: str
    placement: str
    name: str

    @classmethod
    def parse(cls, item: str) -> _Additional:
        column, _, rest = item.strip().partition(":")
        placement, _, alias = rest.partition(":")
        if not column or placement not in _PLACEMENTS:
            raise ValueError(f"Unexpected additional field: {item}")
        return cls(column, placement, alias or column)


def _additional(name: str, value: Parsed) -> None:
    try:
        for item in value or []:
            _Additional.parse(item)
    except ValueError as error:
        raise ConfigValueError(name, value, str(error)) from error


def event_router_config(prefix: str) -> ConfigDef:
    """Return a router's options. The names of the outbox options begin with `prefix`.

    The prefix is `table` or `collection`.
    """
    behaviors = ("optional_bytes", "ignore")
    return (
        ConfigDef()
        .define(
            f"{prefix}.field.event.id",
            Type.STRING,
            default=ID[prefix],
            importance=Importance.LOW,
            doc="Field with the ID of the event, which becomes the header id.",
        )
        .define(
            f"{prefix}.field.event.key",
            Type.STRING,
            default="aggregateid",
            importance=Importance.LOW,
            doc="Field with the key of the event.",
        )
        .define(
            f"{prefix}.field.event.type",
            Type.STRING,
            default="type",
            importance=Importance.LOW,
            doc="Field with the type of the event.",
        )
        .define(
            f"{prefix}.field.event.payload",
            Type.STRING,
            default="payload",
            importance=Importance.LOW,
            doc="Field with the payload of the event.",
        )
        .define(
            f"{prefix}.field.event.timestamp",
            Type.STRING,
            default=None,
            importance=Importance.MEDIUM,
            doc="Field with the timestamp of the event. Default: the timestamp of the change.",
        )
        .define(
            f"{prefix}.field.event.schema.version",
            Type.STRING,
            default=None,
            importance=Importance.LOW,
            doc="Field with the schema version of the event.",
        )
        .define(
            f"{prefix}.fields.additional.placement",
            Type.LIST,
            default="",
            validator=_additional,
            importance=Importance.HIGH,
            doc="Additional fields, each as field:header, field:envelope, or field:partition, "
            "optionally followed by :alias.",
        )
        .define(
            f"{prefix}.field.additional.missing",
            Type.STRING,
            default="error",
            importance=Importance.MEDIUM,
            validator=one_of("error", "ignore", case_insensitive=True),
            doc="Behavior if an additional field is missing.",
        )
        .define(
            f"{prefix}.fields.additional.error.on.missing",
            Type.BOOLEAN,
            default=True,
            importance=Importance.MEDIUM,
            doc=f"Deprecated: use {prefix}.field.additional.missing=ignore instead of false.",
        )
        .define(
            f"{prefix}.op.invalid.behavior",
            Type.STRING,
            default="warn",
            importance=Importance.MEDIUM,
            validator=one_of("warn", "error", "fatal", case_insensitive=True),
            doc="Behavior for updates: warn and error log and drop them; fatal raises an error.",
        )
        .define(
            "route.by.field",
            Type.STRING,
            default="aggregatetype",
            importance=Importance.HIGH,
            doc="Field that determines the topic.",
        )
        .define(
            "route.topic.regex",
            Type.STRING,
            default="(?<routedByValue>.*)",
            validator=java_regex,
            importance=Importance.LOW,
            doc="Regular expression, in Java's syntax, that the field must match.",
        )
        .define(
            "route.topic.replacement",
            Type.STRING,
            default="outbox.event.${routedByValue}",
            importance=Importance.HIGH,
            doc="New topic. $1 and ${name} insert groups of the match.",
        )
        .define(
            "route.tombstone.on.empty.payload",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Replace an event without a payload with a tombstone.",
        )
        .define(
            f"{prefix}.expand.json.payload",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Convert a JSON payload to structs.",
        )
        .define(
            f"{prefix}.json.payload.null.behavior",
            Type.STRING,
            default="ignore",
            importance=Importance.MEDIUM,
            validator=one_of(*behaviors, case_insensitive=True),
            doc="Conversion of nulls in a JSON payload: ignore omits them, and optional_bytes "
            "converts them to optional bytes.",
        )
        .define(
            f"{prefix}.json.payload.empty.array.behavior",
            Type.STRING,
            default="ignore",
            importance=Importance.MEDIUM,
            validator=one_of(*behaviors, case_insensitive=True),
            doc="Conversion of empty arrays in a JSON payload: ignore omits them, and "
            "optional_bytes converts them to arrays of optional bytes.",
        )
    )


class EventRouter(Transformation[R]):
    """Routes the events that are inserted into the outbox table.

    Deletes and tombstones are dropped. The handling of updates is configurable.
    """

    prefix = "table"
    config_def = event_router_config(prefix)

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._columns: Mapping[str, str | None] = {
            option: props[f"{self.prefix}.field.event.{option}"]
            for option in ("id", "key", "payload", "timestamp", "schema.version")
        }
        placement = props[f"{self.prefix}.fields.additional.placement"]
        self._additional = [_Additional.parse(item) for item in placement]
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
                props[f"{self.prefix}.json.payload.{option}.behavior"].lower() != "ignore"
                for option in ("null", "empty.array")
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
        """Return the outbox row that an event inserts."""
        return require_struct(event.get_without_default(AFTER), "Read Outbox Event")

    def payload(self, payload: SchemaAndValue) -> SchemaAndValue:
        """Return the payload of the routed event, parsed from JSON if JSON expansion is enabled."""
        if (
            not self.expands
            or not isinstance(payload.value, str)
            or not payload.value.startswith(("{", "["))
        ):
            return payload
        try:
            # trailing characters are ignored, as in Java
            tree: Any = _DECODER.raw_decode(payload.value)[0]
        except (ValueError, RecursionError):
            return payload
        return self._expansion.expanded(tree, "payload") or payload

    def _update(self, record: R) -> R | None:
        if self._on_update == "fatal":
            raise IllegalStateError("Unexpected update message received in the outbox")
        level = logging.WARNING if self._on_update == "warn" else logging.ERROR
        log.log(level, "topic %s: dropping an unexpected update of the outbox table", record.topic)
        return None

    def _event(self, record: R, row: Struct) -> R:
        routed_by: str = _of_type(row, self._route_by, SchemaType.STRING)
        topic = routed_by
        if self._pattern.matches(topic):
            topic = self._pattern.replace_first(topic, self._replacement)
        payload_field = row.schema.field(self.payload_field)
        if payload_field is None:
            raise ConnectError(f"Unable to find payload field {self.payload_field} in event")
        payload = self.payload(
            SchemaAndValue(payload_field.schema, row.values[payload_field.index])
        )
        key = self._optional(row, "key")
        event_id = _column(row, self._columns["id"] or "")
        headers = record.headers.add("id", event_id.value, event_id.schema)
        partition = record.partition
        envelope: list[tuple[str, SchemaAndValue]] = []
        for extra in self._additional:
            if row.schema.field(extra.column) is None and not self._fails_on_missing:
                continue
            if extra.placement == "header":
                header = _column(row, extra.column)
                headers = headers.add(extra.name, header.value, header.schema)
            elif extra.placement == "envelope":
                envelope.append((extra.name, _column(row, extra.column)))
            else:
                partition = _of_type(row, extra.column, SchemaType.INT32)
        timestamp = self._timestamp(record.value, row)
        if self._makes_tombstones and payload.value in (None, "", b""):
            value = SchemaAndValue(None, None)
        elif any(extra.placement == "envelope" for extra in self._additional):
            value = _enveloped(
                payload, envelope, _event_name(row.schema.name, routed_by), self._version(row)
            )
        else:
            value = payload
        return record.replace(
            topic=topic,
            partition=partition,
            key_schema=key.schema,
            key=key.value,
            value_schema=value.schema,
            value=value.value,
            timestamp=timestamp,
            headers=headers,
        )

    def _optional(self, row: Struct, option: str) -> SchemaAndValue:
        name = self._columns[option]
        return SchemaAndValue(None, None) if name is None else _column(row, name)

    def _version(self, row: Struct) -> int | None:
        name = self._columns["schema.version"]
        return None if name is None else _of_type(row, name, SchemaType.INT32)

    def _timestamp(self, event: Struct, row: Struct) -> int | None:
        """Return the timestamp of the event in milliseconds.

        If the configured column is null or no column is configured, the result is the `ts_ms` of
        the change event.
        """
        name = self._columns["timestamp"]
        timestamp: int | None = None if name is None else _of_type(row, name, SchemaType.INT64)
        if name is None or timestamp is None:
            ts_ms: int | None = event.get("ts_ms")
            return ts_ms
        per_second = PER_SECOND.get(row.schema[name].name or "")
        if per_second is None:
            kind = row.schema[name].name or "INT64 (without logical schema name)"
            raise ConnectError(f"Unsupported field type {kind} for event timestamp")
        unit = per_second // 1000
        return -(-timestamp // unit) if timestamp < 0 else timestamp // unit


def _column(row: Struct, name: str) -> SchemaAndValue:
    field = row.schema.field(name)
    if field is None:
        raise DataError(f"{name} is not a valid field name")
    return SchemaAndValue(field.schema, row.values[field.index])


def _of_type(row: Struct, name: str, kind: SchemaType) -> Value:
    """Return the value of a field; raise DataError if it is missing or has another type."""
    column = _column(row, name)
    if column.schema is None or column.schema.type is not kind:
        raise DataError(f"Field '{name}' is not of type {kind.name}")
    return column.value


def _event_name(row: str | None, routed_by: str) -> str | None:
    """Return the schema name for an event whose payload is wrapped in an envelope.

    The result is `row` (the schema name of the row) with `routed_by` inserted before its last part.
    """
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
