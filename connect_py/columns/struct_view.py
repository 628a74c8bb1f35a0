"""`StructView`: a struct whose values are read from columns, as they are asked for.

This module imports the standard library only; pyarrow comes in with the first value that is read.
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

# lists and dicts: code that holds one may write into it
_CHANGEABLE: Final = frozenset({Type.ARRAY, Type.MAP})


class StructRows:
    """The structs of a column, row by row, with the members that were read. Used on one thread.

    It knows whether its column still says what the structs say: they are *intact* until a plugin
    gets hold of a value that it can write into.
    """

    __slots__ = ("_inside", "_touched", "column", "members", "schema", "views")

    views: list[StructView | None]  # one for each row; None where it is null
    # by the index of the field: its value in each row; None: not read yet
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
        self._inside: list[StructRows] = []
        self._touched = False

    def read(self, index: int) -> Sequence[Value]:
        """Make the values of a field, null where the struct is."""
        from connect_py.columns import arrow

        field = self.schema.fields[index]
        column = self.column.member(field.name)
        if column is None:
            raise KeyError(field.name)
        kind = field.schema.type
        made: Sequence[Value]
        if kind is Type.STRUCT:
            inside = StructRows(field.schema, column)
            self._inside.append(inside)
            made = inside.views
        else:
            made = arrow.to_values(field.schema, column.data)
            self._touched = self._touched or kind in _CHANGEABLE
        self.members[index] = made
        return made

    def row(self, row: int) -> list[Value]:
        """The values of a row, in a new list."""
        return [(self.read(i) if m is None else m)[row] for i, m in enumerate(self.members)]

    def touch(self) -> None:
        """Note that a plugin may write into a struct from now on."""
        self._touched = True

    @property
    def intact(self) -> bool:
        """Whether the column still says what the structs say, deeply."""
        return not self._touched and all(inside.intact for inside in self._inside)

    def release(self) -> None:
        """Let go of the column; structs that a plugin keeps get values of their own. To be called
        once, last."""
        for view in emptied(self.views):
            view.make_whole()
        # after the structs around them were made whole: they hold the structs inside
        self.members.clear()
        for inside in self._inside:
            inside.release()


def emptied(things: list[Any]) -> list[Any]:
    """Empty a list, and return what of it lives on because others refer to it."""
    references = [ref(thing) for thing in things if thing is not None]
    things.clear()
    return [thing for reference in references if (thing := reference()) is not None]


class StructView(Struct):
    """A struct of a column. It is one like any other, and as any other it may be written into."""

    __slots__ = ("__weakref__", "_row", "_rows")

    _rows: StructRows | None  # None: it has values of its own
    _row: int

    def __init__(self, schema: Schema, values: Sequence[Value] | None = None) -> None:
        self._rows = None
        super().__init__(schema, values)

    @property
    def place(self) -> tuple[StructRows, int] | None:
        """Whose row this is, if it is still."""
        return None if self._rows is None else (self._rows, self._row)

    @property
    def values(self) -> list[Value]:
        """Values of its own, made now: the caller may write into the list."""
        if self._rows is not None:
            self._rows.touch()
            self.make_whole()
        own: list[Value] = _own(self)
        return own

    @values.setter
    def values(self, values: list[Value]) -> None:
        if self._rows is not None:
            self._rows.touch()
            self._rows = None
        _set_own(self, values)

    def shared_column(self, schema: Schema, values: Sequence[Struct | None]) -> pa.Array | None:
        import pyarrow as pa

        taken = rows_taken(schema, values)
        if taken is None:
            return None
        data = taken[0].column.data
        return (
            data
            if taken[1] == list(range(len(data)))
            else data.take(pa.array(taken[1], pa.int64()))
        )

    def make_whole(self) -> None:
        """Give it values of its own."""
        if self._rows is not None:
            _set_own(self, self._rows.row(self._row))
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
            return _own(self)[field.index]
        members = rows.members[field.index]
        return (rows.read(field.index) if members is None else members)[self._row]

    def read_values(self) -> list[Value]:
        own: list[Value] = _own(self) if self._rows is None else self._rows.row(self._row)
        return own

    def __reduce__(self) -> tuple[Any, ...]:
        return Struct, (self.schema, self.read_values())


def rows_taken(
    schema: Schema, values: Sequence[Struct | None]
) -> tuple[StructRows, list[int | None]] | None:
    """The structs and the row of each, where all are views of one column that still says the same;
    else None.

    The row of a null is None, or one that is null.
    """
    first = next((v for v in values if v is not None), None)
    if not isinstance(first, StructView) or first.place is None:
        return None
    rows = first.place[0]
    if not rows.intact or rows.schema != schema:
        return None
    if len(values) == len(rows.views) and all(map(is_, values, rows.views)):
        return rows, list(range(len(values)))
    taken: list[int | None] = []
    for value in values:
        if value is None:
            taken.append(None)
            continue
        place = value.place if isinstance(value, StructView) else None
        if place is None or place[0] is not rows:
            return None
        taken.append(place[1])
    return rows, taken


_own: Final = vars(Struct)["values"].__get__  # the slot below the property
_set_own: Final = vars(Struct)["values"].__set__


def _views(schema: Schema, rows: StructRows, count: int) -> Iterator[StructView]:
    new = StructView.__new__
    for row in range(count):
        view = new(StructView)
        view.schema = schema
        view._rows = rows
        view._row = row
        yield view
