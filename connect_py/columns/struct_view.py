"""Structs whose values are read from columns on access.

This module imports only the standard library. pyarrow is imported when the first value is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from connect_py.api.schema import Field, Schema, Struct, Type, Value

if TYPE_CHECKING:
    import pyarrow as pa

    from connect_py.api.batch import Column

# types whose values are lists and dicts, which plugins may modify
_MUTABLE: Final = frozenset({Type.ARRAY, Type.MAP})


class StructRows:
    """The structs in a column, and a cache of the members that have been read. Not thread-safe.

    The structs are *intact*, which means equal to the column, until a plugin obtains a value that
    it can modify.
    """

    __slots__ = ("_nested", "_touched", "column", "members", "schema", "views")

    views: list[StructView | None]  # one per row; None for a null row
    # values of all rows, by field index; None until they are read
    members: list[Sequence[Value] | None]

    def __init__(self, schema: Schema, column: Column) -> None:
        self.schema = schema
        self.column = column
        self.members = [None] * len(schema.fields)
        self.views = list(_views(schema, self, len(column)))
        null = column.is_null()
        if null is not None:
            for row, is_null in enumerate(null.to_pylist()):
                if is_null:
                    self.views[row] = None
        self._nested: list[StructRows] = []
        self._touched = False

    def read(self, index: int) -> Sequence[Value]:
        """Return the values of a field. They are null where the struct is null."""
        from connect_py.columns import arrow

        field = self.schema.fields[index]
        column = self.column.member(field.name)
        if column is None:
            raise KeyError(field.name)
        kind = field.schema.type
        values: Sequence[Value]
        if kind is Type.STRUCT:
            nested = StructRows(field.schema, column)
            self._nested.append(nested)
            values = nested.views
        else:
            values = arrow.to_values(field.schema, column.data)
            self._touched = self._touched or kind in _MUTABLE
        self.members[index] = values
        return values

    def row(self, row: int) -> list[Value]:
        """Return the values of a row in a new list."""
        return [(self.read(i) if m is None else m)[row] for i, m in enumerate(self.members)]

    def touch(self) -> None:
        """Record that a plugin may modify a struct."""
        self._touched = True

    @property
    def intact(self) -> bool:
        """Return True if the column still equals the structs, including nested structs."""
        return not self._touched and all(nested.intact for nested in self._nested)

    def release(self) -> None:
        """Release the column. Structs that are still referenced get their own values.

        Called once, after all other methods.
        """
        for view in emptied(self.views):
            view.make_whole()
        # release nested structs last, because the values of the outer structs refer to them
        self.members.clear()
        for nested in self._nested:
            nested.release()


def emptied(items: list[Any]) -> list[Any]:
    """Clear a list and return the items that are still referenced elsewhere."""
    references = [ref(item) for item in items if item is not None]
    items.clear()
    return [item for reference in references if (item := reference()) is not None]


class StructView(Struct):
    """A struct whose values are read from a row of a column. It can be modified like any struct."""

    __slots__ = ("__weakref__", "_row", "_rows")

    _rows: StructRows | None  # None if the struct has its own values
    _row: int

    def __init__(self, schema: Schema, values: Sequence[Value] | None = None) -> None:
        self._rows = None
        super().__init__(schema, values)

    @property
    def source(self) -> tuple[StructRows, int] | None:
        """Return the column and the row, or None if the struct has its own values."""
        return None if self._rows is None else (self._rows, self._row)

    @property
    def values(self) -> list[Value]:
        """Return the struct's own list of values, which the caller may modify."""
        if self._rows is not None:
            self._rows.touch()
            self.make_whole()
        values: list[Value] = _own_values(self)
        return values

    @values.setter
    def values(self, values: list[Value]) -> None:
        if self._rows is not None:
            self._rows.touch()
            self._rows = None
        _set_own_values(self, values)

    def shared_column(self, schema: Schema, values: Sequence[Struct | None]) -> pa.Array | None:
        import pyarrow as pa

        shared = shared_rows(schema, values)
        if shared is None:
            return None
        structs, rows = shared
        data = structs.column.data
        return data if rows == list(range(len(data))) else data.take(pa.array(rows, pa.int64()))

    def make_whole(self) -> None:
        """Read all values and release the column."""
        if self._rows is not None:
            _set_own_values(self, self._rows.row(self._row))
            self._rows = None

    def get(self, name: str) -> Value:
        field = self._field(name)
        value = self._at(field)
        return field.schema.default if value is None else value

    __getitem__ = get

    def get_without_default(self, name: str) -> Value:
        return self._at(self._field(name))

    def _at(self, field: Field) -> Value:
        rows = self._rows
        if rows is None:
            return _own_values(self)[field.index]
        members = rows.members[field.index]
        return (rows.read(field.index) if members is None else members)[self._row]

    def read_values(self) -> list[Value]:
        values: list[Value] = _own_values(self) if self._rows is None else self._rows.row(self._row)
        return values

    def __reduce__(self) -> tuple[Any, ...]:
        return Struct, (self.schema, self.read_values())


def shared_rows(
    schema: Schema, values: Sequence[Struct | None]
) -> tuple[StructRows, list[int | None]] | None:
    """Return the column that the structs share, and each struct's row in the column, or None.

    The result is None if the structs do not share a column or the column is not intact. For a null
    value, the row is either None or the index of a null row.
    """
    first = next((v for v in values if v is not None), None)
    if not isinstance(first, StructView) or first.source is None:
        return None
    rows = first.source[0]
    if not rows.intact or rows.schema != schema:
        return None
    if len(values) == len(rows.views) and all(map(is_, values, rows.views)):
        return rows, list(range(len(values)))
    result: list[int | None] = []
    for value in values:
        if value is None:
            result.append(None)
            continue
        source = value.source if isinstance(value, StructView) else None
        if source is None or source[0] is not rows:
            return None
        result.append(source[1])
    return rows, result


# accessors for the base class slot that the `values` property hides
_own_values: Final = vars(Struct)["values"].__get__
_set_own_values: Final = vars(Struct)["values"].__set__


def _views(schema: Schema, rows: StructRows, count: int) -> Iterator[StructView]:
    new = StructView.__new__
    for row in range(count):
        view = new(StructView)
        view.schema = schema
        view._rows = rows
        view._row = row
        yield view
