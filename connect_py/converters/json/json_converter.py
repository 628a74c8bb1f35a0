"""Converter for JSON, equivalent to `org.apache.kafka.connect.json.JsonConverter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import ClassVar

from connect_py.api.config import ConfigDef, Importance, Type, Width, one_of
from connect_py.api.converter import ColumnRun
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import MutableHeaders, RawHeaders
from connect_py.api.schema import MAX_NESTING, NULL, Schema, SchemaAndValue, Value
from connect_py.converters.json.connect_schema import read_schema, write_schema
from connect_py.converters.json.enveloped_columns import ENVELOPES, REFUSALS, EnvelopedColumns
from connect_py.converters.json.json_text import MAX_DEPTH, check_nesting, read_json
from connect_py.converters.json.json_values import JsonValueReader, JsonValueWriter, Tree
from connect_py.converters.json.schemaless_columns import SchemalessColumns
from connect_py.converters.value_and_header_converter import ValueAndHeaderConverter

NO_ENVELOPE = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain '
    "additional fields. If you are trying to deserialize plain JSON data, set "
    "schemas.enable=false in your converter configuration."
)
BAD_SCHEMA_CONTENT = "Failed to parse schema in converter config due to serialization error: "


class JsonConverter(ValueAndHeaderConverter):
    """Converts JSON, either with a Connect schema in each message or without schemas."""

    config_def: ClassVar[ConfigDef] = (
        ConfigDef()
        .define(
            "schemas.enable",
            Type.BOOLEAN,
            default=True,
            importance=Importance.HIGH,
            group="Schemas",
            order=0,
            width=Width.MEDIUM,
            display_name="Enable Schemas",
            doc="Include schemas within each of the serialized values and keys.",
        )
        .define(
            "schemas.cache.size",
            Type.INT,
            default=1000,
            importance=Importance.HIGH,
            group="Schemas",
            order=1,
            width=Width.MEDIUM,
            display_name="Schema Cache Size",
            doc="The maximum number of schemas that can be cached in this converter instance.",
        )
        .define(
            "decimal.format",
            Type.STRING,
            default="BASE64",
            importance=Importance.LOW,
            group="Serialization",
            order=0,
            width=Width.MEDIUM,
            display_name="Decimal Format",
            validator=one_of("BASE64", "NUMERIC", case_insensitive=True),
            doc="Format of written decimals: BASE64 for the base64-encoded unscaled bytes, or "
            "NUMERIC for a number. Both formats can be read.",
        )
        .define(
            "replace.null.with.default",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            group="Serialization",
            order=1,
            width=Width.MEDIUM,
            display_name="Replace null with default",
            doc="Whether to replace fields that have a default value and that are null to the "
            "default value.",
        )
        .define(
            "schema.content",
            Type.STRING,
            default=None,
            importance=Importance.HIGH,
            doc="Connect schema for all messages, in JSON. If it is set, messages contain only the "
            "payload.",
        )
    )

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        parsed = self.config_def.parse(configs)
        self._enveloped: bool = parsed["schemas.enable"]
        replace_nulls: bool = parsed["replace.null.with.default"]
        self._values = JsonValueReader(replace_nulls)
        self._writer = JsonValueWriter(replace_nulls, parsed["decimal.format"].upper() == "NUMERIC")
        self._fixed_schema: Schema | None = None
        if self._enveloped and parsed["schema.content"]:
            try:
                tree = read_json(parsed["schema.content"].encode(), exact=True)
                self._fixed_schema = self._schema_of_tree(tree)
            except DataError as error:
                raise ConfigError("schema.content", BAD_SCHEMA_CONTENT + str(error)) from error
        cache_size: int = parsed["schemas.cache.size"]
        self._schema_text = lru_cache(maxsize=cache_size)(self._write_schema)
        self._parsed_schema = lru_cache(maxsize=cache_size)(self._parse_schema)
        self._columns: dict[str, SchemalessColumns | EnvelopedColumns] = {}

    def to_connect(
        self, topic: str, data: bytes | None, headers: RawHeaders = ()
    ) -> SchemaAndValue:
        if data is None:
            return NULL
        if not self._enveloped:
            return SchemaAndValue(None, read_json(data, levels=MAX_NESTING))
        if self._fixed_schema is not None:
            return SchemaAndValue(
                self._fixed_schema,
                self._values.read(self._fixed_schema, read_json(data, exact=True)),
            )
        if data.count(b"[") + data.count(b"{") < MAX_DEPTH:
            try:  # avoids parsing a cached schema, which makes up most of the message
                envelope = ENVELOPES.decode(data)
            except REFUSALS:
                pass
            else:
                payload = read_json(bytes(envelope.payload), exact=True)
                return self._convert(self._parsed_schema(bytes(envelope.schema)), payload)
        schema_tree, payload = _envelope(read_json(data, exact=True))
        return self._convert(self._schema_of_tree(schema_tree), payload)

    def _convert(self, schema: Schema | None, payload: Tree) -> SchemaAndValue:
        if schema is None:
            check_nesting(payload)
        return SchemaAndValue(schema, self._values.read(schema, payload))

    def _parse_schema(self, text: bytes) -> Schema | None:
        return self._schema_of_tree(read_json(text, exact=True))

    def _schema_of_tree(self, tree: Tree) -> Schema | None:
        try:
            return read_schema(tree, self._values)
        except RecursionError as error:
            raise DataError("The schema is nested too deeply") from error

    def from_connect(
        self, topic: str, schema: Schema | None, value: Value, headers: MutableHeaders | None = None
    ) -> bytes | None:
        if schema is None and value is None:
            return None
        payload = self._writer.write(schema, value)
        if not self._enveloped or self._fixed_schema is not None:
            return payload.encode()
        return f'{{"schema":{self._schema_text(schema)},"payload":{payload}}}'.encode()

    def _write_schema(self, schema: Schema | None) -> str:
        return write_schema(schema, self._writer)

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        columns = self._columns.get(topic)
        if columns is None:
            columns = self._columns[topic] = self._new_columns(topic)
        return columns.read(data)

    def _new_columns(self, topic: str) -> SchemalessColumns | EnvelopedColumns:
        if not self._enveloped:
            return SchemalessColumns()
        return EnvelopedColumns(
            partial(self.to_connect, topic),
            self._parsed_schema,
            self._fixed_schema,
            replace_null_with_default=self._values.replace_null_with_default,
        )


def _envelope(tree: Tree) -> tuple[Tree, Tree]:
    if (
        not isinstance(tree, dict)
        or len(tree) != 2
        or "schema" not in tree
        or "payload" not in tree
    ):
        raise DataError(NO_ENVELOPE)
    return tree["schema"], tree["payload"]
