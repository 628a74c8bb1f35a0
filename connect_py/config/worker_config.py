"""Immutable worker configurations for standalone and distributed mode."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Self, cast

from connect_py.api.config import HIDDEN, ConfigDef, ConfigValueError, Parsed, with_prefix
from connect_py.api.errors import ConfigError
from connect_py.config.config_provider import ConfigResolver
from connect_py.config.worker_definitions import (
    MIN_KEY_BITS,
    distributed_config_def,
    log_levels,
    standalone_config_def,
)

log = logging.getLogger(__name__)

UNUSED_CONVERTER_KEYS: Final = ("internal.key.converter", "internal.value.converter")
ALWAYS_COMPACT: Final = "compact"
STORAGES: Final = ("config", "status", "offset")
TOPIC_PURPOSES: Final[Mapping[str, str]] = {
    "config": "Must specify topic for connector configuration.",
    "status": "Must specify topic for connector status.",
    "offset": "Offset storage topic must be specified",
}
# settings for the worker's own Kafka clients; these settings have no client prefix
_CLIENT_KEYS: Final = ("bootstrap.servers", "client.dns.lookup", "request.timeout.ms")
_CLIENT_PREFIXES: Final = (
    "security.",
    "sasl.",
    "ssl.",
    "metadata.",
    "socket.",
    "reconnect.",
    "retry.",
    "connections.",
    "send.",
    "receive.",
)
_OWN_PREFIXES: Final = (
    "producer.",
    "consumer.",
    "admin.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "config.providers.",
    "config.storage.",
    "status.storage.",
    "offset.storage.",
    "control.storage.",
    "listeners.https.",
    "admin.listeners.https.",
    "security.",
    "sasl.",
    "connect_py.",
    *UNUSED_CONVERTER_KEYS,
)


@dataclass(frozen=True, slots=True)
class StorageTopic:
    """Name and settings of an internal topic."""

    name: str
    property: str  # worker property that contains the name
    partitions: int  # -1 for the broker's default
    replication_factor: int  # -1 for the broker's default
    settings: Mapping[str, str] = field(default_factory=dict)  # additional topic configs

    def replication_property(self) -> str:
        """Return the worker property for the replication factor. Some topics share a property."""
        storage = {"control": "config", "offsets": "offset"}.get(
            name := self.property.partition(".")[0], name
        )
        return f"{storage}.storage.replication.factor"


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Configuration of a worker. `values` contains parsed values, `props` the resolved strings."""

    values: Mapping[str, Parsed]
    props: Mapping[str, str]
    # keys without a definition; code that looks up keys by prefix reads them from `props`
    unknown: tuple[str, ...]
    resolver: ConfigResolver  # resolves placeholders in connector configurations

    @classmethod
    def of(cls, file_props: Mapping[str, str]) -> Self:
        """Resolve placeholders and parse the properties.

        Raises:
            ConfigError: A value is invalid, or a required key is missing.
        """
        resolver = ConfigResolver.of(file_props)
        props = resolver.resolve(file_props)
        if "${" in props.get("plugin.path", "") or props.get("plugin.path") != file_props.get(
            "plugin.path"
        ):
            raise ConfigError("", "Config providers can not be used in plugin.path")
        definition = cls.definition()
        cls._check_props(props)
        unknown = tuple(
            key for key in props if key not in definition.keys and not key.startswith(_OWN_PREFIXES)
        )
        config = cls(
            MappingProxyType(definition.parse(props)), MappingProxyType(props), unknown, resolver
        )
        config._check()
        return config

    @classmethod
    def definition(cls) -> ConfigDef:
        """Return the property definitions for this mode."""
        raise NotImplementedError

    @classmethod
    def _check_props(cls, props: Mapping[str, str]) -> None:
        """Validate properties that need a more specific error than their definition provides."""

    def _check(self) -> None:
        """Validate values that depend on each other."""

    def __getitem__(self, key: str) -> Any:
        """Return the parsed value of a defined key."""
        return self.values[key]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self["bootstrap.servers"])

    @property
    def group_id(self) -> str | None:
        """ID of the worker's group, or None if there is no group."""
        return None

    @property
    def exactly_once_sources(self) -> bool:
        """True if sources may use transactions."""
        return False

    @property
    def client_id_prefix(self) -> str:
        """Prefix for the client IDs of the worker's own Kafka clients."""
        raise NotImplementedError

    def kafka_settings(self) -> dict[str, str]:
        """Return the settings for the worker's own Kafka clients, using the Java client's names.

        These are the worker properties without a client prefix.
        """
        settings = {
            k: v
            for k, v in self.props.items()
            if k in _CLIENT_KEYS or k.startswith(_CLIENT_PREFIXES)
        }
        return {"bootstrap.servers": self.bootstrap_servers, **settings}

    def log_levels(self) -> dict[str, str]:
        """Return the initial log levels keyed by logger, using Connect's level names.

        `root` applies to loggers without a level.
        """
        return log_levels("connect_py.log.levels", self["connect_py.log.levels"])

    def stop_ms(self) -> int:
        """Return the maximum time for stopping the worker and its tasks, in milliseconds."""
        return cast(int, self["task.shutdown.graceful.timeout.ms"])

    def log_values(self) -> None:
        """Log the configuration with secrets masked, and all properties that have no effect."""
        for key in sorted(self.unknown):
            log.info("worker property %s is unknown; plugins may use it", key)
        for key in UNUSED_CONVERTER_KEYS:
            if key in self.props:
                log.warning(
                    "ignoring worker property %s: internal topics contain JSON without schemas", key
                )
        self._log_ineffective()
        lines = (f"\t{key} = {_printed(value)}" for key, value in sorted(self.values.items()))
        log.info("%s values: \n%s", type(self).__name__, "\n".join(lines))

    def _log_ineffective(self) -> None:
        """Log the properties that are accepted but have no effect in this mode."""


@dataclass(frozen=True, slots=True)
class StandaloneConfig(WorkerConfig):
    """Configuration of a standalone worker."""

    @classmethod
    def definition(cls) -> ConfigDef:
        return standalone_config_def()

    @property
    def client_id_prefix(self) -> str:
        client_id = self.props.get("client.id", "").strip()
        return f"{client_id}-" if client_id else ""

    @property
    def offset_file(self) -> str:
        """File in which Java's standalone worker stores source offsets."""
        return cast(str, self["offset.storage.file.filename"])


@dataclass(frozen=True, slots=True)
class DistributedConfig(WorkerConfig):
    """Configuration of a distributed worker."""

    @classmethod
    def definition(cls) -> ConfigDef:
        return distributed_config_def()

    @classmethod
    def _check_props(cls, props: Mapping[str, str]) -> None:
        for storage, purpose in TOPIC_PURPOSES.items():
            if (
                f"{storage}.storage.topic" in props
                and not props[f"{storage}.storage.topic"].strip()
            ):
                raise ConfigError("", purpose)

    def _check(self) -> None:
        WorkerConfig._check(self)
        names = [self.storage_topic(storage).name for storage in STORAGES] + [
            self.control_topic().name
        ]
        if len(set(names)) != len(names):
            raise ConfigError(
                "", f"the internal topics must have different names, found {', '.join(names)}"
            )
        signature = self["inter.worker.signature.algorithm"]
        if signature not in self["inter.worker.verification.algorithms"]:
            raise ConfigValueError(
                "inter.worker.signature.algorithm",
                signature,
                "Signature algorithm must be present in inter.worker.verification.algorithms list",
            )
        bits = self["inter.worker.key.size"]
        if bits is not None and bits < MIN_KEY_BITS:
            raise ConfigError(
                "",
                f"Unable to create key generator with algorithm "
                f"{self['inter.worker.key.generation.algorithm']} "
                f"and key size {bits}: Key length must be at least {MIN_KEY_BITS} bits",
            )
        if self["heartbeat.interval.ms"] >= self["session.timeout.ms"]:
            raise ConfigError("", "Heartbeat must be set lower than the session timeout")

    def stop_ms(self) -> int:
        return WorkerConfig.stop_ms(self) + cast(int, self["worker.sync.timeout.ms"])

    @property
    def group_id(self) -> str:
        return cast(str, self["group.id"])

    @property
    def exactly_once_sources(self) -> bool:
        return cast(str, self["exactly.once.source.support"]).lower() == "enabled"

    @property
    def client_id_prefix(self) -> str:
        client_id = self["client.id"]
        return f"{self.group_id}-{client_id}-" if client_id else f"{self.group_id}-"

    def storage_topic(self, storage: str) -> StorageTopic:
        """Return the internal topic for `config`, `status`, or `offset` storage."""
        prefix = f"{storage}.storage."
        fixed = {"topic", "partitions", "replication.factor", "cleanup.policy"}
        return StorageTopic(
            self[f"{prefix}topic"],
            f"{prefix}topic",
            1 if storage == "config" else self[f"{prefix}partitions"],
            self[f"{prefix}replication.factor"],
            {**self._topic_settings(prefix, fixed), "cleanup.policy": ALWAYS_COMPACT},
        )

    def control_topic(self) -> StorageTopic:
        """Return the control topic of the worker group.

        The topic is compacted, old segments are deleted, and a new segment starts every ten
        minutes.
        """
        settings = {"cleanup.policy": "compact,delete", "segment.ms": "600000"}
        settings.update(
            self._topic_settings("control.storage.", {"topic", "partitions", "replication.factor"})
        )
        return StorageTopic(
            self["control.storage.topic"] or f"{self.group_id}-control",
            "control.storage.topic",
            1,
            self["config.storage.replication.factor"],
            settings,
        )

    def _topic_settings(self, prefix: str, without: set[str]) -> dict[str, str]:
        return {
            key: value
            for key, value in with_prefix(self.props, prefix).items()
            if key not in without
        }

    def _log_ineffective(self) -> None:
        WorkerConfig._log_ineffective(self)
        for storage in STORAGES:
            if f"{storage}.storage.cleanup.policy" in self.props:
                log.warning(
                    "ignoring worker property %s.storage.cleanup.policy: it is always compact",
                    storage,
                )
        if "config.storage.partitions" in self.props:
            log.warning(
                "ignoring worker property config.storage.partitions: the config topic has one "
                "partition"
            )


def _printed(value: Parsed) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(value) + "]"
    return HIDDEN if str(value) == HIDDEN else str(value)
