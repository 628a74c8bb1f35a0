"""`DeadLetterRecord`: a row of the dead-letter table and its JSON form."""

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

RecordId = tuple[str, int, int]  # topic, partition, and offset of the source record


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """One row of the dead-letter table."""

    topic: str
    partition: int
    offset: int
    attempt: int  # 0 for the original failure, n for a failure of the n-th replay
    timestamp: int | None  # ms since the epoch
    key: bytes | None
    value: bytes | None
    headers: RawHeaders
    reason: str
    details: Mapping[str, Any]  # all other columns, for display

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Create a record from a row of the table.

        A table that users created may lack the optional columns.
        """
        stamp = row.get("timestamp")
        headers = [(h["key"], h["value"]) for h in row.get("headers") or ()]
        fixed_columns = {
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
            {k: v for k, v in row.items() if k not in fixed_columns},
        )

    @property
    def record_id(self) -> RecordId:
        return self.topic, self.partition, self.offset

    @property
    def stage(self) -> str:
        return self.details.get("stage") or ""

    @property
    def failed_at(self) -> datetime | None:
        """Time of the failure, in UTC unless the table specifies another time zone."""
        at: datetime | None = self.details.get("failed_at")
        return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)

    def next_replay(self) -> Replay:
        """Return the identity of the next replay of this record."""
        return Replay(self.topic, self.partition, self.offset, self.attempt + 1)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that `dlq show` prints and `dlq replay --fixed` accepts."""
        details = {
            k: v.isoformat() if isinstance(v, datetime) else v for k, v in self.details.items()
        }
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "attempt": self.attempt,
            "timestamp": self.timestamp,
            "key": bytes_to_json(self.key),
            "value": bytes_to_json(self.value),
            "headers": [[name, bytes_to_json(data)] for name, data in self.headers],
            "_dlq_reason": self.reason,
            **details,
        }


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes to a record. Fields that are not in `changes` remain unchanged."""

    record_id: RecordId
    changes: Mapping[str, Any]  # key, value, headers

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Parse the JSON form of `DeadLetterRecord.to_json`.

        Raises:
            ConfigError: `data` does not have this form.
        """
        try:
            changes: dict[str, Any] = {
                name: bytes_from_json(data[name]) for name in ("key", "value") if name in data
            }
            if "headers" in data:
                changes["headers"] = [
                    (str(name), bytes_from_json(value)) for name, value in data["headers"]
                ]
            return cls((str(data["topic"]), int(data["partition"]), int(data["offset"])), changes)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                "", f"invalid fixed record: expected the form that `dlq show` prints ({error!r})"
            ) from error


def bytes_to_json(data: bytes | None) -> Mapping[str, str] | None:
    """Encode bytes for JSON: valid UTF-8 as a string, and other bytes as Base64."""
    if data is None:
        return None
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_from_json(data: Mapping[str, str] | None) -> bytes | None:
    """Decode bytes from the form of `bytes_to_json`.

    Raises:
        KeyError, TypeError, or ValueError: `data` does not have this form.
    """
    if data is None:
        return None
    return (
        data["text"].encode() if "text" in data else base64.b64decode(data["base64"], validate=True)
    )


class DeadLetterState(Enum):
    """State of a dead-letter record, as used by `dlq list` and `dlq delete --state`."""

    NEW = "new"  # never replayed
    FAILED_AGAIN = "failed-again"  # failed again in a replay and has not been replayed since
    REPLAYED = "replayed"  # replayed; if it failed again, there is a later record


def states(
    dead_letters: Sequence[DeadLetterRecord], replayed: Collection[Replay]
) -> list[DeadLetterState]:
    """Return the state of each record.

    Args:
        dead_letters: Rows of the dead-letter table.
        replayed: Records in the replay topic, or empty if the topic was not read.
    """
    newest = {dead_letter.record_id: dead_letter.attempt for dead_letter in latest(dead_letters)}
    result = []
    for dead_letter in dead_letters:
        is_replayed = (
            dead_letter.attempt < newest[dead_letter.record_id]
            or dead_letter.next_replay() in replayed
        )
        not_replayed = DeadLetterState.FAILED_AGAIN if dead_letter.attempt else DeadLetterState.NEW
        result.append(DeadLetterState.REPLAYED if is_replayed else not_replayed)
    return result


def latest(dead_letters: Iterable[DeadLetterRecord]) -> list[DeadLetterRecord]:
    """Return the last dead-letter record for each source record, in offset order.

    Earlier dead-letter records for the same source record have been replayed.
    """
    newest: dict[RecordId, DeadLetterRecord] = {}
    for dead_letter in dead_letters:
        current = newest.get(dead_letter.record_id)
        if current is None or dead_letter.attempt >= current.attempt:
            newest[dead_letter.record_id] = dead_letter
    return [newest[record_id] for record_id in sorted(newest)]
