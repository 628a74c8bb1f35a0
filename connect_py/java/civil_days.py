"""Converts dates of any year to days since the epoch, and back, in two calendars.

The calendars are the proleptic Gregorian calendar and `java.util.GregorianCalendar`. Year 0
precedes year 1. Internally, a year begins on March 1, so the leap day is its last day.
"""

from __future__ import annotations

from typing import Final

# October 15, 1582. GregorianCalendar uses the Julian calendar before this day.
_GREGORIAN_FROM: Final = -141_427
_GREGORIAN_EPOCH: Final = 719_468  # days from March 1 of year 0 to the epoch
_JULIAN_EPOCH: Final = 719_470


def days_of(year: int, month: int, day: int) -> int:
    """Return the days since the epoch for a Gregorian date."""
    shifted = _shifted(year, month)
    return (
        365 * shifted
        + shifted // 4
        - shifted // 100
        + shifted // 400
        + _day_of_year(month, day)
        - _GREGORIAN_EPOCH
    )


def date_of(days: int) -> tuple[int, int, int]:
    """Return the Gregorian year, month, and day for days since the epoch."""
    era, day_of_era = divmod(days + _GREGORIAN_EPOCH, 146_097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    return _date(year + era * 400, day_of_era - (365 * year + year // 4 - year // 100))


def java_days_of(year: int, month: int, day: int) -> int:
    """Return the days since the epoch for a date in `java.util.GregorianCalendar`."""
    days = days_of(year, month, day)
    if days >= _GREGORIAN_FROM:
        return days
    shifted = _shifted(year, month)
    return 365 * shifted + shifted // 4 + _day_of_year(month, day) - _JULIAN_EPOCH


def java_date_of(days: int) -> tuple[int, int, int]:
    """Return year, month, and day in `java.util.GregorianCalendar` for days since the epoch."""
    if days >= _GREGORIAN_FROM:
        return date_of(days)
    era, day_of_era = divmod(days + _JULIAN_EPOCH, 1461)
    year = (day_of_era - day_of_era // 1460) // 365
    return _date(year + era * 4, day_of_era - 365 * year)


def _shifted(year: int, month: int) -> int:
    return year - (month <= 2)


def _day_of_year(month: int, day: int) -> int:
    return (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1


def _date(shifted_year: int, day_of_year: int) -> tuple[int, int, int]:
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    return shifted_year + (month >= 10), month + 3 if month < 10 else month - 9, day
