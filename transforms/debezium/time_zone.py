"""UTC offsets of time zones, including offsets in years that `datetime` does not support."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d\d))?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_OF_400_YEARS: Final = 146_097 * 86_400
_FIRST: Final = -62_135_596_800 + 2 * 86_400  # start of year 1 in seconds, plus a margin
_LAST: Final = 253_402_300_799 - 2 * 86_400  # end of year 9999, minus the same margin


class TimeZone:
    """Time zone with a name (`Europe/Berlin`) or a fixed offset (`+02:00`)."""

    def __init__(self, name: str) -> None:
        """Look up a time zone; raise ValueError if it does not exist."""
        self._zone = _zone(name)
        self.offset = lru_cache(maxsize=4096)(self._offset)

    def _offset(self, seconds: int) -> int:
        """Return the UTC offset, in seconds, at a time that is given in seconds since the epoch."""
        return _seconds_ahead(_datetime(seconds).astimezone(self._zone))

    def offset_of_local(self, seconds: int) -> int:
        """Return the UTC offset, in seconds, at a local time in seconds since 1970-01-01.

        The result is the earlier offset for an ambiguous time, and the offset before the gap for a
        time in a gap.
        """
        return _seconds_ahead(_datetime(seconds).replace(tzinfo=self._zone))


def _datetime(seconds: int) -> datetime:
    """Return the time, or an equivalent time that `datetime` supports.

    The calendar repeats every 400 years, and so do the time zone rules.
    """
    if seconds > _LAST:
        seconds = _LAST - _SECONDS_OF_400_YEARS + (seconds - _LAST) % _SECONDS_OF_400_YEARS
    return _EPOCH + timedelta(seconds=max(seconds, _FIRST))


def _seconds_ahead(local: datetime) -> int:
    offset = local.utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _zone(name: str) -> tzinfo:
    if name in ("Z", "UTC", "GMT"):
        return UTC
    match = _OFFSET.fullmatch(name)
    if match is not None:
        ahead = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return timezone(-ahead if match[1] == "-" else ahead)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"unknown time zone {name}") from error
