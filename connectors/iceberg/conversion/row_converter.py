"""Connect columns become columns of a table. The table's type decides; logical names decide units.

`RowConverter` is compiled once per table schema and incoming schema, then applied to batch after
batch. Most columns pass through untouched; a cast that could lose something looks at the whole
column first and at single values only when it must. Values that do not fit are reported by row,
never changed silently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Column
from connect_py.api.schema import Schema
from connectors.iceberg.conversion.column_names import ColumnNames
from connectors.iceberg.conversion.columns import as_array, choose, member, tombstones
from connectors.iceberg.conversion.kernel import (
    Conversion,
    ConversionOptions,
    Failure,
    Kernel,
    Run,
    refuse_nulls,
)
from connectors.iceberg.conversion.kernel_compiler import (
    compile_kernel,
    incoming_members,
    with_default,
)
from connectors.iceberg.conversion.types import arrow_schema, default_values, writable_fields
from connectors.iceberg.table.table import TableDescription


@dataclass(frozen=True, slots=True)
class Converted:
    """Rows in the table's Arrow types, columns in the table's order."""

    columns: list[pa.Array]
    failures: list[Failure]


class RowConverter:
    """Columns of one incoming schema to the columns of one table. Used by one thread."""

    def __init__(
        self,
        description: TableDescription,
        schema: Schema | None,
        type_: pa.DataType,
        options: ConversionOptions,
        only: Sequence[str] | None = None,
        unchecked: Sequence[str] = (),
    ) -> None:
        """Compile.

        Args: description: The table. schema: Connect schema of the rows; None: schemaless. type_:
            Arrow type of the rows. options: What to do with values that do not fit. only: Convert
            these columns alone, all others come without rows; required columns are then not
            checked. unchecked: Required columns that may be null here, because the caller fills
            them.

        Raises: DataError: The rows are neither struct nor map, or have a value for a column that
            cannot be written.
        """
        table = json.loads(description.schema)
        self._fields: Sequence[Mapping[str, Any]] = writable_fields(table["fields"])
        self.arrow_schema = arrow_schema(self._fields)
        checked = (f["name"] for f in self._fields if f["required"] and f["name"] not in unchecked)
        self._only = None if only is None else frozenset(only)
        self._required = frozenset(checked) if only is None else frozenset()
        names = ColumnNames.of(
            description.properties, options.types, case_insensitive=options.case_insensitive
        )
        whole = Conversion(
            {**table, "type": "struct"}, schema, type_, (), "", names.mapping, names, options
        )
        self.sources: dict[str, str] = {}  # table column -> incoming member
        self.siblings: dict[
            str, tuple[str, ...]
        ] = {}  # table column -> other columns with values of the same member
        self._kernels: dict[
            str, list[tuple[str, Kernel | None]]
        ] = {}  # and of those with its former names
        members = incoming_members(schema, type_, self._fields)
        found = names.columns(members, table["fields"], names.mapping)
        former = {name: f for f in found.values() for name in names.history.names.get(f["id"], ())}
        for name, inner_schema, inner_type in members:
            column = found.get(name)
            if column is not None and (only is None or column["name"] in only):
                target = column["name"]
                self.sources[target] = name
                self.siblings[target] = tuple(
                    f["name"] for f in names.siblings(column, table["fields"])
                )
                kernel = compile_kernel(whole.inside(name, column, inner_schema, inner_type))
                self._kernels.setdefault(target, []).insert(0, (name, kernel))
            # rows of one batch may have different members
            elif schema is None and column is None and name in former:
                column = former[name]
                kernel = compile_kernel(whole.inside(name, column, None, inner_type))
                self._kernels.setdefault(column["name"], []).append((name, kernel))

    def convert(
        self, column: Column, hidden: Mapping[str, pa.BooleanArray] | None = None
    ) -> Converted:
        """Convert rows.

        Args: column: Rows of the schema and type that this converter was made for; rows that are
            null give null columns. hidden: Per table column, rows whose value is to be null,
            whatever it is.
        """
        run, hidden = Run(column.absent), hidden or {}
        tombstone = tombstones(column)
        columns = []
        members = _all_members(column.data)
        for index, field_ in enumerate(self._fields):
            name = field_["name"]
            if self._only is not None and name not in self._only:
                columns.append(_NOT_ASKED)
                continue
            made: pa.Array | None = None
            # rows without any of the members so far; None: there are none
            lacking: pa.BooleanArray | None = None
            for source, kernel in self._kernels.get(name, ()):
                data = member(column.data, None, source)[0] if members is None else members[source]
                if name in hidden:
                    data = _hide(data, hidden[name])
                if lacking is not None:
                    data = _hide(data, pc.invert(lacking))
                values = data if kernel is None else as_array(kernel(data, run))
                made = values if made is None else choose(lacking, values, made)
                absent = column.absent.get((source,))
                lacking = absent if lacking is None or absent is None else pc.and_(lacking, absent)
                if lacking is None:
                    break
            if made is None:
                target = self.arrow_schema.field(index).type
                made = default_values(field_.get("write-default"), target, len(column))
            made = with_default(made, lacking, field_)
            if made.null_count and name in self._required:
                nulls = made.is_null()
                for excused in (tombstone, hidden.get(name)):
                    nulls = nulls if excused is None else pc.and_not(nulls, excused)
                refuse_nulls(nulls, name, "null, but the column is required", run)
            columns.append(made)
        return Converted(columns, run.failures)


_NOT_ASKED = pa.nulls(0)


def _all_members(data: pa.Array) -> dict[str, pa.Array] | None:
    """The fields of a struct column, its nulls in each; None for other columns."""
    if not pa.types.is_struct(data.type):
        return None
    fields = (
        data.flatten() if data.null_count else [data.field(i) for i in range(data.type.num_fields)]
    )
    return {f.name: values for f, values in zip(data.type, fields, strict=True)}


def _hide(data: pa.Array, rows: pa.BooleanArray) -> pa.Array:
    return as_array(pc.if_else(rows, pa.nulls(1, data.type)[0], data))
