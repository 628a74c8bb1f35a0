"""Conversion of plugin-created rows to columns that represent them exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from connect_py.api.batch import Column, side_of
from connect_py.api.errors import NotColumnar
from connect_py.api.schema import DECIMAL, Schema, Struct, Type, Value, decimal_scale
from connect_py.columns.struct_view import StructView, shared_rows

_NULL_TYPES: Final = frozenset({type(None)})
_FORMS: Mapping[Type, type] = {
    Type.INT8: int,
    Type.INT16: int,
    Type.INT32: int,
    Type.INT64: int,
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
    Type.ARRAY: list,
    Type.MAP: dict,
}


def column_of(schemas: Sequence[Schema | None], values: Sequence[Value]) -> Column:
    """Return a column whose rows have exactly these schemas, values, and Python types.

    Raises:
        NotColumnar: No column can represent the rows exactly.
    """
    distinct = {id(schema): schema for schema in schemas}.values()
    present_schemas = [schema for schema in distinct if schema is not None]
    if not all(
        isinstance(schema, Schema) and schema == present_schemas[0] for schema in present_schemas
    ):
        raise NotColumnar("different schemas")
    if present_schemas:
        tombstones = [schema is None for schema in schemas]
        if any(t and v is not None for t, v in zip(tombstones, values, strict=True)):
            raise NotColumnar("rows with and without a schema")
        if not _fits(present_schemas[0], values):
            raise NotColumnar(f"{present_schemas[0]}: a value does not match its schema")
    column = side_of(schemas, values)
    if not present_schemas and _has_decimals(column.data.type):
        raise NotColumnar("decimals with different scales")
    return column


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_decimals(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))


def _fits(schema: Schema, values: Sequence[Value]) -> bool:
    """Return True if each value is null or has exactly the Python type that `schema` requires.

    Nested values are checked recursively.
    """
    kinds = set(map(type, values)) - _NULL_TYPES
    if not kinds:
        return True
    if schema.type is Type.STRUCT:
        return kinds <= {Struct, StructView} and _structs_fit(schema, values)
    if schema.name == DECIMAL and schema.type is Type.BYTES:
        return kinds == {Decimal} and _decimals_fit(decimal_scale(schema), values)
    if kinds != {_FORMS[schema.type]}:
        return False
    if schema.type is Type.FLOAT32:
        stored = pa.array(values, pa.float32()).to_pylist()
        return all(a == b or a != a for a, b in zip(values, stored, strict=True))
    if schema.type is Type.ARRAY:
        return _member_fits(
            schema.value_schema, chain.from_iterable(v for v in values if v is not None)
        )
    if schema.type is Type.MAP:
        maps: list[dict[Any, Any]] = [v for v in values if v is not None]
        keys = list(chain.from_iterable(maps))
        return (
            None not in keys
            and _member_fits(schema.key_schema, keys)
            and _member_fits(schema.value_schema, chain.from_iterable(v.values() for v in maps))
        )
    return True


def _member_fits(schema: Schema | None, values: Any) -> bool:
    return schema is not None and _fits(schema, list(values))


def _structs_fit(schema: Schema, values: Sequence[Struct | None]) -> bool:
    schemas = {id(v.schema): v.schema for v in values if v is not None}.values()
    if not all(s == schema for s in schemas):
        return False
    if shared_rows(schema, values) is not None:
        return True
    rows = [v.read_values() for v in values if v is not None]
    width = len(schema.fields)
    return set(map(len, rows)) == {width} and all(
        _fits(field.schema, column)
        for field, column in zip(schema.fields, zip(*rows, strict=True), strict=True)
    )


def _decimals_fit(scale: int, values: Sequence[Decimal | None]) -> bool:
    return all(
        v is None or (v.as_tuple().exponent == -scale and (v != 0 or not v.is_signed()))
        for v in values
    )
