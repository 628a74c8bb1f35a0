"""Confluent's `MessageTimestampRouter`: adds the value's timestamp to the topic name."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import Struct
from connect_py.api.transformation import Transformation
from connect_py.java.date_format import JavaDateFormatError, java_date_format
from transforms.plain_values import plain
from transforms.requirements import require_map
from transforms.shared_options import TOPIC_FORMAT


def _date_format(name: str, value: Parsed) -> None:
    try:
        java_date_format(value or "")
    except JavaDateFormatError as error:
        raise ConfigValueError(name, value, str(error)) from error


class MessageTimestampRouter(Transformation[R]):
    """Adds the first configured timestamp field that is not null to the topic name."""

    config_def = (
        ConfigDef()
        .add(TOPIC_FORMAT)
        .define(
            "message.timestamp.format",
            Type.STRING,
            default="yyyy-MM-dd'T'HH:mm:ss.SSSX",
            validator=_date_format,
            importance=Importance.HIGH,
            doc="Format of the timestamp in the value.",
        )
        .define(
            "message.timestamp.keys",
            Type.LIST,
            importance=Importance.HIGH,
            doc="Keys in the value that may contain the timestamp.",
        )
        .define(
            "topic.timestamp.format",
            Type.STRING,
            default="yyyyMMdd",
            validator=_date_format,
            importance=Importance.HIGH,
            doc="Format of the timestamp in the topic name.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._topic_format: str = props["topic.format"]
        self._keys: list[str] = props["message.timestamp.keys"]
        self._message_format = java_date_format(props["message.timestamp.format"])
        self._timestamp_format = java_date_format(props["topic.timestamp.format"])

    def apply(self, record: R) -> R | None:
        value = plain(record.value) if isinstance(record.value, Struct) else record.value
        row = require_map(value, "message timestamp routing")
        timestamp = next((row[key] for key in self._keys if row.get(key) is not None), None)
        if timestamp is None:
            raise DataError(f"the value has none of the keys {', '.join(self._keys)}")
        if isinstance(timestamp, int):
            millis = timestamp
        else:
            try:
                millis = self._message_format.parse(str(timestamp))
            except JavaDateFormatError as error:
                pattern = self._message_format.pattern
                raise DataError(f"{timestamp} does not match {pattern}") from error
        topic = self._topic_format.replace("${topic}", record.topic)
        return record.replace(
            topic=topic.replace("${timestamp}", self._timestamp_format.format(millis))
        )
