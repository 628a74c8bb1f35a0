"""`Subscription`: manages the topic subscription of a sink task."""

from __future__ import annotations

import logging
from typing import Final

from connect_py.api.errors import RetriableError
from connect_py.clock import Clock
from connect_py.task.sink.sink_consumer import SinkConsumer
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.wait_board import WaitBoard

# interval for listing the topics while no topic matches or no broker responds
NO_TOPIC_SECONDS: Final = 5.0
# initial and maximum timeout for listing the topics, which may delay a stop
LIST_SECONDS: Final = (3.0, 10.0)
LISTED: Final = "list of topics"
REPEAT_LOG_SECONDS: Final = 60.0  # minimum time between log lines about an outage

log = logging.getLogger(__name__)


class Subscription:
    """Subscribes a consumer to topics, and lists topics periodically for a regular expression.

    Used on the loop's thread.
    """

    def __init__(
        self,
        topics: TopicSelection,
        consumer: SinkConsumer,
        clock: Clock,
        waits: WaitBoard,
        interval_ms: int,
    ) -> None:
        """Create the subscription.

        A regular expression is matched against the existing topics every `interval_ms`.
        """
        self._topics = topics
        self._consumer = consumer
        self._clock = clock
        self._waits = waits
        self._interval_ms = interval_ms
        self._subscribed: list[str] = []
        self._list_topics_at = 0.0
        self._list_seconds = LIST_SECONDS[0]
        self._log_outage_at = 0.0

    def update_if_due(self, now: float) -> None:
        """Update the subscription if it uses a regular expression and an update is due."""
        if self._topics.is_regex and now >= self._list_topics_at:
            self.update()

    def update(self) -> None:
        """Subscribe to the matching topics.

        If the cluster does not respond, keep the current subscription.
        """
        topics = self._topics.listed()
        if self._topics.is_regex:
            try:
                existing = self._consumer.topics(self._list_seconds)
            except RetriableError as error:
                now = self._clock.monotonic()
                if now >= self._log_outage_at:
                    log.warning(
                        "keeping the current subscription: %s", error, extra={"action": "subscribe"}
                    )
                    self._log_outage_at = now + REPEAT_LOG_SECONDS
                self._waits.waits(LISTED, str(error))
                self._list_seconds = min(2 * self._list_seconds, LIST_SECONDS[1])
                self._list_topics_at = now + NO_TOPIC_SECONDS
                return
            self._list_seconds, self._log_outage_at = LIST_SECONDS[0], 0.0
            self._waits.waits(LISTED, None)
            topics = self._topics.among(existing)
            wait = self._interval_ms / 1000 if topics else NO_TOPIC_SECONDS
            self._list_topics_at = self._clock.monotonic() + wait
        if topics and topics != self._subscribed:
            log.info("subscribing to %s", ", ".join(topics), extra={"action": "subscribe"})
            self._consumer.subscribe(topics)
            self._subscribed = topics
