"""Row-by-row decoding of Avro message bodies, which may be corrupt or malicious.

Every length and count is compared with the number of remaining bytes before it is used. Decoding a
corrupt body therefore costs no more time or memory than decoding a valid body of the same size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from connect_py.api.errors import DataError
from connect_py.plurals import pluralize

# plain Avro schema (see avro_schema.py)
Tree: TypeAlias = Any
# (message, start of the value) -> (value, end of the value)
Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]

_LAST_SHIFT: Final = 63  # a number has at most ten bytes
_LONG_MASK: Final = (1 << 64) - 1
_INT_LIMIT: Final = 1 << 31
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class AvroBodyReader:
    """Decodes message bodies that have one plain schema.

    Records become lists of their members, and maps become lists of [key, value] lists. A value of a
    union of several types becomes a pair: the index of its branch, not counting null, and the
    value. Invalid UTF-8 becomes U+FFFD, as in Java.
    """

    def __init__(self, plain: Tree) -> None:
        self._read = self._reader(plain)

    def read(self, message: bytes, start: int = 0) -> Any:
        """Decode the body that starts at `start`. Bytes after the body are ignored.

        Raises:
            DataError: The bytes do not match the schema.
        """
        try:
            return self._read(message, start)[0]
        except IndexError:
            raise DataError(_TOO_SHORT) from None

    def _reader(self, plain: Tree) -> Read:
        if isinstance(plain, str):
            return _PRIMITIVES[plain]
        if isinstance(plain, list):
            return (
                self._nullable(plain) if len(plain) == 2 and "null" in plain else self._union(plain)
            )
        if plain["type"] == "record":
            return _record([self._reader(f["type"]) for f in plain["fields"]])
        if plain["type"] == "fixed":
            return _fixed(plain["size"])
        assert plain["type"] == "array"
        return _array(self._reader(plain["items"]), width(plain["items"]))

    def _nullable(self, branches: Sequence[Tree]) -> Read:
        null_first = branches[0] == "null"
        inside = self._reader(branches[1] if null_first else branches[0])

        def read(data: bytes, at: int) -> tuple[Any, int]:
            index, at = _long(data, at)
            if index >> 1:
                raise DataError(f"a union of two types has no branch {index}")
            return inside(data, at) if (index != 0) is null_first else (None, at)

        return read

    def _union(self, branches: Sequence[Tree]) -> Read:
        readers: list[tuple[int, Read] | None] = []
        for branch in branches:
            count = sum(r is not None for r in readers)
            readers.append(None if branch == "null" else (count, self._reader(branch)))

        def read(data: bytes, at: int) -> tuple[Any, int]:
            index, at = _long(data, at)
            if not 0 <= index < len(readers):
                types = pluralize(len(readers), "type")
                raise DataError(f"a union of {types} has no branch {index}")
            chosen = readers[index]
            if chosen is None:
                return None, at
            value, at = chosen[1](data, at)
            return (chosen[0], value), at

        return read


_TOO_SHORT: Final = "the message is truncated"


def width(plain: Tree) -> int:
    """Return the minimum encoded size of a value with this schema, in bytes."""
    if isinstance(plain, str):
        return _WIDTHS.get(plain, 1)
    if isinstance(plain, dict) and plain["type"] == "record":
        return sum(width(f["type"]) for f in plain["fields"])
    if isinstance(plain, dict) and plain["type"] == "fixed":
        size: int = plain["size"]
        return size
    return 1


_WIDTHS: Mapping[str, int] = {"float": 4, "double": 8}


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number = 0
    shift = 0
    while byte >= 0x80:
        if shift == _LAST_SHIFT:
            raise DataError("a number has more than ten bytes")
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        byte = data[at]
    number = (number | byte << shift) & _LONG_MASK
    return (number >> 1) ^ -(number & 1), at + 1


def _int(data: bytes, at: int) -> tuple[int, int]:
    number, at = _long(data, at)
    if not -_INT_LIMIT <= number < _INT_LIMIT:
        raise DataError(f"{number} is not an int: it has more than 32 bits")
    return number, at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] == 1, at + 1


def _float(data: bytes, at: int) -> tuple[float, int]:
    try:
        return _FLOAT.unpack_from(data, at)[0], at + _FLOAT.size
    except struct.error:
        raise DataError(_TOO_SHORT) from None


def _double(data: bytes, at: int) -> tuple[float, int]:
    try:
        return _DOUBLE.unpack_from(data, at)[0], at + _DOUBLE.size
    except struct.error:
        raise DataError(_TOO_SHORT) from None


def _remaining(data: bytes, at: int) -> str:
    return pluralize(len(data) - at, "byte remains", "bytes remain")


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise DataError(f"invalid length {size}: {_remaining(data, at)}")
    return data[at:end], end


def _string(data: bytes, at: int) -> tuple[str, int]:
    text, at = _bytes(data, at)
    return text.decode("utf-8", "replace"), at


_PRIMITIVES: Mapping[str, Read] = {
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _fixed(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise DataError(_TOO_SHORT)
        return data[at:end], end

    return read


def _record(members: Sequence[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        values = []
        for member in members:
            value, at = member(data, at)
            values.append(value)
        return values, at

    return read


def _array(item: Read, item_width: int) -> Read:
    """Return a function that reads an array.

    An array consists of blocks of items, and the last block is empty. A negative item count is
    followed by the size of the block in bytes.
    """
    assert item_width > 0

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while True:
            size, at = _long(data, at)
            if size < 0:
                size = -size
                _, at = _long(data, at)
            if not size:
                return values, at
            if size * item_width > len(data) - at:
                raise DataError(f"invalid number of items {size}: {_remaining(data, at)}")
            for _ in range(size):
                value, at = item(data, at)
                values.append(value)

    return read
