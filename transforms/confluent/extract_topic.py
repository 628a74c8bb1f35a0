"""Confluent's `ExtractTopic`: replaces the topic name with the value of a field or header."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import Struct, Value, java_class_name
from transforms.json_path import JsonPath
from transforms.side import SideTransformation, for_both


class ExtractTopic(SideTransformation[R]):
    """Routes each record to the topic that a field of its key or value names."""

    config_def = (
        ConfigDef()
        .define(
            "field",
            Type.STRING,
            default="",
            importance=Importance.HIGH,
            doc="Field or header with the topic. Empty to use the whole key or value.",
        )
        .define(
            "field.format",
            Type.STRING,
            default="plain",
            importance=Importance.MEDIUM,
            validator=one_of("plain", "json_path", case_insensitive=True),
            doc="Format of field: plain for a field name, or json_path for a path such as $.a.b.",
        )
        .define(
            "skip.missing.or.null",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Pass records without the field through unchanged instead of failing.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._field: str = props["field"]
        self._path: JsonPath | None = None
        if props["field.format"].lower() == "json_path" and self._field:
            self._path = JsonPath("field", self._field)
        self._skips: bool = props["skip.missing.or.null"]

    def topic(self, record: R) -> Value:
        """Return the new topic name, or None if the record does not contain it."""
        side = self.side.of(record)
        if not self._field:
            return side.value
        if self._path is not None:
            matches = self._path.find(side.value)
            return matches[0] if matches else None
        if isinstance(side.value, Struct):
            return (
                None
                if side.value.schema.field(self._field) is None
                else side.value.get(self._field)
            )
        return side.value.get(self._field) if isinstance(side.value, dict) else None

    def apply(self, record: R) -> R | None:
        value = self.topic(record)
        if value is None:
            if self._skips:
                return record
            raise DataError(
                f"the field or header with the topic is missing or null: {self._field or 'value'}"
            )
        if not isinstance(value, str):
            raise DataError(f"the topic must be a string, found: {java_class_name(value)}")
        return record.replace(topic=value)


ExtractTopicKey, ExtractTopicValue = for_both(ExtractTopic)


class ExtractTopicHeader(ExtractTopic[R]):
    """Routes each record to the topic that a header names."""

    def topic(self, record: R) -> Value:
        header = record.headers.last_with(self._field)
        return None if header is None else header.value
