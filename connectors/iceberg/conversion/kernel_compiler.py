"""The kernel for each pair of incoming type and column type, and those into struct, list and map
columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Type
from connectors.iceberg.conversion import number_kernels, temporal_kernels, text_kernels
from connectors.iceberg.conversion.columns import as_array, choose, list_offsets, member, some_value
from connectors.iceberg.conversion.full_names import fields_of
from connectors.iceberg.conversion.kernel import (
    Conversion,
    Failure,
    Kernel,
    Run,
    Unfit,
    refuse_nulls,
)
from connectors.iceberg.conversion.temporal_type import logical_name
from connectors.iceberg.conversion.types import default_values


def compile_kernel(at: Conversion) -> Kernel | None:
    """The kernel of a conversion; None: values pass as they are."""
    wanted = at.wanted
    if pa.types.is_null(at.type):
        return lambda data, _: pa.nulls(len(data), wanted)
    word = at.target if isinstance(at.target, str) else at.target["type"]
    try:
        make = _KERNELS.get(word.partition("(")[0].partition("[")[0])
        if make is None:
            raise Unfit
        return make(at)
    except Unfit:
        named = None if at.schema is None else logical_name(at.schema)
        reason = (
            f"values of type {at.type}{f' ({named})' if named else ''} do not fit a {word} column"
        )

        def refuse(data: pa.Array, run: Run) -> pa.Array:
            if data.null_count < len(data):
                run.failures.append(Failure(data.is_valid(), at.column, reason))
            return pa.nulls(len(data), wanted)

        return refuse


def _struct(at: Conversion) -> Kernel:
    if not (pa.types.is_struct(at.type) or pa.types.is_map(at.type)):
        raise Unfit
    fields, wanted = fields_of(at.target), at.wanted
    members = incoming_members(at.schema, at.type, fields)
    found = at.names.columns(members, fields, at.mapping)
    sources = {
        found[name]["name"]: (name, compile_kernel(at.inside(name, found[name], schema, type_)))
        for name, schema, type_ in members
        if name in found
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
                child = default_values(
                    field_.get("write-default"), wanted.field(index).type, len(data)
                )
            if field_["required"] and child.null_count:
                nulls = pc.and_(child.is_null(), data.is_valid())
                refuse_nulls(nulls, f"{at.column}.{name}", "null, but the column is required", run)
            children.append(child)
        mask = data.is_null() if data.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)

    return convert


def _list(at: Conversion) -> Kernel:
    if not (pa.types.is_list(at.type) or pa.types.is_large_list(at.type)):
        raise Unfit
    (field_,), wanted = fields_of(at.target), at.wanted
    element = at.inside(
        "element", field_, None if at.schema is None else at.schema.value_schema, at.type.value_type
    )
    kernel = compile_kernel(element)

    def convert(data: pa.Array, run: Run) -> pa.Array:
        inner = Run()
        made = _converted(kernel, data.flatten(), inner)
        if field_["required"]:
            refuse_nulls(made.is_null(), element.column, "null, but elements are required", inner)
        _lift_failures(inner, pc.list_parent_indices(data), len(data), run)
        offsets, mask = list_offsets(data)
        return pa.ListArray.from_arrays(offsets, made, type=wanted, mask=mask)

    return convert


def _map(at: Conversion) -> Kernel:
    if pa.types.is_struct(at.type) and at.schema is None:
        return _map_of_object(at)
    if not pa.types.is_map(at.type):
        raise Unfit
    (key_field, value_field), wanted, schema = fields_of(at.target), at.wanted, at.schema
    keys = compile_kernel(
        at.inside("key", key_field, None if schema is None else schema.key_schema, at.type.key_type)
    )
    value = at.inside(
        "value", value_field, None if schema is None else schema.value_schema, at.type.item_type
    )
    values = compile_kernel(value)

    def convert(data: pa.Array, run: Run) -> pa.Array:
        entries = _entries(data)
        flat, inner = entries.flatten(), Run()
        made_keys, made_values = (
            _converted(keys, flat.field(0), inner),
            _converted(values, flat.field(1), inner),
        )
        if made_keys.null_count:  # an Arrow map cannot hold them; the rows fail anyway
            made_keys = made_keys.fill_null(some_value(made_keys.type))
        if value_field["required"]:
            refuse_nulls(
                made_values.is_null(), value.column, "null, but values are required", inner
            )
        _lift_failures(inner, pc.list_parent_indices(entries), len(data), run)
        offsets, mask = list_offsets(entries)
        return pa.MapArray.from_arrays(offsets, made_keys, made_values, type=wanted, mask=mask)

    return convert


def _map_of_object(at: Conversion) -> Kernel:
    """A schemaless object into a map column: one entry per member that is there."""
    (key_field, value_field), wanted = fields_of(at.target), at.wanted
    if key_field["type"] != "string":
        raise Unfit
    members = [at.inside(f.name, value_field, None, f.type) for f in at.type]
    kernels = [compile_kernel(inner) for inner in members]

    def convert(data: pa.Array, run: Run) -> pa.Array:
        children, there = [pa.nulls(0, wanted.item_type)], []
        for inner, kernel in zip(members, kernels, strict=True):
            children.append(_converted(kernel, member(data, None, inner.path[-1])[0], run))
            absent_rows, valid = run.absent.get(inner.path), data.is_valid()
            there.append(
                (valid if absent_rows is None else pc.and_not(valid, absent_rows)).to_pylist()
            )
        entries = [
            (row, number)
            for row in range(len(data))
            for number in range(len(members))
            if there[number][row]
        ]
        places = pa.array([number * len(data) + row for row, number in entries], pa.int64())
        values = pa.concat_arrays(children).take(places)
        if value_field["required"]:
            found = Run()
            refuse_nulls(
                values.is_null(), f"{at.column}.value", "null, but values are required", found
            )
            _lift_failures(found, pa.array([row for row, _ in entries], pa.int64()), len(data), run)
        keys = pa.array([members[number].path[-1] for _, number in entries], pa.string())
        counts = Counter(row for row, _ in entries)
        offsets = pa.array(
            [*accumulate((counts[row] for row in range(len(data))), initial=0)], pa.int32()
        )
        mask = data.is_null() if data.null_count else None
        return pa.MapArray.from_arrays(offsets, keys, values, type=wanted, mask=mask)

    return convert


def _converted(kernel: Kernel | None, data: pa.Array, run: Run) -> pa.Array:
    return data if kernel is None else as_array(kernel(data, run))


def with_default(
    made: pa.Array, lacking: pa.BooleanArray | None, field_: Mapping[str, Any]
) -> pa.Array:
    """The values of a column, its write default in the rows that lack it; `lacking` None: there are
    none."""
    if lacking is None or field_.get("write-default") is None:
        return made
    return choose(lacking, default_values(field_["write-default"], made.type, len(made)), made)


def incoming_members(
    schema: Schema | None, type_: pa.DataType, fields: Sequence[Mapping[str, Any]]
) -> list[tuple[str, Schema | None, pa.DataType]]:
    """The members of a struct, or, of a map, those that the table has."""
    if pa.types.is_struct(type_):
        return [
            (
                f.name,
                schema[f.name] if schema is not None and schema.type is Type.STRUCT else None,
                f.type,
            )
            for f in type_
        ]
    if pa.types.is_map(type_):
        value = None if schema is None else schema.value_schema
        return [(f["name"], value, type_.item_type) for f in fields]
    if pa.types.is_null(type_):
        return []
    raise DataError(f"Cannot convert value of type {type_}: expected a struct or map")


def _lift_failures(inner: Run, parents: pa.Array, rows: int, run: Run) -> None:
    """Failures of items become failures of the rows that hold them."""
    for failure in inner.failures:
        bad = set(parents.filter(failure.rows).to_pylist())
        run.failures.append(
            Failure(
                pa.array([row in bad for row in range(rows)], pa.bool_()),
                failure.column,
                failure.reason,
            )
        )


def _entries(data: pa.MapArray) -> pa.ListArray:
    """A map column as a list of (key, value) structs."""
    type_ = data.type
    pair = pa.struct([pa.field("key", type_.key_type), pa.field("value", type_.item_type)])
    if data.offset:
        data = pa.concat_arrays([data, data.slice(0, 0)])
    made = pa.StructArray.from_arrays([data.keys, data.items], fields=list(pair))
    mask = data.is_null() if data.null_count else None
    return pa.ListArray.from_arrays(data.offsets, made, type=pa.list_(pair), mask=mask)


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
