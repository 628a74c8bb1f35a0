"""Forms of dates, times, and timestamps: strings, numbers, and Connect's logical types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from connect_py.api.errors import ConnectError, DataError
from connect_py.api.schema import (
    DATE,
    TIME,
    TIMESTAMP,
    Schema,
    Type,
    Value,
    date,
    java_class_name,
    time,
    timestamp,
)


class Form(Enum):
    """Form of a date, time, or timestamp. The enum values are the values of `target.type`."""

    STRING = "string"
    UNIX = "unix"
    DATE = "Date"
    TIME = "Time"
    TIMESTAMP = "Timestamp"


SCHEMAS: Mapping[Form, Callable[[bool], Schema]] = {
    Form.STRING: lambda optional: Schema(Type.STRING, optional=optional),
    Form.UNIX: lambda optional: Schema(Type.INT64, optional=optional),
    Form.DATE: lambda optional: date(optional=optional),
    Form.TIME: lambda optional: time(optional=optional),
    Form.TIMESTAMP: lambda optional: timestamp(optional=optional),
}
_LOGICAL = {DATE: Form.DATE, TIME: Form.TIME, TIMESTAMP: Form.TIMESTAMP}


def form_of(schema: Schema) -> Form:
    """Return the form of values with this schema; raise ConnectError for unsupported types."""
    if schema.name in _LOGICAL:
        return _LOGICAL[schema.name]
    if schema.type is Type.INT64:
        return Form.UNIX
    if schema.type is Type.STRING:
        return Form.STRING
    raise ConnectError(f"Schema {schema} does not correspond to a known timestamp type format")


def form_of_value(value: Value) -> Form:
    """Return the form of a schemaless value; raise DataError for unsupported types."""
    if isinstance(value, str):
        return Form.STRING
    if isinstance(value, int) and not isinstance(value, bool):
        return Form.UNIX
    raise DataError(
        f"TimestampConverter does not support class {java_class_name(value)} objects as timestamps"
    )
