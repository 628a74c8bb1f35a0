"""Uses the native decoder to convert JSON payloads with a Connect schema to columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from connect_py.api.errors import NotColumnar
from connect_py.api.schema import DECIMAL, TIME, Schema, Type
from connect_py.converters.json.json_values import INTEGER_BITS, MILLIS_PER_DAY
from connect_py.converters.native.decoder import (
    IGNORES_UNKNOWN,
    PAIRS,
    Decoded,
    Kind,
    NativeDecoder,
    Node,
)

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN_KINDS: Final[Mapping[Type, Kind]] = {
    Type.FLOAT32: Kind.FLOAT32,
    Type.FLOAT64: Kind.FLOAT64,
    Type.BOOLEAN: Kind.BOOLEAN,
    Type.STRING: Kind.TEXT,
    Type.BYTES: Kind.BYTES,
}


class SchemaColumns:
    """Decodes payloads that have one schema and match it exactly.

    Other payloads are *odd* and must be converted by the row form (`JsonValueReader`), which is as
    lenient as Java. Examples are null, a missing required member, and a number where a string is
    expected.
    """

    def __init__(self, schema: Schema, *, replace_null_with_default: bool) -> None:
        """Create the decoding plan for a schema.

        Raises:
            NotColumnar: The native decoder is not available or does not support the schema.
        """
        self._schema = schema
        self._replaces_nulls = replace_null_with_default
        self._defaults: dict[Schema, pa.Scalar] = {}
        self._decoder = NativeDecoder(self._node("", schema, nullable=False))

    def read(self, payloads: Sequence[bytes | None]) -> tuple[Decoded, pa.Array, list[int]]:
        """Decode one or more payloads.

        Returns:
            The decoded column, the same column with the Arrow type of the schema, and the row
            indexes of odd payloads. These rows are null.

        Raises:
            NotColumnar: A decimal has too many digits, or a map contains a duplicate key.
        """
        decoded, odd = self._decoder.read_json(payloads)
        return decoded, self._column(self._schema, decoded), odd

    def _node(self, name: str, schema: Schema, *, nullable: bool | None = None) -> Node:
        if nullable is None:
            nullable = schema.optional or self._has_default(schema)
        if schema.type in INTEGER_BITS:
            return _integer_node(name, schema, nullable=nullable)
        if schema.type is Type.STRUCT:
            members = [self._node(field.name, field.schema) for field in schema.fields]
            return Node(Kind.OBJECT, name, nullable, IGNORES_UNKNOWN, children=members)
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            return Node(Kind.LIST, name, nullable, children=[self._node("", schema.value_schema)])
        if schema.type is Type.MAP:
            return self._map_node(name, schema, nullable=nullable)
        is_decimal = schema.name == DECIMAL and schema.type is Type.BYTES
        return Node(_PLAIN_KINDS[schema.type], name, nullable, low=int(is_decimal))

    def _map_node(self, name: str, schema: Schema, *, nullable: bool) -> Node:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        assert values is not None
        is_named = keys.type is Type.STRING
        if not keys.type.is_primitive:
            raise NotColumnar("the keys of a map are containers")
        if not is_named and (keys.optional or keys.default is not None or keys.name == DECIMAL):
            raise NotColumnar("the keys of a map may be null or have several representations")
        children = [self._node("", keys, nullable=False), self._node("", values)]
        return Node(Kind.MAP, name, nullable, 0 if is_named else PAIRS, children=children)

    def _has_default(self, schema: Schema) -> bool:
        return schema.default is not None and self._replaces_nulls

    def _column(self, schema: Schema, decoded: Decoded) -> pa.Array:
        """Return the column for a value. Nulls are not replaced with the default."""
        from connect_py.columns import arrow

        if schema.type is Type.STRUCT:
            members = [
                self._member_column(field.schema, child)
                for field, child in zip(schema.fields, decoded.children, strict=True)
            ]
            return decoded.structs([field.name for field in schema.fields], members)
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            return decoded.list_of(self._member_column(schema.value_schema, decoded.children[0]))
        if schema.type is Type.MAP:
            assert schema.key_schema is not None
            assert schema.value_schema is not None
            keys = self._column(schema.key_schema, decoded.children[0])
            items = self._member_column(schema.value_schema, decoded.children[1])
            return decoded.map_of(keys, items)
        if schema.name == DECIMAL and schema.type is Type.BYTES:
            return arrow.decimal_array(schema, decoded.array().to_pylist())
        if schema.type in INTEGER_BITS:
            arrow_type = arrow.arrow_type(schema)
            integers = decoded.array().cast(arrow.storage_type(arrow_type))
            return integers if integers.type == arrow_type else integers.view(arrow_type)
        return decoded.array()

    def _member_column(self, schema: Schema, decoded: Decoded) -> pa.Array:
        """Return the column for a member, item, or entry.

        Nulls are replaced with the default if there is one.
        """
        from connect_py.columns import arrow

        column = self._column(schema, decoded)
        if not column.null_count or not self._has_default(schema):
            return column
        default = self._defaults.get(schema)
        if default is None:
            default = self._defaults[schema] = arrow.to_array(schema, [schema.default])[0]
        return arrow.filled(column, default)


def _integer_node(name: str, schema: Schema, *, nullable: bool) -> Node:
    kind = Kind.INT64 if schema.type is Type.INT64 else Kind.INT32
    half = 1 << (INTEGER_BITS[schema.type] - 1)
    is_time = schema.name == TIME and schema.type is Type.INT32
    low, high = (0, MILLIS_PER_DAY) if is_time else (-half, half - 1)
    return Node(kind, name, nullable, low, high)
