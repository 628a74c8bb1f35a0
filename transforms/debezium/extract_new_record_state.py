"""`ExtractNewRecordState`: replaces Debezium's change events with rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Parsed, Type
from connect_py.api.record import R
from connect_py.api.schema import OPTIONAL_STRING, Schema, Struct, Value
from connect_py.java.errors import ClassCastError, IllegalArgumentError
from transforms.by_schema import BySchema
from transforms.debezium.delete_handling import Deletes
from transforms.debezium.envelope import (
    AFTER,
    BEFORE,
    DELETED,
    is_delete,
    is_envelope,
    string_column,
)
from transforms.debezium.unwrapping import Unwrapping
from transforms.rebuild import members, rebuilt, values_of
from transforms.requirements import require_struct

if TYPE_CHECKING:
    from transforms.debezium.unwrap_columns import UnwrapColumns

_PURPOSE = "source field insertion"


class ExtractNewRecordState(Unwrapping[R]):
    """Replaces each change event with the row in `after`.

    The delete handling mode determines the result of a delete event. Values that are not envelopes
    with a schema are passed through unchanged. Examples are schemaless values, heartbeats,
    transaction markers, and messages. Truncate events are dropped. A delete event without the row
    before the change becomes a tombstone with its key, unless deletes are dropped. (Debezium always
    drops such an event.) `apply` and `apply_batch` are both implemented directly, because
    `FieldTransformation` can neither drop rows nor choose between the rows before and after a
    change.
    """

    config_def = (
        ConfigDef(Unwrapping.config_def)
        .define(
            "route.by.field",
            Type.STRING,
            default="",
            importance=Importance.LOW,
            doc="Column whose value becomes the topic.",
        )
        .define(
            "drop.fields.header.name",
            Type.STRING,
            default=None,
            importance=Importance.LOW,
            doc="Header that lists the columns to remove from the row.",
        )
        .define(
            "drop.fields.from.key",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Also remove these columns from the key.",
        )
        .define(
            "drop.fields.keep.schema.compatible",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Remove only optional columns.",
        )
        .define(
            "replace.null.with.default",
            Type.BOOLEAN,
            default=True,
            importance=Importance.MEDIUM,
            doc="In the rewrite modes, replace null with the column's default.",
        )
    )

    def configure_further(self, props: Mapping[str, Parsed]) -> None:
        self.route_by_field: str = props["route.by.field"] or ""
        self.drop_fields_header: str = props["drop.fields.header.name"] or ""
        self._drop_from_key: bool = props["drop.fields.from.key"]
        self._keep_compatible: bool = props["drop.fields.keep.schema.compatible"]
        self.replace_null_with_default: bool = props["replace.null.with.default"]
        self._layout = BySchema(lambda envelope: _Layout(self, envelope))
        self._columns: UnwrapColumns | None = None

    def row_schema(self, row: Schema, envelope: Schema) -> Schema:
        """Return the schema of the result: columns of the row, `__deleted`, and added fields."""
        fields = members(row)
        if self.handling.rewrites:
            fields.append((DELETED, OPTIONAL_STRING))
        for reference in self.add_fields:
            schema = reference.schema(envelope)
            if schema is not None:
                fields.append((reference.new_name, schema))
        return rebuilt(row, fields)

    def apply(self, record: R) -> R | None:
        if record.value is None:
            if self.handling.drop_tombstones:
                return None
            return record.replace(headers=self.tombstone_headers(record.headers))
        if not is_envelope(record.value_schema):
            self.note_passing(1)
            return record
        self.note_envelope()
        event: Struct = record.value
        layout = self._layout(event.schema)
        after, before = event.values[layout.after], event.values[layout.before]
        if after is not None:
            return self._unwrapped(record, event, layout, after, deleted=False)
        deletes = self.handling.deletes
        if deletes is Deletes.DROP:
            return None
        if before is None:
            if not is_delete(event) or record.key is None:
                return None  # a truncation, or a delete without a key
            headers = self.event_headers(record.headers, event)
            return record.replace(value_schema=None, value=None, headers=headers)
        if deletes is Deletes.REWRITE:
            return self._unwrapped(record, event, layout, before, deleted=True)
        schema = event.schema[AFTER] if deletes is Deletes.NULL else None
        result = record.replace(
            topic=self._topic(record.topic, before),
            value_schema=schema,
            value=None,
            headers=self.event_headers(record.headers, event),
        )
        return self._without_dropped(result)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if self._columns is None:
            from transforms.debezium.unwrap_columns import UnwrapColumns

            self._columns = UnwrapColumns(
                self,
                self.row_schema,
                route_by_field=self.route_by_field,
                drop_fields_header=self.drop_fields_header,
                replace_null_with_default=self.replace_null_with_default,
            )
        return self._columns.apply(batch)

    def _unwrapped(
        self, record: R, event: Struct, layout: _Layout, block: Value, *, deleted: bool
    ) -> R:
        row = block if isinstance(block, Struct) else require_struct(block, _PURPOSE)
        schema = layout.row_schema(row.schema)
        replace = self.handling.rewrites and self.replace_null_with_default
        values = values_of(row, replace_null_with_default=replace)
        if self.handling.rewrites:
            values.append("true" if deleted else "false")
        if self.add_fields:
            values += [r.value(event) for r in self.add_fields if r.path(event.schema) is not None]
        changed: dict[str, Any] = {}
        if self.route_by_field:
            changed["topic"] = self._topic(record.topic, row)
        if self.add_headers:
            changed["headers"] = self.event_headers(record.headers, event)
        result = record.replace(value_schema=schema, value=Struct(schema, values), **changed)
        return self._without_dropped(result) if self.drop_fields_header else result

    def _topic(self, topic: str, block: Value) -> str:
        if not self.route_by_field:
            return topic
        row = require_struct(block, "Read record to set topic routing")
        name: str | None = row.values[string_column(row.schema, self.route_by_field)]
        return name if name is not None and name.strip() else topic

    def _without_dropped(self, record: R) -> R:
        if not self.drop_fields_header:
            return record
        header = next((h for h in record.headers if h.key == self.drop_fields_header), None)
        if header is None or header.value is None:
            return record
        if not isinstance(header.value, list):
            raise ClassCastError(f"header {self.drop_fields_header} is not a list of columns")
        key_schema, key, value_schema, value = (
            record.key_schema,
            record.key,
            record.value_schema,
            record.value,
        )
        if self._drop_from_key and key is not None:
            key_schema, key = self._reduced(key_schema, key, header.value)
        if value is not None:
            value_schema, value = self._reduced(value_schema, value, header.value)
        return record.replace(
            key_schema=key_schema, key=key, value_schema=value_schema, value=value
        )

    def _reduced(
        self, schema: Schema | None, value: Value, names: list[str]
    ) -> tuple[Schema | None, Value]:
        """Return the schema and the value of a row or key without the columns to drop."""
        if schema is None or not isinstance(value, Struct):
            return schema, value
        dropped = {
            f.name
            for f in schema.fields
            if f.name in names and (f.schema.optional or not self._keep_compatible)
        }
        if not dropped:
            return schema, value
        reduced = rebuilt(schema, [m for m in members(schema) if m[0] not in dropped])
        values = values_of(value, replace_null_with_default=self.replace_null_with_default)
        remaining = [v for f, v in zip(schema.fields, values, strict=True) if f.name not in dropped]
        return reduced, Struct(reduced, remaining)


class _Layout:
    """Field indices and result schemas for one envelope schema."""

    __slots__ = ("after", "before", "row_schema")

    def __init__(self, reference: ExtractNewRecordState[Any], envelope: Schema) -> None:
        self.after = _place(envelope, AFTER)
        self.before = _place(envelope, BEFORE)
        # maps the schema of a row to the schema of the result
        self.row_schema = BySchema(lambda row: reference.row_schema(row, envelope))


def _place(envelope: Schema, name: str) -> int:
    field = envelope.field(name)
    if field is None:
        raise IllegalArgumentError(f"Unknown field: {name}")
    return field.index
