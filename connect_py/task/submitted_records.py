"""`SubmittedRecords`: which source offsets may be stored, given which records were acknowledged."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from connect_py.api.schema import Value

Entry = Mapping[str, Value]


@dataclass(slots=True, eq=False)
class Submitted:
    """One record on its way; `done` once it was acknowledged, filtered or skipped."""

    partition: Entry
    offset: Entry
    done: bool = False


class SubmittedRecords:
    """An offset may be stored when its record and all earlier ones of the same source partition are done.

    Records are submitted on the task thread and acknowledged on any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[object, deque[Submitted]] = {}

    def submit(self, partition: Entry, offset: Entry) -> Submitted:
        """Note a record before it is sent."""
        record = Submitted(partition, offset)
        with self._lock:
            self._queues.setdefault(frozenset(partition.items()), deque()).append(record)
        return record

    def acknowledge(self, record: Submitted) -> None:
        """Note that a record is done."""
        with self._lock:
            record.done = True

    def committable(self) -> list[tuple[Entry, Entry]]:
        """Take out what is done, and return the last offset of each partition that moved."""
        moved = []
        with self._lock:
            for key, queue in list(self._queues.items()):
                last = None
                while queue and queue[0].done:
                    last = queue.popleft()
                if last is not None:
                    moved.append((last.partition, last.offset))
                if not queue:
                    del self._queues[key]
        return moved
