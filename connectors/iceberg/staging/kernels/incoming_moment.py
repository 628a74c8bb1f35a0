"""What an incoming number or Arrow moment means, by its logical name or type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from connect_py.api.schema import DATE, TIME, TIMESTAMP, Schema, Type


@dataclass(frozen=True, slots=True)
class Moment:
    """What an incoming number or Arrow moment means."""

    kind: str  # date, time or timestamp
    per_second: int  # units per second; of a date: 0
    wall: bool = False  # timestamp without zone

    @property
    def column_type(self) -> str:
        """The Iceberg type of a column for such moments."""
        return "timestamptz" if self.kind == "timestamp" and not self.wall else self.kind

    @property
    def schema_type(self) -> Type:
        """The type of a schema that has a name of such moments."""
        return Type.INT32 if self.kind == "date" or (self.kind, self.per_second) == ("time", MILLI) else Type.INT64


MILLI, MICRO, NANO = 1_000, 1_000_000, 1_000_000_000
_MOMENTS: Mapping[str, Moment] = {
    DATE: Moment("date", 0), TIME: Moment("time", MILLI), TIMESTAMP: Moment("timestamp", MILLI),
    "io.debezium.time.Date": Moment("date", 0), "io.debezium.time.Time": Moment("time", MILLI),
    "io.debezium.time.MicroTime": Moment("time", MICRO), "io.debezium.time.NanoTime": Moment("time", NANO),
    "io.debezium.time.Timestamp": Moment("timestamp", MILLI, wall=True),
    "io.debezium.time.MicroTimestamp": Moment("timestamp", MICRO, wall=True),
    "io.debezium.time.NanoTimestamp": Moment("timestamp", NANO, wall=True),
    "timestamp-millis": Moment("timestamp", MILLI), "timestamp-micros": Moment("timestamp", MICRO),
    "timestamp-nanos": Moment("timestamp", NANO), "local-timestamp-millis": Moment("timestamp", MILLI, wall=True),
    "local-timestamp-micros": Moment("timestamp", MICRO, wall=True),
    "local-timestamp-nanos": Moment("timestamp", NANO, wall=True),
    "time-millis": Moment("time", MILLI), "time-micros": Moment("time", MICRO),
}  # fmt: skip
_UNITS = {"s": 1, "ms": MILLI, "us": MICRO, "ns": NANO}
_OTHER_UNITS = frozenset({"io.debezium.time.Year", "io.debezium.time.MicroDuration", "io.debezium.time.NanoDuration"})


def logical_name(schema: Schema) -> str | None:
    """The logical name of a schema: its name, or the Avro logical type that a converter left in the parameters."""
    return schema.name or schema.parameters.get("logicalType") or schema.parameters.get("avro.logicalType")


def named_moment(schema: Schema | None) -> Moment | None:
    """What numbers of this schema mean by its logical name, if they are moments."""
    return None if schema is None else _MOMENTS.get(logical_name(schema) or "")


def incoming_moment(schema: Schema | None, type_: pa.DataType) -> Moment | None:
    if pa.types.is_integer(type_) or pa.types.is_temporal(type_):
        known = named_moment(schema)
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
