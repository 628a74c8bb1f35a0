"""Avro message bodies to Arrow columns.

The bodies are joined into one container file in memory, which polars reads. polars takes the bodies as one stream of
bytes, so a body that is too long or too short would shift all rows after it: a random guard of 16 bytes follows each
body as a last field, and must come out again in every row.
"""

from __future__ import annotations

import io
import json
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import NotColumnar
from connect_py.api.schema import Schema
from connect_py.converters.avro_body import width
from connect_py.converters.avro_branches import doubtful_rows, has_unions
from connect_py.converters.avro_constant_texts import ConstantTexts, TextLearner, all_are
from connect_py.converters.avro_schema import PRIMITIVES, AvroType
from connect_py.converters.native.decoder import Kind, NativeDecoder, Node
from connect_py.converters.registry_converter import ID_PREFIX, DamagedMessage

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC: Final = b"Obj\x01"
_NULL: Final = b"\x02"  # the index of a union's second branch
_FEW: Final = 16  # messages that the reference form looks at one by one sooner than they are read again
_LEAST_LONG: Final = b"\xff" * 9 + b"\1"
_MARK_SIZE: Final = 16  # bytes, of the guard and of the container's own sync marker
_LARGEST_FIXED: Final = 4096  # bytes that polars reads: it makes as many of each null
_LEAST_PADDING: Final = 1 << 16  # bytes; a damaged list takes some for items
_MOST_PADDING: Final = 1 << 22  # beside these


def _long(number: int) -> bytes:
    """Avro's zig-zag variable-length form of a number that is not negative."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _for_polars(plain: Any) -> Any:
    """The same schema with longs for ints, as polars would drop the high bits of numbers that are no ints; and with
    bytes for strings, as Arrow's check of UTF-8 costs less than that of polars."""
    if isinstance(plain, str):
        return {"int": "long", "string": "bytes"}.get(plain, plain)
    if isinstance(plain, list):
        return [_for_polars(branch) for branch in plain]
    members = {k: _for_polars(plain[k]) for k in ("type", "items") if k in plain}
    if "fields" in plain:
        members["fields"] = [{**f, "type": _for_polars(f["type"])} for f in plain["fields"]]
    return {**plain, **members}


class _Layout:
    """How a container describes bodies to polars, and how columns are made of what comes back."""

    def __init__(self, plain: Any, constants: ConstantTexts | None = None) -> None:
        """`plain` is the schema of the bodies; `constants` are not read but compared."""
        self._plain = plain
        self._constants = constants
        body = plain if constants is None else constants.plain
        schema_id = {"type": "fixed", "name": "Id", "size": ID_PREFIX - 1}
        guard = {"type": "fixed", "name": "Guard", "size": _MARK_SIZE}
        message = {
            "type": "record", "name": "Message",
            "fields": [{"name": "id", "type": schema_id}, {"name": "body", "type": _for_polars(body)}],
        }  # fmt: skip
        top = {
            "type": "record", "name": "Top",
            "fields": [{"name": "message", "type": [message, "null"]}, {"name": "guard", "type": guard}],
        }  # fmt: skip
        text = json.dumps(top).encode()
        meta = [(b"avro.schema", text), (b"avro.codec", b"null")]
        entries = b"".join(_long(len(k)) + k + _long(len(v)) + v for k, v in meta)
        self._head = _MAGIC + _long(len(meta)) + entries + b"\0"
        self._width_of_zeros = _width_of_zeros(top)

    @cached_property
    def _type(self) -> pa.DataType:
        return _arrow_type(self._plain if self._constants is None else self._constants.plain)

    @cached_property
    def _whole_type(self) -> pa.DataType:
        return _arrow_type(self._plain)

    def read(self, messages: Sequence[bytes | None]) -> tuple[pa.Array, pa.BooleanArray | None]:
        """Make the column of bodies in their plain form, and say which messages are null. Errors as `AvroColumns`."""
        import pyarrow as pa

        guard, sync = os.urandom(_MARK_SIZE), os.urandom(_MARK_SIZE)
        filled = [_NULL if m is None else m for m in messages]
        nulls = sum(map(operator.is_, messages, repeat(None)))
        schema_id = next(m for m in messages if m is not None)[1:ID_PREFIX]
        # Damaged bodies lead polars to read values of fixed sizes beyond the end, and its panic writes to the log by
        # itself. Behind the last row there are zeros, enough to make so many rows of.
        padding = _LEAST_PADDING + min((len(filled) + 1) * self._width_of_zeros, _MOST_PADDING)
        size = sum(map(len, filled)) + _MARK_SIZE * len(filled) + padding
        filled[0] = b"".join((self._head, sync, _long(len(messages)), _long(size), filled[0]))
        filled.append(bytes(padding) + sync)
        try:
            table = _table(io.BytesIO(guard.join(filled)))
            message, guards = (_only_chunk(table.column(name)) for name in ("message", "guard"))
            if len(guards) != len(messages) or message.null_count != nulls or not all_are(guards, guard, len(guards)):
                raise NotColumnar("bodies are not as long as their schema says")
            if not all_are(message.field(0), schema_id, len(messages) - nulls):
                raise NotColumnar("ids differ")
            body = message.field(1).cast(self._type)
            if self._constants is not None:
                body = self._constants.put_back(body, self._whole_type, len(messages) - nulls)
            return body, message.is_null() if nulls else None
        except (pa.ArrowException, OverflowError) as error:
            raise NotColumnar(str(error)) from error


class AvroColumns:
    """Decodes messages of one schema, with the five bytes before their bodies.

    These bytes are read along: the first is 0, which makes it the index of the first branch of a union of message and
    null. So a null needs no place of its own: it is one byte with the index of the other branch.

    Most texts of Debezium's `source` never change. They are learned from messages, and then compared instead of read.
    """

    def __init__(self, avro: AvroType) -> None:
        self._avro = avro
        self._whole = _Layout(avro.plain)
        self._short: _Layout | None = None
        self._texts = TextLearner(avro.plain)
        try:
            self._native: NativeDecoder | None = NativeDecoder(_node(avro.plain))
        except NotColumnar:
            self._native = None
        self.possible = avro.columnar and (self._native is not None or _is_for_polars(avro.plain))
        self._has_unions = has_unions(avro.plain)
        self._has_blocks = '"array"' in json.dumps(avro.plain)  # maps are arrays of entries

    def read(self, messages: Sequence[bytes | None]) -> tuple[pa.Array, pa.BooleanArray | None]:
        """Make the column of messages, at least one of them not null, and say which are null (None: none is).

        Raises:
            NotColumnar: A message has another id or is not of this schema (the reference form will say which one), or
                the schema has no column form.
        """
        if not self.possible:
            raise NotColumnar("unions of several types")
        if self._native is not None:
            return self._read_native(self._native, messages)
        body, null = self._bodies(messages)
        self._check_branches(messages, body)
        self._check_blocks(messages)
        return self._column(body), null

    def _read_native(
        self, native: NativeDecoder, messages: Sequence[bytes | None]
    ) -> tuple[pa.Array, pa.BooleanArray | None]:
        import pyarrow as pa

        prefix = next(m for m in messages if m is not None)[:ID_PREFIX]
        decoded, odd = native.read_avro(messages, prefix)
        if any(_names_another_schema(messages[place] or b"", prefix) for place in odd):
            raise NotColumnar("ids differ")
        column = self._column(decoded.array())
        if odd:
            raise DamagedMessage(odd, "messages of another schema", column)
        nulls = list(map(operator.is_, messages, repeat(None))) if None in messages else []
        return column, pa.array(nulls, pa.bool_()) if nulls else None

    def _column(self, body: pa.Array) -> pa.Array:
        """Make the column of the Connect schema of bodies in their plain form."""
        import pyarrow as pa

        try:
            column = self._avro.column(self._avro.schema, body)
            column.validate()
        except (pa.ArrowException, OverflowError) as error:
            raise NotColumnar(str(error)) from error
        return column

    def _bodies(self, messages: Sequence[bytes | None]) -> tuple[pa.Array, pa.BooleanArray | None]:
        if self._short is not None:
            try:
                return self._short.read(messages)
            except NotColumnar:  # a text changed, or a message is damaged
                self._check(messages, self._odd_part(self._short, messages))
                found = self._whole.read(messages)
                self._short = None
                self._texts.forget()
                return found
        try:
            found = self._whole.read(messages)
        except NotColumnar:
            self._check(messages, self._odd_part(self._whole, messages))
            raise
        constants = self._texts.learn(messages)
        if constants is not None:
            self._short = _Layout(self._avro.plain, constants)
        return found

    def _check_branches(self, messages: Sequence[bytes | None], body: pa.Array) -> None:
        """DamagedMessage: unions of some messages have no branch of the index that stands there."""
        if not self._has_unions:
            return
        there = [m for m in messages if m is not None]
        whole = len(there) == len(messages)
        values = body if whole else body.filter(_are_there(messages))
        doubtful = doubtful_rows(self._avro.plain, values, there, ID_PREFIX)
        if doubtful:
            places = range(len(messages)) if whole else [i for i, m in enumerate(messages) if m is not None]
            raise DamagedMessage([places[row] for row in doubtful], "a union has no such branch")

    def _check_blocks(self, messages: Sequence[bytes | None]) -> None:
        """DamagedMessage: polars may have taken a block of 2^63 items for an empty one; or it is the least long."""
        if self._has_blocks:
            doubtful = [
                place for place, message in enumerate(messages) if message is not None and _LEAST_LONG in message
            ]
            if doubtful:
                raise DamagedMessage(doubtful, "a block has 2^63 items")

    def _check(self, messages: Sequence[bytes | None], part: tuple[int, int]) -> None:
        """DamagedMessage: this part cannot be read by itself either, though its messages are of one id."""
        start, stop = part
        inside = messages[start:stop]
        if len({m[:ID_PREFIX] for m in inside if m is not None}) != 1:
            return
        try:
            self._whole.read(inside)
        except NotColumnar as error:
            raise DamagedMessage(range(start, stop), str(error)) from error

    @staticmethod
    def _odd_part(layout: _Layout, messages: Sequence[bytes | None]) -> tuple[int, int]:
        """Few messages that keep others from being read together, if they are to blame: found by halving."""
        start, stop = 0, len(messages)
        while stop - start > _FEW:
            middle = (start + stop) // 2
            part = messages[start:middle]
            try:
                if part.count(None) < len(part):
                    layout.read(part)
                start = middle
            except NotColumnar:
                stop = middle
        return start, stop


def _are_there(messages: Sequence[bytes | None]) -> pa.BooleanArray:
    import pyarrow as pa

    return pa.array([m is not None for m in messages], pa.bool_())


def _names_another_schema(message: bytes, prefix: bytes) -> bool:
    return len(message) >= ID_PREFIX and not message[0] and not message.startswith(prefix)


def _node(plain: Any, name: str = "") -> Node:
    """What the native decoder reads; NotColumnar: it has no form for this."""
    null = plain.index("null") if isinstance(plain, list) and len(plain) == 2 and "null" in plain else None
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
    "boolean": Kind.BOOLEAN, "int": Kind.INT32, "long": Kind.INT64, "float": Kind.FLOAT32, "double": Kind.FLOAT64,
    "bytes": Kind.BYTES, "string": Kind.TEXT,
}  # fmt: skip


def _table(container: io.BytesIO) -> pa.Table:
    import pyarrow as pa

    try:
        import polars
    except ImportError as error:
        raise NotColumnar("polars is not installed") from error
    try:
        return pa.table(polars.read_avro(container))  # half the time of to_arrow
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise NotColumnar(f"polars: {error}") from error


def _is_for_polars(plain: Any, *, in_list: bool = False) -> bool:
    """Whether polars reads such bodies without a panic, whatever their bytes are, and with little memory."""
    if isinstance(plain, list):
        return all(_is_for_polars(branch, in_list=in_list) for branch in plain)
    if isinstance(plain, str):
        return True
    if plain["type"] == "record":
        fields = plain["fields"]
        return all(
            "\0" not in f["name"] and _is_for_polars(f["type"], in_list=in_list) for f in fields
        )  # C's end of text
    if plain["type"] == "fixed":
        return not in_list and plain["size"] <= _LARGEST_FIXED
    return _is_for_polars(plain["items"], in_list=True)


def _width_of_zeros(plain: Any) -> int:
    """How many bytes a value takes that is read from zeros."""
    if isinstance(plain, list):
        return 1 if plain[0] == "null" else 1 + _width_of_zeros(plain[0])
    if isinstance(plain, dict) and plain["type"] == "record":
        return sum(_width_of_zeros(field["type"]) for field in plain["fields"])
    return width(plain)


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _arrow_type(plain: Any) -> pa.DataType:
    """The Arrow type of a plain schema: what polars reads is cast to it as a whole, a call per column costs more."""
    import pyarrow as pa

    from connect_py.api import arrow

    if isinstance(plain, list):
        (plain,) = (branch for branch in plain if branch != "null")
    if isinstance(plain, str):
        return arrow.arrow_type(Schema(PRIMITIVES[plain]))
    if plain["type"] == "record":
        return pa.struct([pa.field(f["name"], _arrow_type(f["type"])) for f in plain["fields"]])
    if plain["type"] == "array":
        return pa.list_(pa.field(arrow.ELEMENT, _arrow_type(plain["items"])))
    return pa.binary()
