"""`PartitionPauses`: which partitions of a sink task's consumer are paused, and by whom."""

from __future__ import annotations

from collections.abc import Iterable

from connect_py.api.errors import ConnectError
from connect_py.api.record import TopicPartition
from connect_py.task.sink_consumer import SinkConsumer


class PartitionPauses:
    """Those that the task asked for, and all of them while nothing may be read. On the loop's
    thread."""

    def __init__(self, consumer: SinkConsumer) -> None:
        self._consumer = consumer
        self._by_task: set[TopicPartition] = set()
        self._now: set[TopicPartition] = set()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """The task wants nothing of these. ConnectError: it does not own them."""
        self._by_task |= self._owned(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """The task wants these again. ConnectError: it does not own them."""
        self._by_task -= self._owned(partitions)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The consumer reads these partitions anew, or no more."""
        self._now.difference_update(partitions)

    def keep_owned(self) -> None:
        """What the task asked for ends with a partition that it does not own any more."""
        self._by_task &= self._consumer.assigned

    def apply(self, everything: bool) -> None:
        """Tell the consumer what changed; `everything`: all partitions are to be paused."""
        assigned = self._consumer.assigned
        wanted = set(assigned) if everything else self._by_task & assigned
        now = self._now & assigned
        self._consumer.pause(sorted(wanted - now))
        self._consumer.resume(sorted(now - wanted))
        self._now = wanted

    def _owned(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        wanted = set(partitions)
        foreign = wanted - self._consumer.assigned
        if foreign:
            raise ConnectError(f"the task does not own {', '.join(map(str, sorted(foreign)))}")
        return wanted
