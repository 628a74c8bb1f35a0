"""Confluent's `GzipDecompress`: unpacks bytes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import java_class_name
from transforms.side import SideTransformation, for_both

MAX_BYTES = 256 << 20  # unpacked; more is no message but an attack


class GzipDecompress(SideTransformation[R]):
    """Nulls pass."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Nothing to configure."""

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if value is None:
            return record
        if not isinstance(value, bytes | bytearray | memoryview):
            raise DataError(f"only bytes can be unpacked, found: {java_class_name(value)}")
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            unpacked = unpacker.decompress(bytes(value), MAX_BYTES)
        except zlib.error as error:
            raise DataError(f"the bytes are not packed by gzip: {error}") from error
        if not unpacker.eof:
            raise DataError("the packed bytes are cut off, or unpack to too many")
        return self.side.put(record, schema, unpacked)


GzipDecompressKey, GzipDecompressValue = for_both(GzipDecompress)
