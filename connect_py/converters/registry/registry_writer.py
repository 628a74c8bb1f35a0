"""Finds or registers the schemas that converters write with, and what names them in messages."""

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
        doc="Register schemas that are written and that the registry does not know.",
    )
    .define(
        "normalize.schemas",
        Type.BOOLEAN,
        default=False,
        importance=Importance.MEDIUM,
        doc="Let the registry compare schemas in a normal form.",
    )
    .define(
        "use.schema.id",
        Type.INT,
        default=-1,
        importance=Importance.LOW,
        doc="Write by the schema of this id, without auto.register.schemas.",
    )
    .define(
        "use.schema.guid",
        Type.STRING,
        default="",
        importance=Importance.LOW,
        doc="Write by the schema of this GUID, without auto.register.schemas.",
    )
    .define(
        "use.latest.version",
        Type.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        doc="Write by the subject's latest version, without auto.register.schemas.",
    )
    .define(
        "use.latest.with.metadata",
        Type.LIST,
        default="",
        importance=Importance.LOW,
        doc="Write by the subject's latest version with this metadata, key=value, without "
        "auto.register.schemas.",
    )
    .define(
        "latest.compatibility.strict",
        Type.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        doc="Refuse values that have no place in the latest version.",
    )
    .define(
        "id.compatibility.strict",
        Type.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        doc="Refuse values that have no place in the schema of use.schema.id or use.schema.guid.",
    )
    .define(
        "subject.name.strategy.kafka.cluster.id",
        Type.STRING,
        default=_ANY_CLUSTER,
        importance=Importance.LOW,
        doc="The cluster whose associations AssociatedNameStrategy asks for; - for any.",
    )
    .define(
        "subject.name.strategy.fallback.type",
        Type.STRING,
        default="TOPIC",
        importance=Importance.LOW,
        doc="What names the subject of a topic without association: TOPIC, RECORD, TOPIC_RECORD or "
        "NONE.",
    )
    .define(
        "context.name.strategy",
        Type.STRING,
        default="NullContextNameStrategy",
        importance=Importance.LOW,
        doc="NullContextNameStrategy; a context may stand in the registry's URL instead.",
    )
)
for _side in _SIDES:
    CONFIG_DEF.define(
        f"{_side}.subject.name.strategy",
        Type.STRING,
        default=TOPIC_NAME,
        importance=Importance.MEDIUM,
        doc=f"How subjects are named: {', '.join([*_STRATEGIES, _ASSOCIATED])}.",
    )
    CONFIG_DEF.define(
        f"{_side}.schema.id.serializer",
        Type.STRING,
        default=_PREFIX_SERIALIZER,
        importance=Importance.LOW,
        doc=f"What names the schema before the message; {_HEADER_SERIALIZER}: in a header.",
    )


@dataclass(frozen=True, slots=True)
class Target:
    """What a message is written under."""

    head: bytes  # 0 and an id, or 1 and a GUID
    schema: RegisteredSchema | None = None  # to write by, if it is not the value's own
    strict: bool = True  # values must have a place in it


class RegistryWriter:
    """What schemas are registered under, each asked for once. Used on one thread."""

    def __init__(
        self,
        registry: SchemaRegistry,
        configs: Mapping[str, str],
        side: str,
        kind: str,
        capacity: int,
    ) -> None:
        """Remember answers about `capacity` schemas. ConfigError: there is no such strategy or
        serializer."""
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
        self._found = BoundedDict[tuple[str, str | None, str], Target](capacity)
        self._latest_targets = BoundedDict[bytes, Target](capacity)
        self._associated = BoundedDict[str, str | None](capacity)

    def subject(self, topic: str, name: str | None) -> str:
        """The subject of a topic's messages, with a schema of this name.

        Raises: DataError: The name is needed, and missing; or the registry has no single subject
            for the topic. UnavailableError: The registry is away.
        """
        strategy = self._strategy
        if strategy == _ASSOCIATED:
            if topic not in self._associated:
                self._associated[topic] = self._association(topic)
            found = self._associated[topic]
            if found is not None:
                return found
            if self._fallback == "NONE":
                raise DataError(f"No associated subject found for topic {topic}")
            strategy = _FALLBACKS[self._fallback]
        return _STRATEGIES[strategy](topic, self._side, name)

    def target(self, topic: str, name: str | None, text: str) -> Target:
        """What to write messages of this schema under.

        Raises:
            DataError: The registry does not know the schema, or refuses it.
            UnavailableError: The registry is away.
        """
        if not self._registers and (self._fixed_id >= 0 or self._fixed_guid is not None):
            if self._fixed is None:
                self._fixed = self._of_fixed()
            return self._fixed
        if not self._registers and (self._latest or self._metadata):
            return self._of_latest(self.subject(topic, name))
        found = self._found.get((topic, name, text))
        if found is None:
            found = self._found[topic, name, text] = self._of_own(self.subject(topic, name), text)
        return found

    def _association(self, topic: str) -> str | None:
        try:
            found = self._registry.ask(
                lambda client: client.get_associations_by_resource_name(
                    topic, self._cluster, "topic", [self._side]
                )
            )
        except UnknownError:  # none, or a registry that knows nothing of associations
            return None
        if len(found) > 1:
            raise DataError(f"Multiple associated subjects found for topic {topic}")
        return str(found[0].subject) if found else None

    def _of_fixed(self) -> Target:
        if self._fixed_guid is not None:
            schema = self._registry.by_guid(str(self._fixed_guid))
            return Target(b"\1" + self._fixed_guid.bytes, schema, self._fixed_strict)
        return Target(
            _head(self._fixed_id), self._registry.by_id(self._fixed_id), self._fixed_strict
        )

    def _of_latest(self, subject: str) -> Target:
        """Asked each time: the client remembers the answer, for as long as it may."""
        if self._metadata:
            found = self._registry.ask(
                lambda client: client.get_latest_with_metadata(subject, self._metadata)
            )
        else:
            found = self._registry.ask(lambda client: client.get_latest_version(subject))
        head = self._head_of(found)
        target = self._latest_targets.get(head)
        if target is None:
            target = Target(head, self._registry.of(found.schema), self._latest_strict)
            self._latest_targets[head] = target
        return target

    def _of_own(self, subject: str, text: str) -> Target:
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, self._kind)
        if self._registers:
            made = self._registry.ask(
                lambda client: client.register_schema_full_response(
                    subject, schema, self._normalizes
                )
            )
        else:
            made = self._registry.ask(
                lambda client: client.lookup_schema(subject, schema, self._normalizes)
            )
        return Target(self._head_of(made))

    def _head_of(self, registered: Any) -> bytes:
        """An id before messages, which all readers know; a GUID in a header, if the registry has
        them."""
        if self.in_header and registered.guid:
            return b"\1" + uuid.UUID(registered.guid).bytes
        return _head(int(registered.schema_id))


def _head(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def _simple(parsed: Mapping[str, Any], key: str, *known: str) -> str:
    """A name of Java, with or without its package."""
    name: str = parsed[key].rpartition(".")[2]
    if name not in known:
        raise ConfigError(key, f"{name} is unknown; there are {', '.join(known)}")
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
        raise ConfigError("use.schema.guid", "is no GUID") from error


def _named(name: str | None) -> str:
    if name is None:
        raise DataError("the subject is named after the record, which has no name")
    return name
