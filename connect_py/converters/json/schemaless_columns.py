"""Columnar form of JsonConverter with `schemas.enable=false`.

A `Shape` describes the members of the objects in a topic and the kind of each value. The native
decoder decodes messages that match the shape. Other messages are *odd*. The row form of the
converter, which converts one message at a time, parses them, and the shape is extended if they
contain new members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connect_py.api.batch import Column, LazyColumn, Path
from connect_py.api.converter import ColumnRun
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import MAX_NESTING, Value
from connect_py.converters.column_runs import column_of_rows, column_runs, replace_rows
from connect_py.converters.json.json_text import read_json
from connect_py.converters.native.decoder import Decoded, Kind, NativeDecoder, Node

if TYPE_CHECKING:
    import pyarrow as pa

# maximum per run; each extension may include twice as many messages as the previous extension
MAX_EXTENSIONS: Final = 12
MAX_SHAPE_DEPTH: Final = 50
MAX_SHAPE_MEMBERS: Final = 5_000
MIN_ROWS_PER_CUT: Final = 100

_FIRST_WINDOW: Final = 64  # messages
_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1


class ShapeKind(Enum):
    """Kind of a value in all previous messages, ignoring nulls."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"  # integers or other numbers, but not both in one run
    STRING = "string"
    LIST = "list"
    OBJECT = "object"


_PYTHON_KINDS: Final[Mapping[type, ShapeKind]] = {
    bool: ShapeKind.BOOLEAN,
    int: ShapeKind.INTEGER,
    float: ShapeKind.NUMBER,
    str: ShapeKind.STRING,
    list: ShapeKind.LIST,
    dict: ShapeKind.OBJECT,
}
_COMMON_KINDS: Final[Mapping[tuple[ShapeKind, ShapeKind], ShapeKind]] = {
    **{(kind, kind): kind for kind in ShapeKind},
    **{(ShapeKind.NULL, kind): kind for kind in ShapeKind},
    (ShapeKind.INTEGER, ShapeKind.NUMBER): ShapeKind.NUMBER,
    (ShapeKind.NUMBER, ShapeKind.INTEGER): ShapeKind.NUMBER,
}
_NATIVE_KINDS: Final[Mapping[ShapeKind, Kind]] = {
    ShapeKind.NULL: Kind.NULL,
    ShapeKind.BOOLEAN: Kind.BOOLEAN,
    ShapeKind.INTEGER: Kind.INT64,
    ShapeKind.NUMBER: Kind.NUMBER,
    ShapeKind.STRING: Kind.TEXT,
    ShapeKind.LIST: Kind.LIST,
    ShapeKind.OBJECT: Kind.OBJECT,
}


class Shape:
    """Shape of a JSON value. Immutable."""

    __slots__ = ("items", "kind", "members")

    def __init__(
        self,
        kind: ShapeKind = ShapeKind.NULL,
        items: Shape | None = None,
        members: Mapping[str, Shape] | None = None,
    ) -> None:
        """Create a shape. A LIST has `items`, and an OBJECT has `members`."""
        self.kind = kind
        self.items = items
        self.members: Mapping[str, Shape] = members or {}

    def extended(self, value: Any, depth: int = 0) -> Shape:
        """Return this shape extended with another value of parsed JSON.

        Return this object if it already includes the value.

        Raises:
            NotColumnar: A value has a different kind or is nested too deeply.
        """
        if value is None:
            return self
        value_kind = _PYTHON_KINDS[type(value)]
        kind = _COMMON_KINDS.get((self.kind, value_kind))
        if kind is None:
            raise NotColumnar(f"{self.kind.value} changes to {value_kind.value}")
        items, members = self.items, self.members
        if value_kind in (ShapeKind.OBJECT, ShapeKind.LIST) and depth > MAX_SHAPE_DEPTH:
            raise NotColumnar(f"{value_kind.value}s are nested too deeply")
        if value_kind is ShapeKind.LIST:
            items = _NULL_SHAPE if items is None else items
            for item in value:
                items = items.extended(item, depth + 1)
        elif value_kind is ShapeKind.OBJECT:
            new_members = {}
            for name, member_value in value.items():
                member = members.get(name)
                new_member = (member or _NULL_SHAPE).extended(member_value, depth + 1)
                if new_member is not member:
                    new_members[name] = new_member
            if new_members:
                members = {**members, **new_members}
        if kind is self.kind and items is self.items and members is self.members:
            return self
        return Shape(kind, items, members)

    def size(self) -> int:
        """Return the number of members at all levels."""
        nested = sum(1 + member.size() for member in self.members.values())
        return nested + (0 if self.items is None else self.items.size())

    def node(self, name: str = "") -> Node:
        """Return the native decoder's plan for this shape."""
        children = [shape.node(member) for member, shape in self.members.items()]
        if self.kind is ShapeKind.LIST:
            children = [(self.items or _NULL_SHAPE).node()]
        kind = _NATIVE_KINDS[self.kind]
        return Node(kind, name, low=_LOWEST, high=_HIGHEST, children=children)


_NULL_SHAPE: Final = Shape()


class SchemalessColumns:
    """Converts messages from one topic to columns. Retains their shape between calls."""

    def __init__(self) -> None:
        """Start with the shape of a null value."""
        self._shape = _NULL_SHAPE
        self._decoder = _decoder(_NULL_SHAPE)

    def read(self, data: Sequence[bytes | None]) -> list[ColumnRun]:
        """Convert messages to runs. A run ends where the kind of a member changes.

        Raises:
            NotColumnar: Kinds change too often, or columns cannot represent a value.
        """
        return column_runs(
            len(data),
            lambda start: self._run(data, start),
            MIN_ROWS_PER_CUT,
            "members change their kind",
        )

    def _run(self, data: Sequence[bytes | None], start: int) -> ColumnRun:
        """Return the run that starts at a message.

        After a kind changes, another change may follow soon. Therefore, the messages are decoded in
        windows of increasing size until a window contains a change.
        """
        window = _FIRST_WINDOW if start else len(data)
        while True:
            run = self._run_in_window(data[start : start + window] if start else data, start)
            if run.stop < start + window or run.stop == len(data):
                return run
            window *= 2

    def _run_in_window(self, messages: Sequence[bytes | None], start: int) -> ColumnRun:
        rows = _OddRows(messages)
        for extension in range(MAX_EXTENSIONS):
            if self._decoder is None:
                return _run_of_rows(messages, start)
            decoded, odd = self._decoder.read_json(messages)
            shape = rows.extended_shape(self._shape, odd, 1 << extension)
            if rows.end is not None:  # a row has a different kind
                if rows.end:
                    messages = messages[: rows.end]
                    rows = _OddRows(messages)
                    continue
                shape = _NULL_SHAPE.extended(rows.value(0))
                rows = _OddRows(messages)
            if shape is self._shape:
                return rows.column_run(start, decoded, odd)
            self._use(shape)
        raise NotColumnar("messages contain new members too often")

    def _use(self, shape: Shape) -> None:
        if shape.size() > MAX_SHAPE_MEMBERS:
            self._use(_NULL_SHAPE)
            raise NotColumnar(f"objects have more than {MAX_SHAPE_MEMBERS} different members")
        self._shape, self._decoder = shape, _decoder(shape)


def _decoder(shape: Shape) -> NativeDecoder | None:
    try:
        return NativeDecoder(shape.node())
    except NotColumnar:
        return None


class _OddRows:
    """Odd messages of one run, parsed by the row form."""

    def __init__(self, messages: Sequence[bytes | None]) -> None:
        self.end: int | None = None  # first row with a different kind
        self._messages = messages
        self._results: dict[int, Value | DataError] = {}

    def value(self, row: int) -> Value:
        """Return the value of a row, or the error if the message is invalid."""
        if row not in self._results:
            try:
                self._results[row] = read_json(self._messages[row] or b"", levels=MAX_NESTING)
            except DataError as error:
                self._results[row] = error
        return self._results[row]

    def extended_shape(self, shape: Shape, odd: Sequence[int], limit: int) -> Shape:
        """Return the shape extended with up to `limit` odd rows.

        Stop at a row with a different kind. If the shape has not been extended, set `end` to this
        row.
        """
        extensions = 0
        for row in odd:
            value = self.value(row)
            if isinstance(value, DataError):
                continue
            try:
                extended = shape.extended(value)
            except NotColumnar:
                if not extensions:
                    self.end = row
                return shape
            if extended is not shape:
                shape = extended
                extensions += 1
                if extensions == limit:
                    return shape
        return shape

    def column_run(self, start: int, decoded: Decoded, odd: Sequence[int]) -> ColumnRun:
        """Create the run from the decoded rows and the values of the odd rows.

        Raises:
            NotColumnar: Integers and other numbers are mixed, or the items of a list have different
                members.
        """
        failures: dict[int, DataError] = {}
        values: dict[int, Value] = {}
        for row in odd:
            value = self.value(row)
            if isinstance(value, DataError):
                failures[row] = value
            else:
                values[row] = value
        decoded_absent: dict[Path, pa.BooleanArray] = {}
        decoded_data = _array(decoded, (), decoded_absent)
        data, absent = replace_rows(None, decoded_data, values, decoded_absent)
        present = {row for row, value in values.items() if value is not None}
        tombstone = decoded.nulls_except(present | failures.keys())
        column = Column(None, data, tombstone, absent)
        if decoded.is_object and not values:
            texts = self._messages
            if failures:
                texts = [None if row in failures else m for row, m in enumerate(texts)]
            column = Column(None, _ParsedRows(Column(None, data, None, absent), texts), tombstone)
        stop = start + len(self._messages)
        return ColumnRun(start, stop, column, {start + row: e for row, e in failures.items()})


def _run_of_rows(messages: Sequence[bytes | None], start: int) -> ColumnRun:
    """Convert messages with the row form, and return their run."""
    import pyarrow as pa

    rows = _OddRows(messages)
    results = [None if m is None else rows.value(row) for row, m in enumerate(messages)]
    failures = {row: value for row, value in enumerate(results) if isinstance(value, DataError)}
    data, absent = column_of_rows(
        None, [None if row in failures else v for row, v in enumerate(results)]
    )
    null = [value is None for value in results]
    tombstone = pa.array(null, pa.bool_()) if any(null) else None
    return ColumnRun(
        start,
        start + len(messages),
        Column(None, data, tombstone, absent),
        {start + row: error for row, error in failures.items()},
    )


def _array(decoded: Decoded, path: Path, absent: dict[Path, pa.BooleanArray]) -> pa.Array:
    """Return the Arrow array for the value at `path`. Add masks of missing members to `absent`."""
    import pyarrow as pa

    from connect_py.columns import arrow

    kind = decoded.node.kind
    if kind is Kind.LIST:
        absent_in_items: dict[Path, pa.BooleanArray] = {}
        items = _array(decoded.children[0], (*path, arrow.ELEMENT), absent_in_items)
        if absent_in_items:
            raise NotColumnar(f"items of the list {'.'.join(path)} have different members")
        return decoded.list_of(items)
    if kind is Kind.NUMBER and decoded.mixes_numbers:
        raise NotColumnar(f"{'.'.join(path)} mixes integers and other numbers")
    if kind is not Kind.OBJECT:
        return decoded.array()
    if decoded.null_count == decoded.rows:
        return pa.nulls(decoded.rows)
    names, members = [], []
    for child in decoded.children:
        if child.absent_count == decoded.rows - decoded.null_count:
            continue  # the member exists only in other messages
        member_path = (*path, child.node.name)
        missing = child.absent
        if missing is not None:
            absent[member_path] = missing
        names.append(child.node.name)
        members.append(_array(child, member_path, absent))
    return decoded.structs(names, members)


_parse: Final = msgspec.json.Decoder().decode


class _ParsedRows(LazyColumn):
    """Column whose row values are parsed from the messages. This is faster than reading Arrow.

    The native decoder has accepted all messages. For such messages, msgspec returns the same values
    as the row form.
    """

    def __init__(
        self,
        column: Column,
        messages: Sequence[bytes | None],
        indexes: pa.Int64Array | None = None,
    ) -> None:
        """Combine a column with its messages.

        Args:
            column: The column.
            messages: Messages for all rows, and possibly additional messages.
            indexes: Index of each row's message. None if the messages are in row order.
        """
        self._column = column
        self._messages = messages
        self._indexes = indexes

    def __len__(self) -> int:
        return len(self._column)

    def build(self) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
        return self._column.data, self._column.absent

    def is_null(self) -> pa.BooleanArray | None:
        return self._column.is_null()

    def member(self, name: str) -> Column | None:
        return self._column.member(name)

    def where(self, mask: pa.BooleanArray) -> _ParsedRows:
        indexes = self._all_indexes().filter(mask)
        return _ParsedRows(self._column.where(mask), self._messages, indexes)

    def slice(self, start: int, stop: int) -> _ParsedRows:
        indexes = self._all_indexes().slice(start, stop - start)
        return _ParsedRows(self._column.slice(start, stop), self._messages, indexes)

    def _all_indexes(self) -> pa.Int64Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._indexes is not None:
            return self._indexes
        return pc.indices_nonzero(pa.repeat(True, len(self._messages)))

    def row_values(self) -> list[Value]:
        messages = self._messages
        if self._indexes is not None:
            messages = [messages[index] for index in self._indexes.to_pylist()]
        return [None if message is None else _parse(message) for message in messages]
