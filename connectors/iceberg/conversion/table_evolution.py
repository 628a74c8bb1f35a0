"""`TableEvolution`: the schema changes that incoming rows require, and the policy for them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Column
from connect_py.api.errors import BadRows, DataError
from connect_py.api.schema import ALIASES, DECIMAL, Schema, Type
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import LogicalTypes
from connectors.iceberg.conversion.column_names import (
    ColumnField,
    ColumnNames,
    Member,
    NameMapping,
    inner_mapping,
)
from connectors.iceberg.conversion.columns import (
    any_true,
    as_array,
    member,
    row_numbers,
    tombstones,
)
from connectors.iceberg.conversion.full_names import FullNames
from connectors.iceberg.conversion.partitioning import single_value_json
from connectors.iceberg.conversion.row_converter import incoming_members
from connectors.iceberg.conversion.temporal import MICRO, MICROS_PER_DAY, named_temporal_type
from connectors.iceberg.conversion.type_fit import accepts
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
from connectors.iceberg.table.table import TableDescription

_MAX_SCHEMAS = 500  # size of the cache; schemaless rows may have a new type in every batch
_VERSION_SUFFIX = "_v"

Path = tuple[str, ...]


class TableEvolution:
    """Determines the schema changes that rows require. Used only by the task thread."""

    def __init__(self, description: TableDescription, config: IcebergSinkConfig) -> None:
        self.description = description
        self._policy = config.evolution
        options = TypeOptions.of(config)
        if description.format_version < 3:
            options = replace(options, variants=False)
        names = ColumnNames.of(
            description.properties, options, case_insensitive=config.case_insensitive
        )
        keys, former = frozenset(description.key_columns), config.table(description.name).renamed
        table = json.loads(description.schema)

        def compare(schema: Schema | None, type_: pa.DataType) -> tuple[SchemaChange, ...]:
            differences = SchemaDifferences(options, names, config.evolution, keys, former)
            return differences.find(table, schema, type_)

        self._changes = lru_cache(_MAX_SCHEMAS)(compare)

    def needed(self, value: Column) -> tuple[SchemaChange, ...]:
        """Return the schema changes that the values require. Results are cached by schema."""
        return self._changes(value.schema, value.data.type)

    def requested(self, value: Column) -> tuple[SchemaChange, ...]:
        """Return the schema changes to request from the coordinator before staging the rows.

        Raises:
            BadRows: Some rows require a change that is not allowed. The caller retries without
                these rows.
        """
        needed = self.needed(value)
        refused = self._impossible(needed) if needed else {}
        refused |= {c: "" for c in needed if self._policy[c.kind] is ChangeAction.DEAD_LETTER}
        errors: dict[int, Exception] = {}
        for change, reason in refused.items():
            error = DataError(f"table {self.description.name} would have to {change}{reason}")
            for row in row_numbers(_rows_in_need(change, value)):
                errors.setdefault(row, error)
        if errors:
            raise BadRows(dict(sorted(errors.items())))
        return tuple(c for c in needed if c not in refused)

    def _impossible(self, changes: Sequence[SchemaChange]) -> dict[SchemaChange, str]:
        """Return the changes that violate Iceberg's rules for column names, with the reasons."""
        names, refused = FullNames(json.loads(self.description.schema)["fields"]), {}
        for change in changes:
            path = change.path if change.name is None else (*change.path[:-1], change.name)
            if change.kind in (ChangeKind.ADD, ChangeKind.VERSION, ChangeKind.RENAME):
                # a rename does not change the type
                type_ = json.loads(change.type) if change.type is not None else ""
                reason = names.add(path, type_)
                if reason is not None:
                    refused[change] = f", which is impossible: {reason}"
        return refused


def _rows_in_need(change: SchemaChange, value: Column) -> pa.BooleanArray:
    """Return a mask of the rows that would lose values without the change."""
    tombstone = tombstones(value)
    rows = pa.repeat(pa.scalar(True), len(value)) if tombstone is None else pc.invert(tombstone)
    if change.kind is not ChangeKind.ADD or not any_true(rows):
        return rows
    data, _ = member(value.data, None, change.path[0])
    for name in change.path[1:]:
        if not pa.types.is_struct(data.type):
            break  # the items of lists and maps are not checked
        data, _ = member(data, None, name)
    return as_array(pc.and_(rows, data.is_valid()))


@dataclass(slots=True)
class SchemaDifferences:
    """Compares the schema of a table with the schema of rows. `find` must be called only once.

    Changes that the policy ignores are omitted. Key columns never become optional, and are never
    renamed or versioned.
    """

    options: TypeOptions
    names: ColumnNames
    policy: EvolutionPolicy
    keys: frozenset[str] = frozenset()
    former: Mapping[str, str] = field(default_factory=dict)  # configured former names by field name
    changes: list[SchemaChange] = field(default_factory=list)
    identifiers: frozenset[int] = frozenset()  # IDs of identifier fields, which must be required

    def find(
        self, table: Mapping[str, Any], schema: Schema | None, type_: pa.DataType
    ) -> tuple[SchemaChange, ...]:
        """Return the schema changes that rows require.

        Args:
            table: The Iceberg schema of the table as JSON.
            schema: The Connect schema of the rows, or None if they are schemaless.
            type_: The Arrow type of the rows.
        """
        self.identifiers = frozenset(table.get("identifier-field-ids", ()))
        if pa.types.is_struct(type_):
            members = incoming_members(schema, type_, ())
            self._level(table["fields"], members, (), self.names.mapping)
        return tuple(self.changes)

    def _applies(self, kind: ChangeKind) -> bool:
        return self.policy[kind] is not ChangeAction.IGNORE

    def _level(
        self,
        fields: Sequence[ColumnField],
        members: Sequence[Member],
        path: Path,
        mapping: NameMapping,
    ) -> None:
        columns = self.names.columns(members, fields, mapping)
        used_ids = {column["id"] for column in columns.values()}
        for column in columns.values():
            used_ids |= {sibling["id"] for sibling in self.names.siblings(column, fields)}
        for member_ in members:
            name, schema, type_ = member_
            target = columns.get(name) or self._renamed(name, schema, fields, path, used_ids)
            if target is None:
                self._add((*path, name), schema, type_)
                continue
            used_ids.add(target["id"])
            self._column(target, member_, path, mapping, fields)
            # Each row has a value in only one version of a column, so all versions must be
            # optional. Earlier releases did not make the first version optional.
            siblings = self.names.siblings(target, fields)
            for version in [target, *siblings] if siblings else []:
                self._make_optional(version, path)
        # Schemaless rows may lack fields that other rows contain.
        if any(schema is not None for _, schema, _ in members):
            for column in fields:
                if column["id"] not in used_ids and column.get("write-default") is None:
                    self._make_optional(column, path)

    def _make_optional(self, column: ColumnField, path: Path) -> None:
        """Add the change that makes a column optional, because its field is optional or missing."""
        change = SchemaChange(ChangeKind.OPTIONAL, (*path, column["name"]))
        if (
            column["required"]
            and self._applies(ChangeKind.OPTIONAL)
            and not self._is_key(path, column["name"])
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
        used_ids: set[int],
    ) -> ColumnField | None:
        """Return the column to rename to the field's name, if any, and add the change."""
        if not self._applies(ChangeKind.RENAME):
            return None
        aliases = (schema.parameters.get(ALIASES, "") if schema is not None else "").split(",")
        configured = [] if path or name not in self.former else [self.former[name]]
        for former_name in [*filter(None, aliases), *configured]:
            may_share = schema is None  # schemaless rows of one batch may have different fields
            column = next(
                (
                    f
                    for f in fields
                    if f["name"] == former_name and (may_share or f["id"] not in used_ids)
                ),
                None,
            )
            if column is not None and not self._is_key(path, former_name):
                change = SchemaChange(ChangeKind.RENAME, (*path, former_name), name=name)
                self.changes.append(change)
                return column
        return None

    def _add(self, path: Path, schema: Schema | None, type_: pa.DataType) -> None:
        if not self._applies(ChangeKind.ADD):
            return
        new_type = self._type(schema, type_)
        # A struct without fields, or a field whose values are all null, has no type yet.
        if new_type is not None:
            default = None if schema is None else column_default(schema, new_type)
            self.changes.append(SchemaChange(ChangeKind.ADD, path, json.dumps(new_type), default))

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
        member_: Member,
        path: Path,
        mapping: NameMapping,
        fields: Sequence[ColumnField],
    ) -> None:
        column_path, (_, schema, type_) = (*path, column["name"]), member_
        if schema is not None and (schema.optional or self.options.force_optional):
            self._make_optional(column, path)
        if self._applies(ChangeKind.VERSION) and not self._is_key(path, column["name"]):
            widens = self._applies(ChangeKind.WIDEN)
            widened = _widened(column["type"], schema, self.options) if widens else column["type"]
            if not pa.types.is_null(type_) and not accepts(widened, schema, type_, self.options):
                self._version(column_path, schema, type_, fields)
                return
        below = inner_mapping(mapping, column["id"])
        self._inside(column["type"], schema, type_, column_path, below)

    def _version(
        self, path: Path, schema: Schema | None, type_: pa.DataType, fields: Sequence[ColumnField]
    ) -> None:
        new_type = self._type(schema, type_)
        if new_type is None:
            return
        names = {f["name"].lower() for f in fields}
        versions = {
            f["name"]: [v["name"] for v in self.names.history.versions_of(f, fields)]
            for f in fields
        }
        base = next((name for name, its in versions.items() if path[-1] in its), path[-1])
        free_name = next(
            name
            for n in range(2, len(fields) + 3)
            if (name := f"{base}{_VERSION_SUFFIX}{n}").lower() not in names
        )
        self.changes.append(
            SchemaChange(
                ChangeKind.VERSION, (*path[:-1], base), json.dumps(new_type), name=free_name
            )
        )

    def _inside(
        self,
        column: IcebergType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        mapping: NameMapping,
    ) -> None:
        """Compare the type of a column and its nested fields with the schema of a field."""
        if isinstance(column, str):
            wider = _wider(column, schema, self.options)
            if wider is not None and self._applies(ChangeKind.WIDEN):
                self.changes.append(SchemaChange(ChangeKind.WIDEN, path, json.dumps(wider)))
        elif column["type"] == "struct":
            if pa.types.is_struct(type_):
                self._level(column["fields"], incoming_members(schema, type_, ()), path, mapping)
        elif column["type"] == "list":
            if pa.types.is_list(type_):
                below = inner_mapping(mapping, column["element-id"])
                items = None if schema is None else schema.value_schema
                self._inside(column["element"], items, type_.value_type, (*path, "element"), below)
        elif schema is not None and pa.types.is_map(type_):
            below = inner_mapping(mapping, column["value-id"])
            self._inside(
                column["value"], schema.value_schema, type_.item_type, (*path, "value"), below
            )

    def _is_key(self, path: Path, name: str) -> bool:
        return not path and name in self.keys


def _widened(column: IcebergType, schema: Schema | None, options: TypeOptions) -> IcebergType:
    """Return the type of a column after it has been widened for a schema, if possible."""
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
        current = decimal_parts(column)
        try:
            needed = decimal_parts(decimal_type(schema, options))
        except DataError:
            return None
        if current and needed and needed[1] == current[1] and needed[0] > current[0]:
            return f"decimal({needed[0]}, {needed[1]})"
    return None


# --- defaults

_PLAIN = frozenset({"boolean", "int", "long", "float", "double", "string"})
_EPOCH = date(1970, 1, 1)
_DAYS = range((date.min - _EPOCH).days, (date.max - _EPOCH).days + 1)
_WIDE = Context(prec=100)  # decimals have up to 38 digits, but Python's default context has only 28


def column_default(schema: Schema, type_: IcebergType) -> str | None:
    """Return a schema's default as single-value JSON, for rows older than the column.

    The result is None if there is no default, or if a column of this type cannot represent it.
    """
    default = schema.default
    if default is None or not isinstance(type_, str):
        return None
    if schema.name == DECIMAL and isinstance(default, Decimal):
        return _decimal_default(default, type_)
    temporal = named_temporal_type(schema)
    if (
        temporal is not None
        and isinstance(default, int)
        and type_ in ("date", "time", "timestamp", "timestamptz")
    ):
        if temporal.kind != type_.removesuffix("tz"):
            return None
        value = default if type_ == "date" else default * MICRO // temporal.per_second
        days = value if type_ == "date" else value // MICROS_PER_DAY
        is_valid = days == 0 if type_ == "time" else days in _DAYS
        return single_value_json(value, type_) if is_valid else None
    if isinstance(default, float) and not math.isfinite(default):
        return None
    is_plain = type_ in _PLAIN and isinstance(default, bool | int | float | str)
    return json.dumps(default) if is_plain else None


def _decimal_default(default: Decimal, type_: str) -> str | None:
    parts = decimal_parts(type_)
    if parts is None:
        return json.dumps(str(default)) if type_ == "string" else None
    precision, scale = parts
    if not default.is_finite() or (default and default.adjusted() >= precision - scale):
        return None
    exact = default.quantize(Decimal((0, (1,), -scale)), context=_WIDE)
    return json.dumps(format(exact, "f")) if exact == default else None
