"""The worker's properties: every key of Connect's distributed worker, parsed once into a frozen object."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

from connect_py.api.config import (
    HIDDEN,
    ConfigDef,
    ConfigValueError,
    Importance,
    Parsed,
    Type,
    at_least,
    non_empty,
    one_of,
    with_prefix,
)
from connect_py.api.errors import ConfigError
from connect_py.config.config_provider import ConfigResolver

log = logging.getLogger(__name__)

INT_MAX = 2**31 - 1
UNUSED_CONVERTER_KEYS = ("internal.key.converter", "internal.value.converter")
ALWAYS_COMPACT = "compact"
OVERRIDE_POLICIES = ("All", "None", "Principal", "Allowlist")
STORAGES = ("config", "status", "offset")


def _partitions(name: str, value: Parsed) -> None:
    if value is None or (value <= 0 and value != -1):
        raise ConfigValueError(name, value, "Number of partitions must be positive, or -1 to use the broker's default")


def _replication_factor(name: str, value: Parsed) -> None:
    if value is None or (value <= 0 and value != -1):
        raise ConfigValueError(
            name, value, "Replication factor must be positive and not larger than the number of brokers in the Kafka "
            "cluster, or -1 to use the broker's default",
        )  # fmt: skip


def _listeners(name: str, value: Parsed) -> None:
    if not value:
        raise ConfigValueError(
            name, value, "Invalid value for listeners, at least one URL is expected, ex: http://localhost:8080,https://localhost:8443."
        )  # fmt: skip
    _admin_listeners(name, value)


def _admin_listeners(name: str, value: Parsed) -> None:
    for item in value or ():
        if not item.strip():
            raise ConfigValueError(
                name, value, "Empty URL found when parsing listeners list."
            )  # fmt: skip


def _plain_path(name: str, value: Parsed) -> None:
    if value is not None and any("${" in item for item in value):
        raise ConfigValueError(name, value, "Config providers can not be used in plugin.path")


def override_policy(name: str) -> str:
    """The short name of a policy: `None` for `...NoneConnectorClientConfigOverridePolicy`."""
    short = name.strip().rpartition(".")[2]
    return short.removesuffix("ConnectorClientConfigOverridePolicy") or short


def _override_policy(name: str, value: Parsed) -> None:
    if value is None or override_policy(value) not in OVERRIDE_POLICIES:
        raise ConfigValueError(name, value, f"Class {value} could not be found.")


H, M, L = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def common_config_def() -> ConfigDef:
    """The keys of both modes: converters, commits, REST, plugins, metrics."""
    return (
        ConfigDef()
        .define("bootstrap.servers", Type.LIST, importance=H, validator=non_empty,
                doc="Addresses of the Kafka cluster, host:port.")
        .define("client.dns.lookup", Type.STRING, default="use_all_dns_ips", importance=M,
                validator=one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
                doc="How bootstrap names are looked up.")
        .define("key.converter", Type.CLASS, importance=H, doc="Converter of keys for connectors that name none.")
        .define("key.converter.plugin.version", Type.STRING, default=None, importance=L,
                doc="Version range of the key converter.")
        .define("value.converter", Type.CLASS, importance=H, doc="Converter of values for connectors that name none.")
        .define("value.converter.plugin.version", Type.STRING, default=None, importance=L,
                doc="Version range of the value converter.")
        .define("header.converter", Type.CLASS, importance=L,
                default="org.apache.kafka.connect.storage.SimpleHeaderConverter", doc="Converter of header values.")
        .define("header.converter.plugin.version", Type.STRING, default=None, importance=L,
                doc="Version range of the header converter.")
        .define("offset.flush.interval.ms", Type.LONG, default=60_000, importance=L,
                doc="Milliseconds between commits of offsets.")
        .define("offset.flush.timeout.ms", Type.LONG, default=5_000, importance=L,
                doc="Longest wait for one commit, in milliseconds; then it counts as failed and is repeated.")
        .define("task.shutdown.graceful.timeout.ms", Type.LONG, default=5_000, importance=L,
                doc="Milliseconds that tasks have to stop; they are all asked at once.")
        .define("plugin.path", Type.LIST, default=None, importance=L, validator=_plain_path,
                doc="Folders with plugins; accepted, plugins are installed packages here.")
        .define("plugin.discovery", Type.STRING, default="hybrid_warn", importance=L,
                validator=one_of("only_scan", "hybrid_warn", "hybrid_fail", "service_load", case_insensitive=True),
                doc="How Java finds plugins; accepted without effect.")
        .define("config.providers", Type.LIST, default="", importance=L,
                doc="Names of the providers that resolve placeholders in configurations.")
        .define("connector.client.config.override.policy", Type.STRING, default="All", importance=L,
                validator=_override_policy,
                doc="Which client settings a connector may override: All, None, Principal or Allowlist.")
        .define("connector.client.config.override.allowlist", Type.LIST, default="", importance=L,
                doc="Client settings that the policy Allowlist lets connectors override.")
        .define("topic.creation.enable", Type.BOOLEAN, default=True, importance=L,
                doc="Whether sources may create topics by topic.creation.* settings.")
        .define("topic.tracking.enable", Type.BOOLEAN, default=True, importance=L,
                doc="Whether the topics that a connector uses are recorded.")
        .define("topic.tracking.allow.reset", Type.BOOLEAN, default=True, importance=L,
                doc="Whether the recorded topics may be forgotten on request.")
        .define("metrics.sample.window.ms", Type.LONG, default=30_000, importance=L, validator=at_least(0),
                doc="Window of rates and averages, in milliseconds.")
        .define("metrics.num.samples", Type.INT, default=2, importance=L, validator=at_least(1),
                doc="Number of windows that make a metric.")
        .define("metrics.recording.level", Type.STRING, default="INFO", importance=L,
                validator=one_of("INFO", "DEBUG"), doc="Level of detail of metrics.")
        .define("metric.reporters", Type.LIST, default="org.apache.kafka.common.metrics.JmxReporter", importance=L,
                doc="Accepted without effect; metrics are served over HTTP.")
        .define("listeners", Type.LIST, default="http://:8083", importance=L, validator=_listeners,
                doc="Addresses that the REST API listens on.")
        .define("admin.listeners", Type.LIST, default=None, importance=L, validator=_admin_listeners,
                doc="Addresses of the admin API; unset: the same listeners, empty: none.")
        .define("rest.advertised.host.name", Type.STRING, default=None, importance=L,
                doc="Host name that other workers are told.")
        .define("rest.advertised.port", Type.INT, default=None, importance=L, doc="Port that other workers are told.")
        .define("rest.advertised.listener", Type.STRING, default=None, importance=L,
                doc="Protocol of the listener that other workers use, http or https.")
        .define("access.control.allow.origin", Type.STRING, default="", importance=L,
                doc="Origins that browsers may call the API from.")
        .define("access.control.allow.methods", Type.STRING, default="", importance=L,
                doc="Methods that cross-origin requests may use.")
        .define("response.http.headers.config", Type.STRING, default="", importance=L,
                doc="Headers that are added to every answer.")
        .define("rest.extension.classes", Type.LIST, default="", importance=L, doc="Extensions of the REST API.")
        .define("ssl.client.auth", Type.STRING, default="none", importance=L,
                validator=one_of("none", "requested", "required"), doc="Whether HTTPS clients show a certificate.")
    )  # fmt: skip


def _define_all(definition: ConfigDef, keys: str, key_type: Type, default: Parsed, doc: str) -> None:
    for name in keys.split():
        definition.define(name, key_type, default=default, importance=Importance.LOW, doc=doc)


def security_config_def(definition: ConfigDef) -> ConfigDef:
    """Add the security keys of Kafka clients; their meaning is Kafka's."""
    ssl, sasl = "TLS setting of Kafka clients and HTTPS listeners.", "SASL setting of Kafka clients."
    definition.define("security.protocol", Type.STRING, default="PLAINTEXT", importance=M,
                      doc="Protocol of the worker's own Kafka clients.")  # fmt: skip
    for name, default in {
        "ssl.protocol": "TLSv1.3", "ssl.keystore.type": "JKS", "ssl.truststore.type": "JKS",
        "ssl.keystore.location": None, "ssl.truststore.location": None, "ssl.provider": None,
        "ssl.endpoint.identification.algorithm": "https", "ssl.secure.random.implementation": None,
        "ssl.engine.factory.class": None, "ssl.keymanager.algorithm": "SunX509", "ssl.trustmanager.algorithm": "PKIX",
    }.items():  # fmt: skip
        _define_all(definition, name, Type.STRING, default, ssl)
    _define_all(definition, "ssl.enabled.protocols", Type.LIST, "TLSv1.2,TLSv1.3", ssl)
    _define_all(definition, "ssl.cipher.suites", Type.LIST, None, ssl)
    _define_all(
        definition,
        "ssl.keystore.password ssl.key.password ssl.truststore.password ssl.keystore.key "
        "ssl.keystore.certificate.chain ssl.truststore.certificates",
        Type.PASSWORD, None, ssl,
    )  # fmt: skip
    typed: tuple[tuple[str, Type, Parsed], ...] = (
        ("sasl.mechanism", Type.STRING, "GSSAPI"), ("sasl.jaas.config", Type.PASSWORD, None),
        ("sasl.kerberos.service.name", Type.STRING, None), ("sasl.kerberos.kinit.cmd", Type.STRING, "/usr/bin/kinit"),
        ("sasl.kerberos.ticket.renew.window.factor", Type.DOUBLE, 0.8),
        ("sasl.kerberos.ticket.renew.jitter", Type.DOUBLE, 0.05),
        ("sasl.kerberos.min.time.before.relogin", Type.LONG, 60_000),
        ("sasl.login.refresh.window.factor", Type.DOUBLE, 0.8), ("sasl.login.refresh.window.jitter", Type.DOUBLE, 0.05),
        ("sasl.login.refresh.min.period.seconds", Type.SHORT, 60),
        ("sasl.login.refresh.buffer.seconds", Type.SHORT, 300),
        ("sasl.login.connect.timeout.ms", Type.INT, None), ("sasl.login.read.timeout.ms", Type.INT, None),
        ("sasl.login.retry.backoff.ms", Type.LONG, 100), ("sasl.login.retry.backoff.max.ms", Type.LONG, 10_000),
        ("sasl.oauthbearer.client.credentials.client.secret", Type.PASSWORD, None),
        ("sasl.oauthbearer.assertion.private.key.passphrase", Type.PASSWORD, None),
        ("sasl.oauthbearer.scope.claim.name", Type.STRING, "scope"),
        ("sasl.oauthbearer.sub.claim.name", Type.STRING, "sub"),
        ("sasl.oauthbearer.header.urlencode", Type.BOOLEAN, False),
    )  # fmt: skip
    for name, kind, value in typed:
        _define_all(definition, name, kind, value, sasl)
    _define_all(
        definition,
        "sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class "
        "sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.scope sasl.oauthbearer.client.credentials.client.id",
        Type.STRING, None, sasl,
    )  # fmt: skip
    return definition


def distributed_config_def() -> ConfigDef:
    """The keys of a distributed worker."""
    definition = security_config_def(common_config_def())
    signature = "Signing of calls between workers."
    return (
        definition.define("group.id", Type.STRING, importance=H, doc="Name of the group that the worker joins.")
        .define("config.storage.topic", Type.STRING, importance=H, doc="Topic that holds connector configurations.")
        .define("config.storage.replication.factor", Type.SHORT, default=3, importance=L,
                validator=_replication_factor, doc="Replication factor when the config topic is created.")
        .define("status.storage.topic", Type.STRING, importance=H, doc="Topic that holds statuses.")
        .define("status.storage.partitions", Type.INT, default=5, importance=L, validator=_partitions,
                doc="Partitions when the status topic is created.")
        .define("status.storage.replication.factor", Type.SHORT, default=3, importance=L,
                validator=_replication_factor, doc="Replication factor when the status topic is created.")
        .define("offset.storage.topic", Type.STRING, importance=H, doc="Topic that holds offsets of sources.")
        .define("offset.storage.partitions", Type.INT, default=25, importance=L, validator=_partitions,
                doc="Partitions when the offset topic is created.")
        .define("offset.storage.replication.factor", Type.SHORT, default=3, importance=L,
                validator=_replication_factor, doc="Replication factor when the offset topic is created.")
        .define("control.storage.topic", Type.STRING, default=None, importance=L,
                doc="Topic on which workers find each other; unless set {group.id}-control.")
        .define("internal.topics.automatic.creation.enable", Type.BOOLEAN, default=True, importance=L,
                doc="Whether missing internal topics are created.")
        .define("session.timeout.ms", Type.INT, default=10_000, importance=H, validator=at_least(1),
                doc="Milliseconds after which a silent worker counts as gone.")
        .define("heartbeat.interval.ms", Type.INT, default=3_000, importance=H, validator=at_least(1),
                doc="Milliseconds between signs of life.")
        .define("rebalance.timeout.ms", Type.INT, default=60_000, importance=H,
                doc="Milliseconds that a worker has to give up what is taken from it.")
        .define("scheduled.rebalance.max.delay.ms", Type.INT, default=300_000, importance=L,
                validator=at_least(0), doc="Milliseconds that the work of a lost worker waits for its return.")
        .define("connect.protocol", Type.STRING, default="sessioned", importance=L,
                validator=one_of("eager", "compatible", "sessioned", case_insensitive=True),
                doc="Java's group protocol; here only: sessioned signs calls between workers.")
        .define("worker.sync.timeout.ms", Type.INT, default=3_000, importance=M,
                doc="Milliseconds to wait for catching up with the config topic.")
        .define("worker.unsync.backoff.ms", Type.INT, default=300_000, importance=M,
                doc="Milliseconds to stay out of the group when catching up failed.")
        .define("exactly.once.source.support", Type.STRING, default="disabled", importance=H,
                validator=one_of("disabled", "preparing", "enabled", case_insensitive=True),
                doc="Whether sources may write in transactions.")
        .define("inter.worker.key.generation.algorithm", Type.STRING, default="HmacSHA256", importance=L, doc=signature)
        .define("inter.worker.key.size", Type.INT, default=None, importance=L, doc=signature)
        .define("inter.worker.key.ttl.ms", Type.INT, default=3_600_000, importance=L,
                validator=at_least(0), doc=signature)
        .define("inter.worker.signature.algorithm", Type.STRING, default="HmacSHA256", importance=L, doc=signature)
        .define("inter.worker.verification.algorithms", Type.LIST, default="HmacSHA256", importance=L,
                validator=non_empty, doc=signature)
        .define("client.id", Type.STRING, default="", importance=L, doc="Part of the names of the worker's clients.")
        .define("metadata.max.age.ms", Type.LONG, default=300_000, importance=L, validator=at_least(0),
                doc="Milliseconds after which metadata is refreshed.")
        .define("send.buffer.bytes", Type.INT, default=131_072, importance=M, validator=at_least(-1),
                doc="Size of the TCP send buffer.")
        .define("receive.buffer.bytes", Type.INT, default=32_768, importance=M, validator=at_least(-1),
                doc="Size of the TCP receive buffer.")
        .define("reconnect.backoff.ms", Type.LONG, default=50, importance=L, validator=at_least(0),
                doc="Pause before connecting again.")
        .define("reconnect.backoff.max.ms", Type.LONG, default=1_000, importance=L, validator=at_least(0),
                doc="Longest pause before connecting again.")
        .define("retry.backoff.ms", Type.LONG, default=100, importance=L, validator=at_least(0),
                doc="Pause before a request is repeated.")
        .define("retry.backoff.max.ms", Type.LONG, default=1_000, importance=L, validator=at_least(0),
                doc="Longest pause before a request is repeated.")
        .define("socket.connection.setup.timeout.ms", Type.LONG, default=10_000, importance=L,
                doc="Milliseconds to wait for a connection.")
        .define("socket.connection.setup.timeout.max.ms", Type.LONG, default=30_000, importance=L,
                doc="Longest wait for a connection.")
        .define("request.timeout.ms", Type.INT, default=40_000, importance=M, validator=at_least(0),
                doc="Milliseconds to wait for an answer.")
        .define("connections.max.idle.ms", Type.LONG, default=540_000, importance=M,
                doc="Milliseconds after which an idle connection is closed.")
        .define("metadata.recovery.strategy", Type.STRING, default="rebootstrap", importance=L,
                validator=one_of("none", "rebootstrap", case_insensitive=True),
                doc="What a client does when no known broker is left.")
        .define("metadata.recovery.rebootstrap.trigger.ms", Type.LONG, default=300_000, importance=L,
                validator=at_least(0), doc="Milliseconds without metadata before bootstrapping again.")
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StorageTopic:
    """How one internal topic is called and created."""

    name: str
    property: str  # the worker property that names it
    partitions: int  # -1: the broker's default
    replication_factor: int  # -1: the broker's default
    settings: Mapping[str, str] = field(default_factory=dict)  # further topic configs


@dataclass(frozen=True, slots=True)
class DistributedConfig:
    """A distributed worker's configuration: `values` by key, parsed; `props` as texts, placeholders resolved."""

    values: Mapping[str, Parsed]
    props: Mapping[str, str]
    unknown: tuple[str, ...]  # keys of the file that no definition knows; prefix users read them from `props`
    resolver: ConfigResolver  # resolves the placeholders of connector configurations

    @staticmethod
    def of(file_props: Mapping[str, str]) -> DistributedConfig:
        """Resolve placeholders and parse.

        Raises:
            ConfigError: A value is not acceptable or a required key is missing.
        """
        resolver = ConfigResolver.of(file_props)
        props = resolver.resolve(file_props)
        if "${" in props.get("plugin.path", "") or props.get("plugin.path") != file_props.get("plugin.path"):
            raise ConfigError("", "Config providers can not be used in plugin.path")
        definition = distributed_config_def()
        for storage, purpose in (
            ("config", "Must specify topic for connector configuration."),
            ("status", "Must specify topic for connector status."),
            ("offset", "Offset storage topic must be specified"),
        ):
            if f"{storage}.storage.topic" in props and not props[f"{storage}.storage.topic"].strip():
                raise ConfigError("", purpose)
        values = definition.parse(props)
        config = DistributedConfig(
            MappingProxyType(values), MappingProxyType(props), _unknown(props, definition), resolver
        )
        config._check()
        return config

    def _check(self) -> None:
        names = [self.storage_topic(storage).name for storage in STORAGES] + [self.control_topic().name]
        if len(set(names)) != len(names):
            raise ConfigError("", f"the internal topics need different names, found {', '.join(names)}")
        if self["inter.worker.signature.algorithm"] not in self["inter.worker.verification.algorithms"]:
            raise ConfigError(
                "inter.worker.signature.algorithm",
                "Signature algorithm must be present in inter.worker.verification.algorithms list",
            )
        if self["heartbeat.interval.ms"] >= self["session.timeout.ms"]:
            raise ConfigError("", "Heartbeat must be set lower than the session timeout")
        if self["rest.extension.classes"]:
            # Ignoring them would open an API that its owner believes protected.
            raise ConfigError(
                "rest.extension.classes", "extensions are Java classes and cannot be loaded; protect the REST API with "
                "a proxy in front of it and remove this property",
            )  # fmt: skip

    def __getitem__(self, key: str) -> Any:
        """The parsed value of a defined key."""
        return self.values[key]

    @property
    def group_id(self) -> str:
        return cast(str, self["group.id"])

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self["bootstrap.servers"])

    @property
    def client_id_prefix(self) -> str:
        """What the names of the worker's own clients start with."""
        own = self["client.id"]
        return f"{self.group_id}-{own}-" if own else f"{self.group_id}-"

    def storage_topic(self, storage: str) -> StorageTopic:
        """Of `config`, `status` or `offset`."""
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
        """The topic of the worker group: compacted, old segments deleted, closed every ten minutes."""
        settings = {"cleanup.policy": "compact,delete", "segment.ms": "600000"}
        settings.update(self._topic_settings("control.storage.", {"topic", "partitions", "replication.factor"}))
        return StorageTopic(
            self["control.storage.topic"] or f"{self.group_id}-control",
            "control.storage.topic",
            1,
            self["config.storage.replication.factor"],
            settings,
        )

    def _topic_settings(self, prefix: str, without: set[str]) -> dict[str, str]:
        return {key: value for key, value in with_prefix(self.props, prefix).items() if key not in without}

    def kafka_settings(self) -> dict[str, str]:
        """Settings of the worker's own Kafka clients, in Java's names: all without a client prefix."""
        known = (
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
        plain = {"bootstrap.servers", "client.dns.lookup", "request.timeout.ms"}
        return {key: value for key, value in self.props.items() if key in plain or key.startswith(known)}

    def log_values(self) -> None:
        """Log the configuration: secrets hidden, what has no effect named."""
        for key in sorted(self.unknown):
            log.info("worker property %s is unknown to the worker; prefixes may use it", key)
        for key in UNUSED_CONVERTER_KEYS:
            if key in self.props:
                log.warning("worker property %s is ignored: internal topics hold JSON without schemas", key)
        for storage in STORAGES:
            if f"{storage}.storage.cleanup.policy" in self.props:
                log.warning("worker property %s.storage.cleanup.policy is ignored: it is always compact", storage)
        if "config.storage.partitions" in self.props:
            log.warning("worker property config.storage.partitions is ignored: the config topic has one partition")
        if self["exactly.once.source.support"].lower() != "disabled":
            log.warning("worker property exactly.once.source.support has no effect yet: sources deliver at least once")
        if self["admin.listeners"] is not None:
            log.warning("worker property admin.listeners has no effect yet: there are no admin endpoints")
        lines = (f"\t{key} = {_printed(value)}" for key, value in sorted(self.values.items()))
        log.info("DistributedConfig values: \n%s", "\n".join(lines))


def _unknown(props: Mapping[str, str], definition: ConfigDef) -> tuple[str, ...]:
    prefixes = (
        "producer.", "consumer.", "admin.", "key.converter.", "value.converter.", "header.converter.",
        "config.providers.", "config.storage.", "status.storage.", "offset.storage.", "control.storage.",
        "listeners.https.", "admin.listeners.https.", "sasl.", "connect_py.", *UNUSED_CONVERTER_KEYS,
    )  # fmt: skip
    return tuple(key for key in props if key not in definition.keys and not key.startswith(prefixes))


def _printed(value: Parsed) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(value) + "]"
    return HIDDEN if str(value) == HIDDEN else str(value)
