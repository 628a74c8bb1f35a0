"""Dead letters: consumed records that failed, and their replays.

`DeadLetter` is what a sink task receives that stores such records itself. `Replay` identifies the
dead letter that a record in a replay topic was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Self

from connect_py.api.errors import FailureReason
from connect_py.api.record import RawHeaders, RecordOrigin, TimestampType

REPLAY_HEADER: Final = "connect-py.replay"


@dataclass(frozen=True, slots=True)
class Replay:
    """Where the record was read first, and how often it has been tried again, this time included.

    Travels as one header. Converters and transformations see this place; where the record was read
    now decides alone what is committed. Place and attempt name one replay: the same one is never
    written twice.
    """

    topic: str
    partition: int
    offset: int
    attempt: int  # 1: the first replay

    def to_header(self) -> tuple[str, bytes]:
        """The header that makes a record a replay."""
        data = {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "attempt": self.attempt,
        }
        return REPLAY_HEADER, json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def of(cls, headers: RawHeaders) -> Self | None:
        """Read the header, the last one of its name; None: there is none, or another program wrote
        it."""
        for name, data in reversed(headers):
            if name == REPLAY_HEADER:
                if data is None:
                    return None
                try:
                    found = json.loads(data)
                    return cls(
                        str(found["topic"]),
                        *(int(found[k]) for k in ("partition", "offset", "attempt")),
                    )
                except (ValueError, TypeError, KeyError):
                    return None
        return None


def without_replay(headers: RawHeaders) -> RawHeaders:
    """The headers that a replay had as a record at its first place: all but the one that makes it a
    replay."""
    last = max(place for place, header in enumerate(headers) if header[0] == REPLAY_HEADER)
    return [*headers[:last], *headers[last + 1 :]]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record that failed, with the bytes it was consumed with, and why it failed."""

    origin: RecordOrigin  # where it was read now: this decides what is committed
    timestamp: int | None  # of the record: ms since the epoch
    timestamp_type: TimestampType
    reason: FailureReason
    stage: str  # where it failed, in Connect's words: `VALUE_CONVERTER`, `TASK_PUT`, ...
    class_name: (
        str  # of the converter, transformation or task that failed, as the user configured it
    )
    error_class: str  # Java's name where one corresponds, else Python's
    error_message: str | None  # with those of its causes, a line each
    failed_at: int  # ms since the epoch
    replay: Replay | None = None  # it had failed before, and was tried again: its first place
    error_trace: str | None = None  # in Java's form, then Python's
