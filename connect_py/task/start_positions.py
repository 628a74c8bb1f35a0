"""`StartPositions`: where a sink task's consumer begins with a partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, TopicPartition

ASK_SECONDS: Final = 30.0  # for committed offsets and positions, while the group waits for us
# for the ends of a log whose next offset is gone, while other partitions wait
FIND_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 0.1  # until the same is asked again, of a broker that is just taking over


class StartPositions:
    """Asks the group, then the log. On the consumer's thread."""

    def __init__(
        self, consumer: Consumer, reset: str, expect: Callable[[KafkaError, str], None]
    ) -> None:
        """`reset`: `auto.offset.reset`. `expect` tells of an error that passes, and raises
        others."""
        self._consumer = consumer
        self._reset = reset
        self._expect = expect

    def of(
        self, partitions: Iterable[ClientTopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offset of each partition, or where `auto.offset.reset` says that it begins.

        Raises: ConnectError: One of them is not known, or there is none and `auto.offset.reset` is
            none.
        """
        asked = [ClientTopicPartition(p.topic, p.partition) for p in partitions]
        if not asked:
            return {}
        positions = {}
        for p in self._consumer.committed(asked, timeout=ASK_SECONDS):
            if p.error is not None:
                raise ConnectError(
                    f"the committed offset of {p.topic}-{p.partition} is not known: {p.error.str()}"
                )
            offset, metadata = p.offset, p.metadata or ""
            if offset < 0:
                if self._reset == "error":
                    raise ConnectError(
                        f"{p.topic}-{p.partition} has no committed offset, and auto.offset.reset "
                        f"is none"
                    )
                offset = self.edge(*self._first_range(TopicPartition(p.topic, p.partition)))
            positions[TopicPartition(p.topic, p.partition)] = OffsetAndMetadata(offset, metadata)
        return positions

    def _first_range(self, tp: TopicPartition) -> tuple[int, int]:
        """Ask for the range of a log until there is an answer, while the group waits for us."""
        deadline = time.monotonic() + ASK_SECONDS
        while True:
            try:
                return self.range(tp, max(deadline - time.monotonic(), FIND_SECONDS))
            except KafkaException as error:
                what = f"where to begin with {tp} is not known"
                self._expect(error.args[0], what)
                if time.monotonic() >= deadline:
                    raise ConnectError(f"{what}: {error.args[0].str()}") from error
            time.sleep(AGAIN_SECONDS)

    def range(self, tp: TopicPartition, timeout: float) -> tuple[int, int]:
        """The first offset, and the end of what can be read now."""
        low, high = self._consumer.get_watermark_offsets(ClientTopicPartition(*tp), timeout=timeout)
        return int(low), int(high)

    def edge(self, low: int, high: int) -> int:
        """Where `auto.offset.reset` says that a partition without a position begins."""
        return high if self._reset in ("latest", "largest", "end") else low
