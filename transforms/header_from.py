"""`HeaderFrom`: copies or moves fields to headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import ConfigError
from connect_py.api.record import NO_HEADERS, Header, Headers, R
from connect_py.api.schema import Schema, Struct
from connect_py.api.schema import Type as SchemaType
from connect_py.java.errors import NullPointerError
from transforms.rebuild import check_required, rebuilt, values_of
from transforms.requirements import require_map, require_struct
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import SideTransformation, for_both
from transforms.validators import non_empty_list

MOVE = "move"


class HeaderFrom(SideTransformation[R]):
    """Appends one header for each field. A record with a null on this side is an error."""

    config_def = (
        ConfigDef()
        .define(
            "fields",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="The fields whose values become headers.",
        )
        .define(
            "headers",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="The names of these headers, in the same order.",
        )
        .define(
            "operation",
            Type.STRING,
            validator=one_of(MOVE, "copy"),
            importance=Importance.HIGH,
            doc="move: the fields go; copy: they stay.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._fields: list[str] = props["fields"]
        self._headers: list[str] = props["headers"]
        if len(self._fields) != len(self._headers):
            raise ConfigError(
                "", "'fields' config must have the same number of elements as 'headers' config."
            )
        self._moves: bool = props["operation"] == MOVE
        self._purpose = f"header {props['operation']}"
        self._replace_null_with_default: bool = props["replace.null.with.default"]
        self._result = lru_cache(maxsize=64)(self._kept_schema)

    def _kept_schema(self, schema: Schema) -> Schema:
        return rebuilt(
            schema, [(f.name, f.schema) for f in schema.fields if f.name not in self._fields]
        )

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if schema is None:
            row = require_map(value, self._purpose)
            headers = Headers(
                [
                    *record.headers,
                    *(
                        Header(h, row.get(f))
                        for f, h in zip(self._fields, self._headers, strict=True)
                    ),
                ]
            )
            if self._moves:
                row = {name: inside for name, inside in row.items() if name not in self._fields}
            return self.side.put(record, None, row).replace(headers=headers)
        taken = require_struct(value, self._purpose, schema)
        values = values_of(taken, replace_null_with_default=self._replace_null_with_default)
        made = list(record.headers)
        for name, header in zip(self._fields, self._headers, strict=True):
            field = schema.field(name)
            if field is None:
                raise NullPointerError(f"{name} is not a field of the {self.side.value.lower()}")
            made.append(Header(header, values[field.index], field.schema))
        if self._moves:
            result = self._result(schema)
            kept = [values[f.index] for f in schema.fields if f.name not in self._fields]
            check_required(result, kept)
            schema, taken = result, Struct(result, kept)
        return self.side.put(record, schema, taken).replace(headers=Headers(made))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.columns import blamed, finished, null_rows, without

        column = self.side.column(batch)
        if column.null_count:
            raise without(batch, self.apply, null_rows(column), self.apply_batch)
        if not column.is_struct():
            raise blamed(batch, self.apply)
        failed: set[int] = set()
        if column.schema is None:
            made, added = self._schemaless(column)
        else:
            if column.schema.type is not SchemaType.STRUCT or any(
                column.schema.field(f) is None for f in self._fields
            ):
                raise blamed(batch, self.apply)
            made, added, failed = self._with_schema(column, column.schema)
        before = batch.headers or [NO_HEADERS] * len(batch)
        names = self._headers
        headers = [
            Headers([*old, *(Header(n, *pair) for n, pair in zip(names, new, strict=True))])
            for old, new in zip(before, zip(*added, strict=True), strict=True)
        ]
        return finished(
            batch, self.apply, self.side.put_column(batch, made).replace(headers=headers), failed
        )

    def _schemaless(self, column: Column) -> tuple[Column, list[list[Any]]]:
        """The column that stays, and the values (with their schemas) of each header."""
        from connect_py.columns import arrow
        from transforms.columns import map_members, maps

        added = []
        for name in self._fields:
            member = column.member(name)
            values = (
                [None] * len(column)
                if member is None
                else arrow.schemaless_values(member.data, member.absent)
            )
            added.append([(value, None) for value in values])
        if not self._moves:
            return column, added
        kept = {
            name: member
            for name, member in map_members(column.data).items()
            if name not in self._fields
        }
        absent = {path: rows for path, rows in column.absent.items() if path[0] not in self._fields}
        return maps(column, kept, absent), added

    def _with_schema(
        self, column: Column, schema: Schema
    ) -> tuple[Column, list[list[Any]], set[int]]:
        """As `_schemaless`, and the rows that lack a required value."""
        from connect_py.columns import arrow
        from transforms.columns import columns_of, restructured

        columns = columns_of(
            schema, column.data, replace_null_with_default=self._replace_null_with_default
        )
        added = []
        for name in self._fields:
            field = schema.field(name)
            assert field is not None
            added.append(
                [(v, field.schema) for v in arrow.to_values(field.schema, columns[field.index])]
            )
        if not self._moves:
            return column, added, set()
        result = self._result(schema)
        kept = [
            c for f, c in zip(schema.fields, columns, strict=True) if f.name not in self._fields
        ]
        made, failed = restructured(column, result, kept)
        return made, added, failed


HeaderFromKey, HeaderFromValue = for_both(HeaderFrom)
