"""Partitions that wait before the insert of a changed key until the delete of its old key is read.

The insert lacks values that only the row of the old key has. Their state is known once this task
staged the delete, or any task committed it. Records do not show which partition contains the
delete. Therefore, the wait also ends when all other partitions of the topic were read beyond the
ends that their logs had when the insert was read: then compaction removed the delete, or a
transformation dropped it. It also ends if nothing was read or committed below these ends for some
time, because partitions may wait for each other if deletes are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from connect_py.api.record import TopicPartition

WAITING: Final = "key change"  # name in the status
_RETRY_MS: Final = 5000
# descriptions of the table after all other partitions were read: one may have been sent earlier
_ANSWERS: Final = 2


class UnreadPair(NamedTuple):
    """Insert of a changed key that lacks values, and whose delete was not read."""

    table: str
    offset: int
    pair: str
    keys: str  # old and new


@dataclass(slots=True)
class _Wait:
    unread: UnreadPair
    since_ms: int
    ends: Mapping[TopicPartition, int] | None = None  # of the other partitions; None: unknown
    ask_ms: int = 0  # time of the next request for the ends
    progress: object = None  # offsets read and committed, limited to the ends
    answers: int | None = None  # received when the other partitions had been read


class KeyChangeWaits:
    """Decisions about waiting partitions, on plain data. Owned by the task thread."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._waits: dict[TopicPartition, _Wait] = {}
        self._answers: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._waits)

    def limit(self, partition: TopicPartition) -> int | None:
        """Return the offset before which a partition stops; None: it does not wait."""
        wait = self._waits.get(partition)
        return None if wait is None else wait.unread.offset

    def partitions(self) -> list[TopicPartition]:
        """Return the waiting partitions."""
        return list(self._waits)

    def unread(self, partition: TopicPartition) -> UnreadPair:
        """Return the pair that a partition waits for."""
        return self._waits[partition].unread

    def begin(self, partition: TopicPartition, unread: UnreadPair, now_ms: int) -> None:
        """Stop a partition before this offset. A wait for the same pair continues."""
        wait = self._waits.get(partition)
        if wait is None or wait.unread != unread:
            self._waits[partition] = _Wait(unread, now_ms)

    def restart_timeouts(self, now_ms: int) -> None:
        """Ignore the time so far, because the rows that partitions wait for were being read."""
        for wait in self._waits.values():
            wait.since_ms = now_ms

    def end(self, partition: TopicPartition) -> None:
        """End the wait of a partition, which may have been revoked."""
        self._waits.pop(partition, None)

    def answered(self, table: str) -> None:
        """Count a description of a table from the coordinator."""
        self._answers[table] = self._answers.get(table, 0) + 1

    def read(
        self,
        read_pairs: Callable[[str], Container[str]],
        position: Callable[[str, TopicPartition], int | None],
    ) -> list[TopicPartition]:
        """Return the partitions that can continue.

        Args:
            read_pairs: Returns the pairs of a table whose delete was read.
            position: Returns the offset from which a table needs rows of a partition; None:
                unknown. A restored table may already contain the insert.
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
        """Return the partitions whose delete does not exist, or one that timed out.

        The caller ends these waits. The timeouts of the others restart, because a partition that
        continues may read their deletes.

        Args:
            now_ms: The time of a monotonic clock.
            ends: Returns the log ends of the other partitions of a topic; None: unknown.
            read_to: Returns the offset up to which any task read a partition; None: unknown.
            committed_to: Returns the committed offset, because other tasks wait for commits.
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
            # the other partitions may be read again, for example after a rollback
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
