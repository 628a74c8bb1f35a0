"""`Flatten`: flattens nested structs and maps into fields with joined names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import Schema, Struct, Value, java_class_name
from connect_py.api.schema import Type as SchemaType
from transforms.rebuild import check_required, rebuilt
from transforms.requirements import require_map, require_struct
from transforms.side import SideTransformation, for_both

if TYPE_CHECKING:
    import pyarrow as pa

PURPOSE = "flattening"


@dataclass(frozen=True, slots=True)
class Leaf:
    """Field of the flattened struct."""

    name: str
    schema: Schema
    path: tuple[int, ...]  # field index of the value at each level of nesting
    default: Value  # default of the field itself, which replaces a null


class Flatten(SideTransformation[R]):
    """Flattens structs and maps, but not arrays. A null key or value is passed through unchanged.

    `apply` and `apply_batch` are both implemented directly, because `FieldTransformation` does not
    support result fields that depend on the values of nested maps.
    """

    config_def = ConfigDef().define(
        "delimiter",
        Type.STRING,
        default=".",
        importance=Importance.MEDIUM,
        doc="Separator between the name of a field and the names of its members.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        self._delimiter: str = self.config_def.parse(configs)["delimiter"]
        self._result = lru_cache(maxsize=64)(self._flat)

    def _flat(self, schema: Schema) -> tuple[Schema, Sequence[Leaf]]:
        leaves = list(
            self._leaves(schema, "", (), optional=schema.optional, default=schema.default)
        )
        return rebuilt(schema, [(leaf.name, leaf.schema) for leaf in leaves]), leaves

    def _leaves(
        self,
        schema: Schema,
        prefix: str,
        path: tuple[int, ...],
        *,
        optional: bool,
        default: Struct | None,
    ) -> Iterator[Leaf]:
        for field in schema.fields:
            name = f"{prefix}{self._delimiter}{field.name}" if prefix else field.name
            inside = field.schema
            is_optional = optional or inside.optional
            leaf_default = inside.default
            if leaf_default is None and default is not None:
                leaf_default = default.get(field.name)
            if inside.type is SchemaType.STRUCT:
                yield from self._leaves(
                    inside, name, (*path, field.index), optional=is_optional, default=leaf_default
                )
            elif inside.type is SchemaType.MAP:
                raise DataError(
                    f"Flatten transformation does not support MAP for record with schemas (for "
                    f"field {name})."
                )
            else:
                yield Leaf(
                    name,
                    inside.replace(optional=is_optional, default=leaf_default),
                    (*path, field.index),
                    inside.default,
                )

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if value is None:
            return record
        if schema is None:
            return self.side.put(record, None, dict(self._entries(require_map(value, PURPOSE), "")))
        row = require_struct(value, PURPOSE, schema)
        result, leaves = self._result(row.schema)
        values = [_leaf_value(row, leaf) for leaf in leaves]
        check_required(result, values)
        return self.side.put(record, result, Struct(result, values))

    def _entries(self, row: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Value]]:
        for key, value in row.items():
            name = f"{prefix}{self._delimiter}{key}" if prefix else key
            if isinstance(value, dict):
                yield from self._entries(value, name)
            elif isinstance(value, Struct):
                raise DataError(
                    f"Flatten transformation does not support STRUCT for record without schemas "
                    f"(for field {name})."
                )
            elif value is None or isinstance(value, bool | int | float | str | bytes | list):
                yield name, value
            else:
                raise DataError(
                    f"Flatten transformation was passed a value of type class "
                    f"{java_class_name(value)} which is not "
                    "supported by Connect's data API"
                )

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.columns import blamed, finished, restructured

        column = self.side.column(batch)
        if column.null_count == len(batch):
            return [batch]
        if column.schema is None:
            return [self.side.put_column(batch, self._schemaless(batch, column))]
        if column.schema.type is not SchemaType.STRUCT:
            raise blamed(batch, self.apply)
        try:
            result, leaves = self._result(column.schema)
        except DataError as error:
            raise blamed(batch, self.apply) from error
        new_column, failed = restructured(
            column, result, [_leaf_column(column.data, leaf) for leaf in leaves]
        )
        return finished(batch, self.apply, self.side.put_column(batch, new_column), failed)

    def _schemaless(self, batch: Batch, column: Column) -> Column:
        from connect_py.api.errors import NotColumnar
        from transforms.columns import blamed, maps

        if not column.is_struct():
            raise blamed(batch, self.apply)
        columns: dict[str, pa.Array] = {}
        absent: dict[tuple[str, ...], pa.BooleanArray] = {}
        for name, member, absent_rows in self._members(column, "", None):
            if name in columns:
                raise NotColumnar(f"two members are named {name}")
            columns[name] = member.data
            if absent_rows is not None:
                absent[(name,)] = absent_rows
        return maps(column, columns, absent)

    def _members(
        self, column: Column, prefix: str, absent_rows: pa.BooleanArray | None
    ) -> Iterator[tuple[str, Column, pa.BooleanArray | None]]:
        """Yield the name and column of each leaf of a map, and a mask of the rows without it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from connect_py.api.errors import NotColumnar
        from transforms.columns import member_of

        for field in column.data.type:
            member = member_of(column, field.name)
            name = f"{prefix}{self._delimiter}{field.name}" if prefix else field.name
            lacking = _either(absent_rows, member.missing)
            if not pa.types.is_struct(field.type):
                if pa.types.is_decimal(field.type):
                    raise NotColumnar("a map contains a decimal")
                yield name, member, lacking
                continue
            null = member.is_null()
            if null is not None:
                present_nulls = null if lacking is None else pc.and_not(null, lacking)
                if pc.any(present_nulls).as_py():
                    raise NotColumnar(f"{name} is null in some rows and a map in others")
            yield from self._members(member, name, lacking)


def _either(
    first: pa.BooleanArray | None, second: pa.BooleanArray | None
) -> pa.BooleanArray | None:
    if first is None or second is None:
        return second if first is None else first
    import pyarrow.compute as pc

    return pc.or_(first, second)


def _leaf_value(row: Struct, leaf: Leaf) -> Value:
    """Return the value or default of a leaf, or None if a struct on the path is null."""
    inside: Value = row
    for index in leaf.path[:-1]:
        inside = inside.values[index]
        if inside is None:
            return None
    value = inside.values[leaf.path[-1]]
    return leaf.default if value is None else value


def _leaf_column(data: pa.Array, leaf: Leaf) -> pa.Array:
    from connect_py.columns.arrow import arrow_type
    from transforms.columns import child, hidden, scalar, with_default

    inside = data
    for index in leaf.path[:-1]:
        inside = child(inside, index)
    member = inside.field(leaf.path[-1])
    if leaf.default is not None:
        member = with_default(member, scalar(leaf.schema, leaf.default))
    if inside.null_count:
        member = hidden(member, inside.is_valid())
    target = arrow_type(leaf.schema)
    return member if member.type == target else member.cast(target)


FlattenKey, FlattenValue = for_both(Flatten)
