"""Waits for the delete of a key change before its insert is staged.

Debezium emits a change of a primary key as a pair of events: a delete of the row with the old key
and an insert of the row with the new key. The insert may lack values that only the row with the old
key contains. These values are available once this task has staged the delete or any task has
committed it. The records do not show which partition contains the delete. Therefore, the wait also
ends when all other partitions of the topic have been read up to the log end offsets that they had
when the insert was read. If the delete has not been found by then, compaction removed it or a
transformation dropped it. Finally, the wait times out if no offsets below these ends are read or
committed for some time, because partitions may wait for each other if deletes are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from connect_py.api.record import TopicPartition

WAITING: Final = "key change"  # name of the wait in the task status
_RETRY_MS: Final = 5000
# number of table descriptions to wait for after all other partitions have been read, because the
# first one may be outdated
_ANSWERS: Final = 2


class UnreadPair(NamedTuple):
    """Insert of a key change. The insert lacks values, and its delete has not been read."""

    table: str
    offset: int
    pair: str
    keys: str  # the old and the new key


@dataclass(slots=True)
class _Wait:
    unread: UnreadPair
    since_ms: int
    # log end offsets of the other partitions; None if unknown
    ends: Mapping[TopicPartition, int] | None = None
    ask_ms: int = 0  # time of the next request for the log end offsets
    progress: object = None  # offsets read and committed, limited to the log end offsets
    # number of table descriptions received by the time the other partitions had been read
    answers: int | None = None


class KeyChangeWaits:
    """Determines when waiting partitions continue. Does no I/O. Used by the task thread only."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._waits: dict[TopicPartition, _Wait] = {}
        self._answers: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._waits)

    def limit(self, partition: TopicPartition) -> int | None:
        """Return the offset of the insert at which a partition stops, or None if it does not."""
        wait = self._waits.get(partition)
        return None if wait is None else wait.unread.offset

    def partitions(self) -> list[TopicPartition]:
        """Return the waiting partitions."""
        return list(self._waits)

    def unread(self, partition: TopicPartition) -> UnreadPair:
        """Return the insert at which a partition waits."""
        return self._waits[partition].unread

    def begin(self, partition: TopicPartition, unread: UnreadPair, now_ms: int) -> None:
        """Stop a partition before an insert. An existing wait for the same insert continues."""
        wait = self._waits.get(partition)
        if wait is None or wait.unread != unread:
            self._waits[partition] = _Wait(unread, now_ms)

    def restart_timeouts(self, now_ms: int) -> None:
        """Restart the timeouts because the awaited rows are still being read."""
        for wait in self._waits.values():
            wait.since_ms = now_ms

    def end(self, partition: TopicPartition) -> None:
        """End the wait of a partition if it is waiting."""
        self._waits.pop(partition, None)

    def answered(self, table: str) -> None:
        """Count a table description that was received from the coordinator."""
        self._answers[table] = self._answers.get(table, 0) + 1

    def read(
        self,
        read_pairs: Callable[[str], Container[str]],
        position: Callable[[str, TopicPartition], int | None],
    ) -> list[TopicPartition]:
        """Return the partitions that can continue.

        Args:
            read_pairs: Returns the IDs of a table's pairs whose delete has been read.
            position: Returns the offset from which a table needs rows from a partition, or None if
                it is unknown. A restored table may already contain the insert.
        """
        return [
            partition
            for partition, wait in self._waits.items()
            if wait.unread.pair in read_pairs(wait.unread.table)
            or (position(wait.unread.table, partition) or 0) > wait.unread.offset
        ]

    def expired(
        self,
        now_ms: int,
        ends: Callable[[TopicPartition], Mapping[TopicPartition, int] | None],
        read_to: Callable[[TopicPartition], int | None],
        committed_to: Callable[[TopicPartition], int | None],
    ) -> list[TopicPartition]:
        """Return the partitions that continue without the delete.

        These are the partitions that wait for a delete that does not exist. If there are none, the
        result is the partition that has waited longest, provided that its wait has timed out.

        The caller ends these waits. The timeouts of the other waits restart, because a partition
        that continues may read their deletes.

        Args:
            now_ms: Monotonic time in milliseconds.
            ends: Returns the log end offsets of the other partitions of the topic, or None if they
                are unknown.
            read_to: Returns the offset up to which any task has read a partition, or None if it is
                unknown.
            committed_to: Returns the committed offset of a partition. Commits count as progress
                because other tasks wait for them.
        """
        without_delete = []
        for partition, wait in self._waits.items():
            if wait.ends is None and now_ms >= wait.ask_ms:
                wait.ends, wait.ask_ms = ends(partition), now_ms + _RETRY_MS
            if wait.ends is None:
                continue
            read = {other: min(read_to(other) or 0, end) for other, end in wait.ends.items()}
            bounds = {**wait.ends, partition: wait.unread.offset}
            progress = read, [min(committed_to(tp) or 0, end) for tp, end in bounds.items()]
            if progress != wait.progress:
                wait.progress, wait.since_ms = progress, now_ms
            answers = self._answers.get(wait.unread.table, 0)
            # the other partitions may have to be read again, for example after a rollback
            if read != wait.ends:
                wait.answers = None
            elif wait.answers is None:
                wait.answers = answers
            elif answers >= wait.answers + _ANSWERS:
                without_delete.append(partition)
        late = [
            partition
            for partition, wait in self._waits.items()
            if now_ms - wait.since_ms >= self._wait_ms
        ]
        late.sort(key=lambda partition: self._waits[partition].since_ms)
        expired = without_delete or late[:1]
        if expired:
            self.restart_timeouts(now_ms)
        return expired
