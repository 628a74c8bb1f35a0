"""From what msgspec decodes to columns, the quick ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from connect_py.api.batch import Column, LazyColumn, Path

if TYPE_CHECKING:
    import pyarrow as pa


def member_getters(width: int) -> Sequence[Callable[[Sequence[Any]], list[Any]]]:
    """Make functions that take the values of one member each out of structs with members f0, f1 and
    so on.

    Python learns the place of an attribute where the code names it, one class at a time: so each
    class of structs has functions of its own. They take half the time of `operator.attrgetter` and
    of `msgspec.structs.astuple`.
    """
    return [eval(f"lambda structs: [s.f{index} for s in structs]") for index in range(width)]


def repeated_text(values: Sequence[Any], null: pa.BooleanArray | None) -> pa.StringArray | None:
    """Make the column of a member that is one text in all rows, as most of Debezium's `source` is;
    else return None.

    `null` marks rows whose struct is null; their value is None. Such a column costs no conversion
    row by row.
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
    return pa.Array.from_buffers(
        pa.string(), len(values), [valid.buffers()[1], *column.buffers()[1:]], offset=0
    )


def nulls(values: Sequence[Any]) -> pa.BooleanArray:
    """Mark the values that are false: structs are true, nulls are not. It takes half the time of
    `pa.array`."""
    import pyarrow as pa

    flags = bytes([0 if value else 1 for value in values])
    return pa.Array.from_buffers(pa.uint8(), len(flags), [None, pa.py_buffer(flags)]).cast(
        pa.bool_()
    )


class RowReader(Protocol):
    """Knows what the structs of its type hold."""

    stand_in: msgspec.Struct  # whose members are all null; true, as every struct
    getters: Sequence[Callable[[Sequence[Any]], list[Any]]]  # of the members

    def build(
        self, rows: Sequence[Any], null: pa.BooleanArray | None
    ) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
        """Make the column of structs, and the masks of what is absent. Rows marked in `null` are
        `stand_in`."""

    def member(self, name: str, rows: DecodedRows) -> Column | None:
        """Make the column of a member; None: no row has it."""

    def check_rows(self, rows: DecodedRows) -> None:
        """Make sure that `build` and `member` raise nothing; NotColumnar otherwise."""

    def alike(self, other: RowReader) -> bool:
        """Whether the structs of both have the same members in the same order, of the same
        types."""

    def row_values(self, values: Sequence[Any]) -> list[Any]:
        """The value of each row as the reference form makes it; what is false becomes None."""


class DecodedRows(LazyColumn):
    """Decoded structs, or what is false for a null; `check` them first."""

    def __init__(self, reader: RowReader, values: Sequence[Any]) -> None:
        self.reader = reader
        self.values = values
        self._members: dict[int, Sequence[Any]] = {}
        self._inside: dict[int, DecodedRows] = {}

    def check(self) -> DecodedRows:
        """Make sure that columns can be made.

        Raises:
            NotColumnar: A value has no place in a column beside the others.
        """
        self.reader.check_rows(self)
        return self

    @cached_property
    def null(self) -> pa.BooleanArray | None:
        """The rows that are null; None: no row is."""
        return None if all(self.values) else nulls(self.values)

    @cached_property
    def structs(self) -> Sequence[Any]:
        """The values with the reader's `stand_in` for null."""
        return (
            self.values
            if self.null is None
            else [value or self.reader.stand_in for value in self.values]
        )

    @cached_property
    def first(self) -> int | None:
        """The first row that is not null; None: there is none."""
        return next((place for place, value in enumerate(self.values) if value), None)

    def member_values(self, index: int) -> Sequence[Any]:
        """The values of a member, null where the struct is."""
        found = self._members.get(index)
        if found is None:
            found = self._members[index] = self.reader.getters[index](self.structs)
        return found

    def member_rows(self, index: int, reader: RowReader) -> DecodedRows:
        """The values of a member that holds structs."""
        found = self._inside.get(index)
        if found is None:
            found = self._inside[index] = DecodedRows(reader, self.member_values(index))
        return found

    def __len__(self) -> int:
        return len(self.values)

    def build(self) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
        return self.reader.build(self.structs, self.null)

    def row_values(self) -> list[Any]:
        return self.reader.row_values(self.values)

    def is_null(self) -> pa.BooleanArray | None:
        return self.null

    def member(self, name: str) -> Column | None:
        return self.reader.member(name, self)

    def where(self, mask: pa.BooleanArray) -> DecodedRows:
        import pyarrow.compute as pc

        values = self.values
        return DecodedRows(
            self.reader, [values[place] for place in pc.indices_nonzero(mask).to_pylist()]
        )

    def slice(self, start: int, stop: int) -> DecodedRows:
        return DecodedRows(self.reader, self.values[start:stop])

    def mixed(self, other: LazyColumn, is_other: pa.BooleanArray) -> DecodedRows | None:
        import pyarrow.compute as pc

        if not isinstance(other, DecodedRows) or not self.reader.alike(other.reader):
            return None
        values, others = list(self.values), other.values
        for place in pc.indices_nonzero(is_other).to_pylist():
            values[place] = others[place]
        return DecodedRows(self.reader, values).check()
