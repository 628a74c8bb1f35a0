"""`Replay`: says of a record in a replay topic which dead letter it was, and so what it is
again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Self

from connect_py.api.record import RawHeaders

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
