"""From what msgspec decodes to columns, the quick ways."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from connect_py.api.batch import Column, Path, Unbuilt

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
    if there < 2:
        return None
    text = values[len(values) // 2]
    if type(text) is not str or values[-1] not in (text, None) or values[0] not in (text, None):
        return None
    if values.count(text) != there:
        return None
    column = pa.repeat(text, len(values))
    if null is None:
        return column
    valid = pc.invert(null)
    return pa.Array.from_buffers(pa.string(), len(values), [valid.buffers()[1], *column.buffers()[1:]], offset=0)


class RowReader(Protocol):
    """Knows what the structs of its type hold."""

    stand_in: msgspec.Struct  # whose members are all null; true, as every struct

    def build(self, rows: Sequence[Any]) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
        """Make the column of structs, and the masks of what is absent; false for a row that is null."""

    def member(self, name: str, rows: Sequence[Any], null: pa.BooleanArray | None) -> Column | None:
        """Make the column of a member; None: no row has it. Rows marked in `null` are `stand_in`."""


class DecodedRows(Unbuilt):
    """Decoded structs; false where a row is null. They were checked: columns can be made of them."""

    def __init__(self, reader: RowReader, rows: Sequence[Any]) -> None:
        self._reader = reader
        self._rows = rows
        self._null: pa.BooleanArray | None = None
        self._filled: Sequence[Any] | None = None  # rows with `stand_in` for null

    def _fill(self) -> Sequence[Any]:
        if self._filled is None:
            if all(self._rows):
                self._filled = self._rows
            else:
                import pyarrow as pa

                self._null = pa.array(list(map(operator.not_, self._rows)), pa.bool_())
                self._filled = [row or self._reader.stand_in for row in self._rows]
        return self._filled

    def __len__(self) -> int:
        return len(self._rows)

    def build(self) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
        return self._reader.build(self._rows)

    def is_null(self) -> pa.BooleanArray | None:
        self._fill()
        return self._null

    def member(self, name: str) -> Column | None:
        return self._reader.member(name, self._fill(), self._null)

    def where(self, mask: pa.BooleanArray) -> DecodedRows:
        import pyarrow.compute as pc

        places = pc.indices_nonzero(mask).to_pylist()
        return DecodedRows(self._reader, [self._rows[place] for place in places])

    def slice(self, start: int, stop: int) -> DecodedRows:
        return DecodedRows(self._reader, self._rows[start:stop])
