"""What every kernel is made of: its conversion, its run, how failures are noted, values taken one
by one."""

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
    """What a value that does not fit becomes."""

    lenient: bool = False  # as Java's sink: wrap, round, any other text is false
    out_of_range: OutOfRange = OutOfRange.ERROR
    case_insensitive: bool = False
    # tells which version of a column takes a field
    types: TypeOptions = field(default_factory=TypeOptions)

    @staticmethod
    def of(config: IcebergSinkConfig) -> ConversionOptions:
        return ConversionOptions(
            config.lenient, config.out_of_range, config.case_insensitive, TypeOptions.of(config)
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows whose value does not fit a column."""

    rows: pa.BooleanArray  # no nulls
    column: str  # dotted path in the table
    reason: str


@dataclass(slots=True)
class Run:
    """One conversion in progress, at one nesting level of lists."""

    absent: Mapping[Path, pa.BooleanArray] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


Kernel = Callable[[pa.Array, Run], pa.Array]
"""Takes the incoming array, gives one of the target's Arrow type; what does not fit is null and
noted as a failure."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A column of a table, or what is inside one, and the member of the rows that fills it."""

    target: IcebergType
    schema: Schema | None  # of the member; None: schemaless
    type: pa.DataType  # of the member
    path: Path  # where the member stands
    column: str  # the table's name for the place
    mapping: NameMapping  # of the names inside
    names: ColumnNames
    options: ConversionOptions

    @property
    def wanted(self) -> pa.DataType:
        """The Arrow type of the column."""
        return arrow_type_of(self.target)

    def inside(
        self, member: str, field: Mapping[str, Any], schema: Schema | None, type_: pa.DataType
    ) -> Conversion:
        """That of a member into a field inside of the column."""
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


class Unfit(Exception):  # noqa: N818 - becomes a failure with the column's name
    """No value of this incoming type fits the column."""


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_bytes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
    )


def values_of(schema: Schema | None, data: pa.Array, path: Path, run: Run) -> list[Any]:
    """Python values of a member that stands at `path`; schemaless objects without the members that
    they lack."""
    if schema is not None:
        return to_values(schema, data)
    below = {
        p[len(path) :]: rows
        for p, rows in run.absent.items()
        if p[: len(path)] == path and p != path
    }
    return schemaless_values(data, below)


def refuse_nulls(nulls: pa.BooleanArray, column: str, reason: str, run: Run) -> None:
    """Note rows that must not be null as failures, but for those that are null because they
    failed."""
    for failure in run.failures:
        if failure.column == column and len(failure.rows) == len(nulls):
            nulls = pc.and_not(nulls, failure.rows)
    if any_true(nulls):
        run.failures.append(Failure(nulls, column, reason))


def keep(data: pa.Array, fits: pa.BooleanArray, column: str, reason: str, run: Run) -> pa.Array:
    """Null and report the values that do not fit; a null in `fits` is a null value, which fits."""
    if pc.all(fits).as_py() is not False:
        return data
    bad = pc.invert(fits).fill_null(False)
    run.failures.append(Failure(bad, column, reason))
    return as_array(pc.if_else(bad, pa.scalar(None, data.type), data))


def each(wanted: pa.DataType, column: str, convert: Callable[[Any], Any]) -> Kernel:
    """Value by value, each distinct one once."""

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        encoded = data.dictionary_encode()
        made = convert_each(encoded.dictionary.to_pylist(), convert, encoded.indices, column, run)
        return pa.array(made, wanted).take(encoded.indices)

    return kernel


def convert_each(
    values: Iterable[Any],
    convert: Callable[[Any], Any],
    rows: pa.Array | None,
    column: str,
    run: Run,
) -> list[Any]:
    """Convert values one by one, nulls apart; those that do not fit are null and noted as failures
    of their rows.

    `rows` tells which value each row has; None: its own.
    """
    made: list[Any] = []
    bad: list[bool] = []
    reason: str | None = None
    for value in values:
        try:
            made.append(None if value is None else convert(value))
            bad.append(False)
        except (ValueError, ArithmeticError) as error:
            made.append(None)
            bad.append(True)
            reason = str(error) if reason is None else reason
    if reason is not None:
        failed: pa.BooleanArray = pa.array(bad, pa.bool_())
        run.failures.append(
            Failure(failed if rows is None else failed.take(rows).fill_null(False), column, reason)
        )
    return made
