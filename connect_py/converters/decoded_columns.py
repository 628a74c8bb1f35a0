"""From what msgspec decodes to columns, the quick ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa


def columns_of(rows: Sequence[msgspec.Struct], width: int) -> Iterator[list[Any]]:
    """Give the values of each member of structs that have `width` members, in the order of their fields."""
    flat = list(chain.from_iterable(map(msgspec.structs.astuple, rows)))  # getters take twice as long, so does zip
    return (flat[i::width] for i in range(width))


def repeated_text(values: Sequence[Any], null: pa.BooleanArray | None) -> pa.StringArray | None:
    """Make the column of a member that is one text in all rows, as most of Debezium's `source` is; else return None.

    `null` marks rows whose struct is null; their value is None. Such a column costs no conversion row by row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    there = len(values) - (0 if null is None else null.true_count)
    text = values[len(values) // 2]
    if there < 2 or type(text) is not str or values[-1] not in (text, None) or values[0] not in (text, None):
        return None
    if values.count(text) != there:
        return None
    column = pa.repeat(text, len(values))
    if null is None:
        return column
    valid = pc.invert(null)
    return pa.Array.from_buffers(pa.string(), len(values), [valid.buffers()[1], *column.buffers()[1:]], offset=0)
