"""`TableEvolution`: what one table lacks for rows of each schema, and what the configuration says
about that."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Column
from connect_py.api.errors import BadRows, DataError
from connect_py.api.schema import Schema
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.column_names import ColumnNames
from connectors.iceberg.conversion.columns import any_true, as_array, member, tombstones
from connectors.iceberg.conversion.full_names import Field, FullNames
from connectors.iceberg.conversion.schema_differences import SchemaDifferences
from connectors.iceberg.conversion.types import TypeOptions
from connectors.iceberg.table.schema_change import ChangeAction, ChangeKind, SchemaChange
from connectors.iceberg.table.table import TableDescription

_MAX_KNOWN = 500  # schemas; schemaless rows may bring a new type with every batch


class TableEvolution:
    """One per table description; used by the task thread."""

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
        comparison = partial(SchemaDifferences, options, names, config.evolution, keys, former)
        self._compared = lru_cache(_MAX_KNOWN)(
            partial(_compared, comparison, json.loads(description.schema))
        )

    def needed(self, value: Column) -> tuple[SchemaChange, ...]:
        """What the table lacks to hold these rows in full; empty: nothing. Cheap when asked
        again."""
        return self._compared(value.schema, value.data.type)

    def requested(self, value: Column) -> tuple[SchemaChange, ...]:
        """The changes to ask the coordinator for before these rows can be staged.

        Raises:
            BadRows: Rows that need a change which makes dead letters; ask again with the others.
        """
        needed = self.needed(value)
        refused = self._impossible(needed) if needed else {}
        refused |= {c: "" for c in needed if self._policy[c.kind] is ChangeAction.DEAD_LETTER}
        errors: dict[int, Exception] = {}
        for change, more in refused.items():
            error = DataError(f"table {self.description.name} would have to {change}{more}")
            for row in pc.indices_nonzero(_rows_in_need(change, value)).to_pylist():
                errors.setdefault(row, error)
        if errors:
            raise BadRows(dict(sorted(errors.items())))
        return tuple(c for c in needed if c not in refused)

    def _impossible(self, changes: Sequence[SchemaChange]) -> dict[SchemaChange, str]:
        """The changes that Iceberg's rules for names refuse, and why."""
        names, refused = FullNames(json.loads(self.description.schema)["fields"]), {}
        for change in changes:
            path = change.path if change.name is None else (*change.path[:-1], change.name)
            if change.kind in (ChangeKind.ADD, ChangeKind.VERSION, ChangeKind.RENAME):
                # of RENAME: stays as it is
                type_ = json.loads(change.type) if change.type is not None else ""
                why = names.add(path, type_)
                if why is not None:
                    refused[change] = f", which is impossible: {why}"
        return refused


def _compared(
    comparison: Callable[[], SchemaDifferences],
    table: Field,
    schema: Schema | None,
    type_: pa.DataType,
) -> tuple[SchemaChange, ...]:
    return comparison().find(table, schema, type_)


def _rows_in_need(change: SchemaChange, value: Column) -> pa.BooleanArray:
    """The rows that would lose something without the change: a new column matters to those that
    have a value for it."""
    tombstone = tombstones(value)
    rows = pa.repeat(pa.scalar(True), len(value)) if tombstone is None else pc.invert(tombstone)
    if change.kind is not ChangeKind.ADD or not any_true(rows):
        return rows
    data, _ = member(value.data, None, change.path[0])
    for name in change.path[1:]:
        if not pa.types.is_struct(data.type):
            break  # a list or a map: whether one of its items has the member is not looked at
        data, _ = member(data, None, name)
    return as_array(pc.and_(rows, data.is_valid()))
