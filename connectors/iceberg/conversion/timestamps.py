"""Dates and times as text, read with integer arithmetic: topics hold moments that no `datetime`
can.

The calendar is that of `connect_py.java.civil_days`.
"""

from __future__ import annotations

import calendar
import re

from connect_py.java.civil_days import date_of, days_of

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND
NANOS_PER_SECOND = 1_000_000_000
NANOS_PER_DAY = 86_400 * NANOS_PER_SECOND
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
# dates further away mean infinity: no timestamp reaches them
MAX_DAYS = INT64_MAX // MICROS_PER_DAY

_DATE = re.compile(r"([+-]?\d{4,9})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)
_TIME_OF_TIMESTAMP = re.compile(r"(\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?", re.ASCII)
_ZONE = re.compile(r"[Zz]|([+-])(\d\d)(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII)
_LARGEST_OFFSET = 18 * 3600  # seconds; of Java's `ZoneOffset`


class TimestampOutOfRange(ValueError):  # noqa: N818 - a fact about the moment, handled by configuration
    """A moment that the column cannot hold."""

    def __init__(self, *, late: bool) -> None:
        super().__init__("is out of range")
        self.late = late  # after the last moment, else before the first one


def date_text(days: int) -> str:
    """`yyyy-MM-dd` as Java's `LocalDate` writes it: a sign before years beyond 9999 and before year
    0."""
    year, month, day = date_of(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _days(match: re.Match[str]) -> int:
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= month <= 12:
        raise ValueError("no such month")
    last = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1] + (
        month == 2 and calendar.isleap(year)
    )
    if not 1 <= day <= last:
        raise ValueError("no such day")
    return days_of(year, month, day)


def _nanos_of_day(match: re.Match[str], *, until_24: bool = False) -> int:
    hour, minute, second = int(match[1]), int(match[2] or 0), int(match[3] or 0)
    nanos = int((match[4] or "").ljust(9, "0"))
    midnight = until_24 and hour == 24 and not minute and not second and not nanos
    if (hour > 23 and not midnight) or minute > 59 or second > 59:
        raise ValueError("no such time of day")
    return ((hour * 60 + minute) * 60 + second) * NANOS_PER_SECOND + nanos


def parse_date(text: str) -> int:
    """`yyyy-MM-dd`, perhaps with `Z`: days since the epoch.

    Raises:
        TimestampOutOfRange: infinity, or further away than any timestamp.
        ValueError: No such text.
    """
    _check_infinity(text)
    match = _DATE.match(text)
    if match is None or text[match.end() :] not in ("", "Z"):
        raise ValueError("expected yyyy-MM-dd")
    days = _days(match)
    if abs(days) > MAX_DAYS:
        raise TimestampOutOfRange(late=days > 0)
    return days


def parse_time(text: str) -> int:
    """`HH:mm[:ss[.fraction]]`, perhaps with `Z`: microseconds of the day.

    Raises:
        TimestampOutOfRange: 24:00.
        ValueError: No such text.
    """
    match = _TIME.match(text)
    if match is None or text[match.end() :] not in ("", "Z"):
        raise ValueError("expected HH:mm:ss")
    micros = _nanos_of_day(match, until_24=True) // 1000
    if micros >= MICROS_PER_DAY:
        raise TimestampOutOfRange(late=True)
    return micros


def parse_timestamp(text: str, *, zoned: bool, nanos: bool = False) -> int:
    """`yyyy-MM-dd`, `T` or a blank, `HH[:mm[:ss[.fraction]]]`, zone or none: microseconds since the
    epoch.

    `zoned`: an offset is applied, no zone means UTC. Otherwise the wall time is kept and an offset
    dropped. `nanos`: nanoseconds since the epoch.

    Raises:
        TimestampOutOfRange: infinity, or more microseconds (nanoseconds) than 64 bits hold.
        ValueError: No such text.
    """
    _check_infinity(text)
    date = _DATE.match(text)
    if date is None or text[date.end() : date.end() + 1] not in ("T", "t", " "):
        raise ValueError("expected yyyy-MM-ddTHH:mm:ss")
    time = _TIME_OF_TIMESTAMP.match(text, date.end() + 1)
    if time is None:
        raise ValueError("expected yyyy-MM-ddTHH:mm:ss")
    moment = _days(date) * NANOS_PER_DAY + _nanos_of_day(time)
    rest = text[time.end() :]
    if rest:
        zone = _ZONE.fullmatch(rest)
        seconds = (
            0
            if zone is None
            else int(zone[2] or 0) * 3600 + int(zone[3] or 0) * 60 + int(zone[4] or 0)
        )
        if (
            zone is None
            or seconds > _LARGEST_OFFSET
            or int(zone[3] or 0) > 59
            or int(zone[4] or 0) > 59
        ):
            raise ValueError("expected an offset such as Z or +01:00 at the end")
        if zoned:
            moment -= seconds * NANOS_PER_SECOND * (-1 if zone[1] == "-" else 1)
    if not nanos:
        moment //= 1000
    if not INT64_MIN < moment < INT64_MAX:
        raise TimestampOutOfRange(late=moment > 0)
    return moment


def _check_infinity(text: str) -> None:
    if text in ("infinity", "-infinity"):
        raise TimestampOutOfRange(late=text == "infinity")
