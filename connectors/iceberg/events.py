"""What outside listeners of the control topic hear: COMMIT_TO_TABLE and COMMIT_COMPLETE, in Java's Avro form.

The events are information for others; nothing of ours reads them, and a failure to write one is logged, no more.
Source of the encoding: Apache Iceberg's `AvroEncoderUtil` (magic, schema text in Java's modified UTF, Avro binary) and
its event schemas, whose field ids ride in the schema.
"""

from __future__ import annotations

import io
import json
import logging
import struct
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from connectors.iceberg.protocol.actions import CommitRequest

log = logging.getLogger(__name__)

MAGIC = b"\xc2\x01"
COMMIT_TO_TABLE = 3
COMMIT_COMPLETE = 4

_UUID = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
_TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}


class CommitListener(Protocol):
    """Hears of commits, on the coordinator's threads; must not raise."""

    def on_table_commit(self, request: CommitRequest, snapshot: int, valid_through: datetime | None) -> None:
        """A snapshot of a table is visible."""

    def on_cycle_complete(self, commit: str, valid_through: datetime | None) -> None:
        """All tables of a cycle are done."""


class ByteWriter(Protocol):
    """Where encoded events go: a producer of the control topic."""

    def write(self, key: bytes, value: bytes) -> None: ...


class EventPublisher:
    """Encodes commits as events for the control topic."""

    def __init__(self, group: str, catalog: str, writer: ByteWriter) -> None:
        self._group = group
        self._catalog = catalog
        self._writer = writer
        self._key = str(uuid.uuid4()).encode()

    def on_table_commit(self, request: CommitRequest, snapshot: int, valid_through: datetime | None) -> None:
        *namespace, name = request.table.split(".")
        reference = {"catalog": self._catalog, "namespace": namespace, "name": name, "uuid": request.expected.uuid}
        payload = {
            "commit_id": request.commit,
            "table_reference": reference,
            "snapshot_id": snapshot,
            "valid_through_ts": valid_through,
        }
        self._write(COMMIT_TO_TABLE, payload)

    def on_cycle_complete(self, commit: str, valid_through: datetime | None) -> None:
        self._write(COMMIT_COMPLETE, {"commit_id": commit, "valid_through_ts": valid_through})

    def _write(self, kind: int, payload: Mapping[str, Any]) -> None:
        try:
            self._writer.write(self._key, encode_event(kind, self._group, payload, datetime.now(UTC)))
        except Exception:
            log.exception("an event for outside listeners was not written")


def event_schema(kind: int) -> dict[str, Any]:
    """The Avro schema of an event with this payload, Iceberg's field ids included."""
    optional_time = {"name": "valid_through_ts", "type": ["null", _TIMESTAMP], "default": None}
    if kind == COMMIT_TO_TABLE:
        reference = {
            "type": "record",
            "name": "org.apache.iceberg.connect.events.TableReference",
            "fields": [
                {"name": "catalog", "type": "string", "field-id": 10600},
                {
                    "name": "namespace",
                    "type": {"type": "array", "items": "string", "element-id": 10602},
                    "field-id": 10601,
                },
                {"name": "name", "type": "string", "field-id": 10603},
                {"name": "uuid", "type": ["null", "uuid_fixed"], "default": None, "field-id": 10604},
            ],
        }
        payload = {
            "type": "record",
            "name": "org.apache.iceberg.connect.events.CommitToTable",
            "fields": [
                {"name": "commit_id", "type": "uuid_fixed", "field-id": 10400},
                {"name": "table_reference", "type": reference, "field-id": 10401},
                {"name": "snapshot_id", "type": ["null", "long"], "default": None, "field-id": 10402},
                {**optional_time, "field-id": 10403},
            ],
        }
    else:
        payload = {
            "type": "record",
            "name": "org.apache.iceberg.connect.events.CommitComplete",
            "fields": [
                {"name": "commit_id", "type": "uuid_fixed", "field-id": 10000},
                {**optional_time, "field-id": 10001},
            ],
        }
    return {
        "type": "record",
        "name": "org.apache.iceberg.connect.events.Event",
        "fields": [
            {"name": "id", "type": _UUID, "field-id": 10500},
            {"name": "type", "type": "int", "field-id": 10501},
            {"name": "timestamp", "type": _TIMESTAMP, "field-id": 10502},
            {"name": "group_id", "type": "string", "field-id": 10503},
            {"name": "payload", "type": payload, "field-id": 10504},
        ],
    }


def encode_event(kind: int, group: str, payload: Mapping[str, Any], now: datetime) -> bytes:
    """The bytes of one event."""
    import fastavro  # only the coordinator needs it

    schema = event_schema(kind)
    text = json.dumps(schema, separators=(",", ":")).encode()  # ASCII: modified UTF is the same
    document = {
        "id": uuid.uuid4().bytes,
        "type": kind,
        "timestamp": now,
        "group_id": group,
        "payload": _with_bytes(payload),
    }
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(text)), document)
    return MAGIC + struct.pack(">H", len(text)) + text + body.getvalue()


def _with_bytes(payload: Mapping[str, Any]) -> dict[str, Any]:
    """UUIDs as the 16 bytes that Avro's fixed holds."""
    found: dict[str, Any] = {}
    for name, value in payload.items():
        if isinstance(value, Mapping):
            found[name] = _with_bytes(value)
        else:
            found[name] = uuid.UUID(value).bytes if name in ("commit_id", "uuid") and value else value
    return found
