"""Kernels into struct, list and map columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Path
from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Type
from connectors.iceberg.evolution.column_names import ColumnNames, inner_mapping
from connectors.iceberg.staging.columns import any_true, as_array, choose, member
from connectors.iceberg.staging.kernels.kernel import Failure, Kernel, Run, Unfit
from connectors.iceberg.staging.types import IcebergType, arrow_type_of, default_values


class Compile(Protocol):
    """Makes the kernel of a member; `KernelCompiler.kernel`."""

    def __call__(
        self,
        target: IcebergType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> Kernel | None: ...


class ContainerKernels:
    """Makes kernels. Each method answers for one kind of target type."""

    def __init__(self, names: ColumnNames, compile_: Compile) -> None:
        self._names = names
        self._compile = compile_

    def struct(
        self,
        target: Mapping[str, Any],
        wanted: pa.StructType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> Kernel | None:
        if not (pa.types.is_struct(type_) or pa.types.is_map(type_)):
            raise Unfit
        fields = target["fields"]
        members = incoming_members(schema, type_, fields)
        found = self._names.columns(members, fields, mapping)
        sources: dict[str, tuple[str, Kernel | None]] = {}
        for name, inner_schema, inner_type in members:
            if name in found:
                below = found[name]
                inner, place = inner_mapping(mapping, below["id"]), f"{column}.{below['name']}"
                kernel = self._compile(below["type"], inner_schema, inner_type, (*path, name), place, inner)
                sources[below["name"]] = (name, kernel)

        def convert(data: pa.Array, run: Run) -> pa.Array:
            children = []
            for index, field_ in enumerate(fields):
                name = field_["name"]
                if name in sources:
                    source, kernel = sources[name]
                    child, _ = member(data, None, source)
                    child = child if kernel is None else as_array(kernel(child, run))
                    child = with_default(child, run.absent.get((*path, source)), field_)
                else:
                    child = missing_column(field_, wanted.field(index).type, len(data))
                if field_["required"] and child.null_count:
                    nulls = child.is_null()
                    if data.null_count:
                        nulls = pc.and_(nulls, data.is_valid())
                    nulls = _without_failed(nulls, f"{column}.{name}", run)
                    if any_true(nulls):
                        run.failures.append(Failure(nulls, f"{column}.{name}", "null, but the column is required"))
                children.append(child)
            mask = data.is_null() if data.null_count else None
            return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)

        return convert

    def list(
        self,
        target: Mapping[str, Any],
        wanted: pa.ListType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> Kernel | None:
        if not (pa.types.is_list(type_) or pa.types.is_large_list(type_)):
            raise Unfit
        element_schema = None if schema is None else schema.value_schema
        kernel = self._compile(
            target["element"], element_schema, type_.value_type, (*path, "element"), f"{column}.element",
            inner_mapping(mapping, target["element-id"]),
        )  # fmt: skip
        required = target["element-required"]

        def convert(data: pa.Array, run: Run) -> pa.Array:
            items = data.flatten()
            inner = Run()
            made = items if kernel is None else as_array(kernel(items, inner))
            if required and made.null_count:
                nulls = _without_failed(made.is_null(), f"{column}.element", inner)
                if any_true(nulls):
                    inner.failures.append(Failure(nulls, f"{column}.element", "null, but elements are required"))
            _lift_failures(inner, pc.list_parent_indices(data), len(data), run)
            offsets, mask = _offsets(pc.list_value_length(data), data)
            return pa.ListArray.from_arrays(offsets, made, type=wanted, mask=mask)

        return convert

    def map(
        self,
        target: Mapping[str, Any],
        wanted: pa.MapType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> Kernel | None:
        if pa.types.is_struct(type_) and schema is None:
            return self._map_of_object(target, wanted, type_, path, column, mapping)
        if not pa.types.is_map(type_):
            raise Unfit
        key_schema = None if schema is None else schema.key_schema
        value_schema = None if schema is None else schema.value_schema
        keys = self._compile(
            target["key"], key_schema, type_.key_type, (*path, "key"), f"{column}.key",
            inner_mapping(mapping, target["key-id"]),
        )  # fmt: skip
        values = self._compile(
            target["value"], value_schema, type_.item_type, (*path, "value"), f"{column}.value",
            inner_mapping(mapping, target["value-id"]),
        )  # fmt: skip

        def convert(data: pa.Array, run: Run) -> pa.Array:
            entries = _entries(data)
            inner = Run()
            flat = entries.flatten()
            made_keys = flat.field(0) if keys is None else as_array(keys(flat.field(0), inner))
            made_values = flat.field(1) if values is None else as_array(values(flat.field(1), inner))
            if made_keys.null_count:  # an Arrow map cannot hold them; the rows fail anyway
                made_keys = made_keys.fill_null(_any_value(made_keys.type))
            _check_map_values(made_values, target, column, inner)
            _lift_failures(inner, pc.list_parent_indices(entries), len(data), run)
            offsets, mask = _offsets(pc.list_value_length(entries), entries)
            return pa.MapArray.from_arrays(offsets, made_keys, made_values, type=wanted, mask=mask)

        return convert

    def _map_of_object(
        self,
        target: Mapping[str, Any],
        wanted: pa.MapType,
        type_: pa.StructType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> Kernel:
        """A schemaless object into a map column: one entry per member that is there."""
        if target["key"] != "string":
            raise Unfit
        names = [f.name for f in type_]
        inner_map = inner_mapping(mapping, target["value-id"])
        kernels = [
            self._compile(target["value"], None, f.type, (*path, f.name), f"{column}.value", inner_map) for f in type_
        ]
        value_type = arrow_type_of(target["value"])

        def convert(data: pa.Array, run: Run) -> pa.Array:
            rows, width = len(data), len(names)
            children, present = [], []
            for name, kernel in zip(names, kernels, strict=True):
                child, _ = member(data, None, name)
                children.append(child if kernel is None else as_array(kernel(child, run)))
                gone = run.absent.get((*path, name))
                there = data.is_valid()
                present.append(there if gone is None else pc.and_not(there, gone))
            mask = data.is_null() if data.null_count else None
            if not width:
                return pa.MapArray.from_arrays(
                    pa.array([0] * (rows + 1), pa.int32()), pa.array([], pa.string()), pa.array([], value_type),
                    type=wanted, mask=mask,
                )  # fmt: skip
            order = pa.array([at * rows + row for row in range(rows) for at in range(width)], pa.int64())
            kept = pa.concat_arrays(present).take(order)
            values = pa.concat_arrays(children).take(order).filter(kept)
            keys = pa.array(names * rows, pa.string()).filter(kept)
            lengths = present[0].cast(pa.int32())
            for more in present[1:]:
                lengths = pc.add(lengths, more.cast(pa.int32()))
            if target["value-required"] and values.null_count:
                parents = pa.array([row for row in range(rows) for _ in range(width)], pa.int64()).filter(kept)
                inner = Run()
                _check_map_values(values, target, column, inner)
                _lift_failures(inner, parents, rows, run)
            offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
            return pa.MapArray.from_arrays(offsets, keys, values, type=wanted, mask=mask)

        return convert


def missing_column(field_: Mapping[str, Any], target: pa.DataType, length: int) -> pa.Array:
    """The values of a column that the rows lack: its write default, else null."""
    return default_values(field_.get("write-default"), target, length)


def with_default(made: pa.Array, lacking: pa.BooleanArray | None, field_: Mapping[str, Any]) -> pa.Array:
    """The values of a column, its write default in the rows that lack it; `lacking` None: there are none."""
    if lacking is None or field_.get("write-default") is None:
        return made
    return choose(lacking, missing_column(field_, made.type, len(made)), made)


def incoming_members(
    schema: Schema | None, type_: pa.DataType, fields: Sequence[Mapping[str, Any]]
) -> list[tuple[str, Schema | None, pa.DataType]]:
    """The members of a struct, or, of a map, those that the table has."""
    if pa.types.is_struct(type_):
        return [
            (f.name, schema[f.name] if schema is not None and schema.type is Type.STRUCT else None, f.type)
            for f in type_
        ]
    if pa.types.is_map(type_):
        value = None if schema is None else schema.value_schema
        return [(f["name"], value, type_.item_type) for f in fields]
    if pa.types.is_null(type_):
        return []
    raise DataError(f"Cannot convert value of type {type_}: expected a struct or map")


def _without_failed(rows: pa.BooleanArray, column: str, run: Run) -> pa.BooleanArray:
    for failure in run.failures:
        if failure.column == column and len(failure.rows) == len(rows):
            rows = pc.and_not(rows, failure.rows)
    return rows


def _lift_failures(inner: Run, parents: pa.Array, rows: int, run: Run) -> None:
    """Failures of items become failures of the rows that hold them."""
    for failure in inner.failures:
        bad = set(parents.filter(failure.rows).to_pylist())
        run.failures.append(
            Failure(pa.array([row in bad for row in range(rows)], pa.bool_()), failure.column, failure.reason)
        )


def _offsets(lengths: pa.Array, data: pa.Array) -> tuple[pa.Int32Array, pa.BooleanArray | None]:
    """Offsets from the lengths of lists, and which of them are null."""
    ends = pc.cumulative_sum(lengths.fill_null(0)).cast(pa.int32())
    mask = data.is_null() if data.null_count else None
    return pa.concat_arrays([pa.array([0], pa.int32()), as_array(ends)]), mask


def _entries(data: pa.MapArray) -> pa.ListArray:
    """A map column as a list of (key, value) structs."""
    type_ = data.type
    pair = pa.struct([pa.field("key", type_.key_type), pa.field("value", type_.item_type)])
    if data.offset:
        data = pa.concat_arrays([data, data.slice(0, 0)])
    made = pa.StructArray.from_arrays([data.keys, data.items], fields=list(pair))
    mask = data.is_null() if data.null_count else None
    return pa.ListArray.from_arrays(data.offsets, made, type=pa.list_(pair), mask=mask)


def _any_value(type_: pa.DataType) -> pa.Scalar:
    return pa.scalar("", type_) if pa.types.is_string(type_) else pa.scalar(0).cast(type_)


def _check_map_values(values: pa.Array, target: Mapping[str, Any], column: str, inner: Run) -> None:
    if target["value-required"] and values.null_count:
        nulls = _without_failed(values.is_null(), f"{column}.value", inner)
        if any_true(nulls):
            inner.failures.append(Failure(nulls, f"{column}.value", "null, but values are required"))
