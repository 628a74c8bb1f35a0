"""Checks for Kafka brokers, internal topics, and permissions."""

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
from connect_py.plurals import pluralize

ANSWER_SECONDS: Final = 8.0
PERMISSIONS: Final = "docs/how-to/grant-kafka-rights.md"
_NEEDED: Final = (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE)
_COMPACTED: Final = ("config.storage.topic", "status.storage.topic", "offset.storage.topic")

T = TypeVar("T")


class KafkaChecks:
    """Checks the cluster, using the settings of the worker's clients."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._last_broker_error = LastBrokerError()
        self._brokers_answer = False

    @cached_property
    def _admin(self) -> AdminClient:
        settings: dict[str, Any] = dict(translate(self._config.kafka_settings(), "admin"))
        settings |= {"error_cb": self._last_broker_error.record, "log_level": 0}
        return AdminClient(settings)

    def checks(self, connector_topics: Iterable[str] = ()) -> Iterator[Check]:
        """Yield the checks.

        The caller must run each check before it requests the next one. All checks after the first
        one are yielded only if the brokers respond.
        """
        yield Check("brokers", self.brokers, 2 * ANSWER_SECONDS)
        if not self._brokers_answer:
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

    # --- Checks

    def brokers(self) -> Sequence[Finding]:
        """Check that the brokers respond."""
        try:
            cluster = self._cluster()
        except ConnectError as error:
            remedy = "Correct `bootstrap.servers` and the security settings, or start the brokers."
            return [Finding("brokers", Verdict.FAIL, str(error), remedy)]
        self._brokers_answer = True
        nodes = ", ".join(f"{node.host}:{node.port}" for node in cluster.nodes)
        return [Finding("brokers", Verdict.OK, f"cluster {cluster.cluster_id}: {nodes}")]

    def internal_topic(self, topic: StorageTopic) -> Sequence[Finding]:
        """Check that an internal topic is suitable or can be created."""
        subject = f"topic {topic.name}"
        description = self._describe(topic.name)
        if description is None:
            return [self._missing(topic)]
        partitions = len(description.partitions)
        if topic.partitions == 1 and partitions != 1:
            message = f"{topic.property} requires 1 partition but has {partitions}"
            return [
                Finding(
                    subject,
                    Verdict.FAIL,
                    message,
                    "Specify another topic, or recreate it with 1 partition.",
                )
            ]
        if missing := _lacking(description.authorized_operations, _NEEDED):
            return [
                Finding(
                    subject, Verdict.FAIL, f"no permission to {missing}", f"Grant it: {PERMISSIONS}"
                )
            ]
        policy = self._cleanup_policy(topic.name)
        if topic.property in _COMPACTED and policy not in ("compact", None):
            remedy = (
                f"kafka-configs.sh --alter --topic {topic.name} --add-config cleanup.policy=compact"
            )
            return [
                Finding(
                    subject,
                    Verdict.FAIL,
                    f"cleanup.policy is {policy}, not compact: state would be lost",
                    remedy,
                )
            ]
        summary = (
            f"{topic.property}: {pluralize(partitions, 'partition')}, "
            f"cleanup.policy {policy or 'not visible'}"
        )
        return [Finding(subject, Verdict.OK if policy else Verdict.WARN, summary)]

    def group(self, name: str) -> Sequence[Finding]:
        """Check that the worker is authorized to join its group."""
        future = self._admin.describe_consumer_groups(
            [name], include_authorized_operations=True, request_timeout=ANSWER_SECONDS
        )[name]
        try:
            operations = self._answer(future.result).authorized_operations
        except _RefusedError as error:
            return [
                Finding(f"group {name}", Verdict.FAIL, str(error), f"Grant Read: {PERMISSIONS}")
            ]
        except ConnectError as error:  # for example, no group has ever existed
            return [Finding(f"group {name}", Verdict.WARN, f"unknown: {error}")]
        if missing := _lacking(operations, (AclOperation.READ,)):
            return [
                Finding(
                    f"group {name}",
                    Verdict.FAIL,
                    f"no permission to {missing}",
                    f"Grant it: {PERMISSIONS}",
                )
            ]
        return [Finding(f"group {name}", Verdict.OK, "may be joined")]

    def read_topic(self, name: str) -> Sequence[Finding]:
        """Check that a sink connector's topic exists and is readable."""
        description = self._describe(name)
        if description is None:
            remedy = f"Create it, correct `topics`, or grant Describe and Read: {PERMISSIONS}"
            return [
                Finding(
                    f"topic {name}",
                    Verdict.WARN,
                    "does not exist, or is not visible to this user",
                    remedy,
                )
            ]
        if missing := _lacking(
            description.authorized_operations, (AclOperation.DESCRIBE, AclOperation.READ)
        ):
            message = (
                f"the worker's user has no permission to {missing}; the connector's clients "
                f"may use a different user"
            )
            return [Finding(f"topic {name}", Verdict.WARN, message, f"Grant it: {PERMISSIONS}")]
        partitions = pluralize(len(description.partitions), "partition")
        return [Finding(f"topic {name}", Verdict.OK, partitions)]

    # --- Requests

    def _missing(self, topic: StorageTopic) -> Finding:
        subject, cluster = f"topic {topic.name}", self._cluster()
        if not self._config["internal.topics.automatic.creation.enable"]:
            message = (
                f"{topic.property}: does not exist, and "
                f"internal.topics.automatic.creation.enable is false"
            )
            return Finding(
                subject,
                Verdict.FAIL,
                message,
                f"Create it, compacted, with {pluralize(topic.partitions, 'partition')}.",
            )
        if topic.replication_factor > len(cluster.nodes):
            message = (
                f"would be created with {topic.replication_factor} replicas, but the cluster has "
                f"{pluralize(len(cluster.nodes), 'broker')}"
            )
            return Finding(subject, Verdict.FAIL, message, f"Set {topic.replication_property()}.")
        if _lacking(cluster.authorized_operations, (AclOperation.CREATE,)):
            message = "not visible to this user, who has no permission to create topics"
            return Finding(
                subject,
                Verdict.WARN,
                message,
                f"Grant Create on this topic, or create it: {PERMISSIONS}",
            )
        return Finding(
            subject, Verdict.OK, f"{topic.property}: will be created when the worker starts"
        )

    def _cluster(self) -> Any:
        check_resolvable(self._config["bootstrap.servers"])
        future = self._admin.describe_cluster(
            include_authorized_operations=True, request_timeout=ANSWER_SECONDS
        )
        return self._answer(future.result)

    def _describe(self, topic: str) -> Any | None:
        future = self._admin.describe_topics(
            TopicCollection([topic]),
            include_authorized_operations=True,
            request_timeout=ANSWER_SECONDS,
        )[topic]
        try:
            return self._answer(future.result)
        except (_MissingError, _RefusedError):
            return None

    def _cleanup_policy(self, topic: str) -> str | None:
        """Return the cleanup policy, or None if this user may not read it."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        future = self._admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource]
        try:
            entry = self._answer(future.result).get("cleanup.policy")
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
            reason = (
                f" ({self._last_broker_error.reason})" if self._last_broker_error.reason else ""
            )
            raise ConnectError(problem.str() + reason) from error
        except TimeoutError as error:
            raise ConnectError(f"no response in {ANSWER_SECONDS:g} s") from error


class _MissingError(ConnectError):
    """The topic does not exist, or is not visible to this user."""


class _RefusedError(ConnectError):
    """The user does not have permission for the request."""


def _lacking(allowed: Iterable[AclOperation] | None, needed: Iterable[AclOperation]) -> str:
    """Return the missing operations, or "" if the broker does not report operations."""
    operations = set(allowed or ())
    if not operations or AclOperation.ALL in operations:
        return ""
    return ", ".join(
        operation.name.capitalize() for operation in needed if operation not in operations
    )
