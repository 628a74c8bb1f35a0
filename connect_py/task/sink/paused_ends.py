"""`PausedEnds`: reads the log end offsets of paused partitions.

The client updates log end offsets only for partitions that it fetches.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.record import TopicPartition
from connect_py.metrics.client_statistics import ClientStatistics

log = logging.getLogger(__name__)

# A partition's log end offset is first read after a pause of this length. Most pauses are shorter.
UPDATE_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 1.0  # maximum delay of a poll if a leader does not respond


class PausedEnds:
    """Reads log end offsets for one consumer. Used on the consumer's thread."""

    def __init__(
        self,
        consumer: Consumer,
        statistics: ClientStatistics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._statistics = statistics
        self._clock = clock
        self._next_update_at = 0.0

    def update(self, paused: Collection[TopicPartition]) -> None:
        """Update the statistics every 10 seconds while partitions are paused.

        Each update sends one request to each leader.
        """
        now = self._clock()
        if not paused:
            self._next_update_at = now + UPDATE_SECONDS
            self._statistics.known_ends = {}
            return
        if now < self._next_update_at or self._statistics.cut_off:
            return
        self._next_update_at = now + UPDATE_SECONDS
        requests = [ClientTopicPartition(tp.topic, tp.partition, OFFSET_END) for tp in paused]
        try:
            responses = self._consumer.offsets_for_times(requests, timeout=REQUEST_SECONDS)
        except KafkaException as error:
            log.debug(
                "failed to read the log end offsets of paused partitions: %s", error.args[0].str()
            )
            return
        self._statistics.known_ends = {
            (each.topic, each.partition): each.offset
            for each in responses
            if each.error is None and each.offset >= 0
        }
