"""Events from the Java sinks' control topic that determine the sink's position."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connectors.iceberg.coordinator.control_events import MAGIC

DATA_WRITTEN = 1  # contains uncommitted files for one table
DATA_COMPLETE = 2  # contains the offsets that a task had reached when it reported the files


@dataclass(frozen=True, slots=True)
class JavaEvent:
    """One event and its position in the control topic."""

    partition: int
    offset: int
    kind: int
    group: str
    payload: Mapping[str, Any]

    @property
    def table(self) -> str | None:
        """Full name of the table in a DATA_WRITTEN event."""
        reference = self.payload.get("table_reference") or self.payload.get("table_name")
        if not isinstance(reference, Mapping):
            return None
        return ".".join([*reference.get("namespace", ()), reference["name"]])

    @property
    def read_to(self) -> dict[tuple[str, int], int]:
        """Next offsets of the source partitions that had rows, from a DATA_COMPLETE event."""
        assigned = self.payload.get("assignments") or ()
        return {
            (one["topic"], one["partition"]): one["offset"]
            for one in assigned
            if one.get("offset") is not None
        }

    @staticmethod
    def decode(partition: int, offset: int, value: bytes | None) -> JavaEvent | None:
        """Return the event in a control message from either Java sink, or None if there is none.

        The message consists of magic bytes, the Avro schema as a string, and the Avro record.
        """
        import fastavro

        if value is None or not value.startswith(MAGIC) or len(value) < len(MAGIC) + 2:
            return None
        (length,) = struct.unpack_from(">H", value, len(MAGIC))
        begin = len(MAGIC) + 2
        try:
            schema = fastavro.parse_schema(json.loads(value[begin : begin + length]))
            event = fastavro.schemaless_reader(io.BytesIO(value[begin + length :]), schema, None)
            assert isinstance(event, dict)
            return JavaEvent(partition, offset, event["type"], event["group_id"], event["payload"])
        except (
            ValueError,
            KeyError,
            EOFError,
            AssertionError,
            fastavro.schema.SchemaParseException,
        ):
            return None
