"""`PartitionPauses`: pauses and resumes partitions of a sink task's consumer."""

from __future__ import annotations

from collections.abc import Iterable

from connect_py.api.errors import ConnectError
from connect_py.api.record import TopicPartition
from connect_py.task.sink.sink_consumer import SinkConsumer


class PartitionPauses:
    """Pauses partitions at the task's request, and all partitions while nothing may be read.

    Used on the loop's thread.
    """

    def __init__(self, consumer: SinkConsumer) -> None:
        self._consumer = consumer
        self._by_task: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause partitions for the task. Raises ConnectError if it does not own them."""
        self._by_task |= self._owned(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume partitions for the task. Raises ConnectError if it does not own them."""
        self._by_task -= self._owned(partitions)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard the state for partitions that were reassigned or revoked."""
        self._paused.difference_update(partitions)

    def drop_revoked(self) -> None:
        """Drop the task's pause requests for partitions that it no longer owns."""
        self._by_task &= self._consumer.assigned

    def apply(self, everything: bool) -> None:
        """Apply the changes to the consumer. Pause all partitions if `everything` is True."""
        assigned = self._consumer.assigned
        target = set(assigned) if everything else self._by_task & assigned
        now = self._paused & assigned
        self._consumer.pause(sorted(target - now))
        self._consumer.resume(sorted(now - target))
        self._paused = target

    def _owned(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        requested = set(partitions)
        foreign = requested - self._consumer.assigned
        if foreign:
            raise ConnectError(f"the task does not own {', '.join(map(str, sorted(foreign)))}")
        return requested
