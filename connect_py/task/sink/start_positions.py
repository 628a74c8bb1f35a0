"""`StartPositions`: determines the start positions of a sink task's consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, TopicPartition

# timeout for reading committed offsets and start positions, while the group waits
REQUEST_SECONDS: Final = 30.0
# timeout for reading the offset range of a log that does not contain the next offset, while other
# partitions wait
FIND_SECONDS: Final = 1.0
# delay before a request is retried, for example while a broker takes over a partition
RETRY_SECONDS: Final = 0.1


class StartPositions:
    """Determines where to start reading partitions. Used on the consumer's thread."""

    def __init__(
        self, consumer: Consumer, reset: str, expect: Callable[[KafkaError, str], None]
    ) -> None:
        """Create an instance for one consumer.

        Args:
            consumer: The consumer's client.
            reset: Value of `auto.offset.reset`.
            expect: Logs a temporary error and raises any other error.
        """
        self._consumer = consumer
        self._reset = reset
        self._expect = expect

    def of(
        self, partitions: Iterable[ClientTopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return each partition's committed offset, or the one that `auto.offset.reset` selects.

        Raises:
            ConnectError: The request failed, or there is no offset and `auto.offset.reset` is none.
        """
        requests = [ClientTopicPartition(p.topic, p.partition) for p in partitions]
        if not requests:
            return {}
        positions = {}
        for p in self._consumer.committed(requests, timeout=REQUEST_SECONDS):
            if p.error is not None:
                raise ConnectError(
                    f"failed to read the committed offset of {p.topic}-{p.partition}: "
                    f"{p.error.str()}"
                )
            offset, metadata = p.offset, p.metadata or ""
            if offset < 0:
                if self._reset == "error":
                    raise ConnectError(
                        f"{p.topic}-{p.partition} has no committed offset, and "
                        "auto.offset.reset is none"
                    )
                offset = self.edge(*self._first_range(TopicPartition(p.topic, p.partition)))
            positions[TopicPartition(p.topic, p.partition)] = OffsetAndMetadata(offset, metadata)
        return positions

    def _first_range(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the offset range of a log, with retries, while the group waits."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                return self.range(tp, max(deadline - time.monotonic(), FIND_SECONDS))
            except KafkaException as error:
                context = f"failed to find the start position of {tp}"
                self._expect(error.args[0], context)
                if time.monotonic() >= deadline:
                    raise ConnectError(f"{context}: {error.args[0].str()}") from error
            time.sleep(RETRY_SECONDS)

    def range(self, tp: TopicPartition, timeout: float) -> tuple[int, int]:
        """Return the first offset and the end of the readable part of the log."""
        low, high = self._consumer.get_watermark_offsets(ClientTopicPartition(*tp), timeout=timeout)
        return int(low), int(high)

    def edge(self, low: int, high: int) -> int:
        """Return the bound of an offset range that `auto.offset.reset` selects."""
        return high if self._reset in ("latest", "largest", "end") else low
