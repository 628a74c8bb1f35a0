"""`TimestampRouter`: adds the timestamp of a record to its topic name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import R
from connect_py.api.transformation import Transformation
from connect_py.java.date_format import JavaDateFormatError, java_date_format
from transforms.shared_options import TOPIC_FORMAT


class TimestampRouter(Transformation[R]):
    """Formats the record's timestamp in UTC as Java's SimpleDateFormat does.

    `apply` and `apply_batch` are both implemented directly, because `FieldTransformation` cannot
    route the rows of a batch to different topics.
    """

    config_def = (
        ConfigDef()
        .add(TOPIC_FORMAT)
        .define(
            "timestamp.format",
            Type.STRING,
            default="yyyyMMdd",
            importance=Importance.HIGH,
            doc="Format of the timestamp, as a pattern for java.text.SimpleDateFormat.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._topic_format: str = props["topic.format"]
        try:
            self._format = java_date_format(props["timestamp.format"])
        except JavaDateFormatError as error:
            raise ConfigError("timestamp.format", str(error)) from error

    def _topic(self, topic: str, timestamp: str) -> str:
        return self._topic_format.replace("${topic}", topic).replace("${timestamp}", timestamp)

    def apply(self, record: R) -> R | None:
        if record.timestamp is None:
            raise DataError(f"Timestamp missing on record: {record.topic}-{record.partition}")
        return record.replace(
            topic=self._topic(record.topic, self._format.format(record.timestamp))
        )

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        import pyarrow as pa

        from transforms.columns import split, without

        if batch.timestamp.null_count:
            raise without(batch, self.apply, batch.timestamp.is_null(), self.apply_batch)
        encoded = batch.timestamp.dictionary_encode()
        formatted = pa.array(
            list(map(self._format.format, encoded.dictionary.to_pylist())), pa.string()
        )
        return [
            dataclasses.replace(part, topic=self._topic(batch.topic, timestamp))
            for timestamp, part in split(batch, formatted.take(encoded.indices))
        ]
