"""`SetSchemaMetadata`: sets the name or version of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import R
from connect_py.api.schema import Schema, Struct, Value
from connect_py.api.schema import Type as SchemaType
from transforms.by_schema import BySchema
from transforms.field_changes import Conversion, FieldChanges, Nulls
from transforms.field_transformation import FieldTransformation
from transforms.rebuild import check_required, values_of
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import for_both

if TYPE_CHECKING:
    import pyarrow as pa

PURPOSE = "updating schema metadata"


class SetSchemaMetadata(FieldTransformation[R]):
    """Changes the schema. Values are unchanged, except that nulls may be replaced with defaults."""

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
    purpose = PURPOSE
    nulls = Nulls.CONVERT_SCHEMA

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        metadata = {"name": props["schema.name"], "version": props["schema.version"]}
        metadata = {key: value for key, value in metadata.items() if value is not None}
        if not metadata:
            raise ConfigError("", "Neither schema name nor version configured")
        replace_null_with_default = props["replace.null.with.default"]
        conversion = SetMetadata(metadata, replace_null_with_default=replace_null_with_default)
        self.declare(FieldChanges(whole=conversion))


class SetMetadata(Conversion):
    """Changes the name or version of a schema of any type."""

    def __init__(self, metadata: Mapping[str, Any], *, replace_null_with_default: bool) -> None:
        self._metadata = metadata
        self._replace_null_with_default = replace_null_with_default
        self._schema = BySchema(self.schema)

    def schema(self, schema: Schema) -> Schema:
        return schema.replace(**self._metadata)

    def value(self, schema: Schema | None, value: Value) -> Value:
        if schema is None:
            if value is None:
                return None
            raise DataError(f"Schema required for [{PURPOSE}]")
        if not isinstance(value, Struct):
            return value
        values = values_of(value, replace_null_with_default=self._replace_null_with_default)
        check_required(schema, values)
        return Struct(self._schema(schema), values)

    def array(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """Change the schema of a column, or return None if a required field of a struct is null."""
        from transforms.columns import columns_of, required_nulls, struct_column

        if schema.type is not SchemaType.STRUCT:
            return data
        columns = columns_of(
            schema, data, replace_null_with_default=self._replace_null_with_default
        )
        if required_nulls(schema.fields, columns, data):
            return None
        null = data.is_null() if data.null_count else None
        return struct_column(result, columns, null, len(data))


SetSchemaMetadataKey, SetSchemaMetadataValue = for_both(SetSchemaMetadata)
