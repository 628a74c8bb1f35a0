"""Iceberg's `MongoDebeziumTransform`: converts the documents of MongoDB events to structs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.record import R
from connect_py.api.schema import Schema, SchemaAndValue, Struct, Value
from connect_py.api.transformation import Transformation
from connect_py.java.errors import IllegalArgumentError, NullPointerError
from transforms.debezium.envelope import AFTER, BEFORE, is_delete, is_envelope
from transforms.mongodb.change_events import (
    UPDATE_DESCRIPTION,
    has_document_key,
    json_of,
    key_document,
)
from transforms.mongodb.documents import ArrayEncoding, DocumentConverter
from transforms.mongodb.extended_json import Document, parse_document
from transforms.rebuild import rebuilt

ID: Final = "_id"


class MongoDebeziumTransform(Transformation[R]):
    """Converts the key, `before`, and `after` of each event. Must run before `DebeziumTransform`.

    If an update does not contain the full document, `after` consists of the document before the
    change, if it is available, and the changed members. A delete without the document before the
    change becomes a tombstone with its key. The key and value of a record that is not a MongoDB
    event become null. Tombstones are passed through unchanged.
    """

    config_def = ConfigDef().define(
        "array_handling_mode",
        Type.STRING,
        default=ArrayEncoding.ARRAY.value,
        importance=Importance.MEDIUM,
        validator=one_of(*(encoding.value for encoding in ArrayEncoding), case_insensitive=True),
        doc="Conversion of arrays: array for an array whose items must have the same type, or "
        "document for a struct with the fields _0, _1, and so on.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        mode = self.config_def.parse(configs)["array_handling_mode"]
        self._converter = DocumentConverter(ArrayEncoding(mode.lower()))

    def apply(self, record: R) -> R | None:
        if record.value is None:
            return record
        if not (has_document_key(record.key_schema) and is_envelope(record.value_schema)):
            return record.replace(key_schema=None, key=None, value_schema=None, value=None)
        if record.key is None:
            raise NullPointerError("the event has no key")
        event: Struct = record.value
        identity = key_document(record.key)
        key = self._converter.converted(identity, None)
        result = record.replace(key_schema=key.schema, key=key.value)
        before = _document(event, BEFORE)
        after = _document(event, AFTER)
        if after is None:
            after = _updated(event, before, identity)
        if before is None and after is None:
            if is_delete(event):
                return result.replace(value_schema=None, value=None)
            raise IllegalArgumentError("the event has neither documents nor changes")
        parts = [
            (name, document)
            for name, document in ((BEFORE, before), (AFTER, after))
            if document is not None
        ]
        value = self._event(
            event, [(name, self._converter.converted(d, None, optional=True)) for name, d in parts]
        )
        return result.replace(value_schema=value.schema, value=value)

    def _event(self, event: Struct, documents: Sequence[tuple[str, SchemaAndValue]]) -> Struct:
        """Return the event with these documents as its first fields.

        A missing document has no field.
        """
        fields: list[tuple[str, Schema]] = []
        values: list[Value] = []
        for name, document in documents:
            assert document.schema is not None
            fields.append((name, document.schema))
            values.append(document.value)
        for field, value in event:
            if field.name not in (BEFORE, AFTER):
                fields.append((field.name, field.schema))
                values.append(value)
        return Struct(rebuilt(event.schema, fields).replace(version=None), values)


def _document(event: Struct, name: str) -> Document | None:
    json = json_of(event, name)
    return None if json is None else parse_document(json)


def _updated(event: Struct, before: Document | None, identity: Document) -> Document | None:
    """Return the document with an update's changes applied, or None if there are no changes."""
    update = (
        event.get_without_default(UPDATE_DESCRIPTION)
        if event.schema.field(UPDATE_DESCRIPTION)
        else None
    )
    if update is None:
        return None
    changed = _document(update, "updatedFields") or {}
    removed = (
        update.get_without_default("removedFields")
        if update.schema.field("removedFields")
        else None
    )
    after = {
        name: value
        for name, value in {**(before or {}), **changed}.items()
        if name not in (removed or ())
    }
    return after if ID in after else {**after, ID: identity["id"]}
