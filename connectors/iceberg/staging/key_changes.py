"""Partitions that stop before the insert of a changed key, until the delete of the old key was
read.

The insert lacks values that only the row of the old key has. That row is known as it stood once its
delete was staged by this task, or committed by any task. Where the delete is, no record says. So
the wait also ends when all other partitions of the topic were read beyond the ends that their logs
had when the insert came: the delete was compacted away then, or a transformation dropped it. And it
ends when nothing was read or committed towards these ends for a time: where deletes are missing,
partitions may wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from connect_py.api.record import TopicPartition

WAITING: Final = "key change"  # as the status names it
_ASK_AGAIN_MS: Final = 5000
# descriptions of the table that came after the others were read: one may have been on its way
_ANSWERS: Final = 2


class UnreadPair(NamedTuple):
    """An insert of a changed key that lacks values, and whose delete was not read."""

    table: str
    offset: int
    pair: str
    keys: str  # old and new


@dataclass(slots=True)
class _Wait:
    unread: UnreadPair
    since_ms: int
    ends: Mapping[TopicPartition, int] | None = None  # of the other partitions; None: not known yet
    ask_ms: int = 0  # when to ask for them
    progress: object = None  # up to where partitions were read and committed, at most to these ends
    answers: int | None = None  # that had come when the others were read


class KeyChangeWaits:
    """Plain data in, decisions out. Owned by the task thread."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._waits: dict[TopicPartition, _Wait] = {}
        self._answers: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._waits)

    def limit(self, partition: TopicPartition) -> int | None:
        """The offset before which a partition stops; None: it does not wait."""
        wait = self._waits.get(partition)
        return None if wait is None else wait.unread.offset

    def partitions(self) -> list[TopicPartition]:
        """Those that wait."""
        return list(self._waits)

    def unread(self, partition: TopicPartition) -> UnreadPair:
        """What a partition waits for."""
        return self._waits[partition].unread

    def begin(self, partition: TopicPartition, unread: UnreadPair, now_ms: int) -> None:
        """Stop a partition before this offset; one that waits for the same goes on waiting."""
        wait = self._waits.get(partition)
        if wait is None or wait.unread != unread:
            self._waits[partition] = _Wait(unread, now_ms)

    def begin_anew(self, now_ms: int) -> None:
        """Count no time so far: what they wait for was under way."""
        for wait in self._waits.values():
            wait.since_ms = now_ms

    def end(self, partition: TopicPartition) -> None:
        """The partition waits no longer, or is not ours any more."""
        self._waits.pop(partition, None)

    def answered(self, table: str) -> None:
        """The coordinator has described a table."""
        self._answers[table] = self._answers.get(table, 0) + 1

    def read(
        self,
        known: Callable[[str], Container[str]],
        position: Callable[[str, TopicPartition], int | None],
    ) -> list[TopicPartition]:
        """Partitions that need not wait any longer.

        Args: known: Of a table, the pairs whose delete was read. position: The offset from which a
            table needs rows of a partition; None: not known. What was restored
                meanwhile may have the insert already.
        """
        return [
            partition
            for partition, wait in self._waits.items()
            if wait.unread.pair in known(wait.unread.table)
            or (position(wait.unread.table, partition) or 0) > wait.unread.offset
        ]

    def in_vain(
        self,
        now_ms: int,
        ends: Callable[[TopicPartition], Mapping[TopicPartition, int] | None],
        read_to: Callable[[TopicPartition], int | None],
        committed_to: Callable[[TopicPartition], int | None],
    ) -> list[TopicPartition]:
        """Partitions whose delete is nowhere, or the one that has waited for too long while the
        others stood still.

        The caller ends these waits. The others begin anew then: the partition that goes on may
        bring their deletes.

        Args: now_ms: Of a clock that only goes forward. ends: Asks for the ends of the logs of a
            topic's other partitions; None: they are not known now. read_to: The offset up to which
            a partition was read, by any task; None: not known. committed_to: The same of commits,
            which bring deletes that others wait for.
        """
        nowhere = []
        for partition, wait in self._waits.items():
            if wait.ends is None and now_ms >= wait.ask_ms:
                wait.ends, wait.ask_ms = ends(partition), now_ms + _ASK_AGAIN_MS
            if wait.ends is None:
                continue
            places = {other: min(read_to(other) or 0, end) for other, end in wait.ends.items()}
            bounds = {**wait.ends, partition: wait.unread.offset}
            progress = places, [min(committed_to(each) or 0, end) for each, end in bounds.items()]
            if progress != wait.progress:
                wait.progress, wait.since_ms = progress, now_ms
            answers = self._answers.get(wait.unread.table, 0)
            # or not any more: the others are read again, as after a rollback
            if places != wait.ends:
                wait.answers = None
            elif wait.answers is None:
                wait.answers = answers
            elif answers >= wait.answers + _ANSWERS:
                nowhere.append(partition)
        late = [
            partition
            for partition, wait in self._waits.items()
            if now_ms - wait.since_ms >= self._wait_ms
        ]
        found = nowhere or sorted(late, key=lambda partition: self._waits[partition].since_ms)[:1]
        for wait in self._waits.values() if found else ():
            wait.since_ms = now_ms
        return found
