"""Base class for converters that also convert headers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from connect_py.api.converter import Converter, HeaderConverter
from connect_py.api.schema import Schema, SchemaAndValue, Value


class ValueAndHeaderConverter(Converter, HeaderConverter):
    """Converts headers with the methods for values. The key of the header is ignored."""

    @abstractmethod
    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        """Configure the converter. Header converters are configured without `is_key`."""

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        return self.to_connect(topic, data)

    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Value
    ) -> bytes | None:
        return self.from_connect(topic, schema, value)
