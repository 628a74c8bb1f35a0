"""Schemaless JSON by the native decoder: plans from the shape that messages were seen to have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from connect_py.api.batch import Column, Path
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import MAX_NESTING, Value
from connect_py.converters.json_shape import Kind as ShapeKind
from connect_py.converters.json_shape import Shape
from connect_py.converters.json_text import read_json
from connect_py.converters.native.decoder import Decoded, Kind, NativeDecoder, Node, refusals
from connect_py.converters.native.native_rows import NativeRows

if TYPE_CHECKING:
    import pyarrow as pa

_LOWEST = -(1 << 63)
_HIGHEST = (1 << 63) - 1
_KINDS: Mapping[ShapeKind, Kind] = {
    ShapeKind.NULL: Kind.NULL,
    ShapeKind.BOOLEAN: Kind.BOOLEAN,
    ShapeKind.INTEGER: Kind.INT64,
    ShapeKind.NUMBER: Kind.NUMBER,
    ShapeKind.STRING: Kind.TEXT,
    ShapeKind.LIST: Kind.LIST,
    ShapeKind.OBJECT: Kind.OBJECT,
}


class NativeSchemalessJson:
    """Reads messages of one shape."""

    def __init__(self, shape: Shape) -> None:
        """NotColumnar: the decoder is not there, or cannot read this shape."""
        self._decoder = NativeDecoder(_node("", shape))

    def read(self, messages: Sequence[bytes | None]) -> tuple[Column, Mapping[int, DataError]]:
        """Make the column of messages, and say which of them are damaged.

        Raises: NotColumnar: Some message is of another shape, mixes kinds, or is spelt in a way
            that the reference alone
                takes.
        """
        decoded, odd = self._decoder.read_json(messages)
        failures = refusals(odd, lambda place: _is_null(messages[place] or b""))
        absent: dict[Path, pa.BooleanArray] = {}
        data = _array(decoded, (), absent)
        tombstone = decoded.nulls_but(failures)
        if not decoded.is_object:
            return Column(None, data, tombstone, absent), failures
        texts = (
            [None if place in failures else message for place, message in enumerate(messages)]
            if failures
            else messages
        )
        return Column(
            None, NativeRows(Column(None, data, None, absent), texts, _values), tombstone
        ), failures


def _is_null(message: bytes) -> bool:
    """No: a null is not odd here. DataError: this is no JSON."""
    read_json(message, levels=MAX_NESTING)
    return False


def _values(texts: Sequence[bytes | None]) -> list[Value]:
    return [None if text is None else _DECODE(text) for text in texts]


_DECODE = msgspec.json.Decoder().decode


def _node(name: str, shape: Shape) -> Node:
    children = [_node(member, inside) for member, inside in shape.members.items()]
    if shape.kind is ShapeKind.LIST:
        children = [_node("", shape.items or Shape())]
    return Node(_KINDS[shape.kind], name, low=_LOWEST, high=_HIGHEST, children=children)


def _array(decoded: Decoded, path: Path, absent: dict[Path, pa.BooleanArray]) -> pa.Array:
    """Make the Arrow array of a value at `path`; rows where a member is missing go to `absent`."""
    import pyarrow as pa

    from connect_py.columns import arrow

    kind = decoded.node.kind
    if kind is Kind.LIST:
        inside: dict[Path, pa.BooleanArray] = {}
        items = _array(decoded.children[0], (*path, arrow.ELEMENT), inside)
        if inside:
            raise NotColumnar(f"items of the list {'.'.join(path)} differ in their members")
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
            continue  # other messages had this member; none of these has
        inside_path = (*path, child.node.name)
        missing = child.absent
        if missing is not None:
            absent[inside_path] = missing
        names.append(child.node.name)
        members.append(_array(child, inside_path, absent))
    return decoded.structs(names, members)
