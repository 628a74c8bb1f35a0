"""What an incoming number or Arrow date, time or timestamp means, by its logical name or type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from connect_py.api.schema import DATE, TIME, TIMESTAMP, Schema, Type


@dataclass(frozen=True, slots=True)
class TemporalType:
    """What an incoming number or Arrow date, time or timestamp means."""

    kind: str  # date, time or timestamp
    per_second: int  # units per second; of a date: 0
    wall: bool = False  # timestamp without zone

    @property
    def column_type(self) -> str:
        """The Iceberg type of a column for such values."""
        return "timestamptz" if self.kind == "timestamp" and not self.wall else self.kind

    @property
    def schema_type(self) -> Type:
        """The type of a schema that has a name of such values."""
        return (
            Type.INT32
            if self.kind == "date" or (self.kind, self.per_second) == ("time", MILLI)
            else Type.INT64
        )


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
    """The logical name of a schema: its name, or the Avro logical type that a converter left in the
    parameters."""
    return (
        schema.name
        or schema.parameters.get("logicalType")
        or schema.parameters.get("avro.logicalType")
    )


def named_temporal_type(schema: Schema | None) -> TemporalType | None:
    """What numbers of this schema mean by its logical name, if they are dates, times or
    timestamps."""
    return None if schema is None else _TEMPORAL_TYPES.get(logical_name(schema) or "")


def temporal_type_of(schema: Schema | None, type_: pa.DataType) -> TemporalType | None:
    if pa.types.is_integer(type_) or pa.types.is_temporal(type_):
        known = named_temporal_type(schema)
        if known is not None:
            return known
    if pa.types.is_date(type_):
        return TemporalType("date", 0)
    if pa.types.is_time(type_):
        return TemporalType("time", _UNITS[type_.unit])
    if pa.types.is_timestamp(type_):
        return TemporalType("timestamp", _UNITS[type_.unit], wall=type_.tz is None)
    return None


def has_other_unit(schema: Schema | None) -> bool:
    """A number that is neither a plain one nor a date, time or timestamp: a duration, a year."""
    return schema is not None and logical_name(schema) in _OTHER_UNITS
