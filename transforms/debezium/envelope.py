"""Change events of Debezium: how they are recognised, and the names of their members."""

from __future__ import annotations

from typing import Final

from connect_py.api.schema import Schema, Struct

ENVELOPE_SUFFIX: Final = ".Envelope"
BEFORE: Final = "before"
AFTER: Final = "after"
OP: Final = "op"
DELETED: Final = "__deleted"
DELETE: Final = "d"  # the operation of a delete event


def is_envelope(schema: Schema | None) -> bool:
    """Whether a value of this schema is a change event: known by the name of its schema alone."""
    return schema is not None and schema.name is not None and schema.name.endswith(ENVELOPE_SUFFIX)


def is_delete(event: Struct) -> bool:
    """Whether the event's operation is a delete."""
    return event.schema.field(OP) is not None and bool(event.get_without_default(OP) == DELETE)
