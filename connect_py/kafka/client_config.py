"""Translates Java client settings of the worker and the connector to librdkafka's names."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from connect_py.api.config import with_prefix
from connect_py.api.errors import ConfigError
from connect_py.config.override_policy import OverridePolicy
from connect_py.kafka.security_settings import SECURITY_KEYS, add_security

Kind: TypeAlias = Literal["producer", "consumer", "admin"]
Settings: TypeAlias = dict[str, object]

log = logging.getLogger(__name__)

INT_MAX: Final = 2**31 - 1
TRANSACTION_TIMEOUT_MS: Final = 60_000  # Java's default

_COMMON: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "client.dns.lookup",
        "security.protocol",
        "sasl.mechanism",
        "request.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "connections.max.idle.ms",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
        "sasl.kerberos.service.name",
        "sasl.oauthbearer.token.endpoint.url",
        "enable.metrics.push",
    }
)
_CONSUMER: Final = frozenset(
    {
        "group.id",
        "group.instance.id",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "isolation.level",
        "fetch.min.bytes",
        "fetch.max.bytes",
        "max.partition.fetch.bytes",
        "check.crcs",
        "enable.auto.commit",
        "auto.commit.interval.ms",
        "allow.auto.create.topics",
    }
)
_PRODUCER: Final = frozenset(
    {
        "acks",
        "linger.ms",
        "batch.size",
        "compression.type",
        "retries",
        "delivery.timeout.ms",
        "max.in.flight.requests.per.connection",
        "enable.idempotence",
        "transactional.id",
        "transaction.timeout.ms",
    }
)
# Expert librdkafka settings that do not exist in Java. They are passed through.
_NATIVE_COMMON: Final = frozenset(
    {
        "debug",
        "log_level",
        "socket.timeout.ms",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "socket.connection.setup.timeout.ms",
        "broker.address.family",
        "broker.address.ttl",
        "message.max.bytes",
        "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse",
        "statistics.interval.ms",
        "api.version.request",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "enable.ssl.certificate.verification",
        "https.ca.location",
        "https.ca.pem",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "sasl.oauthbearer.grant.type",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
    }
)
_NATIVE_CONSUMER: Final = frozenset(
    {
        "queued.min.messages",
        "queued.max.messages.kbytes",
        "fetch.wait.max.ms",
        "fetch.queue.backoff.ms",
        "fetch.message.max.bytes",
        "receive.message.max.bytes",
        "fetch.error.backoff.ms",
        "coordinator.query.interval.ms",
    }
)
_NATIVE_PRODUCER: Final = frozenset(
    {
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.ms",
        "partitioner",
        "message.timeout.ms",
        "batch.num.messages",
        "sticky.partitioning.linger.ms",
        "compression.level",
        "compression.codec",
    }
)
_IGNORED: Final = re.compile(
    r"ssl\.(client\.auth|protocol|enabled\.protocols|provider|keymanager\.algorithm|trustmanager\.algorithm"
    r"|secure\.random\.implementation|engine\.factory\.class)"
    r"|interceptor\.classes|(key|value)\.(de)?serializer|metrics?\..*|partitioner\.(adaptive|availability|ignore)\..*"
    r"|max\.block\.ms|default\.api\.timeout\.ms|exclude\.internal\.topics"
    r"|sasl\.login\..*|sasl\.oauthbearer\.(header|jwks|expected|clock|scope\.claim|sub\.claim|jwt)\..*|sasl\.kerberos\.(ticket|min)\..*|sasl\.kerberos\.kinit\.cmd|socket\.connection\.setup\.timeout\.max\.ms"
    r"|bootstrap\.resolve\.timeout\.ms|metadata\.cluster\.check\.enable|auto\.include\.jmx\.reporter"
)
_WORKER_SETTINGS: Final = frozenset(["max.poll.records"])  # librdkafka has no such setting
# log lines that this process has already written, as (message, setting) pairs
_logged_settings: Final[set[tuple[str, str]]] = set()
_RENAMED: Final[Mapping[str, str]] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "compression.gzip.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "compression.lz4.level": "compression.level",
}
_RENAMED_KINDS: Final[Mapping[str, Kind]] = {
    "fetch.wait.max.ms": "consumer",
    "message.max.bytes": "producer",
    "compression.level": "producer",
}
# values of `auto.offset.reset` that librdkafka accepts
_RESETS: Final = frozenset(
    {"earliest", "smallest", "beginning", "latest", "largest", "end", "error"}
)
_ASSIGNORS: Final[Mapping[str, str]] = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
    "StickyAssignor": "cooperative-sticky",
    "range": "range",
    "roundrobin": "roundrobin",
    "cooperative-sticky": "cooperative-sticky",
}

# Settings whose defaults differ between librdkafka and Java are set explicitly. The worker's and
# the connector's settings take precedence.
_EXPLICIT_COMMON: Final[Settings] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "connections.max.idle.ms": 540_000,
    "enable.metrics.push": False,
}
_EXPLICIT: Final[Mapping[Kind, Settings]] = {
    "admin": {},
    "consumer": {
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "latest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "allow.auto.create.topics": True,
        # Java immediately requests the metadata of a subscribed topic that does not exist.
        # librdkafka waits for its next refresh.
        "topic.metadata.refresh.interval.ms": 5_000,
        "partition.assignment.strategy": "range",
        # Prefetch up to 16 MB of records per task. A full queue is checked again after 20 ms
        # instead of one second.
        "queued.max.messages.kbytes": 16_384,
        "queued.min.messages": 100_000,
        "fetch.queue.backoff.ms": 20,
        # Java accepts responses of any size. With its default, librdkafka would disconnect
        # repeatedly on a 100 MB message.
        "receive.message.max.bytes": INT_MAX,
    },
    "producer": {
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": 5,
        "delivery.timeout.ms": 120_000,
        "acks": "all",
    },
}
# Connect's settings for a task's producer. A single request in flight preserves the order without
# idempotence.
_TASK_PRODUCER: Final[dict[str, str]] = {
    "enable.idempotence": "false",
    "acks": "all",
    "max.in.flight.requests.per.connection": "1",
    "delivery.timeout.ms": str(INT_MAX),
}


def translate(props: Mapping[str, str], kind: Kind) -> Settings:
    """Translate Java client settings to librdkafka's names and set defaults that differ.

    Settings for other client kinds are dropped. Unknown settings are dropped with a warning that
    names the key.

    Raises:
        ConfigError: A setting that affects security or offsets is not supported.
    """
    result: Settings = {**_EXPLICIT_COMMON, **_EXPLICIT[kind]}
    for key, value in props.items():
        if value is None or key in SECURITY_KEYS:
            continue
        text = value.strip()
        special = _SPECIAL.get(key)
        if special is not None:
            try:
                special(text, kind, result)
            except ValueError as error:
                raise ConfigError(key, "Not a number") from error
        elif key in _RENAMED:
            name = _RENAMED[key]
            if _RENAMED_KINDS[name] == kind:
                result[name] = text
        elif _is_supported(key, kind):
            if text != "":
                result[key] = text
        elif _of_other_kind(key, kind):
            continue
        elif _IGNORED.fullmatch(key):
            _log_once(logging.INFO, "ignoring client setting %s, which has no effect", key)
        elif key not in _WORKER_SETTINGS:
            _log_once(logging.WARNING, "ignoring unknown client setting %s", key)
    add_security(props, result)
    return result


def _log_once(level: int, message: str, value: str) -> None:
    """Log a message once per process, because a task has five clients with the same settings."""
    if (message, value) not in _logged_settings:
        _logged_settings.add((message, value))
        log.log(level, message, value)


def _is_supported(key: str, kind: Kind) -> bool:
    if key in _COMMON or key in _NATIVE_COMMON:
        return True
    if key.startswith(("sasl.oauthbearer.client.credentials.", "sasl.oauthbearer.assertion.")):
        return True
    if kind == "consumer":
        return key in _CONSUMER or key in _NATIVE_CONSUMER
    return kind == "producer" and (key in _PRODUCER or key in _NATIVE_PRODUCER)


def _of_other_kind(key: str, kind: Kind) -> bool:
    kinds: tuple[Kind, ...] = ("producer", "consumer")
    return any(_is_supported(key, each) for each in kinds if each != kind)


def _auto_offset_reset(text: str, kind: Kind, result: Settings) -> None:
    if kind != "consumer":
        return
    if text.startswith("by_duration"):
        raise ConfigError(
            "auto.offset.reset", "by_duration is not supported: expected earliest, latest, or none"
        )
    if text != "none" and text not in _RESETS:  # case-sensitive, as in Java
        raise ConfigError("auto.offset.reset", "expected earliest, latest, or none")
    result["auto.offset.reset"] = "error" if text == "none" else text


def _group_protocol(text: str, kind: Kind, result: Settings) -> None:
    """Raise ConfigError for any protocol except `classic`.

    With the consumer protocol, a client can choose neither an assignor nor a session timeout.
    """
    if kind == "consumer" and text.lower() != "classic":
        raise ConfigError(
            "group.protocol", f"{text or 'an empty value'} is not supported: expected classic"
        )


def _assignment_strategy(text: str, kind: Kind, result: Settings) -> None:
    if kind != "consumer" or not text:
        return
    # eager and cooperative assignors cannot be combined in one list
    first = text.split(",")[0].strip().rpartition(".")[2]
    assignor = _ASSIGNORS.get(first)
    if assignor is None:
        raise ConfigError("partition.assignment.strategy", f"assignor {first} is not supported")
    if first == "StickyAssignor":
        _log_once(
            logging.WARNING,
            "partition.assignment.strategy: %s is not supported, using cooperative-sticky",
            first,
        )
    result["partition.assignment.strategy"] = assignor


def _partitioner_class(text: str, kind: Kind, result: Settings) -> None:
    if kind != "producer" or not text:
        return
    simple = text.rpartition(".")[2]
    if simple == "RoundRobinPartitioner":
        result["partitioner"] = "random"
    elif simple not in ("DefaultPartitioner", "UniformStickyPartitioner"):
        _log_once(
            logging.WARNING,
            "partitioner.class %s is not supported, using the default partitioner",
            simple,
        )


def _buffer_memory(text: str, kind: Kind, result: Settings) -> None:
    if kind == "producer":
        result["queue.buffering.max.kbytes"] = max(1, int(text) // 1024)


def _socket_buffer(name: str) -> Callable[[str, Kind, Settings], None]:
    def put(text: str, kind: Kind, result: Settings) -> None:
        result[name] = max(0, int(text))

    return put


def _metadata_max_age(text: str, kind: Kind, result: Settings) -> None:
    age = int(text)
    result["topic.metadata.refresh.interval.ms"] = age
    result["metadata.max.age.ms"] = max(3 * age, 1)


def _endpoint_identification(text: str, kind: Kind, result: Settings) -> None:
    result["ssl.endpoint.identification.algorithm"] = text or "none"


_SPECIAL: Final[Mapping[str, Callable[[str, Kind, Settings], None]]] = {
    "auto.offset.reset": _auto_offset_reset,
    "group.protocol": _group_protocol,
    "partition.assignment.strategy": _assignment_strategy,
    "partitioner.class": _partitioner_class,
    "buffer.memory": _buffer_memory,
    "send.buffer.bytes": _socket_buffer("socket.send.buffer.bytes"),
    "receive.buffer.bytes": _socket_buffer("socket.receive.buffer.bytes"),
    "metadata.max.age.ms": _metadata_max_age,
    "ssl.endpoint.identification.algorithm": _endpoint_identification,
}

_ADMIN_KEYS: Final = re.compile(
    r"bootstrap\.servers|client\.(dns\.lookup|rack)|security\.protocol|s(sl|asl)\..*|metadata\..*|(send|receive)\.buffer\.bytes"
    r"|re(connect|try)\.backoff\..*|socket\.connection\..*|request\.timeout\.ms|connections\.max\.idle\.ms"
)


@dataclass(frozen=True, slots=True)
class ClientConfigs:
    """Client settings for one task, combined from the worker's and the connector's settings.

    If the task is None, the clients serve the connector instead of one of its tasks.

    As in Java, a worker's security settings without a prefix apply only to admin clients. Consumers
    and producers use the settings with the prefixes `consumer.` and `producer.`.
    """

    worker: Mapping[str, str]
    connector_config: Mapping[str, str]
    connector: str
    task: int | None = None

    def group_id(self) -> str:
        """Return the ID of the consumer group that stores the connector's offsets."""
        overridden = self.connector_config.get("consumer.override.group.id", "").strip()
        return (
            overridden
            or self.worker.get("consumer.group.id", "").strip()
            or f"connect-{self.connector}"
        )

    def consumer(self) -> Settings:
        """Return the settings for the sink consumer, except `max.poll.records`.

        The method `max_poll_records` returns that setting.
        """
        return translate(self.consumer_properties(), "consumer")

    def consumer_properties(self) -> dict[str, str]:
        """Return the sink consumer's configured settings, with the Java client's property names."""
        base = self._base("connector-consumer")
        base |= {
            "group.id": f"connect-{self.connector}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
        return self._layers(base, "consumer")

    def max_poll_records(self) -> int | None:
        """Return the user's `max.poll.records`, or None if the worker chooses the poll size."""
        text = self.consumer_properties().get("max.poll.records")
        return None if text is None else max(1, int(text))

    def topics_interval_ms(self) -> int | None:
        """Return the user's `metadata.max.age.ms` (at least 1,000), or None if it is not set.

        Java's consumer matches `topics.regex` against the existing topics at this interval.
        """
        text = self.consumer_properties().get("metadata.max.age.ms")
        return None if text is None else max(1_000, int(text))

    def producer(self) -> Settings:
        """Return the settings for the source producer."""
        return translate(
            self._layers(self._base("connector-producer") | _TASK_PRODUCER, "producer"), "producer"
        )

    def transactional_producer(self, task: int | None = None) -> Settings:
        """Return the settings for a task's exactly-once source producer.

        `task` is the number of another task. None selects this task.
        """
        number = self.task if task is None else task
        props = self._layers(self._base("connector-producer") | _TASK_PRODUCER, "producer")
        fixed = {
            "transactional.id": transactional_id(self.worker, self.connector, number),
            "enable.idempotence": "true",
            "acks": "all",
        }
        for key, value in fixed.items():
            if props.get(key, value).strip().lower() not in (
                value.lower(),
                _TASK_PRODUCER.get(key),
            ):
                log.warning(
                    "producer setting %s cannot be changed with exactly-once support, using %s",
                    key,
                    value,
                )
        settings = translate(props | fixed, "producer")
        # librdkafka requires that delivery timeouts do not exceed the transaction timeout.
        transaction_ms = int(
            str(settings.setdefault("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
        )
        for key in ("delivery.timeout.ms", "message.timeout.ms"):
            if key in settings:
                settings[key] = min(int(str(settings[key])), transaction_ms)
        return settings

    def dead_letter_producer(self) -> Settings:
        """Return the settings for the dead-letter queue's producer."""
        return translate(
            self._layers(self._base("connector-dlq-producer") | _TASK_PRODUCER, "producer"),
            "producer",
        )

    def admin(self, client: str = "connector-adminclient") -> Settings:
        """Return the settings for an admin client. `client` is the prefix of its client ID."""
        base = {key: value for key, value in self.worker.items() if _ADMIN_KEYS.fullmatch(key)}
        return translate(self._layers(base | self._base(client), "admin"), "admin")

    def of(self, kind: Kind) -> Settings:
        """Return settings without client and group IDs, for another client of the same cluster."""
        base: dict[str, str] = {}
        if kind == "admin":
            base = {k: v for k, v in self.worker.items() if _ADMIN_KEYS.fullmatch(k)}
        elif kind == "consumer":
            base = {"auto.offset.reset": "earliest"}  # same as the task's own consumer
        settings = translate(base | self._layers(self._base("connector"), kind), kind)
        for name in ("client.id", "group.id", "group.instance.id", "transactional.id"):
            settings.pop(name, None)
        return settings

    def _base(self, client: str) -> dict[str, str]:
        suffix = "" if self.task is None else f"-{self.task}"
        return {
            "bootstrap.servers": self.worker.get("bootstrap.servers", "localhost:9092"),
            "client.id": f"{client}-{self.connector}{suffix}",
        }

    def _layers(self, base: Mapping[str, str], kind: Kind) -> dict[str, str]:
        worker = with_prefix(self.worker, f"{kind}.")
        connector = with_prefix(self.connector_config, f"{kind}.override.")
        policy = OverridePolicy.of(self.worker)
        for key in connector:
            refusal = policy.refusal(key)
            if refusal is not None:  # the configuration was accepted before the policy changed
                raise ConfigError(f"{kind}.override.{key}", refusal)
        return {**base, **worker, **connector}


def exactly_once_sources(worker: Mapping[str, str]) -> bool:
    """Return True if the worker runs source tasks in transactions."""
    return worker.get("exactly.once.source.support", "disabled").strip().lower() == "enabled"


def transactional_id(worker: Mapping[str, str], connector: str, task: int | None) -> str:
    """Return the transactional ID of a source task.

    It is the same as in Java. Therefore, this worker's tasks fence a Java worker's tasks.
    """
    return f"{worker.get('group.id', '')}-{connector}-{task}"
