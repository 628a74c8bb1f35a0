"""Offsets of a time zone at any moment, years that `datetime` cannot hold included."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d\d))?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_OF_400_YEARS: Final = 146_097 * 86_400
_FIRST: Final = -62_135_596_800 + 2 * 86_400  # seconds; year 1, and no offset leads out of it
_LAST: Final = 253_402_300_799 - 2 * 86_400  # year 9999


class TimeZone:
    """A zone by name (`Europe/Berlin`) or offset (`+02:00`)."""

    def __init__(self, name: str) -> None:
        """ValueError: there is no such zone."""
        self._zone = _zone(name)
        self.offset = lru_cache(maxsize=4096)(self._offset)

    def _offset(self, seconds: int) -> int:
        """Seconds that clocks in the zone are ahead of UTC at a moment, in seconds since the
        epoch."""
        return _ahead(_moment(seconds).astimezone(self._zone))

    def offset_of_local(self, seconds: int) -> int:
        """The same for a time that clocks in the zone show; of two the earlier offset, in a gap the
        one before it."""
        return _ahead(_moment(seconds).replace(tzinfo=self._zone))


def _moment(seconds: int) -> datetime:
    """The moment, or one that `datetime` can hold and to which the same rules apply: these repeat
    with the calendar."""
    if seconds > _LAST:
        seconds = _LAST - _SECONDS_OF_400_YEARS + (seconds - _LAST) % _SECONDS_OF_400_YEARS
    return _EPOCH + timedelta(seconds=max(seconds, _FIRST))


def _ahead(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _zone(name: str) -> tzinfo:
    if name in ("Z", "UTC", "GMT"):
        return UTC
    found = _OFFSET.fullmatch(name)
    if found is not None:
        ahead = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-ahead if found[1] == "-" else ahead)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"unknown time zone {name}") from error
