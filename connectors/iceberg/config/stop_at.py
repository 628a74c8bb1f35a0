"""`iceberg.ext.stop-at`: the point at which a connector stops automatically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from connect_py.api.config import Parsed
from connect_py.api.errors import ConfigError
from connect_py.api.record import TopicPartition

LATEST: Final = "latest"
_EXPECTED: Final = (
    "expected latest, a time with a time zone such as 2026-01-02T03:04:05Z, or offsets "
    "such as orders:0:1234,orders:1:99"
)


@dataclass(frozen=True, slots=True)
class StopAt:
    """Stop position: a time, offsets, or the log end offsets when the connector starts."""

    text: str  # as configured
    time_ms: int | None = None  # Unix time of the first record that is not written
    # offsets of the first records that are not written
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


def parse_stop_at(text: str | None) -> StopAt | None:
    """Parse the option. The result is None if the connector does not stop automatically.

    Raises:
        ValueError: The value has none of the three formats.
    """
    text = (text or "").strip()
    if not text:
        return None
    if text.lower() == LATEST:
        return StopAt(LATEST)
    if text.startswith("{"):
        return StopAt(text, offsets=_from_json(text))
    if text[:4].isdecimal() and text[4:5] == "-":
        return StopAt(text, time_ms=_time_ms(text))
    return StopAt(text, offsets=_from_list(text))


def valid_stop_at(name: str, value: Parsed) -> None:
    """Validate the option.

    Raises:
        ConfigError: The value has none of the three formats, or is a time in the future, for which
            the offsets are not known yet.
    """
    try:
        stop_at = parse_stop_at(None if value is None else str(value))
    except ValueError as error:
        raise ConfigError(name, str(error)) from error
    now_ms = datetime.now(UTC).timestamp() * 1000
    if stop_at is not None and stop_at.time_ms is not None and stop_at.time_ms > now_ms:
        raise ConfigError(
            name, f"{stop_at.text} is in the future, and its offsets are not known yet"
        )


def _time_ms(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(_EXPECTED) from error
    if time.tzinfo is None:
        raise ValueError(f"{text} has no time zone; expected a value such as 2026-01-02T03:04:05Z")
    return round(time.timestamp() * 1000)


def _from_list(text: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for item in text.split(","):
        parts = item.strip().split(":")
        if len(parts) != 3 or not parts[0]:
            raise ValueError(_EXPECTED)
        _add(offsets, *parts)
    return offsets


def _from_json(text: str) -> dict[TopicPartition, int]:
    """Parse offsets in the JSON format of snapshot summaries, `{"orders": {"0": 1234}}`."""
    offsets: dict[TopicPartition, int] = {}
    try:
        document: Any = json.loads(text)
        pairs = [
            (topic, *pair) for topic, partitions in document.items() for pair in partitions.items()
        ]
    except (ValueError, AttributeError) as error:
        raise ValueError(_EXPECTED) from error
    for topic, partition, offset in pairs:
        _add(offsets, topic, partition, str(offset))
    return offsets


def _add(offsets: dict[TopicPartition, int], topic: str, partition: str, offset: str) -> None:
    if not partition.isdecimal() or not offset.isdecimal():
        raise ValueError(_EXPECTED)
    key = TopicPartition(topic, int(partition))
    if key in offsets:
        raise ValueError(f"duplicate partition {key}")
    offsets[key] = int(offset)
