"""`ColumnNames`: maps the fields of a record to the columns of a table.

If the table properties contain a name mapping, it is applied to the field names, case-sensitively.
Field names without a mapping are used unchanged. A column that the sink renamed also matches its
former names, unless another field has the column's current name. If a column has several versions,
the field is mapped to the oldest version that accepts its values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from connect_py.api.schema import Schema
from connectors.iceberg.conversion.type_fit import accepts
from connectors.iceberg.conversion.types import TypeOptions

NAME_MAPPING = "schema.name-mapping.default"
HISTORY: Final = "connect-py.columns"  # {"names":{"2":["b"]},"versions":{"4":[9,11]}}
ColumnField: TypeAlias = Mapping[str, Any]  # field of an Iceberg schema as JSON
NameMapping: TypeAlias = "Sequence[Mapping[str, Any]] | None"
# name, Connect schema, and Arrow type of a record field
Member: TypeAlias = "tuple[str, Schema | None, pa.DataType]"


@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """Renamed columns and column versions of a table, by field ID. Stored in a table property.

    The sink adds a version of a column for values of a type that does not fit the column.
    """

    names: Mapping[int, Sequence[str]] = field(default_factory=dict)  # former names
    # IDs of the additional versions, oldest first
    versions: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @staticmethod
    def of(properties: Mapping[str, str]) -> ColumnHistory:
        """Parse the table property. An invalid value is ignored."""
        try:
            data = json.loads(properties.get(HISTORY, "{}"))
            return ColumnHistory(
                {int(id_): tuple(map(str, names)) for id_, names in data.get("names", {}).items()},
                {int(id_): tuple(map(int, ids)) for id_, ids in data.get("versions", {}).items()},
            )
        except (ValueError, TypeError, AttributeError):
            return ColumnHistory()

    def to_json(self) -> str:
        """Return the value of the table property."""
        members = {"names": self.names, "versions": self.versions}
        return json.dumps(
            {key: value for key, value in members.items() if value}, separators=(",", ":")
        )

    def versions_of(
        self, column: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]
    ) -> list[Mapping[str, Any]]:
        """Return the additional versions of a column, oldest first.

        Args:
            column: The first version.
            fields: All fields of the table or struct that contains the column.
        """
        by_id = {f["id"]: f for f in fields}
        return [by_id[id_] for id_ in self.versions.get(column["id"], ()) if id_ in by_id]


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Maps the fields of records to the columns of one table."""

    mapping: NameMapping
    history: ColumnHistory
    types: TypeOptions
    case_insensitive: bool = False

    @staticmethod
    def of(
        properties: Mapping[str, str], types: TypeOptions, *, case_insensitive: bool
    ) -> ColumnNames:
        """Read the default name mapping and the column history from the table properties."""
        text = properties.get(NAME_MAPPING)
        mapping = None if text is None else json.loads(text)
        return ColumnNames(mapping, ColumnHistory.of(properties), types, case_insensitive)

    def columns(
        self, members: Sequence[Member], fields: Sequence[ColumnField], mapping: NameMapping
    ) -> dict[str, ColumnField]:
        """Return the column for each field in a record or nested struct, by field name.

        Two fields never share a column. A current name takes precedence over a former name.
        """
        current = self._by_current_names(fields, mapping)
        former = {name: f for f in fields for name in self.history.names.get(f["id"], ())}
        folds = self.case_insensitive and mapping is None
        columns: dict[str, ColumnField] = {}
        used_ids: set[int] = set()
        for names in (current, former):
            for name, schema, type_ in members:
                column = names.get(name) or (names.get(name.lower()) if folds else None)
                if name not in columns and column is not None and column["id"] not in used_ids:
                    used_ids.add(column["id"])
                    columns[name] = self._version(column, fields, schema, type_)
        return columns

    def siblings(self, column: ColumnField, fields: Sequence[ColumnField]) -> list[ColumnField]:
        """Return the other versions of a column."""
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
        fitting = (f for f in (column, *versions) if accepts(f["type"], schema, type_, self.types))
        return next(fitting, column)

    def _by_current_names(
        self, fields: Sequence[ColumnField], mapping: NameMapping
    ) -> Mapping[str, ColumnField]:
        by_name = {f["name"]: f for f in fields}
        if mapping is not None:
            by_id = {f["id"]: f for f in fields}
            mapped = {
                n: by_id[m["field-id"]]
                for m in mapping
                if m.get("field-id") in by_id
                for n in m["names"]
            }
            return {**by_name, **mapped}
        return (
            {f["name"].lower(): f for f in fields} | by_name if self.case_insensitive else by_name
        )


def inner_mapping(mapping: NameMapping, field_id: int) -> NameMapping:
    """Return the name mapping for the fields that are nested in a field."""
    if mapping is None:
        return None
    return next((m.get("fields", ()) for m in mapping if m.get("field-id") == field_id), ())
