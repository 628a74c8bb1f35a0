"""Functions that convert decoded Avro data of each type to Connect values and columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Schema, Struct, Value, decimal_scale
from connect_py.converters.json.json_values import decimal_of

if TYPE_CHECKING:
    import pyarrow as pa

ToValue: TypeAlias = Callable[[Schema, Any], Value]
ToColumn: TypeAlias = "Callable[[Schema, pa.Array], pa.Array]"


def leaf(schema: Schema, data: pa.Array) -> pa.Array:
    from connect_py.columns import arrow

    return arrow.as_logical(schema, data)


def narrow_column(schema: Schema, data: pa.Array) -> pa.Array:
    """Convert integers to a schema with fewer bits. The high bits are discarded, as in Java."""
    from connect_py.columns import arrow

    return data.cast(arrow.arrow_type(schema), safe=False)


def decimal_value(schema: Schema, data: Any) -> Value:
    if not data:
        raise DataError("Zero length BigInteger")
    return decimal_of(int.from_bytes(data, "big", signed=True), decimal_scale(schema))


def decimal_column(schema: Schema, data: pa.Array) -> pa.Array:
    from connect_py.columns import arrow

    numbers = data.to_pylist()
    if b"" in numbers:
        raise NotColumnar("a decimal has no bytes")
    return arrow.decimal_array(schema, numbers)


def record_value(members: Sequence[ToValue]) -> ToValue:
    def value(schema: Schema, data: Any) -> Value:
        values = [
            None if member is None else convert(field.schema, member)
            for field, member, convert in zip(schema.fields, data, members, strict=True)
        ]
        return Struct(schema, values)

    return value


def record_column(members: Sequence[ToColumn]) -> ToColumn:
    def column(schema: Schema, data: pa.Array) -> pa.Array:
        import pyarrow as pa

        from connect_py.columns import arrow

        target = arrow.arrow_type(schema)
        if data.type == target:  # no member requires a conversion
            return data
        children = [
            convert(field.schema, data.field(field.index))
            for field, convert in zip(schema.fields, members, strict=True)
        ]
        mask = data.is_null() if data.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)

    return column


def array_value(item: ToValue) -> ToValue:
    def value(schema: Schema, data: Any) -> Value:
        inside = schema.value_schema
        assert inside is not None
        return [None if v is None else item(inside, v) for v in data]

    return value


def array_column(item: ToColumn) -> ToColumn:
    def column(schema: Schema, data: pa.Array) -> pa.Array:
        import pyarrow as pa

        from connect_py.columns import arrow

        assert schema.value_schema is not None
        target = arrow.arrow_type(schema)
        if data.type == target:
            return data
        items = item(schema.value_schema, data.values)
        mask = data.is_null() if data.null_count else None
        return pa.ListArray.from_arrays(data.offsets, items, type=target, mask=mask)

    return column


def map_column(entry: Schema, entries_column: ToColumn) -> ToColumn:
    """Return a function that converts lists of records with the schema `entry` to maps."""

    def column(schema: Schema, data: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        from connect_py.columns import arrow

        entries = entries_column(entry, data.values)
        keys, items = entries.field(0), entries.field(1)
        rows = pc.list_parent_indices(data).to_pylist()
        if len(set(zip(rows, keys.to_pylist(), strict=True))) < len(keys):
            raise NotColumnar("a map contains a duplicate key")
        mask = data.is_null() if data.null_count else None
        return pa.MapArray.from_arrays(
            data.offsets, keys, items, type=arrow.arrow_type(schema), mask=mask
        )

    return column


def union_value(branches: Sequence[ToValue]) -> ToValue:
    def value(schema: Schema, data: Any) -> Value:
        index, member = data
        values: list[Value] = [None] * len(branches)
        values[index] = branches[index](schema.fields[index].schema, member)
        return Struct(schema, values)

    return value


def only_branch(inside: ToValue) -> ToValue:
    return lambda schema, data: inside(schema, data[1])


def no_column(schema: Schema, data: pa.Array) -> pa.Array:
    raise NotColumnar("a union of several types")


def same(schema: Schema, value: Any) -> Any:
    return value
