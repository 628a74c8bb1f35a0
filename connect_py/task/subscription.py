"""`Subscription`: which topics a sink task subscribes to, listed again and again for a regular
expression."""

from __future__ import annotations

import logging
from typing import Final

from connect_py.api.errors import RetriableError
from connect_py.clock import Clock
from connect_py.task.sink_consumer import SinkConsumer
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.wait_board import WaitBoard

# until the topics are listed again while none matches, or no broker answers
NO_TOPIC_SECONDS: Final = 5.0
# for the list: at first, and at last for a cluster that takes its time; stops wait
LIST_SECONDS: Final = (3.0, 10.0)
LISTED: Final = "list of topics"
TELL_SECONDS: Final = 60.0  # between lines about an outage

log = logging.getLogger(__name__)


class Subscription:
    """On the loop's thread."""

    def __init__(
        self,
        topics: TopicSelection,
        consumer: SinkConsumer,
        clock: Clock,
        waits: WaitBoard,
        interval_ms: int,
    ) -> None:
        """`interval_ms`: how often a regular expression is matched against the topics again."""
        self._topics = topics
        self._consumer = consumer
        self._clock = clock
        self._waits = waits
        self._interval_ms = interval_ms
        self._subscribed: list[str] = []
        self._list_topics_at = 0.0
        self._list_seconds = LIST_SECONDS[0]
        self._tell_outage_at = 0.0

    def update_if_due(self, now: float) -> None:
        """List the topics again when it is time."""
        if self._topics.is_regex and now >= self._list_topics_at:
            self.update()

    def update(self) -> None:
        """Subscribe to the topics that there are now; a cluster that does not answer leaves all as
        it is."""
        topics = self._topics.listed()
        if self._topics.is_regex:
            try:
                existing = self._consumer.topics(self._list_seconds)
            except RetriableError as error:
                now = self._clock.monotonic()
                if now >= self._tell_outage_at:
                    log.warning(
                        "the subscription stays as it is: %s", error, extra={"action": "subscribe"}
                    )
                    self._tell_outage_at = now + TELL_SECONDS
                self._waits.waits(LISTED, str(error))
                self._list_seconds = min(2 * self._list_seconds, LIST_SECONDS[1])
                self._list_topics_at = now + NO_TOPIC_SECONDS
                return
            self._list_seconds, self._tell_outage_at = LIST_SECONDS[0], 0.0
            self._waits.waits(LISTED, None)
            topics = self._topics.among(existing)
            wait = self._interval_ms / 1000 if topics else NO_TOPIC_SECONDS
            self._list_topics_at = self._clock.monotonic() + wait
        if topics and topics != self._subscribed:
            log.info("subscribes to %s", ", ".join(topics), extra={"action": "subscribe"})
            self._consumer.subscribe(topics)
            self._subscribed = topics
