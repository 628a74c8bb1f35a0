"""`FileOrder`: rows of a file in the order that the configuration gives the table, so that bounds
are narrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connectors.iceberg.conversion.columns import as_array, member


class FileOrder:
    """Of one table."""

    def __init__(self, sort_by: Sequence[tuple[str, bool, bool]]) -> None:
        """`sort_by`: path of a column, descending, nulls first."""
        self._terms = [
            (path.split("."), descending, nulls_first) for path, descending, nulls_first in sort_by
        ]

    def sorted(self, rows: pa.Table) -> pa.Table:
        """The rows in order; equal ones stay as they were. A column that is not there orders
        nothing."""
        columns: list[pa.Array] = []
        directions: list[str] = []
        for path, descending, nulls_first in self._terms:
            if (values := _column(rows, path)) is None:
                continue
            if values.null_count:
                columns.append(values.is_null())
                directions.append("descending" if nulls_first else "ascending")
            columns.append(values)
            directions.append("descending" if descending else "ascending")
        if not columns or rows.num_rows < 2:
            return rows
        names = [str(number) for number in range(len(columns))]
        keys = pa.table(
            [*columns, pa.array(range(rows.num_rows), pa.int64())], names=[*names, "place"]
        )
        order = [*zip(names, directions, strict=True), ("place", "ascending")]
        return rows.take(pc.sort_indices(keys, sort_keys=order))


def _column(rows: pa.Table, path: Sequence[str]) -> pa.Array | None:
    """A column that can be sorted by; None: there is none."""
    if path[0] not in rows.column_names:
        return None
    data = as_array(rows.column(path[0]))
    for name in path[1:]:
        if not pa.types.is_struct(data.type) or data.type.get_field_index(name) < 0:
            return None
        data, _ = member(data, None, name)
    data = data.storage if isinstance(data, pa.ExtensionArray) else data
    return None if pa.types.is_nested(data.type) else data
