"""`LetterState`: what became of a dead letter, as its table and the replay topic tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Self

from connect_py.api.replay import Replay
from connectors.iceberg.dead_letters.dead_letter_record import Place


class LetterState(Enum):
    """The values are what `dlq list` shows and `dlq delete --state` takes."""

    NEW = "new"  # never tried again
    FAILED_AGAIN = "failed-again"  # in the replay that is its attempt, and not tried again since
    REPLAYED = "replayed"  # tried again; what failed once more is a letter of its own


@dataclass(frozen=True, slots=True)
class LetterHead:
    """A letter without its record: what lists and deletes need to know."""

    topic: str
    partition: int
    offset: int
    attempt: int
    reason: str
    stage: str
    failed_at: datetime | None

    COLUMNS = ("topic", "partition", "offset", "attempt", "_dlq_reason", "stage", "failed_at")

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """From a row of the table; a table of one's own may lack some columns, or have no zone."""
        failed_at: datetime | None = row.get("failed_at")
        if failed_at is not None and failed_at.tzinfo is None:
            failed_at = failed_at.replace(tzinfo=UTC)
        return cls(
            row["topic"], row["partition"], row["offset"], row.get("attempt") or 0, row.get("_dlq_reason") or "",
            row.get("stage") or "", failed_at,
        )  # fmt: skip

    @property
    def place(self) -> Place:
        return self.topic, self.partition, self.offset


def states(letters: Sequence[LetterHead], replayed: Collection[Replay]) -> list[LetterState]:
    """The state of each letter. `replayed`: what the replay topic holds; empty if it was not read."""
    newest: dict[Place, int] = {}
    for letter in letters:
        newest[letter.place] = max(letter.attempt, newest.get(letter.place, 0))
    found = []
    for letter in letters:
        tried = letter.attempt < newest[letter.place] or Replay(*letter.place, letter.attempt + 1) in replayed
        again = LetterState.FAILED_AGAIN if letter.attempt else LetterState.NEW
        found.append(LetterState.REPLAYED if tried else again)
    return found
