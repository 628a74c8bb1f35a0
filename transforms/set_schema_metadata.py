"""`SetSchemaMetadata`: sets the name or version of a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import R
from connect_py.api.schema import Schema, Struct
from connect_py.api.schema import Type as SchemaType
from transforms.rebuild import check_required, values_of
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import SideTransformation, for_both

PURPOSE = "updating schema metadata"


class SetSchemaMetadata(SideTransformation[R]):
    """Changes the schema; values are unchanged except nulls that have a default.

    Both forms are handwritten: they change schemas of any type, and no fields.
    """

    config_def = (
        ConfigDef()
        .define(
            "schema.name",
            Type.STRING,
            default=None,
            importance=Importance.HIGH,
            doc="Name of the schema.",
        )
        .define(
            "schema.version",
            Type.INT,
            default=None,
            importance=Importance.HIGH,
            doc="Version of the schema.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        names = {"name": props["schema.name"], "version": props["schema.version"]}
        self._changes: dict[str, Any] = {
            key: value for key, value in names.items() if value is not None
        }
        if not self._changes:
            raise ConfigError("", "Neither schema name nor version configured")
        self._replace_null_with_default: bool = props["replace.null.with.default"]
        self._result = lru_cache(maxsize=64)(self._renamed)

    def _renamed(self, schema: Schema) -> Schema:
        return schema.replace(**self._changes)

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if schema is None:
            if value is None:
                return record
            raise DataError(f"Schema required for [{PURPOSE}]")
        result = self._result(schema)
        if isinstance(value, Struct):
            values = values_of(value, replace_null_with_default=self._replace_null_with_default)
            check_required(schema, values)
            value = Struct(result, values)
        return self.side.put(record, result, value)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.columns import blamed, columns_of, finished, required_nulls, struct_column

        column = self.side.column(batch)
        if column.schema is None:
            if column.null_count == len(batch):
                return [batch]
            raise blamed(batch, self.apply)
        data, result = column.data, self._result(column.schema)
        failed: set[int] = set()
        if column.schema.type is SchemaType.STRUCT:
            columns = columns_of(
                column.schema, data, replace_null_with_default=self._replace_null_with_default
            )
            failed = required_nulls(column.schema.fields, columns, data)
            data = struct_column(result, columns, column.is_null(), len(batch))
        null_schema = column.tombstone_schema
        if null_schema is not None:
            null_schema = self._result(null_schema)
        new_column = Column(result, data, column.tombstone, tombstone_schema=null_schema)
        return finished(batch, self.apply, self.side.put_column(batch, new_column), failed)


SetSchemaMetadataKey, SetSchemaMetadataValue = for_both(SetSchemaMetadata)
