"""`ColumnNames`: which column of a table a record's field means.

With a name mapping in the table's properties names go through it, case-sensitively; a name that it
does not know counts as it is. A column that was renamed by the sink is found under its former names
too, unless a field has its present one. Among the versions of a column the oldest that takes the
field's values is meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from connect_py.api.schema import Schema
from connectors.iceberg.conversion.column_history import ColumnHistory
from connectors.iceberg.conversion.type_fit import takes
from connectors.iceberg.conversion.types import TypeOptions

NAME_MAPPING = "schema.name-mapping.default"
ColumnField: TypeAlias = Mapping[str, Any]  # a field of an Iceberg schema, JSON form
NameMapping: TypeAlias = "Sequence[Mapping[str, Any]] | None"
# of a record: name, Connect schema, Arrow type
Member: TypeAlias = "tuple[str, Schema | None, pa.DataType]"


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The rules of one table; the columns of each struct level are given with the question."""

    mapping: NameMapping
    history: ColumnHistory
    types: TypeOptions
    case_insensitive: bool = False

    @staticmethod
    def of(
        properties: Mapping[str, str], types: TypeOptions, *, case_insensitive: bool
    ) -> ColumnNames:
        """Read the table's default name mapping and the sink's own history."""
        text = properties.get(NAME_MAPPING)
        mapping = None if text is None else json.loads(text)
        return ColumnNames(mapping, ColumnHistory.of(properties), types, case_insensitive)

    def columns(
        self, members: Sequence[Member], fields: Sequence[ColumnField], mapping: NameMapping
    ) -> dict[str, ColumnField]:
        """The columns of one level that the members of a record mean, by the member's name; those
        without are left out.

        Two members never share a column: who has its present name wins over who has a former one.
        """
        first = self._by_present_names(fields, mapping)
        former = {name: f for f in fields for name in self.history.names.get(f["id"], ())}
        folds = self.case_insensitive and mapping is None
        found: dict[str, ColumnField] = {}
        taken: set[int] = set()
        for names in (first, former):
            for name, schema, type_ in members:
                column = names.get(name) or (names.get(name.lower()) if folds else None)
                if name in found or column is None or column["id"] in taken:
                    continue
                taken.add(column["id"])
                found[name] = self._version(column, fields, schema, type_)
        return found

    def siblings(self, column: ColumnField, fields: Sequence[ColumnField]) -> list[ColumnField]:
        """The other versions of the same thing."""
        base = next(
            (f for f in fields if column["id"] in self.history.versions.get(f["id"], ())), column
        )
        return [
            f for f in (base, *self.history.versions_of(base, fields)) if f["id"] != column["id"]
        ]

    def _version(
        self,
        column: ColumnField,
        fields: Sequence[ColumnField],
        schema: Schema | None,
        type_: pa.DataType,
    ) -> ColumnField:
        versions = self.history.versions_of(column, fields)
        if not versions or pa.types.is_null(type_):
            return column
        fitting = (f for f in (column, *versions) if takes(f["type"], schema, type_, self.types))
        return next(fitting, column)

    def _by_present_names(
        self, fields: Sequence[ColumnField], mapping: NameMapping
    ) -> Mapping[str, ColumnField]:
        own = {f["name"]: f for f in fields}
        if mapping is not None:
            by_id = {f["id"]: f for f in fields}
            mapped = {
                n: by_id[m["field-id"]]
                for m in mapping
                if m.get("field-id") in by_id
                for n in m["names"]
            }
            return {**own, **mapped}
        return {**{f["name"].lower(): f for f in fields}, **own} if self.case_insensitive else own


def inner_mapping(mapping: NameMapping, field_id: int) -> NameMapping:
    """The mapping of the fields below a field."""
    if mapping is None:
        return None
    return next((m.get("fields", ()) for m in mapping if m.get("field-id") == field_id), ())
