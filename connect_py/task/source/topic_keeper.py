"""`TopicKeeper`: ensures that a topic exists before a source task writes to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from connect_py.api.errors import NotFoundError, RetriableError
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.task.source.source_producer import SourceProducer
from connect_py.task.source.topic_creation import NewTopicRule, TopicCreation
from connect_py.task.used_topics import UsedTopics

RETRY_SECONDS: Final = 1.0
METADATA_SECONDS: Final = 5.0
_MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)

log = logging.getLogger(__name__)


class TopicKeeper:
    """Creates topics or waits until they exist. Used on the task's thread."""

    def __init__(
        self,
        rules: TopicCreation,
        admin: ClusterAdmin,
        producer: SourceProducer,
        wait: Callable[[float], None],
        used: UsedTopics,
    ) -> None:
        """Create an instance for one task.

        Args:
            rules: Determines the settings of new topics.
            admin: Creates the topics.
            producer: Requests topic metadata.
            wait: Waits for a number of seconds. Raises TaskStoppedError if a stop was requested.
            used: Notified of each record's topic.
        """
        self._rules = rules
        self._admin = admin
        self._producer = producer
        self._wait = wait
        self._used = used
        self._existing_topics: set[str] = set()

    def ensure(self, topic: str) -> None:
        """Wait until the topic exists, possibly indefinitely.

        The topic is created according to the rules, by the broker, or by another client.

        Raises:
            ConnectError: The rules apply to the topic, and the cluster denies its creation.
        """
        if topic not in self._existing_topics:
            rule = self._rules.rule(topic)
            if rule is not None:
                self._create(topic, rule)
            self._await(topic)
            self._existing_topics.add(topic)
        self._used.use((topic,))

    def _create(self, topic: str, rule: NewTopicRule) -> None:
        while True:
            try:
                try:
                    self._admin.topic_id(topic)
                except NotFoundError:
                    if self._admin.create_topic(
                        topic, rule.partitions, rule.replication_factor, rule.settings
                    ):
                        log.info("Created topic '%s' using creation group %s", topic, rule.group)
                return
            except NotFoundError:
                raise
            except RetriableError as error:
                log.warning("failed to create topic '%s', will retry: %s", topic, error)
                self._wait(RETRY_SECONDS)

    def _await(self, topic: str) -> None:
        """Wait for the topic, as Java's producer does.

        The metadata request creates the topic if the broker creates topics automatically.
        """
        warned = False
        while True:
            try:
                problem = (
                    self._producer.client.list_topics(topic, METADATA_SECONDS).topics[topic].error
                )
            except KafkaException as error:
                problem = error.args[0]
            if problem is None or (problem.code() not in _MISSING and not problem.retriable()):
                return  # any other error is reported when the record is sent
            if not warned and problem.code() != KafkaError.LEADER_NOT_AVAILABLE:
                warned = True
                log.warning(
                    "waiting for topic '%s', which is not available (%s). Unless a user creates "
                    "it, the connector needs topic.creation.default.partitions and "
                    "topic.creation.default.replication.factor",
                    topic,
                    problem.str(),
                    extra={"action": "wait_topic"},
                )
            self._wait(RETRY_SECONDS if warned else 0.1)
