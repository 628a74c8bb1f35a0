"""JSON payloads with a Connect schema to columns: msgspec structs made from the schema.

A `SchemaReader` takes exactly the payloads whose conversion needs no leniency: msgspec checks
types, ranges, base64 and required members. Everything else is refused by it, goes through the
reference form, and comes back in through `SchemaReader.decoded`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from connect_py.api.batch import Column, Path
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import DECIMAL, TIME, Schema, Struct, Type, Value, decimal_scale
from connect_py.converters.decoded_columns import (
    DecodedRows,
    RowReader,
    member_getters,
    repeated_text,
)
from connect_py.converters.json_values import INTEGER_BITS, MILLIS_PER_DAY, unscaled, unscaled_bytes
from connect_py.converters.native.decoder import IGNORES_OTHERS, Decoded, Kind, Node

if TYPE_CHECKING:
    import pyarrow as pa


class SchemaReader:
    """Decodes values of one schema and makes a column of the decoded ones."""

    fallible = False  # whether `check` can raise

    def __init__(self, schema: Schema, *, replace_null_with_default: bool) -> None:
        self.schema = schema
        self.default: Any = None
        if schema.default is not None and replace_null_with_default:
            self.default = self.decoded(schema.default)
        self.null_allowed = schema.optional or self.default is not None
        self.type: Any = self._type() | None if self.null_allowed else self._type()

    def _type(self) -> Any:
        """What msgspec decodes when the value is no null."""
        raise NotImplementedError

    def decoded(self, value: Value) -> Any:
        """What msgspec would have decoded for this Connect value.

        Raises: NotColumnar: A decimal has more digits after the point than the schema, or a member
            is null in spite of
                its default.
        """
        return None if value is None else self._decoded(value)

    def _decoded(self, value: Value) -> Any:
        return value

    def check(self, values: Sequence[Any]) -> None:
        """Make sure that a column can be made of decoded values, as a member or not.

        Raises:
            NotColumnar: A decimal has too many digits.
        """

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Make a column of the schema's Arrow type from decoded values; None is null. Errors as for
        `check`."""
        raise NotImplementedError

    def member_decoded(self, value: Value) -> Any:
        """The same as `decoded` for a member of a container."""
        if value is None and self.default is not None:
            # text where a number was due, for example
            raise NotColumnar("a null in spite of a default")
        return self.decoded(value)

    def member_column(self, values: Sequence[Any]) -> pa.Array:
        """The same as `column` for members of a container: nulls become the default, if there is
        one."""
        if self.default is not None:
            values = [self.default if v is None else v for v in values]
        return self.column(values)

    def row_values(self, values: Sequence[Any]) -> list[Value]:
        """Make of each decoded value what the reference form reads; None stays. Errors as for
        `check`."""
        from connect_py.columns import arrow

        return arrow.to_values(self.schema, self.column(values))

    def member_row_values(self, values: Sequence[Any]) -> list[Value]:
        """The same as `row_values` for members of a container: nulls become the default, if there
        is one."""
        if self.default is not None:
            values = [self.default if v is None else v for v in values]
        return self.row_values(values)

    def node(self, name: str = "") -> Node:
        """What the native decoder reads where the value, or the member of this name, stands.

        Raises:
            NotColumnar: It has no form for this.
        """
        raise NotColumnar("not for the native decoder")

    def native_column(self, decoded: Decoded) -> pa.Array:
        """Make of what the native decoder read what `column` makes. Errors as for `check`."""
        raise NotImplementedError

    def native_member_column(self, decoded: Decoded) -> pa.Array:
        """The same as `native_column` for members of a container: nulls become the default, if
        there is one."""
        from connect_py.columns import arrow

        column = self.native_column(decoded)
        return (
            column if self.default is None else arrow.filled(column, self.column([self.default])[0])
        )

    def struct_member_column(self, values: Sequence[Any], null: pa.BooleanArray | None) -> pa.Array:
        """The same as `member_column` for a member of structs, of which `null` marks those that are
        null."""
        if self.schema.type is Type.STRING and self.default is None:
            column = repeated_text(values, null)
            if column is not None:
                return column
        return self.member_column(values)


class _IntegerReader(SchemaReader):
    def _type(self) -> Any:
        if self.schema.name == TIME and self.schema.type is Type.INT32:
            return Annotated[int, msgspec.Meta(ge=0, le=MILLIS_PER_DAY)]
        half = 1 << (INTEGER_BITS[self.schema.type] - 1)
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]

    def column(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        from connect_py.columns import arrow

        wanted = arrow.arrow_type(self.schema)
        storage = arrow.storage_type(wanted)
        column = pa.array(values, storage)
        return column if storage == wanted else column.view(wanted)

    def node(self, name: str = "") -> Node:
        kind = Kind.INT64 if self.schema.type is Type.INT64 else Kind.INT32
        half = 1 << (INTEGER_BITS[self.schema.type] - 1)
        is_time = self.schema.name == TIME and self.schema.type is Type.INT32
        low, high = (0, MILLIS_PER_DAY) if is_time else (-half, half - 1)
        return Node(kind, name, self.null_allowed, low, high)

    def native_column(self, decoded: Decoded) -> pa.Array:
        from connect_py.columns import arrow

        wanted = arrow.arrow_type(self.schema)
        column = decoded.array().cast(arrow.storage_type(wanted))
        return column if column.type == wanted else column.view(wanted)

    def row_values(self, values: Sequence[Any]) -> list[Value]:
        return list(values)


class _PlainReader(SchemaReader):
    def _type(self) -> Any:
        return _PLAIN_TYPES[self.schema.type]

    def column(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        from connect_py.columns import arrow

        return pa.array(values, arrow.arrow_type(self.schema))

    def node(self, name: str = "") -> Node:
        return Node(_NATIVE_KINDS[self.schema.type], name, self.null_allowed)

    def native_column(self, decoded: Decoded) -> pa.Array:
        return decoded.array()

    def row_values(self, values: Sequence[Any]) -> list[Value]:
        return list(values)


class _FloatReader(_PlainReader):
    """32 bits: fewer digits than what is decoded."""

    fallible = True

    def check(self, values: Sequence[Any]) -> None:
        import pyarrow as pa

        from connect_py.columns import arrow

        if arrow.are_between_floats(pa.array(values, pa.float64())):
            raise NotColumnar("a number halfway between two of 32 bits: its text decides")

    def column(self, values: Sequence[Any]) -> pa.Array:
        self.check(values)
        return super().column(values)

    def row_values(self, values: Sequence[Any]) -> list[Value]:
        return SchemaReader.row_values(self, values)


_PLAIN_TYPES: Mapping[Type, Any] = {
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
}
_NATIVE_KINDS: Mapping[Type, Kind] = {
    Type.FLOAT32: Kind.FLOAT32,
    Type.FLOAT64: Kind.FLOAT64,
    Type.BOOLEAN: Kind.BOOLEAN,
    Type.STRING: Kind.TEXT,
    Type.BYTES: Kind.BYTES,
}


class _DecimalReader(SchemaReader):
    fallible = True

    def __init__(self, schema: Schema, *, replace_null_with_default: bool) -> None:
        from connect_py.columns import arrow

        self._scale = decimal_scale(schema)
        limit = 10 ** arrow.arrow_type(schema).precision
        # hold no number with too many digits
        self._sure_bytes = next(n for n in count() if 1 << 8 * n + 7 > limit)
        super().__init__(schema, replace_null_with_default=replace_null_with_default)

    def _type(self) -> Any:
        return Annotated[bytes, msgspec.Meta(min_length=1)]

    def _decoded(self, value: Value) -> Any:
        try:
            return unscaled_bytes(unscaled(value, self._scale))
        except DataError as error:
            raise NotColumnar(str(error)) from error

    def check(self, values: Sequence[Any]) -> None:
        if (
            max(map(len, filter(None, values)), default=0) > self._sure_bytes
            or self.default is not None
        ):
            self.member_column(values)

    def column(self, values: Sequence[Any]) -> pa.Array:
        from connect_py.columns import arrow

        return arrow.decimal_array(self.schema, values)

    def node(self, name: str = "") -> Node:
        return Node(Kind.BYTES, name, self.null_allowed, low=1)

    def native_column(self, decoded: Decoded) -> pa.Array:
        return self.column(decoded.array().to_pylist())


class _StructReader(SchemaReader):
    def __init__(self, schema: Schema, *, replace_null_with_default: bool) -> None:
        self._members = [
            schema_reader(f.schema, replace_null_with_default=replace_null_with_default)
            for f in schema.fields
        ]
        fields = [
            (f"f{i}", m.type, None) if m.null_allowed else (f"f{i}", m.type)
            for i, m in enumerate(self._members)
        ]
        names = {f"f{i}": f.name for i, f in enumerate(schema.fields)}
        try:
            self._class = msgspec.defstruct("Object", fields, rename=names, kw_only=True, gc=False)
        except ValueError as error:
            raise NotColumnar(f"a field's name: {error}") from error
        self.getters = member_getters(len(fields))
        self.stand_in = self._class(**dict.fromkeys(names))  # for a null while columns are made
        super().__init__(schema, replace_null_with_default=replace_null_with_default)
        self.fallible = any(m.fallible for m in self._members)

    def _type(self) -> Any:
        return self._class

    def check(self, values: Sequence[Any]) -> None:
        if self.fallible:
            self.check_rows(
                DecodedRows(self, values if self.default is None else [*values, self.default])
            )

    def check_rows(self, rows: DecodedRows) -> None:
        """See `RowReader`."""
        for index, reader in enumerate(self._members):
            if not reader.fallible:
                continue
            if isinstance(reader, _StructReader) and reader.default is None:
                reader.check_rows(rows.member_rows(index, reader))
            else:
                reader.check(rows.member_values(index))

    def alike(self, other: RowReader) -> bool:
        """See `RowReader`."""
        return self is other

    def build(
        self, rows: Sequence[Any], null: pa.BooleanArray | None
    ) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
        """See `RowReader`."""
        if null is None or 2 * null.true_count < len(rows):
            return self._structs(rows, null), {}
        return self.column([None if row is self.stand_in else row for row in rows]), {}

    def member(self, name: str, rows: DecodedRows) -> Column | None:
        """See `RowReader`."""
        field = self.schema.field(name)
        if field is None:
            return None
        reader = self._members[field.index]
        if reader.default is None and isinstance(reader, _StructReader):
            return Column(reader.schema, rows.member_rows(field.index, reader))
        values = rows.member_values(field.index)
        if reader.default is None:
            return Column(reader.schema, reader.struct_member_column(values, rows.null))
        pairs = zip(values, rows.structs, strict=True)
        values = [
            reader.default if v is None and row is not self.stand_in else v for v, row in pairs
        ]
        return Column(reader.schema, reader.column(values))

    def row_values(self, values: Sequence[Any]) -> list[Value]:
        """See `RowReader`."""
        from connect_py.columns import arrow

        there = [value or self.stand_in for value in values]
        pairs = zip(self._members, self.getters, strict=True)
        columns = [member.member_row_values(get(there)) for member, get in pairs]
        rows: Iterable[Sequence[Value]] = (
            zip(*columns, strict=True) if columns else repeat((), len(values))
        )
        made = arrow.structs(self.schema, rows)
        return (
            made
            if all(values)
            else [row if value else None for row, value in zip(made, values, strict=True)]
        )

    def _decoded(self, value: Value) -> Any:
        assert isinstance(value, Struct)
        members = {
            f"f{i}": m.member_decoded(v)
            for i, (m, v) in enumerate(zip(self._members, value.values, strict=True))
        }
        return self._class(**members)

    def column(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        from connect_py.columns import arrow

        rows = list(filter(None, values))  # structs are true
        if len(rows) == len(values):
            return self._structs(rows, None)
        there = list(map(operator.truth, values))
        if not rows:
            return pa.nulls(len(values), arrow.arrow_type(self.schema))
        # few nulls: cheaper to carry them along than to spread the others
        if 2 * len(rows) > len(values):
            mask = pa.array(list(map(operator.not_, there)), pa.bool_())
            return self._structs([v or self.stand_in for v in values], mask)
        return self._structs(rows, None).take(arrow.spread_indices(there))

    def node(self, name: str = "") -> Node:
        if self.default is not None:
            return super().node(name)
        members = [m.node(f.name) for m, f in zip(self._members, self.schema.fields, strict=True)]
        return Node(Kind.OBJECT, name, self.null_allowed, low=IGNORES_OTHERS, children=members)

    def native_column(self, decoded: Decoded) -> pa.Array:
        members = [
            m.native_member_column(d) for m, d in zip(self._members, decoded.children, strict=True)
        ]
        return decoded.structs([f.name for f in self.schema.fields], members)

    def _structs(self, rows: Sequence[Any], null: pa.BooleanArray | None) -> pa.Array:
        import pyarrow as pa

        from connect_py.columns import arrow

        if not self._members:
            return (
                pa.array([{}] * len(rows), pa.struct([])) if null is None else _empty_structs(null)
            )
        pairs = zip(self._members, self.getters, strict=True)
        children = [member.struct_member_column(get(rows), null) for member, get in pairs]
        return pa.StructArray.from_arrays(
            children, fields=list(arrow.arrow_type(self.schema)), mask=null
        )


def _empty_structs(null: pa.BooleanArray) -> pa.Array:
    import pyarrow as pa

    return pa.array([None if n else {} for n in null.to_pylist()], pa.struct([]))


class _ListReader(SchemaReader):
    def __init__(self, schema: Schema, *, replace_null_with_default: bool) -> None:
        assert schema.value_schema is not None
        self._items = schema_reader(
            schema.value_schema, replace_null_with_default=replace_null_with_default
        )
        super().__init__(schema, replace_null_with_default=replace_null_with_default)
        self.fallible = self._items.fallible

    def _type(self) -> Any:
        return list[self._items.type]  # type: ignore[name-defined] # a type made at run time

    def _decoded(self, value: Value) -> Any:
        return [self._items.member_decoded(v) for v in value]

    def check(self, values: Sequence[Any]) -> None:
        if self.fallible:
            self.member_column(values)

    def column(self, values: Sequence[Any]) -> pa.Array:
        from connect_py.columns import arrow

        items = self._items.member_column(list(chain.from_iterable(filter(None, values))))
        return arrow.list_array([None if v is None else len(v) for v in values], items)

    def node(self, name: str = "") -> Node:
        if self.default is not None:
            return super().node(name)
        return Node(Kind.LIST, name, self.null_allowed, children=[self._items.node()])

    def native_column(self, decoded: Decoded) -> pa.Array:
        return decoded.list_of(self._items.native_member_column(decoded.children[0]))


class _MapReader(SchemaReader):
    """Maps with string keys are objects, others lists of pairs."""

    def __init__(self, schema: Schema, *, replace_null_with_default: bool) -> None:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        keys = schema.key_schema
        self._named = keys.type is Type.STRING
        if not self._named and (keys.optional or keys.default is not None or keys.name == DECIMAL):
            raise NotColumnar("keys of a map may be null, or equal with different bytes")
        if not keys.type.is_primitive:
            raise NotColumnar("keys of a map are containers")
        self._keys = schema_reader(
            keys.replace(optional=False, default=None),
            replace_null_with_default=replace_null_with_default,
        )
        self._items = schema_reader(
            schema.value_schema, replace_null_with_default=replace_null_with_default
        )
        super().__init__(schema, replace_null_with_default=replace_null_with_default)
        self.fallible = self._items.fallible

    def _type(self) -> Any:
        if self._named:
            return dict[str, self._items.type]  # type: ignore[name-defined] # a type made at run time
        return list[tuple[self._keys.type, self._items.type]]  # type: ignore[name-defined] # a type made at run time

    def _decoded(self, value: Value) -> Any:
        pairs = [(k, self._items.member_decoded(v)) for k, v in value.items()]
        return dict(pairs) if self._named else pairs

    def check(self, values: Sequence[Any]) -> None:
        if self.fallible:
            self.member_column(values)

    def column(self, values: Sequence[Any]) -> pa.Array:
        from connect_py.columns import arrow

        if not self._named:
            values = [None if v is None else dict(v) for v in values]
        keys = self._keys.column(list(chain.from_iterable(filter(None, values))))
        items = self._items.member_column([item for v in values if v for item in v.values()])
        return arrow.map_array([None if v is None else len(v) for v in values], keys, items)


def column_of(
    reader: SchemaReader, rows: Sequence[Any], tombstone: pa.BooleanArray | None
) -> Column:
    """Make the column of decoded values, of which `tombstone` marks those of null messages; structs
    stay unbuilt.

    Raises:
        NotColumnar: A decimal has too many digits.
    """
    if not isinstance(reader, _StructReader):
        return Column(reader.schema, reader.column(rows), tombstone)
    return Column(reader.schema, DecodedRows(reader, rows).check(), tombstone)


_READERS: Mapping[Type, Callable[..., SchemaReader]] = {
    **dict.fromkeys(INTEGER_BITS, _IntegerReader),
    **dict.fromkeys(_PLAIN_TYPES, _PlainReader),
    Type.FLOAT32: _FloatReader,
    Type.STRUCT: _StructReader,
    Type.ARRAY: _ListReader,
    Type.MAP: _MapReader,
}


@lru_cache(maxsize=1024)
def schema_reader(schema: Schema, *, replace_null_with_default: bool) -> SchemaReader:
    """Make the reader of a schema; equal schemas share one, as what is decoded can be mixed then.

    Raises:
        NotColumnar: The schema has no exact column form.
        DataError: A Decimal schema without a scale.
    """
    make: Callable[..., SchemaReader] = _READERS[schema.type]
    if schema.name == DECIMAL and schema.type is Type.BYTES:
        make = _DecimalReader
    return make(schema, replace_null_with_default=replace_null_with_default)
