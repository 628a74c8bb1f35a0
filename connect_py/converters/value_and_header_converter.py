"""`ValueAndHeaderConverter`: what converts keys and values, and headers in just the same way."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from connect_py.api.converter import Converter, HeaderConverter
from connect_py.api.schema import Schema, SchemaAndValue, Value


class ValueAndHeaderConverter(Converter, HeaderConverter):
    """Converts headers by the methods for values; the header's key changes nothing."""

    @abstractmethod
    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        """See `Converter`; for headers it is called without `is_key`."""

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        return self.to_connect(topic, data)

    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Value
    ) -> bytes | None:
        return self.from_connect(topic, schema, value)
