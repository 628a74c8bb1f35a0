"""`DeadLetterRows`: builds the rows of the dead-letter table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter, without_replay
from connect_py.api.record import RecordOrigin, SinkRecord
from connect_py.api.schema import (
    INT32,
    INT64,
    OPTIONAL_BYTES,
    OPTIONAL_STRING,
    STRING,
    TIMESTAMP,
    Schema,
    Struct,
    Type,
    array,
    struct,
)
from connect_py.api.secret_keys import SECRET_KEY
from connect_py.columns.arrow import arrow_type
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.types import TypeOptions, new_table_schema
from connectors.iceberg.table.table import TableRequest

_MOMENT = Schema(Type.INT64, optional=True, name=TIMESTAMP, version=1)
_HEADER = struct(("key", STRING), ("value", OPTIONAL_BYTES))
SCHEMA = struct(
    ("topic", STRING),
    ("partition", INT32),
    ("offset", INT64),
    ("timestamp", _MOMENT),
    ("timestamp_type", OPTIONAL_STRING),
    ("key", OPTIONAL_BYTES),
    ("value", OPTIONAL_BYTES),
    ("headers", array(_HEADER)),
    ("_dlq_reason", STRING),
    ("stage", STRING),
    ("class_name", OPTIONAL_STRING),
    ("error_class", OPTIONAL_STRING),
    ("error_message", OPTIONAL_STRING),
    ("error_stacktrace", OPTIONAL_STRING),
    ("attempt", INT32),
    ("connector", STRING),
    ("task", INT32),
    ("config_hash", STRING),
    ("failed_at", _MOMENT),
)
"""Schema of the dead-letter table. Each row is a failed record with the reason for the failure."""

_MAX_MESSAGE = 10_000  # maximum length in characters; some error messages quote the data


class DeadLetterRows:
    """Builds the rows that one task writes to the dead-letter table."""

    def __init__(self, connector: str, task: int, props: Mapping[str, str]) -> None:
        self._connector = connector
        self._task = task
        self._config_hash = config_hash(props)

    @staticmethod
    def creation(config: IcebergSinkConfig) -> str:
        """Return the serialized request that creates the dead-letter table."""
        return TableRequest(
            new_table_schema(SCHEMA, arrow_type(SCHEMA), TypeOptions.of(config))
        ).to_text()

    def batches(self, dead_letters: Iterable[DeadLetter]) -> list[Batch]:
        """Return batches of rows, grouped by topic. `dead_letters` must be in offset order."""
        by_topic: dict[str, list[SinkRecord]] = {}
        for failed in dead_letters:
            by_topic.setdefault(failed.origin.topic, []).append(self._record(failed))
        return [batch for records in by_topic.values() for batch in Batch.of(records)]

    def _record(self, failed: DeadLetter) -> SinkRecord:
        origin, replay = failed.origin, failed.replay
        first = replay or origin
        # replay headers are removed only from replayed records; other records may use these names
        pairs = origin.headers if replay is None else without_replay(origin.headers)
        headers = [Struct(_HEADER, pair) for pair in pairs]
        values = (
            first.topic,
            first.partition,
            first.offset,
            failed.timestamp,
            failed.timestamp_type.value,
            origin.key,
            origin.value,
            headers,
            failed.reason.value,
            failed.stage,
            failed.class_name,
            failed.error_class,
            _cut(failed.error_message),
            _cut(failed.error_trace),
            0 if replay is None else replay.attempt,
            self._connector,
            self._task,
            self._config_hash,
            failed.failed_at,
        )
        location = RecordOrigin(origin.topic, origin.partition, origin.offset)
        return SinkRecord(
            origin.topic,
            origin.partition,
            None,
            None,
            SCHEMA,
            Struct(SCHEMA, values),
            failed.timestamp,
            timestamp_type=failed.timestamp_type,
            origin=location,
        )


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:_MAX_MESSAGE]


def config_hash(props: Mapping[str, str]) -> str:
    """Return 16 hexadecimal digits that identify a configuration without its secrets."""
    digest = hashlib.sha256()
    for key in sorted(props):
        if not SECRET_KEY.search(key):
            digest.update(f"{key}\0{props[key]}\0".encode())
    return digest.hexdigest()[:16]
