"""Java's `SimpleDateFormat` for the English locale and UTC, with lenient parsing.

Java's built-in transformations use it with these settings. Times are milliseconds since the epoch,
for any year. Days before October 15, 1582, are dates in the Julian calendar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from connect_py.java.civil_days import java_date_of, java_days_of

MILLIS_PER_DAY: Final = 86_400_000
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+", re.DOTALL)
_NUMBER = re.compile(r"[ \t]*(-?\d+)")
_ZONE = re.compile(r"(?:GMT|UTC|Z)?(?:([+-])(\d{1,2}):?(\d\d)?)?")
_LETTERS: Final = frozenset("GyYMLwWDdFEuaHkKhmsSzZX")
_NUMERIC: Final = frozenset("yYwWDdFuHkKhmsS")
_YEARS_AHEAD: Final = 20  # a two-digit year is at most this many years in the future


class JavaDateFormatError(ValueError):
    """The pattern is invalid, or the string does not match it."""


@dataclass(frozen=True, slots=True)
class _Part:
    letter: str  # empty for a literal
    count: int
    text: str = ""


@dataclass(slots=True)
class _Fields:
    """Parsed fields. Parsing is lenient, so a field can have any value."""

    era: int = 1
    year: int = 1970
    month: int = 0  # zero-based
    day: int = 1
    day_of_year: int | None = None
    afternoon: int = 0
    half_hour: int | None = None  # hour within a half day
    hour: int = 0
    minute: int = 0
    second: int = 0
    milli: int = 0
    offset: int = 0  # time zone offset in minutes

    def millis(self) -> int:
        year = self.year if self.era else 1 - self.year
        if self.day_of_year is not None:
            days = java_days_of(year, 1, 1) + self.day_of_year - 1
        else:
            carried, month = divmod(self.month, 12)
            days = java_days_of(year + carried, month + 1, 1) + self.day - 1
        hour = self.hour if self.half_hour is None else 12 * self.afternoon + self.half_hour
        minutes = 60 * hour + self.minute - self.offset
        return ((days * 1440 + minutes) * 60 + self.second) * 1000 + self.milli


class JavaDateFormat:
    """A compiled pattern that formats and parses times."""

    def __init__(self, pattern: str, this_year: int) -> None:
        """Compile a pattern. `this_year` determines the century of two-digit years.

        Raises:
            JavaDateFormatError: A pattern letter is unknown, or a quote is not closed.
        """
        self.pattern = pattern
        self._century_from = this_year - 100 + _YEARS_AHEAD
        self._parts = _parts(pattern)
        self.format = lru_cache(maxsize=1024)(self._format)

    def _format(self, millis: int) -> str:
        days, rest = divmod(millis, MILLIS_PER_DAY)
        moment = _DateTime(days, rest)
        return "".join(
            p.text if not p.letter else _FORMATTERS[p.letter](moment, p.count) for p in self._parts
        )

    def parse(self, text: str) -> int:
        """Parse the time at the start of a string. The rest of the string is ignored.

        Raises:
            JavaDateFormatError: The string does not match the pattern.
        """
        fields = _Fields()
        at = 0
        for index, part in enumerate(self._parts):
            if part.letter:
                at = self._parse_part(part, self._parts[index + 1 : index + 2], text, at, fields)
                continue
            for character in part.text:  # one blank in the pattern matches one or more blanks
                if character == " ":
                    start = at
                    while at < len(text) and text[at] in " \t":
                        at += 1
                    if at == start:
                        raise JavaDateFormatError(text)
                elif text[at : at + 1] != character:
                    raise JavaDateFormatError(text)
                else:
                    at += 1
        return fields.millis()

    def _parse_part(
        self, part: _Part, following: Sequence[_Part], text: str, at: int, fields: _Fields
    ) -> int:
        letter = part.letter
        if letter in "ML" and part.count >= 3:
            return _name(_MONTHS, text, at, lambda index: setattr(fields, "month", index))
        if letter == "E":
            return _name(_DAYS, text, at, lambda index: None)
        if letter == "a":
            return _name(("AM", "PM"), text, at, lambda index: setattr(fields, "afternoon", index))
        if letter == "G":
            return _name(("BC", "AD"), text, at, lambda index: setattr(fields, "era", index))
        if letter in "zZX":
            return _zone(text, at, fields)
        abutting = bool(following) and following[0].letter in _NUMERIC | {"M", "L"}
        number_pattern = re.compile(rf"\d{{1,{part.count}}}") if abutting else _NUMBER
        match = number_pattern.match(text, at)
        if match is None:
            raise JavaDateFormatError(text)
        digits = match[0].strip()
        number = int(digits)
        if letter in "yY":
            if part.count <= 2 and len(digits) == 2 and digits.isdigit():
                number += self._century_from // 100 * 100
                number += 100 if number < self._century_from else 0
            fields.year = number
        elif letter in _SETTERS:
            _SETTERS[letter](fields, number)
        return match.end()


# Week numbers and days of the week are parsed but ignored, because the date takes precedence.
_SETTERS: Mapping[str, Callable[[_Fields, int], None]] = {
    "M": lambda f, n: setattr(f, "month", n - 1),
    "L": lambda f, n: setattr(f, "month", n - 1),
    "d": lambda f, n: setattr(f, "day", n),
    "D": lambda f, n: setattr(f, "day_of_year", n),
    "H": lambda f, n: setattr(f, "hour", n),
    "k": lambda f, n: setattr(f, "hour", 0 if n == 24 else n),
    "K": lambda f, n: setattr(f, "half_hour", n),
    "h": lambda f, n: setattr(f, "half_hour", 0 if n == 12 else n),
    "m": lambda f, n: setattr(f, "minute", n),
    "s": lambda f, n: setattr(f, "second", n),
    "S": lambda f, n: setattr(f, "milli", n),
}


class _DateTime:
    """Calendar fields for a day, in days since the epoch, and a time of day, in milliseconds."""

    def __init__(self, days: int, millis: int) -> None:
        self.year, self.month, self.day = java_date_of(days)
        self.day_of_year = days - java_days_of(self.year, 1, 1) + 1
        self.weekday = (days + 4) % 7  # 0 is Sunday
        self.hour, rest = divmod(millis, 3_600_000)
        self.minute, rest = divmod(rest, 60_000)
        self.second, self.milli = divmod(rest, 1000)

    @property
    def week(self) -> tuple[int, int]:
        """Week year and week number. Weeks begin on Sunday, and week 1 contains January 1."""
        first = (self.weekday - self.day_of_year + 1) % 7  # weekday of January 1
        length = java_days_of(self.year + 1, 1, 1) - java_days_of(self.year, 1, 1)
        if self.day_of_year - self.weekday + 6 > length:  # the week's Saturday is in the next year
            return self.year + 1, 1
        return self.year, (self.day_of_year - 1 + first) // 7 + 1

    @property
    def week_of_month(self) -> int:
        first = (self.weekday - self.day + 1) % 7
        return (self.day - 1 + first) // 7 + 1


def _padded(number: int, count: int) -> str:
    return f"{'-' if number < 0 else ''}{abs(number):0{count}d}"


def _year_text(year: int, count: int) -> str:
    displayed_year = year if year > 0 else 1 - year  # the year within its era
    return f"{displayed_year % 100:02d}" if count == 2 else _padded(displayed_year, count)


def _name_text(name: str, count: int) -> str:
    return name if count >= 4 else name[:3]


_FORMATTERS: Mapping[str, Callable[[_DateTime, int], str]] = {
    "G": lambda m, n: "AD" if m.year > 0 else "BC",
    "y": lambda m, n: _year_text(m.year, n),
    "Y": lambda m, n: f"{m.week[0] % 100:02d}" if n == 2 else _padded(m.week[0], n),
    "M": lambda m, n: _padded(m.month, n) if n < 3 else _name_text(_MONTHS[m.month - 1], n),
    "L": lambda m, n: _padded(m.month, n) if n < 3 else _name_text(_MONTHS[m.month - 1], n),
    "w": lambda m, n: _padded(m.week[1], n),
    "W": lambda m, n: _padded(m.week_of_month, n),
    "D": lambda m, n: _padded(m.day_of_year, n),
    "d": lambda m, n: _padded(m.day, n),
    "F": lambda m, n: _padded((m.day - 1) // 7 + 1, n),
    "E": lambda m, n: _name_text(_DAYS[m.weekday], n),
    "u": lambda m, n: _padded(m.weekday or 7, n),
    "a": lambda m, n: "PM" if m.hour >= 12 else "AM",
    "H": lambda m, n: _padded(m.hour, n),
    "k": lambda m, n: _padded(m.hour or 24, n),
    "K": lambda m, n: _padded(m.hour % 12, n),
    "h": lambda m, n: _padded(m.hour % 12 or 12, n),
    "m": lambda m, n: _padded(m.minute, n),
    "s": lambda m, n: _padded(m.second, n),
    "S": lambda m, n: _padded(m.milli, n),
    "z": lambda m, n: "Coordinated Universal Time" if n >= 4 else "UTC",
    "Z": lambda m, n: "+0000",
    "X": lambda m, n: "Z",
}


def _parts(pattern: str) -> list[_Part]:
    parts: list[_Part] = []
    at = 0
    while at < len(pattern):
        match = _PART.match(pattern, at)
        if match is None:
            raise JavaDateFormatError("Unterminated quote")
        at = match.end()
        letter = match[2] or ""
        if letter:
            if letter not in _LETTERS:
                raise JavaDateFormatError(f"Illegal pattern character '{letter}'")
            if letter == "X" and len(match[0]) > 3:
                raise JavaDateFormatError("invalid ISO 8601 format: length=" + str(len(match[0])))
            parts.append(_Part(letter, len(match[0])))
        elif match[1] is not None:
            parts.append(_Part("", 0, match[1].replace("''", "'") or "'"))
        else:
            parts.append(_Part("", 0, match[0]))
    return parts


def _name(names: Sequence[str], text: str, at: int, set_index: Callable[[int], None]) -> int:
    """Parse a full or abbreviated name, ignoring case. The longest match wins."""
    rest = text[at:].lower()
    best, index = max((_matched(name.lower(), rest), i) for i, name in enumerate(names))
    if not best:
        raise JavaDateFormatError(text)
    set_index(index)
    return at + best


def _matched(name: str, text: str) -> int:
    return next((n for n in (len(name), min(3, len(name))) if text.startswith(name[:n])), 0)


def _zone(text: str, at: int, fields: _Fields) -> int:
    match = _ZONE.match(text, at)
    if match is None or match.end() == at:
        raise JavaDateFormatError(text)
    if match[1]:
        minutes = 60 * int(match[2]) + int(match[3] or 0)
        fields.offset = -minutes if match[1] == "-" else minutes
    return match.end()


def java_date_format(pattern: str) -> JavaDateFormat:
    """Compile a pattern. Two-digit years are interpreted relative to the current year.

    Raises:
        JavaDateFormatError: The pattern is invalid.
    """
    return JavaDateFormat(pattern, datetime.now(UTC).year)
