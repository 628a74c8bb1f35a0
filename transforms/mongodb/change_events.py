"""JSON documents and keys in Debezium's change events for MongoDB."""

from __future__ import annotations

from typing import Final

from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Struct
from connect_py.java.errors import IllegalArgumentError
from transforms.mongodb.extended_json import Document, parse_value

UPDATE_DESCRIPTION: Final = "updateDescription"
_KEY_SUFFIX: Final = ".Key"
_ID: Final = "id"


def has_document_key(schema: Schema | None) -> bool:
    """Return True if the name of the schema identifies a document key."""
    return schema is not None and schema.name is not None and schema.name.endswith(_KEY_SUFFIX)


def key_document(key: Struct) -> Document:
    """Return an event's key as the document `{id: …}`.

    Raises:
        IllegalArgumentError: The key has no field `id`.
        DataError: The field is not extended JSON.
    """
    if key.schema.field(_ID) is None:
        raise IllegalArgumentError(f"Unknown field: {_ID}")
    return {_ID: parse_value(str(key.get_without_default(_ID)))}


def json_of(event: Struct, name: str) -> str | None:
    """Return a document from the event as extended JSON, or None if it does not exist.

    Raises:
        DataError: The field is not a string.
    """
    if event.schema.field(name) is None:
        return None
    value = event.get_without_default(name)
    if value is not None and not isinstance(value, str):
        raise DataError(f"{name} is not extended JSON; the record is not a MongoDB change event")
    return value
