"""`MongoEventRouter`: replaces documents of an outbox collection with their events."""

from __future__ import annotations

from connect_py.api.record import R
from connect_py.api.schema import SchemaAndValue, Struct
from transforms.debezium.envelope import AFTER
from transforms.debezium.event_router import EventRouter, event_router_config
from transforms.mongodb.change_events import json_of
from transforms.mongodb.documents import ArrayEncoding, DocumentConverter
from transforms.mongodb.extended_json import BsonValue, Kind, canonical_text, parse_document
from transforms.requirements import require_struct

_JSON = "io.debezium.data.Json"


class MongoEventRouter(EventRouter[R]):
    """`EventRouter` for MongoDB. Document payloads become extended JSON or structs."""

    prefix = "collection"
    config_def = event_router_config(prefix)
    _converter = DocumentConverter(ArrayEncoding.ARRAY)

    def row(self, event: Struct) -> Struct:
        after = json_of(event, AFTER)
        if after is None:
            return require_struct(None, "Read Outbox Event")
        document = dict(parse_document(after))
        payload = document.get(self.payload_field)
        if payload is not None and payload.kind is Kind.DOCUMENT and not self.expands:
            document[self.payload_field] = BsonValue(Kind.STRING, canonical_text(payload))
        row: Struct = self._converter.converted(document, _JSON).value
        return row

    def payload(self, payload: SchemaAndValue) -> SchemaAndValue:
        """Return the payload unchanged, because strings are not parsed as JSON."""
        return payload
