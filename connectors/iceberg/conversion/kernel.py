"""`Kernel`: a function that converts incoming values to the type of a column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Path
from connect_py.api.schema import Schema
from connect_py.columns.arrow import schemaless_values, to_values
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import OutOfRange
from connectors.iceberg.conversion.column_names import ColumnNames, NameMapping, inner_mapping
from connectors.iceberg.conversion.columns import any_true, as_array
from connectors.iceberg.conversion.types import IcebergType, TypeOptions, arrow_type_of


@dataclass(frozen=True, slots=True)
class ConversionOptions:
    """Options for values that do not fit the type of their column."""

    # convert like the Java sink: wrap integers, round decimals, and convert every string other than
    # true to false
    lenient: bool = False
    out_of_range: OutOfRange = OutOfRange.ERROR
    case_insensitive: bool = False
    # used to select the version of a column that accepts a value
    types: TypeOptions = field(default_factory=TypeOptions)

    @staticmethod
    def of(config: IcebergSinkConfig) -> ConversionOptions:
        return ConversionOptions(
            config.lenient, config.out_of_range, config.case_insensitive, TypeOptions.of(config)
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows whose values do not fit a column."""

    rows: pa.BooleanArray  # mask without nulls
    column: str  # dotted path in the table
    reason: str


@dataclass(slots=True)
class Run:
    """State for the conversion of one batch. List items and map entries have a separate run."""

    # masks of the schemaless rows that lack a field, by the path of the field
    absent: Mapping[Path, pa.BooleanArray] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


Kernel = Callable[[pa.Array, Run], pa.Array]
"""Function that converts an incoming array to the Arrow type of the column.

Values that do not fit become null and are reported as failures.
"""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Conversion of one incoming field to a column, or to a nested part of a column."""

    target: IcebergType
    schema: Schema | None  # schema of the field, or None if it is schemaless
    type: pa.DataType  # Arrow type of the field
    path: Path  # path of the field
    column: str  # dotted path in the table
    mapping: NameMapping  # name mapping for the nested fields
    names: ColumnNames
    options: ConversionOptions

    @property
    def arrow_type(self) -> pa.DataType:
        """Arrow type of the column."""
        return arrow_type_of(self.target)

    def inside(
        self, member: str, field: Mapping[str, Any], schema: Schema | None, type_: pa.DataType
    ) -> Conversion:
        """Return the conversion for a nested field."""
        column = f"{self.column}.{field['name']}" if self.column else field["name"]
        below = inner_mapping(self.mapping, field["id"])
        return replace(
            self,
            target=field["type"],
            schema=schema,
            type=type_,
            path=(*self.path, member),
            column=column,
            mapping=below,
        )


class Unfit(Exception):  # noqa: N818 - reported as a failure with the name of the column
    """Raised if no value of an incoming type fits the type of the column."""


def is_text(type_: pa.DataType) -> bool:
    """Return True if a type is a string type."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_bytes(type_: pa.DataType) -> bool:
    """Return True if a type is a binary type."""
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
    )


def values_of(schema: Schema | None, data: pa.Array, path: Path, run: Run) -> list[Any]:
    """Convert the field at `path` to Python values. Schemaless objects omit absent fields."""
    if schema is not None:
        return to_values(schema, data)
    below = {
        p[len(path) :]: rows
        for p, rows in run.absent.items()
        if p[: len(path)] == path and p != path
    }
    return schemaless_values(data, below)


def refuse_nulls(nulls: pa.BooleanArray, column: str, reason: str, run: Run) -> None:
    """Report nulls in a required column, except in rows already reported for this column."""
    for failure in run.failures:
        if failure.column == column and len(failure.rows) == len(nulls):
            nulls = pc.and_not(nulls, failure.rows)
    if any_true(nulls):
        run.failures.append(Failure(nulls, column, reason))


def keep(data: pa.Array, fits: pa.BooleanArray, column: str, reason: str, run: Run) -> pa.Array:
    """Report values that do not fit, and replace them with null. Nulls always fit."""
    if pc.all(fits).as_py() is not False:
        return data
    bad = pc.invert(fits).fill_null(False)
    run.failures.append(Failure(bad, column, reason))
    return as_array(pc.if_else(bad, pa.scalar(None, data.type), data))


def each(arrow_type: pa.DataType, column: str, convert: Callable[[Any], Any]) -> Kernel:
    """Return a kernel that converts each distinct value once."""

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        encoded = data.dictionary_encode()
        values = convert_each(encoded.dictionary.to_pylist(), convert, encoded.indices, column, run)
        return pa.array(values, arrow_type).take(encoded.indices)

    return kernel


def convert_each(
    values: Iterable[Any],
    convert: Callable[[Any], Any],
    rows: pa.Array | None,
    column: str,
    run: Run,
) -> list[Any]:
    """Convert non-null values one by one.

    Values that do not fit become null and are reported.

    Args:
        values: Values to convert. None is returned unchanged.
        convert: Converts one value. Raises ValueError or ArithmeticError if it does not fit.
        rows: For each row, the index of its value, or None if there is one value per row.
        column: Dotted path of the column.
        run: Conversion state to which failures are added.
    """
    results: list[Any] = []
    bad: list[bool] = []
    reason: str | None = None
    for value in values:
        try:
            results.append(None if value is None else convert(value))
            bad.append(False)
        except (ValueError, ArithmeticError) as error:
            results.append(None)
            bad.append(True)
            reason = str(error) if reason is None else reason
    if reason is not None:
        failed: pa.BooleanArray = pa.array(bad, pa.bool_())
        run.failures.append(
            Failure(failed if rows is None else failed.take(rows).fill_null(False), column, reason)
        )
    return results
