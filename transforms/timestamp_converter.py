"""`TimestampConverter`: between texts, numbers and Connect's three types of moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import R
from connect_py.api.schema import (
    Schema,
    Value,
)
from connect_py.api.schema import Type as SchemaType
from connect_py.java.date_format import MILLIS_PER_DAY, JavaDateFormatError, java_date_format
from connect_py.java.errors import NullPointerError
from transforms.field_transformation import FieldTransformation
from transforms.requirements import require_struct
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import for_both
from transforms.timestamp_form import SCHEMAS, Form, form_of, form_of_value

if TYPE_CHECKING:
    import pyarrow as pa


_LONG = (-(1 << 63), (1 << 63) - 1)


_MILLIS: Mapping[
    str, tuple[int, int]
] = {  # precision -> (multiply by, divide by) to get milliseconds
    "seconds": (1000, 1),
    "milliseconds": (1, 1),
    "microseconds": (1, 1000),
    "nanoseconds": (1, 1_000_000),
}


class TimestampConverter(FieldTransformation[R]):
    """Converts one field, or the whole key or value. Nulls stay null; a field that is not there is
    left out."""

    config_def = (
        ConfigDef()
        .define(
            "field",
            Type.STRING,
            default="",
            importance=Importance.HIGH,
            doc="The field to convert; empty: the whole key or value.",
        )
        .define(
            "target.type",
            Type.STRING,
            validator=one_of(*(f.value for f in Form)),
            importance=Importance.HIGH,
            doc="string, unix, Date, Time or Timestamp.",
        )
        .define(
            "format",
            Type.STRING,
            default="",
            importance=Importance.MEDIUM,
            doc="The format of texts, in the letters of java.text.SimpleDateFormat.",
        )
        .define(
            "unix.precision",
            Type.STRING,
            default="milliseconds",
            validator=one_of(*_MILLIS),
            importance=Importance.LOW,
            doc="The unit of numbers, in both directions.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )

    purpose = "converting timestamp formats"

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._field: str = props["field"]
        self.field_names = frozenset({self._field})
        self.whole = not self._field
        self._target = Form(props["target.type"])
        if self._target is Form.STRING and not props["format"]:
            raise ConfigError(
                "",
                "TimestampConverter requires format option to be specified when using string "
                "timestamps",
            )
        try:
            self._format = java_date_format(props["format"]) if props["format"] else None
        except JavaDateFormatError as error:
            raise ConfigError(
                "",
                "TimestampConverter requires a SimpleDateFormat-compatible pattern for string "
                f"timestamps: {props['format']}",
            ) from error
        self._times, self._through = _MILLIS[props["unix.precision"]]
        self.replace_null_with_default: bool = props["replace.null.with.default"]
        self.result = lru_cache(maxsize=64)(self._result)

    def _result(self, schema: Schema) -> Schema:
        if self.whole:
            return SCHEMAS[self._target](schema.optional)
        if schema.type is not SchemaType.STRUCT:
            raise DataError("Cannot list fields on non-struct type")
        fields = [
            (
                f.name,
                SCHEMAS[self._target](f.schema.optional) if f.name == self._field else f.schema,
            )
            for f in schema.fields
        ]
        result = schema.replace(fields=fields, default=None)
        return (
            result
            if schema.default is None
            else result.replace(default=self.replaced_row(schema.default, result))
        )

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if schema is None:
            made = (
                self.replaced("", None, value)
                if value is None or self.whole
                else self.replaced_map(value)
            )
            return self.side.put(record, None, made)
        if self.whole:
            return self.side.put(record, self.result(schema), self.replaced("", schema, value))
        taken = None if value is None else require_struct(value, self.purpose, schema)
        result = self.result(schema)
        return self.side.put(
            record, result, None if taken is None else self.replaced_row(taken, result)
        )

    def replaced(self, name: str, schema: Schema | None, value: Value) -> Value:
        """A moment in the form that is wanted."""
        if value is None:
            if schema is not None:
                form_of(schema)
            return None
        return self._from_millis(
            self._to_millis(value, form_of_value(value) if schema is None else form_of(schema))
        )

    def _to_millis(self, value: Value, form: Form) -> int:
        match form:
            case Form.DATE:
                return int(value) * MILLIS_PER_DAY
            case Form.UNIX:
                return _clamped(_quotient(value * self._times, self._through))
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
                return _clamped(_quotient(millis * self._through, self._times))
            case Form.STRING:
                assert self._format is not None
                return self._format.format(millis)
        return millis

    def fast(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """Numbers to numbers, where nothing overflows."""
        from transforms.timestamp_columns import timestamps

        form = form_of(schema)
        if Form.STRING in (form, self._target):
            return None
        return timestamps(data, form, self._target, self._times, self._through)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.columns import blamed, finished
        from transforms.field_columns import FieldColumns

        column = self.side.column(batch)
        if column.schema is None:
            if column.null_count == len(batch):
                return [batch]
            made, failed = FieldColumns(self).schemaless(batch, column)
            return finished(batch, self.apply, self.side.put_column(batch, made), failed)
        schema, data, failed = FieldColumns(self).with_schema(batch, column)
        try:
            null_schema = (
                None if column.tombstone_schema is None else self.result(column.tombstone_schema)
            )
        except DataError as error:
            raise blamed(batch, self.apply) from error
        made = Column(schema, data, column.tombstone, tombstone_schema=null_schema)
        return finished(batch, self.apply, self.side.put_column(batch, made), failed)


def _quotient(number: int, divisor: int) -> int:
    """Division that truncates toward zero."""
    return number // divisor if number >= 0 else -(-number // divisor)


def _clamped(number: int) -> int:
    return max(_LONG[0], min(number, _LONG[1]))


TimestampConverterKey, TimestampConverterValue = for_both(TimestampConverter)
