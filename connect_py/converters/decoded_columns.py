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


def string_array(values: Sequence[Any]) -> pa.StringArray:
    """Make a column of texts and None; one text in all rows, as in Debezium's `source`, is not converted row by row.

    Raises:
        pa.ArrowInvalid, pa.ArrowTypeError: A value is something else.
    """
    import pyarrow as pa

    if len(values) > 1:
        first = values[0]
        if (
            type(first) is str
            and first == values[-1] == values[len(values) // 2]
            and values.count(first) == len(values)
        ):
            return pa.repeat(first, len(values))
    return pa.array(values, pa.string())
