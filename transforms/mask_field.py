"""`MaskField`: replaces values with zero, the empty string, or a configured value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from connect_py.api.config import ConfigDef, Importance, Type, non_empty
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    Schema,
    Value,
    decimal_scale,
    java_class_name,
)
from connect_py.api.schema import Type as SchemaType
from connect_py.java.strings import to_float32, wrap
from transforms.field_changes import Conversion, FieldChanges, Nulls
from transforms.field_transformation import FieldTransformation
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import for_both
from transforms.validators import non_empty_list

if TYPE_CHECKING:
    import pyarrow as pa


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")  # syntax of Java's BigDecimal
_MAX_DIGITS = 1000  # limit for a replacement that is truncated to the width of an integer
_BITS = {SchemaType.INT8: 8, SchemaType.INT16: 16, SchemaType.INT32: 32, SchemaType.INT64: 64}
_MOMENTS = frozenset({DATE, TIME, TIMESTAMP})


class MaskField(FieldTransformation[R]):
    """Masks fields of a struct or map. Null fields remain null, but a null key or value fails."""

    config_def = (
        ConfigDef()
        .define(
            "fields",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="Fields to mask.",
        )
        .define(
            "replacement",
            Type.STRING,
            default=None,
            validator=non_empty,
            importance=Importance.LOW,
            doc="Replacement for all strings and numbers. Default: 0 and the empty string.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )

    purpose = "mask fields"
    nulls = Nulls.FAIL

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        mask = Mask(props["replacement"])
        self.declare(
            FieldChanges(conversions=dict.fromkeys(props["fields"], mask)),
            replace_null_with_default=props["replace.null.with.default"],
        )

    def result_schema(self, schema: Schema, fields: Sequence[tuple[str, Schema]]) -> Schema:
        return schema


class Mask(Conversion):
    """Replaces values with a constant of the same type."""

    def __init__(self, replacement: str | None) -> None:
        self._replacement = replacement

    def schema(self, schema: Schema) -> Schema:
        return schema

    def value(self, schema: Schema | None, value: Value) -> Value:
        if value is None:
            return None
        if self._replacement is None:
            return _masked(schema, value)
        return self._custom(schema, value, self._replacement)

    def _custom(self, schema: Schema | None, value: Value, replacement: str) -> Value:
        if isinstance(value, str):
            return replacement
        is_moment = schema is not None and schema.name in _MOMENTS
        if isinstance(value, bool) or is_moment or not isinstance(value, int | float | Decimal):
            kind = "java.util.Date" if is_moment else java_class_name(value)
            raise DataError(f"Cannot mask value of type class {kind} with custom replacement.")
        if not _NUMBER.fullmatch(replacement):
            raise DataError(f"Unable to convert {replacement} (class java.lang.String) to a number")
        if isinstance(value, Decimal):
            return Decimal(replacement)
        if isinstance(value, int):
            number = Decimal(replacement)
            if number.adjusted() > _MAX_DIGITS:
                raise DataError(
                    f"Unable to convert {replacement} (class java.lang.String) to a number"
                )
            return wrap(int(number), 64 if schema is None else _BITS[schema.type])
        is_float32 = schema is not None and schema.type is SchemaType.FLOAT32
        return to_float32(float(replacement)) if is_float32 else float(replacement)

    def array(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """Mask a column. The replacement for the first value applies to all values."""
        if data.null_count == len(data):
            return data
        if schema.type in (SchemaType.ARRAY, SchemaType.MAP, SchemaType.STRUCT):
            return None
        from connect_py.columns.arrow import to_values
        from transforms.columns import constant, hidden

        mask = self.value(schema, to_values(schema, data.drop_null().slice(0, 1))[0])
        return hidden(constant(mask, schema, len(data)), data.is_valid())


def _masked(schema: Schema | None, value: Value) -> Value:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return 0
    if isinstance(value, float):
        return 0.0
    if isinstance(value, Decimal):
        scale = decimal_scale(schema) if schema is not None and schema.name == DECIMAL else 0
        return Decimal((0, (0,), -scale))
    if isinstance(value, str):
        return ""
    if isinstance(value, list):
        return []
    if isinstance(value, dict):
        return {}
    raise DataError(f"Cannot mask value of type: class {java_class_name(value)}")


MaskFieldKey, MaskFieldValue = for_both(MaskField)
