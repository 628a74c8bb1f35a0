"""`DeadLetterBuffer`: the dead letters of the poll that is being worked on."""

from __future__ import annotations

from connect_py.api.dead_letter import DeadLetter
from connect_py.api.record import TopicPartition


class DeadLetterBuffer:
    """Kept per partition and offset until the poll ends: only then is nothing missing below them.

    Used on the task thread. A record that fails again in the same poll replaces its letter.
    """

    def __init__(self) -> None:
        self._letters: dict[TopicPartition, dict[int, DeadLetter]] = {}

    def add(self, letter: DeadLetter) -> None:
        self._letters.setdefault(letter.origin.topic_partition, {})[letter.origin.offset] = letter

    def drop(self, partition: TopicPartition) -> None:
        """The partition was given up or goes back: its records come again, to this task or another."""
        self._letters.pop(partition, None)

    def partitions(self) -> list[TopicPartition]:
        return list(self._letters)

    def of(self, partition: TopicPartition, start: int, stop: int) -> list[DeadLetter]:
        """The letters of records in [start, stop), in offset order."""
        letters = self._letters.get(partition, {})
        return [letters[offset] for offset in sorted(letters) if start <= offset < stop]

    def clear(self) -> None:
        """The poll is over."""
        self._letters.clear()
