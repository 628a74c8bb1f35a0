"""`DeadLetterRecord`: one dead letter as its table has it, and in the form that people read and
write."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Self

from connect_py.api.dead_letter import Replay
from connect_py.api.errors import ConfigError
from connect_py.api.record import RawHeaders

Place = tuple[str, int, int]  # topic, partition and offset of a record, as it was first read


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """One row of the table."""

    topic: str
    partition: int
    offset: int
    attempt: int  # 0: as first consumed; n: it failed again in the n-th replay
    timestamp: int | None  # ms since the epoch
    key: bytes | None
    value: bytes | None
    headers: RawHeaders
    reason: str
    details: Mapping[str, Any]  # everything else, for people

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """From a row of the table, or from some of its columns; a table of one's own may lack what
        only tells more."""
        stamp = row.get("timestamp")
        headers = [(h["key"], h["value"]) for h in row.get("headers") or ()]
        known = {
            "topic",
            "partition",
            "offset",
            "attempt",
            "timestamp",
            "key",
            "value",
            "headers",
            "_dlq_reason",
        }
        return cls(
            row["topic"],
            row["partition"],
            row["offset"],
            row.get("attempt") or 0,
            None if stamp is None else round(stamp.timestamp() * 1000),
            row.get("key"),
            row.get("value"),
            headers,
            row.get("_dlq_reason") or "",
            {k: v for k, v in row.items() if k not in known},
        )

    @property
    def place(self) -> Place:
        return self.topic, self.partition, self.offset

    @property
    def stage(self) -> str:
        return self.details.get("stage") or ""

    @property
    def failed_at(self) -> datetime | None:
        """In UTC unless the table says another zone."""
        at: datetime | None = self.details.get("failed_at")
        return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)

    def next_replay(self) -> Replay:
        """What trying this letter again is called."""
        return Replay(self.topic, self.partition, self.offset, self.attempt + 1)

    def to_json(self) -> dict[str, Any]:
        """The form that `show` prints and `replay --fixed` takes."""
        details = {
            k: v.isoformat() if isinstance(v, datetime) else v for k, v in self.details.items()
        }
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "attempt": self.attempt,
            "timestamp": self.timestamp,
            "key": shown(self.key),
            "value": shown(self.value),
            "headers": [[name, shown(data)] for name, data in self.headers],
            "_dlq_reason": self.reason,
            **details,
        }


@dataclass(frozen=True, slots=True)
class Fix:
    """What a record is to be instead; a member that is missing stays as it was."""

    place: Place
    changes: Mapping[str, Any]  # key, value, headers

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """From the form of `DeadLetterRecord.to_json`.

        Raises:
            ConfigError: It is not of this form.
        """
        try:
            changes: dict[str, Any] = {
                name: hidden(data[name]) for name in ("key", "value") if name in data
            }
            if "headers" in data:
                changes["headers"] = [(str(name), hidden(value)) for name, value in data["headers"]]
            return cls((str(data["topic"]), int(data["partition"]), int(data["offset"])), changes)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                "", f"a fixed record is not of the form that `dlq show` prints: {error!r}"
            ) from error


def shown(data: bytes | None) -> Mapping[str, str] | None:
    """Bytes that are text as text, others in base64."""
    if data is None:
        return None
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def hidden(data: Mapping[str, str] | None) -> bytes | None:
    """The bytes again. KeyError, TypeError or ValueError: not of that form."""
    if data is None:
        return None
    return (
        data["text"].encode() if "text" in data else base64.b64decode(data["base64"], validate=True)
    )


class DeadLetterState(Enum):
    """The values are what `dlq list` shows and `dlq delete --state` takes."""

    NEW = "new"  # never tried again
    FAILED_AGAIN = "failed-again"  # in the replay that is its attempt, and not tried again since
    REPLAYED = "replayed"  # tried again; what failed once more is a letter of its own


def states(
    dead_letters: Sequence[DeadLetterRecord], replayed: Collection[Replay]
) -> list[DeadLetterState]:
    """The state of each letter. `replayed`: what the replay topic holds; empty if it was not
    read."""
    newest = {dead_letter.place: dead_letter.attempt for dead_letter in latest(dead_letters)}
    found = []
    for dead_letter in dead_letters:
        tried = (
            dead_letter.attempt < newest[dead_letter.place] or dead_letter.next_replay() in replayed
        )
        again = DeadLetterState.FAILED_AGAIN if dead_letter.attempt else DeadLetterState.NEW
        found.append(DeadLetterState.REPLAYED if tried else again)
    return found


def latest(dead_letters: Iterable[DeadLetterRecord]) -> list[DeadLetterRecord]:
    """Of each record its last letter, in order of their places: earlier ones were tried again
    since."""
    found: dict[Place, DeadLetterRecord] = {}
    for dead_letter in dead_letters:
        known = found.get(dead_letter.place)
        if known is None or dead_letter.attempt >= known.attempt:
            found[dead_letter.place] = dead_letter
    return [found[place] for place in sorted(found)]
