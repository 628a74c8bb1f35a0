"""COMMIT_TO_TABLE and COMMIT_COMPLETE events on the control topic, in the format of the Java sink.

The events are for other applications. The sink does not read them, and only logs failed writes. The
encoding follows Apache Iceberg's `AvroEncoderUtil` (magic, schema in Java's modified UTF-8, Avro
binary) and its event schemas with field IDs.
"""

from __future__ import annotations

import io
import json
import logging
import struct
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, Producer

from connect_py.api.errors import ConnectError
from connectors.iceberg.coordinator.channel_topic import (
    MESSAGE_MS,
    ClientConfig,
    create_topic,
    producer_settings,
)
from connectors.iceberg.protocol.actions import CommitTable

log = logging.getLogger(__name__)

MAGIC = b"\xc2\x01"
COMMIT_TO_TABLE = 3
COMMIT_COMPLETE = 4

_UUID = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
_TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}


def _record(name: str, *members: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": f"org.apache.iceberg.connect.events.{name}",
        "fields": list(members),
    }


def _member(name: str, kind: object, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": field_id}


def _optional(name: str, kind: object, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


_REFERENCE = _record(
    "TableReference",
    _member("catalog", "string", 10600),
    _member("namespace", {"type": "array", "items": "string", "element-id": 10602}, 10601),
    _member("name", "string", 10603),
    _optional("uuid", "uuid_fixed", 10604),
)
_PAYLOADS = {
    COMMIT_TO_TABLE: _record(
        "CommitToTable",
        _member("commit_id", "uuid_fixed", 10400),
        _member("table_reference", _REFERENCE, 10401),
        _optional("snapshot_id", "long", 10402),
        _optional("valid_through_ts", _TIMESTAMP, 10403),
    ),
    COMMIT_COMPLETE: _record(
        "CommitComplete",
        _member("commit_id", "uuid_fixed", 10000),
        _optional("valid_through_ts", _TIMESTAMP, 10001),
    ),
}


class EventWriter:
    """Writes to the control topic without waiting for delivery. Thread-safe."""

    def __init__(
        self, client_config: ClientConfig, topic: str, overrides: Mapping[str, str]
    ) -> None:
        """Create the topic unless it exists.

        The Java sink relies on the brokers to create it automatically.
        """
        try:
            create_topic(client_config, topic)
        except ConnectError as error:
            log.warning("events for other applications may be lost: %s", error)
        self._topic = topic
        self._producer = Producer(producer_settings(client_config, MESSAGE_MS, **overrides))

    def write(self, key: bytes, value: bytes) -> None:
        """Send a record without waiting for its delivery."""
        self._producer.produce(self._topic, value, key, on_delivery=_log_failure)
        self._producer.poll(0)


def _log_failure(error: KafkaError | None, _record: object) -> None:
    if error is not None:
        log.warning("failed to write an event for other applications: %s", error.str())


class EventPublisher:
    """Publishes commits on the control topic. Thread-safe, and never raises an error."""

    def __init__(self, group: str, catalog: str, writer: EventWriter) -> None:
        self._group = group
        self._catalog = catalog
        self._writer = writer
        self._key = str(uuid.uuid4()).encode()

    def on_table_commit(
        self, request: CommitTable, snapshot: int, valid_through: datetime | None
    ) -> None:
        """Publish a snapshot of a table."""
        *namespace, name = request.table.split(".")
        table_uuid = _bytes(request.expected.uuid) if request.expected.uuid else None
        reference = {
            "catalog": self._catalog,
            "namespace": namespace,
            "name": name,
            "uuid": table_uuid,
        }
        payload = {
            "commit_id": _bytes(request.commit),
            "table_reference": reference,
            "snapshot_id": snapshot,
            "valid_through_ts": valid_through,
        }
        self._write(COMMIT_TO_TABLE, payload)

    def on_cycle_complete(self, commit: str, valid_through: datetime | None) -> None:
        """Publish the end of a cycle."""
        self._write(
            COMMIT_COMPLETE, {"commit_id": _bytes(commit), "valid_through_ts": valid_through}
        )

    def _write(self, kind: int, payload: Mapping[str, Any]) -> None:
        try:
            self._writer.write(
                self._key, encode_event(kind, self._group, payload, datetime.now(UTC))
            )
        except Exception:
            log.exception("failed to write an event for other applications")


def encode_event(kind: int, group: str, payload: Mapping[str, Any], now: datetime) -> bytes:
    """Return an event in the encoding that the Java sink uses."""
    import fastavro  # local: only task 0 uses it

    schema = _record(
        "Event",
        _member("id", _UUID, 10500),
        _member("type", "int", 10501),
        _member("timestamp", _TIMESTAMP, 10502),
        _member("group_id", "string", 10503),
        _member("payload", _PAYLOADS[kind], 10504),
    )
    schema_json = json.dumps(schema, separators=(",", ":")).encode()  # ASCII
    document = {
        "id": uuid.uuid4().bytes,
        "type": kind,
        "timestamp": now,
        "group_id": group,
        "payload": payload,
    }
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(schema_json)), document)
    return MAGIC + struct.pack(">H", len(schema_json)) + schema_json + body.getvalue()


def _bytes(text: str) -> bytes:
    """Convert a UUID string to its 16 bytes."""
    return uuid.UUID(text).bytes
