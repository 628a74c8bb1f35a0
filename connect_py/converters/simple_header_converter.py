"""`org.apache.kafka.connect.storage.SimpleHeaderConverter`, the worker's default for headers."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.converter import HeaderConverter
from connect_py.api.schema import NULL, Schema, SchemaAndValue, Value
from connect_py.java.values import parse_string, to_text


class SimpleHeaderConverter(HeaderConverter):
    """Guesses the type of each header from its text. Never an error."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Nothing to configure."""

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        return NULL if data is None else parse_string(data.decode(errors="replace"))

    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Value
    ) -> bytes | None:
        return None if value is None else to_text(schema, value).encode(errors="replace")
