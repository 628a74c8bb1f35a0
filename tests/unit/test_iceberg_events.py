"""Events for other applications, as Java's decoder reads them: magic, schema, Avro binary."""

from __future__ import annotations

import io
import json
import struct
import uuid
from datetime import UTC, datetime
from typing import Any

import fastavro

from connectors.iceberg.coordinator.control_events import (
    COMMIT_COMPLETE,
    COMMIT_TO_TABLE,
    EventPublisher,
)
from connectors.iceberg.protocol.actions import CommitTable
from connectors.iceberg.protocol.ledger import Ledger, LedgerEntry, TableVersion, TopicLedger
from connectors.iceberg.protocol.positions import Epoch, TopicPartition
from connectors.iceberg.table.table import StagedFile, StagedKind

TABLE = str(uuid.uuid4())
COMMIT = str(uuid.uuid4())
THROUGH = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)


class Topic:
    """What was written to the control topic."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def write(self, key: bytes, value: bytes) -> None:
        self.values.append(value)

    def schema_text(self) -> bytes:
        """Of the last event, as Java's `readUTF` finds it."""
        (length,) = struct.unpack_from(">H", self.values[-1], 2)
        return self.values[-1][4 : 4 + length]

    def event(self) -> Any:
        """The last one, read with the schema that it carries."""
        value, text = self.values[-1], self.schema_text()
        assert value[:2] == b"\xc2\x01"
        body = io.BytesIO(value[4 + len(text) :])
        read = fastavro.schemaless_reader(body, fastavro.parse_schema(json.loads(text)))  # type: ignore[call-arg]
        assert body.read() == b"", "nothing is left"
        return read


def request(files: int = 1, partitions: int = 1) -> CommitTable:
    entries = {number: LedgerEntry(0, 0, 5) for number in range(partitions)}
    ledger = Ledger(
        Epoch(7, "a"), COMMIT, 1, TABLE, "k-1", {"orders": TopicLedger("id-1", entries)}
    )
    staged = [
        StagedFile(StagedKind.ROWS, f"s3://lake/{n}.parquet", 1, 1, 0, 0) for n in range(files)
    ]
    version = TableVersion(TABLE, None, None)
    return CommitTable(
        "a.b.orders", COMMIT, version, ledger, {}, {TopicPartition("orders", 0): staged}, None
    )


def test_both_commit_events_are_read_back_with_their_schema() -> None:
    topic = Topic()
    publisher = EventPublisher("cg-orders", "lake", topic)
    publisher.on_table_commit(request(), 9, THROUGH)
    event = topic.event()
    assert (event["type"], event["group_id"]) == (COMMIT_TO_TABLE, "cg-orders")
    assert event["payload"] == {
        "commit_id": uuid.UUID(COMMIT).bytes,
        "table_reference": {
            "catalog": "lake",
            "namespace": ["a", "b"],
            "name": "orders",
            "uuid": uuid.UUID(TABLE).bytes,
        },
        "snapshot_id": 9,
        "valid_through_ts": THROUGH,
    }
    publisher.on_cycle_complete(COMMIT, None)
    event = topic.event()
    assert (event["type"], event["payload"]["commit_id"]) == (
        COMMIT_COMPLETE,
        uuid.UUID(COMMIT).bytes,
    )
    assert event["payload"]["valid_through_ts"] is None


def test_commit_event_size_is_independent_of_files_and_partitions() -> None:
    topic = Topic()
    publisher = EventPublisher("cg-orders", "lake", topic)
    publisher.on_table_commit(request(), 9, THROUGH)
    small = topic.schema_text(), len(topic.values[-1])
    publisher.on_table_commit(request(files=20_000, partitions=5_000), 9, THROUGH)
    assert (topic.schema_text(), len(topic.values[-1])) == small
    assert small[1] < 5_000
