"""What an incoming number or Arrow moment means, by its logical name or type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from connect_py.api.schema import DATE, TIME, TIMESTAMP, Schema
from connectors.iceberg.staging.types import logical_name


@dataclass(frozen=True, slots=True)
class Moment:
    """What an incoming number or Arrow moment means."""

    kind: str  # date, time or timestamp
    per_second: int  # units per second; of a date: 0
    wall: bool = False  # timestamp without zone


MILLI, MICRO, NANO = 1_000, 1_000_000, 1_000_000_000
_MOMENTS: Mapping[str, Moment] = {
    DATE: Moment("date", 0),
    TIME: Moment("time", MILLI),
    TIMESTAMP: Moment("timestamp", MILLI),
    "io.debezium.time.Date": Moment("date", 0),
    "io.debezium.time.Time": Moment("time", MILLI),
    "io.debezium.time.MicroTime": Moment("time", MICRO),
    "io.debezium.time.NanoTime": Moment("time", NANO),
    "io.debezium.time.Timestamp": Moment("timestamp", MILLI, wall=True),
    "io.debezium.time.MicroTimestamp": Moment("timestamp", MICRO, wall=True),
    "io.debezium.time.NanoTimestamp": Moment("timestamp", NANO, wall=True),
    "timestamp-millis": Moment("timestamp", MILLI),
    "timestamp-micros": Moment("timestamp", MICRO),
    "timestamp-nanos": Moment("timestamp", NANO),
    "local-timestamp-millis": Moment("timestamp", MILLI, wall=True),
    "local-timestamp-micros": Moment("timestamp", MICRO, wall=True),
    "local-timestamp-nanos": Moment("timestamp", NANO, wall=True),
    "time-millis": Moment("time", MILLI),
    "time-micros": Moment("time", MICRO),
}
_UNITS = {"s": 1, "ms": MILLI, "us": MICRO, "ns": NANO}
_OTHER_UNITS = frozenset({
    "io.debezium.time.Year", "io.debezium.time.MicroDuration", "io.debezium.time.NanoDuration",
})  # fmt: skip


def moment_of_name(name: str) -> Moment | None:
    """What numbers of a logical type mean, if they are moments."""
    return _MOMENTS.get(name)


def incoming_moment(schema: Schema | None, type_: pa.DataType) -> Moment | None:
    if schema is not None and (pa.types.is_integer(type_) or pa.types.is_temporal(type_)):
        known = moment_of_name(logical_name(schema) or "")
        if known is not None:
            return known
    if pa.types.is_date(type_):
        return Moment("date", 0)
    if pa.types.is_time(type_):
        return Moment("time", _UNITS[type_.unit])
    if pa.types.is_timestamp(type_):
        return Moment("timestamp", _UNITS[type_.unit], wall=type_.tz is None)
    return None


def has_other_unit(schema: Schema | None) -> bool:
    """A number that is neither a plain one nor a moment: a duration, a year."""
    return schema is not None and logical_name(schema) in _OTHER_UNITS
