"""`PausedEnds`: where the logs of paused partitions end. The client learns that only while it
fetches."""

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

LOOK_SECONDS: Final = 10.0  # also how long a pause must last: most are over earlier
ASK_SECONDS: Final = 1.0  # that a poll may take longer, where a leader does not answer


class PausedEnds:
    """Of one consumer; used on its thread."""

    def __init__(
        self,
        consumer: Consumer,
        statistics: ClientStatistics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._statistics = statistics
        self._clock = clock
        self._look_at = 0.0

    def look(self, paused: Collection[TopicPartition]) -> None:
        """Tell the statistics, every 10 seconds while partitions are paused; costs a question to
        each leader."""
        now = self._clock()
        if not paused:
            self._look_at = now + LOOK_SECONDS
            self._statistics.known_ends = {}
            return
        if now < self._look_at or self._statistics.cut_off:
            return
        self._look_at = now + LOOK_SECONDS
        asked = [ClientTopicPartition(tp.topic, tp.partition, OFFSET_END) for tp in paused]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=ASK_SECONDS)
        except KafkaException as error:
            log.debug("the ends of paused partitions are not known: %s", error.args[0].str())
            return
        self._statistics.known_ends = {
            (each.topic, each.partition): each.offset
            for each in found
            if each.error is None and each.offset >= 0
        }
