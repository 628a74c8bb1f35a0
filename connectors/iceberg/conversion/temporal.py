"""Dates, times, and timestamps: the interpretation of incoming numbers, and parsers for strings.

Strings are parsed with integer arithmetic, because topics contain dates that `datetime` does not
support. The calendar is in `connect_py.java.civil_days`.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from connect_py.api.schema import DATE, TIME, TIMESTAMP, Schema, Type
from connect_py.java.civil_days import date_of, days_of


@dataclass(frozen=True, slots=True)
class TemporalType:
    """Interpretation of an incoming number, or of an Arrow date, time, or timestamp."""

    kind: str  # date, time, or timestamp
    per_second: int  # units per second; 0 for a date
    wall: bool = False  # timestamp without a zone

    @property
    def column_type(self) -> str:
        """Iceberg type of a column for such values."""
        return "timestamptz" if self.kind == "timestamp" and not self.wall else self.kind

    @property
    def schema_type(self) -> Type:
        """Type of the Connect schemas whose logical name specifies this interpretation."""
        is_int = self.kind == "date" or (self.kind, self.per_second) == ("time", MILLI)
        return Type.INT32 if is_int else Type.INT64


MILLI, MICRO, NANO = 1_000, 1_000_000, 1_000_000_000
_TEMPORAL_TYPES: Mapping[str, TemporalType] = {
    DATE: TemporalType("date", 0),
    TIME: TemporalType("time", MILLI),
    TIMESTAMP: TemporalType("timestamp", MILLI),
    "io.debezium.time.Date": TemporalType("date", 0),
    "io.debezium.time.Time": TemporalType("time", MILLI),
    "io.debezium.time.MicroTime": TemporalType("time", MICRO),
    "io.debezium.time.NanoTime": TemporalType("time", NANO),
    "io.debezium.time.Timestamp": TemporalType("timestamp", MILLI, wall=True),
    "io.debezium.time.MicroTimestamp": TemporalType("timestamp", MICRO, wall=True),
    "io.debezium.time.NanoTimestamp": TemporalType("timestamp", NANO, wall=True),
    "timestamp-millis": TemporalType("timestamp", MILLI),
    "timestamp-micros": TemporalType("timestamp", MICRO),
    "timestamp-nanos": TemporalType("timestamp", NANO),
    "local-timestamp-millis": TemporalType("timestamp", MILLI, wall=True),
    "local-timestamp-micros": TemporalType("timestamp", MICRO, wall=True),
    "local-timestamp-nanos": TemporalType("timestamp", NANO, wall=True),
    "time-millis": TemporalType("time", MILLI),
    "time-micros": TemporalType("time", MICRO),
}
_UNITS = {"s": 1, "ms": MILLI, "us": MICRO, "ns": NANO}
_OTHER_UNITS = frozenset(
    {"io.debezium.time.Year", "io.debezium.time.MicroDuration", "io.debezium.time.NanoDuration"}
)


def logical_name(schema: Schema) -> str | None:
    """Return the name of a schema, or the Avro logical type from its parameters."""
    parameters = schema.parameters
    return schema.name or parameters.get("logicalType") or parameters.get("avro.logicalType")


def named_temporal_type(schema: Schema | None) -> TemporalType | None:
    """Return the temporal type that the logical name of a schema specifies, or None."""
    return None if schema is None else _TEMPORAL_TYPES.get(logical_name(schema) or "")


def temporal_type_of(schema: Schema | None, type_: pa.DataType) -> TemporalType | None:
    """Return the temporal type of numbers, or of Arrow dates and times, or None for other types."""
    if pa.types.is_integer(type_) or pa.types.is_temporal(type_):
        temporal = named_temporal_type(schema)
        if temporal is not None:
            return temporal
    if pa.types.is_date(type_):
        return TemporalType("date", 0)
    if pa.types.is_time(type_):
        return TemporalType("time", _UNITS[type_.unit])
    if pa.types.is_timestamp(type_):
        return TemporalType("timestamp", _UNITS[type_.unit], wall=type_.tz is None)
    return None


def has_other_unit(schema: Schema | None) -> bool:
    """Return True for durations and years, which are neither plain numbers nor dates or times."""
    return schema is not None and logical_name(schema) in _OTHER_UNITS


# --- strings

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND
NANOS_PER_SECOND = 1_000_000_000
NANOS_PER_DAY = 86_400 * NANOS_PER_SECOND
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
# Dates outside [-MAX_DAYS, MAX_DAYS] represent infinity, because timestamps cannot contain them.
MAX_DAYS = INT64_MAX // MICROS_PER_DAY

_DATE = re.compile(r"([+-]?\d{4,9})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)
_TIME_OF_TIMESTAMP = re.compile(r"(\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?", re.ASCII)
_ZONE = re.compile(r"[Zz]|([+-])(\d\d)(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII)
_MAX_OFFSET_SECONDS = 18 * 3600  # limit of Java's `ZoneOffset`


class TimestampOutOfRange(ValueError):  # noqa: N818 - not an error with every configuration
    """Raised for a date or time that the column cannot represent."""

    def __init__(self, *, late: bool) -> None:
        """Create the error.

        Args:
            late: True if the value is after the column's latest value, False if it is before the
                earliest value.
        """
        super().__init__("is out of range")
        self.late = late


def date_text(days: int) -> str:
    """Return `yyyy-MM-dd` in the format of Java's `LocalDate`.

    Years above 9999 and below 0 have a sign.
    """
    year, month, day = date_of(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _days(match: re.Match[str]) -> int:
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= month <= 12:
        raise ValueError("invalid month")
    last = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]
    if not 1 <= day <= last + (month == 2 and calendar.isleap(year)):
        raise ValueError("invalid day")
    return days_of(year, month, day)


def _nanos_of_day(match: re.Match[str], *, until_24: bool = False) -> int:
    hour, minute, second = int(match[1]), int(match[2] or 0), int(match[3] or 0)
    nanos = int((match[4] or "").ljust(9, "0"))
    midnight = until_24 and hour == 24 and not minute and not second and not nanos
    if (hour > 23 and not midnight) or minute > 59 or second > 59:
        raise ValueError("invalid time of day")
    return ((hour * 60 + minute) * 60 + second) * NANOS_PER_SECOND + nanos


def parse_date(text: str) -> int:
    """Parse `yyyy-MM-dd`, optionally with `Z`, and return days since 1970.

    Raises:
        TimestampOutOfRange: The date is infinity or exceeds the range of timestamps.
        ValueError: The string is not a valid date.
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
    """Parse `HH:mm[:ss[.fraction]]`, optionally with `Z`, and return microseconds since midnight.

    Raises:
        TimestampOutOfRange: The time is 24:00.
        ValueError: The string is not a valid time.
    """
    match = _TIME.match(text)
    if match is None or text[match.end() :] not in ("", "Z"):
        raise ValueError("expected HH:mm:ss")
    micros = _nanos_of_day(match, until_24=True) // 1000
    if micros >= MICROS_PER_DAY:
        raise TimestampOutOfRange(late=True)
    return micros


def parse_timestamp(text: str, *, zoned: bool, nanos: bool = False) -> int:
    """Parse a timestamp and return microseconds since 1970.

    The format is `yyyy-MM-dd`, `T` or a space, `HH[:mm[:ss[.fraction]]]`, and optionally a zone.

    Args:
        text: String to parse.
        zoned: True if the offset is applied (UTC if it is missing), False if it is ignored.
        nanos: True if the result is in nanoseconds.

    Raises:
        TimestampOutOfRange: The timestamp is infinity, or the result does not fit in 64 bits.
        ValueError: The string is not a valid timestamp.
    """
    _check_infinity(text)
    date = _DATE.match(text)
    if date is None or text[date.end() : date.end() + 1] not in ("T", "t", " "):
        raise ValueError("expected yyyy-MM-ddTHH:mm:ss")
    time = _TIME_OF_TIMESTAMP.match(text, date.end() + 1)
    if time is None:
        raise ValueError("expected yyyy-MM-ddTHH:mm:ss")
    timestamp = _days(date) * NANOS_PER_DAY + _nanos_of_day(time)
    if rest := text[time.end() :]:
        seconds = _offset_seconds(rest)
        if zoned:
            timestamp -= seconds * NANOS_PER_SECOND
    if not nanos:
        timestamp //= 1000
    if not INT64_MIN < timestamp < INT64_MAX:
        raise TimestampOutOfRange(late=timestamp > 0)
    return timestamp


def _offset_seconds(text: str) -> int:
    zone = _ZONE.fullmatch(text)
    hours, minutes, seconds = (int(zone[n] or 0) if zone is not None else 99 for n in (2, 3, 4))
    offset = hours * 3600 + minutes * 60 + seconds
    if zone is None or offset > _MAX_OFFSET_SECONDS or minutes > 59 or seconds > 59:
        raise ValueError("expected an offset such as Z or +01:00 at the end")
    return -offset if zone[1] == "-" else offset


def _check_infinity(text: str) -> None:
    if text in ("infinity", "-infinity"):
        raise TimestampOutOfRange(late=text == "infinity")
