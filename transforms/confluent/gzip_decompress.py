"""Confluent's `GzipDecompress`: decompresses gzip data."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import java_class_name
from transforms.side import SideTransformation, for_both

MAX_BYTES = 256 << 20  # limit for decompressed data, as protection against decompression bombs


class GzipDecompress(SideTransformation[R]):
    """Decompresses the key or value. Nulls are passed through unchanged."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Do nothing: the transformation has no options."""

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if value is None:
            return record
        if not isinstance(value, bytes | bytearray | memoryview):
            raise DataError(f"only bytes can be decompressed, found: {java_class_name(value)}")
        decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            data = decompressor.decompress(bytes(value), MAX_BYTES)
        except zlib.error as error:
            raise DataError(f"invalid gzip data: {error}") from error
        if not decompressor.eof:
            raise DataError(
                f"the gzip data is truncated or decompresses to more than {MAX_BYTES} bytes"
            )
        return self.side.put(record, schema, data)


GzipDecompressKey, GzipDecompressValue = for_both(GzipDecompress)
