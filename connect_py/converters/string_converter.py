"""`org.apache.kafka.connect.storage.StringConverter`."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import ClassVar

from connect_py.api.batch import Column
from connect_py.api.config import ConfigDef, Importance, Type, Width
from connect_py.api.converter import ColumnRun
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import MutableHeaders, RawHeaders
from connect_py.api.schema import OPTIONAL_STRING, Schema, SchemaAndValue, Value
from connect_py.converters.value_and_header_converter import ValueAndHeaderConverter
from connect_py.java.strings import java_text


class StringConverter(ValueAndHeaderConverter):
    """Text. Bytes that are no text of the encoding become U+FFFD."""

    config_def: ClassVar[ConfigDef] = ConfigDef().define(
        "converter.encoding",
        Type.STRING,
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
            column = pa.array(data, pa.binary()).cast(pa.string())  # checks that it is UTF-8
        except pa.ArrowInvalid:
            column = pa.array(
                [None if d is None else d.decode(self._encoding, "replace") for d in data],
                pa.string(),
            )
        return [ColumnRun(0, len(data), Column(OPTIONAL_STRING, column))] if data else []
