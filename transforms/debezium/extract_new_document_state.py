"""`ExtractNewDocumentState`: replaces Debezium's MongoDB events with documents."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from connect_py.api.config import ConfigDef, Importance, Parsed, Type, one_of
from connect_py.api.record import R
from connect_py.api.schema import OPTIONAL_BOOLEAN, SchemaAndValue, Struct
from connect_py.java.errors import NullPointerError
from transforms.debezium.delete_handling import Deletes
from transforms.debezium.envelope import AFTER, BEFORE, DELETED, is_delete, is_envelope
from transforms.debezium.field_names import ADJUSTMENTS
from transforms.debezium.unwrapping import Unwrapping
from transforms.flatten import Flatten, FlattenValue
from transforms.mongodb.change_events import (
    UPDATE_DESCRIPTION,
    has_document_key,
    json_of,
    key_document,
)
from transforms.mongodb.documents import ArrayEncoding, DocumentConverter
from transforms.mongodb.extended_json import Document, parse_document
from transforms.rebuild import members, rebuilt

log = logging.getLogger(__name__)

ID: Final = "_id"
_WITH_ID: Final = "delete.tombstone.handling.mode.rewrite-with-id"
_WITHOUT_EFFECT: Final = ("route.by.field", "drop.fields.header.name", "replace.null.with.default")


class ExtractNewDocumentState(Unwrapping[R]):
    """Converts each document to a struct whose schema is inferred from the record's values.

    The result of an update without the full document contains the changed members and `_id`, but
    not the removed members. The key becomes a struct whose `id` is converted like a member of a
    document. Records whose key or value does not have the schema of a MongoDB event are passed
    through unchanged.
    """

    config_def = (
        ConfigDef(Unwrapping.config_def)
        .define(
            "array.encoding",
            Type.STRING,
            default=ArrayEncoding.ARRAY.value,
            importance=Importance.MEDIUM,
            validator=one_of(
                *(encoding.value for encoding in ArrayEncoding), case_insensitive=True
            ),
            doc="Conversion of arrays: array for an array whose items must have the same type, or "
            "document for a struct with the fields _0, _1, and so on.",
        )
        .define(
            "flatten.struct",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Flatten nested documents.",
        )
        .define(
            "flatten.struct.delimiter",
            Type.STRING,
            default="_",
            importance=Importance.MEDIUM,
            doc="Separator between the names of a nested document and its members.",
        )
        .define(
            _WITH_ID,
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="In the rewrite modes, add the ID from the key to rows without _id.",
        )
        .define(
            "field.name.adjustment.mode",
            Type.STRING,
            default="none",
            importance=Importance.LOW,
            validator=one_of(*ADJUSTMENTS, case_insensitive=True),
            doc="Adjustment of field names. none leaves them unchanged. avro replaces characters "
            "that are invalid in Avro with _; avro_unicode replaces them with _u and the code of "
            "the character.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        super().configure(configs)
        for key in _WITHOUT_EFFECT:
            if key in configs:
                log.warning("%s has no effect on documents, as in Debezium", key)

    def configure_further(self, props: Mapping[str, Parsed]) -> None:
        encoding = ArrayEncoding(props["array.encoding"].lower())
        self._adjusted = ADJUSTMENTS[props["field.name.adjustment.mode"].lower()]
        self._converter = DocumentConverter(encoding, self._adjusted)
        self._id = self._adjusted(ID)
        self._delimiter: str = props["flatten.struct.delimiter"] or ""
        self._flatten: Flatten[R] | None = None
        if props["flatten.struct"]:
            self._flatten = FlattenValue()
            self._flatten.configure({"delimiter": self._delimiter})
        self._adds_id: bool = props[_WITH_ID] and self.handling.rewrites

    def apply(self, record: R) -> R | None:
        if record.value is None and self.handling.drop_tombstones:
            return None
        if not has_document_key(record.key_schema) or not (
            record.value is None or is_envelope(record.value_schema)
        ):
            self.note_passing(1)
            return record
        if record.value is None:
            key = self._converter.converted(key_document(record.key), None)
            headers = self.tombstone_headers(record.headers)
            return record.replace(
                key_schema=key.schema, key=key.value, value_schema=None, headers=headers
            )
        self.note_envelope()
        return self._unwrapped(record, record.value)

    def _unwrapped(self, record: R, event: Struct) -> R | None:
        document, deleted = self._document(record, event)
        if document is None and (not is_delete(event) or record.key is None):
            return None  # a truncation, or a delete without a key
        if document is None and self.handling.deletes is Deletes.DROP:
            return None
        if record.key is None:
            raise NullPointerError("the event has no key")
        identity = key_document(record.key)
        key = self._converter.converted(identity, None)
        headers = self.event_headers(record.headers, event)
        result = record.replace(key_schema=key.schema, key=key.value, headers=headers)
        if deleted and not self.handling.rewrites:
            return result.replace(value_schema=None, value=None)
        name = (event.schema.name or "").removesuffix(".Envelope")
        plain = self._converter.converted(document or {}, name)
        result = result.replace(value_schema=plain.schema, value=plain.value)
        if self._flatten is not None:
            result = self._flatten.apply(result) or result
        row = self._extended(
            result.value, event, key.value if self._adds_id else None, deleted=deleted
        )
        return result.replace(value_schema=row.schema, value=row)

    def _document(self, record: R, event: Struct) -> tuple[Document | None, bool]:
        """Return the document in an event, if any, and True if the document was deleted."""
        after = json_of(event, AFTER)
        if after is not None:
            return parse_document(after), False
        if event.schema.field(UPDATE_DESCRIPTION) is not None:
            update = event.get_without_default(UPDATE_DESCRIPTION)
            if update is not None:
                return self._changes(record, update), False
        before = json_of(event, BEFORE)
        if before is None or self.handling.deletes is not Deletes.REWRITE:
            return None, True
        return parse_document(before), True

    def _changes(self, record: R, update: Struct) -> Document:
        """Return the changed members of an update and the ID of the document.

        Changed members of nested documents are named by their paths.
        """
        changed = json_of(update, "updatedFields")
        updated: Document = parse_document(changed) if changed else {}
        removed = (
            update.get_without_default("removedFields") or ()
            if update.schema.field("removedFields")
            else ()
        )
        document = {name: value for name, value in updated.items() if name not in removed}
        if self._flatten is not None:
            document = {
                name.replace(".", self._delimiter): value for name, value in document.items()
            }
        if ID not in document and record.key is not None:
            document[ID] = key_document(record.key)["id"]
        return document

    def _extended(self, row: Struct, event: Struct, key: Struct | None, *, deleted: bool) -> Struct:
        """Return the row with the added fields."""
        fields, values = members(row.schema), list(row.values)
        added: list[tuple[str, SchemaAndValue]] = []
        if self.handling.rewrites:
            added.append((self._adjusted(DELETED), SchemaAndValue(OPTIONAL_BOOLEAN, deleted)))
        if key is not None and row.schema.field(self._id) is None:
            added.append((self._id, SchemaAndValue(key.schema["id"], key["id"])))
        for reference in self.add_fields:
            schema = reference.schema(event.schema)
            if schema is not None:
                added.append((reference.new_name, SchemaAndValue(schema, reference.value(event))))
        fields += [(field, each.schema) for field, each in added if each.schema is not None]
        result = rebuilt(row.schema, fields)
        return Struct(result, [*values, *(each.value for _, each in added)])
