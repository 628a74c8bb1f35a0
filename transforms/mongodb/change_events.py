"""What Debezium's change events of MongoDB hold: documents and keys as texts."""

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
    """Whether keys of this schema are those of documents: known by the name of the schema alone."""
    return schema is not None and schema.name is not None and schema.name.endswith(_KEY_SUFFIX)


def key_document(key: Struct) -> Document:
    """The key of an event as the document `{id: …}`.

    Raises:
        IllegalArgumentError: It has no such member.
        DataError: The member is no value in extended JSON.
    """
    if key.schema.field(_ID) is None:
        raise IllegalArgumentError(f"Unknown field: {_ID}")
    return {_ID: parse_value(str(key.get_without_default(_ID)))}


def text_of(event: Struct, name: str) -> str | None:
    """The text of a member, a document in extended JSON; None: the event has none. DataError: it is
    no text."""
    if event.schema.field(name) is None:
        return None
    found = event.get_without_default(name)
    if found is not None and not isinstance(found, str):
        raise DataError(f"{name} holds no document in extended JSON: this is no event of MongoDB")
    return found
