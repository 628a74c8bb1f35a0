"""Looks up and registers the schemas of written messages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import ConfigError, DataError
from connect_py.converters.registry.bounded_dict import BoundedDict
from connect_py.converters.registry.schema_registry import (
    RegisteredSchema,
    SchemaRegistry,
    UnknownError,
)

TOPIC_NAME: Final = "TopicNameStrategy"
_ASSOCIATED: Final = "AssociatedNameStrategy"
_ANY_CLUSTER: Final = "-"
_STRATEGIES: Final[Mapping[str, Callable[[str, str, str | None], str]]] = {
    TOPIC_NAME: lambda topic, side, name: f"{topic}-{side}",
    "RecordNameStrategy": lambda topic, side, name: _named(name),
    "TopicRecordNameStrategy": lambda topic, side, name: f"{topic}-{_named(name)}",
}
_FALLBACKS: Final = {
    "TOPIC": TOPIC_NAME,
    "RECORD": "RecordNameStrategy",
    "TOPIC_RECORD": "TopicRecordNameStrategy",
}
_PREFIX_SERIALIZER: Final = "PrefixSchemaIdSerializer"
_HEADER_SERIALIZER: Final = "HeaderSchemaIdSerializer"
_SIDES: Final = ("key", "value")

CONFIG_DEF: Final = (
    ConfigDef()
    .define(
        "auto.register.schemas",
        Type.BOOLEAN,
        default=True,
        importance=Importance.MEDIUM,
        doc="Register the schemas of written values.",
    )
    .define(
        "normalize.schemas",
        Type.BOOLEAN,
        default=False,
        importance=Importance.MEDIUM,
        doc="Normalize schemas before they are registered or looked up.",
    )
    .define(
        "use.schema.id",
        Type.INT,
        default=-1,
        importance=Importance.LOW,
        doc="Write with the schema that has this ID if auto.register.schemas=false.",
    )
    .define(
        "use.schema.guid",
        Type.STRING,
        default="",
        importance=Importance.LOW,
        doc="Write with the schema that has this GUID if auto.register.schemas=false.",
    )
    .define(
        "use.latest.version",
        Type.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        doc="Write with the latest version of the subject if auto.register.schemas=false.",
    )
    .define(
        "use.latest.with.metadata",
        Type.LIST,
        default="",
        importance=Importance.LOW,
        doc="Write with the latest version of the subject that has this metadata (key=value) if "
        "auto.register.schemas=false.",
    )
    .define(
        "latest.compatibility.strict",
        Type.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        doc="Reject values that do not match the latest version.",
    )
    .define(
        "id.compatibility.strict",
        Type.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        doc="Reject values that do not match the schema that use.schema.id or use.schema.guid "
        "specifies.",
    )
    .define(
        "subject.name.strategy.kafka.cluster.id",
        Type.STRING,
        default=_ANY_CLUSTER,
        importance=Importance.LOW,
        doc="ID of the Kafka cluster whose associations AssociatedNameStrategy uses, or - for any "
        "cluster.",
    )
    .define(
        "subject.name.strategy.fallback.type",
        Type.STRING,
        default="TOPIC",
        importance=Importance.LOW,
        doc="Subject name strategy for topics without an association: TOPIC, RECORD, "
        "TOPIC_RECORD, or NONE.",
    )
    .define(
        "context.name.strategy",
        Type.STRING,
        default="NullContextNameStrategy",
        importance=Importance.LOW,
        doc="Must be NullContextNameStrategy. The URL of the registry may contain a context "
        "instead.",
    )
)
for _side in _SIDES:
    CONFIG_DEF.define(
        f"{_side}.subject.name.strategy",
        Type.STRING,
        default=TOPIC_NAME,
        importance=Importance.MEDIUM,
        doc=f"Subject name strategy: {', '.join(_STRATEGIES)}, or {_ASSOCIATED}.",
    )
    CONFIG_DEF.define(
        f"{_side}.schema.id.serializer",
        Type.STRING,
        default=_PREFIX_SERIALIZER,
        importance=Importance.LOW,
        doc=f"Position of the schema ID: before the message body ({_PREFIX_SERIALIZER}) or in a "
        f"header ({_HEADER_SERIALIZER}).",
    )


@dataclass(frozen=True, slots=True)
class Target:
    """Identifies the schema of written messages."""

    head: bytes  # 0 and the schema ID, or 1 and the schema GUID
    schema: RegisteredSchema | None = None  # None to write with the value's own schema
    strict: bool = True  # True to reject values that do not match `schema`


class RegistryWriter:
    """Looks up or registers the schemas of written values, and caches them. Not thread-safe."""

    def __init__(
        self,
        registry: SchemaRegistry,
        configs: Mapping[str, str],
        side: str,
        kind: str,
        capacity: int,
    ) -> None:
        """Read the properties.

        Args:
            registry: The registry.
            configs: Converter properties.
            side: "key" or "value".
            kind: Type of the schemas, such as AVRO.
            capacity: Maximum number of cached schemas.

        Raises:
            ConfigError: A strategy or serializer is unknown.
        """
        parsed = CONFIG_DEF.parse(configs)
        self._strategy = _simple(parsed, f"{side}.subject.name.strategy", *_STRATEGIES, _ASSOCIATED)
        self._fallback = _simple(parsed, "subject.name.strategy.fallback.type", *_FALLBACKS, "NONE")
        serializer = _simple(
            parsed, f"{side}.schema.id.serializer", _PREFIX_SERIALIZER, _HEADER_SERIALIZER
        )
        _simple(parsed, "context.name.strategy", "NullContextNameStrategy")
        self.in_header = serializer == _HEADER_SERIALIZER
        self._cluster: str = parsed["subject.name.strategy.kafka.cluster.id"]
        self._registry = registry
        self._side = side
        self._kind = kind
        self._registers: bool = parsed["auto.register.schemas"]
        self._normalizes: bool = parsed["normalize.schemas"]
        self._latest: bool = parsed["use.latest.version"]
        self._metadata = _pairs(parsed["use.latest.with.metadata"])
        self._latest_strict: bool = parsed["latest.compatibility.strict"]
        self._fixed_strict: bool = parsed["id.compatibility.strict"]
        self._fixed_id: int = parsed["use.schema.id"]
        self._fixed_guid = _guid(parsed["use.schema.guid"])
        self._fixed: Target | None = None
        self._registered = BoundedDict[tuple[str, str | None, str], Target](capacity)
        self._latest_targets = BoundedDict[bytes, Target](capacity)
        self._associated = BoundedDict[str, str | None](capacity)

    def subject(self, topic: str, name: str | None) -> str:
        """Return the subject for a topic's messages whose schema has this name.

        Raises:
            DataError: The schema requires a name but has none, or the topic does not have exactly
                one associated subject.
            UnavailableError: The registry is unavailable.
        """
        strategy = self._strategy
        if strategy == _ASSOCIATED:
            if topic not in self._associated:
                self._associated[topic] = self._association(topic)
            subject = self._associated[topic]
            if subject is not None:
                return subject
            if self._fallback == "NONE":
                raise DataError(f"No associated subject found for topic {topic}")
            strategy = _FALLBACKS[self._fallback]
        return _STRATEGIES[strategy](topic, self._side, name)

    def target(self, topic: str, name: str | None, text: str) -> Target:
        """Return the target for messages with this schema.

        Raises:
            DataError: The schema is not registered, or the registry rejects it.
            UnavailableError: The registry is unavailable.
        """
        if not self._registers and (self._fixed_id >= 0 or self._fixed_guid is not None):
            if self._fixed is None:
                self._fixed = self._fixed_target()
            return self._fixed
        if not self._registers and (self._latest or self._metadata):
            return self._latest_target(self.subject(topic, name))
        target = self._registered.get((topic, name, text))
        if target is None:
            target = self._registered_target(self.subject(topic, name), text)
            self._registered[topic, name, text] = target
        return target

    def _association(self, topic: str) -> str | None:
        try:
            associations = self._registry.ask(
                lambda client: client.get_associations_by_resource_name(
                    topic, self._cluster, "topic", [self._side]
                )
            )
        except UnknownError:  # no association, or a registry that does not support associations
            return None
        if len(associations) > 1:
            raise DataError(f"Multiple associated subjects found for topic {topic}")
        return str(associations[0].subject) if associations else None

    def _fixed_target(self) -> Target:
        if self._fixed_guid is not None:
            schema = self._registry.by_guid(str(self._fixed_guid))
            return Target(b"\1" + self._fixed_guid.bytes, schema, self._fixed_strict)
        return Target(
            _head(self._fixed_id), self._registry.by_id(self._fixed_id), self._fixed_strict
        )

    def _latest_target(self, subject: str) -> Target:
        """Return the target for the latest version, which the client caches."""
        if self._metadata:
            latest = self._registry.ask(
                lambda client: client.get_latest_with_metadata(subject, self._metadata)
            )
        else:
            latest = self._registry.ask(lambda client: client.get_latest_version(subject))
        head = self._head_of(latest)
        target = self._latest_targets.get(head)
        if target is None:
            target = Target(head, self._registry.of(latest.schema), self._latest_strict)
            self._latest_targets[head] = target
        return target

    def _registered_target(self, subject: str, text: str) -> Target:
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, self._kind)
        if self._registers:
            registered = self._registry.ask(
                lambda client: client.register_schema_full_response(
                    subject, schema, self._normalizes
                )
            )
        else:
            registered = self._registry.ask(
                lambda client: client.lookup_schema(subject, schema, self._normalizes)
            )
        return Target(self._head_of(registered))

    def _head_of(self, registered: Any) -> bytes:
        """Return the encoded GUID if it will be written to a header, otherwise the encoded ID.

        All readers support IDs.
        """
        if self.in_header and registered.guid:
            return b"\1" + uuid.UUID(registered.guid).bytes
        return _head(int(registered.schema_id))


def _head(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def _simple(parsed: Mapping[str, Any], key: str, *names: str) -> str:
    """Return the simple name of a Java class. Raises ConfigError if it is not in `names`."""
    name: str = parsed[key].rpartition(".")[2]
    if name not in names:
        raise ConfigError(key, f"unknown class {name}: expected {' or '.join(names)}")
    return name


def _pairs(items: list[str]) -> dict[str, str]:
    pairs = [item.partition("=") for item in items if item]
    if not all(equals for _, equals, _ in pairs):
        raise ConfigError("use.latest.with.metadata", "expected key=value, separated by commas")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _guid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text) if text else None
    except ValueError as error:
        raise ConfigError("use.schema.guid", "must be a GUID") from error


def _named(name: str | None) -> str:
    if name is None:
        raise DataError("the subject is named after the record, but the record has no name")
    return name
