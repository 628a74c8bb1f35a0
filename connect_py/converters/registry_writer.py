"""Finds or registers the schemas that converters write with, and their ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import ConfigError, DataError
from connect_py.converters.schema_registry import SchemaRegistry

TOPIC_NAME: Final = "TopicNameStrategy"
_STRATEGIES: Final[Mapping[str, Callable[[str, str, str | None], str]]] = {
    TOPIC_NAME: lambda topic, side, name: f"{topic}-{side}",
    "AssociatedNameStrategy": lambda topic, side, name: f"{topic}-{side}",  # without an association
    "RecordNameStrategy": lambda topic, side, name: _named(name),
    "TopicRecordNameStrategy": lambda topic, side, name: f"{topic}-{_named(name)}",
}

CONFIG_DEF: Final = (
    ConfigDef()
    .define("auto.register.schemas", Type.BOOLEAN, default=True, importance=Importance.MEDIUM,
            doc="Register schemas that are written and that the registry does not know.")
    .define("normalize.schemas", Type.BOOLEAN, default=False, importance=Importance.MEDIUM,
            doc="Let the registry compare schemas in a normal form.")
    .define("use.latest.version", Type.BOOLEAN, default=False, importance=Importance.LOW,
            doc="Write under the id of the subject's latest version, without auto.register.schemas.")
    .define("use.schema.id", Type.INT, default=-1, importance=Importance.LOW,
            doc="Write under this id, without auto.register.schemas.")
    .define("key.subject.name.strategy", Type.STRING, default=TOPIC_NAME, importance=Importance.MEDIUM,
            doc="How subjects of keys are named: TopicNameStrategy, RecordNameStrategy or TopicRecordNameStrategy.")
    .define("value.subject.name.strategy", Type.STRING, default=TOPIC_NAME, importance=Importance.MEDIUM,
            doc="How subjects of values are named.")
)  # fmt: skip


class RegistryWriter:
    """Ids of schemas, each asked for once. Used on one thread."""

    def __init__(self, registry: SchemaRegistry, configs: Mapping[str, str], side: str, kind: str) -> None:
        """ConfigError: there is no such strategy."""
        parsed = CONFIG_DEF.parse(configs)
        name = parsed[f"{side}.subject.name.strategy"].rpartition(".")[2]
        if name not in _STRATEGIES:
            raise ConfigError(f"{side}.subject.name.strategy", f"{name} is unknown; there are {', '.join(_STRATEGIES)}")
        self._strategy = _STRATEGIES[name]
        self._registry = registry
        self._side = side
        self._kind = kind
        self._registers: bool = parsed["auto.register.schemas"]
        self._normalizes: bool = parsed["normalize.schemas"]
        self._latest: bool = parsed["use.latest.version"]
        self._fixed_id: int = parsed["use.schema.id"]
        self._ids: dict[tuple[str, str], int] = {}

    def subject(self, topic: str, name: str | None) -> str:
        """The subject of a topic's messages, with a schema of this name. DataError: the name is needed, and missing."""
        return self._strategy(topic, self._side, name)

    def id_of(self, topic: str, name: str | None, text: str) -> int:
        """The id to write messages of this schema under.

        Raises:
            DataError: The registry does not know the schema, or refuses it.
            UnavailableError: The registry is away.
        """
        subject = self.subject(topic, name)
        found = self._ids.get((subject, text))
        if found is None:
            found = self._ids[subject, text] = self._find(subject, text)
        return found

    def _find(self, subject: str, text: str) -> int:
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, self._kind)
        if self._registers:
            made = self._registry.ask(lambda client: client.register_schema(subject, schema, self._normalizes))
            return int(made)
        if self._fixed_id >= 0:
            return self._fixed_id
        if self._latest:
            return int(self._registry.ask(lambda client: client.get_latest_version(subject)).schema_id)
        known = self._registry.ask(lambda client: client.lookup_schema(subject, schema, self._normalizes))
        return int(known.schema_id)


def _named(name: str | None) -> str:
    if name is None:
        raise DataError("the subject is named after the record, which has no name")
    return name
