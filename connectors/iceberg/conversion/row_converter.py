"""`RowConverter`: converts the fields of records to the columns of a table.

The table determines the type of each value, and the logical name of a field determines its unit. A
`RowConverter` is compiled once for a table schema and an incoming schema, and converts many
batches. Most columns are used unchanged. A cast that could lose information checks the whole column
first, and individual values only if necessary. Values that do not fit are reported by row and never
changed silently.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Column
from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Type
from connectors.iceberg.conversion import number_kernels, temporal_kernels, text_kernels
from connectors.iceberg.conversion.column_names import ColumnNames
from connectors.iceberg.conversion.columns import (
    as_array,
    choose,
    list_offsets,
    member,
    null_mask,
    some_value,
    tombstones,
)
from connectors.iceberg.conversion.full_names import fields_of
from connectors.iceberg.conversion.kernel import (
    Conversion,
    ConversionOptions,
    Failure,
    Kernel,
    Run,
    Unfit,
    refuse_nulls,
)
from connectors.iceberg.conversion.temporal import logical_name
from connectors.iceberg.conversion.types import arrow_schema, default_values, writable_fields
from connectors.iceberg.table.table import TableDescription

_NOT_CONVERTED = pa.nulls(0)


@dataclass(frozen=True, slots=True)
class Converted:
    """Converted rows, as arrays that match the columns of the table in order and type."""

    columns: list[pa.Array]
    failures: list[Failure]


class RowConverter:
    """Converts rows with one schema to the columns of one table. Not thread-safe."""

    def __init__(
        self,
        description: TableDescription,
        schema: Schema | None,
        type_: pa.DataType,
        options: ConversionOptions,
        only: Sequence[str] | None = None,
        unchecked: Sequence[str] = (),
    ) -> None:
        """Compile the conversion.

        Args:
            description: The table's description.
            schema: The Connect schema of the rows, or None if they are schemaless.
            type_: The Arrow type of the rows.
            options: The options for values that do not fit.
            only: If not None, only these columns are converted, required columns may be null, and
                all other columns are empty arrays.
            unchecked: Required columns that may be null, because the caller fills them.

        Raises:
            DataError: The rows are neither structs nor maps, or have a value for a column that
                cannot be written.
        """
        table = json.loads(description.schema)
        self._fields: Sequence[Mapping[str, Any]] = writable_fields(table["fields"])
        self.arrow_schema = arrow_schema(self._fields)
        required = (f["name"] for f in self._fields if f["required"] and f["name"] not in unchecked)
        self._only = None if only is None else frozenset(only)
        self._required = frozenset(required) if only is None else frozenset()
        names = ColumnNames.of(
            description.properties, options.types, case_insensitive=options.case_insensitive
        )
        whole = Conversion(
            {**table, "type": "struct"}, schema, type_, (), "", names.mapping, names, options
        )
        self.sources: dict[str, str] = {}  # column of the table -> incoming field
        # column of the table -> other versions of the column
        self.siblings: dict[str, tuple[str, ...]] = {}
        # by column, the names and kernels of its incoming fields, with the current name first
        self._kernels: dict[str, list[tuple[str, Kernel | None]]] = {}
        members = incoming_members(schema, type_, self._fields)
        columns = names.columns(members, table["fields"], names.mapping)
        former = {n: f for f in columns.values() for n in names.history.names.get(f["id"], ())}
        for name, inner_schema, inner_type in members:
            column = columns.get(name)
            if column is not None and (only is None or column["name"] in only):
                target = column["name"]
                siblings = names.siblings(column, table["fields"])
                self.sources[target] = name
                self.siblings[target] = tuple(f["name"] for f in siblings)
                kernel = compile_kernel(whole.inside(name, column, inner_schema, inner_type))
                self._kernels.setdefault(target, []).insert(0, (name, kernel))
            # in a batch of schemaless rows, some rows may have the former name of a field
            elif schema is None and column is None and name in former:
                column = former[name]
                kernel = compile_kernel(whole.inside(name, column, None, inner_type))
                self._kernels.setdefault(column["name"], []).append((name, kernel))

    def convert(
        self, column: Column, hidden: Mapping[str, pa.BooleanArray] | None = None
    ) -> Converted:
        """Convert rows.

        Args:
            column: Rows with the compiled schema and type. Null rows have nulls in all columns.
            hidden: Masks of the rows whose value becomes null, by column of the table.
        """
        run, hidden = Run(column.absent), hidden or {}
        tombstone = tombstones(column)
        columns = []
        members = _members_of(column.data)
        for index, field_ in enumerate(self._fields):
            name = field_["name"]
            if self._only is not None and name not in self._only:
                columns.append(_NOT_CONVERTED)
                continue
            values: pa.Array | None = None
            # mask of the rows that lack all fields so far, or None if there are no such rows
            lacking: pa.BooleanArray | None = None
            for source, kernel in self._kernels.get(name, ()):
                data = member(column.data, None, source)[0] if members is None else members[source]
                if name in hidden:
                    data = _hide(data, hidden[name])
                if lacking is not None:
                    data = _hide(data, pc.invert(lacking))
                converted = data if kernel is None else as_array(kernel(data, run))
                values = converted if values is None else choose(lacking, converted, values)
                absent = column.absent.get((source,))
                lacking = absent if lacking is None or absent is None else pc.and_(lacking, absent)
                if lacking is None:
                    break
            if values is None:
                target = self.arrow_schema.field(index).type
                values = default_values(field_.get("write-default"), target, len(column))
            values = with_default(values, lacking, field_)
            if values.null_count and name in self._required:
                nulls = values.is_null()
                for excused in (tombstone, hidden.get(name)):
                    nulls = nulls if excused is None else pc.and_not(nulls, excused)
                refuse_nulls(nulls, name, "null, but the column is required", run)
            columns.append(values)
        return Converted(columns, run.failures)


def _members_of(data: pa.Array) -> dict[str, pa.Array] | None:
    """Return the fields of a struct column by name, or None for other columns.

    A field is null where the struct is null.
    """
    if not pa.types.is_struct(data.type):
        return None
    fields = (
        data.flatten() if data.null_count else [data.field(i) for i in range(data.type.num_fields)]
    )
    return {f.name: values for f, values in zip(data.type, fields, strict=True)}


def _hide(data: pa.Array, rows: pa.BooleanArray) -> pa.Array:
    return as_array(pc.if_else(rows, pa.nulls(1, data.type)[0], data))


def compile_kernel(at: Conversion) -> Kernel | None:
    """Return the kernel for a conversion, or None if the values are used unchanged."""
    target = at.arrow_type
    if pa.types.is_null(at.type):
        return lambda data, _: pa.nulls(len(data), target)
    word = at.target if isinstance(at.target, str) else at.target["type"]
    try:
        kernel_factory = _KERNELS.get(word.partition("(")[0].partition("[")[0])
        if kernel_factory is None:
            raise Unfit
        return kernel_factory(at)
    except Unfit:
        name = None if at.schema is None else logical_name(at.schema)
        reason = (
            f"values of type {at.type}{f' ({name})' if name else ''} do not fit column type {word}"
        )

        def refuse(data: pa.Array, run: Run) -> pa.Array:
            if data.null_count < len(data):
                run.failures.append(Failure(data.is_valid(), at.column, reason))
            return pa.nulls(len(data), target)

        return refuse


def _struct(at: Conversion) -> Kernel:
    if not (pa.types.is_struct(at.type) or pa.types.is_map(at.type)):
        raise Unfit
    fields, target = fields_of(at.target), at.arrow_type
    members = incoming_members(at.schema, at.type, fields)
    columns = at.names.columns(members, fields, at.mapping)
    sources = {
        columns[name]["name"]: (name, compile_kernel(at.inside(name, columns[name], schema, type_)))
        for name, schema, type_ in members
        if name in columns
    }

    def convert(data: pa.Array, run: Run) -> pa.Array:
        children = []
        for index, field_ in enumerate(fields):
            name = field_["name"]
            if name in sources:
                source, kernel = sources[name]
                child = _converted(kernel, member(data, None, source)[0], run)
                child = with_default(child, run.absent.get((*at.path, source)), field_)
            else:
                default = field_.get("write-default")
                child = default_values(default, target.field(index).type, len(data))
            if field_["required"] and child.null_count:
                nulls = pc.and_(child.is_null(), data.is_valid())
                refuse_nulls(nulls, f"{at.column}.{name}", "null, but the column is required", run)
            children.append(child)
        return pa.StructArray.from_arrays(children, fields=list(target), mask=null_mask(data))

    return convert


def _list(at: Conversion) -> Kernel:
    if not (pa.types.is_list(at.type) or pa.types.is_large_list(at.type)):
        raise Unfit
    (field_,), target = fields_of(at.target), at.arrow_type
    schema = None if at.schema is None else at.schema.value_schema
    element = at.inside("element", field_, schema, at.type.value_type)
    kernel = compile_kernel(element)

    def convert(data: pa.Array, run: Run) -> pa.Array:
        inner = Run()
        items = _converted(kernel, data.flatten(), inner)
        if field_["required"]:
            refuse_nulls(items.is_null(), element.column, "null, but elements are required", inner)
        _lift_failures(inner, pc.list_parent_indices(data), len(data), run)
        offsets, mask = list_offsets(data)
        return pa.ListArray.from_arrays(offsets, items, type=target, mask=mask)

    return convert


def _map(at: Conversion) -> Kernel:
    if pa.types.is_struct(at.type) and at.schema is None:
        return _map_of_object(at)
    if not pa.types.is_map(at.type):
        raise Unfit
    (key_field, value_field), target, schema = fields_of(at.target), at.arrow_type, at.schema
    key_schema = None if schema is None else schema.key_schema
    value_schema = None if schema is None else schema.value_schema
    keys_kernel = compile_kernel(at.inside("key", key_field, key_schema, at.type.key_type))
    value = at.inside("value", value_field, value_schema, at.type.item_type)
    values_kernel = compile_kernel(value)

    def convert(data: pa.Array, run: Run) -> pa.Array:
        entries = _entries(data)
        flat, inner = entries.flatten(), Run()
        keys = _converted(keys_kernel, flat.field(0), inner)
        values = _converted(values_kernel, flat.field(1), inner)
        if keys.null_count:  # Arrow maps cannot have null keys, and these rows fail anyway
            keys = keys.fill_null(some_value(keys.type))
        if value_field["required"]:
            refuse_nulls(values.is_null(), value.column, "null, but values are required", inner)
        _lift_failures(inner, pc.list_parent_indices(entries), len(data), run)
        offsets, mask = list_offsets(entries)
        return pa.MapArray.from_arrays(offsets, keys, values, type=target, mask=mask)

    return convert


def _map_of_object(at: Conversion) -> Kernel:
    """Return a kernel that converts schemaless objects to maps with an entry for each field."""
    (key_field, value_field), target = fields_of(at.target), at.arrow_type
    if key_field["type"] != "string":
        raise Unfit
    members = [at.inside(f.name, value_field, None, f.type) for f in at.type]
    kernels = [compile_kernel(inner) for inner in members]

    def convert(data: pa.Array, run: Run) -> pa.Array:
        children, exists, valid = [pa.nulls(0, target.item_type)], [], data.is_valid()
        for inner, kernel in zip(members, kernels, strict=True):
            children.append(_converted(kernel, member(data, None, inner.path[-1])[0], run))
            absent = run.absent.get(inner.path)
            exists.append((valid if absent is None else pc.and_not(valid, absent)).to_pylist())
        entries = [
            (row, number)
            for row in range(len(data))
            for number in range(len(members))
            if exists[number][row]
        ]
        indexes = pa.array([number * len(data) + row for row, number in entries], pa.int64())
        values = pa.concat_arrays(children).take(indexes)
        if value_field["required"]:
            inner_run, column = Run(), f"{at.column}.value"
            refuse_nulls(values.is_null(), column, "null, but values are required", inner_run)
            parents = pa.array([row for row, _ in entries], pa.int64())
            _lift_failures(inner_run, parents, len(data), run)
        keys = pa.array([members[number].path[-1] for _, number in entries], pa.string())
        counts = Counter(row for row, _ in entries)
        ends = accumulate((counts[row] for row in range(len(data))), initial=0)
        offsets = pa.array([*ends], pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, values, type=target, mask=null_mask(data))

    return convert


def _converted(kernel: Kernel | None, data: pa.Array, run: Run) -> pa.Array:
    return data if kernel is None else as_array(kernel(data, run))


def with_default(
    values: pa.Array, lacking: pa.BooleanArray | None, field_: Mapping[str, Any]
) -> pa.Array:
    """Replace the values of rows that lack the field with the column's write default.

    Args:
        values: The converted values.
        lacking: Mask of the rows that lack the field, or None if there are no such rows.
        field_: Column as a field of an Iceberg schema.
    """
    default = field_.get("write-default")
    if lacking is None or default is None:
        return values
    return choose(lacking, default_values(default, values.type, len(values)), values)


def incoming_members(
    schema: Schema | None, type_: pa.DataType, fields: Sequence[Mapping[str, Any]]
) -> list[tuple[str, Schema | None, pa.DataType]]:
    """Return the fields of a struct, or treat a map as a struct with the table's column names."""
    if pa.types.is_struct(type_):
        if schema is None or schema.type is not Type.STRUCT:
            return [(f.name, None, f.type) for f in type_]
        return [(f.name, schema[f.name], f.type) for f in type_]
    if pa.types.is_map(type_):
        value = None if schema is None else schema.value_schema
        return [(f["name"], value, type_.item_type) for f in fields]
    if pa.types.is_null(type_):
        return []
    raise DataError(f"Cannot convert value of type {type_}: expected a struct or map")


def _lift_failures(inner: Run, parents: pa.Array, rows: int, run: Run) -> None:
    """Report failures of items as failures of the rows that contain the items."""
    for failure in inner.failures:
        bad = set(parents.filter(failure.rows).to_pylist())
        mask = pa.array([row in bad for row in range(rows)], pa.bool_())
        run.failures.append(Failure(mask, failure.column, failure.reason))


def _entries(data: pa.MapArray) -> pa.ListArray:
    """Return a map column as a list of (key, value) structs."""
    type_ = data.type
    pair = pa.struct([pa.field("key", type_.key_type), pa.field("value", type_.item_type)])
    if data.offset:
        data = pa.concat_arrays([data, data.slice(0, 0)])
    pairs = pa.StructArray.from_arrays([data.keys, data.items], fields=list(pair))
    return pa.ListArray.from_arrays(data.offsets, pairs, type=pa.list_(pair), mask=null_mask(data))


_KERNELS: Mapping[str, Callable[[Conversion], Kernel | None]] = {
    "int": number_kernels.integer,
    "long": number_kernels.integer,
    "float": number_kernels.floating,
    "double": number_kernels.floating,
    "decimal": number_kernels.decimal,
    "boolean": text_kernels.boolean,
    "string": text_kernels.string,
    "uuid": text_kernels.uuid,
    "binary": text_kernels.binary,
    "fixed": text_kernels.binary,
    "date": temporal_kernels.date,
    "time": temporal_kernels.time,
    "timestamp": temporal_kernels.timestamp,
    "timestamptz": temporal_kernels.timestamp,
    "timestamp_ns": temporal_kernels.timestamp,
    "timestamptz_ns": temporal_kernels.timestamp,
    "variant": text_kernels.variant,
    "struct": _struct,
    "list": _list,
    "map": _map,
}
