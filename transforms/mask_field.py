"""`MaskField`: puts a zero, an empty text or a given replacement in place of values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from connect_py.api.batch import Batch, Column
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
from transforms.field_transformation import FieldTransformation
from transforms.requirements import require_struct
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import for_both
from transforms.validators import non_empty_list

if TYPE_CHECKING:
    import pyarrow as pa


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")  # what BigDecimal reads
_MOST_DIGITS = 1000  # of a number that replaces integers; their low bits are taken
_BITS = {SchemaType.INT8: 8, SchemaType.INT16: 16, SchemaType.INT32: 32, SchemaType.INT64: 64}
_MOMENTS = frozenset({DATE, TIME, TIMESTAMP})


class MaskField(FieldTransformation[R]):
    """Masks fields of a struct or map; nulls stay null. A record with a null on this side is an
    error."""

    config_def = (
        ConfigDef()
        .define(
            "fields",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="The fields to mask.",
        )
        .define(
            "replacement",
            Type.STRING,
            default=None,
            validator=non_empty,
            importance=Importance.LOW,
            doc="What takes the place of all texts and numbers; zeros and empty texts if not "
            "given.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )

    purpose = "mask fields"

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self.field_names = frozenset(props["fields"])
        self._replacement: str | None = props["replacement"]
        self.replace_null_with_default: bool = props["replace.null.with.default"]
        self.result = lambda schema: schema

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if schema is None:
            return self.side.put(record, None, self.replaced_map(value))
        return self.side.put(
            record, schema, self.replaced_row(require_struct(value, self.purpose, schema), schema)
        )

    def replaced(self, name: str, schema: Schema | None, value: Value) -> Value:
        """What takes the place of a value."""
        if value is None:
            return None
        return (
            _masked(schema, value)
            if self._replacement is None
            else self._custom(schema, value, self._replacement)
        )

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
            whole = Decimal(replacement)
            if whole.adjusted() > _MOST_DIGITS:
                raise DataError(
                    f"Unable to convert {replacement} (class java.lang.String) to a number"
                )
            return wrap(int(whole), 64 if schema is None else _BITS[schema.type])
        number = float(replacement)
        return (
            to_float32(number)
            if schema is not None and schema.type is SchemaType.FLOAT32
            else number
        )

    def fast(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """One constant for all values of a field, if the first one can be masked at all."""
        from transforms.columns import constant, hidden

        there = data.is_valid()
        if data.null_count == len(data):
            return data
        if schema.type in (SchemaType.ARRAY, SchemaType.MAP, SchemaType.STRUCT):
            return None
        from connect_py.columns.arrow import to_values

        masked = self.replaced("", schema, to_values(schema, data.drop_null().slice(0, 1))[0])
        return hidden(constant(masked, schema, len(data)), there)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.columns import finished, null_rows, without
        from transforms.field_columns import FieldColumns

        column = self.side.column(batch)
        if column.null_count:
            raise without(batch, self.apply, null_rows(column), self.apply_batch)
        if column.schema is None:
            masked, failed = FieldColumns(self).schemaless(batch, column)
        else:
            schema, data, failed = FieldColumns(self).with_schema(batch, column)
            masked = Column(schema, data)
        return finished(batch, self.apply, self.side.put_column(batch, masked), failed)


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
