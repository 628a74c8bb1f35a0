"""Columns of thousands of whole numbers as a short text, for what is repeated in every commit.

Base64 of zlib of 64-bit little-endian integers, column by column: of each column all lowest bytes,
then all second bytes, and so on. Bytes that say little stand together and vanish.
"""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from collections.abc import Iterable

_WIDTH = 8  # bytes of a number


def pack(*columns: Iterable[int]) -> str:
    """The text of columns of signed 64-bit numbers, all of one length; ASCII that JSON leaves as it
    is.

    Raises:
        OverflowError: A number is too large.
    """
    packer = zlib.compressobj()
    parts: list[bytes] = []
    for numbers in columns:
        column = array("q", numbers)
        if sys.byteorder == "big":
            column.byteswap()
        raw = column.tobytes()
        # each in a block of its own: their bytes are spread differently
        for place in range(_WIDTH):
            parts += packer.compress(raw[place::_WIDTH]), packer.flush(zlib.Z_BLOCK)
    parts.append(packer.flush())
    return base64.b64encode(b"".join(parts)).decode("ascii")


def unpack(text: str, count: int) -> list[list[int]]:
    """The `count` columns again.

    Raises:
        ValueError: The text is not one that `pack` made of so many columns.
    """
    try:
        planes = zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as error:
        raise ValueError(f"not packed numbers: {error}") from error
    size, rest = divmod(len(planes), count)
    if rest or size % _WIDTH:
        raise ValueError(f"not {count} columns of packed numbers: {len(planes)} bytes")
    return (
        [_column(planes[start : start + size]) for start in range(0, len(planes), size)]
        if size
        else [[]] * count
    )


def _column(planes: bytes) -> list[int]:
    length = len(planes) // _WIDTH
    raw = bytearray(len(planes))
    for place in range(_WIDTH):
        raw[place::_WIDTH] = planes[place * length : (place + 1) * length]
    column = array("q", bytes(raw))
    if sys.byteorder == "big":
        column.byteswap()
    return column.tolist()
