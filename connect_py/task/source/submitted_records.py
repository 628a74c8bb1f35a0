"""`SubmittedRecords`: determines the source offsets that may be stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from connect_py.api.record import SourceRecord
from connect_py.api.schema import Value

Entry: TypeAlias = Mapping[str, Value]
PartitionKey: TypeAlias = frozenset[tuple[str, Value]]


@dataclass(slots=True, eq=False)
class Submitted:
    """A submitted record. It is done once it has been acknowledged, filtered, or skipped."""

    record: SourceRecord  # as returned by the task
    done: bool = False


def partition_key(partition: Entry) -> PartitionKey:
    """Return a key for a source partition, regardless of the order of the map's entries."""
    return frozenset(partition.items())


class SubmittedRecords:
    """Tracks records whose offsets have not been stored yet.

    An offset may be stored when its record and all earlier records of its source partition are
    done.

    Used only on the task's thread, on which acknowledgements arrive during the producer's `poll`.
    """

    def __init__(self) -> None:
        self._queues: dict[PartitionKey, deque[Submitted]] = {}
        # cached because tasks often use the same map object for many records
        self._last: tuple[Entry, deque[Submitted]] | None = None
        self.active = 0  # number of records that are not done

    def submit(self, record: SourceRecord) -> Submitted:
        """Register a record before it is sent."""
        submitted = Submitted(record)
        partition = record.source_partition
        if self._last is None or self._last[0] is not partition:
            self._last = (partition, self._queues.setdefault(partition_key(partition), deque()))
        self._last[1].append(submitted)
        self.active += 1
        return submitted

    def acknowledge(self, submitted: Submitted) -> None:
        """Mark a record as done."""
        if not submitted.done:
            submitted.done = True
            self.active -= 1

    def committable(self) -> dict[PartitionKey, tuple[Entry, Entry]]:
        """Remove the records whose offsets may be stored.

        Return each source partition that has progressed, with its last offset.
        """
        committable = {}
        self._last = None
        for key, queue in list(self._queues.items()):
            last = None
            while queue and queue[0].done:
                last = queue.popleft()
            if last is not None:
                committable[key] = (last.record.source_partition, last.record.source_offset)
            if not queue:
                del self._queues[key]
        return committable
