"""`TimestampConverter`: converts timestamps between strings, numbers, and logical types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import R
from connect_py.api.schema import Schema, Struct, Value
from connect_py.java.date_format import (
    MILLIS_PER_DAY,
    JavaDateFormat,
    JavaDateFormatError,
    java_date_format,
)
from connect_py.java.errors import NullPointerError
from transforms.field_changes import Conversion, FieldChanges, Nulls, Plan
from transforms.field_transformation import FieldTransformation
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import for_both
from transforms.timestamp_form import SCHEMAS, Form, form_of, form_of_value

if TYPE_CHECKING:
    import pyarrow as pa


_LONG = (-(1 << 63), (1 << 63) - 1)
# precision -> (multiplier, divisor) that convert numbers to milliseconds
_MILLIS: Mapping[str, tuple[int, int]] = {
    "seconds": (1000, 1),
    "milliseconds": (1, 1),
    "microseconds": (1, 1000),
    "nanoseconds": (1, 1_000_000),
}


class TimestampConverter(FieldTransformation[R]):
    """Converts a field, or the whole key or value. Nulls remain null.

    A struct without the field is unchanged.
    """

    config_def = (
        ConfigDef()
        .define(
            "field",
            Type.STRING,
            default="",
            importance=Importance.HIGH,
            doc="Field to convert. Empty to convert the whole key or value.",
        )
        .define(
            "target.type",
            Type.STRING,
            validator=one_of(*(f.value for f in Form)),
            importance=Importance.HIGH,
            doc="Type of the result: string, unix, Date, Time, or Timestamp.",
        )
        .define(
            "format",
            Type.STRING,
            default="",
            importance=Importance.MEDIUM,
            doc="Format of strings, as a pattern for java.text.SimpleDateFormat.",
        )
        .define(
            "unix.precision",
            Type.STRING,
            default="milliseconds",
            validator=one_of(*_MILLIS),
            importance=Importance.LOW,
            doc="Unit of numeric timestamps in the input and the result.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )

    purpose = "converting timestamp formats"
    nulls = Nulls.CONVERT_SCHEMA

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        target = Form(props["target.type"])
        if target is Form.STRING and not props["format"]:
            raise ConfigError(
                "",
                "TimestampConverter requires format option to be specified when using string "
                "timestamps",
            )
        try:
            date_format = java_date_format(props["format"]) if props["format"] else None
        except JavaDateFormatError as error:
            raise ConfigError(
                "",
                "TimestampConverter requires a SimpleDateFormat-compatible pattern for string "
                f"timestamps: {props['format']}",
            ) from error
        conversion = TimestampConversion(target, date_format, *_MILLIS[props["unix.precision"]])
        field: str = props["field"]
        self.declare(
            FieldChanges(conversions={field: conversion})
            if field
            else FieldChanges(whole=conversion),
            replace_null_with_default=props["replace.null.with.default"],
        )

    def result_schema(self, schema: Schema, fields: Sequence[tuple[str, Schema]]) -> Schema:
        return schema.replace(fields=fields, default=None)

    def make_plan(self, schema: Schema) -> Plan:
        """Return the plan for a struct schema. The schema's default is also converted."""
        plan = super().make_plan(schema)
        if schema.default is None:
            return plan
        default = Struct(plan.schema, self.new_values(plan, schema.default))
        return Plan(schema, plan.schema.replace(default=default), plan.sources, plan.conversions)


class TimestampConversion(Conversion):
    """Converts a date, time, or timestamp to another form."""

    def __init__(
        self, target: Form, date_format: JavaDateFormat | None, multiplier: int, divisor: int
    ) -> None:
        """Create a conversion. `multiplier` and `divisor` convert numbers to milliseconds."""
        self._target = target
        self._format = date_format
        self._multiplier = multiplier
        self._divisor = divisor

    def schema(self, schema: Schema) -> Schema:
        return SCHEMAS[self._target](schema.optional)

    def value(self, schema: Schema | None, value: Value) -> Value:
        if value is None:
            if schema is not None:
                form_of(schema)  # fails if the field is not a timestamp
            return None
        return self._from_millis(
            self._to_millis(value, form_of_value(value) if schema is None else form_of(schema))
        )

    def _to_millis(self, value: Value, form: Form) -> int:
        match form:
            case Form.DATE:
                return int(value) * MILLIS_PER_DAY
            case Form.UNIX:
                return _clamped(_quotient(value * self._multiplier, self._divisor))
            case Form.STRING:
                if self._format is None:
                    raise NullPointerError("format is not configured")
                try:
                    return self._format.parse(value)
                except JavaDateFormatError as error:
                    raise DataError(
                        f"Could not parse timestamp: value ({value}) does not match pattern "
                        f"({self._format.pattern})"
                    ) from error
        return int(value)

    def _from_millis(self, millis: int) -> Value:
        match self._target:
            case Form.DATE:
                return millis // MILLIS_PER_DAY
            case Form.TIME:
                return millis % MILLIS_PER_DAY
            case Form.UNIX:
                return _clamped(_quotient(millis * self._divisor, self._multiplier))
            case Form.STRING:
                assert self._format is not None
                return self._format.format(millis)
        return millis

    def array(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """Convert a column; return None for strings, and for numbers that may overflow."""
        from transforms.timestamp_columns import timestamps

        form = form_of(schema)
        if Form.STRING in (form, self._target):
            return None
        return timestamps(data, form, self._target, self._multiplier, self._divisor)


def _quotient(number: int, divisor: int) -> int:
    """Divide, truncating toward zero."""
    return number // divisor if number >= 0 else -(-number // divisor)


def _clamped(number: int) -> int:
    return max(_LONG[0], min(number, _LONG[1]))


TimestampConverterKey, TimestampConverterValue = for_both(TimestampConverter)
