"""Creates or checks internal topics. The error messages are Kafka Connect's."""

from __future__ import annotations

import logging
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.clock import Clock, SystemClock
from connect_py.config.worker_config import StorageTopic
from connect_py.kafka.authorization_errors import RefusedError
from connect_py.plurals import pluralize

log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
CREATE_SECONDS = 60.0
BACKOFF_SECONDS = 0.5
PURPOSES = {
    "config.storage.topic": "connector configurations",
    "status.storage.topic": "connector and task statuses",
    "offset.storage.topic": "source connector offsets",
    "offsets.storage.topic": "source connector offsets",  # a connector's own offset topic
}
_REFUSED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.POLICY_VIOLATION,
)
_TEMPORARY = (
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.NOT_CONTROLLER,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._ALL_BROKERS_DOWN,
)


class TopicAdmin:
    """Creates and checks topics. Calls block, and each request has a deadline."""

    def __init__(
        self,
        admin: AdminClient,
        clock: Clock | None = None,
        *,
        create: bool = True,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        """Create the object. If `create` is false, a missing topic is an error.

        `pause` waits the specified number of seconds between attempts. It returns True if the
        worker is stopping. No further attempt is then made.
        """
        self._admin = admin
        self._create = create
        self._clock = clock or SystemClock()
        self._pause = pause or self._sleep

    def _sleep(self, seconds: float) -> bool:
        self._clock.sleep(seconds)
        return False

    def cluster_id(self, timeout: float = REQUEST_SECONDS) -> str:
        """Return the ID of the Kafka cluster.

        Raises:
            ConnectError: The cluster does not respond.
        """
        try:
            description = self._admin.describe_cluster(request_timeout=timeout).result(
                timeout + 1.0
            )
        except KafkaException as error:
            raise ConnectError(
                f"the Kafka cluster did not respond: {error.args[0].str()}"
            ) from error
        except TimeoutError as error:
            raise ConnectError(f"the Kafka cluster did not respond within {timeout:g} s") from error
        return str(description.cluster_id)

    def ensure(self, topic: StorageTopic) -> None:
        """Create an internal topic, or check an existing one.

        Raises:
            ConfigError: The topic has the wrong settings, or it is missing and cannot be created
                with the required settings.
            RefusedError: The topic is not visible, and this client is not authorized to create it.
            ConnectError: The cluster does not respond or denies the request for another reason, or
                the worker is stopping.
        """
        partitions = self._partitions(topic.name)
        if partitions is None:
            if not self._create:
                raise ConfigError(
                    "",
                    f"Topic '{topic.name}' specified via the '{topic.property}' property is "
                    "missing and internal.topics.automatic.creation.enable is false; create the "
                    "topic manually",
                )
            if self._create_topic(topic):
                return
            partitions = self._partitions(topic.name)
        if topic.property in PURPOSES:
            self._check_cleanup_policy(topic)
        if (
            topic.property in ("config.storage.topic", "control.storage.topic")
            and (partitions or 1) != 1
        ):
            raise ConfigError(
                "",
                f"Topic '{topic.name}' supplied via the '{topic.property}' property is required "
                "to have a single partition in order to guarantee the consistency of its contents, "
                f"but found {partitions} partitions",
            )

    def _partitions(self, name: str) -> int | None:
        """Return the number of partitions, or None if the topic is missing."""
        try:
            metadata = self._admin.list_topics(timeout=REQUEST_SECONDS).topics.get(name)
        except KafkaException as error:
            raise ConnectError(
                f"the Kafka cluster did not respond: {error.args[0].str()}"
            ) from error
        return None if metadata is None or metadata.error is not None else len(metadata.partitions)

    def _create_topic(self, topic: StorageTopic) -> bool:
        """Create a topic and return True if it was created.

        Return False if it already exists, or if creating it is denied but the topic is visible. A
        recently started broker may not have discovered all other brokers yet. Errors that may
        result from this are retried.
        """
        deadline = self._clock.monotonic() + CREATE_SECONDS
        warned = False
        while True:
            problem = self._try_create(topic)
            if problem is None:
                log.info("created topic '%s' (%s)", topic.name, topic.property)
                return True
            if problem.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            if problem.code() in _REFUSED:
                if self._partitions(topic.name) is None:
                    raise RefusedError(
                        f"topic '{topic.name}' ({topic.property}) does not exist or is not "
                        f"visible, and creating it is not authorized: {problem.str()} (required "
                        f"ACL: Create, Describe, Read and Write on Topic '{topic.name}')"
                    )
                log.warning(
                    "failed to create topic '%s' (%s); assuming that it exists",
                    topic.name,
                    problem.str(),
                )
                return False
            reason = (
                f"failed to create topic '{topic.name}' ({topic.property}): "
                f"{self._reason(topic, problem)}"
            )
            if problem.code() not in _TEMPORARY or self._clock.monotonic() > deadline:
                if problem.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                    raise ConfigError("", reason)
                raise ConnectError(reason)
            log.log(
                logging.DEBUG if warned else logging.WARNING,
                "%s; retrying for %g s",
                reason,
                CREATE_SECONDS,
            )
            warned = True
            if self._pause(BACKOFF_SECONDS):
                raise ConnectError(reason)

    def _try_create(self, topic: StorageTopic) -> KafkaError | None:
        """Try once to create a topic. Return the error, or None on success."""
        new = NewTopic(
            topic.name, topic.partitions, topic.replication_factor, config=dict(topic.settings)
        )
        try:
            self._admin.create_topics([new], request_timeout=REQUEST_SECONDS)[topic.name].result(
                REQUEST_SECONDS + 1
            )
        except KafkaException as error:
            problem: KafkaError = error.args[0]
            return problem
        except TimeoutError:
            return KafkaError(KafkaError._TIMED_OUT)
        return None

    def _reason(self, topic: StorageTopic, problem: KafkaError) -> str:
        """Return the broker's error message, or a clearer one if there are too few brokers."""
        if problem.code() != KafkaError.INVALID_REPLICATION_FACTOR or topic.replication_factor < 1:
            return problem.str()
        try:
            brokers = len(self._admin.list_topics(timeout=REQUEST_SECONDS).brokers)
        except KafkaException:
            return problem.str()
        property_, factor = topic.replication_property(), topic.replication_factor
        return f"{property_} is {factor}, but the cluster has only {pluralize(brokers, 'broker')}"

    def _check_cleanup_policy(self, topic: StorageTopic) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        deadline = self._clock.monotonic() + CREATE_SECONDS
        while True:
            try:
                configs = self._admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[
                    resource
                ]
                entry = configs.result(REQUEST_SECONDS + 1).get("cleanup.policy")
                break
            except KafkaException as error:
                problem: KafkaError = error.args[0]
            except TimeoutError:
                problem = KafkaError(KafkaError._TIMED_OUT)
            # a new topic may not be visible on every broker yet
            may_appear = (
                problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                and self._clock.monotonic() < deadline
            )
            if not may_appear or self._pause(BACKOFF_SECONDS):
                log.info(
                    "failed to check cleanup.policy of topic '%s': %s", topic.name, problem.str()
                )
                return
        policy = "" if entry is None else str(entry.value)
        if policy != "compact":
            purpose = PURPOSES[topic.property]
            raise ConfigError(
                "",
                f"Topic '{topic.name}' supplied via the '{topic.property}' property is required "
                "to have 'cleanup.policy=compact' to guarantee consistency and durability of "
                f"{purpose}, but found the topic currently has 'cleanup.policy={policy}'. "
                f"Continuing would likely result in eventually losing {purpose} and problems "
                f"restarting this Connect cluster in the future. Change the '{topic.property}' "
                "property in the Connect worker configurations to use a topic with "
                "'cleanup.policy=compact'.",
            )
