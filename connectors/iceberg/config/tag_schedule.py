"""`iceberg.ext.tags`: tags that the sink creates at the end of each hour, day, week, or month.

Standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION: Final = re.compile(r"([1-9]\d{0,6}) ?([smhdw])")
_RULE: Final = re.compile(r"(\w+)(?:\s*:\s*keep\s+(.+))?")


class TagPeriod(Enum):
    """Interval between tags. Periods are aligned to UTC, and weeks start on Monday."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"

    def start(self, timestamp_ms: int) -> int:
        """Return the start of the period that contains a Unix time, both in milliseconds."""
        start = datetime.fromtimestamp(timestamp_ms / 1000, UTC).replace(
            minute=0, second=0, microsecond=0
        )
        if self is not TagPeriod.HOURLY:
            start = start.replace(hour=0)
        if self is TagPeriod.WEEKLY:
            start -= timedelta(days=start.weekday())
        if self is TagPeriod.MONTHLY:
            start = start.replace(day=1)
        return int(start.timestamp() * 1000)

    def name_before(self, start_ms: int, ref: str) -> str:
        """Return the name of a ref's tag for the period that ends at `start_ms`."""
        last = datetime.fromtimestamp(start_ms / 1000, UTC) - timedelta(seconds=1)
        return f"{self._prefix(ref)}{last.strftime(_NAMES[self][0])}"

    def is_name(self, tag: str, ref: str) -> bool:
        """Return True if a tag name has the format of this period and ref."""
        return (
            tag.startswith(prefix := self._prefix(ref))
            and re.fullmatch(_NAMES[self][1], tag[len(prefix) :]) is not None
        )

    def _prefix(self, ref: str) -> str:
        return f"{self.value}-" if ref == "main" else f"{ref}-{self.value}-"


_NAMES: Final = {
    TagPeriod.HOURLY: ("%Y-%m-%dT%H", r"\d{4}-\d\d-\d\dT\d\d"),
    TagPeriod.DAILY: ("%Y-%m-%d", r"\d{4}-\d\d-\d\d"),
    TagPeriod.WEEKLY: ("%G-W%V", r"\d{4}-W\d\d"),
    TagPeriod.MONTHLY: ("%Y-%m", r"\d{4}-\d\d"),
}


@dataclass(frozen=True, slots=True)
class TagRule:
    """Schedule for tags with one period."""

    period: TagPeriod
    # age of the snapshot at which its tag is removed, or None if the tag is never removed
    keep_ms: int | None = None


def parse_tags(text: str) -> tuple[TagRule, ...]:
    """Parse a list such as `daily:keep 14d, monthly`.

    Raises:
        ValueError: The string does not have this format or contains a duplicate period.
    """
    rules: dict[TagPeriod, TagRule] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        match = _RULE.fullmatch(item)
        names = [period.value for period in TagPeriod]
        if match is None or match[1] not in names:
            raise ValueError(
                f"invalid tag schedule {item!r}: expected one of {', '.join(names)}, optionally "
                "with an age, such as daily:keep 14d"
            )
        period = TagPeriod(match[1])
        if period in rules:
            raise ValueError(f"duplicate period {period.value}")
        rules[period] = TagRule(period, None if match[2] is None else parse_duration(match[2]))
    return tuple(rules.values())


def parse_duration(duration: str) -> int:
    """Convert a duration such as `20s`, `30m`, `36h`, `14d`, or `4w` to milliseconds.

    Raises:
        ValueError: The string does not have this format.
    """
    match = _DURATION.fullmatch(duration.strip())
    if match is None:
        raise ValueError(
            f"invalid duration {duration!r}: expected a value such as 30m, 36h, or 14d"
        )
    return int(match[1]) * _UNITS[match[2]]
