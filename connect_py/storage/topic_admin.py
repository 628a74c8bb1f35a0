"""Internal topics: created when missing, checked when present, in Connect's words."""

from __future__ import annotations

import logging
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.clock import Clock, SystemClock
from connect_py.config.worker_config import StorageTopic
from connect_py.kafka.authorization_errors import RefusedError

log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
CREATE_SECONDS = 60.0
BACKOFF_SECONDS = 0.5
PURPOSES = {
    "config.storage.topic": "connector configurations",
    "status.storage.topic": "connector and task statuses",
    "offset.storage.topic": "source connector offsets",
    "offsets.storage.topic": "source connector offsets",  # a connector's own
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
    """Calls that wait; each has a deadline."""

    def __init__(
        self,
        admin: AdminClient,
        clock: Clock | None = None,
        *,
        create: bool = True,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        """Take an admin client. With `create` off, missing topics are errors.

        `pause` waits that many seconds between two tries; true when there is to be no other, as the
        worker stops.
        """
        self._admin = admin
        self._create = create
        self._clock = clock or SystemClock()
        self._pause = pause or self._sleep

    def _sleep(self, seconds: float) -> bool:
        self._clock.sleep(seconds)
        return False

    def cluster_id(self, timeout: float = REQUEST_SECONDS) -> str:
        """Ask for the id of the Kafka cluster.

        Raises:
            ConnectError: It does not answer.
        """
        try:
            description = self._admin.describe_cluster(request_timeout=timeout).result(
                timeout + 1.0
            )
        except KafkaException as error:
            raise ConnectError(
                f"the Kafka cluster does not answer: {error.args[0].str()}"
            ) from error
        except TimeoutError as error:
            raise ConnectError(f"the Kafka cluster does not answer in {timeout:g} s") from error
        return str(description.cluster_id)

    def ensure(self, topic: StorageTopic) -> None:
        """Make sure that an internal topic exists and fits its purpose.

        Raises: ConfigError: It exists and does not fit, or is missing and may not or cannot be
            created as asked for. RefusedError: It cannot be seen, and this client may not create
            it. ConnectError: The cluster does not answer or refuses for another reason, or the
            worker stops.
        """
        partitions = self._partitions(topic.name)
        if partitions is None:
            if not self._create:
                raise ConfigError(
                    "",
                    f"Topic '{topic.name}' specified via the '{topic.property}' property is "
                    "missing and internal.topics.automatic.creation.enable is false: create it",
                )
            if self._created(topic):
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
                "to have a single partition in order to guarantee consistency of what it holds, "
                f"but found {partitions} partitions",
            )

    def _partitions(self, name: str) -> int | None:
        """The number of partitions; None when the topic is missing."""
        try:
            found = self._admin.list_topics(timeout=REQUEST_SECONDS).topics.get(name)
        except KafkaException as error:
            raise ConnectError(
                f"the Kafka cluster does not answer: {error.args[0].str()}"
            ) from error
        return None if found is None or found.error is not None else len(found.partitions)

    def _created(self, topic: StorageTopic) -> bool:
        """Create; False when another client did, or when the broker refuses and an administrator
        may have.

        Brokers that have just started do not know all others yet: what has to do with that is tried
        for a while.
        """
        deadline = self._clock.monotonic() + CREATE_SECONDS
        warned = False
        while True:
            problem = self._refusal(topic)
            if problem is None:
                log.info("created topic '%s' (%s)", topic.name, topic.property)
                return True
            if problem.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            if problem.code() in _REFUSED:
                if self._partitions(topic.name) is None:
                    raise RefusedError(
                        f"topic '{topic.name}' ({topic.property}) is missing or hidden, and may "
                        f"not be created: {problem.str()} (ACL: Create, Describe, Read and Write "
                        f"on Topic '{topic.name}')"
                    )
                log.warning(
                    "topic '%s' was not created (%s); assuming that it exists",
                    topic.name,
                    problem.str(),
                )
                return False
            reason = (
                f"topic '{topic.name}' ({topic.property}) could not be created: "
                f"{self._reason(topic, problem)}"
            )
            if problem.code() not in _TEMPORARY or self._clock.monotonic() > deadline:
                if problem.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                    raise ConfigError("", reason)
                raise ConnectError(reason)
            log.log(
                logging.DEBUG if warned else logging.WARNING,
                "%s; it is tried for %g s",
                reason,
                CREATE_SECONDS,
            )
            warned = True
            if self._pause(BACKOFF_SECONDS):
                raise ConnectError(reason)

    def _refusal(self, topic: StorageTopic) -> KafkaError | None:
        """Ask once for a new topic; None when there is one now."""
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
        """What the broker said; in an operator's words where the number of brokers is the
        matter."""
        if problem.code() != KafkaError.INVALID_REPLICATION_FACTOR or topic.replication_factor < 1:
            return problem.str()
        try:
            brokers = len(self._admin.list_topics(timeout=REQUEST_SECONDS).brokers)
        except KafkaException:
            return problem.str()
        property_, factor = topic.replication_property(), topic.replication_factor
        return (
            f"{property_} is {factor}, and the cluster has {brokers} "
            f"broker{'' if brokers == 1 else 's'}"
        )

    def _check_cleanup_policy(self, topic: StorageTopic) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        deadline = self._clock.monotonic() + CREATE_SECONDS
        while True:
            try:
                answer = self._admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[
                    resource
                ]
                entry = answer.result(REQUEST_SECONDS + 1).get("cleanup.policy")
                break
            except KafkaException as error:
                problem: KafkaError = error.args[0]
            except TimeoutError:
                problem = KafkaError(KafkaError._TIMED_OUT)
            # A topic that was made a moment ago is not known to every broker yet.
            known_soon = (
                problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                and self._clock.monotonic() < deadline
            )
            if not known_soon or self._pause(BACKOFF_SECONDS):
                log.info(
                    "topic '%s': cleanup.policy could not be checked: %s", topic.name, problem.str()
                )
                return
        found = "" if entry is None else str(entry.value)
        if found != "compact":
            purpose = PURPOSES[topic.property]
            raise ConfigError(
                "",
                f"Topic '{topic.name}' supplied via the '{topic.property}' property is required "
                "to have 'cleanup.policy=compact' to guarantee consistency and durability of "
                f"{purpose}, but found the topic currently has 'cleanup.policy={found}'. "
                f"Continuing would likely result in eventually losing {purpose} and problems "
                f"restarting this Connect cluster in the future. Change the '{topic.property}' "
                "property in the Connect worker configurations to use a topic with "
                "'cleanup.policy=compact'.",
            )
