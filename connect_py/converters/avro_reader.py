"""Reads Avro messages: rows in Python, columns by the native decoder, or by pyarrow where it was
not built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connect_py.api.errors import NotColumnar
from connect_py.api.schema import Value
from connect_py.converters.avro_body import AvroBodyReader
from connect_py.converters.avro_schema import AvroType
from connect_py.converters.native.decoder import Kind, NativeDecoder, Node
from connect_py.converters.registry_converter import ID_PREFIX, DamagedMessage, MessageReader

if TYPE_CHECKING:
    import pyarrow as pa


class AvroReader(MessageReader):
    """Reads messages of one schema, with the five bytes before their bodies."""

    def __init__(self, avro: AvroType) -> None:
        self.schema = avro.schema
        self._avro = avro
        self._body = AvroBodyReader(avro.plain)
        self._bodies = _bodies_reader(avro.plain) if avro.columnar else None
        self.columnar = self._bodies is not None

    def value(self, body: bytes) -> Value:
        decoded = self._body.read(body)
        return None if decoded is None else self._avro.value(self.schema, decoded)

    def columns(self, messages: Sequence[bytes | None]) -> pa.Array:
        if self._bodies is None:
            raise NotColumnar("the schema has no column form")
        import pyarrow as pa

        prefix = next(m for m in messages if m is not None)[:ID_PREFIX]
        body, odd = self._bodies(messages, prefix)
        if any(_names_another_schema(messages[place] or b"", prefix) for place in odd):
            raise NotColumnar("ids differ")
        try:
            column = self._avro.column(self.schema, body)
            column.validate()
        except (pa.ArrowException, OverflowError) as error:
            raise NotColumnar(str(error)) from error
        if odd:
            raise DamagedMessage(odd, "messages of another schema", column)
        return column


def _bodies_reader(
    plain: Any,
) -> Callable[[Sequence[bytes | None], bytes], tuple[pa.Array, list[int]]] | None:
    """What makes the plain column of bodies behind a prefix, and says which are odd; None: only
    rows can be made."""
    try:
        native = NativeDecoder(_node(plain))
    except NotColumnar:
        from connect_py.converters.avro_body_columns import AvroBodyColumns  # imports pyarrow

        with suppress(NotColumnar):
            return AvroBodyColumns(plain).read
        return None

    def read(messages: Sequence[bytes | None], prefix: bytes) -> tuple[pa.Array, list[int]]:
        decoded, odd = native.read_avro(messages, prefix)
        return decoded.array(), odd

    return read


def _names_another_schema(message: bytes, prefix: bytes) -> bool:
    return len(message) >= ID_PREFIX and not message[0] and not message.startswith(prefix)


def _node(plain: Any, name: str = "") -> Node:
    """What the native decoder reads; NotColumnar: it has no form for this."""
    null = (
        plain.index("null")
        if isinstance(plain, list) and len(plain) == 2 and "null" in plain
        else None
    )
    if null is not None:
        return replace(_node(plain[1 - null], name), nullable=True, low=null)
    if isinstance(plain, str) and plain in _NATIVE_KINDS:
        return Node(_NATIVE_KINDS[plain], name, nullable=False)
    if isinstance(plain, dict) and plain["type"] == "record":
        members = [_node(field["type"], field["name"]) for field in plain["fields"]]
        return Node(Kind.OBJECT, name, nullable=False, children=members)
    if isinstance(plain, dict) and plain["type"] == "array":
        return Node(Kind.LIST, name, nullable=False, children=[_node(plain["items"])])
    if isinstance(plain, dict) and plain["type"] == "fixed":
        return Node(Kind.FIXED, name, nullable=False, high=plain["size"])
    raise NotColumnar("a union of several types")


_NATIVE_KINDS: Mapping[str, Kind] = {
    "boolean": Kind.BOOLEAN,
    "int": Kind.INT32,
    "long": Kind.INT64,
    "float": Kind.FLOAT32,
    "double": Kind.FLOAT64,
    "bytes": Kind.BYTES,
    "string": Kind.TEXT,
}
