"""Columnar conversion code that all formats share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from connect_py.api.batch import Path
from connect_py.api.converter import ColumnRun
from connect_py.api.errors import NotColumnar
from connect_py.api.schema import Schema, Value

if TYPE_CHECKING:
    import pyarrow as pa

_FREE_CUTS: Final = 8  # number of runs that a call may return regardless of their length


def column_runs(
    rows: int, run_from: Callable[[int], ColumnRun], rows_per_cut: int, reason: str
) -> list[ColumnRun]:
    """Convert messages run by run.

    Args:
        rows: Number of messages.
        run_from: Returns the run that starts at the message with this index.
        rows_per_cut: Minimum average number of rows per run. For shorter runs, row-by-row
            conversion is faster.
        reason: Description of what ends a run, for the error message.

    Raises:
        NotColumnar: The runs are too short.
    """
    result: list[ColumnRun] = []
    start = 0
    while start < rows:
        if len(result) > _FREE_CUTS + rows // rows_per_cut:
            raise NotColumnar(f"{reason} too often")
        result.append(run_from(start))
        start = result[-1].stop
    return result


def replace_rows(
    schema: Schema | None,
    data: pa.Array,
    values: Mapping[int, Value],
    absent: Mapping[Path, pa.BooleanArray] | None = None,
) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
    """Replace null rows in a column with values that were converted row by row.

    Args:
        schema: Schema of the column, or None if it is schemaless.
        data: The column.
        values: Values, keyed by row index.
        absent: The `Column.absent` masks of a schemaless column.

    Returns:
        The new column and its `Column.absent` masks.

    Raises:
        NotColumnar: The values do not fit into the column.
    """
    import pyarrow as pa

    from connect_py.columns import arrow

    rows = sorted(row for row, value in values.items() if value is not None)
    if not rows:
        return data, absent or {}
    replacements = column_of_rows(schema, [values[row] for row in rows])
    mask = bytearray(len(data))
    for row in rows:
        mask[row] = 1
    is_replaced = pa.array(mask, pa.uint8()).cast(pa.bool_())
    return arrow.mixed((data, absent or {}), replacements, is_replaced, None)


def column_of_rows(
    schema: Schema | None, values: list[Value]
) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
    """Create a column from row values, and return it with its `Column.absent` masks.

    Raises:
        NotColumnar: Columns cannot represent the values exactly.
    """
    from connect_py.columns import arrow

    if schema is None:
        return arrow.schemaless_array(values)
    return arrow.to_array(schema, values), {}
