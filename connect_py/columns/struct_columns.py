"""Functions that read members of struct columns and combine rows from two columns.

Import this module only on first use, because it imports pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.errors import NotColumnar

_Path: TypeAlias = tuple[str, ...]


def child(data: pa.StructArray, index: int) -> pa.Array:
    """Return a child of a struct column, sliced like its parent.

    Unlike `struct_member`, this function does not make the child null where the parent is null.
    """
    return data.field(index)


def is_struct(data: pa.Array) -> bool:
    """Return True if the column contains structs."""
    return bool(pa.types.is_struct(data.type))


def struct_member(data: pa.Array, name: str) -> pa.Array | None:
    """Return a member of a struct column. The result is null where the struct is null.

    Return None if there is no such member or the column does not contain structs.
    """
    index = data.type.get_field_index(name) if pa.types.is_struct(data.type) else -1
    if index < 0:
        return None
    return pc.struct_field(data, [index]) if data.null_count else data.field(index)


def mixed(
    column: tuple[pa.Array, Mapping[_Path, pa.BooleanArray]],
    replacements: tuple[pa.Array, Mapping[_Path, pa.BooleanArray]],
    is_other: pa.BooleanArray,
    selection: pa.BooleanArray | None,
) -> tuple[pa.Array, dict[_Path, pa.BooleanArray]]:
    """Replace rows of a column. See `Column.mixed`.

    Args:
        column: Data and `Column.absent` masks of the column.
        replacements: Data and `Column.absent` masks of the replacements.
        is_other: Mask of the rows to replace.
        selection: Mask of the rows to return, or None to return all rows.
    """
    indexes = pc.indices_nonzero(pa.repeat(True, len(is_other)))
    rank = pc.cumulative_sum(is_other.cast(pa.uint64()))
    last = pa.scalar(len(is_other) - 1, pa.uint64())
    indexes = pc.if_else(is_other, pc.add(rank, last), indexes)
    if selection is not None:
        indexes = indexes.filter(selection)

    def pick(rows: pa.Array, other_rows: pa.Array) -> pa.Array:
        return pa.concat_arrays([rows, other_rows]).take(indexes)

    absent = {}
    for path in {*column[1], *replacements[1], *_missing(column[0], replacements[0])}:
        mask = pick(_absence(*column, path), _absence(*replacements, path))
        if mask.true_count:
            absent[path] = mask
    return pick(*_unified(column[0], replacements[0])), absent


def _missing(first: pa.Array, second: pa.Array, at: _Path = ()) -> Iterator[_Path]:
    """Yield the paths of the members that exist in only one of two schemaless columns."""
    if not (is_struct(first) and is_struct(second)) or first.type == second.type:
        return
    names = [{field.name for field in data.type} for data in (first, second)]
    yield from ((*at, name) for name in names[0] ^ names[1])
    for name in names[0] & names[1]:
        yield from _missing(first.field(name), second.field(name), (*at, name))


def _absence(
    data: pa.Array, absent: Mapping[_Path, pa.BooleanArray], path: _Path
) -> pa.BooleanArray:
    mask = absent.get(path)
    return pa.repeat(not _has(data.type, path), len(data)) if mask is None else mask


def _has(kind: pa.DataType, path: _Path) -> bool:
    """Return True if this type has the member, or if the path to it crosses a non-struct type."""
    for name in path:
        if not pa.types.is_struct(kind):
            return True
        index = kind.get_field_index(name)
        if index < 0:
            return False
        kind = kind.field(index).type
    return True


def _unified(first: pa.Array, second: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Convert two columns to a common type.

    A null column gets the type of the other column. Structs get the members of both columns.

    Raises:
        NotColumnar: There is no common type.
    """
    if first.type == second.type:
        return first, second
    if pa.types.is_null(first.type):
        return pa.nulls(len(first), second.type), second
    if pa.types.is_null(second.type):
        return first, pa.nulls(len(second), first.type)
    if not (is_struct(first) and is_struct(second)):
        raise NotColumnar(f"a member has the types {first.type} and {second.type}")
    names = list(dict.fromkeys(field.name for data in (first, second) for field in data.type))
    pairs = [_unified(_or_nulls(first, name), _or_nulls(second, name)) for name in names]
    first_structs, second_structs = (
        pa.StructArray.from_arrays(
            list(children), names=names, mask=data.is_null() if data.null_count else None
        )
        for data, children in zip((first, second), zip(*pairs, strict=True), strict=True)
    )
    return first_structs, second_structs


def _or_nulls(data: pa.Array, name: str) -> pa.Array:
    member = struct_member(data, name)
    return pa.nulls(len(data)) if member is None else member
