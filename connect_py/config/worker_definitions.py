"""Definitions of the worker properties for standalone and distributed mode.

Names, types, defaults, and errors are the same as in Java Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from connect_py.api.config import (
    NO_DEFAULT,
    ConfigDef,
    ConfigValueError,
    Importance,
    Parsed,
    Type,
    Validator,
    at_least,
    between,
    one_of,
)
from connect_py.api.errors import ConfigError
from connect_py.config.bootstrap_servers import hosts_and_ports
from connect_py.config.override_policy import ALLOWLIST_KEY, POLICIES, POLICY_KEY, short_name
from connect_py.log_context import LEVELS
from connect_py.metrics.prometheus_text import NameFamily

INT_MAX: Final = 2**31 - 1
MAC_ALGORITHMS: Final[Mapping[str, str]] = {
    "HmacMD5": "md5",
    "HmacSHA1": "sha1",
    "HmacSHA224": "sha224",
    "HmacSHA256": "sha256",
    "HmacSHA384": "sha384",
    "HmacSHA512": "sha512",
    "HmacSHA3-224": "sha3_224",
    "HmacSHA3-256": "sha3_256",
    "HmacSHA3-384": "sha3_384",
    "HmacSHA3-512": "sha3_512",
}
"""Algorithms for signing requests between workers: `hashlib` names, keyed by Java name."""
MIN_KEY_BITS: Final = 40  # minimum size of a session key

Row: TypeAlias = tuple[str, Type, Parsed, Importance, Validator | None, str]
REQUIRED: Final = NO_DEFAULT
H, M, L = Importance.HIGH, Importance.MEDIUM, Importance.LOW
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE = (
    Type.BOOLEAN,
    Type.STRING,
    Type.INT,
    Type.SHORT,
    Type.LONG,
    Type.DOUBLE,
)
LIST, CLASS, PASSWORD = Type.LIST, Type.CLASS, Type.PASSWORD


def check_partitions(name: str, value: Parsed) -> None:
    if value is None or (value <= 0 and value != -1):
        raise ConfigValueError(
            name, value, "Number of partitions must be positive, or -1 to use the broker's default"
        )


def check_replication_factor(name: str, value: Parsed) -> None:
    if value is None or (value <= 0 and value != -1):
        raise ConfigValueError(
            name,
            value,
            "Replication factor must be positive and not larger than the number of brokers in the "
            "Kafka cluster, or -1 to use the broker's default",
        )


def _bootstrap_servers(name: str, value: Parsed) -> None:
    hosts_and_ports(value or ())


def _listeners(name: str, value: Parsed) -> None:
    if not value:
        raise ConfigError(
            "",
            "Invalid value for listeners, at least one URL is expected, ex: http://localhost:8080,https://localhost:8443.",
        )
    _admin_listeners(name, value)


def _admin_listeners(name: str, value: Parsed) -> None:
    if any(not item.strip() for item in value or ()):
        raise ConfigError("", f"Empty URL found when parsing {name} list.")


def _override_policy(name: str, value: Parsed) -> None:
    if value is None or short_name(value) not in POLICIES:
        raise ConfigValueError(name, value, f"Class {value} could not be found.")


def _connect_protocol(name: str, value: Parsed) -> None:
    if value is None or value.lower() not in ("eager", "compatible", "sessioned"):
        raise ConfigValueError(name, value, "Invalid Connect protocol compatibility")


def _mac_algorithm(name: str, value: Parsed) -> None:
    if value not in MAC_ALGORITHMS:
        algorithms = ", ".join(sorted(MAC_ALGORITHMS))
        raise ConfigValueError(
            name,
            value,
            f"the algorithm is not supported by this worker; the supported algorithms are: "
            f"[{algorithms}]",
        )


def _mac_algorithms(name: str, value: Parsed) -> None:
    if not value:
        raise ConfigValueError(
            name, [], "At least one signature verification algorithm must be provided"
        )
    for item in value:
        _mac_algorithm(name, item)


def log_levels(name: str, value: Parsed) -> dict[str, str]:
    """Parse log levels of the form `LEVEL` or `logger=LEVEL`.

    Return Connect's level names, keyed by logger. `root` applies to loggers without a level.
    """
    levels = {}
    for item in value or ():
        logger, _, level = item.rpartition("=")
        if level.strip().upper() not in LEVELS:
            raise ConfigValueError(
                name, value, f"invalid level {item!r}: expected one of {', '.join(LEVELS)}"
            )
        levels[logger.strip() or "root"] = level.strip().upper()
    return levels


def _name_families(name: str, value: Parsed) -> None:
    names = [family.value for family in NameFamily]
    if not value or any(item not in names for item in value):
        raise ConfigValueError(name, value, f"expected one or more of {', '.join(names)}")


def _log_levels(name: str, value: Parsed) -> None:
    log_levels(name, value)


def _class_name(name: str, value: Parsed) -> None:
    """Check that a class name is not empty.

    The existence of the class is checked when the plugins are loaded.
    """
    if value == "":
        raise ConfigValueError(name, value, "Class  could not be found.")


def common_config_def() -> ConfigDef:
    """Return the keys for both modes: converters, commits, REST, plugins, metrics, and TLS."""
    definition = ConfigDef()
    _define(definition, _COMMON)
    _define(definition, _OURS)
    _define(definition, _REST)
    _define(definition, _SSL)
    return definition


def standalone_config_def() -> ConfigDef:
    """Return the keys for a standalone worker."""
    definition = common_config_def()
    _define(definition, _STANDALONE)
    return definition


def distributed_config_def() -> ConfigDef:
    """Return the keys for a distributed worker."""
    definition = common_config_def()
    _define(definition, _SASL)
    _define(definition, _DISTRIBUTED)
    return definition


def security_config_def() -> ConfigDef:
    """Return the security settings that the Kafka clients of workers and connectors share."""
    definition = ConfigDef()
    _define(definition, _SSL)
    _define(definition, _SASL)
    return definition


def _define(definition: ConfigDef, rows: Iterable[Row]) -> None:
    for name, kind, default, importance, validator, doc in rows:
        definition.define(
            name, kind, default=default, importance=importance, validator=validator, doc=doc
        )


_VERSION = "Version or version range of this converter."
_COMMON: tuple[Row, ...] = (
    (
        "bootstrap.servers",
        LIST,
        "localhost:9092",
        H,
        _bootstrap_servers,
        "Addresses of the Kafka cluster, in the form host:port.",
    ),
    (
        "client.dns.lookup",
        STRING,
        "use_all_dns_ips",
        M,
        one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "How clients resolve bootstrap addresses.",
    ),
    (
        "key.converter",
        CLASS,
        REQUIRED,
        H,
        _class_name,
        "Default converter for keys.",
    ),
    ("key.converter.plugin.version", STRING, None, L, None, _VERSION),
    (
        "value.converter",
        CLASS,
        REQUIRED,
        H,
        _class_name,
        "Default converter for values.",
    ),
    ("value.converter.plugin.version", STRING, None, L, None, _VERSION),
    (
        "header.converter",
        CLASS,
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        L,
        _class_name,
        "Default converter for header values.",
    ),
    ("header.converter.plugin.version", STRING, None, L, None, _VERSION),
    (
        "offset.flush.interval.ms",
        LONG,
        60_000,
        L,
        None,
        "Interval between offset commits, in milliseconds.",
    ),
    (
        "offset.flush.timeout.ms",
        LONG,
        5_000,
        L,
        None,
        "Timeout for an offset commit, in milliseconds. A commit that times out is retried.",
    ),
    (
        "task.shutdown.graceful.timeout.ms",
        LONG,
        5_000,
        L,
        None,
        "Total time for stopping all tasks, which are stopped concurrently, in milliseconds.",
    ),
    (
        "plugin.path",
        LIST,
        None,
        L,
        None,
        "Folders with plugins. Each folder contains Python packages with their metadata, or one "
        "folder per plugin with its packages.",
    ),
    (
        "plugin.discovery",
        STRING,
        "hybrid_warn",
        L,
        one_of("ONLY_SCAN", "SERVICE_LOAD", "HYBRID_WARN", "HYBRID_FAIL", case_insensitive=True),
        "Java's plugin discovery mode. Accepted, but has no effect.",
    ),
    (
        "config.providers",
        LIST,
        "",
        L,
        None,
        "Names of the providers that resolve placeholders in configurations.",
    ),
    (
        POLICY_KEY,
        STRING,
        "All",
        M,
        _override_policy,
        "Client settings that a connector may override: All, None, Principal, or Allowlist.",
    ),
    (
        ALLOWLIST_KEY,
        LIST,
        "",
        L,
        None,
        "Client settings that connectors may override under the policy Allowlist.",
    ),
    (
        "topic.creation.enable",
        BOOLEAN,
        True,
        L,
        None,
        "Whether sources may create topics according to topic.creation.* settings.",
    ),
    (
        "topic.tracking.enable",
        BOOLEAN,
        True,
        L,
        None,
        "Whether the topics that a connector uses are recorded.",
    ),
    (
        "topic.tracking.allow.reset",
        BOOLEAN,
        True,
        L,
        None,
        "Whether users may reset the recorded topics.",
    ),
    (
        "metrics.sample.window.ms",
        LONG,
        30_000,
        L,
        at_least(0),
        "Sample window for rates and averages, in milliseconds.",
    ),
    ("metrics.num.samples", INT, 2, L, at_least(1), "Number of sample windows per metric."),
    (
        "metrics.recording.level",
        STRING,
        "INFO",
        L,
        one_of("INFO", "DEBUG"),
        "Recording level of metrics.",
    ),
    (
        "metric.reporters",
        LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        L,
        None,
        "Accepted, but has no effect. Metrics are served over HTTP.",
    ),
)

_OURS: tuple[Row, ...] = (
    (
        "connect_py.log.format",
        STRING,
        "text",
        L,
        one_of("text", "json"),
        "Format of log lines: text, as in Java Kafka Connect, or json.",
    ),
    (
        "connect_py.log.levels",
        LIST,
        "",
        L,
        _log_levels,
        "Log levels: a level such as INFO for all loggers, or assignments such as "
        "connect_py.herder=DEBUG for specific loggers.",
    ),
    (
        "connect_py.metrics.names",
        LIST,
        "confluent",
        L,
        _name_families,
        "Naming schemes of the metrics at /metrics: one or more of confluent, strimzi, and "
        "strimzi-reporter.",
    ),
    (
        "connect_py.ui.enabled",
        BOOLEAN,
        True,
        L,
        None,
        "Whether the worker serves a web UI at /ui and its API description at /docs.",
    ),
    (
        "connect_py.services.max",
        INT,
        16,
        L,
        at_least(1),
        "Maximum number of shared services with the same name and different settings on a worker.",
    ),
    (
        "connect_py.services.connectors",
        LIST,
        "",
        L,
        None,
        "Configuration files, as for connect-standalone, for connectors that will be "
        "created soon. Their shared services start with the worker. The services of existing "
        "connectors always start with the worker.",
    ),
)

_REST: tuple[Row, ...] = (
    ("listeners", LIST, "http://:8083", L, _listeners, "Addresses on which the REST API listens."),
    (
        "admin.listeners",
        LIST,
        None,
        L,
        _admin_listeners,
        "Addresses of the admin API. If unset, it uses the addresses of the REST API. If empty, "
        "it is disabled.",
    ),
    (
        "rest.advertised.host.name",
        STRING,
        None,
        L,
        None,
        "Host name at which other workers reach this worker.",
    ),
    (
        "rest.advertised.port",
        INT,
        None,
        L,
        None,
        "Port at which other workers reach this worker.",
    ),
    (
        "rest.advertised.listener",
        STRING,
        None,
        L,
        None,
        "Protocol of the listener that other workers use: http or https.",
    ),
    (
        "access.control.allow.origin",
        STRING,
        "",
        L,
        None,
        "Origins from which browsers may call the REST API.",
    ),
    (
        "access.control.allow.methods",
        STRING,
        "",
        L,
        None,
        "Methods that cross-origin requests may use.",
    ),
    (
        "response.http.headers.config",
        STRING,
        "",
        L,
        None,
        "Headers that are added to every response.",
    ),
    ("rest.extension.classes", LIST, "", L, None, "Extensions to the REST API."),
    (
        "ssl.client.auth",
        STRING,
        "none",
        L,
        one_of("required", "requested", "none"),
        "Whether HTTPS clients must present a certificate: required, requested, or none.",
    ),
)

_TLS = "TLS setting for the worker's Kafka clients and HTTPS listeners."
_TLS_UNUSED = "TLS setting for Java. Accepted, but has no effect."
_SSL: tuple[Row, ...] = (
    ("ssl.protocol", STRING, "TLSv1.3", M, None, _TLS_UNUSED),
    ("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", M, None, _TLS_UNUSED),
    ("ssl.cipher.suites", LIST, None, L, None, _TLS),
    ("ssl.provider", STRING, None, M, None, _TLS_UNUSED),
    ("ssl.keystore.type", STRING, "JKS", M, None, "Type of the key store: JKS, PKCS12, or PEM."),
    (
        "ssl.keystore.location",
        STRING,
        None,
        H,
        None,
        "File with the private key and its certificates.",
    ),
    ("ssl.keystore.password", PASSWORD, None, H, None, "Password for the key store."),
    ("ssl.key.password", PASSWORD, None, H, None, "Password for the key in the key store."),
    ("ssl.keystore.key", PASSWORD, None, H, None, "Private key in PEM format, instead of a file."),
    (
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        H,
        None,
        "Certificate chain for the private key in PEM format.",
    ),
    (
        "ssl.truststore.type",
        STRING,
        "JKS",
        M,
        None,
        "Type of the trust store: JKS, PKCS12, or PEM.",
    ),
    ("ssl.truststore.location", STRING, None, H, None, "File with the trusted certificates."),
    ("ssl.truststore.password", PASSWORD, None, H, None, "Password for the trust store."),
    (
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        H,
        None,
        "Trusted certificates in PEM format.",
    ),
    (
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        L,
        None,
        "Verification of the server's host name: https enables it, and an empty value disables it.",
    ),
    ("ssl.secure.random.implementation", STRING, None, L, None, _TLS_UNUSED),
    ("ssl.engine.factory.class", CLASS, None, L, _class_name, _TLS_UNUSED),
    ("ssl.keymanager.algorithm", STRING, "SunX509", L, None, _TLS_UNUSED),
    ("ssl.trustmanager.algorithm", STRING, "PKIX", L, None, _TLS_UNUSED),
)

_LOGIN = "SASL setting for the worker's Kafka clients."
_LOGIN_UNUSED = "SASL setting for Java clients. Accepted, but has no effect."
_BEARER = "OAuth setting for the worker's Kafka clients."
_BROKER = "OAuth setting for brokers. Accepted, but has no effect."
_VALIDATE = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
_RETRIEVE = "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"
_SASL: tuple[Row, ...] = (
    (
        "security.protocol",
        STRING,
        "PLAINTEXT",
        M,
        one_of("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", case_insensitive=True),
        "Security protocol of the worker's own Kafka clients. Clients of tasks use the prefixes "
        "producer. and consumer.",
    ),
    (
        "sasl.mechanism",
        STRING,
        "GSSAPI",
        M,
        None,
        "SASL mechanism of the worker's own Kafka clients.",
    ),
    ("sasl.jaas.config", PASSWORD, None, M, None, "JAAS login module with its options."),
    ("sasl.client.callback.handler.class", CLASS, None, M, _class_name, _LOGIN),
    ("sasl.login.callback.handler.class", CLASS, None, M, _class_name, _LOGIN),
    ("sasl.login.class", CLASS, None, M, _class_name, _LOGIN),
    ("sasl.kerberos.service.name", STRING, None, M, None, _LOGIN),
    ("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", L, None, _LOGIN_UNUSED),
    ("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, L, None, _LOGIN_UNUSED),
    ("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, L, None, _LOGIN_UNUSED),
    ("sasl.kerberos.min.time.before.relogin", LONG, 60_000, L, None, _LOGIN_UNUSED),
    ("sasl.login.refresh.window.factor", DOUBLE, 0.8, L, between(0.5, 1.0), _LOGIN_UNUSED),
    ("sasl.login.refresh.window.jitter", DOUBLE, 0.05, L, between(0.0, 0.25), _LOGIN_UNUSED),
    ("sasl.login.refresh.min.period.seconds", SHORT, 60, L, between(0, 900), _LOGIN_UNUSED),
    ("sasl.login.refresh.buffer.seconds", SHORT, 300, L, between(0, 3600), _LOGIN_UNUSED),
    ("sasl.login.connect.timeout.ms", INT, None, L, None, _LOGIN_UNUSED),
    ("sasl.login.read.timeout.ms", INT, None, L, None, _LOGIN_UNUSED),
    ("sasl.login.retry.backoff.ms", LONG, 100, L, None, _LOGIN_UNUSED),
    ("sasl.login.retry.backoff.max.ms", LONG, 10_000, L, None, _LOGIN_UNUSED),
    ("sasl.oauthbearer.token.endpoint.url", STRING, None, M, None, _BEARER),
    ("sasl.oauthbearer.scope", STRING, None, M, None, _BEARER),
    ("sasl.oauthbearer.client.credentials.client.id", STRING, None, M, None, _BEARER),
    ("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, M, None, _BEARER),
    (
        "sasl.oauthbearer.assertion.algorithm",
        STRING,
        "RS256",
        M,
        one_of("ES256", "RS256", case_insensitive=True),
        _BEARER,
    ),
    ("sasl.oauthbearer.assertion.claim.aud", STRING, None, M, None, _BEARER),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, L, between(0, 86_400), _BEARER),
    ("sasl.oauthbearer.assertion.claim.iss", STRING, None, M, None, _BEARER),
    ("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, M, None, _BEARER),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, L, between(0, 3_600), _BEARER),
    ("sasl.oauthbearer.assertion.claim.sub", STRING, None, M, None, _BEARER),
    ("sasl.oauthbearer.assertion.file", STRING, None, M, None, _BEARER),
    ("sasl.oauthbearer.assertion.private.key.file", STRING, None, M, None, _BEARER),
    ("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, M, None, _BEARER),
    ("sasl.oauthbearer.assertion.template.file", STRING, None, M, None, _BEARER),
    ("sasl.oauthbearer.scope.claim.name", STRING, "scope", L, None, _LOGIN_UNUSED),
    ("sasl.oauthbearer.sub.claim.name", STRING, "sub", L, None, _LOGIN_UNUSED),
    ("sasl.oauthbearer.header.urlencode", BOOLEAN, False, L, None, _LOGIN_UNUSED),
    ("sasl.oauthbearer.jwt.retriever.class", CLASS, _RETRIEVE, M, _class_name, _LOGIN_UNUSED),
    ("sasl.oauthbearer.jwt.validator.class", CLASS, _VALIDATE, M, _class_name, _LOGIN_UNUSED),
    ("sasl.oauthbearer.jwks.endpoint.url", STRING, None, M, None, _BROKER),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, L, None, _BROKER),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, L, None, _BROKER),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, L, None, _BROKER),
    ("sasl.oauthbearer.clock.skew.seconds", INT, 30, L, None, _BROKER),
    ("sasl.oauthbearer.expected.audience", LIST, None, L, None, _BROKER),
    ("sasl.oauthbearer.expected.issuer", STRING, None, L, None, _BROKER),
)

_STANDALONE: tuple[Row, ...] = (
    (
        "offset.storage.file.filename",
        STRING,
        REQUIRED,
        H,
        None,
        "Offset file of Java's standalone worker, from which source offsets are imported. "
        "connect-py stores its own offset file next to it.",
    ),
)

_SIGNATURE = "Setting for signing requests between workers."
_DISTRIBUTED: tuple[Row, ...] = (
    ("group.id", STRING, REQUIRED, H, None, "ID of the worker group."),
    (
        "config.storage.topic",
        STRING,
        REQUIRED,
        H,
        None,
        "Topic for connector configurations.",
    ),
    (
        "config.storage.replication.factor",
        SHORT,
        3,
        L,
        check_replication_factor,
        "Replication factor of the config topic if the worker creates it.",
    ),
    ("status.storage.topic", STRING, REQUIRED, H, None, "Topic for connector and task statuses."),
    (
        "status.storage.partitions",
        INT,
        5,
        L,
        check_partitions,
        "Number of partitions of the status topic if the worker creates it.",
    ),
    (
        "status.storage.replication.factor",
        SHORT,
        3,
        L,
        check_replication_factor,
        "Replication factor of the status topic if the worker creates it.",
    ),
    ("offset.storage.topic", STRING, REQUIRED, H, None, "Topic for source offsets."),
    (
        "offset.storage.partitions",
        INT,
        25,
        L,
        check_partitions,
        "Number of partitions of the offset topic if the worker creates it.",
    ),
    (
        "offset.storage.replication.factor",
        SHORT,
        3,
        L,
        check_replication_factor,
        "Replication factor of the offset topic if the worker creates it.",
    ),
    (
        "control.storage.topic",
        STRING,
        None,
        L,
        None,
        "Topic for coordination between workers. The default is {group.id}-control.",
    ),
    (
        "internal.topics.automatic.creation.enable",
        BOOLEAN,
        True,
        L,
        None,
        "Whether the worker creates missing internal topics.",
    ),
    (
        "session.timeout.ms",
        INT,
        10_000,
        H,
        at_least(1),
        "Time without a heartbeat after which a worker loses its connectors and tasks, in "
        "milliseconds.",
    ),
    (
        "heartbeat.interval.ms",
        INT,
        3_000,
        H,
        at_least(1),
        "Interval between heartbeats, in milliseconds.",
    ),
    (
        "rebalance.timeout.ms",
        INT,
        60_000,
        H,
        None,
        "Maximum time for a worker to stop revoked connectors and tasks, in milliseconds.",
    ),
    (
        "scheduled.rebalance.max.delay.ms",
        INT,
        300_000,
        L,
        between(0, INT_MAX),
        "Maximum time to wait for a lost worker to return before its connectors and tasks are "
        "reassigned, in milliseconds.",
    ),
    (
        "connect.protocol",
        STRING,
        "sessioned",
        L,
        _connect_protocol,
        "Group protocol of Java workers. Only sessioned has an effect: it signs requests between "
        "workers.",
    ),
    (
        "worker.sync.timeout.ms",
        INT,
        3_000,
        M,
        None,
        "Maximum time for a worker to catch up with the config topic, in milliseconds.",
    ),
    (
        "worker.unsync.backoff.ms",
        INT,
        300_000,
        M,
        None,
        "Time for which a worker stays out of the group after it fails to catch up, in "
        "milliseconds.",
    ),
    (
        "exactly.once.source.support",
        STRING,
        "disabled",
        H,
        one_of("DISABLED", "ENABLED", "PREPARING", case_insensitive=True),
        "Whether sources may use transactions.",
    ),
    ("inter.worker.key.generation.algorithm", STRING, "HmacSHA256", L, _mac_algorithm, _SIGNATURE),
    ("inter.worker.key.size", INT, None, L, None, _SIGNATURE),
    ("inter.worker.key.ttl.ms", INT, 3_600_000, L, between(0, INT_MAX), _SIGNATURE),
    ("inter.worker.signature.algorithm", STRING, "HmacSHA256", L, _mac_algorithm, _SIGNATURE),
    ("inter.worker.verification.algorithms", LIST, "HmacSHA256", L, _mac_algorithms, _SIGNATURE),
    ("client.id", STRING, "", L, None, "Part of the client IDs of the worker's Kafka clients."),
    (
        "metadata.max.age.ms",
        LONG,
        300_000,
        L,
        at_least(0),
        "Time after which metadata is refreshed, in milliseconds.",
    ),
    ("send.buffer.bytes", INT, 131_072, M, at_least(-1), "Size of the TCP send buffer."),
    ("receive.buffer.bytes", INT, 32_768, M, at_least(-1), "Size of the TCP receive buffer."),
    (
        "reconnect.backoff.ms",
        LONG,
        50,
        L,
        at_least(0),
        "Delay before reconnecting, in milliseconds.",
    ),
    (
        "reconnect.backoff.max.ms",
        LONG,
        1_000,
        L,
        at_least(0),
        "Maximum delay before reconnecting, in milliseconds.",
    ),
    (
        "retry.backoff.ms",
        LONG,
        100,
        L,
        at_least(0),
        "Delay before a request is retried, in milliseconds.",
    ),
    (
        "retry.backoff.max.ms",
        LONG,
        1_000,
        L,
        at_least(0),
        "Maximum delay before a request is retried, in milliseconds.",
    ),
    (
        "socket.connection.setup.timeout.ms",
        LONG,
        10_000,
        L,
        at_least(0),
        "Timeout for establishing a connection, in milliseconds.",
    ),
    (
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30_000,
        L,
        at_least(0),
        "Maximum timeout for establishing a connection, in milliseconds.",
    ),
    ("request.timeout.ms", INT, 40_000, M, at_least(0), "Timeout for a request, in milliseconds."),
    (
        "connections.max.idle.ms",
        LONG,
        540_000,
        M,
        None,
        "Time after which an idle connection is closed, in milliseconds.",
    ),
    (
        "metadata.recovery.strategy",
        STRING,
        "rebootstrap",
        L,
        one_of("REBOOTSTRAP", "NONE", case_insensitive=True),
        "Behavior of a client if no known broker is available.",
    ),
    (
        "metadata.recovery.rebootstrap.trigger.ms",
        LONG,
        300_000,
        L,
        at_least(0),
        "Time without metadata after which a client bootstraps again, in milliseconds.",
    ),
)
