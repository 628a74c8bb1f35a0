"""Schemaless JSON to columns: msgspec structs made from the shape that messages were seen to have.

A `Shape` says which members objects have and what kind of value each holds. Messages of that shape
are decoded by msgspec into structs of exactly these members: an unknown member or another kind of
value is an error there, never a silent loss, and makes the shape wider. Structs keep missing
members apart from null members.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import chain, repeat
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from connect_py.api.batch import Column, Path
from connect_py.api.errors import NotColumnar
from connect_py.converters.decoded_columns import (
    DecodedRows,
    RowReader,
    member_getters,
    nulls,
    repeated_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

MAX_SHAPE_DEPTH = 50
MAX_SHAPE_MEMBERS = 5_000
# others are wrapped by the reference
_LONG = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Kind(Enum):
    """What a member holds in every message seen so far, nulls aside."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"  # integers or others; one message sequence has either or is not columnar
    STRING = "string"
    LIST = "list"
    OBJECT = "object"


class Shape:
    """The shape of a JSON value. Widened in place by `widen`."""

    __slots__ = ("items", "kind", "members")

    def __init__(self, kind: Kind = Kind.NULL) -> None:
        self.kind = kind
        self.items: Shape | None = None  # LIST
        self.members: dict[str, Shape] = {}  # OBJECT

    def widen(self, value: Any, depth: int = 0) -> bool:
        """Make this shape cover `value` (None, bool, int, float, str, list, dict); return whether
        it changed.

        Raises:
            NotColumnar: `value` holds another kind somewhere, or nests too deep.
        """
        if value is None:
            return False
        found = _KINDS[type(value)]
        changed = False
        if found is not self.kind:
            merged = _MERGED.get((self.kind, found))
            if merged is None:
                raise NotColumnar(f"{self.kind.value} changes to {found.value}")
            changed = merged is not self.kind
            self.kind = merged
        if found is Kind.OBJECT:
            if depth > MAX_SHAPE_DEPTH:
                raise NotColumnar("objects nest too deep")
            for name, member in value.items():
                shape = self.members.get(name)
                if shape is None:
                    shape = self.members[name] = Shape()
                    changed = True
                changed |= shape.widen(member, depth + 1)
        elif found is Kind.LIST:
            if depth > MAX_SHAPE_DEPTH:
                raise NotColumnar("lists nest too deep")
            if self.items is None:
                self.items = Shape()
                changed = True
            for item in value:
                changed |= self.items.widen(item, depth + 1)
        return changed

    def size(self) -> int:
        """Count members, at all depths."""
        inside = sum(1 + m.size() for m in self.members.values())
        return inside + (0 if self.items is None else self.items.size())

    def compile(self) -> Reader:
        """Make the reader of messages of this shape.

        Raises:
            NotColumnar: Too many members, or one whose name msgspec cannot carry.
        """
        if self.size() > MAX_SHAPE_MEMBERS:
            raise NotColumnar(f"objects have more than {MAX_SHAPE_MEMBERS} different members")
        return _compile(self, {})


_KINDS: Mapping[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.INTEGER,
    float: Kind.NUMBER,
    str: Kind.STRING,
    list: Kind.LIST,
    dict: Kind.OBJECT,
}
_MERGED: Mapping[tuple[Kind, Kind], Kind] = {
    **{(Kind.NULL, kind): kind for kind in Kind},
    (Kind.INTEGER, Kind.NUMBER): Kind.NUMBER,
    (Kind.NUMBER, Kind.INTEGER): Kind.NUMBER,
}


class Reader:
    """Decodes one kind of value and makes a column of the decoded ones."""

    type: Any  # what msgspec decodes, null allowed
    fallible = False  # whether `check` can raise
    signature: object  # equal for readers of equal shapes

    def __init__(self) -> None:
        self.signature = type(self)

    def check(self, values: Sequence[Any], path: Path) -> None:
        """Make sure that a column can be made of decoded values.

        Raises: NotColumnar: Integers and other numbers are mixed, or items of a list differ in
            their members.
        """

    def column(self, values: Sequence[Any], path: Path, absent: dict[Path, pa.Array]) -> pa.Array:
        """Make a column of decoded values; rows where a member is missing go to `absent`. Errors as
        for `check`."""
        import pyarrow as pa

        try:
            return self._array(values, path)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            missing = _missing(values)
            if not any(missing):
                raise
        absent[path] = pa.array(missing, pa.bool_())
        return self._array([None if v is UNSET else v for v in values], path)

    def member_column(
        self,
        values: Sequence[Any],
        path: Path,
        absent: dict[Path, pa.Array],
        null: pa.BooleanArray | None,
    ) -> pa.Array:
        """The same for a member of structs, of which `null` marks those that are null."""
        return self.column(values, path, absent)

    def _array(self, values: Sequence[Any], path: Path) -> pa.Array:
        """Make a column of values that are all there."""
        raise NotImplementedError


def _missing(values: Sequence[Any]) -> list[bool]:
    return list(map(operator.is_, values, repeat(UNSET)))


def _missing_mask(values: Sequence[Any]) -> pa.BooleanArray | None:
    import pyarrow as pa

    missing = _missing(values)
    return pa.array(missing, pa.bool_()) if any(missing) else None


class _NullReader(Reader):
    type = None

    def _array(self, values: Sequence[Any], path: Path) -> pa.Array:
        import pyarrow as pa

        return pa.array(values, pa.null())


class _BooleanReader(Reader):
    type = bool | None

    def _array(self, values: Sequence[Any], path: Path) -> pa.Array:
        import pyarrow as pa

        return pa.array(values, pa.bool_())


class _StringReader(Reader):
    type = str | None

    def _array(self, values: Sequence[Any], path: Path) -> pa.Array:
        import pyarrow as pa

        return pa.array(values, pa.string())

    def member_column(
        self,
        values: Sequence[Any],
        path: Path,
        absent: dict[Path, pa.Array],
        null: pa.BooleanArray | None,
    ) -> pa.Array:
        column = repeated_text(values, null)
        return self.column(values, path, absent) if column is None else column


class _IntegerReader(Reader):
    type = _LONG | None

    def _array(self, values: Sequence[Any], path: Path) -> pa.Array:
        import pyarrow as pa

        return pa.array(values, pa.int64())


class _NumberReader(Reader):
    type = _LONG | float | None
    fallible = True

    def check(self, values: Sequence[Any], path: Path) -> None:
        kinds = set(map(type, values))
        if int in kinds and float in kinds:  # Arrow would cut 2.5 to 2 without a word
            raise NotColumnar(f"{'.'.join(path)} mixes integers and other numbers")

    def _array(self, values: Sequence[Any], path: Path) -> pa.Array:
        import pyarrow as pa

        self.check(values, path)
        kind = pa.int64() if int in map(type, values) else pa.float64()
        return pa.array(values, kind)


class _ListReader(Reader):
    def __init__(self, items: Reader) -> None:
        self._items = items
        self.signature = ("list", items.signature)
        self.type = list[items.type] | None  # type: ignore[name-defined] # a type made at run time
        self.fallible = items.fallible or isinstance(items, _ListReader | _ObjectReader)

    def check(self, values: Sequence[Any], path: Path) -> None:
        if self.fallible:
            self.column(values, path, {})

    def _array(self, values: Sequence[Any], path: Path) -> pa.Array:
        import pyarrow as pa

        from connect_py.columns import arrow

        missing = _missing(values)
        if any(missing):
            raise pa.ArrowInvalid("members are missing")
        inside: dict[Path, pa.Array] = {}
        items = list(chain.from_iterable(filter(None, values)))
        column = self._items.column(items, (*path, arrow.ELEMENT), inside)
        if inside:
            raise NotColumnar(f"items of the list {'.'.join(path)} differ in their members")
        return arrow.list_array([None if v is None else len(v) for v in values], column)


class _ObjectReader(Reader):
    def __init__(self, names: Sequence[str], members: Sequence[Reader]) -> None:
        self._names = names
        self._members = members
        fields = [(f"f{i}", m.type | UnsetType, UNSET) for i, m in enumerate(members)]
        try:
            self._class = msgspec.defstruct(
                "Object",
                fields,
                rename={f"f{i}": n for i, n in enumerate(names)},
                forbid_unknown_fields=True,
                gc=False,
            )
        except ValueError as error:
            raise NotColumnar(f"a member's name: {error}") from error
        self.signature = self.signature_of(names, members)
        self.stand_in = self._class(*[None] * len(fields))  # for a null while columns are made
        self.getters = member_getters(len(fields))
        self.type = self._class | None
        self.fallible = any(m.fallible for m in members)

    @staticmethod
    def signature_of(names: Sequence[str], members: Sequence[Reader]) -> object:
        """See `Reader.signature`."""
        return ("object", *names, *(m.signature for m in members))

    def check(self, values: Sequence[Any], path: Path) -> None:
        if self.fallible:
            self.check_rows(DecodedRows(self, values))

    def check_rows(self, rows: DecodedRows) -> None:
        """See `RowReader`."""
        for index, reader in enumerate(self._members):
            if isinstance(reader, _ObjectReader):
                if reader.fallible:
                    reader.check_rows(rows.member_rows(index, reader))
            elif reader.fallible:
                reader.check(rows.member_values(index), (self._names[index],))

    def alike(self, other: RowReader) -> bool:
        """See `RowReader`."""
        return self is other

    def row_values(self, values: Sequence[Any]) -> list[Any]:
        """See `RowReader`."""
        return msgspec.to_builtins([value or None for value in values])  # type: ignore[no-any-return] # as its argument

    def build(
        self, rows: Sequence[Any], null: pa.BooleanArray | None
    ) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
        """See `RowReader`."""
        absent: dict[Path, pa.Array] = {}
        if null is None or 2 * null.true_count < len(rows):
            return self._structs(rows, (), absent, null), absent
        column = self.column([None if row is self.stand_in else row for row in rows], (), absent)
        return column, absent

    def member(self, name: str, rows: DecodedRows) -> Column | None:
        """See `RowReader`."""
        if name not in self._names:
            return None
        index = self._names.index(name)
        values, null, first = rows.member_values(index), rows.null, rows.first
        if first is None:
            return None
        there = len(rows) - (0 if null is None else null.true_count)
        if values[first] is UNSET and sum(_missing(values)) == there:
            return None  # other messages had this member; none of these has
        reader = self._members[index]
        if isinstance(reader, _ObjectReader):
            inside = rows.member_rows(index, reader)
            return Column(
                None, inside, missing=None if inside.null is None else _missing_mask(values)
            )
        absent: dict[Path, pa.Array] = {}
        column = reader.member_column(values, (), absent, null)
        missing = absent.pop((), None)
        return Column(None, column, None, absent, missing=missing)

    def column(self, values: Sequence[Any], path: Path, absent: dict[Path, pa.Array]) -> pa.Array:
        import pyarrow as pa

        from connect_py.columns import arrow

        rows = list(filter(None, values))  # structs are true, None and UNSET are not
        if len(rows) == len(values):
            return self._structs(rows, path, absent) if rows else pa.nulls(0)
        there = list(map(operator.truth, values))
        missing = _missing_mask(values)
        if missing is not None:
            absent[path] = missing
        if not rows:
            return pa.nulls(len(values))
        inside: dict[Path, pa.Array] = {}
        # few nulls: cheaper to carry them along than to spread the others
        if 2 * len(rows) > len(values):
            rows = [v or self.stand_in for v in values]
            return self._structs(rows, path, absent, nulls(values))
        compact = self._structs(rows, path, inside)
        spread = arrow.spread_indices(there)
        for member, mask in inside.items():
            absent[member] = mask.take(spread).fill_null(False)
        return compact.take(spread)

    def _structs(
        self,
        rows: Sequence[Any],
        path: Path,
        absent: dict[Path, pa.Array],
        null: pa.BooleanArray | None = None,
    ) -> pa.Array:
        import pyarrow as pa

        names, children = [], []
        there = len(rows) - (0 if null is None else null.true_count)
        for name, reader, get in zip(self._names, self._members, self.getters, strict=True):
            member = (*path, name)
            values = get(rows)
            inside: dict[Path, pa.Array] = {}
            child = reader.member_column(values, member, inside, null)
            mask = inside.get(member)
            if mask is not None and mask.true_count == there:
                continue  # other messages had this member; none of these has
            absent.update(inside)
            names.append(name)
            children.append(child)
        if not children:
            return pa.array(
                [{}] * len(rows) if null is None else [None if n else {} for n in null.to_pylist()],
                pa.struct([]),
            )
        return pa.StructArray.from_arrays(children, names=names, mask=null)


def column_of(reader: Reader, rows: Sequence[Any], tombstone: pa.BooleanArray | None) -> Column:
    """Make the column of decoded messages, of which `tombstone` marks the null ones; objects stay
    unbuilt.

    Raises: NotColumnar: Integers and other numbers are mixed, or items of a list differ in their
        members.
    """
    if isinstance(reader, _ObjectReader):
        return Column(None, DecodedRows(reader, rows).check(), tombstone)
    absent: dict[Path, pa.Array] = {}
    return Column(None, reader.column(rows, (), absent), tombstone, absent)


def _compile(shape: Shape, known: dict[object, _ObjectReader]) -> Reader:
    """Make a reader; objects of equal shapes share one, as what is decoded can be mixed then."""
    if shape.kind is Kind.OBJECT:
        members = [_compile(m, known) for m in shape.members.values()]
        signature = _ObjectReader.signature_of(list(shape.members), members)
        if signature not in known:
            known[signature] = _ObjectReader(list(shape.members), members)
        return known[signature]
    if shape.kind is Kind.LIST:
        return _ListReader(_compile(shape.items or Shape(), known))
    return _SCALARS[shape.kind]


_SCALARS: Mapping[Kind, Reader] = {
    Kind.NULL: _NullReader(),
    Kind.BOOLEAN: _BooleanReader(),
    Kind.INTEGER: _IntegerReader(),
    Kind.NUMBER: _NumberReader(),
    Kind.STRING: _StringReader(),
}
