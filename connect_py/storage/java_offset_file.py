"""Reads the offset file of Java's standalone worker, a serialized `HashMap<byte[], byte[]>`."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from connect_py.api.errors import ConnectError

_MAGIC: Final = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _ARRAY, _BLOCK, _END = 0x70, 0x71, 0x72, 0x73, 0x75, 0x77, 0x78
_FIRST_HANDLE: Final = 0x7E0000
_VERSION_AND_FLAGS: Final = 9  # bytes
_FIELDS: Final = 8  # bytes: load factor and threshold of the map, both ignored


def read_java_offsets(path: Path) -> dict[bytes, bytes]:
    """Return the keys and values that Java wrote, without null keys and values.

    Raises:
        OSError: The file cannot be read.
        ConnectError: The file is not a serialized map of byte arrays.
    """
    data = path.read_bytes()
    if not data:
        return {}  # an empty file, for example one created by `touch`
    try:
        return _ObjectStream(data).map()
    except (ValueError, IndexError, struct.error) as error:
        raise ConnectError(
            f"{path} is not a valid offset file of a standalone worker: {error}"
        ) from error


class _ObjectStream:
    """Reads the subset of Java's object stream format that the map uses.

    Raises ValueError for any other content.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._handles: list[
            str | bytes | None
        ] = []  # targets of back references: class names, arrays, the map

    def map(self) -> dict[bytes, bytes]:
        """Return the map, which is the only object in the stream."""
        if self._take(len(_MAGIC)) != _MAGIC:
            raise ValueError("not a Java object stream")
        self._expect(_OBJECT)
        name = self._class()
        if name != "java.util.HashMap":
            raise ValueError(f"expected a HashMap, found a {name}")
        self._handles.append(None)  # the map itself
        self._take(_FIELDS)
        self._expect(_BLOCK)
        if self._number("B") != 8:
            raise ValueError("expected capacity and size of the map")
        self._number("I")
        pairs = [(self._array(), self._array()) for _ in range(self._number("I"))]
        self._expect(_END)
        return {key: value for key, value in pairs if key is not None and value is not None}

    def _class(self) -> str:
        token = self._number("B")
        if token == _REFERENCE:
            referenced = self._handles[self._number("I") - _FIRST_HANDLE]
            if isinstance(referenced, str):
                return referenced
        if token != _CLASS:
            raise ValueError(f"expected a class at byte {self._at - 1}")
        name = self._string()
        self._take(_VERSION_AND_FLAGS)
        self._handles.append(name)
        for _ in range(self._number("H")):
            self._number("B")  # type of a primitive field
            self._string()
        self._expect(_END)
        self._expect(_NULL)  # no superclass
        return name

    def _array(self) -> bytes | None:
        token = self._number("B")
        if token == _NULL:
            return None
        if token == _REFERENCE:
            referenced = self._handles[self._number("I") - _FIRST_HANDLE]
            if isinstance(referenced, bytes):
                return referenced
        if token != _ARRAY or self._class() != "[B":
            raise ValueError(f"expected an array of bytes at byte {self._at - 1}")
        index = len(self._handles)
        self._handles.append(None)
        array = self._take(self._number("I"))
        self._handles[index] = array
        return array

    def _take(self, count: int) -> bytes:
        chunk = self._data[self._at : self._at + count]
        if len(chunk) != count:
            raise ValueError("unexpected end of file")
        self._at += count
        return chunk

    def _number(self, form: str) -> int:
        value: int = struct.unpack(f">{form}", self._take(struct.calcsize(form)))[0]
        return value

    def _string(self) -> str:
        return self._take(self._number("H")).decode()

    def _expect(self, token: int) -> None:
        if self._number("B") != token:
            raise ValueError(f"expected 0x{token:02x} at byte {self._at - 1}")
