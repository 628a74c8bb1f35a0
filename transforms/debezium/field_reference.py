"""A member of the envelope that is added to rows or headers."""

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
    """`parent` holds `field` (None: the envelope itself); it is added under the name `new_name`."""

    parent: str | None
    field: str
    new_name: str

    @classmethod
    def parse(cls, text: str, prefix: str) -> FieldReference:
        """Read one item of `add.fields` or `add.headers`: `field`, `struct.field`, each perhaps
        with `:new name`.

        Raises:
            ValueError: More than one colon.
        """
        path, *renames = text.split(":")
        if len(renames) > 1:
            raise ValueError(f"Unexpected field name: {text}")
        parts = path.split(".")
        if len(parts) == 1:
            parent, field, name = _usual_parent(path), path, path
        else:
            parent, field = parts[0], parts[1]
            name = f"{parent}_{field}"
        return cls(parent, field, prefix + (renames[0] if renames else name))

    @classmethod
    def parse_all(cls, items: Iterable[str], prefix: str) -> tuple[FieldReference, ...]:
        """Read a list; an empty item names nothing."""
        return tuple(cls.parse(item, prefix) for item in items if item)

    def path(self, envelope: Schema) -> tuple[str, ...] | None:
        """Where an envelope of this schema holds the member; None: nowhere, and nothing is added.

        A member that is not in its block may stand in the envelope itself, put there by another
        transformation.
        """
        if self.parent is not None:
            parent = envelope.field(self.parent)
            if parent is None:
                return None
            if parent.schema.field(self.field) is not None:
                return (self.parent, self.field)
        return (self.field,) if envelope.field(self.field) is not None else None

    def schema(self, envelope: Schema) -> Schema | None:
        """The optional form, without default, of the member's schema; None: there is no such
        member."""
        path = self.path(envelope)
        if path is None:
            return None
        found = envelope[path[0]]
        for name in path[1:]:
            found = found[name]
        return found.replace(optional=True, default=None)

    def value(self, envelope: Struct) -> Value:
        """The member's raw value, of the schema that `schema` found for it; null where its block is
        null."""
        at: Value = envelope if self.parent is None else envelope.get_without_default(self.parent)
        if at is None:
            return None
        if at.schema.field(self.field) is None:
            at = envelope
        value = at.get_without_default(self.field)
        schema = self.schema(envelope.schema) if isinstance(value, Struct) else None
        return value if schema is None else Struct(schema, value.values)


def _usual_parent(field: str) -> str | None:
    if field in _ENVELOPE_FIELDS:
        return None
    if field in _TRANSACTION_FIELDS:
        return TRANSACTION
    return _UPDATE_DESCRIPTION if field == _UPDATE_DESCRIPTION else SOURCE
