"""`Cast`: changes the primitive type of fields, or of the whole key or value."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed
from connect_py.api.config import Type as ConfigType
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import R
from connect_py.api.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    Type,
    Value,
    java_class_name,
)
from connect_py.java.date_format import MILLIS_PER_DAY, java_date_format
from connect_py.java.numbers import parse_float, parse_integer, to_double, to_integer
from connect_py.java.strings import java_text
from transforms.field_transformation import FieldTransformation
from transforms.requirements import require_struct
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import for_both

if TYPE_CHECKING:
    import pyarrow as pa


BITS: Mapping[Type, int] = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_FLOATS: Mapping[Type, int] = {Type.FLOAT32: 32, Type.FLOAT64: 64}
_TARGETS: Mapping[str, Type] = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
}
_OUTPUTS = ", ".join(kind.name for kind in _TARGETS.values())
_MOMENTS = frozenset({DATE, TIME, TIMESTAMP})
_TIME_FORMAT = java_date_format("HH:mm:ss.SSS'Z'")
_DATE_FORMAT = java_date_format("yyyy-MM-dd")
_MOMENT_FORMAT = java_date_format("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def _spec(name: str, value: Parsed) -> None:
    if not value:
        raise ConfigError("", "Must specify at least one field to cast.")
    _parsed_spec(value)


def _parsed_spec(items: Sequence[str]) -> tuple[dict[str, Type], Type | None]:
    """Types by field, and the type of the whole value; ConfigError in Java's words."""
    fields: dict[str, Type] = {}
    whole: Type | None = None
    for item in items:
        parts = item.split(":")
        if len(parts) > 2:
            raise ConfigValueError("renames", list(items), f"Invalid rename mapping: {item}")
        kind = _target(parts[-1].strip())
        if len(parts) == 1:
            whole = kind
        else:
            fields[parts[0].strip()] = kind
    if whole is not None and len(items) > 1:
        raise ConfigError(
            "",
            "Cast transformations that specify a type to cast the entire value to may only "
            "specify a single cast in their spec",
        )
    return fields, whole


def _target(text: str) -> Type:
    kind = _TARGETS.get(text.lower())
    if kind is None:
        if text.lower() in {t.name.lower() for t in Type}:
            raise ConfigError(
                "",
                f"Cast transformation does not support casting to {text.upper()}; supported types "
                f"are [{_OUTPUTS}]",
            )
        raise ConfigError("", f"Invalid type found in casting spec: {text}")
    return kind


class Cast(FieldTransformation[R]):
    """Casts as Java narrows, widens and prints. Nulls stay null."""

    config_def = (
        ConfigDef()
        .define(
            "spec",
            ConfigType.LIST,
            validator=_spec,
            importance=Importance.HIGH,
            doc="field:type for each field, or one type for the whole key or value.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )

    purpose = "cast types"

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._types, self._whole = _parsed_spec(props["spec"])
        self.field_names = self._types.keys()
        self.whole = self._whole is not None
        self.replace_null_with_default: bool = props["replace.null.with.default"]
        self.result = lru_cache(maxsize=64)(self._result)

    def _result(self, schema: Schema) -> Schema:
        if self._whole is not None:
            return _cast_schema(schema, self._whole, keep_names=True)
        fields = [
            (
                f.name,
                _cast_schema(f.schema, self._types[f.name]) if f.name in self._types else f.schema,
            )
            for f in schema.fields
        ]
        return schema.replace(fields=fields, default=None)

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if value is None:
            return record
        if schema is None:
            made = self.replaced("", None, value) if self.whole else self.replaced_map(value)
            return self.side.put(record, None, made)
        if self.whole:
            return self.side.put(record, self.result(schema), self.replaced("", schema, value))
        if schema.type is not Type.STRUCT:
            raise DataError("Cannot list fields on non-struct type")
        taken = require_struct(value, self.purpose)
        result = self.result(taken.schema)
        return self.side.put(record, result, self.replaced_row(taken, result))

    def replaced(self, name: str, schema: Schema | None, value: Value) -> Value:
        """A value of a field afterwards."""
        return cast(schema, value, self._types[name] if self._whole is None else self._whole)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.columns import finished, kept_nulls
        from transforms.field_columns import FieldColumns

        column = self.side.column(batch)
        if column.null_count == len(batch):
            return [batch]
        if column.schema is None:
            made, failed = FieldColumns(self).schemaless(batch, column)
        else:
            null, null_schema = kept_nulls(column)
            schema, data, failed = FieldColumns(self).with_schema(batch, column)
            made = Column(schema, data, null, tombstone_schema=null_schema)
        return finished(batch, self.apply, self.side.put_column(batch, made), failed)

    def numbers(self, name: str, texts: pa.StringArray) -> pa.Int64Array | None:
        from transforms.columns import whole_numbers

        bits = BITS.get(self._types[name] if self._whole is None else self._whole)
        return None if bits is None else whole_numbers(texts, bits)

    def fast(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """Widening, and texts of whole numbers: what Arrow does as Java does."""
        import pyarrow as pa

        from connect_py.columns.arrow import arrow_type

        if schema.name in _MOMENTS or schema.name == DECIMAL:
            return None
        source, target = schema.type, result.type
        if source is target:
            return data
        if source in BITS and (target is Type.STRING or BITS.get(target, 0) > BITS[source]):
            return data.cast(arrow_type(result))
        if source is Type.BOOLEAN and (target in BITS or target is Type.STRING):
            return data.cast(arrow_type(result))
        if source in BITS and target in BITS:
            return data.cast(arrow_type(result), safe=False)  # drops the high bits
        return (
            data.cast(pa.float64()) if source is Type.FLOAT32 and target is Type.FLOAT64 else None
        )


def cast(schema: Schema | None, value: Value, target: Type) -> Value:
    """One value of another type.

    Raises:
        DataError: There is no such cast, or a text is not of that type.
    """
    if value is None:
        return None
    kind = _type_of(value) if schema is None else schema.type
    if kind not in _INPUTS:
        raise DataError(
            f"Cast transformation does not support casting from {kind.name}; supported types are "
            f"[{_OUTPUTS}, BYTES]"
        )
    if target is Type.STRING:
        return _text(schema, value)
    try:
        if target is Type.BOOLEAN:
            return _boolean(value)
        if isinstance(value, bytes):
            raise DataError(
                f"Unexpected type in Cast transformation: class {java_class_name(value)}"
            )
        if target in BITS:
            bits = BITS[target]
            return parse_integer(value, bits) if isinstance(value, str) else to_integer(value, bits)
        bits = _FLOATS[target]
        return to_double(parse_float(value) if isinstance(value, str) else value, bits)
    except ValueError as error:
        raise DataError(f"Value ({value}) was out of range for requested data type") from error


def _type_of(value: Value) -> Type:
    if isinstance(value, Decimal):
        return Type.BYTES
    for python, kind in _SCHEMALESS:
        if isinstance(value, python):
            return kind
    raise DataError(
        f"Cast transformation was passed a value of type class {java_class_name(value)} which is "
        "not supported by Connect's data API"
    )


_SCHEMALESS: Sequence[tuple[type[Any], Type]] = (
    (bool, Type.BOOLEAN),
    (int, Type.INT64),
    (float, Type.FLOAT64),
    (str, Type.STRING),
    (bytes, Type.BYTES),
    (list, Type.ARRAY),
    (dict, Type.MAP),
    (Struct, Type.STRUCT),
)
_INPUTS = frozenset({*_TARGETS.values(), Type.BYTES})


def _boolean(value: Value) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, bytes):
        raise DataError(f"Unexpected type in Cast transformation: class {java_class_name(value)}")
    return to_integer(value, 64) != 0


def _text(schema: Schema | None, value: Value) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if schema is not None and schema.name in _MOMENTS:
        millis = value * MILLIS_PER_DAY if schema.name == DATE else value
        if millis < MILLIS_PER_DAY:
            return _TIME_FORMAT.format(millis)
        return (_MOMENT_FORMAT if millis % MILLIS_PER_DAY else _DATE_FORMAT).format(millis)
    return java_text(schema, value)


def _cast_schema(schema: Schema, target: Type, *, keep_names: bool = False) -> Schema:
    """The schema of cast values; a whole value keeps name, version, doc and parameters, if the type
    still fits."""
    default = cast(schema, schema.default, target)
    made = Schema(target, optional=schema.optional, default=default)
    if not keep_names:
        return made
    if schema.type is not target and schema.name in {*_MOMENTS, DECIMAL}:
        return made.replace(doc=schema.doc)
    return made.replace(
        name=schema.name, version=schema.version, doc=schema.doc, parameters=schema.parameters
    )


CastKey, CastValue = for_both(Cast)
