"""Avro message bodies to Arrow columns where no native decoder was built.

pyarrow's functions read one member of all bodies at a time. Where the next member of each body
begins follows from the size of the one before it. Imports pyarrow, so it is itself imported on
first use only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.errors import NotColumnar
from connect_py.columns.joined_bytes import JoinedBytes

_MAX_DEPTH: Final = 100
_LONGEST: Final = 10  # bytes of a number
# a number that is looked for behind the end of the last message
_PADDING: Final = bytes(_LONGEST + 1)
_MOST: Final = (1 << 31) - 1  # bytes of all messages


class AvroBodyColumns:
    """Decodes bodies of one plain schema that has no arrays, no maps and no unions of several
    types."""

    def __init__(self, plain: Any) -> None:
        """NotColumnar: the schema has others."""
        _check(plain)
        self._plain = plain

    def read(self, messages: Sequence[bytes | None], prefix: bytes) -> tuple[pa.Array, list[int]]:
        """Make the column of bodies behind a prefix; messages whose index is in the list are odd,
        and null in it.

        A message is odd if it has another prefix, is no body of the schema, or has a union's index
        in several bytes. Bytes behind a body are ignored.

        Raises:
            NotColumnar: The messages are too long for one column.
        """
        joined = JoinedBytes.of(messages)
        if len(joined.data) + len(_PADDING) > _MOST:
            raise NotColumnar("the messages are too long for one column")
        whole = pa.py_buffer(joined.data + _PADDING)
        lengths = pa.Array.from_buffers(
            pa.int64(), len(joined), [None, pa.py_buffer(joined.lengths)]
        )
        there = pc.greater_equal(lengths, 0)
        lengths = pc.max_element_wise(lengths, 0)
        ends = pc.cumulative_sum(lengths)
        cursor = _Cursor(whole, pc.subtract(ends, lengths), pc.add(ends, 1)).where(there)
        cursor.skip_prefix(prefix)
        body = _read(self._plain, cursor)
        sound = cursor.is_sound()
        if sound.true_count == len(joined):
            return body, []
        kept = pc.replace_with_mask(there, there, sound)
        odd = pc.indices_nonzero(pc.and_not(there, kept)).to_pylist()
        return _spread(body.filter(sound) if odd else body, kept), odd


class _Cursor:
    """Where the next value of each body begins. What is odd about a body moves its cursor beyond
    its end for good."""

    def __init__(self, whole: pa.Buffer, at: pa.Int64Array, limit: pa.Int64Array) -> None:
        """`limit` is one byte behind the end of each message. All bytes have some more behind
        them."""
        self._whole = whole
        self._bytes = pa.Array.from_buffers(pa.uint8(), whole.size, [None, whole])
        self._limit = limit
        self.at = at

    def where(self, mask: pa.BooleanArray) -> _Cursor:
        """The same for some of the bodies."""
        return _Cursor(self._whole, self.at.filter(mask), self._limit.filter(mask))

    def is_sound(self) -> pa.BooleanArray:
        """Whether nothing is odd about each body."""
        return pc.less(self.at, self._limit)

    def refuse(self, odd: pa.BooleanArray) -> None:
        """Some bodies are odd."""
        if odd.true_count:
            self.at = pc.if_else(odd, self._limit, self.at)

    def skip_prefix(self, prefix: bytes) -> None:
        """Pass what each message begins with."""
        self.refuse(pc.not_equal(self.slices(len(prefix)), prefix))

    def _skip(self, sizes: pa.Int64Array | int) -> None:
        self.at = pc.min_element_wise(pc.add(self.at, sizes), self._limit)

    def byte(self) -> pa.UInt8Array:
        """Read a byte."""
        found = self._bytes.take(self.at)
        self._skip(1)
        return found

    def number(self) -> pa.Int64Array:
        """Read a number of seven bits in each byte, its zig-zag form, the lowest first."""
        low, one = pa.scalar(0x7F, pa.uint8()), pa.scalar(1, pa.uint64())
        found = self._bytes.take(self.at)
        number = pc.bit_wise_and(found, low).cast(pa.uint64())
        more = pc.greater(found, low)
        size: Any = 1
        for place in range(1, _LONGEST):
            if not more.true_count:
                break
            found = self._bytes.take(pc.add(self.at, place))
            if more.true_count < len(more):
                found = pc.if_else(more, found, pa.scalar(0, pa.uint8()))
                size = pc.add(size, more.cast(pa.int64()))
            else:
                size += 1
            bits = pc.bit_wise_and(found, low).cast(pa.uint64())
            number = pc.bit_wise_or(number, pc.shift_left(bits, pa.scalar(7 * place, pa.uint64())))
            more = pc.greater(found, low)
        self._skip(size)
        self.refuse(more)
        sign = pc.negate(pc.bit_wise_and(number, one).view(pa.int64()))
        return pc.bit_wise_xor(pc.shift_right(number, one).view(pa.int64()), sign)

    def slices(self, sizes: pa.Int64Array | int) -> pa.BinaryArray:
        """Read so many bytes; there are fewer where a body ends before."""
        begin, rows = self.at, len(self.at)
        if not isinstance(sizes, int):  # a negative one becomes a huge one
            sizes = pc.min_element_wise(
                sizes.view(pa.uint64()), pa.scalar(_MOST, pa.uint64())
            ).cast(pa.int64())
        self._skip(sizes)
        if not rows:
            return pa.array([], pa.binary())
        # Each second text of these offsets is what stands between two slices.
        edges = pc.bit_wise_or(begin, pc.shift_left(self.at, 32))
        texts = pa.Array.from_buffers(
            pa.binary(), 2 * rows - 1, [None, edges.buffers()[1], self._whole]
        )
        return texts.take(pa.arange(0, 2 * rows, 2))

    def words(self, type_: pa.DataType) -> pa.Array:
        """Read numbers of a fixed width."""
        width = type_.byte_width
        texts = self.slices(width)
        short = pc.less(pc.binary_length(texts), width)
        if short.true_count:
            texts = pc.if_else(short, bytes(width), texts)
        return texts.cast(pa.binary(width)).view(type_)

    def texts(self) -> pa.StringArray:
        """Read texts with their lengths."""
        found = self.slices(self.number())
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = pa.array([not _is_text(text) for text in found.to_pylist()])
            self.refuse(wrong)
            return pc.if_else(wrong, b"", found).cast(pa.string())


def _read(plain: Any, cursor: _Cursor) -> pa.Array:
    if isinstance(plain, list):
        return _nullable(plain, cursor)
    if isinstance(plain, str):
        return _primitive(plain, cursor)
    if plain["type"] == "fixed":
        return cursor.slices(plain["size"])
    members = [_read(field["type"], cursor) for field in plain["fields"]]
    kinds = [
        pa.field(field["name"], member.type)
        for field, member in zip(plain["fields"], members, strict=True)
    ]
    return pa.Array.from_buffers(pa.struct(kinds), len(cursor.at), [None], children=members)


def _nullable(branches: Sequence[Any], cursor: _Cursor) -> pa.Array:
    null = branches.index("null")
    index = cursor.byte()
    there = pc.equal(index, pa.scalar(2 * (1 - null), pa.uint8()))
    if there.true_count == len(there):
        return _read(branches[1 - null], cursor)
    cursor.refuse(pc.invert(pc.or_(there, pc.equal(index, pa.scalar(2 * null, pa.uint8())))))
    inside = cursor.where(there)
    values = _read(branches[1 - null], inside)
    cursor.at = pc.replace_with_mask(cursor.at, there, inside.at)
    return _spread(values, there)


def _spread(values: pa.Array, there: pa.BooleanArray) -> pa.Array:
    """The values in the rows that are there, nulls in the others."""
    return values.take(
        pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int32())), 1), None)
    )


def _primitive(kind: str, cursor: _Cursor) -> pa.Array:
    if kind == "boolean":
        return pc.equal(cursor.byte(), pa.scalar(1, pa.uint8()))
    if kind == "int":
        number = cursor.number()
        ints = number.cast(pa.int32(), safe=False)
        cursor.refuse(pc.not_equal(ints.cast(pa.int64()), number))
        return ints
    if kind == "long":
        return cursor.number()
    if kind == "string":
        return cursor.texts()
    if kind == "bytes":
        return cursor.slices(cursor.number())
    return cursor.words(pa.float32() if kind == "float" else pa.float64())


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check(plain: Any, depth: int = 0) -> None:
    """NotColumnar: bodies of this schema cannot be read."""
    if depth > _MAX_DEPTH:
        raise NotColumnar("values nest too deep")
    if isinstance(plain, list):
        if len(plain) != 2 or "null" not in plain:
            raise NotColumnar("a union of several types")
        _check(plain[1 - plain.index("null")], depth)
    elif isinstance(plain, dict) and plain["type"] == "array":
        raise NotColumnar("a list or a map")
    elif isinstance(plain, dict) and plain["type"] == "record":
        for field in plain["fields"]:
            _check(field["type"], depth + 1)
