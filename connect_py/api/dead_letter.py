"""Dead-letter records, which are consumed records that failed, and their replays.

`DeadLetter` is passed to a sink task that stores dead-letter records. `Replay` identifies the
original record from which a record in a replay topic was copied.
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
    """Original position of a replayed record, and the number of replays so far.

    Stored in one record header. Converters and transformations receive the original position, but
    commits depend only on the position in the replay topic. Together, the original position and the
    attempt identify a replay. A task can use them to prevent duplicate writes.
    """

    topic: str
    partition: int
    offset: int
    attempt: int  # 1 for the first replay

    def to_header(self) -> tuple[str, bytes]:
        """Return the header that marks a record as a replay."""
        data = {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "attempt": self.attempt,
        }
        return REPLAY_HEADER, json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def of(cls, headers: RawHeaders) -> Self | None:
        """Parse the last replay header.

        Return None if there is no replay header or if another program wrote it.
        """
        for name, data in reversed(headers):
            if name == REPLAY_HEADER:
                if data is None:
                    return None
                try:
                    position = json.loads(data)
                    return cls(
                        str(position["topic"]),
                        *(int(position[k]) for k in ("partition", "offset", "attempt")),
                    )
                except (ValueError, TypeError, KeyError):
                    return None
        return None


def without_replay(headers: RawHeaders) -> RawHeaders:
    """Return the headers of the original record: all headers except the replay header."""
    last = max(index for index, header in enumerate(headers) if header[0] == REPLAY_HEADER)
    return [*headers[:last], *headers[last + 1 :]]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that failed, with its raw bytes and the reason for the failure."""

    origin: RecordOrigin  # consumed position, which determines the committed offsets
    timestamp: int | None  # timestamp of the record, in ms since the epoch
    timestamp_type: TimestampType
    reason: FailureReason
    stage: str  # Connect's name for the stage that failed: `VALUE_CONVERTER`, `TASK_PUT`, ...
    class_name: str  # class of the converter, transformation, or task that failed, as configured
    error_class: str  # Java class name if there is one, otherwise the Python class name
    error_message: str | None  # including the messages of all causes, one per line
    failed_at: int  # ms since the epoch
    replay: Replay | None = None  # original position of a replayed record
    error_trace: str | None = None  # stack trace in Java's format, followed by Python's format
