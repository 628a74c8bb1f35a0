"""Change events of Debezium: how they are recognised, and the names of their members."""

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
DELETE: Final = "d"  # the operation of a delete event
PER_SECOND: Final[Mapping[str, int]] = {  # schemas of moments, and their units
    "io.debezium.time.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
    TIMESTAMP: 1000,
}


def is_envelope(schema: Schema | None) -> bool:
    """Whether a value of this schema is a change event: known by the name of its schema alone."""
    return schema is not None and schema.name is not None and schema.name.endswith(ENVELOPE_SUFFIX)


def is_delete(event: Struct) -> bool:
    """Whether the event's operation is a delete."""
    return event.schema.field(OP) is not None and bool(event.get_without_default(OP) == DELETE)


def text_column(row: Schema, name: str) -> int:
    """The index of a column of texts; DataError when there is none, or it holds something else."""
    field = row.field(name)
    if field is None:
        raise DataError(f"{name} is not a valid field name")
    if field.schema.type is not Type.STRING:
        raise DataError(f"Field '{name}' is not of type STRING")
    return field.index
