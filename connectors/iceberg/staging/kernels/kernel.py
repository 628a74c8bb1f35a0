"""What every kernel is made of: the run it belongs to, how failures are noted, values taken one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.arrow import schemaless_values, to_values
from connect_py.api.batch import Path
from connect_py.api.schema import Schema
from connectors.iceberg.config import IcebergSinkConfig, OutOfRange
from connectors.iceberg.staging.columns import as_array
from connectors.iceberg.staging.types import TypeOptions


@dataclass(frozen=True, slots=True)
class ConversionOptions:
    """What a value that does not fit becomes."""

    lenient: bool = False  # as Java's sink: wrap, round, any other text is false
    out_of_range: OutOfRange = OutOfRange.ERROR
    case_insensitive: bool = False
    types: TypeOptions = field(default_factory=TypeOptions)  # tells which version of a column takes a field

    @staticmethod
    def of(config: IcebergSinkConfig) -> ConversionOptions:
        return ConversionOptions(
            config.lenient, config.out_of_range, config.case_insensitive, TypeOptions.of(config)
        )  # fmt: skip


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
"""Takes the incoming array, gives one of the target's Arrow type; what does not fit is null and noted as a failure."""


class Unfit(Exception):  # noqa: N818 - becomes a failure with the column's name
    """No value of this incoming type fits the column."""


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_bytes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_)
    )  # fmt: skip


def values_of(schema: Schema | None, data: pa.Array, path: Path, run: Run) -> list[Any]:
    """Python values of a member that stands at `path`; schemaless objects without the members that they lack."""
    if schema is not None:
        return to_values(schema, data)
    below = {p[len(path) :]: rows for p, rows in run.absent.items() if p[: len(path)] == path and p != path}
    return schemaless_values(data, below)


def refuse(wanted: pa.DataType, column: str, reason: str) -> Kernel:
    def kernel(data: pa.Array, run: Run) -> pa.Array:
        if data.null_count < len(data):
            run.failures.append(Failure(data.is_valid(), column, reason))
        return pa.nulls(len(data), wanted)

    return kernel


def keep(data: pa.Array, fits: pa.BooleanArray, column: str, reason: str, run: Run) -> pa.Array:
    """Null and report the values that do not fit; a null in `fits` is a null value, which fits."""
    if pc.all(fits).as_py() is not False:
        return data
    bad = pc.invert(fits).fill_null(False)
    run.failures.append(Failure(bad, column, reason))
    return as_array(pc.if_else(bad, pa.scalar(None, data.type), data))


def within(data: pa.Array, low: int, high: int, column: str, reason: str, run: Run) -> pa.Array:
    ends = pc.min_max(data).as_py()
    if ends["min"] is None or (ends["min"] >= low and ends["max"] <= high):
        return data
    return keep(data, pc.and_(pc.greater_equal(data, low), pc.less_equal(data, high)), column, reason, run)


def try_cast(data: pa.Array, wanted: pa.DataType, run: Run, slow: Kernel) -> pa.Array:
    try:
        return data.cast(wanted)
    except pa.ArrowInvalid:
        return slow(data, run)


def each(wanted: pa.DataType, column: str, convert: Callable[[Any], Any]) -> Kernel:
    """Value by value, each distinct one once."""

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        encoded = data.dictionary_encode()
        made = convert_each(encoded.dictionary.to_pylist(), convert, encoded.indices, column, run)
        return pa.array(made, wanted).take(encoded.indices)

    return kernel


def convert_each(
    values: Iterable[Any], convert: Callable[[Any], Any], rows: pa.Array | None, column: str, run: Run
) -> list[Any]:
    """Convert values one by one, nulls apart; those that do not fit are null and noted as failures of their rows.

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
        run.failures.append(Failure(failed if rows is None else failed.take(rows).fill_null(False), column, reason))
    return made
