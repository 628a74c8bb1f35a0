"""Converter for JSON Schema, equivalent to `io.confluent.connect.json.JsonSchemaConverter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.record import RawHeaders
from connect_py.api.schema import NULL, Schema, SchemaAndValue, Value
from connect_py.api.schema import Type as SchemaType
from connect_py.converters.json.json_text import read_json
from connect_py.converters.json.schema_columns import SchemaColumns
from connect_py.converters.json_schema.json_schema_type import (
    ANY,
    EXTRAS,
    JsonSchemaType,
    Options,
    json_schema_type,
)
from connect_py.converters.json_schema.json_schema_values import (
    JsonSchemaValidator,
    JsonSchemaValueReader,
)
from connect_py.converters.json_schema.json_schema_writing import (
    JsonSchemaValueWriter,
    JsonSchemaWriter,
)
from connect_py.converters.registry.registry_converter import (
    CONFIG_DEF,
    UNKNOWN_MAGIC,
    MessageReader,
    RegistryConverter,
)
from connect_py.converters.registry.schema_registry import RegisteredSchema

if TYPE_CHECKING:
    import pyarrow as pa


class JsonSchemaConverter(RegistryConverter):
    """Converts JSON in Confluent's wire format, with JSON Schemas from a schema registry."""

    kind = "JSON"
    label = "JSON Schema"
    config_def: ClassVar[ConfigDef] = (
        ConfigDef(CONFIG_DEF.keys.values())
        .define(
            "object.additional.properties",
            Type.BOOLEAN,
            default=True,
            importance=Importance.MEDIUM,
            doc="Allow additional properties in written schemas.",
        )
        .define(
            "use.optional.for.nonrequired",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Make members optional if the schema does not require them.",
        )
        .define(
            "decimal.format",
            Type.STRING,
            default="BASE64",
            importance=Importance.LOW,
            validator=one_of("BASE64", "NUMERIC", case_insensitive=True),
            doc="Format of written decimals: BASE64 for the base64-encoded unscaled bytes, or "
            "NUMERIC for a number. Both formats can be read.",
        )
        .define(
            "json.fail.invalid.schema",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Reject messages that do not match their schema, both when reading and when "
            "writing.",
        )
        .define(
            "ignore.modern.dialects",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Validate with draft 7, even if the schema specifies another dialect.",
        )
        .define(
            "json.fail.unknown.properties",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Ignored. Members that are not in the Connect schema are omitted.",
        )
        .define(
            "preserve.additional.properties",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Store members that are not in the schema in an additional field, which is a map.",
        )
        .define(
            "generalized.sum.type.support",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Name union members connect_union_field_0, ...",
        )
        .define(
            "flatten.singleton.unions",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Read a union with a single type as that type.",
        )
    )

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        parsed = self.config_def.parse(configs)
        self._options = Options(
            optional_for_nonrequired=parsed["use.optional.for.nonrequired"],
            generalized_sums=parsed["generalized.sum.type.support"],
            flatten_singletons=parsed["flatten.singleton.unions"],
            additional_properties=parsed["preserve.additional.properties"],
        )
        self._writing = JsonSchemaValueWriter(True, parsed["decimal.format"].upper() == "NUMERIC")
        self._additional_properties: bool = parsed["object.additional.properties"]
        self._validate: bool = parsed["json.fail.invalid.schema"]
        self._modern: bool = not parsed["ignore.modern.dialects"]
        super().configure(configs, is_key=is_key)

    def make_reader(
        self, registered: RegisteredSchema, version: int | None, prefix: bytes, rest: bytes
    ) -> MessageReader:
        if rest:
            raise DataError(UNKNOWN_MAGIC)
        json_type = json_schema_type(registered.text, registered.references, version, self._options)
        validator = JsonSchemaValidator(json_type.documents, modern=self._modern)
        return _JsonReader(prefix, json_type, validator, validate=self._validate)

    def to_connect(
        self, topic: str, data: bytes | None, headers: RawHeaders = ()
    ) -> SchemaAndValue:
        result = super().to_connect(topic, data, headers)
        return NULL if result.value is None else result

    def make_writer(self, schema: Schema) -> JsonSchemaWriter:
        return JsonSchemaWriter(
            schema,
            self._writing,
            additional_properties=self._additional_properties,
            validate=self._validate,
        )


class _JsonReader(MessageReader):
    def __init__(
        self,
        prefix: bytes,
        json_type: JsonSchemaType,
        validator: JsonSchemaValidator,
        *,
        validate: bool,
    ) -> None:
        super().__init__(prefix)
        self.schema = json_type.schema
        self._validator = validator
        self._validate = validate
        self._values = JsonSchemaValueReader(type=json_type, validator=self._validator)
        self._columns: SchemaColumns | None = None
        if not (validate or json_type.branches) and _has_exact_columns(json_type.schema):
            with suppress(NotColumnar):
                self._columns = SchemaColumns(
                    _lenient(json_type.schema), replace_null_with_default=True
                )
        self.columnar = self._columns is not None

    def value(self, body: bytes) -> Value:
        tree = read_json(body, exact=True)
        if self._validate and tree is not None:
            self._validator.check(tree)
        return self._values.read_message(self.schema, tree)

    def columns(self, messages: Sequence[bytes | None]) -> tuple[pa.Array, Sequence[int]]:
        if self._columns is None:
            raise NotColumnar("the schema has no columnar form")
        _, column, odd = self._columns.read(self.bodies(messages))
        return column, odd


def _lenient(schema: Schema) -> Schema:
    """Make the top-level fields of a schema optional, because messages may lack them."""
    if schema.type is not SchemaType.STRUCT:
        return schema
    return schema.replace(
        default=None, fields=[(f.name, f.schema.replace(optional=True)) for f in schema.fields]
    )


def _has_exact_columns(schema: Schema) -> bool:
    """Return True if the columnar form of JsonConverter is exact for a schema.

    It is not exact for strings that contain arbitrary JSON, maps that are lists of entries, and
    additional properties.
    """
    if schema.name == ANY or (
        schema.type is SchemaType.STRUCT and schema.field(EXTRAS) is not None
    ):
        return False
    if schema.type is SchemaType.MAP and (
        schema.key_schema is None or schema.key_schema.type is not SchemaType.STRING
    ):
        return False
    inside = [f.schema for f in schema.fields] + [
        s for s in (schema.key_schema, schema.value_schema) if s is not None
    ]
    return all(map(_has_exact_columns, inside))
