"""`org.apache.kafka.connect.converters.ByteArrayConverter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect_py.api.batch import Column
from connect_py.api.converter import ColumnRun
from connect_py.api.errors import DataError
from connect_py.api.record import MutableHeaders, RawHeaders
from connect_py.api.schema import (
    OPTIONAL_BYTES,
    Schema,
    SchemaAndValue,
    Type,
    Value,
    java_class_name,
)
from connect_py.converters.value_and_header_converter import ValueAndHeaderConverter


class ByteArrayConverter(ValueAndHeaderConverter):
    """Bytes as they are."""

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        """Nothing to configure."""

    def to_connect(
        self, topic: str, data: bytes | None, headers: RawHeaders = ()
    ) -> SchemaAndValue:
        return SchemaAndValue(OPTIONAL_BYTES, data)

    def from_connect(
        self, topic: str, schema: Schema | None, value: Value, headers: MutableHeaders | None = None
    ) -> bytes | None:
        if schema is not None and schema.type is not Type.BYTES:
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type.name}")
        if value is None:
            return None
        if not isinstance(value, bytes | bytearray | memoryview):
            raise DataError(
                f"ByteArrayConverter is not compatible with objects of type class "
                f"{java_class_name(value)}"
            )
        return bytes(value)

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        import pyarrow as pa

        return (
            [ColumnRun(0, len(data), Column(OPTIONAL_BYTES, pa.array(data, pa.binary())))]
            if data
            else []
        )
