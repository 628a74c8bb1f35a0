"""Columns of structs: their members, and the rows of two of them in one. Imported as
`connect_py.columns.arrow` is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.errors import NotColumnar

_Path: TypeAlias = tuple[str, ...]


def child(data: pa.StructArray, index: int) -> pa.Array:
    """A struct's child, sliced like its parent, with the parent's nulls still hidden in the
    parent."""
    return data.field(index)


def is_struct(data: pa.Array) -> bool:
    """Whether this is a column of structs."""
    return bool(pa.types.is_struct(data.type))


def struct_member(data: pa.Array, name: str) -> pa.Array | None:
    """A struct column's member, null where the struct is; None: there is no such member, or these
    are no structs."""
    index = data.type.get_field_index(name) if pa.types.is_struct(data.type) else -1
    if index < 0:
        return None
    return pc.struct_field(data, [index]) if data.null_count else data.field(index)


def mixed(
    own: tuple[pa.Array, Mapping[_Path, pa.BooleanArray]],
    few: tuple[pa.Array, Mapping[_Path, pa.BooleanArray]],
    is_other: pa.BooleanArray,
    kept: pa.BooleanArray | None,
) -> tuple[pa.Array, dict[_Path, pa.BooleanArray]]:
    """See `Column.mixed`: `own` and `few` are data and absent members, `few` of the other column's
    rows alone."""
    places = pc.indices_nonzero(pa.repeat(True, len(is_other)))
    rank = pc.cumulative_sum(is_other.cast(pa.uint64()))
    places = pc.if_else(is_other, pc.add(rank, pa.scalar(len(is_other) - 1, pa.uint64())), places)
    if kept is not None:
        places = places.filter(kept)

    def pick(ours: pa.Array, its: pa.Array) -> pa.Array:
        return pa.concat_arrays([ours, its]).take(places)

    absent = {}
    for path in {*own[1], *few[1], *_lacked(own[0], few[0])}:
        mask = pick(_absence(*own, path), _absence(*few, path))
        if mask.true_count:
            absent[path] = mask
    return pick(*_alike(own[0], few[0])), absent


def _lacked(left: pa.Array, right: pa.Array, at: _Path = ()) -> Iterator[_Path]:
    """The members that only one of two schemaless columns of structs has."""
    if not (is_struct(left) and is_struct(right)) or left.type == right.type:
        return
    names = [{field.name for field in data.type} for data in (left, right)]
    yield from ((*at, name) for name in names[0] ^ names[1])
    for name in names[0] & names[1]:
        yield from _lacked(left.field(name), right.field(name), (*at, name))


def _absence(
    data: pa.Array, absent: Mapping[_Path, pa.BooleanArray], path: _Path
) -> pa.BooleanArray:
    found = absent.get(path)
    return pa.repeat(not _has(data.type, path), len(data)) if found is None else found


def _has(kind: pa.DataType, path: _Path) -> bool:
    """Whether structs of this type have the member, or a null on the way to it."""
    for name in path:
        if not pa.types.is_struct(kind):
            return True
        index = kind.get_field_index(name)
        if index < 0:
            return False
        kind = kind.field(index).type
    return True


def _alike(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Two columns as columns of one type: nulls take any type, structs each other's members.

    Raises:
        NotColumnar: They have no type in common.
    """
    if left.type == right.type:
        return left, right
    if pa.types.is_null(left.type):
        return pa.nulls(len(left), right.type), right
    if pa.types.is_null(right.type):
        return left, pa.nulls(len(right), left.type)
    if not (is_struct(left) and is_struct(right)):
        raise NotColumnar(f"a member is {left.type} and {right.type}")
    names = list(dict.fromkeys(field.name for data in (left, right) for field in data.type))
    pairs = [_alike(_or_nulls(left, name), _or_nulls(right, name)) for name in names]
    one, two = (
        pa.StructArray.from_arrays(
            list(children), names=names, mask=data.is_null() if data.null_count else None
        )
        for data, children in zip((left, right), zip(*pairs, strict=True), strict=True)
    )
    return one, two


def _or_nulls(data: pa.Array, name: str) -> pa.Array:
    found = struct_member(data, name)
    return pa.nulls(len(data)) if found is None else found
