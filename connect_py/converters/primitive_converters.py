"""`org.apache.kafka.connect.converters.{Short,Integer,Long,Float,Double,Boolean}Converter`."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from connect_py.api.batch import Column
from connect_py.api.converter import ColumnRun
from connect_py.api.errors import DataError
from connect_py.api.record import MutableHeaders, RawHeaders
from connect_py.api.schema import (
    DATE,
    TIME,
    TIMESTAMP,
    Schema,
    SchemaAndValue,
    Type,
    Value,
    java_class_name,
    validate_value,
)
from connect_py.converters.value_and_header_converter import ValueAndHeaderConverter

_MOMENTS: Final = frozenset({DATE, TIME, TIMESTAMP})  # dates in Java, whatever their type


class _PrimitiveConverter(ValueAndHeaderConverter):
    """One big-endian primitive."""

    _label: ClassVar[str]  # as messages name it
    _format: ClassVar[struct.Struct]
    _schema: ClassVar[Schema]

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        """Nothing to configure."""

    def to_connect(
        self, topic: str, data: bytes | None, headers: RawHeaders = ()
    ) -> SchemaAndValue:
        return SchemaAndValue(self._schema, None if data is None else self._read(data))

    def _read(self, data: bytes) -> Value:
        try:
            return self._format.unpack(data)[0]
        except struct.error as error:
            problem = f"Size of data received by {type(self).__name__} is not {self._format.size}"
            raise DataError(f"Failed to deserialize {self._label}: ") from ValueError(
                f"{problem}: {error}"
            )

    def from_connect(
        self, topic: str, schema: Schema | None, value: Value, headers: MutableHeaders | None = None
    ) -> bytes | None:
        if value is None:
            return None
        if schema is not None and (schema.type is not self._schema.type or schema.name in _MOMENTS):
            raise DataError(self._refusal(schema, value))
        try:
            validate_value(self._schema, value)
            return self._format.pack(value)
        except (DataError, struct.error, OverflowError) as error:
            raise DataError(self._refusal(schema, value)) from error

    def _refusal(self, schema: Schema | None, value: Value) -> str:
        return (
            f"Failed to serialize to {self._label} (was class {java_class_name(value, schema)}): "
        )

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        from connect_py.columns import arrow

        if not data:
            return []
        values: list[Value] = []
        failures: dict[int, Exception] = {}
        for index, message in enumerate(data):
            try:
                values.append(None if message is None else self._read(message))
            except DataError as error:
                failures[index] = error
                values.append(None)
        return [
            ColumnRun(
                0, len(data), Column(self._schema, arrow.to_array(self._schema, values)), failures
            )
        ]


class ShortConverter(_PrimitiveConverter):
    """INT16."""

    _label = "short"
    _format = struct.Struct(">h")
    _schema = Schema(Type.INT16, optional=True)


class IntegerConverter(_PrimitiveConverter):
    """INT32."""

    _label = "integer"
    _format = struct.Struct(">i")
    _schema = Schema(Type.INT32, optional=True)


class LongConverter(_PrimitiveConverter):
    """INT64."""

    _label = "long"
    _format = struct.Struct(">q")
    _schema = Schema(Type.INT64, optional=True)


class FloatConverter(_PrimitiveConverter):
    """FLOAT32."""

    _label = "float"
    _format = struct.Struct(">f")
    _schema = Schema(Type.FLOAT32, optional=True)


class DoubleConverter(_PrimitiveConverter):
    """FLOAT64."""

    _label = "double"
    _format = struct.Struct(">d")
    _schema = Schema(Type.FLOAT64, optional=True)


class BooleanConverter(_PrimitiveConverter):
    """BOOLEAN: one byte, 0 or 1."""

    _label = "boolean"
    _format = struct.Struct("?")
    _schema = Schema(Type.BOOLEAN, optional=True)

    def from_connect(
        self, topic: str, schema: Schema | None, value: Value, headers: MutableHeaders | None = None
    ) -> bytes | None:
        if schema is not None and schema.type is not Type.BOOLEAN:
            raise DataError(f"Invalid schema type for BooleanConverter: {schema.type.name}")
        return super().from_connect(topic, schema, value, headers)

    def _refusal(self, schema: Schema | None, value: Value) -> str:
        return (
            f"BooleanConverter is not compatible with objects of type class "
            f"{java_class_name(value, schema)}"
        )

    def _read(self, data: bytes) -> Value:
        if data not in (b"\0", b"\1"):
            raise DataError("Failed to deserialize boolean: ")
        return data == b"\1"
