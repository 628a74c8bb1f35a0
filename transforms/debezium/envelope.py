"""Field names in the envelopes of Debezium's change events, and functions that detect them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connect_py.api.errors import DataError
from connect_py.api.schema import TIMESTAMP, Schema, Struct, Type

ENVELOPE_SUFFIX: Final = ".Envelope"
BEFORE: Final = "before"
AFTER: Final = "after"
OP: Final = "op"
DELETED: Final = "__deleted"
DELETE: Final = "d"  # operation of a delete event
PER_SECOND: Final[Mapping[str, int]] = {  # schema name of a timestamp -> units per second
    "io.debezium.time.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
    TIMESTAMP: 1000,
}


def is_envelope(schema: Schema | None) -> bool:
    """Return True if the name of the schema identifies an envelope."""
    return schema is not None and schema.name is not None and schema.name.endswith(ENVELOPE_SUFFIX)


def is_delete(event: Struct) -> bool:
    """Return True if the event is a delete event."""
    return event.schema.field(OP) is not None and bool(event.get_without_default(OP) == DELETE)


def string_column(row: Schema, name: str) -> int:
    """Return the index of a string column; raise DataError if it is missing or not a string."""
    field = row.field(name)
    if field is None:
        raise DataError(f"{name} is not a valid field name")
    if field.schema.type is not Type.STRING:
        raise DataError(f"Field '{name}' is not of type STRING")
    return field.index
