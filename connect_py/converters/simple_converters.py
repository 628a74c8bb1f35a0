"""Converters for simple types: strings, bytes, numbers, and headers of any simple type.

Java names: `org.apache.kafka.connect.storage.{StringConverter,SimpleHeaderConverter}` and
`org.apache.kafka.connect.converters.{ByteArray,Short,Integer,Long,Float,Double,Boolean}Converter`.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from connect_py.api.batch import Column
from connect_py.api.config import ConfigDef, Importance, Width
from connect_py.api.config import Type as ConfigType
from connect_py.api.converter import ColumnRun, HeaderConverter
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import MutableHeaders, RawHeaders
from connect_py.api.schema import (
    DATE,
    NULL,
    OPTIONAL_BYTES,
    OPTIONAL_STRING,
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
from connect_py.java.strings import java_text
from connect_py.java.values import parse_string, to_text

# logical types whose values are java.util.Date in Java, regardless of the schema type
_MOMENTS: Final = frozenset({DATE, TIME, TIMESTAMP})


class StringConverter(ValueAndHeaderConverter):
    """Converts strings. Bytes that are invalid in the encoding become U+FFFD."""

    config_def: ClassVar[ConfigDef] = ConfigDef().define(
        "converter.encoding",
        ConfigType.STRING,
        default="UTF-8",
        importance=Importance.HIGH,
        width=Width.MEDIUM,
        display_name="Encoding",
        doc="The name of the Java character set to use for encoding strings as byte arrays.",
    )

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        name: str = self.config_def.parse(configs)["converter.encoding"]
        try:
            self._encoding = codecs.lookup(name).name
        except LookupError as error:
            raise ConfigError("converter.encoding", f"unknown character set {name}") from error

    def to_connect(
        self, topic: str, data: bytes | None, headers: RawHeaders = ()
    ) -> SchemaAndValue:
        return SchemaAndValue(
            OPTIONAL_STRING, None if data is None else data.decode(self._encoding, "replace")
        )

    def from_connect(
        self, topic: str, schema: Schema | None, value: Value, headers: MutableHeaders | None = None
    ) -> bytes | None:
        if value is None:
            return None
        try:
            return java_text(schema, value).encode(self._encoding, "replace")
        except (TypeError, ValueError) as error:
            raise DataError("Failed to serialize to a string: ") from error

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        import pyarrow as pa

        try:
            if self._encoding != "utf-8":
                raise pa.ArrowInvalid("not UTF-8")
            # rejects bytes that are not UTF-8
            column = pa.array(data, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            column = pa.array(
                [None if d is None else d.decode(self._encoding, "replace") for d in data],
                pa.string(),
            )
        return [ColumnRun(0, len(data), Column(OPTIONAL_STRING, column))] if data else []


class ByteArrayConverter(ValueAndHeaderConverter):
    """Passes bytes through unchanged."""

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        """Do nothing, because the converter has no properties."""

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


class _PrimitiveConverter(ValueAndHeaderConverter):
    """Converts big-endian primitives."""

    _label: ClassVar[str]  # name of the type in error messages
    _format: ClassVar[struct.Struct]
    _schema: ClassVar[Schema]

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        """Do nothing, because the converter has no properties."""

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
    """Converts INT16 values."""

    _label = "short"
    _format = struct.Struct(">h")
    _schema = Schema(Type.INT16, optional=True)


class IntegerConverter(_PrimitiveConverter):
    """Converts INT32 values."""

    _label = "integer"
    _format = struct.Struct(">i")
    _schema = Schema(Type.INT32, optional=True)


class LongConverter(_PrimitiveConverter):
    """Converts INT64 values."""

    _label = "long"
    _format = struct.Struct(">q")
    _schema = Schema(Type.INT64, optional=True)


class FloatConverter(_PrimitiveConverter):
    """Converts FLOAT32 values."""

    _label = "float"
    _format = struct.Struct(">f")
    _schema = Schema(Type.FLOAT32, optional=True)


class DoubleConverter(_PrimitiveConverter):
    """Converts FLOAT64 values."""

    _label = "double"
    _format = struct.Struct(">d")
    _schema = Schema(Type.FLOAT64, optional=True)


class BooleanConverter(_PrimitiveConverter):
    """Converts BOOLEAN values, which are one byte: 0 or 1."""

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


class SimpleHeaderConverter(HeaderConverter):
    """Infers the type of each header value from its text. Accepts any byte sequence."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Do nothing, because the converter has no properties."""

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        return NULL if data is None else parse_string(data.decode(errors="replace"))

    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Value
    ) -> bytes | None:
        return None if value is None else to_text(schema, value).encode(errors="replace")
