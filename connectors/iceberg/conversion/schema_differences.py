"""`SchemaDifferences`: what a table lacks to hold rows of some schema, as changes that the catalog
can make."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from connect_py.api.errors import DataError
from connect_py.api.schema import ALIASES, DECIMAL, Schema, Type
from connectors.iceberg.config.sink_options import LogicalTypes
from connectors.iceberg.conversion.column_default import column_default
from connectors.iceberg.conversion.column_names import (
    ColumnField,
    ColumnNames,
    Member,
    NameMapping,
    inner_mapping,
)
from connectors.iceberg.conversion.kernel_compiler import incoming_members
from connectors.iceberg.conversion.type_fit import takes
from connectors.iceberg.conversion.types import (
    IcebergType,
    TypeOptions,
    decimal_parts,
    decimal_type,
    type_of_arrow,
    type_of_schema,
)
from connectors.iceberg.table.schema_change import (
    ChangeAction,
    ChangeKind,
    EvolutionPolicy,
    SchemaChange,
)

_VERSION = "_v"

Path = tuple[str, ...]


@dataclass(slots=True)
class SchemaDifferences:
    """One comparison of a table with a schema. Make it, call `find`, read `changes`.

    Changes that the policy ignores are not found. Key columns are never relaxed, renamed or
    versioned.
    """

    options: TypeOptions
    names: ColumnNames
    policy: EvolutionPolicy
    keys: frozenset[str] = frozenset()
    former: Mapping[str, str] = field(default_factory=dict)  # configured: field -> the name it had
    changes: list[SchemaChange] = field(default_factory=list)
    identifiers: frozenset[int] = frozenset()  # ids of columns that Iceberg keeps required

    def find(
        self, table: Mapping[str, Any], schema: Schema | None, type_: pa.DataType
    ) -> tuple[SchemaChange, ...]:
        """What a table with this Iceberg schema (JSON form) lacks to hold such rows."""
        self.identifiers = frozenset(table.get("identifier-field-ids", ()))
        if pa.types.is_struct(type_):
            self._level(
                table["fields"], incoming_members(schema, type_, ()), (), self.names.mapping
            )
        return tuple(self.changes)

    def _wanted(self, kind: ChangeKind) -> bool:
        return self.policy[kind] is not ChangeAction.IGNORE

    def _level(
        self,
        fields: Sequence[ColumnField],
        members: Sequence[Member],
        path: Path,
        mapping: NameMapping,
    ) -> None:
        found = self.names.columns(members, fields, mapping)
        taken = {column["id"] for column in found.values()}
        taken |= {
            sibling["id"]
            for column in found.values()
            for sibling in self.names.siblings(column, fields)
        }
        for member in members:
            name, schema, type_ = member
            column = found.get(name)
            if column is None:
                column = self._renamed(name, schema, fields, path, taken)
                if column is None:
                    self._add((*path, name), schema, type_)
                    continue
                taken.add(column["id"])
            self._column(column, member, path, mapping, fields)
            # Of the versions of a column, a row has a value in one; earlier releases left the first
            # one required.
            siblings = self.names.siblings(column, fields)
            for version in [column, *siblings] if siblings else []:
                self._relax(version, path)
        # rows without a schema may lack what others have
        if any(schema is not None for _, schema, _ in members):
            for column in fields:
                if column["id"] not in taken and column.get("write-default") is None:
                    self._relax(column, path)

    def _relax(self, column: ColumnField, path: Path) -> None:
        """A required column has to take nulls: the field is optional, or gone."""
        change = SchemaChange(ChangeKind.OPTIONAL, (*path, column["name"]))
        wanted = self._wanted(ChangeKind.OPTIONAL) and not self._is_key(path, column["name"])
        if (
            column["required"]
            and wanted
            and column["id"] not in self.identifiers
            and change not in self.changes
        ):
            self.changes.append(change)

    def _renamed(
        self,
        name: str,
        schema: Schema | None,
        fields: Sequence[ColumnField],
        path: Path,
        taken: set[int],
    ) -> ColumnField | None:
        """The column that a field without one had under a former name."""
        if not self._wanted(ChangeKind.RENAME):
            return None
        aliases = (schema.parameters.get(ALIASES, "") if schema is not None else "").split(",")
        former = [
            *(a for a in aliases if a),
            *([] if path or name not in self.former else [self.former[name]]),
        ]
        for old in former:
            free = schema is None  # rows of one batch may have different members
            column = next(
                (f for f in fields if f["name"] == old and (free or f["id"] not in taken)), None
            )
            if column is not None and not self._is_key(path, old):
                self.changes.append(SchemaChange(ChangeKind.RENAME, (*path, old), name=name))
                return column
        return None

    def _add(self, path: Path, schema: Schema | None, type_: pa.DataType) -> None:
        if not self._wanted(ChangeKind.ADD):
            return
        wanted = self._type(schema, type_)
        # else nothing to add yet: a struct without fields, values that say nothing
        if wanted is not None:
            default = None if schema is None else column_default(schema, wanted)
            self.changes.append(SchemaChange(ChangeKind.ADD, path, json.dumps(wanted), default))

    def _type(self, schema: Schema | None, type_: pa.DataType) -> IcebergType | None:
        if schema is None:
            return type_of_arrow(type_)
        try:
            return type_of_schema(schema, self.options)
        except DataError:
            return None

    def _column(
        self,
        column: ColumnField,
        member: Member,
        path: Path,
        mapping: NameMapping,
        fields: Sequence[ColumnField],
    ) -> None:
        here, (_, schema, type_) = (*path, column["name"]), member
        relaxed = schema is not None and (schema.optional or self.options.force_optional)
        if relaxed:
            self._relax(column, path)
        if self._wanted(ChangeKind.VERSION) and not self._is_key(path, here[-1]):
            widens = self._wanted(ChangeKind.WIDEN)
            widened = _widened(column["type"], schema, self.options) if widens else column["type"]
            if not pa.types.is_null(type_) and not takes(widened, schema, type_, self.options):
                self._version(here, schema, type_, fields)
                return
        self._inside(column["type"], schema, type_, here, inner_mapping(mapping, column["id"]))

    def _version(
        self, path: Path, schema: Schema | None, type_: pa.DataType, fields: Sequence[ColumnField]
    ) -> None:
        wanted = self._type(schema, type_)
        if wanted is None:
            return
        names = {f["name"].lower() for f in fields}
        versions = {
            f["name"]: [v["name"] for v in self.names.history.versions_of(f, fields)]
            for f in fields
        }
        base = next((name for name, its in versions.items() if path[-1] in its), path[-1])
        free = next(
            name
            for n in range(2, len(fields) + 3)
            if (name := f"{base}{_VERSION}{n}").lower() not in names
        )
        self.changes.append(
            SchemaChange(ChangeKind.VERSION, (*path[:-1], base), json.dumps(wanted), name=free)
        )

    def _inside(
        self,
        column: IcebergType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        mapping: NameMapping,
    ) -> None:
        """What a column's type lacks: a wider type, or fields of structs inside."""
        if isinstance(column, str):
            wider = _wider(column, schema, self.options)
            if wider is not None and self._wanted(ChangeKind.WIDEN):
                self.changes.append(SchemaChange(ChangeKind.WIDEN, path, json.dumps(wider)))
        elif column["type"] == "struct":
            if pa.types.is_struct(type_):
                self._level(column["fields"], incoming_members(schema, type_, ()), path, mapping)
        elif column["type"] == "list":
            if pa.types.is_list(type_):
                inner = inner_mapping(mapping, column["element-id"])
                of_items = None if schema is None else schema.value_schema
                self._inside(
                    column["element"], of_items, type_.value_type, (*path, "element"), inner
                )
        elif schema is not None and pa.types.is_map(type_):
            inner = inner_mapping(mapping, column["value-id"])
            self._inside(
                column["value"], schema.value_schema, type_.item_type, (*path, "value"), inner
            )

    def _is_key(self, path: Path, name: str) -> bool:
        return not path and name in self.keys


def _widened(column: IcebergType, schema: Schema | None, options: TypeOptions) -> IcebergType:
    """The type of a column once it and its members are as wide as they can get for this field."""
    if schema is None:
        return column
    if isinstance(column, str):
        return _wider(column, schema, options) or column
    part = {"list": "element", "map": "value"}.get(column["type"])
    if part is None or schema.type not in (Type.ARRAY, Type.MAP):
        return column
    return {**column, part: _widened(column[part], schema.value_schema, options)}


def _wider(column: str, schema: Schema | None, options: TypeOptions) -> str | None:
    if schema is None:
        return None
    if column == "int" and schema.type is Type.INT64:
        return "long"
    if column == "float" and schema.type is Type.FLOAT64:
        return "double"
    if options.logical_types is LogicalTypes.FULL and schema.name == DECIMAL:
        have = decimal_parts(column)
        try:
            want = decimal_parts(decimal_type(schema, options))
        except DataError:
            return None
        if have and want and want[1] == have[1] and want[0] > have[0]:
            return f"decimal({want[0]}, {want[1]})"
    return None
