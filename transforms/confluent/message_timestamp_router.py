"""Confluent's `MessageTimestampRouter`: makes a time in the value part of the topic."""

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
    """The first of some keys that is there holds the time."""

    config_def = (
        ConfigDef()
        .add(TOPIC_FORMAT)
        .define(
            "message.timestamp.format",
            Type.STRING,
            default="yyyy-MM-dd'T'HH:mm:ss.SSSX",
            validator=_date_format,
            importance=Importance.HIGH,
            doc="The format of the time in the value.",
        )
        .define(
            "message.timestamp.keys",
            Type.LIST,
            importance=Importance.HIGH,
            doc="Where the time is: keys of the value.",
        )
        .define(
            "topic.timestamp.format",
            Type.STRING,
            default="yyyyMMdd",
            validator=_date_format,
            importance=Importance.HIGH,
            doc="The format of the time in the topic.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._topic_format: str = props["topic.format"]
        self._keys: list[str] = props["message.timestamp.keys"]
        self._read = java_date_format(props["message.timestamp.format"])
        self._written = java_date_format(props["topic.timestamp.format"])

    def apply(self, record: R) -> R | None:
        value = plain(record.value) if isinstance(record.value, Struct) else record.value
        row = require_map(value, "message timestamp routing")
        text = next((row[key] for key in self._keys if row.get(key) is not None), None)
        if text is None:
            raise DataError(f"none of {', '.join(self._keys)} is in the value")
        try:
            moment = text if isinstance(text, int) else self._read.parse(str(text))
        except JavaDateFormatError as error:
            raise DataError(f"{text} does not match {self._read.pattern}") from error
        topic = self._topic_format.replace("${topic}", record.topic)
        return record.replace(topic=topic.replace("${timestamp}", self._written.format(moment)))
