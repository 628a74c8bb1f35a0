"""Rows that were decoded to Arrow, and can still be read one by one from their messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from connect_py.api.batch import Column, LazyColumn, Path
from connect_py.api.schema import Value

if TYPE_CHECKING:
    import pyarrow as pa

ReadRows: TypeAlias = Callable[[Sequence[bytes | None]], list[Value]]
"""From JSON texts that were seen to be sound to values as the reference form makes them; None
stays."""


class NativeRows(LazyColumn):
    """A built column beside its texts: rows are made of these, as the way from Arrow is five times
    as long."""

    def __init__(
        self,
        column: Column,
        texts: Sequence[bytes | None],
        read: ReadRows,
        places: pa.Int64Array | None = None,
    ) -> None:
        """`places` says which text is each row's; None: they are in order."""
        self._column = column
        self._texts = texts
        self._read = read
        self._places = places

    def __len__(self) -> int:
        return len(self._column)

    def build(self) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
        return self._column.data, self._column.absent

    def is_null(self) -> pa.BooleanArray | None:
        return self._column.is_null()

    def member(self, name: str) -> Column | None:
        return self._column.member(name)

    def where(self, mask: pa.BooleanArray) -> NativeRows:
        return NativeRows(
            self._column.where(mask), self._texts, self._read, self._all_places().filter(mask)
        )

    def slice(self, start: int, stop: int) -> NativeRows:
        places = self._all_places().slice(start, stop - start)
        return NativeRows(self._column.slice(start, stop), self._texts, self._read, places)

    def _all_places(self) -> pa.Int64Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._places is not None:
            return self._places
        return pc.indices_nonzero(pa.repeat(True, len(self._texts)))

    def row_values(self) -> list[Value]:
        if self._places is None:
            return self._read(self._texts)
        return self._read([self._texts[place] for place in self._places.to_pylist()])
