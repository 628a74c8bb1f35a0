"""References to envelope fields that are added to rows or headers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from connect_py.api.schema import Schema, Struct, Value

SOURCE = "source"
TRANSACTION = "transaction"
_ENVELOPE_FIELDS = frozenset({"op", "ts_ms", "ts_us", "ts_ns"})
_TRANSACTION_FIELDS = frozenset({"id", "total_order", "data_collection_order"})
_UPDATE_DESCRIPTION = "updateDescription"


@dataclass(frozen=True, slots=True)
class FieldReference:
    """Reference to a field in the struct `parent` (the envelope if None), with its new name."""

    parent: str | None
    field: str
    new_name: str

    @classmethod
    def parse(cls, item: str, prefix: str) -> FieldReference:
        """Parse an item of `add.fields` or `add.headers`.

        The format is `field` or `struct.field`, optionally followed by `:new-name`.

        Raises:
            ValueError: The item has more than one colon.
        """
        path, *renames = item.split(":")
        if len(renames) > 1:
            raise ValueError(f"Unexpected field name: {item}")
        parts = path.split(".")
        if len(parts) == 1:
            parent, field, name = _usual_parent(path), path, path
        else:
            parent, field = parts[0], parts[1]
            name = f"{parent}_{field}"
        return cls(parent, field, prefix + (renames[0] if renames else name))

    @classmethod
    def parse_all(cls, items: Iterable[str], prefix: str) -> tuple[FieldReference, ...]:
        """Parse a list of items. Empty items are ignored."""
        return tuple(cls.parse(item, prefix) for item in items if item)

    def path(self, envelope: Schema) -> tuple[str, ...] | None:
        """Return the path of the field in an envelope, or None if it does not exist.

        A field that is not in its struct is looked up in the envelope, because another
        transformation may have moved it there.
        """
        if self.parent is not None:
            parent = envelope.field(self.parent)
            if parent is None:
                return None
            if parent.schema.field(self.field) is not None:
                return (self.parent, self.field)
        return (self.field,) if envelope.field(self.field) is not None else None

    def schema(self, envelope: Schema) -> Schema | None:
        """Return the field's schema, made optional and without a default. None if it is missing."""
        path = self.path(envelope)
        if path is None:
            return None
        schema = envelope[path[0]]
        for name in path[1:]:
            schema = schema[name]
        return schema.replace(optional=True, default=None)

    def value(self, envelope: Struct) -> Value:
        """Return the value of the field, which conforms to the schema that `schema` returns.

        The value is None if the struct that contains the field is null.
        """
        parent: Value = envelope
        if self.parent is not None:
            parent = envelope.get_without_default(self.parent)
            if parent is None:
                return None
        if parent.schema.field(self.field) is None:
            parent = envelope
        value = parent.get_without_default(self.field)
        schema = self.schema(envelope.schema) if isinstance(value, Struct) else None
        return value if schema is None else Struct(schema, value.values)


def _usual_parent(field: str) -> str | None:
    if field in _ENVELOPE_FIELDS:
        return None
    if field in _TRANSACTION_FIELDS:
        return TRANSACTION
    return _UPDATE_DESCRIPTION if field == _UPDATE_DESCRIPTION else SOURCE
