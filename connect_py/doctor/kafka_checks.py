"""What Kafka must allow: the brokers answer, internal topics fit, rights are there as far as
brokers tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType

from connect_py.api.check import Check, Finding, Verdict
from connect_py.api.errors import ConnectError
from connect_py.config.bootstrap_servers import check_resolvable
from connect_py.config.worker_config import STORAGES, DistributedConfig, StorageTopic, WorkerConfig
from connect_py.kafka.authorization_errors import REFUSALS
from connect_py.kafka.broker_errors import LastBrokerError
from connect_py.kafka.client_config import translate

ANSWER_SECONDS: Final = 8.0
RIGHTS: Final = "docs/how-to/grant-kafka-rights.md"
_NEEDED: Final = (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE)
_COMPACTED: Final = ("config.storage.topic", "status.storage.topic", "offset.storage.topic")

T = TypeVar("T")


class KafkaChecks:
    """Asks the cluster as the worker does, with its settings."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._news = LastBrokerError()
        self._reached = False

    @cached_property
    def _admin(self) -> AdminClient:
        settings: dict[str, Any] = dict(translate(self._config.kafka_settings(), "admin"))
        settings |= {"error_cb": self._news.record, "log_level": 0}
        return AdminClient(settings)

    def checks(self, connector_topics: Iterable[str] = ()) -> Iterator[Check]:
        """The brokers first; if they do not answer, no other check follows. To be taken one by
        one."""
        yield Check("brokers", self.brokers, 2 * ANSWER_SECONDS)
        if not self._reached:
            return
        config = self._config
        if isinstance(config, DistributedConfig):
            for topic in (
                *(config.storage_topic(storage) for storage in STORAGES),
                config.control_topic(),
            ):
                yield Check(
                    f"topic {topic.name}", partial(self.internal_topic, topic), 3 * ANSWER_SECONDS
                )
            yield Check(f"group {config.group_id}", partial(self.group, config.group_id))
        for name in connector_topics:
            yield Check(f"topic {name}", partial(self.read_topic, name))

    # --- one question each

    def brokers(self) -> Sequence[Finding]:
        """Whether the brokers answer."""
        try:
            found = self._cluster()
        except ConnectError as error:
            mend = "Correct `bootstrap.servers` and the security settings, or start the brokers."
            return [Finding("brokers", Verdict.FAIL, str(error), mend)]
        self._reached = True
        nodes = ", ".join(f"{node.host}:{node.port}" for node in found.nodes)
        return [Finding("brokers", Verdict.OK, f"cluster {found.cluster_id}: {nodes}")]

    def internal_topic(self, topic: StorageTopic) -> Sequence[Finding]:
        """Whether a topic of the worker is fit, or may be created."""
        subject = f"topic {topic.name}"
        described = self._described(topic.name)
        if described is None:
            return [self._missing(topic)]
        partitions = len(described.partitions)
        if topic.partitions == 1 and partitions != 1:
            text = f"{topic.property} needs 1 partition and has {partitions}"
            return [
                Finding(
                    subject,
                    Verdict.FAIL,
                    text,
                    "Name another topic, or create it anew with 1 partition.",
                )
            ]
        if lacking := _lacking(described.authorized_operations, _NEEDED):
            return [Finding(subject, Verdict.FAIL, f"no right to {lacking}", f"Grant it: {RIGHTS}")]
        policy = self._cleanup_policy(topic.name)
        if topic.property in _COMPACTED and policy not in ("compact", None):
            mend = (
                f"kafka-configs.sh --alter --topic {topic.name} --add-config cleanup.policy=compact"
            )
            return [
                Finding(
                    subject,
                    Verdict.FAIL,
                    f"cleanup.policy is {policy}, not compact: it loses state",
                    mend,
                )
            ]
        shown = (
            f"{topic.property}: {_counted(partitions)}, cleanup.policy {policy or 'not to be seen'}"
        )
        return [Finding(subject, Verdict.OK if policy else Verdict.WARN, shown)]

    def group(self, name: str) -> Sequence[Finding]:
        """Whether the worker may be a member of its group."""
        future = self._admin.describe_consumer_groups(
            [name], include_authorized_operations=True, request_timeout=ANSWER_SECONDS
        )[name]
        try:
            operations = self._answer(future.result).authorized_operations
        except _RefusedError as error:
            return [Finding(f"group {name}", Verdict.FAIL, str(error), f"Grant Read: {RIGHTS}")]
        except ConnectError as error:  # as of brokers that have not had a group yet
            return [Finding(f"group {name}", Verdict.WARN, f"not known: {error}")]
        if lacking := _lacking(operations, (AclOperation.READ,)):
            return [
                Finding(
                    f"group {name}", Verdict.FAIL, f"no right to {lacking}", f"Grant it: {RIGHTS}"
                )
            ]
        return [Finding(f"group {name}", Verdict.OK, "may be joined")]

    def read_topic(self, name: str) -> Sequence[Finding]:
        """Whether a sink's topic is there."""
        described = self._described(name)
        if described is None:
            mend = f"Create it, correct `topics`, or grant Describe and Read: {RIGHTS}"
            return [
                Finding(f"topic {name}", Verdict.WARN, "there is none that this user may see", mend)
            ]
        if lacking := _lacking(
            described.authorized_operations, (AclOperation.DESCRIBE, AclOperation.READ)
        ):
            text = (
                f"the worker's own user has no right to {lacking}; the connector's clients may "
                f"have another one"
            )
            return [Finding(f"topic {name}", Verdict.WARN, text, f"Grant it: {RIGHTS}")]
        return [Finding(f"topic {name}", Verdict.OK, _counted(len(described.partitions)))]

    # --- asking

    def _missing(self, topic: StorageTopic) -> Finding:
        subject, cluster = f"topic {topic.name}", self._cluster()
        if not self._config["internal.topics.automatic.creation.enable"]:
            text = (
                f"{topic.property}: there is none, and "
                f"internal.topics.automatic.creation.enable is false"
            )
            return Finding(
                subject,
                Verdict.FAIL,
                text,
                f"Create it, compacted, with {_counted(topic.partitions)}.",
            )
        if topic.replication_factor > len(cluster.nodes):
            text = (
                f"would be created with {topic.replication_factor} replicas, and there are "
                f"{len(cluster.nodes)} brokers"
            )
            return Finding(subject, Verdict.FAIL, text, f"Set {topic.replication_property()}.")
        if _lacking(cluster.authorized_operations, (AclOperation.CREATE,)):
            text = (
                "there is none that this user may see, and no right to create topics in the cluster"
            )
            return Finding(
                subject, Verdict.WARN, text, f"Grant Create on this topic, or create it: {RIGHTS}"
            )
        return Finding(subject, Verdict.OK, f"{topic.property}: is created when the worker starts")

    def _cluster(self) -> Any:
        check_resolvable(self._config["bootstrap.servers"])
        asked = self._admin.describe_cluster(
            include_authorized_operations=True, request_timeout=ANSWER_SECONDS
        )
        return self._answer(asked.result)

    def _described(self, topic: str) -> Any | None:
        asked = self._admin.describe_topics(
            TopicCollection([topic]),
            include_authorized_operations=True,
            request_timeout=ANSWER_SECONDS,
        )[topic]
        try:
            return self._answer(asked.result)
        except (_MissingError, _RefusedError):
            return None

    def _cleanup_policy(self, topic: str) -> str | None:
        """None: this user may not see it."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = self._admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource]
        try:
            entry = self._answer(asked.result).get("cleanup.policy")
        except ConnectError:
            return None
        return None if entry is None else str(entry.value)

    def _answer(self, result: Callable[[float], T]) -> T:
        try:
            return result(ANSWER_SECONDS + 1)
        except KafkaException as error:
            problem = error.args[0]
            if problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _MissingError(problem.str()) from error
            if problem.code() in REFUSALS:
                raise _RefusedError(problem.str()) from error
            self._admin.poll(0)
            raise ConnectError(
                f"{problem.str()}{f' ({self._news.reason})' if self._news.reason else ''}"
            ) from error
        except TimeoutError as error:
            raise ConnectError(f"no answer in {ANSWER_SECONDS:g} s") from error


class _MissingError(ConnectError):
    """There is no such topic, or this user may not see it."""


class _RefusedError(ConnectError):
    """The user lacks the permission for the request."""


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'' if partitions == 1 else 's'}"


def _lacking(allowed: Iterable[AclOperation] | None, needed: Iterable[AclOperation]) -> str:
    """The needed operations that are not allowed; none where the broker does not tell."""
    known = set(allowed or ())
    if not known or AclOperation.ALL in known:
        return ""
    return ", ".join(operation.name.capitalize() for operation in needed if operation not in known)
