"""Compact encoding of integer columns that are repeated in every commit.

Each column is an array of little-endian 64-bit integers. The least significant bytes of all its
integers are written first, then the second bytes, and so on. This groups low-entropy bytes, which
improves compression. The result is compressed with zlib and encoded in Base64.
"""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from collections.abc import Iterable

from connect_py.plurals import pluralize

_WIDTH = 8  # bytes per integer


def pack(*columns: Iterable[int]) -> str:
    """Encode columns of signed 64-bit integers as ASCII characters that JSON does not escape.

    All columns must have the same length.

    Raises:
        OverflowError: An integer does not fit in 64 bits.
    """
    packer = zlib.compressobj()
    parts: list[bytes] = []
    for numbers in columns:
        column = array("q", numbers)
        if sys.byteorder == "big":
            column.byteswap()
        raw = column.tobytes()
        # a separate zlib block for each byte position, because the byte distributions differ
        for index in range(_WIDTH):
            parts += packer.compress(raw[index::_WIDTH]), packer.flush(zlib.Z_BLOCK)
    parts.append(packer.flush())
    return base64.b64encode(b"".join(parts)).decode("ascii")


def unpack(text: str, count: int) -> list[list[int]]:
    """Decode `count` columns that were encoded by `pack`.

    Raises:
        ValueError: The string is not an encoding of `count` columns.
    """
    try:
        planes = zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as error:
        raise ValueError(f"invalid packed integers: {error}") from error
    size, rest = divmod(len(planes), count)
    if rest or size % _WIDTH:
        raise ValueError(
            f"invalid packed integers: {pluralize(len(planes), 'byte')} cannot be divided into "
            f"{pluralize(count, 'column')}"
        )
    return (
        [_column(planes[start : start + size]) for start in range(0, len(planes), size)]
        if size
        else [[]] * count
    )


def _column(planes: bytes) -> list[int]:
    length = len(planes) // _WIDTH
    raw = bytearray(len(planes))
    for index in range(_WIDTH):
        raw[index::_WIDTH] = planes[index * length : (index + 1) * length]
    column = array("q", bytes(raw))
    if sys.byteorder == "big":
        column.byteswap()
    return column.tolist()
